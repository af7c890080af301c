"""All solvers: one file a method, one line here.

Any of them takes a chain, a target and a seed, and answers with a :class:`~ik_sim.solvers.solver.Solution`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import math
import sys
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any

from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.solvers.all_solutions import Arc, SolutionSet, all_solutions, arm_angle_arcs
from ik_sim.solvers.auto import Auto
from ik_sim.solvers.branches import Branches, all_branches
from ik_sim.solvers.bullet import Bullet
from ik_sim.solvers.ccd import Ccd
from ik_sim.solvers.closed_form import ClosedForm
from ik_sim.solvers.combined import Combined
from ik_sim.solvers.damped_least_squares import DampedLeastSquares
from ik_sim.solvers.fabrik import Fabrik
from ik_sim.solvers.jacobian_transpose import JacobianTranspose
from ik_sim.solvers.levenberg_marquardt import LevenbergMarquardt
from ik_sim.solvers.selectively_damped import SelectivelyDamped
from ik_sim.solvers.slsqp import Slsqp
from ik_sim.solvers.solver import BatchSolution, KernelSolver, Solution, Solver, Status, Trace, judge

SOLVERS: dict[str, type[Any]] = {
    "combined": Combined,
    "fabrik": Fabrik,
    "closed_form": ClosedForm,
    "jacobian_transpose": JacobianTranspose,
    "damped_least_squares": DampedLeastSquares,
    "selectively_damped": SelectivelyDamped,
    "levenberg_marquardt": LevenbergMarquardt,
    "ccd": Ccd,
    "slsqp": Slsqp,
    "auto": Auto,
    "bullet": Bullet,
}

__all__ = [
    "SOLVERS", "Arc", "Auto", "BatchSolution", "Branches", "Bullet", "Ccd", "ClosedForm", "Combined", "DampedLeastSquares",
    "Fabrik", "JacobianTranspose", "KernelSolver", "LevenbergMarquardt", "SelectivelyDamped", "Slsqp", "Solution",
    "SolutionSet", "Solver", "Status", "Trace", "all_branches", "all_solutions", "arm_angle_arcs", "judge", "load_solver",
]  # fmt: skip


def load_solver(name: str, **settings: Any) -> Any:
    """The solver of that name with these settings; `position` and `rotation` set its tolerances [m], [rad].

    Args:
        name: one of SOLVERS, or `path/to/file.py:Class` for a solver of your own (see docs/solvers.md).
        **settings: fields of the solver's class.

    Raises:
        UnknownNameError: no such solver, or a setting that it doesn't have; the message lists what there is.
        InvalidArgumentError: a setting of the wrong type or out of its range, or a file that can't be used.
    """
    cls: Any = _own_solver(name) if ":" in name or name.endswith(".py") else SOLVERS.get(name)
    if cls is None:
        raise UnknownNameError("solver", name, [*SOLVERS, "FILE.py:CLASS"])
    if not hasattr(cls, "__dataclass_fields__"):
        try:
            return cls(**settings)
        except TypeError as error:
            raise InvalidArgumentError(name, f"takes other settings ({error})") from None
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}
    names = [key for key in known if key != "stop"]
    if "stop" in known:
        names += ["position", "rotation"]
        tolerance = {key: settings.pop(key) for key in ("position", "rotation") if key in settings}
        if tolerance:
            checked = {key: _checked(f"{name}.{key}", value, float) for key, value in tolerance.items()}
            settings["stop"] = dataclasses.replace(settings.get("stop", known["stop"].default), **checked)
    hints = typing.get_type_hints(cls)
    for key, value in settings.items():
        if key not in known:
            raise UnknownNameError(f"setting of {name}", key, names)
        settings[key] = _checked(f"{name}.{key}", value, hints[key])
    return cls(**settings)


@cache
def _module_of(path: Path, changed: int) -> Any:
    """The module in a file outside the package, run once for each state of the file."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidArgumentError("solver", f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickle look for it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _own_solver(name: str) -> Any:
    file, colon, class_name = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise InvalidArgumentError("solver", f"{name!r} must read path/to/file.py:Class")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise InvalidArgumentError("solver", f"there is no file {path}")
    try:
        module = _module_of(path, path.stat().st_mtime_ns)
    except IkSimError:
        raise
    except Exception as error:
        raise InvalidArgumentError("solver", f"{path} can't be run: {type(error).__name__}: {error}") from error
    own = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and callable(getattr(value, "solve", None))
    }
    if class_name not in own:
        raise UnknownNameError(f"solver in {path.name}", class_name, own)
    return own[class_name]


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value as the type asks for it; integers pass for floats, lists for tuples."""
    options: tuple[Any, ...] = (
        typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    )
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif typing.get_origin(option) is tuple:
            numbers: Any = value
            if isinstance(value, list | tuple) and all(_is_number(x) for x in numbers):
                return tuple(float(x) for x in numbers)
        elif option is float and _is_number(value):
            return float(typing.cast(Any, value))
        elif option is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        elif isinstance(option, type) and option not in (int, float) and isinstance(value, option):
            return value
        elif option is Any:
            return value
    raise InvalidArgumentError(name, f"must be {' or '.join(map(_words, options))}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _words(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return "a list of numbers"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(hint, str(hint))
