"""All branches of many poses at once, against the scalar closed form, the chain's own kinematics and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ik_sim
from ik_sim import se3
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.solvers import all_branches, all_solutions
from ik_sim.solvers import branches as b
from ik_sim.solvers import record as r
from ik_sim.target import Tolerance

UR5 = ik_sim.load_robot("ur5").chain
HALF = UR5.with_limits({name: (-np.pi, np.pi) for name in UR5.joint_names})
TIGHT = Tolerance(position=1e-9, rotation=1e-9)


def poses(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Joints within half a turn, and what they reach; the last ones have a singular wrist, exactly and nearly."""
    q = UR5.random_q(np.random.default_rng(seed), count, within=0.5)
    q[-3:, 4] = [0.0, 1e-9, np.pi]
    return q, UR5.fk_batch(q)


@given(st.floats(-100.0, 100.0))
def test_sines_agree_with_the_library_s_to_rounding(x: float) -> None:
    sine, cosine = b.sine_cosine(x)
    assert abs(sine - np.sin(x)) < 3e-16
    assert abs(cosine - np.cos(x)) < 3e-16


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_arc_tangents_agree_with_the_library_s_to_rounding(y: float, x: float) -> None:
    assert abs(b.arc_tangent(y, x) - np.arctan2(y, x)) < 1e-15 or y == 0.0 * x  # -0.0 counts as 0.0


@given(st.floats(-20.0, 20.0), st.floats(-7.0, 7.0), st.floats(-7.0, 0.0), st.floats(0.0, 7.0))
def test_turns_are_chosen_as_by_the_scalar_rule(q: float, seed: float, lower: float, upper: float) -> None:
    value, beyond = b.legal_turn(q, seed, lower, upper)
    wanted, over = r.nearest_turn(q, seed, lower, upper)
    assert abs(beyond - over) < 1e-9
    if over == 0.0:
        assert abs(value - wanted) < 1e-9 or abs(abs(value - seed) - abs(wanted - seed)) < 1e-9  # two turns as near
    assert lower <= value <= upper


def test_every_branch_returns_to_its_target_and_the_generating_joints_are_among_them() -> None:
    q, T = poses(500)
    found = all_branches(UR5, T, q, tolerance=TIGHT)
    assert found.q.shape == (500, 8, 6)
    assert (np.abs(found.q - q[:, None]).max(axis=2).min(axis=1) < 1e-6).all()
    counts = found.converged.sum(axis=1)
    assert set(counts) == {2, 4, 6, 8}
    for i in range(0, 500, 7):
        for k in range(8):
            position, rotation = se3.pose_error(UR5.fk(found.q[i, k]), T[i])
            assert abs(position - found.position_error[i, k]) < 1e-14 + 1e-12 * position
            assert abs(rotation - found.rotation_error[i, k]) < 1e-14 + 1e-7 * rotation
            assert found.converged[i, k] == (position <= 1e-9 and rotation <= 1e-9)
    assert found.position_error[found.converged].max() < 1e-13
    assert found.singular.tolist() == [False] * 497 + [True] * 3


def test_the_branches_are_those_of_all_solutions() -> None:
    _, T = poses(60, seed=1)
    found = all_branches(HALF, T, tolerance=TIGHT)
    for i in range(57):
        wanted = all_solutions(HALF, T[i], HALF.q_middle, tolerance=TIGHT)
        rows = found.q[i][found.converged[i]]
        assert len(rows) == len(wanted)
        for solution in wanted:
            apart = np.abs(np.remainder(rows - solution.q + np.pi, 2 * np.pi) - np.pi).max(axis=1)
            assert apart.min() < 1e-9


def test_what_limits_forbid_is_inside_them_all_the_same_and_says_by_how_much() -> None:
    chain = UR5.with_limits({"elbow_joint": (0.0, 2.0)})
    _, T = poses(200, seed=2)
    found = all_branches(chain, T)
    assert (found.q >= chain.lower).all()
    assert (found.q <= chain.upper).all()
    regular = ~found.singular
    over = found.outside[regular]
    assert ((over > 1e-6) <= ~found.converged[regular]).all()
    free = all_branches(UR5, T, chain.q_middle)
    elbow = free.q[regular][:, :, 2]
    elbow = np.remainder(elbow - 1.0 + np.pi, 2 * np.pi) - np.pi + 1.0  # by the turn nearest to the limits' middle
    wanted = np.maximum(np.maximum(-elbow, elbow - 2.0), 0.0)
    reached = free.converged[regular]
    np.testing.assert_allclose(over[reached], wanted[reached], atol=1e-9)


def test_nothing_depends_on_threads_or_on_the_neighbours() -> None:
    q, T = poses(333, seed=3)
    one = all_branches(UR5, T, q, threads=1)
    for threads in (2, 3):
        other = all_branches(UR5, T, q, threads=threads)
        assert np.array_equal(one.q, other.q)
        assert np.array_equal(one.rotation_error, other.rotation_error)
    alone = [all_branches(UR5, T[i : i + 1], q[i]) for i in range(0, 333, 50)]
    assert all(np.array_equal(a.q[0], one.q[i]) for a, i in zip(alone, range(0, 333, 50), strict=True))
    assert all_branches(UR5, T[:0]).q.shape == (0, 8, 6)


def test_misuse_is_told_by_name() -> None:
    q, T = poses(5)
    with pytest.raises(IkSimError, match="srs family"):
        all_branches(ik_sim.load_robot("iiwa14").chain, T)
    with pytest.raises(InvalidArgumentError, match=r"targets.*\(k, 4, 4\)"):
        all_branches(UR5, T[0])
    with pytest.raises(InvalidArgumentError, match=r"q_seeds.*\(5, 6\)"):
        all_branches(UR5, T, q[:3])
    with pytest.raises(InvalidArgumentError, match=r"q_seeds.*NaN"):
        all_branches(UR5, T, [np.nan] * 6)
    T[3, 0, 0] = np.nan
    with pytest.raises(IkSimError, match=r"targets\[3\]"):
        all_branches(UR5, T)
    T[3] = np.diag([1.0, 1.0, -1.0, 1.0])
    with pytest.raises(IkSimError, match=r"targets\[3\]"):
        all_branches(UR5, T)
