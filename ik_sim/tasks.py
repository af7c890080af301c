"""Tasks: `tasks/<name>.toml` says what to track, how well, how fast, with which solver and servo.

    title = "What it is about"
    robot = "ur5"                  # a robot's name, or the path of a URDF or robot.toml, seen from the task file
    rate = 20                      # targets per second

    [path]                         # kind is one of PATHS; the other keys are those of its class
    kind = "line"
    displacement = [0.0, 0.4, 0.1]
    duration = 4.0

    [tolerance]                    # what must hold; a key that is left out isn't judged
    residual_position = 1e-6

Keys that the file may hold are the fields of the classes here, each explained at its field; any other key is an error.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ik_sim import solvers, trajectory
from ik_sim.control import ControlSettings
from ik_sim.errors import IkSimError, InvalidArgumentError, TaskError, UnknownNameError
from ik_sim.robots import Robot, _to_dataclass, data_folder, load_robot
from ik_sim.se3 import Pose, rotation_exp, rpy_to_matrix, transform
from ik_sim.target import KIND_NAMES, Target
from ik_sim.trajectory import Trajectory

Numbers = tuple[float, ...]


# --- [path] ---


@dataclass(frozen=True)
class LinePath:
    """A straight line from the pose at `q_start`: even position, shortest rotation."""

    duration: float
    """[s]"""
    displacement: Numbers | None = None
    """From start to end in base axes [m]."""
    rotation: Numbers = (0.0, 0.0, 0.0)
    """Turns the tool on the way: rotation vector in base axes [rad]."""
    position: Numbers | None = None
    """The end as a point in the base [m], instead of `displacement`."""
    rpy: Numbers | None = None
    """Orientation at the end, roll-pitch-yaw in the base [rad], instead of `rotation`."""
    q_start: Numbers | None = None
    """Where the arm stands at first [rad]; the robot's home when left out."""
    timing: str = "quintic"

    def trajectory(self, robot: Robot, rate: float, seed: int) -> Trajectory:
        """Timed targets for the robot."""
        q = _start(self.q_start, robot)
        T = robot.chain.fk(q)
        if (self.displacement is None) == (self.position is None):
            raise InvalidArgumentError("displacement", "a line needs either displacement or position")
        end = (
            _three(self.position, "position") if self.position else T[:3, 3] + _three(self.displacement, "displacement")
        )
        if self.rpy is not None:
            R = rpy_to_matrix(_three(self.rpy, "rpy"))
        else:
            R = rotation_exp(_three(self.rotation, "rotation")) @ T[:3, :3]
        return trajectory.line(robot.chain, q, transform(R, end), duration=self.duration, rate=rate, timing=self.timing)


@dataclass(frozen=True)
class CirclePath:
    """A circle through the tool's position at `q_start`."""

    duration: float
    """[s], for all turns together"""
    centre: Numbers
    """From the start to the centre, in base axes [m]; its length is the radius."""
    normal: Numbers
    """Axis of the circle in the base; square to `centre`."""
    turns: float = 1.0
    turn_tool: bool = False
    """Turn the tool with the circle instead of keeping its orientation."""
    q_start: Numbers | None = None
    """Where the arm stands at first [rad]; the robot's home when left out."""
    timing: str = "quintic"

    def trajectory(self, robot: Robot, rate: float, seed: int) -> Trajectory:
        """Timed targets for the robot."""
        q = _start(self.q_start, robot)
        return trajectory.circle(
            robot.chain,
            q,
            robot.chain.fk(q)[:3, 3] + _three(self.centre, "centre"),
            _three(self.normal, "normal"),
            duration=self.duration,
            rate=rate,
            timing=self.timing,
            turns=self.turns,
            turn_tool=self.turn_tool,
        )


@dataclass(frozen=True)
class JointPath:
    """Straight in joint space from configuration to configuration; the targets are the poses on the way."""

    waypoints: tuple[Numbers, ...]
    """Two or more configurations [rad]; the arm starts at the first."""
    speed: float = 0.5
    """Share of the joint speed limits that the fastest joint reaches."""
    timing: str = "quintic"

    def trajectory(self, robot: Robot, rate: float, seed: int) -> Trajectory:
        """Timed targets for the robot."""
        points = [_joints(q, robot, f"waypoints[{i}]") for i, q in enumerate(self.waypoints)]
        return trajectory.joint_moves(robot.chain, points, rate=rate, timing=self.timing, speed=self.speed)


@dataclass(frozen=True)
class RandomPath:
    """Straight in joint space through configurations drawn inside the limits, with the task's seed."""

    count: int
    """How many are drawn."""
    within: float = 1.0
    """Draw from this share of each joint's range."""
    about_start: bool = False
    """Centre that share on `q_start` instead of the middle of the range; limits hold in either case."""
    speed: float = 0.5
    """Share of the joint speed limits that the fastest joint reaches."""
    q_start: Numbers | None = None
    """Where the arm stands at first [rad]; the robot's home when left out."""
    timing: str = "quintic"

    def trajectory(self, robot: Robot, rate: float, seed: int) -> Trajectory:
        """Timed targets for the robot."""
        if self.count < 1:
            raise InvalidArgumentError("count", f"must be at least 1, not {self.count}")
        if not 0.0 < self.within <= 1.0:
            raise InvalidArgumentError("within", f"must be a share in (0, 1], not {self.within}")
        start = _start(self.q_start, robot)
        about = start if self.about_start else None
        draws = trajectory.random_configurations(robot.chain, self.count, seed, self.within, about)
        points = np.vstack([start, draws])
        return trajectory.joint_moves(
            robot.chain, points, rate=rate, timing=self.timing, speed=self.speed, label="random move"
        )


@dataclass(frozen=True)
class TwoPhasePath:
    """The two-phase reference: along a line to the stretched arm, then unfolding; see `trajectory.two_phase`."""

    q_start: Numbers
    """Where phase 1 starts [rad]."""
    q_end: Numbers
    """Where phase 2 ends [rad]."""
    direction: Numbers
    """Of phase 1, in the base."""
    stretched: float
    """Shoulder to wrist point of the straight arm [m]."""
    points: tuple[int, ...] = (80, 100)
    """Targets of phase 1 and phase 2."""

    def trajectory(self, robot: Robot, rate: float, seed: int) -> Trajectory:
        """Timed targets for the robot."""
        if len(self.points) != 2 or min(self.points) < 2:
            raise InvalidArgumentError("points", f"must be two numbers of targets, 2 or more each, not {self.points}")
        return trajectory.two_phase(
            robot.chain,
            q_start=_joints(self.q_start, robot, "q_start"),
            q_end=_joints(self.q_end, robot, "q_end"),
            direction=_three(self.direction, "direction"),
            stretched=self.stretched,
            rate=rate,
            points=(self.points[0], self.points[1]),
        )


PathKind = LinePath | CirclePath | JointPath | RandomPath | TwoPhasePath
PATHS: dict[str, type[PathKind]] = {
    "line": LinePath,
    "circle": CirclePath,
    "joints": JointPath,
    "random": RandomPath,
    "two_phase": TwoPhasePath,
}


# --- [tolerance], [budget], [solver]; [control] is ControlSettings ---


@dataclass(frozen=True)
class Tolerances:
    """What a run must keep to. What is left out isn't judged."""

    residual_position: float | None = None
    """Largest distance from fk(q_command) to the target, the solver's part [m]."""
    residual_rotation: float | None = None
    """Largest angle between fk(q_command) and the target [rad]."""
    tracking_position_moving: float | None = None
    """Largest distance of the measured tool from the target while the path runs [m]."""
    tracking_rotation_moving: float | None = None
    """Largest angle of the measured tool from the target while the path runs [rad]."""
    tracking_position_settled: float | None = None
    """Largest distance of the measured tool from the last target once the arm has settled [m]."""
    tracking_rotation_settled: float | None = None
    """Largest angle of the measured tool from the last target once the arm has settled [rad]."""
    joint_step: float | None = None
    """Largest change of one joint from one command to the next [rad], or [m] for a sliding joint."""
    converged_share: float | None = 1.0
    """Smallest share of the path's targets that the judge calls converged."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in (f.name for f in dataclasses.fields(self)):
            _check_positive(getattr(self, name), name)
        if self.converged_share is not None and self.converged_share > 1.0:
            raise InvalidArgumentError("converged_share", f"is a share, 1 at most, not {self.converged_share}")


@dataclass(frozen=True)
class Budget:
    """What a solve may cost. What is left out isn't judged."""

    solve_time_median_ms: float | None = None
    """Median wall time of one solve [ms]."""
    solve_time_p99_ms: float | None = None
    """99th percentile of the wall time of one solve [ms]."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in (f.name for f in dataclasses.fields(self)):
            _check_positive(getattr(self, name), name)


@dataclass(frozen=True)
class SolverChoice:
    """Which solver, with which settings: every key but `name` is one of its fields."""

    name: str = "combined"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """The solver.

        Raises:
            IkSimError: no such solver or setting.
        """
        return solvers.load_solver(self.name, **self.settings)


# --- the task ---


@dataclass(frozen=True)
class Task:
    """What to track, how well, how fast."""

    name: str
    title: str
    robot: str
    """Name of the robot, or path of its file."""
    path: PathKind
    rate: float
    """Targets per second [Hz]."""
    tolerance: Tolerances
    budget: Budget
    solver: SolverChoice
    control: ControlSettings
    target: str = "pose"
    """What of a path's poses counts: pose, point (position alone) or axis (position and the tool's z axis)."""
    base_link: str | None = None
    tool_link: str | None = None
    """Ends of the chain, if not those the robot names."""
    settle: float = 0.5
    """The arm may come to rest for this long after the path [s]; these samples are logged and not judged."""
    hold: float = 0.5
    """Then it is judged as settled for this long [s]."""
    seed: int = 0
    """Of random paths."""
    source: Path | None = None
    """The file it was read from."""

    def load_robot(self) -> Robot:
        """The robot that the task is written for."""
        name: str | Path = self.robot
        if self.source is not None and _is_file_name(self.robot):
            name = self.source.parent / self.robot
        return load_robot(name, base_link=self.base_link, tool_link=self.tool_link)

    def load_solver(self) -> Any:
        """The solver with the task's settings."""
        try:
            return self.solver.load()
        except IkSimError as error:
            raise self._error(f"solver: {error}") from None

    def trajectory(self, robot: Robot | None = None) -> Trajectory:
        """The timed targets, for the task's robot or another one with the same number of joints.

        Raises:
            TaskError: the path doesn't fit the robot; the message says where.
        """
        if robot is None:
            robot = self.load_robot()
        elif robot.name != self.robot:
            own = self.load_robot()
            if own.chain.n != robot.chain.n:
                raise self._error(
                    f"is written for {own.name} with {own.chain.n} joints; {robot.name} has {robot.chain.n}: "
                    f"{', '.join(robot.chain.joint_names)}"
                )
        try:
            return self.path.trajectory(robot, self.rate, self.seed)
        except TaskError:
            raise
        except IkSimError as error:
            raise self._error(f"path.{error}") from None

    def goal(self, T: Pose) -> Target:
        """What counts of a path's pose, as a target."""
        if self.target == "point":
            return Target.point(T[:3, 3])
        return Target.axis(T[:3, 3], T[:3, 2]) if self.target == "axis" else Target(T)

    def as_dict(self) -> dict[str, Any]:
        """Everything in plain values, for a log."""
        values = dataclasses.asdict(self)
        values["path"] = {"kind": self.path_kind, **values["path"]}
        values["solver"] = {"name": self.solver.name, **self.solver.settings}
        values["source"] = None if self.source is None else self.source.name
        return values

    @property
    def path_kind(self) -> str:
        """Key of the path's class in PATHS."""
        return next(name for name, kind in PATHS.items() if type(self.path) is kind)

    def _error(self, message: str) -> TaskError:
        return TaskError(self.source or self.name, message)


@dataclass(frozen=True)
class _TaskFile:
    """The top of a task file; its [path] and [solver] are read apart, since their keys depend on their kind."""

    title: str
    robot: str
    rate: float
    tolerance: Tolerances
    budget: Budget = field(default_factory=Budget)
    control: ControlSettings = field(default_factory=ControlSettings)
    target: str = "pose"
    base_link: str | None = None
    tool_link: str | None = None
    settle: float = 0.5
    hold: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check_positive(self.rate, "rate")
        if self.target not in KIND_NAMES:
            raise InvalidArgumentError("target", str(UnknownNameError("kind of target", self.target, KIND_NAMES)))
        for name in ("settle", "hold"):
            if getattr(self, name) < 0.0:
                raise InvalidArgumentError(name, f"must be 0 or more seconds, not {getattr(self, name)}")
        if self.seed < 0:
            raise InvalidArgumentError("seed", f"must be 0 or more, not {self.seed}")
        if self.control.physics_rate < self.rate:
            raise InvalidArgumentError(
                "rate",
                f"is {self.rate:g} targets per second, more than physics_rate = {self.control.physics_rate:g} steps",
            )


def task_names() -> tuple[str, ...]:
    """The tasks that come with ik_sim, sorted."""
    return tuple(sorted(file.stem for file in data_folder("tasks").glob("*.toml")))


def load_task(name_or_path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Task:
    """A task by its name, or from a TOML file.

    Args:
        name_or_path: one of `task_names()`, or the path of a `.toml` file.
        overrides: keys to set over the file's, dotted: {"control.position_gain": 0.1, "solver.name": "closed_form"}.

    Raises:
        UnknownNameError: no task of that name.
        TaskError: the file can't be used; the message names the key and what would be right.
    """
    path = _task_path(name_or_path)
    table = _read(path)
    for key, value in (overrides or {}).items():
        _override(table, key, value, path)
    return _to_task(table, path)


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` as typed on a command line; the value as TOML reads it, or as text where it doesn't."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidArgumentError("--set", f"takes key=value, such as control.position_gain=0.1, not {text!r}")
    try:
        return key.strip(), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _task_path(name_or_path: str | os.PathLike[str]) -> Path:
    if isinstance(name_or_path, str) and not _is_file_name(name_or_path):
        if name_or_path not in task_names():
            raise UnknownNameError("task", name_or_path, task_names())
        return data_folder("tasks") / f"{name_or_path}.toml"
    return Path(os.path.abspath(name_or_path))


def _is_file_name(name: str) -> bool:
    return "/" in name or os.sep in name or Path(name).suffix in (".toml", ".urdf")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskError(path, "no such file") from None
    except OSError as error:
        raise TaskError(path, f"can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TaskError(path, "is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TaskError(path, f"is not valid TOML: {error}") from None


def _override(table: dict[str, Any], key: str, value: Any, path: Path) -> None:
    *sections, last = key.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise TaskError(path, f"can't set {key!r}: {section!r} is not a table")
    if sections == ["solver"] and last == "name" and table.get("name") != value:
        table.clear()  # another solver: the settings of the file's own don't apply to it
    table[last] = value


def _to_task(table: dict[str, Any], path: Path) -> Task:
    def error(message: str) -> TaskError:
        return TaskError(path, message)

    parts = {}
    for section, default in (("path", None), ("solver", {})):
        part = table.pop(section, default)
        if part is None:
            raise error(f"the table [{section}] is missing")
        if not isinstance(part, dict):
            raise error(f"{section}: a table is wanted, [{section}], not {part!r}")
        parts[section] = part
    head = _to_dataclass(table, _TaskFile, "", error)
    kind = parts["path"].pop("kind", None)
    if not isinstance(kind, str) or kind not in PATHS:
        given = "is missing" if kind is None else f"is {kind!r}"
        raise error(f"path.kind {given}; known: {', '.join(PATHS)}")
    name = parts["solver"].pop("name", "combined")
    if not isinstance(name, str):
        raise error(f"solver.name: a text is wanted, not {name!r}")
    _refuse_nan(parts["solver"], "solver.", error)
    return Task(
        name=path.stem,
        path=_to_dataclass(parts["path"], PATHS[kind], "path.", error),
        solver=SolverChoice(name, parts["solver"]),
        source=path,
        **{f.name: getattr(head, f.name) for f in dataclasses.fields(head)},
    )


def _refuse_nan(value: Any, where: str, error: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_nan(item, f"{where}{key}" if where.endswith(".") else f"{where}.{key}", error)
    elif isinstance(value, float) and not math.isfinite(value):
        raise error(f"{where}: a finite number is wanted, not {value!r}")


def _check_positive(value: float | None, name: str) -> None:
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise InvalidArgumentError(name, f"must be above 0, not {value}")


def _three(value: Any, name: str) -> Any:
    array = np.array(value, dtype=float)
    if array.shape != (3,):
        raise InvalidArgumentError(name, f"must be three numbers, not {value}")
    return array


def _joints(q: Numbers, robot: Robot, name: str) -> Any:
    return robot.chain.check_q(q, name)


def _start(q: Numbers | None, robot: Robot) -> Any:
    return robot.q_home if q is None else _joints(q, robot, "q_start")
