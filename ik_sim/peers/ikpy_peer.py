"""IKPy: SciPy's least squares over a URDF chain, in Python."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class IkPy(Peer):
    """`inverse_kinematics_frame(orientation_mode="all")` with tol 1e-12; "default" leaves the tolerance alone.

    A budget of iterations becomes its `optimizer_budget`, in evaluations.
    """

    package, requirements, environment, licence = "ikpy", ("ikpy",), "python", "Apache-2.0"
    slow = True
    variants: ClassVar = {"": {"tol": 1e-12, "steps": None}, "default": {"steps": None}}

    def __init__(self, arm: Arm, steps: int | None, **options: Any) -> None:
        """`options` of the call."""
        import warnings

        from ikpy.chain import Chain  # pyright: ignore[reportMissingImports]

        super().__init__(arm)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mask = [False, *[True] * arm.n, False]
            self.chain = Chain.from_urdf_file(arm.urdf_path, base_elements=[arm.base_link], active_links_mask=mask)
        self.options = options if steps is None else {**options, "optimizer_budget": steps}

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """It doesn't say whether it arrived, so it claims nothing."""
        start = np.concatenate([[0.0], q_seed, [0.0]])
        answer = self.chain.inverse_kinematics_frame(T, initial_position=start, orientation_mode="all", **self.options)
        return answer[1:-1], False, None

    def fk(self, q: Any) -> Any:
        """Of the chain."""
        return np.asarray(self.chain.forward_kinematics([0.0, *q, 0.0]))
