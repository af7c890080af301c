"""The lists of all solutions: nothing missing, nothing twice, nothing illegal; every row returns to the target."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ik_sim import se3
from ik_sim.chain import Chain, Joint
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.robots import load_robot
from ik_sim.solvers import Status, all_solutions, arm_angle_arcs
from ik_sim.target import Target, Tolerance

UR5, IIWA = load_robot("ur5").chain, load_robot("iiwa14").chain
PLANAR2, PLANAR3 = load_robot("planar2").chain, load_robot("planar3").chain
ONE_TURN = UR5.with_limits(dict.fromkeys(UR5.joint_names, (-np.pi, np.pi)))
TIGHT = Tolerance(1e-9, 1e-9)  # [m], [rad]: what a closed form promises of every row


def worst(chain: Chain, rows: Any, T: Any) -> float:
    """Largest error of any row, metres and radians alike, by the chain's forward kinematics."""
    return max((max(se3.pose_error(chain.fk(s.q), T)) for s in rows), default=0.0)


def nearest(rows: Any, q: Any) -> float:
    return min((float(np.abs(s.q - q).max()) for s in rows), default=np.inf)


def wrapped(x: Any) -> Any:
    return (x + np.pi) % (2 * np.pi) - np.pi


def nearest_turned(rows: Any, q: Any) -> float:
    """As `nearest`, whole turns apart: at a limit of ±π rounding decides on which side a joint comes out."""
    return min((float(np.abs(wrapped(s.q - q)).max()) for s in rows), default=np.inf)


# --- joints drawn to where formulas break ---

EDGES = [0.0, 1e-12, -1e-10, 1e-8, 1e-7, -1e-6, 1e-4, -1e-2, 0.1]


def angles(low: float, high: float) -> st.SearchStrategy[float]:
    """Anywhere inside, and often at or near a limit, zero, or half a turn."""
    marks = [x for x in (low, high, 0.0, np.pi, -np.pi, np.pi / 2, -np.pi / 2) if low <= x <= high]
    near = st.tuples(st.sampled_from(marks), st.sampled_from(EDGES)).map(lambda p: min(max(p[0] + p[1], low), high))
    return st.one_of(st.floats(low, high), near)


def joints(chain: Chain) -> st.SearchStrategy[Any]:
    limits = zip(chain.lower, chain.upper, strict=True)
    return st.tuples(*(angles(float(low), float(high)) for low, high in limits)).map(np.array)


@settings(max_examples=150)
@given(q=joints(ONE_TURN))
@example(q=np.zeros(6))
@example(q=np.array([0.0, -np.pi / 2, 0.0, -np.pi / 2, 0.0, 0.0]))
@example(q=np.full(6, np.pi))
@example(q=np.array([0.4, -1.0, 0.0, -0.6, 1.1, 0.2]))
@example(q=np.array([0.3, -1.1, 1.4, -0.7, np.pi, 0.5]))
def test_every_branch_of_the_ur5_returns_to_the_target_and_the_generating_joints_are_among_them(q: Any) -> None:
    T = ONE_TURN.fk(q)
    rows = all_solutions(ONE_TURN, T, q, tolerance=TIGHT)
    assert rows, (rows.status, rows.reason)
    assert worst(ONE_TURN, rows, T) <= 1e-9
    assert all(ONE_TURN.within_limits(s.q) for s in rows)
    # A pose fixes its joints to rounding, at the stretch, the fold and the shoulder cylinder to its root (1e-8 and a
    # small factor); a nearly singular wrist raises the rounding first, 1e-16 / sin θ_5, at worst to 1e-6.
    plain = abs(np.sin(q[2])) > 1e-3 and _shoulder_sine(q) > 1e-3
    wrist = abs(np.sin(q[4]))
    allowed = 1e-9 if plain and wrist > 1e-3 else 1e-6 if plain or wrist > 1e-3 else 1e-2
    assert nearest_turned(rows, q) < allowed


def _at_a_limit(chain: Chain, q: Any) -> bool:
    return bool((np.minimum(q - chain.lower, chain.upper - q) < 1e-6).any())


def _shoulder_sine(q: Any) -> float:
    """How far the wrist is from the cylinder about the base axis where both shoulder branches meet; 0 on it."""
    wrist = UR5.joint_frames(q)[6][:3, 3]
    return float(np.sqrt(max(0.0, 1.0 - (0.10915 / max(np.hypot(wrist[0], wrist[1]), 0.10915)) ** 2)))


@settings(max_examples=100)
@given(q=joints(IIWA))
@example(q=np.zeros(7))
@example(q=np.array([0.3, 0.0, -0.4, 1.1, 0.5, 0.0, 0.2]))
@example(q=np.array([0.3, 0.7, -0.4, 0.0, 0.5, -0.9, 0.2]))
def test_every_branch_of_the_iiwa_returns_to_the_target_and_one_passes_through_the_generating_joints(q: Any) -> None:
    T = IIWA.fk(q)
    rows = all_solutions(IIWA, T, q, tolerance=TIGHT)
    # A hair's breadth from stretch and limit at once a pose can't be decided in double precision.
    assume(not (abs(q[3]) < 1e-6 and _at_a_limit(IIWA, q)))
    assert rows, (rows.status, rows.reason)
    assert worst(IIWA, rows, T) <= 1e-9
    assert all(IIWA.within_limits(s.q) for s in rows)
    regular = min(abs(np.sin(q[1])), abs(np.sin(q[3])), abs(np.sin(q[5]))) > 1e-2
    inside = (np.minimum(q - IIWA.lower, IIWA.upper - q) > 1e-2).all()
    if regular and inside:  # the arm angle of the seed is legal, so its row is the seed itself
        assert nearest(rows, q) < 1e-8


@settings(max_examples=100)
@given(q=joints(PLANAR3))
def test_both_elbows_of_a_planar_arm_of_three_are_listed(q: Any) -> None:
    assume(not (abs(np.sin(q[1])) < 1e-6 and _at_a_limit(PLANAR3, q)))  # undecidable in double precision
    T = PLANAR3.fk(q)
    rows = all_solutions(PLANAR3, T, q, tolerance=TIGHT)
    assert rows
    assert worst(PLANAR3, rows, T) <= 1e-9
    assert nearest(rows, q) < 1e-6


@settings(max_examples=100)
@given(q=joints(PLANAR2), as_point=st.booleans())
def test_both_elbows_of_a_planar_arm_of_two_are_listed_for_points_and_one_for_poses(q: Any, as_point: bool) -> None:
    assume(not (abs(np.sin(q[1])) < 1e-6 and _at_a_limit(PLANAR2, q)))
    T = PLANAR2.fk(q)
    rows = all_solutions(PLANAR2, Target.point(T[:3, 3]) if as_point else T, q, tolerance=TIGHT)
    mirrored = np.array([q[0] + 2 * np.arctan2(0.4 * np.sin(q[1]), 0.5 + 0.4 * np.cos(q[1])), -q[1]])
    if as_point and PLANAR2.within_limits(mirrored, -1e-6):
        assert nearest(rows, mirrored) < 1e-6
    if not as_point and abs(np.sin(q[1])) > 1e-3:
        assert len(rows) == 1
    assert nearest(rows, q) < 1e-6
    for s in rows:
        assert np.linalg.norm(PLANAR2.fk(s.q)[:3, 3] - T[:3, 3]) <= 1e-9


# --- whole turns ---


def test_each_joint_takes_every_whole_turn_that_its_limits_hold() -> None:
    q = np.array([0.4, -1.1, 1.3, -0.7, 0.9, -0.5])
    T = UR5.fk(q)
    one = all_solutions(ONE_TURN, T)
    assert len(one) == 8
    wide = UR5.with_limits({"wrist_3_joint": (-8 * np.pi, 8 * np.pi)})
    # Eight branches; five joints with two turns each in ±2π; eight turns of the last in ±8π.
    assert len(all_solutions(wide, T)) == 8 * 2**5 * 8
    assert len(all_solutions(wide, T, turns=False)) == 8
    for s in one:
        turned = s.q + 2 * np.pi * np.array([1, 0, 0, 0, 0, 0]) * (-1 if s.q[0] > 0 else 1)
        assert nearest(all_solutions(UR5, T), turned) < 1e-9


def test_a_joint_without_limits_is_listed_by_the_turn_nearest_to_the_seed() -> None:
    endless = UR5.with_limits({"wrist_3_joint": (-np.inf, np.inf)})
    q = np.array([0.4, -1.1, 1.3, -0.7, 0.9, 100.0])
    rows = all_solutions(endless, endless.fk(q), q)
    assert nearest(rows, q) < 1e-9
    assert all(abs(s.q[5] - 100.0) <= np.pi + 1e-9 for s in rows)


def test_limits_of_exactly_one_turn_count_both_ends() -> None:
    q = np.array([0.4, -1.1, 1.3, -0.7, 0.9, np.pi])
    rows = all_solutions(ONE_TURN, ONE_TURN.fk(q), q)
    assert nearest(rows, q) < 1e-9
    q[5] = -np.pi
    assert nearest(rows, q) < 1e-9


# --- limits ---


@pytest.mark.parametrize("low", [-1.0, 0.0, 0.4])
def test_the_list_under_limits_is_the_whole_list_with_the_illegal_rows_struck_out(low: float) -> None:
    q = np.array([0.4, -1.1, 1.3, -0.7, 0.9, -0.5])
    T = UR5.fk(q)
    limits = {"elbow_joint": (low, np.pi), "shoulder_pan_joint": (-np.pi / 2, np.pi / 2)}
    narrow = UR5.with_limits(limits)
    wanted = [s.q for s in all_solutions(UR5, T) if narrow.within_limits(s.q)]
    rows = all_solutions(narrow, T)
    assert len(rows) == len(wanted) > 0
    for row in wanted:
        assert nearest(rows, row) < 1e-9


def test_an_empty_list_tells_which_joint_stands_in_the_way() -> None:
    q = np.array([0.4, -1.1, 1.3, -0.7, 0.9, -0.5])
    narrow = UR5.with_limits({"wrist_1_joint": (1.0, 1.1)})
    rows = all_solutions(narrow, UR5.fk(q))
    assert list(rows) == []
    assert rows.status is Status.JOINT_LIMITS
    assert "wrist_1_joint" in rows.reason
    assert "°" in rows.reason


# --- merged and singular rows ---


@pytest.mark.parametrize("q3", [0.0, np.pi])
def test_two_elbows_that_coincide_are_one_row(q3: float) -> None:
    q = np.array([0.4, -1.0, q3, -0.6, 1.1, 0.2])
    rows = all_solutions(UR5, UR5.fk(q), q, turns=False)
    for a, b in itertools.combinations(rows, 2):
        # Distinct rows are distinct by far more than rounding; only the bend itself, the root of rounding, is loose.
        assert np.abs(wrapped(a.q - b.q)).max() > 1e-5
    assert nearest(rows, q) < 1e-6


@pytest.mark.parametrize("chain", [UR5, ONE_TURN])
def test_no_row_of_any_list_comes_twice(chain: Chain) -> None:
    rng = np.random.default_rng(6)
    for _ in range(10):
        q = np.round(chain.random_q(rng), 1)
        q[rng.integers(6)] = 0.0
        rows = np.array([s.q for s in all_solutions(chain, chain.fk(q), q)])
        assert len(np.unique(rows.round(7), axis=0)) == len(rows)


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7])
@pytest.mark.parametrize("q5", [0.0, np.pi])
def test_a_straight_wrist_is_marked_and_keeps_the_seed_s_joints_even_when_the_pose_was_rounded(
    q5: float, noise: float
) -> None:
    q = np.array([0.4, -1.0, 1.2, -0.5, q5, 0.3])
    T, rng = UR5.fk(q), np.random.default_rng(0)
    T = T @ se3.exp(noise * rng.uniform(-0.5, 0.5, 6))
    rows = all_solutions(UR5, T, q, turns=False)
    straight = [s for s in rows if abs(np.sin(s.q[4])) < 1e-6]
    assert straight
    assert all(s.singular for s in straight)
    assert all("singular posture" in s.reason for s in straight)
    assert not any(s.singular for s in rows if abs(np.sin(s.q[4])) > 1e-3)
    assert nearest(rows, q) < max(1e-9, 20 * noise)  # without the rule joints 4 and 6 would be anywhere


# --- calibrated arms ---


def calibrated(chain: Chain, size: float, seed: int) -> Chain:
    """The chain with every joint's origin moved and turned a little."""
    rng = np.random.default_rng(seed)
    moved = []
    for joint in chain.joints:
        T = joint.T_parent_joint @ se3.exp(size * rng.uniform(-1.0, 1.0, 6))
        moved.append(
            Joint(joint.name, joint.kind, T, joint.axis, joint.lower, joint.upper, joint.velocity, joint.effort)
        )
    return Chain.from_joints(moved, base_link=chain.base_link, tool_link=chain.tool_link, T_last_tool=chain.T_last_tool)


@pytest.mark.parametrize("size", [1e-6, 1e-4, 5e-4])
@pytest.mark.parametrize("chain", [UR5, IIWA], ids=["ur5", "iiwa14"])
def test_rows_of_a_calibrated_arm_are_true_of_the_calibrated_arm(chain: Chain, size: float) -> None:
    near = calibrated(chain, size, 4)
    assert near.family == chain.family
    assert not near.family_fit.exact  # type: ignore[union-attr]
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(8):
        q = chain.random_q(rng, within=0.4)
        rows = all_solutions(near, near.fk(q), q, turns=False)
        assert worst(near, rows, near.fk(q)) <= 1e-6
        assert all(near.within_limits(s.q) for s in rows)
        found += nearest(rows, q) < (1e-6 if chain is UR5 else 0.1)  # the iiwa's arm angle is free
    assert found >= 7  # a row next to a singular posture may be lost to the change


# --- arm angles ---


def elbow_angle(q: Any, T: Any) -> float:
    """Arm angle by its definition: the elbow about shoulder-to-wrist, 0 in the vertical plane, upper side."""
    frames = IIWA.joint_frames(q)
    shoulder, elbow = np.array([0.0, 0.0, 0.36]), frames[4][:3, 3]
    wrist = T[:3, 3] - 0.126 * T[:3, 2]
    u = (wrist - shoulder) / np.linalg.norm(wrist - shoulder)
    up = np.array([0.0, 0.0, 1.0])
    e1 = up - (up @ u) * u
    e1 /= np.linalg.norm(e1)
    b = elbow - shoulder
    return float(np.arctan2(b @ np.cross(u, e1), b @ e1))


@pytest.mark.parametrize("angle_deg", [-170.0, -60.0, 0.0, 30.0, 95.0, 180.0])
def test_a_given_arm_angle_is_that_of_every_row(angle_deg: float) -> None:
    q = np.array([0.3, 0.7, -0.4, 1.1, 0.5, -0.9, 0.2])
    T = IIWA.fk(q)
    rows = all_solutions(IIWA, T, arm_angle=np.radians(angle_deg))
    wanted = [arc for arc in arm_angle_arcs(IIWA, T) if _contains(arc, np.radians(angle_deg))]
    assert len(rows) == len(wanted)  # one row for each sign branch that is legal there
    for s in rows:
        assert abs(wrapped(elbow_angle(s.q, T) - np.radians(angle_deg))) < 1e-9
    assert worst(IIWA, rows, T) < 1e-12


def _contains(arc: Any, psi: float) -> bool:
    return any(arc.low <= psi + 2 * np.pi * k <= arc.high for k in (-1, 0, 1))


def test_samples_spread_over_every_arc_and_the_middle_is_its_middle() -> None:
    T = IIWA.fk([0.3, 0.7, -0.4, 1.1, 0.5, -0.9, 0.2])
    arcs = arm_angle_arcs(IIWA, T)
    assert len(all_solutions(IIWA, T, samples=5)) == 5 * len(arcs)
    middles = sorted(float(wrapped(arc.middle)) for arc in arcs)
    found = sorted(float(wrapped(elbow_angle(s.q, T))) for s in all_solutions(IIWA, T, arm_angle="middle"))
    assert np.allclose(found, middles, atol=1e-9)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_just_inside_an_arc_s_end_is_legal_and_just_outside_is_not(seed: int) -> None:
    q = IIWA.random_q(np.random.default_rng(seed), within=0.9)
    assume(min(abs(np.sin(q[1])), abs(np.sin(q[3])), abs(np.sin(q[5]))) > 0.05)
    T = IIWA.fk(q)
    arcs = arm_angle_arcs(IIWA, T)
    for arc in arcs:
        if arc.width < 1e-4 or arc.width > 2 * np.pi - 1e-9:
            continue
        for end, inward in ((arc.low, 1.0), (arc.high, -1.0)):
            inside = all_solutions(IIWA, T, arm_angle=end + 1e-5 * inward)
            outside = all_solutions(IIWA, T, arm_angle=end - 1e-5 * inward)
            assert any(_signs(s.q) == arc.signs for s in inside)
            beyond = [a for a in arcs if a.signs == arc.signs and _contains(a, end - 1e-5 * inward)]
            assert beyond or not any(_signs(s.q) == arc.signs for s in outside)


def _signs(q: Any) -> tuple[int, int, int]:
    assert IIWA.family_fit is not None
    theta = wrapped(IIWA.family_fit.sign * q + IIWA.family_fit.offset)  # as the family counts joints
    return (1 if theta[1] > 0 else -1, 1 if theta[3] > 0 else -1, 1 if theta[5] > 0 else -1)


# --- misuse ---


def test_what_has_no_closed_form_is_refused_in_plain_words() -> None:
    T = UR5.fk([0.1] * 6)
    with pytest.raises(IkSimError, match="point target on a ur chain"):
        all_solutions(UR5, Target.point(T[:3, 3]))
    with pytest.raises(InvalidArgumentError, match="arm_angle"):
        all_solutions(IIWA, IIWA.fk([0.3, 0.7, -0.4, 1.1, 0.5, -0.9, 0.2]), arm_angle="widest")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="target"):
        all_solutions(UR5, np.ones((4, 4)))
    with pytest.raises(InvalidArgumentError, match="6 wanted"):
        all_solutions(UR5, T, [0.1] * 5)
