"""Counts with intervals. Success: Wilson (1927). Ratios of times: bootstrap over blocks of neighbouring queries.

A machine's noise comes in stretches, so single queries are not independent; blocks of BLOCK consecutive ones nearly are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float  # pyright: ignore[reportMissingImports]

from ik_sim.benchmark.plan import PATH_POINTS
from ik_sim.benchmark.store import Rows

BLOCK = 25
RESAMPLES = 1000
JUMP = 0.5
"""A joint step along a path that counts as a jump [rad or m]."""
GROUP = ("robot", "targets", "seed_kind")


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Interval of a share, 95 % by default; sound at 0 and 1 too."""
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (
        0.0 if successes == 0 else float(max(0.0, middle - half)),
        1.0 if successes == n else float(min(1.0, middle + half)),
    )


def times(values: Float[np.ndarray, "k"]) -> dict[str, float] | None:
    """Mean and percentiles [µs]; None of nothing."""
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    median, p90, p95, p99 = np.percentile(values, [50, 90, 95, 99])
    return {
        "n": len(values), "mean": float(values.mean()), "median": float(median), "p90": float(p90), "p95": float(p95),
        "p99": float(p99), "max": float(values.max()),
    }  # fmt: skip


def _spread(values: Float[np.ndarray, "k"]) -> dict[str, float] | None:
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    return {"mean": float(values.mean()), "median": float(np.median(values)), "max": float(values.max())}


def summarise(rows: Rows, reference: str) -> list[dict[str, Any]]:
    """One entry per robot, target set, seed and solver; times never without success.

    Args:
        rows: of a benchmark.
        reference: the solver that times are compared with; an entry without it has no ratio.
    """
    found = []
    for key, group in rows.groups(*GROUP):
        by_solver = {name: part for (name,), part in group.groups("solver")}
        for solver, part in by_solver.items():
            entry = {**dict(zip(GROUP, key, strict=True)), "solver": solver, **_entry(part)}
            if reference in by_solver:
                entry["ratio"] = ratios(part, by_solver[reference])
            found.append(entry)
    return found


def _entry(part: Rows) -> dict[str, Any]:
    can, success = part["reachable"], part["success"]
    n, successes = int(can.sum()), int(success[can].sum())
    low, high = wilson(successes, n)
    status, counts = np.unique(part["status"].astype(str), return_counts=True)
    beyond = part["limit_violation"]
    entry: dict[str, Any] = {
        "n": n,
        "successes": successes,
        "success": successes / n if n else None,
        "success_low": low,
        "success_high": high,
        "statuses": dict(zip(status.tolist(), counts.tolist(), strict=True)),
        "false_claims": int(part["false_claim"].sum()),
        "outside_limits": int((beyond > 1e-9).sum()),
        "limit_violation_max": float(np.nanmax(beyond)) if np.isfinite(beyond).any() else None,
        "time_us": times(part["time_us"][can]),
        "time_us_successes": times(part["time_us"][success]),
        "iterations": _spread(part["iterations"][can]),
        "evaluations": _spread(part["evaluations"][can]),
        "restarts": _spread(part["restarts"][can]),
        "position_error_successes": _spread(part["position_error"][success]),
        "rotation_error_successes": _spread(part["rotation_error"][success]),
    }
    if not can.all():
        refused = ~part["claimed"][~can]
        entry["unreachable"] = {
            "n": len(refused), "refused": int(refused.sum()), "time_us": times(part["time_us"][~can]),
        }  # fmt: skip
    if part["seed_kind"][0] == "previous":
        line = part["index"].astype(int) // PATH_POINTS
        ids = np.unique(line)
        step = np.nan_to_num(part["step"], nan=0.0)
        whole = [bool(success[line == i].all()) for i in ids]
        smooth = [ok and bool((step[line == i] <= JUMP).all()) for ok, i in zip(whole, ids, strict=True)]
        largest = [float(step[line == i].max()) for i in ids]
        entry["paths"] = {
            "n": len(ids), "solved": sum(whole), "without_jump": sum(smooth), "largest_step_median": float(np.median(largest)),
        }  # fmt: skip
    return entry


def ratios(part: Rows, reference: Rows, level: float = 0.95) -> dict[str, Any] | None:
    """Times of `part` over those of `reference` on the reachable targets that both tried: of means, of medians.

    All attempts count, failures included: who fails fast shows it in the success rate beside it.
    """
    shared, mine, theirs = np.intersect1d(part["index"], reference["index"], return_indices=True)
    a, b = part["time_us"][mine], reference["time_us"][theirs]
    both = np.isfinite(a) & np.isfinite(b) & part["reachable"][mine]
    a, b, shared = a[both], b[both], shared[both]
    if len(a) < 2:
        return None
    blocks = [np.arange(i, min(i + BLOCK, len(a))) for i in range(0, len(a), BLOCK)]
    if len(blocks) < 20:  # too few for a resampling of blocks
        blocks = [np.array([i]) for i in range(len(a))]
    rng = np.random.default_rng(0)
    size = np.array([len(block) for block in blocks])
    sums = np.array([[a[block].sum(), b[block].sum()] for block in blocks])
    pick = rng.integers(len(blocks), size=(RESAMPLES, len(blocks)))
    total = sums[pick].sum(axis=1)
    middle = np.empty(
        (RESAMPLES, 2)
    )  # of the pooled queries, as the ratio itself: a median of medians is another number
    for k, chosen in enumerate(pick):
        index = np.concatenate([blocks[i] for i in chosen])
        middle[k] = np.median(a[index]), np.median(b[index])
    tails = [50.0 * (1 - level), 100.0 - 50.0 * (1 - level)]
    low, high = np.percentile(total[:, 0] / total[:, 1], tails)
    median_low, median_high = np.percentile(middle[:, 0] / middle[:, 1], tails)
    return {
        "n": int(size.sum()), "mean": float(a.sum() / b.sum()), "mean_low": float(low), "mean_high": float(high),
        "median": float(np.median(a) / np.median(b)), "median_low": float(median_low), "median_high": float(median_high),
    }  # fmt: skip
