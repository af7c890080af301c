"""What a learned policy has to beat: our inverse kinematics; and how policies are scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from ik_sim.env.setup import Setup
from ik_sim.env.vector_env import ArmVectorEnv
from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import load_solver
from ik_sim.target import Target


class IkPolicy:
    """Solves for the goal, then moves every joint straight to the answer, as fast as actions allow.

    It looks at the environment itself (the exact joints and goal), not at observations, and doesn't see obstacles.

    Args:
        env: a single or a vector environment with joint actions.
        solver: by name.
    """

    def __init__(self, env: Any, solver: str = "auto") -> None:
        self._arms = env.unwrapped.arms
        self._single = not isinstance(env.unwrapped, ArmVectorEnv)
        self._setup: Setup = self._arms.setup
        if self._setup.action not in ("joint_position", "joint_velocity"):
            raise InvalidArgumentError("env", f"needs joint actions, not {self._setup.action}")
        self._solver = load_solver(solver)
        self._goals = np.full_like(self._arms.T_goal, np.nan)
        self._answers = self._arms.q.copy()

    def __call__(self, observation: Any = None) -> Float32[np.ndarray, "..."]:
        """Actions for where the arms are now."""
        arms, setup = self._arms, self._setup
        # When tracking, the target that the coming step is to reach.
        goals = arms.T_goal
        if setup.trajectory is not None:
            goals = setup.trajectory.targets[np.minimum(arms.time, len(setup.trajectory) - 1)]
        for i in np.flatnonzero((goals != self._goals).any(axis=(1, 2))):
            self._goals[i] = goals[i]
            target = Target(goals[i].copy(), setup.kind)
            self._answers[i] = self._solver.solve(arms.chain, target, arms.q_command[i].copy()).q
        origin = arms.q_command if setup.action == "joint_position" else arms.q
        ahead = (self._answers - origin) / setup.joint_step
        # All joints arrive together: the way is straight in joint space.
        ahead /= np.maximum(np.abs(ahead).max(axis=1, keepdims=True), 1.0)
        actions = ahead.astype(np.float32)
        return actions[0] if self._single else actions


@dataclass(frozen=True)
class Score:
    """How a policy did over so many episodes."""

    goals: int
    success: float
    """Share of the episodes that ended within the tolerance."""
    steps: float
    """Mean length of an episode."""
    position_error: float
    """Median of the last step [m]."""

    def __str__(self) -> str:
        return (
            f"{100.0 * self.success:.1f} % of {self.goals} goals, {self.steps:.1f} steps an episode, "
            f"median error at its end {1000.0 * self.position_error:.1f} mm"
        )


def score(envs: ArmVectorEnv, policy: Callable[[Any], Any], goals: int = 200, seed: int = 1_000_000) -> Score:
    """Let a policy run on goals it has not seen: episodes with the seeds `seed`, `seed` + 1, ...

    Args:
        envs: whose number of arms is how many run at once; truncates its episodes.
        policy: actions for a batch of observations.
        goals: how many episodes.
        seed: of the first.
    """
    success, steps, errors = [], [], []
    for first in range(0, goals, envs.num_envs):
        observations, _ = envs.reset(seed=seed + first)
        open_ones = np.arange(envs.num_envs) < goals - first
        while open_ones.any():
            observations, _, terminated, truncated, infos = envs.step(policy(observations))
            for i in np.flatnonzero((terminated | truncated) & open_ones):
                success.append(bool(infos["is_success"][i]))
                errors.append(float(infos["position_error"][i]))
                steps.append(int(envs.arms.time[i]))
                open_ones[i] = False
    return Score(len(success), float(np.mean(success)), float(np.mean(steps)), float(np.median(errors)))
