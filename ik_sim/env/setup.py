"""What an environment is made of, checked once: robot, task, sizes of steps, spaces."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from ik_sim.chain import CENTRE, REACH
from ik_sim.control import ControlSettings
from ik_sim.errors import InvalidArgumentError, UnknownNameError
from ik_sim.robots import Robot, load_robot
from ik_sim.solvers import load_solver
from ik_sim.target import AXIS, KIND_NAMES, POINT, POSE, Tolerance
from ik_sim.tasks import load_task
from ik_sim.trajectory import Trajectory, usable_speeds

SCENARIOS = ("reach", "track", "avoid")
ACTIONS = ("joint_position", "joint_velocity", "cartesian", "torque")
OBSERVATIONS = ("flat", "goal")
REWARDS = ("dense", "sparse")
MOTIONS = ("physics", "kinematic")

GOAL_SIZES = {POINT: 3, AXIS: 6, POSE: 9}
"""Numbers that describe a goal: position; then the tool's z axis, or its x and y axes."""
LARGEST_SHIFT = 10.0
"""Bound of a sliding joint that has none [m]; observations must be bounded."""


@dataclass(frozen=True)
class Randomisation:
    """What differs from episode to episode: ranges, from which each episode draws evenly with the environment's seed."""

    gain: tuple[float, float] | None = None
    """Position gain of the servo, as `ControlSettings.position_gain`."""
    payload: tuple[float, float] | None = None
    """Mass at the tool [kg]; needs physics."""
    latency: tuple[int, int] = (0, 0)
    """By how many control periods an action comes late."""
    noise: float = 0.0
    """Standard deviation of the observed joint values [rad or m]; of the observed speeds it is ten times that, per
    second. Goals, rewards and `info` stay exact."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, low in (("gain", 1e-9), ("payload", 0.0), ("latency", 0)):
            pair = getattr(self, name)
            if pair is None:
                continue
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and low <= pair[0] <= pair[1] < math.inf):
                raise InvalidArgumentError(f"randomise.{name}", f"must be (smallest, largest), not {pair!r}")
        if self.gain is not None and self.gain[1] > 1.0:
            raise InvalidArgumentError("randomise.gain", f"is a share, 1 at most, not {self.gain[1]}")
        if not (math.isfinite(self.noise) and self.noise >= 0.0):
            raise InvalidArgumentError("randomise.noise", f"must be 0 or more, not {self.noise}")


@dataclass(frozen=True)
class Curriculum:
    """Goals near at first: at most `start` metres from the tool, growing to `end` over so many episodes.

    The count of episodes starts anew with `reset(seed=...)`.
    """

    start: float = 0.1
    """[m]"""
    end: float | None = None
    """[m]; the arm's whole reach, twice over, when left out."""
    episodes: int = 300

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("start", "end"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0.0):
                raise InvalidArgumentError(f"curriculum.{name}", f"must be above 0, not {value}")
        if self.episodes < 1:
            raise InvalidArgumentError("curriculum.episodes", f"must be 1 or more, not {self.episodes}")


@dataclass(frozen=True, eq=False)
class Setup:
    """All that stays the same from episode to episode."""

    scenario: str
    robot: Robot
    trajectory: Trajectory | None
    action: str
    observation: str
    reward: str
    motion: str
    kind: int
    """What of a goal counts: POSE, POINT or AXIS."""
    tolerance: Tolerance
    control: ControlSettings
    period: float
    """Of an action [s]."""
    substeps: int
    """Physics steps in a period."""
    solver: Any
    joint_step: Float[np.ndarray, "n"]
    """Largest change of a commanded joint in a period [rad or m]."""
    tool_step: tuple[float, float]
    """Of a commanded tool [m, rad]."""
    speeds: Float[np.ndarray, "n"]
    """Speed limits [rad/s or m/s], finite."""
    torques: Float[np.ndarray, "n"]
    """Torque limits [Nm or N], finite; full deflection of a torque action."""
    goal_lower: Float[np.ndarray, "n"]
    goal_upper: Float[np.ndarray, "n"]
    """Goals are poses of configurations in between."""
    start_spread: Float[np.ndarray, "n"]
    """Episodes start within this distance of home."""
    floor: float
    """Goals lie above it [m]."""
    normal: Float[np.ndarray, "3"] | None
    """Axis of a planar arm."""
    obstacles: int
    link_radius: float
    terms: Float[np.ndarray, "5"]
    """Of the reward, see :func:`ik_sim.env.kernels.worth`."""
    collision_reward: float
    randomise: Randomisation
    curriculum: Curriculum | None
    action_space: spaces.Box
    observation_space: spaces.Space[Any]

    @property
    def goal_size(self) -> int:
        """Numbers that describe a goal."""
        return GOAL_SIZES[self.kind]

    @property
    def reach(self) -> float:
        """No tool gets farther than this from the first joint [m]."""
        return min(float(self.robot.chain.packed[REACH]), 100.0)


def make_setup(
    scenario: str = "reach",
    robot: str | os.PathLike[str] = "ur5",
    task: str | os.PathLike[str] | None = None,
    *,
    base_link: str | None = None,
    tool_link: str | None = None,
    action: str = "joint_position",
    observation: str = "flat",
    reward: str = "dense",
    motion: str = "physics",
    target: str | None = None,
    tolerance: Any = None,
    solver: str = "auto",
    control: Any = None,
    control_rate: float | None = None,
    speed: float = 0.5,
    goal_range: float | None = None,
    start_range: float = 0.0,
    obstacles: int = 2,
    link_radius: float | None = None,
    rotation_weight: float = 0.1,
    success_reward: float = 0.0,
    collision_reward: float = -50.0,
    randomise: Any = None,
    curriculum: Any = None,
) -> Setup:
    """Check the options of an environment, which :class:`ik_sim.env.ArmEnv` explains, and work out what follows."""
    for kind, name, known in (
        ("scenario", scenario, SCENARIOS), ("action", action, ACTIONS), ("observation", observation, OBSERVATIONS),
        ("reward", reward, REWARDS), ("motion", motion, MOTIONS),
    ):  # fmt: skip
        if name not in known:
            raise UnknownNameError(kind, str(name), known)
    arm = load_robot(robot, base_link=base_link, tool_link=tool_link)
    chain = arm.chain
    settings = _dataclass(ControlSettings, control, "control")
    random = _dataclass(Randomisation, randomise, "randomise")
    trajectory = None
    planar = chain.family.startswith("planar")
    if scenario == "track":
        if task is None:
            raise InvalidArgumentError("task", "is needed to track: the name of a task, or the path of a task file")
        loaded = load_task(task)
        trajectory = loaded.trajectory(arm)
        target = target or loaded.target
        settings = loaded.control if control is None else settings
        period = trajectory.duration / len(trajectory)
        if control_rate is not None and abs(control_rate * period - 1.0) > 1e-6:
            raise InvalidArgumentError(
                "control_rate", f"is {1.0 / period:g} targets per second by the task {loaded.name}"
            )
    else:
        if task is not None:
            raise InvalidArgumentError("task", f"belongs to the scenario track, not to {scenario}")
        period = 1.0 / (control_rate or 30.0)
    target = target or "point"
    if target not in KIND_NAMES:
        raise UnknownNameError("kind of target", target, KIND_NAMES)
    if not (math.isfinite(settings.physics_rate * period) and settings.physics_rate * period >= 1.0 - 1e-9):
        raise InvalidArgumentError(
            "control_rate",
            f"{1.0 / period:g} actions per second are more than the {settings.physics_rate:g} physics steps",
        )
    substeps = max(1, round(settings.physics_rate * settings.substeps * period))
    for name, value, low, high in (
        ("speed", speed, 0.0, 1.0), ("goal_range", goal_range, 0.0, 1.0), ("start_range", start_range, -1.0, 1.0),
    ):  # fmt: skip
        if value is not None and not low < value <= high:
            raise InvalidArgumentError(name, f"is a share in {'(' if low == 0 else '['}0, 1], not {value}")
    if start_range < 0.0:
        raise InvalidArgumentError("start_range", f"is a share in [0, 1], not {start_range}")
    if obstacles < 1 and scenario == "avoid":
        raise InvalidArgumentError("obstacles", f"must be 1 or more, not {obstacles}")
    if action == "torque" and motion == "kinematic":
        raise InvalidArgumentError("action", "torque needs motion='physics': without masses a torque moves nothing")
    if random.payload is not None and motion == "kinematic":
        raise InvalidArgumentError("randomise.payload", "needs motion='physics'")
    if action == "torque" and any(joint.mimic is not None for joint in chain.joints):
        raise InvalidArgumentError("action", "torque can't drive an arm whose joints mimic each other")
    if tolerance is None:
        tolerance = Tolerance(0.02, 0.1) if scenario != "track" else Tolerance(0.01, 0.05)
    elif isinstance(tolerance, int | float):
        tolerance = Tolerance(float(tolerance), 0.1)
    elif not isinstance(tolerance, Tolerance):
        tolerance = _dataclass(Tolerance, tolerance, "tolerance")
    speeds = np.minimum(usable_speeds(chain), 20.0) * settings.speed_scale
    effort = np.where(np.isfinite(chain.effort_limits) & (chain.effort_limits > 0.0), chain.effort_limits, 1000.0)
    # Goals: the whole range of a planar arm; of others a part about home, so that they stay in front and unfolded.
    lower, upper = _bounds(chain)
    share = goal_range or (1.0 if planar else 0.25)
    half = 0.5 * share * (upper - lower)
    middle = 0.5 * (lower + upper) if planar and share == 1.0 else np.asarray(arm.q_home)
    dimensions = (2 if planar else 3) + (0 if target == "point" else 1 if planar else 3)
    n_action = dimensions if action == "cartesian" else chain.n
    normal = None
    if planar:
        normal = chain.joint_frames(arm.q_home)[1, :3, 2]
    kind = KIND_NAMES.index(target)
    shapes = _Shapes(scenario, chain, lower, upper, speeds, kind, obstacles)
    return Setup(
        scenario=scenario,
        robot=arm,
        trajectory=trajectory,
        action=action,
        observation=observation,
        reward=reward,
        motion=motion,
        kind=kind,
        tolerance=tolerance,
        control=settings,
        period=period,
        substeps=substeps,
        solver=load_solver(solver) if isinstance(solver, str) else solver,
        joint_step=speed * speeds * period,
        tool_step=(speed * 1.0 * period, speed * math.pi * period),
        speeds=speeds,
        torques=effort * settings.torque_scale,
        goal_lower=np.maximum(middle - half, lower),
        goal_upper=np.minimum(middle + half, upper),
        start_spread=0.5 * start_range * (upper - lower),
        floor=-np.inf if planar or scenario == "track" else 0.02,
        normal=normal,
        obstacles=obstacles if scenario == "avoid" else 0,
        link_radius=link_radius if link_radius is not None else 0.02 if planar else 0.05,
        terms=np.array(
            [tolerance.position, tolerance.rotation, rotation_weight, success_reward, float(reward == "sparse")]
        ),
        collision_reward=collision_reward,
        randomise=random,
        curriculum=None if curriculum is None else _dataclass(Curriculum, curriculum, "curriculum"),
        action_space=spaces.Box(-1.0, 1.0, (n_action,), np.float32),
        observation_space=shapes.goal_space() if observation == "goal" else shapes.flat_space(),
    )


def _dataclass(kind: type, value: Any, name: str) -> Any:
    """A dataclass from one of its own, a table, or nothing."""
    if isinstance(value, kind):
        return value
    if value is None:
        return kind()
    if not isinstance(value, Mapping):
        if kind is Tolerance and isinstance(value, tuple | list) and len(value) == 2:
            return Tolerance(float(value[0]), float(value[1]))
        raise InvalidArgumentError(name, f"must be a table of settings, not {value!r}")
    known = [field.name for field in dataclasses.fields(kind)]
    for key in value:
        if key not in known:
            raise UnknownNameError(f"setting of {name}", str(key), known)
    plain = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    return kind(**plain)


def _bounds(chain: Any) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Joint limits, finite: a turn for a joint without limits, LARGEST_SHIFT for a slide without."""
    kinds = {joint.name: joint.kind for joint in chain.joints}
    most = np.array([LARGEST_SHIFT if kinds[name] == "prismatic" else np.pi for name in chain.joint_names])
    lower = np.where(np.isfinite(chain.lower), chain.lower, np.minimum(-most, chain.upper - 2 * most))
    upper = np.where(np.isfinite(chain.upper), chain.upper, np.maximum(most, lower + 2 * most))
    return lower, upper


@dataclass(frozen=True, eq=False)
class _Shapes:
    """Bounds of what is observed."""

    scenario: str
    chain: Any
    lower: Float[np.ndarray, "n"]
    upper: Float[np.ndarray, "n"]
    speeds: Float[np.ndarray, "n"]
    kind: int
    obstacles: int

    def goal(self) -> tuple[Float[np.ndarray, "g"], Float[np.ndarray, "g"]]:
        packed = self.chain.packed
        centre, reach = packed[CENTRE : CENTRE + 3], min(float(packed[REACH]), 100.0) * 1.01
        ones = np.ones(GOAL_SIZES[self.kind] - 3)
        return np.concatenate([centre - reach, -ones]), np.concatenate([centre + reach, ones])

    def arm(self) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
        low, high = self.goal()
        lows, highs = [self.lower, -2.0 * self.speeds], [self.upper, 2.0 * self.speeds]
        if self.scenario == "track":
            lows.append(low)
            highs.append(high)
        if self.scenario == "avoid":
            across = 2.0 * (high[:3] - low[:3])
            lows += [np.append(-across, 0.0)] * self.obstacles
            highs += [np.append(across, across.max())] * self.obstacles
        return np.concatenate(lows), np.concatenate(highs)

    def flat_space(self) -> spaces.Space[Any]:
        low, high = self.goal()
        arm_low, arm_high = self.arm()
        across = high[:3] - low[:3]
        return _box(np.concatenate([arm_low, low, low, -across]), np.concatenate([arm_high, high, high, across]))

    def goal_space(self) -> spaces.Space[Any]:
        parts = {
            "observation": _box(*self.arm()),
            "achieved_goal": _box(*self.goal()),
            "desired_goal": _box(*self.goal()),
        }
        return spaces.Dict(cast(Any, parts))


def _box(low: Float[np.ndarray, "m"], high: Float[np.ndarray, "m"]) -> spaces.Box:
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
