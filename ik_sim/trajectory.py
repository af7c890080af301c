"""Where the tool has to be, and when: lines, circles, joint-space moves, random paths, the two-phase reference.

A *path* has no clock: the `..._poses` functions give poses for fractions `s` of the way. A *trajectory* has one:
the arm stands at `q_start` at time 0, and `targets[i]` is due at `times[i]` > 0. In between lies a timing, a law s(t):

    uniform    s = τ                       constant speed, starts and stops at once
    trapezoid  ramps over a quarter each   peak speed 4/3 of the mean
    quintic    s = 10τ³ − 15τ⁴ + 6τ⁵       rest to rest without a jump in acceleration, peak speed 15/8 of the mean
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.errors import InvalidArgumentError, UnknownNameError
from ik_sim.se3 import check_pose, interpolate, rotation_exp, transform

_RAMP = 0.25


def _trapezoid(tau: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    cruise = 1.0 / (1.0 - _RAMP)
    start = 0.5 * cruise * tau**2 / _RAMP
    middle = cruise * (tau - 0.5 * _RAMP)
    end = 1.0 - 0.5 * cruise * (1.0 - tau) ** 2 / _RAMP
    return np.where(tau < _RAMP, start, np.where(tau > 1.0 - _RAMP, end, middle))


TIMINGS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "uniform": (lambda tau: tau, 1.0),
    "trapezoid": (_trapezoid, 1.0 / (1.0 - _RAMP)),
    "quintic": (lambda tau: tau**3 * (10.0 - 15.0 * tau + 6.0 * tau**2), 1.875),
}
"""Law s(τ) with τ = t / duration in [0, 1], and its peak speed in multiples of the mean speed."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Timed targets for the tool, and the configuration from which they are approached."""

    times: Float[np.ndarray, "k"]
    """When each target is due [s]; increasing, the first one after 0."""
    targets: Float[np.ndarray, "k 4 4"]
    """T_base_tool at those times."""
    q_start: Float[np.ndarray, "n"]
    """Where the arm stands, at rest, at time 0."""
    labels: tuple[str, ...]
    """Which part of the path a target belongs to."""
    q_reference: Float[np.ndarray, "k n"] | None = None
    """A joint motion that passes through all targets, where the path was made from one."""

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        k = len(self.times)
        if k == 0:
            raise InvalidArgumentError("times", "a trajectory needs at least one target")
        if not (self.times[0] > 0.0 and (np.diff(self.times) > 0.0).all() and np.isfinite(self.times).all()):
            raise InvalidArgumentError("times", "must be finite, increase, and start after 0")
        if self.targets.shape != (k, 4, 4) or len(self.labels) != k:
            given = f"{self.targets.shape} and {len(self.labels)}"
            raise InvalidArgumentError("targets", f"{k} times need shape ({k}, 4, 4) and {k} labels, not {given}")
        for name in ("times", "targets", "q_start", "q_reference"):
            array = getattr(self, name)
            if array is not None and array.flags.writeable:
                array = array.copy()
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def duration(self) -> float:
        """When the last target is due [s]."""
        return float(self.times[-1])

    def stretched(self, duration: float) -> Trajectory:
        """The same path in another time [s]: every moment scaled alike."""
        if not (np.isfinite(duration) and duration > 0.0):
            raise InvalidArgumentError("duration", f"must be a positive number of seconds, not {duration}")
        return replace(self, times=self.times * (duration / self.duration))

    def then(self, other: Trajectory) -> Trajectory:
        """This trajectory and another one straight after it."""
        references = (self.q_reference, other.q_reference)
        return Trajectory(
            times=np.concatenate([self.times, self.duration + other.times]),
            targets=np.concatenate([self.targets, other.targets]),
            q_start=self.q_start,
            labels=self.labels + other.labels,
            q_reference=None if any(q is None for q in references) else np.concatenate(references),  # type: ignore[arg-type]
        )


# --- paths ---


def line_poses(T_start: Any, T_end: Any, s: Sequence[float] | Float[np.ndarray, "k"]) -> Float[np.ndarray, "k 4 4"]:
    """Poses on the straight line from one pose to another: even position, shortest rotation, at fractions `s`."""
    T0, T1 = check_pose(T_start, "T_start"), check_pose(T_end, "T_end")
    return np.stack([interpolate(T0, T1, float(x)) for x in s])


def circle_poses(
    T_start: Any,
    centre: Any,
    normal: Any,
    s: Sequence[float] | Float[np.ndarray, "k"],
    *,
    turns: float = 1.0,
    turn_tool: bool = False,
) -> Float[np.ndarray, "k 4 4"]:
    """Poses on the circle about `centre` [m] that passes through the origin of `T_start`.

    Args:
        T_start: pose at s = 0.
        centre: centre of the circle in the base [m].
        normal: axis of the circle, any length; counter-clockwise about it is forward.
        s: fractions of the way.
        turns: how many times around; negative runs backwards.
        turn_tool: turn the tool with the circle instead of keeping its orientation.
    """
    T0 = check_pose(T_start, "T_start")
    axis, middle = _vector3(normal, "normal"), _vector3(centre, "centre")
    length = float(np.linalg.norm(axis))
    if length < 1e-9:
        raise InvalidArgumentError("normal", "must be a direction, not zero")
    axis = axis / length
    arm = T0[:3, 3] - middle
    out_of_plane = float(axis @ arm)
    if abs(out_of_plane) > 1e-9 + 1e-6 * float(np.linalg.norm(arm)):
        raise InvalidArgumentError(
            "centre", f"lies {out_of_plane:.3g} m along the normal from the start: not in the circle's plane"
        )
    poses = []
    for x in s:
        R = rotation_exp(2.0 * np.pi * turns * float(x) * axis)
        poses.append(transform(R @ T0[:3, :3] if turn_tool else T0[:3, :3], middle + R @ arm))
    return np.stack(poses)


def random_configurations(
    chain: Chain, count: int, seed: int, within: float = 1.0, about: Any = None
) -> Float[np.ndarray, "k n"]:
    """Uniform draws inside the joint limits; equal seeds give equal bits, whatever ran before.

    Args:
        chain: whose limits; an unlimited joint is drawn from (−π, π].
        count: how many.
        seed: of the draws.
        within: use only this share of each joint's range.
        about: centre of that share, clipped at the limits; the middle of the range when left out.
    """
    rng = np.random.default_rng(seed)
    if about is None:
        return chain.random_q(rng, count, within)
    bounded = np.isfinite(chain.lower) & np.isfinite(chain.upper)
    half = 0.5 * within * np.where(bounded, np.where(bounded, chain.upper - chain.lower, 0.0), 2.0 * np.pi)
    q = chain.check_q(about, "about")
    return rng.uniform(np.maximum(q - half, chain.lower), np.minimum(q + half, chain.upper), (count, chain.n))


# --- trajectories ---


def timed(
    poses: Callable[[Any], Float[np.ndarray, "k 4 4"]],
    q_start: Float[np.ndarray, "n"],
    *,
    duration: float,
    rate: float,
    timing: str = "quintic",
    label: str = "path",
) -> Trajectory:
    """Put a path on the clock: `duration` [s] at `rate` targets per second, by one of the TIMINGS."""
    law, _ = _timing(timing)
    for name, value in (("duration", duration), ("rate", rate)):
        if not (np.isfinite(value) and value > 0.0):
            raise InvalidArgumentError(name, f"must be a positive number, not {value}")
    count = max(1, round(duration * rate))
    tau = np.arange(1, count + 1) / count
    return Trajectory(tau * duration, poses(law(tau)), np.array(q_start, dtype=float), (label,) * count)


def line(
    chain: Chain, q_start: Any, T_end: Any, *, duration: float, rate: float, timing: str = "quintic"
) -> Trajectory:
    """A straight line from the pose at `q_start` to `T_end`."""
    q = _check_inside(chain, q_start, "q_start")
    T_start = chain.fk(q)
    return timed(lambda s: line_poses(T_start, T_end, s), q, duration=duration, rate=rate, timing=timing, label="line")


def circle(
    chain: Chain,
    q_start: Any,
    centre: Any,
    normal: Any,
    *,
    duration: float,
    rate: float,
    timing: str = "quintic",
    turns: float = 1.0,
    turn_tool: bool = False,
) -> Trajectory:
    """A circle that starts at the pose of `q_start`; see :func:`circle_poses`."""
    q = _check_inside(chain, q_start, "q_start")
    T_start = chain.fk(q)
    return timed(
        lambda s: circle_poses(T_start, centre, normal, s, turns=turns, turn_tool=turn_tool),
        q,
        duration=duration,
        rate=rate,
        timing=timing,
        label="circle",
    )


def joint_moves(
    chain: Chain, waypoints: Any, *, rate: float, timing: str = "quintic", speed: float = 0.5, label: str = "move"
) -> Trajectory:
    """From configuration to configuration, straight in joint space, resting at each unless the timing is uniform.

    Every target is the pose of a configuration on the way, so all of them can be reached, by a continuous motion.

    Args:
        chain: the arm.
        waypoints: (m, n) configurations, m ≥ 2; the first is where the arm starts.
        rate: targets per second.
        timing: one of the TIMINGS, for each stretch anew.
        speed: share of the joint speed limits that the fastest joint reaches; unlimited joints count as 1 rad/s.
        label: the stretches are labelled `label 1`, `label 2`, ...
    """
    law, peak = _timing(timing)
    q = np.array(waypoints, dtype=float)
    if q.ndim != 2 or len(q) < 2 or q.shape[1] != chain.n:
        wanted = f"two or more configurations of {chain.n} joints ({', '.join(chain.joint_names)})"
        raise InvalidArgumentError("waypoints", f"must be {wanted}, not an array of shape {q.shape}")
    for i, row in enumerate(q):
        _check_inside(chain, row, f"waypoint {i + 1}")
    if not (np.isfinite(speed) and 0.0 < speed <= 1.0):
        raise InvalidArgumentError("speed", f"must be a share in (0, 1], not {speed}")
    if not (np.isfinite(rate) and rate > 0.0):
        raise InvalidArgumentError("rate", f"must be a positive number, not {rate}")
    limits = usable_speeds(chain)
    reference, labels = [], []
    for i in range(len(q) - 1):
        seconds = peak * float((np.abs(q[i + 1] - q[i]) / limits).max()) / speed
        count = max(1, int(np.ceil(seconds * rate - 1e-9)))
        s = law(np.arange(1, count + 1) / count)[:, None]
        reference.append((1.0 - s) * q[i] + s * q[i + 1])
        labels += [f"{label} {i + 1}"] * count
    joints = np.clip(np.concatenate(reference), chain.lower, chain.upper)  # rounding may step over a limit by one bit
    times = np.arange(1, len(joints) + 1) / rate
    return Trajectory(times, chain.fk_batch(joints), q[0].copy(), tuple(labels), joints)


def two_phase(
    chain: Chain,
    *,
    q_start: Any,
    q_end: Any,
    direction: Any,
    stretched: float,
    rate: float,
    points: tuple[int, int] = (80, 100),
) -> Trajectory:
    """The reference task: stretch the arm along a line, then unfold it towards `q_end`.

    Phase 1: the wrist point moves on the line from the shoulder along `direction`, evenly spaced, from its distance at
    `q_start` to `stretched`, where the arm is straight at q = 0; the tool keeps the orientation of q = 0. Phase 2: the
    poses of q_end · k/m, k = 1 … m. Its last step into the singular stretch asks for a large joint step by geometry.

    Args:
        chain: an arm that is straight at q = 0.
        q_start: where phase 1 starts; its tool must have the orientation of q = 0.
        q_end: where phase 2 ends.
        direction: of phase 1, in the base.
        stretched: distance from the shoulder to the wrist point of the straight arm, l_2 + l_3 [m].
        rate: targets per second.
        points: number of targets of either phase.
    """
    start, end = _check_inside(chain, q_start, "q_start"), _check_inside(chain, q_end, "q_end")
    v = _vector3(direction, "direction")
    v = v / np.linalg.norm(v)
    T_straight, T_start = chain.fk(np.zeros(chain.n)), chain.fk(start)
    if np.abs(T_straight[:3, :3] - T_start[:3, :3]).max() > 1e-6:
        raise InvalidArgumentError("q_start", "must hold the tool as q = 0 does: phase 1 keeps that orientation")
    # Equal orientations: the wrist point has moved as far as the tool; at q = 0 it is stretched · v from the shoulder.
    r_start = float(np.linalg.norm(stretched * v + T_start[:3, 3] - T_straight[:3, 3]))
    first, second = points
    targets = np.tile(T_straight, (first, 1, 1))
    targets[:, :3, 3] += (np.linspace(r_start, stretched, first) - stretched)[:, None] * v
    unfold = np.arange(1, second + 1)[:, None] / second * end
    return Trajectory(
        times=np.arange(1, first + second + 1) / rate,
        targets=np.concatenate([targets, chain.fk_batch(unfold)]),
        q_start=start,
        labels=("phase 1",) * first + ("phase 2",) * second,
    )


# --- joint speed ---


@dataclass(frozen=True)
class SpeedDemand:
    """The step of a joint path that comes nearest to, or furthest beyond, a joint's speed limit."""

    joint: str
    speed: float
    """asked for [rad/s] or [m/s]"""
    limit: float
    """[rad/s] or [m/s]"""
    time: float
    """when [s]: the end of the step"""

    @property
    def within_limit(self) -> bool:
        """Whether the joint can follow."""
        return self.speed <= self.limit

    def __str__(self) -> str:
        return f"{self.joint} needs {self.speed:.3g} rad/s at {self.time:.3g} s, limit {self.limit:.4g}"


def speed_demand(chain: Chain, times: Any, q: Any) -> SpeedDemand:
    """The hardest step of a joint path (k, n) passed at `times` (k,), measured in shares of the speed limits."""
    t, joints = np.asarray(times, dtype=float), np.asarray(q, dtype=float)
    if joints.shape != (len(t), chain.n) or len(t) < 2:
        raise InvalidArgumentError(
            "q", f"has shape {joints.shape}; {len(t)} times need ({len(t)}, {chain.n}), two or more"
        )
    speeds = np.abs(np.diff(joints, axis=0)) / np.diff(t)[:, None]
    i, j = np.unravel_index(int(np.argmax(speeds / usable_speeds(chain))), speeds.shape)
    return SpeedDemand(chain.joint_names[j], float(speeds[i, j]), float(chain.velocity_limits[j]), float(t[i + 1]))


def minimum_duration(chain: Chain, q: Any) -> float:
    """Shortest time [s] for a joint path (k, n) with evenly timed points, so that no step outruns a joint."""
    joints = np.asarray(q, dtype=float)
    return float((np.abs(np.diff(joints, axis=0)) / usable_speeds(chain)).max() * (len(joints) - 1))


def usable_speeds(chain: Chain) -> Float[np.ndarray, "n"]:
    """Joint speed limits [rad/s or m/s]; 1 where a robot file states none (infinite) or leaves it open (0)."""
    stated = np.isfinite(chain.velocity_limits) & (chain.velocity_limits > 0.0)
    return np.where(stated, chain.velocity_limits, 1.0)


# --- checks ---


def _timing(name: str) -> tuple[Callable[[Any], Any], float]:
    if name not in TIMINGS:
        raise UnknownNameError("timing", name, TIMINGS)
    return TIMINGS[name]


def _vector3(value: Any, name: str) -> Float[np.ndarray, "3"]:
    array = np.array(value, dtype=float)
    if array.shape != (3,) or not np.isfinite(array).all():
        raise InvalidArgumentError(name, f"must be three finite numbers, not {value}")
    return array


def _check_inside(chain: Chain, q: Any, name: str) -> Float[np.ndarray, "n"]:
    array = chain.check_q(q, name)
    outside = np.flatnonzero((array < chain.lower) | (array > chain.upper))
    if outside.size:
        i = int(outside[0])
        raise InvalidArgumentError(
            name,
            f"{chain.joint_names[i]} = {array[i]:g} is outside its limits [{chain.lower[i]:g}, {chain.upper[i]:g}]",
        )
    return array
