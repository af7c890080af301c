"""What is drawn around an arm, as numbers: ellipsoid, elbow circle, reach. All in base axes; no viser here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ik_sim.chain import Chain
from ik_sim.errors import IkSimError
from ik_sim.se3 import matrix_to_quat_xyzw, rotation_exp


def wxyz(R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "4"]:
    """A rotation matrix as viser asks for it: a quaternion, scalar first."""
    return np.roll(matrix_to_quat_xyzw(R), 1)


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """How fast the tool can go in each direction when the joint speeds have length 1."""

    radii: Float[np.ndarray, "3"]
    """Singular values of the linear half of the Jacobian, largest first [m/rad]."""
    R: Float[np.ndarray, "3 3"]
    """Its axes as columns, right-handed."""

    @property
    def volume(self) -> float:
        """Yoshikawa's manipulability: the product of the singular values."""
        return float(np.prod(self.radii))

    @property
    def condition(self) -> float:
        """The largest singular value by the least; infinite in a singular posture."""
        return float(self.radii[0] / self.radii[2]) if self.radii[2] > 1e-12 * self.radii[0] else float("inf")


def manipulability(chain: Chain, q: Float[np.ndarray, "n"]) -> Ellipsoid:
    """The ellipsoid J J' of the tool's linear velocity at q."""
    U, s, _ = np.linalg.svd(chain.jacobian(q)[:3])
    radii = np.zeros(3)
    radii[: len(s)] = s
    U[:, 2] *= np.sign(np.linalg.det(U))
    return Ellipsoid(radii, U)


@dataclass(frozen=True, eq=False)
class ElbowCircle:
    """Where the elbow of a seven-joint arm can go while the tool stays."""

    centre: Float[np.ndarray, "3"]
    axis: Float[np.ndarray, "3"]
    """From shoulder to wrist, of length 1: arm angles count about it."""
    up: Float[np.ndarray, "3"]
    """From the centre to where the arm angle is 0, of length 1."""
    radius: float
    """[m]"""
    angle: float
    """Arm angle of the posture that the circle was drawn of, in (-π, π]."""

    def points(self, angles: Float[np.ndarray, "k"], radius: float | None = None) -> Float[np.ndarray, "k 3"]:
        """The elbow at these arm angles [rad], or points beside it on a circle of another radius."""
        side = np.cross(self.axis, self.up)
        at = np.cos(angles)[:, None] * self.up + np.sin(angles)[:, None] * side
        return self.centre + (self.radius if radius is None else radius) * at


def elbow_circle(chain: Chain, q: Float[np.ndarray, "n"]) -> ElbowCircle:
    """The circle through the elbow of a seven-joint arm at q.

    Raises:
        IkSimError: the chain is of another family, or the elbow is straight: then there is no circle.
    """
    if chain.family != "srs":
        raise IkSimError(f"an elbow circle belongs to a seven-joint arm, not to a {chain.family} chain")
    frames = chain.joint_frames(q)[1:8]
    shoulder, elbow, wrist = (crossing(frames[i], frames[i + 1]) for i in (1, 3, 5))
    axis = wrist - shoulder
    length = float(np.linalg.norm(axis))
    axis = axis / length
    centre = shoulder + axis * float(axis @ (elbow - shoulder))
    spoke = elbow - centre
    radius = float(np.linalg.norm(spoke))
    first = frames[0][:3, 2] * (-1.0 if frames[0][:3, 2] @ (shoulder - chain.joint_frames(q)[0][:3, 3]) < 0 else 1.0)
    up = first - axis * float(axis @ first)
    if radius < 1e-6 * length or np.linalg.norm(up) < 1e-9:
        raise IkSimError("the elbow is straight, or the wrist above the shoulder: there is no circle to draw")
    up = up / np.linalg.norm(up)
    angle = float(np.arctan2(spoke @ np.cross(axis, up), spoke @ up))
    return ElbowCircle(centre, axis, up, radius, angle)


def crossing(A: Float[np.ndarray, "4 4"], B: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "3"]:
    """The point on the z axis of frame A that is nearest to the z axis of frame B."""
    a, b, gap = A[:3, 2], B[:3, 2], B[:3, 3] - A[:3, 3]
    ab = float(a @ b)
    square = 1.0 - ab * ab
    if square < 1e-12:
        return A[:3, 3]
    return A[:3, 3] + a * float((gap @ a - ab * (gap @ b)) / square)


def branch_signs(chain: Chain, q: Float[np.ndarray, "n"]) -> tuple[int, int, int]:
    """Signs of joints 2, 4 and 6 of a seven-joint arm as its family counts them: which of eight branches q is on."""
    assert chain.family_fit is not None
    theta = chain.family_fit.sign * q + chain.family_fit.offset
    theta = theta - 2.0 * np.pi * np.rint(theta / (2.0 * np.pi))
    return tuple(-1 if x < 0.0 else 1 for x in theta[[1, 3, 5]])  # type: ignore[return-value]


def reach_cloud(chain: Chain, count: int = 6000, seed: int = 0) -> Float[np.ndarray, "k 3"]:
    """Tool positions at joints drawn evenly inside the limits: dense where many postures lead."""
    q = chain.random_q(np.random.default_rng(seed), count)
    return chain.fk_batch(q)[:, :3, 3].copy()


def hull(points: Float[np.ndarray, "k 3"]) -> tuple[Float[np.ndarray, "v 3"], Int[np.ndarray, "f 3"]]:
    """Vertices and triangles of the convex hull, wound outwards."""
    from scipy.spatial import ConvexHull

    found = ConvexHull(points)
    faces = found.simplices.astype(np.int64)
    a, b, c = (points[faces[:, i]] for i in range(3))
    inwards = np.einsum("ij,ij->i", np.cross(b - a, c - a), found.equations[:, :3]) < 0.0
    faces[inwards] = faces[inwards][:, ::-1]
    used, index = np.unique(faces, return_inverse=True)
    return points[used], index.reshape(faces.shape).astype(np.int64)


def polyline(points: Float[np.ndarray, "k 3"]) -> Float[np.ndarray, "m 2 3"]:
    """The segments between neighbouring points."""
    return np.stack([points[:-1], points[1:]], axis=1)


def look_from(
    target: Float[np.ndarray, "3"], distance: float, turn: float = -0.9, rise: float = 0.45
) -> Float[np.ndarray, "3"]:
    """A camera's place: `distance` from the target, `turn` about the vertical and `rise` above the ground [rad]."""
    R = rotation_exp(np.array([0.0, 0.0, turn]))
    return target + distance * (R @ np.array([np.cos(rise), 0.0, np.sin(rise)]))
