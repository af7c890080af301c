"""Gains are swept in physics, and what is recommended is the least effort that keeps the tolerances."""

import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ik_sim.cli import main
from ik_sim.errors import InvalidArgumentError
from ik_sim.tasks import load_task
from ik_sim.tracking import record
from ik_sim.tuning import Trial, best, sweep, table

GAINS = (0.1, 0.5, 1.0)


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return sweep(load_task("planar3_line"), position_gains=GAINS)


def test_higher_gains_trade_effort_for_accuracy(trials):
    assert [t.position_gain for t in trials] == list(GAINS)
    for quantity, sign in (("error_max_m", -1), ("error_rms_m", -1), ("torque_peak", 1), ("torque_jump_rms", 1)):
        values = [getattr(t, quantity) for t in trials]
        assert all(sign * (b - a) > 0.0 for a, b in itertools.pairwise(values)), quantity


def test_a_trial_says_what_its_run_says(trials):
    log = record(load_task("planar3_line", {"control.position_gain": 0.5}))
    moving = log.of_phase("moving")
    assert trials[1].error_max_m == log.tracking_position[moving].max()
    assert trials[1].error_rms_m == pytest.approx(np.sqrt((log.tracking_position[moving] ** 2).mean()))
    limits = [log.provenance["control"]["torque_limits"][name] for name in log.joint_names]
    assert trials[1].torque_peak == pytest.approx((log.torque / limits).max())
    assert trials[1].saturated == 0.0
    assert "tracking_position_moving" in trials[1].broken
    assert trials[2].broken == ()


def test_saturation_counts_as_effort():
    (trial,) = sweep(load_task("planar3_line", {"control.torque_scale": 0.0005}), position_gains=(1.0,))
    assert trial.torque_peak == pytest.approx(1.0)
    assert trial.saturated > 0.1


def test_the_best_keeps_the_tolerances_with_the_least_torque(trials):
    assert best(trials) is trials[2]  # the only one that keeps them
    loose = sweep(load_task("planar3_line", {"tolerance.tracking_position_moving": 1e-3,
                                             "tolerance.tracking_rotation_moving": 1e-2}), position_gains=GAINS)  # fmt: skip
    assert best(loose).position_gain == 0.5
    assert "keeps all tolerances" in table(loose)
    hopeless = sweep(load_task("planar3_line", {"tolerance.tracking_position_moving": 1e-12}), position_gains=GAINS)
    assert best(hopeless).position_gain == 1.0


def test_each_velocity_gain_is_tried_with_each_position_gain():
    task = load_task("planar3_line", {"path.duration": 0.5, "hold": 0.0, "settle": 0.0})
    trials = sweep(task, position_gains=(0.5, 1.0), velocity_gains=(0.8, 1.0))
    assert [(t.velocity_gain, t.position_gain) for t in trials] == [(0.8, 0.5), (0.8, 1.0), (1.0, 0.5), (1.0, 1.0)]
    assert trials[0].settled_max_m is None


def test_a_gain_out_of_its_range_is_refused_before_anything_runs():
    seen: list[Trial] = []
    with pytest.raises(InvalidArgumentError, match="position_gain"):
        sweep(load_task("planar3_line"), position_gains=(0.5, 1.5), on_trial=seen.append)
    assert seen == []


def test_the_command_writes_table_plot_and_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "planar3_line", "--gains", "0.3", "1"]) == 0
    shown = capsys.readouterr().out
    assert "<- keeps all tolerances" in shown
    assert "breaks tracking_position_moving and 1 more" in shown
    folder = Path("runs/tune_planar3_line")
    assert sorted(p.name for p in folder.iterdir()) == ["tune.json", "tune.png", "tune.svg"]
    result = json.loads((folder / "tune.json").read_text())
    assert result["best"]["position_gain"] == 1.0
    assert [t["position_gain"] for t in result["trials"]] == [0.3, 1.0]
    ET.parse(folder / "tune.svg")
    with Image.open(folder / "tune.png") as picture:
        assert picture.size == (1520, 660)
    assert main(["tune", "planar3_line", "--gains", "0.1", "--out", "weak", "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
