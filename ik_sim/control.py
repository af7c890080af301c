"""How a simulated arm is driven, and the physics around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ik_sim.errors import InvalidArgumentError, UnknownNameError

CONTROL_MODES = ("position", "velocity", "torque")
CONSTRAINT_SOLVERS = ("direct", "iterative")


@dataclass(frozen=True)
class ControlSettings:
    """How the simulated arm is driven, and the physics around it. All of it enters the log."""

    mode: str = "position"
    """position: a servo heads for each setpoint, and lags as its gain says. velocity: the setpoint's own speed, and the
    gain's share of the error on top: no lag. torque: computed torque, inverse dynamics of the arm with its payload,
    damping and friction accounted for, and the gains on the rest. Friction is simulated in this mode alone."""
    position_gain: float | None = None
    """Share of the position error removed within one physics step; the robot's own when left out. Lower means lag."""
    velocity_gain: float | None = None
    """Share of the velocity error removed within one physics step; the robot's own when left out."""
    torque_scale: float = 1.0
    """Multiplies the robot's torque limits."""
    torque_limit: float | None = None
    """Highest torque that any joint may apply, on top of the scaled limits [Nm or N]."""
    speed_scale: float = 1.0
    """Multiplies the robot's joint speed limits."""
    payload: float = 0.0
    """Mass fixed to the tool [kg]."""
    payload_offset: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Its centre of mass in the tool's frame [m]."""
    boxes: tuple[tuple[float, ...], ...] = ()
    """Fixed boxes in the world that the arm may run into: centre x, y, z and side lengths [m]. With any, the arm has its
    collision shapes, which cost time in every step; without, it is alone."""
    gravity: tuple[float, ...] = (0.0, 0.0, -9.81)
    """In the world [m/s²]."""
    physics_rate: float = 240.0
    """Physics steps per second [Hz]; the servo gets a new setpoint at each, and each is logged."""
    substeps: int = 1
    """Into how many a physics step is cut; the servo gets a setpoint and its gains act in each, the last is logged."""
    constraint_solver: str = "direct"
    """direct: motors solved exactly (Dantzig); iterative: `solver_iterations` sweeps, as PyBullet does by itself."""
    solver_iterations: int = 50
    """Sweeps of the iterative constraint solver."""
    residual_threshold: float = 0.0
    """Where the iterative constraint solver may stop early; above 0 its rest shows up as tracking error."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.mode not in CONTROL_MODES:
            raise InvalidArgumentError("mode", str(UnknownNameError("control mode", self.mode, CONTROL_MODES)))
        if self.constraint_solver not in CONSTRAINT_SOLVERS:
            known = UnknownNameError("constraint solver", self.constraint_solver, CONSTRAINT_SOLVERS)
            raise InvalidArgumentError("constraint_solver", str(known))
        for name, low in (("position_gain", 0.0), ("velocity_gain", -1.0)):
            value = getattr(self, name)
            if value is not None and not (low < value <= 1.0 and value >= 0.0):
                raise InvalidArgumentError(
                    name, f"is a share of the error, {'above 0' if low == 0 else '0'} to 1, not {value}"
                )
        for name in ("torque_scale", "speed_scale", "physics_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise InvalidArgumentError(name, f"must be above 0, not {getattr(self, name)}")
        if self.torque_limit is not None and not self.torque_limit > 0.0:
            raise InvalidArgumentError("torque_limit", f"must be above 0, not {self.torque_limit}")
        if not (math.isfinite(self.payload) and self.payload >= 0.0):
            raise InvalidArgumentError("payload", f"must be 0 or more kilograms, not {self.payload}")
        for i, box in enumerate(self.boxes):
            if len(box) != 6 or not all(map(math.isfinite, box)) or min(box[3:]) <= 0.0:
                text = "must be a centre and three lengths above 0, six numbers"
                raise InvalidArgumentError(f"boxes[{i}]", f"{text}, not {box}")
        for name in ("payload_offset", "gravity"):
            if len(getattr(self, name)) != 3 or not all(map(math.isfinite, getattr(self, name))):
                raise InvalidArgumentError(name, f"must be three finite numbers, not {getattr(self, name)}")
        for name in ("substeps", "solver_iterations"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(name, f"must be at least 1, not {getattr(self, name)}")
        if not (math.isfinite(self.residual_threshold) and self.residual_threshold >= 0.0):
            raise InvalidArgumentError("residual_threshold", f"must be 0 or more, not {self.residual_threshold}")
