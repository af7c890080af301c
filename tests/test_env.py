"""The Gymnasium environments: contract, determinism, what the numbers mean."""

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo

import ik_sim.env
from ik_sim.control import ControlSettings
from ik_sim.env import ENV_IDS, ArmEnv, ArmVectorEnv
from ik_sim.env.policy import IkPolicy, score
from ik_sim.errors import DisplayError, IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation

UR5, IIWA, PLANAR2 = "IkSim/Reach-UR5-v0", "IkSim/Reach-Iiwa14-v0", "IkSim/Reach-Planar2-v0"
MODES = {
    "flat": {},
    "goal": {"observation": "goal", "reward": "sparse"},
    "velocity": {"action": "joint_velocity", "observation": "goal"},
    "cartesian": {"action": "cartesian", "motion": "kinematic"},
    "torque": {"action": "torque", "reward": "sparse"},
}

try:
    from stable_baselines3.common.env_checker import check_env as check_env_sb3
except ImportError:
    check_env_sb3 = None


def rollout(env_id: str, seed: int, steps: int = 100, **options) -> list[np.ndarray]:
    """Everything that comes out, as arrays, over `steps` drawn actions."""
    env = gymnasium.make(env_id, **options)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    out = [observation, env.unwrapped.T_goal]  # type: ignore[attr-defined]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        out += [observation, np.array(reward)]
        if terminated or truncated:
            observation, _ = env.reset()
            out += [observation, env.unwrapped.T_goal]  # type: ignore[attr-defined]
    env.close()
    return out


def same(a: list, b: list) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# --- the contract ---


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_checker_passes_without_a_warning(env_id, mode):
    env = gymnasium.make(env_id, **MODES[mode])
    check_env(env.unwrapped, skip_render_check=True)  # warnings are errors here
    env.close()


@pytest.mark.rl
@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("mode", MODES)
def test_stable_baselines_checker_passes_without_a_warning(env_id, mode):
    assert check_env_sb3 is not None
    env = gymnasium.make(env_id, **MODES[mode]).unwrapped
    check_env_sb3(env, warn=True)
    env.close()


@pytest.mark.display
@pytest.mark.slow
def test_the_checker_passes_with_every_way_of_rendering(display, monkeypatch):
    monkeypatch.setenv("DISPLAY", display)
    env = gymnasium.make(PLANAR2, render_mode="rgb_array", width=64, height=48)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_bounds_are_finite_and_everything_outside_is_float32(env_id):
    env = gymnasium.make(env_id, observation="goal")
    for space in [env.action_space, *env.observation_space.spaces.values()]:  # type: ignore[attr-defined]
        assert space.dtype == np.float32
        assert np.isfinite(space.low).all()
        assert np.isfinite(space.high).all()
    observation, _ = env.reset(seed=0)
    assert all(part.dtype == np.float32 for part in observation.values())
    assert env.unwrapped.q.dtype == np.float64  # type: ignore[attr-defined]
    env.close()


def test_a_spec_survives_pickling_and_deep_copies_and_makes_the_same_environment():
    env = gymnasium.make(UR5, motion="kinematic", reward="sparse", randomise={"latency": (1, 2)})
    assert env.spec is not None
    for spec in (pickle.loads(pickle.dumps(env.spec)), copy.deepcopy(env.spec)):
        again = gymnasium.make(spec)
        assert again.unwrapped.setup.reward == "sparse"  # type: ignore[attr-defined]
        assert again.unwrapped.setup.randomise.latency == (1, 2)  # type: ignore[attr-defined]
        again.close()
    assert EnvSpec.from_json(env.spec.to_json()).id == UR5
    env.close()


def test_closing_twice_does_nothing_and_a_closed_environment_says_so():
    env = ArmEnv(robot="planar2")
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(IkSimError, match="closed"):
        env.step(np.zeros(2))
    with pytest.raises(IkSimError, match="closed"):
        env.reset()
    envs = ArmVectorEnv(2, robot="planar2")
    envs.reset(seed=0)
    envs.close()
    envs.close()
    with pytest.raises(IkSimError, match="closed"):
        envs.step(np.zeros((2, 2)))


@pytest.mark.parametrize("action", [np.zeros(5), np.zeros((1, 6)), [0.0] * 7, "up", None, 0.0])
def test_an_action_of_the_wrong_shape_is_answered_with_the_joints_it_is_for(action):
    env = ArmEnv(robot="ur5", motion="kinematic")
    env.reset(seed=0)
    with pytest.raises(InvalidArgumentError, match=r"\(6,\)"):
        env.step(action)
    with pytest.raises(InvalidArgumentError, match="shoulder_pan_joint"):
        env.step(np.zeros(5))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_in_an_action_is_refused_and_changes_nothing(bad):
    env = ArmEnv(robot="planar2")
    env.reset(seed=0)
    before = env.q
    with pytest.raises(InvalidArgumentError, match="NaN or infinity"):
        env.step(np.array([0.0, bad]))
    np.testing.assert_array_equal(env.q, before)
    env.close()


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(IkSimError, match="reset"):
        ArmEnv(robot="planar2").step(np.zeros(2))
    with pytest.raises(IkSimError, match="reset"):
        ArmVectorEnv(2, robot="planar2").step(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"action": "joint_positions"}, "did you mean 'joint_position'"),
        ({"rewards": "dense"}, "did you mean 'reward'"),
        ({"robot": "ur55"}, "no robot"),
        ({"motion": "kinematic", "action": "torque"}, "needs motion='physics'"),
        ({"scenario": "track"}, "task"),
        ({"task": "ur5_line"}, "belongs to the scenario track"),
        ({"randomise": {"delay": 1}}, "no setting of randomise"),
        ({"randomise": {"gain": (0.5, 1.5)}}, "a share"),
        ({"curriculum": {"start": -1.0}}, "above 0"),
        ({"speed": 0.0}, "speed"),
        ({"tolerance": 0.0}, "above 0"),
        ({"control_rate": 1000.0}, "physics steps"),
        ({"render_mode": "ansi"}, "no render mode"),
        ({"solver": "combind"}, "did you mean 'combined'"),
    ],
)
def test_options_that_make_no_sense_are_answered_with_what_would(options, text):
    with pytest.raises(IkSimError, match=text):
        ArmEnv(**options)


# --- same seed, same bits ---


@pytest.mark.parametrize("env_id", [UR5, "IkSim/Track-Planar2-v0", "IkSim/Avoid-Planar3-v0"])
def test_resetting_with_a_seed_and_then_without_repeats_bit_for_bit(env_id):
    assert same(rollout(env_id, 7, 220), rollout(env_id, 7, 220))
    assert not same(rollout(env_id, 7, 20), rollout(env_id, 8, 20))


_PROCESS = """
import sys, hashlib
import numpy as np, gymnasium, ik_sim.env
env = gymnasium.make("IkSim/Reach-UR5-v0")
env.action_space.seed(7)
observation, _ = env.reset(seed=7)
digest = hashlib.sha256(observation.tobytes() + env.unwrapped.T_goal.tobytes())
for _ in range(100):
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    digest.update(observation.tobytes() + np.float64(reward).tobytes())
    if terminated or truncated:
        env.reset()
        digest.update(env.unwrapped.T_goal.tobytes())
print(digest.hexdigest())
"""


def test_equal_seeds_give_equal_rollouts_in_different_processes():
    lines = [
        subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert lines[0] == lines[1]
    assert len(lines[0].strip().splitlines()[-1]) == 64


@pytest.mark.parametrize("options", [{}, {"action": "torque"}, {"action": "cartesian", "observation": "goal"}])
def test_a_second_copy_behaves_like_the_first_whatever_that_has_done_before(options):
    first = gymnasium.make(UR5, max_episode_steps=500, **options)
    rng = np.random.default_rng(1)
    first.reset(seed=3)
    for _ in range(30):
        first.step(rng.uniform(-1, 1, first.action_space.shape).astype(np.float32))
    second = gymnasium.make(UR5, max_episode_steps=500, **options)
    a, b = first.reset(seed=11)[0], second.reset(seed=11)[0]
    for _ in range(30):
        np.testing.assert_equal(a, b)
        action = rng.uniform(-1, 1, first.action_space.shape).astype(np.float32)
        (a, reward_a, *_), (b, reward_b, *_) = first.step(action), second.step(action)
        assert reward_a == reward_b
    first.close()
    second.close()


@pytest.mark.parametrize(
    "options",
    [
        {"motion": "physics"},
        {"motion": "kinematic", "observation": "goal", "randomise": {"noise": 0.01, "latency": (0, 3)}},
        {"motion": "physics", "randomise": {"gain": (0.1, 1.0), "payload": (0.0, 2.0)}, "start_range": 0.1},
        {"motion": "kinematic", "action": "cartesian", "curriculum": {"start": 0.05, "episodes": 4}},
        {"motion": "kinematic", "scenario": "avoid"},
    ],
)
def test_the_fast_vector_environment_is_gymnasiums_synchronous_one_bit_for_bit(options):
    options = {"robot": "planar3", "max_episode_steps": 12, **options}
    if options["motion"] == "kinematic" and "scenario" not in options:
        options["tolerance"] = 0.1  # so that some episodes end early
    # Nine: from eight on, one call solves for all arms of Cartesian actions.
    fast = gymnasium.make_vec(PLANAR2, 9, vectorization_mode="vector_entry_point", **options)
    slow = gymnasium.make_vec(PLANAR2, 9, vectorization_mode="sync", **options)
    (a, info_a), (b, info_b) = fast.reset(seed=21), slow.reset(seed=21)
    rng = np.random.default_rng(2)
    ended = 0
    for step in range(30):
        np.testing.assert_equal(a, b)
        for name, values in info_b.items():
            np.testing.assert_array_equal(info_a[name], values, err_msg=f"{name} at step {step}")
        action = rng.uniform(-1, 1, fast.action_space.shape).astype(np.float32)
        (a, *rest_a, info_a), (b, *rest_b, info_b) = fast.step(action), slow.step(action)
        if any((values := info_b["reward"]) != info_a["reward"]):
            raise AssertionError(f"{values} {info_a['reward']}")
        for x, y in zip(rest_a, rest_b, strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype
        ended += int((rest_a[1] | rest_a[2]).sum())
    assert ended >= 5
    fast.close()
    slow.close()


@pytest.mark.parametrize("context", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_asynchronous_environments_agree_with_synchronous_ones(context):
    rng = np.random.default_rng(3)
    actions = rng.uniform(-1, 1, (10, 2, 6)).astype(np.float32)
    ends = []
    # A function that a spawned process can import.
    for envs in (
        gymnasium.make_vec(UR5, 2, vectorization_mode="sync"),
        AsyncVectorEnv([_make_ur5, _make_ur5], context=context),
    ):
        envs.reset(seed=5)
        for action in actions:
            observation, *_ = envs.step(action)
        ends.append(observation)  # type: ignore[possibly-undefined]
        envs.close()
    np.testing.assert_array_equal(ends[0], ends[1])


def _make_ur5() -> gymnasium.Env:
    return gymnasium.make("ik_sim.env:IkSim/Reach-UR5-v0")


def forked(work: Callable[[], bytes]) -> bytes:
    """What `work` returns in a forked child of this process."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads in the parent
        child = os.fork()
    if child == 0:
        try:
            os.write(write, work())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        return answer.read()


def test_an_environment_goes_on_in_a_forked_process():
    env = gymnasium.make(PLANAR2)
    env.reset(seed=0)
    env.step(np.ones(2, np.float32))

    def child() -> bytes:
        observation = env.step(np.ones(2, np.float32))[0]
        env.reset(seed=1)
        env.close()
        return observation.tobytes()

    there = np.frombuffer(forked(child), np.float32)
    observation = env.step(np.ones(2, np.float32))[0]  # the parent's is untouched
    # The child's arm stands where the parent's stood; only what motors remember of the last step is not carried over.
    np.testing.assert_allclose(there, observation, atol=1e-6)
    env.close()


def test_an_environment_can_be_used_in_a_spawned_process_pool():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_first_observation) == _first_observation()


def _first_observation() -> bytes:
    env = _make_ur5()
    observation = env.reset(seed=9)[0]
    env.close()
    return observation.tobytes()


# --- rewards and goals ---


@pytest.mark.parametrize("reward", ["dense", "sparse"])
@pytest.mark.parametrize("target", ["point", "axis", "pose"])
def test_the_reward_works_on_batches_and_depends_on_nothing_but_its_arguments(reward, target):
    env = gymnasium.make(UR5, observation="goal", reward=reward, target=target, motion="kinematic").unwrapped
    observation, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    size = observation["achieved_goal"].shape[0]
    assert size == {"point": 3, "axis": 6, "pose": 9}[target]
    achieved = rng.uniform(-1, 1, (1638, size)).astype(np.float32)
    desired = achieved + rng.uniform(-0.03, 0.03, achieved.shape).astype(np.float32)
    infos = np.array([{} for _ in range(1638)], dtype=object)
    rewards = env.compute_reward(achieved, desired, infos)  # type: ignore[attr-defined]
    assert rewards.shape == (1638,)
    assert rewards.dtype == np.float32
    for _ in range(5):
        env.step(env.action_space.sample())
    np.testing.assert_array_equal(env.compute_reward(achieved, desired, {}), rewards)  # type: ignore[attr-defined]
    single = env.compute_reward(achieved[3], desired[3], {})  # type: ignore[attr-defined]
    assert np.shape(single) == ()
    assert single.dtype == np.float32
    assert single == rewards[3]
    if reward == "sparse":
        assert set(np.unique(rewards)) <= {-1.0, 0.0}
    with pytest.raises(InvalidArgumentError, match="shape"):
        env.compute_reward(achieved[:, :2], desired[:, :2], {})  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", [i for i in ENV_IDS if "Planar2" not in i])
def test_the_step_pays_what_the_two_goals_say(env_id):
    env = gymnasium.make(env_id, observation="goal", target="pose").unwrapped
    env.reset(seed=4)
    for _ in range(20):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        again = env.compute_reward(observation["achieved_goal"], observation["desired_goal"], info)  # type: ignore[attr-defined]
        assert reward == again
        if not info.get("collision"):
            # Goals are float32 outside: good to 1e-6 here.
            expected = -(info["position_error"] + 0.1 * info["rotation_error"])
            assert reward == pytest.approx(expected, abs=1e-5)
        if terminated or truncated:
            env.reset()
    env.close()


@pytest.mark.parametrize("target", ["point", "axis", "pose"])
def test_errors_are_those_of_the_chains_own_kinematics(target):
    env = ArmEnv(robot="ur5", target=target, motion="kinematic")
    env.reset(seed=1)
    _, _, _, _, info = env.step(np.full(6, 0.3))
    tool = load_robot("ur5").chain.fk(env.q)
    assert info["position_error"] == pytest.approx(np.linalg.norm(tool[:3, 3] - env.T_goal[:3, 3]), abs=1e-12)
    if target == "pose":
        cosine = (np.trace(env.T_goal[:3, :3].T @ tool[:3, :3]) - 1) / 2
        assert info["rotation_error"] == pytest.approx(np.arccos(cosine), abs=1e-7)
    elif target == "axis":
        assert info["rotation_error"] == pytest.approx(np.arccos(tool[:3, 2] @ env.T_goal[:3, 2]), abs=1e-7)
    else:
        assert info["rotation_error"] == 0.0


def test_goals_can_be_reached_and_lie_where_they_are_said_to():
    envs = gymnasium.make_vec(UR5, 300, motion="kinematic")
    envs.reset(seed=0)
    heights = envs.arms.T_goal[:, 2, 3]  # type: ignore[attr-defined]
    assert (heights >= 0.02).all()
    assert score(envs, IkPolicy(envs), goals=300).success == 1.0  # type: ignore[arg-type]


def test_reaching_the_goal_terminates_and_running_out_of_steps_truncates():
    env = gymnasium.make(PLANAR2, motion="kinematic")
    env.reset(seed=0)
    policy = IkPolicy(env)
    for _ in range(99):
        _, _, terminated, truncated, info = env.step(policy())
        assert info["is_success"] == terminated
        assert not truncated
        if terminated:
            break
    assert terminated  # type: ignore[possibly-undefined]
    assert info["position_error"] <= 0.02  # type: ignore[possibly-undefined]
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(100)]
    assert ends[-1] == (False, True)
    assert not any(truncated for _, truncated in ends[:-1])


def test_a_given_start_and_goal_are_taken():
    env = ArmEnv(robot="planar2", motion="kinematic")
    env.reset(options={"q_start": [0.1, 0.2], "goal": [0.3, 0.4, 0.0]})
    np.testing.assert_array_equal(env.q, [0.1, 0.2])
    np.testing.assert_array_equal(env.T_goal[:3, 3], [0.3, 0.4, 0.0])
    with pytest.raises(UnknownNameError, match="goal"):
        env.reset(options={"gaol": [0.3, 0.4, 0.0]})
    with pytest.raises(InvalidArgumentError, match="goal"):
        env.reset(options={"goal": [0.3, 0.4]})


# --- tracking and avoiding ---


def test_tracking_follows_every_target_of_the_task_and_is_cut_at_the_last():
    env = gymnasium.make("IkSim/Track-UR5-v0")
    trajectory = env.unwrapped.setup.trajectory  # type: ignore[attr-defined]
    policy = IkPolicy(env)
    env.reset(seed=0)
    worst = 0.0
    for k in range(len(trajectory)):
        _, _, terminated, truncated, info = env.step(policy())
        np.testing.assert_array_equal(env.unwrapped.T_goal, trajectory.targets[k])  # type: ignore[attr-defined]
        worst = max(worst, info["position_error"])
        assert not terminated
        assert truncated == (k == len(trajectory) - 1)
    assert worst < 1e-4  # the task's own tolerance
    env.close()


def test_the_observation_tells_a_tracker_where_the_target_goes_next():
    env = gymnasium.make("IkSim/Track-Planar2-v0", observation="goal").unwrapped
    targets = env.setup.trajectory.targets  # type: ignore[attr-defined]
    observation, _ = env.reset(seed=0)
    for k in range(5):
        np.testing.assert_allclose(observation["observation"][4:7], targets[k, :3, 3], atol=1e-6)
        observation, *_ = env.step(np.zeros(2))
        np.testing.assert_allclose(observation["desired_goal"], targets[k, :3, 3], atol=1e-6)
    env.close()


@pytest.mark.parametrize("robot", ["ur5", "iiwa14", "planar3"])
def test_obstacles_leave_room_at_the_start_and_in_the_goal_posture(robot):
    envs = ArmVectorEnv(50, scenario="avoid", robot=robot, motion="kinematic")
    envs.reset(seed=0)
    assert (envs.arms.clearance >= 0.02).all()
    radii = envs.arms.spheres[:, :, 3]
    assert (radii > 0.02).mean() > 0.8  # nearly all of them are really there


def test_touching_an_obstacle_ends_the_episode_at_its_price_and_is_measured_to_the_arm():
    env = ArmEnv(scenario="avoid", robot="planar2", motion="kinematic", obstacles=1)
    env.reset(seed=0, options={"q_start": [0.0, 0.0], "goal": [-0.3, 0.5, 0.0]})
    env.arms.spheres[0, 0] = [0.6, 0.15, 0.0, 0.05]  # above the stretched arm
    for _ in range(60):
        _, reward, terminated, _, info = env.step(np.array([0.2, 0.0]))
        angle = env.q[0]
        # The arm is straight: distance of the centre from its line, less both radii.
        gap = abs(0.15 * np.cos(angle) - 0.6 * np.sin(angle)) - 0.05 - 0.02
        assert info["clearance"] == pytest.approx(gap, abs=1e-12)
        if terminated:
            break
    assert terminated  # type: ignore[possibly-undefined]
    assert info["collision"]  # type: ignore[possibly-undefined]
    assert not info["is_success"]  # type: ignore[possibly-undefined]
    assert reward < -50.0  # type: ignore[possibly-undefined]


# --- actions ---


def test_position_actions_in_physics_move_as_a_servo_that_interpolates():
    env = ArmEnv(robot="ur5")
    env.reset(seed=0)
    with Simulation(load_robot("ur5")) as simulation:
        rng = np.random.default_rng(0)
        smooth = np.zeros(6)
        for _ in range(20):
            smooth = 0.9 * smooth + 0.05 * rng.uniform(-1, 1, 6)  # gentle: no torque saturates
            env.step(smooth)
            motion = simulation.move(env.arms.q_command[0], env.setup.substeps)
            assert not motion.torque_saturated.any()
            # The same end of the same even motion; what differs is rounding, a step further each time.
            np.testing.assert_allclose(env.q, motion.q[-1], atol=1e-9)
    env.close()


def test_a_period_in_one_call_is_the_same_physics_as_step_by_step():
    # So weak that motors saturate.
    env = ArmEnv(robot="ur5", control={"torque_scale": 0.0625})
    env.reset(seed=0)
    with Simulation(load_robot("ur5"), ControlSettings(torque_scale=0.0625), bare=True) as simulation:
        p, client, body = simulation._p, simulation._client, simulation._body
        rng = np.random.default_rng(1)
        for _ in range(10):
            action = rng.uniform(-1, 1, 6)
            q = env.q
            env.step(action)
            speeds = np.clip((env.arms.q_command[0] - q) / env.setup.period, -env.setup.speeds, env.setup.speeds)
            p.setJointMotorControlArray(
                body, simulation._arm_indices, p.VELOCITY_CONTROL, targetVelocities=speeds.tolist(),
                forces=simulation._arm_forces, physicsClientId=client,
            )  # fmt: skip
            simulation.step(env.setup.substeps)
            # Dividing a step or a torque limit by 8 and adding it up again may round the last bit.
            np.testing.assert_allclose(env.q, simulation.q, atol=1e-15)
    env.close()


def test_kinematic_motion_meets_every_command_exactly():
    env = ArmEnv(robot="iiwa14", motion="kinematic", speed=1.0)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        env.step(rng.uniform(-1, 1, 7))
        np.testing.assert_allclose(env.q, env.arms.q_command[0], atol=1e-15)
        assert load_robot("iiwa14").chain.within_limits(env.q)


def test_velocity_actions_set_the_joint_speed():
    env = ArmEnv(robot="planar2", action="joint_velocity", speed=0.3)
    env.reset(seed=0)
    for _ in range(10):
        env.step(np.array([1.0, -0.5]))
    np.testing.assert_allclose(env.arms.velocity[0], 0.3 * np.pi * np.array([1.0, -0.5]), atol=1e-9)
    env.close()


def test_torque_actions_push_with_the_limit_and_gravity_is_not_held():
    env = ArmEnv(robot="planar2", action="torque")
    env.reset(seed=0)
    env.step(np.array([0.0, 0.0]))
    np.testing.assert_allclose(env.q, load_robot("planar2").q_home, atol=1e-9)  # its gravity is along the axes
    env.step(np.array([0.0, 0.1]))
    assert env.arms.velocity[0, 1] > 0.1
    env.close()
    env = ArmEnv(robot="ur5", action="torque")
    env.reset(seed=0)
    for _ in range(15):
        env.step(np.zeros(6))
    fallen = load_robot("ur5").chain.fk(load_robot("ur5").q_home)[2, 3] - load_robot("ur5").chain.fk(env.q)[2, 3]
    assert fallen > 0.1
    env.close()


@pytest.mark.parametrize("target", ["point", "pose"])
def test_cartesian_actions_move_the_tool_by_what_they_say(target):
    env = ArmEnv(robot="ur5", action="cartesian", motion="kinematic", target=target, speed=0.3)
    env.reset(seed=0)
    chain = load_robot("ur5").chain
    before = chain.fk(env.q)
    action = np.zeros(3 if target == "point" else 6)
    action[:3] = [0.5, -1.0, 0.25]
    _, _, _, _, info = env.step(action)
    after = chain.fk(env.q)
    assert info["ik_status"] == "converged"
    np.testing.assert_allclose(after[:3, 3] - before[:3, 3], action[:3] * 0.3 / 30, atol=2e-6)  # the solver's tolerance
    if target == "pose":
        np.testing.assert_allclose(after[:3, :3], before[:3, :3], atol=2e-6)
        action[:] = 0.0
        action[5] = 1.0
        env.step(action)
        turned = chain.fk(env.q)[:3, :3] @ after[:3, :3].T
        assert np.arctan2(turned[1, 0], turned[0, 0]) == pytest.approx(0.3 * np.pi / 30, abs=1e-5)


@pytest.mark.parametrize("solver", ["auto", "damped_least_squares", "combined"])
def test_inverse_kinematics_that_fails_says_so_and_stays_inside_the_limits(solver):
    env = ArmEnv(robot="planar2", action="cartesian", motion="kinematic", solver=solver)
    env.reset(seed=0)
    seen = set()
    for _ in range(80):
        _, _, _, _, info = env.step(np.array([1.0, 0.0]))
        seen.add(info["ik_status"])
        assert load_robot("planar2").chain.within_limits(env.q)
    assert "converged" in seen
    assert info["ik_status"] != "converged"  # type: ignore[possibly-undefined]
    assert info["ik_position_error"] > 1e-4  # type: ignore[possibly-undefined]
    assert np.isfinite(env.q).all()


def test_no_joint_is_commanded_faster_than_it_may_even_through_a_singularity():
    env = ArmEnv(robot="ur5", action="cartesian", motion="kinematic", target="pose", speed=0.5)
    env.reset(seed=0)
    slowed = False
    for _ in range(90):
        before = env.q
        _, _, _, _, info = env.step(np.array([-0.8, 0.3, 0.0, 0.0, 0.0, 0.0]))
        assert (np.abs(env.q - before) <= env.setup.joint_step * (1 + 1e-9)).all()
        slowed |= info["ik_slowed"]
    assert slowed


# --- robots of one's own ---

_SEGMENT = (
    '<link name="l{i}"><inertial><mass value="0.5"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/>'
    "</inertial></link>"
)


def own_arm(tmp_path: Path) -> Path:
    """A turning joint without limits, a slide, a hinge and a joint that follows it."""
    joints = [
        ('<joint name="turn" type="continuous">', "0 0 0.1", "0 0 1", '<limit effort="20" velocity="2"/>'),
        ('<joint name="slide" type="prismatic">', "0 0 0.1", "0 0 1", '<limit lower="0" upper="0.3" effort="200" velocity="1"/>'),
        ('<joint name="hinge" type="revolute">', "0 0 0.2", "0 1 0", '<limit lower="-1" upper="1.5" effort="20" velocity="2"/>'),
        ('<joint name="follower" type="revolute">', "0 0 0.2", "0 1 0",
         '<limit lower="-1" upper="1.5" effort="20" velocity="2"/><mimic joint="hinge" multiplier="0.5"/>'),
    ]  # fmt: skip
    text = '<robot name="own"><link name="l0"/>' + "".join(_SEGMENT.format(i=i + 1) for i in range(4))
    for i, (head, xyz, axis, rest) in enumerate(joints):
        text += f'{head}<parent link="l{i}"/><child link="l{i + 1}"/><origin xyz="{xyz}"/><axis xyz="{axis}"/>{rest}</joint>'
    text += '<link name="tip"/><joint name="end" type="fixed"><parent link="l4"/><child link="tip"/>'
    text += '<origin xyz="0 0 0.2"/></joint></robot>'
    path = tmp_path / "own.urdf"
    path.write_text(text)
    return path


@pytest.mark.parametrize("motion", ["physics", "kinematic"])
@pytest.mark.parametrize("action", ["joint_position", "joint_velocity", "cartesian"])
def test_any_urdf_can_be_put_in_a_registered_environment(tmp_path, motion, action):
    env = gymnasium.make(UR5, robot=str(own_arm(tmp_path)), motion=motion, action=action)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()
    env = gymnasium.make(UR5, robot=str(own_arm(tmp_path)), motion=motion, action=action).unwrapped
    env.reset(seed=0)
    for _ in range(30):
        _, _, terminated, _, info = env.step(env.action_space.sample())
        if terminated:
            break
        # Unsaturated most of the time, the follower included: the measured arm is where it was told to be.
        assert info["joint_error"] < 0.05
    env.close()


def test_torques_on_joints_that_follow_others_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="mimic"):
        ArmEnv(robot=str(own_arm(tmp_path)), action="torque")


def test_an_arm_of_ones_own_tracks_a_task_of_ones_own(tmp_path):
    robot = own_arm(tmp_path)
    task = tmp_path / "up.toml"
    task.write_text(
        f'title = "Up"\nrobot = "{robot.name}"\nrate = 20\ntarget = "point"\n[path]\nkind = "joints"\n'
        "waypoints = [[0.0, 0.0, 0.3], [0.5, 0.2, 0.6]]\n[tolerance]\nresidual_position = 1e-6\n"
    )
    env = gymnasium.make("IkSim/Track-UR5-v0", robot=str(robot), task=str(task))
    env.reset(seed=0)
    policy = IkPolicy(env)
    truncated = False
    while not truncated:
        _, _, _, truncated, info = env.step(policy())
        assert info["position_error"] < 1e-3
    env.close()


# --- domain randomisation and curriculum ---


def test_latency_delays_every_action_by_its_number_of_periods():
    prompt, late = (ArmEnv(robot="planar2", motion="kinematic", randomise={"latency": d}) for d in ((0, 0), (2, 2)))
    prompt.reset(seed=0)
    late.reset(seed=0)
    rng = np.random.default_rng(0)
    path = []
    for k in range(12):
        action = rng.uniform(-1, 1, 2)
        path.append(prompt.q)
        prompt.step(action)
        late.step(action)
        if k >= 2:
            np.testing.assert_allclose(late.q, path[k - 1], atol=1e-14)


def test_a_randomised_payload_is_the_payload_of_the_simulation():
    ends = []
    for randomise, control in (({"payload": (3.0, 3.0)}, None), (None, {"payload": 3.0}), (None, None)):
        env = ArmEnv(robot="ur5", randomise=randomise, control=control, action="torque")
        env.reset(seed=0)
        for _ in range(10):
            env.step(np.zeros(6))
        ends.append(env.q)
        env.close()
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)
    assert np.abs(ends[0] - ends[2]).max() > 1e-3


def test_a_lower_gain_lags():
    errors = []
    for gain in (0.05, 1.0):
        env = ArmEnv(robot="planar2", randomise={"gain": (gain, gain)})
        env.reset(seed=0)
        for _ in range(5):
            _, _, _, _, info = env.step(np.full(2, 0.3))
        errors.append(info["joint_error"])  # type: ignore[possibly-undefined]
        env.close()
    assert errors[0] > 100 * errors[1]


def test_noise_is_in_what_is_seen_and_not_in_what_counts():
    plain, noisy = (
        ArmEnv(robot="planar2", motion="kinematic", observation="goal", randomise={"noise": sd}) for sd in (0.0, 0.01)
    )
    options = {"goal": [0.3, 0.4, 0.0]}
    plain.reset(seed=0, options=options)
    noisy.reset(seed=0, options=options)
    differences = []
    for _ in range(400):
        (a, reward_a, *_), (b, reward_b, *_) = plain.step(np.zeros(2)), noisy.step(np.zeros(2))
        assert reward_a == reward_b
        np.testing.assert_array_equal(a["achieved_goal"], b["achieved_goal"])
        differences.append(b["observation"][:2] - a["observation"][:2])
    # 800 draws: their standard deviation is within 10 % of the true one, four times its own standard error.
    assert np.std(differences) == pytest.approx(0.01, rel=0.1)


def test_a_curriculum_begins_with_near_goals_and_ends_with_all_of_them():
    env = ArmEnv(robot="planar3", motion="kinematic", curriculum={"start": 0.1, "end": 1.0, "episodes": 50})
    chain = load_robot("planar3").chain
    distances = []
    for k in range(100):
        _, info = env.reset(seed=0 if k == 0 else None)
        assert info["difficulty"] == pytest.approx(0.1 + 0.9 * min(1.0, k / 50))
        distances.append(np.linalg.norm(chain.fk(env.q)[:3, 3] - env.T_goal[:3, 3]))
        assert distances[-1] <= info["difficulty"]
    assert max(distances[50:]) > 0.5
    assert env.reset(seed=1)[1]["difficulty"] == pytest.approx(0.1)  # a seed begins it anew


# --- pictures ---


def test_pictures_show_the_arm_also_after_a_reset():
    env = gymnasium.make(IIWA, render_mode="rgb_array", max_episode_steps=5, width=160, height=120)
    env.action_space.seed(0)
    env.reset(seed=0)
    empty = None
    for _ in range(12):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        picture = env.render()
        assert isinstance(picture, np.ndarray)
        assert picture.shape == (120, 160, 3)
        assert picture.dtype == np.uint8
        assert picture.max() > 0
        # The orange covers of the arm: nothing else in the scene is orange.
        red, green, blue = (picture[:, :, k].astype(int) for k in range(3))
        orange = (red > 150) & (green < 0.75 * red) & (blue < 0.4 * red)
        assert orange.sum() > 20
        if empty is not None and not (terminated or truncated):
            assert (picture != empty).any()  # it moves
        empty = picture
        if terminated or truncated:
            env.reset()
            after = env.render()
            assert isinstance(after, np.ndarray)
            assert after.max() > 0
    env.close()


def test_rendering_leaves_the_physics_alone():
    assert same(
        rollout(PLANAR2, 5, 15),
        rollout(PLANAR2, 5, 15, render_mode="rgb_array_list", width=32, height=24),
    )


def test_lists_of_pictures_and_statistics_work():
    env = gymnasium.make(PLANAR2, render_mode="rgb_array_list", width=64, height=48, max_episode_steps=4)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(2, np.float32))
    frames = env.render()
    assert isinstance(frames, list)
    assert len(frames) == 4
    env.close()
    env = gymnasium.make(PLANAR2, render_mode="rgb_array", width=64, height=48, max_episode_steps=4)
    env = RecordEpisodeStatistics(env)
    env.reset(seed=0)
    for _ in range(4):
        *_, info = env.step(np.zeros(2, np.float32))
    assert info["episode"]["l"] == 4  # type: ignore[possibly-undefined]
    env.close()


@pytest.mark.rl
def test_record_video_writes_a_film(tmp_path):
    env = gymnasium.make(PLANAR2, render_mode="rgb_array", width=64, height=48, max_episode_steps=6)
    env = RecordVideo(env, str(tmp_path / "films"), disable_logger=True)
    env.reset(seed=0)
    for _ in range(6):
        env.step(np.zeros(2, np.float32))
    env.close()
    assert next((tmp_path / "films").glob("*.mp4")).stat().st_size > 500


def test_the_vector_environment_draws_each_arm():
    envs = gymnasium.make_vec(
        "IkSim/Avoid-Planar3-v0",
        2,
        vectorization_mode="vector_entry_point",
        render_mode="rgb_array",
        width=64,
        height=48,
    )
    envs.reset(seed=0)
    pictures = envs.render()
    assert pictures is not None
    assert len(pictures) == 2
    assert not np.array_equal(pictures[0], pictures[1])
    envs.close()


def test_a_window_without_a_display_is_an_error_and_not_the_end(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    env = gymnasium.make(PLANAR2, render_mode="human")
    with pytest.raises(DisplayError, match="DISPLAY"):
        env.reset(seed=0)
    env.close()


@pytest.mark.display
@pytest.mark.slow
def test_a_window_shows_the_arm(display):
    # In a process of its own: PyBullet can hang when a second window opens in one process.
    code = (
        "import gymnasium, numpy as np; import ik_sim.env\n"
        f"env = gymnasium.make({PLANAR2!r}, render_mode='human'); env.reset(seed=0)\n"
        "for _ in range(2): env.step(np.ones(2, np.float32))\n"
        "env.close(); print('shown')"
    )
    environment = {**os.environ, "DISPLAY": display}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert "shown" in run.stdout, run.stderr


# --- the vector environment ---


def test_episodes_that_end_begin_anew_within_the_same_step_where_that_is_asked_for():
    envs = ArmVectorEnv(3, robot="planar2", motion="kinematic", max_episode_steps=5, autoreset_mode="SameStep")
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.reset(seed=0)
    for _ in range(5):
        observations, _, _, truncated, infos = envs.step(np.ones((3, 2)))
    assert truncated.all()  # type: ignore[possibly-undefined]
    home = load_robot("planar2").q_home.astype(np.float32)
    np.testing.assert_array_equal(observations[:, :2], np.tile(home, (3, 1)))  # type: ignore[possibly-undefined]
    for final in infos["final_obs"]:  # type: ignore[possibly-undefined]
        assert (np.abs(final[:2] - home) > 0.05).all()
    assert infos["_final_obs"].all()  # type: ignore[possibly-undefined]
    assert infos["final_info"]["position_error"].shape == (3,)  # type: ignore[possibly-undefined]


def test_some_of_the_arms_can_be_reset_alone():
    envs = ArmVectorEnv(3, robot="planar2", motion="kinematic", autoreset_mode="Disabled", max_episode_steps=2)
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.ones((3, 2)))
    with pytest.raises(IkSimError, match="reset_mask"):
        envs.step(np.ones((3, 2)))
    before = envs.arms.q.copy()
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(envs.arms.q[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(envs.arms.q[1], load_robot("planar2").q_home)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("NextStep", {"robot": "ur5", "randomise": {"gain": (0.3, 1.0)}}),
        ("SameStep", {"robot": "planar3", "action": "torque", "randomise": {"payload": (0.1, 2.0)}}),
        ("Disabled", {"robot": "planar3", "observation": "goal", "start_range": 0.3}),
    ],
)
def test_processes_share_the_physics_out_and_change_no_bit_of_it(mode, options):
    everybody = [
        ArmVectorEnv(5, workers=workers, max_episode_steps=7, autoreset_mode=mode, **options) for workers in (1, 2, 3)
    ]
    assert [envs.workers for envs in everybody] == [1, 2, 3]
    rng = np.random.default_rng(0)
    found = [envs.reset(seed=0)[0] for envs in everybody]
    for k in range(24):
        for other in found[1:]:
            np.testing.assert_equal(other, found[0])
        action = rng.uniform(-1, 1, everybody[0].action_space.shape)
        found = [envs.step(action) for envs in everybody]
        for step in found:
            if "final_obs" in step[4]:  # an array of arrays, which NumPy does not compare
                step[4]["final_obs"] = list(step[4]["final_obs"])
        if mode == "Disabled" and (ended := found[0][2] | found[0][3]).any():
            found = [envs.reset(options={"reset_mask": ended}) for envs in everybody]
        if k == 10:  # one arm alone, of the last process
            mask = np.arange(5) == 4
            found = [envs.reset(options={"reset_mask": mask}) for envs in everybody]
    for envs in everybody:
        envs.close()
        envs.close()


def test_an_environment_with_workers_goes_on_in_a_forked_process_with_workers_of_its_own():
    envs = ArmVectorEnv(4, robot="planar2", workers=2)
    envs.reset(seed=0)
    action = np.full((4, 2), 0.5)
    envs.step(action)

    def child() -> bytes:
        observation = envs.step(action)[0]
        envs.close()
        return observation.tobytes()

    there = forked(child)
    here = envs.step(action)[0]  # the parent's workers are untouched
    # Motors of the child remember nothing of the last step; a float32 apart at most.
    np.testing.assert_allclose(np.frombuffer(there, np.float32).reshape(here.shape), here, atol=1e-5)
    envs.close()
    with pytest.raises(InvalidArgumentError, match="workers"):
        ArmVectorEnv(2, workers=0)


def test_actions_for_another_number_of_arms_are_refused():
    envs = ArmVectorEnv(3, robot="planar2", motion="kinematic")
    envs.reset(seed=0)
    with pytest.raises(InvalidArgumentError, match=r"\(3, 2\)"):
        envs.step(np.zeros((2, 2)))
    with pytest.raises(InvalidArgumentError, match="seeds"):
        envs.reset(seed=[1, 2])
    with pytest.raises(InvalidArgumentError, match="num_envs"):
        ArmVectorEnv(0)


# --- learning ---


@pytest.mark.rl
@pytest.mark.slow
def test_stable_baselines_learns_through_the_fast_vector_environment():
    from stable_baselines3 import PPO, SAC, HerReplayBuffer

    from ik_sim.env.sb3 import make_vec_env

    envs = make_vec_env(PLANAR2, 8, motion="kinematic", tolerance=0.1)
    PPO("MlpPolicy", envs, n_steps=32, batch_size=64, seed=0, device="cpu").learn(512)
    envs.close()
    envs.close()
    envs = make_vec_env(PLANAR2, 4, motion="kinematic", observation="goal", reward="sparse")
    model = SAC(
        "MultiInputPolicy",
        envs,
        replay_buffer_class=HerReplayBuffer,
        learning_starts=450,
        batch_size=32,
        seed=0,
        device="cpu",
    )
    model.learn(480)
    envs.close()


@pytest.mark.rl
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_the_training_script_leaves_policy_curve_score_and_film(tmp_path, algorithm):
    script = Path(__file__).parents[1] / "scripts" / "train_reach.py"
    steps = {"ppo": "4000", "sac": "2100"}[algorithm]
    arguments = [
        "planar2",
        "--algorithm",
        algorithm,
        "--steps",
        steps,
        "--goals",
        "20",
        "--out",
        str(tmp_path),
        "--video",
    ]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    command = [sys.executable, str(script), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stderr
    facts = json.loads((tmp_path / "score.json").read_text())
    assert facts["goals_seed"] == 5_000_000
    assert facts["policy"]["goals"] == facts["ik"]["goals"] == 20
    assert facts["ik"]["success"] == 1.0
    low, high = facts["policy"]["success_95"]
    assert 0.0 <= low <= facts["policy"]["success"] <= high <= 1.0
    assert (tmp_path / "policy.zip").stat().st_size > 10_000
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    assert (tmp_path / "curve.csv").read_text().startswith("seconds,steps,success,episode_steps\n")
    assert (tmp_path / "policy.gif").read_bytes()[:6] == b"GIF89a"


@pytest.mark.rl
def test_the_bridge_hands_on_where_an_episode_ended():
    from ik_sim.env.sb3 import make_vec_env

    envs = make_vec_env(PLANAR2, 2, motion="kinematic", max_episode_steps=3)
    envs.seed(0)
    envs.reset()
    for _ in range(3):
        observations, _, dones, infos = envs.step(np.ones((2, 2)))
    assert dones.all()  # type: ignore[possibly-undefined]
    for info, observation in zip(infos, observations, strict=True):  # type: ignore[possibly-undefined]
        assert info["TimeLimit.truncated"]
        assert (info["terminal_observation"][:2] != observation[:2]).any()
        assert not info["is_success"]


@pytest.mark.rl
@pytest.mark.parametrize("env_id", [UR5, "IkSim/Avoid-Planar3-v0", "IkSim/Track-Planar2-v0"])
def test_features_for_networks_hold_what_they_say_and_are_about_one_in_size(env_id):
    import torch

    from ik_sim.env.sb3 import ArmFeatures, make_vec_env

    envs = make_vec_env(env_id, 50, observation="goal", motion="kinematic", start_range=0.5)
    wanted = ArmFeatures.policy_kwargs(envs)
    features = wanted["features_extractor_class"](envs.observation_space, **wanted["features_extractor_kwargs"])
    envs.seed(0)
    seen = {name: torch.as_tensor(part) for name, part in envs.reset().items()}
    found = features(seen)
    assert found.shape == (50, features.features_dim)
    assert float(found.abs().max()) < 4.0
    n, m = envs.envs.setup.robot.chain.n, seen["observation"].shape[1]
    np.testing.assert_allclose(found[:, m : m + n], torch.sin(seen["observation"][:, :n]), atol=1e-6)
    np.testing.assert_allclose(found[:, m + n : m + 2 * n], torch.cos(seen["observation"][:, :n]), atol=1e-6)
    # Far away the magnified way saturates; within a centimetre it still tells one millimetre from another.
    near = {**seen, "achieved_goal": seen["desired_goal"] - 0.001}
    nearer = {**seen, "achieved_goal": seen["desired_goal"] - 0.002}
    assert ((features(nearer) - features(near))[:, -3:] > 0.005).all()
    envs.close()


def test_our_inverse_kinematics_is_a_baseline_in_physics_too():
    envs = gymnasium.make_vec(PLANAR2, 10, vectorization_mode="vector_entry_point")
    result = score(envs, IkPolicy(envs), goals=20)  # type: ignore[arg-type]
    assert result.goals == 20
    assert result.success == 1.0
    envs.close()


def test_ids_are_registered_once_and_named_as_documented():
    assert len(ENV_IDS) == 12
    assert set(ENV_IDS) <= set(gymnasium.registry)
    assert ik_sim.env._register() == ENV_IDS
