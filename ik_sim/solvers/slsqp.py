"""SLSQP on the whole chain: minimise |e|², e the position and rotation error, over all joints within their limits.

The gradient −2 Jᵀe is exact: along a rotation the squared length of the rotation vector grows as if the axes were
fixed. Local minima exist, above all with limits, so a run that ends short of the target starts again at random.

Source: Kraft 1988, as implemented in NLopt (LD_SLSQP); the use for whole chains as in TRAC-IK, Beeson & Ames 2015.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import carray

from ik_sim.chain import DOF, JOINTS, LOWER, UPPER
from ik_sim.compiled import callback, kernel
from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import iterating as it
from ik_sim.solvers import nlopt_c
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import KernelSolver
from ik_sim.target import Tolerance

OBJECTIVE, EVALUATIONS_A_RUN = it.OWN, it.OWN + 1

# The objective's block behind PARAMETERS: its own size, the target's kind, the number of moving joints, the target,
# room for axes, J and e, then the chain.
KIND, MOVING, TARGET = (nlopt_c.PARAMETERS + i for i in range(3))
ROOM = TARGET + 16


@kernel
def chain_block(c, T, kind, evaluations):
    """The data block of the objective for this chain and target, with room to log so many evaluations."""
    n, m = int(c[DOF]), int(c[JOINTS])
    start = ROOM + 6 * m + 6 * n + 6
    size = start + c.shape[0]
    data = np.empty(size + evaluations * (n + 1))
    data[nlopt_c.LOG], data[nlopt_c.LOGGED] = float(size), float(evaluations)
    data[KIND], data[MOVING] = float(kind), float(m)
    for i in range(4):
        for k in range(4):
            data[TARGET + 4 * i + k] = T[i, k]
    for i in range(c.shape[0]):
        data[start + i] = c[i]
    return data


@kernel
def chain_miss(x, gradient, wants_gradient, data, n, m):
    """|e|² and, if wanted, its gradient, on a block made by `chain_block`."""
    start = ROOM + 6 * m + 6 * n + 6
    axes = data[ROOM : ROOM + 6 * m].reshape((m, 6))
    J = data[ROOM + 6 * m : ROOM + 6 * m + 6 * n].reshape((6, n))
    e = data[start - 6 : start]
    it.error_and_jacobian(data[start:], data[TARGET : TARGET + 16].reshape((4, 4)), int(data[KIND]), x, e, J, axes)
    f = 0.0
    for j in range(6):
        f += e[j] * e[j]
    if wants_gradient:
        for k in range(n):
            g = 0.0
            for j in range(6):
                g -= 2.0 * J[j, k] * e[j]
            gradient[k] = g
    return f


@functools.cache
def chain_objective() -> float:
    """Address of the callback of :func:`chain_miss`."""

    @callback(nlopt_c.OBJECTIVE)
    def whole_chain(k: Any, x: Any, gradient: Any, block: Any) -> Any:
        n: Any = np.int64(k)
        size: Any = np.int64(block[nlopt_c.LOG]) + np.int64(block[nlopt_c.LOGGED]) * (n + 1)
        data = carray(block, (size,))
        point = carray(x, (n,))
        f = chain_miss(point, carray(gradient, (n,)), nlopt_c.address(gradient) != 0, data, n, int(data[MOVING]))
        nlopt_c.note(data, point, n, f)
        return f

    return nlopt_c.keep(whole_chain)


@kernel
def run_chain(c, T, kind, s, w, data, objective, lower, upper, most, trace):
    """One bounded SLSQP run from w.q, which gets the best point. Returns its evaluations, each a row of the trace."""
    nlopt_c.minimise(
        objective, w.q, lower, upper, True, data, nlopt_c.PRECISE,
        min(s[r.TOLERANCE_POSITION], s[r.TOLERANCE_ROTATION]), most,
    )  # fmt: skip
    for i in range(w.q.shape[0]):
        w.q[i] = min(max(w.q[i], lower[i]), upper[i])
    if trace.shape[0] > 0:
        st = w.state
        log = nlopt_c.logged(data, w.q.shape[0])
        for i in range(log.shape[0]):
            if st[it.ROWS] < trace.shape[0]:
                row = trace[int(st[it.ROWS])]
                row[0] = 100.0 * st[it.RESTART] + 1.0
                row[1], row[2] = r.pose_errors(c, T, kind, log[i, 1:])
                r.copy(log[i, 1:], row[3:])
                st[it.ROWS] += 1.0
    return data[nlopt_c.COUNT]


@kernel
def solve_slsqp(c, T, kind, q_seed, s, out):
    """Bounded runs, from the seed and then from random starts."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    n = int(c[DOF])
    w = it.start(c, s, out)
    trace = r.trace_rows(c, out)
    data = chain_block(c, T, kind, min(trace.shape[0], int(s[EVALUATIONS_A_RUN])))
    lower, upper = np.empty(n), np.empty(n)
    for i in range(n):
        lower[i], upper[i] = c[int(c[LOWER]) + i], c[int(c[UPPER]) + i]
    st = w.state
    evaluations, runs = 0.0, 0.0
    going = it.goes_on(c, T, kind, s, trace, w, out)
    while going:
        if runs == 0.0:
            it.nudge(c, w, 1e-4)  # off a straight chain, where the gradient vanishes
        most = int(min(s[EVALUATIONS_A_RUN], s[it.MAX_ITERATIONS] - st[it.ITERATION] + 1.0))
        used = run_chain(c, T, kind, s, w, data, s[OBJECTIVE], lower, upper, most, trace)
        evaluations += used
        runs += 1.0
        st[it.ITERATION] += used - 1.0
        st[it.WAITED] = s[it.PATIENCE]  # a finished run has nothing to wait for: the next start is random
        st[it.LAST_BEST] = 0.0
        going = it.goes_on(c, T, kind, s, trace, w, out)
    it.conclude(c, T, kind, s, w, out)
    out[n + r.EVALUATIONS] = evaluations
    out[n + r.SLSQP_RUNS] = runs
    return r.FINE


@dataclass(frozen=True)
class Slsqp(KernelSolver):
    """Sequential quadratic programming over all joints, with bounds; any chain, pose, point or axis targets."""

    kernel = solve_slsqp

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    max_iterations: int = 2000
    """Evaluations of the objective, over all restarts."""
    restarts: int = 50
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time, looked at between runs [s]; 0 for none."""
    evaluations_a_run: int = 100
    """Cap for one start."""

    def __post_init__(self) -> None:
        """Check the budget."""
        if self.evaluations_a_run < 2:
            raise InvalidArgumentError("evaluations_a_run", f"must be at least 2, not {self.evaluations_a_run}")
        super().__post_init__()

    def _prepare(self) -> None:
        nlopt_c.load()
        self._settings[OBJECTIVE] = chain_objective()  # type: ignore[attr-defined]

    def settings(self) -> tuple[float, ...]:
        """In the order of iterating.py, then the constants above."""
        return (self.max_iterations, self.restarts, self.seed, self.max_seconds, 1, 0.5, 0.0, self.evaluations_a_run)
