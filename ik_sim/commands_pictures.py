"""The commands that show a run: `ik-sim video`."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro


@dataclass(frozen=True)
class Video:
    """Film a recorded run, or several side by side."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, as `ik-sim track` leaves them."""
    out: Path | None = None
    """Where the video goes: .mp4, .gif or .webp; video.mp4 in the first run folder when left out."""
    size: tuple[int, int] | None = None
    """Width and height in pixels; 960 540 when left out, wider for several runs."""
    fps: float = 30.0
    """Frames per second."""
    speed: float = 1.0
    """How many times faster than it happened; 1 is real time."""
    camera: str = "auto"
    """auto, corner, front, side, back or top."""
    renderer: str = "auto"
    """egl, tiny, or auto: EGL where it works."""
    plain: bool = False
    """Write nothing into the picture."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        from ik_sim.errors import InvalidArgumentError
        from ik_sim.run_folder import load_log
        from ik_sim.video import VideoSettings, check_encoder

        if not self.runs:
            raise InvalidArgumentError("runs", "name one run folder or more, such as runs/paper_ur5")
        out = self.out or self.runs[0] / "video.mp4"
        check_encoder(out)
        settings = VideoSettings(self.size, self.fps, self.speed, self.camera, self.renderer, overlay=not self.plain)
        film([load_log(run) for run in self.runs], out, settings, self.quiet)
        return 0


def film(logs: list[Any], out: Path, settings: Any, quiet: bool, named: Path | None = None) -> Any:
    """Make a video with a bar on a terminal, and say what was made, where (or `named` where), and by which renderer."""
    from ik_sim.video import make_video

    with _bar(f"filming {out.name}", quiet) as on_frame:
        facts = make_video(logs, out, settings, on_frame=on_frame)
    if not quiet:
        width, height = facts.size
        print(
            f"  video: {named or out}  ({width} x {height}, {facts.frames} frames, {facts.seconds:.2f} s, "
            f"drawn by {facts.renderer})",
            file=sys.stderr,
        )
    return facts


@contextmanager
def _bar(title: str, quiet: bool) -> Any:
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():  # a line for each quarter

        def say(done: int, total: int) -> None:
            if 4 * done // total > 4 * (done - 1) // total and done < total:
                print(f"  {title}: {done} of {total} frames", file=sys.stderr, flush=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
