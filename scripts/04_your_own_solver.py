"""Two solvers of your own, in your own file: one compiled, one in plain Python. Nothing in ik_sim has to know them.

    python scripts/04_your_own_solver.py
    ik-sim solve ur5 --xyz 0.3 -0.4 0.5 --rpy-deg 180 0 0 --solver scripts/04_your_own_solver.py:HeavyBall
    ik-sim track ur5_circle --solver scripts/04_your_own_solver.py:NumpyNewton --quiet

docs/solvers.md says what a solver may rely on and what is asked of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ik_sim import load_robot
from ik_sim.chain import Chain
from ik_sim.compiled import kernel
from ik_sim.se3 import rotation_log
from ik_sim.solvers import KernelSolver, Solution, Status, judge, load_solver
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.target import POSE, Target, Tolerance

# --- compiled: a kernel and the dataclass that holds its settings ---

FRICTION = it.OWN  # where the kernel finds the first setting of its own


@kernel
def heavy_ball(c, T, kind, q_seed, s, out):
    """Steepest descent that keeps part of its last step, as a heavy ball rolls along a narrow valley."""
    code = r.begin(c, T, kind, q_seed, out)  # checks the arguments and moves the seed inside the limits
    if code != r.FINE:
        return code
    w = it.start(c, s, out)
    trace = r.trace_rows(c, out)
    n = w.q.shape[0]
    velocity = np.zeros(n)
    restart = 0.0
    while it.goes_on(c, T, kind, s, trace, w, out):  # measures w.e, w.J at w.q; minds best, budget, trace
        if w.state[it.RESTART] != restart:  # a new start begins at rest
            restart = w.state[it.RESTART]
            velocity[:] = 0.0
        size = 0.0
        for i in range(6):
            for k in range(n):
                size += w.J[i, k] * w.J[i, k]
        for k in range(n):
            slope = 0.0
            for i in range(6):
                slope += w.J[i, k] * w.e[i]
            velocity[k] = (1.0 - s[FRICTION]) * velocity[k] + slope / max(size, 1e-12)
            w.dq[k] = velocity[k]
        it.move(c, w.q, w.dq)  # stays inside the limits
    it.conclude(c, T, kind, s, w, out)  # the judge's verdict, and why it went no further
    return r.FINE


@dataclass(frozen=True)
class HeavyBall(KernelSolver):
    """Steepest descent with momentum; any chain, pose, point or axis targets."""

    kernel = heavy_ball

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    friction: float = 0.1
    """Share of its speed that the ball loses in each iteration, in (0, 1]; 1 is plain steepest descent."""
    max_iterations: int = 20_000
    """Budget over all restarts."""
    restarts: int = 20
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""

    def settings(self) -> tuple[float, ...]:
        """The shared settings in the order of iterating.py, patience and the drop it waits for, then FRICTION."""
        return (self.max_iterations, self.restarts, self.seed, self.max_seconds, 400, 0.5, self.friction)


# --- plain Python: anything that proposes joints, and the judge ---


@dataclass(frozen=True)
class NumpyNewton:
    """Newton's method with numpy's least squares; poses only."""

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict."""
    max_iterations: int = 100
    """Steps over all starts."""
    patience: int = 25
    """Steps from one start."""
    seed: int = 0
    """Of the random starts."""

    def solve(self, chain: Chain, target: Any, q_seed: Any = None) -> Solution:
        """Joints for the target, judged."""
        target = target if isinstance(target, Target) else Target.pose(target)
        q = chain.clip(chain.check_q(chain.q_middle if q_seed is None else q_seed, "q_seed"))
        if target.kind != POSE:
            return judge(chain, target, q, self.stop, status=Status.UNSUPPORTED, solver=self)
        rng = np.random.default_rng(self.seed)
        best, least, steps = q, np.inf, 0
        while True:
            T = chain.fk(q)
            position, turn = target.T[:3, 3] - T[:3, 3], rotation_log(target.T[:3, :3] @ T[:3, :3].T)
            size = np.linalg.norm(position) / self.stop.position + np.linalg.norm(turn) / self.stop.rotation
            if size < least:
                best, least = q, size
            if size <= 1.0 or steps == self.max_iterations:
                break
            steps += 1
            if steps % self.patience == 0:
                q = chain.random_q(rng)
                continue
            error = np.concatenate([position, turn])
            step = np.linalg.lstsq(chain.jacobian(q), error, rcond=1e-3)[0]
            q = chain.clip(q + step * min(1.0, 0.5 / max(np.abs(step).max(), 1e-12)))
        return judge(chain, target, best, self.stop, status=Status.MAX_ITERATIONS, iterations=steps, solver=self)


def main() -> None:
    chain = load_robot("ur5").chain
    rng = np.random.default_rng(4)
    targets = chain.fk_batch(chain.random_q(rng, 100, within=0.5))
    for solver in (HeavyBall(), NumpyNewton(), load_solver("levenberg_marquardt")):
        solver.solve(chain, targets[0])  # the first call compiles
        began = time.perf_counter()
        found = [solver.solve(chain, T, np.zeros(chain.n)) for T in targets]
        spent = time.perf_counter() - began
        print(
            f"{type(solver).__name__:<20} {sum(s.converged for s in found):>3} of 100 random poses, "
            f"{np.median([s.iterations for s in found]):6.0f} iterations, {1e6 * spent / len(found):8.1f} µs a pose"
        )


if __name__ == "__main__":
    main()
