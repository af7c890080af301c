"""What people read: the table on the terminal, and `report.html`, one file that needs no network.

Verdict first, then every figure against its limit, the plots, and what exactly ran.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ik_sim import plots, raster, run_folder
from ik_sim.tasks import Task
from ik_sim.tracking_log import TrackingLog
from ik_sim.verdict import CAUSES, NOTABLE, Metric, Violation, check, metrics

_TITLES = {
    "converged_share": "targets converged",
    "residual_position": "residual, position",
    "residual_rotation": "residual, rotation",
    "tracking_position_moving": "tracking, position, moving",
    "tracking_rotation_moving": "tracking, rotation, moving",
    "tracking_position_settled": "tracking, position, settled",
    "tracking_rotation_settled": "tracking, rotation, settled",
    "joint_step": "largest joint step",
    "solve_time_median_ms": "solve time, median",
    "solve_time_p99_ms": "solve time, 99th percentile",
}


def write_run(
    place: Path,
    log: TrackingLog,
    task: Task,
    seconds: float = 0.0,
    make_video: Callable[[TrackingLog, Path], Path] | None = None,
) -> dict[str, Any]:
    """Write the whole run folder at `place` and return the verdict as it stands in `verdict.json`.

    Args:
        place: the run folder.
        log: the run.
        task: what it is judged by.
        seconds: how long it took, for JUnit.
        make_video: writes a video of the log into a folder and returns its path; the report then holds it.
    """
    figures, violations = metrics(log, task), check(log, task)
    result = run_folder.verdict(log, task, figures, violations)
    with run_folder.new_run_folder(place) as folder:
        run_folder.save_log(folder, log)
        (folder / run_folder.VERDICT_FILE).write_text(run_folder.json_text(result), encoding="utf-8")
        (folder / run_folder.JUNIT_FILE).write_bytes(run_folder.junit([(result, seconds)]))
        drawings = plots.figures(log, task)
        (folder / "plots").mkdir()
        for name, drawing in drawings.items():
            (folder / "plots" / f"{name}.svg").write_text(plots.svg_file(drawing), encoding="utf-8")
            (folder / "plots" / f"{name}.png").write_bytes(raster.png(drawing))
        video = None if make_video is None else make_video(log, folder)
        page = html_report(log, task, figures, violations, result["summary"], drawings, video)
        (folder / "report.html").write_text(page, encoding="utf-8")
    return result


def text_table(log: TrackingLog, task: Task, figures: Sequence[Metric], violations: Sequence[Violation]) -> str:
    """Verdict, figures against limits, and the reasons, for a terminal."""
    robot = log.provenance["robot"]["name"]
    lines = [f"{'PASS' if not violations else 'FAIL'}  {task.name}: {robot}, {task.solver.name}, {task.title}", ""]
    rows = [("", "worst", "limit", "at [s]", "")]
    for m in figures:
        limit = "-" if m.limit is None else f"{'≥' if m.at_least else '≤'} {number(m.limit)} {m.unit}".rstrip()
        mark = "" if m.limit is None else "ok" if m.passed else "BROKEN"
        when = "" if m.time is None else f"{m.time:.3f}"
        rows.append((_TITLES[m.name], f"{number(m.value)} {m.unit}".rstrip(), limit, when, mark))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines += [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if violations:
        lines += ["", *(f"  {v.message}" for v in violations)]
    return "\n".join(lines)


def number(value: float) -> str:
    """A figure as people read it: four digits, no exponent where none is needed."""
    return f"{value:.4g}"


def html_report(
    log: TrackingLog,
    task: Task,
    figures: Sequence[Metric],
    violations: Sequence[Violation],
    summary: dict[str, Any],
    drawings: dict[str, str],
    video: Path | None = None,
) -> str:
    """The page; `drawings` are SVG texts by name, and a video becomes part of it."""
    passed = not violations
    facts = log.provenance
    solve = summary["solve_time_ms"]
    warnings = "".join(f"<li>{_e(w)}</li>" for w in facts["warnings"])
    return _PAGE.format(
        title=_e(f"{task.name}: {'pass' if passed else 'fail'}"),
        verdict="PASS" if passed else "FAIL",
        kind="pass" if passed else "fail",
        name=_e(task.name),
        subtitle=_e(task.title),
        robot=_e(f"{facts['robot']['title']} ({facts['robot']['name']})"),
        solver=_e(facts["solver"]),
        counts=_e(
            f"{summary['converged']} of {summary['targets']} targets converged, "
            f"the optimiser ran on {summary['used_slsqp']}"
        ),
        violations="".join(f"<li>{_e(v.message)}</li>" for v in violations),
        warnings=f"<h2>Assumptions</h2><ul>{warnings}</ul>" if warnings else "",
        video=_video(video),
        rows="".join(_row(m) for m in figures),
        dominant=_e(_dominant_words(summary)),
        causes="".join(_cause_row(name, summary) for name in CAUSES),
        parts="".join(_part_row(name, summary) for name in _PARTS),
        times=_e(
            f"median {number(solve['median'])} ms, p95 {number(solve['p95'])} ms, p99 {number(solve['p99'])} ms, "
            f"largest {number(solve['max'])} ms over {solve['n']} solves; first call, kept apart: "
            f"{number(solve['first_call'])} ms"
        ),
        joints="".join(_joint_row(name, summary) for name in log.joint_names),
        style=plots.STYLE,
        plots="".join(f"<figure>{drawing}</figure>" for drawing in drawings.values()),
        provenance=_e(run_folder.json_text(facts)),
    )


_PARTS = {
    "residual_position_m": "residual (solver), position [m]",
    "lag_position_m": "lag (servo gains), position [m]",
    "limits_position_m": "limits (torque, speed, contact), position [m]",
    "tracking_position_m": "tracking (together), position [m]",
    "residual_rotation_rad": "residual (solver), rotation [rad]",
    "lag_rotation_rad": "lag (servo gains), rotation [rad]",
    "limits_rotation_rad": "limits (torque, speed, contact), rotation [rad]",
    "tracking_rotation_rad": "tracking (together), rotation [rad]",
}


def _video(path: Path | None) -> str:
    if path is None:
        return ""
    data, kind = base64.b64encode(path.read_bytes()).decode(), path.suffix.removeprefix(".")
    if kind == "mp4":
        return f'<h2>Video</h2><video controls loop muted playsinline src="data:video/mp4;base64,{data}"></video>'
    return f'<h2>Video</h2><img class="film" alt="the run" src="data:image/{kind};base64,{data}">'


def _e(text: Any) -> str:
    return html.escape(str(text))


def _row(m: Metric) -> str:
    limit = "not judged" if m.limit is None else f"{'≥' if m.at_least else '≤'} {number(m.limit)} {m.unit}"
    mark = "" if m.limit is None else '<b class="ok">ok</b>' if m.passed else '<b class="broken">broken</b>'
    when = "" if m.time is None else f"{m.time:.3f}"
    return (
        f"<tr><td>{_e(_TITLES[m.name])}</td><td class='n'>{number(m.value)} {m.unit}</td><td class='n'>{_e(limit)}</td>"
        f"<td class='n'>{when}</td><td>{mark}</td></tr>"
    )


def _part_row(name: str, summary: dict[str, Any]) -> str:
    cells = ""
    for phase in ("moving", "settled"):
        figures = summary[name][phase]
        for key in ("max", "rms", "final"):
            cells += f"<td class='n'>{'' if figures is None else number(figures[key])}</td>"
    return f"<tr><td>{_e(_PARTS[name])}</td>{cells}</tr>"


def _dominant_words(summary: dict[str, Any]) -> str:
    """Which cause has the largest share of the error, with its numbers."""
    causes = summary["causes"]
    name = max(causes, key=lambda key: causes[key]["position_max_m"])
    most = causes[name]
    if most["position_max_m"] < NOTABLE:
        return "Whatever is left of the error is rounding."
    share = f"the largest part on {100.0 * most['share_of_ticks']:.0f} % of the ticks"
    return f"Mostly {CAUSES[name]}: up to {number(1000.0 * most['position_max_m'])} mm, {share}."


def _cause_row(name: str, summary: dict[str, Any]) -> str:
    row = summary["causes"][name]
    cells = [number(row["position_max_m"]), number(row["rotation_max_rad"]), f"{100.0 * row['share_of_ticks']:.0f} %"]
    return f"<tr><td>{_e(CAUSES[name])}</td>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>"


def _joint_row(name: str, summary: dict[str, Any]) -> str:
    cells = (
        100.0 * summary["torque_share_max"][name],
        100.0 * summary["torque_saturation"][name],
        100.0 * summary["speed_saturation"][name],
    )
    return f"<tr><td>{_e(name)}</td>{''.join(f'<td class=n>{number(c)} %</td>' for c in cells)}</tr>"


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #5c6670; --line: #d5dae0; --pass: #00694d;
  --fail: #b03a00; }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ --ground: #14181d; --ink: #e8ebee; --soft: #a0aab4; --line: #363d45;
  --pass: #3ecf9f; --fail: #ff8a4c; }} }}
body {{ background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; margin: 0; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; }}
.verdict {{ font-size: 1.1rem; font-weight: 700; letter-spacing: .05em; }}
.pass, .ok {{ color: var(--pass); }} .fail, .broken {{ color: var(--fail); }}
.soft {{ color: var(--soft); margin: .2rem 0; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
figure {{ margin: 1rem 0; padding: .5rem; border: 1px solid var(--line); border-radius: 6px; }}
figure svg {{ width: 100%; height: auto; display: block; }}
video, .film {{ width: 100%; border-radius: 6px; display: block; }}
pre {{ overflow-x: auto; font-size: 12px; border: 1px solid var(--line); padding: .6rem; border-radius: 6px; }}
{style}
@media print {{ body {{ max-width: none; margin: 0; font-size: 11px; }} h2 {{ break-after: avoid; }}
  figure, table, video, .film {{ break-inside: avoid; }} video, .film {{ max-width: 60%; }} }}
</style>
</head>
<body>
<p class="verdict {kind}">{verdict}</p>
<h1>{name}</h1>
<p class="soft">{subtitle}</p>
<p class="soft">{robot} · {solver}</p>
<p class="soft">{counts}</p>
<ul class="fail">{violations}</ul>
{video}
<h2>Figures against limits</h2>
<div class="wide"><table><tr><th></th><th class="n">worst</th><th class="n">limit</th><th class="n">at [s]</th>
<th></th></tr>
{rows}</table></div>
<h2>Errors by their cause</h2>
<p>{dominant}</p>
<div class="wide"><table><tr><th></th><th class="n">largest [m]</th><th class="n">largest [rad]</th>
<th class="n">the largest part on</th></tr>
{causes}</table></div>
<h2>Errors by their part</h2>
<div class="wide"><table><tr><th></th><th class="n">moving: max</th><th class="n">rms</th><th class="n">final</th>
<th class="n">settled: max</th><th class="n">rms</th><th class="n">final</th></tr>
{parts}</table></div>
<p class="soft">Solve time: {times}</p>
<h2>Motors</h2>
<div class="wide"><table><tr><th></th><th class="n">largest torque</th><th class="n">steps at torque limit</th>
<th class="n">steps at speed limit</th></tr>
{joints}</table></div>
{warnings}
<h2>Plots</h2>
{plots}
<h2>What ran</h2>
<details><summary>versions, settings, task and robot as used</summary><pre>{provenance}</pre></details>
</body>
</html>
"""
