"""Physics: one PyBullet client with one arm in it. The only module that imports PyBullet.

    with Simulation(robot) as simulation:
        motion = simulation.move(q, steps=12)        # interpolated over 12 physics steps, each of them logged
        simulation.q, simulation.torques

What PyBullet does by itself and what is done about it here (each of these has cost somebody a day):

- `resetSimulation` forgets gravity, iterations and the kind of solver: `_configure` sets everything, after every reset.
- Model files are cached by their path, across resets and edits: that cache is off.
- A link without `<inertial>` gets 1 kg and 1 kg m²: the file is repaired on the way in (`physics_urdf`).
- Inertias are recomputed from the collision shapes, and each link is braked by 4 % of its speed per second, unless
  told otherwise.
- The joints' order and numbers are PyBullet's own: joints go by name. Joints beside the arm (fingers, lids) are held,
  mimic joints follow their master.
- A motor's torque limit times the *whole* step bounds the impulse of every sub-step, and a servo is at its setpoint
  after the first: PyBullet's own sub-steps would multiply torque and speed. Ours (`substeps`) are steps, each with a
  setpoint of its own.
- The default constraint solver stops early, and its rest looks like tracking error; here motors are solved exactly.
  (That solver is never freed: about 1 kB stays behind with every load, nothing with a reset.)
- C code prints to stdout: file descriptor 1 is turned away around every call that may print.
- Asking for a window without a display ends the process: the display is tried first.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ik_sim.control import ControlSettings
from ik_sim.errors import IkSimError, InvalidArgumentError, MissingDependencyError
from ik_sim.physics_urdf import PAYLOAD_LINK, physics_urdf, rest_positions
from ik_sim.process import display_held, quiet
from ik_sim.robots import Robot
from ik_sim.se3 import Pose, check_pose, inverse, matrix_to_quat_xyzw, quat_xyzw_to_matrix, transform
from ik_sim.urdf import MOVING

UNSTATED_TORQUE = 1000.0
"""What a joint may apply whose file states no torque limit, or 0 [Nm or N]: the effort of a large industrial arm."""
SATURATED = 0.999
"""A torque or a speed at this share of its limit counts as saturated."""
WINDOW = (
    "--width=1280 --height=800 --background_color_red=0.9 --background_color_green=0.92 --background_color_blue=0.95"
)
"""What PyBullet's window is told: its size in pixels and a light ground."""
_VALUE_SPEED_TORQUE = itemgetter(0, 1, 3)  # of what getJointStates gives; field 2 are forces of a sensor
_log = logging.getLogger("ik_sim")


@dataclass(frozen=True)
class Clipped:
    """A commanded joint value that lay outside the joint's limits."""

    joint: str
    commanded: float
    applied: float

    def __str__(self) -> str:
        return f"{self.joint}: commanded {self.commanded:.6g} clipped to {self.applied:.6g}"


@dataclass(frozen=True, eq=False)
class Motion:
    """What the arm did, physics step by physics step."""

    q_before: Float[np.ndarray, "n"]
    """Joint values before the first step [rad]."""
    setpoint: Float[np.ndarray, "k n"]
    """What the servo was told to reach by the end of each step [rad]."""
    states: Float[np.ndarray, "k n 3"]
    """Joint value, speed and motor torque at the end of each step."""
    torque_limits: Float[np.ndarray, "n"]
    """[Nm]"""
    speed_limits: Float[np.ndarray, "n"]
    """[rad/s]"""
    clipped: tuple[Clipped, ...]
    """Commanded values that had to be moved into the limits."""
    contact_force: Float[np.ndarray, "k"] | None = None
    """Sum of what pressed on the arm in each step [N]; None in a world without anything to touch."""
    contact_link: str = ""
    """The link that was pressed most."""

    @property
    def q(self) -> Float[np.ndarray, "k n"]:
        """Joint values at the end of each step [rad]."""
        return self.states[..., 0]

    @property
    def velocity(self) -> Float[np.ndarray, "k n"]:
        """At the end of each step [rad/s]."""
        return self.states[..., 1]

    @property
    def torque(self) -> Float[np.ndarray, "k n"]:
        """Applied by the motors during each step [Nm]."""
        return self.states[..., 2]

    @property
    def torque_saturated(self) -> Bool[np.ndarray, "k n"]:
        """Whether a motor gave all it may."""
        return np.abs(self.torque) >= SATURATED * self.torque_limits

    @property
    def speed_saturated(self) -> Bool[np.ndarray, "k n"]:
        """Whether a joint ran as fast as it may."""
        return np.abs(self.velocity) >= SATURATED * self.speed_limits


class Simulation:
    """An arm in physics: a context manager over one PyBullet client.

    Several may be open at once; they do not meet. The same commands give the same states bit for bit, whether the arm
    was loaded, reset, or has been moved about before.

    Args:
        robot: the arm.
        control: gains, limits and the physics around it; the defaults of :class:`ControlSettings` when left out.
        q: where it stands at first, the robot's home when left out.
        gui: open PyBullet's window.
        visuals: load what the arm looks like, for pictures; a window always does.
        T_world_base: where the robot's root link stands in the world.
        bullet_substeps: cuts each step into so many of PyBullet's own (see above what these do to torques and servos);
            for motors that are told speeds or torques, whose limits the caller divides.
        bare: leave out frames at the ends that weigh nothing: a step costs less, and they have no :meth:`link_pose`.

    Raises:
        MissingDependencyError: PyBullet is not installed.
        DisplayError: a window was asked for and there is no usable display.
        IkSimError: PyBullet can't load the robot's file.
    """

    def __init__(
        self,
        robot: Robot,
        control: ControlSettings | None = None,
        *,
        q: Any = None,
        gui: bool = False,
        visuals: bool = False,
        T_world_base: Any = None,
        bullet_substeps: int = 1,
        bare: bool = False,
    ) -> None:
        self.robot = robot
        self.control = control or ControlSettings()
        self.gui = gui
        self.q_start = robot.chain.check_q(robot.q_home if q is None else q, "q")
        self.T_world_base = np.eye(4) if T_world_base is None else check_pose(T_world_base, "T_world_base")
        self.warnings: tuple[str, ...] = ()
        """What had to be assumed about the robot, one sentence each."""
        self.setpoint = self.q_start
        """Where the servo holds or heads for [rad]."""
        self._visuals = visuals or gui
        self._bullet_substeps, self._bare = bullet_substeps, bare
        self._p: Any = _pybullet()
        with contextlib.ExitStack() as stack:
            if gui:
                stack.enter_context(display_held())
                _take_the_window()
            said = stack.enter_context(quiet())
            self._client = self._p.connect(self._p.GUI, options=WINDOW) if gui else self._p.connect(self._p.DIRECT)
        if self._client < 0:
            raise IkSimError(f"PyBullet does not start{_last_words(said)}")
        self._disconnect = weakref.finalize(self, _disconnect, self._p, self._client)
        try:
            self._load()
        except BaseException:
            self.close()
            raise
        for warning in self.warnings:
            _log.warning("%s: %s", robot.name, warning)

    # --- session ---

    def close(self) -> None:
        """End the session; a second call does nothing."""
        self._disconnect()

    def abandon(self) -> None:
        """In a forked process: leave the session to the parent, whose it is."""
        self._disconnect.detach()

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return not self._disconnect.alive

    def __enter__(self) -> Simulation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def reload(self) -> None:
        """Empty the world and load the arm again, from its file as it is now; settings stay."""
        self._check_open()
        self._load()

    def reset(self, q: Any = None) -> None:
        """Put the arm at `q` (its start when left out), at rest, without loading anything; the servo holds it there."""
        self._check_open()
        self.setpoint = self._clip(self.q_start if q is None else q)[0]
        positions = self._all(self.setpoint)
        for index, position in zip(self._all_indices, positions, strict=True):
            self._p.resetJointState(self._body, index, position, 0.0, physicsClientId=self._client)
        self._drive(positions, self._all_indices, self._all_forces)
        self._driven = None
        self._read()
        self._state[:, 2] = 0.0  # PyBullet would still report the torque of the last step

    def set_gains(self, position_gain: float | None = None, velocity_gain: float | None = None) -> None:
        """Drive on with other gains; what is left out stays. Nothing is loaded again.

        Raises:
            InvalidArgumentError: a gain out of its range.
        """
        self._check_open()
        given = {"position_gain": position_gain, "velocity_gain": velocity_gain}
        self.control = replace(self.control, **{name: gain for name, gain in given.items() if gain is not None})
        self._resolve_gains()
        self._drive(self._arm(self.setpoint[None])[0], self._arm_indices, self._arm_forces)

    def set_payload(self, mass: float) -> None:
        """Hang another mass on the tool [kg]; there has to be one by the control settings."""
        self._check_open()
        link = self._links.get(PAYLOAD_LINK)
        if link is None:
            raise InvalidArgumentError("mass", "needs a simulation whose control settings have a payload above 0")
        self._p.changeDynamics(
            self._body, link, mass=mass, localInertiaDiagonal=[1e-6 * mass] * 3, physicsClientId=self._client
        )

    @property
    def engine_error(self) -> type[Exception]:
        """What PyBullet raises, such as after its window has been closed."""
        return self._p.error

    # --- driving ---

    def command(self, q: Any) -> tuple[Clipped, ...]:
        """Let the servo head for `q` from the next step on, as fast as its gain and limits allow.

        This is position control in every mode; modes are for setpoints that :meth:`move` streams.

        Returns:
            The values that lay outside the joint limits and were moved inside.
        """
        self._check_open()
        self.setpoint, clipped = self._clip(q)
        self._drive(self._arm(self.setpoint[None])[0], self._arm_indices, self._arm_forces)
        self._driven = None
        return clipped

    def step(self, steps: int = 1) -> None:
        """Let physics run for that many steps."""
        self._check_open()
        step, client = self._p.stepSimulation, self._client
        for _ in range(steps * self.control.substeps):
            step(physicsClientId=client)
        self._read()

    def move(self, q: Any, steps: int) -> Motion:
        """Lead the servo to `q` in that many physics steps, a fresh setpoint for each, evenly from the last setpoint.

        The setpoint of a step is where the arm should be at its *end*: with gains of 1 it is there, as long as torque
        and speed allow. (Sending the velocity as well would count the motion twice.)
        """
        self._check_open()
        if steps < 1:
            raise InvalidArgumentError("steps", f"must be 1 or more, not {steps}")
        goal, clipped = self._clip(q)
        parts = self.control.substeps
        every = self.setpoint + _shares(steps * parts) * (goal - self.setpoint)
        self.setpoint = every[-1] = goal  # to the last bit
        setpoints = every[parts - 1 :: parts]
        q_before = self._state[:, 0].copy()
        if self.control.mode != "position":
            states = self._drive_steps(every)
            self._state = states[-1]
            contact = self._take_contacts()
            return Motion(q_before, setpoints, states, self.torque_limits, self.speed_limits, clipped, *contact)
        p, client, body, indices, q_indices = self._p, self._client, self._body, self._arm_indices, self._q_indices
        send, step, read = p.setJointMotorControlArray, p.stepSimulation, p.getJointStates
        how, forces, at_rest = p.POSITION_CONTROL, self._arm_forces, self._arm_zeros
        gains, velocity_gains = self._arm_gains, self._arm_velocity_gains
        numbers: list[float] = []
        touchable = bool(self.control.boxes)
        self._draw(False)
        # Arguments by position and a plain loop over what is read: by name and by iterators costs a sixth more.
        for k, targets in enumerate(self._arm(every), 1):
            send(body, indices, how, targets, at_rest, forces, gains, velocity_gains, client)
            step(client)
            if k % parts:
                continue
            for value, speed, _, torque in read(body, q_indices, client):
                numbers += (value, speed, torque)
            if touchable:
                self._feel()
        states = np.array(numbers).reshape(steps, len(q_indices), 3)
        self._state = states[-1]
        contact = self._take_contacts()
        return Motion(q_before, setpoints, states, self.torque_limits, self.speed_limits, clipped, *contact)

    def _drive_steps(self, setpoints: Float[np.ndarray, "j n"]) -> Float[np.ndarray, "k n 3"]:
        """A sub-step for each setpoint by velocity or by computed torque; the states at the ends of whole steps.

        With setpoint s, the one before it p, and the one before that o, both [rad] per sub-step of length h,

            velocity:  v = (s - p) / h + g (p - q) / h                         what the motor is told
            torque:    a = [(s - p) - (p - o) + d ((p - o) - v h) + g (p - q)] / h²
                       tau = M(q) a + c(q, v) + gravity + damping v + friction sign(s - p)

        so that gains of 1 remove an error within one step, in either mode.
        """
        p, client, body, h = self._p, self._client, self._body, self.time_step / self.control.substeps
        g, d, indices = self._position_gain, self._velocity_gain, self._arm_indices
        limits, forces = np.array(self._all_speeds[: len(indices)]), np.array(self._arm_forces)
        rows, of_q = np.array(self._arm(setpoints)), [indices.index(i) for i in self._q_indices]
        torque_mode = self.control.mode == "torque"
        if torque_mode:  # what is left of the motors is friction: they brake with no more than that
            p.setJointMotorControlArray(
                body, indices, p.VELOCITY_CONTROL, targetVelocities=[0.0] * len(indices),
                forces=self._friction.tolist(), physicsClientId=client,
            )  # fmt: skip
        if self._driven is None:  # at rest since the last reset or command
            now = np.array([s[0] for s in p.getJointStates(body, indices, physicsClientId=client)])
            self._driven = now, np.zeros(len(indices))
        before, last_step = self._driven
        found = []
        self._draw(False)
        state = np.array([s[:2] for s in p.getJointStates(body, indices, physicsClientId=client)])
        for k, target in enumerate(rows, 1):
            q, v, ahead = state[:, 0], state[:, 1], target - before
            if torque_mode:
                wanted = v + (ahead - last_step + d * (last_step - v * h) + g * (before - q)) / h
                a = (np.clip(wanted, -limits, limits) - v) / h
                losses = self._damping * v + self._friction * np.sign(ahead)
                applied = self._inverse_dynamics(a) + losses
                if (np.abs(applied) > forces).any():
                    # Clipped one by one, torques would no longer fit each other, and weak joints be thrown about by
                    # strong ones. So the whole acceleration is scaled to what the motors can do.
                    hold = self._inverse_dynamics(0.0 * a) + losses
                    room = np.where(applied > hold, forces - hold, hold + forces)
                    share = room / np.maximum(np.abs(applied - hold), 1e-300)
                    applied = np.clip(hold + min(1.0, max(0.0, float(share.min()))) * (applied - hold), -forces, forces)
                p.setJointMotorControlArray(
                    body, indices, p.TORQUE_CONTROL, forces=applied.tolist(), physicsClientId=client
                )
            else:
                wanted = np.clip((ahead + g * (before - q)) / h, -limits, limits)
                p.setJointMotorControlArray(
                    body, indices, p.VELOCITY_CONTROL, targetVelocities=wanted.tolist(),
                    velocityGains=self._arm_velocity_gains, forces=self._arm_forces, physicsClientId=client,
                )  # fmt: skip
                applied = None
            p.stepSimulation(physicsClientId=client)
            rest = np.array([_VALUE_SPEED_TORQUE(s) for s in p.getJointStates(body, indices, physicsClientId=client)])
            if applied is not None:  # PyBullet reports only what its motors do
                rest[:, 2] = applied
            state = rest[:, :2]
            if k % self.control.substeps == 0:
                found.append(rest[of_q])
                if self.control.boxes:
                    self._feel()
            before, last_step = target, ahead
        self._driven = before, last_step
        return np.stack(found)

    def _feel(self) -> None:
        """Note what presses on the arm after a step."""
        total = 0.0
        for point in self._p.getContactPoints(bodyA=self._body, physicsClientId=self._client):
            link, force = point[3], point[9]
            total += force
            self._pressed[link] = self._pressed.get(link, 0.0) + force
        self._felt.append(total)

    def _take_contacts(self) -> tuple[Float[np.ndarray, "k"] | None, str]:
        """What pressed on the arm since the last call, step by step, and on which link most."""
        if not self.control.boxes:
            return None, ""
        felt, pressed = np.array(self._felt), {link: force for link, force in self._pressed.items() if force > 0.0}
        self._felt, self._pressed = [], {}
        if not pressed:
            return felt, ""
        index = max(pressed, key=lambda link: pressed[link])
        return felt, next(name for name, i in self._links.items() if i == index)

    def _inverse_dynamics(self, acceleration: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Torques that give the arm's joints that acceleration, as it stands and moves now [Nm]."""
        p, client = self._p, self._client
        states = p.getJointStates(self._body, self._free_indices, physicsClientId=self._client)
        a = np.zeros(len(self._free_indices))
        a[self._arm_in_free] = acceleration
        torque = p.calculateInverseDynamics(
            self._body, [s[0] for s in states], [s[1] for s in states], a.tolist(), physicsClientId=client
        )
        return np.array(torque)[self._arm_in_free]

    # --- driving by speeds and torques ---

    def release(self) -> None:
        """Let the motors go: torques alone move the arm from here on."""
        self._check_open()
        self._p.setJointMotorControlArray(
            self._body,
            self._arm_indices,
            self._p.VELOCITY_CONTROL,
            forces=self._arm_zeros,
            physicsClientId=self._client,
        )

    def place(self, q: Float[np.ndarray, "n"], velocity: Float[np.ndarray, "n"]) -> None:
        """Put the joints of `q` there in motion, and leave the motors as they are."""
        self._check_open()
        for index, x, v in zip(self._q_indices, q.tolist(), velocity.tolist(), strict=True):
            self._p.resetJointState(self._body, index, x, v, physicsClientId=self._client)

    def step_motors(self, drive: Float[np.ndarray, "n"], torque: bool = False) -> Sequence[tuple[Any, ...]]:
        """One PyBullet step with motors at these speeds [rad/s], or these torques; PyBullet's states of the joints of q.

        No checks, nothing kept for :attr:`q`: for those who step many arms, many times.
        """
        p, client, body, indices = self._p, self._client, self._body, self._arm_indices
        if torque:
            p.setJointMotorControlArray(body, indices, p.TORQUE_CONTROL, forces=drive.tolist(), physicsClientId=client)
        else:
            speeds = drive if indices == self._q_indices else drive @ self._arm_matrix
            p.setJointMotorControlArray(
                body, indices, p.VELOCITY_CONTROL, targetVelocities=speeds.tolist(), forces=self._arm_forces,
                physicsClientId=client,
            )  # fmt: skip
        p.stepSimulation(client)
        return p.getJointStates(body, self._q_indices, client)

    # --- reading ---

    @property
    def q(self) -> Float[np.ndarray, "n"]:
        """Measured joint values [rad or m]."""
        return self._state[:, 0].copy()

    @property
    def velocities(self) -> Float[np.ndarray, "n"]:
        """Measured joint speeds [rad/s or m/s]."""
        return self._state[:, 1].copy()

    @property
    def torques(self) -> Float[np.ndarray, "n"]:
        """What the motors applied in the last step [Nm or N]."""
        return self._state[:, 2].copy()

    @property
    def T_base_tool(self) -> Pose:
        """The tool in the chain's base as PyBullet's own kinematics has it (good to about 1e-7 m)."""
        return inverse(self.link_pose(self.robot.chain.base_link)) @ self._T_world_tool()

    def link_pose(self, link: str) -> Pose:
        """T_world_link of a link of the robot's file: its frame, not its centre of mass."""
        self._check_open()
        index = self._links.get(link)
        if index is None:
            self.robot.model.link(link)  # says which links there are
            raise IkSimError(f"link {link!r} is not in the simulation")
        if index == -1:
            return self.T_world_base.copy()
        # Fields 4 and 5 are the link's frame; 0 and 1 would be its centre of mass.
        state = self._p.getLinkState(self._body, index, computeForwardKinematics=1, physicsClientId=self._client)
        return transform(quat_xyzw_to_matrix(np.array(state[5])), np.array(state[4]))

    def joint_positions(self) -> dict[str, float]:
        """Every moving joint of the robot's file by name, fingers and mimic joints included [rad or m]."""
        self._check_open()
        states = self._p.getJointStates(self._body, self._all_indices, physicsClientId=self._client)
        return {name: state[0] for name, state in zip(self._all_names, states, strict=True)}

    @property
    def time_step(self) -> float:
        """Length of a physics step [s]."""
        return 1.0 / self.control.physics_rate

    def settings(self) -> dict[str, Any]:
        """What physics runs with, resolved, in plain values: for a log."""
        return {
            "engine": f"pybullet {self._p.getAPIVersion()}",
            "mode": self.control.mode,
            "position_gain": self._position_gain,
            "velocity_gain": self._velocity_gain,
            "torque_limits": dict(zip(self.robot.chain.joint_names, self.torque_limits.tolist(), strict=True)),
            "speed_limits": {
                name: limit if np.isfinite(limit) else None
                for name, limit in zip(self.robot.chain.joint_names, self.speed_limits.tolist(), strict=True)
            },
            "joint_damping": self._damping.tolist(),
            "joint_friction": self._friction.tolist() if self.control.mode == "torque" else None,
            "payload": self.control.payload,
            "payload_offset": list(self.control.payload_offset),
            "boxes": [list(box) for box in self.control.boxes],
            "gravity": list(self.control.gravity),
            "physics_rate": self.control.physics_rate,
            "substeps": self.control.substeps,
            "constraint_solver": self.control.constraint_solver,
            "solver_iterations": self.control.solver_iterations,
            "residual_threshold": self.control.residual_threshold,
            "window": self.gui,
        }

    # --- inside ---

    def _check_open(self) -> None:
        if self.closed:
            raise IkSimError("this simulation is closed; open another one")

    def _load(self) -> None:
        p, client = self._p, self._client
        refused = None
        with quiet() as said:
            p.resetSimulation(physicsClientId=client)
            self._configure()
            self._draw(False)  # loading into a drawn scene takes seconds
            with physics_urdf(self.robot.model, self.robot.chain, self.control, self._visuals, self._bare) as (
                path,
                warnings,
            ):
                try:
                    self._body = p.loadURDF(
                        path,
                        basePosition=self.T_world_base[:3, 3].tolist(),
                        baseOrientation=matrix_to_quat_xyzw(self.T_world_base[:3, :3]).tolist(),
                        useFixedBase=True,
                        flags=p.URDF_USE_INERTIA_FROM_FILE | p.URDF_MAINTAIN_LINK_ORDER,
                        physicsClientId=client,
                    )
                except p.error as error:
                    refused = error
            self._draw(True)
            self._felt: list[float] = []
            self._pressed: dict[int, float] = {}
            for x, y, z, *sides in self.control.boxes:
                half = [0.5 * side for side in sides]
                shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=half, physicsClientId=client)
                p.createMultiBody(0.0, shape, basePosition=[x, y, z], physicsClientId=client)
        if refused is not None:
            raise IkSimError(f"{self.robot.urdf_path}: PyBullet can't load it ({refused}){_last_words(said)}")
        self._find_joints(warnings)
        self.reset()
        if self.gui:
            frames = self.robot.chain.joint_frames(self.q_start)[:, :3, 3]
            reach = float(np.linalg.norm(np.diff(frames, axis=0), axis=1).sum())
            p.configureDebugVisualizer(p.COV_ENABLE_GUI, 0, physicsClientId=client)  # its panels hide the arm
            p.resetDebugVisualizerCamera(
                cameraDistance=1.6 * reach, cameraYaw=50.0, cameraPitch=-25.0,
                cameraTargetPosition=(self.T_world_base @ [0.0, 0.0, 0.3 * reach, 1.0])[:3].tolist(),
                physicsClientId=client,
            )  # fmt: skip

    def _configure(self) -> None:
        """Everything that `resetSimulation` may have forgotten."""
        p, c = self._p, self.control
        direct = c.constraint_solver == "direct"
        p.setPhysicsEngineParameter(
            enableFileCaching=0,
            fixedTimeStep=1.0 / (c.physics_rate * c.substeps),
            numSubSteps=self._bullet_substeps if self._bullet_substeps > 1 else 0,
            numSolverIterations=c.solver_iterations,
            solverResidualThreshold=c.residual_threshold,
            constraintSolverType=p.CONSTRAINT_SOLVER_LCP_DANTZIG if direct else p.CONSTRAINT_SOLVER_LCP_SI,
            deterministicOverlappingPairs=1,
            physicsClientId=self._client,
        )
        p.setGravity(*c.gravity, physicsClientId=self._client)
        p.setRealTimeSimulation(0, physicsClientId=self._client)

    def show(self, wanted: bool = True) -> None:
        """Let the window draw the arm as it is now, until it moves on: a frame at every step would halt physics."""
        self._check_open()
        self._draw(wanted)

    def _draw(self, wanted: bool) -> None:
        if self.gui:
            self._p.configureDebugVisualizer(self._p.COV_ENABLE_RENDERING, int(wanted), physicsClientId=self._client)

    def _find_joints(self, warnings: Sequence[str]) -> None:
        p, client, chain, model = self._p, self._client, self.robot.chain, self.robot.model
        index: dict[str, int] = {}
        self._links = {model.root: -1}
        for i in range(p.getNumJoints(self._body, physicsClientId=client)):
            info = p.getJointInfo(self._body, i, physicsClientId=client)
            index[info[1].decode()] = i
            self._links[info[12].decode()] = i
        for i in range(-1, len(index)):  # Bullet brakes every link by itself, 4 % of its speed per second, unless told
            p.changeDynamics(self._body, i, linearDamping=0.0, angularDamping=0.0, physicsClientId=client)
        moving = [joint for joint in model.joints if joint.kind in MOVING]
        arm = [name for name in chain.all_joint_positions(chain.q_middle) if name in index]
        self._all_names = arm + [joint.name for joint in moving if joint.name not in arm]
        self._arm_names = tuple(arm)
        self._arm_indices = [index[name] for name in arm]
        self._q_indices = [index[name] for name in chain.joint_names]
        self._all_indices = [index[name] for name in self._all_names]
        # For inverse dynamics PyBullet wants every moving joint, in the order of its own numbers.
        infos = {i: p.getJointInfo(self._body, i, physicsClientId=client) for i in index.values()}
        self._free_indices = [i for i in sorted(infos) if infos[i][2] != p.JOINT_FIXED]
        self._arm_in_free = [self._free_indices.index(i) for i in self._arm_indices]
        self._damping, self._friction = (np.array([infos[i][k] for i in self._arm_indices]) for k in (6, 7))
        self._driven: tuple[Any, Any] | None = None
        # Mimic joints included, a chain's joint values are an affine function of q.
        zero = np.clip(np.zeros(chain.n), chain.lower, chain.upper)
        base = chain.all_joint_positions(np.zeros(chain.n))
        self._arm_offset = np.array([base[name] for name in arm])
        columns = []
        for row in np.eye(chain.n):
            values = chain.all_joint_positions(row)
            columns.append([values[name] - base[name] for name in arm])
        self._arm_matrix = np.array(columns)
        self._held = rest_positions(model, dict(zip(chain.joint_names, zero.tolist(), strict=True)))
        self._resolve_gains()
        self._arm_zeros = [0.0] * len(arm)
        notes = list(warnings)
        effort = {joint.name: joint.effort for joint in moving}
        speed = {joint.name: joint.velocity for joint in moving}
        for name in self._all_names:
            if effort[name] == 0.0 or not np.isfinite(effort[name]):
                if effort[name] == 0.0:
                    notes.append(f"{name} states a torque limit of 0; simulated with {UNSTATED_TORQUE:g}")
                effort[name] = UNSTATED_TORQUE
            if speed[name] == 0.0:
                notes.append(f"{name} states a speed limit of 0; simulated without one")
                speed[name] = np.inf
        cap = np.inf if self.control.torque_limit is None else self.control.torque_limit
        self._all_forces = [min(effort[name] * self.control.torque_scale, cap) for name in self._all_names]
        self._arm_forces = self._all_forces[: len(arm)]
        self._all_speeds = [speed[name] * self.control.speed_scale for name in self._all_names]
        of_q = [arm.index(name) for name in chain.joint_names]
        self.torque_limits = np.array(self._all_forces)[of_q]
        """In force, one for each independent joint [Nm or N]."""
        self.speed_limits = np.array(self._all_speeds)[of_q]
        """In force, one for each independent joint [rad/s or m/s]; infinite where the file states none."""
        self.warnings = tuple(notes)
        for i, force, limit in zip(self._all_indices, self._all_forces, self._all_speeds, strict=True):
            # The speed limit of a motor is set by this call alone, and outlives the array commands that follow.
            p.setJointMotorControl2(
                self._body, i, p.POSITION_CONTROL, targetPosition=0.0, force=force,
                maxVelocity=min(float(limit), 1e6), physicsClientId=client,
            )  # fmt: skip

    def _resolve_gains(self) -> None:
        """The gains in force: those of the settings, or the robot's own."""
        gains, own, own_velocity = self.robot.control, self.control.position_gain, self.control.velocity_gain
        self._position_gain = gains.position_gain if own is None else own
        self._velocity_gain = gains.velocity_gain if own_velocity is None else own_velocity
        self._arm_gains = [self._position_gain] * len(self._arm_indices)
        self._arm_velocity_gains = [self._velocity_gain] * len(self._arm_indices)

    def _clip(self, q: Any) -> tuple[Float[np.ndarray, "n"], tuple[Clipped, ...]]:
        arm = self.robot.chain
        wanted = arm.check_q(q)
        applied = np.minimum(np.maximum(wanted, arm.lower), arm.upper)
        if (applied == wanted).all():
            return applied, ()
        moved = np.flatnonzero(applied != wanted)
        return applied, tuple(Clipped(arm.joint_names[i], float(wanted[i]), float(applied[i])) for i in moved)

    def _arm(self, q: Float[np.ndarray, "k n"]) -> list[list[float]]:
        """Values of the arm's joints, mimic joints among them, as PyBullet takes them."""
        return (q if self._arm_indices == self._q_indices else q @ self._arm_matrix + self._arm_offset).tolist()

    def _all(self, q: Float[np.ndarray, "n"]) -> list[float]:
        return self._arm(q[None])[0] + [self._held[name] for name in self._all_names[len(self._arm_names) :]]

    def _drive(self, positions: list[float], indices: list[int], forces: list[float]) -> None:
        p = self._p
        p.setJointMotorControlArray(
            self._body,
            indices,
            p.POSITION_CONTROL,
            targetPositions=positions,
            positionGains=[self._position_gain] * len(indices),
            velocityGains=[self._velocity_gain] * len(indices),
            forces=forces,
            physicsClientId=self._client,
        )

    def _read(self) -> None:
        states = self._p.getJointStates(self._body, self._q_indices, physicsClientId=self._client)
        self._state = np.array([_VALUE_SPEED_TORQUE(state) for state in states])

    def _T_world_tool(self) -> Pose:
        chain = self.robot.chain
        return self.link_pose(chain.tool_link) @ chain.T_last_tool


@cache
def _shares(steps: int) -> Float[np.ndarray, "k 1"]:
    """1/k, 2/k, ... 1."""
    return np.arange(1, steps + 1)[:, None] / steps


_window_taken = False


def _take_the_window() -> None:
    """Let a process have one window: a second one beside the first is refused by PyBullet, one after it can hang.

    Raises:
        IkSimError: there was one already.
    """
    global _window_taken
    if _window_taken:
        raise IkSimError("this process has opened a window already, and PyBullet can't open two; start another process")
    _window_taken = True


def _pybullet() -> Any:
    """PyBullet, imported when the first simulation opens, without its greeting."""
    try:
        with quiet(also_stderr="pybullet" not in sys.modules):
            import pybullet
    except ImportError:
        command = "pip install pybullet" if sys.version_info < (3, 12) else "pip install pybullet-arm64"
        raise MissingDependencyError("PyBullet", "physics", command) from None
    return pybullet


def _disconnect(pybullet: Any, client: int) -> None:
    with quiet(), contextlib.suppress(pybullet.error):  # a closed window has already ended the session
        pybullet.disconnect(physicsClientId=client)


def _last_words(said: list[str]) -> str:
    chatter = ("argv", "PyBullet:", "switched")
    words = [line.strip() for line in said if line.strip() and not line.startswith(chatter)]
    return f": {' '.join(words[-3:])}" if words else ""
