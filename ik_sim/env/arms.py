"""Many arms at once: episodes, commands, measurements, rewards. The one implementation behind both environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32

from ik_sim.env import kernels
from ik_sim.env.physics import KinematicMotion, Motion, physics
from ik_sim.env.setup import GOAL_SIZES, Setup
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.se3 import check_pose
from ik_sim.solvers import Status
from ik_sim.target import AXIS, POINT, Target

STATUS_NAMES = np.array([str(status) for status in Status])
STATUS_CODES = {status: code for code, status in enumerate(Status)}
BATCH = 8
"""From so many arms on, one call that solves for all of them is faster than a call each; the answers are the same."""
CANDIDATES = 8
"""Goals drawn for an episode, of which the first usable one is taken."""
HALVINGS = 12
"""A goal that a curriculum finds too far is drawn towards the start by halves, so often at most."""
MARGIN = 0.03
"""Obstacles keep this gap from the arm at its start and at its goal [m]."""
RESET_OPTIONS = ("q_start", "goal", "difficulty")


class Arms:
    """`count` arms in step, each with random numbers of its own.

    Args:
        setup: what they have in common.
        count: how many.
        generator: gives the random generator of arm i.
        max_episode_steps: episodes are cut after so many steps; None leaves that to a wrapper.
        workers: processes that share the physics, see :class:`~ik_sim.fleet.Fleet`.
    """

    def __init__(
        self,
        setup: Setup,
        count: int,
        generator: Callable[[int], np.random.Generator],
        max_episode_steps: int | None = None,
        workers: int | None = None,
    ) -> None:
        n = setup.robot.chain.n
        self.setup, self.count, self.generator = setup, count, generator
        self.chain = setup.robot.chain
        limits = [] if setup.trajectory is None else [len(setup.trajectory)]
        limits += [] if max_episode_steps is None else [max_episode_steps]
        self.max_steps = min(limits) if limits else None
        self.motion: Motion = physics(setup, count, workers) if setup.motion == "physics" else KinematicMotion(setup)
        self.q = np.tile(setup.robot.q_home, (count, 1))
        self.velocity = np.zeros((count, n))
        self.q_command = self.q.copy()
        self.T_goal = np.tile(np.eye(4), (count, 1, 1))
        self.time = np.zeros(count, dtype=np.int64)
        """Actions since the episode began."""
        self.episodes = np.zeros(count, dtype=np.int64)
        """Episodes begun since the arm was seeded."""
        self.difficulty = np.full(count, np.inf)
        """Largest distance of a goal from the tool at the start [m]."""
        gain = setup.control.position_gain
        gain = setup.robot.control.position_gain if gain is None else gain
        self._share = np.full((count, 1), self._speed_per_error(gain))
        self._latency = np.zeros(count, dtype=np.int64)
        self._late = np.zeros((setup.randomise.latency[1] + 1, count, setup.action_space.shape[0]))
        self.spheres = np.zeros((count, setup.obstacles, 4))
        self.clearance = np.full(count, np.inf)
        self._poses = np.empty((count, 12))
        self._errors = np.empty((count, 5))
        self._drive = np.empty((count, n))
        self._still = np.zeros((count, n))
        self._displaced = np.tile(np.eye(4), (count, 1, 1))
        self._normal = np.zeros(3) if setup.normal is None else setup.normal
        self._ik: Any = None
        self._saturated = np.zeros(count, dtype=bool)
        m = setup.goal_size
        self.achieved = np.empty((count, m), dtype=np.float32)
        self.desired = np.empty((count, m), dtype=np.float32)
        self._noise_scale = setup.randomise.noise * np.concatenate([np.ones(n), np.full(n, 10.0)])
        self._rewards = np.empty(count, dtype=np.float32)
        self._success = np.empty(count, dtype=bool)
        self._turning = ~np.isfinite(self.chain.upper - self.chain.lower)  # joints without limits
        self._turning_any = bool(self._turning.any())
        self._flat_bounds = _bounds(setup.observation_space)
        self._tracked = None if setup.trajectory is None else _goal_rows(setup.trajectory.targets, setup.kind)

    # --- episodes ---

    def reset(self, rows: Sequence[int], options: Mapping[str, Any] | None = None) -> None:
        """Begin episodes."""
        setup, chain, n = self.setup, self.chain, self.chain.n
        options = options or {}
        for key in options:
            if key not in RESET_OPTIONS:
                raise UnknownNameError("reset option", str(key), RESET_OPTIONS)
        rows = list(rows)
        candidates = np.empty((len(rows), CANDIDATES, n))
        payloads: list[float | None] = []
        sphere_draws = np.empty((len(rows), setup.obstacles, CANDIDATES, 5))
        for k, i in enumerate(rows):
            rng = self.generator(i)
            self.time[i] = 0
            self.q[i] = self._start(rng, options)
            self.difficulty[i] = self._allowed(i, options)
            self.episodes[i] += 1
            payloads.append(self._randomise(i, rng))
            if setup.trajectory is None:
                candidates[k] = rng.uniform(setup.goal_lower, setup.goal_upper, (CANDIDATES, n))
            if setup.obstacles:
                sphere_draws[k] = rng.uniform(size=sphere_draws.shape[1:])
        self.velocity[rows] = 0.0
        self.q_command[rows] = self.q[rows]
        self._late[:, rows] = 0.0
        self._saturated[rows] = False
        if self._ik is not None:
            self._ik[0][rows] = -1
            self._ik[1][rows] = 0.0
        self.motion.reset(rows, self.q[rows], payloads)
        q_goal = None
        if setup.trajectory is not None:
            self.T_goal[rows] = setup.trajectory.targets[0]
        elif "goal" in options:
            self.T_goal[rows] = self._given_goal(options["goal"])
        else:
            q_goal = self._choose_goals(rows, candidates)
            self.T_goal[rows] = chain.fk_batch(q_goal)
        self.desired[rows] = _goal_rows(self.T_goal[rows], setup.kind)
        if setup.obstacles:
            self._place_obstacles(rows, q_goal, sphere_draws)
        self._measure()

    def _start(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Float[np.ndarray, "n"]:
        setup, chain = self.setup, self.chain
        if "q_start" in options:
            return chain.clip(options["q_start"])
        if setup.trajectory is not None:
            return setup.trajectory.q_start.copy()
        q = np.array(setup.robot.q_home)
        if setup.start_spread.any():
            q = np.clip(q + rng.uniform(-setup.start_spread, setup.start_spread), chain.lower, chain.upper)
        return q

    def _allowed(self, i: int, options: Mapping[str, Any]) -> float:
        if "difficulty" in options:
            return float(options["difficulty"])
        curriculum = self.setup.curriculum
        if curriculum is None:
            return np.inf
        end = 2.0 * self.setup.reach if curriculum.end is None else curriculum.end
        return curriculum.start + (end - curriculum.start) * min(1.0, float(self.episodes[i]) / curriculum.episodes)

    def _randomise(self, i: int, rng: np.random.Generator) -> float | None:
        ranges = self.setup.randomise
        if ranges.gain is not None:
            self._share[i] = self._speed_per_error(rng.uniform(*ranges.gain))
        if ranges.latency[1] > 0:
            self._latency[i] = rng.integers(ranges.latency[0], ranges.latency[1] + 1)
        return None if ranges.payload is None else float(rng.uniform(*ranges.payload))

    def _speed_per_error(self, gain: float) -> float:
        """Speed of a motor for an error of its joint [1/s].

        A servo that removes the share g of its error in a physics step removes 1 - (1 - g)^k of it in k steps.
        """
        return (1.0 - (1.0 - gain) ** self.setup.substeps) / self.setup.period

    def _given_goal(self, goal: Any) -> Float[np.ndarray, "4 4"]:
        array = np.asarray(goal, dtype=np.float64)
        if array.shape == (4, 4):
            return check_pose(array, "goal")
        if array.shape == (3,) and self.setup.kind == POINT:
            return Target.point(array).T
        wanted = "a point (3,) or a pose (4, 4)" if self.setup.kind == POINT else "a pose (4, 4)"
        raise InvalidArgumentError("goal", f"must be {wanted}, not of shape {array.shape}")

    def _choose_goals(self, rows: list[int], candidates: Float[np.ndarray, "r c n"]) -> Float[np.ndarray, "r n"]:
        """For each row the first candidate above the floor, brought near enough to the start."""
        n = self.chain.n
        heights = self.chain.fk_batch(candidates.reshape(-1, n))[:, 2, 3].reshape(len(rows), CANDIDATES)
        q_goal = candidates[np.arange(len(rows)), np.argmax(heights >= self.setup.floor, axis=1)]
        near = [k for k, i in enumerate(rows) if np.isfinite(self.difficulty[i])]
        if near:
            start = self.q[[rows[k] for k in near]]
            shares = 0.5 ** np.arange(HALVINGS)
            way = start[:, None] + shares[:, None] * (q_goal[near] - start)[:, None]
            tools = self.chain.fk_batch(way.reshape(-1, n))[:, :3, 3].reshape(len(near), HALVINGS, 3)
            begin = self.chain.fk_batch(start)[:, :3, 3]
            distance = np.linalg.norm(tools - begin[:, None], axis=2)
            fits = distance <= self.difficulty[[rows[k] for k in near]][:, None]
            fits[:, -1] = True
            q_goal[near] = way[np.arange(len(near)), np.argmax(fits, axis=1)]
        return q_goal

    def _place_obstacles(
        self, rows: list[int], q_goal: Float[np.ndarray, "r n"] | None, draws: Float[np.ndarray, "r s c 5"]
    ) -> None:
        """Spheres about the straight way from tool to goal, clear of the arm at its start and where it has to go."""
        setup, reach = self.setup, self.setup.reach
        starts = self.chain.fk_batch(self.q[rows])[:, :3, 3]
        for k, i in enumerate(rows):
            way = self.T_goal[i, :3, 3] - starts[k]
            postures = np.stack([self.q[i]] if q_goal is None else [self.q[i], q_goal[k]])
            for s in range(setup.obstacles):
                u = draws[k, s]
                centres = starts[k] + (0.2 + 0.6 * u[:, :1]) * way + 0.35 * reach * (u[:, 1:4] - 0.5)
                if setup.normal is not None:
                    centres -= ((centres - starts[k]) @ setup.normal)[:, None] * setup.normal
                radii = reach * (0.05 + 0.05 * u[:, 4])
                spheres = np.concatenate([centres, np.zeros((CANDIDATES, 1))], axis=1)
                gaps = np.full(CANDIDATES, np.inf)
                for q in postures:
                    out = np.empty(CANDIDATES)
                    kernels.clearances(
                        self.chain.packed, np.tile(q, (CANDIDATES, 1)), spheres[:, None], setup.link_radius, out
                    )
                    gaps = np.minimum(gaps, out)
                fits = gaps >= radii + MARGIN
                best = int(np.argmax(fits)) if fits.any() else int(np.argmax(gaps))
                radius = min(radii[best], max(gaps[best] - MARGIN, 0.0))  # none of them free: a smaller one, or none
                self.spheres[i, s, :3], self.spheres[i, s, 3] = centres[best], radius

    # --- steps ---

    def step(self, actions: Float[np.ndarray, "k a"], live: Bool[np.ndarray, "k"] | None = None) -> None:
        """Carry out one action of every arm (of those that are `live`), and measure."""
        setup = self.setup
        rows = range(self.count) if live is None else np.flatnonzero(live).tolist()
        actions = self._delayed(actions)
        if setup.action == "torque":
            drive = actions * setup.torques
        else:
            drive = self._command(actions)
        if live is not None:
            kept = self.q[~live], self.velocity[~live]
        self.motion.step(rows, self.q, self.velocity, drive)
        if live is not None:
            self.q[~live], self.velocity[~live] = kept  # type: ignore[possibly-undefined]
        if setup.action == "torque":
            self.q_command[:] = self.q
        if setup.trajectory is not None:
            due = np.minimum(self.time, len(setup.trajectory) - 1)
            self.T_goal[:] = setup.trajectory.targets[due]
            self.desired[:] = _goal_rows(self.T_goal, setup.kind)
        self.time += 1
        self._measure()

    def _delayed(self, actions: Float[np.ndarray, "k a"]) -> Float[np.ndarray, "k a"]:
        if len(self._late) == 1:
            return actions
        self._late = np.roll(self._late, 1, axis=0)
        self._late[0] = actions
        return self._late[self._latency, np.arange(self.count)]

    def _command(self, actions: Float[np.ndarray, "k a"]) -> Float[np.ndarray, "k n"]:
        """Turn actions into commanded joints, inside the limits; returns the speeds at which motors head for them."""
        setup, chain = self.setup, self.chain
        if setup.action == "cartesian":
            origin, actions = self._solve(actions), self._still
        else:
            origin = self.q_command if setup.action == "joint_position" else self.q
        kernels.steer(
            actions, origin, setup.joint_step, chain.lower, chain.upper, self.q, self._share, setup.speeds,
            self.q_command, self._drive,
        )  # fmt: skip
        return self._drive

    def _solve(self, actions: Float[np.ndarray, "k a"]) -> Float[np.ndarray, "k n"]:
        """Joints that displace the commanded tool; what the solver could not do is kept for `info`."""
        setup, chain, solver, T = self.setup, self.chain, self.setup.solver, self._displaced
        kernels.displace(chain.packed, self.q_command, actions, setup.tool_step, self._normal, T)
        if self.count >= BATCH and hasattr(solver, "solve_batch"):
            answer = solver.solve_batch(chain, T, self.q_command, kind=setup.kind, threads=1)
            q, codes = answer.q, answer._column(0).astype(np.int64)
            errors = np.stack([answer.position_error, answer.rotation_error], axis=1)
        else:
            answers = [solver.solve(chain, Target(T[k], setup.kind), self.q_command[k]) for k in range(self.count)]
            q = np.array([answer.q for answer in answers])
            codes = np.array([STATUS_CODES[answer.status] for answer in answers])
            errors = np.array([(answer.position_error, answer.rotation_error) for answer in answers])
        self._ik = (codes, errors)
        step = q - self.q_command
        most = (np.abs(step) / setup.joint_step).max(axis=1)
        self._saturated = most > 1.0
        return self.q_command + step / np.maximum(most, 1.0)[:, None]

    def _measure(self) -> None:
        setup = self.setup
        kernels.measure(
            self.chain.packed, self.q, self.q_command, self.T_goal, self.desired, setup.kind, setup.terms, self._poses,
            self._errors, self.achieved, self._rewards, self._success,
        )  # fmt: skip
        if setup.obstacles:
            kernels.clearances(self.chain.packed, self.q, self.spheres, setup.link_radius, self.clearance)

    # --- what comes out ---

    def observe(self) -> Any:
        """Observations of all arms, float32, as the space says."""
        setup, n, g = self.setup, self.chain.n, self.setup.goal_size
        low, high = self._flat_bounds
        seen = np.empty((self.count, len(low)), dtype=np.float32)
        q, velocity = self._wrapped() if self._turning_any else self.q, self.velocity
        if setup.randomise.noise > 0.0:
            noise = np.array([self.generator(i).standard_normal(2 * n) for i in range(self.count)]) * self._noise_scale
            q, velocity = q + noise[:, :n], velocity + noise[:, n:]
        at = 2 * n
        if self._tracked is not None:
            seen[:, at : at + g] = self._tracked[np.minimum(self.time, len(self._tracked) - 1)]
            at += g
        if setup.obstacles:
            spheres = self.spheres.copy()
            spheres[:, :, :3] -= self._poses[:, None, 9:12]
            seen[:, at : at + 4 * setup.obstacles] = spheres.reshape(self.count, -1)
            at += 4 * setup.obstacles
        flat = setup.observation == "flat"
        kernels.observe(
            q, velocity, self._poses, self.achieved, self.desired, self.T_goal, low, high, at if flat else -1, seen
        )
        if flat:
            return seen
        return {"observation": seen, "achieved_goal": self.achieved.copy(), "desired_goal": self.desired.copy()}

    def _wrapped(self) -> Float[np.ndarray, "k n"]:
        q = self.q.copy()
        q[:, self._turning] = (q[:, self._turning] + np.pi) % (2.0 * np.pi) - np.pi
        return q

    def rewards(self) -> tuple[Float32[np.ndarray, "k"], Bool[np.ndarray, "k"]]:
        """Rewards and successes of all arms as they are now."""
        rewards, success = self._rewards.copy(), self._success.copy()
        if self.setup.obstacles:
            hit = self.clearance < 0.0
            rewards = np.where(hit, rewards + np.float32(self.setup.collision_reward), rewards)
            success &= ~hit
        return rewards, success

    def endings(self, success: Bool[np.ndarray, "k"]) -> tuple[Bool[np.ndarray, "k"], Bool[np.ndarray, "k"]]:
        """Which episodes terminated, and which were cut."""
        if self.setup.scenario == "track":
            terminated = np.zeros(self.count, dtype=bool)
        else:
            terminated = success | (self.clearance < 0.0) if self.setup.obstacles else success.copy()
        cut = np.zeros(self.count, dtype=bool) if self.max_steps is None else self.time >= self.max_steps
        return terminated, cut

    def infos(self, rewards: Float32[np.ndarray, "k"], success: Bool[np.ndarray, "k"]) -> dict[str, Any]:
        """Arrays by name, one entry for each arm."""
        errors = self._errors.copy()
        found: dict[str, Any] = {
            "reward": rewards.astype(np.float64),
            "is_success": success,
            "position_error": errors[:, 0],
            "rotation_error": errors[:, 1],
        }
        if self.setup.action != "torque":
            found["residual_position"] = errors[:, 2]
            found["residual_rotation"] = errors[:, 3]
            found["joint_error"] = errors[:, 4]
        if self.setup.action == "cartesian":
            if self._ik is None:
                self._ik = (np.full(self.count, -1), np.zeros((self.count, 2)))
            codes, ik_errors = self._ik
            names = np.where(codes < 0, "", STATUS_NAMES[codes])
            found["ik_status"] = names.astype(object)
            found["ik_position_error"] = ik_errors[:, 0].copy()
            found["ik_rotation_error"] = ik_errors[:, 1].copy()
            found["ik_slowed"] = self._saturated.copy()
        if self.setup.obstacles:
            found["clearance"] = self.clearance.copy()
            found["collision"] = self.clearance < 0.0
        if self.setup.curriculum is not None:
            found["difficulty"] = self.difficulty.copy()
        return found

    def close(self) -> None:
        """End the simulations."""
        self.motion.close()


def goal_reward(setup: Setup, achieved: Any, desired: Any) -> tuple[Float32[np.ndarray, "k"], Bool[np.ndarray, "k"]]:
    """Rewards and successes from rows of goals alone."""
    a = np.ascontiguousarray(achieved, dtype=np.float64)
    d = np.ascontiguousarray(desired, dtype=np.float64)
    rewards, success = np.empty(len(a), dtype=np.float32), np.empty(len(a), dtype=bool)
    kernels.judge(a, d, setup.kind, setup.terms, rewards, success)
    return rewards, success


def compute_reward(setup: Setup, achieved: Any, desired: Any, info: Any) -> Any:
    """As `GoalEnv` asks for: from goals, (..., g), and the infos that belong to them; float32, of shape (...)."""
    size = GOAL_SIZES[setup.kind]
    a, d = np.asarray(achieved), np.asarray(desired)
    if a.shape != d.shape or a.shape[-1:] != (size,):
        raise InvalidArgumentError(
            "achieved_goal", f"has shape {a.shape}, desired_goal {d.shape}; wanted are both (..., {size})"
        )
    rewards, _ = goal_reward(setup, a.reshape(-1, size), d.reshape(-1, size))
    if setup.obstacles:
        infos = np.atleast_1d(np.asarray(info, dtype=object)).ravel()
        if len(infos) == len(rewards):
            hit = np.array([bool(entry.get("collision")) for entry in infos])
            rewards = np.where(hit, rewards + np.float32(setup.collision_reward), rewards)
    return rewards.reshape(a.shape[:-1])[()]


def check_action(setup: Setup, action: Any, count: int | None) -> Float[np.ndarray, "k a"]:
    """Actions as (k, a) inside [-1, 1], or an error that says what was wanted."""
    size = setup.action_space.shape[0]
    wanted = (size,) if count is None else (count, size)
    try:
        array = np.asarray(action, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError("action", f"must be numbers of shape {wanted} ({error})") from None
    if array.shape != wanted:
        of = f"{setup.action} of {setup.robot.name}"
        if setup.action != "cartesian":
            of += f": {', '.join(setup.robot.chain.joint_names)}"
        raise InvalidArgumentError("action", f"has shape {array.shape}; wanted is {wanted} ({of})")
    inside = np.empty((1 if count is None else count, size))
    if not kernels.cut(np.ascontiguousarray(array).reshape(-1, size), inside):
        raise InvalidArgumentError("action", f"holds NaN or infinity: {array.tolist()}")
    return inside


def not_reset() -> IkSimError:
    """What to say when a step comes before any reset."""
    return IkSimError("call reset() before the first step()")


def _goal_rows(T: Float[np.ndarray, "k 4 4"], kind: int) -> Float[np.ndarray, "k g"]:
    if kind == POINT:
        return T[:, :3, 3]
    if kind == AXIS:
        return np.concatenate([T[:, :3, 3], T[:, :3, 2]], axis=1)
    return np.concatenate([T[:, :3, 3], T[:, :3, 0], T[:, :3, 1]], axis=1)


def _bounds(space: Any) -> tuple[Float32[np.ndarray, "m"], Float32[np.ndarray, "m"]]:
    box = space["observation"] if hasattr(space, "spaces") else space
    return box.low, box.high
