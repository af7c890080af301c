"""Videos: size, speed and length as asked, and a missing encoder told before anything runs."""

import sys
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
from PIL import Image

from ik_sim import video
from ik_sim.cli import main
from ik_sim.errors import IkSimError, InvalidArgumentError, MissingDependencyError
from ik_sim.report import write_run
from ik_sim.tasks import load_task
from ik_sim.tracking import record
from ik_sim.tracking_log import TrackingLog
from ik_sim.video import VideoSettings, VideoWriter, check_encoder, label, make_video

# imageio's ffmpeg plugin leaves the pipes of a finished reader or writer to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

FAST = {"renderer": "tiny", "smooth": 1}
SHORT = {"path.duration": 1.0, "settle": 0.5, "hold": 0.5}  # 2.0 s together


@pytest.fixture(scope="module")
def task():
    return load_task("planar2_circle", SHORT)


@pytest.fixture(scope="module")
def log(task) -> TrackingLog:
    return record(task)


def facts(path: Path) -> tuple[tuple[int, int], float, int, float]:
    """Size, rate, frames and length of a video as a reader finds them."""
    about = iio.immeta(path, plugin="FFMPEG")
    return tuple(about["size"]), about["fps"], len(iio.imread(path, plugin="FFMPEG")), about["duration"]


def test_a_video_lasts_as_long_as_the_motion(tmp_path, log):
    assert log.time[-1] == pytest.approx(2.0)
    made = make_video([log], tmp_path / "v.mp4", VideoSettings(size=(128, 96), fps=30.0, **FAST))
    size, fps, frames, seconds = facts(made.path)
    assert size == (128, 96)
    assert fps == 30.0
    assert frames in (60, 61)
    assert 1.95 <= seconds <= 2.05


def test_twice_the_speed_is_half_as_long(tmp_path, log):
    made = make_video([log], tmp_path / "v.mp4", VideoSettings(size=(96, 64), fps=10.0, speed=2.0, **FAST))
    assert facts(made.path)[2:] == (11, pytest.approx(1.1, abs=0.05))


@pytest.mark.parametrize(("asked", "got"), [((1920, 1080), (1920, 1080)), ((641, 479), (640, 478))])
def test_even_sizes_are_kept_and_odd_ones_told_once(tmp_path, asked, got, caplog):
    path = tmp_path / "v.mp4"
    fps, size, notes = video._possible(path, VideoSettings(size=asked), 1)
    assert size == got
    assert len(notes) == (asked != got)
    with VideoWriter(path, fps) as add:
        for i in range(12):
            add(np.full((size[1], size[0], 3), 20 * i, np.uint8))
    assert facts(path)[0] == got  # not the next multiple of 16
    assert facts(path)[2] == 12


@pytest.mark.parametrize(("kind", "fps"), [("gif", 100 / 7), ("webp", 1000 / 67)])
def test_gif_and_webp_play_at_the_rate_that_is_told(tmp_path, log, kind, fps):
    made = make_video([log], tmp_path / f"v.{kind}", VideoSettings(size=(97, 65), fps=15.0, **FAST))
    assert made.fps == pytest.approx(fps)
    with Image.open(made.path) as image:
        assert image.size == (97, 65)
        assert getattr(image, "n_frames", 1) >= 0.8 * made.frames  # equal neighbours may be one longer frame
        total = 0
        for i in range(getattr(image, "n_frames", 1)):
            image.seek(i)
            image.load()  # a webp says so only then
            total += image.info["duration"]
    assert total == pytest.approx(1000 * made.seconds, rel=0.02)
    assert made.seconds == pytest.approx(2.0, abs=1.6 / fps)  # the first and the last moment, and rounding


def test_equal_runs_give_equal_bytes(tmp_path, log):
    made = [
        make_video([log], tmp_path / f"{i}.mp4", VideoSettings(size=(64, 64), fps=5.0, **FAST)).path.read_bytes()
        for i in range(2)
    ]
    assert made[0] == made[1]


def test_several_runs_stand_side_by_side_until_the_longest_ends(tmp_path, log):
    longer = record(load_task("planar2_circle", {**SHORT, "path.duration": 1.5, "control.position_gain": 0.1}))
    made = make_video([log, longer], tmp_path / "v.mp4", VideoSettings(size=(200, 96), fps=10.0, **FAST))
    assert facts(made.path)[0] == (200, 96)
    assert made.seconds == pytest.approx(2.6)
    assert video._titles([log, longer]) == ["planar2, closed form, gain 1", "planar2, closed form, gain 0.1"]


def test_the_words_say_time_error_and_solver_and_fit(log):
    blank = np.full((200, 320, 3), 255, np.uint8)
    written = label(blank, log, 0.5, "planar2, combined", VideoSettings())
    ink = np.argwhere((written != 255).any(axis=-1))
    assert len(ink) > 200
    assert ink[:, 1].max() < 319
    long = label(blank, log, 0.5, "a very long title " * 8, VideoSettings())
    assert not (long[:, 318:] != 255).any()  # made smaller, not cut
    assert video._length(0.00123) == "1.230 mm"
    assert video._length(1e-9) == "below 0.001 mm"


def test_a_missing_encoder_is_told_before_the_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingDependencyError, match="pip install imageio-ffmpeg"):
        check_encoder(Path("v.mp4"))
    check_encoder(Path("v.gif"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ik_sim.tracking.record", lambda *_, **__: pytest.fail("it ran"))
    assert main(["track", "planar2_circle", "--video"]) == 2
    error = capsys.readouterr().err
    assert "imageio-ffmpeg" in error
    assert "gif and webp work without it" in error
    assert not list(tmp_path.iterdir())


def test_an_encoder_without_h264_is_told(monkeypatch, tmp_path):
    fake = tmp_path / "ffmpeg"
    fake.write_text("#!/bin/sh\necho ' V..... mpeg4'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(fake))
    with pytest.raises(IkSimError, match=r"can't write H\.264"):
        check_encoder(Path("v.mp4"))


def test_other_endings_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"\.mp4, \.gif, \.webp"):
        check_encoder(Path("v.avi"))
    with pytest.raises(InvalidArgumentError):
        VideoSettings(camera="below")
    with pytest.raises(InvalidArgumentError):
        VideoSettings(speed=0.0)


def test_a_video_that_fails_leaves_nothing(tmp_path):
    def fail() -> None:
        with VideoWriter(tmp_path / "v.mp4", 10.0) as add:
            add(np.zeros((64, 64, 3), np.uint8))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())


def test_a_run_folder_can_be_filmed_later_and_the_report_holds_its_video(tmp_path, task, log, capsys):
    run = tmp_path / "run"
    settings = VideoSettings(size=(96, 64), fps=5.0, **FAST)
    write_run(run, log, task, make_video=lambda log, folder: make_video([log], folder / "video.mp4", settings).path)
    page = (run / "report.html").read_text()
    assert 'src="data:video/mp4;base64,' in page
    assert "<h2>Video</h2>" in page
    again = tmp_path / "again.gif"
    assert main(["video", str(run), "--out", str(again), "--size", "97", "65", "--fps", "5", "--renderer", "tiny"]) == 0
    assert "11 frames" in capsys.readouterr().err
    assert again.stat().st_size > 0


def test_a_bare_server_gets_a_film_and_a_page_with_one_command(tmp_path, monkeypatch, capsys):
    # U127
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(video.VideoSettings, "__init__", _small(video.VideoSettings.__init__))
    out = tmp_path / "run"
    arguments = ["track", "planar2_circle", "--video", "--set", "path.duration=0.5", "--out", str(out)]
    assert main(arguments) in (0, 1)  # whether so fast a circle passes is another matter
    said = capsys.readouterr().err
    assert f"video: {out / 'video.mp4'}" in said
    assert "5 of 9 frames" in said  # on no terminal, a line for each quarter
    assert (out / "video.mp4").stat().st_size > 1000
    assert "<video controls" in (out / "report.html").read_text()


def _small(init):
    def small(self, *args, **kwargs):
        init(self, *args, **{**kwargs, "size": (96, 64), "fps": 5.0, **FAST})

    return small
