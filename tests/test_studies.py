"""Studies: rows that survive, pages that say what is seen, and figures that agree with what is known exactly."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.studies import load_study, study_names
from ik_sim.studies.command import StudyCommand
from ik_sim.studies.design import Design, pareto
from ik_sim.studies.links import Links, explained, shared_r2
from ik_sim.studies.workspace import SETS, Workspace, exact_area
from ik_sim.target import POINT, POSE

pytest.importorskip("matplotlib")


def test_every_study_loads_with_every_preset():
    for name in study_names():
        kind = type(load_study(name))
        assert kind.title
        for preset in kind.presets:
            assert load_study(name, preset).settings()["study"] == name


def test_misuse_of_a_study_is_answered_in_words():
    for call, words in (
        (lambda: load_study("lnks"), "did you mean 'links'"),
        (lambda: load_study("links", "esay"), "did you mean 'essay'"),
        (lambda: load_study("links", trails=3), "did you mean 'trials'"),
    ):
        with pytest.raises(UnknownNameError, match=words):
            call()
    for call in (
        lambda: load_study("links", trials="many"),
        lambda: load_study("links", trials=2.5),
        lambda: load_study("links", trials=3),
        lambda: load_study("motion", format="avi"),
        lambda: load_study("workspace", lengths="[1]"),
    ):
        with pytest.raises(InvalidArgumentError):
            call()


def test_a_study_that_was_stopped_ends_with_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("ik_sim.studies.links._CHUNK", 40)
    study = Links(trials=120)
    study.run(tmp_path / "whole")
    assert study.run(tmp_path / "stopped", stop_after=2) == {}
    assert not (tmp_path / "stopped" / "report.html").exists()
    assert len(list((tmp_path / "stopped" / "rows").glob("*.npy"))) == 2
    study.run(tmp_path / "stopped")
    whole, stopped = (np.load(tmp_path / f / "rows.npz") for f in ("whole", "stopped"))
    assert set(whole.files) == set(study.columns())
    for column in whole.files:
        np.testing.assert_array_equal(whole[column], stopped[column])


def test_a_study_killed_in_the_middle_goes_on_and_ends_with_the_same_rows_and_figures(tmp_path):
    """SIGKILL, which no handler sees: whatever is on the disk at that moment has to do."""

    slowly = """
import sys, time
from ik_sim.cli import main
from ik_sim.studies import links
links._CHUNK, chunk = 100, links.Links.chunk
links.Links.chunk = lambda self, number, folder: (time.sleep(0.1), chunk(self, number, folder))[1]
sys.exit(main(["study", "links", "--set", "trials=1200", "--quiet", "--out", sys.argv[1]]))
"""

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", slowly, str(folder)])

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    first = start(killed)
    give_up = time.monotonic() + 300  # a first run on a machine compiles
    while not (killed / "rows" / "000001.npy").exists():
        assert first.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.002)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    kept = {f.name: f.stat().st_mtime_ns for f in (killed / "rows").glob("*.npy")}
    assert 2 <= len(kept) < 12
    assert not (killed / "rows.npz").exists()
    for folder in (killed, whole):
        assert start(folder).wait() == 0
    for name, moment in kept.items():
        assert (killed / "rows" / name).stat().st_mtime_ns == moment  # not done twice
    assert len(list((killed / "rows").glob("*.npy"))) == 12
    for name in ("rows.npz", "rows.csv", "summary.json", "report.html", "figures/cycles.svg", "figures/cloud.png"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


def test_rows_of_other_settings_are_not_mixed_in(tmp_path):
    Links(trials=40).run(tmp_path)
    with pytest.raises(IkSimError, match="other settings \\(seed\\)"):
        Links(trials=40, seed=1).run(tmp_path)
    with pytest.raises(IkSimError, match="holds the study 'links'"):
        Workspace().run(tmp_path)
    Links(trials=40, seed=1).run(tmp_path, restart=True)
    assert json.loads((tmp_path / "summary.json").read_text())["seed"] == 1


def test_the_essays_500_trials_make_a_page_with_every_figure_in_three_forms(tmp_path):
    summary = load_study("links", "essay").run(tmp_path)
    assert summary["rows"] == 500
    assert 0.8 < summary["results"]["converged_share"] < 0.97  # single starts of limited FABRIK stall
    for name in ("cloud", "misses", "cycles", "effects"):
        assert (tmp_path / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (tmp_path / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") >= 4
    assert "So: for cycles" in page
    if shutil.which("python") and (tmp_path / "figures" / "cloud.html").exists():
        assert "http" not in (tmp_path / "figures" / "cloud.html").read_text().split("plotly.min.js")[0]
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == 501
    assert lines[0].startswith("length_1,length_2,length_3,")


def test_an_effect_that_is_there_is_found_and_one_that_is_not_is_called_none():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=1000), rng.normal(size=1000)
    outcome = np.exp(a + rng.normal(size=1000))
    found = explained(outcome, {"a": a, "b": b}, seed=0)
    rho, low, high, p = found["a"]
    assert low < rho < high
    assert rho > 0.6
    assert p < 0.01
    assert found["b"][1] < 0 < found["b"][2]
    assert shared_r2(outcome, [a]) > 0.4
    assert shared_r2(outcome, [b]) < 0.02
    valley = np.abs(a - 0.3) + 0.1 * rng.normal(size=1000)  # no correlation, and yet all explained
    assert shared_r2(valley, [a]) > 0.7  # not all: the square is taken about the median, the valley lies 0.3 off it


def test_a_trial_is_a_reachable_target_from_a_legal_start():
    rows = Links(trials=200, links=4).chunk(0, Path("."))
    lengths, targets = rows[:, :4], rows[:, 4:6]
    assert np.all(np.linalg.norm(targets, axis=1) <= lengths.sum(axis=1) + 1e-12)
    assert lengths.min() >= 0.1
    assert lengths.max() <= 1.0


def test_the_three_angle_sets_fill_the_exact_areas(tmp_path):
    results = Workspace().run(tmp_path)["results"]
    for title, low, high in SETS:
        exact = exact_area(0.65, 1.16, low, high)
        assert results[f"area [m²]: {title}"] == pytest.approx(exact, rel=0.005)  # the grid's own step
    assert results["area with two postures [m²]: both joints free"] == pytest.approx(
        exact_area(0.65, 1.16, -180, 180), rel=0.005
    )
    assert results["area with two postures [m²]: only positive angles"] == 0


def test_every_reachable_grid_point_is_reached_by_a_posture_inside_the_limits():
    study = Workspace()
    rng = np.random.default_rng(0)
    for which, (_, low, high) in enumerate(SETS):
        rows = study.chunk(which, Path("."))
        edge = np.unique(rows[:, 1])
        counts = rows[:, 3].reshape(len(edge), len(edge))
        q = np.radians(rng.uniform(low, high, (4000, 2)))
        # At its two cusps, elbow nearly stretched or folded, the region is thinner than a cell.
        q = q[np.abs(np.sin(q[:, 1])) > np.sin(np.radians(8))]
        x = 0.65 * np.cos(q[:, 0]) + 1.16 * np.cos(q.sum(axis=1))
        y = 0.65 * np.sin(q[:, 0]) + 1.16 * np.sin(q.sum(axis=1))
        i, j = np.searchsorted(edge, x), np.searchsorted(edge, y)
        near = counts[j - 1, i - 1] + counts[j, i - 1] + counts[j - 1, i] + counts[j, i]
        assert np.all(near > 0)  # a sampled point has a reachable corner of its cell


def test_sampled_density_of_three_links_lies_in_the_exact_ring_and_mirrors(tmp_path):
    study = Workspace(lengths=(1.2, 0.4, 0.3), samples=200_000)
    results = study.run(tmp_path)["results"]
    ring = np.pi * (1.9**2 - 0.5**2)
    assert results["exact area of the ring [m²]"] == pytest.approx(ring)
    assert 0.9 * ring < results["area met [m²]: all joints free"] <= 1.003 * ring  # to the grid's step
    rows = np.load(tmp_path / "rows.npz")
    cell = 2.1 * 1.9 / 240
    r = np.hypot(rows["x"], rows["y"])
    assert r.max() <= 1.9 + cell
    assert r.min() >= 0.5 - cell
    up, down = (rows["set"] == 1), (rows["set"] == 2)
    for which in (0, 1, 2):
        assert rows["samples"][rows["set"] == which].sum() == 200_000
    mean_up, mean_down = (np.average(rows["y"][s], weights=rows["samples"][s]) for s in (up, down))
    assert mean_up == pytest.approx(-mean_down, abs=0.01)  # mirror images, to the samples' own scatter
    assert mean_up > 0.05


@pytest.mark.parametrize("robot", ["planar2", "planar3"])
def test_a_planar_reach_map_agrees_with_its_exact_radius(tmp_path, robot):
    study = Workspace(robot=robot, voxel=0.1, orientations=36, witness="")
    study.run(tmp_path)
    rows = np.load(tmp_path / "reach_map.npz")
    r = np.hypot(rows["x"], rows["y"])
    assert np.all(r[rows["share"] > 0] <= 0.9 + 1e-9)
    if robot == "planar3":  # three links: whole headings well inside
        assert rows["share"][(r > 0.35) & (r < 0.45)].max() == 1.0


def test_a_reach_map_of_the_ur5_is_confirmed_by_its_witness(tmp_path):
    study = Workspace(robot="ur5", voxel=0.4, orientations=6, witness_every=3)
    results = study.run(tmp_path)["results"]
    assert results["reachable [m³]"] > 1.0
    assert results["witness asked"] > 0
    assert results["only the witness found"] == 0  # the closed form is complete
    rows = np.load(tmp_path / "reach_map.npz")
    assert np.all(rows["share"] <= 1)
    far = np.linalg.norm([rows["x"], rows["y"], rows["z"] - 0.089159], axis=0)
    assert rows["share"][far > 1.15].sum() == 0  # beyond all links together


def test_a_urdf_of_one_s_own_gives_a_map_with_another_solver_as_witness(tmp_path, capsys):
    urdf = Path(__file__).parent / "data" / "urdf" / "five_axis.urdf"
    settings = (f"robot={urdf}", "voxel=0.2", "witness_every=3")
    assert StudyCommand(study="workspace", set=settings, out=tmp_path, json=tmp_path / "x.json").run() == 0
    results = json.loads((tmp_path / "x.json").read_text())["results"]
    # Turn, three parallel pitches and a roll of the tool: no say in the tool's direction besides its pitch.
    assert results["witness asked"] == pytest.approx(results["voxels"] / 3, abs=10)
    assert 0.3 < results["reachable [m³]"] < 4 / 3 * np.pi * 0.7**3
    assert results["only the witness found"] == 0
    page = (tmp_path / "report.html").read_text()
    assert "damped_least_squares" in page
    assert "the point itself" in page
    rows = np.load(tmp_path / "reach_map.npz")
    assert set(np.unique(rows["share"])) == {0.0, 1.0}
    assert len((tmp_path / "reach_map.csv").read_text().splitlines()) == results["voxels"] + 1


def test_an_arm_is_asked_for_what_it_has_a_say_in():
    kinds = {name: Workspace(robot=name)._kind for name in ("ur5", "iiwa14", "planar2", "planar3")}
    assert kinds == {"ur5": POSE, "iiwa14": POSE, "planar2": POINT, "planar3": POSE}


def test_optimisers_find_the_long_inner_links_that_give_room(tmp_path):
    study = Design(evaluations=30)
    first, second, last = study.room([0.46, 0.46, 0.08]), study.room([0.2, 0.3, 0.5]), study.room([0.7, 0.22, 0.08])
    assert first > second
    assert first > last
    rows = study.chunk(0, tmp_path)
    assert len(rows) == 30
    assert np.all(rows[:, 3:6].sum(axis=1) == pytest.approx(1.0))
    assert rows[:, 3:6].min() >= 0.08 - 1e-12
    np.testing.assert_array_equal(rows, study.chunk(0, tmp_path))
    for number in (1, 2, 3):
        assert 20 <= len(study.chunk(number, tmp_path)) <= 30


def test_the_front_holds_exactly_what_nothing_beats():
    rng = np.random.default_rng(1)
    costs = rng.uniform(size=(200, 2))
    front = pareto(costs)
    for i in range(200):
        beaten = np.any(np.all(costs <= costs[i], axis=1) & np.any(costs < costs[i], axis=1))
        assert front[i] != beaten


def test_films_are_written_and_the_last_frame_is_on_target(tmp_path):
    import imageio.v3 as iio

    results = load_study("motion", "quick").run(tmp_path)["results"]
    assert results["last miss of the chain"] <= 1e-3
    assert results["last miss of the tree"] <= 1e-3
    assert len(iio.imread(tmp_path / "swing.gif")) == 12
    assert "data:image/gif" in (tmp_path / "report.html").read_text()


def test_the_command_lists_and_runs_studies(tmp_path, capsys):
    assert StudyCommand().run() == 0
    assert "links" in capsys.readouterr().out
    options = StudyCommand(study="links", set=("trials=60",), out=tmp_path / "x", json=tmp_path / "x.json")
    assert options.run() == 0
    assert json.loads((tmp_path / "x.json").read_text())["trials"] == 60
    assert "page:" in capsys.readouterr().out
    with pytest.raises(InvalidArgumentError, match="key=value"):
        StudyCommand(study="links", set=("trials",)).run()
