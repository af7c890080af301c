"""Gymnasium environments of the same robots, tasks and physics.

    import gymnasium, ik_sim.env                  # the import registers the ids
    env = gymnasium.make("IkSim/Reach-UR5-v0")    # or "ik_sim.env:IkSim/Reach-UR5-v0" without the import
    envs = gymnasium.make_vec("IkSim/Reach-UR5-v0", num_envs=16)   # many arms in one process, the fast way

| id | arm and goal |
|---|---|
| `IkSim/Reach-<Robot>-v0` | bring the tool to a random goal |
| `IkSim/Track-<Robot>-v0` | follow a task's moving target |
| `IkSim/Avoid-<Robot>-v0` | reach the goal past obstacles |

`<Robot>` is UR5, Iiwa14, Planar2 or Planar3; `robot="my.urdf"` puts any other in its place. All options, with tables of
actions, observations, rewards and endings, stand at :class:`ArmEnv`.
"""

from __future__ import annotations

import gymnasium

from ik_sim.env.arm_env import ArmEnv, ArmGoalEnv
from ik_sim.env.setup import Curriculum, Randomisation
from ik_sim.env.vector_env import ArmVectorEnv

__all__ = ["ENV_IDS", "ArmEnv", "ArmGoalEnv", "ArmVectorEnv", "Curriculum", "Randomisation"]

_ROBOTS = {
    "UR5": ("ur5", "ur5_circle"),
    "Iiwa14": ("iiwa14", "iiwa14_circle"),
    "Planar2": ("planar2", "planar2_circle"),
    "Planar3": ("planar3", "planar3_line"),
}
_STEPS = {"reach": 100, "avoid": 150, "track": None}  # a task ends with its last target


def _register() -> tuple[str, ...]:
    ids = []
    for scenario, steps in _STEPS.items():
        for title, (robot, task) in _ROBOTS.items():
            name = f"IkSim/{scenario.title()}-{title}-v0"
            ids.append(name)
            if name in gymnasium.registry:  # the module was loaded anew
                continue
            options = {"scenario": scenario, "robot": robot}
            gymnasium.register(
                name,
                entry_point="ik_sim.env:ArmEnv",
                vector_entry_point="ik_sim.env:ArmVectorEnv",
                max_episode_steps=steps,
                kwargs=options | ({"task": task} if scenario == "track" else {}),
            )
    return tuple(ids)


ENV_IDS = _register()
"""All registered ids."""
