"""The whole job: an arm tracks a task in physics, and the verdict is true."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ik_sim.control import ControlSettings
from ik_sim.errors import InvalidArgumentError, TaskError
from ik_sim.robots import load_robot
from ik_sim.se3 import pose_error, rotation_exp, transform
from ik_sim.simulation import Simulation
from ik_sim.solvers import load_solver
from ik_sim.target import Tolerance
from ik_sim.tasks import load_task
from ik_sim.tracking import TrackingLog, check, metrics, record, summary, track
from ik_sim.tracking_log import MOVING, SETTLED, SETTLING, pose_errors
from ik_sim.verdict import cause, error_figures

TIMING = ("solve_time_s",)
"""Columns that are read off a clock; all others repeat bit for bit."""


@pytest.fixture(scope="module")
def logs() -> dict[str, TrackingLog]:
    return {name: record(load_task(name)) for name in ("paper_ur5", "paper_iiwa14")}


def fingerprint(log: TrackingLog) -> str:
    digest = hashlib.sha256()
    for name, column in log.columns().items():
        if name not in TIMING:
            digest.update(name.encode())
            digest.update(column.tobytes() if isinstance(column, np.ndarray) else repr(column).encode())
    return digest.hexdigest()


# --- the reference task ---


@pytest.mark.parametrize("name", ["paper_ur5", "paper_iiwa14"])
def test_the_reference_task_passes_with_every_target_reached(logs, name):
    log, task = logs[name], load_task(name)
    moving = log.of_phase(MOVING)
    assert moving.sum() == 180
    assert log.converged[moving].all()
    assert log.residual_position[moving].max() <= 1e-6
    assert log.residual_rotation[moving].max() <= 1e-9
    broken = [v for v in check(log, task) if not v.metric.startswith("solve_time")]  # a test machine may be busy
    assert broken == []


@pytest.mark.parametrize(
    ("name", "step", "joint", "largest"), [("paper_ur5", 0.2207, 2, 0.218), ("paper_iiwa14", 0.2241, 3, 0.239)]
)
def test_the_large_joint_step_is_the_one_into_the_stretched_arm(logs, name, step, joint, largest):
    log = logs[name]
    assert log.label[79] == "phase 1"
    assert log.label[80] == "phase 2"
    assert int(np.argmax(np.abs(log.q_command[79] - log.q_command[78]))) == joint
    # Geometry; an iteration may stop a little short of the stretch.
    assert log.joint_step[79] == pytest.approx(step, abs=0.02)
    assert log.joint_step.max() == pytest.approx(largest, abs=6e-4)  # as published, three digits
    slsqp = np.flatnonzero(log.used_slsqp & log.of_phase(MOVING))
    wanted = [*range(57, 129), *range(162, 180)] if name == "paper_ur5" else range(64, 128)
    assert set(slsqp) <= set(wanted)
    assert len(set(wanted) - set(slsqp)) <= 3  # FABRIK arrives by itself at points 107 and 108 of the UR5
    assert log.joint_step[:79].max() < 0.1


@pytest.mark.parametrize("name", ["paper_ur5", "paper_iiwa14"])
def test_physics_follows_the_reference_within_real_torque_and_speed(logs, name):
    log = logs[name]
    assert log.torque_saturation.max() == 0.0
    assert log.speed_saturation.max() == 0.0
    assert np.abs(log.joint_error).max() < 1e-12
    limits = [log.provenance["control"]["torque_limits"][joint] for joint in log.joint_names]
    assert 0.3 < (log.torque / limits).max() < 1.0  # the arms carry their weight, and don't hang from nothing


@pytest.mark.parametrize("name", ["paper_ur5", "paper_iiwa14"])
def test_every_sample_but_its_clock_repeats_bit_for_bit_here_and_in_another_process(logs, name):
    assert fingerprint(record(load_task(name))) == fingerprint(logs[name])
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_tracking as t\n"
        "sys.stdout.write(t.fingerprint(t.record(t.load_task(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), name]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == fingerprint(logs[name])


def test_one_worker_and_two_give_the_same_bits(logs):
    program = (
        "import sys, joblib; sys.path.insert(0, sys.argv[1])\n"
        "import test_tracking as t\n"
        "names = ['paper_ur5', 'ur5_random', 'paper_ur5']\n"
        "print(*joblib.Parallel(n_jobs=int(sys.argv[2]))(joblib.delayed(t.fingerprint_of)(name) for name in names))"
    )
    folder = str(Path(__file__).parent)
    path = os.pathsep.join([folder, str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    found = []
    for workers in "12":
        command = [sys.executable, "-c", program, folder, workers]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert found[0][0] == found[0][2] == fingerprint(logs["paper_ur5"])
    assert found[0][1] != found[0][0]


def fingerprint_of(name: str) -> str:
    return fingerprint(record(load_task(name)))


# --- samples and columns ---


def test_the_parts_of_an_error_are_measured_by_forward_kinematics_alone():
    task = load_task("ur5_line", {"control.position_gain": 0.1, "settle": 0.1, "hold": 0.1})
    robot = task.load_robot()
    fk = robot.chain.fk
    rows = []
    log = record(task, robot, on_sample=rows.append)
    assert len(rows) == len(log)
    for i in (0, 10, 40, len(log) - 1):
        T = log.targets[i]
        assert log.residual_position[i] == pytest.approx(pose_error(fk(log.q_command[i]), T)[0], abs=1e-15)
        assert log.servo_position[i] == pytest.approx(
            pose_error(fk(log.q_measured[i]), fk(log.q_command[i]))[0], abs=1e-15
        )
        assert log.tracking_position[i] == pytest.approx(pose_error(fk(log.q_measured[i]), T)[0], abs=1e-15)
        assert log.tracking_rotation[i] == pytest.approx(pose_error(fk(log.q_measured[i]), T)[1], abs=1e-12)
        assert rows[i].tracking_error == (log.tracking_position[i], log.tracking_rotation[i])
        assert rows[i].residual[0] == log.residual_position[i]
        np.testing.assert_array_equal(log.joint_error[i], log.q_command[i] - log.q_measured[i])


# With a velocity gain of 1 the same recursion runs in PyBullet and here, 1200 steps of rounding apart; below 1 the
# forces of the motion leak in, a few microradians without gravity.
@pytest.mark.parametrize(
    ("gain", "velocity_gain", "gravity", "off"),
    [(0.1, 1.0, -9.81, 1e-10), (0.5, 1.0, -9.81, 1e-10), (0.3, 0.6, 0.0, 1e-5)],
)
def test_the_response_without_limits_is_the_measured_one_when_nothing_saturates(gain, velocity_gain, gravity, off):
    servo = {"control.position_gain": gain, "control.velocity_gain": velocity_gain}
    log = record(load_task("iiwa14_line", {**servo, "control.gravity": [0.0, 0.0, gravity]}))
    assert log.torque_saturation.max() == 0.0
    np.testing.assert_allclose(log.q_unlimited, log.q_measured, atol=off)
    assert log.limits_position.max() < 2.0 * off
    assert log.lag_position.max() > 1e-4


def test_a_soft_servo_is_told_to_sag():
    found = messages("ur5_line", control__velocity_gain=0.6)
    assert "controller sag" in found["tracking_position_settled"]
    assert "velocity gain 0.6" in found["tracking_position_settled"]


def test_pose_errors_of_many_agree_with_one_and_know_points_and_axes():
    rng = np.random.default_rng(1)
    A, B = (
        np.stack([transform(rotation_exp(rng.normal(size=3)), rng.normal(size=3)) for _ in range(20)]) for _ in "ab"
    )
    position, rotation = pose_errors(A, B)
    for i in range(20):
        np.testing.assert_allclose((position[i], rotation[i]), pose_error(A[i], B[i]), atol=1e-14)
    assert pose_errors(A, B, "point")[1].max() == 0.0
    between = np.arccos((A[:, :3, 2] * B[:, :3, 2]).sum(axis=1))
    np.testing.assert_allclose(pose_errors(A, B, "axis")[1], between, atol=1e-7)


def test_phases_follow_one_another_and_are_never_mixed():
    task = load_task("planar3_line", {"settle": 0.3, "hold": 0.4, "control.position_gain": 0.05})
    log = record(task)
    phases = [phase for i, phase in enumerate(log.phase) if i == 0 or phase != log.phase[i - 1]]
    assert phases == [MOVING, SETTLING, SETTLED]
    assert [log.phase.count(p) for p in phases] == [80, 6, 8]
    figures = {m.name: m.value for m in metrics(log, task)}
    moving, settled = log.of_phase(MOVING), log.of_phase(SETTLED)
    assert figures["tracking_position_moving"] == log.tracking_position[moving].max()
    assert figures["tracking_position_settled"] == log.tracking_position[settled].max()
    assert log.tracking_position[settled].max() < 0.1 * log.tracking_position[moving].max()
    np.testing.assert_allclose(np.diff(log.time), 0.05, atol=1e-12)


def test_a_rate_that_does_not_divide_the_physics_rate_still_ends_on_time():
    task = load_task("planar3_line", {"rate": 70.0, "path.duration": 1.0, "settle": 0.0, "hold": 0.2})
    log = record(task)
    assert log.time[69] == pytest.approx(1.0, abs=1e-12)
    assert np.abs(log.time[:70] - np.arange(1, 71) / 70).max() <= 0.5 / 240 + 1e-12


def test_the_first_call_of_a_solver_is_timed_apart():
    class Slow:
        stop = Tolerance()

        def __init__(self) -> None:
            self.calls = 0
            self.inner = load_solver("closed_form")

        def solve(self, chain, target, q_seed=None):
            self.calls += 1
            if self.calls == 1:
                time.sleep(0.2)
            return self.inner.solve(chain, target, q_seed)

    task = load_task("planar3_line")
    solver = Slow()
    log = record(task, solver=solver)
    assert solver.calls == len(log) + 1
    assert log.provenance["first_solve_time_s"] > 0.2
    assert (log.solve_time > 0.0).all()
    times = summary(log)["solve_time_ms"]
    assert times["first_call"] > 200.0
    assert times["max"] < 200.0
    assert times["n"] == 80
    assert {"median", "p95", "p99"} <= set(times)


def test_provenance_says_what_ran_in_plain_values(logs):
    facts = logs["paper_ur5"].provenance
    json.dumps(facts)
    assert facts["task"]["path"]["kind"] == "two_phase"
    assert facts["solver"].startswith("Combined(")
    assert facts["control"]["position_gain"] == load_robot("ur5").control.position_gain
    assert facts["control"]["constraint_solver"] == "direct"
    assert facts["robot"]["joints"][2] == "elbow_joint"
    assert len(facts["robot"]["urdf_sha256"]) == 64
    assert {"ik_sim", "python", "numpy"} <= set(facts["versions"])
    assert facts["seed"] == 0


# --- driving the loop ---


def test_the_generator_returns_the_log_and_closes_its_session_when_left_early():
    task = load_task("planar2_circle")
    ticks = track(task)
    first = next(ticks)
    assert first.phase == MOVING
    ticks.close()

    ticks = track(task)
    samples = []
    while True:
        try:
            samples.append(next(ticks))
        except StopIteration as end:
            log = end.value
            break
    assert isinstance(log, TrackingLog)
    assert len(log) == len(samples) == 120


def test_an_open_simulation_is_used_reset_and_left_open():
    task = load_task("planar2_circle")
    robot = task.load_robot()
    alone = fingerprint(record(task, robot))
    with Simulation(robot, task.control) as simulation:
        simulation.move(robot.q_home + 0.3, 30)
        assert fingerprint(record(task, robot, simulation=simulation)) == alone
        assert not simulation.closed
        with pytest.raises(InvalidArgumentError, match="holds planar2, not this planar3"):
            record(load_task("planar3_line"), simulation=simulation)


def test_a_task_for_another_robot_does_not_start():
    with pytest.raises(TaskError, match="is written for ur5"):
        record(load_task("ur5_line"), load_robot("iiwa14"))


# --- the verdict ---


def messages(name: str, **overrides) -> dict[str, str]:
    task = load_task(name, {key.replace("__", "."): value for key, value in overrides.items()})
    return {v.metric: v.message for v in check(record(task), task)}


def test_a_low_gain_is_told_as_lag_with_its_gain():
    found = messages("paper_ur5", control__position_gain=0.003)
    for metric in ("tracking_position_moving", "tracking_position_settled", "tracking_rotation_moving"):
        assert "controller lag" in found[metric]
        assert "gain 0.003" in found[metric]
    assert "residual_position" not in found


def test_a_weak_arm_is_told_as_saturated_torque_with_its_joints():
    found = messages("paper_ur5", control__torque_scale=0.05)
    assert "torque saturated: shoulder_lift_joint at its 7.5 Nm" in found["tracking_position_moving"]
    assert "torque saturated" in found["tracking_position_settled"]
    assert "residual_position" not in found


def test_slow_joints_are_told_as_saturated_speed():
    found = messages("ur5_line", control__speed_scale=0.05)
    assert "speed saturated: " in found["tracking_position_moving"]
    assert "elbow_joint at its 0.157 rad/s on 100 % of the steps" in found["tracking_position_moving"]


def test_a_target_out_of_reach_is_told_as_such_with_the_distance():
    found = messages("ur5_line", path__displacement=[-0.6, 0.0, 0.0], path__duration=8.0)
    assert "out of reach" in found["residual_position"]
    assert "out of reach" in found["converged_share"]
    assert "out of reach" in found["tracking_position_settled"]


def test_a_tolerance_below_the_solvers_own_is_told_as_residual():
    found = messages("paper_ur5", tolerance__residual_position=1e-12)
    assert set(found) == {"residual_position"}
    assert "solver residual" in found["residual_position"]
    assert "1e-12" in found["residual_position"]


def test_two_faults_at_once_are_both_measured_and_the_larger_one_named():
    task = load_task("ur5_line", {"control.position_gain": 0.1, "control.speed_scale": 0.1})
    log = record(task)
    row = int(np.argmax(np.where(log.of_phase(MOVING), log.tracking_position, 0.0)))
    text = cause(log, row)
    assert log.limits_position[row] > log.lag_position[row] > 1e-4
    assert text.startswith("speed saturated")
    assert f"lag {1000.0 * log.lag_position[row]:.4g} mm" in text
    early = 8  # before any joint was asked for more than it may
    assert log.limits_position[early] < 1e-9 < log.lag_position[early]
    assert cause(log, early).startswith("controller lag")


def test_a_leap_to_another_branch_is_told_from_a_fast_path_and_from_a_singular_posture():
    class Leaper:
        stop = Tolerance()

        def __init__(self) -> None:
            self.inner, self.calls = load_solver("closed_form"), 0

        def solve(self, chain, target, q_seed):
            self.calls += 1
            if self.calls == 40:  # the other elbow
                q_seed = np.array([q_seed[0], q_seed[1] + 1.0, -q_seed[2], *q_seed[3:]])
            return self.inner.solve(chain, target, q_seed)

    task = load_task("ur5_line")
    log = record(task, solver=Leaper())
    found = {v.metric: v.message for v in check(log, task)}
    assert "changed to another branch" in found["joint_step"]
    assert log.converged.all()

    fast = messages("ur5_line", path__duration=0.5)["joint_step"]
    assert "the path is that fast: elbow_joint needs 4.3 rad/s, limit 3.142" in fast
    stretch = messages("paper_ur5", tolerance__joint_step=0.1)["joint_step"]
    assert "elbow_joint passes a singular posture" in stretch


def test_a_solver_that_leaves_the_limits_is_told_even_if_no_tolerance_breaks():
    class Careless:
        stop = Tolerance()

        def __init__(self) -> None:
            self.inner = load_solver("closed_form")

        def solve(self, chain, target, q_seed=None):
            solution = self.inner.solve(chain, target, q_seed)
            solution.q[0] = 7.0
            return solution

    task = load_task("ur5_line", {"settle": 0.0, "hold": 0.1, "path.duration": 0.5})
    log = record(task, solver=Careless())
    violation = next(v for v in check(log, task) if v.metric == "joint_limits")
    assert "12 commands lay outside them and were clipped, the first at 0.050 s" in violation.message
    assert log.q_command[:, 0].max() == 2 * np.pi


def test_a_solver_too_slow_for_its_budget_breaks_it():
    task = load_task("planar3_line", {"budget.solve_time_median_ms": 1e-6})
    found = {v.metric: v for v in check(record(task), task)}
    assert "too slow for its budget" in found["solve_time_median_ms"].message
    assert found["solve_time_median_ms"].time is None


def test_what_a_task_leaves_out_is_not_judged(logs):
    task = load_task("paper_ur5")
    silent = dataclasses.replace(
        task, tolerance=dataclasses.replace(task.tolerance, residual_position=None, joint_step=None)
    )
    judged = {m.name: m.limit for m in metrics(logs["paper_ur5"], silent)}
    assert judged["residual_position"] is None
    assert judged["joint_step"] is None
    assert judged["residual_rotation"] == 1e-9


def test_a_violation_carries_metric_value_limit_and_time():
    task = load_task("paper_ur5", {"tolerance.joint_step": 0.1})
    (violation,) = [v for v in check(record(task), task) if v.metric == "joint_step"]
    assert violation.value == pytest.approx(0.2207, abs=0.02)
    assert violation.limit == 0.1
    assert violation.time == pytest.approx(16.0)
    assert str(violation) == violation.message


def test_the_error_figures_of_a_known_history():
    errors = np.array([0.003, 0.001, 0.002, 0.0])
    figures = error_figures(errors, 0.002)
    assert figures.max == 0.003
    assert figures.final == 0.0
    assert figures.rms == pytest.approx(np.sqrt(14e-6 / 4), rel=1e-15)
    assert figures.share_in_tolerance == 0.75
    with pytest.raises(InvalidArgumentError, match="one-dimensional and not empty"):
        error_figures([])


def test_the_error_figures_of_a_recorded_path_are_the_known_ones():
    rows = np.genfromtxt(Path(__file__).parent / "data" / "tracking_known.csv", delimiter=",", names=True)
    wanted, driven = (np.stack([rows[f"{who}_{axis}_m"] for axis in "xyz"], axis=1) for who in ("ref", "act"))
    figures = error_figures(np.linalg.norm(driven - wanted, axis=1), 0.002)
    assert figures.rms == pytest.approx(0.00174020529447, abs=1e-9)
    assert figures.max == pytest.approx(0.0026999302395, abs=1e-9)
    assert figures.final == pytest.approx(0.00113029127747, abs=1e-9)
    assert figures.share_in_tolerance == pytest.approx(0.62, abs=1e-9)


@pytest.mark.parametrize(
    "name", ["fabrik", "combined", "jacobian_transpose", "damped_least_squares", "closed_form", "slsqp"]
)
def test_every_solvers_log_holds_its_budget_and_what_it_used(name):
    """Success that is bought with more attempts shows: times, iterations and restarts stand beside equal budgets."""
    overrides: dict = {"solver.name": name, "path.duration": 1.0, "settle": 0.0, "hold": 0.0, "seed": 7}
    if name != "closed_form":
        overrides |= {"solver.max_iterations": 100, "solver.restarts": 1}
    task = load_task("ur5_line", overrides)
    log = record(task)
    facts = log.provenance
    assert facts["seed"] == 7
    assert "position=" in facts["solver"]
    assert "rotation=" in facts["solver"]
    if name != "closed_form":
        assert "max_iterations=100" in facts["solver"]
        assert "restarts=1" in facts["solver"]
        assert (log.iterations[log.of_phase(MOVING)] > 0).all()
    if name != "fabrik":  # whose budget is one of each two-link target, of which a pose has several
        assert log.iterations.max() <= 200  # with one restart
    assert log.restarts.max() <= 1
    assert (log.solve_time > 0.0).all()
    times = summary(log)["solve_time_ms"]
    assert times["n"] == 20
    assert 0.0 < times["median"] <= times["p95"] <= times["max"]
    assert times["first_call"] > 0.0
    # One judge: the residual columns are forward kinematics against the target, whoever solved.
    residual = pose_errors(task.load_robot().chain.fk_batch(log.q_command), log.targets)
    np.testing.assert_array_equal(log.residual_position, residual[0])
    np.testing.assert_array_equal(log.residual_rotation, residual[1])
    stop = task.load_solver().stop
    ok = (residual[0] <= stop.position) & (residual[1] <= stop.rotation)
    np.testing.assert_array_equal(ok, log.converged)


@pytest.mark.parametrize(("gain", "low", "high"), [(0.1, 5e-3, 2e-2), (1.0, 0.0, 1e-9)])
def test_the_servos_error_has_its_own_figures_apart_from_the_solvers(gain, low, high):
    log = record(load_task("ur5_line", {"path.duration": 2.0, "control.position_gain": gain}))
    figures = summary(log)
    servo, residual = figures["servo_position_m"]["moving"], figures["residual_position_m"]["moving"]
    assert set(servo) == {"max", "rms", "final"}
    assert low <= servo["max"] <= high
    assert servo["final"] <= servo["rms"] <= servo["max"]
    assert residual["max"] <= 1e-6  # whatever the servo does


def test_a_point_target_judges_no_rotation():
    log = record(load_task("planar2_circle"))
    assert log.residual_rotation.max() == 0.0
    assert log.tracking_rotation.max() == 0.0
    assert log.tracking_position.max() < 1e-6


def test_a_payload_costs_torque_and_no_accuracy():
    plain, loaded = (record(load_task("iiwa14_line", {"control.payload": mass})) for mass in (0.0, 5.0))
    assert loaded.torque.max() > plain.torque.max() + 20.0
    np.testing.assert_allclose(loaded.q_measured, plain.q_measured, atol=1e-9)
    assert isinstance(ControlSettings(payload=5.0), ControlSettings)
