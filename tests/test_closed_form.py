"""Closed forms find every pose that is legal, the nearest answer first, and prove it when there is none."""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

import ik_sim
from ik_sim import se3
from ik_sim.chain import Chain
from ik_sim.errors import IkSimError
from ik_sim.solvers import Status, load_solver
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers.all_solutions import all_solutions, arm_angle_arcs
from ik_sim.solvers.srs_arm import CIRCLE, ROOM, srs_circle, srs_legal_near, srs_seed
from ik_sim.target import Target

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

VECTORS = tomllib.loads((Path(__file__).parent / "data" / "arm_vectors.toml").read_text(encoding="utf-8"))
IIWA_SIGNS = np.array([1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0])  # the maker counts joint 4 against the table

UR5 = ik_sim.load_robot("ur5").chain
IIWA = ik_sim.load_robot("iiwa14").chain
ARMS = {"ur5": UR5, "iiwa14": IIWA}
PLANAR3 = ik_sim.load_robot("planar3").chain
PLANAR2 = ik_sim.load_robot("planar2").chain.with_limits({"joint_1": (-np.pi, np.pi), "joint_2": (-np.pi, np.pi)})

SOLVED = 1e-9
"""[m] and [rad]: what closed forms promise, a thousand times below any tolerance in use."""
SOLVER = load_solver("closed_form", position=SOLVED, rotation=SOLVED)

# Lengths from the two published tables [m].
UR_A2, UR_A3, UR_D1, UR_D4, UR_D5, UR_D6 = 0.425, 0.39225, 0.089159, 0.10915, 0.09465, 0.0823
SHOULDER, UPPER_ARM, FOREARM, FLANGE = 0.36, 0.42, 0.40, 0.126


def vector(arm: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Joints as our URDFs count them, and the pose they are printed with."""
    entry = VECTORS[arm][name]
    T = se3.transform(np.array(entry["R"]), np.array(entry["p"]))
    # Twelve printed digits are not orthonormal to rounding; the nearest rotation is.
    U, _, Vt = np.linalg.svd(T[:3, :3])
    T[:3, :3] = U @ Vt
    return np.array(entry["q"]) * (IIWA_SIGNS if arm == "iiwa14" else 1.0), T


def wrapped(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2.0 * np.pi) - np.pi


# --- numbers that were computed elsewhere ---


@pytest.mark.parametrize("name", VECTORS["ur5"])
def test_the_joints_behind_a_printed_ur5_pose_come_back(name: str) -> None:
    q, T = vector("ur5", name)
    solution = load_solver("closed_form").solve(UR5, T, q)
    assert solution.converged
    # The pose is rounded to twelve digits; U12 is 0.0036 rad away from the wrist singularity, U2 is stretched besides.
    assert_allclose(solution.q, q, atol={"U2": 1e-5, "U12": 1e-8}.get(name, 1e-10))


@pytest.mark.parametrize("name", VECTORS["iiwa14"])
def test_the_joints_behind_a_printed_iiwa_pose_come_back(name: str) -> None:
    q, T = vector("iiwa14", name)
    solution = load_solver("closed_form").solve(IIWA, T, q)
    assert solution.converged
    # K1 is bent by 0.019 rad only, K7 leans by 0.004; K4 is stretched: a rounding of 1e-12 m is a bend of 1e-6 there.
    assert_allclose(solution.q, q, atol={"K1": 1e-8, "K4": 1e-5, "K7": 1e-8}.get(name, 1e-10))


@pytest.mark.parametrize("name", ["U1", "U5", "U6"])
def test_all_printed_branches_of_the_ur5_are_found_and_no_other(name: str) -> None:
    q, T = vector("ur5", name)
    wanted = np.array(VECTORS["ur5"][name]["all_branches"])
    found = np.array([s.q for s in all_solutions(UR5, T, np.zeros(6), turns=False)])
    assert len(found) == len(wanted)
    for row in wanted:
        assert np.abs(wrapped(found - row)).max(axis=1).min() < 1e-10
    assert np.abs(wrapped(found - q)).max(axis=1).min() < 1e-10


@pytest.mark.parametrize("name", VECTORS["ur5"])
def test_a_ur5_pose_has_as_many_branches_as_printed(name: str) -> None:
    q, _ = vector("ur5", name)
    # U2 is stretched on both shoulder branches, so each pair of its elbows is one solution. (From the joints, not from
    # the printed pose: only at full precision are they.)
    wanted = {"U2": 2}.get(name, VECTORS["ur5"][name]["branches"])
    assert len(all_solutions(UR5, UR5.fk(q), np.zeros(6), turns=False)) == wanted


@pytest.mark.parametrize("name", ["K1", "K5"])
def test_the_eight_sign_branches_of_the_iiwa_at_one_arm_angle_are_those_printed(name: str) -> None:
    q, T = vector("iiwa14", name)
    wanted = IIWA_SIGNS * np.array(VECTORS["iiwa14"][name]["all_branches"])
    found = np.array([s.q for s in all_solutions(IIWA, T, q, arm_angle=VECTORS["iiwa14"][name]["arm_angle"])])
    assert len(found) == 8  # all of them are inside the limits
    for row in wanted:
        assert np.abs(found - row).max(axis=1).min() < (1e-8 if name == "K1" else 1e-10)


@pytest.mark.parametrize("name", ["K1", "K5"])
def test_legal_arm_angles_end_where_printed(name: str) -> None:
    _, T = vector("iiwa14", name)
    wanted = VECTORS["iiwa14"][name]["legal_arcs"]
    found: dict[str, list[tuple[float, float]]] = {key: [] for key in wanted}
    for arc in arm_angle_arcs(IIWA, T):
        # The ideal arm's joint 4 counts as the maker does, against the table that the arcs are printed for.
        signs = (arc.signs[0], -arc.signs[1], arc.signs[2])
        found["".join("+" if s > 0 else "-" for s in signs)].append((arc.low, arc.high))
    for signs, arcs in wanted.items():
        if arcs[-1][1] - 2.0 * np.pi == pytest.approx(arcs[0][0], abs=1e-8):  # printed in two, but one arc
            arcs = [*arcs[1:-1], (arcs[-1][0], arcs[0][1] + 2.0 * np.pi)]
        assert len(found[signs]) == len(arcs), signs
        for low, high in arcs:  # printed with nine decimals
            ends = [
                max(abs(wrapped(a - low)), abs(wrapped(b - high)), abs(b - a - (high - low))) for a, b in found[signs]
            ]
            assert min(ends) < 2e-9, (signs, low, high)


@pytest.mark.parametrize("name", [name for name, entry in VECTORS["iiwa14"].items() if "legal_total" in entry])
def test_the_legal_arm_angles_add_up_to_what_is_printed(name: str) -> None:
    _, T = vector("iiwa14", name)
    total = sum(arc.width for arc in arm_angle_arcs(IIWA, T))
    # Nine decimals, up to 32 ends; where a limit is met at a flat angle an end moves with the square root of rounding.
    assert_allclose(total, VECTORS["iiwa14"][name]["legal_total"], atol=3e-7)


# --- poses made from joints: nothing is lost, wherever the joints are ---


def elbow_and_wrist(chain: Chain) -> tuple[int, int]:
    return (2, 4) if chain.n == 6 else (3, 5)


def drawn(chain: Chain, rng: np.random.Generator, size: int) -> np.ndarray:
    """Joints all over, most of them pushed to where formulas break: limits, stretch, fold, singular wrists."""
    q = rng.uniform(-np.pi, np.pi, (size, 6)) if chain.n == 6 else chain.random_q(rng, size)
    elbow, wrist = elbow_and_wrist(chain)
    near = lambda: rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-12.0, -1.0)  # noqa: E731
    for row in q:
        joint = rng.integers(chain.n)
        low, high = chain.lower[joint], chain.upper[joint]
        match rng.integers(12):
            case 0:
                row[joint] = rng.choice([low, high])
            case 1:
                row[joint] = rng.choice([low + abs(near()), high - abs(near())])
            case 2:
                row[elbow] = near()  # nearly stretched
            case 3:
                row[elbow] = 0.0
            case 4:  # nearly folded, or as far as the limit lets it
                row[elbow] = rng.choice([-1.0, 1.0]) * (min(np.pi, chain.upper[elbow]) - abs(near()))
            case 5:
                row[wrist] = near() + (np.pi if chain.n == 6 and rng.integers(2) else 0.0)
            case 6:
                row[wrist] = np.pi if chain.n == 6 and rng.integers(2) else 0.0
            case 7:
                row[[elbow, wrist]] = near(), near()
            case 8:  # the wrist centre above the base: on the UR5 as near to the axis as its offset lets it
                row[1] = near() if chain.n == 7 else row[1]
    return np.clip(q, chain.lower, chain.upper)


@pytest.mark.parametrize("seeds", ["the middle", "anywhere", "the joints themselves"])
@pytest.mark.parametrize("arm", ARMS)
def test_every_pose_made_from_legal_joints_is_solved_inside_the_limits(arm: str, seeds: str) -> None:
    chain, rng = ARMS[arm], np.random.default_rng(11)
    q = drawn(chain, rng, 4000)
    T = chain.fk_batch(q)
    q_seeds = {"the middle": chain.q_middle, "anywhere": chain.random_q(rng, 4000), "the joints themselves": q}[seeds]
    solutions = SOLVER.solve_batch(chain, T, q_seeds)
    assert solutions.converged.all(), [s.reason for s in solutions if not s.converged]
    assert (solutions.q >= chain.lower).all()
    assert (solutions.q <= chain.upper).all()
    for reached, wanted in zip(chain.fk_batch(solutions.q), T, strict=True):
        position, rotation = se3.pose_error(reached, wanted)
        assert position <= SOLVED
        assert rotation <= SOLVED


@pytest.mark.parametrize("arm", ARMS)
def test_away_from_singular_postures_poses_are_met_to_rounding(arm: str) -> None:
    chain = ARMS[arm]
    q = np.array([row for row in chain.random_q(np.random.default_rng(12), 2000, within=0.5) if regular(chain, row)])
    solutions = SOLVER.solve_batch(chain, chain.fk_batch(q))
    assert len(q) > 1000
    assert solutions.position_error.max() < 1e-14  # measured elsewhere over 10 000 poses: 1.8e-15
    assert solutions.rotation_error.max() < 1e-14


def regular(chain: Chain, q: np.ndarray) -> bool:
    """Whether the pose and, on the iiwa, shoulder, elbow and wrist determine each joint well."""
    least = np.linalg.svd(chain.jacobian(q), compute_uv=False)[-1]
    return bool(least > 0.02 and (chain.n == 6 or np.abs(np.sin(q[[1, 3, 5]])).min() > 1e-3))


@settings(max_examples=200)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("arm", ARMS)
def test_the_joints_that_made_a_pose_are_the_answer_when_they_are_the_seed(arm: str, seed: int) -> None:
    chain = ARMS[arm]
    q = drawn(chain, np.random.default_rng(seed), 1)[0]
    solution = SOLVER.solve(chain, chain.fk(q), q)
    assert solution.converged
    if regular(chain, q):
        assert_allclose(solution.q, q, atol=1e-9)


def test_the_nearest_of_the_printed_branches_is_taken_whole_turns_included() -> None:
    rng = np.random.default_rng(13)
    for name in ("U5", "U6"):
        _, T = vector("ur5", name)
        branches = np.array(VECTORS["ur5"][name]["all_branches"])
        for seed in rng.uniform(-2.0 * np.pi, 2.0 * np.pi, (50, 6)):
            turns = np.array([branches - 2.0 * np.pi, branches, branches + 2.0 * np.pi])
            turns[np.abs(turns) > 2.0 * np.pi] = np.inf
            nearest = np.abs(turns - seed).min(axis=0)  # per branch and joint, by its nearest legal turn
            solution = SOLVER.solve(UR5, T, seed)
            assert_allclose(np.linalg.norm(solution.q - seed), np.sqrt((nearest**2).sum(axis=1)).min(), atol=1e-9)


def test_a_joint_stays_on_its_turn() -> None:
    """From a report: the nearest pick put a joint on the other side of π from where the arm stood."""
    T = se3.transform(
        se3.quat_xyzw_to_matrix(np.array([0.323167233, 0.462694696, 0.797407835, 0.213582076])),
        np.array([0.603801419, 0.332246875, 0.294696945]),
    )
    half_a_turn = se3.transform(np.diag([-1.0, -1.0, 1.0]), np.zeros(3))  # that robot's base, seen from ours
    solution = load_solver("closed_form").solve(UR5, half_a_turn @ T, [0.35, 0.45, -1.2, 3.5, -1.1, 3.7])
    assert_allclose(solution.q, [0.3, 0.489208, -1.314512, 3.566897, -1.2, 3.641592], atol=1e-5)


@pytest.mark.parametrize("value", [-2.0 * np.pi, -6.2, -3.2, -np.pi, 3.1, np.pi, 6.28, 2.0 * np.pi])
@pytest.mark.parametrize("joint", [0, 3, 5])
def test_a_seed_near_or_at_a_limit_keeps_its_turn(joint: int, value: float) -> None:
    q = np.array([0.4, -1.1, 1.3, -0.7, 0.9, -0.5])
    q[joint] = value
    solution = SOLVER.solve(UR5, UR5.fk(q), q)
    assert_allclose(solution.q, q, atol=1e-9)


def test_a_seed_outside_the_limits_is_moved_inside_and_that_is_said() -> None:
    q, T = vector("iiwa14", "K5")
    solution = SOLVER.solve(IIWA, T, q + np.array([0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0]))
    assert solution.converged
    assert solution.seed_moved
    assert "the seed was outside the limits and was moved inside" in solution.reason
    assert not SOLVER.solve(IIWA, T, q).seed_moved


# --- singular postures ---


def test_a_straight_iiwa_is_solved_from_any_seed_and_keeps_what_the_seed_says_of_free_joints() -> None:
    T = IIWA.fk(np.zeros(7))  # straight up: joints 1, 3, 5 and 7 turn about one line
    for seed in IIWA.random_q(np.random.default_rng(14), 200):
        solution = SOLVER.solve(IIWA, T, seed)
        assert solution.converged
        assert solution.singular
        assert "singular posture" in solution.reason
        assert_allclose(solution.q[[1, 3, 5]], 0.0, atol=1e-9)
        assert_allclose(wrapped(solution.q[[0, 2, 4, 6]].sum()), 0.0, atol=1e-9)
    seed = np.array([0.3, 0.0, -0.4, 0.0, 0.5, 0.0, -0.4])
    assert_allclose(SOLVER.solve(IIWA, T, seed).q, seed, atol=1e-9)


@pytest.mark.parametrize("theta5", [0.0, np.pi, -np.pi])
def test_a_singular_wrist_of_the_ur5_keeps_the_seed_s_last_joint_where_reach_allows(theta5: float) -> None:
    q = np.array([0.3, -1.0, 1.4, -0.2, theta5, 0.7])
    T = UR5.fk(q)
    for theta6 in (0.7, 0.2, -1.0, 2.5):
        seed = q.copy()
        seed[5] = theta6
        solution = SOLVER.solve(UR5, T, seed)
        assert solution.converged
        assert solution.singular
        # θ_6 moves the elbow's target on a circle of 9 cm radius, which stays inside the ring at this bend.
        assert_allclose(solution.q[5], theta6, atol=1e-9)


def test_a_singular_wrist_turns_its_last_joint_only_as_far_as_reach_demands() -> None:
    q = np.array([0.3, -1.0, 0.0, 1.2, 0.0, 0.7])  # stretched too: other θ_6 push the target out of the ring
    T = UR5.fk(q)
    solved = [SOLVER.solve(UR5, T, q + np.array([0, 0, 0, 0, 0, turn])) for turn in np.linspace(-3.0, 3.0, 61)]
    assert all(solution.converged for solution in solved)
    moved = [abs(s.q[5] - q[5] - turn) for s, turn in zip(solved, np.linspace(-3.0, 3.0, 61), strict=True)]
    assert max(moved) > 0.1  # some had to turn
    assert min(moved) < 1e-6  # and some had not


# --- the iiwa's circle of elbows ---


def branches_by_hand(T: np.ndarray, psi: float) -> np.ndarray:
    """The table's joints of the eight sign branches at one arm angle, from link directions and nothing else."""
    W = T[:3, 3] - FLANGE * T[:3, 2] - np.array([0.0, 0.0, SHOULDER])
    dist = np.linalg.norm(W)
    u = W / dist
    e1 = np.array([0.0, 0.0, 1.0]) - u[2] * u
    e1 /= np.linalg.norm(e1)
    v = e1 * np.cos(psi) + np.cross(u, e1) * np.sin(psi)
    beta = np.arccos((UPPER_ARM**2 + dist**2 - FOREARM**2) / (2.0 * UPPER_ARM * dist))
    upper = np.cos(beta) * u + np.sin(beta) * v
    fore = (W - UPPER_ARM * upper) / FOREARM
    rows = []
    for signs in itertools.product([1.0, -1.0], repeat=3):
        R, q = np.eye(3), []
        for sign, along in zip(signs, (upper, fore, T[:3, 2]), strict=True):
            local = R.T @ along  # a turn a about z, then b about y, puts z on (sin b cos a, sin b sin a, cos b)
            a = np.arctan2(sign * local[1], sign * local[0])
            b = sign * np.arctan2(np.hypot(local[0], local[1]), local[2])
            q += [a, b]
            R = R @ Rotation.from_euler("ZY", [a, b]).as_matrix()
        x = R.T @ T[:3, 0]
        rows.append([*q, np.arctan2(x[1], x[0])])
    return np.array(rows)


def test_the_branches_by_hand_are_the_printed_ones() -> None:
    """The judge of the tests below is itself judged by printed numbers."""
    for name in ("K1", "K5"):
        _, T = vector("iiwa14", name)
        by_hand = branches_by_hand(T, VECTORS["iiwa14"][name]["arm_angle"])
        assert_allclose(wrapped(by_hand - VECTORS["iiwa14"][name]["all_branches"]), 0.0, atol=1e-8)


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_legal_arm_angles_are_exactly_those_that_a_scan_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q = IIWA.random_q(rng)
    if abs(q[3]) < 0.05:
        return  # nearly stretched: arcs of a circle of millimetres
    middle, half = q + rng.uniform(-0.3, 0.3, 7), rng.uniform(0.4, 2.0, 7)
    ends = np.clip([middle - half, middle + half], IIWA.lower, IIWA.upper)
    chain = IIWA.with_limits({n: (low, high) for n, low, high in zip(IIWA.joint_names, *ends, strict=True)})
    T = chain.fk(q)
    arcs = arm_angle_arcs(chain, T)
    for psi in np.linspace(-np.pi, np.pi, 120, endpoint=False):
        legal = 0
        for row in IIWA_SIGNS * branches_by_hand(T, psi):
            margin = np.minimum(row - chain.lower, chain.upper - row).min()
            if abs(margin) < 1e-6:  # on the edge to rounding
                legal = -1
                break
            legal += margin > 0.0
        inside = sum(any(arc.low <= psi + 2.0 * np.pi * k <= arc.high for k in (-1, 0, 1)) for arc in arcs)
        assert legal in (inside, -1), psi


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_narrow_limits_lose_no_pose(seed: int) -> None:
    rng = np.random.default_rng(seed)
    middle = IIWA.random_q(rng, within=0.8)
    ends = np.clip([middle - 0.4, middle + 0.4], IIWA.lower, IIWA.upper)
    chain = IIWA.with_limits({n: (low, high) for n, low, high in zip(IIWA.joint_names, *ends, strict=True)})
    q, seeds = chain.random_q(rng, 50), chain.random_q(rng, 50)
    solutions = SOLVER.solve_batch(chain, chain.fk_batch(q), seeds)
    assert solutions.converged.all(), [s.reason for s in solutions if not s.converged]


@pytest.mark.parametrize("joint", range(7))
def test_a_locked_joint_of_the_iiwa_leaves_single_arm_angles_and_they_are_found(joint: int) -> None:
    rng = np.random.default_rng(15)
    for _ in range(20):
        q = IIWA.random_q(rng, within=0.9)
        chain = IIWA.locked({IIWA.joint_names[joint]: float(q[joint])})
        solution = load_solver("closed_form").solve(chain, chain.fk(q), chain.random_q(rng))
        assert solution.converged, solution.reason
        assert solution.q[joint] == q[joint]


def test_the_search_for_a_legal_arm_angle_reads_no_memory_that_nobody_wrote() -> None:
    c, rng = IIWA.packed, np.random.default_rng(16)
    for _ in range(300):
        T, seed = IIWA.fk(IIWA.random_q(rng)), IIWA.random_q(rng)
        D, g, free = ideal.family_target(c, T), np.zeros(CIRCLE), np.zeros(7)
        srs_circle(c, D, g)
        srs_seed(c, g, seed, free)
        answers = []
        for before in (np.nan, -3.0, 0.0, 3.0):
            room, q = np.full(ROOM, before), np.zeros(7)
            found = srs_legal_near(c, D, g, -3.1, seed, free, room, q)  # below the first root on most poses
            answers.append((found[0], *q))
        assert answers == [answers[0]] * 4


# --- when there is no answer ---


def ur_distances(T: np.ndarray) -> list[float]:
    """How far the two-link targets of a UR5 pose, up to four, lie from the shoulder; none inside the cylinder."""
    w = T[:3, 3] - UR_D6 * T[:3, 2]
    rho = np.hypot(w[0], w[1])
    if rho < UR_D4:
        return []
    psi, g = np.arctan2(w[1], w[0]), np.arcsin(UR_D4 / rho)
    distances = []
    for theta1 in (psi + g, psi + np.pi - g):
        normal = np.array([np.sin(theta1), -np.cos(theta1), 0.0])
        link5 = np.cross(normal, T[:3, 2])
        link5 /= np.linalg.norm(link5)
        shoulder = np.array([0.0, 0.0, UR_D1])
        in_plane = w - (normal @ (w - shoulder)) * normal
        distances += [float(np.linalg.norm(in_plane - side * UR_D5 * link5 - shoulder)) for side in (1.0, -1.0)]
    return distances


def test_the_distances_by_hand_are_the_printed_ones() -> None:
    _, T = vector("ur5", "U1")
    assert_allclose(sorted(ur_distances(T)), [0.815925, 0.817497, 0.997699, 0.998985], atol=1e-6)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_the_ur5_says_out_of_reach_exactly_when_all_four_targets_are_and_by_how_much(seed: int) -> None:
    rng = np.random.default_rng(seed)
    R = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    T = se3.transform(R, rng.uniform(-1.0, 1.0, 3) * rng.choice([0.2, 0.6, 1.2]))
    distances = ur_distances(T)
    gaps = [max(d - (UR_A2 + UR_A3), (UR_A2 - UR_A3) - d) for d in distances]
    solution = SOLVER.solve(UR5, T)
    assert UR5.within_limits(solution.q)
    assert_allclose(solution.position_error, np.linalg.norm(UR5.fk(solution.q)[:3, 3] - T[:3, 3]), atol=1e-12)
    if gaps and min(gaps) <= 0.0:
        assert solution.converged  # within ±2π no limit is in the way
        return
    assert solution.status is Status.OUT_OF_REACH
    if not gaps:
        rho = np.hypot(*(T[:3, 3] - UR_D6 * T[:3, 2])[:2])
        assert f"wrist centre {rho:.4f} m from the base axis, inside the 0.10915 m cylinder" in solution.reason
    else:
        distance = distances[int(np.argmin(gaps))]
        words = (
            r"([\d.e+-]+) m beyond the outer radius 0.8173 m" if distance > 0.5 else r"([\d.e+-]+) m inside the inner"
        )
        found = re.search(words, solution.reason)
        assert found, solution.reason
        assert_allclose(float(found[1]), min(gaps), rtol=6e-3)  # said with three digits


def test_a_wrist_inside_the_shoulder_cylinder_is_named_and_one_beside_it_has_eight_answers() -> None:
    """From a report: a target above the shoulder was answered with a failure and no reason."""
    down = np.diag([1.0, -1.0, -1.0])  # the same from both bases
    inside = SOLVER.solve(UR5, se3.transform(down, np.array([-0.05, -0.05, 0.5])))
    assert inside.status is Status.OUT_OF_REACH
    assert (
        "wrist centre 0.0707 m from the base axis, inside the 0.10915 m cylinder that no wrist can enter"
        in inside.reason
    )
    beside = all_solutions(UR5, se3.transform(down, np.array([-0.05, -0.1, 0.5])), turns=False)
    assert len(beside) == 8


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_a_wrist_just_inside_the_shoulder_cylinder_is_answered_by_the_posture_at_the_seed(seed: int) -> None:
    q = np.concatenate([[0.0, 0.0], np.random.default_rng(seed).uniform(-1.2, 1.2, 4)])

    def wrist(second: float) -> np.ndarray:
        q[1] = second
        T = UR5.fk(q)
        return T[:3, 3] - UR_D6 * T[:3, 2]

    q[1] = brentq(lambda second: wrist(second)[0], -np.pi, 0.0, xtol=1e-14)  # θ_1 = 0: the arm's plane is that of x
    T = UR5.fk(q)
    T[1, 3] -= 1e-6 * np.sign(wrist(q[1])[1])
    solution = SOLVER.solve(UR5, T, q)
    assert solution.status is Status.OUT_OF_REACH
    assert_allclose(solution.q, q, atol=1e-2)
    assert solution.position_error < 1e-5


def wrist_at(distance: float) -> np.ndarray:
    """A pose of the iiwa with its wrist at a distance from the shoulder, forward and up, the tool pointing forward."""
    along = np.array([np.sin(1.0), 0.0, np.cos(1.0)])
    R = Rotation.from_euler("y", np.pi / 2).as_matrix()
    return se3.transform(R, np.array([0.0, 0.0, SHOULDER]) + distance * along + FLANGE * R[:, 2])


def test_the_iiwa_s_outer_radius_and_the_radius_of_its_elbow_limit_are_exact() -> None:
    # The published limit of 120° leaves the wrist no nearer than this to the shoulder; 1e-7 m is 3e-7 rad of elbow.
    least, most = 0.410365690574, UPPER_ARM + FOREARM
    for distance in (least + 1e-7, 0.6, most - 1e-9, most):
        assert load_solver("closed_form").solve(IIWA, wrist_at(distance)).converged
    near = load_solver("closed_form").solve(IIWA, wrist_at(least - 2e-6))
    assert near.status is Status.OUT_OF_REACH
    assert (
        "2e-06 m inside the radius 0.4104 m that the limit of joint_4 (120°) leaves about the shoulder" in near.reason
    )
    far = load_solver("closed_form").solve(IIWA, wrist_at(most + 0.118))
    assert far.status is Status.OUT_OF_REACH
    assert "0.118 m beyond the outer radius 0.82 m, along (0.84, 0.00, 0.54) from the shoulder" in far.reason
    # The nearest reachable answer: the arm straight towards the target, its wrist as far off as it must be.
    assert_allclose(far.position_error, 0.118, atol=1e-9)


@pytest.mark.parametrize("name", ["closed_form", "combined"])
def test_an_elbow_that_may_not_stretch_has_an_outer_radius_of_its_own(name: str) -> None:
    chain = IIWA.with_limits({"joint_4": (0.5, 2.0)})
    most = np.sqrt(UPPER_ARM**2 + FOREARM**2 + 2.0 * UPPER_ARM * FOREARM * np.cos(0.5))
    assert load_solver(name).solve(chain, wrist_at(most - 1e-6)).converged
    beyond = load_solver(name).solve(chain, wrist_at(most + 0.002))
    assert beyond.status is Status.OUT_OF_REACH
    assert "0.002 m beyond the radius 0.7945 m that the limit of joint_4 (28.65°) leaves" in beyond.reason


def test_the_inner_radius_is_said_where_the_elbow_may_fold() -> None:
    folding = IIWA.with_limits({"joint_4": (-np.pi, np.pi)})
    assert load_solver("closed_form").solve(folding, wrist_at(0.02 + 1e-9)).status is not Status.OUT_OF_REACH
    solution = load_solver("closed_form").solve(folding, wrist_at(0.015))
    assert solution.status is Status.OUT_OF_REACH
    assert "0.005 m inside the inner radius 0.02 m about the shoulder" in solution.reason


def test_a_place_far_outside_is_never_a_success() -> None:
    """From a report: a pose far outside the arm came back with the success flag set."""
    T = se3.transform(np.eye(3), np.array([-2.0, 0.0, 0.5]))
    for chain in ARMS.values():
        solution = SOLVER.solve(chain, T)
        assert solution.status is Status.OUT_OF_REACH
        assert chain.within_limits(solution.q)
        # The UR5's tool can't come nearer than this to that point in any orientation (found by restarted optimisation).
        assert solution.position_error > (1.0918 if chain is UR5 else 0.6)
        assert_allclose(solution.position_error, np.linalg.norm(chain.fk(solution.q)[:3, 3] - T[:3, 3]), atol=1e-12)


def test_a_pose_that_only_limits_forbid_is_named_with_the_joint_and_its_degrees() -> None:
    _, T = vector("ur5", "U5")
    # The eight printed branches bend the elbow by ±1.2058, ±1.2661, ±1.3 and ±1.1708 rad.
    solution = SOLVER.solve(UR5.with_limits({"elbow_joint": (-1.0, 1.0)}), T)
    assert solution.status is Status.JOINT_LIMITS
    over = np.degrees(1.170792099442 - 1.0)
    assert f"all 8 branches break a joint limit: the nearest misses elbow_joint by {over:.2g}°" in solution.reason
    assert abs(solution.q[2]) <= 1.0
    one_side = SOLVER.solve(UR5.with_limits({"elbow_joint": (-1.18, -1.0)}), T)
    assert_allclose(one_side.q, VECTORS["ur5"]["U5"]["all_branches"][7], atol=1e-9)


def test_an_iiwa_pose_without_a_legal_arm_angle_is_told_from_one_out_of_reach() -> None:
    q, T = vector("iiwa14", "K5")
    chain = IIWA.with_limits({"joint_2": (-0.1, 0.1), "joint_6": (-0.2, 0.2)})
    scan = np.concatenate([IIWA_SIGNS * branches_by_hand(T, psi) for psi in np.linspace(-np.pi, np.pi, 500)])
    assert not ((scan >= chain.lower) & (scan <= chain.upper)).all(axis=1).any()
    solution = SOLVER.solve(chain, T, q)
    assert solution.status is Status.JOINT_LIMITS
    assert (
        "no arm angle is inside the joint limits on any of the 8 sign branches: the nearest misses joint_"
        in solution.reason
    )
    assert chain.within_limits(solution.q)


def test_targets_that_a_closed_form_can_not_take_are_unsupported_and_never_half_solved() -> None:
    for chain in ARMS.values():
        for target in (Target.point([0.3, 0.2, 0.5]), Target.axis([0.3, 0.2, 0.5], [0, 0, -1])):
            solution = SOLVER.solve(chain, target)
            assert solution.status is Status.UNSUPPORTED
            assert re.search(f"can't take an? {target.kind_name} target on a {chain.family} chain", solution.reason)
            assert_allclose(solution.position_error, np.linalg.norm(chain.fk(solution.q)[:3, 3] - target.T[:3, 3]))


# --- planar arms ---


@given(st.floats(-np.pi, np.pi), st.floats(-np.pi, np.pi), st.integers(0, 2**32))
def test_a_planar_arm_of_two_reaches_every_point_of_its_ring(theta1: float, theta2: float, seed: int) -> None:
    p = 0.5 * np.array([np.cos(theta1), np.sin(theta1)]) + 0.4 * np.array(
        [np.cos(theta1 + theta2), np.sin(theta1 + theta2)]
    )
    solution = SOLVER.solve(PLANAR2, Target.point([*p, 0.0]), PLANAR2.random_q(np.random.default_rng(seed)))
    assert solution.converged
    assert_allclose(PLANAR2.fk(solution.q)[:2, 3], p, atol=SOLVED)


@given(st.tuples(*[st.floats(-2.5, 2.5)] * 3), st.integers(0, 2**32))
def test_a_planar_arm_of_three_meets_every_pose_that_its_joints_make(q: tuple[float, float, float], seed: int) -> None:
    chain = PLANAR3
    legal = chain.clip(q)
    solution = SOLVER.solve(chain, chain.fk(legal), chain.random_q(np.random.default_rng(seed)))
    assert solution.converged
    assert chain.within_limits(solution.q)


def test_a_planar_arm_says_what_keeps_it_from_a_target() -> None:
    chain = PLANAR3
    T = chain.fk([0.2, 0.5, 0.3])
    raised, tipped, far = T.copy(), T.copy(), T.copy()
    raised[2, 3] += 0.1
    tipped[:3, :3] = tipped[:3, :3] @ Rotation.from_euler("x", 20.0, degrees=True).as_matrix()
    far[:2, 3] += 1.0
    for pose, words in (
        (raised, "0.1 m out of the plane"),
        (tipped, "this arm leaves 20° at the nearest posture"),
        (far, "m beyond the outer radius 0.7 m"),
    ):
        solution = SOLVER.solve(chain, pose)
        assert solution.status is Status.OUT_OF_REACH
        assert words in solution.reason


def test_a_tool_beside_the_plane_of_a_planar_arm_has_a_plane_of_its_own() -> None:
    T_tool = se3.transform(np.eye(3), np.array([0.0, 0.0, 0.05]))
    chain = ik_sim.load_robot("planar2", T_tool=T_tool).chain
    place = chain.fk([0.4, 0.9])[:3, 3]
    assert place[2] == pytest.approx(0.05)
    assert SOLVER.solve(chain, Target.point(place)).converged
    off = SOLVER.solve(chain, Target.point(place - [0.0, 0.0, 0.05]))
    assert off.status is Status.OUT_OF_REACH
    assert "0.05 m out of the plane" in off.reason
    assert off.position_error == pytest.approx(0.05)


# --- what every solver owes its caller ---


@pytest.mark.parametrize("arm", ARMS)
def test_a_batch_gives_the_same_bits_as_single_solves_whatever_the_threads(arm: str) -> None:
    chain, rng = ARMS[arm], np.random.default_rng(17)
    T, seeds = chain.fk_batch(drawn(chain, rng, 300)), chain.random_q(rng, 300)
    T[::7, :3, 3] += 0.7  # some out of reach
    kept_T, kept_seeds = T.copy(), seeds.copy()
    alone = np.array([SOLVER.solve(chain, pose, seed).q for pose, seed in zip(T, seeds, strict=True)])
    for threads in (1, 2, 5):
        assert_array_equal(SOLVER.solve_batch(chain, T, seeds, threads=threads).q, alone)
    assert_array_equal(T, kept_T)
    assert_array_equal(seeds, kept_seeds)


@pytest.mark.parametrize("arm", ARMS)
def test_an_answer_names_the_errors_of_the_joints_that_it_carries(arm: str) -> None:
    chain, rng = ARMS[arm], np.random.default_rng(18)
    T = chain.fk_batch(chain.random_q(rng, 50))
    T[:25, :3, 3] *= 1.6
    for solution, wanted in zip(SOLVER.solve_batch(chain, T), T, strict=True):
        position, rotation = se3.pose_error(chain.fk(solution.q), wanted)
        assert_allclose(solution.position_error, position, atol=1e-15)
        assert_allclose(solution.rotation_error, rotation, atol=1e-14)
        assert solution.converged == (position <= SOLVED and rotation <= SOLVED)
        assert chain.within_limits(solution.q)


def test_all_solutions_of_the_ur5_count_whole_turns_and_come_nearest_first() -> None:
    _, T = vector("ur5", "U5")
    seed = np.array([0.4, -1.1, 1.3, -0.7, 0.9, -0.5])
    found = all_solutions(UR5, T, seed)
    # No joint of the eight branches is 0 or ±π, so each has two turns within ±2π: 8 · 2⁶ rows.
    assert len(found) == 512
    rows = np.array([s.q for s in found])
    distances = np.linalg.norm(rows - seed, axis=1)
    assert (np.diff(distances) >= -1e-12).all()
    assert_allclose(rows[0], seed, atol=1e-9)
    assert len(np.unique(rows.round(6), axis=0)) == 512
    assert all(s.converged for s in found)
    for reached in UR5.fk_batch(rows):
        assert_allclose(reached, T, atol=1e-11)  # the printed pose is rounded to twelve digits


def test_all_solutions_of_a_pose_without_any_say_why() -> None:
    T = se3.transform(np.eye(3), np.array([3.0, 0.0, 0.0]))
    found = all_solutions(UR5, T)
    assert list(found) == []
    assert found.status is Status.OUT_OF_REACH
    assert "beyond the outer radius" in found.reason
    with pytest.raises(IkSimError, match="arm angles belong to seven-joint arms"):
        arm_angle_arcs(UR5, T)
    assert arm_angle_arcs(IIWA, T) == []
    with pytest.raises(IkSimError, match="the elbow is straight"):
        arm_angle_arcs(IIWA, IIWA.fk(np.zeros(7)))
