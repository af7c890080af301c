"""Cyclic coordinate descent: one joint at a time, each set to the value that brings the tool nearest.

For a hinge with axis z through p, a = tool − p and b = target − p (both without their components along z), the best
turn is atan2(⟨z, a × b⟩, ⟨a, b⟩). With an orientation to meet as well, the tool's axes are pulled along in the same way:
each adds its own sine and cosine part, with a length that weighs angles against distances. A prismatic joint slides by
the component of the error along its axis. One sweep from the last joint to the first is one iteration.

Nothing can blow up and limits are met exactly, but convergence is linear and slow for full poses.

Source: Wang & Chen 1991, "A combined optimization method for solving the inverse kinematics problem of mechanical
manipulators".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ik_sim.chain import AXES, JOINTS, LOWER, UPPER, pose_and_axes
from ik_sim.compiled import kernel
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import AXIS, POINT, Tolerance

WEIGHT = it.OWN


@kernel
def _pull(zx, zy, zz, ax, ay, az, bx, by, bz):
    """Sine and cosine parts of turning a towards b about z: their components across z only."""
    along_a, along_b = ax * zx + ay * zy + az * zz, bx * zx + by * zy + bz * zz
    sine = zx * (ay * bz - az * by) + zy * (az * bx - ax * bz) + zz * (ax * by - ay * bx)
    return sine, ax * bx + ay * by + az * bz - along_a * along_b


@kernel
def sweep(c, T, kind, weight, w):
    """Every joint once, from the last to the first."""
    a = int(c[AXES])
    lower, upper = int(c[LOWER]), int(c[UPPER])
    square = weight * weight
    for j in range(int(c[JOINTS]) - 1, -1, -1):
        p00, p01, p02, p10, p11, p12, p20, p21, p22, x, y, z = pose_and_axes(c, w.q, w.axes)
        k, scale = int(c[a + 4 * j + 1]), c[a + 4 * j + 2]
        if scale == 0.0:
            continue
        zx, zy, zz = w.axes[j, 0], w.axes[j, 1], w.axes[j, 2]
        if c[a + 4 * j] != 0.0:
            step = (T[0, 3] - x) * zx + (T[1, 3] - y) * zy + (T[2, 3] - z) * zz
        else:
            px, py, pz = w.axes[j, 3], w.axes[j, 4], w.axes[j, 5]
            sine, cosine = _pull(zx, zy, zz, x - px, y - py, z - pz, T[0, 3] - px, T[1, 3] - py, T[2, 3] - pz)
            if kind != POINT:
                u, v = _pull(zx, zy, zz, p02, p12, p22, T[0, 2], T[1, 2], T[2, 2])
                sine, cosine = sine + square * u, cosine + square * v
                if kind != AXIS:
                    u, v = _pull(zx, zy, zz, p00, p10, p20, T[0, 0], T[1, 0], T[2, 0])
                    sine, cosine = sine + square * u, cosine + square * v
                    u, v = _pull(zx, zy, zz, p01, p11, p21, T[0, 1], T[1, 1], T[2, 1])
                    sine, cosine = sine + square * u, cosine + square * v
            # A tool or target on the axis leaves the joint as it is.
            step = np.arctan2(sine, cosine) if sine * sine + cosine * cosine > 1e-24 else 0.0
        w.q[k] = min(max(w.q[k] + step / scale, c[lower + k]), c[upper + k])


@kernel
def solve_ccd(c, T, kind, q_seed, s, out):
    """Sweeps, from the seed and then from random starts."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    w = it.start(c, s, out)
    trace = r.trace_rows(c, out)
    weight = s[WEIGHT] * w.state[it.LENGTH] / max(w.q.shape[0], 1)
    while it.goes_on(c, T, kind, s, trace, w, out):
        before = w.q[0]
        changed = 0.0
        for i in range(w.q.shape[0]):
            w.dq[i] = w.q[i]
        sweep(c, T, kind, weight, w)
        for i in range(w.q.shape[0]):
            changed = max(changed, abs(w.q[i] - w.dq[i]))
        if changed < 1e-10 and before == w.q[0]:
            it.nudge(c, w, 1e-2)
    it.conclude(c, T, kind, s, w, out)
    return r.FINE


@dataclass(frozen=True)
class Ccd(KernelSolver):
    """One joint at a time; any chain, pose, point or axis targets."""

    kernel = solve_ccd

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    weight: float = 1.0
    """How much a radian counts against the mean link length. Larger meets orientations first."""
    max_iterations: int = 5000
    """Sweeps, over all restarts."""
    restarts: int = 30
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""

    def settings(self) -> tuple[float, ...]:
        """In the order of iterating.py, then WEIGHT."""
        return (self.max_iterations, self.restarts, self.seed, self.max_seconds, 200, 0.9, self.weight)
