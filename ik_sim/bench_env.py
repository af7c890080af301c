"""How fast the environments are, beside each other and beside panda-gym and Gymnasium-Robotics where those are installed.

Each figure is the best of several rounds that are taken in turn, so that a busy moment of the machine meets everybody;
seconds are processor time of this process. A step of panda-gym's reach runs 20 physics steps of 2 ms: beside it, our
arms run 20 of 2 ms too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import ik_sim.env

ROBOTS = ("UR5", "Iiwa14", "Planar2")
PANDA_PHYSICS = {"control_rate": 25.0, "control": {"physics_rate": 500.0}}  # 20 steps of 2 ms
FETCH_STEPS = 20  # physics steps of one action of FetchReach


def steps_per_second(runs: dict[str, tuple[Callable[[], Any], int]], seconds: float, rounds: int) -> dict[str, float]:
    """Best rate of each run: a function that makes `per` environment steps in one call."""
    best = dict.fromkeys(runs, 0.0)
    for function, _ in runs.values():
        function()  # compiles and loads
    for _ in range(rounds):
        for name, (function, per) in runs.items():
            calls, begin = 0, time.process_time()
            while (spent := time.process_time() - begin) < seconds or calls == 0:
                function()
                calls += 1
            best[name] = max(best[name], calls * per / spent)
    return best


def _single(env: Any) -> Callable[[], None]:
    env.reset(seed=0)
    actions = [np.random.default_rng(i).uniform(-1, 1, env.action_space.shape).astype(np.float32) for i in range(64)]
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        _, _, terminated, truncated, _ = env.step(actions[count % 64])
        if terminated or truncated:
            env.reset()

    return step


def _vector(envs: Any) -> Callable[[], None]:
    envs.reset(seed=0)
    actions = [np.random.default_rng(i).uniform(-1, 1, envs.action_space.shape).astype(np.float32) for i in range(8)]
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        envs.step(actions[count % 8])

    return step


def _others() -> dict[str, Any]:
    """Reach environments of other projects that are installed here."""
    found: dict[str, Any] = {}
    for module, env_id in (("panda_gym", "PandaReach-v3"), ("gymnasium_robotics", "FetchReach-v4")):
        try:
            __import__(module)
            found[env_id] = gymnasium.make(env_id)
        except Exception as error:  # not installed, or at odds with what is
            print(f"  {env_id}: left out ({type(error).__name__}: {error})")
    return found


def measure(seconds: float = 0.3, rounds: int = 5, num_envs: int = 16, batch: int = 1024) -> dict[str, Any]:
    """All figures: environment steps per second by name, and the ratios that matter."""
    runs: dict[str, tuple[Callable[[], Any], int]] = {}
    opened: list[Any] = []

    def add(name: str, env: Any, per: int = 1) -> None:
        opened.append(env)
        runs[name] = (_single(env) if per == 1 else _vector(env), per)

    for robot in ROBOTS:
        env_id = f"IkSim/Reach-{robot}-v0"
        for motion in ("physics", "kinematic"):
            name = f"{robot} {motion}"
            add(f"{name}, single", gymnasium.make(env_id, motion=motion))
            sync = gymnasium.make_vec(env_id, num_envs, vectorization_mode="sync", motion=motion)
            add(f"{name}, sync {num_envs}", sync, num_envs)
            fast = gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", motion=motion)
            add(f"{name}, vector {num_envs}", fast, num_envs)
        many = gymnasium.make_vec(env_id, batch, vectorization_mode="vector_entry_point", motion="kinematic")
        add(f"{robot} kinematic, vector {batch}", many, batch)
    add("Iiwa14 physics, 20 x 2 ms", gymnasium.make("IkSim/Reach-Iiwa14-v0", **PANDA_PHYSICS))
    add("UR5 physics, 20 x 2 ms", gymnasium.make("IkSim/Reach-UR5-v0", **PANDA_PHYSICS))
    others = _others()
    for env_id, env in others.items():
        add(env_id, env)
    rates = steps_per_second(runs, seconds, rounds)
    for env in opened:
        env.close()
    ratios: dict[str, float] = {}
    for robot in ROBOTS:
        for motion in ("physics", "kinematic"):
            fast, slow = rates[f"{robot} {motion}, vector {num_envs}"], rates[f"{robot} {motion}, sync {num_envs}"]
            ratios[f"{robot} {motion}: vector over sync at {num_envs}"] = fast / slow
    if "PandaReach-v3" in others:
        for robot in ("Iiwa14", "UR5"):
            ratios[f"{robot} over PandaReach, 20 physics steps of 2 ms each"] = (
                rates[f"{robot} physics, 20 x 2 ms"] / rates["PandaReach-v3"]
            )
    if "FetchReach-v4" in others:
        for robot in ("Iiwa14", "UR5"):
            ratios[f"{robot} over FetchReach, physics steps per second"] = (
                20 * rates[f"{robot} physics, 20 x 2 ms"] / (FETCH_STEPS * rates["FetchReach-v4"])
            )
    return {"steps_per_second": rates, "ratios": ratios, "ids": list(ik_sim.env.ENV_IDS)}


def main(args: list[str] | None = None) -> int:
    """Measure and print a table; `--json FILE` also writes the figures."""
    parser = argparse.ArgumentParser(prog="ik-sim bench env", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="processor time of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(args)
    result = measure(options.seconds, options.rounds, options.num_envs)
    print(f"\n  {'environment':42} {'steps/s':>10}")
    for name, rate in result["steps_per_second"].items():
        print(f"  {name:42} {rate:10.0f}")
    print()
    for name, ratio in result["ratios"].items():
        print(f"  {ratio:6.2f} x  {name}")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
