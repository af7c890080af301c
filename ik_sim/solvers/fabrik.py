"""FABRIK alone: the two passes repeated until the tip arrives or the cycles are used up.

On the UR and srs families it iterates the two-link problem that remains when the wrist is taken off, as `combined`
does before it switches (see there for the method, and `docs` for its rate cos² δ per cycle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ik_sim.solvers import nlopt_c
from ik_sim.solvers.combined import Combined, solve_combined
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import Tolerance


@dataclass(frozen=True)
class Fabrik(KernelSolver):
    """FABRIK without help; pose targets on arms of the UR and srs families."""

    kernel = solve_combined

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    max_iterations: int = 10_000
    """Cycles per two-link target."""
    start: Literal["seed", "stretched"] = "seed"
    """As in `combined`."""
    further_elbows: bool = True
    """As in `combined`."""
    bend: float = 0.1
    """How far a chain in line with its target is bent before the first cycle [rad]."""
    skip_stretched: bool = True
    """Take a chain that reaches its target straight as it is."""

    def settings(self) -> tuple[float, ...]:
        """As `combined` has them, with SLSQP switched off."""
        like = Combined(
            stop=self.stop, switch_after=self.max_iterations, start=self.start, further_elbows=self.further_elbows,
            bend=self.bend, skip_stretched=self.skip_stretched,
        )  # fmt: skip
        return (like.settings()[0], 0, *like.settings()[2:])

    def _prepare(self) -> None:
        nlopt_c.load()  # the kernel is the one of `combined` and names NLopt's functions
