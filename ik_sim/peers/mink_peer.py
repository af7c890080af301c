"""mink: differential inverse kinematics as a quadratic program over MuJoCo."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class Mink(Peer):
    """A frame task with gain 1 and lm_damping 1e-6, steps of 1 s, daqp, up to 200; "default": its examples' 2 ms steps."""

    package, requirements, environment, licence = "mink", ("mink", "daqp"), "mujoco", "Apache-2.0"
    slow = True
    variants: ClassVar = {
        "": {"dt": 1.0, "steps": 200, "seconds": None, "lm_damping": 1e-6},
        "default": {"dt": 0.002, "steps": 200, "seconds": None, "lm_damping": 1.0},
    }

    def __init__(self, arm: Arm, dt: float, steps: int, seconds: float | None, lm_damping: float) -> None:
        """See `variants`."""
        import mink  # pyright: ignore[reportMissingImports]
        import mujoco  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.mink, self.mujoco = mink, mujoco
        self.model = mujoco.MjModel.from_xml_string(_mjcf(arm))
        self.task = mink.FrameTask(
            "tool", "site", position_cost=1.0, orientation_cost=1.0, gain=1.0, lm_damping=lm_damping
        )
        self.limits = [mink.ConfigurationLimit(self.model, gain=1.0)]
        self.configuration = mink.Configuration(self.model)
        self.dt, self.steps, self.seconds = dt, steps, seconds

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """Until the error of the task is below 5e-7."""
        self.task.set_target(self.mink.SE3.from_matrix(T))
        configuration = self.configuration
        configuration.update(np.clip(q_seed, self.arm.lower, self.arm.upper))
        until = None if self.seconds is None else time.perf_counter() + self.seconds
        for i in range(self.steps):
            if np.linalg.norm(self.task.compute_error(configuration)) < 5e-7:
                return configuration.q.copy(), True, i
            if until is not None and time.perf_counter() > until:
                return configuration.q.copy(), False, i
            try:
                velocity = self.mink.solve_ik(configuration, [self.task], self.dt, "daqp", limits=self.limits)
            except Exception:  # the quadratic program had no solution at this point
                break
            configuration.update(np.clip(configuration.q + self.dt * velocity, self.arm.lower, self.arm.upper))
        return configuration.q.copy(), False, self.steps

    def fk(self, q: Any) -> Any:
        """Of the site."""
        self.configuration.update(np.array(q, dtype=float))
        return self.configuration.get_transform_frame_to_world("tool", "site").as_matrix()


def _mjcf(arm: Arm) -> str:
    text = ""
    for i in range(arm.n):
        frame = arm.frames[i]
        text += (
            f'<body name="b{i}" pos="{_numbers(frame[:3, 3])}" xyaxes="{_numbers([*frame[:3, 0], *frame[:3, 1]])}">'
            f'<joint type="hinge" axis="0 0 1" limited="true" range="{arm.lower[i]:.17g} {arm.upper[i]:.17g}"/>'
            '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
        )
    last = arm.frames[-1]
    text += f'<site name="tool" pos="{_numbers(last[:3, 3])}" xyaxes="{_numbers([*last[:3, 0], *last[:3, 1]])}"/>'
    return f'<mujoco><compiler angle="radian"/><worldbody>{text}{"</body>" * arm.n}</worldbody></mujoco>'


def _numbers(values: Any) -> str:
    return " ".join(f"{x:.17g}" for x in values)
