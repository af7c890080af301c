"""The verdict on a run: every figure against the task's limit, and the cause of each miss in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import Status
from ik_sim.tasks import Task
from ik_sim.tracking_log import MOVING, SETTLED, TrackingLog, pose_errors

CAUSE_SHARE = 0.3
"""What comes to this share of the largest is named beside it: parts of an error, and joints that saturated."""
CAUSES = {
    "solver": "solver residual",
    "joint_limit": "joint limit",
    "lag": "controller lag",
    "torque": "torque saturation",
    "speed": "speed saturation",
    "contact": "contact",
}
"""What a tracking error is split into, and what each is called."""
AT_LIMIT = 1e-6
"""A commanded joint this near to its limit stands at it [rad or m]."""
NOTABLE = 1e-9
"""Parts of an error below this are rounding [m or rad]."""


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
    by_cause = {kind: split(log, kind) for kind in ("position", "rotation")}
    largest = dominant(log)[moving | settled]
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
        "causes": {
            name: {
                "position_max_m": float(by_cause["position"][name][moving | settled].max()),
                "rotation_max_rad": float(by_cause["rotation"][name][moving | settled].max()),
                "share_of_ticks": float((largest == name).mean()),
            }
            for name in CAUSES
        },
        "joint_error_peak_rad": float(log.joint_error_peak.max()),
        "contact_force_max_N": float(log.contact_force.max()),
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
    q, T = log.q_command[row], log.targets[row]
    first = row == 0
    q_before = np.array(log.provenance["q_start"]) if first else log.q_command[row - 1]
    T_before = T if first else log.targets[row - 1]
    seconds = float(log.time[row] - (0.0 if first else log.time[row - 1]))
    j = int(np.argmax(np.abs(q - q_before)))
    name = log.joint_names[j]
    off, turn = float(log.halfway_position[row]), float(log.halfway_rotation[row])
    shift, angle = (float(x[0]) for x in pose_errors(T[None], T_before[None]))
    if off > 2.0 * shift + 1e-6 or turn > 2.0 * angle + 0.1:
        between = f"halfway the tool is {_quantity(off, 'm')} and {_quantity(turn, 'rad')} off the path"
        return f"the solver changed to another branch with {name}: {between}"
    shifts, angles = pose_errors(log.targets[1:], log.targets[:-1])
    cost = log.joint_step[1:] / np.maximum(shifts + angles, 1e-12)
    times = float(cost[row - 1] / np.median(cost[log.of_phase(MOVING)[1:]])) if row else 0.0
    if times > 3.0:
        return f"{name} passes a singular posture: this step costs {times:.1f} times as much joint motion as others"
    speed = abs(float(q[j] - q_before[j])) / seconds
    limit = log.provenance["control"]["speed_limits"][name]
    stated = "" if limit is None else f", limit {limit:.4g}"
    return f"the path is that fast: {name} needs {speed:.3g} rad/s{stated}"


PARTS = ("residual", "lag", "limits")
"""Columns that a tracking error is made of: the solver's part, that of the servo's gains, that of its limits."""


def split(log: TrackingLog, kind: str = "position") -> dict[str, Float[np.ndarray, "k"]]:
    """How far each cause moved the tool, tick by tick, by the names in CAUSES [m], or [rad] for rotation.

    Each part of the error goes to one cause whole. The residual: to the joint limit where a limit stopped the solver or
    a command was clipped, else to the solver. What motors could not follow: to contact where something pressed on the
    arm since the joint went astray, else to torque or speed, whichever kept that joint at its limit longer; with neither
    (a soft servo that sags) to the controller, as the lag. Parts are distances: together they are at least the tracking
    error, and more where they point different ways.
    """
    residual, lag, limits = (getattr(log, f"{part}_{kind}") for part in PARTS)
    blocked, held_by = _limit_stopped(log), _held_by(log)
    parts = {
        "solver": np.where(blocked, 0.0, residual),
        "joint_limit": np.where(blocked, residual, 0.0),
        "lag": lag + np.where(held_by == "lag", limits, 0.0),
    }
    return parts | {name: np.where(held_by == name, limits, 0.0) for name in ("torque", "speed", "contact")}


def dominant(log: TrackingLog, kind: str = "position") -> Any:
    """The name in CAUSES of the largest part at each tick (k,); empty where all of them are rounding."""
    parts = split(log, kind)
    table = np.stack(list(parts.values()))
    return np.where(table.max(axis=0) < NOTABLE, "", np.array(list(parts))[table.argmax(axis=0)])


def cause(log: TrackingLog, row: int, kind: str = "position") -> str:
    """Why the tool was off its target at that row, in words: the largest of the error's parts."""
    unit = "m" if kind == "position" else "rad"
    parts = {part: float(getattr(log, f"{part}_{kind}")[row]) for part in PARTS}
    how = {"residual": _solver_words, "lag": _lag_words, "limits": _limit_words}
    ranked = sorted(parts, key=lambda part: -parts[part])
    named = [part for part in ranked if parts[part] >= CAUSE_SHARE * parts[ranked[0]] and parts[part] > 0.0]
    words = "; and ".join(how[part](log, row, kind) for part in named or ranked[:1])
    numbers = ", ".join(f"{part} {_quantity(value, unit)}" for part, value in parts.items())
    return f"{words} [{numbers}]"


def _at_limit(log: TrackingLog) -> Bool[np.ndarray, "k n"]:
    """Which commanded joints stand at one of their limits."""
    facts = log.provenance["robot"]
    lower = np.array([-np.inf if x is None else x for x in facts["lower"]])
    upper = np.array([np.inf if x is None else x for x in facts["upper"]])
    return (log.q_command <= lower + AT_LIMIT) | (log.q_command >= upper - AT_LIMIT)


def _limit_stopped(log: TrackingLog) -> Bool[np.ndarray, "k"]:
    """Where a joint limit kept the command off its target."""
    status = np.array(log.status)
    gave_up = (status != Status.CONVERGED) & (status != Status.OUT_OF_REACH) & (status != Status.UNSUPPORTED)
    return log.clipped | (status == Status.JOINT_LIMITS) | (gave_up & _at_limit(log).any(axis=1))


def _solver_words(log: TrackingLog, row: int, kind: str = "position") -> str:
    status, reason = log.status[row], log.reason[row]
    if _limit_stopped(log)[row]:
        facts, found = log.provenance["robot"], [reason] if reason else []
        if "limit" not in reason:
            for j in np.flatnonzero(_at_limit(log)[row])[::-1]:
                low, high = facts["lower"][j], facts["upper"][j]
                limit = low if low is not None and log.q_command[row, j] <= low + AT_LIMIT else high
                found.insert(0, f"{log.joint_names[j]} stands at its limit of {limit:.4g}")
        if log.clipped[row]:
            found.append("the solver's answer lay outside and was clipped")
        return f"joint limit: {'; '.join(found)}"
    if status == Status.CONVERGED:
        return "solver residual: the solver stopped there, within its own tolerance"
    if status == Status.OUT_OF_REACH:
        return f"target out of reach: {reason}"
    return f"solver residual: {status.replace('_', ' ')}: {reason}"


def _lag_words(log: TrackingLog, row: int, kind: str = "position") -> str:
    behind = np.abs(log.q_command[row] - log.q_unlimited[row])
    j = int(np.argmax(behind))
    gain = f"{log.provenance['control']['position_gain']:g}"
    unit = "m" if kind == "position" else "rad"
    left = max(float(getattr(log, f"{part}_{kind}")[row]) for part in ("residual", "limits"))
    return (
        f"controller lag: {log.joint_names[j]} is {behind[j]:.3g} rad behind its command, the tool "
        f"{_quantity(float(getattr(log, f'lag_{kind}')[row]), unit)}, at position gain {gain}; at gain 1 the same path "
        f"leaves {_quantity(left, unit)}, as long as torque and speed allow"
    )


def _excursion(log: TrackingLog, row: int) -> tuple[int, int]:
    """The joint that is farthest from where its gains would have it, and the tick after it was last there."""
    off = np.abs(log.q_unlimited - log.q_measured)
    j = int(np.argmax(off[row]))
    at_home = np.flatnonzero(off[:row, j] <= 0.02 * off[row, j])
    return (int(at_home[-1]) + 1 if len(at_home) else 0), j


def _held_by(log: TrackingLog) -> Any:
    """Which cause has the `limits` part of each tick (k,): torque, speed, contact, or lag where no limit was met."""
    out = np.full(len(log), "lag", dtype="<U8")
    for row in np.flatnonzero((log.limits_position > NOTABLE) | (log.limits_rotation > NOTABLE)):
        first, j = _excursion(log, int(row))
        torque, speed = (x[first : row + 1].mean(axis=0) for x in (log.torque_saturation, log.speed_saturation))
        if log.contact_force[first : row + 1].any():
            out[row] = "contact"
        elif torque.any() or speed.any():
            out[row] = "torque" if (torque[j], torque.max()) >= (speed[j], speed.max()) else "speed"
    return out


def _limit_words(log: TrackingLog, row: int, kind: str = "position") -> str:
    off = np.abs(log.q_unlimited - log.q_measured)
    first, j = _excursion(log, row)
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
    since = 0.0 if first == 0 else log.time[first - 1]
    pressed = log.contact_force[first : row + 1]
    if pressed.max(initial=0.0) > 0.0:
        k = first + int(np.argmax(pressed))
        share = 100.0 * float((pressed > 0.0).mean())
        more = f"; {max(found)[2]}" if found else ""
        return (
            f"contact: {log.contact_link[k]} pressed with up to {pressed.max():.3g} N on {share:.0f} % of the ticks "
            f"since {since:.3f} s{more}"
        )
    if not found:
        held = f"{log.joint_names[j]} was held off its setpoint by {off[row, j]:.3g} rad"
        if control["velocity_gain"] < 1.0:
            return (
                f"controller sag: {held}; at velocity gain {control['velocity_gain']:g} the servo lets weight through"
            )
        return f"{held}, with no motor at its limit and nothing touched"
    return f"{max(found)[2]} since {since:.3f} s"


def _quantity(value: float, unit: str) -> str:
    if unit == "m" and 1e-4 <= abs(value) < 1.0:
        return f"{1000.0 * value:.4g} mm"
    return f"{value:.4g} {unit}".rstrip()
