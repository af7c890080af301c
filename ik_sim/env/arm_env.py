"""One arm as a Gymnasium environment."""

from __future__ import annotations

import os
import time
from typing import Any, SupportsFloat

import gymnasium

from ik_sim.env.arms import Arms, check_action, compute_reward, not_reset
from ik_sim.env.scene import Scene
from ik_sim.env.setup import make_setup
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError


class ArmEnv(gymnasium.Env[Any, Any]):
    """An arm that learns to reach a goal, to follow a moving one, or to reach it past obstacles.

    ## Action

    A `Box(-1, 1)` of float32; values beyond are cut off. `speed` (default 0.5) is the share of the robot's speed limits
    that full deflection means. One action lasts a control period, 1/30 s unless `control_rate` or a task says otherwise.

    | `action` | size | full deflection |
    |---|---|---|
    | `joint_position` | n | shifts the commanded joint by `speed` · its speed limit · period [rad or m] |
    | `joint_velocity` | n | the joint moves at `speed` · its speed limit [rad/s or m/s] |
    | `cartesian` | 3 or 6; planar 2 or 3 | shifts the commanded tool along base axes by `speed` · 1 m/s · period |
    | | | and, unless the target is a point, turns it about them by `speed` · π rad/s · period |
    | `torque` | n | the joint's torque limit [Nm or N]; needs physics |

    The joints of Cartesian actions come from `solver`. Where it misses its target, its best joints are commanded and
    `info["ik_status"]` says what stood in the way. Commands stay inside the joint limits; joints that would have to move
    faster than they may are slowed down together (`info["ik_slowed"]`).

    ## Observation

    float32, bounded, base axes. `observation="flat"` is one vector of these parts in their order; `"goal"` is a
    dictionary of `observation` (the parts marked *), `achieved_goal` and `desired_goal`.

    | part | size | |
    |---|---|---|
    | joint values * | n | [rad or m]; of joints without limits in [-π, π) |
    | joint speeds * | n | [rad/s or m/s] |
    | where the target goes next * | g | only when tracking |
    | obstacles * | 4 each | centre seen from the tool, radius [m]; only when avoiding |
    | achieved goal | g | the tool: position [m] (`target="point"`, g = 3); with z axis (`"axis"`, 6); |
    | | | with x and y axis (`"pose"`, 9) |
    | desired goal | g | the same of the target |
    | goal − tool | 3 | [m] |

    ## Reward

    | `reward` | each step |
    |---|---|
    | `dense` | −(position error [m] + `rotation_weight` [m/rad] · rotation error [rad]); |
    | | within `tolerance` also `success_reward` (0) |
    | `sparse` | 0 within `tolerance`, −1 otherwise |

    Hitting an obstacle adds `collision_reward` (−50). With `observation="goal"` the reward is a function of the two goals
    and `info` alone, `compute_reward(achieved_goal, desired_goal, info)`, on single goals and on whole batches.

    ## Start and end

    Reach and avoid start at home (within `start_range` of each joint's range) and draw the pose of a random
    configuration as the goal, so that every goal can be reached; `goal_range` is the share of the joint ranges it is
    drawn from, all of it for planar arms, a quarter about home for others. Track starts where its task starts.

    | | terminated | truncated |
    |---|---|---|
    | reach | within `tolerance` | after 100 steps (a wrapper of `gymnasium.make`) |
    | avoid | within `tolerance`, or an obstacle hit | after 150 steps (the same) |
    | track | never | with the task's last target |

    `reset(options=...)` takes `q_start`, `goal` (a point or a pose) and `difficulty` (farthest goal [m]).

    ## info

    | key | |
    |---|---|
    | `reward`, `is_success` | as returned; within `tolerance` now |
    | `position_error`, `rotation_error` | measured tool against goal [m], [rad]: all in all |
    | `residual_position`, `residual_rotation` | tool at the commanded joints against goal: the command's part |
    | `joint_error` | command against measured joints, the largest [rad or m]: the servo's part |
    | `ik_status`, `ik_position_error`, `ik_rotation_error` | of the solver, against the displaced tool |
    | `ik_slowed` | whether joints were slowed down together; like the three above in cartesian actions only |
    | `clearance`, `collision` | gap between arm and obstacles [m]; avoid only. The arm is a string of capsules |
    | | of `link_radius` between its joints |
    | `difficulty` | farthest goal now allowed [m]; with a curriculum only |

    Args:
        scenario: "reach", "track" or "avoid"; the registered ids set it.
        robot: a robot's name, or the path of a URDF or robot.toml.
        task: what to track: a task's name or file.
        base_link: where the chain begins, for a URDF of one's own.
        tool_link: where it ends.
        action: see above.
        observation: see above.
        reward: see above.
        motion: "physics", or "kinematic": commands are met exactly, without masses, many times faster.
        target: "point", "axis" or "pose", what of the goal counts; a task's own when tracking, else "point".
        tolerance: position [m] (and rotation [rad]) of a success; (0.02, 0.1), when tracking (0.01, 0.05).
        solver: of Cartesian actions, by name.
        control: a table of :class:`~ik_sim.control.ControlSettings`: gains, payload, gravity, physics rate.
        control_rate: actions per second [Hz].
        speed: see action.
        goal_range: see start.
        start_range: see start.
        obstacles: how many.
        link_radius: of the arm's capsules [m].
        rotation_weight: see reward.
        success_reward: see reward.
        collision_reward: see reward.
        randomise: a table of :class:`~ik_sim.env.setup.Randomisation`: gain, payload, latency, noise.
        curriculum: a table of :class:`~ik_sim.env.setup.Curriculum`: near goals first.
        render_mode: None, "rgb_array", or "human" for a window; `gymnasium.make` adds "rgb_array_list".
        width: of a picture.
        height: of a picture.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012 as Gymnasium has it

    def __new__(cls, *, observation: str = "flat", **options: Any) -> ArmEnv:
        """An :class:`ArmGoalEnv` where goals are asked for: having `compute_reward` is how it is told apart."""
        kind: Any = ArmGoalEnv if observation == "goal" else cls
        return super().__new__(kind)

    def __init__(self, *, render_mode: str | None = None, width: int = 480, height: int = 360, **options: Any) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UnknownNameError("render mode", render_mode, self.metadata["render_modes"])
        self.setup = _setup(options)
        self.metadata = {**self.metadata, "render_fps": max(1, round(1.0 / self.setup.period))}
        self.render_mode = render_mode
        self.action_space, self.observation_space = self.setup.action_space, self.setup.observation_space
        self.arms = Arms(self.setup, 1, lambda i: self.np_random)
        self._scene: Scene | None = None
        self._scene_process = 0
        self._picture_size = (width, height)
        self._running = False
        self._closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with a seed, everything that is drawn from now on follows from it."""
        super().reset(seed=seed)
        self._check_open()
        if seed is not None:
            self.arms.episodes[:] = 0
        self.arms.reset([0], options)
        self._running = True
        observation = self._first(self.arms.observe())
        info = self._info(*self.arms.rewards())
        if self.render_mode == "human":
            self.render()
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Carry out one action.

        Raises:
            IkSimError: a wrong shape, NaN, before the first `reset`, after `close`.
        """
        self._check_open()
        if not self._running:
            raise not_reset()
        arms = self.arms
        arms.step(check_action(self.setup, action, None))
        rewards, success = arms.rewards()
        terminated, truncated = arms.endings(success)
        info = self._info(rewards, success)
        if self.render_mode == "human":
            self.render()
        return self._first(arms.observe()), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self) -> Any:
        """A picture (height, width, 3), or in a window nothing, after it has been drawn in real time."""
        self._check_open()
        if self.render_mode is None:
            raise InvalidArgumentError("render_mode", "was None; make the environment with render_mode='rgb_array'")
        if self._scene is None or self._scene_process != os.getpid():
            width, height = self._picture_size
            self._scene = Scene(self.setup, width, height, window=self.render_mode == "human")
            self._scene_process = os.getpid()
        self._scene.pose(self.arms.q[0], self.arms.T_goal[0], self.arms.spheres[0])
        if self.render_mode == "human":
            time.sleep(self.setup.period)
            return None
        return self._scene.picture()

    def close(self) -> None:
        """Close simulation and window; a second call does nothing."""
        self._closed = True
        self.arms.close()
        if self._scene is not None and self._scene_process == os.getpid():
            self._scene.close()
        self._scene = None

    @property
    def q(self) -> Any:
        """Measured joint values [rad or m], exact, float64."""
        return self.arms.q[0].copy()

    @property
    def T_goal(self) -> Any:
        """The goal's pose in the base, float64."""
        return self.arms.T_goal[0].copy()

    def _first(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {name: rows[0] for name, rows in observation.items()}
        return observation[0]

    def _info(self, rewards: Any, success: Any) -> dict[str, Any]:
        return {name: value.item() for name, value in self.arms.infos(rewards, success).items()}

    def _check_open(self) -> None:
        if self._closed:
            raise IkSimError("this environment is closed; make another one")


class ArmGoalEnv(ArmEnv):
    """:class:`ArmEnv` with the goal dictionary as its observation."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Reward of goals (..., g), from them and their infos alone: float32, of shape (...)."""
        return compute_reward(self.setup, achieved_goal, desired_goal, info)


def _setup(options: dict[str, Any]) -> Any:
    try:
        return make_setup(**options)
    except TypeError as error:
        import inspect

        known = inspect.signature(make_setup).parameters
        for name in options:
            if name not in known:
                raise UnknownNameError("option", name, known) from error
        raise
