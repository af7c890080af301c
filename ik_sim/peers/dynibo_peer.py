"""dynibo: damped least squares in Rust."""

from __future__ import annotations

import os
import re
import time
from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import TURN, Answer, Arm, Peer


class Dynibo(Peer):
    """On a URDF without limits, 60 steps a start, up to 30 restarts, joints wrapped into the limits afterwards.

    As it stands it checks the limits at the end and raises; "restarts" keeps the limits in the URDF, "default" is one
    start with the options that it comes with.
    """

    package, requirements, environment, licence = "dynibo", ("dynibo",), "compiled", "MIT"
    variants: ClassVar = {
        "": {"steps": 60, "restarts": 30, "seconds": None, "tolerance": 7e-7, "limits": False},
        "restarts": {"steps": 60, "restarts": 30, "seconds": None, "tolerance": 7e-7, "limits": True},
        "default": {"steps": 100, "restarts": 0, "tolerance": 1e-6, "limits": True},
    }

    def __init__(
        self, arm: Arm, steps: int, restarts: int, tolerance: float, limits: bool, seconds: float | None = None
    ) -> None:
        """See `variants`; no start begins after `seconds`."""
        import dynibo  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        path = arm.urdf_path
        if not limits:
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"<limit [^>]*/>", "", file.read().replace('type="revolute"', 'type="continuous"'))
            path = os.path.join(os.path.dirname(path), "unlimited.urdf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.limits, self.starts, self.seconds = limits, arm.restarts[:restarts], seconds
        self.robot = dynibo.Robot.from_urdf(path)
        self.tool = self.robot.link_id(arm.tool_link)
        self.options = dynibo.IkOptions(
            max_iterations=steps, translation_tolerance=tolerance, rotation_tolerance=tolerance, damping=1e-3
        )
        self.pose, self.failed = dynibo.Pose, dynibo.DyniboError

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """The seed, then the random starts."""
        until = None if self.seconds is None else time.perf_counter() + self.seconds
        target = self.pose(translation=tuple(T[:3, 3]), rotation_xyzw=quat_xyzw(T))
        q = self._once(q_seed, target)
        for start in self.starts:
            if q is not None or (until is not None and time.perf_counter() > until):
                break
            q = self._once(start, target)
        return q, q is not None, None

    def _once(self, start: Any, target: Any) -> Any:
        try:
            q = np.asarray(self.robot.inverse_kinematics(np.array(start), self.tool, target, self.options))
        except self.failed:
            return None
        if self.limits:
            return q
        arm = self.arm
        q = q - TURN * np.ceil(np.maximum(q - arm.upper, 0.0) / TURN)
        q = q + TURN * np.ceil(np.maximum(arm.lower - q, 0.0) / TURN)
        return q if ((q >= arm.lower) & (q <= arm.upper)).all() else None

    def fk(self, q: Any) -> Any:
        """From translation and quaternion."""
        pose = self.robot.forward_kinematics(np.array(q), self.tool)
        x, y, z, w = pose.rotation_xyzw
        T = np.eye(4)
        T[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        T[:3, 3] = pose.translation
        return T


def quat_xyzw(T: Any) -> tuple[float, float, float, float]:
    """Quaternion of a rotation: by its largest component, in plain floats, which is faster than NumPy on nine numbers."""
    (a, b, c), (d, e, f), (g, h, i) = T[:3, :3].tolist()
    squares = (1 + a - e - i, 1 - a + e - i, 1 - a - e + i, 1 + a + e + i)
    k = max(range(4), key=squares.__getitem__)
    s = 0.5 / squares[k] ** 0.5
    m = squares[k] * s
    if k == 3:
        return (h - f) * s, (c - g) * s, (d - b) * s, m
    if k == 0:
        return m, (b + d) * s, (c + g) * s, (h - f) * s
    if k == 1:
        return (b + d) * s, m, (f + h) * s, (c - g) * s
    return (c + g) * s, (f + h) * s, m, (d - b) * s
