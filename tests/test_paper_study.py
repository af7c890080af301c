"""The paper repeated: its printed numbers, the law of cycles, the sign of joint 4."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import load_solver
from ik_sim.studies import load_study
from ik_sim.studies.paper import (
    _SOURCE,
    LINKS,
    Q_END,
    Q_SINGLE,
    Q_START,
    SIGN,
    bend_of,
    chain_of,
    count_cycles,
    predicted,
    ranges,
    start_angle,
    tracking_targets,
)


@pytest.mark.parametrize(
    ("delta", "ur5", "iiwa14"),
    [(1.5, 3, 3), (1.0, 9, 9), (0.5, 39, 39), (0.2, 206, 206), (0.114, 552, 552), (0.05, 2217, 2218), (2.5, 23, 20)],
)
def test_counted_cycles_are_the_published_ones(delta: float, ur5: int, iiwa14: int) -> None:
    # one cycle of freedom: whether the start counts depends on the reading of "before the first cycle"
    assert abs(count_cycles(*LINKS["ur5"], delta) - ur5) <= 1
    assert abs(count_cycles(*LINKS["iiwa14"], delta) - iiwa14) <= 1


def test_the_law_predicts_cycles_within_a_percent_near_the_stretch() -> None:
    for delta in (0.2, 0.114, 0.05):
        law = float(predicted(*LINKS["iiwa14"], np.array(delta)))
        assert law == pytest.approx(count_cycles(*LINKS["iiwa14"], delta), rel=0.012)


@pytest.mark.parametrize(("point", "cycles"), [(75, 54), (78, 137), (80, 27_888), (81, 8227), (85, 1096), (90, 342)])
def test_the_law_holds_from_starts_near_the_line_too(point: int, cycles: int) -> None:
    # counted on the iiwa's tracking task; 8 % before the stretch, where the bend is above 0.2 and the law is a limit
    T = tracking_targets("iiwa14")[point]
    law = float(predicted(*LINKS["iiwa14"], bend_of("iiwa14", T), start=start_angle(T)))
    assert law == pytest.approx(cycles, rel=0.01 if point >= 80 else 0.08)
    far_off = float(predicted(*LINKS["iiwa14"], bend_of("iiwa14", T)))
    assert point < 80 or far_off < 0.75 * cycles  # what a start well off the line would take


def test_the_printed_single_cases_come_out() -> None:
    chain = chain_of("ur5", True)
    T = chain.fk(np.array(Q_SINGLE["ur5"]))
    alone = load_solver("fabrik", max_iterations=20_000, **_SOURCE).solve(chain, T, np.zeros(6))
    assert alone.iterations == 543  # printed 546; three-digit joints allow 539 to 547
    both = load_solver("combined", switch_after=15, stopping_rule="ftol", **_SOURCE).solve(chain, T, np.zeros(6))
    assert (both.iterations, both.evaluations) == (15, 15)  # as printed
    chain = chain_of("iiwa14", False)
    T = chain.fk(SIGN["iiwa14"] * Q_SINGLE["iiwa14"])
    alone = load_solver("fabrik", max_iterations=20_000, **_SOURCE).solve(chain, T, np.zeros(7))
    assert alone.iterations in (10_073, 10_074)


@pytest.mark.parametrize(("name", "rule", "evaluations"), [("ur5", "ftol", 15), ("iiwa14", "stopval", 19)])
def test_the_drawn_curve_is_fifteen_cycles_and_then_slsqp(name: str, rule: str, evaluations: int) -> None:
    chain = chain_of(name, name == "ur5")
    T = chain.fk(SIGN[name] * Q_SINGLE[name])
    trace = load_solver("combined", switch_after=15, stopping_rule=rule, **_SOURCE).trace(chain, T, np.zeros(chain.n))
    assert trace.phase.tolist() == [0] * 15 + [1] * evaluations
    assert trace.position_error[15] == pytest.approx(
        trace.position_error[14], rel=1e-6
    )  # it starts where FABRIK stands
    assert (trace.position_error[:15] > 1e-3).all()
    assert trace.position_error[-1] < 1e-6


def test_the_start_posture_has_its_wrist_above_the_shoulder_only_with_the_sign() -> None:
    chain = chain_of("iiwa14", True)
    T = chain.fk(SIGN["iiwa14"] * Q_START["iiwa14"])
    assert np.hypot(T[0, 3], T[1, 3]) < 2e-4  # three printed digits leave 1.2e-4
    assert np.abs(T[:3, :3] - np.eye(3)).max() < 1e-12
    wrong = chain.fk(np.array(Q_START["iiwa14"]))
    assert np.hypot(wrong[0, 3], wrong[1, 3]) > 0.1


@pytest.mark.parametrize(("name", "first"), [("ur5", 0.425156046395), ("iiwa14", 0.414045693578)])
def test_tracking_targets_are_those_of_the_reference_task(name: str, first: float) -> None:
    targets, chain = tracking_targets(name), chain_of(name, True)
    assert len(targets) == 180
    straight = chain.fk(np.zeros(chain.n))
    assert np.abs(targets[79] - straight).max() < 1e-15
    assert np.abs(targets[179] - chain.fk(SIGN[name] * Q_END[name])).max() < 1e-15
    l2, l3 = LINKS[name]
    assert np.linalg.norm(targets[0][:3, 3] - straight[:3, 3]) == pytest.approx(l2 + l3 - first, abs=1e-9)


def test_stretches_of_points_are_written_as_people_do() -> None:
    assert ranges([57, 58, 59, 61, 162, 163]) == "57–61, 162–163"
    assert ranges([]) == "none"


@pytest.mark.slow
def test_the_study_says_what_reproduced_with_its_own_numbers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    summary = load_study("paper", queries=60).run(tmp_path)
    results = summary["results"]
    assert results["reproduced"] > 90
    assert results["not reproduced"] < 8  # 60 poses: a few statements fail by chance
    page = (tmp_path / "report.html").read_text()
    assert "What reproduced and what did not" in page
    assert page.count("<figure>") >= 15
    assert {row["holds"] for row in results["statements"]} <= {True, False}
    if results["not reproduced"]:  # bad news first
        assert page.index("What does not hold") < page.index("A single case")
    assert page.count("data:image/png") >= 17  # eight snapshots of either arm, and the cloud of the law
    with pytest.raises(InvalidArgumentError):
        load_study("paper", queries=1)
