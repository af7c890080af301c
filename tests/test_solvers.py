"""One suite over every solver, robot and kind of target; `chain.fk`, read by this file alone, judges.

A solver that is added to SOLVERS is under test here at once, and so are the two of `scripts/04_your_own_solver.py`,
which stand for anyone's own.
"""

import functools
import math
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ik_sim.chain import Chain
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.robots import load_robot
from ik_sim.solvers import SOLVERS, KernelSolver, Solution, Status, judge, load_solver
from ik_sim.target import POINT, POSE, Target, Tolerance

ROOT = Path(__file__).parents[1]
URDFS = Path(__file__).parent / "data" / "urdf"
OWN = {name: f"{ROOT / 'scripts' / '04_your_own_solver.py'}:{name}" for name in ("HeavyBall", "NumpyNewton")}
NAMES = [*SOLVERS, *OWN]
COMPILED = [name for name in NAMES if name not in ("bullet", "NumpyNewton")]
ITERATING = [name for name in NAMES if name != "closed_form"]
ROBOTS = ["ur5", "iiwa14", "planar2", "planar3", "five_axis", "lift_scissor"]


@functools.cache
def chain_of(robot: str) -> Chain:
    file = URDFS / f"{robot}.urdf"
    return load_robot(file if file.exists() else robot).chain


def solver_of(name: str, **settings: Any) -> Any:
    return load_solver(OWN.get(name, name), **settings)


# --- the judge of the judge: errors from the matrices alone ---


def errors(T: Any, target: Target) -> tuple[float, float]:
    """Distance and angle, each by a formula other than the package's."""
    position = math.dist(T[:3, 3], target.T[:3, 3])
    if target.kind_name == "point":
        return position, 0.0
    if target.kind_name == "axis":
        z, wanted = T[:3, 2], target.T[:3, 2]
        return position, 2.0 * math.asin(min(1.0, float(np.linalg.norm(z - wanted)) / 2.0))
    chord = float(np.linalg.norm(T[:3, :3] - target.T[:3, :3])) / math.sqrt(8.0)  # sin of half the angle
    return position, 2.0 * math.asin(min(1.0, chord))


# --- targets ---


@dataclass(frozen=True)
class Case:
    family: str
    chain: Chain
    target: Target
    q_seed: Any
    reachable: bool = True


def _kinds(chain: Chain, T: Any) -> list[Target]:
    targets = [Target.pose(T), Target.point(T[:3, 3]), Target.axis(T[:3, 3], T[:3, 2])]
    return targets if chain.n >= 5 else targets[:2]


@functools.cache
def cases(robot: str) -> tuple[Case, ...]:
    """Four draws of every family of targets, each as pose, point and axis."""
    chain = chain_of(robot)
    rng = np.random.default_rng(20_24)
    found: list[Case] = []

    def add(family: str, q: Any, q_seed: Any, on: Chain = chain, reachable: bool = True) -> None:
        found.extend(Case(family, on, target, q_seed, reachable) for target in _kinds(chain, chain.fk(q)))

    zero = chain.clip(np.zeros(chain.n))
    for _ in range(4):
        q, start = chain.random_q(rng), chain.random_q(rng)
        add("near", q, chain.clip(q + rng.uniform(-0.05, 0.05, chain.n)))
        add("random", q, start)
        at_limit = q.copy()
        i = rng.integers(chain.n)
        at_limit[i] = chain.upper[i] if np.isfinite(chain.upper[i]) else q[i]
        add("at a limit", at_limit, start)
        singular = q.copy()
        singular[max(chain.n - 2, 0)] = zero[max(chain.n - 2, 0)]
        add("singular", singular, start)
        stretched = zero.copy()
        stretched[0] = q[0]
        add("stretched", stretched, start)
        folded = q.copy()
        elbow = {7: 3, 6: 2}.get(chain.n, min(2, chain.n - 1))
        folded[elbow] = np.clip(3.1, chain.lower[elbow], chain.upper[elbow])
        add("folded", folded, start)
        T = chain.fk(q)
        T[:3, 3] *= 40.0 / max(float(np.linalg.norm(T[:3, 3])), 1e-3)
        found.extend(Case("out of reach", chain, target, start, False) for target in _kinds(chain, T))
        narrow = {
            name: (float(lo), float(hi))
            for name, lo, hi in zip(chain.joint_names, np.maximum(chain.lower, start - 0.1), start + 0.1, strict=True)
        }
        narrow = {
            n: (min(a, float(u)), min(b, float(u))) for (n, (a, b)), u in zip(narrow.items(), chain.upper, strict=True)
        }
        far = chain.clip(np.where(start > chain.q_middle, start - 1.0, start + 1.0))
        add("unreachable by limits", far, start, chain.with_limits(narrow), False)
    return tuple(found)


FAMILIES = ["near", "random", "at a limit", "singular", "stretched", "folded", "out of reach", "unreachable by limits"]


@functools.cache
def answers(name: str, robot: str) -> tuple[tuple[Case, Solution], ...]:
    solver = solver_of(name)
    return tuple((case, solver.solve(case.chain, case.target, case.q_seed)) for case in cases(robot))


def both(test: Any) -> Any:
    return pytest.mark.parametrize("robot", ROBOTS)(pytest.mark.parametrize("name", NAMES)(test))


def _says(case: Case, solution: Solution) -> str:
    return f"{case.family}, {case.target.kind_name}: {solution}"


def supported(name: str, robot: str) -> Iterator[tuple[Case, Solution]]:
    return ((case, s) for case, s in answers(name, robot) if s.status != Status.UNSUPPORTED)


# --- honesty ---


@both
def test_joints_are_numbers_inside_the_limits_whatever_the_status(name: str, robot: str) -> None:
    for case, solution in answers(name, robot):
        q = solution.q
        assert q.shape == (case.chain.n,)
        assert np.isfinite(q).all(), _says(case, solution)
        assert (q >= case.chain.lower).all(), _says(case, solution)  # no slack: the joints are clipped, then judged
        assert (q <= case.chain.upper).all(), _says(case, solution)


@both
def test_reported_errors_are_those_of_the_joints_that_are_returned(name: str, robot: str) -> None:
    for case, solution in answers(name, robot):
        position, rotation = errors(case.chain.fk(solution.q), case.target)
        assert solution.position_error == pytest.approx(position, rel=1e-9, abs=1e-14), _says(case, solution)
        # near half a turn asin loses half its digits, so the two formulae may differ by 1e-7 there
        assert solution.rotation_error == pytest.approx(rotation, rel=1e-7, abs=1e-14), _says(case, solution)


@both
def test_converged_is_said_exactly_when_both_tolerances_hold(name: str, robot: str) -> None:
    for case, solution in answers(name, robot):
        position, rotation = errors(case.chain.fk(solution.q), case.target)
        within = position <= 1e-6 and rotation <= 1e-6
        assert (solution.status == Status.CONVERGED) == within, _says(case, solution)
        assert solution.converged == within


@both
def test_out_of_reach_is_never_claimed_of_a_target_that_joints_inside_the_limits_reach(name: str, robot: str) -> None:
    for case, solution in answers(name, robot):
        if case.reachable:
            assert solution.status != Status.OUT_OF_REACH, _says(case, solution)


@both
def test_out_of_reach_is_said_of_a_target_that_is_metres_away(name: str, robot: str) -> None:
    knows_a_proof = name not in ("bullet", "NumpyNewton")
    for case, solution in supported(name, robot):
        if case.family == "out of reach":
            said = Status.OUT_OF_REACH if knows_a_proof else Status.MAX_ITERATIONS
            assert solution.status == said, _says(case, solution)


@both
def test_a_miss_has_a_reason_with_numbers(name: str, robot: str) -> None:
    for case, solution in answers(name, robot):
        if solution.converged:
            assert solution.reason.startswith("within tolerance"), _says(case, solution)
        elif solution.status == Status.UNSUPPORTED:
            assert case.target.kind_name in solution.reason or re.search(r"\d", solution.reason), _says(case, solution)
        else:
            assert re.search(r"\d", solution.reason), _says(case, solution)
            assert "within tolerance" not in solution.reason
            assert "nan" not in solution.reason


@both
def test_support_of_a_kind_of_target_does_not_depend_on_the_target(name: str, robot: str) -> None:
    by_kind: dict[str, set[bool]] = {}
    for case, solution in answers(name, robot):
        by_kind.setdefault(case.target.kind_name, set()).add(solution.status == Status.UNSUPPORTED)
    assert all(len(said) == 1 for said in by_kind.values()), by_kind


UNSUPPORTED = {
    "closed_form": {("ur5", "point"), ("ur5", "axis"), ("iiwa14", "point"), ("iiwa14", "axis"), ("planar3", "point")}
    | {(robot, kind) for robot in ("five_axis", "lift_scissor") for kind in ("pose", "point", "axis")},
    "bullet": {("lift_scissor", "pose"), ("lift_scissor", "point")} | {(robot, "axis") for robot in ROBOTS},
    "NumpyNewton": {(robot, kind) for robot in ROBOTS for kind in ("point", "axis")},
}


@both
def test_what_is_unsupported_is_what_the_documentation_says(name: str, robot: str) -> None:
    for case, solution in answers(name, robot):
        listed = (robot, case.target.kind_name) in UNSUPPORTED.get(name, set())
        assert (solution.status == Status.UNSUPPORTED) == listed, _says(case, solution)


# --- success ---

EXACT = ("closed_form", "auto", "combined", "levenberg_marquardt", "slsqp")
REACHABLE = ("near", "random", "at a limit", "singular", "stretched", "folded")


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "planar2", "planar3"])
@pytest.mark.parametrize("name", EXACT)
def test_the_reliable_solvers_reach_every_reachable_target(name: str, robot: str) -> None:
    missed = [_says(c, s) for c, s in supported(name, robot) if c.family in REACHABLE and not s.converged]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("robot", ["five_axis", "lift_scissor"])
@pytest.mark.parametrize("name", EXACT[1:])
def test_chains_without_a_closed_form_are_solved_as_well(name: str, robot: str) -> None:
    asked = [(c, s) for c, s in supported(name, robot) if c.family in REACHABLE]
    missed = [_says(c, s) for c, s in asked if not s.converged]
    # At most one in twenty: a pose of an arm with fewer than six joints leaves no freedom, and starts are random.
    assert len(missed) <= 0.05 * len(asked), "\n".join(missed)


SHARE = {
    # Steepest descent, coordinate descent and FABRIK crawl where the arm is stretched or folded, and constant damping
    # does where it is singular: a third of these families is such. Poses of `lift_scissor` overtax FABRIK's hinges.
    "fabrik": 0.6, "jacobian_transpose": 0.6, "ccd": 0.6, "damped_least_squares": 0.7, "selectively_damped": 0.9,
    "HeavyBall": 0.6, "NumpyNewton": 0.6,
}  # fmt: skip


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", SHARE)
def test_the_others_reach_what_their_kind_can(name: str, robot: str) -> None:
    asked = [(c, s) for c, s in supported(name, robot) if c.family in REACHABLE]
    if (name, robot) == ("fabrik", "lift_scissor"):
        asked = [(c, s) for c, s in asked if c.target.kind == POINT]
    missed = [_says(c, s) for c, s in asked if not s.converged]
    assert len(missed) <= (1.0 - SHARE[name]) * len(asked), f"{len(missed)} of {len(asked)}\n" + "\n".join(missed)


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("bullet", "fabrik", "ccd")])
def test_a_target_near_the_seed_is_answered_near_the_seed(name: str, robot: str) -> None:
    for case, solution in supported(name, robot):
        if case.family == "near" and case.target.kind == POSE and solution.converged and solution.restarts == 0:
            away = float(np.abs(solution.q - case.q_seed).max())
            assert away < 1.0, _says(case, solution)  # the generating joints are within 0.05; near a fold branches meet


# --- the same answer every time ---


@both
def test_the_same_question_gets_the_same_bits(name: str, robot: str) -> None:
    solver = solver_of(name)
    for case, first in list(answers(name, robot))[:24]:
        again = solver.solve(case.chain, case.target, case.q_seed)
        assert np.array_equal(again.q, first.q)
        assert (again.status, again.iterations, again.restarts, again.reason) == (
            first.status, first.iterations, first.restarts, first.reason,
        )  # fmt: skip


@both
def test_arguments_are_left_as_they_were(name: str, robot: str) -> None:
    case = cases(robot)[0]
    T, seed, packed = case.target.T.copy(), np.array(case.q_seed), case.chain.packed.copy()
    solution = solver_of(name).solve(case.chain, Target(T, case.target.kind), seed)
    assert np.array_equal(T, case.target.T)
    assert np.array_equal(seed, case.q_seed)
    assert np.array_equal(packed, case.chain.packed)
    assert not np.shares_memory(solution.q, seed)


@pytest.mark.parametrize("name", NAMES)
def test_lists_integers_views_and_read_only_arrays_are_as_good_as_arrays(name: str) -> None:
    chain = chain_of("planar3")
    T, seed = chain.fk([0.3, 0.4, -0.2]), np.array([0.0, 1.0, 0.0])
    wanted = solver_of(name).solve(chain, T, seed).q
    locked = T.copy()
    locked.setflags(write=False)
    wide = np.zeros((8, 8))
    wide[::2, ::2] = T
    for same in (T.tolist(), locked, wide[::2, ::2], np.asfortranarray(T), Target.pose(T)):
        for start in ([0, 1, 0], (0.0, 1.0, 0.0), np.array([0, 1, 0]), np.array([0.0, 9.0, 1.0, 9.0, 0.0])[::2]):
            assert np.array_equal(solver_of(name).solve(chain, same, start).q, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_seed_the_middle_of_the_limits_is_the_start(name: str) -> None:
    chain = chain_of("five_axis")
    T = chain.fk(chain.q_middle + 0.2)
    assert np.array_equal(solver_of(name).solve(chain, T).q, solver_of(name).solve(chain, T, chain.q_middle).q)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", COMPILED)
def test_a_batch_has_the_bits_of_single_solves(name: str, robot: str, threads: int) -> None:
    solver, chain = solver_of(name, **({"max_iterations": 60} if name in ITERATING else {})), chain_of(robot)
    rng = np.random.default_rng(5)
    T = chain.fk_batch(chain.random_q(rng, 70))  # above 64: two threads really share the work
    seeds = chain.random_q(rng, 70)
    batch = solver.solve_batch(chain, T, seeds, threads=threads)
    assert len(batch) == 70
    for i, solution in enumerate(batch):
        alone = solver.solve(chain, T[i], seeds[i])
        assert np.array_equal(batch.q[i], alone.q)
        assert batch.status[i] == alone.status
        assert (batch.position_error[i], batch.iterations[i]) == (alone.position_error, alone.iterations)
        assert solution.reason == alone.reason


@pytest.mark.parametrize("name", COMPILED)
def test_a_batch_takes_one_seed_for_all_and_points_out_the_row_that_is_wrong(name: str) -> None:
    chain, solver = chain_of("planar3"), solver_of(name)
    T = chain.fk_batch(chain.random_q(np.random.default_rng(1), 5))
    one, each = (
        solver.solve_batch(chain, T, chain.q_middle),
        solver.solve_batch(chain, T, np.tile(chain.q_middle, (5, 1))),
    )
    assert np.array_equal(one.q, each.q)
    T[3, 0, 3] = np.nan
    with pytest.raises(IkSimError, match=r"targets\[3\].*NaN"):
        solver.solve_batch(chain, T)
    with pytest.raises(IkSimError, match=r"q_seeds.*\(4, 3\).*\(5, 3\)"):
        solver.solve_batch(chain, T, np.zeros((4, 3)))
    assert len(solver.solve_batch(chain, T[:0])) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_solver_survives_pickling_and_so_do_its_answers(name: str) -> None:
    solver, case = solver_of(name), cases("planar3")[0]
    twin = pickle.loads(pickle.dumps(solver))
    assert twin == solver
    first = solver.solve(case.chain, case.target, case.q_seed)
    assert np.array_equal(twin.solve(case.chain, case.target, case.q_seed).q, first.q)
    copy = pickle.loads(pickle.dumps(first))
    assert np.array_equal(copy.q, first.q)
    assert copy.reason == first.reason


# --- misuse ---


@pytest.mark.parametrize("bad", [[0.1] * 5, [0.1] * 7, [[0.1] * 6], 0.1, ["a"] * 6, []])
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_of_another_length_is_refused_with_the_joints_names(name: str, bad: Any) -> None:
    chain = chain_of("ur5")
    with pytest.raises(InvalidArgumentError, match="q_seed") as caught:
        solver_of(name).solve(chain, chain.fk([0.1] * 6), bad)
    if bad and isinstance(bad, list) and "a" not in bad:
        assert "6 wanted" in str(caught.value)
        assert all(joint in str(caught.value) for joint in chain.joint_names)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity_are_refused_by_name(name: str, value: float) -> None:
    chain = chain_of("ur5")
    T = chain.fk([0.1] * 6)
    seed = np.full(6, 0.1)
    seed[2] = value
    with pytest.raises(InvalidArgumentError, match=r"q_seed.*NaN or infinity"):
        solver_of(name).solve(chain, T, seed)
    for i, k in ((0, 3), (1, 1)):
        bad = T.copy()
        bad[i, k] = value
        with pytest.raises(IkSimError, match=r"(target|pose).*NaN or infinity"):
            solver_of(name).solve(chain, bad)


def _not_poses() -> dict[str, Any]:
    T = np.eye(4)
    mirrored, scaled, skewed, bottom = T.copy(), T.copy(), T.copy(), T.copy()
    mirrored[2, 2] = -1.0
    scaled[:3, :3] *= 1.00001
    skewed[0, 1] = 1e-5
    bottom[3, 0] = 1e-3
    return {
        "mirrored": mirrored, "scaled": scaled, "skewed": skewed, "bottom row": bottom, "3x3": np.eye(3),
        "3x4": T[:3], "flat": T.ravel(), "text": "pose", "none": None, "ragged": [[1.0], [2.0, 3.0]],
    }  # fmt: skip


@pytest.mark.parametrize("what", _not_poses())
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_rigid_motion_is_refused_by_name(name: str, what: str) -> None:
    with pytest.raises(IkSimError, match=r"target|pose"):
        solver_of(name).solve(chain_of("ur5"), _not_poses()[what])


@pytest.mark.parametrize("name", NAMES)
def test_a_pose_that_is_a_rotation_to_1e_7_is_taken(name: str) -> None:
    chain = chain_of("planar3")
    T = chain.fk([0.1, 0.2, 0.3])
    T[:3, :3] += 1e-7
    solver_of(name).solve(chain, T)


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "planar3", "lift_scissor"])
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_outside_the_limits_is_moved_inside_and_the_answer_says_so(name: str, robot: str) -> None:
    chain = chain_of(robot)
    q = chain.random_q(np.random.default_rng(3), within=0.5)
    outside = q.copy()
    outside[-1] = chain.upper[-1] + 0.5
    solution = solver_of(name).solve(chain, chain.fk(q), outside)
    assert chain.within_limits(solution.q)
    if name in COMPILED:
        assert solution.seed_moved
        assert "the seed was outside the limits and was moved inside" in solution.reason
        assert not solver_of(name).solve(chain, chain.fk(q), q).seed_moved


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_that_a_solver_does_not_have_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no_such_option") as caught:
        solver_of(name, no_such_option=1)
    assert "position" in caught.value.known
    with pytest.raises(InvalidArgumentError, match="position"):
        solver_of(name, position=0.0)
    with pytest.raises(InvalidArgumentError, match="rotation"):
        solver_of(name, rotation="small")


@pytest.mark.parametrize("setting", ["max_iterations", "restarts", "max_seconds", "seed"])
@pytest.mark.parametrize("name", ITERATING)
def test_a_budget_below_zero_or_of_another_type_is_refused_by_name(name: str, setting: str) -> None:
    if name == "NumpyNewton" or setting not in type(solver_of(name)).__dataclass_fields__:
        with pytest.raises(IkSimError):
            solver_of(name, **{setting: "many"})
        return
    for value in (-1, "many", None, True, float("nan")):
        with pytest.raises(InvalidArgumentError, match=setting):
            solver_of(name, **{setting: value})


def test_an_unknown_solver_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'closed_form'") as caught:
        load_solver("closedform")
    assert set(SOLVERS) < set(caught.value.known)


# --- budgets ---


@pytest.mark.parametrize("most", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "five_axis"])
@pytest.mark.parametrize("name", [n for n in ITERATING if n not in ("bullet", "fabrik")])
def test_no_more_iterations_are_made_than_allowed(name: str, robot: str, most: int) -> None:
    solver, chain = solver_of(name, max_iterations=most), chain_of(robot)
    rng = np.random.default_rng(8)
    for _ in range(5):
        solution = solver.solve(chain, chain.fk(chain.random_q(rng)), chain.random_q(rng))
        spent = solution.iterations + (solution.evaluations if name == "combined" else 0)
        assert spent <= most or (name == "auto" and chain.family != "serial")
        assert solution.converged or solution.status in (Status.MAX_ITERATIONS, Status.JOINT_LIMITS, Status.STALLED)
    if most <= 2 and name != "auto":
        assert solution.status == Status.MAX_ITERATIONS  # pyright: ignore[reportPossiblyUnboundVariable]
        assert re.search(r"iteration", solution.reason)  # pyright: ignore[reportPossiblyUnboundVariable]


@pytest.mark.parametrize("most", [1, 7])
def test_fabrik_alone_counts_its_cycles_per_target_of_a_pose(most: int) -> None:
    solver = load_solver("fabrik", max_iterations=most)
    rng = np.random.default_rng(8)
    for robot, targets in (
        ("ur5", 4),
        ("iiwa14", 2),
        ("five_axis", 1),
    ):  # four targets; two elbow directions; whole chain
        chain = chain_of(robot)
        for _ in range(5):
            assert solver.solve(chain, chain.fk(chain.random_q(rng)), chain.random_q(rng)).iterations <= targets * most


@pytest.mark.parametrize("name", [n for n in ITERATING if n not in ("bullet", "NumpyNewton", "auto")])
def test_no_more_seconds_are_spent_than_allowed(name: str) -> None:
    chain = chain_of("iiwa14").with_limits({"joint_6": (-0.01, 0.01), "joint_2": (-0.01, 0.01)})
    target = Target.pose(chain_of("iiwa14").fk([0.3, 0.7, -0.4, 1.1, 0.5, -0.9, 0.2]))
    if name in ("combined", "fabrik"):
        target = Target.axis(target.T[:3, 3], target.T[:3, 2])  # poses take the two-link way, which is over at once
    endless = {"max_iterations": 10**9, "restarts": 10**9}
    solver = solver_of(name, max_seconds=0.05, **endless)
    solver.solve(chain, target)  # compile
    began = time.perf_counter()
    solution = solver.solve(chain, target)
    spent = time.perf_counter() - began
    assert not solution.converged
    assert spent < 0.5  # ten times the budget: other processes may hold the processor
    assert solution.status in (Status.MAX_ITERATIONS, Status.JOINT_LIMITS)
    if solution.status == Status.MAX_ITERATIONS:
        assert "0.05 s used up" in solution.reason


def test_the_two_link_way_of_fabrik_keeps_to_its_seconds_as_well() -> None:
    chain = chain_of("iiwa14")
    solver = load_solver("fabrik", max_iterations=10**9, max_seconds=0.02, skip_stretched=False, position=1e-12)
    T = chain.fk(np.zeros(7))  # stretched: cycles needed grow as 1 / tolerance
    solver.solve(chain, T, np.full(7, 0.3))
    began = time.perf_counter()
    solution = solver.solve(chain, T, np.full(7, 0.3))
    assert time.perf_counter() - began < 0.5
    assert solution.status == Status.MAX_ITERATIONS
    assert "0.02 s used up" in solution.reason


@pytest.mark.parametrize("name", [n for n in ITERATING if "restarts" in type(solver_of(n)).__dataclass_fields__])
def test_without_restarts_there_are_none(name: str) -> None:
    chain = chain_of("five_axis")
    rng = np.random.default_rng(2)
    for _ in range(5):
        solution = solver_of(name, restarts=0).solve(chain, chain.fk(chain.random_q(rng)), chain.random_q(rng))
        assert solution.restarts == 0


# --- traces ---


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", COMPILED)
def test_a_trace_tells_the_same_story_as_the_solution(name: str, robot: str) -> None:
    solver = solver_of(name)
    for case in [c for c in cases(robot) if c.family in ("near", "random")][:6]:
        trace, alone = (
            solver.trace(case.chain, case.target, case.q_seed),
            solver.solve(case.chain, case.target, case.q_seed),
        )
        assert np.array_equal(trace.solution.q, alone.q)
        assert trace.solution.iterations == alone.iterations
        assert len(trace.phase) == len(trace.q) == len(trace.position_error) == len(trace.step)
        assert np.isfinite(trace.q).all()
        assert ((trace.q >= case.chain.lower - 1e-9) & (trace.q <= case.chain.upper + 1e-9)).all() or name in (
            "combined", "fabrik",
        )  # fmt: skip
        on_the_chain = not (name in ("combined", "fabrik") and robot in ("ur5", "iiwa14") and case.target.kind == POSE)
        if len(trace.q) and on_the_chain:
            for i in range(0, len(trace.q), max(1, len(trace.q) // 10)):
                position, rotation = errors(case.chain.fk(trace.q[i]), case.target)
                assert trace.position_error[i] == pytest.approx(position, rel=1e-9, abs=1e-14)
                assert trace.rotation_error[i] == pytest.approx(rotation, rel=1e-7, abs=1e-14)
            least = np.min(trace.position_error**2 + trace.rotation_error**2)
            assert alone.position_error**2 + alone.rotation_error**2 <= least * (1 + 1e-9) or alone.converged


@pytest.mark.parametrize("robot", ["ur5", "iiwa14"])
def test_the_trace_of_fabrik_on_an_arm_ends_at_the_tip_s_last_distance(robot: str) -> None:
    solver, rng = load_solver("fabrik"), np.random.default_rng(1)
    chain = chain_of(robot)
    for _ in range(5):
        q = chain.random_q(rng, within=0.6)
        trace = solver.trace(chain, chain.fk(q), chain.clip(q + 0.1))
        assert len(trace.phase) == min(trace.solution.iterations, 20_000)
        assert (trace.position_error >= 0.0).all()


@pytest.mark.parametrize("name", COMPILED)
def test_a_trace_refuses_what_solve_refuses(name: str) -> None:
    chain = chain_of("ur5")
    with pytest.raises(InvalidArgumentError, match="q_seed"):
        solver_of(name).trace(chain, chain.fk([0.1] * 6), [0.1] * 5)
    with pytest.raises(IkSimError, match="target"):
        solver_of(name).trace(chain, np.zeros((4, 4)))


# --- particular promises ---


@pytest.mark.parametrize("name", NAMES)
def test_a_locked_joint_does_not_move(name: str) -> None:
    chain = chain_of("iiwa14")
    q = np.array([0.2, 0.5, 0.2, -1.1, 0.2, 1.0, 0.2])
    held = chain.locked({"joint_3": 0.2})
    solution = solver_of(name).solve(held, chain.fk(q), q + np.array([0.1, -0.1, 0.0, 0.1, -0.1, 0.1, 0.1]))
    assert solution.q[2] == 0.2
    if name != "bullet":
        assert solution.converged


def test_a_posture_for_another_number_of_joints_is_refused_by_name() -> None:
    chain = chain_of("iiwa14")
    solver = load_solver("damped_least_squares", posture=[0.0, 0.0])
    for ask in (solver.solve, solver.trace, lambda c, T: solver.solve_batch(c, np.array([T, T]))):
        with pytest.raises(InvalidArgumentError, match=r"posture: 2 given, 7 wanted.*joint_1"):
            ask(chain, chain.fk(np.full(7, 0.3)))


def test_a_posture_is_kept_near_where_the_task_leaves_freedom() -> None:
    chain = chain_of("iiwa14")
    posture = np.array([0.3, 0.7, -0.4, 1.1, 0.5, -0.9, 0.2])
    T, seed = chain.fk(posture), posture + np.array([0.3, 0.0, -0.3, 0.1, 0.3, 0.0, -0.3])
    plain = load_solver("damped_least_squares").solve(chain, T, seed)
    # A tight tolerance, so that the posture has iterations to act in.
    drawn = load_solver(
        "damped_least_squares", posture=posture.tolist(), posture_gain=0.5, position=1e-9, rotation=1e-9
    )
    near = drawn.solve(chain, T, seed)
    assert plain.converged
    assert near.converged
    assert np.linalg.norm(near.q - posture) < np.linalg.norm(plain.q - posture)


def test_the_limit_gain_draws_joints_from_their_limits() -> None:
    chain = chain_of("iiwa14")
    q = np.array([2.6, 0.9, -2.5, 1.1, 2.4, -0.9, 0.2])
    share = lambda x: float(np.max(np.abs(x / chain.upper)))  # noqa: E731
    plain = load_solver("damped_least_squares", position=1e-9, rotation=1e-9).solve(chain, chain.fk(q), q + 0.05)
    drawn = load_solver("damped_least_squares", position=1e-9, rotation=1e-9, limit_gain=1.0).solve(
        chain, chain.fk(q), q + 0.05
    )
    assert plain.converged
    assert drawn.converged
    assert share(drawn.q) < share(plain.q)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_elbow_goes_to_the_side_that_is_asked_for(side: float) -> None:
    chain = chain_of("iiwa14")
    q = np.array([0.0, 0.7, 0.0, -1.2, 0.0, 0.8, 0.0])
    settings = {"elbow": [0.0, side, 0.0], "elbow_gain": 1.0, "position": 1e-9, "rotation": 1e-9}
    solution = load_solver("damped_least_squares", **settings).solve(chain, chain.fk(q), q + 0.05)
    assert solution.converged
    assert side * chain.joint_frames(solution.q)[4][1, 3] > 0.02


# --- judge() for solvers in plain Python ---


def test_the_judge_clips_then_measures_and_can_not_be_talked_into_success() -> None:
    chain = chain_of("planar3")
    target = Target.pose(chain.fk([0.3, 0.4, -0.2]))
    good = judge(chain, target, [0.3, 0.4, -0.2])
    assert good.converged
    assert good.reason == "within tolerance"
    bad = judge(chain, target, [0.3, 0.4, 0.9], status=Status.CONVERGED)
    assert bad.status == Status.STALLED
    assert "misses the tolerance" in bad.reason
    wound = judge(chain, target, [100.0, 0.4, -0.2])
    assert wound.q[0] == chain.upper[0]
    assert not wound.converged


def test_the_judge_passes_on_counts_and_the_solver_s_own_words() -> None:
    chain = chain_of("planar3")
    target = Target.pose(chain.fk([0.3, 0.4, -0.2]))
    spent = judge(chain, target, [0.0] * 3, status=Status.MAX_ITERATIONS, iterations=12, restarts=1)
    assert (spent.status, spent.iterations, spent.restarts) == (Status.MAX_ITERATIONS, 12, 1)
    assert spent.reason.startswith("12 iterations and 1 restart used up, still ")
    told = judge(chain, target, [0.0] * 3, reason="the third try broke off at 0.3 m")
    assert told.reason == "the third try broke off at 0.3 m"
    assert judge(chain, target, [0.3, 0.4, -0.2], reason="never mind").reason == "within tolerance"
    assert judge(chain, target, [0.3, 0.4, -0.19], Tolerance(0.01, 0.02)).converged


@pytest.mark.parametrize("bad", [[0.1] * 2, [np.nan] * 3])
def test_the_judge_refuses_what_is_no_configuration(bad: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="q"):
        judge(chain_of("planar3"), np.eye(4), bad)


# --- a solver of one's own ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1 / 0", "ZeroDivisionError"),
        ("import no_such_module_here", "no_such_module_here"),
        ("class Other:\n    def solve(self, chain, target, q_seed=None): ...\n", "no solver in mine.py 'Mine'.*Other"),
        ("class Mine: ...\n", "no solver in mine.py 'Mine'"),
        ("def Mine(): ...\n", "no solver in mine.py 'Mine'"),
        ("this is no Python", "SyntaxError"),
    ],
)
def test_a_file_that_holds_no_such_solver_is_refused_in_plain_words(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(IkSimError, match=words):
        load_solver(f"{file}:Mine")


def test_a_missing_file_or_a_missing_class_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no file"):
        load_solver("nowhere/mine.py:Mine")
    with pytest.raises(InvalidArgumentError, match=r"file\.py:Class"):
        load_solver("mine.py")


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    body = "class Mine:\n    answer = {}\n    def solve(self, chain, target, q_seed=None): ...\n"
    file.write_text(body.format(1))
    assert load_solver(f"{file}:Mine").answer == 1
    assert type(load_solver(f"{file}:Mine")) is type(load_solver(f"{file}:Mine"))
    file.write_text(body.format(2) + "\n")
    assert load_solver(f"{file}:Mine").answer == 2


def test_a_class_that_is_no_dataclass_takes_its_settings_as_keywords(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Mine:\n    def __init__(self, speed=1):\n        self.speed = speed\n"
        "    def solve(self, chain, target, q_seed=None): ...\n"
    )
    assert load_solver(f"{file}:Mine", speed=3).speed == 3
    with pytest.raises(InvalidArgumentError, match="hurry"):
        load_solver(f"{file}:Mine", hurry=3)


def test_every_compiled_solver_prints_its_settings() -> None:
    for name in COMPILED:
        assert isinstance(solver_of(name), KernelSolver)
        assert "position=1e-06" in str(solver_of(name))


def test_a_batch_of_targets_must_be_of_one_kind() -> None:
    chain = chain_of("ur5")
    T = chain.fk([0.1] * 6)
    solver = load_solver("levenberg_marquardt")
    with pytest.raises(InvalidArgumentError, match="one kind"):
        solver.solve_batch(chain, [Target.pose(T), Target.point(T[:3, 3])])
    points = solver.solve_batch(chain, [Target.point(T[:3, 3])] * 2)
    bare = solver.solve_batch(chain, np.array([T, T]), kind=POINT)
    assert points.converged.all()
    assert bare.converged.all()


AT_ONCE = """
import threading
import numpy as np
from ik_sim import load_robot, load_solver

chain, answers = load_robot("planar2").chain, []
start = threading.Barrier(8)

def work():
    solver = load_solver("damped_least_squares")
    start.wait()
    answers.append(solver.solve(chain, chain.fk(np.array([0.4, 0.9]))).converged)

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(answers.count(True))
"""


def test_threads_that_need_a_kernel_at_once_share_one_compilation() -> None:
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "8", done.stderr
