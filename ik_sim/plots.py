"""Plots of a run as SVG: the same bytes from the same log, light background, colours that colour-blind eyes part.

matplotlib is optional (`pip install ik_sim[reports]`); without it reports hold tables only.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ik_sim.errors import MissingDependencyError
from ik_sim.tasks import Task
from ik_sim.tracking import MOVING, SETTLED, SETTLING, TrackingLog

# Okabe & Ito 2008, "Color Universal Design"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000",
)  # fmt: skip
JOINT_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
_FLOOR = 1e-17  # what a logarithmic axis shows for an exact zero


def figures(log: TrackingLog, task: Task) -> dict[str, str]:
    """Every plot of a run by name, as SVG text.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "plots", "pip install ik_sim[reports]") from None
    style = {
        "svg.hashsalt": "ik_sim",  # ids by content, so that the same log gives the same file
        "svg.fonttype": "path",  # looks the same without the font
        "font.size": 9,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "lines.linewidth": 1.2,
        "legend.frameon": False,
    }
    out = {}
    with matplotlib.rc_context(style):
        for name, draw in _DRAWINGS.items():
            figure = Figure(figsize=(7.5, 3.6), layout="constrained")
            draw(figure, log, task)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
            out[name] = buffer.getvalue()
    return out


def _errors(figure: Any, log: TrackingLog, task: Task, kind: str, unit: str, scale: float) -> None:
    axes = figure.subplots()
    for part, colour, width in (("tracking", BLACK, 2.4), ("servo", ORANGE, 1.2), ("residual", BLUE, 1.2)):
        values = np.maximum(getattr(log, f"{part}_{kind}") * scale, _FLOOR)
        label = {"tracking": "tracking error", "servo": "servo", "residual": "residual"}[part]
        axes.semilogy(log.time, values, color=colour, linewidth=width, label=label)
    for limit, phase, style in (
        (getattr(task.tolerance, f"tracking_{kind}_moving"), MOVING, "-"),
        (getattr(task.tolerance, f"tracking_{kind}_settled"), SETTLED, "-"),
        (getattr(task.tolerance, f"residual_{kind}"), MOVING, ":"),
    ):
        span = log.time[log.of_phase(phase)]
        if limit is not None and len(span):
            colour, name = (BLUE, "residual tolerance") if style == ":" else (RED, "tracking tolerance")
            known = {text.get_label() for text in axes.get_lines()}
            axes.hlines(limit * scale, span[0], span[-1], color=colour, linestyle=style, linewidth=1.0)
            if style == "-":
                bottom = max(axes.get_ylim()[0], _FLOOR)
                axes.fill_between([span[0], span[-1]], bottom, limit * scale, color=GREEN, alpha=0.08, linewidth=0)
            if name not in known:
                axes.plot([], [], color=colour, linestyle=style, linewidth=1.0, label=name)
    _shade_phases(axes, log)
    axes.set_xlabel("time [s]")
    axes.set_ylabel(f"{kind} error [{unit}]")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=5)
    axes.set_title(f"{kind.capitalize()} error by its part")


def _position(figure: Any, log: TrackingLog, task: Task) -> None:
    _errors(figure, log, task, "position", "mm", 1000.0)


def _rotation(figure: Any, log: TrackingLog, task: Task) -> None:
    _errors(figure, log, task, "rotation", "rad", 1.0)


def _path(figure: Any, log: TrackingLog, task: Task) -> None:
    """Target, commanded and measured path of the tool, from above and from the side."""
    wanted = log.targets[:, :3, 3]
    planes = ((0, 1), (0, 2))
    for axes, (i, j) in zip(figure.subplots(1, 2), planes, strict=True):
        axes.plot(wanted[:, i], wanted[:, j], color=SKY, linewidth=5.0, label="target path", solid_capstyle="round")
        axes.plot(log.tool_command[:, i], log.tool_command[:, j], color=BLUE, linewidth=2.0, label="solved path")
        axes.plot(log.tool_measured[:, i], log.tool_measured[:, j], color=RED, linewidth=0.9, label="measured path")
        axes.plot(*wanted[0, [i, j]], "o", color=BLACK, markersize=4, label="start")
        axes.set_xlabel(f"{'xyz'[i]} [m]")
        axes.set_ylabel(f"{'xyz'[j]} [m]")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_title("from above" if j == 1 else "from the side")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _joints(figure: Any, log: TrackingLog, task: Task) -> None:
    """Each joint as a share of its range, so that limits are at -1 and 1."""
    axes = figure.subplots()
    facts = log.provenance["robot"]
    for j, name in enumerate(log.joint_names):
        lower, upper = facts["lower"][j], facts["upper"][j]
        low = -np.pi if lower is None else lower
        high = np.pi if upper is None else upper
        half = 0.5 * (high - low) or 1.0
        share = (log.q_measured[:, j] - 0.5 * (low + high)) / half
        axes.plot(log.time, share, color=JOINT_COLOURS[j % len(JOINT_COLOURS)], label=name)
    for limit in (-1.0, 1.0):
        axes.axhline(limit, color=RED, linestyle="--", linewidth=1.0)
    axes.set_ylim(-1.1, 1.1)
    _shade_phases(axes, log)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("joint position [share of its range]")
    axes.set_title("Joints against their limits (dashed)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)


def _torque(figure: Any, log: TrackingLog, task: Task) -> None:
    axes = figure.subplots()
    limits = log.provenance["control"]["torque_limits"]
    for j, name in enumerate(log.joint_names):
        share = 100.0 * log.torque[:, j] / limits[name]
        axes.plot(log.time, share, color=JOINT_COLOURS[j % len(JOINT_COLOURS)], label=name)
    axes.axhline(100.0, color=RED, linestyle="--", linewidth=1.0)
    _shade_phases(axes, log)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("largest torque of the tick [% of limit]")
    axes.set_ylim(0.0, 108.0)
    axes.set_title("Motor torque against its limit (dashed)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)


def _solve_time(figure: Any, log: TrackingLog, task: Task) -> None:
    moving = log.of_phase(MOVING)
    times = 1e6 * log.solve_time[moving]
    over_time, spread = figure.subplots(1, 2, width_ratios=(2, 1), sharey=True)
    slsqp = log.used_slsqp[moving]
    for rows, colour, name in ((~slsqp, BLUE, "without optimiser"), (slsqp, ORANGE, "with SLSQP")):
        if rows.any():
            over_time.semilogy(log.time[moving][rows], times[rows], ".", color=colour, markersize=4, label=name)
    bins = np.geomspace(times.min() * 0.9, times.max() * 1.1, 30)
    spread.hist(times, bins=bins, orientation="horizontal", color=SKY)
    budgets = (("median", task.budget.solve_time_median_ms, 50), ("p99", task.budget.solve_time_p99_ms, 99))
    for name, limit, percentile in budgets:
        value = float(np.percentile(times, percentile))
        over_time.axhline(value, color=BLACK, linestyle="-" if percentile == 50 else "--", linewidth=0.9,
                          label=f"{name} {value:.3g} µs")  # fmt: skip
        if limit is not None:
            style = "-" if percentile == 50 else "--"
            over_time.axhline(1e3 * limit, color=RED, linestyle=style, linewidth=0.9, label=f"budget {name}")
    over_time.set_xlabel("time [s]")
    over_time.set_ylabel("wall time of one solve [µs]")
    spread.set_xlabel("number of targets")
    over_time.set_title("Solve time")
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside lower center", ncols=6)


def _residuals(figure: Any, log: TrackingLog, task: Task) -> None:
    for axes, kind, unit in zip(
        figure.subplots(1, 2, sharey=True), ("position", "rotation"), ("m", "rad"), strict=True
    ):
        values = np.maximum(getattr(log, f"residual_{kind}")[log.of_phase(MOVING)], _FLOOR)
        low, high = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max()) + 1e-9)
        axes.hist(values, bins=np.logspace(low, max(high, low + 1.0), 31), color=BLUE)
        axes.set_xscale("log")
        limit = getattr(task.tolerance, f"residual_{kind}")
        if limit is not None:
            axes.axvline(limit, color=RED, linewidth=1.0, label="tolerance")
            axes.legend(loc="upper right")
        axes.set_xlabel(f"{kind} residual [{unit}]")
    figure.axes[0].set_ylabel("number of targets")
    figure.suptitle("How near the solver came")


def _shade_phases(axes: Any, log: TrackingLog) -> None:
    for phase, colour in ((SETTLING, "#bbbbbb"), (SETTLED, "#dddddd")):
        span = log.time[log.of_phase(phase)]
        if len(span):
            axes.axvspan(span[0], span[-1], color=colour, alpha=0.5, linewidth=0)
            axes.text(span.mean(), 0.97, phase, ha="center", va="top", fontsize=7, transform=axes.get_xaxis_transform(),
                      rotation=90)  # fmt: skip
    axes.set_xlim(0.0, float(log.time[-1]))


_DRAWINGS = {
    "position_error": _position,
    "rotation_error": _rotation,
    "path": _path,
    "joints": _joints,
    "torque": _torque,
    "solve_time": _solve_time,
    "residuals": _residuals,
}
