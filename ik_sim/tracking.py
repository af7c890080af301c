"""The one control loop: solve, command, step physics, measure; and the verdict on what came out.

    samples = track(load_task("paper_ur5"))          # yields one Sample a tick, returns the TrackingLog
    log = record(load_task("paper_ur5"))             # the same, all at once
    violations = check(log, task)                    # empty means pass

Each tick times `solver.solve` and nothing else, starting from the last command; the answer is commanded whether or not
it converged, since the tolerances judge, not the solver. Three errors keep their own names and columns:

    residual    fk(q_command) against the target      the solver's part
    servo       fk(q_measured) against fk(q_command)  the servo's part; per joint: joint_error = q_command − q_measured
    tracking    fk(q_measured) against the target     what the user sees

The servo's part is split once more. Without limits its response to the setpoints is known exactly, from its gains
alone: `q_unlimited`. So

    lag         fk(q_unlimited) against fk(q_command)   what the gains cost
    limits      fk(q_measured) against fk(q_unlimited)  what torque limits, speed limits or a contact cost

Samples belong to a phase: *moving* along the path, then *settling*, which nobody judges, then *settled*.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

import ik_sim
from ik_sim.chain import Chain
from ik_sim.errors import InvalidArgumentError
from ik_sim.robots import Robot
from ik_sim.se3 import Pose, interpolate
from ik_sim.simulation import Motion, Simulation
from ik_sim.solvers import Solution, Status
from ik_sim.tasks import Task
from ik_sim.trajectory import Trajectory

MOVING, SETTLING, SETTLED = "moving", "settling", "settled"
CAUSE_SHARE = 0.3
"""A joint is named as saturated if it was so at least this much as often as the most saturated one."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One tick."""

    time: float
    """At the end of the tick, when the target is due [s]."""
    phase: str
    """moving, settling or settled"""
    label: str
    """Part of the path."""
    T_target: Float[np.ndarray, "4 4"]
    target: str
    """What of the target counts: pose, point or axis."""
    solution: Solution
    solve_time: float
    """Wall time of `solver.solve` alone [s]."""
    q_command: Float[np.ndarray, "n"]
    """What the servo was sent: the solution, inside the limits [rad]."""
    joint_step: float
    """Largest change of a joint since the last command [rad]."""
    motion: Motion
    """The physics steps of the tick."""
    robot: Robot

    @property
    def q_measured(self) -> Float[np.ndarray, "n"]:
        """Joint values at the end of the tick [rad]."""
        return self.motion.q[-1]

    @property
    def joint_error(self) -> Float[np.ndarray, "n"]:
        """q_command − q_measured [rad]."""
        return self.q_command - self.q_measured

    @cached_property
    def T_command(self) -> Pose:
        """The tool where the command would have it."""
        return self.robot.chain.fk(self.q_command)

    @cached_property
    def T_measured(self) -> Pose:
        """The tool where the measured joints have it."""
        return self.robot.chain.fk(self.q_measured)

    @property
    def residual(self) -> tuple[float, float]:
        """fk(q_command) against the target: position [m], rotation [rad]."""
        return self._error(self.T_command, self.T_target)

    @property
    def tracking_error(self) -> tuple[float, float]:
        """Measured tool against the target: position [m], rotation [rad]."""
        return self._error(self.T_measured, self.T_target)

    def _error(self, T: Pose, T_target: Pose) -> tuple[float, float]:
        position, rotation = pose_errors(T[None], T_target[None], self.target)
        return float(position[0]), float(rotation[0])


def pose_errors(
    T: Float[np.ndarray, "k 4 4"], T_target: Float[np.ndarray, "k 4 4"], target: str = "pose"
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Distance [m] and angle [rad] of many poses from their targets.

    The angle is that of the whole rotation for a pose, between the tool's z axes for an axis, 0 for a point.
    """
    position = np.linalg.norm(T[:, :3, 3] - T_target[:, :3, 3], axis=1)
    if target == "point":
        return position, np.zeros(len(T))
    A, B = T[:, :3, :3], T_target[:, :3, :3]
    if target == "axis":
        a, b = A[:, :, 2], B[:, :, 2]
        return position, np.arctan2(np.linalg.norm(np.cross(a, b), axis=1), (a * b).sum(axis=1))
    R = np.matmul(B.transpose(0, 2, 1), A)
    sine = np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]])
    return position, np.arctan2(np.linalg.norm(sine, axis=0), np.trace(R, axis1=1, axis2=2) - 1.0)


@dataclass(frozen=True, eq=False)
class TrackingLog:
    """All ticks of a run as columns, one row each, and what made them."""

    joint_names: tuple[str, ...]
    provenance: dict[str, Any]
    """Versions, settings, seed, task and robot as used; plain values."""
    time: Float[np.ndarray, "k"]
    """At the end of the tick [s]."""
    phase: tuple[str, ...]
    """moving, settling or settled"""
    label: tuple[str, ...]
    """Part of the path."""
    status: tuple[str, ...]
    """The judge's word on the solution."""
    reason: tuple[str, ...]
    """Why, where it did not converge."""
    targets: Float[np.ndarray, "k 4 4"]
    """T_base_tool"""
    q_command: Float[np.ndarray, "k n"]
    """[rad]"""
    q_measured: Float[np.ndarray, "k n"]
    """[rad]"""
    tool_command: Float[np.ndarray, "k 3"]
    """Position of the tool where the command would have it [m]."""
    tool_measured: Float[np.ndarray, "k 3"]
    """Position of the tool where the measured joints have it [m]."""
    q_unlimited: Float[np.ndarray, "k n"]
    """Where the servo would have brought the joints without limits on torque and speed [rad]."""
    residual_position: Float[np.ndarray, "k"]
    """fk(q_command) against the target [m]."""
    residual_rotation: Float[np.ndarray, "k"]
    """[rad]"""
    servo_position: Float[np.ndarray, "k"]
    """fk(q_measured) against fk(q_command) [m]."""
    servo_rotation: Float[np.ndarray, "k"]
    """[rad]"""
    lag_position: Float[np.ndarray, "k"]
    """fk(q_unlimited) against fk(q_command): the part of the gains [m]."""
    lag_rotation: Float[np.ndarray, "k"]
    """[rad]"""
    limits_position: Float[np.ndarray, "k"]
    """fk(q_measured) against fk(q_unlimited): the part of torque limits, speed limits and contacts [m]."""
    limits_rotation: Float[np.ndarray, "k"]
    """[rad]"""
    tracking_position: Float[np.ndarray, "k"]
    """fk(q_measured) against the target [m]."""
    tracking_rotation: Float[np.ndarray, "k"]
    """[rad]"""
    joint_error: Float[np.ndarray, "k n"]
    """q_command − q_measured [rad]"""
    joint_error_peak: Float[np.ndarray, "k n"]
    """Largest distance from the setpoint at any physics step of the tick [rad]."""
    joint_step: Float[np.ndarray, "k"]
    """Largest change of a joint since the last command [rad]."""
    halfway_position: Float[np.ndarray, "k"]
    """How far the tool is from halfway between two commands' poses when the joints are: what a change of branch can't
    hide, however fine the path [m]."""
    halfway_rotation: Float[np.ndarray, "k"]
    """[rad]"""
    elbow: Float[np.ndarray, "k 3"]
    """Position of the joint in the middle of the chain, as commanded: how a redundant arm holds itself [m]."""
    velocity: Float[np.ndarray, "k n"]
    """At the end of the tick [rad/s]."""
    torque: Float[np.ndarray, "k n"]
    """Largest size during the tick [Nm]."""
    torque_saturation: Float[np.ndarray, "k n"]
    """Share of the tick's physics steps with the motor at its torque limit."""
    speed_saturation: Float[np.ndarray, "k n"]
    """Share of the tick's physics steps with the joint at its speed limit."""
    clipped: Bool[np.ndarray, "k"]
    """Whether a command had to be moved into the limits."""
    solve_time: Float[np.ndarray, "k"]
    """Wall time of the solve [s]; the run's first call is not among them."""
    iterations: Int[np.ndarray, "k"]
    evaluations: Int[np.ndarray, "k"]
    restarts: Int[np.ndarray, "k"]
    used_slsqp: Bool[np.ndarray, "k"]

    def __len__(self) -> int:
        return len(self.time)

    def of_phase(self, phase: str) -> Bool[np.ndarray, "k"]:
        """Which rows belong to a phase."""
        return np.array([p == phase for p in self.phase], dtype=bool)

    @property
    def converged(self) -> Bool[np.ndarray, "k"]:
        """Which rows the judge called converged."""
        return np.array([s == Status.CONVERGED for s in self.status], dtype=bool)

    @staticmethod
    def from_samples(samples: Sequence[Sample], provenance: dict[str, Any]) -> TrackingLog:
        """Lay the samples of one run into columns."""
        if not samples:
            raise InvalidArgumentError("samples", "a log needs at least one")
        chain, kind = samples[0].robot.chain, samples[0].target
        targets = np.stack([s.T_target for s in samples])
        q_command, q_measured = (np.stack([getattr(s, n) for s in samples]) for n in ("q_command", "q_measured"))
        motions = [s.motion for s in samples]
        q_unlimited = _unlimited(motions, provenance["control"])
        T_command, T_measured, T_unlimited = (chain.fk_batch(q) for q in (q_command, q_measured, q_unlimited))
        residual, servo, lag, limits, tracking = (
            pose_errors(T_command, targets, kind),
            pose_errors(T_measured, T_command, kind),
            pose_errors(T_unlimited, T_command, kind),
            pose_errors(T_measured, T_unlimited, kind),
            pose_errors(T_measured, targets, kind),
        )
        solutions = [s.solution for s in samples]
        halfway = _halfway(chain, np.vstack([provenance["q_start"], q_command]))
        middle = 1 + max(1, (chain.n - 1) // 2)  # frame 0 is the base
        return TrackingLog(
            joint_names=chain.joint_names,
            provenance=provenance,
            time=np.array([s.time for s in samples]),
            phase=tuple(s.phase for s in samples),
            label=tuple(s.label for s in samples),
            status=tuple(str(s.status) for s in solutions),
            reason=tuple("" if s.status == Status.CONVERGED else s.reason for s in solutions),
            targets=targets,
            q_command=q_command,
            q_measured=q_measured,
            tool_command=T_command[:, :3, 3].copy(),
            tool_measured=T_measured[:, :3, 3].copy(),
            q_unlimited=q_unlimited,
            residual_position=residual[0],
            residual_rotation=residual[1],
            servo_position=servo[0],
            servo_rotation=servo[1],
            lag_position=lag[0],
            lag_rotation=lag[1],
            limits_position=limits[0],
            limits_rotation=limits[1],
            tracking_position=tracking[0],
            tracking_rotation=tracking[1],
            joint_error=q_command - q_measured,
            joint_error_peak=np.stack([np.abs(m.setpoint - m.q).max(axis=0) for m in motions]),
            joint_step=np.array([s.joint_step for s in samples]),
            halfway_position=halfway[0],
            halfway_rotation=halfway[1],
            elbow=np.stack([chain.joint_frames(q)[middle, :3, 3] for q in q_command]),
            velocity=np.stack([m.velocity[-1] for m in motions]),
            torque=np.stack([np.abs(m.torque).max(axis=0) for m in motions]),
            torque_saturation=np.stack([m.torque_saturated.mean(axis=0) for m in motions]),
            speed_saturation=np.stack([m.speed_saturated.mean(axis=0) for m in motions]),
            clipped=np.array([bool(m.clipped) for m in motions]),
            solve_time=np.array([s.solve_time for s in samples]),
            iterations=np.array([s.iterations for s in solutions]),
            evaluations=np.array([s.evaluations for s in solutions]),
            restarts=np.array([s.restarts for s in solutions]),
            used_slsqp=np.array([s.used_slsqp for s in solutions]),
        )

    def columns(self) -> dict[str, Any]:
        """One-dimensional columns with the unit in the name, as they stand in `samples.csv`."""
        out: dict[str, Any] = {}
        for name, unit, parts in _layout(self.joint_names):
            value = getattr(self, name)
            if parts is None:
                out[name + unit] = value
                continue
            flat = value[:, :3].reshape(len(self), 12) if name == "targets" else value
            for i, part in enumerate(parts):
                out[f"{name.removesuffix('s') if name == 'targets' else name}_{part}{unit}"] = flat[:, i]
        return out

    @staticmethod
    def from_columns(columns: dict[str, Any], joint_names: Sequence[str], provenance: dict[str, Any]) -> TrackingLog:
        """The log from what :meth:`columns` gave."""
        values: dict[str, Any] = {}
        for name, unit, parts in _layout(tuple(joint_names)):
            if parts is None:
                values[name] = columns[name + unit]
                continue
            stem = "target" if name == "targets" else name
            values[name] = np.stack([np.asarray(columns[f"{stem}_{part}{unit}"]) for part in parts], axis=1)
        T = np.zeros((len(values["time"]), 4, 4))
        T[:, :3] = values["targets"].reshape(-1, 3, 4)
        T[:, 3, 3] = 1.0
        values["targets"] = T
        for name in ("phase", "label", "status", "reason"):
            values[name] = tuple(str(x) for x in values[name])
        return TrackingLog(joint_names=tuple(joint_names), provenance=provenance, **values)


def _halfway(chain: Chain, q: Float[np.ndarray, "m n"]) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    T, T_between = chain.fk_batch(q), chain.fk_batch(0.5 * (q[:-1] + q[1:]))
    wanted = np.stack([interpolate(a, b, 0.5) for a, b in pairwise(T)])
    return pose_errors(T_between, wanted)


def _unlimited(motions: Sequence[Motion], control: dict[str, Any]) -> Float[np.ndarray, "k n"]:
    """The servo's response to its setpoints at the end of each tick, if nothing limited it.

    In each physics step of length h the motor sets the joint's speed to v ← g (s − q) / h + (1 − d) v, with the
    position gain g, the velocity gain d and the setpoint s; so q ← q + g (s − q) + (1 − d) (q − q before).
    """
    g, carry = control["position_gain"], 1.0 - control["velocity_gain"]
    if g == 1.0 and carry == 0.0:
        return np.stack([motion.setpoint[-1] for motion in motions])
    ends = []
    q = before = motions[0].q_before
    for motion in motions:
        for setpoint in motion.setpoint:
            q, before = q + g * (setpoint - q) + carry * (q - before), q
        ends.append(q)
    return np.stack(ends)


_AXES = ("x", "y", "z")
_POSE = tuple(f"{row}{column}" for row in _AXES for column in ("x", "y", "z", "p"))  # rotation row by row, position p
_UNITS = {
    **dict.fromkeys(("time", "solve_time"), "_s"),
    **{f"{part}_position": "_m" for part in ("residual", "servo", "lag", "limits", "tracking", "halfway")},
    **{f"{part}_rotation": "_rad" for part in ("residual", "servo", "lag", "limits", "tracking", "halfway")},
    **dict.fromkeys(("tool_command", "tool_measured", "elbow"), "_m"),
}
_PER_JOINT = (
    "q_command", "q_measured", "q_unlimited", "joint_error", "joint_error_peak", "velocity", "torque",
    "torque_saturation", "speed_saturation",
)  # fmt: skip


def _layout(joint_names: tuple[str, ...]) -> list[tuple[str, str, tuple[str, ...] | None]]:
    """(field, unit, parts) of every column, in order; those of joints are in rad, or m for sliding joints."""
    rows = []
    for f in fields(TrackingLog):
        if f.name in ("joint_names", "provenance"):
            continue
        parts: tuple[str, ...] | None = None
        if f.name == "targets":
            parts = _POSE
        elif f.name in _PER_JOINT:
            parts = joint_names
        elif f.name in ("tool_command", "tool_measured", "elbow"):
            parts = _AXES
        rows.append((f.name, _UNITS.get(f.name, ""), parts))
    return rows


# --- the loop ---


def track(
    task: Task,
    robot: Robot | None = None,
    solver: Any = None,
    *,
    simulation: Simulation | None = None,
    realtime: bool = False,
) -> Generator[Sample, None, TrackingLog]:
    """Run a task in physics, one tick at a time.

    Args:
        task: what to track.
        robot: the task's own when left out.
        solver: the task's own when left out.
        simulation: an open one with that robot in it, which is reset and left open; otherwise one of its own, opened
            with the task's control settings and closed at the end, also when the caller stops early.
        realtime: wait, so that simulated time passes as on the wall; for a window.

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
        return (yield from _ticks(task, robot, solver, trajectory, arm, realtime))
    finally:
        if own is not None:
            own.close()


def record(
    task: Task,
    robot: Robot | None = None,
    solver: Any = None,
    *,
    simulation: Simulation | None = None,
    realtime: bool = False,
    on_sample: Callable[[Sample], None] | None = None,
) -> TrackingLog:
    """Run a task to its end and return the log; `on_sample` sees every tick as it happens. Arguments as `track`."""
    ticks = track(task, robot, solver, simulation=simulation, realtime=realtime)
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
    task: Task, robot: Robot, solver: Any, trajectory: Trajectory, arm: Simulation, realtime: bool
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
    wall = time.perf_counter()
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
        if realtime:
            time.sleep(max(0.0, wall + sample.time - time.perf_counter()))
        yield sample
    return TrackingLog.from_samples(
        samples,
        {
            **versions(),
            "started": started.isoformat(timespec="seconds"),
            "task": task.as_dict(),
            "robot": _robot_facts(robot),
            "solver": repr(solver),
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


# --- the verdict ---


@dataclass(frozen=True)
class Metric:
    """One figure of a run and what the task asks of it."""

    name: str
    """As the tolerance or budget is called in the task."""
    value: float
    limit: float | None
    """None where the task does not judge it."""
    unit: str
    time: float | None
    """When the worst value occurred [s]."""
    at_least: bool = False
    """Whether the limit is a smallest value."""

    @property
    def passed(self) -> bool:
        """Whether the limit holds; NaN never passes."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Violation:
    """A limit that a run broke, and why."""

    metric: str
    value: float
    limit: float
    time: float | None
    """When [s]; None where it is a matter of the whole run."""
    message: str
    """One sentence with the numbers and the cause."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class ErrorFigures:
    """The usual four numbers of an error history."""

    rms: float
    max: float
    final: float
    share_in_tolerance: float | None = None


def error_figures(errors: Any, tolerance: float | None = None) -> ErrorFigures:
    """Root mean square, largest and last value, and the share of values at or below a tolerance."""
    e = np.asarray(errors, dtype=float)
    if e.ndim != 1 or not len(e):
        raise InvalidArgumentError("errors", f"must be one-dimensional and not empty, not of shape {e.shape}")
    share = None if tolerance is None else float((e <= tolerance).mean())
    return ErrorFigures(float(np.sqrt((e * e).mean())), float(e.max()), float(e[-1]), share)


_WORST = (  # metric, column, phase, unit
    ("residual_position", "residual_position", MOVING, "m"),
    ("residual_rotation", "residual_rotation", MOVING, "rad"),
    ("tracking_position_moving", "tracking_position", MOVING, "m"),
    ("tracking_rotation_moving", "tracking_rotation", MOVING, "rad"),
    ("tracking_position_settled", "tracking_position", SETTLED, "m"),
    ("tracking_rotation_settled", "tracking_rotation", SETTLED, "rad"),
    ("joint_step", "joint_step", MOVING, "rad"),
)


def metrics(log: TrackingLog, task: Task) -> list[Metric]:
    """Every figure that a task can judge, with the task's limits."""
    moving = log.of_phase(MOVING)
    converged = log.converged
    out = [
        Metric(
            "converged_share",
            float(converged[moving].mean()),
            task.tolerance.converged_share,
            "",
            None if converged[moving].all() else float(log.time[np.argmax(moving & ~converged)]),
            at_least=True,
        )
    ]
    for name, column, phase, unit in _WORST:
        i = _worst(log, column, phase)
        limit = getattr(task.tolerance, name)
        if i is None:
            out.append(Metric(name, float("nan"), limit, unit, None))
        else:
            out.append(Metric(name, float(getattr(log, column)[i]), limit, unit, float(log.time[i])))
    times_ms = 1000.0 * log.solve_time[moving]
    slowest = float(log.time[np.argmax(np.where(moving, log.solve_time, -1.0))])
    out.append(Metric("solve_time_median_ms", float(np.median(times_ms)), task.budget.solve_time_median_ms, "ms", None))
    p99 = float(np.percentile(times_ms, 99.0))
    out.append(Metric("solve_time_p99_ms", p99, task.budget.solve_time_p99_ms, "ms", slowest))
    return out


def check(log: TrackingLog, task: Task) -> list[Violation]:
    """The limits that the run broke, each with its cause in words; none means pass."""
    out = []
    for metric in metrics(log, task):
        if not metric.passed:
            assert metric.limit is not None
            message = _explain(log, task, metric)
            out.append(Violation(metric.name, metric.value, metric.limit, metric.time, message))
    if log.clipped.any():
        i = int(np.argmax(log.clipped))
        message = f"joint limits: {int(log.clipped.sum())} commands lay outside them and were clipped, the first at "
        message += f"{log.time[i]:.3f} s; a solver must stay inside"
        out.append(Violation("joint_limits", float(log.clipped.sum()), 0.0, float(log.time[i]), message))
    return out


def summary(log: TrackingLog) -> dict[str, Any]:
    """Figures of a run in plain values: errors by their part, solve times with the first call apart, saturation."""
    moving, settled = log.of_phase(MOVING), log.of_phase(SETTLED)

    def figures(column: str, rows: Bool[np.ndarray, "k"]) -> dict[str, float] | None:
        if not rows.any():
            return None
        f = error_figures(getattr(log, column)[rows])
        return {"max": f.max, "rms": f.rms, "final": f.final}

    times = 1000.0 * log.solve_time[moving]
    parts = ("residual", "servo", "lag", "limits", "tracking")
    return {
        "targets": int(moving.sum()),
        "converged": int(log.converged[moving].sum()),
        "used_slsqp": int(log.used_slsqp[moving].sum()),
        **{
            f"{part}_{kind}_{unit}": {
                MOVING: figures(f"{part}_{kind}", moving),
                SETTLED: figures(f"{part}_{kind}", settled),
            }
            for part in parts
            for kind, unit in (("position", "m"), ("rotation", "rad"))
        },
        "joint_error_peak_rad": float(log.joint_error_peak.max()),
        "joint_step_max_rad": float(log.joint_step[moving].max()),
        "solve_time_ms": {
            "first_call": 1000.0 * log.provenance.get("first_solve_time_s", float("nan")),
            "median": float(np.median(times)),
            "p95": float(np.percentile(times, 95.0)),
            "p99": float(np.percentile(times, 99.0)),
            "max": float(times.max()),
            "n": len(times),
        },
        "iterations": {"median": float(np.median(log.iterations[moving])), "max": int(log.iterations[moving].max())},
        "restarts": int(log.restarts[moving].sum()),
        "torque_saturation": _per_joint(log, log.torque_saturation),
        "speed_saturation": _per_joint(log, log.speed_saturation),
        "torque_share_max": _per_joint(log, log.torque / _limits(log), largest=True),
    }


def _per_joint(log: TrackingLog, values: Float[np.ndarray, "k n"], largest: bool = False) -> dict[str, float]:
    row = values.max(axis=0) if largest else values.mean(axis=0)
    return dict(zip(log.joint_names, (float(x) for x in row), strict=True))


def _limits(log: TrackingLog) -> Float[np.ndarray, "n"]:
    return np.array([log.provenance["control"]["torque_limits"][name] for name in log.joint_names])


def _worst(log: TrackingLog, column: str, phase: str) -> int | None:
    rows = log.of_phase(phase)
    if not rows.any():
        return None
    return int(np.argmax(np.where(rows, getattr(log, column), -1.0)))


def _explain(log: TrackingLog, task: Task, metric: Metric) -> str:
    value, limit = _quantity(metric.value, metric.unit), _quantity(metric.limit or 0.0, metric.unit)
    head = f"{metric.name} {value}, {'at least' if metric.at_least else 'limit'} {limit}"
    if metric.time is not None:
        head += f", at {metric.time:.3f} s"
    if metric.name.startswith("solve_time"):
        return f"{head}: the solver is too slow for its budget ({log.provenance['solver']})"
    if metric.time is None:
        return f"{head}: nothing was measured in that phase"
    i = int(np.argmin(np.abs(log.time - metric.time)))
    if metric.name == "converged_share":
        missed = int((log.of_phase(MOVING) & ~log.converged).sum())
        return (
            f"{head}: {missed} of {int(log.of_phase(MOVING).sum())} targets missed; the first: {_solver_words(log, i)}"
        )
    if metric.name == "joint_step":
        return f"{head}: {_step_words(log, i)}"
    if metric.name.startswith("residual"):
        return f"{head}: {_solver_words(log, i)}"
    kind = "position" if "position" in metric.name else "rotation"
    return f"{head}: {cause(log, i, kind)}"


def _step_words(log: TrackingLog, row: int) -> str:
    q, T = ((a[row - 1] if row else None, a[row]) for a in (log.q_command, log.targets))
    before = np.array(log.provenance["q_start"]) if row == 0 else q[0]
    j = int(np.argmax(np.abs(q[1] - before)))
    name = log.joint_names[j]
    off, turn = float(log.halfway_position[row]), float(log.halfway_rotation[row])
    shift, angle = (0.0, 0.0) if row == 0 else (float(x[0]) for x in pose_errors(T[1][None], T[0][None]))
    between = f"halfway the tool is {_quantity(off, 'm')} and {_quantity(turn, 'rad')} off the path"
    if off > 2.0 * shift + 1e-6 or turn > 2.0 * angle + 0.1:
        return f"the solver changed to another branch with {name}: {between}"
    if off > 0.1 * shift or turn > 0.1 * angle + 0.01:  # into the stretched arm: a quarter
        return f"{name} passes near a singular posture: {between}"
    speed = abs(float(q[1][j] - before[j])) / float(log.time[row] - (log.time[row - 1] if row else 0.0))
    limit = log.provenance["control"]["speed_limits"][name]
    stated = "" if limit is None else f", limit {limit:.4g}"
    return f"the path is that fast: {name} needs {speed:.3g} rad/s{stated}"


PARTS = ("residual", "lag", "limits")
"""Columns that a tracking error is made of: the solver's part, that of the servo's gains, that of its limits."""


def cause(log: TrackingLog, row: int, kind: str = "position") -> str:
    """Why the tool was off its target at that row, in words: the largest of the error's parts."""
    unit = "m" if kind == "position" else "rad"
    parts = {part: float(getattr(log, f"{part}_{kind}")[row]) for part in PARTS}
    words = {"residual": _solver_words, "lag": _lag_words, "limits": _limit_words}[max(parts, key=lambda p: parts[p])]
    split = ", ".join(f"{part} {_quantity(value, unit)}" for part, value in parts.items())
    return f"{words(log, row)} [{split}]"


def _solver_words(log: TrackingLog, row: int) -> str:
    status, reason = log.status[row], log.reason[row]
    if status == Status.CONVERGED:
        return "solver residual: the solver stopped there, within its own tolerance"
    if status == Status.OUT_OF_REACH:
        return f"target out of reach: {reason}"
    return f"solver residual: {status.replace('_', ' ')}: {reason}"


def _lag_words(log: TrackingLog, row: int) -> str:
    behind = np.abs(log.q_command[row] - log.q_unlimited[row])
    j = int(np.argmax(behind))
    gain = f"{log.provenance['control']['position_gain']:g}"
    return f"controller lag: {log.joint_names[j]} is {behind[j]:.3g} rad behind its command at position gain {gain}"


def _limit_words(log: TrackingLog, row: int) -> str:
    off = np.abs(log.q_unlimited - log.q_measured)
    j = int(np.argmax(off[row]))
    first = row  # the excursion began after the last tick at which this joint was where its gains would have it
    while first > 0 and off[first - 1, j] > 0.02 * off[row, j]:
        first -= 1
    control = log.provenance["control"]
    found = []
    for what, column, limits, unit in (
        ("torque", log.torque_saturation, control["torque_limits"], "Nm"),
        ("speed", log.speed_saturation, control["speed_limits"], "rad/s"),
    ):
        share = column[first : row + 1].mean(axis=0)
        joints = [
            f"{name} at its {limits[name]:.3g} {unit} on {100.0 * s:.0f} % of the steps"
            for name, s in sorted(zip(log.joint_names, share, strict=True), key=lambda pair: -pair[1])
            if s >= CAUSE_SHARE * share.max() > 0.0
        ]
        if joints:
            found.append((float(share[j]), float(share.max()), f"{what} saturated: {', '.join(joints)}"))
    if not found:
        return f"{log.joint_names[j]} was held off its setpoint by {off[row, j]:.3g} rad (a contact, or a joint stop)"
    since = 0.0 if first == 0 else log.time[first - 1]
    return f"{max(found)[2]} since {since:.3f} s"


def _quantity(value: float, unit: str) -> str:
    if unit == "m" and 1e-4 <= abs(value) < 1.0:
        return f"{1000.0 * value:.4g} mm"
    return f"{value:.4g} {unit}".rstrip()
