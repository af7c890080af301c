"""cartan: projected Levenberg-Marquardt with Halton restarts in C++."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class Cartan(Peer):
    """`solve_ik_speed` with 2000 work units; as "default" `solve_ik` with its own configuration (200 units)."""

    package, requirements, environment, licence = "cartan", ("cartan-bindings",), "compiled", "Apache-2.0"
    variants: ClassVar = {"": {"steps": 2000, "tolerance": 9e-7}, "default": {"steps": 200, "tolerance": 1e-6}}

    def __init__(self, arm: Arm, steps: int, tolerance: float) -> None:
        """`steps`: units of work over all of its restarts; 200 and 1e-6 are its own defaults."""
        import cartan  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        self.cartan = cartan
        self.chain = cartan.load_urdf(arm.urdf_path).chain
        self.call = cartan.solve_ik_speed if tolerance < 1e-6 else cartan.solve_ik
        self.config = cartan.IkConfig(max_total_work_units=steps, max_total_iterations=max(steps, 500),
                                      position_tol=tolerance, orientation_tol=tolerance)  # fmt: skip

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """Iterations are its work units."""
        result = self.call(self.chain, self.cartan.SE3.from_matrix(T), np.array(q_seed), self.config)
        return result.q, result.converged, result.iterations

    def fk(self, q: Any) -> Any:
        """Of its chain."""
        return self.cartan.forward_kinematics(self.chain, np.array(q)).matrix()
