"""Paths and their clocks."""

import subprocess
import sys

import numpy as np
import pytest

from ik_sim import trajectory as tr
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.robots import load_robot
from ik_sim.se3 import pose_error, quat_xyzw_to_matrix, rotation_angle, rotation_exp, transform
from ik_sim.solvers import load_solver

UR5, IIWA = load_robot("ur5"), load_robot("iiwa14")
Q_LINE = np.array([0.0, -1.2, 1.5, -1.8707963267948966, -1.5707963267948966, 0.0])
"""A UR5 with the tool pointing straight down."""


def test_a_line_runs_straight_and_turns_at_an_even_pace():
    T0 = transform(rotation_exp(np.array([0.3, -0.2, 0.5])), np.array([0.1, 0.2, 0.3]))
    T1 = transform(T0[:3, :3] @ rotation_exp(np.array([0.0, 1.2, 0.0])), np.array([0.5, -0.2, 0.7]))
    poses = tr.line_poses(T0, T1, [0.0, 0.25, 1.0])
    np.testing.assert_allclose(poses[0], T0, atol=1e-15)
    np.testing.assert_allclose(poses[2], T1, atol=1e-15)
    np.testing.assert_allclose(poses[1][:3, 3], [0.2, 0.1, 0.4], atol=1e-15)
    assert rotation_angle(T0[:3, :3].T @ poses[1][:3, :3]) == pytest.approx(0.3, abs=1e-14)


def test_a_quaternion_and_its_negative_are_the_same_goal():
    start = transform(quat_xyzw_to_matrix(np.array([0.7071068, 0.7071068, 0.0, 0.0])), np.array([0.45, 0.2, 0.4]))
    flipped = np.array([-0.704416, -0.704416, 0.0616284, -0.0616284])  # 10 degrees away, written with the other sign
    ends = [transform(quat_xyzw_to_matrix(q), np.array([0.45, -0.1, 0.4])) for q in (flipped, -flipped)]
    paths = [tr.line_poses(start, end, np.linspace(0.0, 1.0, 61)) for end in ends]
    np.testing.assert_array_equal(paths[0], paths[1])
    turned = sum(rotation_angle(a[:3, :3].T @ b[:3, :3]) for a, b in zip(paths[0][:-1], paths[0][1:], strict=True))
    assert turned == pytest.approx(0.1745, abs=1e-3)  # the short way; the long one would be 6.1


def test_a_circle_keeps_its_radius_and_closes():
    T0 = UR5.chain.fk(Q_LINE)
    centre = T0[:3, 3] + [0.15, 0.0, 0.0]
    poses = tr.circle_poses(T0, centre, [0.0, 0.0, 2.0], np.linspace(0.0, 1.0, 50))
    radii = np.linalg.norm(poses[:, :3, 3] - centre, axis=1)
    np.testing.assert_allclose(radii, 0.15, atol=1e-15)
    np.testing.assert_allclose(poses[-1], T0, atol=1e-15)
    assert (poses[:, :3, :3] == T0[:3, :3]).all()
    turned = tr.circle_poses(T0, centre, [0.0, 0.0, 1.0], [0.25], turn_tool=True)[0]
    assert rotation_angle(T0[:3, :3].T @ turned[:3, :3]) == pytest.approx(np.pi / 2)


def test_a_centre_outside_the_plane_of_the_circle_is_refused():
    T0 = UR5.chain.fk(Q_LINE)
    with pytest.raises(InvalidArgumentError, match="not in the circle's plane"):
        tr.circle_poses(T0, T0[:3, 3] + [0.1, 0.0, 0.01], [0.0, 0.0, 1.0], [0.5])


@pytest.mark.parametrize("name", tr.TIMINGS)
def test_a_timing_goes_from_0_to_1_and_peaks_where_it_says(name):
    law, peak = tr.TIMINGS[name]
    tau = np.linspace(0.0, 1.0, 20001)
    s = law(tau)
    assert s[0] == pytest.approx(0.0, abs=1e-15)
    assert s[-1] == pytest.approx(1.0, abs=1e-15)
    speed = np.diff(s) / np.diff(tau)
    assert speed.min() >= 0.0
    assert speed.max() == pytest.approx(peak, rel=1e-6)
    if name != "uniform":
        assert max(speed[0], speed[-1]) < 1e-3  # rest to rest


def test_an_unknown_timing_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="did you mean 'quintic'"):
        tr.line(UR5.chain, Q_LINE, UR5.chain.fk(Q_LINE), duration=1.0, rate=10.0, timing="quintik")


def test_targets_are_due_after_the_start_and_end_on_time():
    T_end = UR5.chain.fk(Q_LINE)
    T_end[1, 3] -= 0.2
    path = tr.line(UR5.chain, Q_LINE, T_end, duration=2.0, rate=20.0)
    assert len(path) == 40
    assert path.times[0] == 0.05
    assert path.duration == 2.0
    np.testing.assert_allclose(path.targets[-1], T_end, atol=1e-15)
    np.testing.assert_array_equal(path.q_start, Q_LINE)


def test_stretching_scales_every_moment_alike():
    path = tr.line(UR5.chain, Q_LINE, UR5.chain.fk(UR5.q_home), duration=2.0, rate=10.0)
    slow = path.stretched(5.0)
    np.testing.assert_allclose(slow.times, 2.5 * path.times, rtol=1e-15)
    np.testing.assert_array_equal(slow.targets, path.targets)
    both = path.then(slow)
    assert both.duration == 7.0
    assert len(both) == 40


def test_a_trajectory_keeps_its_own_read_only_copy():
    q = Q_LINE.copy()
    path = tr.line(UR5.chain, q, UR5.chain.fk(q), duration=1.0, rate=10.0)
    q[0] = 9.0
    assert path.q_start[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        path.targets[0, 0, 0] = 2.0


def test_joint_moves_reach_each_waypoint_within_the_speed_they_may_use():
    rng = np.random.default_rng(3)
    waypoints = IIWA.chain.random_q(rng, 4)
    path = tr.joint_moves(IIWA.chain, waypoints, rate=50.0, speed=0.5)
    assert path.q_reference is not None
    joints = np.vstack([path.q_start, path.q_reference])
    speeds = np.abs(np.diff(joints, axis=0)) * 50.0
    assert (speeds <= 0.5 * IIWA.chain.velocity_limits * (1 + 1e-9)).all()
    assert (speeds / IIWA.chain.velocity_limits).max() > 0.45  # and no slower than needed
    for waypoint in waypoints[1:]:
        assert np.abs(path.q_reference - waypoint).max(axis=1).min() < 1e-12
    np.testing.assert_array_equal(path.targets, IIWA.chain.fk_batch(path.q_reference))
    assert set(path.labels) == {"move 1", "move 2", "move 3"}


def test_a_waypoint_outside_the_limits_is_refused_by_its_joint():
    with pytest.raises(InvalidArgumentError, match=r"waypoint 2: joint_4 = 2.5 is outside its limits \[-2.09"):
        tr.joint_moves(IIWA.chain, [np.zeros(7), [0, 0, 0, 2.5, 0, 0, 0]], rate=10.0)
    with pytest.raises(InvalidArgumentError, match="two or more configurations of 7 joints"):
        tr.joint_moves(IIWA.chain, [np.zeros(7)], rate=10.0)


@pytest.mark.parametrize("robot", [UR5, IIWA], ids=lambda robot: robot.name)
def test_random_paths_repeat_bit_for_bit_from_their_seed(robot):
    first, second = (tr.random_configurations(robot.chain, 20, 12345) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert ((first >= robot.chain.lower) & (first <= robot.chain.upper)).all()
    assert first.tobytes() != tr.random_configurations(robot.chain, 20, 12346).tobytes()
    program = (
        "import sys; from ik_sim.robots import load_robot; from ik_sim.trajectory import random_configurations as r\n"
        f"sys.stdout.write(r(load_robot({robot.name!r}).chain, 20, 12345).tobytes().hex())"
    )
    fresh = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert fresh == first.tobytes().hex()


def test_random_draws_about_a_configuration_stay_near_it_and_inside_the_limits():
    about = IIWA.chain.upper - 0.1
    draws = tr.random_configurations(IIWA.chain, 200, 1, 0.2, about)
    assert (draws <= IIWA.chain.upper).all()
    assert (draws >= about - 0.1 * (IIWA.chain.upper - IIWA.chain.lower)).all()


REFERENCE = {
    "ur5": {
        "q_start": [0.0, -0.959, 2.05, -1.091, 0.0, 0.0],
        "q_end": [-0.179, 0.581, 2.8, -2.308, -1.028, 2.185],
        "direction": [-1.0, 0.0, 0.0],
        "stretched": 0.81725,
    },
    "iiwa14": {
        "q_start": [0.0, 1.0, 0.0, 2.084, 0.0, 1.084, 0.0],
        "q_end": [1.953, -0.711, -1.608, -1.648, -0.888, 0.782, 0.893],
        "direction": [0.0, 0.0, 1.0],
        "stretched": 0.82,
    },
}


@pytest.mark.parametrize(
    ("robot", "r_start", "offset"),
    [(UR5, 0.425156046395, 4.8e-5), (IIWA, 0.414045693578, 1.2e-4)],
    ids=["ur5", "iiwa14"],
)
def test_the_two_phase_reference_is_the_published_one(robot, r_start, offset):
    numbers = REFERENCE[robot.name]
    path = tr.two_phase(robot.chain, rate=5.0, **numbers)
    assert len(path) == 180
    assert path.labels.count("phase 1") == 80
    T_straight = robot.chain.fk(np.zeros(robot.chain.n))
    step = path.targets[1, :3, 3] - path.targets[0, :3, 3]
    # Evenly spaced from the published start distance to l2 + l3, along the published direction.
    np.testing.assert_allclose(step, (numbers["stretched"] - r_start) / 79 * np.array(numbers["direction"]), atol=1e-14)
    assert (path.targets[:80, :3, :3] == T_straight[:3, :3]).all()
    np.testing.assert_allclose(path.targets[79], T_straight, atol=1e-15)
    np.testing.assert_allclose(path.targets[-1], robot.chain.fk(numbers["q_end"]), atol=1e-15)
    np.testing.assert_allclose(path.targets[80], robot.chain.fk(np.array(numbers["q_end"]) / 100), atol=1e-15)
    # The printed start has three digits: its wrist is that far off the line.
    assert pose_error(robot.chain.fk(numbers["q_start"]), path.targets[0])[0] == pytest.approx(offset, rel=0.05)


def test_the_reference_must_start_with_the_tool_as_it_is_when_stretched():
    numbers = {**REFERENCE["ur5"], "q_start": [0.0, -0.959, 2.05, -1.0, 0.0, 0.0]}
    with pytest.raises(InvalidArgumentError, match="must hold the tool as q = 0 does"):
        tr.two_phase(UR5.chain, rate=5.0, **numbers)


def _joints_along_a_line() -> np.ndarray:
    T_end = UR5.chain.fk(Q_LINE)
    T_end[:3, 3] += [0.0, -0.4, 0.1]
    solver, q, joints = load_solver("closed_form"), Q_LINE, [Q_LINE]
    for T in tr.line_poses(UR5.chain.fk(Q_LINE), T_end, np.linspace(0.0, 1.0, 413))[1:]:
        q = solver.solve(UR5.chain, T, q).q
        joints.append(q)
    return np.array(joints)


def test_a_line_that_outruns_a_joint_is_told_with_the_joint_and_the_time_it_needs():
    joints = _joints_along_a_line()
    demand = tr.speed_demand(UR5.chain, np.linspace(0.0, 0.5, 413), joints)
    assert demand.joint == "elbow_joint"
    assert demand.speed == pytest.approx(6.3, abs=0.05)
    assert demand.limit == pytest.approx(np.pi)
    assert demand.time > 0.45  # near the end of the line
    assert not demand.within_limit
    shortest = tr.minimum_duration(UR5.chain, joints)
    assert shortest == pytest.approx(1.002, abs=0.03)
    assert tr.speed_demand(UR5.chain, np.linspace(0.0, 1.001 * shortest, 413), joints).within_limit


def test_times_that_do_not_increase_are_refused():
    T = np.stack([np.eye(4)] * 2)
    with pytest.raises(IkSimError, match="increase"):
        tr.Trajectory(np.array([1.0, 1.0]), T, np.zeros(6), ("a", "b"))
    with pytest.raises(IkSimError, match="after 0"):
        tr.Trajectory(np.array([0.0, 1.0]), T, np.zeros(6), ("a", "b"))
