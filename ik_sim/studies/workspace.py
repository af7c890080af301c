"""What can an arm reach? Planar regions under angle limits, exactly; reach maps of arms in space, every voxel judged.

Two links in the plane have a closed form, so each grid point is decided exactly and the boundary is a handful of
circular arcs. With more links the region is sampled: where the tip is, and how often, when the joints are anywhere
inside their limits. For an arm in space the map says, for every voxel, which share of evenly spread tool orientations the
arm can take there inside its joint limits; a second solver can be asked the same as a witness.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ik_sim.errors import InvalidArgumentError
from ik_sim.studies.study import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Picture, Section, Study, export, number
from ik_sim.target import AXIS, POINT, POSE

SETS = (
    ("both joints free", -180.0, 180.0),
    ("only positive angles", 0.0, 180.0),
    ("only negative angles", -180.0, 0.0),
)
"""The angle sets of the essay: name, lower and upper end of both joints [deg]."""

_ALL = tuple(title.replace("both", "all") for title, *_ in SETS)  # where there are more than two joints
_GRID = 241  # points a side of the planar map
_PIECES = 4  # in which the samples of a set are drawn


@dataclass(frozen=True)
class Workspace(Study):
    """Reachable regions: of planar links under three sets of limits, or of any robot voxel by voxel."""

    name: ClassVar[str] = "workspace"
    title: ClassVar[str] = "What can an arm reach?"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "essay": {},
        "density": {"lengths": (0.65, 0.7, 0.46)},
        "planar3": {"robot": "planar3", "voxel": 0.02, "orientations": 36},
        "ur5": {"robot": "ur5"},
        "iiwa14": {"robot": "iiwa14"},
    }

    robot: str = ""
    """A robot's name or the path of a URDF; planar links under the essay's limits when empty."""
    base_link: str = ""
    """Where a URDF's chain starts; its root when empty."""
    tool_link: str = ""
    """Where it ends; its only tip when empty."""
    lengths: tuple[float, ...] = (0.65, 1.16)
    """Of the planar links: two are decided exactly, more are sampled."""
    samples: int = 2_000_000
    """Postures drawn for each set of limits where there are more than two links."""
    voxel: float = 0.1
    """Edge of a voxel [m]."""
    orientations: int = 32
    """Tool orientations asked for in every voxel, spread evenly: headings in the plane; directions of the tool for an
    arm that has no say in the turn about it; an arm with no say in those either is only asked for the point."""
    solver: str = ""
    """Which answers; the closed form where the arm has one, else `auto`, when empty."""
    witness: str = "other"
    """A second solver that is asked the same; none when empty. `other` is Levenberg-Marquardt beside a closed form,
    damped least squares beside anything else."""
    witness_every: int = 25
    """Of so many voxels the witness is asked in one."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not (len(self.lengths) >= 2 and all(x > 0 for x in self.lengths)):
            raise InvalidArgumentError("workspace.lengths", "must be two or more positive numbers")
        if self.samples < _PIECES:
            raise InvalidArgumentError("workspace.samples", f"must be at least {_PIECES}")
        if not (self.voxel > 0 and self.orientations > 0 and self.witness_every > 0):
            raise InvalidArgumentError("workspace", "voxel, orientations and witness_every must be positive")

    # --- the arm ---

    @cached_property
    def _chain(self) -> Any:
        from ik_sim.robots import load_robot

        return load_robot(self.robot, base_link=self.base_link or None, tool_link=self.tool_link or None).chain

    @cached_property
    def _axis(self) -> Any:
        """Centres of voxels along each of the three axes; one layer for a planar arm."""
        from ik_sim.chain import CENTRE, REACH

        c = self._chain.packed
        half = int(np.ceil(float(c[REACH]) / self.voxel))
        offsets = np.arange(-half, half + 1) * self.voxel
        centre = np.asarray(c[CENTRE : CENTRE + 3])
        return [
            centre[0] + offsets,
            centre[1] + offsets,
            np.array([centre[2]]) if self._planar else centre[2] + offsets,
        ]

    @property
    def _planar(self) -> bool:
        return self._chain.family in ("planar2", "planar3")

    def _names(self) -> tuple[str, str]:
        """Of the solver and of its witness."""
        closed = self._chain.family in ("planar2", "planar3", "ur", "srs")
        solver = self.solver or ("closed_form" if closed else "auto")
        other = "levenberg_marquardt" if solver == "closed_form" else "damped_least_squares"
        return solver, other if self.witness == "other" else self.witness

    @cached_property
    def _kind(self) -> int:
        """What a target asks for: as much as the arm can have a say in, seen in its Jacobian at some posture."""
        if self._planar:
            return POSE if self._chain.family == "planar3" else POINT
        q = self.rng(0).uniform(-1.0, 1.0, self._chain.n)
        J, R = self._chain.jacobian(q), self._chain.fk(q)[:3, :3]
        tilt = (R.T @ J[3:])[:2]  # turns of the tool's z axis; a roll about it moves neither axis nor point
        if np.linalg.matrix_rank(J, tol=1e-6) == 6:
            return POSE
        return AXIS if np.linalg.matrix_rank(np.vstack([J[:3], tilt]), tol=1e-6) == 5 else POINT

    def _rotations(self) -> Float[np.ndarray, "m 3 3"]:
        m = self.orientations
        if self._kind == POINT:
            return np.eye(3)[None]
        if self._kind == AXIS:  # z along directions on a Fibonacci spiral
            from scipy.spatial.transform import Rotation

            up = 1.0 - (2.0 * np.arange(m) + 1.0) / m
            turn = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(m)
            return Rotation.from_euler("ZY", np.column_stack([turn, np.arccos(up)])).as_matrix()
        if self._planar:
            a = 2 * np.pi * np.arange(m) / m
            R = np.zeros((m, 3, 3))
            R[:, 0, 0] = R[:, 1, 1] = np.cos(a)
            R[:, 1, 0], R[:, 0, 1], R[:, 2, 2] = np.sin(a), -np.sin(a), 1.0
            return R
        from scipy.spatial.transform import Rotation

        # Alexa 2022, "Super-Fibonacci spirals": evenly spread rotations in any number.
        s = np.arange(m) + 0.5
        a, b = 2 * np.pi * s / np.sqrt(2.0), 2 * np.pi * s / 1.533751168755204288118041
        r, t = np.sqrt(s / m), np.sqrt(1 - s / m)
        return Rotation.from_quat(
            np.stack([r * np.sin(a), r * np.cos(a), t * np.sin(b), t * np.cos(b)], axis=1)
        ).as_matrix()

    # --- rows ---

    def columns(self) -> tuple[str, ...]:
        """A row a grid point, or a voxel within the links' whole length."""
        if not self.robot:
            return ("set", "x", "y", "answers" if len(self.lengths) == 2 else "samples")
        return ("x", "y", "z", "share", "manipulability", "witness_share", "only_solver", "only_witness")

    def chunk_count(self) -> int:
        """The three sets, or the layers of voxels."""
        if not self.robot:
            return len(SETS) * (1 if len(self.lengths) == 2 else _PIECES)
        return len(self._axis[1]) if self._planar else len(self._axis[2])

    def chunk(self, number: int, folder: Path) -> Float[np.ndarray, "k c"]:
        """One set of limits on the whole grid, or one layer."""
        if self.robot:
            return self._layer(number)
        return self._planar_set(number) if len(self.lengths) == 2 else self._sampled_set(number)

    def _planar_set(self, which: int) -> Float[np.ndarray, "k 4"]:
        a, b = self.lengths
        _, low, high = SETS[which]
        edge = np.linspace(-1.05, 1.05, _GRID) * (a + b)
        x, y = (v.ravel() for v in np.meshgrid(edge, edge))
        answers = np.zeros(x.shape)
        r = np.hypot(x, y)
        inside = (r <= a + b) & (r >= abs(a - b)) & (r > 0)
        outer, inner = (a + b - r) * (a + b + r), (r - abs(a - b)) * (r + abs(a - b))
        bend = 2 * np.arctan2(np.sqrt(np.maximum(outer, 0)), np.sqrt(np.maximum(inner, 0)))
        for sign in (1.0, -1.0):
            second = np.degrees(sign * bend)
            first = np.degrees(np.arctan2(y, x) - np.arctan2(b * np.sin(sign * bend), a + b * np.cos(bend)))
            first = (first - low) % 360.0 + low  # the turn that can lie in the arc
            answers += inside & (first <= high + 1e-9) & (second >= low - 1e-9) & (second <= high + 1e-9)
        return np.column_stack([np.full(x.shape, float(which)), x, y, answers])

    def _sampled_set(self, number: int) -> Float[np.ndarray, "k 4"]:
        """Cells in which the tip was, and how often, for one piece of one set's samples."""
        which, piece = divmod(number, _PIECES)
        _, low, high = SETS[which]
        first, behind = (self.samples * i // _PIECES for i in (piece, piece + 1))
        q = np.radians(self.rng(number).uniform(low, high, (behind - first, len(self.lengths))))
        heading, lengths = np.cumsum(q, axis=1), np.asarray(self.lengths)
        tip_x, tip_y = np.cos(heading) @ lengths, np.sin(heading) @ lengths
        edge = np.linspace(-1.05, 1.05, _GRID) * sum(self.lengths)
        cell = edge[1] - edge[0]
        i, j = (np.rint((v - edge[0]) / cell).astype(int) for v in (tip_y, tip_x))
        counts = np.bincount(i * _GRID + j, minlength=_GRID * _GRID)
        hit = np.flatnonzero(counts)
        return np.column_stack([np.full(hit.shape, which), edge[hit % _GRID], edge[hit // _GRID], counts[hit]])

    def _layer(self, layer: int) -> Float[np.ndarray, "k 8"]:
        from ik_sim.chain import CENTRE, REACH
        from ik_sim.solvers import load_solver

        chain, R = self._chain, self._rotations()
        solver, witness = self._names()
        xs, ys, zs = self._axis
        if self._planar:
            ys = ys[layer : layer + 1]
        else:
            zs = zs[layer : layer + 1]
        centres = np.stack(np.meshgrid(xs, ys, zs, indexing="ij"), axis=-1).reshape(-1, 3)
        middle, reach = chain.packed[CENTRE : CENTRE + 3], chain.packed[REACH]
        centres = centres[np.linalg.norm(centres - middle, axis=1) <= reach + 1e-12]
        if not len(centres):
            return np.empty((0, 8))
        T = np.zeros((len(centres), len(R), 4, 4))
        T[..., :3, :3], T[..., :3, 3], T[..., 3, 3] = R, centres[:, None], 1.0
        found = load_solver(solver).solve_batch(chain, T.reshape(-1, 4, 4), kind=self._kind)
        good = np.asarray(found.converged).reshape(len(centres), len(R))
        q = found.q.reshape(len(centres), len(R), -1)
        rows = np.full((len(centres), 8), np.nan)
        rows[:, :3], rows[:, 3] = centres, good.mean(axis=1)
        for i in np.flatnonzero(good.any(axis=1)):
            rows[i, 4] = max(_manipulability(chain, one, self._kind, self._planar) for one in q[i, good[i]])
        if witness:
            asked = np.flatnonzero((np.arange(len(centres)) + layer) % self.witness_every == 0)
            if len(asked):
                second = load_solver(witness).solve_batch(chain, T[asked].reshape(-1, 4, 4), kind=self._kind)
                agrees = np.asarray(second.converged).reshape(len(asked), len(R))
                rows[asked, 5] = agrees.mean(axis=1)
                rows[asked, 6] = (good[asked] & ~agrees).sum(axis=1)
                rows[asked, 7] = (~good[asked] & agrees).sum(axis=1)
        return rows

    # --- what they say ---

    def evaluate(self, rows: Float[np.ndarray, "k c"], folder: Path) -> tuple[dict[str, Any], list[Section]]:
        """Areas or volumes, slices, views."""
        if self.robot:
            return self._evaluate_map(rows, folder)
        return self._evaluate_sets(rows) if len(self.lengths) == 2 else self._evaluate_samples(rows)

    def _evaluate_samples(self, rows: Any) -> tuple[dict[str, Any], list[Section]]:
        n, total = len(self.lengths), sum(self.lengths)
        edge = np.linspace(-1.05, 1.05, _GRID) * total
        cell = float(edge[1] - edge[0])
        most, least = total, max(0.0, 2 * max(self.lengths) - total)
        ring = np.pi * (most**2 - least**2)
        maps = np.zeros((len(SETS), _GRID, _GRID))
        i, j = (np.rint((rows[:, k] - edge[0]) / cell).astype(int) for k in (2, 1))
        np.add.at(maps, (rows[:, 0].astype(int), i, j), rows[:, 3])
        x, y = np.meshgrid(edge, edge)
        inside = (np.hypot(x, y) <= most) & (np.hypot(x, y) >= least)  # a cell counts by its centre
        summary: dict[str, Any] = {"exact area of the ring [m²]": float(ring)}
        table: list[tuple[Any, ...]] = [
            ("limits of all joints", "area met [m²]", "share of the ring", "half of all postures lie within [m²]")
        ]
        for title, counts in zip(_ALL, maps, strict=True):
            area = float(((counts > 0) & inside).sum() * cell**2)
            ordered = np.sort(counts[counts > 0])[::-1].cumsum()
            half = float((np.searchsorted(ordered, ordered[-1] / 2) + 1) * cell**2)
            summary[f"area met [m²]: {title}"] = area
            summary[f"area of half the postures [m²]: {title}"] = half
            table.append((title, area, f"{100 * area / ring:.1f} %", half))

        def regions(figure: Any) -> None:
            from matplotlib.colors import LogNorm

            density = maps / (self.samples * cell**2)
            norm, drawn = LogNorm(1 / (self.samples * cell**2), density.max()), None
            panels = figure.subplots(1, 3)
            panels[0].set_ylabel("y [m]")
            for axes, title, (_, low, high), image in zip(panels, _ALL, SETS, density, strict=True):
                drawn = axes.imshow(
                    np.where(image > 0, image, np.nan), origin="lower", cmap="viridis", norm=norm,
                    extent=[edge[0] - cell / 2, edge[-1] + cell / 2] * 2, interpolation="nearest",
                )  # fmt: skip
                t = np.linspace(0, 2 * np.pi, 361)
                for r in {most, least} - {0.0}:
                    axes.plot(r * np.cos(t), r * np.sin(t), color=BLACK, linewidth=0.9)
                t = np.radians(np.linspace(low, high, 200))
                axes.plot(*(self.lengths[0] * np.array([np.cos(t), np.sin(t)])), color=ORANGE, linewidth=2,
                          label="trace of joint 2 as joint 1 turns")  # fmt: skip
                axes.set_title(title)
                axes.set_xlabel("x [m]")
                axes.grid(False)  # lines over an image hide it
            figure.colorbar(drawn, ax=figure.axes, shrink=0.8, label="share of all postures per m²")
            figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center")

        text = [
            f"{n} links of {', '.join(map(number, self.lengths))} m have infinitely many postures for most points, and "
            f"no short list of them decides what limits allow. So {self.samples:,} postures were drawn for each set of "
            "limits, every joint uniform in its range. A cell is coloured by how many of them put the tip there: where "
            "it is bright, many postures lead, and a small change of the task leaves the arm choice; where it is dark, "
            "few do. The black circles are exact: full stretch, and, where one link is longer than all others "
            "together, how near the tip can come to the root.",
            "What is coloured is certain, since a posture inside the limits was there. What is not may be reached by "
            "postures too rare to be drawn: the thin dark rims, where all joints must agree, are met last. With joints "
            "free the exact region is known, and tells how many of its cells this number of samples meets: "
            f"{100 * float(((maps[0] > 0) & inside).sum() / inside.sum()):.1f} %.",
        ]
        pictures = [Picture("density", "How often the tip is where. The scale is logarithmic.", regions, (10.5, 4.0))]
        return summary, [Section(f"{n} links, three sets of angles", text, pictures, table)]

    def _evaluate_sets(self, rows: Any) -> tuple[dict[str, Any], list[Section]]:
        a, b = self.lengths
        cell = (2.1 * (a + b) / (_GRID - 1)) ** 2
        maps = [rows[rows[:, 0] == k, 3].reshape(_GRID, _GRID) for k in range(len(SETS))]
        extent = 1.05 * (a + b)
        summary: dict[str, Any] = {}
        for (title, low, high), counts in zip(SETS, maps, strict=True):
            summary[f"area [m²]: {title}"] = float((counts > 0).sum() * cell)
            summary[f"area with two postures [m²]: {title}"] = float((counts > 1).sum() * cell)
            summary[f"exact area [m²]: {title}"] = exact_area(a, b, low, high)

        def regions(figure: Any) -> None:
            from matplotlib.colors import ListedColormap
            from matplotlib.lines import Line2D
            from matplotlib.patches import Patch

            panels = figure.subplots(1, 3)
            panels[0].set_ylabel("y [m]")
            for axes, (title, low, high), counts in zip(panels, SETS, maps, strict=True):
                axes.imshow(
                    np.where(counts > 0, counts, np.nan), origin="lower", extent=[-extent, extent, -extent, extent],
                    cmap=ListedColormap([SKY, BLUE]), vmin=0.5, vmax=2.5, alpha=0.75, interpolation="nearest",
                )  # fmt: skip
                for x, y in boundary_arcs(a, b, low, high):
                    axes.plot(x, y, color=BLACK, linewidth=0.9)
                t = np.radians(np.linspace(low, high, 200))
                axes.plot(
                    a * np.cos(t), a * np.sin(t), color=ORANGE, linewidth=2, label="trace of joint 2 as joint 1 turns"
                )
                for k, (t1, t2) in enumerate(((0.2, 0.5), (0.65, 0.3))):
                    q1, q2 = np.radians([low + t1 * (high - low), low + t2 * (high - low)])
                    x = [0, a * np.cos(q1), a * np.cos(q1) + b * np.cos(q1 + q2)]
                    y = [0, a * np.sin(q1), a * np.sin(q1) + b * np.sin(q1 + q2)]
                    axes.plot(x, y, "o-", color=(RED, GREEN)[k], linewidth=1.8, markersize=3)
                axes.set_title(title)
                axes.set_aspect("equal")
                axes.set_xlabel("x [m]")
                axes.grid(False)
            trace = figure.axes[0].get_legend_handles_labels()[0]
            handles = [
                Patch(color=SKY, alpha=0.75, label="one posture"),
                Patch(color=BLUE, alpha=0.75, label="two postures"),
                Line2D([], [], color=BLACK, linewidth=0.9, label="exact boundary"),
                *trace,
                Line2D([], [], color=RED, marker="o", markersize=3, label="example"),
                Line2D([], [], color=GREEN, marker="o", markersize=3, label="example"),
            ]
            figure.legend(handles=handles, loc="outside lower center", ncols=6)

        table = [
            ("limits of both joints", "area, grid [m²]", "area, exact [m²]", "share of the ring", "with two postures")
        ]
        ring = np.pi * ((a + b) ** 2 - (a - b) ** 2)
        for title, *_ in SETS:
            area, exact = summary[f"area [m²]: {title}"], summary[f"exact area [m²]: {title}"]
            two = summary[f"area with two postures [m²]: {title}"]
            table.append((title, number(area), number(exact), f"{100 * exact / ring:.1f} %", number(two)))
        text = [
            f"Two links of {number(a)} and {number(b)} m. A point is reachable when one of its two postures, elbow "
            f"left or "
            "right, has both angles inside the limits; each grid point is decided by the closed form, so the "
            "filled region "
            "is exact to the grid. The black arcs are where it can end: full stretch, full fold, and the paths of "
            "the tip "
            "with one joint held at an end of its range. The orange arc is the path of the second joint.",
            "With both joints free every point of the ring has two postures. Allowing only positive, or only negative, "
            "angles leaves each point at most one, and the two regions are mirror images in the x axis. A point "
            "mirrored "
            "into the other region needs the other elbow: an arm that starts with one sign cannot go there.",
        ]
        pictures = [
            Picture("regions", "Light: one posture; dark: two. Two example postures in each.", regions, (10.0, 4.0))
        ]
        return summary, [Section("Two links, three sets of angles", text, pictures, table)]

    def _evaluate_map(self, rows: Any, folder: Path) -> tuple[dict[str, Any], list[Section]]:
        planar = self._planar
        share, manipulability = rows[:, 3], rows[:, 4]
        cell = self.voxel ** (2 if planar else 3)
        unit, thing = ("m²", "cells") if planar else ("m³", "voxels")
        reached = share > 0
        asked, by_share = ~np.isnan(rows[:, 5]), self._kind != POINT
        orientations, (solver, witness) = len(self._rotations()), self._names()
        targets = int(asked.sum()) * orientations
        summary: dict[str, Any] = {
            thing: len(rows),
            f"reachable [{unit}]": float(reached.sum() * cell),
        }
        if by_share:
            summary[f"reachable in half of all orientations [{unit}]"] = float((share >= 0.5).sum() * cell)
            summary[f"reachable in all orientations [{unit}]"] = float((share >= 1.0).sum() * cell)
            summary["mean share where reachable"] = float(share[reached].mean()) if reached.any() else 0.0
        summary |= {
            "witness asked": targets,
            "only the solver found": int(np.nansum(rows[:, 6])) if targets else 0,
            "only the witness found": int(np.nansum(rows[:, 7])) if targets else 0,
        }
        self._export_grid(rows, folder)
        xs, ys, zs = self._axis
        origin = np.array([xs[0], ys[0], zs[0]])
        index = np.rint((rows[:, :3] - origin) / self.voxel).astype(int)
        grid = np.full((len(xs), len(ys), len(zs), 2), np.nan)
        grid[index[:, 0], index[:, 1], index[:, 2]] = np.column_stack([share, manipulability])
        half = self.voxel / 2

        def cut(axes: Any, plane: str, k: int, level: int) -> Any:
            image, a, b = (grid[:, level, :, k], xs, zs) if plane == "xz" else (grid[:, :, level, k], xs, ys)
            extent = [a[0] - half, a[-1] + half, b[0] - half, b[-1] + half]
            image = np.where(image > 0, image, np.nan)
            top = 1.0 if k == 0 else np.nanmax(grid[..., 1])
            drawn = axes.imshow(image.T, origin="lower", extent=extent, cmap="viridis", vmin=0, vmax=top)
            axes.set_xlabel("x [m]")
            axes.set_ylabel(f"{plane[1]} [m]")
            axes.grid(False)
            where = ys[level] if plane == "xz" else zs[level]
            axes.set_title(f"{'y' if plane == 'xz' else 'z'} = {where:.2f} m")
            return drawn

        def slices(figure: Any, k: int = 0) -> None:
            if planar:
                cuts = [(figure.subplots(), "xy", 0)]
            else:
                left, right = figure.subplots(1, 2)
                cuts = [(left, "xz", len(ys) // 2), (right, "xy", len(zs) // 2)]
            drawn = None
            for axes, plane, level in cuts:
                drawn = cut(axes, plane, k, level)
            label = "share of orientations" if k == 0 else freely
            figure.colorbar(drawn, ax=figure.axes, shrink=0.8, label=label)

        def manipulable(figure: Any) -> None:
            slices(figure, 1)

        freely = "manipulability √det J Jᵀ"
        colour = share if by_share else manipulability  # where only the point was asked for every share is 0 or 1

        def view(figure: Any) -> None:
            from matplotlib.ticker import MaxNLocator

            axes = figure.add_subplot(projection="3d")
            behind = reached & ~((rows[:, 1] < 0) & (rows[:, 0] > 0))  # a quarter is cut away
            dots = axes.scatter(
                *rows[behind, :3].T, c=colour[behind], s=(330 * self.voxel / np.ptp(rows[:, 2])) ** 2, cmap="viridis",
                vmin=0, vmax=1 if by_share else None, marker="s", linewidths=0,
                depthshade=False, rasterized=True,
            )  # fmt: skip
            axes.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
            for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
                axis.set_major_locator(MaxNLocator(5))
            axes.set_box_aspect(np.ptp(rows[:, :3], axis=0))
            axes.view_init(22, -55)
            figure.colorbar(dots, ax=axes, shrink=0.7, pad=0.1, label="share of orientations" if by_share else freely)

        def turning() -> Any:
            import plotly.graph_objects as go

            data = go.Scatter3d(
                x=rows[reached, 0].round(4), y=rows[reached, 1].round(4), z=rows[reached, 2].round(4), mode="markers",
                marker={"size": 3, "color": colour[reached].round(3), "colorscale": "Viridis", "opacity": 0.55,
                        "cmin": 0, "cmax": 1 if by_share else float(np.nanmax(colour)),
                        "colorbar": {"title": "share" if by_share else "manipulability"}},
            )  # fmt: skip
            titles = {f"{a}axis_title": f"{a} [m]" for a in "xyz"}
            return go.Figure(data, layout={"scene": {"aspectmode": "data", **titles}})

        def against_radius(figure: Any) -> None:
            axes = figure.subplots()
            centre, mean, best = self._by_radius(rows)
            axes.plot(centre, mean, ".-", color=BLUE, label=f"mean of the {thing}")
            if by_share:
                axes.plot(centre, best, ".-", color=ORANGE, label="best of them")
                axes.legend()
            axes.set_xlabel("distance from the middle of the reach [m]")
            axes.set_ylabel("share of orientations" if by_share else f"share of {thing} reached")

        asked_text = (
            f"The witness, {witness}, was asked about {targets:,} of the same poses: "
            f"{summary['only the solver found']} were found by the solver only, {summary['only the witness found']} "
            f"by the "
            "witness only. What only the witness finds would be a hole in the map; what only the solver finds are the "
            "witness's own failures, since every answer is checked by forward kinematics."
            if targets
            else "No witness was asked."
        )
        asked_for = {
            POSE: f"{orientations} evenly spread tool orientations were",
            AXIS: f"{orientations} evenly spread directions of the tool's z axis were",
            POINT: "the point itself, whatever the tool's orientation, was",
        }[self._kind]
        text = [
            f"For each of {len(rows):,} {thing} of {number(self.voxel)} m, {asked_for} asked of the solver {solver}. An "
            "answer counts when its joints bring the tool there, by the arm's own forward kinematics, inside all limits."
            + (
                ""
                if self._kind == POINT
                else " The share that counts is what a programmer feels as room: 1 means the tool may point anywhere."
            ),
            asked_text,
            self._seen(rows),
        ]
        size = (5.6, 4.4) if planar else (9.5, 4.2)
        pictures = []
        if not planar:
            seen = "share of orientations" if by_share else "manipulability, since only the point was asked for"
            caption = (
                f"The map with a quarter cut away, coloured by the {seen}. In the lower view all of it, to be turned."
            )
            pictures.append(Picture("view", caption, view, (7.5, 6.0), turning))
        if by_share:
            cuts = "The map" if planar else "Cuts through the map, upright and level"
            pictures.append(Picture("slices", f"{cuts}. White: not reached in any orientation.", slices, size))
        radius = "The share, from the middle of the reach to its end: where it falls, fewer orientations are left."
        if not by_share:
            radius = f"How many of the {thing} at each distance are reached."
        pictures.append(Picture("radius", radius, against_radius, (7.5, 3.2)))
        pictures.append(
            Picture(
                "manipulability",
                "Manipulability of the best posture that was found: how freely the tool moves there. Towards 0, at the "
                "dark rims, every posture is near a singular one. White: not reached.",
                manipulable,
                size,
            )
        )
        table = [("", "")] + [(k, number(v) if isinstance(v, float) else f"{v:,}") for k, v in summary.items()]
        return summary, [Section(f"Reach map of {Path(self.robot).name}", text, pictures, table)]

    def _by_radius(self, rows: Any) -> tuple[Any, Any, Any]:
        """Distances from the middle of the reach, with the mean and the best share of the voxels there."""
        from ik_sim.chain import CENTRE

        at = np.floor(np.linalg.norm(rows[:, :3] - self._chain.packed[CENTRE : CENTRE + 3], axis=1) / self.voxel)
        shells = np.unique(at)
        mean, best = ([f(rows[at == k, 3]) for k in shells] for f in (np.mean, np.max))
        return (shells + 0.5) * self.voxel, np.array(mean), np.array(best)

    def _seen(self, rows: Any) -> str:
        """What the pictures show, in numbers; for the known families, why."""
        from ik_sim.chain import CENTRE

        chain, share = self._chain, rows[:, 3]
        r = np.linalg.norm(rows[:, :3] - chain.packed[CENTRE : CENTRE + 3], axis=1)
        if not np.any(share > 0):
            return "Nothing was reached."
        outer = float(r[share > 0].max())
        within = r <= outer
        thing = "cells" if self._planar else "voxels"
        text = (
            f"The farthest of the {thing} reached lies {number(outer)} m from the middle of the reach; of the "
            f"{within.sum():,} that are no farther, {100 * float((share[within] == 0).mean()):.1f} % are not reached."
        )
        if self._kind != POINT:
            centre, mean, _ = self._by_radius(rows)
            top = int(np.argmax(mean))
            text += f" The share is largest, {mean[top]:.2f} on the average, {number(float(centre[top]))} m away."
        fit = chain.family_fit
        if chain.family == "ur":
            offset, tool = float(fit.lengths[2]), float(np.linalg.norm(fit.T_family_tool[:3, 3]))
            axis = fit.T_base_family[:3, 2]
            away = np.linalg.norm(np.cross(rows[:, :3] - fit.T_base_family[:3, 3], axis), axis=1)
            text += (
                f" There is a column about the first axis: the wrist stays {number(abs(offset))} m off that axis, and "
                f"the tool is {number(tool)} m from the wrist"
            )
            closed = abs(offset) - tool
            if closed > 0:
                text += (
                    f", so nothing nearer to it than {number(closed)} m can be reached: of {(away < closed).sum()} such "
                    f"{thing}, {(share[away < closed] > 0).sum()} were. Up to {number(abs(offset) + tool)} m away some "
                    f"orientations are still lost"
                )
            text += "."
        elif chain.family == "srs":
            (a, b), tool = fit.lengths, float(np.linalg.norm(fit.T_family_tool[:3, 3]))
            ends = fit.sign[3] * np.array([chain.lower[3], chain.upper[3]]) + fit.offset[3]
            bend = min(np.pi, float(np.abs(ends).max()))
            nearest = float(np.sqrt(a * a + b * b + 2 * a * b * np.cos(bend)))
            away = np.linalg.norm(rows[:, :3] - fit.T_base_family[:3, 3], axis=1)
            text += (
                f" The hollow in the middle is the elbow's: it bends by {np.degrees(bend):.0f}° at most, which keeps the "
                f"wrist {number(nearest)} m from the shoulder"
            )
            closed = nearest - tool
            if closed > 0:
                text += (
                    f", and the tool, {number(tool)} m from the wrist, {number(closed)} m: of {(away < closed).sum()} "
                    f"{thing} nearer than that, {(share[away < closed] > 0).sum()} were reached"
                )
            text += "."
        return text

    def _export_grid(self, rows: Any, folder: Path) -> None:
        export(folder / "reach_map", self.columns()[:5], rows[:, :5])


def boundary_arcs(a: float, b: float, low: float, high: float) -> list[tuple[Any, Any]]:
    """The curves on which the region of two links may end: a joint at an end, or joint 2 at 0 or ±180° [deg]."""
    arcs = []
    t = np.radians(np.linspace(low, high, 361))
    for second in {low, high, *(s for s in (0.0, 180.0, -180.0) if low <= s <= high)}:
        r = a + b * np.exp(1j * np.radians(second))
        tip = r * np.exp(1j * t)
        arcs.append((tip.real, tip.imag))
    if high - low < 360:
        for first in (low, high):
            tip = np.exp(1j * np.radians(first)) * (a + b * np.exp(1j * t))
            arcs.append((tip.real, tip.imag))
    return arcs


def exact_area(a: float, b: float, low: float, high: float) -> float:
    """Area of the region of two links whose angles both lie in [low, high] [deg], for arcs of 0, ±180° and 360°.

    At each radius the tip takes, for every bend of either sign, an arc of polar angles as wide as joint 1's range.
    With one sign the arc is 180° wide at every radius: half the ring. With both, the ring.
    """
    ring = np.pi * ((a + b) ** 2 - (a - b) ** 2)
    return ring * min(1.0, (high - low) / 360.0)


def _manipulability(chain: Any, q: Any, kind: int, planar: bool) -> float:
    J = chain.jacobian(q)
    J = J[:2] if planar else J if kind == POSE else J[:3]
    return float(np.sqrt(max(0.0, np.linalg.det(J @ J.T))))
