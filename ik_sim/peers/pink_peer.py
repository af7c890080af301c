"""Pink: differential inverse kinematics as a quadratic program over Pinocchio."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class Pink(Peer):
    """A frame task with gain 1 and lm_damping 1e-6, steps of 1 s, daqp, up to 200; "default": its examples' 5 ms steps."""

    package, requirements, environment, licence = "pink", ("pin-pink", "daqp"), "pinocchio", "Apache-2.0"
    slow = True
    variants: ClassVar = {
        "": {"dt": 1.0, "steps": 200, "seconds": None, "lm_damping": 1e-6},
        "default": {"dt": 0.005, "steps": 200, "seconds": None, "lm_damping": 0.0},
    }

    def __init__(self, arm: Arm, dt: float, steps: int, seconds: float | None, lm_damping: float) -> None:
        """See `variants`."""
        import pink  # pyright: ignore[reportMissingImports]
        import pinocchio  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.pink, self.pin = pink, pinocchio
        self.model = pinocchio.buildModelFromUrdf(arm.urdf_path)
        self.model.velocityLimit[:] = 1e6  # the step is the user's matter here, not the arm's speed
        self.data = self.model.createData()
        self.task = pink.tasks.FrameTask(arm.tool_link, position_cost=1.0, orientation_cost=1.0, lm_damping=lm_damping)
        self.dt, self.steps, self.seconds = dt, steps, seconds

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """Until the error of the task is below 5e-7."""
        self.task.set_target(self.pin.SE3(T[:3, :3], T[:3, 3]))
        q = np.clip(q_seed, self.model.lowerPositionLimit, self.model.upperPositionLimit)
        configuration = self.pink.Configuration(self.model, self.data, q)
        until = None if self.seconds is None else time.perf_counter() + self.seconds
        for i in range(self.steps):
            if np.linalg.norm(self.task.compute_error(configuration)) < 5e-7:
                return configuration.q.copy(), True, i
            if until is not None and time.perf_counter() > until:
                return configuration.q.copy(), False, i
            try:
                velocity = self.pink.solve_ik(configuration, [self.task], self.dt, solver="daqp", safety_break=False)
            except Exception:  # the quadratic program had no solution at this point
                break
            q = np.clip(configuration.integrate(velocity, self.dt), self.arm.lower, self.arm.upper)
            configuration.update(q)
        return configuration.q.copy(), False, self.steps

    def fk(self, q: Any) -> Any:
        """Of Pinocchio."""
        return (
            self.pink.Configuration(self.model, self.data, np.array(q))
            .get_transform_frame_to_world(self.arm.tool_link)
            .homogeneous
        )
