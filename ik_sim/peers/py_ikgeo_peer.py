"""py-ikgeo-kinematics: subproblem closed forms in Rust for six joints."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer, nearest_legal


class Pose:
    """All that `inverse` asks of a pose. SciPy's RigidTransform takes ten times as long to make as the solve."""

    def __init__(self, T: Any) -> None:
        """A 4 × 4 matrix."""
        self.T = T

    def as_matrix(self) -> Any:
        """As it is."""
        return self.T


class PyIkgeo(Peer):
    """Branches in the order of the seed; the limits are checked here, as its user would have to; poses without SciPy.

    "default" makes SciPy's RigidTransform, as its documentation does, and takes the first branch.
    """

    package, requirements, environment = "py_ikgeo_kinematics", ("py-ikgeo-kinematics",), "compiled"
    licence = "MIT"
    variants: ClassVar = {"": {"choose": True}, "default": {"choose": False}}

    def __init__(self, arm: Arm, choose: bool) -> None:
        """`choose`: by limits and whole turns; otherwise its first branch counts."""
        from py_ikgeo_kinematics import KinematicModel, Robot  # pyright: ignore[reportMissingImports]
        from scipy.spatial.transform import RigidTransform

        super().__init__(arm)
        self.choose = choose
        H, P, self.R_tool = arm.screws()
        self.R_back = self.R_tool.T.copy()
        self.pose = Pose if choose else RigidTransform.from_matrix
        self.robot = Robot(KinematicModel(H.T.copy(), P.T.copy()), degrees=False)

    @classmethod
    def refuses(cls, arm: Arm) -> str:
        """Other numbers of joints."""
        return "" if arm.n == 6 else "6 joints only"

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """With the seed as `current_joints`."""
        goal = T.copy()
        goal[:3, :3] = T[:3, :3] @ self.R_back
        rows = self.robot.inverse(self.pose(goal), current_joints=q_seed)
        if not len(rows):
            return None, False, None
        if not self.choose:
            return rows[0], True, None
        q = nearest_legal(rows, q_seed, self.arm)
        return q, q is not None, None

    def fk(self, q: Any) -> Any:
        """Of the product of exponentials."""
        T = np.array(self.robot.forward(q).as_matrix())
        T[:3, :3] = T[:3, :3] @ self.R_tool
        return T
