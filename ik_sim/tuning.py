"""Which servo gains a task needs: each pair of gains is run in physics, error is set against effort.

    trials = sweep(load_task("ur5_line"), position_gains=(0.1, 0.3, 1.0))
    best(trials)                              # what keeps the tolerances with the least torque

Higher gains bring the tool nearer to its target and cost torque where the path starts and turns. What the arm weighs is
the same at any gain, so effort is told as what gains do change: the largest torque, and how much it jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ik_sim.errors import InvalidArgumentError
from ik_sim.plots import Chart
from ik_sim.robots import Robot
from ik_sim.simulation import SATURATED, Simulation
from ik_sim.tasks import Task
from ik_sim.tracking import check, record
from ik_sim.tracking_log import MOVING, SETTLED, Sample
from ik_sim.verdict import error_figures

GAINS = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0)
"""Position gains that are tried when none are named."""


@dataclass(frozen=True)
class Trial:
    """One run, with one pair of gains."""

    position_gain: float
    velocity_gain: float
    error_rms_m: float
    """Measured tool against target along the path [m]."""
    error_max_m: float
    """[m]"""
    settled_max_m: float | None
    """The same once the arm has settled [m]; None for a task without a hold."""
    torque_peak: float
    """Largest torque of any motor, as a share of its limit."""
    torque_jump_rms: float
    """How much the torques change from one physics step to the next: root mean square over motors and steps, as a share
    of their limits."""
    saturated: float
    """Share of physics steps in which some motor gave all it may."""
    broken: tuple[str, ...]
    """Tolerances of the task that the run broke; times of the solver are not judged here."""


def sweep(
    task: Task,
    robot: Robot | None = None,
    position_gains: Sequence[float] = GAINS,
    velocity_gains: Sequence[float] = (),
    *,
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Run the task once for each pair of gains.

    Args:
        task: what to track.
        robot: the task's own when left out.
        position_gains: shares of the position error removed in a physics step, above 0 to 1.
        velocity_gains: shares of the velocity error, 0 to 1; the task's or the robot's own when left out.
        on_trial: called with each trial as it is done.

    Raises:
        IkSimError: a gain out of its range, or a task that can't be run.
    """
    robot = robot or task.load_robot()
    if not position_gains:
        raise InvalidArgumentError("position_gains", "name one gain or more")
    own = task.control.velocity_gain
    choices = velocity_gains or (robot.control.velocity_gain if own is None else own,)
    controls = [
        replace(task.control, position_gain=gain, velocity_gain=damping)
        for damping in choices
        for gain in position_gains
    ]  # every gain is checked before anything runs
    solver, start, trials = task.load_solver(), task.trajectory(robot).q_start, []
    for control in controls:
        torques = []

        def note(sample: Sample, into: list[np.ndarray] = torques) -> None:
            into.append(sample.motion.torque / sample.motion.torque_limits)

        with Simulation(robot, control, q=start) as simulation:
            log = record(task, robot, solver, simulation=simulation, on_sample=note)
        torque = np.concatenate(torques)
        errors, settled = error_figures(log.tracking_position[log.of_phase(MOVING)]), log.of_phase(SETTLED)
        trial = Trial(
            position_gain=log.provenance["control"]["position_gain"],
            velocity_gain=log.provenance["control"]["velocity_gain"],
            error_rms_m=errors.rms,
            error_max_m=errors.max,
            settled_max_m=float(log.tracking_position[settled].max()) if settled.any() else None,
            torque_peak=float(np.abs(torque).max()),
            torque_jump_rms=float(np.sqrt((np.diff(torque, axis=0) ** 2).mean())),
            saturated=float((np.abs(torque) >= SATURATED).any(axis=1).mean()),
            broken=tuple(v.metric for v in check(log, task) if not v.metric.startswith("solve_time")),
        )
        trials.append(trial)
        if on_trial is not None:
            on_trial(trial)
    return trials


def best(trials: Sequence[Trial]) -> Trial:
    """Of those that keep every tolerance, the one with the least torque; if none does, the one with the least error."""
    passing = [trial for trial in trials if not trial.broken]
    if passing:
        return min(passing, key=lambda trial: (trial.torque_peak, trial.torque_jump_rms))
    return min(trials, key=lambda trial: trial.error_max_m)


def table(trials: Sequence[Trial]) -> str:
    """The trials for a terminal, the best one marked."""
    rows = [("position", "velocity", "error rms", "largest", "settled", "torque", "jumps rms", "saturated", "")]
    rows.append(("gain", "gain", "[mm]", "[mm]", "[mm]", "[% of limit]", "[% a step]", "[% of steps]", ""))
    choice = best(trials)
    for t in trials:
        settled = "-" if t.settled_max_m is None else f"{1e3 * t.settled_max_m:.3g}"
        more = f" and {len(t.broken) - 1} more" if len(t.broken) > 1 else ""
        verdict = f"breaks {t.broken[0]}{more}" if t.broken else "keeps all tolerances"
        mark = ("<- " if t is choice else "   ") + verdict
        rows.append(
            (
                f"{t.position_gain:g}", f"{t.velocity_gain:g}", f"{1e3 * t.error_rms_m:.3g}", f"{1e3 * t.error_max_m:.3g}",
                settled, f"{100 * t.torque_peak:.3g}", f"{100 * t.torque_jump_rms:.2g}", f"{100 * t.saturated:.3g}", mark,
            )
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  " + "  ".join([*(c.rjust(w) for c, w in zip(row[:-1], widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )


def charts(trials: Sequence[Trial], tolerance: float | None) -> list[Chart]:
    """Error against both kinds of effort, a line for each velocity gain, gains beside the dots.

    Args:
        trials: what :func:`sweep` found.
        tolerance: of the moving tool's position [m]; drawn where there is one.
    """
    out, choice = [], best(trials)
    for title, label, attribute, log_x in (
        ("Error against torque", "largest torque [% of limit]", "torque_peak", False),
        ("Error against smoothness", "torque jumps, rms [% of limit a step]", "torque_jump_rms", True),
    ):
        chart = Chart(title, label, "largest tracking error [mm]", log_x=log_x, log_y=True)
        if tolerance is not None:
            chart.level(1e3 * tolerance, "c2", "tolerance", dash="5 4")
        for i, damping in enumerate(dict.fromkeys(t.velocity_gain for t in trials)):
            row = sorted((t for t in trials if t.velocity_gain == damping), key=lambda t: t.position_gain)
            x, y = [100 * getattr(t, attribute) for t in row], [1e3 * t.error_max_m for t in row]
            colour, name = ("c0", "c1", "c4", "c2", "c6")[i % 5], f"velocity gain {damping:g}"
            chart.line(x, y, colour, name, 1.4, ("", "6 3", "2 3")[i % 3])
            chart.dots(x, y, colour, size=2.6)
            for t, a, b in zip(row, x, y, strict=True):
                if i == 0:  # a little above its dot
                    chart.text(a, 1.35 * b, f"{t.position_gain:g} ", "end" if a == max(x) else "start")
        chart.dots([100 * getattr(choice, attribute)], [1e3 * choice.error_max_m], "c3", "best", 4.0)
        out.append(chart)
    return out
