"""Plots of a run as SVG, drawn here: no dependency, a few milliseconds each, the same bytes from the same log.

Colours are classes, not values, so that one drawing is readable on light and on dark ground; `STYLE` holds both sets
(after Okabe & Ito 2008, apart also for colour-blind eyes), and lines that may cross differ in their dashes too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from ik_sim.tasks import Task
from ik_sim.tracking_log import MOVING, SETTLED, SETTLING, TrackingLog
from ik_sim.verdict import CAUSES, NOTABLE, split

STYLE = """
.chart { color: #1b1f24; --c0: #0072b2; --c1: #d98200; --c2: #00875f; --c3: #c8430a; --c4: #a8467f; --c5: #2f9bd8;
  --c6: #7a6a00; font: 11px system-ui, sans-serif; }
@media screen and (prefers-color-scheme: dark) { .chart { color: #e8ebee; --c0: #4aa8e8; --c1: #f0ab3c; --c2: #35c79a;
  --c3: #ff8550; --c4: #e79ac4; --c5: #9cd6ff; --c6: #d8c748; } }
.chart text { fill: currentColor; } .chart .title { font-weight: 600; font-size: 12px; }
.chart .grid { stroke: currentColor; stroke-opacity: .13; fill: none; }
.chart .frame { stroke: currentColor; stroke-opacity: .45; fill: none; }
.chart .shade { fill: currentColor; fill-opacity: .07; } .chart .good { fill: var(--c2); fill-opacity: .12; }
.chart .ink { --c: currentColor; } .chart .c0 { --c: var(--c0); } .chart .c1 { --c: var(--c1); }
.chart .c2 { --c: var(--c2); } .chart .c3 { --c: var(--c3); } .chart .c4 { --c: var(--c4); }
.chart .c5 { --c: var(--c5); } .chart .c6 { --c: var(--c6); }
.chart .faint { --c: currentColor; stroke-opacity: .25; }
.chart .line { stroke: var(--c); fill: none; stroke-linejoin: round; stroke-linecap: round; }
.chart .dots { fill: var(--c); } .chart .bars { fill: var(--c); }
"""
"""Style sheet of the drawings, for the page or the file that holds them."""

FLOOR = 1e-17
"""What a logarithmic axis shows for an exact zero."""
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 66, 14, 26, 40, 16
_MOST_POINTS = 1500  # of a line; longer ones keep the extremes of each stretch
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass
class Chart:
    """One pair of axes. Things are drawn in the order in which they are added."""

    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    equal: bool = False
    """One metre is as long on either axis."""
    bare: bool = False
    """Without axes: for what brings its own."""
    items: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def line(self, x: Any, y: Any, colour: str, name: str = "", width: float = 1.4, dash: str = "") -> None:
        """A line through points."""
        self._add("line", x=x, y=y, colour=colour, name=name, width=width, dash=dash)

    def dots(self, x: Any, y: Any, colour: str, name: str = "", size: float = 1.6) -> None:
        """A dot at each point."""
        self._add("dots", x=x, y=y, colour=colour, name=name, size=size)

    def bars(self, edges: Any, heights: Any, colour: str) -> None:
        """A histogram."""
        self._add("bars", x=edges, y=heights, colour=colour, name="")

    def level(
        self, y: float, colour: str, name: str = "", dash: str = "", span: tuple[float, float] | None = None
    ) -> None:
        """A level line, over the whole width or a span of x."""
        self._add("level", x=[] if span is None else span, y=[y], colour=colour, name=name, dash=dash, width=1.2)

    def mark(self, x: float, colour: str, name: str = "") -> None:
        """An upright line."""
        self._add("mark", x=[x], y=[], colour=colour, name=name, dash="4 3", width=1.2)

    def shade(self, span: tuple[float, float], text: str = "") -> None:
        """Grey ground over a span of x."""
        self._add("shade", x=span, y=[], text=text, name="")

    def good(self, span: tuple[float, float], below: float) -> None:
        """Green ground below a value."""
        self._add("good", x=span, y=[below], name="")

    def text(self, x: float, y: float, words: str, anchor: str = "middle") -> None:
        """Words in the picture."""
        self._add("text", x=[x], y=[y], words=words, anchor=anchor, name="")

    def _add(self, kind: str, x: Any, y: Any, **rest: Any) -> None:
        self.items.append((kind, {"x": np.asarray(x, dtype=float), "y": np.asarray(y, dtype=float), **rest}))

    # --- drawing ---

    def draw(self, left: float, top: float, width: float, height: float) -> str:
        """The chart inside that box; the legend's lines come off the bottom."""
        legend = self._legend(width)
        x0, x1 = left + _LEFT, left + width - _RIGHT
        y0, y1 = top + height - _BOTTOM - _LINE * len(legend), top + _TOP
        (xa, xb), (ya, yb) = self._limits(x1 - x0, y0 - y1)

        def px(v: Any) -> Any:
            return x0 + (_axis(v, self.log_x) - xa) / (xb - xa) * (x1 - x0)

        def py(v: Any) -> Any:
            return y0 - (_axis(v, self.log_y) - ya) / (yb - ya) * (y0 - y1)

        out = [f'<text class="title" x="{_n(x0)}" y="{_n(top + 15)}">{escape(self.title)}</text>']
        if not self.bare:
            for value, label in _ticks(xa, xb, self.log_x, (x1 - x0) / 70):
                x = _n(x0 + (value - xa) / (xb - xa) * (x1 - x0))
                out.append(f'<path class="grid" d="M{x} {_n(y0)}V{_n(y1)}"/>')
                out.append(f'<text x="{x}" y="{_n(y0 + 14)}" text-anchor="middle">{label}</text>')
            for value, label in _ticks(ya, yb, self.log_y, (y0 - y1) / 34):
                y = y0 - (value - ya) / (yb - ya) * (y0 - y1)
                out.append(f'<path class="grid" d="M{_n(x0)} {_n(y)}H{_n(x1)}"/>')
                out.append(f'<text x="{_n(x0 - 6)}" y="{_n(y + 4)}" text-anchor="end">{label}</text>')
        clip = f"clip{_n(x0)}-{_n(y1)}-{_n(x1)}-{_n(y0)}".replace(".", "_")
        box = f'x="{_n(x0)}" y="{_n(y1)}" width="{_n(x1 - x0)}" height="{_n(y0 - y1)}"'
        out.append(f'<clipPath id="{clip}"><rect {box}/></clipPath><g clip-path="url(#{clip})">')
        out += [self._item(kind, item, px, py, (x0, x1, y0, y1)) for kind, item in self.items]
        out.append("</g>")
        if not self.bare:
            out.append(f'<rect class="frame" {box}/>')
            middle = _n(0.5 * (x0 + x1))
            out.append(f'<text x="{middle}" y="{_n(y0 + 30)}" text-anchor="middle">{escape(self.x_label)}</text>')
            turn = f'transform="translate({_n(left + 13)} {_n(0.5 * (y0 + y1))}) rotate(-90)"'
            out.append(f'<text {turn} text-anchor="middle">{escape(self.y_label)}</text>')
        for i, row in enumerate(legend):
            y = y0 + _BOTTOM + _LINE * i + 6
            for x, item in row:
                out.append(_key(x0 + x, y, item))
        return "".join(out)

    def _item(self, kind: str, item: dict[str, Any], px: Any, py: Any, box: tuple[float, float, float, float]) -> str:
        x0, x1, y0, y1 = box
        x, y = item["x"], item["y"]
        if kind == "shade":
            a, b = float(px(x[0])), float(px(x[1]))
            rect = f'<rect class="shade" x="{_n(a)}" y="{_n(y1)}" width="{_n(b - a)}" height="{_n(y0 - y1)}"/>'
            if b - a < 16.0:  # too narrow for its name
                return rect
            turn = f'transform="translate({_n(0.5 * (a + b) + 4)} {_n(y1 + 6)}) rotate(-90)"'
            return f'{rect}<text {turn} text-anchor="end" opacity=".7">{escape(item["text"])}</text>'
        if kind == "good":
            a, b, top = float(px(x[0])), float(px(x[1])), float(py(y[0]))
            return (
                f'<rect class="good" x="{_n(a)}" y="{_n(top)}" width="{_n(b - a)}" height="{_n(max(0.0, y0 - top))}"/>'
            )
        if kind == "text":
            where = f'x="{_n(float(px(x[0])))}" y="{_n(float(py(y[0])) + 4)}"'
            return f'<text {where} text-anchor="{item["anchor"]}">{escape(item["words"])}</text>'
        if kind == "bars":
            base, parts = y0, []
            for a, b, h in zip(px(x[:-1]), px(x[1:]), py(y), strict=True):
                parts.append(f"M{_n(a)} {_n(base)}V{_n(h)}H{_n(b)}V{_n(base)}Z")
            return f'<path class="bars {item["colour"]}" d="{"".join(parts)}"/>'
        if kind == "dots":
            r = item["size"]
            spots = "".join(
                f"M{_n(a - r)} {_n(b)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"
                for a, b in zip(px(x), py(y), strict=True)
            )
            return f'<path class="dots {item["colour"]}" d="{spots}"/>'
        if kind == "level":
            a, b = (x0, x1) if not len(x) else (float(px(x[0])), float(px(x[1])))
            path = f"M{_n(a)} {_n(float(py(y[0])))}H{_n(b)}"
        elif kind == "mark":
            path = f"M{_n(float(px(x[0])))} {_n(y0)}V{_n(y1)}"
        else:
            path = "".join(_stretch(points) for points in _stretches(px(x), py(y)))
        return f'<path class="line {item["colour"]}" {_stroke(item)} d="{path}"/>'

    def _limits(self, width: float, height: float) -> tuple[tuple[float, float], tuple[float, float]]:
        limits = []
        for key, given, log in (("x", self.x_range, self.log_x), ("y", self.y_range, self.log_y)):
            if given is not None:
                low, high = (float(_axis(v, log)) for v in given)
            else:
                parts = [item[key] for kind, item in self.items if len(item[key]) and kind != "shade"]
                values = _axis(np.concatenate(parts) if parts else np.array([1.0]), log)
                values = values[np.isfinite(values)]
                low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
                if any(kind == "bars" for kind, _ in self.items) and key == "y":
                    low = 0.0
                pad = 0.04 * (high - low) or 0.5
                low, high = (low if low == 0.0 else low - pad), high + pad
            limits.append((low, high if high > low else low + 1.0))
        if self.equal:
            scale = max((limits[0][1] - limits[0][0]) / width, (limits[1][1] - limits[1][0]) / height)
            for i, length in enumerate((width, height)):
                middle = 0.5 * sum(limits[i])
                limits[i] = (middle - 0.5 * scale * length, middle + 0.5 * scale * length)
        return limits[0], limits[1]

    def _legend(self, width: float) -> list[list[tuple[float, dict[str, Any]]]]:
        rows: list[list[tuple[float, dict[str, Any]]]] = []
        x = math.inf
        seen = set()
        for kind, item in self.items:
            if not item["name"] or item["name"] in seen:
                continue
            seen.add(item["name"])
            need = 36 + 6.4 * len(item["name"])
            if x + need > width - _LEFT - _RIGHT + 20:
                rows.append([])
                x = 0.0
            rows[-1].append((x, {**item, "kind": kind}))
            x += need
        return rows


def svg(charts: Sequence[Chart], width: int = 760, height: int = 330) -> str:
    """Charts side by side in one drawing, without a style sheet."""
    each = width / len(charts)
    label = escape("; ".join(chart.title for chart in charts), {'"': "&quot;"})
    parts = "".join(chart.draw(i * each, 0.0, each, height) for i, chart in enumerate(charts))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}">{parts}</svg>'
    )


def svg_file(drawing: str) -> str:
    """A drawing that stands alone: with its style sheet, on white or dark ground as the reader has it."""
    ground = (
        "svg { background: #ffffff; } @media screen and (prefers-color-scheme: dark) { svg { background: #14181d; } }"
    )
    head, body = drawing.split(">", 1)
    return f"{head}><style>{STYLE}{ground}</style>{body}\n"


def figures(log: TrackingLog, task: Task) -> dict[str, str]:
    """Every plot of a run by name, as SVG."""
    return {name: svg(draw(log, task)) for name, draw in _DRAWINGS.items()}


# --- what is drawn ---


def _errors(log: TrackingLog, task: Task, kind: str, unit: str, scale: float) -> list[Chart]:
    chart = Chart(f"{kind.capitalize()} error by its cause", "time [s]", f"{kind} error [{unit}]", log_y=True,
                  x_range=(0.0, float(log.time[-1])))  # fmt: skip
    _shade_phases(chart, log)
    for phase in (MOVING, SETTLED):
        limit, span = getattr(task.tolerance, f"tracking_{kind}_{phase}"), _span(log, phase)
        if limit is not None and span is not None:
            chart.good(span, limit * scale)
            chart.level(limit * scale, "c2", "tracking tolerance", span=span)
    limit, span = getattr(task.tolerance, f"residual_{kind}"), _span(log, MOVING)
    if limit is not None and span is not None:
        chart.level(limit * scale, "c0", "residual tolerance", dash="2 3", span=span)
    chart.line(log.time, np.maximum(getattr(log, f"tracking_{kind}") * scale, FLOOR), "ink", "tracking error", 2.6)
    parts = split(log, kind)
    for name, (colour, dash) in _CAUSE_LINES.items():
        if parts[name].max() > NOTABLE or name in ("solver", "lag"):
            values = np.where(parts[name] > 0.0, np.maximum(parts[name] * scale, FLOOR), np.nan)
            chart.line(log.time, values, colour, CAUSES[name], 1.5, dash)
    return [chart]


_CAUSE_LINES = {
    "solver": ("c0", "6 3"),
    "joint_limit": ("c4", "9 3 2 3"),
    "lag": ("c1", ""),
    "torque": ("c3", "2 3"),
    "speed": ("c5", "5 2"),
    "contact": ("c6", "1 3"),
}


def _path(log: TrackingLog, task: Task) -> list[Chart]:
    """Target, commanded and measured path of the tool, from above and from the side."""
    wanted, charts = log.targets[:, :3, 3], []
    for title, i, j in (("Path from above", 0, 1), ("Path from the side", 0, 2)):
        chart = Chart(title, f"{'xyz'[i]} [m]", f"{'xyz'[j]} [m]", equal=True)
        chart.line(wanted[:, i], wanted[:, j], "c5", "target", 5.0)
        chart.line(log.tool_command[:, i], log.tool_command[:, j], "c0", "solved", 2.2)
        chart.line(log.tool_measured[:, i], log.tool_measured[:, j], "c3", "measured", 1.1)
        chart.dots(wanted[:1, i], wanted[:1, j], "ink", "start", 3.5)
        charts.append(chart)
    return charts


_AZIMUTH, _ELEVATION = math.radians(-55.0), math.radians(24.0)  # of the eye that sees the path in space


def _path_3d(log: TrackingLog, task: Task) -> list[Chart]:
    """Target and measured path of the tool in space, with what the measured one casts straight down."""
    ca, sa, ce, se = math.cos(_AZIMUTH), math.sin(_AZIMUTH), math.cos(_ELEVATION), math.sin(_ELEVATION)
    onto = np.array([[-sa, ca, 0.0], [-se * ca, -se * sa, ce]]).T
    chart = Chart("Path in space", "", "", equal=True, bare=True)
    wanted, driven = log.targets[:, :3, 3], log.tool_measured
    points = np.concatenate([wanted, driven])
    size = max(float(np.ptp(points, axis=0).max()), 1e-3)
    middle = 0.5 * (points.max(axis=0) + points.min(axis=0))
    half = np.maximum(0.55 * np.ptp(points, axis=0), 0.35 * size)
    low, high = middle - half, middle + half

    def draw(xyz: Any, colour: str, name: str = "", width: float = 1.4, dash: str = "") -> None:
        uv = np.asarray(xyz, dtype=float) @ onto
        chart.line(uv[:, 0], uv[:, 1], colour, name, width, dash)

    near, far = np.where(np.array([ca, sa, 1.0]) > 0.0, high, low), np.where([ca > 0.0, sa > 0.0, True], low, high)
    away = 0.16 * float(half.max())
    for axis, other in ((0, 1), (1, 0), (2, 0)):
        for value, label in _ticks(low[axis], high[axis], False, 4.0):
            # A grid line on the floor, or on the wall at the back; its number stands before the near edge.
            line = np.stack([far, far])
            line[:, axis] = value
            if axis == 2:
                line[0, 1], line[1, 1], line[:, 0] = low[1], high[1], far[0]
                foot = line[np.argmin((line @ onto)[:, 0])]
                spot = foot @ onto - [0.3 * away, 0.0]
            else:
                line[0, other], line[1, other], line[:, 2] = far[other], near[other], low[2]
                foot = line[1].copy()
                foot[other] += np.sign(near[other] - far[other]) * away
                spot = foot @ onto
            draw(line, "faint", width=0.8)
            chart.text(float(spot[0]), float(spot[1]), label, "end" if axis == 2 else "middle")
        edge = np.array([near[0], near[1], low[2]])
        edge[axis] = middle[axis]
        if axis == 2:
            ends = np.array([[far[0], low[1], middle[2]], [far[0], high[1], middle[2]]])
            spot = ends[np.argmin((ends @ onto)[:, 0])] @ onto - [2.9 * away, 0.0]
        else:
            edge[other] += np.sign(near[other] - far[other]) * 3.0 * away
            spot = edge @ onto
        chart.text(float(spot[0]), float(spot[1]), f"{'xyz'[axis]} [m]")
    floor = driven.copy()
    floor[:, 2] = low[2]
    draw(floor, "faint", "measured, straight below", 2.0)
    draw(wanted, "c5", "target", 5.0)
    draw(driven, "c3", "measured", 1.4)
    start = wanted[:1] @ onto
    chart.dots(start[:, 0], start[:, 1], "ink", "start", 3.5)
    return [chart]


def _joints(log: TrackingLog, task: Task) -> list[Chart]:
    """Each joint as a share of its range, so that limits are at -1 and 1."""
    chart = Chart("Joints against their limits (dashed)", "time [s]", "position [share of range]",
                  x_range=(0.0, float(log.time[-1])), y_range=(-1.1, 1.1))  # fmt: skip
    _shade_phases(chart, log)
    facts = log.provenance["robot"]
    for j, name in enumerate(log.joint_names):
        low = -math.pi if facts["lower"][j] is None else facts["lower"][j]
        high = math.pi if facts["upper"][j] is None else facts["upper"][j]
        half = 0.5 * (high - low) or 1.0
        _joint_line(chart, log, j, (log.q_measured[:, j] - 0.5 * (low + high)) / half, name)
    for limit in (-1.0, 1.0):
        chart.level(limit, "ink", dash="5 4")
    return [chart]


def _torque(log: TrackingLog, task: Task) -> list[Chart]:
    chart = Chart("Motor torque against its limit (dashed)", "time [s]", "largest of the tick [% of limit]",
                  x_range=(0.0, float(log.time[-1])), y_range=(0.0, 110.0))  # fmt: skip
    _shade_phases(chart, log)
    limits = log.provenance["control"]["torque_limits"]
    for j, name in enumerate(log.joint_names):
        _joint_line(chart, log, j, 100.0 * log.torque[:, j] / limits[name], name)
    chart.level(100.0, "ink", dash="5 4")
    return [chart]


def _joint_line(chart: Chart, log: TrackingLog, j: int, values: Any, name: str) -> None:
    chart.line(log.time, values, f"c{j % 7}", name, 1.5, _DASHES[j % len(_DASHES)])


def _solve_time(log: TrackingLog, task: Task) -> list[Chart]:
    moving = log.of_phase(MOVING)
    when, times, slsqp = log.time[moving], 1e3 * log.solve_time[moving], log.used_slsqp[moving]
    chart = Chart("Solve time", "time [s]", "wall time of one solve [ms]", log_y=True,
                  x_range=(0.0, float(log.time[-1])))  # fmt: skip
    for rows, colour, name in ((~slsqp, "c0", "without optimiser"), (slsqp, "c1", "with SLSQP")):
        if rows.any():
            chart.dots(when[rows], times[rows], colour, name)
    budgets = (("median", task.budget.solve_time_median_ms, 50), ("p99", task.budget.solve_time_p99_ms, 99))
    for name, limit, percentile in budgets:
        dash = "" if percentile == 50 else "5 4"
        value = float(np.percentile(times, percentile))
        chart.level(value, "ink", f"{name} {value:.3g} ms", dash)
        if limit is not None:
            chart.level(limit, "c3", f"budget, {name}", dash)
    spread = Chart("Its distribution", "wall time of one solve [ms]", "number of targets", log_x=True)
    edges = np.geomspace(0.9 * times.min(), 1.1 * times.max(), 25)
    spread.bars(edges, np.histogram(times, edges)[0], "c5")
    return [chart, spread]


def _residuals(log: TrackingLog, task: Task) -> list[Chart]:
    charts = []
    for kind, unit in (("position", "m"), ("rotation", "rad")):
        values = np.maximum(getattr(log, f"residual_{kind}")[log.of_phase(MOVING)], FLOOR)
        low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()) + 1e-9)
        edges = np.logspace(low, max(high, low + 1), 31)
        chart = Chart(f"Residual, {kind}", f"{kind} residual [{unit}]", "number of targets", log_x=True)
        chart.bars(edges, np.histogram(values, edges)[0], "c0")
        limit = getattr(task.tolerance, f"residual_{kind}")
        if limit is not None:
            chart.mark(limit, "c3", "tolerance")
        charts.append(chart)
    return charts


def _span(log: TrackingLog, phase: str) -> tuple[float, float] | None:
    times = log.time[log.of_phase(phase)]
    return (float(times[0]), float(times[-1])) if len(times) else None


def _shade_phases(chart: Chart, log: TrackingLog) -> None:
    for phase in (SETTLING, SETTLED):
        span = _span(log, phase)
        if span is not None:
            chart.shade(span, phase)


_DRAWINGS = {
    "position_error": lambda log, task: _errors(log, task, "position", "mm", 1000.0),
    "rotation_error": lambda log, task: _errors(log, task, "rotation", "rad", 1.0),
    "path": _path,
    "path_3d": _path_3d,
    "joints": _joints,
    "torque": _torque,
    "solve_time": _solve_time,
    "residuals": _residuals,
}


# --- pieces ---


def _axis(v: Any, log: bool) -> Any:
    return np.log10(np.maximum(v, FLOOR)) if log else v


def _n(v: float) -> str:
    return f"{v:.1f}".removesuffix(".0")


def _stroke(item: dict[str, Any]) -> str:
    dash = f' stroke-dasharray="{item["dash"]}"' if item["dash"] else ""
    return f'stroke-width="{item["width"]}"{dash}'


def _key(x: float, y: float, item: dict[str, Any]) -> str:
    if item["kind"] == "dots":
        sign = f'<circle class="dots {item["colour"]}" cx="{_n(x + 10)}" cy="{_n(y)}" r="3"/>'
    else:
        sign = f'<path class="line {item["colour"]}" {_stroke(item)} d="M{_n(x)} {_n(y)}h20"/>'
    return f'{sign}<text x="{_n(x + 26)}" y="{_n(y + 4)}">{escape(item["name"])}</text>'


def _ticks(low: float, high: float, log: bool, most: float) -> list[tuple[float, str]]:
    """Positions on the axis and their labels; on a logarithmic axis whole powers of ten."""
    span = high - low
    if log and span >= 1.0:
        step = max(1, math.ceil(span / max(most, 1.0)))
        powers = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
        return [(float(k), f"10{str(k).translate(_SUPERSCRIPT)}") for k in powers]
    if log:  # less than a decade: 1-2-5 within it
        values = [m * 10.0**k for k in range(math.floor(low) - 1, math.ceil(high) + 1) for m in (1, 2, 5)]
        return [(math.log10(v), f"{v:.3g}") for v in values if low <= math.log10(v) <= high]
    raw = span / max(most, 2.0)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(k * step, f"{round(k * step, 12):g}") for k in range(first, last + 1)]


def _stretches(x: Any, y: Any) -> list[list[tuple[float, float]]]:
    """A line's points, in pieces between the places where it has no value."""
    gaps = np.flatnonzero(np.diff(np.concatenate([[False], np.isfinite(y), [False]]).astype(int)))
    return [_thinned(x[a:b], y[a:b]) for a, b in zip(gaps[::2], gaps[1::2], strict=True)]


def _stretch(points: list[tuple[float, float]]) -> str:
    if len(points) == 1:  # a dot, thanks to round ends
        return f"M{_n(points[0][0])} {_n(points[0][1])}h0"
    return "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in points)


def _thinned(x: Any, y: Any) -> list[tuple[float, float]]:
    """At most so many points, the lowest and highest of each stretch among them."""
    if len(x) <= _MOST_POINTS:
        return list(zip(x.tolist(), y.tolist(), strict=True))
    keep = []
    for rows in np.array_split(np.arange(len(x)), _MOST_POINTS // 2):
        keep += sorted({int(rows[np.argmin(y[rows])]), int(rows[np.argmax(y[rows])])})
    return [(float(x[i]), float(y[i])) for i in keep]
