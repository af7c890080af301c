"""Numbers worked out apart from this program, from geometry and in twelve digits, come out of it again.

What has a file of its own is there: poses of both arms in `test_chain`, branches and arcs in `test_closed_form`, cycles,
misses and success rates in `test_combined`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import ik_sim
from ik_sim import se3
from ik_sim.chain import Chain, Joint
from ik_sim.solvers import Status, load_solver
from ik_sim.solvers.all_solutions import all_solutions
from ik_sim.target import Target

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

PRINTED = 5e-12
"""[rad] and [m]: numbers printed with twelve decimals, and the rounding of a step or two."""


def planar(*lengths: float) -> Chain:
    """An arm in the x-y plane, without limits."""
    joints, T = [], np.eye(4)
    for i, length in enumerate(lengths):
        joints.append(Joint(f"joint_{i + 1}", "continuous", T))
        T = se3.transform(np.eye(3), np.array([length, 0.0, 0.0]))
    return Chain.from_joints(joints, T_last_tool=T)


# --- the two arms ---


def test_zero_poses() -> None:
    ur5 = ik_sim.load_robot("ur5").chain.fk(np.zeros(6))
    assert_allclose(ur5[:3, 3], [-0.81725, -0.19145, -0.005491], atol=1e-15)
    assert_allclose(ur5[:3, :3], [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-15)
    iiwa = ik_sim.load_robot("iiwa14").chain.fk(np.zeros(7))
    assert_allclose(iiwa[:3, 3], [0.0, 0.0, 1.306], atol=1e-15)
    assert_allclose(iiwa[:3, :3], np.eye(3), atol=1e-15)


def test_the_source_s_start_posture_has_the_iiwa_s_wrist_above_its_shoulder() -> None:
    """This settles which way joint 4 counts: with the other sign the wrist would be half a metre off."""
    q = np.array([0.0, 1.000, 0.0, 2.084, 0.0, 1.084, 0.0])  # printed as -2.084, which the maker counts as +2.084
    chain = ik_sim.load_robot("iiwa14").chain
    wrist = chain.fk(q) @ [0.0, 0.0, -0.126, 1.0]
    assert_allclose(np.hypot(wrist[0], wrist[1]), 1.2e-4, atol=5e-6)  # three printed digits
    assert_allclose(np.linalg.norm(wrist[:3] - [0.0, 0.0, 0.36]), 0.414045693578, atol=1e-7)
    assert_allclose(chain.fk(q)[:3, :3], np.eye(3), atol=1e-15)  # θ_2 + θ_4 + θ_6 is exactly 0


def test_the_iiwa_s_wrist_is_where_the_planned_link_directions_put_it() -> None:
    q = np.array([0.2, 0.5, -0.3, -0.9, 0.0, 0.0, 0.0])  # printed with joint 4 counted the other way round
    wrist = ik_sim.load_robot("iiwa14").chain.joint_frames(q)[6][:3, 3]
    assert_allclose(wrist, [0.590026916921, 0.025125518211, 0.803280830831], atol=1e-11)


def test_the_ur5_s_start_posture_is_as_far_stretched_as_its_line_begins() -> None:
    q = np.array([0.0, -0.959, 2.05, -1.091, 0.0, 0.0])
    chain = ik_sim.load_robot("ur5").chain
    shoulder, end = chain.joint_frames(q)[2][:3, 3], chain.joint_frames(q)[4][:3, 3]
    in_plane = (end - shoulder)[[0, 2]]  # the arm's plane is y = const at θ_1 = 0
    assert_allclose(np.linalg.norm(in_plane), 0.425156046395, atol=1e-8)
    assert_allclose(chain.fk(q)[:3, :3], chain.fk(np.zeros(6))[:3, :3], atol=1e-15)


# --- the two-link triangle ---

LENGTHS = (0.065, 0.116)  # [m]; in print in mm
NINTH = 2e-8
"""[mm] and [deg]: the printed ninth decimals of this arm come from rounded intermediate results and are off by a few."""


def test_forward_kinematics_of_the_printed_two_link_arm() -> None:
    chain = planar(*LENGTHS)
    q = np.radians([30.0, 45.0])
    assert_allclose(chain.joint_frames(q)[2][:2, 3] * 1e3, [56.291651246, 32.5], atol=NINTH)
    assert_allclose(chain.fk(q)[:2, 3] * 1e3, [86.314660483, 144.547395853], atol=NINTH)


@pytest.mark.parametrize(
    ("target_mm", "solutions_deg"),
    [
        ((86.0, 145.0), [(30.445220259, 44.585673652), (88.210128182, -44.585673652)]),
        ((86.314660483, 144.547395853), [(30.0, 45.0), (88.313987423, -45.0)]),
    ],
)
def test_both_elbows_of_the_printed_two_link_arm(
    target_mm: tuple[float, float], solutions_deg: list[tuple[float, float]]
) -> None:
    chain = planar(*LENGTHS)
    target = Target.point([target_mm[0] * 1e-3, target_mm[1] * 1e-3, 0.0])
    found = np.degrees([s.q for s in all_solutions(chain, target, [0.0, 1.0])])
    assert len(found) == 2
    for wanted in solutions_deg:
        assert np.abs(found - wanted).max(axis=1).min() < NINTH
    solver = load_solver("closed_form")
    for wanted in solutions_deg:  # the nearest to the seed is taken
        assert_allclose(np.degrees(solver.solve(chain, target, np.radians(wanted)).q), wanted, atol=NINTH)


def test_a_cosine_above_one_means_unreachable_and_that_is_said() -> None:
    solution = load_solver("closed_form").solve(planar(*LENGTHS), Target.point([0.2, 0.0, 0.0]))
    assert solution.status is Status.OUT_OF_REACH
    assert "0.019 m beyond the outer radius 0.181 m" in solution.reason
    solution = load_solver("closed_form").solve(planar(*LENGTHS), Target.point([0.05, 0.0, 0.0]))
    assert solution.status is Status.OUT_OF_REACH
    assert "0.001 m inside the inner radius 0.051 m" in solution.reason


@pytest.mark.parametrize(
    ("damping_mm", "errors_mm"),
    [(0.0, [84.7575, 64.2521, 18.1420, 1.7094]), (10.0, [84.7575, 37.4320, 8.5074, 1.1475])],
)
def test_errors_of_newton_s_steps_on_the_printed_two_link_arm(damping_mm: float, errors_mm: list[float]) -> None:
    solver = load_solver("damped_least_squares", damping=damping_mm * 1e-3, largest_error=10.0, position=1e-9)
    trace = solver.trace(planar(*LENGTHS), Target.point([0.086, 0.145, 0.0]), np.radians([15.0, 25.0]))
    assert_allclose(trace.position_error[:4] * 1e3, errors_mm, atol=5e-5)  # four printed decimals


# --- one step of each method on three unit links ---

LINKS3 = planar(1.0, 1.0, 1.0)
THETA = np.array([0.3, -0.5, 0.8])
TARGET3 = Target.point([1.2, 1.5, 0.0])


def first_step(name: str, **settings: Any) -> np.ndarray:
    trace = load_solver(name, **settings).trace(LINKS3, TARGET3, THETA, rows=4)
    return trace.q[1] - trace.q[0]


def test_the_place_that_the_steps_start_from() -> None:
    tip = LINKS3.fk(THETA)[:2, 3]
    assert_allclose(tip, [2.760738681877, 0.661493349261], atol=1e-12)
    assert_allclose(TARGET3.T[:2, 3] - tip, [-1.560738681877, 0.838506650739], atol=1e-12)


def test_a_step_of_the_jacobian_transpose() -> None:
    # The setting is relative to 1/σ_max²; the printed α = 0.1 is not.
    square = np.linalg.svd(LINKS3.jacobian(THETA)[:2], compute_uv=False)[0] ** 2
    wanted = [0.334731600370, 0.208503018606, 0.157330875185]
    step = first_step("jacobian_transpose", gain=0.1 * float(square))
    assert_allclose(step, wanted, atol=1e-9)  # σ_max comes from a few power iterations


def test_the_best_step_along_the_gradient() -> None:
    wanted = [0.274853824759, 0.171205383879, 0.129187064351]  # α* = 0.082111705156
    assert_allclose(first_step("jacobian_transpose", gain="best"), wanted, atol=PRINTED)


@pytest.mark.parametrize(
    ("damping", "wanted"),
    [
        (0.1, [-0.194193134873, -0.738076373390, 3.307541058537]),
        (0.5, [0.099669001624, -0.158643898743, 1.262523537112]),
    ],
)
def test_a_step_of_damped_least_squares(damping: float, wanted: list[float]) -> None:
    assert_allclose(first_step("damped_least_squares", damping=damping, largest_error=10.0), wanted, atol=PRINTED)


def test_a_second_wish_moves_joints_in_the_null_space_only() -> None:
    step = first_step(
        "damped_least_squares", damping=0.1, largest_error=10.0, posture=(0.0, 0.0, 0.0), posture_gain=0.2
    )
    assert_allclose(step, [-0.246549818607, -0.664150962222, 3.320963504409], atol=PRINTED)
    alone = np.array([-0.194193134873, -0.738076373390, 3.307541058537])
    assert_allclose(LINKS3.jacobian(THETA)[:2] @ (step - alone), 0.0, atol=PRINTED)


def test_a_step_of_selectively_damped_least_squares() -> None:
    wanted = [0.254617567909, 0.136104136570, 0.243575369918]  # γ_max = π/4
    assert_allclose(first_step("selectively_damped"), wanted, atol=PRINTED)


def test_a_step_of_levenberg_and_marquardt_with_sugihara_s_damping() -> None:
    wanted = [0.207374231311, 0.084742189091, 0.342175033907]  # E = ½ eᵀe, w̄ = 1e-3
    assert_allclose(first_step("levenberg_marquardt", bias=1e-3, share=0.5, largest_step=10.0), wanted, atol=PRINTED)


def test_a_sweep_of_cyclic_coordinate_descent() -> None:
    wanted = [0.405746417730, -0.056377350556, 2.253544581419]
    assert_allclose(THETA + first_step("ccd"), wanted, atol=PRINTED)


# --- a pose with six joints ---

UR5_FROM = np.array([0.3, -1.2, 1.0, -0.5, 0.8, 0.2])
UR5_TO = np.array([0.4, -1.1, 1.3, -0.7, 0.9, -0.5])


def test_the_pose_error_is_position_and_rotation_vector_in_base_axes() -> None:
    chain = ik_sim.load_robot("ur5").chain
    T, wanted = chain.fk(UR5_FROM), chain.fk(UR5_TO)
    error = np.concatenate([wanted[:3, 3] - T[:3, 3], se3.rotation_log(wanted[:3, :3] @ T[:3, :3].T)])
    published = [
        0.003450711229, -0.062597905035, -0.191006523555, 0.262606061606, 0.379257562288, -0.275689778076,
    ]  # fmt: skip
    assert_allclose(error, published, atol=PRINTED)
    position, rotation = se3.pose_error(T, wanted)
    assert_allclose(position, np.linalg.norm(published[:3]), atol=PRINTED)
    assert_allclose(rotation, np.linalg.norm(published[3:]), atol=PRINTED)


def test_levenberg_and_marquardt_need_eight_steps_to_the_printed_pose() -> None:
    chain = ik_sim.load_robot("ur5").chain
    solver = load_solver(
        "levenberg_marquardt", bias=1e-3, share=0.5, largest_step=10.0, position=7e-13, rotation=7e-13
    )  # both together are |e| < 1e-12
    trace = solver.trace(chain, chain.fk(UR5_TO), UR5_FROM)
    published = [
        -0.023706199664, 0.094710677946, 0.095058801170, -0.103019878275, -0.043278533872, -0.492782369214,
    ]  # fmt: skip
    assert_allclose(trace.q[1] - trace.q[0], published, atol=PRINTED)
    assert trace.solution.converged
    assert trace.solution.iterations == 8
    assert_allclose(trace.solution.q, UR5_TO, atol=1e-11)
