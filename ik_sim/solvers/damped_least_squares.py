"""Damped least squares: q ← q + Jᵀ(J Jᵀ + λ²I)⁻¹ e.

λ trades speed for calm: away from singular postures a step loses a share λ²/(σ² + λ²) along the direction with
singular value σ, so a small λ is nearly Newton's step; near a singular posture σ → 0 and λ keeps the step below
|e|/(2λ), where the pseudo-inverse (λ = 0) would throw the joints about. Limits act inside the step: a joint that is
pushed over its limit is held and the step solved again for the others.

A redundant arm can follow a second wish in the null space of the task: stay near a posture, stay away from limits,
keep the elbow on one side. The wish goes through I − J⁺J with the true pseudo-inverse, so it can't disturb the task.

Sources: Nakamura & Hanafusa 1986; Wampler 1986; Buss 2004 (survey).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ik_sim.chain import AXES, CENTRE, DOF, JOINTS, LOWER, UPPER, Chain
from ik_sim.compiled import kernel
from ik_sim.errors import InvalidArgumentError
from ik_sim.linear import svd_rows
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import POINT, Tolerance

DAMPING, LARGEST_ERROR, POSTURE_GAIN, LIMIT_GAIN, ELBOW_GAIN, ELBOW_X, ELBOW_Y, ELBOW_Z, POSTURE = (
    it.OWN + i for i in range(9)
)  # fmt: skip


@kernel
def solve_damped_least_squares(c, T, kind, q_seed, s, out):
    """The method above, from the seed and then from random starts."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    if s[POSTURE_GAIN] != 0.0 and s.shape[0] != POSTURE + int(c[DOF]):
        return r.BAD_SETTINGS
    w = it.start(c, s, out)
    trace = r.trace_rows(c, out)
    second = s[POSTURE_GAIN] != 0.0 or s[LIMIT_GAIN] != 0.0 or s[ELBOW_GAIN] != 0.0
    z = np.zeros(w.q.shape[0])
    while it.goes_on(c, T, kind, s, trace, w, out):
        energy = 0.0
        for j in range(6):
            energy += w.e[j] * w.e[j]
        if second:  # before the step is solved: `damped_step` leaves J as it is, but e is about to be shortened
            _second_objective(c, kind, s, w, z)
        _shorten(w, s[LARGEST_ERROR])
        it.damped_step(c, w.J, w.e, w.A, w.dq, w.held, w.q, s[DAMPING] * s[DAMPING])
        for i in range(w.q.shape[0]):
            w.dq[i] += z[i]
        if it.move(c, w.q, w.dq) < 1e-9 and energy > 1e-12:
            it.nudge(c, w, 1e-2)
    it.conclude(c, T, kind, s, w, out)
    return r.FINE


@kernel
def _shorten(w, most):
    """Scale the position and the rotation part of the error down to at most `most` [m] and half a radian each."""
    size = np.sqrt(w.e[0] * w.e[0] + w.e[1] * w.e[1] + w.e[2] * w.e[2])
    if size > most:
        for i in range(3):
            w.e[i] *= most / size
    size = np.sqrt(w.e[3] * w.e[3] + w.e[4] * w.e[4] + w.e[5] * w.e[5])
    if size > 0.5:
        for i in range(3, 6):
            w.e[i] *= 0.5 / size


@kernel
def _second_objective(c, kind, s, w, z):
    """z = (I − J⁺J) of minus the gradients of the wishes."""
    n = w.q.shape[0]
    lower, upper = int(c[LOWER]), int(c[UPPER])
    wish = w.dq  # scratch until the step is solved
    for i in range(n):
        low, high = c[lower + i], c[upper + i]
        wish[i] = -s[POSTURE_GAIN] * (w.q[i] - s[POSTURE + i])
        if np.isfinite(low) and np.isfinite(high) and high > low:
            wish[i] -= s[LIMIT_GAIN] * (w.q[i] - 0.5 * (low + high)) / ((high - low) * (high - low)) * 4.0
    if s[ELBOW_GAIN] != 0.0:
        _elbow_wish(c, s, w, wish)
    rows = 3 if kind == POINT else 6
    svd_rows(w.J, rows, n, w.W, w.V, w.sigma)
    largest = 0.0
    for i in range(rows):
        largest = max(largest, w.sigma[i])
    for i in range(n):
        z[i] = wish[i]
    for i in range(rows):
        if w.sigma[i] > 1e-6 * largest:
            along = 0.0
            for k in range(n):
                along += w.W[i, k] * wish[k]
            along /= w.sigma[i] * w.sigma[i]
            for k in range(n):
                z[k] -= along * w.W[i, k]
    size = 0.0
    for i in range(n):
        size = max(size, abs(z[i]))
    if size > 0.2:
        for i in range(n):
            z[i] *= 0.2 / size


@kernel
def _elbow_wish(c, s, w, wish):
    """Turn the elbow, the joint farthest from the line between first joint and tool, towards the wished direction."""
    m = int(c[JOINTS])
    ax, ay, az = c[CENTRE], c[CENTRE + 1], c[CENTRE + 2]
    a = int(c[AXES])
    last = m - 1
    bx, by, bz = w.axes[last, 3] - ax, w.axes[last, 4] - ay, w.axes[last, 5] - az
    size = np.sqrt(bx * bx + by * by + bz * bz)
    if size < 1e-9:
        return
    bx, by, bz = bx / size, by / size, bz / size
    farthest, elbow = 0.0, -1
    for j in range(m):
        px, py, pz = w.axes[j, 3] - ax, w.axes[j, 4] - ay, w.axes[j, 5] - az
        along = px * bx + py * by + pz * bz
        off = (px - along * bx) ** 2 + (py - along * by) ** 2 + (pz - along * bz) ** 2
        if off > farthest * 1.0001 + 1e-12:
            farthest, elbow = off, j
    if elbow < 0:
        return
    ex, ey, ez = w.axes[elbow, 3], w.axes[elbow, 4], w.axes[elbow, 5]
    for j in range(elbow + 1):
        k = int(c[a + 4 * j + 1])
        if c[a + 4 * j] != 0.0:
            continue
        dx, dy, dz = ex - w.axes[j, 3], ey - w.axes[j, 4], ez - w.axes[j, 5]
        vx = w.axes[j, 1] * dz - w.axes[j, 2] * dy
        vy = w.axes[j, 2] * dx - w.axes[j, 0] * dz
        vz = w.axes[j, 0] * dy - w.axes[j, 1] * dx
        wish[k] += s[ELBOW_GAIN] * c[a + 4 * j + 2] * (vx * s[ELBOW_X] + vy * s[ELBOW_Y] + vz * s[ELBOW_Z])


@dataclass(frozen=True)
class DampedLeastSquares(KernelSolver):
    """Newton-like steps that stay bounded near singular configurations; any chain, pose, point or axis targets."""

    kernel = solve_damped_least_squares

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    damping: float = 0.02
    """λ. Raise it if the arm jerks near singularities; lower it if convergence is slow. 0 is the pseudo-inverse."""
    largest_error: float = 0.2
    """Position errors are shortened to this before a step [m]; about half a link."""
    max_iterations: int = 1000
    """Budget over all restarts."""
    restarts: int = 50
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""
    posture: tuple[float, ...] = ()
    """A configuration to stay near where the task leaves freedom [rad or m]; empty: none."""
    posture_gain: float = 0.1
    """How strongly `posture` pulls, per iteration."""
    limit_gain: float = 0.0
    """How strongly joints are drawn to the middle of their limits in the null space, per iteration."""
    elbow: tuple[float, ...] = ()
    """A direction in base axes to keep the elbow towards; empty: none."""
    elbow_gain: float = 0.3
    """How strongly `elbow` pulls, per iteration."""

    def __post_init__(self) -> None:
        """Check what the types can't."""
        if self.damping < 0.0:
            raise InvalidArgumentError("damping", f"must be 0 or above, not {self.damping}")
        if len(self.elbow) not in (0, 3):
            raise InvalidArgumentError("elbow", f"must be a direction of 3 numbers, not {len(self.elbow)}")
        super().__post_init__()

    def misfit(self, chain: Chain) -> InvalidArgumentError:
        """A posture for another number of joints."""
        names = ", ".join(chain.joint_names)
        return InvalidArgumentError("posture", f"{len(self.posture)} given, {chain.n} wanted: {names}")

    def settings(self) -> tuple[float, ...]:
        """In the order of iterating.py, then the constants above."""
        common = (self.max_iterations, self.restarts, self.seed, self.max_seconds, 30, 0.9)
        elbow = self.elbow or (0.0, 0.0, 0.0)
        size = max(float(np.linalg.norm(elbow)), 1e-300)
        return (
            *common, self.damping, self.largest_error, self.posture_gain if self.posture else 0.0, self.limit_gain,
            self.elbow_gain if self.elbow else 0.0, *(x / size for x in elbow), *self.posture,
        )  # fmt: skip
