"""Environment steps per second: ours one by one, in Gymnasium's vector environment, in the fast one, and beside others.

The others are panda-gym and Gymnasium-Robotics, where some Python has them. Every Python gets a process; they are measured
in turn, a fraction of a second each, for some rounds, and never two at once. A ratio is taken within each round, so that
a busy moment of the machine meets both sides; reported are the median over the rounds and the interval that holds the
true median with at least 95 %, from the order of the rounds alone (binomial; all of them when there are less than six).

Processor time is that of all processes that step an environment.

The other projects' reach environments run 20 physics steps of 2 ms in each step: beside them ours run 20 of 2 ms too.
"""

from __future__ import annotations

import json as jsonlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from jaxtyping import Float

from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.files import write_json
from ik_sim.peers.host import environments_folder

ROBOTS = ("UR5", "Iiwa14", "Planar2")
EQUAL_PHYSICS = {"control_rate": 25.0, "control": {"physics_rate": 500.0}}
"""20 physics steps of 2 ms in a step."""
OTHERS: dict[str, dict[str, Any]] = {
    "PandaReach": {
        "id": "PandaReach-v3", "imports": ["panda_gym"], "package": "panda-gym", "physics_steps": "sim.n_substeps",
    },
    "FetchReach": {
        "id": "FetchReach-v4", "imports": ["gymnasium_robotics"], "package": "gymnasium-robotics",
        "physics_steps": "n_substeps",
    },
}  # fmt: skip
"""Reach environments of other projects: what :mod:`ik_sim.bench_env_worker` needs to know of them."""


@dataclass(frozen=True)
class BenchEnv:
    """Measure the Gymnasium environments: steps per second, beside other projects' where those are installed.

    Exit code 0; 2 misuse. Others are looked for in this Python, in those named by --peers-python, and in every
    environment in IK_SIM_PEERS (~/.cache/ik_sim/peers).
    """

    peers_python: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A Python that has panda-gym or gymnasium-robotics, once for each."""
    seconds: float = 0.2
    """Of each measurement."""
    rounds: int = 11
    """Measurements of each."""
    num_envs: int = 16
    """Arms in the vector environments."""
    batch: int = 1024
    """Arms in the large kinematic ones."""
    robot: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """UR5, Iiwa14, Planar2 or Planar3, once for each; the first three when left out."""
    json: Path | None = None
    """Also write all figures to this file; - writes them to standard output, in place of the tables."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        for name, low in (("seconds", 1e-3), ("rounds", 1), ("num_envs", 2), ("batch", 2)):
            if not getattr(self, name) >= low:
                raise InvalidArgumentError(name, f"must be {low:g} or more, not {getattr(self, name)}")

        def say(text: str) -> None:
            if not self.quiet:
                print(f"ik-sim: {text}", file=sys.stderr, flush=True)

        result = measure(
            self.robot or ROBOTS, self.peers_python, self.seconds, self.rounds, self.num_envs, self.batch, say
        )
        if self.json is not None:
            write_json(self.json, result)
        if not self.quiet and str(self.json) != "-":
            print(text(result))
        return 0


def measure(
    robots: tuple[str, ...] = ROBOTS,
    pythons: tuple[Path, ...] = (),
    seconds: float = 0.2,
    rounds: int = 11,
    num_envs: int = 16,
    batch: int = 1024,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """All figures, as plain values.

    Args:
        robots: whose environments, as the ids name them.
        pythons: where other projects' environments may be installed.
        seconds: of each measurement.
        rounds: measurements of each.
        num_envs: arms in a vector environment.
        batch: arms in a large kinematic one.
        say: told what is left out.
    """
    for robot in robots:
        _check_robot(robot)
    with ExitStack() as stack:
        ours = stack.enter_context(_worker(Path(sys.executable)))
        askers: dict[str, Callable[..., dict[str, Any]]] = {}
        facts: dict[str, dict[str, Any]] = {}
        for name, spec in _specs(robots, num_envs, batch).items():
            facts[name] = ours({"open": name, "imports": ["ik_sim.env"], **spec})
            if "error" in facts[name]:
                raise IkSimError(f"{name}: {facts[name]['error']}")
            askers[name] = ours
        for name, spec in OTHERS.items():
            if (python := find_python(spec["imports"][0], pythons)) is None:
                say(f"{name} is left out: no Python here has {spec['package']} (see --peers-python)")
                continue
            ask = stack.enter_context(_worker(python))
            found = ask({"open": name, "options": {}, **spec})
            if "error" in found:
                say(f"{name} is left out: {found['error']}")
                continue
            askers[name], facts[name] = ask, found
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in askers}
        for _ in range(rounds):
            for name, ask in askers.items():
                rows[name].append(ask({"run": name, "seconds": seconds}))
    rates = {
        clock: {name: np.array([row["steps"] / row[clock] for row in found]) for name, found in rows.items()}
        for clock in ("wall", "cpu")
    }
    ratios = []
    for of, over, factor, wanted in _pairs(robots, num_envs, facts):
        entry = {"of": of, "over": over, "counted": "physics steps" if factor != 1.0 else "steps", "wanted": wanted}
        for clock in ("wall", "cpu"):
            entry[clock] = interval(factor * rates[clock][of] / rates[clock][over])
        ratios.append(entry)
    return {
        "seconds": seconds, "rounds": rounds, "num_envs": num_envs, "batch": batch,
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "workers": {name: facts[name]["workers"] for name in askers},
        "versions": {name: facts[name]["version"] for name in OTHERS if name in facts},
        "steps_per_second": {
            name: {clock: interval(rates[clock][name]) for clock in ("wall", "cpu")} for name in askers
        },
        "ratios": ratios,
    }  # fmt: skip


def interval(values: Float[np.ndarray, "k"]) -> dict[str, float]:
    """Median, and the interval between two of the values that holds the true one with 95 % or more."""
    from scipy.stats import binom

    n, inside = len(values), np.sort(values)
    k = max(int(binom.ppf(0.025, n, 0.5)) - 1, 0)
    return {"median": float(np.median(values)), "low": float(inside[k]), "high": float(inside[n - 1 - k])}


def find_python(module: str, pythons: tuple[Path, ...] = ()) -> Path | None:
    """The first Python that has a module: of those given, of this one, of those in the folder of the peers."""
    beside = sorted([*environments_folder().glob("*/bin/python"), *environments_folder().glob("*/Scripts/python.exe")])
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    for python in (*pythons, Path(sys.executable), *beside):
        try:
            if subprocess.run([str(python), "-I", "-c", probe], check=False, capture_output=True).returncode == 0:
                return python
        except OSError as error:
            raise InvalidArgumentError("peers_python", f"{python} does not run ({error.strerror})") from None
    return None


def text(result: dict[str, Any]) -> str:
    """Two tables: rates, and ratios with their intervals."""
    lines = [f"\n  {'environment':38} {'processes':>9} {'steps/s':>10} {'of processor time':>19}"]
    for name, rate in result["steps_per_second"].items():
        numbers = f"{rate['wall']['median']:10.0f} {rate['cpu']['median']:19.0f}"
        lines.append(f"  {name:38} {result['workers'][name]:9} {numbers}")
    lines += ["", f"  {'ratio by the clock (95 %)':28} {'by processor time (95 %)':28}"]
    for row in result["ratios"]:
        wall, cpu = (f"{v['median']:6.2f} x ({v['low']:.2f} to {v['high']:.2f})" for v in (row["wall"], row["cpu"]))
        wanted = f", wanted {row['wanted']:g}" if row["wanted"] else ""
        lines.append(f"  {wall:28} {cpu:28} {row['of']} over {row['over']} ({row['counted']}{wanted})")
    return "\n".join(lines)


# --- pieces ---


def _specs(robots: tuple[str, ...], num_envs: int, batch: int) -> dict[str, dict[str, Any]]:
    """Our environments by the names of their rows."""
    found: dict[str, dict[str, Any]] = {}
    for robot in robots:
        env_id = f"IkSim/Reach-{robot}-v0"
        for motion in ("physics", "kinematic"):
            options = {"motion": motion}
            found[f"{robot} {motion}"] = {"id": env_id, "options": options}
            for label, mode in (("Sync", "sync"), ("fast", "vector_entry_point")):
                found[_vector(robot, motion, label, num_envs)] = {
                    "id": env_id, "options": options, "num_envs": num_envs, "vectorization": mode,
                }  # fmt: skip
        found[_vector(robot, "kinematic", "fast", batch)] = {
            "id": env_id, "options": {"motion": "kinematic"}, "num_envs": batch, "vectorization": "vector_entry_point",
        }  # fmt: skip
        for action, label in (("joint_position", ""), ("cartesian", ", Cartesian")):
            found[f"{robot} 20 x 2 ms{label}"] = {
                "id": env_id, "options": {**EQUAL_PHYSICS, "action": action}, "physics_steps": "setup.substeps",
            }  # fmt: skip
    return found


def _vector(robot: str, motion: str, label: str, count: int) -> str:
    return f"{robot} {motion}, {label} {count}"


def _pairs(
    robots: tuple[str, ...], num_envs: int, facts: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, float, float]]:
    """What is divided by what, with a factor for the physics steps in a step, and what is wanted (0: nothing)."""
    for other, wanted in (("PandaReach", 3.0), ("FetchReach", 1.0)):
        if other not in facts:
            continue
        for robot in robots:
            if robot.startswith("Planar"):
                continue
            for name in (f"{robot} 20 x 2 ms", f"{robot} 20 x 2 ms, Cartesian"):
                yield name, other, facts[name]["physics_steps"] / facts[other]["physics_steps"], wanted
    for robot in robots:
        for motion in ("physics", "kinematic"):
            fast, slow = (_vector(robot, motion, label, num_envs) for label in ("fast", "Sync"))
            yield fast, slow, 1.0, 2.0


def _check_robot(name: str) -> None:
    import ik_sim.env
    from ik_sim.errors import UnknownNameError

    known = [env_id.split("-")[1] for env_id in ik_sim.env.ENV_IDS if "/Reach-" in env_id]
    if name not in known:
        raise UnknownNameError("robot of an environment", name, known)


@contextmanager
def _worker(python: Path) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """A process with that Python, as a function that asks it and waits for the answer."""
    path = Path(__file__).with_name("bench_env_worker.py")
    environment = dict(os.environ)
    if python == Path(sys.executable):  # ours: it needs this package, wherever it lies
        folders = [str(path.parents[1]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    else:
        environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(
        [str(python), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=environment,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    requests, replies = process.stdin, process.stdout

    def ask(message: dict[str, Any]) -> dict[str, Any]:
        requests.write(jsonlib.dumps(message) + "\n")
        requests.flush()
        line = replies.readline()
        if not line:
            raise IkSimError(f"{python} ended while it measured {message.get('open') or message.get('run')}")
        return jsonlib.loads(line)

    try:
        yield ask
    finally:
        requests.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        replies.close()
