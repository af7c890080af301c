"""What a run leaves on disk and shows to people."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ik_sim import plots, raster, report, run_folder
from ik_sim.errors import FileFormatError, IkSimError
from ik_sim.plots import Chart, svg
from ik_sim.tasks import load_task
from ik_sim.tracking import TrackingLog, check, metrics, record
from ik_sim.video import VideoSettings, make_video

TASK = load_task("planar3_line")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def log() -> TrackingLog:
    return record(TASK)


@pytest.fixture(scope="module")
def broken() -> tuple[TrackingLog, object]:
    task = load_task("planar3_line", {"control.position_gain": 0.02})
    return record(task), task


def test_a_run_folder_holds_what_the_manual_says(tmp_path, log):
    place = tmp_path / "deep" / "run"
    result = report.write_run(place, log, TASK, 1.25)
    assert result["passed"] is True
    names = {p.name for p in place.iterdir()}
    assert {"run.json", "samples.csv", "verdict.json", "junit.xml", "report.html", "plots"} <= names
    assert [p.name for p in place.parent.iterdir()] == ["run"]  # nothing is left beside it
    assert json.loads((place / "verdict.json").read_text()) == json.loads(run_folder.json_text(result))
    head = json.loads((place / "run.json").read_text())
    assert head["task"]["name"] == "planar3_line"
    assert head["joint_names"] == list(log.joint_names)


def test_a_log_survives_saving_bit_for_bit(tmp_path, log):
    run_folder.save_log(tmp_path, log)
    back = run_folder.load_log(tmp_path)
    assert back.joint_names == log.joint_names
    assert json.loads(json.dumps(back.provenance)) == json.loads(json.dumps(log.provenance))
    for (name, a), (_, b) in zip(log.columns().items(), back.columns().items(), strict=True):
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, name
            assert a.tobytes() == b.tobytes(), name
        else:
            assert a == b, name
    assert check(back, TASK) == check(log, TASK)


def test_every_cell_of_the_samples_is_one_number_or_word(tmp_path, log):
    run_folder.save_log(tmp_path, log)
    lines = (tmp_path / "samples.csv").read_text().splitlines()
    assert len(lines) == len(log) + 1
    head = lines[0].split(",")
    assert "tracking_position_m" in head
    assert "q_measured_joint_1" in head
    assert all(len(line.split(",")) == len(head) for line in lines[1:])


def test_parquet_holds_the_same_columns(tmp_path, log):
    parquet = pytest.importorskip("pyarrow.parquet")
    run_folder.save_log(tmp_path, log)
    table = parquet.read_table(tmp_path / "samples.parquet")
    assert table.column_names[: len(log.columns())] == list(log.columns())
    np.testing.assert_array_equal(table["residual_position_m"].to_numpy(), log.residual_position)


def test_a_later_run_replaces_an_earlier_one_and_nothing_else(tmp_path, log):
    place = tmp_path / "run"
    report.write_run(place, log, TASK)
    (place / "video.mp4").write_bytes(b"of the earlier run")
    report.write_run(place, log, TASK)
    assert not (place / "video.mp4").exists()
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.tex").write_text("chapter 1")
    with pytest.raises(IkSimError, match="exists and is not a run folder"):
        report.write_run(other, log, TASK)
    assert (other / "thesis.tex").read_text() == "chapter 1"
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(IkSimError, match="is not a run folder"):
        report.write_run(file, log, TASK)


def test_an_interrupted_run_leaves_nothing_and_keeps_the_earlier_one(tmp_path, log):
    place = tmp_path / "run"
    report.write_run(place, log, TASK)
    before = (place / "samples.csv").read_bytes()

    def interrupted() -> None:
        with run_folder.new_run_folder(place) as folder:
            (folder / "run.json").write_text("{")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert (place / "samples.csv").read_bytes() == before


def test_what_a_killed_run_left_beside_is_tidied_by_the_next(tmp_path, log):
    program = (
        "import sys, os, pathlib; from ik_sim.run_folder import new_run_folder\n"
        "with new_run_folder(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'run.json').write_text('{'); os._exit(9)"
    )
    place = tmp_path / "run"
    killed = subprocess.run([sys.executable, "-c", program, str(place)], check=False)
    assert killed.returncode == 9
    assert not place.exists()
    assert len(list(tmp_path.iterdir())) == 1
    report.write_run(place, log, TASK)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_what_is_not_a_run_folder_is_told(tmp_path, log):
    with pytest.raises(FileFormatError, match=r"is not a run folder: run.json is missing"):
        run_folder.load_log(tmp_path)
    run_folder.save_log(tmp_path, log)
    text = (tmp_path / "samples.csv").read_text()
    (tmp_path / "samples.csv").write_text(text.replace("residual_position_m", "other"))
    with pytest.raises(FileFormatError, match="is damaged: 'residual_position_m'"):
        run_folder.load_log(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(FileFormatError, match="has format 99; this version reads 1"):
        run_folder.load_log(tmp_path)


def test_json_holds_no_infinity_and_no_nan():
    text = run_folder.json_text({"a": float("inf"), "b": [float("nan"), np.float64(1.5)], "c": np.int64(3)})
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": 3}


def test_junit_counts_cases_failures_and_errors(broken):
    log, task = broken
    figures, violations = metrics(log, task), check(log, task)
    assert violations
    good = run_folder.verdict(log, task, figures, [])
    bad = run_folder.verdict(log, task, figures, violations)
    root = ET.fromstring(run_folder.junit([(good, 1.0), (bad, 2.0)], [("third", "no \x00such file")]))
    assert root.tag == "testsuites"
    suites = root.findall("testsuite")
    assert [s.get("failures") for s in suites] == ["0", str(len(violations)), "0"]
    assert [s.get("errors") for s in suites] == ["0", "0", "1"]
    assert int(root.get("tests") or 0) == sum(len(s.findall("testcase")) for s in suites)
    assert root.get("failures") == str(len(violations))
    failure = suites[1].find("testcase/failure")
    assert failure is not None
    assert "controller lag" in (failure.get("message") or "")
    assert suites[2].find("testcase/error") is not None


def test_the_table_says_pass_or_fail_and_why(log, broken):
    good = report.text_table(log, TASK, metrics(log, TASK), check(log, TASK))
    assert good.startswith("PASS  planar3_line: planar3, damped_least_squares")
    assert "BROKEN" not in good
    assert "≤ 1e-06 m" in good
    bad_log, task = broken
    bad = report.text_table(bad_log, task, metrics(bad_log, task), check(bad_log, task))
    assert bad.startswith("FAIL")
    assert "BROKEN" in bad
    assert "controller lag" in bad


def test_the_page_stands_alone_and_says_the_verdict_first(tmp_path, log, broken):
    report.write_run(tmp_path / "good", log, TASK)
    page = (tmp_path / "good" / "report.html").read_text()
    assert page.index('class="verdict pass"') < page.index("<table")
    assert not re.search(r"""(src|href)\s*=|url\((?!#)|@import""", page)  # nothing to fetch
    assert page.count("<svg") == 8
    assert "{" not in re.sub(r"<style>.*?</style>|<pre>.*?</pre>", "", page, flags=re.S)  # no field was left unfilled
    report.write_run(tmp_path / "bad", *broken)
    page = (tmp_path / "bad" / "report.html").read_text()
    assert 'class="verdict fail"' in page
    assert "controller lag" in page
    assert "Mostly controller lag: up to" in page
    assert {"path_3d.svg", "path_3d.png", "joints.svg", "joints.png"} < set(os.listdir(tmp_path / "bad" / "plots"))


CONTRAST = """element => {
    const lightness = text => {
        const part = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255).map(
            v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const style = getComputedStyle(element);
    const ink = lightness(element.tagName === "text" ? style.fill : style.color);
    const ground = lightness(getComputedStyle(document.body).backgroundColor);
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
}"""
PLAY = """async () => {
    const film = document.querySelector("video");
    await film.play();
    await new Promise(done => { film.ontimeupdate = () => film.currentTime > 0 && done(); });
    return [film.readyState, film.duration, film.videoWidth, film.videoHeight, film.error === null];
}"""


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_browser_shows_the_page_in_both_colour_schemes_and_plays_its_film(tmp_path, broken):
    from playwright.sync_api import sync_playwright

    log, task = broken

    def film(log: TrackingLog, folder: Path) -> Path:
        settings = VideoSettings(size=(128, 96), fps=10.0, renderer="tiny", smooth=1)
        return make_video([log], folder / "video.mp4", settings).path

    report.write_run(tmp_path / "run", log, task, make_video=film)
    chromium = next(found for found in map(shutil.which, BROWSERS) if found)
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_ARGUMENTS)
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
            page.on("request", lambda request: asked.append(request.url))
            page.goto((tmp_path / "run" / "report.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390  # also on a telephone
            for kind in ("h1", "p.soft", ".verdict", "b.broken", "td", "svg text"):
                assert page.locator(kind).first.evaluate(CONTRAST) > 4.5, (scheme, kind)
        ready, duration, width, height, sound = page.evaluate(PLAY)
        assert ready >= 2
        assert duration == pytest.approx(log.time[-1], abs=0.15)
        assert (width, height, sound) == (128, 96, True)
        page.emulate_media(media="print")  # on white paper, also for people who read on dark ground
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("svg text").first.evaluate(CONTRAST) > 4.5
        assert page.pdf(format="A4")[:5] == b"%PDF-"
        browser.close()
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}  # nothing from a network


def test_words_from_a_task_can_not_become_markup(log):
    task = load_task("planar3_line", {"title": "<script>alert(1)</script>"})
    figures, violations = metrics(log, task), check(log, task)
    summary = run_folder.verdict(log, task, figures, violations)["summary"]
    page = report.html_report(log, task, figures, violations, summary, {})
    assert "<script" not in page
    assert "&lt;script&gt;" in page


# --- plots ---


def test_plots_are_the_same_bytes_from_the_same_log_and_well_formed(log):
    first, second = plots.figures(log, TASK), plots.figures(log, TASK)
    assert first == second
    names = "position_error rotation_error path path_3d joints torque solve_time residuals"
    assert set(first) == set(names.split())
    for drawing in first.values():
        root = ET.fromstring(drawing)
        assert root.tag.endswith("svg")
        assert "nan" not in drawing
        ET.fromstring(plots.svg_file(drawing))


def test_axes_have_units_and_the_tolerance_is_drawn(log):
    drawings = plots.figures(log, TASK)
    assert "time [s]" in drawings["position_error"]
    assert "position error [mm]" in drawings["position_error"]
    assert "tracking tolerance" in drawings["position_error"]
    for word in ("target", "solved", "measured", "x [m]", "y [m]"):
        assert word in drawings["path"]


@pytest.mark.parametrize("name", ["ur5_line", "iiwa14_circle", "planar2_circle"])
def test_wanted_solved_and_driven_path_are_in_one_picture_with_the_tolerance(name):
    task = load_task(name, {"path.duration": 1.0, "settle": 0.2, "hold": 0.2, "control.position_gain": 0.2})
    drawings = plots.figures(record(task), task)
    for word in ("target", "solved", "measured", "x [m]", "y [m]", "z [m]", "start"):
        assert f">{word}</text>" in drawings["path"]
    for word in ("target", "measured", "x [m]", "y [m]", "z [m]"):
        assert f">{word}</text>" in drawings["path_3d"]
    assert 'class="good"' in drawings["position_error"]  # the band that the tolerance leaves
    assert "controller lag" in drawings["position_error"]


def test_a_line_goes_where_its_numbers_are():
    chart = Chart("t", "x", "y", x_range=(0.0, 10.0), y_range=(0.0, 1.0))
    chart.line([0.0, 10.0], [0.0, 1.0], "c0")
    drawing = svg([chart], 400, 300)
    frame = re.search(r'<rect class="frame" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawing)
    assert frame is not None
    x, y, width, height = map(float, frame.groups())
    assert f'd="M{x:g} {y + height:g}L{x + width:g} {y:g}"' in drawing


def test_samples_hold_the_error_split_into_its_causes(tmp_path, broken):
    log, _ = broken
    run_folder.save_log(tmp_path, log)
    with open(tmp_path / "samples.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    worst = max(rows, key=lambda row: float(row["tracking_position_m"]))
    assert worst["cause"] == "lag"
    assert float(worst["by_lag_position_m"]) == pytest.approx(float(worst["tracking_position_m"]), rel=1e-3)
    assert float(worst["by_torque_position_m"]) == 0.0


def test_a_line_without_values_has_gaps():
    chart = Chart("t", "x", "y", x_range=(0.0, 4.0), y_range=(0.0, 1.0))
    chart.line([0.0, 1.0, 2.0, 3.0, 4.0], [0.5, 0.5, np.nan, 0.5, np.nan], "c0")
    path = re.search(r'class="line c0"[^>]* d="([^"]*)"', svg([chart], 400, 300))
    assert path is not None
    assert path[1].count("M") == 2
    assert "L" in path[1].split("M")[1]
    assert path[1].endswith("h0")  # one value between two gaps is a dot


def test_the_picture_of_a_plot_shows_its_lines_where_they_are():
    chart = Chart("Title", "time [s]", "error [m]", x_range=(0.0, 10.0), y_range=(0.0, 1.0))
    chart.line([0.0, 10.0], [0.25, 0.25], "c0", "flat", 3.0)
    chart.dots([5.0], [0.75], "c3", "spot", 6.0)
    chart.line([0.0, 10.0], [0.5, 0.5], "c2", "dashed", 3.0, "8 8")
    drawing = svg([chart], 400, 300)
    picture = np.asarray(Image.open(io.BytesIO(raster.png(drawing))).convert("RGB")).astype(int)
    assert picture.shape == (600, 800, 3)
    frame = re.search(r'<rect class="frame" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawing)
    assert frame is not None
    x, y, width, height = (2.0 * float(v) for v in frame.groups())

    def at(across: float, up: float) -> tuple[int, ...]:
        return tuple(picture[round(y + (1.0 - up) * height), round(x + across * width)])

    def like(colour: tuple[int, ...], wanted: str) -> bool:
        return max(abs(a - b) for a, b in zip(colour, bytes.fromhex(wanted), strict=True)) < 30

    assert all(like(at(across, 0.25), "0072b2") for across in (0.1, 0.5, 0.9))
    assert like(at(0.5, 0.75), "c8430a")
    drawn = [like(at(across, 0.5), "00875f") for across in np.linspace(0.02, 0.98, 200)]
    assert 0.3 < np.mean(drawn) < 0.7  # half of a dashed line
    assert like(at(0.3, 0.9), "ffffff")


def test_the_path_in_space_keeps_its_proportions(log):
    (chart,) = plots._path_3d(log, TASK)
    lines = {item["name"]: item for kind, item in chart.items if kind == "line"}
    for name, points in (("target", log.targets[:, :3, 3]), ("measured", log.tool_measured)):
        uv = np.stack([lines[name]["x"], lines[name]["y"]], axis=1)
        # A picture from one direction shortens lengths, never stretches them.
        assert (
            np.linalg.norm(np.diff(uv, axis=0), axis=1) <= np.linalg.norm(np.diff(points, axis=0), axis=1) + 1e-12
        ).all()
        assert np.linalg.norm(uv[-1] - uv[0]) > 0.3 * np.linalg.norm(points[-1] - points[0])
    words = [item["words"] for kind, item in chart.items if kind == "text"]
    assert {"x [m]", "y [m]", "z [m]"} <= set(words)


def test_axes_of_equal_scale_and_powers_of_ten():
    chart = Chart("t", "x", "y", equal=True)
    chart.line([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], "c0")
    (xa, xb), (ya, yb) = chart._limits(400.0, 200.0)
    assert (xb - xa) / 400.0 == pytest.approx((yb - ya) / 200.0)
    log_chart = Chart("t", "x", "y", log_y=True)
    log_chart.line([0.0, 1.0], [1e-9, 1e-3], "c0", "errors & <others>")
    drawing = svg([log_chart])
    assert "10⁻⁶" in drawing
    assert "errors &amp; &lt;others&gt;" in drawing


def test_long_lines_are_thinned_without_losing_their_peak():
    y = np.zeros(50_000)
    y[31_234] = 1.0
    points = plots._thinned(np.arange(50_000.0), y)
    assert len(points) < 2_000
    assert (31_234.0, 1.0) in points
