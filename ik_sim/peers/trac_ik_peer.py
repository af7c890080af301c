"""TRAC-IK, by pytracik: KDL's Newton and SLSQP racing in two threads (Beeson & Ames 2015)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.dynibo_peer import quat_xyzw
from ik_sim.peers.peer import Answer, Arm, Peer


class TracIk(Peer):
    """Speed mode, 20 ms, eps 5e-7; "default" is 5 ms and 1e-5. It runs two threads and can't be told to run one."""

    package, requirements, environment, licence = "pytracik", ("pytracik",), "compiled", "MIT"
    variants: ClassVar = {"": {"seconds": 0.02, "epsilon": 5e-7}, "default": {"seconds": 0.005, "epsilon": 1e-5}}
    fk_tolerance = 1e-6

    def __init__(self, arm: Arm, seconds: float, epsilon: float) -> None:
        """See `variants`."""
        import pytracik  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        with open(arm.urdf_path, encoding="utf-8") as file:
            urdf = file.read()
        self.module = pytracik
        self.solver = pytracik.TRAC_IK(arm.base_link, arm.tool_link, urdf, seconds, epsilon, pytracik.SolveType.Speed)

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """The compiled call, without the quaternion by eigenvalues of its Python wrapper."""
        answer = self.module.ik(self.solver, q_seed, *T[:3, 3], *quat_xyzw(T))
        good = answer[0] >= 0
        return (np.array(answer[1:]), True, None) if good else (None, False, None)

    def fk(self, q: Any) -> Any:
        """Of KDL."""
        return np.asarray(self.module.fk(self.solver, np.array(q)))
