"""FABRIK alone: the two passes repeated until the tip arrives or the cycles are used up.

For poses on the UR and srs families it iterates the two-link problem that remains when the wrist is taken off, as
`combined` does before it switches (see there for the method and its rate of cos² δ per cycle). On any other chain, and
for points and axes, the passes go over the chain's own hinges and limits (see `hinge_fabrik.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ik_sim.solvers import nlopt_c
from ik_sim.solvers import record as r
from ik_sim.solvers.combined import WITH_SLSQP, Combined, kernel_for
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import Tolerance


@dataclass(frozen=True)
class Fabrik(KernelSolver):
    """FABRIK without help; any chain, pose, point or axis targets."""

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    max_iterations: int = 10_000
    """Cycles per two-link target, or over all restarts on a whole chain."""
    restarts: int = 20
    """Whole chains: random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""
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
            bend=self.bend, skip_stretched=self.skip_stretched, max_iterations=self.max_iterations,
            restarts=self.restarts, seed=self.seed, max_seconds=self.max_seconds,
        )  # fmt: skip
        settings = list(like.settings())
        settings[WITH_SLSQP - r.SETTINGS] = 0.0
        return tuple(settings)

    def kernel_for(self, family: str, near: bool, kind: int) -> Any:
        """As `combined`."""
        return kernel_for(family, near, kind)

    def _prepare(self) -> None:
        nlopt_c.load()  # the kernel is the one of `combined` and names NLopt's functions
