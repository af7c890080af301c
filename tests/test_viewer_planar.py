"""The planar bench: its numbers against published ones and against the solvers', and what its pictures hold."""

from __future__ import annotations

import itertools
import json
import math
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ik_sim import Target, load_solver
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.fabrik import Arc, Skeleton, Solver
from ik_sim.fabrik.rivals import Rival
from ik_sim.viewer import planar
from ik_sim.viewer import state as lab_state
from ik_sim.viewer.planar import METHODS, MODELS, Bench, PlanarLab
from ik_sim.viewer.planar_frame import (
    Area,
    Arrow,
    Circle,
    Dot,
    Label,
    Line,
    best_columns,
    dashes,
    frame,
    matrix_text,
    read_outs,
    svg,
)
from ik_sim.viewer.planar_lessons import LESSONS
from ik_sim.viewer.planar_reach import RINGS, ReachGrid
from ik_sim.viewer.server import LabServer

START, TARGET = [0.3, -0.5, 0.8], [1.2, 1.5]
DEGREE = math.pi / 180
ALL = tuple(METHODS)
PATIENCE = 180.0  # [s] a first page may wait for kernels to be compiled
LIMITS = ((-90 * DEGREE, 90 * DEGREE), (-60 * DEGREE, 60 * DEGREE), (-60 * DEGREE, 60 * DEGREE))


def bench(*, start: Any = START, targets: Any = TARGET, method: str = "fabrik", **settings: Any) -> PlanarLab:
    shown = settings.pop("shown", (method,))
    return PlanarLab(Bench(method=method, shown=shown, **settings), start, targets)  # type: ignore[arg-type]


def asked_for(lab: PlanarLab) -> np.ndarray:
    step = lab.joint_step()
    assert step is not None
    return step


def steps(lab: PlanarLab, count: int) -> PlanarLab:
    for _ in range(count):
        lab.step()
    return lab


# --- numbers known from elsewhere ---


def test_one_cycle_of_fabrik_is_two_steps_and_lands_on_the_published_points():
    lab = steps(bench(), 1)
    assert lab.phase() == "backward"
    np.testing.assert_allclose(lab.points()[-1], TARGET, atol=1e-12)
    assert np.linalg.norm(lab.points()[0]) > 0.1  # the root has left its place
    lab.step()
    assert lab.phase() == "forward"
    assert lab.iteration() == 1
    np.testing.assert_allclose(
        lab.points()[1:],
        [[0.965079750343, 0.261956247258], [1.858095639294, 0.711981382201], [1.217099099903, 1.479525150652]],
        atol=1e-11,
    )


@pytest.mark.parametrize(
    ("method", "settings", "change"),
    [
        ("damped_least_squares", {"damping": 0.1, "clamp": 0.0}, [-0.194193134873, -0.738076373390, 3.307541058537]),
        ("damped_least_squares", {"damping": 0.5, "clamp": 0.0}, [0.099669001624, -0.158643898743, 1.262523537112]),
        ("selectively_damped", {}, [0.254617567909, 0.136104136570, 0.243575369918]),
        ("levenberg_marquardt", {}, [0.207374231311, 0.084742189091, 0.342175033907]),
        ("ccd", {}, [0.405746417730 - 0.3, -0.056377350556 + 0.5, 2.253544581419 - 0.8]),
    ],
)
def test_one_step_of_each_method_turns_the_joints_as_published(method, settings, change):
    lab = steps(bench(method=method, **settings), 1)
    turned = lab.angles() - START
    np.testing.assert_allclose((turned - change + math.pi) % (2 * math.pi) - math.pi, 0, atol=1e-11)


@pytest.mark.parametrize("alpha", [0.05, 1.0, 2.0])
def test_the_gain_of_the_transpose_counts_in_the_square_of_the_largest_singular_value(alpha):
    lab = bench(method="jacobian_transpose", alpha=alpha)
    J = lab.jacobian()
    e = np.array(TARGET) - lab.points()[-1]
    asked = alpha * J.T @ e / np.linalg.norm(J, 2) ** 2
    np.testing.assert_allclose(asked_for(lab), asked, rtol=1e-12)
    lab.step()
    np.testing.assert_allclose(lab.angles() - START, asked, rtol=1e-9)


@pytest.mark.parametrize(("share", "cycles"), [(0.9, 17), (0.99, 152)])
def test_fabrik_near_the_stretch_takes_as_many_cycles_as_published(share, cycles):
    target = share * np.array([math.cos(0.7), math.sin(0.7)])
    lab = bench(start=[0, 0, 0], targets=target, lengths=(1 / 3,) * 3, tolerance=1e-6)
    lab.solve()
    assert (lab.status(), lab.iteration()) == ("reached", cycles)


def test_a_target_inside_the_inner_circle_is_clamped_to_it_and_the_arm_folds_as_published():
    lab = bench(start=[0.3, 0.2, 0.1], targets=[0.4, 0.3], lengths=(2.0, 0.5, 0.5))
    assert lab.reach() == (1.0, 3.0)
    lab.solve()
    np.testing.assert_allclose(lab.points()[1:], [[1.6, 1.2], [1.2, 0.9], [0.8, 0.6]], atol=1e-9)
    assert lab.status() == "unreachable"
    assert "0.500 inside the inner circle of 1.000" in lab.message()


def test_three_equal_links_leave_no_hole():
    assert bench().reach() == (0.0, 3.0)
    assert [c.radius for c in frame(bench()).panels[0].of(Circle, "reach")] == [3.0]


def test_limits_hold_after_every_cycle_and_the_published_angles_are_found():
    lab = bench(start=[0.1, 0.2, 0.1], targets=[0.8, 1.9], limits=LIMITS, tolerance=1e-9)
    steps(lab, 2)
    np.testing.assert_allclose(lab.angles(), [0.173643083736, 0.971950656746, 1.047197551197], atol=1e-11)
    assert lab.misses()[0] == pytest.approx(0.015230345195, abs=1e-11)
    lab.solve()
    np.testing.assert_allclose(lab.angles() / DEGREE, [10.23921, 55.86142, 60], atol=1e-5)


def test_the_sub_base_of_a_tree_goes_to_the_mean_of_what_its_limbs_propose():
    lab = PlanarLab(Bench(model="tree", lengths=(0.7, 0.7), trunk=(1.0, 1.0), limbs=2), None, [[1.5, 2.5], [-1, 3]])
    lab.step()
    before, after = lab.run().points[0], lab.points()
    proposals = []
    for child in (3, 5):
        way = before[2] - after[child]
        proposals.append(after[child] + 0.7 * way / np.linalg.norm(way))
    np.testing.assert_allclose(after[2], np.mean(proposals, axis=0), atol=1e-12)
    rings = frame(lab).panels[0].of(Dot, "construction")
    np.testing.assert_allclose(sorted(d.centre for d in rings), sorted(map(tuple, proposals)), atol=1e-12)


# --- against the solvers themselves ---


def test_stepping_gives_the_iterates_of_the_solver_and_solving_stops_where_it_stops():
    arm, lab = Skeleton.chain([1, 1, 1]), bench(tolerance=1e-9)
    trace = Solver(tolerance=1e-9).trace(arm, TARGET, arm.pose(START))
    for row in range(1, len(trace.passes)):
        lab.step()
        assert lab.phase() == trace.passes[row]
        np.testing.assert_allclose(lab.points(), trace.points[row], atol=1e-12)
    lab.rewind()
    lab.solve()
    assert (lab.status(), lab.iteration()) == ("reached", trace.solution.cycles)
    np.testing.assert_allclose(lab.points(), trace.solution.points, atol=1e-12)


@pytest.mark.parametrize("method", ["damped_least_squares", "ccd", "selectively_damped", "levenberg_marquardt"])
def test_the_other_methods_make_the_steps_of_the_same_method_elsewhere(method):
    arm, lab = Skeleton.chain([1, 1, 1]), bench(method=method, shown=(method,))
    path = Rival(method, tolerance=1e-4).path(arm, TARGET, arm.pose(START))
    lab.solve()
    assert lab.iteration() == len(path) - 1
    np.testing.assert_allclose(lab.points(), path[-1], atol=1e-9)


def test_the_closed_form_gives_both_elbows_and_takes_the_nearer_one():
    lab = bench(start=[1.4, -1.2], targets=[1.1, 0.6], lengths=(1.0, 1.0), method="closed_form")
    lab.step()
    assert lab.status() == "reached"
    other, wrong = lab.run().other[0]
    assert not wrong
    for points, bends in ((lab.points(), -1), (other, 1)):
        np.testing.assert_allclose(points[-1], [1.1, 0.6], atol=1e-12)
        assert np.sign(Skeleton.chain([1, 1]).angles(points)[2]) == bends
    solution = load_solver("closed_form").solve(lab.chain, Target.point([1.1, 0.6, 0.0]), [1.4, -1.2])
    np.testing.assert_allclose(lab.angles(), solution.q, atol=1e-9)
    dashed = [line for line in frame(lab).panels[0].of(Line, "other") if line.dashed]
    np.testing.assert_allclose(dashed[0].points, other)


@pytest.mark.parametrize("heading", [None, 0.2, -1.0, 3.0])
def test_three_links_keep_the_heading_that_is_asked_for_or_take_the_nearest_one_that_reaches(heading):
    lab = bench(targets=[2.2, 1.2], method="closed_form", heading=heading)
    lab.step()
    np.testing.assert_allclose(lab.points()[-1], [2.2, 1.2], atol=1e-9)
    last = lab.points()[3] - lab.points()[2]
    used = math.atan2(last[1], last[0])
    assert used == pytest.approx(lab.used_heading(), abs=1e-9)
    wished = 0.6 if heading is None else heading  # the sum of the angles at the start
    reaches = [
        phi for phi in np.linspace(-math.pi, math.pi, 2001) if np.hypot(2.2 - math.cos(phi), 1.2 - math.sin(phi)) <= 2.0
    ]
    nearest = min(abs((phi - wished + math.pi) % (2 * math.pi) - math.pi) for phi in reaches)
    assert abs((used - wished + math.pi) % (2 * math.pi) - math.pi) == pytest.approx(
        nearest, abs=4e-3
    )  # the grid's width


def test_jacobian_and_frames_are_those_of_the_chain():
    lab = bench(method="damped_least_squares")
    J = lab.jacobian()
    np.testing.assert_allclose(J, planar.jacobian_columns(lab.points()), atol=1e-12)
    np.testing.assert_allclose(lab.damped(), J @ J.T + 0.01 * np.eye(2))
    product = np.linalg.multi_dot(lab.factors())
    np.testing.assert_allclose(product, lab.chain.fk(lab.angles()), atol=1e-12)
    np.testing.assert_allclose(product[:2, 3], lab.points()[-1], atol=1e-12)


# --- how it behaves ---


def test_every_method_starts_from_the_same_points_and_reaches_the_target():
    lab = bench(shown=ALL)
    for method in ALL:
        np.testing.assert_array_equal(lab.points(method), lab.start)
    lab.solve()
    assert {lab.status(method) for method in ALL} == {"reached"}
    for method in ALL:
        assert np.linalg.norm(lab.points(method)[-1] - TARGET) <= 1e-4
        iterations, left = lab.curve(method)
        assert iterations[-1] == lab.iteration(method)
        assert left[0] == pytest.approx(np.linalg.norm(lab.start[-1] - TARGET))
        assert left[-1] <= 1e-4


def test_a_step_back_is_the_state_before_and_forward_again_the_same():
    lab = steps(bench(shown=("fabrik", "ccd")), 3)
    now = [lab.points(m).copy() for m in ("fabrik", "ccd")]
    lab.step()
    lab.back()
    for points, method in zip(now, ("fabrik", "ccd"), strict=True):
        np.testing.assert_array_equal(points, lab.points(method))
    for _ in range(20):
        lab.back()
    np.testing.assert_array_equal(lab.points(), lab.start)


def test_a_knob_turned_midway_replays_the_same_number_of_steps():
    lab = steps(bench(method="jacobian_transpose", alpha=0.5), 7)
    lab.set(alpha=1.2)
    assert lab.iteration() == 7
    np.testing.assert_array_equal(lab.points(), steps(bench(method="jacobian_transpose", alpha=1.2), 7).points())


def test_a_new_target_starts_all_methods_from_where_the_chosen_one_stands():
    lab = steps(bench(shown=("fabrik", "ccd"), follow=False), 3)
    here = lab.pose().copy()
    lab.set_target([-1.0, 1.0])
    assert not lab.running
    for method in ("fabrik", "ccd"):
        np.testing.assert_array_equal(lab.points(method), here)
        assert lab.iteration(method) == 0
    lab.set(follow=True)
    lab.set_target([-1.0, 1.2])
    assert lab.running
    for _ in range(200):
        lab.tick()
    assert not lab.running
    assert lab.status() == "reached"


def test_pause_holds_and_reset_brings_back_start_and_target():
    lab = bench(shown=("fabrik",))
    lab.play()
    assert lab.tick()
    lab.pause()
    assert not lab.tick()
    lab.set_target([0.5, 0.5])
    lab.reset()
    np.testing.assert_allclose(lab.targets, [TARGET])
    np.testing.assert_allclose(lab.angles(), START, atol=1e-12)
    assert lab.iteration() == 0


def test_iterations_a_frame_are_what_one_tick_makes():
    lab = bench(method="jacobian_transpose", iterations_per_frame=7)
    lab.play()
    lab.tick()
    assert lab.iteration() == 7
    whole = bench(iterations_per_frame=2)
    whole.play()
    whole.tick()
    assert (whole.iteration(), whole.phase()) == (2, "forward")


def test_the_rotation_cap_bounds_what_a_link_turns_in_a_cycle():
    lab = bench(rotation_cap=0.05)
    for _ in range(6):
        before = lab.pose().copy()
        steps(lab, 2)
        links = [np.diff(p, axis=0) for p in (before, lab.points())]
        turned = np.arccos(np.clip((links[0] * links[1]).sum(axis=1), -1, 1))
        assert turned.max() <= 0.05 + 1e-9
        assert turned.max() > 0.04


def test_a_target_beyond_the_reach_is_clamped_and_said_so_in_red_for_every_method():
    lab = bench(targets=[2.5, 2.5], shown=ALL, budget=300)
    lab.solve()
    assert {lab.status(method) for method in ALL} == {"unreachable"}
    far = math.hypot(2.5, 2.5)
    np.testing.assert_allclose(lab.goals[0], 3.0 * np.array([2.5, 2.5]) / far)
    assert f"{far - 3:.3f} beyond the outer circle of 3.000" in lab.message()
    np.testing.assert_allclose(lab.points("fabrik")[-1], lab.goals[0], atol=1e-9)
    panel = frame(lab).panels[0]
    assert panel.role == "unreachable"
    assert any("clamped" in label.text for label in panel.of(Label, "unreachable"))


def test_limits_that_exclude_a_target_are_named_and_the_region_is_drawn():
    lab = PlanarLab.from_dict(LESSONS["limits"].state)
    assert lab.outside_limits()
    lab.solve()
    assert lab.status() == "unreachable"
    assert "outside the region that the joint limits leave" in lab.message()
    panel = frame(lab).panels[0]
    assert len(panel.of(Area)) == 1
    assert len(panel.of(Line, "limit")) == 3
    assert lab.chain.within_limits(lab.angles(), 1e-9)
    lab.set(**LESSONS["limits"].cure_settings)
    lab.rewind()
    lab.solve()
    assert lab.status() == "reached"


def test_a_chain_in_line_with_its_target_stands_still_until_it_is_bent():
    lab = PlanarLab.from_dict(LESSONS["deadlock"].state)
    lab.solve()
    assert lab.status() == "stalled"
    assert "in line with the target" in lab.message()
    assert np.abs(lab.points()[:, 1]).max() == 0.0
    lab.set(**LESSONS["deadlock"].cure_settings)
    lab.rewind()
    lab.solve()
    assert lab.run().phases[1] == "bend"
    assert lab.status() == "reached"


def test_without_damping_a_straight_arm_is_asked_for_many_turns_and_with_it_for_a_fraction_of_one():
    lab = PlanarLab.from_dict(LESSONS["blow_up"].state)
    wild = np.abs(asked_for(lab)).max()
    assert wild > 2 * 2 * math.pi
    lab.set(**LESSONS["blow_up"].cure_settings)
    e = np.linalg.norm(lab.goals[0] - lab.points()[-1])
    assert np.linalg.norm(asked_for(lab)) <= e / (2 * 0.2) + 1e-12
    assert np.abs(asked_for(lab)).max() < 0.01 * wild


def test_the_branch_flips_where_the_limit_ends_it():
    lesson = LESSONS["flip"]
    lab = PlanarLab.from_dict(lesson.state)
    jumps, angles = [], None
    for stop in lesson.tour:
        lab.set_target(stop)
        lab.solve()
        assert lab.status() == "reached"
        assert lab.chain.within_limits(lab.angles(), 1e-9)
        if angles is not None:
            jumps.append(float(np.abs(lab.angles() - angles).max()))
        angles = lab.angles()
    assert max(jumps) == pytest.approx(182.3 * DEGREE, abs=0.5 * DEGREE)  # twice the bend 2 acos 0.7: −δ to δ
    assert sorted(jumps)[-2] < 30 * DEGREE
    assert lab.run().other[0][1].startswith("joint 1 would be")


def test_a_gain_of_two_swings_for_ever_and_a_gain_of_one_arrives():
    lab = PlanarLab.from_dict(LESSONS["gain"].state)
    lab.solve()
    assert (lab.status(), lab.iteration()) == ("solving", 300)
    assert "The budget of 300 iterations is spent" in lab.message()
    tips = [points[-1] for points in lab.run().points[-3:]]
    assert np.linalg.norm(tips[2] - tips[1]) > 100 * np.linalg.norm(tips[2] - tips[0])  # from side to side
    lab.set(**LESSONS["gain"].cure_settings)
    lab.rewind()
    lab.solve()
    assert lab.status() == "reached"


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_loads_can_be_drawn_and_solves_to_an_end(name):
    lesson = LESSONS[name]
    lab = PlanarLab.from_dict(lesson.state)
    lab.solve()
    assert all(lab.over(method) for method in lab.bench.shown)
    assert lab.message()
    ET.fromstring(svg(frame(lab)))
    for stop in lesson.tour:
        lab.set_target(stop)


@pytest.mark.parametrize("model", ["double", "spider", "tree"])
def test_models_with_limbs_follow_a_target_each_and_other_methods_say_that_they_cannot(model):
    lab = PlanarLab(Bench(model=model, lengths=(0.7, 0.7), limbs=3, shown=("fabrik", "ccd"), follow=False))
    for k, tip in enumerate(lab.targets.copy()):
        lab.set_target(0.8 * tip + [0.05 * k, -0.05], k)
    lab.solve()
    assert lab.status("fabrik") == "reached"
    assert (lab.misses("fabrik") <= 1e-4).all()
    assert lab.status("ccd") == "unsupported"
    assert "only FABRIK" in lab.message("ccd")
    assert len(frame(lab).panels) == 2


def test_a_click_moves_the_target_that_is_nearest():
    lab = PlanarLab(Bench(model="double", lengths=(1.0, 1.0)))
    first, second = lab.targets.copy()
    lab.set_target(second + np.array([0.1, 0.0]))
    np.testing.assert_array_equal(lab.targets, [first, second + np.array([0.1, 0.0])])


def test_links_are_changed_one_by_one_all_at_once_and_in_number():
    lab = bench()
    lab.set_length(1, 0.5)
    assert lab.bench.lengths == (1.0, 0.5, 1.0)
    np.testing.assert_allclose(lab.angles(), START, atol=1e-12)  # the posture stays
    lab.set_all_lengths(0.8)
    assert lab.bench.lengths == (0.8, 0.8, 0.8)
    lab.set_links(5)
    assert lab.bench.lengths == (0.8,) * 5
    lab.set_links(2)
    np.testing.assert_allclose(lab.angles(), START[:2], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(np.diff(lab.points(), axis=0), axis=1), 0.8)


def test_closed_forms_say_that_four_links_are_too_many():
    lab = bench(method="closed_form")
    lab.set_links(4)
    assert lab.status() == "unsupported"
    assert "two and three links" in lab.message()


def test_an_error_of_a_solver_becomes_a_message(monkeypatch):
    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    lab = bench(shown=("fabrik", "ccd"))
    monkeypatch.setattr(planar.Solver, "trace", breaks)
    lab.step()
    assert lab.status("fabrik") == "failed"
    assert "planted" in lab.message("fabrik")
    assert lab.status("ccd") == "solving"
    assert lab.iteration("ccd") == 1


def test_sixty_moves_of_the_target_cost_less_than_a_second_of_work():
    import time

    lab = bench(shown=("fabrik", "damped_least_squares", "ccd"))
    lab.tick()
    start = time.process_time()
    for i in range(60):
        lab.set_target([1.2 + 0.01 * i, 1.0])
        lab.tick()
        lab.message()
    assert time.process_time() - start < 1.0


# --- keeping ---


@pytest.mark.parametrize("name", LESSONS)
def test_a_bench_comes_back_from_its_own_description_to_the_last_bit(name):
    lab = PlanarLab.from_dict(LESSONS[name].state)
    steps(lab, 3)
    again = PlanarLab.from_dict(json.loads(json.dumps(lab.to_dict())))
    assert again.bench == lab.bench
    for method in lab.bench.shown:
        np.testing.assert_array_equal(again.points(method), lab.points(method))
        assert again.message(method) == lab.message(method)
    lab.reset()
    again.reset()
    np.testing.assert_array_equal(again.points(), lab.points())
    assert again.to_dict() == lab.to_dict()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"bench": {"alpha": 3.0}}, "alpha"),
        ({"bench": {"alpha": float("nan")}}, "alpha"),
        ({"bench": {"damping": "0.1"}}, "damping"),
        ({"bench": {"lengths": [1.0]}}, "lengths"),
        ({"bench": {"lengths": [1.0] * 13}}, "lengths"),
        ({"bench": {"limits": [[1.0, -1.0]]}}, "limits"),
        ({"bench": {"limits": 3}}, "limits"),
        ({"bench": {"shown": [3]}}, "shown"),
        ({"bench": {"method": "magic"}}, "method"),
        ({"bench": {"wings": 2}}, "wings"),
        ({"bench": {"limbs": 2.5}}, "limbs"),
        ({"bench": {"follow": 1}}, "follow"),
        ({"bench": []}, "bench"),
        ({"start": [0.0, float("inf"), 0.0]}, "start"),
        ({"start": ["a"]}, "start"),
        ({"targets": [[1.0, 2.0], [0.0, 0.0]]}, "targets"),
        ({"home": [1]}, "home"),
        ({"rows": {"fabrik": -1}}, "rows"),
        ({"rows": {"fabrik": True}}, "rows"),
        ({"rows": {"magic": 1}}, "method"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused_by_name(data, named):
    with pytest.raises(IkSimError, match=named):
        PlanarLab.from_dict(data)


def test_misuse_names_what_would_be_right_and_changes_nothing():
    lab = bench()
    with pytest.raises(InvalidArgumentError, match=r"0\.05 to 2"):
        lab.set(alpha=0.0)
    with pytest.raises(UnknownNameError, match="alpha"):
        lab.set(alhpa=1.0)
    with pytest.raises(InvalidArgumentError, match="two finite numbers"):
        lab.set_target([1.0, float("nan")])
    with pytest.raises(InvalidArgumentError, match="0 to 0"):
        lab.set_target([1.0, 1.0], 1)
    with pytest.raises(InvalidArgumentError, match="0 to 2"):
        lab.set_length(3, 1.0)
    assert lab.bench == Bench()
    np.testing.assert_allclose(lab.targets, [TARGET])


# --- reach under limits ---


@pytest.mark.parametrize(
    ("lengths", "limits"),
    [
        ((1.0, 1.0), ((-0.6, 1.9), (0.3, 2.2))),
        ((1.0, 0.6), (None, (-1.2, 0.4))),
        ((1.0, 1.0, 1.0), LIMITS),
        ((0.7, 1.0, 0.5, 0.4), ((-0.5, 0.5), None, (-1.0, 1.0), (0.0, 2.0))),
    ],
)
def test_the_region_under_limits_is_where_sampled_postures_put_the_tip(lengths, limits):
    grid = ReachGrid(lengths, limits)
    rng = np.random.default_rng(1)
    arcs = np.array([(-math.pi, math.pi) if limit is None else limit for limit in limits])
    heading = np.cumsum(rng.uniform(arcs[:, 0], arcs[:, 1], (40_000, len(lengths))), axis=1)
    tips = np.stack([(np.cos(heading) * lengths).sum(axis=1), (np.sin(heading) * lengths).sum(axis=1)], axis=1)
    assert all(grid.holds(tip, cells=1) for tip in tips[:3000])
    # The other way round: at the rim of what is claimed a solver gets to within a few cells.
    claimed = grid.sectors()
    middles = claimed[:, :2].mean(axis=1)
    rims = np.concatenate([claimed[:, 2], claimed[:, 3]])
    points = np.stack([np.tile(middles, 2) * np.cos(rims), np.tile(middles, 2) * np.sin(rims)], axis=1)
    cell = sum(lengths) / RINGS
    arm = Skeleton.chain(lengths, joints=[None if limit is None else Arc(*limit) for limit in limits])
    found = Solver(tolerance=cell, max_cycles=3000).solve_batch(arm, points[:: max(1, len(points) // 100)])
    assert found.miss.max() < 3 * cell


def test_the_region_of_free_joints_is_the_ring():
    grid = ReachGrid((2.0, 0.5, 0.5), (None, None, None))
    inside = np.asarray(grid.mask.all(axis=1))
    radii = (np.arange(RINGS) + 0.5) * 3.0 / RINGS
    np.testing.assert_array_equal(inside, grid.mask.any(axis=1))
    width = 3.0 / RINGS
    assert inside[radii > 1.0 + 2 * width].all()
    assert not inside[radii < 1.0 - 2 * width].any()


# --- pictures ---


def test_the_passes_are_drawn_as_in_a_textbook():
    lab = steps(bench(), 1)
    panel = frame(lab).panels[0]
    lines = [line for line in panel.of(Line, "construction") if line.dashed]
    before, after = lab.run().points[0], lab.points()
    for i, line in enumerate(lines):  # from each new point to where the one before it was; the new one lies on it
        np.testing.assert_allclose(line.points, [after[i + 1], before[i]])
        way = (before[i] - after[i + 1]) / np.linalg.norm(before[i] - after[i + 1])
        np.testing.assert_allclose(after[i + 1] + way, after[i], atol=1e-12)
    assert len(lines) == 3
    assert [label.text for label in panel.of(Label, "ink")] == ["p₀′", "p₁′", "p₂′", "p₃′"]
    np.testing.assert_array_equal(panel.of(Line, "solving")[0].points, after)


def test_the_columns_of_the_jacobian_are_arrows_at_the_tip():
    lab = bench(method="damped_least_squares")
    arrows = frame(lab).panels[0].of(Arrow, "column")
    J = lab.jacobian()
    assert len(arrows) == 3
    for arrow, column in zip(arrows, J.T, strict=True):
        np.testing.assert_allclose(arrow.start, lab.points()[-1], atol=1e-12)
        np.testing.assert_allclose(np.subtract(arrow.end, arrow.start), 0.35 * column, atol=1e-12)


def test_a_sweep_of_ccd_is_drawn_as_the_way_of_the_tip():
    lab = steps(bench(method="ccd"), 1)
    ways = [line for line in frame(lab).panels[0].of(Line, "construction") if not line.dashed]
    np.testing.assert_allclose(ways[0].points[0], lab.start[-1], atol=1e-12)
    for one, after in itertools.pairwise(ways):
        np.testing.assert_allclose(one.points[-1], after.points[0], atol=1e-12)
    np.testing.assert_allclose(ways[-1].points[-1], lab.points()[-1], atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "role"),
    [({}, "solving"), ({"targets": [2.5, 2.5]}, "unreachable"), ({"tolerance": 1.0, "targets": [2.4, 0.7]}, "reached")],
)
def test_the_colour_of_the_arm_says_how_it_stands(settings, role):
    lab = bench(**settings)
    panel = frame(lab).panels[0]
    assert panel.role == role
    assert any(line.width > 10 for line in panel.of(Line, role))


@pytest.mark.parametrize(
    ("ground", "columns"),
    [((0.68, 9 / 16), 3), ((0.6, 3 / 4), 2), ((0.47, 4 / 3), 1)],
    ids=["desk", "tablet", "upright"],
)
def test_five_panels_take_the_shape_of_the_window(ground, columns):
    assert best_columns(5, *ground) == columns
    lab = PlanarLab.from_dict(LESSONS["race"].state)
    x0, y0, x1, y1 = frame(lab, width=1.0, columns=columns).bounds
    assert (x1 - x0, y1 - y0) == pytest.approx((columns, math.ceil(5 / columns)), rel=0.06)


def test_a_click_is_found_in_the_panel_that_it_hits():
    picture = frame(bench(shown=ALL[:5]))
    assert len({panel.offset for panel in picture.panels}) == 5
    for panel in picture.panels:
        x, y = panel.offset
        np.testing.assert_allclose(picture.locate(x + 0.3, y - 0.2), (0.3, -0.2), atol=1e-12)


def test_the_drawing_shows_in_pixels_what_the_frame_holds():
    lab = bench(targets=[1.5, 0.0])
    drawing = ET.fromstring(svg(frame(lab), width=600))
    name = "{http://www.w3.org/2000/svg}"
    circle = next(c for c in drawing.iter(f"{name}circle") if c.get("class") == "reach")
    half = frame(lab).width / 2
    assert float(circle.attrib["r"]) == pytest.approx(3.0 / half * 300, abs=0.01)
    arm = next(p for p in drawing.iter(f"{name}polyline") if p.get("class") == "solving")
    points = np.array([[float(v) for v in pair.split(",")] for pair in arm.attrib["points"].split()])
    np.testing.assert_allclose(points, 300 + lab.points() / half * [300, -300], atol=0.01)
    assert {t.text for t in drawing.iter(f"{name}text")} >= {"target", "p₀", "p₃"}


def test_dashes_cover_their_share_of_a_line():
    line = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])
    pieces = dashes(line, 0.2, 0.1)
    assert sum(np.linalg.norm(b - a) for a, b in pieces) == pytest.approx(2.0, abs=0.2)
    np.testing.assert_array_equal(pieces[0][0], [0.0, 0.0])


def test_the_numbers_beside_the_picture_are_the_benchs_own():
    lab = steps(bench(method="damped_least_squares"), 1)
    text = "\n".join(f"{r.title}\n{r.text}" for r in read_outs(lab))
    J = lab.jacobian()
    for value in [*J.ravel(), *lab.damped().ravel(), *lab.factors()[1][:2, 3], *lab.chain.fk(lab.angles())[:2, 3]]:
        assert f"{value:.3f}" in text
    assert f"{lab.singular_values()[0]:.4g}" in text
    assert "T = A₁A₂A₃" in text
    assert f"{math.degrees(lab.angles()[0]):8.2f}°" in text


def test_matrices_stand_in_columns():
    assert matrix_text("A", [[1.0, -0.5], [0.0, 12.25]]) == "A = ⎡ 1.000 -0.500⎤\n    ⎣     0 12.250⎦"
    assert matrix_text("v", [1.0, 0.0]) == "v = [1.000     0]"


# --- the page, without a browser ---


@pytest.fixture(scope="module")
def server() -> Iterator[LabServer]:
    with LabServer(port=0, start={"page": "planar"}) as running:
        yield running


@pytest.fixture
def opened(server: LabServer, fake_tab: Callable[..., Any]) -> Callable[..., Any]:
    """Opens a tab on a bench and waits for its numbers."""

    def open_tab(name: str = "passes", **state: Any) -> Any:
        shown = {"lesson": name, **LESSONS[name].state, **state}
        tab = fake_tab(server.address, lab_state.to_link({"page": "planar", "state": shown}))
        tab.lab = lambda: server.labs[max(server.labs)]
        tab.wait(lambda: "q" in tab.status and "/plane/target_1" in tab.scene, PATIENCE)
        return tab

    return open_tab


def shown_angles(tab: Any) -> np.ndarray:
    return np.array([float(x) for x in tab.status["q"].split()])


def click_plane(tab: Any, point: Any) -> None:
    """A click from straight above on a point of the bench, as the browser reports it."""
    page = tab.lab().page
    place = (np.asarray(point) + page._offset) * page._scale
    tab.send(
        "ScenePointerMessage", event_type="click", ray_origin=(float(place[0]), float(place[1]), 5.0),
        ray_direction=(0.0, 0.0, -1.0), screen_pos=((0.5, 0.5),), modifier=None,
    )  # fmt: skip


def test_stepping_in_the_page_shows_the_solvers_numbers(opened):
    tab, lab = opened(), PlanarLab.from_dict(LESSONS["passes"].state)
    for phase in ("backward", "forward", "backward", "forward"):
        tab.set("Go", "Step")
        lab.step()
        tab.wait(
            lambda phase=phase, lab=lab: (tab.status["phase"], int(tab.status["iteration"])) == (phase, lab.iteration())
        )
        np.testing.assert_array_equal(shown_angles(tab), lab.angles())
        assert float(tab.status["miss"]) == lab.misses()[0]
    tab.set("Go", "Back")
    tab.wait(lambda: tab.status["phase"] == "backward")
    assert "the root" in tab.status["text"]
    tab.set("Go", "Solve")
    tab.wait(lambda: tab.status["state"] == "reached")
    trace = Solver(tolerance=1e-4).trace(lab.skeleton, TARGET, lab.start)
    assert int(tab.status["iteration"]) == trace.solution.cycles
    np.testing.assert_allclose(shown_angles(tab), trace.solution.angles, atol=1e-9)
    tab.set("Go", "Start")
    tab.wait(lambda: tab.status["iteration"] == "0")
    np.testing.assert_allclose(shown_angles(tab), START, atol=1e-12)


def test_a_click_on_the_plane_sets_the_target_there_and_the_arm_follows(opened):
    tab = opened("passes", bench={"follow": True})
    click_plane(tab, [-1.0, 1.7])
    tab.wait(lambda: tab.status["state"] == "reached" and tab.status["running"] == "false")
    np.testing.assert_allclose([float(x) for x in tab.status["target"].split()], [-1.0, 1.7], atol=1e-6)
    tip = Skeleton.chain([1, 1, 1]).pose(shown_angles(tab))[-1]
    np.testing.assert_allclose(tip, [-1.0, 1.7], atol=1.1e-4)
    assert np.allclose(tab.value("Target x, y"), [-1.0, 1.7], atol=1e-4)


def test_dragging_the_target_moves_it_and_only_the_newest_place_counts(opened):
    tab = opened("passes", bench={"follow": True})
    scale = tab.lab().page._scale
    for i in range(60):
        tab.drag("/plane/target_1", [scale * (1.0 + 0.01 * i), scale * 1.2, 0.0])
    tab.wait(lambda: tab.status["state"] == "reached" and float(tab.status["target"].split()[0]) > 1.585)
    np.testing.assert_allclose([float(x) for x in tab.status["target"].split()], [1.59, 1.2], atol=1e-6)


def test_methods_are_switched_and_set_side_by_side_on_the_same_start(opened):
    tab = opened()
    tab.set("Method", METHODS["damped_least_squares"])
    tab.wait(lambda: tab.status["method"] == "damped_least_squares")
    tab.set(METHODS["ccd"], True)
    tab.wait(lambda: 'data-method="ccd"' in tab.text)
    tab.set("Go", "Solve")
    tab.wait(lambda: tab.status["state"] == "reached")
    lab = bench(method="damped_least_squares", shown=("damped_least_squares", "ccd"))
    lab.solve()
    for method in lab.bench.shown:
        row = f'data-method="{method}" data-state="reached" data-iterations="{lab.iteration(method)}"'
        assert row in tab.text
    np.testing.assert_array_equal(shown_angles(tab), lab.angles())
    tab.wait(lambda: f"{lab.jacobian()[0, 0]:.3f}" in tab.text)


def test_knobs_reach_the_bench_and_what_they_mean_comes_back(opened):
    tab = opened("gain")
    tab.set("α transpose", 0.5)
    tab.set("λ damping", 0.3)
    tab.set("Tolerance 10^", -6)
    tab.set("Rotation cap [°]", 30)
    tab.set("Bend [rad]", 0.2)
    tab.set("Iterations a frame", 4)
    tab.set("Links", 4)
    tab.set("L2", 0.5)
    tab.set("θ1 [°]", (-90, 90))
    page = tab.lab().page
    tab.wait(lambda: page.bench.bench.limits and page.bench.bench.lengths == (1.0, 0.5, 1.0, 1.0))
    b = page.bench.bench
    assert (b.alpha, b.damping, b.bend, b.iterations_per_frame) == (0.5, 0.3, 0.2, 4)
    assert b.tolerance == pytest.approx(1e-6)
    assert b.rotation_cap == pytest.approx(30 * DEGREE)
    assert b.limit(0) == pytest.approx((-90 * DEGREE, 90 * DEGREE))
    assert b.limit(1) is None
    tab.set("All lengths", 0.7)
    tab.wait(lambda: page.bench.bench.lengths == (0.7,) * 4)
    tab.wait(lambda: tab.value("L4") == pytest.approx(0.7))
    tab.set("Model", "limbs on a trunk")
    tab.wait(lambda: page.bench.bench.model == "tree")
    tab.wait(lambda: "/plane/target_3" in tab.scene)
    tab.wait(lambda: tab.status["state"] == "unsupported")


def test_lessons_show_their_cure_and_the_tour_goes_on(opened):
    tab = opened("deadlock")
    tab.set("Go", "Solve")
    tab.wait(lambda: tab.status["state"] == "stalled")
    tab.click("Cure: Bend by 0.1 rad first")
    tab.wait(lambda: tab.status["iteration"] == "0")
    tab.set("Go", "Solve")
    tab.wait(lambda: tab.status["state"] == "reached")
    tab.set("Preset", LESSONS["flip"].title)
    tab.wait(lambda: "Next target" in tab.labels)
    for stop in LESSONS["flip"].tour:
        tab.click("Next target")
        tab.wait(
            lambda stop=stop: tab.status["target"] == f"{stop[0]!r} {stop[1]!r}" and tab.status["state"] == "reached"
        )
    assert shown_angles(tab)[1] > 1.5  # the other elbow by now


def test_every_preset_opens_and_leaves_nothing_behind(opened):
    tab = opened()
    tab.wait(lambda: "/plane/label_0" in tab.scene)
    for lesson in LESSONS.values():
        tab.set("Preset", lesson.title)
        tab.wait(lambda lesson=lesson: tab.value("Preset") == lesson.title and lesson.text[:30] in tab.text)
    tab.lab().settle()
    tab.set("Preset", LESSONS["passes"].title)
    tab.wait(lambda: LESSONS["passes"].text[:30] in tab.text)
    tab.lab().settle()
    tab.wait(lambda: "/plane/target_2" not in tab.scene and "Previous method" in tab.commands.values())
    tab.wait(lambda: "Shorter link 9" in tab.commands.values())
    commands, controls = len(tab.commands), len(tab.gui)
    tab.set("Preset", LESSONS["race"].title)
    tab.wait(lambda: LESSONS["race"].text[:30] in tab.text)
    tab.set("Preset", LESSONS["passes"].title)
    tab.wait(lambda: LESSONS["passes"].text[:30] in tab.text)
    tab.wait(lambda: (len(tab.gui), len(tab.commands)) == (controls, commands))


def test_keys_do_what_the_mouse_does(opened):
    tab = opened()
    tab.key("Step")
    tab.wait(lambda: tab.status["phase"] == "backward")
    tab.key("Step back")
    tab.wait(lambda: tab.status["phase"] == "start")
    tab.key("Target +x")
    tab.wait(lambda: tab.status["target"].split()[0] == repr(1.2 + 0.02 * 3.0))
    tab.key("Longer link 2")
    tab.wait(lambda: tab.value("L2") == pytest.approx(1.05))
    tab.key("Next method")
    tab.wait(lambda: tab.status["method"] == "jacobian_transpose")
    tab.key("Solve")
    tab.wait(lambda: tab.status["state"] == "reached")
    tab.key("Back to the start")
    tab.wait(lambda: tab.status["iteration"] == "0")
    tab.key("Run or pause")
    tab.wait(lambda: tab.status["state"] == "reached", 60.0)


def test_joints_of_a_planar_arm_swing_and_the_tip_leaves_a_trace(opened):
    tab = opened(bench={"follow": False, "limits": [None, [-0.6, 0.5], None]})
    assert (tab.value("Move"), tab.value("Joint")) == (False, "joint_1")
    tab.set("Joint", "joint_2")
    tab.set("Amplitude [deg]", 90.0)
    tab.set("Frequency [Hz]", 0.5)
    tab.key("Sines on or off")
    tab.wait(lambda: tab.status["moving"] == "true" and "held at a limit: joint_2" in tab.status["text"])
    bench = tab.lab().page.bench
    tab.wait(lambda: len(bench.trace) > 20)
    middle = START[1]
    seen = [middle]
    end = time.monotonic() + 2.5  # more than a period of two seconds
    while time.monotonic() < end:
        q = shown_angles(tab)
        np.testing.assert_allclose(q[[0, 2]], [START[0], START[2]], atol=1e-9)  # the others stand still
        seen.append(q[1])
        time.sleep(0.02)
    assert (min(seen), max(seen)) == pytest.approx((-0.6, 0.5), abs=1e-9)  # middle ± π/2 is cut by the limits
    tab.set("Go", "Step")  # any other act holds the arm
    tab.wait(lambda: tab.status["moving"] == "false" and tab.status["phase"] == "backward")
    assert tab.value("Move") is False
    root, second = np.zeros(2), np.array([np.cos(START[0]), np.sin(START[0])])
    folded = np.linalg.norm(Skeleton.chain([1, 1, 1]).pose([START[0], 0.5, START[2]])[-1])  # at the upper limit
    assert np.linalg.norm(bench.trace - root, axis=1).min() == pytest.approx(folded, abs=1e-9)
    assert np.ptp(np.linalg.norm(bench.trace - second, axis=1)) < 1e-9  # only the second joint turned: an arc about it
    traced = [item for item in frame(bench).panels[0].of(Line, "trace")]
    np.testing.assert_array_equal(traced[0].points, bench.trace)
    tab.click("Clear the trace")
    tab.wait(lambda: not len(bench.trace))


def test_a_moving_arm_comes_back_about_the_same_middle(opened, server, fake_tab):
    tab = opened()
    tab.set("Amplitude [deg]", 40.0)
    tab.set("Phase [deg]", 90.0)
    tab.set("Move", True)
    tab.wait(lambda: tab.status["moving"] == "true" and abs(shown_angles(tab)[0] - START[0]) > 0.1)
    again = fake_tab(server.address, tab.lab().link().rpartition("/")[2])
    again.wait(lambda: again.status.get("moving") == "true")
    np.testing.assert_allclose(server.labs[max(server.labs)].page.motion.middle, START, atol=1e-9)
    assert again.value("Amplitude [deg]") == 40.0


def test_limbs_are_not_moved_by_sines_and_that_is_said(opened):
    tab = opened()
    tab.set("Model", MODELS["spider"])
    tab.wait(lambda: tab.value("Joint") == "-")
    tab.set("Move", True)
    tab.wait(lambda: "only a single arm" in tab.status["text"])
    tab.wait(lambda: tab.value("Move") is False)
    tab.set("Model", MODELS["single"])
    tab.wait(lambda: tab.value("Joint") == "joint_1")


def test_misuse_and_a_broken_solver_are_said_and_the_page_goes_on(opened, monkeypatch):
    tab = opened()
    tab.send(
        "ScenePointerMessage", event_type="click", ray_origin=(1e9, 0.0, 5.0), ray_direction=(0.0, 0.0, -1.0),
        screen_pos=((0.5, 0.5),), modifier=None,
    )  # fmt: skip
    tab.wait(lambda: tab.status.get("error") == "yes")

    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(planar.Solver, "trace", breaks)
        tab.set("Go", "Step")
        tab.wait(lambda: tab.status.get("state") == "failed")
        assert "planted" in tab.status["text"]
    tab.set("Method", METHODS["ccd"])
    tab.wait(lambda: tab.status.get("method") == "ccd")
    tab.set("Go", "Solve")
    tab.wait(lambda: tab.status["state"] == "reached")


def test_the_page_comes_back_from_its_link_and_sends_its_drawing(opened, server, fake_tab):
    tab = opened("crawl")
    for _ in range(5):
        tab.set("Go", "Step")
    tab.wait(lambda: tab.status["iteration"] == "3")
    link = tab.lab().link()
    again = fake_tab(server.address, link.rpartition("/")[2])
    again.wait(lambda: again.status.get("iteration") == "3")
    assert {k: again.status[k] for k in ("q", "phase", "miss", "target")} == {
        k: tab.status[k] for k in ("q", "phase", "miss", "target")
    }
    assert again.value("Preset") == "-"
    again.click("Drawing (SVG)")
    again.wait(lambda: again.files.get("ik_sim_bench.svg", b"").rstrip().endswith(b"</svg>"))
    lab = PlanarLab.from_dict({**LESSONS["crawl"].state})
    assert again.files["ik_sim_bench.svg"].decode() == svg(frame(steps(lab, 5)))


def test_a_state_that_makes_no_sense_leaves_the_page_as_it_is(server, fake_tab):
    tab = fake_tab(server.address, lab_state.to_link({"page": "planar", "state": {"bench": {"alpha": "much"}}}))
    tab.wait(lambda: "alpha" in tab.status.get("text", ""))
    tab.wait(lambda: "Method" in tab.labels)
