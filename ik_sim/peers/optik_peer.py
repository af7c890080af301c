"""OptIK: SLSQP with restarts in Rust."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class Optik(Peer):
    """Speed mode with tol_f 1e-13, 50 ms, one thread; "default": its own 100 ms and tol_f, on one thread too."""

    package, requirements, environment, licence = "optik", ("optik-py",), "compiled", "MIT OR Apache-2.0"
    variants: ClassVar = {
        "": {"solution_mode": "speed", "seconds": 0.05, "restarts": None, "tol_f": 1e-13},
        "default": {"seconds": 0.1, "restarts": None},
    }

    def __init__(self, arm: Arm, seconds: float, restarts: int | None, **config: Any) -> None:
        """`config` of `SolverConfig`."""
        import optik  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.robot = optik.Robot.from_urdf_file(arm.urdf_path, arm.base_link, arm.tool_link)
        self.robot.set_parallelism(1)
        if restarts is not None:
            config["max_restarts"] = restarts
        self.config = optik.SolverConfig(max_time=seconds, **config)

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """None when the time is up."""
        answer = self.robot.ik(self.config, T, q_seed)
        return (None, False, None) if answer is None else (np.array(answer[0]), True, None)

    def fk(self, q: Any) -> Any:
        """Of the URDF."""
        return np.array(self.robot.fk(np.array(q)))
