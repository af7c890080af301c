"""Pinocchio: no call for inverse kinematics, but a loop in its documentation that everybody copies."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import TURN, Answer, Arm, Peer


class PinocchioLoop(Peer):
    """The documented loop (damped pseudo-inverse on log6) with full steps, eps 5e-7, 60 steps × 31 starts, wrapped.

    "default" is the loop as documented: eps 1e-4, steps of 0.1, 1000 of them, one start.
    """

    package, requirements, environment, licence = "pinocchio", ("pin",), "pinocchio", "BSD-2-Clause"
    variants: ClassVar = {
        "": {"eps": 5e-7, "step": 1.0, "steps": 60, "damping": 1e-6, "restarts": 30, "seconds": None},
        "default": {"eps": 1e-4, "step": 0.1, "steps": 1000, "damping": 1e-12, "restarts": 0, "seconds": None},
    }

    def __init__(
        self, arm: Arm, eps: float, step: float, steps: int, damping: float, restarts: int, seconds: float | None
    ) -> None:
        """See `variants`."""
        import pinocchio  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.pin = pinocchio
        self.model = pinocchio.buildModelFromUrdf(arm.urdf_path)
        self.data = self.model.createData()
        self.frame = self.model.getFrameId(arm.tool_link)
        self.eps, self.step, self.steps, self.starts = eps, step, steps, arm.restarts[:restarts]
        self.seconds, self.until = seconds, np.inf
        self.damp = damping * np.eye(6)
        self.wrap = step == 1.0

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """The seed, then the random starts."""
        if self.seconds is not None:
            self.until = time.perf_counter() + self.seconds
        goal = self.pin.SE3(T[:3, :3], T[:3, 3])
        q, good, spent = self._once(goal, q_seed)
        for start in self.starts:
            if good or (self.seconds is not None and time.perf_counter() > self.until):
                break
            q, good, more = self._once(goal, start)
            spent += more
        return q, good, spent

    def _once(self, goal: Any, start: Any) -> tuple[Any, bool, int]:
        pin, model, data, arm = self.pin, self.model, self.data, self.arm
        q = start
        for i in range(self.steps):
            pin.forwardKinematics(model, data, q)
            pin.updateFramePlacement(model, data, self.frame)
            gap = data.oMf[self.frame].actInv(goal)
            error = pin.log6(gap).vector
            if np.linalg.norm(error) < self.eps:
                if self.wrap:
                    q = q - TURN * np.ceil(np.maximum(q - arm.upper, 0.0) / TURN)
                    q = q + TURN * np.ceil(np.maximum(arm.lower - q, 0.0) / TURN)
                    return q, bool(((q >= arm.lower) & (q <= arm.upper)).all()), i
                return q, True, i
            if self.seconds is not None and time.perf_counter() > self.until:
                return q, False, i
            J = pin.computeFrameJacobian(model, data, q, self.frame, pin.ReferenceFrame.LOCAL)
            J = -pin.Jlog6(gap.inverse()) @ J
            v = -J.T @ np.linalg.solve(J @ J.T + self.damp, error)
            q = pin.integrate(model, q, self.step * v)
        return q, False, self.steps

    def fk(self, q: Any) -> Any:
        """Of the frame."""
        self.pin.forwardKinematics(self.model, self.data, np.array(q))
        self.pin.updateFramePlacement(self.model, self.data, self.frame)
        return self.data.oMf[self.frame].homogeneous
