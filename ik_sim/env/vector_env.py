"""Many arms as one Gymnasium vector environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from ik_sim.env.arm_env import _setup
from ik_sim.env.arms import Arms, check_action, compute_reward, not_reset
from ik_sim.env.scene import Scene
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError


class ArmVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """As many :class:`~ik_sim.env.ArmEnv` as one likes, stepped together.

    Row i is, to the last bit, the single environment with seed + i. Forward kinematics, rewards and Cartesian actions are
    one compiled call for all arms; with `motion="kinematic"` that is all there is to do. In physics every arm keeps a
    client of its own, and processes share them out.

    Args:
        num_envs: how many.
        max_episode_steps: when episodes are truncated; the registered ids say.
        autoreset_mode: what follows an episode's last step: `AutoresetMode.NEXT_STEP` (the next step begins the new
            episode, as in `SyncVectorEnv`), `SAME_STEP`, or `DISABLED`.
        workers: processes that step physics, this one among them; results don't depend on it. When left out: as many as
            there are usable processors, but four arms for each at least, and no other in a process that is itself one
            of many. :attr:`workers` says what came of it.
        render_mode: None or "rgb_array": `render()` gives a picture of each arm.
        width: of a picture.
        height: of a picture.
        options: all others are those of :class:`~ik_sim.env.ArmEnv`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 as Gymnasium has it
        "render_modes": ["rgb_array"], "render_fps": 30, "autoreset_mode": AutoresetMode.NEXT_STEP,
    }  # fmt: skip

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        workers: int | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 360,
        **options: Any,
    ) -> None:
        if num_envs < 1:
            raise InvalidArgumentError("num_envs", f"must be 1 or more, not {num_envs}")
        if workers is not None and workers < 1:
            raise InvalidArgumentError("workers", f"must be 1 or more, not {workers}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UnknownNameError("render mode", render_mode, self.metadata["render_modes"])
        self.setup = _setup(options)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            **self.metadata, "autoreset_mode": self.autoreset_mode, "render_fps": max(1, round(1.0 / self.setup.period)),
        }  # fmt: skip
        self.render_mode = render_mode
        self.single_action_space = self.setup.action_space
        self.single_observation_space = self.setup.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.arms = Arms(self.setup, num_envs, self._generator, max_episode_steps, workers)
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._ended = np.zeros(num_envs, dtype=bool)
        self._all = np.ones(num_envs, dtype=bool)
        self._scene: Scene | None = None
        self._scene_process = 0
        self._picture_size = (width, height)
        self._running = False

    @property
    def workers(self) -> int:
        """Processes that step the arms, this one among them."""
        return self.arms.motion.workers

    def processor_time(self) -> float:
        """Of all these processes since they began [s]."""
        return self.arms.motion.processor_time()

    def _generator(self, i: int) -> np.random.Generator:
        generator = self._generators[i]
        if generator is None:
            generator = self._generators[i] = seeding.np_random()[0]
        return generator

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes everywhere, or where `options["reset_mask"]` says; arm i gets the seed + i."""
        self._check_open()
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
                raise InvalidArgumentError("reset_mask", f"must be {self.num_envs} booleans, one of them true")
        seeds = _seeds(seed, self.num_envs)
        rows = np.flatnonzero(self._all if mask is None else mask).tolist()
        for i in rows:
            if seeds[i] is not None:
                self._generators[i] = seeding.np_random(seeds[i])[0]
                self.arms.episodes[i] = 0
        self.arms.reset(rows, options)
        self._ended[rows] = False
        self._running = True
        return self.arms.observe(), self._infos(*self.arms.rewards())

    def step(
        self, actions: Any
    ) -> tuple[Any, Float[np.ndarray, "k"], Bool[np.ndarray, "k"], Bool[np.ndarray, "k"], dict[str, Any]]:
        """Carry out one action of every arm.

        Raises:
            IkSimError: a wrong shape, NaN, before the first `reset`, after `close`.
        """
        self._check_open()
        if not self._running:
            raise not_reset()
        numbers = check_action(self.setup, actions, self.num_envs)
        arms, ended = self.arms, self._ended
        begin = ended if self.autoreset_mode is AutoresetMode.NEXT_STEP and ended.any() else None
        if self.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            raise IkSimError(f"arms {np.flatnonzero(ended).tolist()} have ended; reset them with options['reset_mask']")
        arms.step(numbers, None if begin is None else ~begin)
        if begin is not None:
            arms.reset(np.flatnonzero(begin).tolist())
        rewards, success = arms.rewards()
        terminated, truncated = arms.endings(success)
        infos = self._infos(rewards, success)
        if begin is not None:
            rewards = np.where(begin, np.float32(0.0), rewards)
            terminated &= ~begin
            truncated &= ~begin
        observations = arms.observe()
        ended = terminated | truncated
        self._ended = ended
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            rows = np.flatnonzero(ended).tolist()
            final = np.full(self.num_envs, None, dtype=object)
            for i in rows:
                final[i] = _row(observations, i)
            arms.reset(rows)
            again = self._infos(*arms.rewards())
            fresh = arms.observe()
            _replace(observations, fresh, rows)
            again |= {"final_obs": final, "_final_obs": ended, "final_info": infos, "_final_info": ended}
            infos = again
            self._ended = np.zeros(self.num_envs, dtype=bool)
        return observations, rewards.astype(np.float64), terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """A picture of each arm."""
        self._check_open()
        if self.render_mode is None:
            raise InvalidArgumentError("render_mode", "was None; make the environment with render_mode='rgb_array'")
        if self._scene is None or self._scene_process != os.getpid():
            self._scene = Scene(self.setup, *self._picture_size, window=False)
            self._scene_process = os.getpid()
        pictures = []
        for i in range(self.num_envs):
            self._scene.pose(self.arms.q[i], self.arms.T_goal[i], self.arms.spheres[i])
            pictures.append(self._scene.picture())
        return tuple(pictures)

    def close_extras(self, **kwargs: Any) -> None:
        """Close simulations and scene."""
        self.arms.close()
        if self._scene is not None and self._scene_process == os.getpid():
            self._scene.close()
        self._scene = None

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Reward of goals (..., g), from them and their infos alone: float32, of shape (...)."""
        return compute_reward(self.setup, achieved_goal, desired_goal, info)

    def _infos(self, rewards: Any, success: Any) -> dict[str, Any]:
        infos = self.arms.infos(rewards, success)
        return infos | {f"_{name}": self._all for name in infos}

    def _check_open(self) -> None:
        if self.closed:
            raise IkSimError("this environment is closed; make another one")


def _seeds(seed: Any, count: int) -> list[Any]:
    if seed is None:
        return [None] * count
    if isinstance(seed, int | np.integer):
        return [int(seed) + i for i in range(count)]
    seeds = list(seed)
    if len(seeds) != count:
        raise InvalidArgumentError("seed", f"{len(seeds)} seeds given for {count} arms")
    return seeds


def _row(observations: Any, i: int) -> Any:
    if isinstance(observations, dict):
        return {name: rows[i].copy() for name, rows in observations.items()}
    return observations[i].copy()


def _replace(observations: Any, fresh: Any, rows: list[int]) -> None:
    if isinstance(observations, dict):
        for name in observations:
            observations[name][rows] = fresh[name][rows]
    else:
        observations[rows] = fresh[rows]
