"""The solver to take when one doesn't want to choose: the closed form where there is one, else the fastest numeric one.

The closed form also decides that a target is out of reach. What it can't take (a chain without a family, a point or
an axis on an arm of six joints) goes to Levenberg-Marquardt with restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ik_sim.solvers.closed_form import ClosedForm, supports
from ik_sim.solvers.levenberg_marquardt import LevenbergMarquardt, solve_levenberg_marquardt
from ik_sim.target import Tolerance


@dataclass(frozen=True)
class Auto(LevenbergMarquardt):
    """Closed form where the chain's family has one for this kind of target, Levenberg-Marquardt elsewhere."""

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""

    def kernel_for(self, family: str, near: bool, kind: int) -> Any:
        """The choice; both kernels read the tolerances from the same places."""
        if supports(family, kind):
            return ClosedForm.kernel_for(ClosedForm(), family, near, kind)
        return solve_levenberg_marquardt
