"""How many arms move within one action: in physics, or by kinematics alone.

In physics each arm is a :class:`~ik_sim.simulation.Simulation` of its own whose PyBullet step is a whole control period,
cut into sub-steps: the same motion as that many steps one by one, at a fraction of the calls. (A motor's torque limit
times the whole step bounds the impulse of each sub-step, so the limits are divided by their number.)

PyBullet lets go of the interpreter's lock while it steps, so arms are shared out among threads. They don't meet: each
arm has a client of its own, and moves as it would alone, to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from ik_sim.env.setup import Setup
from ik_sim.simulation import Simulation

PAYLOAD_LINK = "ik_sim_payload"
_VALUE_AND_SPEED = itemgetter(0, 1)  # of what getJointStates gives


class Motion(Protocol):
    """What moves the arms."""

    def reset(self, i: int, q: Float[np.ndarray, "n"], payload: float | None) -> None:
        """Put arm `i` at `q`, at rest."""
        ...

    def step(
        self,
        rows: Any,
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"],
        drive: Float[np.ndarray, "k n"],
    ) -> None:
        """Let the arms `rows` run for a period; `q` and `velocity` are updated in place.

        `drive` holds speeds for the motors [rad/s], or torques where the action is a torque.
        """
        ...

    def close(self) -> None:
        """End."""
        ...


class KinematicMotion:
    """Every command is reached, at even speed."""

    def __init__(self, setup: Setup) -> None:
        self._period = setup.period
        self._lower, self._upper = setup.robot.chain.lower, setup.robot.chain.upper

    def reset(self, i: int, q: Float[np.ndarray, "n"], payload: float | None) -> None:
        """Nothing to do."""

    def step(
        self,
        rows: Any,
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"],
        drive: Float[np.ndarray, "k n"],
    ) -> None:
        """Move by speed times period."""
        q += drive * self._period
        np.minimum(q, self._upper, out=q)
        np.maximum(q, self._lower, out=q)
        velocity[:] = drive

    def close(self) -> None:
        """Nothing to do."""


class PhysicsMotion:
    """One PyBullet client for each arm, opened at its first reset, and anew after a fork."""

    def __init__(self, setup: Setup, count: int, threads: int | None = None) -> None:
        self._setup = setup
        self._threads = min(threads or usable_cores(), count)
        self._pool: ThreadPoolExecutor | None = None
        self._simulations: list[Simulation | None] = [None] * count
        self._payloads: list[float | None] = [None] * count
        self._process = os.getpid()
        self._torque = setup.action == "torque"
        control = setup.control
        if setup.randomise.payload is not None:  # the link must be there; its mass is set for each episode
            control = replace(control, payload=max(setup.randomise.payload[1], 1e-6))
        # One PyBullet step is a period; `numSubSteps` cuts it into physics steps.
        self._control = replace(
            control, physics_rate=1.0 / setup.period, substeps=1, torque_scale=control.torque_scale / setup.substeps
        )

    def _open(self, i: int) -> Simulation:
        arm = Simulation(self._setup.robot, self._control)
        if self._setup.substeps > 1:
            arm._p.setPhysicsEngineParameter(numSubSteps=self._setup.substeps, physicsClientId=arm._client)
        self._simulations[i] = arm
        return arm

    def reset(self, i: int, q: Float[np.ndarray, "n"], payload: float | None) -> None:
        """Put arm `i` at `q`, at rest, with that mass at its tool [kg]."""
        self._forget_after_fork()
        arm = self._simulations[i] or self._open(i)
        self._payloads[i] = payload
        if payload is not None:
            link = arm._links[PAYLOAD_LINK]
            inertia = [1e-6 * payload] * 3
            arm._p.changeDynamics(
                arm._body, link, mass=payload, localInertiaDiagonal=inertia, physicsClientId=arm._client
            )
        arm.reset(q)
        if self._torque:  # the motors let go
            arm._p.setJointMotorControlArray(
                arm._body, arm._arm_indices, arm._p.VELOCITY_CONTROL, forces=[0.0] * len(arm._arm_indices),
                physicsClientId=arm._client,
            )  # fmt: skip

    def step(
        self,
        rows: Any,
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"],
        drive: Float[np.ndarray, "k n"],
    ) -> None:
        """One PyBullet step for each arm."""
        if os.getpid() != self._process:
            self._restore_after_fork(q, velocity)
        rows = list(rows)
        parts = [rows[k :: self._threads] for k in range(min(self._threads, len(rows)))]
        if len(parts) <= 1:
            found = [self._run(part, drive) for part in parts]
        else:
            self._pool = self._pool or ThreadPoolExecutor(self._threads, "ik_sim physics")
            found = list(self._pool.map(self._run, parts, [drive] * len(parts)))
        for part, numbers in zip(parts, found, strict=True):
            states = np.array(numbers).reshape(-1, q.shape[1], 2)
            q[part] = states[:, :, 0]
            velocity[part] = states[:, :, 1]

    def _run(self, rows: Sequence[int], drive: Float[np.ndarray, "k n"]) -> list[float]:
        """Step these arms; joint values and speeds, one after the other."""
        numbers: list[float] = []
        for i in rows:
            arm = self._simulations[i]
            assert arm is not None
            p, client, body = arm._p, arm._client, arm._body
            if self._torque:
                p.setJointMotorControlArray(
                    body, arm._arm_indices, p.TORQUE_CONTROL, forces=drive[i].tolist(), physicsClientId=client
                )
            else:
                speeds = drive[i] if arm._arm_indices == arm._q_indices else drive[i] @ arm._arm_matrix
                p.setJointMotorControlArray(
                    body, arm._arm_indices, p.VELOCITY_CONTROL, targetVelocities=speeds.tolist(),
                    forces=arm._arm_forces, physicsClientId=client,
                )  # fmt: skip
            p.stepSimulation(client)
            numbers.extend(chain.from_iterable(map(_VALUE_AND_SPEED, p.getJointStates(body, arm._q_indices, client))))
        return numbers

    def _forget_after_fork(self) -> None:
        """Leave the parent's clients alone; this process opens its own."""
        if os.getpid() == self._process:
            return
        for arm in self._simulations:
            if arm is not None:
                arm._disconnect.detach()
        self._simulations = [None] * len(self._simulations)
        self._pool = None  # a fork takes no threads along
        self._process = os.getpid()

    def _restore_after_fork(self, q: Float[np.ndarray, "k n"], velocity: Float[np.ndarray, "k n"]) -> None:
        open_ones = [i for i, arm in enumerate(self._simulations) if arm is not None]
        self._forget_after_fork()
        for i in open_ones:
            self.reset(i, q[i], self._payloads[i])
            arm = self._simulations[i]
            assert arm is not None
            for index, x, v in zip(arm._q_indices, q[i], velocity[i], strict=True):
                arm._p.resetJointState(arm._body, index, float(x), float(v), physicsClientId=arm._client)

    def close(self) -> None:
        """End the clients of this process."""
        self._forget_after_fork()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        for arm in self._simulations:
            if arm is not None:
                arm.close()
        self._simulations = [None] * len(self._simulations)


def usable_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
