"""Faults that users of similar tools reported in public, each turned into its whole kind, on arms of our own.

The kinds: success that is none, limits that are broken or get in the way, closed forms that miss branches, singular
postures and half turns, FABRIK on real hinges, optimisers that give up, options that do nothing.
"""

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ik_sim import se3
from ik_sim.chain import Chain
from ik_sim.errors import IkSimError
from ik_sim.robots import load_robot
from ik_sim.solvers import SOLVERS, Status, all_solutions, load_solver
from ik_sim.target import Target, Tolerance

URDFS = Path(__file__).parent / "data" / "urdf"
LOOSE = {"position": 1e-3, "rotation": 1e-2}
ITERATING = ["fabrik", "combined", "jacobian_transpose", "damped_least_squares", "selectively_damped",
             "levenberg_marquardt", "ccd", "slsqp", "auto"]  # fmt: skip
ALL = [*ITERATING, "closed_form"]


@functools.cache
def arm(name: str) -> Chain:
    file = URDFS / f"{name}.urdf"
    return load_robot(file if file.exists() else name).chain


def drawn(chain: Chain, count: int, seed: int, within: float = 0.8) -> Any:
    return chain.random_q(np.random.default_rng(seed), count, within=within)


# --- says it worked when it did not ---


@pytest.mark.parametrize("factor", [1.02, 1.5, 3.0, 40.0])
@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "planar_three"])
@pytest.mark.parametrize("name", ITERATING)
def test_a_point_beyond_reach_is_no_success_and_the_error_is_the_gap(name: str, robot: str, factor: float) -> None:
    chain = arm(robot)
    reach, centre = chain.packed[9], chain.packed[10:13]  # summed links, from the first joint
    direction = np.array([0.6, 0.8, 0.0])
    solution = load_solver(name, **LOOSE).solve(chain, Target.point(centre + factor * reach * direction))
    assert solution.status is Status.OUT_OF_REACH, solution
    # No configuration gets nearer than the gap; what is returned is not far from it.
    assert solution.position_error >= (factor - 1.0) * reach - 1e-9
    assert solution.position_error < (factor - 1.0) * reach + 0.25 * reach
    assert f"{(factor - 1.0) * reach:.3g} m beyond the reach" in solution.reason


@pytest.mark.parametrize("elbows", [(0.0, 2.5), (0.3, 2.0), (-2.5, 0.0)])
@pytest.mark.parametrize("name", ALL)
def test_a_pose_whose_only_answers_break_a_limit_is_not_reached_by_clamping_after_the_check(
    name: str, elbows: tuple[float, float]
) -> None:
    chain = arm("planar_three").with_limits({"b": elbows, "c": elbows})
    sign = 1.0 if elbows[1] > 0.0 else -1.0
    # Both answers of this pose bend one of the two elbows the wrong way.
    T = arm("planar_three").fk(np.array([0.5, -0.8 * sign, 0.6 * sign]))
    assert not any(chain.within_limits(s.q) for s in all_solutions(arm("planar_three"), T))
    solution = load_solver(name, **LOOSE).solve(chain, T)
    assert not solution.converged
    if name not in ("selectively_damped", "ccd", "fabrik"):  # these creep along the limit until they give up
        assert solution.status is Status.JOINT_LIMITS, solution
    assert chain.within_limits(solution.q)
    position, rotation = se3.pose_error(chain.fk(solution.q), T)
    assert solution.position_error == pytest.approx(position, abs=1e-12)
    assert solution.rotation_error == pytest.approx(rotation, abs=1e-12)


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "five_axis"])
@pytest.mark.parametrize("name", [n for n in ITERATING if n != "auto"])
def test_a_budget_that_is_used_up_is_its_own_status(name: str, robot: str) -> None:
    chain = arm(robot)
    for q, seed in zip(drawn(chain, 5, 1), drawn(chain, 5, 2), strict=True):
        solution = load_solver(name, max_iterations=1, **LOOSE).solve(chain, chain.fk(q), seed)
        assert solution.converged or solution.status is Status.MAX_ITERATIONS, solution


@pytest.mark.parametrize("tolerance", [(1e-4, 1e-3), (1e-2, 1e-6), (1e-6, 1e-2)])
@pytest.mark.parametrize("name", ALL)
def test_position_and_rotation_are_judged_apart_and_by_their_norms(name: str, tolerance: tuple[float, float]) -> None:
    chain = arm("ur5")
    solver = load_solver(name, position=tolerance[0], rotation=tolerance[1])
    for q, seed in zip(drawn(chain, 8, 3), drawn(chain, 8, 4), strict=True):
        solution = solver.solve(chain, chain.fk(q), seed)
        position, rotation = se3.pose_error(chain.fk(solution.q), chain.fk(q))
        assert solution.converged == (position <= tolerance[0] and rotation <= tolerance[1])


# --- joint limits ignored, wrapped or stuck on ---


@pytest.mark.parametrize("shift", [0.4, 0.9, -0.4, -1.3])
@pytest.mark.parametrize("name", ITERATING)
def test_limits_that_leave_out_zero_do_not_stop_a_solve_without_a_seed(name: str, shift: float) -> None:
    limits = sorted((shift, shift + np.copysign(1.6, shift)))
    chain = arm("planar_three").with_limits({"b": (limits[0], limits[1]), "c": (-limits[1], -limits[0])})
    q = np.array([0.3, shift + np.copysign(0.5, shift), -shift - np.copysign(0.7, shift)])
    assert chain.within_limits(q)
    solution = load_solver(name, **LOOSE).solve(chain, Target.point(chain.fk(q)[:3, 3]))
    assert solution.converged, solution
    assert chain.within_limits(solution.q)


@pytest.mark.parametrize("turned", [(3, 5), (1, 3), (0, 2), (4,), (0, 1, 2, 3, 4, 5)])
def test_the_nearest_answer_counts_whole_turns(turned: tuple[int, ...]) -> None:
    chain = arm("ur5")
    q = np.array([0.3, -1.1, 1.4, -0.7, 1.2, 0.5])
    for joint in turned:
        q[joint] -= 2 * np.pi * np.sign(q[joint])  # the other turn that ±2π holds
    assert chain.within_limits(q)
    for name in ("closed_form", "auto"):
        solution = load_solver(name).solve(chain, chain.fk(q), q + 0.05)
        assert np.abs(solution.q - q).max() < 1e-9


@pytest.mark.parametrize("joint", [0, 3, 4, 5])
@pytest.mark.parametrize("name", ALL)
def test_a_joint_rolls_past_half_a_turn_without_a_jump(name: str, joint: int) -> None:
    chain = arm("ur5")
    start = np.array([0.4, -1.2, 1.5, -1.87, -1.57, 0.2])
    start[joint] = 3.0
    line = start + np.linspace(0.0, 0.3, 31)[:, None] * np.eye(6)[joint]
    solver, q = load_solver(name), start
    for wanted in line:
        solution = solver.solve(chain, chain.fk(wanted), q)
        assert solution.converged, solution
        assert np.abs(solution.q - q).max() <= 0.02  # the waypoints are 0.01 apart
        q = np.array(solution.q)
    assert np.abs(q - line[-1]).max() < 1e-3


def test_at_a_limit_of_half_a_turn_the_arm_stops_or_takes_another_way_that_reaches() -> None:
    chain = arm("ur5").with_limits(dict.fromkeys(arm("ur5").joint_names, (-np.pi, np.pi)))
    only = chain.with_limits({"shoulder_lift_joint": (-1.3, -1.1), "elbow_joint": (1.4, 1.6)})
    for target, where in ((chain, None), (only, Status.JOINT_LIMITS)):
        T = arm("ur5").fk(np.array([3.3, -1.2, 1.5, -1.87, -1.57, 0.0]))
        solution = load_solver("closed_form").solve(target, T, np.array([np.pi, -1.2, 1.5, -1.87, -1.57, 0.0]))
        assert target.within_limits(solution.q)
        if where is not None and not solution.converged:
            assert solution.status is where
        else:
            assert max(se3.pose_error(target.fk(solution.q), T)) < 1e-9


@pytest.mark.parametrize("robot", ["iiwa14", "five_axis", "planar_three"])
@pytest.mark.parametrize("name", ITERATING)
def test_a_seed_outside_the_limits_is_moved_inside_and_told(name: str, robot: str) -> None:
    chain = arm(robot)
    for q in drawn(chain, 3, 5):
        seed = q.copy()
        seed[1] = chain.upper[1] + 0.3
        solution = load_solver(name, **LOOSE).solve(chain, chain.fk(q), seed)
        assert chain.within_limits(solution.q)
        assert solution.seed_moved
        assert "moved inside" in solution.reason


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "five_axis", "lift_scissor"])
@pytest.mark.parametrize("name", ITERATING)
def test_no_joint_winds_up_when_every_answer_is_the_next_seed(name: str, robot: str) -> None:
    chain = arm(robot)
    q = np.array(chain.q_middle)
    for wanted in drawn(chain, 12, 7, within=0.95):
        solution = load_solver(name, max_iterations=300, **LOOSE).solve(chain, chain.fk(wanted), q)
        assert chain.within_limits(solution.q)
        free = ~np.isfinite(chain.upper)
        assert (np.abs(solution.q[free]) < 4 * np.pi).all()  # a joint without limits doesn't wind up either
        q = np.array(solution.q)


def test_hard_limits_are_in_force_and_soft_ones_are_listed_beside_them() -> None:
    chain = arm("guarded")
    q = np.array([0.3, 1.4, 0.8])  # the second joint is beyond its soft limit of 0.9
    assert chain.within_limits(q)
    assert (chain.soft_lower[1], chain.soft_upper[1]) == (-0.7, 0.9)
    assert (chain.lower[1], chain.upper[1]) == (-2.0, 2.0)
    assert load_solver("auto").solve(chain, chain.fk(q), q + 0.05).converged


# --- closed form incomplete or slightly wrong ---

NEAT = [0.0, np.pi / 4, np.pi / 2, -np.pi / 2, np.pi, -3 * np.pi / 4]


@pytest.mark.parametrize("seed", range(6))
def test_round_trips_on_neat_angles_give_the_joints_back(seed: int) -> None:
    chain, rng = arm("ur5"), np.random.default_rng(seed)
    for _ in range(5):
        q = rng.choice(NEAT, 6)
        T = chain.fk(q)
        rows = all_solutions(chain, T, q)
        away = [float(np.abs((s.q - q + np.pi) % (2 * np.pi) - np.pi).max()) for s in rows]
        assert min(away) < 1e-6  # the root of rounding where the elbow is straight or folded
        assert max(max(se3.pose_error(chain.fk(s.q), T)) for s in rows) < 1e-6
        if abs(np.sin(q[4])) < 1e-9:
            assert rows[int(np.argmin(away))].singular


@pytest.mark.parametrize("sizes", [(0.0012, 0.0012), (0.0002, 0.001), (0.003, 0.0), (0.0, 0.004)])
@pytest.mark.parametrize("name", ["closed_form", "auto", "combined", "fabrik"])
def test_a_calibrated_arm_is_solved_as_it_is_and_not_as_it_is_printed(name: str, sizes: tuple[float, float]) -> None:
    moved, tilt = sizes
    nominal = arm("ur5")
    joints = list(nominal.joints)
    i = next(k for k, j in enumerate(joints) if j.name == "elbow_joint")
    T = joints[i].T_parent_joint.copy()
    T[:3, 3] -= moved * T[:3, 3] / np.linalg.norm(T[:3, 3])
    T = T @ se3.exp(np.array([0.0, 0.0, 0.0, tilt, 0.5 * tilt, 0.0]))
    joints[i] = type(joints[i])(**{**vars(joints[i]), "T_parent_joint": T})
    chain = Chain.from_joints(joints, base_link="base", tool_link="tool", T_last_tool=nominal.T_last_tool)
    for q in ([0.3, -1.1, 1.4, -0.7, 1.2, 0.5], [-1.3, -0.9, -1.2, 0.4, -1.1, 2.0]):
        pose = chain.fk(np.array(q))
        assert max(se3.pose_error(nominal.fk(np.array(q)), pose)) > 1e-5  # the change is far above the tolerance
        solution = load_solver(name).solve(chain, pose, np.array(q) + 0.05)
        assert solution.converged, solution
        assert max(se3.pose_error(chain.fk(solution.q), pose)) < 1e-6


# --- singular poses and half turns ---


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, 0.8, 0), (0.577, 0.577, 0.577)])
@pytest.mark.parametrize("name", [n for n in ALL if n not in ("fabrik", "jacobian_transpose", "ccd")])
def test_a_rotation_by_exactly_half_a_turn_is_solved(name: str, axis: tuple[float, float, float]) -> None:
    chain = arm("iiwa14")
    q = np.array([0.2, 0.5, 0.2, -1.1, 0.2, 1.0, 0.2])
    T = chain.fk(q)
    T[:3, :3] = T[:3, :3] @ se3.rotation_exp(np.pi * np.array(axis) / np.linalg.norm(axis))
    if not all_solutions(chain, T):
        assert not load_solver(name, **LOOSE).solve(chain, T, q).converged
        return
    solution = load_solver(name, **LOOSE).solve(chain, T, q)
    assert solution.converged, solution
    assert np.isfinite(solution.q).all()


@pytest.mark.parametrize("below", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("name", ALL)
def test_a_straight_arm_bends_when_the_target_lies_on_its_own_line(name: str, below: float) -> None:
    chain = arm("iiwa14")
    T = chain.fk(np.zeros(7))
    T[2, 3] -= below
    solution = load_solver(name, **LOOSE).solve(chain, T, np.zeros(7))
    reachable = bool(all_solutions(chain, T))
    assert solution.converged == reachable, solution


@pytest.mark.parametrize("away", [0.0, 0.05, 0.09, 0.10914, 0.10916, 0.2])
def test_a_wrist_inside_the_shoulder_cylinder_is_named_with_both_radii(away: float) -> None:
    chain = arm("ur5")
    T = se3.transform(np.diag([1.0, -1.0, -1.0]), np.array([away, 0.0, 0.4]))
    rows = all_solutions(chain, T)
    solution = load_solver("closed_form").solve(chain, T)
    assert bool(rows) == solution.converged == (away > 0.10915)
    if away < 0.10915:
        assert solution.status is Status.OUT_OF_REACH
        assert f"{away:.4f} m from the base axis" in solution.reason
        assert "0.10915 m" in solution.reason


# --- FABRIK on real hinges ---


@pytest.mark.parametrize("x", [0.88, 0.6, 0.3])
@pytest.mark.parametrize("name", ITERATING)
def test_a_straight_chain_with_its_goal_on_the_line_bends(name: str, x: float) -> None:
    chain = arm("planar_three")
    solution = load_solver(name, **LOOSE).solve(chain, Target.point([x, 0.0, 0.0]), np.zeros(3))
    assert solution.converged, solution


@pytest.mark.parametrize("name", ITERATING)
def test_segments_without_length_make_no_nan(name: str) -> None:
    chain = arm("universal_joints")
    missed = 0
    for q in drawn(chain, 8, 11):
        for seed in (np.full(5, 0.1), np.zeros(5)):
            solution = load_solver(name, **LOOSE).solve(chain, Target.point(chain.fk(q)[:3, 3]), seed)
            assert np.isfinite(solution.q).all()
            assert np.isfinite([solution.position_error, solution.rotation_error]).all()
            missed += not solution.converged
    assert missed <= 1


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "five_axis", "universal_joints"])
@pytest.mark.parametrize("name", ["fabrik", "combined"])
def test_links_keep_their_lengths_the_joints_lead_to_the_tip_that_is_claimed(name: str, robot: str) -> None:
    chain = arm(robot)
    for q in drawn(chain, 8, 3):
        T = chain.fk(q)
        solution = load_solver(name, **LOOSE).solve(chain, Target.point(T[:3, 3]))
        tip = chain.fk(solution.q)[:3, 3]
        assert np.linalg.norm(tip - T[:3, 3]) == pytest.approx(solution.position_error, abs=1e-12)


@pytest.mark.parametrize("goal", [(-0.4, 0.45), (0.25, -0.55), (-0.1, 0.3), (0.0, -0.8)])
@pytest.mark.parametrize("name", ITERATING)
def test_a_goal_on_the_other_side_of_the_base_is_found_with_one_sided_elbows(
    name: str, goal: tuple[float, float]
) -> None:
    chain = arm("planar_three").with_limits({"a": (-2.6, 2.6), "b": (0.0, 2.5), "c": (0.0, 2.5)})
    solution = load_solver(name, **LOOSE).solve(chain, Target.point([*goal, 0.0]), [1.5, 0.3, 0.3])
    assert solution.converged, solution
    assert chain.within_limits(solution.q)


@pytest.mark.parametrize("goal", [(1.5, 0.8), (0.0, 1.2), (-0.8, 1.9)])
@pytest.mark.parametrize("name", ITERATING)
def test_beyond_reach_the_arm_stretches_towards_the_goal_and_rests_there(name: str, goal: tuple[float, float]) -> None:
    chain = arm("planar_three")
    solver = load_solver(name, **LOOSE)
    first = solver.solve(chain, Target.point([*goal, 0.0]), [0.5, 1.0, 1.0])
    assert first.status is Status.OUT_OF_REACH
    assert first.position_error == pytest.approx(np.hypot(*goal) - 0.9, abs=0.05)  # nearest of all starts
    tool = chain.fk(first.q)[:2, 3]
    assert np.arctan2(tool[1], tool[0]) == pytest.approx(np.arctan2(goal[1], goal[0]), abs=0.15)
    again = solver.solve(chain, Target.point([*goal, 0.0]), [0.5, 1.0, 1.0])
    assert np.array_equal(first.q, again.q)


# --- optimisers that give up ---


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "five_axis", "planar_three"])
@pytest.mark.parametrize("name", ALL)
def test_a_seed_that_is_the_answer_stays(name: str, robot: str) -> None:
    chain = arm(robot)
    for q in drawn(chain, 4, 13, within=0.6):
        solution = load_solver(name, **LOOSE).solve(chain, chain.fk(q), q)
        if solution.status is Status.UNSUPPORTED:
            assert (name, chain.family) == ("closed_form", "serial")
            continue
        assert solution.converged, solution
        if (name, robot) != ("combined", "iiwa14") and (name, robot) != ("fabrik", "iiwa14"):
            assert np.abs(solution.q - q).max() < 1e-2


@pytest.mark.parametrize("name", [n for n in ITERATING if n != "auto"])
def test_caps_on_time_and_iterations_hold_when_nothing_can_be_reached(name: str) -> None:
    chain = arm("iiwa14")
    solver = load_solver(name, max_seconds=0.1, max_iterations=10**8, restarts=10**6, **LOOSE)
    target = Target.point([0.0, 0.0, 3.0])
    solver.solve(chain, target, np.zeros(7))
    began = time.perf_counter()
    solution = solver.solve(chain, target, np.zeros(7))
    assert time.perf_counter() - began < 1.0  # ten times the cap, for a busy machine
    assert solution.status is Status.OUT_OF_REACH
    assert np.isfinite(solution.q).all()


@pytest.mark.parametrize("joint", ["joint_1", "joint_3", "joint_5", "joint_7"])
@pytest.mark.parametrize("name", ALL)
def test_a_locked_joint_stays_to_the_last_bit_while_the_others_solve(name: str, joint: str) -> None:
    free = arm("iiwa14")
    q = np.array([0.2, 0.5, 0.2, -1.1, 0.2, 1.0, 0.2])
    chain = free.locked({joint: 0.2})
    solution = load_solver(name, **LOOSE).solve(chain, free.fk(q), q + 0.1)
    assert solution.converged, solution
    assert solution.q[free.joint_names.index(joint)] == 0.2


@pytest.mark.parametrize("name", ["combined", "slsqp"])
def test_hundreds_of_optimiser_runs_in_one_process_all_end(name: str) -> None:
    chain = arm("ur5")
    solver, q, converged = load_solver(name, **LOOSE), np.array(chain.q_middle), 0
    for wanted in drawn(chain, 200, 9):
        solution = solver.solve(chain, chain.fk(wanted), q)
        q, converged = np.array(solution.q), converged + solution.converged
    assert converged == 200


# --- lists and options that do not fit ---


@pytest.mark.parametrize("count", [1, 5, 6, 8, 14])
@pytest.mark.parametrize("name", SOLVERS)
def test_a_seed_of_the_wrong_length_is_a_value_error_that_counts_and_names(name: str, count: int) -> None:
    chain = arm("iiwa14")
    with pytest.raises(ValueError, match=rf"{count} given, 7 wanted: joint_1, joint_2, .*joint_7"):
        load_solver(name).solve(chain, chain.fk(np.full(7, 0.2)), np.full(count, 0.2))


@pytest.mark.parametrize("option", ["no_such_option", "max_iteration", "tolerance", "joint_damping"])
@pytest.mark.parametrize("name", SOLVERS)
def test_an_option_that_a_solver_does_not_use_is_refused_by_name(name: str, option: str) -> None:
    with pytest.raises(IkSimError, match=option):
        load_solver(name, **{option: 1})


def test_the_closed_form_refuses_a_budget_that_it_has_no_use_for() -> None:
    with pytest.raises(IkSimError, match="max_iterations"):
        load_solver("closed_form", max_iterations=50)
    assert load_solver("closed_form", position=1e-4).stop == Tolerance(1e-4, 1e-6)
