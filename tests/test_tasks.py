"""Task files: what they may hold, and what is said about those that can't be used."""

from pathlib import Path

import numpy as np
import pytest

from ik_sim.errors import IkSimError, TaskError, UnknownNameError
from ik_sim.robots import load_robot
from ik_sim.target import AXIS, POINT, POSE
from ik_sim.tasks import load_task, parse_override, task_names

GOOD = """
title = "A short line"
robot = "ur5"
rate = 20

[path]
kind = "line"
displacement = [0.0, -0.1, 0.0]
duration = 1.0

[tolerance]
residual_position = 1e-6
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", task_names())
def test_every_task_loads_names_its_tolerances_and_stays_within_limits(name):
    task = load_task(name)
    for key in ("residual", "tracking"):
        for kind in ("position", "rotation"):
            found = [v for n, v in vars(task.tolerance).items() if n.startswith(f"{key}_{kind}")]
            assert found
            assert None not in found
    assert task.tolerance.joint_step is not None
    assert task.tolerance.converged_share == 1.0
    assert task.budget.solve_time_median_ms is not None
    assert task.budget.solve_time_p99_ms is not None
    robot = task.load_robot()
    path = task.trajectory(robot)
    assert robot.chain.within_limits(path.q_start)
    assert len(path) >= 50
    # The first target is next to where the arm stands: a task starts without a leap.
    position = np.linalg.norm(path.targets[0, :3, 3] - robot.chain.fk(path.q_start)[:3, 3])
    assert position < 0.01
    if path.q_reference is not None:
        assert all(robot.chain.within_limits(q) for q in path.q_reference)
    assert task.load_solver() is not None


def test_there_are_at_least_three_tasks_for_either_arm():
    robots = [load_task(name).robot for name in task_names()]
    assert robots.count("ur5") >= 3
    assert robots.count("iiwa14") >= 3


def test_a_missing_task_names_the_ones_there_are():
    with pytest.raises(
        UnknownNameError, match=r"no task 'paper_ur55' \(did you mean 'paper_ur5'\?\); known: .*ur5_line"
    ):
        load_task("paper_ur55")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rate = 20", "rate = 20\nspeed = 3"), "unknown key 'speed'"),
        (("duration", "duratoin"), r"unknown key 'path.duratoin' \(did you mean 'duration'\?\)"),
        (("residual_position", "residual"), "unknown key 'tolerance.residual'"),
        (("duration = 1.0", ""), "the key 'path.duration' is missing"),
        (("duration = 1.0", "duration = nan"), "path.duration: a finite number is wanted"),
        (("duration = 1.0", "duration = '1'"), "path.duration: a number is wanted"),
        (("1e-6", "-1e-6"), "tolerance.residual_position: must be above 0"),
        (("1e-6", "nan"), "tolerance.residual_position: a finite number is wanted"),
        (('kind = "line"', 'kind = "lime"'), "path.kind is 'lime'; known: line, circle, joints, random, two_phase"),
        (('kind = "line"', ""), "path.kind is missing"),
        (("[path]", "[[path]]"), "path: a table is wanted"),
        (("rate = 20", "rate = 0"), "rate: must be above 0"),
        (("rate = 20", "rate = 500"), "rate: is 500 targets per second, more than physics_rate"),
        (("rate = 20", 'rate = 20\ntarget = "line"'), "target: no kind of target 'line'"),
        (("rate = 20", "rate = 20\nseed = -1"), "seed: must be 0 or more"),
        (("[tolerance]", "[solver]\nname = 3\n[tolerance]"), "solver.name: a text is wanted"),
        (("[tolerance]", "[solver]\nbend = nan\n[tolerance]"), "solver.bend: a finite number is wanted"),
        (("[tolerance]", "[control]\nposition_gain = 1.5\n[tolerance]"), "control.position_gain: is a share"),
        (("[tolerance]", '[control]\nmode = "force"\n[tolerance]'), "control.mode: no control mode 'force'"),
        (("[tolerance]", "[control]\ntorque_scale = 0\n[tolerance]"), "control.torque_scale: must be above 0"),
        (("[tolerance]", "[control]\ngravity = [0, 0]\n[tolerance]"), "control.gravity: must be three finite numbers"),
        (("[tolerance]", "[budget]\nsolve_time = 1\n[tolerance]"), "unknown key 'budget.solve_time'"),
        (("title =", "title"), "is not valid TOML"),
    ],
)
def test_a_slip_in_a_task_file_is_named_with_file_and_key(tmp_path, change, words):
    path = write(tmp_path, GOOD.replace(*change))
    with pytest.raises(TaskError, match=words) as caught:
        load_task(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.path == path


def test_a_file_that_is_not_there_or_not_text_is_one_line(tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        load_task(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="is not UTF-8"):
        load_task(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("duration = 1.0", "duration = 1.0\nq_start = [0.0, 1.0]"),
            "path.q_start: 2 given, 6 wanted: shoulder_pan_joint",
        ),
        (
            ("duration = 1.0", "duration = 1.0\nq_start = [0, 0, 9, 0, 0, 0]"),
            "path.q_start: elbow_joint = 9 is outside",
        ),
        (("duration = 1.0", "duration = 0.0"), "path.duration: must be a positive number"),
        (("[0.0, -0.1, 0.0]", "[0.0, -0.1]"), "path.displacement: must be three numbers"),
        (("displacement = [0.0, -0.1, 0.0]", ""), "path.displacement: a line needs either displacement or position"),
        (("duration = 1.0", 'duration = 1.0\ntiming = "slow"'), "path.no timing 'slow'"),
    ],
)
def test_a_path_that_does_not_fit_the_robot_is_a_task_error(tmp_path, change, words):
    task = load_task(write(tmp_path, GOOD.replace(*change)))
    with pytest.raises(TaskError, match=words):
        task.trajectory()


def test_a_task_for_another_robot_is_refused_by_its_joints():
    with pytest.raises(TaskError, match="is written for ur5 with 6 joints; iiwa14 has 7: joint_1"):
        load_task("ur5_random").trajectory(load_robot("iiwa14"))


def test_overrides_set_single_keys_and_another_solver_drops_the_settings_of_the_first(tmp_path):
    path = write(tmp_path, GOOD + '\n[solver]\nname = "combined"\nswitch_after = 7\n')
    task = load_task(path, {"control.position_gain": 0.2, "seed": 5, "path.duration": 2})
    assert task.control.position_gain == 0.2
    assert task.seed == 5
    assert len(task.trajectory()) == 40
    assert task.load_solver().switch_after == 7
    other = load_task(path, {"solver.name": "closed_form"})
    assert not other.solver.settings
    with pytest.raises(TaskError, match=r"can't set 'rate.high': 'rate' is not a table"):
        load_task(path, {"rate.high": 1})


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("control.payload=2.5", "control.payload", 2.5),
        ("path.q_start=[0, 1]", "path.q_start", [0, 1]),
        ("solver.name=closed_form", "solver.name", "closed_form"),
        ("path.turn_tool = true", "path.turn_tool", True),
    ],
)
def test_overrides_are_typed_as_in_a_file(text, key, value):
    assert parse_override(text) == (key, value)


def test_an_override_without_a_value_is_refused():
    with pytest.raises(IkSimError, match="takes key=value"):
        parse_override("control.payload")


def test_a_setting_that_the_solver_lacks_is_refused_by_name(tmp_path):
    task = load_task(write(tmp_path, GOOD + "\n[solver]\nno_such_option = 1\n"))
    with pytest.raises(TaskError, match="no_such_option"):
        task.load_solver()


@pytest.mark.parametrize(("word", "kind"), [("pose", POSE), ("point", POINT), ("axis", AXIS)])
def test_what_counts_of_a_pose_can_be_chosen(tmp_path, word, kind):
    task = load_task(write(tmp_path, GOOD), {"target": word})
    T = task.trajectory().targets[0]
    goal = task.goal(T)
    assert goal.kind == kind
    np.testing.assert_array_equal(goal.T[:3, 3], T[:3, 3])
    if kind != POINT:
        np.testing.assert_allclose(goal.T[:3, 2], T[:3, 2], atol=1e-15)


def test_a_robot_file_is_found_from_the_task_file(tmp_path):
    urdf = load_robot("planar2").urdf_path
    (tmp_path / "arms").mkdir()
    (tmp_path / "arms" / "two.urdf").write_text(
        urdf.read_text().replace('filename="meshes', f'filename="{urdf.parent}/meshes')
    )
    text = GOOD.replace('robot = "ur5"', 'robot = "arms/two.urdf"').replace("[0.0, -0.1, 0.0]", "[0.0, 0.1, 0.0]")
    task = load_task(write(tmp_path, text))
    assert task.load_robot().chain.n == 2


def test_a_line_may_end_at_a_point_and_an_orientation(tmp_path):
    end = "position = [-0.5, -0.2, 0.4]\nrpy = [3.0, 0.0, 0.5]"
    task = load_task(write(tmp_path, GOOD.replace("displacement = [0.0, -0.1, 0.0]", end)))
    T = task.trajectory().targets[-1]
    np.testing.assert_allclose(T[:3, 3], [-0.5, -0.2, 0.4], atol=1e-15)
    np.testing.assert_allclose(T[2, :3], [0.0, np.sin(3.0), np.cos(3.0)], atol=1e-15)
