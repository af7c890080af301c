"""Jacobian transpose: q ← q + α Jᵀ e / σ_max(J)², the method of steepest descent on the error.

The gain α is relative: any value in (0, 2) is stable on any arm, whatever its size and units, because the step is
measured by the largest singular value of the Jacobian. Convergence is linear and, near singular postures, arbitrarily
slow; what it has to offer is that it never inverts anything. gain "best" takes the exact minimum along the gradient,
α* = ⟨e, J Jᵀ e⟩ / |J Jᵀ e|², at every step.

Sources: Wolovich & Elliott 1984; Balestrino, De Maria & Sciavicco 1984.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ik_sim.compiled import kernel
from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import Tolerance

GAIN = it.OWN


@kernel
def largest_singular_value_squared(J, n, room):
    """σ_max² of J (6, n) by power iteration on J Jᵀ, started along its largest row; never below the true value's 99.9 %.

    `room` is scratch (12,).
    """
    best, size = 0, 0.0
    for i in range(6):
        row = 0.0
        for k in range(n):
            row += J[i, k] * J[i, k]
        room[i] = row
        if row > size:
            best, size = i, row
    if size == 0.0:
        return 0.0
    for i in range(6):
        v = 0.0
        for k in range(n):
            v += J[i, k] * J[best, k]
        room[i] = v
    value = 0.0
    for _ in range(30):
        norm = 0.0
        for i in range(6):
            norm += room[i] * room[i]
        norm = np.sqrt(norm)
        for i in range(6):
            room[i] /= norm
            room[6 + i] = 0.0
        for k in range(n):
            v = 0.0
            for i in range(6):
                v += J[i, k] * room[i]
            for i in range(6):
                room[6 + i] += J[i, k] * v
        last, value = value, 0.0
        for i in range(6):
            value += room[i] * room[6 + i]
            room[i] = room[6 + i]
        if value - last <= 1e-4 * value:
            break
    return value


@kernel
def solve_jacobian_transpose(c, T, kind, q_seed, s, out):
    """Steepest descent, from the seed and then from random starts."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    w = it.start(c, s, out)
    trace = r.trace_rows(c, out)
    n = w.q.shape[0]
    room = np.empty(12)
    while it.goes_on(c, T, kind, s, trace, w, out):
        along, across = 0.0, 0.0
        for k in range(n):
            v = 0.0
            for i in range(6):
                v += w.J[i, k] * w.e[i]
            w.dq[k] = v
        it.hold_at_limits(c, w.q, w.dq)
        for k in range(n):
            along += w.dq[k] * w.dq[k]
        for i in range(6):
            v = 0.0
            for k in range(n):
                v += w.J[i, k] * w.dq[k]
            across += v * v
        if s[GAIN] == 0.0:
            scale = along / across if across > 0.0 else 0.0
        else:
            square = largest_singular_value_squared(w.J, n, room)
            scale = s[GAIN] / square if square > 0.0 else 0.0
        for k in range(n):
            w.dq[k] *= scale
        it.limit_step(w.dq, 1.0)
        if it.move(c, w.q, w.dq) < 1e-9:
            it.nudge(c, w, 1e-2)
    it.conclude(c, T, kind, s, w, out)
    return r.FINE


@dataclass(frozen=True)
class JacobianTranspose(KernelSolver):
    """Steepest descent with a gain relative to the arm's own scale; any chain, pose, point or axis targets."""

    kernel = solve_jacobian_transpose

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    gain: float | Literal["best"] = "best"
    """α in (0, 2], relative to 1/σ_max². Small is slow, near 2 rings; "best" is the minimum along each gradient."""
    max_iterations: int = 20_000
    """Budget over all restarts."""
    restarts: int = 30
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""

    def __post_init__(self) -> None:
        """Check the gain."""
        if self.gain != "best" and not (isinstance(self.gain, int | float) and 0.0 < self.gain <= 2.0):
            raise InvalidArgumentError("gain", f'must be in (0, 2] (relative to 1/σ_max²) or "best", not {self.gain!r}')
        super().__post_init__()

    def settings(self) -> tuple[float, ...]:
        """In the order of iterating.py, then GAIN (0 for "best")."""
        common = (self.max_iterations, self.restarts, self.seed, self.max_seconds, 400, 0.9)
        return (*common, 0.0 if self.gain == "best" else float(self.gain))
