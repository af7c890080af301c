"""All solvers: one file a method, one line here.

Any of them takes a chain, a target and a seed, and answers with a :class:`~ik_sim.solvers.solver.Solution`.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from ik_sim.errors import InvalidArgumentError, UnknownNameError
from ik_sim.solvers.all_solutions import Arc, SolutionSet, all_solutions, arm_angle_arcs
from ik_sim.solvers.auto import Auto
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
from ik_sim.target import Tolerance

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
    "SOLVERS", "Arc", "Auto", "BatchSolution", "Bullet", "Ccd", "ClosedForm", "Combined", "DampedLeastSquares", "Fabrik", "JacobianTranspose",
    "KernelSolver", "LevenbergMarquardt", "SelectivelyDamped", "Slsqp", "Solution", "SolutionSet", "Solver", "Status", "Trace", "all_solutions",
    "arm_angle_arcs", "judge", "load_solver",
]  # fmt: skip


def load_solver(name: str, **settings: Any) -> Any:
    """The solver of that name with these settings; `position` and `rotation` set its tolerances [m], [rad].

    Raises:
        UnknownNameError: no such solver, or a setting that it doesn't have; the message lists what there is.
        InvalidArgumentError: a setting of the wrong type.
    """
    if name not in SOLVERS:
        raise UnknownNameError("solver", name, SOLVERS)
    cls = SOLVERS[name]
    known = {f.name: f for f in dataclasses.fields(cls)}
    tolerance = {key: settings.pop(key) for key in ("position", "rotation") if key in settings}
    if tolerance:
        settings["stop"] = dataclasses.replace(settings.get("stop", known["stop"].default), **tolerance)
    hints = typing.get_type_hints(cls)
    for key, value in settings.items():
        if key not in known:
            raise UnknownNameError(f"setting of {name}", key, [*known, "position", "rotation"])
        settings[key] = _checked(f"{name}.{key}", value, hints[key])
    return cls(**settings)


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value as the type asks for it; integers pass for floats, lists for tuples."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, getattr(__import__("types"), "UnionType")) else (hint,)
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif typing.get_origin(option) is tuple:
            if isinstance(value, list | tuple):
                return tuple(float(x) for x in value)
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif option is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        elif option in (bool, str, Tolerance) and isinstance(value, option):
            return value
    wanted = " or ".join(getattr(o, "__name__", str(o)) for o in options)
    raise InvalidArgumentError(name, f"must be {wanted}, not {value!r}")
