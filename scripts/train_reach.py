"""Trains an arm to reach random goals, scores it on goals it has not seen beside our inverse kinematics, and films it.

    pip install "ik_sim[rl,video]"
    python scripts/train_reach.py planar2                   # PPO
    python scripts/train_reach.py planar2 --algorithm sac   # SAC with hindsight (HER) and a sparse reward
    python scripts/train_reach.py ur5 --video

It learns in the kinematic environment and is scored in physics. In the folder runs/reach_<robot>_<algorithm>: policy.zip,
curve.csv, curve.svg, score.json and, with --video, policy.gif.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO, SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from ik_sim.benchmark.statistics import wilson
from ik_sim.env.policy import IkPolicy, score
from ik_sim.env.sb3 import ArmFeatures, make_vec_env
from ik_sim.plots import Chart, svg, svg_file

TITLES = {"planar2": "Planar2", "planar3": "Planar3", "ur5": "UR5", "iiwa14": "Iiwa14"}
GAMMA = 0.95  # looks about 20 actions ahead: two seconds, the longest way round a joint limit
STEPS = {"planar": {"ppo": 600_000, "sac": 40_000}, "spatial": {"ppo": 1_000_000, "sac": 120_000}}
"""Actions to learn from."""
SPEED = {"planar": 1.0, "spatial": 0.5}
"""Share of the speed limits: at all of it a heavy arm lags behind what the kinematic environment promised."""
SCORED = 5_000_000
"""Seed of the first goal that a policy is scored on. (Settings were chosen by goals from seed 1 000 000 on.)"""


LAST = 200
"""Episodes that a point of the curve stands for: the first ones to end are those that happen to be short and successful."""


class Curve(BaseCallback):
    """Notes the share of successes among the last episodes, and stops when time is up."""

    def __init__(self, path: Path, seconds: float, every: float = 2.0) -> None:
        super().__init__()
        self.rows: list[tuple[float, int, float, float]] = []
        self._path, self._limit, self._every = path, seconds, every
        self._begin = self._noted = time.perf_counter()
        self._last: list[tuple[bool, int]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._last = [*self._last[1 - LAST :], (info["is_success"], info["episode"]["l"])]
        now = time.perf_counter()
        if len(self._last) == LAST and now - self._noted >= self._every:
            self._noted = now
            self.note(now)
        return now - self._begin < self._limit

    def note(self, now: float) -> None:
        share, length = np.mean(self._last, axis=0)
        self.rows.append((now - self._begin, self.num_timesteps, float(share), float(length)))
        print(
            f"{now - self._begin:6.0f} s {self.num_timesteps:9d} steps  success {share:6.1%}  length {length:5.1f}",
            flush=True,
        )

    def _on_training_end(self) -> None:
        with open(self._path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["seconds", "steps", "success", "episode_steps"])
            writer.writerows(self.rows)


def model_for(algorithm: str, envs: Any, seed: int) -> Any:
    features = ArmFeatures.policy_kwargs(envs)
    if algorithm == "ppo":
        return PPO(
            "MultiInputPolicy", VecNormalize(envs, gamma=GAMMA, norm_obs=False), n_steps=64, batch_size=1024, n_epochs=10,
            learning_rate=lambda left: 1.5e-3 * left, gamma=GAMMA, gae_lambda=0.92, seed=seed, device="cpu",
            policy_kwargs={**features, "net_arch": [128, 128], "activation_fn": torch.nn.ReLU, "log_std_init": -0.7},
        )  # fmt: skip
    return SAC(
        "MultiInputPolicy", envs, replay_buffer_class=HerReplayBuffer, learning_starts=2000, batch_size=256,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        learning_rate=lambda left: 1e-3 * min(1.0, 2.0 * left), gamma=GAMMA, tau=0.02, train_freq=1, gradient_steps=4,
        ent_coef="auto_0.1",  # at 1, where it begins by default, chance is worth more than goals for half the training
        policy_kwargs={**features, "net_arch": [128, 128], "optimizer_kwargs": {"fused": True}}, seed=seed, device="cpu",
    )  # fmt: skip


def film(env_id: str, options: dict[str, Any], act: Any, path: Path, episodes: int) -> None:
    import imageio.v3 as iio

    env = gymnasium.make(env_id, render_mode="rgb_array", width=400, height=300, **options)
    pictures = []
    for k in range(episodes):
        observation, _ = env.reset(seed=SCORED + k)
        ended = False
        while not ended:
            pictures.append(env.render())
            observation, _, terminated, truncated, _ = env.step(act(observation))
            ended = terminated or truncated
        pictures += [env.render()] * 6
    rate = env.metadata["render_fps"]
    if path.suffix == ".gif":
        iio.imwrite(path, pictures, duration=1000.0 / rate, loop=0)
    else:
        iio.imwrite(path, pictures, fps=rate, codec="libx264")
    env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", choices=TITLES, nargs="?", default="planar2")
    parser.add_argument("--algorithm", choices=("ppo", "sac"), default="ppo")
    parser.add_argument("--steps", type=int, help="actions to learn from")
    parser.add_argument("--minutes", type=float, default=15.0, help="stop after so long")
    parser.add_argument("--motion", choices=("physics", "kinematic"), default="kinematic", help="to learn in")
    parser.add_argument("--tolerance", type=float, default=0.02, help="distance that counts as reached [m]")
    parser.add_argument(
        "--speed",
        type=float,
        help="share of the robot's speed limits that actions may use: 1 of a planar arm, else 0.5",
    )
    parser.add_argument(
        "--control-rate", type=float, default=10.0, help="actions per second: fewer make far goals near in actions [Hz]"
    )
    parser.add_argument("--goals", type=int, default=200, help="unseen goals to score on, in physics")
    parser.add_argument("--goals-seed", type=int, default=SCORED, help="of the first of them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--video", action="store_true")
    arguments = parser.parse_args()
    robot, algorithm = arguments.robot, arguments.algorithm
    kind = "planar" if robot.startswith("planar") else "spatial"
    speed = SPEED[kind] if arguments.speed is None else arguments.speed
    out = arguments.out or Path("runs") / f"reach_{robot}_{algorithm}"
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # small networks: more threads cost more than they bring

    env_id = f"IkSim/Reach-{TITLES[robot]}-v0"
    options: dict[str, Any] = {
        "tolerance": arguments.tolerance, "speed": speed, "observation": "goal",
        "control_rate": arguments.control_rate, "max_episode_steps": round(4.0 * arguments.control_rate),
    }  # fmt: skip
    if algorithm == "sac":
        options |= {"reward": "sparse"}
    else:
        # Worth the long way round where a joint limit bars the short one: staying there is cheap, but earns nothing.
        options |= {"success_reward": 30.0}
    # While it learns, episodes start as far about as goals lie; when it is judged, at home.
    start = 1.0 if kind == "planar" else 0.25
    count = 64 if algorithm == "ppo" else 16
    envs = VecMonitor(make_vec_env(env_id, count, motion=arguments.motion, start_range=start, **options))
    envs.seed(arguments.seed)
    model = model_for(algorithm, envs, arguments.seed)
    curve = Curve(out / "curve.csv", 60.0 * arguments.minutes)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    model.learn(arguments.steps or STEPS[kind][algorithm], callback=curve)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    envs.close()
    model.save(out / "policy.zip")

    def act(seen: Any) -> Any:
        return model.predict(seen, deterministic=True)[0]

    chart = Chart(
        f"{env_id}, {algorithm.upper()}", "actions", f"successes of the last {LAST} episodes [%]", y_range=(0.0, 105.0)
    )
    rows = np.array(curve.rows).reshape(-1, 4)
    if len(rows):
        chart.line(rows[:, 1], 100.0 * rows[:, 2], "c0", "learning", 2.0)
    judged = gymnasium.make_vec(env_id, 20, vectorization_mode="vector_entry_point", **options)
    learned = score(judged, act, arguments.goals, arguments.goals_seed)
    ours = score(judged, IkPolicy(judged), arguments.goals, arguments.goals_seed)
    judged.close()
    chart.level(100.0 * ours.success, "c2", "our inverse kinematics")
    (out / "curve.svg").write_text(svg_file(svg([chart])))
    interval = wilson(round(learned.success * learned.goals), learned.goals)
    facts = {
        "env": env_id, "algorithm": algorithm, "motion": arguments.motion, "seed": arguments.seed,
        "goals_seed": arguments.goals_seed, "tolerance": arguments.tolerance, "speed": speed, "steps": int(model.num_timesteps),
        "training_seconds": round(seconds, 1), "training_cpu_seconds": round(cpu_seconds, 1),
        "policy": vars(learned) | {"success_95": interval}, "ik": vars(ours),
    }  # fmt: skip
    (out / "score.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"\n{env_id}, {algorithm.upper()}, judged in physics after {model.num_timesteps} actions")
    print(f"  in {seconds:.0f} s ({cpu_seconds:.0f} s of processor time)")
    print(
        f"  learned    {learned}, 95 % interval {interval[0]:.1%} to {interval[1]:.1%}\n  our IK     {ours}\n  in {out}"
    )
    if arguments.video:
        film(env_id, options, act, out / "policy.gif", 12)


if __name__ == "__main__":
    main()
