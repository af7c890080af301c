"""For Stable-Baselines3: the fast vector environment as its own kind of `VecEnv`, and features that help networks learn.

    from ik_sim.env.sb3 import ArmFeatures, make_vec_env

    envs = make_vec_env("IkSim/Reach-Planar2-v0", 64, observation="goal")
    model = stable_baselines3.PPO("MultiInputPolicy", envs, policy_kwargs=ArmFeatures.policy_kwargs(envs))

`scripts/train_reach.py` is the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from ik_sim.env.vector_env import ArmVectorEnv
from ik_sim.errors import MissingDependencyError

try:
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import VecEnv
except ImportError:
    raise MissingDependencyError("Stable-Baselines3", "this module", "pip install 'ik_sim[rl]'") from None


class ArmVecEnv(VecEnv):
    """An :class:`~ik_sim.env.ArmVectorEnv` as Stable-Baselines3 wants it; pictures of the first arm.

    `infos` are filled at the end of an episode only, which is when Stable-Baselines3 reads them.
    """

    def __init__(self, envs: ArmVectorEnv) -> None:
        if envs.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ValueError("Stable-Baselines3 wants autoreset_mode='SameStep'")
        self.envs = envs
        self.render_mode = envs.render_mode
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._actions: Any = None

    def reset(self) -> Any:
        """Begin episodes everywhere, with the seeds that were set."""
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        observations, self.reset_infos = self.envs.reset(seed=seeds)[0], [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        return observations

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Observations, rewards, ends, infos."""
        observations, rewards, terminated, truncated, found = self.envs.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        done = terminated | truncated
        if "final_info" in found:
            final = found["final_info"]
            for i in np.flatnonzero(done):
                infos[i] = {
                    name: final[name][i] if final[name].dtype == object else final[name][i].item()
                    for name in final if not name.startswith("_")
                }  # fmt: skip
                infos[i]["terminal_observation"] = found["final_obs"][i]
                infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observations, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self.envs.close()

    def get_images(self) -> Sequence[Any]:
        """Pictures of all arms."""
        return self.envs.render() or ()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the vector environment, once for each arm."""
        return [getattr(self.envs, attr_name)] * len(self._rows(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment."""
        setattr(self.envs, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the vector environment, once for each arm."""
        return [getattr(self.envs, method_name)(*args, **kwargs) for _ in self._rows(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Nothing is wrapped."""
        return [False] * len(self._rows(indices))

    def _rows(self, indices: Any) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return list(indices) if isinstance(indices, Iterable) else [indices]


def make_vec_env(env_id: str, num_envs: int = 16, **options: Any) -> ArmVecEnv:
    """A registered environment for Stable-Baselines3; `options` are those of :class:`~ik_sim.env.ArmEnv`."""
    envs = gymnasium.make_vec(
        env_id,
        num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode=AutoresetMode.SAME_STEP.value,
        **options,
    )
    assert isinstance(envs, ArmVectorEnv)
    return ArmVecEnv(envs)


class ArmFeatures(BaseFeaturesExtractor):
    """What a small network should not have to find out first, from the goal dictionary.

    Sines and cosines of the joint values beside themselves (a tool's place is made of them), and the way from tool to
    goal twice: as it is, and magnified, so that the last centimetres count. Everything is about 1 in size.

    Args:
        observation_space: of an environment with `observation="goal"`.
        joints: how many the arm has.
    """

    NEAR = 0.08
    """Share of the arm's reach at which the magnified way saturates."""

    _scale: torch.Tensor

    def __init__(self, observation_space: Any, joints: int) -> None:
        spaces = observation_space.spaces
        rest = spaces["observation"].shape[0] - 2 * joints
        super().__init__(observation_space, 4 * joints + rest + 3 * spaces["desired_goal"].shape[0])
        self._joints = joints
        high, goal = spaces["observation"].high, spaces["desired_goal"]
        self._reach = float((goal.high - goal.low)[:3].max()) / 2.0
        # Joints of hundreds of turns, and speeds that are allowed but never seen, would leave nothing of the others.
        self.register_buffer(
            "_scale", torch.as_tensor(np.concatenate([np.minimum(high[:joints], np.pi), high[joints:]]))
        )

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Features (k, f) of a batch of observations."""
        seen, goal, n = observations["observation"], observations["desired_goal"], self._joints
        way = goal - observations["achieved_goal"]
        parts = [seen / self._scale, torch.sin(seen[:, :n]), torch.cos(seen[:, :n]), goal / self._reach]
        return torch.cat([*parts, 2.0 * way / self._reach, torch.tanh(way / (self.NEAR * self._reach))], dim=1)

    @classmethod
    def policy_kwargs(cls, envs: Any) -> dict[str, Any]:
        """The entries of `policy_kwargs` that put these features before the networks."""
        joints = envs.get_attr("setup", 0)[0].robot.chain.n
        return {"features_extractor_class": cls, "features_extractor_kwargs": {"joints": joints}}
