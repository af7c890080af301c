"""Steps environments and counts: a process for each Python, started by :mod:`ik_sim.bench_env`.

It runs where other projects' environments are installed, so it imports nothing but Gymnasium and NumPy. Each line on its
standard input is a JSON object, `{"open": ...}` or `{"run": ...}`; each is answered with one line.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from typing import Any

ACTIONS = 64
"""Random actions drawn beforehand, taken in turn."""


def open_environment(spec: dict[str, Any]) -> tuple[Any, int]:
    """An environment that has made its first steps, and how many arms it steps at once."""
    import gymnasium

    for module in spec["imports"]:
        gymnasium.register_envs(importlib.import_module(module))
    count = spec.get("num_envs", 0)
    if count:
        env: Any = gymnasium.make_vec(spec["id"], count, vectorization_mode=spec["vectorization"], **spec["options"])
    else:
        env = gymnasium.make(spec["id"], **spec["options"])
    env.action_space.seed(0)
    env.reset(seed=0)
    return env, max(count, 1)


def physics_steps(env: Any, path: str) -> int | None:
    """What `path`, as "sim.n_substeps", says of the environment: physics steps in one of its steps."""
    if not path:
        return None
    found = env.unwrapped
    for name in path.split("."):
        found = getattr(found, name)
    return int(found)


class Steps:
    """Goes on stepping an environment, and begins episodes anew."""

    workers: int
    """Processes that step it."""

    def __init__(self, env: Any, arms: int) -> None:
        self.env, self.arms, self._alone = env, arms, not hasattr(env, "num_envs")
        self._actions = [env.action_space.sample() for _ in range(ACTIONS)]
        self._count = 0
        self.workers = getattr(env.unwrapped, "workers", 1)
        # Of its workers too, where it has some.
        self._processor_time = getattr(env.unwrapped, "processor_time", time.process_time)

    def run(self, seconds: float) -> dict[str, float]:
        """Step for so long [s]: steps of single arms, seconds by the clock, seconds of processor time."""
        env, actions, alone, count = self.env, self._actions, self._alone, self._count
        first, cpu, wall = count, self._processor_time(), time.perf_counter()
        while (passed := time.perf_counter() - wall) < seconds or count == first:
            _, _, terminated, truncated, _ = env.step(actions[count % ACTIONS])
            count += 1
            if alone and (terminated or truncated):
                env.reset()
        self._count = count
        return {"steps": (count - first) * self.arms, "wall": passed, "cpu": self._processor_time() - cpu}


def answer(message: dict[str, Any], opened: dict[str, Steps]) -> dict[str, Any]:
    """Do what a message asks for."""
    if "open" in message:
        env, arms = open_environment(message)
        opened[message["open"]] = steps = Steps(env, arms)
        steps.run(0.05)  # compiles and loads
        found = {"physics_steps": physics_steps(env, message.get("physics_steps", "")), "workers": steps.workers}
        return found | {"version": importlib.metadata.version(message["package"]) if "package" in message else ""}
    return opened[message["run"]].run(message["seconds"])


def main() -> None:
    """Answer until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # PyBullet greets on standard output
    opened: dict[str, Steps] = {}
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), opened)
        except Exception as error:  # not installed, or at odds with what is
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    for steps in opened.values():
        steps.env.close()


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]  # its names hide others'
    main()
