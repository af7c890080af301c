"""A closed form's family is recognised from where a chain's axes lie: any signs, zeros and frames, and never a name."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ik_sim
from ik_sim import se3
from ik_sim.chain import Chain, Joint, Mimic
from ik_sim.solvers import Status, load_solver
from ik_sim.target import POINT, POSE

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

Row = tuple[float, int, float]

# Denavit-Hartenberg tables as their makers publish them: a [m], α [quarter turns], d [m].
UR = {
    "UR3": (-0.24365, -0.21325, 0.1519, 0.11235, 0.08535, 0.0819),
    "UR5": (-0.425, -0.39225, 0.089159, 0.10915, 0.09465, 0.0823),
    "UR10": (-0.612, -0.5723, 0.1273, 0.163941, 0.1157, 0.0922),
    "UR3e": (-0.24355, -0.2132, 0.15185, 0.13105, 0.08535, 0.0921),
    "UR5e": (-0.425, -0.3922, 0.1625, 0.1333, 0.0997, 0.0996),
    "UR10e": (-0.6127, -0.57155, 0.1807, 0.17415, 0.11985, 0.11655),
    "UR16e": (-0.4784, -0.36, 0.1807, 0.17415, 0.11985, 0.11655),
}
LBR = {"iiwa 7": (0.34, 0.40, 0.40, 0.126), "iiwa 14": (0.36, 0.42, 0.40, 0.126)}


def ur_table(a2: float, a3: float, d1: float, d4: float, d5: float, d6: float) -> list[Row]:
    return [(0, 1, d1), (a2, 0, 0), (a3, 0, 0), (0, 1, d4), (0, -1, d5), (0, 0, d6)]


def lbr_table(base: float, upper_arm: float, forearm: float, flange: float) -> list[Row]:
    return [(0, -1, base), (0, 1, 0), (0, -1, upper_arm), (0, 1, 0), (0, -1, forearm), (0, 1, 0), (0, 0, flange)]


def planar_table(*lengths: float) -> list[Row]:
    return [(length, 0, 0) for length in lengths]


TABLES = {
    **{name: ur_table(*numbers) for name, numbers in UR.items()},
    **{name: lbr_table(*numbers) for name, numbers in LBR.items()},
    "planar 2R": planar_table(0.5, 0.4),
    "planar 3R": planar_table(0.4, 0.3, 0.2),
}
FAMILY = {name: "ur" if name in UR else "srs" if name in LBR else f"planar{len(TABLES[name])}" for name in TABLES}

ROUNDING = 1e-13
"""[m] and [-]: what twenty products of rotations and lengths up to two metres leave."""
SOLVED = 1e-9
"""[m] and [rad]: what closed forms promise, a thousand times below any tolerance in use."""


def row_pose(theta: float, a: float, alpha: int, d: float) -> np.ndarray:
    """Standard Denavit-Hartenberg: turn by θ and go d along z, then go a and turn by α along x."""
    c, s = np.cos(theta), np.sin(theta)
    ca, sa = [(1, 0), (0, 1), (-1, 0), (0, -1)][alpha % 4]
    return np.array([[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1.0]])


@dataclass
class Writing:
    """How someone might write a table down as joints: everything that a URDF leaves to taste."""

    sign: np.ndarray
    """Each axis may point either way."""
    zero: np.ndarray
    """θ = sign · q + zero [rad]"""
    slide: np.ndarray
    """Each joint's origin may lie anywhere on its axis [m]."""
    twist: list[np.ndarray] = field(default_factory=list)
    """Each joint's own frame may be turned any way."""
    base: np.ndarray = field(default_factory=lambda: np.eye(4))
    tool: np.ndarray = field(default_factory=lambda: np.eye(4))
    """The base and the tool link may be anywhere."""

    @staticmethod
    def plain(n: int) -> Writing:
        return Writing(np.ones(n), np.zeros(n), np.zeros(n), [np.eye(3)] * n)

    @staticmethod
    def any(n: int, seed: int) -> Writing:
        rng = np.random.default_rng(seed)
        return Writing(
            rng.choice([-1.0, 1.0], n), rng.uniform(-np.pi, np.pi, n), rng.uniform(-1.0, 1.0, n),
            [se3.rotation_exp(rng.normal(size=3)) for _ in range(n)],
            se3.exp(rng.normal(size=6)), se3.exp(0.5 * rng.normal(size=6)),
        )  # fmt: skip

    def fk(self, table: list[Row], q: np.ndarray) -> np.ndarray:
        """Where the tool is: the table itself, without any joint."""
        T = self.base
        for row, theta in zip(table, self.sign * q + self.zero, strict=True):
            T = T @ row_pose(theta, *row)
        return T @ self.tool

    def joints(self, table: list[Row], limit: np.ndarray, error: np.ndarray | None = None) -> tuple[list[Joint], Any]:
        """The joints, with limits ±limit on the table's angles, and the tool's pose in the last of them.

        `error` (n, 6) is what calibration finds: small twists of each joint's frame.
        """
        joints, T = [], self.base
        for i, row in enumerate(table):
            slide = se3.transform(np.eye(3), np.array([0.0, 0.0, self.slide[i]]))
            twist = se3.transform(self.twist[i], np.zeros(3))
            ends = (self.sign[i] * (np.array([-limit[i], limit[i]]) - self.zero[i])).tolist()
            place = T @ slide @ twist @ (np.eye(4) if error is None else se3.exp(error[i]))
            axis = self.twist[i].T @ np.array([0.0, 0.0, self.sign[i]])
            joints.append(Joint(f"joint_{i + 1}", "revolute", place, axis, min(ends), max(ends)))
            T = se3.inverse(slide @ twist) @ row_pose(self.zero[i], *row)
        return joints, T @ self.tool


def limits_of(table: list[Row]) -> np.ndarray:
    """The makers' limits on the table's angles [rad]."""
    if len(table) == 7:
        return np.radians([170, 120, 170, 120, 170, 120, 175])
    return np.full(len(table), 2.0 * np.pi if len(table) == 6 else 2.5)


def build(table: list[Row], writing: Writing, error: np.ndarray | None = None) -> Chain:
    joints, tool = writing.joints(table, limits_of(table), error)
    return Chain.from_joints(joints, T_last_tool=tool)


# --- arms of a family ---


@pytest.mark.parametrize("name", TABLES)
def test_an_arm_is_recognised_from_its_published_table(name: str) -> None:
    chain = build(TABLES[name], Writing.plain(len(TABLES[name])))
    assert chain.family == FAMILY[name]
    assert chain.family_fit is not None
    assert chain.family_fit.exact
    assert chain.family_fit.deviation < ROUNDING
    if name in UR:
        a2, a3, _, d4, d5, _ = UR[name]
        assert_allclose(chain.family_fit.lengths, [a2, a3, d4, d5], atol=ROUNDING)
    elif name in LBR:
        assert_allclose(chain.family_fit.lengths, LBR[name][1:3], atol=ROUNDING)
    else:
        assert_allclose(chain.family_fit.lengths, [row[0] for row in TABLES[name]], atol=ROUNDING)


@settings(max_examples=15)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("name", TABLES)
def test_signs_zeros_frames_and_origins_are_the_writer_s_choice(name: str, seed: int) -> None:
    table, writing = TABLES[name], Writing.any(len(TABLES[name]), seed)
    chain = build(table, writing)
    assert chain.family == FAMILY[name]
    assert chain.family_fit is not None
    assert chain.family_fit.exact
    rng = np.random.default_rng(seed)
    q = chain.random_q(rng, 20)
    targets = np.array([writing.fk(table, row) for row in q])
    assert_allclose(chain.fk_batch(q), targets, atol=ROUNDING)
    # The ideal arm is the same arm, and its closed form finds joints inside the writer's limits, from any seed.
    assert_allclose([chain.family_fit.fk(row) for row in q], targets, atol=ROUNDING)
    # (Two parallel joints can meet a pose on one of their elbows only, so for them the target is a point.)
    kind = POINT if chain.n == 2 else POSE
    solver = load_solver("closed_form", position=SOLVED, rotation=SOLVED)
    solutions = solver.solve_batch(chain, targets, chain.random_q(rng, 20), kind=kind)
    assert solutions.converged.all(), [s.reason for s in solutions if not s.converged]
    for solution, T in zip(solutions, targets, strict=True):
        assert chain.within_limits(solution.q)
        position, rotation = se3.pose_error(writing.fk(table, solution.q), T)
        assert position <= SOLVED
        assert rotation <= SOLVED or kind == POINT


@pytest.mark.parametrize("name", TABLES)
def test_the_configuration_that_made_the_pose_comes_back_when_it_is_the_seed(name: str) -> None:
    table, writing = TABLES[name], Writing.any(len(TABLES[name]), 7)
    chain = build(table, writing)
    for q in chain.random_q(np.random.default_rng(8), 50):
        solution = load_solver("closed_form").solve(chain, writing.fk(table, q), q)
        J = chain.jacobian(q)
        least = np.linalg.svd(J, compute_uv=False)[min(len(table), 3 if len(table) < 6 else 6) - 1]
        # Joints are known to the rounding of the pose, 1e-15, over the least singular value.
        assert_allclose(solution.q, q, atol=1e-9 if least > 1e-3 else 1e-6)


def test_two_parallel_joints_meet_a_pose_on_the_elbow_that_has_it() -> None:
    chain = build(TABLES["planar 2R"], Writing.plain(2))
    solution = load_solver("closed_form").solve(chain, chain.fk([0.3, 0.7]), [0.9, -0.7])
    assert solution.converged
    assert_allclose(solution.q, [0.3, 0.7], atol=SOLVED)


def test_the_robots_that_come_along_are_of_their_families() -> None:
    for name, family in {"ur5": "ur", "iiwa14": "srs", "planar2": "planar2", "planar3": "planar3"}.items():
        fit = ik_sim.load_robot(name).chain.family_fit
        assert fit is not None
        assert fit.name == family
        assert fit.exact


def test_fixed_joints_between_the_moving_ones_change_nothing() -> None:
    joints, tool = Writing.any(6, 3).joints(TABLES["UR5e"], limits_of(TABLES["UR5e"]))
    step = se3.exp(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    with_stops = []
    for joint in joints:
        with_stops += [
            Joint(f"stop before {joint.name}", "fixed", step),
            replace(joint, T_parent_joint=se3.inverse(step) @ joint.T_parent_joint),
        ]
    chain = Chain.from_joints(with_stops, T_last_tool=tool)
    assert chain.family == "ur"
    assert chain.family_fit is not None
    assert chain.family_fit.exact


# --- arms that are almost of a family ---


def calibrated(name: str, seed: int, size: float) -> Chain:
    """An arm whose joints are each off by about `size` metres and radians."""
    table = TABLES[name]
    error = size * np.random.default_rng(seed).normal(size=(len(table), 6))
    return build(table, Writing.any(len(table), seed), error)


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-4, 3e-4])
@pytest.mark.parametrize("name", ["UR5", "UR10e", "iiwa 14"])
def test_a_calibrated_arm_is_near_its_family_and_still_solved_to_rounding(name: str, size: float) -> None:
    solver = load_solver("closed_form", position=SOLVED, rotation=SOLVED)
    for seed in range(5):
        chain = calibrated(name, seed, size)
        assert chain.family == FAMILY[name]
        assert chain.family_fit is not None
        assert not chain.family_fit.exact
        # Several joints add up, each at up to a metre and a half from the tool.
        assert size < chain.family_fit.deviation < 50.0 * size
        q = [row for row in chain.random_q(np.random.default_rng(seed), 60, within=0.5) if regular(chain, row)]
        solutions = solver.solve_batch(chain, chain.fk_batch(np.array(q)), np.array(q))
        assert solutions.converged.all(), [s.reason for s in solutions if not s.converged]
        if chain.n == 6:  # away from singular postures the answer on the seed's branch is the seed itself
            assert_allclose(solutions.q, q, atol=SOLVED)


def regular(chain: Chain, q: np.ndarray) -> bool:
    """Whether q is well away from singular postures, where an arm that is off can't follow its ideal."""
    return bool(np.linalg.svd(chain.jacobian(q), compute_uv=False)[-1] > 0.05)


@pytest.mark.parametrize("name", ["UR5", "iiwa 14"])
def test_a_calibrated_arm_reaches_its_singular_poses_too(name: str) -> None:
    solver = load_solver("closed_form")
    for seed in range(20):
        chain = calibrated(name, seed, 1e-4)
        q = chain.random_q(np.random.default_rng(seed), 100, within=0.5)
        solutions = solver.solve_batch(chain, chain.fk_batch(q), q)
        assert Status.OUT_OF_REACH not in solutions.status  # the ideal arm's reach proves nothing about this one
        assert solutions.converged.all(), [s.reason for s in solutions if not s.converged]


@pytest.mark.parametrize("name", ["UR5", "iiwa 14"])
def test_the_slack_bounds_what_calibration_does_to_the_wrist_and_is_not_much_more(name: str) -> None:
    for seed, size in itertools.product(range(5), (1e-5, 3e-4)):
        chain = calibrated(name, seed, size)
        fit = chain.family_fit
        assert fit is not None
        to_wrist = np.linalg.inv(fit.T_family_tool)
        q = chain.random_q(np.random.default_rng(seed), 400)
        apart = [np.linalg.norm(((chain.fk(row) - fit.fk(row)) @ to_wrist)[:3, 3]) for row in q]
        assert max(apart) < fit.slack < 30.0 * max(apart)
    exact = build(TABLES[name], Writing.plain(len(TABLES[name]))).family_fit
    assert exact is not None
    assert exact.slack < 1e-12


def test_what_a_calibrated_arm_clearly_can_not_reach_is_said_to_be_out_of_reach() -> None:
    chain = calibrated("UR5", 0, 1e-4)
    T = chain.fk(chain.q_middle)
    T[:3, 3] += 3.0
    solution = load_solver("closed_form").solve(chain, T)
    assert solution.status is Status.OUT_OF_REACH
    assert "beyond the outer radius" in solution.reason


# --- arms of no family ---


def tilted(table: list[Row], joint: int, angle: float) -> Chain:
    """The arm with one of its joints tilted about x by `angle` [rad]."""
    error = np.zeros((len(table), 6))
    error[joint, 3] = angle
    return build(table, Writing.plain(len(table)), error)


def shifted(table: list[Row], joint: int, p: list[float]) -> Chain:
    """The arm with one of its joints shifted by p [m]."""
    error = np.zeros((len(table), 6))
    error[joint, :3] = p
    return build(table, Writing.plain(len(table)), error)


OTHER: dict[str, Any] = {
    "a UR with a spherical wrist": lambda: build(
        [(0, 1, 0.089), (-0.425, 0, 0), (0, 1, 0), (0, -1, 0.39), (0, 1, 0), (0, 0, 0.08)], Writing.plain(6)
    ),
    "a UR with a tilted elbow": lambda: tilted(TABLES["UR5"], 2, 0.2),
    "a UR whose first axes miss each other": lambda: shifted(TABLES["UR5"], 1, [0.05, 0.0, 0.0]),
    "a UR whose wrist axes miss each other": lambda: shifted(TABLES["UR5"], 4, [0.02, 0.0, 0.0]),
    "a UR without its last joint": lambda: build(TABLES["UR5"][:5], Writing.plain(5)),
    "a UR on another joint": lambda: build([(0, 1, 0.1), *TABLES["UR5"]], Writing.plain(7)),
    "an LBR with an offset elbow": lambda: shifted(TABLES["iiwa 14"], 3, [0.0825, 0.0, 0.0]),
    "an LBR with an offset wrist": lambda: shifted(TABLES["iiwa 14"], 5, [0.05, 0.0, 0.0]),
    "an LBR with a tilted shoulder": lambda: tilted(TABLES["iiwa 14"], 1, 0.3),
    "a planar arm with a tilted elbow": lambda: tilted(TABLES["planar 3R"], 1, 0.3),
    "four parallel axes": lambda: build(planar_table(0.3, 0.2, 0.2, 0.1), Writing.plain(4)),
    "two axes in one line": lambda: build(planar_table(0.0, 0.4), Writing.plain(2)),
}


@pytest.mark.parametrize("kind", OTHER)
def test_an_arm_of_no_family_is_a_serial_chain_and_the_closed_form_says_so(kind: str) -> None:
    chain = OTHER[kind]()
    assert chain.family == "serial"
    assert chain.family_fit is None
    T = chain.fk(np.full(chain.n, 0.3))
    solution = load_solver("closed_form").solve(chain, T)
    assert solution.status is Status.UNSUPPORTED
    assert "knows no closed form for this chain" in solution.reason


def changed(joint: int, **changes: Any) -> Chain:
    joints, tool = Writing.plain(6).joints(TABLES["UR5"], limits_of(TABLES["UR5"]))
    joints[joint] = replace(joints[joint], **changes)
    return Chain.from_joints(joints, T_last_tool=tool)


def test_a_sliding_joint_and_one_that_follows_another_make_a_serial_chain() -> None:
    assert changed(2, name="joint_3").family == "ur"
    assert changed(2, kind="prismatic").family == "serial"
    assert changed(2, mimic=Mimic("joint_2")).family == "serial"


def test_a_limit_or_a_lock_keeps_the_family_for_they_are_not_geometry() -> None:
    chain = build(TABLES["UR5"], Writing.plain(6))
    assert chain.locked({"joint_2": -0.5}).family == "ur"
    assert chain.with_tool(se3.exp(np.array([0.1, 0.0, 0.2, 0.3, 0.0, 1.0]))).family == "ur"
