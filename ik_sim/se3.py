"""Rigid motions as (4, 4) matrices: exponential, logarithm, interpolation, the distance between two poses.

Twists are (6,): linear part first, then angular, both in the axes of the frame the motion is written in.
Rotations are matrices. A quaternion appears only where another library wants one, and its name tells its order.
Angles come from `atan2` of sine and cosine parts throughout: an arc cosine loses half of its digits near 0 and π.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.errors import InvalidArgumentError

Pose = Float[np.ndarray, "4 4"]
Rotation = Float[np.ndarray, "3 3"]
Vector3 = Float[np.ndarray, "3"]


def transform(R: Rotation, p: Vector3) -> Pose:
    """The motion that rotates by `R` and then shifts by `p` [m]."""
    T = np.eye(4)
    T[:3, :3] = R
    T[:3, 3] = p
    return T


def inverse(T: Pose) -> Pose:
    """The motion that undoes `T`."""
    R = T[:3, :3].T
    return transform(R, -R @ T[:3, 3])


def hat(w: Vector3) -> Rotation:
    """The matrix that takes the cross product with `w`: x goes to w × x."""
    return np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])


def rotation_exp(w: Vector3) -> Rotation:
    """Rotation by the angle |w| [rad] about w (Rodrigues' formula)."""
    angle = float(np.linalg.norm(w))
    half = np.sinc(angle / (2.0 * np.pi))  # sin(x/2)/(x/2), with its limit at 0
    K = hat(w)
    return np.eye(3) + np.sinc(angle / np.pi) * K + 0.5 * half * half * (K @ K)


def rotation_angle(R: Rotation) -> float:
    """Angle of a rotation, in [0, π] [rad]; accurate to rounding at both ends."""
    sine2 = np.hypot(np.hypot(R[2, 1] - R[1, 2], R[0, 2] - R[2, 0]), R[1, 0] - R[0, 1])
    return float(np.arctan2(sine2, np.trace(R) - 1.0))


def rotation_log(R: Rotation) -> Vector3:
    """Rotation vector w with rotation_exp(w) = R and |w| ≤ π [rad]; at exactly π one of the two signs."""
    x, y, z, w = matrix_to_quat_xyzw(R)
    v = np.array([x, y, z])
    s = float(np.linalg.norm(v))
    if s < 1e-160:
        return np.zeros(3)
    return (2.0 * np.arctan2(s, w) / s) * v


def _left_jacobian(w: Vector3) -> Rotation:
    angle = float(np.linalg.norm(w))
    K = hat(w)
    if angle < 1e-4:  # series: the closed forms below cancel
        a, b = 0.5 - angle**2 / 24.0, 1.0 / 6.0 - angle**2 / 120.0
    else:
        a = 0.5 * np.sinc(angle / (2.0 * np.pi)) ** 2
        b = (angle - np.sin(angle)) / angle**3
    return np.eye(3) + a * K + b * (K @ K)


def exp(twist: Float[np.ndarray, "6"]) -> Pose:
    """The motion of following `twist` (linear, angular) for one unit of time."""
    v, w = twist[:3], twist[3:]
    return transform(rotation_exp(w), _left_jacobian(w) @ v)


def log(T: Pose) -> Float[np.ndarray, "6"]:
    """The twist whose exponential is `T`, with a rotation of at most π [rad]."""
    w = rotation_log(T[:3, :3])
    return np.concatenate([np.linalg.solve(_left_jacobian(w), T[:3, 3]), w])


def interpolate(T0: Pose, T1: Pose, s: float) -> Pose:
    """The pose at fraction `s` of the way: position on the straight line, orientation by the shortest rotation."""
    R = T0[:3, :3] @ rotation_exp(s * rotation_log(T0[:3, :3].T @ T1[:3, :3]))
    return transform(R, (1.0 - s) * T0[:3, 3] + s * T1[:3, 3])


def pose_error(T: Pose, T_target: Pose) -> tuple[float, float]:
    """Distance [m] between the origins and angle [rad] between the axes of two poses."""
    difference = T[:3, 3] - T_target[:3, 3]
    return float(np.sqrt(difference @ difference)), rotation_angle(T_target[:3, :3].T @ T[:3, :3])


def rpy_to_matrix(rpy: Vector3) -> Rotation:
    """Roll, pitch, yaw [rad] about the fixed x, y, z axes in turn, as in URDF: Rz(yaw) Ry(pitch) Rx(roll).

    A multiple of π/2 written with ten digits or more (to 1e-9) counts as exact, so that files with rounded
    numbers give clean matrices.
    """
    (cr, sr), (cp, sp), (cy, sy) = (_cos_sin(float(angle)) for angle in rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def _cos_sin(angle: float) -> tuple[float, float]:
    quarter = angle / (0.5 * np.pi)
    nearest = round(quarter)
    if abs(quarter - nearest) < 1e-9:
        return ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[nearest % 4]
    return float(np.cos(angle)), float(np.sin(angle))


def matrix_to_rpy(R: Rotation) -> Vector3:
    """Roll, pitch, yaw [rad] of a rotation; with pitch at ±π/2, where only one angle counts, the yaw is taken as 0."""
    across = np.hypot(R[0, 0], R[1, 0])
    yaw = np.arctan2(R[1, 0], R[0, 0]) if across > 1e-15 else 0.0
    c, s = np.cos(yaw), np.sin(yaw)
    # The roll of what is left once the yaw is taken off: so a yaw of few digits, near the upright pitch, does no harm.
    roll = np.arctan2(s * R[0, 2] - c * R[1, 2], c * R[1, 1] - s * R[0, 1])
    return np.array([roll, np.arctan2(-R[2, 0], across), yaw])


def quat_xyzw_to_matrix(quat_xyzw: Float[np.ndarray, "4"]) -> Rotation:
    """Rotation of a quaternion in the order x, y, z, w; normalised first, its sign doesn't matter.

    Raises:
        InvalidArgumentError: the length isn't 1 to 1e-3, so the four numbers are unlikely to be a quaternion.
    """
    length = float(np.linalg.norm(quat_xyzw))
    if not abs(length - 1.0) < 1e-3:
        raise InvalidArgumentError("quat_xyzw", f"has length {length:.6g}; a rotation has length 1 (order x, y, z, w)")
    x, y, z, w = quat_xyzw / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def matrix_to_quat_xyzw(R: Rotation) -> Float[np.ndarray, "4"]:
    """Quaternion in the order x, y, z, w with w ≥ 0 (largest component first, so no digit is lost anywhere)."""
    squares = np.array(
        [
            1.0 + R[0, 0] - R[1, 1] - R[2, 2],
            1.0 - R[0, 0] + R[1, 1] - R[2, 2],
            1.0 - R[0, 0] - R[1, 1] + R[2, 2],
            1.0 + R[0, 0] + R[1, 1] + R[2, 2],
        ]
    )
    k = int(np.argmax(squares))
    if k == 3:
        q = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], squares[3]])
    elif k == 0:
        q = np.array([squares[0], R[1, 0] + R[0, 1], R[0, 2] + R[2, 0], R[2, 1] - R[1, 2]])
    elif k == 1:
        q = np.array([R[1, 0] + R[0, 1], squares[1], R[2, 1] + R[1, 2], R[0, 2] - R[2, 0]])
    else:
        q = np.array([R[0, 2] + R[2, 0], R[2, 1] + R[1, 2], squares[2], R[1, 0] - R[0, 1]])
    q /= np.linalg.norm(q)
    return -q if q[3] < 0.0 else q


def check_pose(T: Any, name: str = "pose") -> Pose:
    """`T` as a fresh (4, 4) array of floats, after checking that it is a rigid motion.

    Raises:
        InvalidArgumentError: wrong shape, NaN or infinity, a bottom row other than 0 0 0 1, or a rotation part that
            isn't one (not orthonormal to 1e-6, or a reflection).
    """
    try:
        array = np.array(T, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(name, f"must be a (4, 4) array of numbers ({error})") from None
    if array.shape != (4, 4):
        raise InvalidArgumentError(name, f"has shape {array.shape}; a pose is a (4, 4) homogeneous matrix")
    if not np.isfinite(array).all():
        raise InvalidArgumentError(name, "holds NaN or infinity")
    if np.abs(array[3] - (0.0, 0.0, 0.0, 1.0)).max() > 1e-9:
        raise InvalidArgumentError(name, f"has the bottom row {array[3].tolist()}; a pose ends in 0 0 0 1")
    R = array[:3, :3]
    off = float(np.abs(R.T @ R - np.eye(3)).max())
    if off > 1e-6:
        raise InvalidArgumentError(name, f"has a rotation part that is not orthonormal (by {off:.2g}, at most 1e-6)")
    if np.linalg.det(R) < 0.0:
        raise InvalidArgumentError(name, "has a rotation part with determinant -1: a reflection, not a rotation")
    array[3] = 0.0, 0.0, 0.0, 1.0  # exactly: kernels ask for no less
    return array
