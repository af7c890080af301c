"""One task measured: every contestant on the same stretch of targets, in turn, and the judge's rows."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from ik_sim.benchmark.contestants import Contestant, judged, open_contestant
from ik_sim.benchmark.plan import PATH_POINTS, Plan, Task
from ik_sim.benchmark.targets import queries
from ik_sim.errors import IkSimError
from ik_sim.robots import Robot, load_robot

COLUMNS = (
    "robot", "solver", "targets", "seed_kind", "index", "reachable", "x", "y", "z", "sigma", "status", "success", "claimed",
    "false_claim", "position_error", "rotation_error", "limit_violation", "time_us", "iterations", "evaluations", "restarts",
    "step", "budget_iterations", "budget_restarts", "budget_seconds", "position_tolerance", "rotation_tolerance", "seed", "q",
)  # fmt: skip
LIMIT_SLACK = 1e-9
"""How far beyond a limit a joint may stand and count as on it [rad or m]: rounding of whole turns."""
JUDGING = 2e-4
"""What judging an answer and writing its row take besides the solve, roughly [s]; a task's size needs no more."""
FEWEST = 100
"""Targets in a task at the least, however slow somebody is: in fewer, every turn would be measured with cold caches."""

_robots: dict[str, Robot] = {}
_contestants: dict[tuple[Any, ...], Contestant] = {}
_one_at_a_time = threading.Lock()  # a Dask worker may have several threads: they would time each other


def robot_of(name: str) -> Robot:
    """Loaded once per process."""
    if name not in _robots:
        _robots[name] = load_robot(name)
    return _robots[name]


def contestant_of(plan: Plan, robot: str, spec: str) -> Contestant:
    """Set up once per process, tolerance and budget; a peer that can't take the arm raises each time."""
    key = _key(plan, robot, spec)
    if key not in _contestants:
        _contestants[key] = open_contestant(spec, plan, robot, robot_of(robot).chain)
    return _contestants[key]


def _key(plan: Plan, robot: str, spec: str) -> tuple[Any, ...]:
    return (robot, spec, plan.position, plan.rotation, plan.max_iterations, plan.max_restarts, plan.max_seconds)


def close_contestants() -> None:
    """End every peer's process."""
    for contestant in _contestants.values():
        contestant.close()
    _contestants.clear()


def measure(plan: Plan, task: Task, solvers: tuple[str, ...]) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Run a task; returns its key, facts about the run, and one row per attempt.

    The contestant that goes first changes from task to task, so that what the machine does meanwhile hits all alike.
    """
    with _one_at_a_time:
        started = time.perf_counter()
        chain = robot_of(task.robot).chain
        asked = queries(task.targets, task.robot, chain, task.first, task.last, plan.seed, task.seed_kind)
        kind = "previous" if asked.follow else task.seed_kind
        rows: list[dict[str, Any]] = []
        first_calls: dict[str, float | None] = {}
        every = max(1, round(1.0 / plan.slow_share))
        for k in range(len(solvers)):
            spec = solvers[(k + task.number) % len(solvers)]
            contestant = contestant_of(plan, task.robot, spec)
            index = np.arange(task.first, task.first + len(asked.T))
            if contestant.slow:
                index = index[(index // (PATH_POINTS if asked.follow else 1)) % every == 0]
            if not len(index):
                continue
            fresh = contestant.first_call_ms is None
            at = index - task.first
            answers = contestant.chunk(asked.T[at], asked.q_seeds[at], asked.follow)
            if fresh:
                first_calls[spec] = contestant.first_call_ms
            last: Any = None
            for i, answer in zip(at, answers, strict=True):
                row = _judge(plan, task, chain, asked, int(i), spec, kind, answer)
                q = answer["q"]
                row["step"] = (
                    float(np.abs(q - last).max()) if asked.follow and q is not None and last is not None else None
                )
                last = q if q is not None else last
                rows.append(row)
        order = {spec: k for k, spec in enumerate(solvers)}
        rows.sort(key=lambda row: (row["index"], order[row["solver"]]))
        seconds = time.perf_counter() - started
        timed = 1e-6 * sum(row["time_us"] or 0.0 for row in rows)
        return task.key(plan), {"seconds": seconds, "timed": timed, "first_call_ms": first_calls}, rows


def _judge(
    plan: Plan, task: Task, chain: Any, asked: Any, i: int, spec: str, kind: str, answer: dict[str, Any]
) -> dict[str, Any]:
    T, q = asked.T[i], answer["q"]
    position, rotation, beyond = judged(chain, T, q)
    time_us = None if answer["time_ns"] is None else 1e-3 * answer["time_ns"]
    there = position <= plan.position and rotation <= plan.rotation
    over = any(
        budget is not None and spent is not None and spent > budget
        for budget, spent in (
            (plan.max_iterations, answer["iterations"]),
            (plan.max_restarts, answer["restarts"]),
            (None if plan.max_seconds is None else 1e6 * plan.max_seconds, time_us),
        )
    )
    success = bool(there and beyond <= LIMIT_SLACK and not over)
    if success:
        status = "converged"
    elif there and beyond > LIMIT_SLACK:
        status = "outside_limits"
    elif there:
        status = "over_budget"
    elif answer["claimed"]:
        status = "false_claim"
    else:
        status = answer["status"] or ("no_answer" if q is None else "missed")
    return {
        "robot": task.robot, "solver": spec, "targets": task.targets, "seed_kind": kind, "index": task.first + i,
        "reachable": bool(asked.reachable[i]), "x": T[0, 3], "y": T[1, 3], "z": T[2, 3], "sigma": asked.sigma[i],
        "status": status, "success": success, "claimed": bool(answer["claimed"]),
        "false_claim": bool(answer["claimed"] and not (there and beyond <= LIMIT_SLACK)),
        "position_error": position, "rotation_error": rotation, "limit_violation": beyond, "time_us": time_us,
        "iterations": answer["iterations"], "evaluations": answer["evaluations"], "restarts": answer["restarts"],
        "step": None, "budget_iterations": plan.max_iterations, "budget_restarts": plan.max_restarts,
        "budget_seconds": plan.max_seconds, "position_tolerance": plan.position, "rotation_tolerance": plan.rotation,
        "seed": plan.seed, "q": "" if q is None else " ".join(repr(float(x)) for x in q),
    }  # fmt: skip


def pilot(plan: Plan, say: Any) -> tuple[dict[str, tuple[str, ...]], dict[str, str], int, dict[str, Any]]:
    """Who can run on which robot, why the others can't, how many queries make a task of half a second, and their facts."""
    entries: dict[str, tuple[str, ...]] = {}
    skipped: dict[str, str] = {}
    facts: dict[str, Any] = {}
    most, widest = 1e-6, 1
    for robot in plan.robots:
        chain = robot_of(robot).chain
        probe = queries("uniform", robot, chain, 0, 3, plan.seed, "random")
        taking, total = [], 0.0
        for spec in plan.solvers:
            try:
                contestant = contestant_of(plan, robot, spec)
            except IkSimError as error:
                skipped[f"{spec} on {robot}"] = str(error)
                say(f"skipped: {spec} on {robot}: {error}")
                continue
            if contestant.slow:
                answers = contestant.chunk(probe.T[:1], probe.q_seeds[:1], False)
                share = plan.slow_share
            else:
                answers = contestant.chunk(probe.T, probe.q_seeds, False)
                share = 1.0
            mean = float(np.mean([1e-9 * (a["time_ns"] or 0) for a in answers]))
            total += mean * share
            facts[f"{spec} on {robot}"] = {**contestant.facts, "first_call_ms": contestant.first_call_ms}
            taking.append(spec)
        entries[robot], most, widest = tuple(taking), max(most, total), max(widest, len(taking))
    return entries, skipped, int(np.clip(0.5 / (most + JUDGING * widest), FEWEST, 500)), facts
