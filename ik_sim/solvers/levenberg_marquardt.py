"""Levenberg-Marquardt with Sugihara's damping: q ← q + (JᵀJ + (E + w̄) I)⁻¹ Jᵀ e.

E = ½ eᵀe shrinks with the error, so the method ends almost like Newton's; the small constant w̄ keeps the system
solvable in singular postures. Joint limits act inside the step, and a start that no longer gets nearer is given up
for a random one. The fastest of the numeric methods here, on any chain.

Source: Sugihara 2011, "Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ik_sim.chain import DOF
from ik_sim.compiled import kernel
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import Tolerance

BIAS, LARGEST_STEP, SHARE = it.OWN, it.OWN + 1, it.OWN + 2


@kernel
def solve_levenberg_marquardt(c, T, kind, q_seed, s, out):
    """Sugihara's method, from the seed and then from random starts."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    w = it.start(c, s, out)
    _search(c, T, kind, s, r.trace_rows(c, out), w, out)
    it.conclude(c, T, kind, s, w, out)
    return r.FINE


@kernel
def _search(c, T, kind, s, trace, w, out):
    while it.goes_on(c, T, kind, s, trace, w, out):
        energy = 0.0
        for j in range(6):
            energy += w.e[j] * w.e[j]
        it.damped_step(c, w.J, w.e, w.A, w.dq, w.held, w.q, s[SHARE] * energy + s[BIAS])
        it.limit_step(w.dq, s[LARGEST_STEP])
        if it.move(c, w.q, w.dq) < 1e-9 and energy > 1e-12:
            it.nudge(c, w, 1e-2)  # a straight chain, or a limit: no direction leads on from exactly here


@kernel
def search_on(c, T, kind, s, most, restarts, out):
    """The whole method from the joints in `out`, which get the best that was found; only the tolerances of s count.

    Returns the number of iterations.
    """
    settings = np.zeros(SHARE + 1)
    settings[0], settings[1] = s[0], s[1]
    settings[it.MAX_ITERATIONS], settings[it.MAX_RESTARTS] = most, restarts
    settings[it.PATIENCE], settings[it.NEEDED_DROP] = 4.0, 0.5
    settings[BIAS], settings[LARGEST_STEP], settings[SHARE] = 1e-8, 1.0, 0.05
    w = it.start(c, settings, out)
    _search(c, T, kind, settings, np.empty((0, 3 + int(c[DOF]))), w, out)
    r.copy(w.best, out)
    return int(w.state[it.ITERATION])


@kernel
def polish(c, T, kind, s, most, out):
    """Newton-like steps on the real chain from the joints in `out`, which get the best that was found.

    Returns the number of steps. Stops at rounding, not at the tolerance: an extra step costs a microsecond.
    """
    settings = _polish_settings(s)
    w = it.start(c, settings, out)
    last = 1e300
    steps = 0
    for _ in range(most):
        position, rotation = it.measure(c, T, kind, w)
        size = position * position + rotation * rotation
        if size < w.state[it.BEST]:
            w.state[it.BEST] = size
            r.copy(w.q, w.best)
        if size >= 0.25 * last or size < 1e-28:
            break
        last = size
        it.damped_step(c, w.J, w.e, w.A, w.dq, w.held, w.q, 0.5 * size + 1e-12)
        it.move(c, w.q, w.dq)
        steps += 1
    r.copy(w.best, out)
    return steps


@kernel
def _polish_settings(s):
    settings = np.zeros(it.OWN)
    settings[0], settings[1] = s[0], s[1]
    return settings


@dataclass(frozen=True)
class LevenbergMarquardt(KernelSolver):
    """Sugihara's Levenberg-Marquardt with limits inside the step and restarts; any chain, pose, point or axis targets."""

    kernel = solve_levenberg_marquardt

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    max_iterations: int = 1000
    """Budget over all restarts."""
    restarts: int = 100
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""
    bias: float = 1e-8
    """w̄: raise it if the arm jerks near singular postures; lower it if the last digits come slowly there."""
    share: float = 0.05
    """The damping's share of eᵀe. Sugihara's E is ½ eᵀe; a tenth of that needs a third fewer iterations on our arms."""
    patience: int = 4
    """Iterations without halving the squared error after which a start is given up."""
    largest_step: float = 1.0
    """Most that a joint turns in one iteration [rad or m]."""

    def settings(self) -> tuple[float, ...]:
        """In the order of iterating.py, then BIAS, LARGEST_STEP, SHARE."""
        common = (self.max_iterations, self.restarts, self.seed, self.max_seconds, self.patience, 0.5)
        return (*common, self.bias, self.largest_step, self.share)
