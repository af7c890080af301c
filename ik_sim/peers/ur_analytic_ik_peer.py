"""ur-analytic-ik: the closed form of Universal Robots' arms with built-in nominal dimensions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer, nearest_legal


class UrAnalyticIk(Peer):
    """All branches with the choice made in NumPy; as "default" its own "closest", which knows no limits."""

    package, requirements, environment = "ur_analytic_ik", ("ur-analytic-ik",), "compiled"
    licence = "MIT"
    variants: ClassVar = {"": {"choose": True}, "default": {"choose": False}}

    def __init__(self, arm: Arm, choose: bool) -> None:
        """`choose`: by limits and whole turns."""
        import ur_analytic_ik  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.choose, self.robot = choose, ur_analytic_ik.ur5

    @classmethod
    def refuses(cls, arm: Arm) -> str:
        """Arms that aren't a UR5: told apart by the pose of its zero posture."""
        if arm.n != 6 or np.abs(arm.fk(np.zeros(6))[:3, 3] - [-0.81725, -0.19145, -0.005491]).max() > 1e-6:
            return "built-in dimensions of Universal Robots' arms; this is no UR5"
        return ""

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """In the base of the DH table."""
        if self.choose:
            q = nearest_legal(self.robot.inverse_kinematics(T), q_seed, self.arm)
            return q, q is not None, None
        rows = self.robot.inverse_kinematics_closest(T, *q_seed)
        return (rows[0], True, None) if len(rows) else (None, False, None)

    def fk(self, q: Any) -> Any:
        """Of the built-in UR5."""
        return self.robot.forward_kinematics(*q)
