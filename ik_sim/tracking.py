"""The one control loop: solve, command, step physics, measure.

    samples = track(load_task("paper_ur5"))          # yields one Sample a tick, returns the TrackingLog
    log = record(load_task("paper_ur5"))             # the same, all at once
    violations = check(log, task)                    # empty means pass

Each tick times `solver.solve` and nothing else, starting from the last command; the answer is commanded whether or not
it converged, since the tolerances judge, not the solver. Samples belong to a phase: *moving* along the path, then
*settling*, which nobody judges, then *settled*.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np
from jaxtyping import Float

import ik_sim
from ik_sim.errors import InvalidArgumentError
from ik_sim.robots import Robot
from ik_sim.simulation import Simulation
from ik_sim.tasks import Task
from ik_sim.tracking_log import MOVING, SETTLED, SETTLING, Sample, TrackingLog
from ik_sim.trajectory import Trajectory
from ik_sim.verdict import Metric, Violation, check, metrics, summary

__all__ = [
    "Metric",
    "Sample",
    "TrackingLog",
    "Violation",
    "check",
    "metrics",
    "record",
    "summary",
    "tick_count",
    "track",
]


def track(
    task: Task,
    robot: Robot | None = None,
    solver: Any = None,
    *,
    simulation: Simulation | None = None,
) -> Generator[Sample, None, TrackingLog]:
    """Run a task in physics, one tick at a time.

    Args:
        task: what to track.
        robot: the task's own when left out.
        solver: the task's own when left out.
        simulation: an open one with that robot in it, which is reset and left open; otherwise one of its own, opened
            with the task's control settings and closed at the end, also when the caller stops early.

    Yields:
        A sample for every tick.

    Returns:
        The log, also when it is driven by hand: the value of the `StopIteration`.

    Raises:
        IkSimError: the task does not fit the robot, or the physics engine is missing.
    """
    robot = robot or task.load_robot()
    solver = solver or task.load_solver()
    trajectory = task.trajectory(robot)
    own = Simulation(robot, task.control, q=trajectory.q_start) if simulation is None else None
    arm = own or simulation
    assert arm is not None
    if arm.robot.chain is not robot.chain:
        raise InvalidArgumentError("simulation", f"holds {arm.robot.name}, not this {robot.name}")
    try:
        return (yield from _ticks(task, robot, solver, trajectory, arm))
    finally:
        if own is not None:
            own.close()


def record(
    task: Task,
    robot: Robot | None = None,
    solver: Any = None,
    *,
    simulation: Simulation | None = None,
    on_sample: Callable[[Sample], None] | None = None,
) -> TrackingLog:
    """Run a task to its end and return the log; `on_sample` sees every tick as it happens. Arguments as `track`."""
    ticks = track(task, robot, solver, simulation=simulation)
    while True:
        try:
            sample = next(ticks)
        except StopIteration as end:
            return end.value
        if on_sample is not None:
            on_sample(sample)


@dataclass(frozen=True, eq=False)
class _Schedule:
    """The ticks of a run: the path, then the last target for as long as it is held."""

    phases: list[str]
    labels: list[str]
    targets: list[Float[np.ndarray, "4 4"]]
    steps: list[int]
    ends: list[float] = field(default_factory=list)


def _schedule(task: Task, trajectory: Trajectory, physics_rate: float) -> _Schedule:
    ends = np.round(trajectory.times * physics_rate).astype(int)
    steps = np.diff(ends, prepend=0)
    if steps.min() < 1:
        raise InvalidArgumentError(
            "rate", f"two targets fall into one physics step of {1000.0 / physics_rate:.3g} ms; raise physics_rate"
        )
    plan = _Schedule(
        phases=[MOVING] * len(trajectory),
        labels=list(trajectory.labels),
        targets=[T.copy() for T in trajectory.targets],
        steps=steps.tolist(),
    )
    tick = max(1, round(physics_rate / task.rate))
    for phase, seconds in ((SETTLING, task.settle), (SETTLED, task.hold)):
        for _ in range(round(seconds * physics_rate / tick)):
            plan.phases.append(phase)
            plan.labels.append("hold")
            plan.targets.append(plan.targets[-1])
            plan.steps.append(tick)
    plan.ends.extend((np.cumsum(plan.steps) / physics_rate).tolist())
    return plan


def tick_count(task: Task, robot: Robot) -> int:
    """How many samples a run will have, for a progress bar."""
    return len(_schedule(task, task.trajectory(robot), task.control.physics_rate).steps)


def _ticks(
    task: Task, robot: Robot, solver: Any, trajectory: Trajectory, arm: Simulation
) -> Generator[Sample, None, TrackingLog]:
    chain = robot.chain
    plan = _schedule(task, trajectory, arm.control.physics_rate)
    goals = [task.goal(T) for T in plan.targets]
    started = datetime.now(UTC)
    q_seed = trajectory.q_start.copy()
    # The first call may compile, load and allocate: it is made and timed apart, and its answer is not used.
    clock = time.perf_counter_ns()
    solver.solve(chain, goals[0], q_seed.copy())
    first_solve_time = (time.perf_counter_ns() - clock) * 1e-9
    arm.reset(trajectory.q_start)
    samples: list[Sample] = []
    for i, goal in enumerate(goals):
        clock = time.perf_counter_ns()
        solution = solver.solve(chain, goal, q_seed)
        solve_time = (time.perf_counter_ns() - clock) * 1e-9
        motion = arm.move(solution.q, plan.steps[i])
        q_command = arm.setpoint.copy()
        sample = Sample(
            time=plan.ends[i],
            phase=plan.phases[i],
            label=plan.labels[i],
            T_target=plan.targets[i],
            target=task.target,
            solution=solution,
            solve_time=solve_time,
            q_command=q_command,
            joint_step=float(np.abs(q_command - q_seed).max()),
            motion=motion,
            robot=robot,
        )
        samples.append(sample)
        q_seed = q_command
        yield sample
    return TrackingLog.from_samples(
        samples,
        {
            **versions(),
            "started": started.isoformat(timespec="seconds"),
            "task": task.as_dict(),
            "robot": _robot_facts(robot),
            "solver": repr(solver),
            "method": (type(solver).__doc__ or "").strip().split("\n")[0],
            "seed": task.seed,
            "control": arm.settings(),
            "q_start": trajectory.q_start.tolist(),
            "warnings": [*robot.warnings, *arm.warnings],
            "targets": len(trajectory),
            "first_solve_time_s": first_solve_time,
        },
    )


def versions() -> dict[str, Any]:
    """What ran: this package, Python, the libraries that bear on numbers, the machine."""
    found = {}
    for name in ("numpy", "numba", "nlopt", "pybullet", "pybullet-arm64"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": {"ik_sim": ik_sim.__version__, "python": platform.python_version(), **found},
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _robot_facts(robot: Robot) -> dict[str, Any]:
    chain = robot.chain
    return {
        "name": robot.name,
        "title": robot.title,
        "urdf": robot.urdf_path.name,
        "urdf_sha256": hashlib.sha256(robot.urdf_path.read_bytes()).hexdigest(),
        "base_link": chain.base_link,
        "tool_link": chain.tool_link,
        "family": chain.family,
        "joints": list(chain.joint_names),
        "lower": [_finite(x) for x in chain.lower],
        "upper": [_finite(x) for x in chain.upper],
    }


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
