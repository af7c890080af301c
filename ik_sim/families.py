"""Which closed form fits a chain: recognised from where its joint axes lie, never from a robot's name.

A chain belongs to a family when an ideal arm of that family, built from the chain's own axes, has the same forward
kinematics. Directions, zeros and the order of a joint's sign are free: with θ the family's own angle,

    θ = sign · q + offset,    T_base_tool = T_base_family · T_family(θ) · T_family_tool.

| family | axes |
|---|---|
| planar2, planar3 | two or three parallel revolute axes |
| ur | 1 ⟂ 2 and crossing it, 2 ∥ 3 ∥ 4, 4 ⟂ 5 crossing, 5 ⟂ 6 crossing (UR3 to UR30, CB and e series) |
| srs | 1, 2, 3 meet in the shoulder, 5, 6, 7 in the wrist, 4 crosses 3 and 5 in the elbow, neighbours ⟂ (iiwa, LBR) |

An arm that misses its family by a few millimetres (a calibrated one) is recognised as near: the closed form on the
ideal arm gives a start that is then polished on the real chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

EXACT = 1e-9  # FK of chain and ideal arm agree to this [m, rad]: only rounding is between them
NEAR_POSITION, NEAR_ROTATION = 0.01, 0.02  # [m], [rad]: what calibration of a real arm changes stays well below

CODES = {"serial": 0, "planar2": 1, "planar3": 2, "ur": 3, "srs": 4}


@dataclass(frozen=True, eq=False)
class Family:
    """A closed form's ideal arm and how the chain's joints map to its angles."""

    name: str
    T_base_family: Float[np.ndarray, "4 4"]
    T_family_tool: Float[np.ndarray, "4 4"]
    lengths: Float[np.ndarray, "k"]
    """planar: link lengths; ur: a2, a3 (negative, as published), d4, d5; srs: shoulder to elbow, elbow to wrist [m]."""
    sign: Float[np.ndarray, "n"]
    offset: Float[np.ndarray, "n"]
    """[rad]"""
    deviation: float = 0.0
    """Largest difference between the FK of chain and ideal arm over sampled configurations [m or rad]."""
    slack: float = 0.0
    """Bound on how far the ideal arm's wrist (planar arms: last joint) can lie from where the chain's tool pose puts it,
    over all configurations [m]. What the ideal arm misses by more, the chain can't reach either."""

    @property
    def exact(self) -> bool:
        """Whether only rounding lies between the chain and the ideal arm."""
        return self.deviation < EXACT

    def pack(self) -> Float[np.ndarray, "k"]:
        """The numbers the kernels read, in their order: both inverse frames (3x4), lengths, signs, offsets."""
        frames = [np.linalg.inv(T)[:3].ravel() for T in (self.T_base_family, self.T_family_tool)]
        return np.concatenate([*frames, self.lengths, self.sign, self.offset])

    def fk(self, q: Float[np.ndarray, "n"]) -> Float[np.ndarray, "4 4"]:
        """Forward kinematics of the ideal arm."""
        theta = self.sign * q + self.offset
        T = self.T_base_family
        for angle, (a, alpha, d) in zip(theta, _dh_table(self.name, self.lengths), strict=True):
            T = T @ _dh(angle, a, alpha, d)
        return T @ self.T_family_tool


def _dh_table(name: str, lengths: Float[np.ndarray, "k"]) -> list[tuple[float, int, float]]:
    """Rows a [m], α [quarter turns], d [m] of each family (standard Denavit-Hartenberg)."""
    if name == "ur":
        a2, a3, d4, d5 = lengths
        return [(0, 1, 0), (a2, 0, 0), (a3, 0, 0), (0, 1, d4), (0, -1, d5), (0, 0, 0)]
    if name == "srs":
        l2, l3 = lengths
        return [(0, -1, 0), (0, 1, 0), (0, -1, l2), (0, 1, 0), (0, -1, l3), (0, 1, 0), (0, 0, 0)]
    return [(length, 0, 0) for length in lengths]


def _dh(theta: float, a: float, alpha: int, d: float) -> Float[np.ndarray, "4 4"]:
    c, s = np.cos(theta), np.sin(theta)
    ca, sa = ((1, 0), (0, 1), (-1, 0), (0, -1))[alpha % 4]
    return np.array([[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1.0]])


def recognise(
    axes: Float[np.ndarray, "n 3"],
    points: Float[np.ndarray, "n 3"],
    T_zero: Float[np.ndarray, "4 4"],
    fk: Callable[[Float[np.ndarray, "n"]], Float[np.ndarray, "4 4"]],
) -> Family | None:
    """The family of a chain of revolute joints, or None.

    Args:
        axes: directions of the joint axes at q = 0, in base axes.
        points: a point on each of them.
        T_zero: tool pose at q = 0.
        fk: the chain's forward kinematics, the judge of the fit.
    """
    build = {2: _planar, 3: _planar, 6: _ur, 7: _srs}.get(len(axes))
    family = build(axes, points, T_zero) if build else None
    if family is None:
        return None
    rng = np.random.default_rng(0)
    worst = np.zeros(2)
    for q in [np.zeros(len(axes)), *rng.uniform(-np.pi, np.pi, (24, len(axes)))]:
        D = np.linalg.inv(family.fk(q)) @ fk(q)
        sine2 = np.linalg.norm([D[2, 1] - D[1, 2], D[0, 2] - D[2, 0], D[1, 0] - D[0, 1]])
        angle = np.arctan2(sine2, np.trace(D[:3, :3]) - 1.0)
        worst = np.maximum(worst, [np.linalg.norm(D[:3, 3]), angle])
    if worst[0] > NEAR_POSITION or worst[1] > NEAR_ROTATION:
        return None
    return Family(
        family.name, family.T_base_family, family.T_family_tool, family.lengths, family.sign, family.offset,
        deviation=float(worst.max()), slack=_slack(family, axes, points, T_zero),
    )  # fmt: skip


def _slack(
    family: Family, axes: Float[np.ndarray, "n 3"], points: Float[np.ndarray, "n 3"], T_zero: Float[np.ndarray, "4 4"]
) -> float:
    """See `Family.slack`.

    Exchange the chain's joints for the ideal arm's one by one. Turning by the same angle about an axis that is tilted
    by α and shifted by d moves a point at distance r from the axis by at most 2 α r + 2 d, and a direction by 2 α; what
    lies before the joint carries that along unchanged.
    """
    n = len(axes)
    T = family.T_base_family
    ideal_axes, ideal_points = np.empty((n, 3)), np.empty((n, 3))
    for i, (a, alpha, d) in enumerate(_dh_table(family.name, family.lengths)):
        ideal_axes[i], ideal_points[i] = family.sign[i] * T[:3, 2], T[:3, 3]
        T = T @ _dh(family.offset[i], a, alpha, d)
    ends = np.vstack([points, T_zero[:3, 3]])
    beyond = np.cumsum(np.linalg.norm(np.diff(ends, axis=0), axis=1)[::-1])[::-1]  # most that tool and joint are apart
    tilt = np.arctan2(np.linalg.norm(np.cross(axes, ideal_axes), axis=1), np.einsum("ij,ij->i", axes, ideal_axes))
    offset = points - ideal_points
    shift = np.linalg.norm(offset - ideal_axes * np.einsum("ij,ij->i", offset, ideal_axes)[:, None], axis=1)
    position, rotation = float(np.sum(2.0 * tilt * beyond + 2.0 * shift)), float(np.sum(2.0 * tilt))
    lever = float(np.linalg.norm(family.T_family_tool[:3, 3]))
    if family.name.startswith("planar"):
        lever += float(family.lengths[-1])
    return position + rotation * lever


def _unit(v: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"] | None:
    length = np.linalg.norm(v)
    return v / length if length > 1e-6 else None


def _frame(x: Float[np.ndarray, "3"], z: Float[np.ndarray, "3"], p: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    T = np.eye(4)
    T[:3, 0], T[:3, 1], T[:3, 2], T[:3, 3] = x, np.cross(z, x), z, p
    return _clean(T)


def _clean(T: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
    """Rounding dust next to 0 and ±1 removed, so that neat robots keep neat matrices."""
    R = T[:3, :3]
    T[:3, :3] = np.where(np.abs(R - np.round(R)) < 1e-14, np.round(R), R)
    return T


def _angle(x_from: Float[np.ndarray, "3"], x_to: Float[np.ndarray, "3"], z: Float[np.ndarray, "3"]) -> float:
    return float(np.arctan2(z @ np.cross(x_from, x_to), x_from @ x_to))


def _meet(
    p: Float[np.ndarray, "3"], u: Float[np.ndarray, "3"], q: Float[np.ndarray, "3"], v: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "3"]:
    """The point halfway between two lines where they are nearest."""
    s, t = np.linalg.lstsq(np.column_stack([u, -v]), q - p, rcond=None)[0]
    return 0.5 * (p + s * u + q + t * v)


def _planar(
    axes: Float[np.ndarray, "n 3"], points: Float[np.ndarray, "n 3"], T_zero: Float[np.ndarray, "4 4"]
) -> Family | None:
    n = len(axes)
    z = axes[0]
    sign = np.sign(axes @ z)
    if np.abs(axes @ z).min() < 0.99:
        return None
    base = points[0]
    inplane = [p - z * (z @ (p - base)) for p in (*points, T_zero[:3, 3])]
    x0 = _unit(inplane[1] - inplane[0])
    if x0 is None:
        return None
    T_base_family = _frame(x0, z, base)
    lengths, offset, x_before = np.zeros(n), np.zeros(n), x0
    for i in range(n):
        link = inplane[i + 1] - inplane[i]
        if (
            i == n - 1 and np.linalg.norm(link) < 1e-6
        ):  # a tool on the last axis: the link has no direction, none needed
            x = x_before
        else:
            x = _unit(link)
            if x is None:
                return None
        lengths[i] = np.linalg.norm(link)
        offset[i] = _angle(x_before, x, z)
        x_before = x
    T_end = _frame(x_before, z, inplane[n])
    return Family(f"planar{n}", T_base_family, np.linalg.inv(T_end) @ T_zero, lengths, sign, offset)


def _ur(
    axes: Float[np.ndarray, "n 3"], points: Float[np.ndarray, "n 3"], T_zero: Float[np.ndarray, "4 4"]
) -> Family | None:
    z0 = axes[0]
    aligned = [a * np.sign(a @ axes[1]) for a in axes[1:4]]
    normal = _unit(np.mean(aligned, axis=0) - z0 * (z0 @ np.mean(aligned, axis=0)))  # z_2d, the arm plane's normal
    if normal is None or min(abs(a @ normal) for a in axes[1:4]) < 0.99 or abs(z0 @ axes[1]) > 0.05:
        return None
    if abs(axes[4] @ normal) > 0.05 or abs(axes[5] @ axes[4]) > 0.05:
        return None
    z4 = _unit(axes[4] - normal * (normal @ axes[4]))
    if z4 is None:
        return None
    z5 = _unit(axes[5] - z4 * (z4 @ axes[5]))
    if z5 is None:
        return None
    sign = np.array([1.0, *(np.sign(a @ normal) for a in axes[1:4]), 1.0, 1.0])
    P1 = _meet(points[0], z0, points[1], normal)
    O2, O3 = (p - normal * (normal @ (p - P1)) for p in points[2:4])
    l2, l3 = _unit(O2 - P1), _unit(O3 - O2)
    if l2 is None or l3 is None:
        return None
    O4 = _meet(points[3], normal, points[4], z4)
    O5 = _meet(points[4], z4, points[5], z5)
    y0 = -normal  # θ_1 counts from here: z_2d = (s_1, -c_1, 0)
    x0 = np.cross(y0, z0)
    x2, x3 = -l2, -l3  # a_2, a_3 < 0 by convention: the links point against x
    t2 = np.arctan2(x2 @ z0, x2 @ x0)
    t3 = _angle(x2, x3, normal)
    t234 = np.arctan2(z4 @ x0, -(z4 @ z0))
    x4 = np.cos(t234) * x0 + np.sin(t234) * z0
    t5 = np.arctan2(-(z5 @ x4), z5 @ normal)
    x5 = np.cos(t5) * x4 + np.sin(t5) * normal
    lengths = np.array([-np.linalg.norm(O2 - P1), -np.linalg.norm(O3 - O2), normal @ (O4 - O3), z4 @ (O5 - O4)])
    return Family(
        "ur", _frame(x0, z0, P1), np.linalg.inv(_frame(x5, z5, O5)) @ T_zero, lengths, sign,
        np.array([0.0, t2, t3, t234 - t2 - t3, t5, 0.0]),
    )  # fmt: skip


def _srs(
    axes: Float[np.ndarray, "n 3"], points: Float[np.ndarray, "n 3"], T_zero: Float[np.ndarray, "4 4"]
) -> Family | None:
    if max(abs(axes[i] @ axes[i + 1]) for i in range(6)) > 0.05:
        return None
    shoulder = _meet(points[0], axes[0], points[1], axes[1])
    wrist = _meet(points[5], axes[5], points[6], axes[6])
    elbow = 0.5 * (_meet(points[2], axes[2], points[3], axes[3]) + _meet(points[3], axes[3], points[4], axes[4]))
    l2d, l3d = _unit(elbow - shoulder), _unit(wrist - elbow)
    if l2d is None or l3d is None:
        return None
    sign = np.ones(7)
    sign[2], sign[4] = np.sign(axes[2] @ l2d), np.sign(axes[4] @ l3d)
    # Frames of the ideal arm, made orthogonal in turn: z_0, z_1, then z_2 along the upper arm, and so on.
    z = [axes[0]]
    for wanted in (axes[1], l2d, axes[3], l3d, axes[5], axes[6]):
        direction = _unit(wanted - z[-1] * (z[-1] @ wanted))
        if direction is None or direction @ wanted < 0.99:
            return None
        z.append(direction)
    # x_i from the DH twists: α = -90° has z_i = y' so x_i = z_i × z_{i-1}; α = +90° the other way round.
    x = [np.cross(z[1], z[0])]
    for i in range(1, 7):
        x.append(np.cross(z[i], z[i - 1]) if i % 2 else np.cross(z[i - 1], z[i]))
    offset = np.array([_angle(x[i], x[i + 1], z[i]) for i in range(6)] + [0.0])
    lengths = np.array([np.linalg.norm(elbow - shoulder), np.linalg.norm(wrist - elbow)])
    T_end = _frame(x[6], z[6], wrist)
    return Family("srs", _frame(x[0], z[0], shoulder), np.linalg.inv(T_end) @ T_zero, lengths, sign, offset)
