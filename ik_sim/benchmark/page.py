"""What people read of a benchmark: a table on the terminal, `report.html`, `plots/`, and `interactive.html`."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from ik_sim.benchmark import pictures
from ik_sim.benchmark.pictures import percent
from ik_sim.benchmark.statistics import GROUP
from ik_sim.benchmark.store import Rows, write
from ik_sim.plots import STYLE, svg_file
from ik_sim.run_folder import json_text

HEAD = ("solver", "success", "95 % interval", "false claims", "outside limits", "mean", "median", "p90", "p99", "max",
        "ratio of medians", "iterations")  # fmt: skip


def table(entries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Rows under HEAD, the fastest median first; times are of all attempts on reachable targets, failures included."""
    found = []
    for e in sorted(entries, key=lambda e: e["time_us"]["median"] if e["time_us"] else float("inf")):
        t, r = e["time_us"], e.get("ratio")
        times = [time(t[k]) if t else "–" for k in ("mean", "median", "p90", "p99", "max")]
        ratio = f"{short(r['median'])} ({short(r['median_low'])}–{short(r['median_high'])})" if r else "–"
        iterations = short(e["iterations"]["mean"]) if e["iterations"] else "–"
        interval = f"{100 * e['success_low']:.2f}–{100 * e['success_high']:.2f}"
        share = f"{percent(e['success'])} of {e['n']}"
        found.append(
            (e["solver"], share, interval, str(e["false_claims"]), str(e["outside_limits"]), *times, ratio, iterations)
        )
    return found


def short(value: float) -> str:
    """Three figures, without powers of ten."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):.0f}"


def time(us: float) -> str:
    """Microseconds as people read them."""
    if us < 999.5:
        return f"{us:.3g} µs"
    return f"{us / 1e3:.3g} ms" if us < 999.5e3 else f"{us / 1e6:.3g} s"


def text(summary: dict[str, Any]) -> str:
    """For a terminal."""
    lines = []
    for key, entries in groups(summary):
        rows = [HEAD, *table(entries)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
        lines += ["", f"{' · '.join(key)} (ratios to {summary['reference']})"]
        lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"  {line}" for line in extras(entries)]
    for spec, reason in summary["skipped"].items():
        lines.append(f"skipped: {spec}: {reason}")
    return "\n".join(lines)


def groups(summary: dict[str, Any]) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """Entries by robot, target set and seed."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in summary["entries"]:
        found.setdefault(tuple(entry[k] for k in GROUP), []).append(entry)
    return list(found.items())


def extras(entries: list[dict[str, Any]]) -> list[str]:
    """Sentences on what the table has no column for."""
    found = []
    for e in entries:
        if "unreachable" in e:
            u = e["unreachable"]
            spent = f", median {time(u['time_us']['median'])}" if u["time_us"] else ""
            found.append(f"{e['solver']}: {u['refused']} of {u['n']} unreachable targets refused{spent}")
        if "paths" in e:
            p = e["paths"]
            found.append(
                f"{e['solver']}: {p['solved']} of {p['n']} paths solved at every point, {p['without_jump']} of them without "
                f"a joint step above 0.5; median of the largest step {p['largest_step_median']:.3g}"
            )
        failures = {k: v for k, v in e["statuses"].items() if k != "converged"}
        if failures:
            found.append(f"{e['solver']}: not solved: " + ", ".join(f"{v} {k}" for k, v in failures.items()))
    return found


def write_report(out: Path, summary: dict[str, Any], rows: Rows) -> None:
    """The page, its plots as files, and the interactive page where plotly is installed."""
    (out / "plots").mkdir(exist_ok=True)
    solvers = summary["plan"]["solvers"]
    body = []
    figures = []
    for key, entries in groups(summary):
        mask = True
        for name, value in zip(GROUP, key, strict=True):
            mask = mask & (rows[name] == value)
        part = rows.where(mask)
        here = [s for s in solvers if any(e["solver"] == s for e in entries)]
        where = " · ".join(key)
        stem = "_".join(Path(k).stem for k in key)
        drawings = {
            "profile": pictures.profile(part, here, f"Performance profile, {where}"),
            "boxes": pictures.boxes(entries, part, f"Time of one solve, all attempts, {where}"),
            "heat": pictures.heat(part, here, f"Failures over the workspace, {where}"),
            "singularity": pictures.scatter(part, here, f"Time against distance to singularity, {where}"),
        }
        body.append(f"<h2>{_e(where)}</h2>{_table(HEAD, table(entries))}")
        notes = "".join(f"<li>{_e(line)}</li>" for line in extras(entries))
        body.append(f"<details><summary>failures by status</summary><ul>{notes}</ul></details>" if notes else "")
        for name, drawing in drawings.items():
            if drawing:
                write(out / "plots" / f"{stem}_{name}.svg", svg_file(drawing).encode())
                body.append(f"<figure>{drawing}</figure>")
        figures.append(pictures.interactive(part, here, where))
    m = summary["machine"]
    facts = [
        ("machine", f"{m['processor']}, {m['cores']} cores, {m['system']}, Python {m['python']}"),
        ("load at the start", ", ".join(map(str, m["load_at_start"]))),
        ("processes", f"{summary['workers'] or 'none in the last run'}; one thread a solver"),
        (
            "tolerance",
            f"{summary['plan']['position']:g} m and {summary['plan']['rotation']:g} rad, every joint inside its limits",
        ),
        ("budget", _budget(summary["plan"])),
        ("seed", str(summary["plan"]["seed"])),
        ("begun", summary["begun"]),
    ]
    first = [(k, time(1e3 * v)) for k, v in summary["first_call_ms"].items()]
    who = []
    for name, v in summary["contestants"].items():
        versions = " ".join(f"{a} {b}" for a, b in v.get("versions", {}).items())
        lacking = ", ".join(v.get("no_setting_for", ()))
        settings = str(v.get("settings", "")) + (f"; judged by {lacking}, but has no setting for it" if lacking else "")
        who.append((name, settings, versions, time(1e3 * (v["first_call_ms"] or 0))))
    skipped = "".join(f"<li>{_e(k)}: {_e(v)}</li>" for k, v in summary["skipped"].items())
    page = _PAGE.format(
        style=STYLE, facts=_table(("", ""), facts), body="".join(body), reference=_e(summary["reference"]),
        who=_table(("who", "settings", "versions", "first call, kept apart"), who),
        first=_table(("in later processes", "first call"), first) if first else "",
        skipped=f"<h2>Who could not take part</h2><ul>{skipped}</ul>" if skipped else "",
        rows=summary["rows"], machine=_e(json_text(m)),
    )  # fmt: skip
    write(out / "report.html", page.encode())
    if all(f is not None for f in figures):
        import plotly.io

        parts = [plotly.io.to_html(f, full_html=False, include_plotlyjs=i == 0) for i, f in enumerate(figures)]
        page = (
            f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>ik-sim bench</title>{"".join(parts)}</html>\n'
        )
        write(out / "interactive.html", page.encode())


def _budget(plan: dict[str, Any]) -> str:
    given = {k: plan[k] for k in ("max_iterations", "max_restarts", "max_seconds") if plan[k] is not None}
    return ", ".join(f"{k} {v}" for k, v in given.items()) or "none: each solver with its own settings"


def _e(value: Any) -> str:
    return html.escape(str(value))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    heads = "".join(f"<th>{_e(h)}</th>" for h in head) if any(head) else ""
    body = "".join("<tr>" + "".join(f"<td>{_e(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{heads}</tr>{body}</table></div>'


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ik-sim bench</title>
<style>
:root {{ color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #5c6670; --line: #d5dae0; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ground: #14181d; --ink: #e8ebee; --soft: #a0aab4; --line: #363d45; }} }}
body {{ background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin: 2.5rem 0 .5rem; }}
.soft {{ color: var(--soft); }} .wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left; white-space: nowrap; }}
figure {{ margin: 1rem 0; padding: .5rem; border: 1px solid var(--line); border-radius: 6px; max-width: 60rem; }}
figure svg {{ width: 100%; height: auto; display: block; }}
{style}
</style>
</head>
<body>
<h1>Solvers on the same targets, under one judge</h1>
<p>Every answer was judged by this project's own forward kinematics: both errors within tolerance, every joint inside its
limits as returned. A <i>false claim</i> is a solver that says it arrived and hasn't. Times are of one Python call, failures
included, after a first call that is kept apart; success stands beside every time. Solvers took turns every few hundred
targets. Ratios are to <b>{reference}</b> on the same targets, with 95 % bootstrap intervals over blocks of neighbouring
targets; absolute times are of this machine only.</p>
{facts}
{body}
{skipped}
<h2>Who took part</h2>
{who}
{first}
<h2>What ran</h2>
<p class="soft">{rows} attempts, one row each, are in rows.csv; the plan and every setting in bench.json.</p>
<details><summary>versions</summary><pre>{machine}</pre></details>
</body>
</html>
"""
