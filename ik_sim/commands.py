"""The commands of `ik-sim`: a dataclass each, whose fields are the options and whose docstrings are the help.

Whatever is heavy is imported inside `run`, which returns the exit code: 0 pass, 1 a tolerance is broken, 2 misuse.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from ik_sim.commands_solve import Solve as Solve
from ik_sim.errors import IkSimError
from ik_sim.files import write_file, write_json

PASS, BROKEN, MISUSE = 0, 1, 2


@dataclass(frozen=True)
class Track:
    """Run one task in physics and judge it.

    Writes a run folder with the log, the verdict and a report. Exit code 0: every tolerance holds; 1: one is broken;
    2: the task can't be run as asked.
    """

    task: tyro.conf.Positional[str]
    """Name of a task (see `ik-sim tasks`), or the path of a task file."""
    robot: str | None = None
    """Another robot with as many joints: a name, or the path of a URDF."""
    solver: str | None = None
    """Another solver, with its own default settings."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """key=value: set a key of the task file, such as control.payload=2 or solver.max_iterations=50."""
    gain: float | None = None
    """Position gain of the servo, above 0 to 1."""
    torque_scale: float | None = None
    """Multiplies the robot's torque limits."""
    seed: int | None = None
    """Seed of random paths."""
    out: Path | None = None
    """Where the run folder goes; runs/TASK when left out. An earlier run there is replaced."""
    json: Path | None = None
    """Also write the verdict to this file; - writes it to standard output, in place of the table."""
    gui: bool = False
    """Show the run in a window, in real time, with sliders for speed and gain, pause and replay. From a terminal the
    window stays until it is closed, or Q is pressed in it."""
    video: bool = False
    """Also film the run, for its folder and its report."""
    video_format: str = "mp4"
    """mp4, gif or webp."""
    speed: float = 1.0
    """How many times faster than it happened the video plays."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        from ik_sim import report, run_folder
        from ik_sim.tracking import check, metrics

        task = _load_task(self.task, _overrides(self))
        out = self.out or Path("runs") / task.name
        make_video: Any = None
        if self.video:  # whether it can be written is known before the run starts
            from ik_sim.commands_pictures import film
            from ik_sim.video import VideoSettings, check_encoder

            name, settings = f"video.{self.video_format}", VideoSettings(speed=self.speed)
            check_encoder(Path(name))

            def to_video(log: Any, folder: Path) -> Path:
                return film([log], folder / name, settings, self.quiet, out / name).path

            make_video = to_video

        started = time.perf_counter()
        log = _run_task(task, self.robot, gui=self.gui, quiet=self.quiet)
        result = report.write_run(out, log, task, time.perf_counter() - started, make_video)
        if self.json is not None:
            write_json(self.json, result)
        if not self.quiet and str(self.json) != "-":
            print(report.text_table(log, task, metrics(log, task), check(log, task)))
            print(f"\n  report: {out / 'report.html'}    log: {out / run_folder.SAMPLES_FILE}")
        return PASS if result["passed"] else BROKEN


@dataclass(frozen=True)
class Validate:
    """Run many tasks without a window and judge them all: the gate of a build.

    Writes a run folder for each and one JUnit XML file over all. Exit code 0: everything holds; 1: a tolerance is
    broken; 2: a task can't be run.
    """

    tasks: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of tasks or paths of task files; all tasks that come with ik_sim when left out."""
    solver: str | None = None
    """Another solver for all of them, with its own default settings."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """key=value: set a key in every task file, such as control.torque_scale=0.8."""
    seed: int | None = None
    """Seed of random paths."""
    out: Path = Path("runs")
    """Where the run folders go, each under its task's name."""
    junit: Path | None = None
    """Where the JUnit XML goes; junit.xml in --out when left out."""
    json: Path | None = None
    """Also write all verdicts to this file; - writes them to standard output, in place of the summary."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        from ik_sim import report, run_folder
        from ik_sim.tasks import task_names

        names = self.tasks or task_names()
        tasks = [_load_task(name, _overrides(self)) for name in names]
        for task in tasks:  # misuse is known before anything runs
            task.trajectory()
            task.load_solver()
        talk = not self.quiet and str(self.json) != "-"
        suites: list[tuple[dict[str, Any], float]] = []
        errors: list[tuple[str, str]] = []
        for i, task in enumerate(tasks):
            started = time.perf_counter()
            try:
                log = _run_task(task, None, quiet=self.quiet, of=f"{i + 1}/{len(tasks)} ")
                result = report.write_run(self.out / task.name, log, task, time.perf_counter() - started)
            except IkSimError as error:
                errors.append((task.name, str(error)))
                print(f"ik-sim: error: {task.name}: {error}", file=sys.stderr)
                continue
            seconds = time.perf_counter() - started
            suites.append((result, seconds))
            if talk:
                word = "PASS" if result["passed"] else "FAIL"
                print(
                    f"{word}  {task.name:<18} {result['robot']:<8} {task.solver.name:<12} {seconds:6.1f} s", flush=True
                )
                for violation in result["violations"]:
                    print(f"      {violation['message']}", flush=True)
        junit = self.junit or self.out / run_folder.JUNIT_FILE
        write_file(junit, run_folder.junit(suites, errors))
        passed = sum(result["passed"] for result, _ in suites)
        if self.json is not None:
            verdicts = [result for result, _ in suites]
            write_json(self.json, {"passed": passed == len(tasks), "verdicts": verdicts, "errors": dict(errors)})
        if talk:
            rest = f", {len(errors)} could not be run" if errors else ""
            print(f"\n{passed} of {len(tasks)} tasks pass{rest}; {junit}")
        if errors:
            return MISUSE
        return PASS if passed == len(tasks) else BROKEN


@dataclass(frozen=True)
class Robots:
    """List the robots, or one robot's joints with their limits."""

    robot: tyro.conf.Positional[str | None] = None
    """Name of a robot, or the path of a URDF."""
    json: Path | None = None
    """Also write the list to this file; - writes it to standard output instead."""

    def run(self) -> int:
        """Do it."""
        from ik_sim.robots import load_robot, robot_names

        if self.robot is None:
            robots = [load_robot(name) for name in robot_names()]
            rows = [
                {"name": r.name, "joints": r.chain.n, "family": r.chain.family, "title": r.title, "licence": r.licence}
                for r in robots
            ]
            _show(rows, self.json)
            return PASS
        from ik_sim.urdf import read_urdf

        if self.robot.endswith(".urdf"):  # a file with several tips has joints to show, even where it has no one chain
            model, title = read_urdf(self.robot), self.robot
        else:
            robot = load_robot(self.robot)
            model, title = robot.model, f"{robot.name}: {robot.title}, {robot.base_link} to {robot.tool_link}"
        for warning in model.warnings:
            print(f"ik-sim: warning: {warning}", file=sys.stderr)
        if str(self.json) != "-":
            print(f"{title} (tips: {', '.join(model.tips)})\n")
        _show(model.joint_table(), self.json)
        return PASS


@dataclass(frozen=True)
class Tasks:
    """List the tasks that come with ik_sim."""

    json: Path | None = None
    """Also write the list to this file; - writes it to standard output instead."""

    def run(self) -> int:
        """Do it."""
        from ik_sim.tasks import load_task, task_names

        tasks = [load_task(name) for name in task_names()]
        rows = [
            {"name": t.name, "robot": t.robot, "path": t.path_kind, "solver": t.solver.name, "title": t.title}
            for t in tasks
        ]
        _show(rows, self.json)
        return PASS


# --- pieces of commands ---


def _overrides(command: Track | Validate) -> dict[str, Any]:
    from ik_sim.tasks import parse_override

    found: dict[str, Any] = {}
    for key, name in (
        ("solver.name", "solver"),
        ("control.position_gain", "gain"),
        ("control.torque_scale", "torque_scale"),
        ("seed", "seed"),
    ):
        value = getattr(command, name, None)
        if value is not None:
            found[key] = value
    found.update(parse_override(text) for text in command.set)
    return found


def _load_task(name: str, overrides: dict[str, Any]) -> Any:
    from ik_sim.tasks import load_task

    return load_task(name, overrides)


def _run_task(task: Any, robot_name: str | None, *, gui: bool = False, quiet: bool = False, of: str = "") -> Any:
    from ik_sim.robots import load_robot
    from ik_sim.simulation import Simulation
    from ik_sim.tracking import record, tick_count

    robot = task.load_robot() if robot_name is None else load_robot(robot_name)
    trajectory, solver = task.trajectory(robot), task.load_solver()
    if gui:
        from ik_sim.window import watch

        return watch(task, robot, solver, stay=sys.stdin is not None and sys.stdin.isatty())
    with (
        Simulation(robot, task.control, q=trajectory.q_start) as simulation,
        _progress(f"{of}{task.name}", tick_count(task, robot), quiet) as on_sample,
    ):
        return record(task, robot, solver, simulation=simulation, on_sample=on_sample)


@contextmanager
def _progress(title: str, total: int, quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    """What a run calls for each sample: a bar on stderr once it has taken a second; None where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    started, bar, done = time.perf_counter(), None, 0
    task_id: Any = None

    def on_sample(sample: Any) -> None:
        nonlocal bar, task_id, done
        done += 1
        if bar is None and time.perf_counter() - started > 1.0:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            task_id = bar.add_task(title, total=total)
        if bar is not None:
            bar.update(task_id, completed=done)

    try:
        yield on_sample
    finally:
        if bar is not None:
            bar.stop()


def _show(rows: list[dict[str, Any]], json: Path | None) -> None:
    if json is not None:
        write_json(json, rows)
        if str(json) == "-":
            return
    if not rows:
        return
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
