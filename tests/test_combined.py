"""FABRIK and FABRIK + SLSQP give the published counts, iterates and success rates, and SLSQP is NLopt's own."""

from __future__ import annotations

import functools
import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nlopt
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import ik_sim
from ik_sim import se3
from ik_sim.chain import Chain, Joint
from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import Status, load_solver, nlopt_c
from ik_sim.target import Target

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

VECTORS = tomllib.loads((Path(__file__).parent / "data" / "arm_vectors.toml").read_text(encoding="utf-8"))
SIGNS = {
    "ur5": np.ones(6),
    "iiwa14": np.array([1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0]),
}  # the iiwa's maker counts joint 4 so

ARMS = {name: ik_sim.load_robot(name).chain for name in ("ur5", "iiwa14")}
LINKS = {"ur5": (0.425, 0.39225), "iiwa14": (0.42, 0.40)}  # upper arm and forearm [m], from the published tables
EPSILON = 1e-6
"""[m]: the tolerance of the published method, and the solvers' default."""
SOURCE: dict[str, Any] = {"start": "stretched", "skip_stretched": False}
"""The method as its source has it, where ours would do better by default."""

# The two printed single cases.
SINGLE = {"ur5": np.array(VECTORS["ur5"]["U1"]["q"]), "iiwa14": SIGNS["iiwa14"] * VECTORS["iiwa14"]["K1"]["q"]}


def single(arm: str, solver: Any) -> ik_sim.Solution:
    chain = ARMS[arm]
    return solver.solve(chain, chain.fk(SINGLE[arm]), np.zeros(chain.n))


# --- the printed single cases ---


def test_fabrik_needs_543_cycles_for_the_printed_ur5_pose() -> None:
    solution = single("ur5", load_solver("fabrik", max_iterations=20_000, further_elbows=False, **SOURCE))
    assert solution.converged
    assert solution.iterations == 543  # printed 546: the three printed digits of the joints leave 539 to 547
    assert solution.evaluations == 0


def test_fabrik_needs_ten_thousand_cycles_for_the_printed_iiwa_pose() -> None:
    solution = single("iiwa14", load_solver("fabrik", max_iterations=20_000, further_elbows=False, **SOURCE))
    assert solution.converged
    assert solution.iterations in (10_073, 10_074)  # printed 10010; one cycle turns on rounding
    assert solution.rotation_error < 1e-14  # the orientation is met whatever the cycles leave


@pytest.mark.parametrize(
    ("arm", "rule", "evaluations"),
    [
        ("ur5", "ftol", 15), ("ur5", "stopval", 14), ("ur5", "precise", 17),
        ("iiwa14", "stopval", 19),
    ],
)  # fmt: skip
def test_fifteen_cycles_and_slsqp_take_as_many_evaluations_as_published(arm: str, rule: str, evaluations: int) -> None:
    solver = load_solver("combined", switch_after=15, stopping_rule=rule, further_elbows=False, **SOURCE)
    solution = single(arm, solver)
    assert solution.converged
    assert (solution.iterations, solution.evaluations) == (15, evaluations)
    assert solution.used_slsqp
    assert solution.slsqp_runs == 1  # one reachable target out of four on the UR5, one on the iiwa


def test_the_three_stopping_rules_leave_the_errors_that_they_promise() -> None:
    errors = {
        rule: single("ur5", load_solver("combined", switch_after=15, stopping_rule=rule, **SOURCE)).position_error
        for rule in ("ftol", "stopval", "precise")
    }
    assert errors["ftol"] < 5e-8  # "almost zero" in print, about 2e-8 measured
    assert 1e-7 < errors["stopval"] <= EPSILON  # stops as soon as it may
    assert errors["precise"] < 1e-9  # f ≤ 1e-6 ε² is a thousandth of ε; the last step lands well below
    assert load_solver("combined").stopping_rule == "precise"


# --- FABRIK on two links: cycles and rates ---


def two_links(upper_arm: float, forearm: float) -> Chain:
    """A seven-joint arm with these links, shoulder and tool's wrist at the origin of base and tool, hardly limited."""
    joints, T = [], np.eye(4)
    for i, (alpha, d) in enumerate([(-1, 0), (1, 0), (-1, upper_arm), (1, 0), (-1, forearm), (1, 0), (0, 0)]):
        joints.append(Joint(f"joint_{i + 1}", "revolute", T, lower=-2.0 * np.pi, upper=2.0 * np.pi))
        T = np.array([[1, 0, 0, 0], [0, alpha == 0, -alpha, 0], [0, alpha, alpha == 0, d], [0, 0, 0, 1.0]])
    return Chain.from_joints(joints, T_last_tool=T)


@dataclass
class Cycles:
    """FABRIK on two links bent by δ in the answer, from an elbow φ_0 off the line to the target."""

    chain: Chain
    dist: float
    trace: Any

    @staticmethod
    def run(links: tuple[float, float], delta: float, phi0: float, **settings: Any) -> Cycles:
        chain = two_links(*links)
        l2, l3 = links
        dist = np.sqrt(l2 * l2 + l3 * l3 + 2.0 * l2 * l3 * np.cos(delta))
        target = se3.transform(np.eye(3), np.array([dist, 0.0, 0.0]))
        seed = np.zeros(7)
        seed[1] = np.pi / 2 - phi0  # the upper arm, upright at 0, towards the target at π/2
        solver = load_solver("fabrik", max_iterations=200_000, skip_stretched=False, further_elbows=False, **settings)
        return Cycles(chain, float(dist), solver.trace(chain, target, seed))

    @property
    def count(self) -> int:
        return self.trace.solution.iterations

    def phi(self, k: int) -> float:
        """The angle at the shoulder between elbow and target after k + 1 cycles, from the traced joints."""
        frames = self.chain.joint_frames(self.trace.q[k])
        elbow = frames[4, :3, 3] - frames[1, :3, 3]
        return float(np.arctan2(np.hypot(elbow[1], elbow[2]), elbow[0]))


DELTAS = [1.5, 1.0, 0.7, 0.5, 0.3, 0.2, 0.114, 0.05, 0.02, 0.019, 2.0, 2.5, 2.8, 3.0]
PUBLISHED_CYCLES = {
    "ur5": [3, 9, 20, 39, 100, 206, 552, 2217, 9331, 10062, 7, 23, 70, 462],
    "iiwa14": [3, 9, 20, 39, 100, 206, 552, 2218, 9341, 10074, 7, 20, 77, 374],
}


@pytest.mark.parametrize(
    ("arm", "delta", "cycles"),
    [(arm, *pair) for arm, counts in PUBLISHED_CYCLES.items() for pair in zip(DELTAS, counts, strict=True)],
)
def test_cycles_to_a_micrometre_from_the_same_start(arm: str, delta: float, cycles: int) -> None:
    assert abs(Cycles.run(LINKS[arm], delta, 1.2).count - cycles) <= 1  # the last one turns on rounding


def test_the_first_iterates_are_those_published() -> None:
    ur5 = Cycles.run(LINKS["ur5"], 0.5, 1.2)
    assert_allclose(ur5.dist, 0.791885129559, atol=1e-12)
    wanted = [0.423820424892, 0.345833429098, 0.309080231432, 0.287783649000]
    assert_allclose([ur5.phi(k) for k in range(4)], wanted, atol=1e-11)  # twelve digits, through seven joints and back
    wanted = [0.048383398062, 0.025430371579, 0.015794721516, 0.010597162509]
    assert_allclose(ur5.trace.position_error[:4], wanted, atol=1e-12)
    iiwa = Cycles.run(LINKS["iiwa14"], 1.0, 0.6)
    assert_allclose(iiwa.dist, 0.719681578736, atol=1e-12)
    wanted = [0.511701356672, 0.493532386902, 0.488643075910, 0.487247600650]
    assert_allclose([iiwa.phi(k) for k in range(4)], wanted, atol=1e-11)
    wanted = [0.008952318703, 0.002431339774, 0.000695766621, 0.000201952571]
    assert_allclose(iiwa.trace.position_error[:4], wanted, atol=1e-12)


@pytest.mark.parametrize(("delta", "ratio"), [(0.3, 0.9126678), (1.0, 0.2919266), (2.0, 0.1731782), (2.8, 0.8877829)])
def test_each_cycle_shrinks_the_error_by_the_squared_cosine_of_the_bend(delta: float, ratio: float) -> None:
    error = Cycles.run(LINKS["ur5"], delta, 1.2, position=1e-11).trace.position_error
    last = error[(error > 1e-8) & (error < 1e-6)]  # the law holds in the limit, and below lies rounding
    assert_allclose((last[1:] / last[:-1])[-1], ratio, rtol=1e-6)
    assert_allclose(ratio, np.cos(delta) ** 2, atol=5e-8)


@pytest.mark.parametrize(("phi0", "cycles"), [(1e-2, 811), (1e-4, 1521), (1e-6, 2229), (1e-9, 3291)])
def test_a_start_near_the_line_leaves_it_slowly(phi0: float, cycles: int) -> None:
    if phi0 > 1e-5:
        run = Cycles.run(LINKS["ur5"], 0.114, phi0)
    else:  # so near counts as on the line, and is bent by as much as is asked for
        run = Cycles.run(LINKS["ur5"], 0.114, 0.0, bend=phi0)
    assert abs(run.count - cycles) <= 1


def test_a_chain_on_the_line_of_its_target_is_bent_and_arrives() -> None:
    assert Cycles.run(LINKS["ur5"], 1.0, 0.0).trace.solution.converged
    assert Cycles.run(LINKS["iiwa14"], 0.5, np.pi).trace.solution.converged  # pointing away
    assert not Cycles.run(LINKS["iiwa14"], 0.5, 0.0, bend=0.0).trace.solution.converged  # on the line for ever


def test_errors_shrink_from_cycle_to_cycle() -> None:
    for delta in (0.2, 1.0, 2.0, 2.9):
        assert (np.diff(Cycles.run(LINKS["iiwa14"], delta, 1.2).trace.position_error) < 0.0).all()


# --- SLSQP is NLopt's, whichever way it is called ---


def test_the_planar_miss_is_what_the_published_numbers_say() -> None:
    # Joints and target along the UR5's x_1 and z_0, its links pointing against x: mirrored, the links point along x.
    f, *gradient = nlopt_c.planar_miss(-0.3, 0.7, 0.425, 0.39225, 0.5, -0.2)
    assert_allclose(f, 0.123050128268, atol=1e-12)
    assert_allclose(gradient, [0.334074930050, 0.082473585083], atol=1e-12)


def test_the_spatial_miss_is_what_the_published_numbers_say() -> None:
    f, *gradient = nlopt_c.spatial_miss(0.2, 0.5, -0.3, 0.9, 0.42, 0.40, 0.3, 0.2, 0.8 - 0.36)
    assert_allclose(f, 0.114707460771, atol=1e-12)
    assert_allclose(gradient, [-0.220935455842, 0.217373092903, -0.096842726015, 0.060165858261], atol=1e-12)


def test_the_misses_gradients_are_what_small_steps_show() -> None:
    rng = np.random.default_rng(31)
    for _ in range(100):
        cases: list[tuple[Any, int, Any]] = [
            (nlopt_c.planar_miss, 2, (*LINKS["ur5"], *rng.uniform(-0.6, 0.6, 2))),
            (nlopt_c.spatial_miss, 4, (*LINKS["iiwa14"], *rng.uniform(-0.6, 0.6, 3))),
        ]
        for miss, k, parameters in cases:
            x, h = rng.uniform(-3.0, 3.0, k), 1e-5
            _, *gradient = miss(*x, *parameters)
            steps = h * np.eye(k)
            slopes = [(miss(*(x + e), *parameters)[0] - miss(*(x - e), *parameters)[0]) / (2.0 * h) for e in steps]
            assert_allclose(gradient, slopes, atol=1e-9)  # h² cut off, 1e-16/h lost to rounding


def by_python(miss: Any, x: np.ndarray, parameters: tuple[float, ...], rule: str) -> list[np.ndarray]:
    """The points that NLopt's Python interface evaluates, one Python call each: the readable reference."""
    points = []

    def objective(point: np.ndarray, gradient: np.ndarray) -> float:
        points.append(point.copy())
        f, *slopes = miss.py_func(*point, *parameters)
        if gradient.size:
            gradient[:] = slopes
        return float(f)

    opt = nlopt.opt(nlopt.LD_SLSQP, len(x))
    opt.set_min_objective(objective)
    if rule == "ftol":
        opt.set_ftol_abs(EPSILON**2)
    elif rule == "stopval":
        opt.set_stopval(EPSILON**2)
    else:
        opt.set_stopval(1e-6 * EPSILON**2)
        opt.set_xtol_abs(1e-15)
    opt.set_maxeval(200)
    try:
        opt.optimize(x.copy())
    except nlopt.RoundoffLimited:
        pass  # it may end so although it stands at the answer
    return points


@pytest.mark.parametrize("rule", ["ftol", "stopval", "precise"])
@pytest.mark.parametrize("space", ["planar", "spatial"])
def test_slsqp_from_a_kernel_evaluates_the_same_points_as_through_nlopt_s_python_interface(
    space: str, rule: str
) -> None:
    nlopt_c.load()
    miss: Any = nlopt_c.planar_miss if space == "planar" else nlopt_c.spatial_miss
    objective = nlopt_c.planar_objective() if space == "planar" else nlopt_c.spatial_objective()
    k, dimension, links = (2, 2, LINKS["ur5"]) if space == "planar" else (4, 3, LINKS["iiwa14"])
    rng = np.random.default_rng(32)
    for _ in range(10):
        along = rng.normal(size=dimension)
        target = rng.uniform(0.1, 0.8) * along / np.linalg.norm(along)
        x, parameters = rng.uniform(-1.5, 1.5, k), (*links, *target)
        points = by_python(miss, x, parameters, rule)
        data = nlopt_c.block_for(k, 400)
        data[nlopt_c.PARAMETERS : nlopt_c.PARAMETERS + len(parameters)] = parameters
        best, bounds = x.copy(), np.empty(k)
        f = nlopt_c.minimise(objective, best, bounds, bounds, False, data, nlopt_c.RULES[rule], EPSILON, 200)
        assert int(data[nlopt_c.COUNT]) == len(points)
        values, evaluated = np.split(nlopt_c.logged(data, k), [1], axis=1)
        assert_allclose(values[:, 0], [miss(*point, *parameters)[0] for point in evaluated], rtol=0.0, atol=0.0)
        # The same library from the same start: only the compiled objective's rounding lies between the two.
        assert_allclose(evaluated, points, atol=1e-12)
        assert_allclose(f, min(miss(*point, *parameters)[0] for point in points), atol=1e-20)


def test_a_log_shorter_than_a_run_keeps_its_first_evaluations_and_changes_nothing() -> None:
    nlopt_c.load()
    runs = []
    for room in (0, 3, 400):
        data = nlopt_c.block_for(2, room)
        data[nlopt_c.PARAMETERS : nlopt_c.PARAMETERS + 4] = [*LINKS["iiwa14"], 0.4, -0.3]
        x, bounds = np.full(2, 0.5), np.empty(2)
        nlopt_c.minimise(nlopt_c.planar_objective(), x, bounds, bounds, False, data, nlopt_c.PRECISE, EPSILON, 200)
        runs.append((data[nlopt_c.COUNT], *x))
        assert len(nlopt_c.logged(data, 2)) == min(room, data[nlopt_c.COUNT])
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][0] > 3


@pytest.mark.parametrize(("arm", "after"), [("ur5", 5), ("iiwa14", 15)])
def test_a_trace_shows_both_phases_evaluation_by_evaluation(arm: str, after: int) -> None:
    chain = ARMS[arm]
    solver = load_solver("combined", switch_after=after, **SOURCE)
    T = chain.fk(SINGLE[arm])
    trace = solver.trace(chain, T, np.zeros(chain.n))
    solution = trace.solution
    first = trace.phase % 100 == 0
    assert set(trace.phase % 100) == {0.0, 1.0}
    assert first.sum() == solution.iterations
    assert (~first).sum() == solution.evaluations
    q = np.array([chain.fk(row) for row in trace.q])
    assert np.abs(q[:, :3, :3] - T[:3, :3]).max() < 1e-9  # the wrist takes the orientation up in every row
    assert_allclose(np.linalg.norm(q[~first][:, :3, 3] - T[:3, 3], axis=1), trace.position_error[~first], atol=1e-12)
    assert np.abs(trace.q - solution.q).max(axis=1).min() < 1e-12  # the answer is one of them
    whole = load_solver("combined", switch_after=after)
    trace = whole.trace(chain, Target.point(T[:3, 3]), np.zeros(chain.n))
    assert (trace.phase % 100 == 1).sum() == trace.solution.evaluations > 0


# --- random poses: the success rates of the published table ---

POSES = 2000


def random_poses(arm: str) -> np.ndarray:
    """Joints uniform in (-π, π] on the UR5, inside the limits on the iiwa."""
    chain, rng = ARMS[arm], np.random.default_rng(33)
    q = rng.uniform(-np.pi, np.pi, (POSES, 6)) if arm == "ur5" else chain.random_q(rng, POSES)
    return chain.fk_batch(q)


def sampling(rate: float) -> float:
    """Three standard deviations of a rate measured on so many poses, and three more of the published one's 10 000."""
    return 3.0 * np.sqrt(rate * (1.0 - rate)) * np.sqrt(1.0 / POSES + 1.0 / 10_000)


@pytest.mark.parametrize(
    ("arm", "solver", "settings", "rate", "cycles", "evaluations"),
    [
        ("ur5", "combined", {"switch_after": 5}, 1.0, 17.0, 23.2),
        ("ur5", "combined", {"switch_after": 10}, 1.0, 29.0, 16.9),
        ("ur5", "combined", {"switch_after": 15}, 1.0, 38.2, 13.7),
        ("ur5", "combined", {"switch_after": 20}, 1.0, 45.8, 11.6),
        ("ur5", "fabrik", {"max_iterations": 50}, 0.890, 75.9, 0.0),
        ("ur5", "fabrik", {"max_iterations": 100}, 0.955, 105.0, 0.0),
        ("ur5", "fabrik", {"max_iterations": 1000}, 0.9935, 240.0, 0.0),
        ("iiwa14", "combined", {"switch_after": 5}, 0.931, 4.6, 6.2),
        ("iiwa14", "combined", {"switch_after": 15}, 0.931, 9.6, 4.1),
        ("iiwa14", "fabrik", {"max_iterations": 50}, 0.721, 19.4, 0.0),
        ("iiwa14", "fabrik", {"max_iterations": 100}, 0.788, 28.2, 0.0),
        ("iiwa14", "fabrik", {"max_iterations": 1000}, 0.892, 86.0, 0.0),
    ],
)
def test_success_on_random_poses_is_as_published(
    arm: str, solver: str, settings: dict[str, Any], rate: float, cycles: float, evaluations: float
) -> None:
    chain = ARMS[arm]
    rule = {"stopping_rule": "stopval"} if solver == "combined" else {}
    method = load_solver(solver, start="stretched", further_elbows=False, **settings, **rule)
    solutions = method.solve_batch(chain, random_poses(arm), np.zeros(chain.n))
    assert abs(solutions.converged.mean() - rate) <= sampling(rate)
    # Cycles and evaluations scatter about as much as their means from pose to pose: 3 · 1/√2000 is 7 %, rounded up.
    assert_allclose(solutions.iterations.mean(), cycles, rtol=0.1)
    assert_allclose(solutions.evaluations.mean(), evaluations, rtol=0.1)


@pytest.mark.parametrize("settings", [{}, {"switch_after": 5}, {"switch_after": 15}, {"switch_after": "predicted"}])
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("start", ["seed", "stretched"])
def test_combined_with_further_elbows_loses_no_pose(arm: str, start: str, settings: dict[str, Any]) -> None:
    chain = ARMS[arm]
    seeds = chain.random_q(np.random.default_rng(34), POSES)
    solutions = load_solver("combined", start=start, **settings).solve_batch(chain, random_poses(arm), seeds)
    assert solutions.converged.all(), [s.reason for s in solutions if not s.converged][:3]
    assert (solutions.q >= chain.lower).all()
    assert (solutions.q <= chain.upper).all()
    assert solutions.rotation_error.max() < 1e-13  # the orientation is met exactly, whatever the two links leave


def test_what_the_stopping_rule_of_the_source_loses_is_what_was_measured() -> None:
    chain = ARMS["iiwa14"]
    method = load_solver("combined", switch_after=15, start="stretched", stopping_rule="ftol", further_elbows=False)
    solutions = method.solve_batch(chain, random_poses("iiwa14"), np.zeros(7))
    lost = sum(status is Status.STALLED for status in solutions.status) / POSES
    assert 0.01 <= lost <= 0.03  # it stops too early where progress is slow


def test_what_fabrik_loses_is_what_the_bend_predicts() -> None:
    """δ is 120° times a uniform number on the iiwa, so the share of poses beyond n_max cycles can be told beforehand."""
    chain = ARMS["iiwa14"]
    for most, predicted in ((50, 0.787), (100, 0.856), (1000, 0.962)):
        solver = load_solver("fabrik", max_iterations=most, start="stretched", further_elbows=False)
        solutions = solver.solve_batch(chain, random_poses("iiwa14"), np.zeros(7))
        spent = sum(status is Status.MAX_ITERATIONS for status in solutions.status) / POSES
        assert abs((1.0 - spent) - predicted) <= sampling(predicted) + 0.01  # the law itself is good to about 1 %


# --- the reference task, point by point ---


@dataclass
class Tracked:
    """The two-phase reference task, each point solved from the answer to the last."""

    q: np.ndarray
    converged: np.ndarray
    position_error: np.ndarray
    rotation_error: np.ndarray
    used_slsqp: list[int]

    @property
    def step(self) -> np.ndarray:
        return np.abs(np.diff(self.q, axis=0))


START = {"ur5": [0.0, -0.959, 2.05, -1.091, 0.0, 0.0], "iiwa14": [0.0, 1.000, 0.0, -2.084, 0.0, 1.084, 0.0]}
END = {
    "ur5": [-0.179, 0.581, 2.8, -2.308, -1.028, 2.185],
    "iiwa14": [1.953, -0.711, -1.608, 1.648, -0.888, 0.782, 0.893],
}
ALONG = {"ur5": [-1.0, 0.0, 0.0], "iiwa14": [0.0, 0.0, 1.0]}
FIRST = {"ur5": 0.425156046395, "iiwa14": 0.414045693578}


def reference_targets(arm: str) -> list[np.ndarray]:
    """80 points on a line out to the stretched zero posture, then 100 on a joint motion from there."""
    chain, reach = ARMS[arm], sum(LINKS[arm])
    targets = []
    for i in range(80):
        T = chain.fk(np.zeros(chain.n))
        T[:3, 3] += (FIRST[arm] + (reach - FIRST[arm]) * i / 79 - reach) * np.array(ALONG[arm])
        targets.append(T)
    return [*targets, *(chain.fk(SIGNS[arm] * np.array(END[arm]) * k / 100) for k in range(1, 101))]


def track(arm: str, solver: Any) -> Tracked:
    q = [SIGNS[arm] * np.array(START[arm])]
    solutions = []
    for T in reference_targets(arm):
        solutions.append(solver.solve(ARMS[arm], T, q[-1]))
        q.append(solutions[-1].q.copy())
    return Tracked(
        np.array(q), np.array([s.converged for s in solutions]), np.array([s.position_error for s in solutions]),
        np.array([s.rotation_error for s in solutions]), [i for i, s in enumerate(solutions) if s.used_slsqp],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arm", "step", "elbow", "slsqp"),
    [("ur5", 0.218, 2, [(57, 128), (162, 179)]), ("iiwa14", 0.239, None, [(64, 127)])],
)
def test_the_method_of_the_source_tracks_the_reference_task(
    arm: str, step: float, elbow: int | None, slsqp: list[tuple[int, int]]
) -> None:
    solver = load_solver("combined", switch_after=15, stopping_rule="stopval", **SOURCE)
    tracked = track(arm, solver)
    assert tracked.converged.all()
    assert len(tracked.converged) == 180
    assert tracked.position_error.max() < EPSILON
    assert tracked.rotation_error.max() < 1e-14
    assert_allclose(tracked.step.max(), step, atol=6e-4)  # three digits are published
    if elbow is not None:
        point, joint = np.unravel_index(tracked.step.argmax(), tracked.step.shape)
        assert (point, joint) == (79, elbow)  # the last step out to the stretch: geometry, not a fault
    # SLSQP runs where the bend is small or large. Ends within three points, and hardly a gap between them.
    wanted = set(itertools.chain(*(range(low, high + 1) for low, high in slsqp)))
    assert set(tracked.used_slsqp) <= {i + k for i in wanted for k in (-3, 0, 3)} | wanted
    assert len(wanted - set(tracked.used_slsqp)) <= 3
    assert_array_equal(track(arm, solver).q, tracked.q)  # the same joints on every run


def test_the_closed_form_tracks_the_reference_task_with_the_steps_that_geometry_demands() -> None:
    tracked = track("ur5", load_solver("closed_form"))
    assert tracked.converged.all()
    steps = tracked.step.max(axis=1)
    assert int(steps.argmax()) == 79
    # √(2 (l2 + l3) Δr / (l2 l3)) for the last spacing Δr out to the stretch, less a little
    assert_allclose(steps.max(), 0.2207, atol=5e-5)
    assert np.sort(steps)[-2] < 0.1
    tracked = track("iiwa14", load_solver("closed_form"))
    assert tracked.converged.all()
    assert_allclose(tracked.step[79, 3], 0.2241, atol=5e-5)


def test_the_closed_form_leaves_the_straight_iiwa_by_a_small_step() -> None:
    steps = track("iiwa14", load_solver("closed_form")).step.max(axis=1)
    assert int(steps.argmax()) == 79
    assert np.sort(steps)[-2] < 0.1


@pytest.mark.parametrize("arm", ARMS)
def test_combined_as_it_comes_tracks_the_reference_task_on_one_branch(arm: str) -> None:
    tracked = track(arm, load_solver("combined"))
    assert tracked.converged.all()
    assert tracked.step.max() < 0.2242  # the iiwa's step into the straight arm; out of it no step is that large
    assert tracked.position_error.max() <= EPSILON


# --- settings and honesty ---


@pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-8])
def test_an_arc_narrower_than_the_tolerance_of_the_iteration_is_not_lost(width: float) -> None:
    """FABRIK stops within a micrometre of its tip; joints may be off by as many microradians, and a limit in between."""
    iiwa, rng = ARMS["iiwa14"], np.random.default_rng(36)
    for _ in range(40):
        q = iiwa.random_q(rng, within=0.8)
        joint = int(rng.choice([0, 1, 2, 4, 5, 6]))
        low, high = q[joint] - width * rng.random(), q[joint] + width * rng.random()
        chain = iiwa.with_limits({iiwa.joint_names[joint]: (low, high)})
        solution = load_solver("combined").solve(chain, chain.fk(q), chain.random_q(rng))
        assert solution.converged, solution.reason


def test_the_predicted_switch_lets_fabrik_finish_where_it_is_fast_and_skips_it_where_it_crawls() -> None:
    solver = load_solver("combined", switch_after="predicted")
    chain = two_links(*LINKS["iiwa14"])
    for delta, crawls in ((0.02, True), (3.1, True), (1.0, False), (1.6, False), (2.4, False)):
        q = np.array([0.3, 0.8, 0.0, delta, 0.2, 0.9, -0.4])
        seed = q + np.array([0.0, 0.7, 0.0, 0.0, 0.0, 0.0, 0.0])
        solution = solver.solve(chain, chain.fk(q), seed)
        assert solution.converged
        assert solution.used_slsqp == crawls
        assert (solution.iterations == 0) == crawls


def test_a_warm_start_keeps_the_elbow_of_the_seed() -> None:
    for arm, chain in ARMS.items():
        rng = np.random.default_rng(35)
        for q in chain.random_q(rng, 100, within=0.5):
            if np.linalg.svd(chain.jacobian(q), compute_uv=False)[-1] < 0.02:
                continue
            solution = load_solver("combined").solve(chain, chain.fk(q), q)
            # FABRIK starts at the answer and is content with a micrometre.
            assert_allclose(solution.q, q, atol=1e-3 if arm == "iiwa14" else 1e-4)


def test_a_stretched_target_is_taken_straight_unless_that_is_refused() -> None:
    chain = ARMS["iiwa14"]
    T = chain.fk(np.zeros(7))
    taken = load_solver("combined", switch_after=15).solve(chain, T, np.zeros(7))
    assert taken.converged
    assert (taken.iterations, taken.evaluations) == (0, 0)
    bent = load_solver("combined", switch_after=15, skip_stretched=False).solve(chain, T, np.zeros(7))
    assert bent.converged
    assert bent.used_slsqp
    alone = load_solver("fabrik", max_iterations=2000, skip_stretched=False).solve(chain, T, np.zeros(7))
    assert alone.status is Status.MAX_ITERATIONS  # sublinear: a micrometre would take 102 000 cycles
    assert "FABRIK cycles used up, still" in alone.reason


def test_cycles_that_do_not_suffice_are_told_with_what_would() -> None:
    solution = single("iiwa14", load_solver("fabrik", max_iterations=50, start="stretched"))
    assert solution.status is Status.MAX_ITERATIONS
    assert solution.iterations == 50
    assert "50 FABRIK cycles used up" in solution.reason
    assert "bent by only 1.09°, it needs about 10075 cycles" in solution.reason  # 0.019 rad; 10 073 were counted
    assert_allclose(solution.position_error, se3.pose_error(ARMS["iiwa14"].fk(solution.q), target_of("iiwa14"))[0])


def target_of(arm: str) -> np.ndarray:
    return ARMS[arm].fk(SINGLE[arm])


@pytest.mark.parametrize("name", ["combined", "fabrik"])
@pytest.mark.parametrize("arm", ARMS)
def test_what_is_out_of_reach_is_proved_as_the_closed_form_does(name: str, arm: str) -> None:
    chain = ARMS[arm]
    T = chain.fk(chain.q_middle)
    T[:3, 3] += [0.9, 0.8, 0.7]
    solution = load_solver(name).solve(chain, T)
    closed = load_solver("closed_form").solve(chain, T)
    assert solution.status is closed.status is Status.OUT_OF_REACH
    assert solution.reason == closed.reason
    assert chain.within_limits(solution.q)


def test_the_elbow_that_the_vertical_plane_gives_is_told_to_break_a_limit_when_no_other_may_be_tried() -> None:
    chain = ARMS["iiwa14"]
    method = load_solver("combined", switch_after=15, start="stretched", further_elbows=False)
    solutions = method.solve_batch(chain, random_poses("iiwa14"), np.zeros(7))
    blocked = [s for s in solutions if not s.converged]
    assert {s.status for s in blocked} == {Status.JOINT_LIMITS}
    assert all("break a joint limit: the nearest misses joint_" in s.reason for s in blocked)
    # In 99 % of such cases it is joint 6, the published test found.
    assert np.mean(["joint_6" in s.reason for s in blocked]) > 0.9


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"switch_after": -1}, "switch_after"),
        ({"switch_after": "soon"}, "switch_after"),
        ({"stopping_rule": "never"}, "stopping_rule"),
        ({"start": "anywhere"}, "start"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        load_solver("combined", **settings)


def test_a_trace_has_a_row_for_each_cycle() -> None:
    chain = ARMS["ur5"]
    alone = load_solver("fabrik", start="stretched").trace(chain, target_of("ur5"), np.zeros(6))
    assert len(alone.position_error) == alone.solution.iterations == 543
    assert alone.q.shape == (543, 6)
    assert alone.position_error[-2] > EPSILON >= alone.position_error[-1]
    both = load_solver("combined", switch_after=15, start="stretched").trace(chain, target_of("ur5"), np.zeros(6))
    assert both.solution.converged
    assert_array_equal(both.position_error[:15], alone.position_error[:15])


@pytest.mark.parametrize("name", ["combined", "fabrik"])
def test_points_are_reached_too(name: str) -> None:
    chain = ARMS["iiwa14"]
    solution = load_solver(name).solve(chain, Target.point([0.4, 0.2, 0.6]))
    assert solution.converged
    assert_allclose(chain.fk(solution.q)[:3, 3], [0.4, 0.2, 0.6], atol=EPSILON)
