"""PyBullet's own inverse kinematics, as a baseline under the same judge.

It iterates damped least squares in single precision with a large damping, knows no limits, no convergence test and no
status. Each answer is clipped into the limits and judged like any other. The chain goes to a client of its own as a
URDF written from its joint frames, so any chain can be asked; the physics library is loaded at the first solve.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np
from jaxtyping import Float

from ik_sim.chain import AXES, FRAMES, JOINTS, Chain
from ik_sim.errors import MissingDependencyError
from ik_sim.se3 import matrix_to_quat_xyzw, matrix_to_rpy
from ik_sim.solvers.solver import Solution, Status, check_numbers, check_target, judge
from ik_sim.target import AXIS, POINT, POSE, Target, Tolerance


@dataclass(frozen=True)
class Bullet:
    """`pybullet.calculateInverseKinematics`, called once, or again from random starts until it arrives."""

    stop: Tolerance = Tolerance()
    """What the judge asks for."""
    max_iterations: int = 20
    """`maxNumIterations` of each call; 20 is PyBullet's default."""
    threshold: float = 1e-4
    """`residualThreshold` of each call; 1e-4 is PyBullet's default."""
    damping: float = 0.0
    """`jointDamping` of every joint; 0 leaves PyBullet's default, 1e-4 lets it converge."""
    restarts: int = 0
    """Random starts after the seed."""
    seed: int = 0
    """Of the random starts."""

    def __post_init__(self) -> None:
        """Check what the types can't."""
        check_numbers(self)

    def solve(self, chain: Chain, target: Any, q_seed: Any = None) -> Solution:
        """As every solver; axis targets and chains with mimic joints are `unsupported`.

        Raises:
            MissingDependencyError: PyBullet isn't installed.
            InvalidArgumentError: as :meth:`ik_sim.solvers.solver.KernelSolver.solve`.
        """
        T, kind = (target.T, target.kind) if isinstance(target, Target) else (target, POSE)
        goal = Target(check_target(T, kind), kind)
        q = chain.clip(chain.check_q(chain.q_middle if q_seed is None else q_seed, "q_seed"))
        if kind == AXIS:
            return judge(chain, goal, q, self.stop, status=Status.UNSUPPORTED, solver=self)
        if int(chain.packed[JOINTS]) != chain.n:
            mimics = int(chain.packed[JOINTS]) - chain.n
            words = f"Bullet moves {mimics} mimic joint{'s' * (mimics > 1)} of this chain as if nothing held them"
            return judge(chain, goal, q, self.stop, status=Status.UNSUPPORTED, reason=words, solver=self)
        arm = _sessions.get(chain)
        if arm is None:
            arm = _sessions[chain] = _Session(chain)
        rng = np.random.default_rng(self.seed)
        best: Solution | None = None
        for start in range(self.restarts + 1):
            answer = arm.inverse_kinematics(goal, q, self)
            solution = judge(
                chain, goal, answer, self.stop, status=Status.MAX_ITERATIONS,
                iterations=(start + 1) * self.max_iterations, restarts=start, solver=self,
            )  # fmt: skip
            if best is None or _error(solution) < _error(best):
                best = solution
            if solution.converged:
                return solution
            q = chain.random_q(rng)
        assert best is not None
        return best


def _error(solution: Solution) -> float:
    return solution.position_error + solution.rotation_error


class _Session:
    """One chain in a PyBullet client of its own."""

    def __init__(self, chain: Chain) -> None:
        try:
            import pybullet
        except ImportError:
            raise MissingDependencyError("pybullet", "the solver 'bullet'", "pip install pybullet") from None
        self._pybullet, self._n = pybullet, chain.n
        self._client = pybullet.connect(pybullet.DIRECT)
        finalize(self, _disconnect, pybullet, self._client)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "chain.urdf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(_urdf(chain))
            self._body = pybullet.loadURDF(path, useFixedBase=True, physicsClientId=self._client)

    def inverse_kinematics(self, target: Target, q: Float[np.ndarray, "n"], settings: Bullet) -> Float[np.ndarray, "n"]:
        """Joints after one call from q; PyBullet's numbers, whatever they are."""
        for i, value in enumerate(q):
            self._pybullet.resetJointState(self._body, i, value, physicsClientId=self._client)
        orientation = [] if target.kind == POINT else [matrix_to_quat_xyzw(target.T[:3, :3]).tolist()]
        damping = {"jointDamping": [settings.damping] * self._n} if settings.damping > 0.0 else {}
        answer = self._pybullet.calculateInverseKinematics(
            self._body, self._n, target.T[:3, 3].tolist(), *orientation, maxNumIterations=settings.max_iterations,
            residualThreshold=settings.threshold, physicsClientId=self._client, **damping,
        )  # fmt: skip
        return np.nan_to_num(np.array(answer[: self._n]), nan=0.0, posinf=0.0, neginf=0.0)


def _disconnect(pybullet: Any, client: int) -> None:
    if pybullet.isConnected(client):
        pybullet.disconnect(client)


_sessions: WeakKeyDictionary[Chain, _Session] = WeakKeyDictionary()


def _urdf(chain: Chain) -> str:
    """The chain as a URDF: one link a joint, every axis z, no shapes."""
    frames = chain.packed[int(chain.packed[FRAMES]) :][: 12 * (chain.n + 1)].reshape(-1, 3, 4)
    rows = chain.packed[int(chain.packed[AXES]) :][: 4 * chain.n].reshape(-1, 4)
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    links = "".join(f'<link name="l{i}">{inertial}</link>' for i in range(chain.n + 2))
    joints = []
    for i, frame in enumerate(frames):
        rpy = " ".join(f"{x:.17g}" for x in matrix_to_rpy(frame[:, :3]))
        xyz = " ".join(f"{x:.17g}" for x in frame[:, 3])
        kind, limit = "fixed", ""
        if i < chain.n:
            kind = "prismatic" if rows[i, 0] else "revolute"
            low, high = np.clip([chain.lower[i], chain.upper[i]], -1e3, 1e3)
            limit = f'<axis xyz="0 0 1"/><limit lower="{low:.17g}" upper="{high:.17g}" effort="1" velocity="1"/>'
        joints.append(
            f'<joint name="j{i}" type="{kind}"><parent link="l{i}"/><child link="l{i + 1}"/>'
            f'<origin xyz="{xyz}" rpy="{rpy}"/>{limit}</joint>'
        )
    return f'<robot name="chain">{links}{"".join(joints)}</robot>'
