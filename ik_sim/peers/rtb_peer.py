"""Robotics Toolbox for Python: Levenberg-Marquardt in C++ with restarts (Corke & Haviland 2021)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class RoboticsToolbox(Peer):
    """`ETS.ik_LM` after Chan, with tol 1e-13: it stops on half the squared error, so its default of 1e-6 means 1.4e-3."""

    package, requirements, environment = "roboticstoolbox", ("roboticstoolbox-python",), "python"
    licence = "MIT"
    variants: ClassVar = {
        "": {"steps": 30, "restarts": 99, "tol": 1e-13},
        "default": {"steps": 30, "restarts": 99},
    }

    def __init__(self, arm: Arm, steps: int, restarts: int, **options: Any) -> None:
        """`options` of `ik_LM`."""
        from roboticstoolbox import ET, ETS  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        parts = [ET.SE3(arm.frames[0])]
        for i in range(arm.n):
            parts += [ET.Rz(qlim=[arm.lower[i], arm.upper[i]]), ET.SE3(arm.frames[i + 1])]
        self.ets, self.options = ETS(parts), {"ilimit": steps, "slimit": restarts + 1, **options}

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """30 iterations a search, up to 100 searches, answers outside the limits rejected: its own defaults."""
        answer = self.ets.ik_LM(T, q0=q_seed, **self.options)
        return np.asarray(answer.q), bool(answer.success), answer.iterations

    def fk(self, q: Any) -> Any:
        """Of the transform sequence."""
        return np.asarray(self.ets.fkine(np.array(q)).A)
