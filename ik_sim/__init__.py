"""ik_sim: a physics-simulation testbed for inverse kinematics.

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Chain": "ik_sim.chain", "Joint": "ik_sim.chain", "kernel": "ik_sim.compiled", "IkSimError": "ik_sim.errors",
    "load_robot": "ik_sim.robots", "robot_names": "ik_sim.robots", "read_urdf": "ik_sim.urdf",
    "Target": "ik_sim.target", "Tolerance": "ik_sim.target",
    "load_solver": "ik_sim.solvers", "Solution": "ik_sim.solvers", "Status": "ik_sim.solvers", "judge": "ik_sim.solvers",
    "all_branches": "ik_sim.solvers", "all_solutions": "ik_sim.solvers", "arm_angle_arcs": "ik_sim.solvers",
    "load_task": "ik_sim.tasks", "task_names": "ik_sim.tasks", "Simulation": "ik_sim.simulation",
    "track": "ik_sim.tracking", "check": "ik_sim.tracking",
}  # fmt: skip

if TYPE_CHECKING:
    from ik_sim.chain import Chain as Chain
    from ik_sim.chain import Joint as Joint
    from ik_sim.compiled import kernel as kernel
    from ik_sim.errors import IkSimError as IkSimError
    from ik_sim.robots import load_robot as load_robot
    from ik_sim.robots import robot_names as robot_names
    from ik_sim.solvers import Solution as Solution
    from ik_sim.solvers import Status as Status
    from ik_sim.solvers import all_branches as all_branches
    from ik_sim.solvers import all_solutions as all_solutions
    from ik_sim.solvers import arm_angle_arcs as arm_angle_arcs
    from ik_sim.solvers import judge as judge
    from ik_sim.solvers import load_solver as load_solver
    from ik_sim.target import Target as Target
    from ik_sim.target import Tolerance as Tolerance


def __getattr__(name: str) -> Any:
    """Load a public name, or a module of the package, when it is first asked for."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    try:
        return importlib.import_module(f"ik_sim.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"ik_sim.{name}":
            raise
        raise AttributeError(f"module 'ik_sim' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    """The public names."""
    return [*_HOME, "solvers", "__version__"]
