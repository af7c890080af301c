"""What a run leaves: one Sample a tick, and the TrackingLog that lays them into columns.

Three errors keep their own names and columns, each as position [m] and rotation [rad]:

    residual    fk(q_command) against the target      the solver's part
    servo       fk(q_measured) against fk(q_command)  the servo's part; per joint: joint_error = q_command − q_measured
    tracking    fk(q_measured) against the target     what the user sees

The servo's part is split once more. Without limits its response to the setpoints is known exactly, from its gains
alone: `q_unlimited`. So

    lag         fk(q_unlimited) against fk(q_command)   what the gains cost
    limits      fk(q_measured) against fk(q_unlimited)  what torque limits, speed limits or a contact cost
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ik_sim.chain import Chain
from ik_sim.errors import InvalidArgumentError
from ik_sim.robots import Robot
from ik_sim.se3 import Pose
from ik_sim.simulation import Motion
from ik_sim.solvers import Solution, Status

MOVING, SETTLING, SETTLED = "moving", "settling", "settled"


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
    """How far the tool is off the straight line between two commands' poses when the joints are halfway: what a change
    of branch can't hide, however fine the path [m]."""
    halfway_rotation: Float[np.ndarray, "k"]
    """By how much more than half the angle it is then turned from one of the two [rad]."""
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
    contact_force: Float[np.ndarray, "k"]
    """Largest sum of what pressed on the arm during the tick [N]."""
    contact_link: tuple[str, ...]
    """The link that was pressed most; empty without contact."""
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
        setpoints, states = (np.concatenate([getattr(m, name) for m in motions]) for name in ("setpoint", "states"))
        all_steps = replace(motions[0], setpoint=setpoints, states=states, contact_force=None)
        counts = np.array([len(m.states) for m in motions])[:, None]
        starts = np.cumsum(counts[:, 0]) - counts[:, 0]
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
            joint_error_peak=np.maximum.reduceat(np.abs(setpoints - states[..., 0]), starts),
            joint_step=np.array([s.joint_step for s in samples]),
            halfway_position=halfway[0],
            halfway_rotation=halfway[1],
            elbow=np.stack([chain.joint_frames(q)[middle, :3, 3] for q in q_command]),
            velocity=np.stack([m.velocity[-1] for m in motions]),
            torque=np.maximum.reduceat(np.abs(states[..., 2]), starts),
            torque_saturation=np.add.reduceat(all_steps.torque_saturated.astype(float), starts) / counts,
            speed_saturation=np.add.reduceat(all_steps.speed_saturated.astype(float), starts) / counts,
            contact_force=np.array([0.0 if m.contact_force is None else float(m.contact_force.max()) for m in motions]),
            contact_link=tuple(m.contact_link for m in motions),
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
        for name in ("phase", "label", "status", "reason", "contact_link"):
            values[name] = tuple(str(x) for x in values[name])
        return TrackingLog(joint_names=tuple(joint_names), provenance=provenance, **values)


def _halfway(chain: Chain, q: Float[np.ndarray, "m n"]) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """What `halfway_position` and `halfway_rotation` say, for the steps between the rows of q."""
    T, T_between = chain.fk_batch(q), chain.fk_batch(0.5 * (q[:-1] + q[1:]))
    along = T[1:, :3, 3] - T[:-1, :3, 3]
    apart = T_between[:, :3, 3] - T[:-1, :3, 3]
    share = np.clip((along * apart).sum(axis=1) / np.maximum((along * along).sum(axis=1), 1e-300), 0.0, 1.0)
    (_, whole), (_, first), (_, second) = (
        pose_errors(a, b) for a, b in ((T[1:], T[:-1]), (T_between, T[:-1]), (T[1:], T_between))
    )
    off_geodesic = np.maximum(first, second) - 0.5 * whole
    return np.linalg.norm(apart - share[:, None] * along, axis=1), np.maximum(off_geodesic, 0.0)


def _unlimited(motions: Sequence[Motion], control: dict[str, Any]) -> Float[np.ndarray, "k n"]:
    """The servo's response to its setpoints at the end of each tick, if nothing limited it.

    In each physics step of length h the motor sets the joint's speed to v ← g (s − q) / h + (1 − d) v, with the
    position gain g, the velocity gain d and the setpoint s; so q ← q + g (s − q) + (1 − d) (q − q before). With d
    below 1 the motor lets that share of the arm's weight through as well, which no formula of gains can foresee.
    The other modes know the setpoint's speed and do not lag; `Simulation` has their formulas.
    """
    g, carry = control["position_gain"], 1.0 - control["velocity_gain"]
    if control.get("mode", "position") != "position":
        return _unlimited_fed_forward(motions, g, 1.0 - carry, control["mode"])
    if g == 1.0 and carry == 0.0:
        return np.stack([motion.setpoint[-1] for motion in motions])
    ends = []
    q = before = motions[0].q_before
    for motion in motions:
        for setpoint in motion.setpoint:
            q, before = q + g * (setpoint - q) + carry * (q - before), q
        ends.append(q)
    return np.stack(ends)


def _unlimited_fed_forward(motions: Sequence[Motion], g: float, d: float, mode: str) -> Float[np.ndarray, "k n"]:
    ends = []
    q = before = motions[0].q_before
    moved = last_step = np.zeros_like(q)
    for motion in motions:
        for setpoint in motion.setpoint:
            ahead = setpoint - before
            if mode == "torque":
                moved = moved + ahead - last_step + d * (last_step - moved) + g * (before - q)
            else:
                moved = (1.0 - d) * moved + d * (ahead + g * (before - q))
            q, before, last_step = q + moved, setpoint, ahead
        ends.append(q)
    return np.stack(ends)


_AXES = ("x", "y", "z")
_POSE = tuple(f"{row}{column}" for row in _AXES for column in ("x", "y", "z", "p"))  # rotation row by row, position p
_UNITS = {
    **dict.fromkeys(("time", "solve_time"), "_s"),
    "contact_force": "_N",
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
