"""ssik: generated closed forms for six and seven revolute joints."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from typing import Any, ClassVar

import numpy as np

from ik_sim.peers.peer import Answer, Arm, Peer


class Ssik(Peer):
    """The artifact that `ssik build` makes from the URDF (native code); as "default" the interactive class, pure Python."""

    package, requirements, environment, licence = "ssik", ("ssik[urdf]",), "compiled", "BSD-3-Clause"
    variants: ClassVar = {"": {"build": True}, "default": {"build": False}}

    def __init__(self, arm: Arm, build: bool) -> None:
        """`build`: compile the artifact once, as its documentation advises for production."""
        super().__init__(arm)
        if not build:
            import ssik  # pyright: ignore[reportMissingImports]

            self.solver: Any = ssik.Manipulator.from_urdf(arm.urdf_path, base=arm.base_link, ee=arm.tool_link)
            return
        import ssik  # pyright: ignore[reportMissingImports]

        with open(arm.urdf_path, "rb") as file:
            key = hashlib.sha256(file.read() + ssik.__version__.encode()).hexdigest()[:16]
        folder = os.path.join(os.environ["IK_SIM_PEERS"], "ssik_artifacts", key)
        out = os.path.join(folder, "arm_ik.py")
        if not os.path.isfile(out):  # seconds of work, kept for the next process
            partial = f"{folder}.{os.getpid()}"
            os.makedirs(partial)
            built = subprocess.run(
                [sys.executable, "-m", "ssik.cli", "build", arm.urdf_path, "--base", arm.base_link, "--ee",
                 arm.tool_link, "--out", os.path.join(partial, "arm_ik.py"), "--module-name", "arm_ik", "--no-validate"],
                check=False, capture_output=True, text=True,
            )  # fmt: skip
            if built.returncode:
                shutil.rmtree(partial)
                raise RuntimeError(f"ssik build failed: {' '.join(built.stderr.strip().splitlines()[-1:])}")
            try:
                os.rename(partial, folder)
            except OSError:  # another process was as fast
                shutil.rmtree(partial)
        spec = importlib.util.spec_from_file_location("arm_ik", out)
        assert spec is not None
        assert spec.loader is not None
        self.solver = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.solver)

    @classmethod
    def refuses(cls, arm: Arm) -> str:
        """Other numbers of joints."""
        return "" if arm.n in (6, 7) else "closed forms for 6 or 7 revolute joints"

    def solve(self, T: Any, q_seed: Any) -> Answer:
        """The solution nearest to the seed inside the limits."""
        found = self.solver.solve(T, max_solutions=1, q_seed=q_seed)
        return (found[0].q, True, None) if found else (None, False, None)

    def fk(self, q: Any) -> Any:
        """Of the artifact or the manipulator."""
        return np.asarray(self.solver.fk(np.array(q)))
