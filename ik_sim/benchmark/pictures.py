"""Plots of a benchmark as SVG, and the same as one interactive page where plotly is installed."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from ik_sim.benchmark.store import Rows
from ik_sim.plots import Chart, svg

_COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "ink")
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_MOST_DOTS, _MOST_LINES = 400, 16
_ROW, _LEFT, _RIGHT = 22, 150, 92


def look(solvers: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and dash of each solver, the same in every plot."""
    return {s: (_COLOURS[i % 8], _DASHES[i // 8 % 4]) for i, s in enumerate(solvers)}


def profile(rows: Rows, solvers: list[str], title: str) -> str:
    """Performance profile: the share of targets solved within a factor of the time of the fastest on that target.

    Of many solvers only the first settings of each are drawn: more lines could not be told apart.
    """
    if len(solvers) > _MOST_LINES:
        solvers = [s for s in solvers if not s.endswith(":default")]
        title += ", without defaults"
    style, logs = look(solvers), {}
    best: dict[int, float] = {}
    for solver in solvers:
        part = rows.where((rows["solver"] == solver) & rows["success"] & np.isfinite(rows["time_us"]))
        logs[solver] = dict(zip(part["index"].astype(int).tolist(), part["time_us"].tolist(), strict=True))
        for i, t in logs[solver].items():
            best[i] = min(best.get(i, np.inf), t)
    chart = Chart(title, "time over that of the fastest on the same target", "solved within it [% of targets]", log_x=True,
                  x_range=(1.0, 3e4), y_range=(0.0, 102.0))  # fmt: skip
    for solver in solvers:
        tried = int(((rows["solver"] == solver) & rows["reachable"]).sum())
        factors = np.sort([t / best[i] for i, t in logs[solver].items()])
        if not len(factors) or not tried:
            continue
        x = np.concatenate([[1.0], np.repeat(factors, 2), [3e4]])
        y = np.concatenate([np.repeat(np.arange(len(factors) + 1), 2)[:-1], [len(factors)]]) / tried * 100.0
        colour, dash = style[solver]
        chart.line(x, y, colour, solver, 1.6, dash)
    return svg([chart], height=360)


def scatter(rows: Rows, solvers: list[str], title: str, width: int = 760) -> str:
    """Time against the distance to singularity: a panel a solver on the same axes, failures in their own colour."""
    seen = rows.where(np.isfinite(rows["sigma"]) & np.isfinite(rows["time_us"]) & (rows["time_us"] > 0))
    here = [s for s in solvers if (seen["solver"] == s).any()]
    if not here:
        return ""
    x, y = np.log10(np.maximum(seen["sigma"], 1e-12)), np.log10(seen["time_us"])
    low_x, low_y, high_y = np.floor(x.min()), np.floor(y.min()), np.ceil(y.max() + 1e-9)
    high_x = max(np.ceil(x.max() + 1e-9), low_x + 1)
    size, gap, columns, tall = 150, 34, 4, 110
    out = [f'<text class="title" x="10" y="15">{escape(title)}; failures in red</text>']
    for k, solver in enumerate(here):
        x0, y0 = 50 + (k % columns) * (size + gap), 44 + (k // columns) * (tall + 64)
        mine = np.flatnonzero(seen["solver"] == solver)
        mine = mine[np.linspace(0, len(mine) - 1, min(len(mine), _MOST_DOTS)).astype(int)]
        out.append(f'<text x="{x0}" y="{y0 - 6}">{escape(_short(solver))}</text>')
        for power in range(int(low_y), int(high_y) + 1):
            v = y0 + tall - (power - low_y) / (high_y - low_y) * tall
            out.append(f'<path class="grid" d="M{x0} {v:.1f}h{size}"/>')
            if k % columns == 0:
                out.append(f'<text x="{x0 - 5}" y="{v + 4:.1f}" text-anchor="end">{_decade(power)}</text>')
        step = max(1, round((high_x - low_x) / 3))
        for power in range(int(low_x), int(high_x) + 1, step):
            u = x0 + (power - low_x) / (high_x - low_x) * size
            out.append(f'<path class="grid" d="M{u:.1f} {y0}v{tall}"/>')
            out.append(f'<text x="{u:.1f}" y="{y0 + tall + 15}" text-anchor="middle">1e{power}</text>')
        for good, colour in ((True, "c0"), (False, "c3")):
            dots = "".join(
                f"M{x0 + (x[i] - low_x) / (high_x - low_x) * size:.1f} "
                f"{y0 + tall - (y[i] - low_y) / (high_y - low_y) * tall:.1f}h0"
                for i in mine
                if bool(seen["success"][i]) == good
            )
            if dots:
                out.append(
                    f'<path d="{dots}" style="stroke: var(--{colour}); stroke-width: 3; stroke-linecap: round"/>'
                )
        out.append(f'<rect class="frame" x="{x0}" y="{y0}" width="{size}" height="{tall}"/>')
        out.append(f'<text x="{x0 + size / 2}" y="{y0 + tall + 28}" text-anchor="middle">singular value</text>')
    height = 44 + (tall + 64) * (-(-len(here) // columns)) - 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width + 30} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(out)}</svg>'
    )


def _decade(power: int) -> str:
    words = {0: "1 µs", 1: "10 µs", 2: "100 µs", 3: "1 ms", 4: "10 ms", 5: "100 ms", 6: "1 s", 7: "10 s"}
    return words.get(power, f"1e{power} µs")


def boxes(entries: list[dict[str, Any]], rows: Rows, title: str, width: int = 760) -> str:
    """Box plots of the time of all attempts, with the success rate beside each: quartiles, median, 1st and 99th percentile."""
    found = []
    for entry in sorted(entries, key=lambda e: e["time_us"]["median"] if e["time_us"] else np.inf):
        times = rows["time_us"][(rows["solver"] == entry["solver"]) & rows["reachable"]]
        times = times[np.isfinite(times)]
        if len(times):
            found.append((entry, np.log10(np.maximum(np.percentile(times, [1, 25, 50, 75, 99]), 1e-3))))
    if not found:
        return ""
    low, high = np.floor(min(q[0] for _, q in found)), np.ceil(max(q[4] for _, q in found))
    x0, x1, top = _LEFT, width - _RIGHT, 34
    bottom = top + _ROW * len(found)

    def px(v: float) -> float:
        return round(x0 + (v - low) / max(high - low, 1.0) * (x1 - x0), 1)

    out = [f'<text class="title" x="{x0}" y="15">{escape(title)}</text>', f'<text x="{x1 + 8}" y="28">success</text>']
    for k in range(int(low), int(high) + 1):
        out.append(f'<path class="grid" d="M{px(k)} {bottom}V{top}"/>')
        out.append(f'<text x="{px(k)}" y="{bottom + 14}" text-anchor="middle">{_decade(k)}</text>')
    for i, (entry, q) in enumerate(found):
        y = top + _ROW * i + _ROW // 2
        a, b, c, d, e = (px(v) for v in q)
        out.append(f'<text x="{x0 - 8}" y="{y + 4}" text-anchor="end">{escape(_short(entry["solver"]))}</text>')
        out.append(
            f'<path class="line ink" stroke-width="1" d="M{a} {y}H{b}M{d} {y}H{e}M{a} {y - 4}v8M{e} {y - 4}v8"/>'
        )
        box = f'x="{b}" y="{y - 6}" width="{max(d - b, 1.0):.1f}" height="12"'
        out.append(f'<g class="c0"><rect {box} style="fill: var(--c0); fill-opacity: .35; stroke: var(--c0)"/></g>')
        out.append(f'<path class="line ink" stroke-width="2.2" d="M{c} {y - 7}v14"/>')
        out.append(f'<text x="{x1 + 8}" y="{y + 4}">{percent(entry["success"])}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {bottom + 22}" role="img" '
        f'aria-label="{escape(title)}">{"".join(out)}</svg>'
    )


def heat(rows: Rows, solvers: list[str], title: str, width: int = 760) -> str:
    """Share of failures over the workspace, by distance from the vertical axis and height; only solvers that fail."""
    can = rows.where(rows["reachable"])
    failing = [s for s in solvers if len(p := can.where(can["solver"] == s)) and not p["success"].all()]
    if not failing:
        return ""
    rho, z = np.hypot(can["x"], can["y"]), can["z"]
    size, gap, columns = 150, 40, 4
    wide, low, high = rho.max() * 1.001, z.min(), z.max() * 1.001 + 1e-9
    height = 30 + (size + gap + 20) * (-(-len(failing) // columns))
    out = [f'<text class="title" x="10" y="15">{escape(title)}</text>']
    for k, solver in enumerate(failing):
        x0, y0 = 44 + (k % columns) * (size + gap), 44 + (k // columns) * (size + gap + 20)
        mine = can["solver"] == solver
        bins = int(np.clip(np.sqrt(mine.sum() / 3), 5, 18))  # few targets: larger cells
        edges_r, edges_z = np.linspace(0.0, wide, bins + 1), np.linspace(low, high, bins + 1)
        total = np.histogram2d(rho[mine], z[mine], (edges_r, edges_z))[0]
        bad = np.histogram2d(rho[mine & ~can["success"]], z[mine & ~can["success"]], (edges_r, edges_z))[0]
        share = 1.0 - can["success"][mine].mean()
        out.append(f'<text x="{x0}" y="{y0 - 6}">{escape(_short(solver))}: {percent(share)} fail</text>')
        step = size / bins
        for i, j in zip(*np.nonzero(total), strict=True):
            spot = (
                f'x="{x0 + i * step:.1f}" y="{y0 + size - (j + 1) * step:.1f}" width="{step:.1f}" height="{step:.1f}"'
            )
            out.append(f'<rect {spot} style="fill: currentColor; fill-opacity: .07"/>')
            if bad[i, j]:
                out.append(
                    f'<rect {spot} style="fill: var(--c3); fill-opacity: {0.15 + 0.85 * bad[i, j] / total[i, j]:.2f}"/>'
                )
        out.append(f'<rect class="frame" x="{x0}" y="{y0}" width="{size}" height="{size}"/>')
        out.append(
            f'<text x="{x0 + size / 2}" y="{y0 + size + 14}" text-anchor="middle">radius 0 to {wide:.2f} m</text>'
        )
        if k % columns == 0:
            turn = f'transform="translate({x0 - 8} {y0 + size / 2}) rotate(-90)"'
            out.append(f'<text {turn} text-anchor="middle">height {low:.2f} to {high:.2f} m</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width + 30} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(out)}</svg>'
    )


def percent(share: float | None) -> str:
    """A share as people read it: 100 % only where it is whole."""
    if share is None:
        return "–"
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    return f"{min(max(100 * share, 0.01), 99.99):.2f} %"


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:22] + "…"


def interactive(rows: Rows, solvers: list[str], title: str) -> Any:
    """Time against distance to singularity, to zoom and to switch solvers on and off; None without plotly."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        return None
    figure = go.Figure()
    for solver in solvers:
        part = rows.where((rows["solver"] == solver) & np.isfinite(rows["sigma"]) & np.isfinite(rows["time_us"]))
        pick = np.linspace(0, len(part) - 1, min(len(part), 3000)).astype(int) if len(part) else []
        words = [f"target {int(i)}: {s}" for i, s in zip(part["index"][pick], part["status"][pick], strict=True)]
        figure.add_scatter(
            x=part["sigma"][pick], y=part["time_us"][pick], mode="markers", name=solver, text=words, marker_size=4
        )
    figure.update_layout(template="plotly_white", title=title, height=560)
    figure.update_xaxes(type="log", title="smallest singular value of the Jacobian at the target")
    figure.update_yaxes(type="log", title="time of one solve [µs]")
    return figure
