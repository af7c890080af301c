"""Films: joints that swing as sines, and FABRIK's passes drawn one by one."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ik_sim.errors import InvalidArgumentError
from ik_sim.studies.study import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    STYLE,
    Picture,
    Section,
    Study,
    number,
    write,
)

FILMS = ("swing", "passes", "tree")


@dataclass(frozen=True)
class Motion(Study):
    """Sinusoidal joint motion, and the convergence of FABRIK on a chain and on a tree, as GIF or mp4."""

    name: ClassVar[str] = "motion"
    title: ClassVar[str] = "How joints swing, and how FABRIK gets there"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "essay": {},
        "mp4": {"format": "mp4", "frames": 240},
        "quick": {"frames": 12},
    }

    lengths: tuple[float, ...] = (1.0, 0.8, 0.6)
    """Of the swinging arm's links."""
    amplitudes_deg: tuple[float, ...] = (60.0, 45.0, 45.0)
    """How far each joint swings to either side."""
    periods: tuple[float, ...] = (1.0, 2.0, 3.0)
    """Swings of each joint during the film."""
    frames: int = 90
    """Of the swing film."""
    rate: int = 25
    """Frames a second."""
    format: str = "gif"
    """gif, or mp4 where imageio-ffmpeg is installed."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.format not in ("gif", "mp4") or self.frames < 2 or self.rate < 1:
            raise InvalidArgumentError("motion", "format must be gif or mp4, frames at least 2, rate at least 1")
        if not len(self.lengths) == len(self.amplitudes_deg) == len(self.periods) > 0:
            raise InvalidArgumentError("motion", "lengths, amplitudes_deg and periods must be equally many")

    def columns(self) -> tuple[str, ...]:
        """A row a frame: which film, the frame, where the tip is and how far from its target."""
        return ("film", "frame", "tip_x", "tip_y", "miss")

    def chunk_count(self) -> int:
        """The films."""
        return len(FILMS)

    def chunk(self, number: int, folder: Path) -> Float[np.ndarray, "k c"]:
        """Draw and write one film."""
        frames, tips, misses = getattr(self, f"_{FILMS[number]}")()
        _write_film(folder / f"{FILMS[number]}.{self.format}", frames, self.rate if number == 0 else 3)
        k = np.arange(len(tips), dtype=float)
        return np.column_stack([np.full(len(k), float(number)), k, tips, misses])

    def evaluate(self, rows: Float[np.ndarray, "k c"], folder: Path) -> tuple[dict[str, Any], list[Section]]:
        """The page around the films."""
        misses = {name: rows[rows[:, 0] == k, 4] for k, name in enumerate(FILMS)}
        summary = {
            "frames": len(rows),
            "passes of the chain": len(misses["passes"]) - 1,
            "last miss of the chain": float(misses["passes"][-1]),
            "passes of the tree": len(misses["tree"]) - 1,
            "last miss of the tree": float(misses["tree"][-1]),
        }

        def trace(figure: Any) -> None:
            axes = figure.subplots()
            path = rows[rows[:, 0] == 0]
            kept = np.append(np.arange(len(path)), 0) if closes else np.arange(len(path))
            axes.plot(path[kept, 2], path[kept, 3], ".-", color=BLUE, markersize=3)
            axes.set_aspect("equal")
            axes.set(xlabel="x", ylabel="y")

        def falling(figure: Any) -> None:
            axes = figure.subplots()
            for k, name in enumerate(FILMS[1:]):
                values = misses[name][::2]  # after the start and every forward pass
                axes.semilogy(values, "o-", color=COLOURS[k], label={"passes": "chain", "tree": "tree"}[name])
            axes.set(xlabel="cycle", ylabel="distance of the worst tip from its target")
            axes.legend()

        end, closes = self.format, all(float(p).is_integer() for p in self.periods)
        swing = ", ".join(f"{number(a)}°" for a in self.amplitudes_deg)
        return summary, [
            Section(
                "Joints that swing as sines",
                [
                    f"Every joint follows a sine, with amplitudes {swing} and "
                    f"{', '.join(map(number, self.periods))} swings in the film. "
                    + (
                        "Because the counts are whole numbers every joint ends where it began, and the tip closes its "
                        "path. The second half of the film is the first one mirrored and run backwards: the sines of 1 - t "
                        "are those of t with the other sign."
                        if closes
                        else "The counts are not all whole numbers, so the tip does not close its path."
                    ),
                ],
                [
                    Picture(
                        "swing",
                        "Left the arm, with the path of its tip so far; right the angles of its joints.",
                        file=f"swing.{end}",
                    ),
                    Picture(
                        "trace",
                        "The whole path of the tip, a dot a frame: far apart where it is fast.",
                        trace,
                        (6.0, 3.0),
                    ),
                ],
            ),
            Section(
                "FABRIK on a chain, pass by pass",
                [
                    "Backward: the tip is put on the target and each link follows, so the root comes off its place. "
                    "Forward: the root is put back and each link follows the other way, so the tip comes off the "
                    "target, "
                    "but less than before. The dashed chain is the one before the pass.",
                ],
                [
                    Picture(
                        "passes",
                        "Left: orange after a backward pass, blue after a forward pass; the cross is the target, the "
                        "square the root's place. Right: how far the tip is from its target; after a backward pass 0.",
                        file=f"passes.{end}",
                    )
                ],
            ),
            Section(
                "A trunk with two limbs",
                [
                    "Where limbs meet, each backward pass proposes a place of its own for the joint (diamonds); "
                    "their mean is taken, and the trunk goes on from there. The forward pass then finds the limbs' "
                    "ends off their targets by what the compromise cost, and the proposals draw together cycle by "
                    f"cycle: {(len(misses['tree']) - 1) // 2} of them until both tips are within a thousandth.",
                ],
                [
                    Picture("tree", "Two tips, two targets, one trunk.", file=f"tree.{end}"),
                    Picture(
                        "falling",
                        "The largest miss after each forward pass; after a backward pass it is zero by construction. Past the "
                        "first cycles the lines are straight on this scale: each cycle gains by the same factor.",
                        falling,
                    ),
                ],
            ),
        ]

    # --- the films ---

    def _swing(self) -> tuple[list[Any], Any, Any]:
        n, limit = len(self.lengths), 1.05 * sum(self.lengths)
        t = np.arange(self.frames) / self.frames
        angles = np.radians(self.amplitudes_deg) * np.sin(2 * np.pi * np.outer(t, self.periods))
        heading = np.cumsum(angles, axis=1) + np.pi / 2  # standing at rest
        steps = np.asarray(self.lengths)[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
        points = np.concatenate([np.zeros((self.frames, 1, 2)), np.cumsum(steps, axis=1)], axis=1)
        images = []
        for k in range(self.frames):

            def draw(left: Any, right: Any, k: int = k) -> None:
                left.plot(*points[: k + 1, -1].T, color=ORANGE, linewidth=1.2)
                left.plot(*points[k].T, "o-", color=BLUE, linewidth=4, markersize=7, markerfacecolor="white")
                left.plot(0, 0, "s", color=BLACK, markersize=9, zorder=0)
                left.set(xlim=(-limit, limit), ylim=(-0.4 * limit, limit), aspect="equal", xlabel="x", ylabel="y")
                for j in range(n):
                    right.plot(t, np.degrees(angles[:, j]), color="#cccccc", linewidth=1)
                    right.plot(t[: k + 1], np.degrees(angles[: k + 1, j]), color=COLOURS[j % 7], label=f"joint {j + 1}")
                    right.plot(t[k], np.degrees(angles[k, j]), "o", color=COLOURS[j % 7])
                right.set(xlabel="share of the film", ylabel="angle [deg]")
                right.legend(loc="upper right")

            images.append(_image(draw))
        return images, points[:, -1], np.zeros(self.frames)

    def _passes(self) -> tuple[list[Any], Any, Any]:
        from ik_sim.fabrik import Skeleton, Solver

        chain = Skeleton.chain([1.0, 0.8, 0.7, 0.5])
        target = np.array([[1.5, 2.25]])  # far out, where passes gain little and can be watched
        return _film(Solver(tolerance=1e-3).trace(chain, target[0], chain.pose([0.3, 0.4, -0.5, -0.6])), target)

    def _tree(self) -> tuple[list[Any], Any, Any]:
        from ik_sim.fabrik import Skeleton, Solver

        rest = [(0, 0), (0, 1), (0, 2), (0.7, 2.7), (1.4, 3.4), (-0.7, 2.7), (-1.4, 3.4)]
        tree = Skeleton.tree(rest, [-1, 0, 1, 2, 3, 2, 5])
        targets = np.array([[1.5, 2.5], [-1.0, 3.0]])
        return _film(Solver(tolerance=1e-3).trace(tree, targets), targets)


def _film(trace: Any, targets: Float[np.ndarray, "e 2"]) -> tuple[list[Any], Any, Any]:
    skeleton, points, misses = trace.solution.skeleton, trace.points, trace.misses
    parent = skeleton.parent
    low, high = points.reshape(-1, 2).min(axis=0), points.reshape(-1, 2).max(axis=0)
    low, high = np.minimum(low, targets.min(axis=0)) - 0.25, np.maximum(high, targets.max(axis=0)) + 0.25
    names = {"start": BLACK, "backward": ORANGE, "forward": BLUE, "bend": GREEN, "restart": RED, "turn": PURPLE}
    images, floor = [], 1e-5  # where a miss of zero is drawn
    from matplotlib.ticker import MaxNLocator, NullLocator

    for k, name in enumerate(trace.passes):

        def draw(left: Any, right: Any, k: int = k, name: str = name) -> None:
            def bones(p: Any, **style: Any) -> None:
                for i in range(1, len(p)):
                    left.plot(*p[[parent[i], i]].T, **style)

            if k > 0:
                bones(points[k - 1], color="#bbbbbb", linestyle="--", linewidth=1.2)
            if name == "backward" and not skeleton.is_chain:
                for i in range(1, len(parent)):
                    m = parent[i]
                    if np.sum(parent == m) > 1:  # proposals for a joint where limbs meet
                        d = points[k - 1][m] - points[k][i]
                        left.plot(
                            *(points[k][i] + skeleton.length[i] * d / np.linalg.norm(d)), "D", color=PURPLE, zorder=5
                        )
            bones(points[k], color=names[name], marker="o", linewidth=3.5, markersize=6, markerfacecolor="white")
            left.plot(*targets.T, "x", color=RED, markersize=11, markeredgewidth=2.5)
            left.plot(0, 0, "s", color=BLACK, markersize=9, zorder=0)
            left.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x", ylabel="y")
            left.set_title(f"{name} {(k + 1) // 2}" if k else "start")
            shown = np.maximum(misses[: k + 1], floor)
            right.semilogy(shown, color="#cccccc")
            for other, colour in names.items():
                at = [j for j in range(k + 1) if trace.passes[j] == other]
                right.semilogy(at, shown[at], "o", color=colour)
            right.set(xlim=(-0.5, len(misses) - 0.5), ylim=(0.5 * floor, 5), xlabel="pass", ylabel="largest miss")
            decades = [10.0**p for p in range(int(np.log10(floor)) + 1, 1)]
            right.set_yticks([floor, *decades], ["0", *(f"{v:g}" for v in decades)])
            right.yaxis.set_minor_locator(NullLocator())
            right.xaxis.set_major_locator(MaxNLocator(integer=True))

        images.append(_image(draw))
    images += [images[-1]] * 3  # rest on the answer
    tip = skeleton.effectors[0]
    return images, points[:, tip], misses


def _image(draw: Any) -> Any:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.8, 4.0), dpi=100)  # a multiple of 16 pixels either way, as mp4 wants
        canvas = FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        figure.subplots_adjust(0.07, 0.13, 0.98, 0.92, 0.24)  # the same in every frame, so that nothing jumps
        draw(left, right)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _write_film(path: Path, images: list[Any], rate: int) -> None:
    import imageio.v3 as iio

    from ik_sim.errors import MissingDependencyError

    if path.suffix == ".gif":
        buffer = io.BytesIO()
        iio.imwrite(buffer, np.stack(images), extension=".gif", duration=1000 / rate, loop=0)
        write(path, buffer.getvalue())
        return
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        raise MissingDependencyError("imageio-ffmpeg", "mp4", "pip install ik_sim[video]") from None
    partial = path.with_name(f".{path.name}.partial.mp4")
    iio.imwrite(partial, np.stack(images), fps=rate, codec="libx264", plugin="FFMPEG")
    partial.replace(path)
