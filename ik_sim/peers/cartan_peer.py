"""cartan: projected Levenberg-Marquardt with Halton restarts in C++."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class Cartan(Peer):
    """`solve_ik_speed` with 2000 work units; as "default" `solve_ik` with its own configuration (200 units)."""

    package, requirements, environment, licence = "cartan", ("cartan-bindings",), "compiled", "Apache-2.0"
    variants: ClassVar = {"": {"units": 2000, "tolerance": 9e-7}, "default": {"units": 0, "tolerance": 0.0}}

    def __init__(self, arm: Arm, units: int, tolerance: float) -> None:
        """`units`: of work; 0 leaves every default."""
        import cartan  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.cartan = cartan
        self.chain = cartan.load_urdf(arm.urdf_path).chain
        if units:
            self.call = cartan.solve_ik_speed
            self.config = cartan.IkConfig(max_total_work_units=units, max_total_iterations=units,
                                          position_tol=tolerance, orientation_tol=tolerance)  # fmt: skip
        else:
            self.call, self.config = cartan.solve_ik, cartan.IkConfig()

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """Iterations are its work units."""
        result = self.call(self.chain, self.cartan.SE3.from_matrix(T), np.array(q_seed), self.config)
        return result.q, result.converged, result.iterations

    def fk(self, q: Any) -> Any:
        """Of its chain."""
        return self.cartan.forward_kinematics(self.chain, np.array(q)).matrix()
