"""Robots by name (`robots/<name>/robot.toml`) or from any URDF file.

`data_folder` is the one place that knows where `robots/` and `tasks/` are: in `ik_sim/data/` of an installed wheel,
beside the package in a checkout or an editable install. `read_toml` is the one place where a TOML file becomes a
dataclass; a key that the dataclass lacks is an error, so that a slip of the pen can't pass for a setting.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.errors import FileFormatError, IkSimError, InvalidArgumentError, RobotError, UnknownNameError
from ik_sim.urdf import UrdfModel, read_urdf

ROBOT_FILE = "robot.toml"
DATA_KINDS = ("robots", "tasks")
_T = TypeVar("_T")
_PATH_ENDINGS = (".urdf", ".xacro", ".xml", ".toml")


@dataclass(frozen=True)
class Control:
    """How the simulated servo of every joint follows its command.

    The defaults are what an arm without a `robot.toml` gets. With both gains at 1 the servo reaches each setpoint
    within the physics step, as long as the torque limit allows: what then remains between command and measurement is
    the arm's doing, not the gain's. PyBullet's own default, 0.1, lags a setpoint that moves every step by 3 mm at the
    tool and one that jumps by centimetres, which would drown the errors this project is about.
    """

    position_gain: float = 1.0
    """Share of the position error that is removed within one physics step, in (0, 1]."""
    velocity_gain: float = 1.0
    """Share of the velocity error that is removed within one physics step, in [0, 1]."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 < self.position_gain <= 1.0:
            raise InvalidArgumentError("position_gain", f"is {self.position_gain:g}; wanted is more than 0, at most 1")
        if not 0.0 <= self.velocity_gain <= 1.0:
            raise InvalidArgumentError("velocity_gain", f"is {self.velocity_gain:g}; wanted is 0 to 1")


@dataclass(frozen=True)
class Source:
    """Where a robot's numbers come from, and what they may be used for."""

    kinematics: str
    dynamics: str
    limits: str
    licence: str
    """Licence of the files in the robot's folder."""


@dataclass(frozen=True)
class RobotFile:
    """`robot.toml`, key by key."""

    name: str
    """As the folder is named."""
    title: str
    """The name that people know it by."""
    urdf: str
    """URDF file, relative to the folder."""
    base_link: str
    tool_link: str
    home: tuple[float, ...]
    """Where the arm starts [rad] or [m], one number for each joint of the chain, in its order."""
    source: Source
    control: Control = field(default_factory=Control)


@dataclass(frozen=True, eq=False)
class Robot:
    """An arm that is ready to be solved for and simulated."""

    name: str
    title: str
    chain: Chain
    urdf_path: Path
    q_home: Float[np.ndarray, "n"]
    """Inside the limits; read-only."""
    control: Control
    base_link: str
    tool_link: str
    source: Source | None
    """None for a bare URDF, whose numbers nobody vouches for."""
    licence: str
    """Empty where it isn't known."""
    folder: Path
    model: UrdfModel
    """The whole file: links with their shapes, and the joints beside the chain."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What deserves a look in the URDF file, for listings and before a run."""
        return self.model.warnings


def data_folder(kind: str) -> Path:
    """The folder that holds the data files of a kind: "robots" or "tasks".

    Raises:
        IkSimError: the kind is unknown, or the folder is gone (a damaged installation).
    """
    if kind not in DATA_KINDS:
        raise UnknownNameError("data folder", kind, DATA_KINDS)
    package = Path(__file__).resolve().parent
    candidates = (package / "data" / kind, package.parent / kind)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise IkSimError(
        f"the folder {kind!r} of ik_sim is missing; looked for {' and '.join(map(str, candidates))}; "
        "installing ik_sim again brings it back"
    )


def robot_names() -> tuple[str, ...]:
    """The robots that come with ik_sim, sorted."""
    return tuple(sorted(file.parent.name for file in data_folder("robots").glob(f"*/{ROBOT_FILE}")))


def load_robot(
    name_or_path: str | os.PathLike[str],
    *,
    base_link: str | None = None,
    tool_link: str | None = None,
    T_tool: Float[np.ndarray, "4 4"] | None = None,
) -> Robot:
    """A robot by its name, from a folder with a `robot.toml`, or from a URDF file.

    A bare URDF starts in the middle of its limits (0 for joints without) and gets the gains of `Control()`.

    Args:
        name_or_path: one of `robot_names()`, or the path of a `.urdf` file, a `robot.toml` or its folder.
        base_link: where the chain starts, if not where the robot says (bare URDF: its root).
        tool_link: where it ends, if not where the robot says (bare URDF: its only tip). Home is kept for the joints
            that remain; others start in the middle of their limits.
        T_tool: pose of the tool in the tool link's frame, for a tool that the URDF doesn't hold.

    Raises:
        UnknownNameError: no such robot, or no such link.
        FileFormatError: a file is damaged (`RobotError`, `UrdfError`); the message says where and what would be right.
        InvalidArgumentError: the chain can't be cut as asked for.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise InvalidArgumentError(
            "name_or_path", f"must be a robot's name or a path, not {type(name_or_path).__name__}"
        )
    if isinstance(name_or_path, str) and not _is_path(name_or_path):
        if name_or_path not in robot_names():
            raise UnknownNameError("robot", name_or_path, robot_names())
        return _from_folder(data_folder("robots") / name_or_path, base_link, tool_link, T_tool)
    path = Path(os.path.abspath(name_or_path))
    if path.name == ROBOT_FILE:
        return _from_folder(path.parent, base_link, tool_link, T_tool)
    if path.is_dir() and (path / ROBOT_FILE).is_file():
        return _from_folder(path, base_link, tool_link, T_tool)
    return _from_urdf(path, base_link, tool_link, T_tool)


def _is_path(name: str) -> bool:
    if not name or name in robot_names():  # a folder of that name in the working directory doesn't hide the robot
        return False
    try:
        exists = Path(name).exists()
    except (OSError, ValueError):
        exists = False
    return exists or "/" in name or os.sep in name or name.lower().endswith(_PATH_ENDINGS)


def _from_urdf(path: Path, base_link: str | None, tool_link: str | None, T_tool: Any) -> Robot:
    model = read_urdf(path)
    chain = model.chain(base_link, tool_link, T_tool)
    return Robot(
        name=path.stem,
        title=model.name,
        chain=chain,
        urdf_path=path,
        q_home=_read_only(chain.q_middle),
        control=Control(),
        base_link=chain.base_link,
        tool_link=chain.tool_link,
        source=None,
        licence="",
        folder=path.parent,
        model=model,
    )


def _from_folder(folder: Path, base_link: str | None, tool_link: str | None, T_tool: Any) -> Robot:
    path = folder / ROBOT_FILE
    file = read_toml(path, RobotFile, RobotError)
    if file.name != folder.name:
        raise RobotError(path, f"name: is {file.name!r}, but the folder is named {folder.name!r}; they must agree")
    urdf_path = folder / file.urdf
    model = read_urdf(urdf_path)
    try:
        chain = model.chain(file.base_link, file.tool_link)
    except (UnknownNameError, InvalidArgumentError) as error:
        raise RobotError(path, f"base_link, tool_link: {error}") from None
    q_home = _home(path, file.home, chain)
    if base_link is not None or tool_link is not None or T_tool is not None:
        home = dict(zip(chain.joint_names, q_home.tolist(), strict=True))
        chain = model.chain(base_link or file.base_link, tool_link or file.tool_link, T_tool)
        middle = zip(chain.joint_names, chain.q_middle.tolist(), strict=True)
        q_home = chain.clip([home.get(name, value) for name, value in middle])
    return Robot(
        name=file.name,
        title=file.title,
        chain=chain,
        urdf_path=urdf_path,
        q_home=_read_only(q_home),
        control=file.control,
        base_link=chain.base_link,
        tool_link=chain.tool_link,
        source=file.source,
        licence=file.source.licence,
        folder=folder,
        model=model,
    )


def _home(path: Path, home: Sequence[float], chain: Chain) -> Float[np.ndarray, "n"]:
    if len(home) != chain.n:
        raise RobotError(path, f"home: {len(home)} numbers given, {chain.n} wanted: {', '.join(chain.joint_names)}")
    for name, value, lower, upper in zip(chain.joint_names, home, chain.lower, chain.upper, strict=True):
        if not lower <= value <= upper:
            raise RobotError(path, f"home: {name} at {value:g} is outside its limits [{lower:g}, {upper:g}]")
    return np.array(home, dtype=np.float64)


def _read_only(q: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    q = q.copy()
    q.setflags(write=False)
    return q


# --- TOML to dataclasses ----------------------------------------------------------------------------------------------


def read_toml(path: str | os.PathLike[str], kind: type[_T], error: type[FileFormatError]) -> _T:
    """Read a TOML file into the dataclass `kind`, whose fields are the keys and whose annotations are their types.

    Understood are str, bool, int, float (whole numbers too), tuples of one of these (`tuple[float, ...]`), dataclasses
    (tables), and any of them `| None`.

    Raises:
        FileFormatError: as `error(path, message)`; the message names the key and what would be right.
    """
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        raise error(path, "no such file") from None
    except OSError as reason:
        raise error(path, f"can't be read: {reason.strerror or reason}") from None
    except UnicodeDecodeError:
        raise error(path, "is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as reason:
        raise error(path, f"is not valid TOML: {reason}") from None
    return _to_dataclass(table, kind, "", lambda message: error(path, message))


def _to_dataclass(table: Mapping[str, Any], kind: type[_T], where: str, error: Callable[[str], Exception]) -> _T:
    """Build `kind` from a table; `where` is the table's own key with a point behind it, or empty at the top."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise error(f"unknown key {where + key!r}{hint}; known: {', '.join(where + name for name in fields)}")
    values: dict[str, Any] = {}
    for name, entry in fields.items():
        if name in table:
            values[name] = _to_value(table[name], hints[name], where + name, error)
        elif entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
            raise error(f"the key {where + name!r} is missing")
    try:
        return kind(**values)
    except InvalidArgumentError as reason:  # a range, checked by the dataclass itself
        raise error(f"{where}{reason}") from None


def _to_value(value: Any, hint: Any, where: str, error: Callable[[str], Exception]) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):  # X | None; TOML itself has no None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise error(f"{where}: a table is wanted, [{where}], not {value!r}")
        return _to_dataclass(value, typing.cast(type, hint), f"{where}.", error)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise error(f"{where}: a list is wanted, not {value!r}")
        element = typing.get_args(hint)[0]
        return tuple(_to_value(item, element, f"{where}[{i}]", error) for i, item in enumerate(value))
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise error(f"{where}: a number is wanted, not {value!r}")
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise error(f"{where}: a finite number is wanted, not {value!r}")
        return value
    wanted = {str: "a text", bool: "true or false", int: "a whole number"}[hint]
    if type(value) is not hint:
        raise error(f"{where}: {wanted} is wanted, not {value!r}")
    return value
