"""Videos of runs: mp4 (H.264), gif or webp, at the speed at which it happened, alone or side by side.

    make_video([log], Path("video.mp4"), VideoSettings(size=(960, 540)))

Pictures come from the log, not from physics, so a run can be filmed again at any time, from anywhere. Frame i shows
the time i · speed / fps, the last one the end of the run. A gif counts its delays in hundredths of a second and a webp
in thousandths: a rate between them would play at the wrong speed, so the nearest possible rate is taken.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from ik_sim.errors import IkSimError, InvalidArgumentError, MissingDependencyError
from ik_sim.pictures import CAMERAS, GHOST, MEASURED, TARGET, Studio, camera
from ik_sim.robots import Robot, load_robot, robot_names
from ik_sim.stage import RENDERERS
from ik_sim.tracking_log import MOVING, TrackingLog

FORMATS = ("mp4", "gif", "webp")
HEADROOM = 0.09
"""Share of a picture's height that is kept free for its words, besides the margin."""
_INK, _SOFT = (27, 31, 36), (92, 102, 112)
_log = logging.getLogger("ik_sim")


@dataclass(frozen=True)
class VideoSettings:
    """How a video looks."""

    size: tuple[int, int] | None = None
    """Width and height in pixels, kept as asked when even; 960 x 540 when left out, wider for several runs."""
    fps: float = 30.0
    """Frames per second."""
    speed: float = 1.0
    """How many times faster than it happened; 1 is real time."""
    camera: str = "auto"
    """One of auto, corner, front, side, back, top; all of them frame the arm and the path by themselves."""
    renderer: str = "auto"
    """egl, tiny, or auto: EGL where it works."""
    overlay: bool = True
    """Write time, error and solver into the picture."""
    ghost: bool = True
    """Show where the arm was told to be, where that differs from where it was."""
    smooth: int = 2
    """Pixels drawn for each one shown, along either side."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, known in (("camera", CAMERAS), ("renderer", RENDERERS)):
            if getattr(self, name) not in known:
                raise InvalidArgumentError(name, f"is one of {', '.join(known)}, not {getattr(self, name)}")
        for name in ("fps", "speed"):
            if not 0.0 < getattr(self, name) < 1000.0:
                raise InvalidArgumentError(name, f"must be above 0 and below 1000, not {getattr(self, name)}")
        if self.size is not None and min(self.size) < 64:
            raise InvalidArgumentError("size", f"must be at least 64 x 64 pixels, not {self.size[0]} x {self.size[1]}")


@dataclass(frozen=True)
class VideoFacts:
    """What was written."""

    path: Path
    size: tuple[int, int]
    frames: int
    fps: float
    renderer: str
    notes: tuple[str, ...] = ()
    """What is not as it was asked for, one sentence each."""

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return self.frames / self.fps


def check_encoder(path: Path) -> None:
    """Say before a run starts whether a video can be written at its end.

    Raises:
        InvalidArgumentError: a format that isn't one of FORMATS.
        MissingDependencyError: what writes it isn't installed.
    """
    kind = _kind(path)
    if kind == "webp":
        from PIL import features

        if not features.check("webp"):
            raise MissingDependencyError("Pillow with webp", "webp videos", "pip install --upgrade pillow")
    if kind != "mp4":
        return
    command = "pip install imageio-ffmpeg"
    try:
        import imageio_ffmpeg

        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise MissingDependencyError("imageio-ffmpeg", "mp4 videos; gif and webp work without it", command) from None
    try:
        said = subprocess.run([ffmpeg, "-hide_banner", "-encoders"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise IkSimError(f"no mp4 video possible: {ffmpeg} does not run ({error}); gif and webp need none") from None
    if "libx264" not in said:
        raise IkSimError(f"no mp4 video possible: {ffmpeg} can't write H.264; {command}, or choose gif or webp")


def make_video(
    logs: Sequence[TrackingLog],
    path: Path,
    settings: VideoSettings | None = None,
    *,
    robots: Sequence[Robot] | None = None,
    titles: Sequence[str] | None = None,
    on_frame: Callable[[int, int], None] | None = None,
) -> VideoFacts:
    """Film one run, or several side by side from the same camera, each for as long as the longest.

    Args:
        logs: the runs.
        path: where the video goes; its ending says the format.
        settings: the defaults of :class:`VideoSettings` when left out.
        robots: their arms; loaded by the names in the logs when left out.
        titles: what stands above each; robot and solver when left out.
        on_frame: called with the number of frames done and of all frames.

    Raises:
        IkSimError: the encoder is missing, or the robot isn't the one of the log.
    """
    settings = settings or VideoSettings()
    if not logs:
        raise InvalidArgumentError("logs", "a video needs at least one run")
    check_encoder(path)
    fps, size, notes = _possible(path, settings, len(logs))
    for note in notes:
        _log.warning("%s", note)
    robots = robots or [robot_of(log) for log in logs]
    titles = titles or _titles(logs)
    last = max(float(log.time[-1]) for log in logs)
    frames = round(last / settings.speed * fps) + 1
    widths = _panels(size[0], len(logs))
    view: Any = settings.camera
    if len(logs) > 1 and len({robot.name for robot in robots}) == 1:
        rows = np.concatenate([log.q_measured[:: max(1, len(log) // 16)] for log in logs])
        path_points = np.concatenate([log.targets[:, :3, 3] for log in logs])
        view = camera(settings.camera, robots[0], rows, path_points, widths[0] / size[1], HEADROOM * settings.overlay)
    studios: list[Studio] = []
    try:
        for robot, log, width in zip(robots, logs, widths, strict=True):
            studios.append(studio(log, robot, replace(settings, size=(width, size[1])), view))
        with VideoWriter(path, fps) as add:
            for i in range(frames):
                when = min(i * settings.speed / fps, last)
                panels = []
                for one, log, title in zip(studios, logs, titles, strict=True):
                    picture = one.picture(min(when, float(log.time[-1])))
                    panels.append(label(picture, log, when, title, settings) if settings.overlay else picture)
                add(np.concatenate(panels, axis=1))
                if on_frame is not None:
                    on_frame(i + 1, frames)
        renderer = studios[0].renderer
    finally:
        for one in studios:
            one.close()
    return VideoFacts(path, size, frames, fps, renderer, notes)


def studio(log: TrackingLog, robot: Robot, settings: VideoSettings, view: Any = None) -> Studio:
    """What takes the pictures of one run; from its start on, before the first tick."""
    q_start = np.asarray(log.provenance["q_start"], dtype=float)
    targets = log.targets[:, :3, 3]
    return Studio(
        robot,
        np.concatenate([[0.0], log.time]),
        np.vstack([q_start, log.q_measured]),
        np.vstack([q_start, log.q_command]) if settings.ghost else None,
        np.vstack([targets[:1], targets]),
        size=settings.size or (960, 540),
        view=view or settings.camera,
        renderer=settings.renderer,
        smooth=settings.smooth,
        headroom=HEADROOM * settings.overlay,
    )


def robot_of(log: TrackingLog) -> Robot:
    """The arm of a log, by the name or the file that it holds.

    Raises:
        IkSimError: it can't be found, or has other joints by now.
    """
    facts, task = log.provenance["robot"], log.provenance["task"]
    name = facts["name"] if facts["name"] in robot_names() else task["robot"]
    robot = load_robot(name, base_link=facts["base_link"], tool_link=facts["tool_link"])
    if robot.chain.joint_names != log.joint_names:
        raise IkSimError(f"{robot.name} has other joints than the run: {', '.join(log.joint_names)}")
    return robot


# --- what is written into the picture ---


def label(
    picture: UInt8[np.ndarray, "h w 3"], log: TrackingLog, time: float, title: str, settings: VideoSettings
) -> UInt8[np.ndarray, "h w 3"]:
    """The picture with title, time and error above, and what the colours mean below."""
    height, width = picture.shape[:2]
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    i = min(int(np.searchsorted(log.time, time - 1e-9)), len(log) - 1)
    error = float(log.tracking_position[i])
    clock = f"{time:.2f} s" + ("" if settings.speed == 1.0 else f"  ({settings.speed:g}x)")
    lines = [title, f"{clock}    error {_length(error)}"]
    room, edge = 0.94 * width, max(6, round(0.022 * width))
    y = max(5, round(0.025 * height))
    for k, text in enumerate(lines):
        font = _fitting(text, height / (20.0 if k else 18.0), room)
        draw.text((edge, y), _shortened(text, font, room), font=font, fill=_INK if k == 0 else _SOFT)
        y += round(1.25 * font.size)
    keys = [("target", TARGET), ("tool", MEASURED)] + ([("command", GHOST)] if settings.ghost else [])
    font = _fitting("   ".join(f"---- {name}" for name, _ in keys), height / 26.0, room)
    x, y = edge, height - round(1.9 * font.size)
    for name, colour in keys:
        middle = y + round(0.62 * font.size)
        ink = tuple(round(255 * c) for c in colour)
        draw.rounded_rectangle((x, middle - 2, x + round(1.2 * font.size), middle + 1), radius=2, fill=ink)
        x += round(1.5 * font.size)
        draw.text((x, y), name, font=font, fill=_SOFT)
        x += round(font.getlength(name) + 1.1 * font.size)
    return np.asarray(image)


def _titles(logs: Sequence[TrackingLog]) -> list[str]:
    """Robot and solver of each run, and what differs: its gain, or how many iterations a solve of its solver takes."""
    gains = [log.provenance["control"]["position_gain"] for log in logs]
    solvers = [log.provenance["task"]["solver"]["name"].replace("_", " ") for log in logs]
    titles = [f"{log.provenance['robot']['name']}, {solver}" for log, solver in zip(logs, solvers, strict=True)]
    if len(set(gains)) > 1:
        return [f"{title}, gain {gain:g}" for title, gain in zip(titles, gains, strict=True)]
    if len(set(solvers)) > 1:
        medians = [float(np.median(log.iterations[log.of_phase(MOVING)])) for log in logs]
        return [f"{title}: {n:g} iterations" for title, n in zip(titles, medians, strict=True)]
    return titles


def _length(metres: float) -> str:
    if metres >= 1.0:
        return f"{metres:.3f} m"
    return f"{1000.0 * metres:.3f} mm" if metres >= 1e-6 else "below 0.001 mm"


def _fitting(text: str, size: float, room: float) -> Any:
    """Pillow's own font, as large as asked and as the room allows."""
    font: Any = ImageFont.load_default(size=max(9.0, size))
    length = font.getlength(text)
    return font if length <= room else ImageFont.load_default(size=max(8.0, font.size * room / length))


def _shortened(text: str, font: Any, room: float) -> str:
    """What of a text fits in even the smallest letters."""
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(f"{text} ...") > room:
        text = text[:-1]
    return f"{text} ..."


# --- files ---


def _kind(path: Path) -> str:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidArgumentError("video", f"ends in .{', .'.join(FORMATS)}, not in {path.suffix or 'nothing'!r}")
    return kind


def _possible(path: Path, settings: VideoSettings, runs: int) -> tuple[float, tuple[int, int], tuple[str, ...]]:
    """Rate, size, and how they differ from what was asked."""
    width, height = settings.size or {1: (960, 540), 2: (1280, 540)}.get(runs, (480 * runs, 480))
    notes = []
    kind, fps = _kind(path), settings.fps
    if kind == "mp4" and (width % 2 or height % 2):
        even = (width - width % 2, height - height % 2)
        notes.append(f"H.264 needs even sizes: {width} x {height} becomes {even[0]} x {even[1]}")
        width, height = even
    if kind == "gif":
        fps = 100.0 / max(2, round(100.0 / fps))  # browsers slow delays of 1/100 s down
    elif kind == "webp":
        fps = 1000.0 / max(1, round(1000.0 / fps))
    if abs(fps - settings.fps) > 0.02 * settings.fps:
        notes.append(f"a {kind} can't have {settings.fps:g} frames per second; it gets {fps:.4g}")
    return fps, (width, height), tuple(notes)


def _panels(width: int, count: int) -> list[int]:
    ends = [round(width * i / count) for i in range(count + 1)]
    return [b - a for a, b in pairwise(ends)]


class VideoWriter:
    """Writes frames beside the place of the video, and renames the file when it is whole."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._fps, self._kind = path, fps, _kind(path)
        self._partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix.lower()}")
        self._frames: list[Any] = []
        self._mp4: Any = None

    def __enter__(self) -> Callable[[Any], None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IkSimError(f"can't write {self._path}: {error.strerror or error}") from None
        if self._kind != "mp4":
            return self._frames.append
        import imageio.v2 as imageio

        self._mp4 = imageio.get_writer(
            self._partial,
            format="FFMPEG",  # pyright: ignore[reportArgumentType]
            mode="I",
            fps=self._fps,
            codec="libx264",
            pixelformat="yuv420p",  # what browsers play
            macro_block_size=2,
            quality=None,
            ffmpeg_log_level="error",
            output_params=["-crf", "25", "-preset", "medium", "-movflags", "+faststart"],
        )
        return self._mp4.append_data

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if self._mp4 is not None:
            self._mp4.close()
        try:
            if kind is None:
                if self._mp4 is None:
                    self._write_images()
                self._partial.replace(self._path)
        except OSError as problem:
            raise IkSimError(f"can't write {self._path}: {problem.strerror or problem}") from None
        finally:
            self._partial.unlink(missing_ok=True)

    def _write_images(self) -> None:
        import imageio.v3 as imageio

        more: dict[str, Any] = {"quality": 70, "method": 4} if self._kind == "webp" else {}
        frames = _few_colours(self._frames) if self._kind == "gif" else self._frames
        imageio.imwrite(
            self._partial, np.stack(list(frames)), plugin="pillow", duration=1000.0 / self._fps, loop=0, **more
        )


def _few_colours(frames: Sequence[Any]) -> Iterator[Any]:
    """Frames of a gif in one palette for all of them, without dots: what does not move then costs no bytes."""
    mosaic = np.concatenate([frame[::2, ::2] for frame in frames[:: max(1, len(frames) // 6)]], axis=1)
    palette = Image.fromarray(mosaic).quantize(255, method=Image.Quantize.MEDIANCUT)
    for frame in frames:
        image = Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        yield np.asarray(image.convert("RGB"))
