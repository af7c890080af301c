"""Do link lengths matter to FABRIK? Random lengths, random legal starts and targets, one row each.

A computational essay asked it with 500 random triples and coloured a cloud of points by the final error. Here the
same picture is drawn, and then the question is put to numbers: how much of the cycles and of the failures do length
ratios explain, next to how far the arm must stretch and how far it must travel?
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ik_sim.errors import InvalidArgumentError
from ik_sim.studies.study import BLUE, GREEN, ORANGE, RED, Picture, Section, Study, number, plain_log

_CHUNK = 20_000


@dataclass(frozen=True)
class Links(Study):
    """Limited FABRIK on chains of random link lengths."""

    name: ClassVar[str] = "links"
    title: ClassVar[str] = "Do link lengths matter to FABRIK?"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "essay": {"trials": 500},
        "million": {"trials": 1_000_000},
        "seven": {"links": 7, "trials": 20_000},
    }

    trials: int = 20_000
    """Chains tried, each with its own lengths, start and target."""
    links: int = 3
    """Links of a chain."""
    shortest: float = 0.1
    """Lengths are drawn between this and 1."""
    limit_deg: float = 150.0
    """Every joint stays within ± this."""
    max_cycles: int = 100
    """Budget of a trial; there are no restarts and no other help, so that the passes of the first start are judged."""
    tolerance: float = 1e-6
    """At which a trial has converged, in the unit of the lengths."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.trials < 20 or self.links < 2 or not 0 < self.shortest < 1 or not 0 < self.limit_deg <= 180:
            raise InvalidArgumentError("links", "needs 20 trials, 2 links, 0 < shortest < 1 and 0 < limit_deg ≤ 180")

    def columns(self) -> tuple[str, ...]:
        """One row a trial."""
        lengths = tuple(f"length_{i + 1}" for i in range(self.links))
        return (*lengths, "target_x", "target_y", "start_miss", "miss", "cycles", "status", "reach_share", "bend_rad")

    def chunk_count(self) -> int:
        """Pieces of 20 000 trials."""
        return -(-self.trials // _CHUNK)

    def chunk(self, number: int, folder: Path) -> Float[np.ndarray, "k c"]:
        """Draw lengths, a legal start and a legal target posture; solve; keep what came of it."""
        from ik_sim.fabrik import Skeleton, Solver

        k, n = min(_CHUNK, self.trials - number * _CHUNK), self.links
        rng, limit = self.rng(number), np.radians(self.limit_deg)
        lengths = rng.uniform(self.shortest, 1.0, (k, n))
        goal, start = rng.uniform(-limit, limit, (k, n)), rng.uniform(-limit, limit, (k, n))
        targets, starts = _points(lengths, goal)[:, -1], _points(lengths, start)
        arm = Skeleton.chain(np.ones(n), limits=np.full((n, 1), limit) * [-1.0, 1.0])
        solver = Solver(tolerance=self.tolerance, max_cycles=self.max_cycles, max_restarts=0, turns=0)
        found = solver.solve_batch(arm, targets, starts, lengths=lengths)
        most = lengths.sum(axis=1)
        least = np.maximum(0.0, 2.0 * lengths.max(axis=1) - most)
        share = (np.linalg.norm(targets, axis=1) - least) / (most - least)
        steps = np.diff(found.points, axis=1)
        heading = np.arctan2(steps[..., 1], steps[..., 0])
        bend = np.abs((np.diff(heading, axis=1) + np.pi) % (2 * np.pi) - np.pi).mean(axis=1)
        travel = np.linalg.norm(starts[:, -1] - targets, axis=1)
        return np.column_stack([lengths, targets, travel, found.miss, found.cycles, found.status_code, share, bend])

    def evaluate(self, rows: Float[np.ndarray, "k c"], folder: Path) -> tuple[dict[str, Any], list[Section]]:
        """Shares, effect sizes, pictures."""
        n = self.links
        lengths, column = rows[:, :n], dict(zip(self.columns(), rows.T, strict=True))
        miss, cycles = column["miss"], column["cycles"]
        arrived = miss <= self.tolerance
        predictors = {
            "how straight or folded the answer is": np.cos(column["bend_rad"]) ** 2,
            "how far the target stretches the arm": column["reach_share"],
            "how far the tip must travel": column["start_miss"] / lengths.sum(axis=1),
            "longest over shortest link": np.log(lengths.max(axis=1) / lengths.min(axis=1)),
            "first over last link": np.log(lengths[:, 0] / lengths[:, -1]),
            "share of the longest link": lengths.max(axis=1) / lengths.sum(axis=1),
        }
        geometry, ratios = list(predictors)[:3], list(predictors)[3:]
        speed = explained(cycles[arrived], {k: v[arrived] for k, v in predictors.items()}, self.seed)
        failure = explained(1.0 * ~arrived, predictors, self.seed)
        together = {
            "cycles": (shared_r2(cycles[arrived], [predictors[k][arrived] for k in ratios]),
                       shared_r2(cycles[arrived], [predictors[k][arrived] for k in geometry])),
            "failures": (shared_r2(1.0 * ~arrived, [predictors[k] for k in ratios]),
                         shared_r2(1.0 * ~arrived, [predictors[k] for k in geometry])),
        }  # fmt: skip
        summary: dict[str, Any] = {
            "converged_share": float(arrived.mean()),
            "median_cycles": float(np.median(cycles[arrived])) if arrived.any() else float("nan"),
            "p95_cycles": float(np.percentile(cycles[arrived], 95)) if arrived.any() else float("nan"),
            "median_miss_of_failures": float(np.median(miss[~arrived])) if (~arrived).any() else 0.0,
        }
        for what, (by_ratios, by_geometry) in together.items():
            summary[f"{what}_explained_by_ratios"] = by_ratios
            summary[f"{what}_explained_by_geometry"] = by_geometry
        for what, table in (("cycles", speed), ("failures", failure)):
            for key, (rho, low, high, p) in table.items():
                summary[f"{what}: {key}"] = {"rho": rho, "low": low, "high": high, "p": p}
        return summary, self._sections(rows, column, arrived, speed, failure, together)

    def _sections(self, rows: Any, column: Any, arrived: Any, speed: Any, failure: Any, together: Any) -> list[Section]:
        n, miss, cycles = self.links, column["miss"], column["cycles"]
        pick = np.arange(len(rows))
        if len(rows) > 4000:
            pick = np.random.default_rng(self.seed).choice(len(rows), 4000, replace=False)
        logs, least = np.log10(np.maximum(miss, 1e-9)), np.log10(self.tolerance)
        names = [f"length {i + 1}" for i in range(3)]

        def cloud(figure: Any) -> None:
            if n == 2:
                axes = figure.subplots()
                order = pick[np.argsort(logs[pick])]  # failures on top
                dots = axes.scatter(
                    rows[order, 0], rows[order, 1], c=logs[order], s=8, cmap="viridis", vmin=least, rasterized=True
                )
            else:
                axes = figure.add_subplot(projection="3d")
                order = pick[np.argsort(logs[pick])]  # failures on top
                size = np.where(logs[order] > least + 1e-9, 16, 5)
                dots = axes.scatter(
                    *rows[order, :3].T, c=logs[order], s=size, cmap="viridis", vmin=least, depthshade=False,
                    linewidths=0, rasterized=True,
                )  # fmt: skip
                axes.set_zlabel(names[2])
                axes.view_init(22, -52)
            axes.set_xlabel(names[0])
            axes.set_ylabel(names[1])
            figure.colorbar(dots, ax=axes, shrink=0.75, pad=0.12, extend="min", label="final miss, log10")

        def turning() -> Any:
            import plotly.graph_objects as go

            z = rows[pick, 2] if n > 2 else np.zeros(len(pick))
            marker = {"size": 3, "color": logs[pick], "colorscale": "Viridis", "cmin": least,
                      "colorbar": {"title": "miss, log10"}}  # fmt: skip
            words = [f"miss {m:.2g}, {c:.0f} cycles" for m, c in zip(miss[pick], cycles[pick], strict=True)]
            data = go.Scatter3d(
                x=rows[pick, 0], y=rows[pick, 1], z=z, mode="markers", marker=marker, text=words, hoverinfo="text"
            )
            return go.Figure(data, layout={"scene": {f"{a}axis_title": t for a, t in zip("xyz", names, strict=True)}})

        def histogram(figure: Any) -> None:
            axes = figure.subplots()
            width = (0.5 - least) / 42  # of a bar, so that one ends at the tolerance
            bins = np.arange(least - width * np.ceil((least + 9.0) / width), 0.5 + width, width)
            axes.hist(logs[arrived], bins, color=BLUE, label="converged")
            axes.hist(logs[~arrived], bins, color=RED, label="not converged")
            axes.axvline(least, color="black", linestyle=":", label="tolerance")
            axes.set_yscale("log")
            axes.set_xlabel("final miss, log10")
            axes.set_ylabel("trials")
            axes.legend()

        def against(figure: Any) -> None:
            left, right = figure.subplots(1, 2, sharey=True)
            ratio = rows[:, :n].max(axis=1) / rows[:, :n].min(axis=1)
            for axes, x, label in (
                (left, column["reach_share"], "reach: 0 folded in, 1 stretched out"),
                (right, ratio, "longest over shortest link"),
            ):
                edges = np.quantile(x[arrived], np.linspace(0, 1, 21))
                at = np.clip(np.searchsorted(edges, x[arrived], side="right") - 1, 0, 19)
                centre = [np.median(x[arrived][at == b]) for b in range(20) if np.any(at == b)]
                for share, colour in ((50, BLUE), (90, ORANGE)):
                    y = [np.percentile(cycles[arrived][at == b], share) for b in range(20) if np.any(at == b)]
                    axes.plot(centre, y, ".-", color=colour, label="median" if share == 50 else "90th percentile")
                axes.set_xlabel(label)
                axes.set_yscale("log")
                plain_log(axes.yaxis)
            left.set_ylabel("cycles to the tolerance")
            left.legend()

        def effects(figure: Any) -> None:
            axes = figure.subplots()
            for shift, table, colour, label in ((0.16, speed, BLUE, "cycles"), (-0.16, failure, GREEN, "failure")):
                y = np.arange(len(table))[::-1] + shift
                values = np.array([v[:3] for v in table.values()])
                spread = np.abs(values[:, 1:] - values[:, :1]).T
                axes.errorbar(values[:, 0], y, xerr=spread, fmt="o", color=colour, capsize=3, label=label)
            axes.axvspan(-0.1, 0.1, color="#eeeeee", zorder=0)
            axes.set_yticks(np.arange(len(speed))[::-1], list(speed))
            axes.set_xlabel("partial rank correlation with 95 % interval; grey: too small to matter")
            axes.legend(loc="lower right")

        def word(rho: float, p: float) -> str:
            size = abs(rho)
            if p > 0.05 / 12:  # twelve tests in all
                return "not shown to matter"
            return "negligible" if size < 0.1 else "small" if size < 0.3 else "medium" if size < 0.5 else "large"

        table = [("", "cycles: ρ", "95 %", "size", "failure: ρ", "95 %", "size")]
        for key in speed:
            a, b = speed[key], failure[key]
            table.append(
                (key, f"{a[0]:+.3f}", f"{a[1]:+.3f} … {a[2]:+.3f}", word(a[0], a[3]),
                 f"{b[0]:+.3f}", f"{b[1]:+.3f} … {b[2]:+.3f}", word(b[0], b[3]))
            )  # fmt: skip
        (cr, cg), (fr, fg) = together["cycles"], together["failures"]
        lost = ~arrived
        return [
            Section(
                "The question",
                [
                    f"{len(rows):,} chains of {n} links were drawn, every length uniform between "
                    f"{number(self.shortest)} and 1, with joints limited to ±{number(self.limit_deg)}°. Each starts "
                    "in a random legal posture and is sent, by limited FABRIK without restarts, to a point that "
                    "another "
                    f"random legal posture of the same chain reaches: every target can be reached. "
                    f"{100 * arrived.mean():.1f} % arrive within {self.max_cycles} cycles to {self.tolerance:g}.",
                ],
                [
                    Picture(
                        "cloud",
                        "Each point is a chain, placed by its first three link lengths and coloured by how far its tip "
                        "stayed from the target; those that arrived are dark and small. If length ratios decided, "
                        "failures would gather in a corner or along a face."
                        + ("" if len(pick) == len(rows) else f" {len(pick)} of {len(rows):,} are drawn."),
                        cloud,
                        (7.0, 5.4),
                        turning if n > 2 else None,
                    ),
                    Picture(
                        "misses",
                        f"Final misses; those below 1e-9 stand in the first bar. {lost.sum():,} trials did not arrive"
                        + (
                            f"; half of those end within {number(float(np.median(miss[lost])))}." if lost.any() else "."
                        ),
                        histogram,
                    ),
                ],
            ),
            Section(
                "What the cloud hides",
                [
                    "A coloured cloud invites the eye to find structure. So instead: sort the trials by one quantity, "
                    "cut them into twenty equal groups, and look at the cycles of each group. FABRIK on two links "
                    "gains by cos² of the bend in every cycle, so it is slow both near the stretched and near the "
                    "folded pose: a valley, which no single correlation shows.",
                    _profile(cycles[arrived], column["reach_share"][arrived], "the target's reach")
                    + " "
                    + _profile(
                        cycles[arrived],
                        (rows[:, :n].max(axis=1) / rows[:, :n].min(axis=1))[arrived],
                        "the length ratio",
                    ),
                ],
                [
                    Picture(
                        "cycles",
                        "Cycles against how far the target stretches the arm, and against the length ratio. A flat "
                        "line means that the quantity tells nothing.",
                        against,
                    )
                ],
            ),
            Section(
                "Put to numbers",
                [
                    "Each quantity's partial rank correlation with the cycles, and with failure, with the influence of "
                    "the others removed; 0 is no relation, ±1 a perfect one. The interval is a bootstrap over trials. "
                    "With many trials anything becomes significant, so the size is what counts: below 0.1 it is called "
                    "negligible whatever its p, and p is held against 0.05 divided by the twelve tests made.",
                    f"Together, the three length ratios explain {100 * cr:.1f} % of the variance of the ranks of "
                    f"cycles and "
                    f"{100 * fr:.1f} % of failure's; bend, reach and travel explain {100 * cg:.1f} % and "
                    f"{100 * fg:.1f} %.",
                    _conclusion(cr, cg, fr, fg),
                ],
                [
                    Picture(
                        "effects", "The table as a picture: the correlations with their intervals.", effects, (7.5, 3.4)
                    )
                ],
                table,
            ),
        ]


def _conclusion(cr: float, cg: float, fr: float, fg: float) -> str:
    def part(what: str, ratios: float, geometry: float) -> str:
        if max(ratios, geometry) < 0.01:
            return f"for {what}, neither explains one per cent: what decides is in the rest (start, limits, chance)"
        if ratios >= geometry:
            return f"for {what}, length ratios matter more than the target's place"
        if ratios < 0.01:
            return f"for {what}, length ratios do not matter in any useful sense; the target's place does"
        if ratios < 0.02:  # Cohen 1988: f² = 0.02 is where a small effect begins
            return f"for {what}, length ratios matter less than what is called a small effect; the target's place more"
        return f"for {what}, length ratios matter somewhat, the target's place more"

    return f"So: {part('cycles', cr, cg)}; {part('failures', fr, fg)}."


def _profile(cycles: Any, x: Any, name: str) -> str:
    """Medians of twenty equal groups, in a sentence."""
    if len(cycles) < 40:
        return ""
    groups = np.array_split(np.argsort(x, kind="stable"), 20)
    middle, where = [np.median(cycles[g]) for g in groups], [np.median(x[g]) for g in groups]
    least, most = int(np.argmin(middle)), int(np.argmax(middle))
    return (
        f"Sorted by {name}, the groups' median cycles go from {number(middle[0])} (at {where[0]:.2f}) to "
        f"{number(middle[-1])} (at {where[-1]:.2f}), with the fewest, {number(middle[least])}, at {where[least]:.2f} "
        f"and the most, {number(middle[most])}, at {where[most]:.2f}."
    )


def _points(lengths: Float[np.ndarray, "k n"], angles: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k m 2"]:
    heading = np.cumsum(angles, axis=1)
    steps = lengths[..., None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    return np.concatenate([np.zeros((len(lengths), 1, 2)), np.cumsum(steps, axis=1)], axis=1)


def _ranks(x: Any) -> Any:
    from scipy.stats import rankdata

    r = rankdata(x)
    spread = r.std()
    return (r - r.mean()) / (spread if spread > 0 else 1.0)


def _residual(y: Any, others: list[Any]) -> Any:
    if not others:
        return y
    X = np.column_stack(others)
    return y - X @ np.linalg.lstsq(X, y, rcond=None)[0]


def shared_r2(outcome: Float[np.ndarray, "k"], predictors: list[Any]) -> float:
    """Share of the variance of the outcome's ranks that the ranks of the predictors and their squares explain."""
    if len(outcome) < 20 or np.ptp(outcome) == 0:
        return 0.0
    y = _ranks(outcome)
    X = [_ranks(x) for x in predictors]
    X += [_ranks((x - np.median(x)) ** 2) for x in predictors]  # both ends of a range may be hard
    kept = 1.0 - _residual(y, X).var() / y.var()
    m = len(X)
    return float(max(0.0, 1.0 - (1.0 - kept) * (len(y) - 1) / max(1, len(y) - m - 1)))  # adjusted for their number


def explained(
    outcome: Float[np.ndarray, "k"], predictors: dict[str, Any], seed: int, most: int = 20_000
) -> dict[str, tuple[float, float, float, float]]:
    """Partial rank correlation of each predictor: value, 95 % interval by bootstrap, p by permutation."""
    rng = np.random.default_rng(seed)
    if len(outcome) > most:  # intervals only grow narrower; effects do not change
        keep = rng.choice(len(outcome), most, replace=False)
        outcome, predictors = outcome[keep], {k: v[keep] for k, v in predictors.items()}
    if len(outcome) < 20 or np.ptp(outcome) == 0:
        return {key: (0.0, 0.0, 0.0, 1.0) for key in predictors}
    y, X = _ranks(outcome), {k: _ranks(v) for k, v in predictors.items()}
    out = {}
    for key in X:
        others = [X[k] for k in X if k != key]
        a, b = _residual(y, others), _residual(X[key], others)
        rho = float(np.corrcoef(a, b)[0, 1])
        boot = []
        for _ in range(200):
            i = rng.integers(0, len(a), len(a))
            boot.append(np.corrcoef(a[i], b[i])[0, 1])
        null = np.array([np.corrcoef(rng.permutation(a), b)[0, 1] for _ in range(400)])
        low, high = np.percentile(boot, [2.5, 97.5])
        out[key] = (rho, float(low), float(high), float((1 + np.sum(np.abs(null) >= abs(rho))) / (1 + len(null))))
    return out
