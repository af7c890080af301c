"""How many arms move within one action: in physics, or by kinematics alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from jaxtyping import Float

from ik_sim.env.setup import Setup
from ik_sim.fleet import Fleet, Spec


class Motion(Protocol):
    """What moves the arms."""

    workers: int
    """Processes that do it, this one among them."""

    def reset(self, rows: Sequence[int], q: Float[np.ndarray, "k n"], payloads: Sequence[float | None]) -> None:
        """Put these arms at `q`, a row each of these, at rest."""
        ...

    def step(
        self,
        rows: Sequence[int],
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"],
        drive: Float[np.ndarray, "k n"],
    ) -> None:
        """Let the arms `rows` run for a period; `q` and `velocity` are updated in place.

        `drive` holds speeds for the motors [rad/s], or torques where the action is a torque.
        """
        ...

    def processor_time(self) -> float:
        """Of all these processes since they began [s]."""
        ...

    def close(self) -> None:
        """End."""
        ...


class KinematicMotion:
    """Every command is reached, at even speed."""

    workers = 1

    def __init__(self, setup: Setup) -> None:
        self._period = setup.period
        self._lower, self._upper = setup.robot.chain.lower, setup.robot.chain.upper

    def reset(self, rows: Sequence[int], q: Float[np.ndarray, "k n"], payloads: Sequence[float | None]) -> None:
        """Nothing to do."""

    def step(
        self,
        rows: Sequence[int],
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"],
        drive: Float[np.ndarray, "k n"],
    ) -> None:
        """Move by speed times period."""
        q += drive * self._period
        np.minimum(q, self._upper, out=q)
        np.maximum(q, self._lower, out=q)
        velocity[:] = drive

    def processor_time(self) -> float:
        """Of this process."""
        return time.process_time()

    def close(self) -> None:
        """Nothing to do."""


def physics(setup: Setup, count: int, workers: int | None = None) -> Fleet:
    """Arms in physics, shared out among `workers` processes."""
    control = setup.control
    if setup.randomise.payload is not None:  # the link must be there; its mass is set for each episode
        control = replace(control, payload=max(setup.randomise.payload[1], 1e-6))
    spec = Spec(setup.robot, control, setup.period, setup.substeps, setup.action == "torque")
    return Fleet(spec, count, workers)
