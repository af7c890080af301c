"""EAIK: closed forms by subproblem decomposition (Ostermeier, Külz & Althoff 2025)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer, nearest_legal


class Eaik(Peer):
    """Six joints directly; seven by locking the third at 72 values, the seed's first.

    EAIK knows no limits and no seed: the choice among its branches is made here in NumPy, as its user would have to.
    """

    package, requirements, environment, licence = "eaik", ("eaik",), "compiled", "BSD-3-Clause"
    variants: ClassVar = {"": {"choose": True}, "default": {"choose": False}}

    def __init__(self, arm: Arm, choose: bool) -> None:
        """`choose`: by limits and seed; otherwise the first exact branch counts, whatever the limits."""
        from eaik.IK_HP import HPRobot  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.choose = choose
        H, P, self.R_tool = arm.screws()
        self.R_back = self.R_tool.T.copy()
        self.build = lambda value: HPRobot(H, P, fixed_axes=[] if value is None else [(2, value)])
        self.values: list[float] = [] if arm.n == 6 else np.linspace(arm.lower[2], arm.upper[2], 74)[1:-1].tolist()
        self.locked = [self.build(value) for value in self.values]
        self.whole = self.build(None) if arm.n == 6 else None

    @classmethod
    def refuses(cls, arm: Arm) -> str:
        """Other numbers of joints."""
        return "" if arm.n in (6, 7) else "closed forms for 6 joints, or 7 with one locked"

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """Branches flagged as least-squares approximations are dropped."""
        goal = T.copy()
        goal[:3, :3] = T[:3, :3] @ self.R_back
        if self.whole is not None:
            return self._pick(self._rows(self.whole, goal), q_seed)
        for i in np.argsort(np.abs(np.array(self.values) - q_seed[2])):
            rows = self._rows(self.locked[i], goal)
            if len(rows):
                if rows.shape[1] == 6:
                    rows = np.insert(rows, 2, self.values[i], axis=1)
                q, good, _ = self._pick(rows, q_seed)
                if good:
                    return q, True, None
        return None, False, None

    @staticmethod
    def _rows(robot: Any, T: Any) -> Any:
        answer = robot.IK(T)
        rows = np.asarray(answer.Q)
        return rows[~np.asarray(answer.is_LS, dtype=bool)] if len(rows) else rows

    def _pick(self, rows: Any, q_seed: Any) -> Answer:
        if not len(rows):
            return None, False, None
        if not self.choose:
            return rows[0], True, None
        q = nearest_legal(rows, q_seed, self.arm)
        return q, q is not None, None

    def fk(self, q: Any) -> Any:
        """Of the arm with joint 3 locked where it stands, if it has seven."""
        T = np.array((self.whole or self.build(float(q[2]))).fwdKin(np.array(q)))
        T[:3, :3] = T[:3, :3] @ self.R_tool
        return T
