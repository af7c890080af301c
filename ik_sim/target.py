"""What the tool must reach at one instant, and how near is near enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.errors import InvalidArgumentError
from ik_sim.se3 import Pose, check_pose, quat_xyzw_to_matrix, rpy_to_matrix, transform

POSE, POINT, AXIS = 0, 1, 2
KIND_NAMES = ("pose", "point", "axis")


@dataclass(frozen=True, eq=False)
class Target:
    """A pose, a point, or a point with a direction of the tool's z axis, in the chain's base axes.

    Build it with :meth:`pose`, :meth:`point` or :meth:`axis`. Solvers also take a bare (4, 4) array as a pose.
    """

    T: Float[np.ndarray, "4 4"]
    """The wanted tool pose; of a point target only the last column counts, of an axis target also the z axis."""
    kind: int = POSE

    @staticmethod
    def pose(T: Any = None, *, xyz: Any = None, rpy: Any = None, quat_xyzw: Any = None) -> Target:
        """A full pose: a (4, 4) matrix, or a position [m] with roll-pitch-yaw [rad] or a quaternion (x, y, z, w).

        Raises:
            InvalidArgumentError: not a rigid motion (see :func:`ik_sim.se3.check_pose`), or not one description.
        """
        if T is not None:
            if xyz is not None or rpy is not None or quat_xyzw is not None:
                raise InvalidArgumentError("pose", "takes a matrix, or xyz with rpy or quat_xyzw, not both")
            return Target(check_pose(T, "pose"))
        if xyz is None or (rpy is None) == (quat_xyzw is None):
            raise InvalidArgumentError("pose", "takes a matrix, or xyz with either rpy or quat_xyzw")
        R = (
            rpy_to_matrix(_vector(rpy, 3, "rpy"))
            if rpy is not None
            else quat_xyzw_to_matrix(_vector(quat_xyzw, 4, "quat_xyzw"))
        )
        return Target(transform(R, _vector(xyz, 3, "xyz")))

    @staticmethod
    def point(p: Any) -> Target:
        """The tool's origin at `p` [m], in any orientation."""
        return Target(transform(np.eye(3), _vector(p, 3, "point")), POINT)

    @staticmethod
    def axis(p: Any, direction: Any) -> Target:
        """The tool's origin at `p` [m] and its z axis along `direction` (any length); the roll about it is free."""
        z = _vector(direction, 3, "direction")
        largest = np.abs(z).max()
        if largest == 0.0:
            raise InvalidArgumentError("direction", "is a zero vector; it must point somewhere")
        z = z / largest  # first, so that the squares of huge and tiny lengths stay numbers
        z = z / np.linalg.norm(z)
        x = np.zeros(3)
        x[int(np.argmin(np.abs(z)))] = 1.0
        x -= z * (z @ x)
        x /= np.linalg.norm(x)
        return Target(transform(np.column_stack([x, np.cross(z, x), z]), _vector(p, 3, "point")), AXIS)

    def moved(self, T_new_old: Pose) -> Target:
        """The same target seen from another frame: with T_base_world for a target that was given in the world."""
        return Target(check_pose(T_new_old, "T_new_old") @ self.T, self.kind)

    @property
    def kind_name(self) -> str:
        """pose, point or axis."""
        return KIND_NAMES[self.kind]


@dataclass(frozen=True)
class Tolerance:
    """How near a tool must come: both numbers must hold, each by its norm."""

    position: float = 1e-6
    """[m]"""
    rotation: float = 1e-6
    """Rotation angle; for an axis target the angle between the axes [rad]."""

    def __post_init__(self) -> None:
        """Refuse what can't be met."""
        for name in ("position", "rotation"):
            value = getattr(self, name)
            if not value > 0.0:
                raise InvalidArgumentError(f"tolerance.{name}", f"must be above 0, not {value!r}")


def _vector(value: Any, size: int, name: str) -> Float[np.ndarray, "k"]:
    try:
        array = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(name, f"must be {size} numbers ({error})") from None
    if array.shape != (size,):
        raise InvalidArgumentError(name, f"has shape {array.shape}; {size} numbers are wanted")
    if not np.isfinite(array).all():
        raise InvalidArgumentError(name, f"holds NaN or infinity: {array.tolist()}")
    return array
