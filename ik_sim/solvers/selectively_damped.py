"""Selectively damped least squares: each singular direction is damped just as much as it would throw the tool about.

J = Σ σ_i u_i v_iᵀ. Direction i wants to move the joints by σ_i⁻¹ ⟨u_i, e⟩ v_i. How far the tool's parts would be carried
if they moved without turning, M_i, against how far they have to go, N_i, gives the bound γ_i = min(1, N_i/M_i) γ_max on
that step: small singular values, for which M_i is large, are damped, the others left alone. No λ has to be chosen.

Position and orientation of the tool are treated as two parts, with angles brought to the unit of length by half the
mean link reach.

Source: Buss & Kim 2005, "Selectively damped least squares for inverse kinematics".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ik_sim.compiled import kernel
from ik_sim.linear import svd_rows
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import POINT, Tolerance

LARGEST_STEP = it.OWN


@kernel
def selectively_damped_step(w, rows, most, length, phi):
    """w.dq by the formula above. `rows` is 3 for a point, 6 for a pose whose angles count `length` metres a radian."""
    n = w.q.shape[0]
    for i in range(3, 6):
        w.e[i] *= length
        for k in range(n):
            w.J[i, k] *= length
    svd_rows(w.J, rows, n, w.W, w.V, w.sigma)
    largest = 0.0
    for i in range(rows):
        largest = max(largest, w.sigma[i])
    for k in range(n):
        w.dq[k] = 0.0
    for i in range(rows):
        sigma = w.sigma[i]
        if sigma <= 1e-12 * largest or sigma == 0.0:
            continue
        alpha = 0.0
        for j in range(rows):
            alpha += w.V[j, i] * w.e[j]
        far, carried = 0.0, 0.0
        for part in range(rows // 3):
            square = 0.0
            for j in range(3 * part, 3 * part + 3):
                square += w.V[j, i] * w.V[j, i]
            far += np.sqrt(square)
        for k in range(n):
            reach = 0.0
            for part in range(rows // 3):
                square = 0.0
                for j in range(3 * part, 3 * part + 3):
                    square += w.J[j, k] * w.J[j, k]
                reach += np.sqrt(square)
            carried += abs(w.W[i, k]) / sigma * reach
        carried /= sigma
        bound = min(1.0, far / carried if carried > 0.0 else 1.0) * most
        top = 0.0
        for k in range(n):
            phi[k] = alpha / (sigma * sigma) * w.W[i, k]
            top = max(top, abs(phi[k]))
        shrink = bound / top if top > bound else 1.0
        for k in range(n):
            w.dq[k] += shrink * phi[k]
    it.limit_step(w.dq, most)


@kernel
def solve_selectively_damped(c, T, kind, q_seed, s, out):
    """Buss and Kim's method, from the seed and then from random starts."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    w = it.start(c, s, out)
    trace = r.trace_rows(c, out)
    phi = np.empty(w.q.shape[0])
    rows = 3 if kind == POINT else 6
    length = 0.5 * w.state[it.LENGTH] / max(w.q.shape[0] - 1, 1)
    while it.goes_on(c, T, kind, s, trace, w, out):
        it.hold_columns_at_limits(c, w)
        selectively_damped_step(w, rows, s[LARGEST_STEP], length, phi)
        if it.move(c, w.q, w.dq) < 1e-9:
            it.nudge(c, w, 1e-2)
    it.conclude(c, T, kind, s, w, out)
    return r.FINE


@dataclass(frozen=True)
class SelectivelyDamped(KernelSolver):
    """Damped least squares that choose their own damping per direction; any chain, pose, point or axis targets."""

    kernel = solve_selectively_damped

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    largest_step: float = float(np.pi / 4)
    """γ_max, most that a joint turns in one iteration [rad or m]."""
    max_iterations: int = 1500
    """Budget over all restarts."""
    restarts: int = 50
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""

    def settings(self) -> tuple[float, ...]:
        """In the order of iterating.py, then LARGEST_STEP."""
        return (self.max_iterations, self.restarts, self.seed, self.max_seconds, 20, 0.9, self.largest_step)
