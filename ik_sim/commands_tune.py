"""The command that looks for servo gains: `ik-sim tune`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Tune:
    """Run a task at many servo gains, and set its error against its effort.

    Prints a table and writes tune.json, tune.svg and tune.png. Exit code 0: some gains keep every tolerance of the task;
    1: none do; 2: the task can't be run as asked.
    """

    task: tyro.conf.Positional[str]
    """Name of a task (see `ik-sim tasks`), or the path of a task file."""
    gains: tuple[float, ...] = ()
    """Position gains to try, above 0 to 1; nine from 0.03 to 1 when left out."""
    velocity_gains: tuple[float, ...] = ()
    """Velocity gains to try with each of them, 0 to 1; the task's own when left out."""
    robot: str | None = None
    """Another robot with as many joints: a name, or the path of a URDF."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """key=value: set a key of the task file, such as control.payload=2."""
    out: Path | None = None
    """Folder for the files; runs/tune_TASK when left out."""
    json: Path | None = None
    """Also write the result to this file; - writes it to standard output, in place of the table."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        from ik_sim import plots, raster, tuning
        from ik_sim.files import write_file, write_json
        from ik_sim.robots import load_robot
        from ik_sim.tasks import load_task, parse_override

        task = load_task(self.task, dict(parse_override(text) for text in self.set))
        robot = task.load_robot() if self.robot is None else load_robot(self.robot)
        gains = self.gains or tuning.GAINS
        total, done = len(gains) * max(1, len(self.velocity_gains)), 0

        def show(trial: tuning.Trial) -> None:
            nonlocal done
            done += 1
            if sys.stderr.isatty() and not self.quiet:
                print(f"\r  {done} of {total} runs", end="\n" if done == total else "", file=sys.stderr, flush=True)

        trials = tuning.sweep(task, robot, gains, self.velocity_gains, on_trial=show)
        choice = tuning.best(trials)
        result = {
            "task": task.name,
            "robot": robot.name,
            "trials": [asdict(trial) for trial in trials],
            "best": asdict(choice),
            "passed": not choice.broken,
        }
        out = self.out or Path("runs") / f"tune_{task.name}"
        drawing = plots.svg(tuning.charts(trials, task.tolerance.tracking_position_moving))
        write_json(out / "tune.json", result)
        write_file(out / "tune.svg", plots.svg_file(drawing).encode())
        write_file(out / "tune.png", raster.png(drawing))
        if self.json is not None:
            write_json(self.json, result)
        if not self.quiet and str(self.json) != "-":
            print(f"{task.name}: {robot.name}, {task.title}\n\n{tuning.table(trials)}\n")
            print(f"  plot: {out / 'tune.svg'}    data: {out / 'tune.json'}")
        return 1 if choice.broken else 0
