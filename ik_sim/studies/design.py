"""Which link lengths are best? Three planar links, chosen by global optimisers for three aims.

1. *Room*: the area where the tool can point in most directions, for a total length of 1.
2. *Speed*: the cycles that FABRIK needs along a task. Room and speed pull apart: the trade is shown as a Pareto front.
3. *Fit*: the shortest arm that reaches every given point clear of obstacles.

Each aim is handed to NLopt and to scipy, from the same bounds and with the same budget, so that one optimiser's luck is
not taken for the answer. Every arm ever tried is a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from ik_sim.errors import InvalidArgumentError
from ik_sim.studies.study import BLUE, GREEN, ORANGE, PURPLE, RED, Picture, Section, Study, number, plain_log

OPTIMISERS = ("NLopt DIRECT", "NLopt CRS2", "scipy differential evolution", "scipy dual annealing")
AIMS = ("room", "speed", "balance", "fit")
BLOCKS = (((0.42, 0.30), 0.13), ((0.30, -0.32), 0.12))
"""Discs in the way of the fitted arm: centre and radius."""
POINTS = ((0.75, 0.35), (0.65, 0.05), (0.55, -0.45), (0.1, 0.6), (-0.35, 0.4))
"""Points that the fitted arm has to reach."""


@dataclass(frozen=True)
class Design(Study):
    """Link lengths by global optimisation."""

    name: ClassVar[str] = "design"
    title: ClassVar[str] = "Which link lengths are best?"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"quick": {"evaluations": 40}, "thorough": {"evaluations": 1500}}

    evaluations: int = 250
    """Arms that each optimiser may try for each aim."""
    limit_deg: float = 150.0
    """Joints 2 and 3 stay within ± this; joint 1 turns freely."""
    shortest: float = 0.08
    """No link is shorter: a tool needs room."""
    headings: int = 24
    """Directions asked for at every point."""
    wanted_share: float = 0.75
    """A point counts as room when so many of them can be taken."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.evaluations < 10 or not 0 < self.shortest < 0.3 or self.headings < 4:
            raise InvalidArgumentError("design", "needs 10 evaluations, 4 headings and 0 < shortest < 0.3")

    def columns(self) -> tuple[str, ...]:
        """A row an arm that was tried."""
        return (
            "aim",
            "optimiser",
            "evaluation",
            "length_1",
            "length_2",
            "length_3",
            "room",
            "cycles",
            "unmet",
            "value",
        )

    def chunk_count(self) -> int:
        """Aims times optimisers."""
        return len(AIMS) * len(OPTIMISERS)

    def chunk(self, number: int, folder: Path) -> Float[np.ndarray, "k c"]:
        """One optimiser at one aim."""
        aim, optimiser = divmod(number, len(OPTIMISERS))
        rows: list[list[float]] = []

        def tried(u: Any) -> float:
            if len(rows) >= self.evaluations:
                return 1e9  # the budget is spent; scipy's methods finish their round
            lengths = self._lengths(aim, np.clip(np.asarray(u, dtype=float), 0.0, 1.0))
            room = cycles = unmet = np.nan
            if AIMS[aim] == "fit":
                unmet, value = self._unmet(lengths)
            else:
                room, cycles = self.room(lengths), self.cycles(lengths)
                weight = {"room": 1.0, "speed": 0.0, "balance": 0.4}[AIMS[aim]]  # at 0.5 the balance is nearly all room
                value = -weight * room / 3.0 + (1.0 - weight) * np.log10(cycles) / 2.0  # both of order one
            rows.append([aim, optimiser, len(rows), *lengths, room, cycles, unmet, value])
            return float(value)

        _optimise(OPTIMISERS[optimiser], tried, 3 if AIMS[aim] == "fit" else 2, self.evaluations, self.seed)
        return np.array(rows, dtype=float)

    def evaluate(self, rows: Float[np.ndarray, "k c"], folder: Path) -> tuple[dict[str, Any], list[Section]]:
        """The arms found, the front, and whether the optimisers agree."""
        aim, lengths, room, cycles = rows[:, 0], rows[:, 3:6], rows[:, 6], rows[:, 7]
        best = {}
        table: list[tuple[Any, ...]] = [("aim", "optimiser", "tried", "best value", "lengths")]
        for k, title in enumerate(AIMS):
            of = np.flatnonzero(aim == k)
            best[title] = rows[of[np.argmin(rows[of, 9])]]
            for o, name in enumerate(OPTIMISERS):
                mine = of[rows[of, 1] == o]
                top = rows[mine[np.argmin(rows[mine, 9])]]
                table.append((title, name, len(mine), f"{top[9]:.4f}", " · ".join(f"{x:.3f}" for x in top[3:6])))
        both = np.flatnonzero(aim < 3)
        front = both[pareto(np.column_stack([-room[both], cycles[both]]))]
        front = front[np.argsort(room[front])]
        summary: dict[str, Any] = {
            "largest room": float(best["room"][6]),
            "lengths of largest room": " ".join(f"{x:.4f}" for x in best["room"][3:6]),
            "fewest cycles": float(best["speed"][7]),
            "lengths of fewest cycles": " ".join(f"{x:.4f}" for x in best["speed"][3:6]),
            "arms on the front": len(front),
            "shortest fitting arm": float(best["fit"][3:6].sum()),
            "lengths of the fitting arm": " ".join(f"{x:.4f}" for x in best["fit"][3:6]),
            "points the fitting arm misses": int(best["fit"][8]),
        }
        shown = {
            "largest room": (best["room"], BLUE),
            "balance": (best["balance"], GREEN),
            "speed": (best["speed"], RED),
        }

        def trade(figure: Any) -> None:
            axes = figure.subplots()
            axes.scatter(cycles[both], room[both], s=6, color="#bbbbbb", label="arms tried", rasterized=True)
            axes.step(cycles[front], room[front], "o-", where="post", color=ORANGE, markersize=4, label="Pareto front")
            for name, (row, colour) in shown.items():
                axes.plot(row[7], row[6], "*", color=colour, markersize=13, label=name)
            axes.set_xscale("log")
            plain_log(axes.xaxis)
            axes.set(xlabel="mean cycles along the task", ylabel=f"room: area with {self.wanted_share:.0%} of headings")
            axes.legend()

        def turning() -> Any:
            import plotly.graph_objects as go

            words = ["{:.3f} {:.3f} {:.3f}".format(*x) for x in lengths[both]]
            figure = go.Figure()
            figure.add_scatter(
                x=cycles[both], y=room[both], mode="markers", text=words, name="arms tried",
                marker={"size": 4, "color": lengths[both, 2], "colorscale": "Viridis",
                        "colorbar": {"title": "last link"}},
            )  # fmt: skip
            figure.add_scatter(x=cycles[front], y=room[front], mode="lines+markers", name="front", line_shape="hv")
            figure.update_xaxes(type="log", title="mean cycles along the task")
            figure.update_yaxes(title="room")
            figure.update_layout(legend={"orientation": "h"})
            return figure

        def triangle(figure: Any) -> None:
            for axes, value, label in zip(
                figure.subplots(1, 2), (room, np.log10(cycles)), ("room", "mean cycles, log10"), strict=True
            ):
                dots = axes.scatter(*lengths[both, :2].T, c=value[both], s=9, cmap="viridis", rasterized=True)
                for name, (row, colour) in shown.items():
                    axes.plot(
                        row[3], row[4], "*", color=colour, markersize=13, markeredgecolor="white",
                        linestyle="none", label=name,
                    )  # fmt: skip
                axes.set(xlabel="link 1", ylabel="link 2")
                axes.set_aspect("equal")
                figure.colorbar(dots, ax=axes, shrink=0.8, label=label)
            figure.axes[0].legend(loc="upper right")

        def arms(figure: Any) -> None:
            image: Any = None
            for axes, (name, (row, colour)) in zip(figure.subplots(1, 3, sharey=True), shown.items(), strict=True):
                grid, share = self.heading_shares(row[3:6], points=161)
                image = axes.pcolormesh(
                    grid, grid, share, cmap="Blues", vmin=0, vmax=1, shading="nearest", rasterized=True
                )
                axes.contour(grid, grid, share, levels=[self.wanted_share - 1e-9], colors=[ORANGE], linewidths=1)
                q = np.cumsum([0.4, 0.9, 0.7])
                steps = row[3:6, None] * np.stack([np.cos(q), np.sin(q)], axis=1)
                points = np.vstack([[0, 0], np.cumsum(steps, axis=0)])
                axes.plot(*points.T, "o-", color=colour, linewidth=3)
                axes.set_aspect("equal")
                axes.set_title(f"{name}\n{' · '.join(f'{x:.2f}' for x in row[3:6])}")
                axes.set_xlabel("x")
                axes.grid(False)
            figure.axes[0].set_ylabel("y")
            figure.colorbar(image, ax=figure.axes, shrink=0.8, label="share of headings")

        def fitted(figure: Any) -> None:
            axes = figure.subplots()
            from matplotlib.patches import Circle

            for centre, radius in BLOCKS:
                axes.add_patch(Circle(centre, radius, color="#999999"))
            for point, colour in zip(POINTS, (BLUE, ORANGE, GREEN, RED, PURPLE), strict=True):
                found = self._pose(best["fit"][3:6], point)
                axes.plot(*found.points.T, "o-", color=colour, linewidth=2.2, markersize=4)
                axes.plot(*point, "x", color=colour, markersize=10, markeredgewidth=2)
            axes.plot(0, 0, "s", color="black", markersize=8)
            axes.set_aspect("equal")
            axes.set(xlabel="x", ylabel="y", title=" · ".join(f"{x:.2f}" for x in best["fit"][3:6]))

        values = [
            [best[t][9] for t in AIMS],
            [max(self._best_of(rows, k, o) for o in range(4)) for k in range(len(AIMS))],
        ]
        spread = max(abs(a - b) for a, b in zip(*values, strict=True))
        return summary, [
            Section(
                "Room against speed",
                [
                    f"Arms of three links with a total length of 1, no link shorter than {number(self.shortest)}, "
                    f"joints 2 and "
                    f"3 within ±{number(self.limit_deg)}°. Room is the area where at least {self.wanted_share:.0%} of "
                    f"{self.headings} headings of the last link can be taken, by the closed form of three links. "
                    f"Speed is the "
                    "mean number of FABRIK cycles along a task of 60 points, each started from the posture before.",
                    f"The largest room found is {number(summary['largest room'])} with lengths "
                    f"{summary['lengths of largest room']}; the fewest cycles are "
                    f"{number(summary['fewest cycles'])} with "
                    f"{summary['lengths of fewest cycles']}. {len(front)} of the {len(both):,} arms tried are on "
                    f"the front: "
                    "nothing tried is better than them in both.",
                    f"Room wants a short last link and two long ones that are nearly alike, so that the hand turns "
                    f"where it is: largest room has {best['room'][5]:.2f} for the last link and "
                    f"{best['room'][3]:.2f} and {best['room'][4]:.2f} before it. Speed wants another last link, "
                    f"{best['speed'][5]:.2f}, and has a room of {number(float(best['speed'][6]))}. Between them the "
                    f"balance keeps {number(float(best['balance'][6]))} at {number(float(best['balance'][7]))} cycles, "
                    f"against {number(float(best['room'][7]))} cycles for the largest room.",
                ],
                [
                    Picture("trade", "Every arm tried, and the front: up is more room, left is faster. Below, coloured by "
                            "the last link.", trade, (7.5, 4.2), turning),
                    Picture("triangle", "The arms by their first two links; the third is what is left of 1. Bright is "
                            "much room, and many cycles.", triangle, (9.5, 3.8)),
                    Picture(
                        "arms",
                        "Three arms that were found, in a posture, on the share of headings they can take (blue). Between "
                        "the orange lines, or inside the one, is their room.",
                        arms,
                        (10.0, 3.8),
                    ),
                ],
            ),
            Section(
                "The shortest arm that fits",
                [
                    f"Five points must be reached clear of two discs. The shortest arm found is "
                    f"{number(summary['shortest fitting arm'])} long and misses "
                    f"{summary['points the fitting arm misses']} of them.",
                ],
                [Picture("fitted", "Its posture at each point (crosses), by FABRIK with obstacles (grey). Its root is the black "
                         "square.", fitted, (6.0, 5.0))],
            ),
            Section(
                "Do the optimisers agree?",
                [
                    f"Four methods, up to {self.evaluations} arms each. The best and the worst of the four differ by at most "
                    f"{number(spread)} in value. Where all four agree the answer is well supported; where one is behind, it has "
                    "not found with this budget what another has, and the best is no more than the best found: a larger "
                    "budget (--preset thorough, or --set evaluations=) tells. The value is to be small: minus a third "
                    "of the room, half the log10 of the cycles, 0.4 of the one and 0.6 of the other for the balance, "
                    "and for the fit the length, with a toll for every point missed.",
                ],
                table=table,
            ),
        ]  # fmt: skip

    # --- aims ---

    def _lengths(self, aim: int, u: Any) -> Any:
        if AIMS[aim] == "fit":
            return self.shortest + u * (0.7 - self.shortest)
        free = 1.0 - 3.0 * self.shortest  # the triangle of lengths with sum 1, from the unit square without distortion
        a = np.sqrt(u[0])
        return self.shortest + free * np.array([1.0 - a, a * (1.0 - u[1]), a * u[1]])

    def heading_shares(self, lengths: Any, points: int = 41) -> tuple[Any, Float[np.ndarray, "k k"]]:
        """A square grid's edge, and the share of headings that can be taken at each of its points."""
        edge = np.linspace(-1.0, 1.0, points)
        radius = np.linspace(0.0, 1.0, 60)
        share = self._shares(lengths, radius)  # joint 1 turns freely: only the distance counts
        x, y = np.meshgrid(edge, edge)
        return edge, np.interp(np.hypot(x, y), radius, share, right=0.0)

    def room(self, lengths: Any) -> float:
        """Area where enough headings can be taken."""
        r = np.linspace(0.0, 1.0, 400)
        good = self._shares(lengths, r) >= self.wanted_share - 1e-9
        return float(np.trapezoid(2 * np.pi * r * good, r))

    def _shares(self, lengths: Any, radius: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        a, b, c = lengths
        limit = np.radians(self.limit_deg) + 1e-9
        heading = 2 * np.pi * (np.arange(self.headings) + 0.5) / self.headings
        x, y = radius[:, None] - c * np.cos(heading), -c * np.sin(heading) + 0 * radius[:, None]
        r = np.hypot(x, y)
        cosine = (r * r - a * a - b * b) / (2 * a * b)
        bend = np.arccos(np.clip(cosine, -1, 1))
        taken = np.zeros(r.shape, dtype=bool)
        for second in (bend, -bend):
            first = np.arctan2(y, x) - np.arctan2(b * np.sin(second), a + b * np.cos(second))
            third = (heading - first - second + np.pi) % (2 * np.pi) - np.pi
            taken |= (np.abs(cosine) <= 1) & (np.abs(second) <= limit) & (np.abs(third) <= limit)
        return taken.mean(axis=1)

    def cycles(self, lengths: Any) -> float:
        """Mean FABRIK cycles along the task."""
        from ik_sim.fabrik import Skeleton, Solver

        t = 2 * np.pi * np.arange(60) / 60
        path = np.stack([0.45 + 0.3 * np.cos(t), 0.25 + 0.3 * np.sin(2 * t)], axis=1)
        limit = np.radians(self.limit_deg)
        arm = Skeleton.chain(lengths, limits=[(-np.pi, np.pi), (-limit, limit), (-limit, limit)])
        solver, points, total = Solver(max_cycles=500, max_restarts=2, turns=0), arm.pose([0.2, 0.5, 0.5]), 0
        for target in path:
            found = solver.solve(arm, target, points)
            total += found.cycles if found.converged else 500
            points = found.points
        return total / len(path)

    def _pose(self, lengths: Any, point: Any) -> Any:
        from ik_sim.fabrik import Skeleton, Solver, Sphere

        limit = np.radians(self.limit_deg)
        arm = Skeleton.chain(lengths, limits=[(-np.pi, np.pi), (-limit, limit), (-limit, limit)])
        blocks = [Sphere(centre, radius) for centre, radius in BLOCKS]
        return Solver(tolerance=1e-4, max_cycles=600, max_restarts=12).solve(arm, point, obstacles=blocks)

    def _unmet(self, lengths: Any) -> tuple[float, float]:
        """How many points are missed, and the value: length, with a toll for what is missed and by how much."""
        found = [self._pose(lengths, point) for point in POINTS]
        missed = sum(not f.converged for f in found)
        return float(missed), float(np.sum(lengths) + sum(1.0 + f.miss + f.depth for f in found if not f.converged))

    @staticmethod
    def _best_of(rows: Any, aim: int, optimiser: int) -> float:
        return float(rows[(rows[:, 0] == aim) & (rows[:, 1] == optimiser), 9].min())


def pareto(costs: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, "k"]:
    """Which rows no other row beats in one cost without losing in the other."""
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    out, least = np.zeros(len(costs), dtype=bool), np.inf
    for i in order:
        if costs[i, 1] < least:
            out[i], least = True, costs[i, 1]
    return out


def _optimise(name: str, f: Any, n: int, budget: int, seed: int) -> None:
    if name.startswith("NLopt"):
        import nlopt

        nlopt.srand(seed + 1)  # zero means the clock to NLopt
        method = nlopt.GN_DIRECT_L if "DIRECT" in name else nlopt.GN_CRS2_LM
        search = nlopt.opt(method, n)
        search.set_lower_bounds(np.zeros(n))
        search.set_upper_bounds(np.ones(n))
        search.set_min_objective(lambda x, grad: f(x))
        search.set_maxeval(budget)
        search.optimize(np.full(n, 0.5))
        return
    from scipy import optimize

    bounds = [(0.0, 1.0)] * n
    if "evolution" in name:
        size = max(4, min(15, budget // (10 * n)))
        rounds = max(1, budget // (size * n) - 1)
        optimize.differential_evolution(f, bounds, popsize=size, maxiter=rounds, polish=False, rng=seed)
    else:
        optimize.dual_annealing(f, bounds, maxfun=budget, rng=seed, no_local_search=True, maxiter=budget)
