"""SciPy: what one writes in ten minutes without any library for robots."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class ScipyLeastSquares(Peer):
    """`least_squares` (trf) with bounds and finite differences over a NumPy forward kinematics; up to 20 restarts."""

    package, requirements, environment, licence = "scipy", ("scipy",), "python", "BSD-3-Clause"
    slow = True
    variants: ClassVar = {
        "": {"steps": None, "restarts": 20, "seconds": None, "tight": True},
        "default": {"steps": None, "restarts": 0, "tight": False},
    }

    def __init__(self, arm: Arm, steps: int | None, restarts: int, tight: bool, seconds: float | None = None) -> None:
        """`steps`: evaluations a start; `tight`: tolerances of 1e-15, not SciPy's 1e-8; no start after `seconds`."""
        from scipy.optimize import least_squares

        super().__init__(arm)
        self.least_squares, self.starts, self.seconds = least_squares, arm.restarts[:restarts], seconds
        self.options: dict[str, Any] = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15} if tight else {}
        self.options["max_nfev"] = steps
        self.inside = 1e-9 * (arm.upper - arm.lower)

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """Claims success where its own residual is below 5e-7."""
        until = None if self.seconds is None else time.perf_counter() + self.seconds
        spent = 0
        q = q_seed
        for start in (q_seed, *self.starts):
            x0 = np.clip(start, self.arm.lower + self.inside, self.arm.upper - self.inside)
            answer = self.least_squares(
                self._residual, x0, bounds=(self.arm.lower, self.arm.upper), args=(T,), **self.options
            )
            q, spent = answer.x, spent + answer.nfev
            if np.sqrt(2.0 * answer.cost) < 5e-7:
                return q, True, spent
            if until is not None and time.perf_counter() > until:
                break
        return q, False, spent

    def _residual(self, q: Any, T: Any) -> Any:
        is_ = self.arm.fk(q)
        turn = is_[:3, :3] @ T[:3, :3].T
        w = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
        if turn.trace() < 1.0:  # beyond a right angle the sine falls again; the angle doesn't
            size = np.linalg.norm(w)
            w = (
                w * (np.arctan2(size, 0.5 * (turn.trace() - 1.0)) / size)
                if size > 1e-9
                else np.array([np.pi, 0.0, 0.0])
            )
        return np.concatenate([is_[:3, 3] - T[:3, 3], w])

    def fk(self, q: Any) -> Any:
        """The product that a user would write."""
        return self.arm.fk(q)
