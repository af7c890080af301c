"""`ik-sim bench env`: who takes part, what is counted, and how ratios are made."""

import json
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

from ik_sim import bench_env
from ik_sim.bench_env import OTHERS, find_python, interval, measure
from ik_sim.bench_env_worker import Steps, open_environment, physics_steps
from ik_sim.cli import MISUSE, PASS, main
from ik_sim.errors import InvalidArgumentError, UnknownNameError

FAKE = """
import time
import gymnasium
import numpy as np

print("a library that greets on standard output")

class Sim:
    n_substeps = 20

class Reach(gymnasium.Env):
    action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    sim = Sim()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        return np.zeros(3, np.float32), 0.0, False, False, {}

gymnasium.register("PandaReach-v3", entry_point=Reach, max_episode_steps=50)
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory) -> Path:
    """A Python of its own with a stand-in for panda-gym whose steps take 2 ms, and a broken gymnasium_robotics."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder / "venv", with_pip=False)
    (folder / "panda_gym.py").write_text(FAKE)
    (folder / "gymnasium_robotics.py").write_text("raise RuntimeError('at odds with its mujoco')\n")
    packages = next((folder / "venv").glob("lib/python*/site-packages"))
    for name in ("panda_gym", "gymnasium_robotics"):
        info = packages / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.2\n")
    (packages / "beside.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")
    return folder / "venv" / "bin" / "python"


@pytest.mark.skipif(sys.platform == "win32", reason="a venv lies otherwise there")
def test_ours_run_beside_others_at_equal_physics_and_who_can_not_is_left_out_with_a_word(other_python):
    said: list[str] = []
    result = measure(("UR5",), (other_python,), seconds=0.05, rounds=3, num_envs=4, batch=8, say=said.append)
    assert said == ["FetchReach is left out: RuntimeError: at odds with its mujoco"]
    assert result["versions"] == {"PandaReach": "1.2"}
    rate = result["steps_per_second"]
    assert 100.0 < rate["PandaReach"]["wall"]["median"] <= 500.0  # 2 ms a step at least
    beside = [row for row in result["ratios"] if row["over"] == "PandaReach"]
    assert [row["of"] for row in beside] == ["UR5 20 x 2 ms", "UR5 20 x 2 ms, Cartesian"]
    for row in beside:
        assert row["wanted"] == 3.0
        assert row["counted"] == "steps"  # 20 of 2 ms on both sides
        assert row["wall"]["low"] <= row["wall"]["median"] <= row["wall"]["high"]
        # The ratio is taken round by round, so it is near, but need not be, the ratio of the medians.
        medians = rate[row["of"]]["wall"]["median"] / rate["PandaReach"]["wall"]["median"]
        assert row["wall"]["median"] == pytest.approx(medians, rel=0.5)
    assert result["workers"]["UR5 physics, fast 4"] == 1  # too few arms for a second process
    vectors = [row for row in result["ratios"] if "fast 4" in row["of"]]
    assert [row["over"] for row in vectors] == ["UR5 physics, Sync 4", "UR5 kinematic, Sync 4"]


def test_a_vector_environment_counts_the_steps_of_each_of_its_arms():
    options = {"motion": "kinematic"}
    spec = {"imports": ["ik_sim.env"], "id": "IkSim/Reach-Planar2-v0", "options": options}
    many = {**spec, "num_envs": 6, "vectorization": "vector_entry_point"}
    for chosen, arms in ((spec, 1), (many, 6)):
        env, count = open_environment(chosen)
        assert count == arms
        steps = Steps(env, count)
        found = steps.run(0.02)
        assert found["steps"] % arms == 0
        assert found["steps"] == arms * steps._count
        assert found["wall"] >= 0.02
        env.close()


def test_processes_that_step_an_environment_are_counted_and_so_is_their_processor_time():
    spec = {
        "imports": ["ik_sim.env"],
        "id": "IkSim/Reach-UR5-v0",
        "num_envs": 16,
        "vectorization": "vector_entry_point",
    }
    spent = []
    for workers in (1, 2):
        env, count = open_environment({**spec, "options": {"workers": workers}})
        steps = Steps(env, count)
        assert steps.workers == workers
        found = [steps.run(0.2) for _ in range(5)]
        spent.append(min(row["cpu"] / row["steps"] for row in found))
        env.close()
    # Half the arms are another process's: left out, its part would make a step cost half of what it costs.
    assert spent[1] > 0.75 * spent[0]


def test_physics_steps_in_a_step_are_asked_of_the_environment_itself():
    spec = {"imports": ["ik_sim.env"], "id": "IkSim/Reach-Planar2-v0", "options": bench_env.EQUAL_PHYSICS}
    env, _ = open_environment(spec)
    assert physics_steps(env, "setup.substeps") == 20
    assert env.unwrapped.setup.period / env.unwrapped.setup.substeps == pytest.approx(0.002)
    assert physics_steps(env, "") is None
    env.close()


def test_the_interval_of_a_median_is_between_the_values_that_binomial_chance_allows():
    assert interval(np.arange(11.0)[::-1]) == {"median": 5.0, "low": 1.0, "high": 9.0}
    assert interval(np.arange(5.0)) == {"median": 2.0, "low": 0.0, "high": 4.0}  # too few to leave any out
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        found = interval(rng.lognormal(0.0, 1.0, 25))
        held += found["low"] <= 1.0 <= found["high"]
    # 95.7 % is what it should hold of 25 draws; 400 trials are within 2.5 % of that, with three standard errors.
    assert 0.93 <= held / 400 <= 0.985


def test_others_are_found_in_the_folder_of_the_peers(other_python, tmp_path, monkeypatch):
    monkeypatch.setenv("IK_SIM_PEERS", str(tmp_path))
    name = "gymnasium_robotics_or_not"
    assert find_python(name) is None
    assert find_python("gymnasium", (other_python,)) == other_python  # those given come first
    assert find_python("gymnasium") == Path(sys.executable)
    (tmp_path / "panda").symlink_to(other_python.parents[1])
    (other_python.parents[2] / f"{name}.py").write_text("")
    assert find_python(name) == tmp_path / "panda" / "bin" / "python"
    with pytest.raises(InvalidArgumentError, match="does not run"):
        find_python(name, (tmp_path / "no-python",))


def test_the_command_prints_ratios_or_writes_them_and_misuse_is_answered(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IK_SIM_PEERS", str(tmp_path))
    monkeypatch.setattr(bench_env, "OTHERS", {"FetchReach": {**OTHERS["FetchReach"], "imports": ["no_such_module"]}})
    short = ["--robot", "Planar2", "--seconds", "0.02", "--rounds", "2", "--num-envs", "2", "--batch", "2"]
    assert main(["bench", "env", *short, "--json", str(tmp_path / "out.json")]) == PASS
    out, err = capsys.readouterr()
    assert "Planar2 physics, fast 2 over Planar2 physics, Sync 2 (steps, wanted 2)" in out
    assert "FetchReach is left out: no Python here has gymnasium-robotics" in err
    assert json.loads((tmp_path / "out.json").read_text())["rounds"] == 2
    assert main(["bench", "env", "--robot", "UR6"]) == MISUSE
    assert "UR5" in capsys.readouterr().err
    assert main(["bench", "env", "--rounds", "0"]) == MISUSE
    with pytest.raises(UnknownNameError):
        measure(("ur5",))
