"""FABRIK on points: published numbers, what every answer must keep, and the cases that break other implementations."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.fabrik import Arc, Box, Cone, Hinge, Skeleton, Solver, Sphere, Status, rivals, solve

ROUNDING = 1e-9  # numbers are quoted with nine to twelve digits


def planar(angles, lengths):
    heading = np.cumsum(angles)
    steps = np.asarray(lengths)[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    return np.vstack([[0.0, 0.0], np.cumsum(steps, axis=0)])


def link_lengths(skeleton, points):
    return np.linalg.norm(points[1:] - points[skeleton.parent[1:]], axis=1)


# --- numbers known from elsewhere ---


def test_two_links_give_the_published_position_and_both_postures():
    points = Skeleton.chain([65, 116]).pose(np.radians([30, 45]))
    np.testing.assert_allclose(points[1], [56.291651246, 32.5], atol=1e-9)
    np.testing.assert_allclose(points[2], [86.314660483, 144.547395853], atol=1e-9)
    np.testing.assert_allclose(
        np.degrees(rivals.two_links((65, 116), (86, 145))),
        [[30.445220259, 44.585673652], [88.210128182, -44.585673652]],
        atol=1e-8,
    )
    again = np.degrees(rivals.two_links((65, 116), points[2]))
    np.testing.assert_allclose(again, [[30, 45], [88.313987423, -45]], atol=1e-8)


def test_the_bend_of_the_printed_two_links_has_the_published_cosine():
    assert np.cos(rivals.two_links((65, 116), (86, 145))[0, 1]) == pytest.approx(0.712201591512, abs=1e-12)


def test_two_links_say_nothing_outside_their_reach():
    assert len(rivals.two_links((65, 116), (182, 0))) == 0
    assert len(rivals.two_links((65, 116), (50, 0))) == 0
    np.testing.assert_allclose(rivals.two_links((65, 116), (181, 0)), [[0, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("damping", "errors"),
    [(0.0, [84.7575, 64.2521, 18.1420, 1.7094]), (10.0, [84.7575, 37.4320, 8.5074, 1.1475])],
)
def test_newton_and_damped_steps_on_two_links_shrink_the_error_as_published(damping, errors):
    chain, q, target, seen = Skeleton.chain([65, 116]), np.radians([15.0, 25.0]), np.array([86.0, 145.0]), []
    for _ in range(4):
        points = chain.pose(q)
        seen.append(np.linalg.norm(points[-1] - target))
        q = q + rivals.step("damped_least_squares", points, target, damping)
    np.testing.assert_allclose(seen, errors, atol=1e-4)  # four decimals are quoted


def test_a_straight_chain_reaches_3_4_in_three_cycles():
    chain = Skeleton.chain([3, 3, 3])
    one = Solver(max_cycles=1).solve(chain, (3, 4))
    expected = [[2.965187, -0.455705], [4.962848, 1.782453], [2.974460, 4.028854]]
    np.testing.assert_allclose(one.points[1:], expected, atol=1e-6)  # six decimals are quoted
    done = solve(chain, (3, 4))
    assert done.cycles == 3
    np.testing.assert_allclose(
        done.points[1:],
        [[2.964642438, -0.459233293], [4.989369406, 1.754469646], [2.999999691, 4.000000348]],
        atol=ROUNDING,
    )


def test_a_target_inside_the_longest_link_gets_the_closest_points():
    solution = solve(Skeleton.chain([2, 0.5, 0.5]), (0.4, 0.3))
    np.testing.assert_allclose(solution.points[1:], [[1.6, 1.2], [1.2, 0.9], [0.8, 0.6]], atol=1e-12)
    assert (solution.status, solution.cycles) == (Status.OUT_OF_REACH, 0)
    assert solution.miss == pytest.approx(0.5)
    assert "0.5 inside" in solution.reason


def test_limits_hold_within_the_first_cycle_as_published():
    arm = Skeleton.chain([1, 1, 1], limits=np.radians([[-90, 90], [-60, 60], [-60, 60]]))
    start = arm.pose([0.1, 0.2, 0.1])
    one = Solver(max_cycles=1).solve(arm, (0.8, 1.9), start)
    np.testing.assert_allclose(one.angles, [0.173643083736, 0.971950656746, 1.047197551197], atol=1e-11)
    assert one.miss == pytest.approx(0.015230345195, abs=1e-11)
    done = Solver(tolerance=1e-9).solve(arm, (0.8, 1.9), start)
    np.testing.assert_allclose(np.degrees(done.angles), [10.23921, 55.86142, 60.0], atol=2e-5)


def test_two_limbs_on_a_trunk_meet_at_the_published_centroid():
    points = [(0, 0), (0, 1), (0, 2), (0.7, 2.7), (1.4, 3.4), (-0.7, 2.7), (-1.4, 3.4)]
    tree = Skeleton.tree(points, [-1, 0, 1, 2, 3, 2, 5])
    targets = [(1.5, 2.5), (-1, 3)]
    one = Solver(max_cycles=1).solve(tree, targets)
    np.testing.assert_allclose(one.points[2], [0.234783203, 1.954035589], atol=ROUNDING)
    done = solve(tree, targets)
    assert done.cycles == 12
    np.testing.assert_allclose(done.points[2], [0.449989085, 1.862282799], atol=ROUNDING)
    assert done.misses.max() <= 1e-6


STEP = {
    ("jacobian_transpose", 0.1): [0.334731600370, 0.208503018606, 0.157330875185],
    ("jacobian_transpose", 0.0): [0.274853824759, 0.171205383879, 0.129187064351],
    ("damped_least_squares", 0.1): [-0.194193134873, -0.738076373390, 3.307541058537],
    ("damped_least_squares", 0.5): [0.099669001624, -0.158643898743, 1.262523537112],
    ("selectively_damped", np.pi / 4): [0.254617567909, 0.136104136570, 0.243575369918],
    ("levenberg_marquardt", 1e-3): [0.207374231311, 0.084742189091, 0.342175033907],
}


@pytest.mark.parametrize(("method", "gain"), STEP)
def test_one_step_of_each_jacobian_method_is_the_published_one(method, gain):
    points = Skeleton.chain([1, 1, 1]).pose([0.3, -0.5, 0.8])
    np.testing.assert_allclose(points[-1], [2.760738681877, 0.661493349261], atol=1e-12)
    found = rivals.step(method, points, (1.2, 1.5), gain)
    np.testing.assert_allclose(found, STEP[method, gain], atol=1e-11)


def test_a_second_wish_changes_the_step_but_not_where_the_tip_goes():
    points, wish = Skeleton.chain([1, 1, 1]).pose([0.3, -0.5, 0.8]), -0.2 * np.array([0.3, -0.5, 0.8])
    found = rivals.step("damped_least_squares", points, (1.2, 1.5), 0.1, wish)
    np.testing.assert_allclose(found, [-0.246549818607, -0.664150962222, 3.320963504409], atol=1e-11)
    J = np.stack([-(points[-1, 1] - points[:-1, 1]), points[-1, 0] - points[:-1, 0]])
    np.testing.assert_allclose(J @ found, J @ np.array(STEP["damped_least_squares", 0.1]), atol=1e-10)


def test_one_sweep_of_ccd_and_one_cycle_of_fabrik_are_the_published_ones():
    chain = Skeleton.chain([1, 1, 1])
    start = chain.pose([0.3, -0.5, 0.8])
    swept = rivals.Rival("ccd", max_cycles=1).path(chain, (1.2, 1.5), start)[-1]
    np.testing.assert_allclose(chain.angles(swept)[1:], [0.405746417730, -0.056377350556, 2.253544581419], atol=1e-11)
    one = Solver(max_cycles=1).solve(chain, (1.2, 1.5), start)
    np.testing.assert_allclose(
        one.points[1:],
        [[0.965079750343, 0.261956247258], [1.858095639294, 0.711981382201], [1.217099099903, 1.479525150652]],
        atol=1e-11,
    )


@pytest.mark.parametrize(
    ("links", "counts"), [(3, [17, 152, 1150, 7690]), (10, [50, 459, 3509, 23545])], ids=["3 links", "10 links"]
)
def test_cycles_grow_towards_the_stretched_pose_as_published(links, counts):
    chain = Skeleton.chain(np.full(links, 1 / links))
    for r, count in zip((0.9, 0.99, 0.999, 0.9999), counts, strict=True):
        target = r * np.array([np.cos(0.7), np.sin(0.7)])
        found = Solver(max_cycles=100_000).solve(chain, target)
        assert abs(found.cycles - count) <= 1, (r, found.cycles)
        assert found.converged


ARMS = {"UR5": (0.425, 0.39225), "iiwa": (0.42, 0.40)}
CYCLES = {
    "UR5": {1.5: 3, 1.0: 9, 0.7: 20, 0.5: 39, 0.3: 100, 0.2: 206, 0.114: 552, 0.05: 2217, 0.02: 9331, 0.019: 10062,
            2.0: 7, 2.5: 23, 2.8: 70, 3.0: 462},
    "iiwa": {1.5: 3, 1.0: 9, 0.7: 20, 0.5: 39, 0.3: 100, 0.2: 206, 0.114: 552, 0.05: 2218, 0.02: 9341, 0.019: 10074,
             2.0: 7, 2.5: 20, 2.8: 77, 3.0: 374},
}  # fmt: skip


def two_link_problem(arm, bend, phi):
    a, b = ARMS[arm]
    r = np.sqrt(a * a + b * b + 2 * a * b * np.cos(bend))
    chain = Skeleton.chain([a, b], direction=(np.cos(phi), np.sin(phi)))
    return chain, r


@pytest.mark.parametrize("arm", ARMS)
def test_two_links_take_the_published_number_of_cycles(arm):
    for bend, count in CYCLES[arm].items():
        chain, r = two_link_problem(arm, bend, 1.2)
        found = Solver(max_cycles=20_000).solve(chain, (r, 0.0))
        assert abs(found.cycles - count) <= 1, (bend, found.cycles)  # ±1 as quoted


@pytest.mark.parametrize(("phi", "count"), [(1e-2, 811), (1e-4, 1521), (1e-6, 2229), (1e-9, 3291)])
def test_a_start_near_the_line_costs_the_published_extra_cycles(phi, count):
    chain, r = two_link_problem("UR5", 0.114, phi)
    found = Solver(max_cycles=20_000, bend=0.0).solve(chain, (r, 0.0))
    assert abs(found.cycles - count) <= 2, found.cycles


def test_the_first_iterates_on_two_links_are_the_published_ones():
    for arm, bend, phi, limit, angles, misses in (
        ("UR5", 0.5, 1.2, 0.239767933824, [0.423820424892, 0.345833429098, 0.309080231432, 0.287783649000],
         [0.048383398062, 0.025430371579, 0.015794721516, 0.010597162509]),
        ("iiwa", 1.0, 0.6, 0.486676337490, [0.511701356672, 0.493532386902, 0.488643075910, 0.487247600650],
         [0.008952318703, 0.002431339774, 0.000695766621, 0.000201952571]),
    ):  # fmt: skip
        chain, r = two_link_problem(arm, bend, phi)
        trace = Solver().trace(chain, (r, 0.0))
        forward = trace.points[[name == "forward" for name in trace.passes]]
        np.testing.assert_allclose(np.arctan2(forward[:4, 1, 1], forward[:4, 1, 0]), angles, atol=1e-11)
        np.testing.assert_allclose(np.linalg.norm(forward[:4, 2] - [r, 0.0], axis=1), misses, atol=1e-11)
        end = Solver(tolerance=1e-13).solve(chain, (r, 0.0)).points
        assert np.arctan2(end[1, 1], end[1, 0]) == pytest.approx(limit, abs=1e-11)


@pytest.mark.parametrize(("bend", "ratio"), [(0.3, 0.9126678), (1.0, 0.2919266), (2.0, 0.1731782), (2.8, 0.8877829)])
def test_the_miss_shrinks_by_the_squared_cosine_of_the_bend(bend, ratio):
    assert ratio == pytest.approx(np.cos(bend) ** 2, rel=1e-5)
    chain, r = two_link_problem("UR5", bend, 1.2)
    trace = Solver(tolerance=1e-9, max_cycles=2000).trace(chain, (r, 0.0), rows=5000)
    misses = trace.misses[[name == "forward" for name in trace.passes]]
    late = misses[(misses < 1e-5) & (misses > 1e-8)]
    assert np.median(late[1:] / late[:-1]) == pytest.approx(ratio, rel=1e-4)


def test_a_start_near_the_line_leaves_it_by_the_predicted_factor_a_cycle():
    a, b = ARMS["UR5"]
    for r, factor in (
        (0.79, a * b / ((0.79 - a) * (0.79 - b))),  # beyond both links
        (0.3, a * b / ((a - 0.3) * (b + 0.3))),  # nearer than the first
    ):
        chain = Skeleton.chain([a, b], direction=(np.cos(1e-7), np.sin(1e-7)))
        trace = Solver(bend=0.0, max_cycles=6).trace(chain, (r, 0.0))
        points = trace.points[[name in ("start", "forward") for name in trace.passes]]
        phi = np.abs(np.arctan2(points[:, 1, 1], points[:, 1, 0]))
        np.testing.assert_allclose(phi[1:4] / phi[:3], factor, rtol=1e-5)


def test_near_the_stretch_the_bend_follows_the_published_law():
    a, b = ARMS["iiwa"]
    chain, r = two_link_problem("iiwa", 0.02, 0.3)
    trace = Solver(max_cycles=400).trace(chain, (r, 0.0))
    points = trace.points[[name == "forward" for name in trace.passes]]
    steps = np.diff(points, axis=1)
    bend = np.abs(np.arctan2(steps[:, 1, 1], steps[:, 1, 0]) - np.arctan2(steps[:, 0, 1], steps[:, 0, 0]))
    late = bend[100:]
    np.testing.assert_allclose(late[:-1] - late[1:], late[:-1] * (late[:-1] ** 2 - 0.02**2) / 2, rtol=0.02)
    misses = trace.misses[[name == "forward" for name in trace.passes]][100:]
    np.testing.assert_allclose(misses, a * b * (late**2 - 0.02**2) / (2 * (a + b)), rtol=0.02)


def test_exactly_stretched_the_miss_falls_like_one_over_the_cycles():
    a, b = ARMS["iiwa"]
    chain, _ = two_link_problem("iiwa", 0.0, 1.2)
    beyond = a + b - 2e-12  # a hair inside, where nothing is known beforehand
    found = Solver(tolerance=1e-12, max_cycles=20_000).solve(chain, (beyond, 0.0))
    assert found.miss == pytest.approx(a * b / (2 * (a + b) * 20_000), rel=0.01)
    assert solve(chain, (a + b, 0.0)).cycles == 0  # the real answer takes none


@pytest.mark.parametrize("arm", ARMS)
def test_cycles_near_the_stretch_and_near_the_fold_follow_the_published_formula(arm):
    a, b = ARMS[arm]

    def predicted(small, r_end, start=np.inf):
        return np.log((1 - (small / start) ** 2) * (1 + a * b * small**2 / (2 * r_end * 1e-6))) / small**2

    for bend, error in ((0.02, 0.01), (0.05, 0.01), (0.114, 0.01), (0.2, 0.01), (0.3, 0.04), (0.5, 0.04)):
        chain, r = two_link_problem(arm, bend, 1.2)
        elbow = chain.rest[1]
        start = 1.2 - np.arctan2(-elbow[1], r - elbow[0])  # the bend, once the second link points at the target
        cycles = Solver(max_cycles=20_000).solve(chain, (r, 0.0)).cycles
        assert predicted(bend, a + b, start) == pytest.approx(cycles, rel=error), bend
    for fold in (0.005, 0.01, 0.02):  # "good" up to 0.02: within 1 %
        chain, r = two_link_problem(arm, np.pi - fold, 1.2)
        found = Solver(max_cycles=300_000).solve(chain, (r, 0.0))
        assert found.converged
        assert predicted(fold, abs(a - b)) == pytest.approx(found.cycles, rel=0.01), fold


def test_exactly_stretched_a_millionth_takes_a_hundred_and_two_thousand_cycles():
    a, b = ARMS["iiwa"]
    chain, _ = two_link_problem("iiwa", 0.0, 1.2)
    assert Solver(max_cycles=101_500).solve(chain, (a + b - 9e-7, 0.0)).cycles == 0  # that near the answer is known
    found = Solver(tolerance=1e-12, max_cycles=102_000).solve(chain, (a + b - 2e-12, 0.0))
    assert found.miss == pytest.approx(1e-6, rel=0.01)


@pytest.mark.parametrize(
    ("root_deg", "cycles", "share"), [(180, 200, 0.960), (180, 10_000, 0.973), (150, 10_000, 0.940)]
)
def test_limited_passes_alone_stall_as_often_as_published_and_four_starts_are_enough(root_deg, cycles, share):
    """96 % is the share of a free root and 200 cycles; the published figure names neither."""
    rng, half = np.random.default_rng(0), np.radians([root_deg, 150, 150])
    arm = Skeleton.chain([1, 1, 1], limits=np.stack([-half, half], axis=1))
    goals, starts = rng.uniform(-half, half, (2, 10_000, 3))
    targets = np.stack([planar(q, [1, 1, 1])[-1] for q in goals])
    starts = np.stack([planar(q, [1, 1, 1]) for q in starts])
    once = Solver(max_restarts=0, turns=0, max_cycles=cycles).solve_batch(arm, targets, starts)
    assert once.converged.mean() == pytest.approx(share, abs=0.006)  # three standard errors
    again = Solver(turns=0).solve_batch(arm, targets, starts)
    assert again.restarts.max() <= 3
    assert again.converged.mean() > 0.9998  # nearly stretched, one in 10 000 spends its budget


def test_hard_clipping_stalls_the_transpose_on_a_fifth_of_the_starts():
    rng, half = np.random.default_rng(0), np.radians(150)
    arm = Skeleton.chain([1, 1, 1], limits=[(-half, half)] * 3)
    goals, starts = rng.uniform(-half, half, (2, 600, 3))
    misses = {}
    for gain in (0.5, 0.0):
        rival = rivals.Rival("jacobian_transpose", gain=gain)
        found = [
            rival.solve(arm, planar(goal, [1, 1, 1])[-1], planar(start, [1, 1, 1]))
            for goal, start in zip(goals, starts, strict=True)
        ]
        misses[gain] = np.array([f.miss for f in found])
    assert np.mean(misses[0.5] > 1e-6) == pytest.approx(0.20, abs=0.05)  # three standard errors
    assert np.mean(misses[0.0] > 1e-6) < 0.12  # the best step is long: many leap over the forbidden arc
    stuck = misses[0.5] > 1e-2
    assert np.mean(stuck) > 0.15  # they are far off, not slow


def test_how_long_a_step_of_the_transpose_may_be():
    rng = np.random.default_rng(0)
    for length in (1.0, 250.0):  # metres, pixels
        chain = Skeleton.chain(np.full(3, length))
        for q in (np.zeros(3), *rng.uniform(-3, 3, (50, 3))):
            points = chain.pose(q)
            J = np.stack([-(points[-1, 1] - points[:-1, 1]), points[-1, 0] - points[:-1, 0]])
            values, u = np.linalg.svd(J)[1], np.linalg.svd(J)[0][:, 0]
            assert values[0] ** 2 <= (J**2).sum() * (1 + 1e-12) <= 14 * length**2 * (1 + 1e-9)
            error = 1e-6 * length * u
            for share, worse in ((1.9, False), (2.1, True)):  # of 1 / σ_max²
                dq = rivals.step("jacobian_transpose", points, points[-1] + error, share / values[0] ** 2)
                left = np.linalg.norm(points[-1] + error - chain.pose(q + dq)[-1])
                assert (left > np.linalg.norm(error)) == worse
        straight = chain.pose(np.zeros(3))
        assert np.sum((straight[-1] - straight[:-1]) ** 2) == pytest.approx(14 * length**2)


def test_near_a_singular_posture_sugihara_s_damping_leaves_the_published_factor():
    chain, q, least = Skeleton.chain([1, 1, 1]), np.array([0.3, 0.02, 0.01]), 1e-3
    points = chain.pose(q)
    J = np.stack([-(points[-1, 1] - points[:-1, 1]), points[-1, 0] - points[:-1, 0]])
    u, values, _ = np.linalg.svd(J)
    assert values[1] < 0.05
    error = 1e-7 * u[:, 1]
    dq = rivals.step("levenberg_marquardt", points, points[-1] + error, least)
    left = np.linalg.norm(points[-1] + error - chain.pose(q + dq)[-1]) / 1e-7
    assert left == pytest.approx(least / (values[1] ** 2 + least), rel=1e-4)


@pytest.mark.parametrize(("tilt", "in_line"), [(0.0, True), (3e-10, True), (1e-8, False)])
def test_a_chain_counts_as_in_line_within_a_thousand_millionth_of_its_reach(tilt, in_line):
    chain = Skeleton.chain([1, 1, 1], direction=(np.cos(tilt), np.sin(tilt)))
    found = solve(chain, (1.5, 0.0))
    assert found.converged
    assert found.was_in_line == in_line


PAGE = """
from ik_sim import fabrik
from ik_sim.fabrik import Box, Cone, Hinge, Skeleton, Solver, Sphere, solve

arm = fabrik.Skeleton.chain([3, 3, 3])
solution = fabrik.solve(arm, (3, 4))
assert solution.converged and solution.cycles == 3
assert fabrik.rivals.Rival("ccd").solve(arm, (3, 4)).converged
assert len(fabrik.rivals.two_links((65, 116), (86, 145))) == 2
space = Skeleton.chain([1, 1, 1], base=(0, 0, 0), joints=[Cone(0.5), Hinge((0, 1, 0), 0, 2), None])
assert solve(space, space.rest[-1] + [-0.2, 0.1, 0.1]).converged
assert solve(arm, (3, 4), obstacles=[Sphere((5, 0), 0.5), Box((9, 9), (1, 1))]).converged
assert Solver(rotation_cap=0.1).solve(arm, (3, 4), solution.points).converged
assert Solver().trace(arm, (3, 4)).passes[0] == "start"
assert Solver().solve_batch(arm, [(3, 4), (2, 2)], lengths=[(3, 3, 3), (2, 2, 1)]).converged.all()
import sys
assert not {"pybullet", "gymnasium", "matplotlib", "ik_sim.chain", "ik_sim.robots"} & set(sys.modules)
"""


def test_what_the_page_shows_runs_with_nothing_imported_but_the_package_itself():
    subprocess.run([sys.executable, "-W", "error", "-c", PAGE], check=True)


# --- what every answer keeps ---


@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([2, 3]))
def test_a_free_chain_reaches_every_target_in_its_ring_and_says_so_of_others(seed, n, d):
    rng = np.random.default_rng(seed)
    lengths = rng.uniform(0.1, 1.0, n)
    chain = Skeleton.chain(lengths, base=(0.0,) * d)
    least, most = chain.reach()
    direction = rng.normal(size=d)
    target = direction / np.linalg.norm(direction) * rng.uniform(0, 1.3) * most
    start = rng.normal(size=(n + 1, d))
    start[0] = 0
    before = start.copy()
    found = solve(chain, target, start)
    np.testing.assert_allclose(link_lengths(chain, found.points), lengths, rtol=1e-12)
    np.testing.assert_array_equal(found.points[0], 0)
    np.testing.assert_array_equal(start, before)
    far = np.linalg.norm(target)
    assert found.miss == pytest.approx(np.linalg.norm(found.points[-1] - target), abs=1e-12)
    if far > most + 1e-6 or far < least - 1e-6:
        assert (found.status, found.cycles) == (Status.OUT_OF_REACH, 0)
        assert found.miss == pytest.approx(max(far - most, least - far), rel=1e-9)
    elif far < 0.98 * most and far > least + 0.02 * most:
        assert found.converged, found


@given(st.integers(0, 10_000), st.integers(2, 7))
def test_planar_limits_hold_in_every_answer(seed, n):
    rng = np.random.default_rng(seed)
    centre, half = rng.uniform(-1, 1, n), rng.uniform(0, 2, n)
    arm = Skeleton.chain(rng.uniform(0.2, 1, n), limits=np.stack([centre - half, centre + half], axis=1))
    found = Solver(max_cycles=300).solve(arm, rng.uniform(-1.5, 1.5, 2), rng.normal(size=(n + 1, 2)))
    u = (found.angles - centre + np.pi) % (2 * np.pi) - np.pi
    assert np.all(np.abs(u) <= half + 1e-9)  # angles are read back from points
    np.testing.assert_allclose(link_lengths(arm, found.points), arm.length[1:], rtol=1e-12)


@given(st.integers(0, 10_000))
def test_hinges_and_cones_hold_in_every_answer(seed):
    rng = np.random.default_rng(seed)
    joints = [Cone(0.8), Hinge((0, 0, 1), -1.0, 1.5), Cone(0.4), Hinge((0, 1, 0), 0.0, 2.0)]
    arm = Skeleton.chain(rng.uniform(0.3, 1, 4), base=(0, 0, 0), joints=joints)
    found = Solver(max_cycles=400).solve(arm, rng.uniform(-1.5, 1.5, 3), rng.normal(size=(5, 3)))
    low, high = np.array([0, -1.0, 0, 0]), np.array([0.8, 1.5, 0.4, 2.0])
    assert np.all(found.angles >= low - 1e-7)
    assert np.all(found.angles <= high + 1e-7)
    first = found.points[1] - found.points[0]
    assert np.arccos(np.clip(first[0] / np.linalg.norm(first), -1, 1)) <= 0.8 + 1e-7  # the cone, seen from outside
    # A hinge leaves the plane through the link before it across its carried axis: the angle of the two is the joint's.
    a, b = found.points[2] - found.points[1], first
    between = np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))
    assert between == pytest.approx(abs(found.angles[1]), abs=1e-6)


def test_one_hinge_turns_in_its_own_plane():
    arm = Skeleton.chain([1.0], base=(0, 0, 0), joints=[Hinge((0, 0, 1), -0.5, 0.5)])
    found = solve(arm, (0.0, 0.3, 0.9))
    np.testing.assert_allclose(found.points[1], [np.cos(0.5), np.sin(0.5), 0.0], atol=1e-12)
    assert found.status is Status.OUT_OF_REACH  # a single link reaches only its own sphere


def test_a_hinged_finger_reaches_what_its_hinges_allow():
    joints = [Hinge((0, 0, 1), 0.0, 1.6)] * 3
    finger = Skeleton.chain([0.5, 0.3, 0.2], base=(0, 0, 0), joints=joints)
    rng = np.random.default_rng(3)
    for _ in range(50):
        q = np.cumsum(rng.uniform(0.1, 1.5, 3))
        target = np.r_[(np.array([0.5, 0.3, 0.2]) * np.array([np.cos(q), np.sin(q)])).sum(axis=1), 0.0]
        found = solve(finger, target)
        assert found.converged, found
        assert np.all((found.angles >= -1e-7) & (found.angles <= 1.6 + 1e-7))


def test_restarts_find_every_target_that_a_limited_arm_can_reach():
    rng = np.random.default_rng(0)
    arm = Skeleton.chain([1, 1, 1], limits=np.radians([[-150, 150]] * 3))
    targets = np.stack([planar(q, [1, 1, 1])[-1] for q in np.radians(rng.uniform(-150, 150, (1000, 3)))])
    starts = np.stack([planar(q, [1, 1, 1]) for q in np.radians(rng.uniform(-150, 150, (1000, 3)))])
    single = Solver(max_restarts=0, turns=0).solve_batch(arm, targets, starts)
    assert 0.9 < single.converged.mean() < 0.99  # it stalls, as limited FABRIK does
    restarted = Solver(turns=0).solve_batch(arm, targets, starts)
    assert restarted.restarts.max() <= 3  # four starts at most
    assert restarted.converged.all(), [s.reason for s in restarted if not s.converged]


def test_a_rotation_cap_bounds_what_a_link_turns_in_a_cycle():
    rng = np.random.default_rng(1)
    arm = Skeleton.chain([1, 1, 1, 1])
    trace = Solver(rotation_cap=0.05, max_cycles=40).trace(arm, (-1.0, 2.0), planar(rng.normal(size=4), np.ones(4)))
    kept = trace.points[[name in ("start", "forward") for name in trace.passes]]
    links = np.diff(kept, axis=1)
    turned = np.arccos(np.clip((links[1:] * links[:-1]).sum(axis=2), -1, 1))
    assert turned.max() <= 0.05 + 1e-7
    assert turned.max() > 0.04


# --- deadlock, reach, degenerate input ---


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, -0.5])
def test_a_straight_chain_leaves_the_line_of_its_target(d, share):
    chain = Skeleton.chain([1, 1, 1], base=(0.0,) * d)
    target = np.eye(d)[0] * 3 * share
    found = solve(chain, target)
    assert found.converged
    assert found.was_in_line
    stuck = Solver(bend=0.0, max_restarts=0, max_cycles=500).solve(chain, target)
    assert not stuck.converged
    assert np.abs(stuck.points[:, 1:]).max() == 0.0  # without the cure it stays on the line
    assert "in line" in stuck.reason or "cycles" in stuck.reason


def test_a_straight_tree_leaves_its_line_too():
    tree = Skeleton.tree([(0, 0), (1, 0), (2, 0), (3, 0), (2, 1)], [-1, 0, 1, 2, 2])
    found = solve(tree, [(1.2, 0), (1.5, 0.8)])
    assert found.converged
    assert found.was_in_line


@pytest.mark.parametrize("d", [2, 3])
def test_out_of_reach_outside_stretches_without_iterating(d):
    chain = Skeleton.chain([1, 2, 1], base=np.ones(d))
    direction = np.arange(1, d + 1) / np.linalg.norm(np.arange(1, d + 1))
    found = solve(chain, 1 + 5 * direction)
    assert (found.status, found.cycles) == (Status.OUT_OF_REACH, 0)
    assert found.miss == pytest.approx(1.0)
    np.testing.assert_allclose(found.points[-1], 1 + 4 * direction, atol=1e-12)
    assert "1 beyond the 4" in found.reason


def test_three_equal_links_reach_their_own_root():
    assert Skeleton.chain([1, 1, 1]).reach() == (0.0, 3.0)
    assert solve(Skeleton.chain([1, 1, 1]), (0, 0)).converged


def test_zero_length_links_and_coincident_points_are_harmless():
    chain = Skeleton.chain([1, 0, 1, 0])
    for start in (None, np.zeros((5, 2))):
        found = solve(chain, (0.5, 1.0), start)
        assert found.converged
        np.testing.assert_allclose(link_lengths(chain, found.points), [1, 0, 1, 0], atol=1e-12)
    limited = Skeleton.chain([1, 0, 1], limits=[(-3, 3)] * 3)
    assert solve(limited, (0.5, 1.0), np.zeros((4, 2))).converged


def test_misuse_is_answered_in_words():
    chain = Skeleton.chain([1, 1])
    for call, words in (
        (lambda: solve(chain, (np.nan, 0)), "target 0 is"),
        (lambda: solve(chain, (1, 2, 3)), "wanted numbers of shape"),
        (lambda: solve(chain, (1, 1), [[0, 0], [np.inf, 0], [1, 1]]), "point 1 is"),
        (lambda: solve(chain, (1, 1), [[0, 0]]), "wanted \\(3, 2\\)"),
        (lambda: Skeleton.chain([1, -1]), "none negative"),
        (lambda: Skeleton.chain([1, np.nan]), "must be numbers"),
        (lambda: Skeleton.chain([]), "must be numbers"),
        (lambda: Skeleton.chain([1, 1], limits=[(1, -1), (0, 1)]), "lower first"),
        (lambda: Skeleton.chain([1, 1], limits=[(-1, 1)]), "wanted \\(2, 2\\)"),
        (lambda: Skeleton.chain([1], joints=[Hinge((0, 0, 1))]), "belongs to space"),
        (lambda: Skeleton.chain([1], base=(0, 0, 0), joints=[Arc(0, 1)]), "belongs to the plane"),
        (lambda: Skeleton.tree([(0, 0), (1, 0)], [-1, 1]), "one before it"),
        (lambda: Skeleton.tree([(0, 0), (1, 0)], [-1, 0], effectors=[2]), "must name points"),
        (lambda: Solver(tolerance=0.0), "must be positive"),
        (lambda: solve(chain, (1, 1), obstacles=[Sphere((0, 0), -1)]), "radius must be positive"),
        (lambda: Solver().solve_batch(chain, [[1, 1], [np.nan, 1]]), "row 1"),
        (lambda: Solver().solve_batch(chain, [[1, 1]], lengths=[[1, 1, 1]]), "wanted \\(1, 2\\)"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            call()
    with pytest.raises(UnknownNameError, match="did you mean"):
        rivals.Rival("cdd").solve(chain, (1, 1))  # type: ignore[arg-type]
    assert issubclass(InvalidArgumentError, IkSimError)


# --- trees, loops, obstacles ---


def test_weights_decide_who_gives_way():
    points, parent = [(0, 0), (0, 1), (1, 2), (-1, 2)], [-1, 0, 1, 1]
    targets = [(2.5, 1.0), (-2.5, 1.0)]
    even = solve(Skeleton.tree(points, parent), targets)
    tilted = solve(Skeleton.tree(points, parent, weights=[9, 1]), targets)
    assert even.misses[0] == pytest.approx(even.misses[1], rel=1e-3)
    assert tilted.misses[0] < 0.7 * tilted.misses[1]
    assert even.status is Status.OUT_OF_REACH or even.status is Status.STALLED


def spider(legs=6):
    points, parent = [(0.0, 0.0, 0.0)], [-1]
    for k in range(legs):
        a = 2 * np.pi * k / legs
        for j, (r, z) in enumerate(((0.3, 0.0), (0.9, 0.5), (1.5, -0.2))):
            points.append((r * np.cos(a), r * np.sin(a), z))
            parent.append(0 if j == 0 else len(points) - 2)
    return Skeleton.tree(points, parent)


def test_a_spider_puts_every_foot_where_it_is_wanted():
    rig = spider()
    rng = np.random.default_rng(0)
    feet = rig.rest[list(rig.effectors)]
    for _ in range(20):
        found = solve(rig, feet + rng.uniform(-0.2, 0.2, feet.shape))
        assert found.converged, found
        np.testing.assert_allclose(link_lengths(rig, found.points), rig.length[1:], rtol=1e-12)


def test_a_four_bar_linkage_closes():
    # Ground 0 to 3 units along x; crank 1, coupler 3, rocker 2. The coupler's end is pinned; the crank follows.
    rig = Skeleton.tree([(0, 0), (0, 1), (3, 1.6), (3.2, 0.0)], [-1, 0, 1, 2], effectors=[1, 3])
    a, b, c = rig.length[1:]
    for angle in np.linspace(0.5, 2.5, 9):
        crank = a * np.array([np.cos(angle), np.sin(angle)])
        found = Solver(tolerance=1e-8).solve(rig, [crank, (3.2, 0.0)])
        assert found.converged, found
        joint = found.points[2]
        assert np.linalg.norm(joint - crank) == pytest.approx(b, abs=1e-7)
        assert np.linalg.norm(joint - [3.2, 0.0]) == pytest.approx(c, abs=1e-7)


def test_a_loop_between_two_limbs_stays_closed():
    points = [(0, 0), (1, 1), (2, 0.5), (1, -1), (2, -0.5), (2.5, -0.5)]
    rig = Skeleton.tree(points, [-1, 0, 1, 0, 3, 4], effectors=[5], loops=[(2, 4, 1.0)])
    found = solve(rig, (2.2, 0.4))
    assert found.converged, found
    assert np.linalg.norm(found.points[2] - found.points[4]) == pytest.approx(1.0, abs=2e-6)


def clearance(points, parent, shape):
    """Least distance of any link from the shape, by dense sampling, apart from the solver's own geometry."""
    s = np.linspace(0, 1, 400)[:, None]
    least = np.inf
    for i in range(1, len(points)):
        samples = points[parent[i]] + s * (points[i] - points[parent[i]])
        local = samples - np.asarray(shape.centre)
        if isinstance(shape, Sphere):
            d = np.linalg.norm(local, axis=1) - shape.radius
        else:
            q = np.abs(local) - np.asarray(shape.half_sizes)
            d = np.linalg.norm(np.maximum(q, 0), axis=1) + np.minimum(q.max(axis=1), 0)
        least = min(least, d.min())
    return least


@pytest.mark.parametrize(
    "shape",
    [
        Sphere((1.2, 0.35), 0.4),
        Box((1.2, 0.3), (0.3, 0.35)),
        Sphere((1.2, 0.3, 0.1), 0.4),
        Box((1.2, 0.25, 0.0), (0.3, 0.3, 0.5)),
    ],
    ids=["disc", "rectangle", "ball", "box"],
)
def test_links_keep_clear_of_an_obstacle_in_their_way(shape):
    d = len(shape.centre)
    chain = Skeleton.chain(np.full(5, 0.6), base=(0.0,) * d)
    target = np.zeros(d)
    target[:2] = 2.1, 0.9
    blind = solve(chain, target)
    assert clearance(blind.points, chain.parent, shape) < 0  # it is in the way
    found = solve(chain, target, obstacles=[shape])
    assert found.converged, found
    assert clearance(found.points, chain.parent, shape) >= -2e-6  # the tolerance, and the sampling's own
    np.testing.assert_allclose(link_lengths(chain, found.points), 0.6, rtol=1e-12)


def test_a_target_inside_an_obstacle_is_called_obstructed():
    chain = Skeleton.chain([1, 1])
    found = Solver(max_restarts=2).solve(chain, (1.2, 0.5), obstacles=[Sphere((1.2, 0.5), 0.2)])
    assert found.status is Status.OBSTRUCTED
    assert "0.2 inside obstacle 0" in found.reason


def test_thick_links_keep_their_surface_clear():
    chain = Skeleton.chain(np.full(5, 0.6), thickness=0.1)
    shape = Sphere((1.2, 0.35), 0.3)
    found = solve(chain, (2.1, 0.9), obstacles=[shape])
    assert found.converged
    assert clearance(found.points, chain.parent, shape) >= 0.1 - 2e-6


# --- repeatability, batches, speed ---


def test_same_input_same_bits_singly_and_in_batches_on_any_number_of_threads():
    rng = np.random.default_rng(5)
    arm = Skeleton.chain([1, 0.7, 0.5], limits=np.radians([[-120, 120]] * 3))
    targets = rng.uniform(-1.5, 1.5, (300, 2))
    one = Solver().solve_batch(arm, targets, threads=1)
    two = Solver().solve_batch(arm, targets, threads=2)
    np.testing.assert_array_equal(one.points, two.points)
    for i in range(0, 300, 37):
        np.testing.assert_array_equal(solve(arm, targets[i]).points, one.points[i])
        assert one[i].reason == two[i].reason


def test_a_batch_takes_each_row_with_its_own_lengths():
    rng = np.random.default_rng(6)
    lengths = rng.uniform(0.2, 1, (100, 3))
    batch = Solver().solve_batch(Skeleton.chain([1, 1, 1]), rng.uniform(-0.8, 0.8, (100, 2)), lengths=lengths)
    np.testing.assert_allclose(np.linalg.norm(np.diff(batch.points, axis=1), axis=2), lengths, rtol=1e-12)


def test_a_warm_start_costs_fewer_cycles_than_the_rest_pose():
    chain = Skeleton.chain(np.full(8, 0.2))
    path = [(1.0 + 0.2 * np.cos(t), 0.4 * np.sin(t)) for t in np.linspace(0, 2, 60)]
    cold = sum(solve(chain, target).cycles for target in path)
    warm, points = 0, None
    for target in path:
        found = solve(chain, target, points)
        warm, points = warm + found.cycles, found.points
    assert warm < cold


def test_a_cycle_places_every_link_twice_whatever_the_number_of_links():
    for n in (3, 10, 100, 1000, 10_000, 100_000):
        found = Solver(max_cycles=3, tolerance=1e-12).solve(Skeleton.chain(np.full(n, 1 / n)), (0.3, 0.6))
        assert found.links_placed == 2 * n * found.cycles
        assert found.cycles == 3


def test_the_trace_shows_both_passes_of_every_cycle():
    chain = Skeleton.chain([3, 3, 3])
    trace = Solver().trace(chain, (3, 4))
    assert trace.passes == ("start", *("backward", "forward") * 3)
    np.testing.assert_array_equal(trace.points[1, -1], [3, 4])  # backward begins at the target
    np.testing.assert_array_equal(trace.points[2, 0], [0, 0])  # forward at the root
    np.testing.assert_array_equal(trace.points[-1], trace.solution.points)


def test_the_best_iterate_is_kept():
    arm = Skeleton.chain([1, 1, 1], limits=np.radians([[-40, 40]] * 3))
    trace = Solver(max_restarts=0, turns=0).trace(arm, (-0.5, 0.5))
    forward = trace.misses[[name in ("start", "forward", "bend") for name in trace.passes]]
    assert trace.solution.miss == pytest.approx(forward.min(), abs=1e-12)
    assert trace.solution.status is Status.JOINT_LIMITS
    assert "limit" in trace.solution.reason


@pytest.mark.parametrize("method", rivals.METHODS)
@pytest.mark.parametrize("d", [2, 3])
def test_every_rival_reaches_most_targets_on_the_same_chain(method, d):
    rng = np.random.default_rng(2)
    chain, arrived = Skeleton.chain(np.full(5, 0.3), base=(0.0,) * d), 0
    for _ in range(25):
        target = rng.normal(size=d)
        target *= rng.uniform(0.3, 1.2) / np.linalg.norm(target)
        start = np.vstack([np.zeros(d), rng.normal(size=(5, d))])
        found = rivals.Rival(method).solve(chain, target, start)
        np.testing.assert_allclose(link_lengths(chain, found.points), 0.3, rtol=1e-9)
        assert found.miss == pytest.approx(np.linalg.norm(found.points[-1] - target), abs=1e-12)
        arrived += found.converged
    assert arrived >= 24


@pytest.mark.parametrize("method", rivals.METHODS)
def test_rivals_keep_planar_limits(method):
    rng = np.random.default_rng(4)
    arm = Skeleton.chain([1, 1, 1], limits=[(-0.8, 0.8)] * 3)
    for _ in range(10):
        found = rivals.Rival(method, max_cycles=100).solve(arm, rng.uniform(-2, 2, 2))
        assert np.all(np.abs(found.angles) <= 0.8 + 1e-9)


def test_three_links_with_a_heading_have_a_closed_form():
    pair = rivals.three_links((1, 1, 0.5), (1.2, 0.8), 0.4)
    assert len(pair) == 2
    for q in pair:
        points = planar(q, [1, 1, 0.5])
        np.testing.assert_allclose(points[-1], [1.2, 0.8], atol=1e-12)
        assert q.sum() == pytest.approx(0.4)
