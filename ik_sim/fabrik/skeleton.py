"""What is to be posed: points joined by links of fixed length, as a chain or a tree, with joints and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from ik_sim.errors import InvalidArgumentError
from ik_sim.fabrik import cycle as c

Numbers = Sequence[float] | Num[np.ndarray, "d"]


@dataclass(frozen=True)
class Arc:
    """A joint in the plane: the signed angle from the parent's link to this one stays in [lower, upper] [rad].

    At the root the angle counts from the rest direction of the first link. Counter-clockwise is positive.
    """

    lower: float
    upper: float


@dataclass(frozen=True)
class Hinge:
    """A joint in space that turns about one axis, by an angle in [lower, upper] [rad] counted from the rest pose."""

    axis: Numbers
    """Direction of the axis at the rest pose, in base axes."""
    lower: float = -np.pi
    upper: float = np.pi


@dataclass(frozen=True)
class Cone:
    """A ball joint in space: the link stays within `half_angle` [rad] of where it would stand at rest on its parent."""

    half_angle: float


@dataclass(frozen=True)
class Sphere:
    """An obstacle; in the plane a disc."""

    centre: Numbers
    radius: float


@dataclass(frozen=True)
class Box:
    """An obstacle; in the plane a rectangle. `rotation` is (3, 3), or an angle [rad] in the plane."""

    centre: Numbers
    half_sizes: Numbers
    rotation: Any = None


Joint = Arc | Hinge | Cone | None


@dataclass(frozen=True, eq=False)
class Skeleton:
    """Points in a plane or in space. Point 0 is the root and stays where it is; point i hangs on `parent[i]` < i.

    Make one with :meth:`chain` or :meth:`tree`. The rest pose says where hinges have their axes and joints their zero,
    and is the start of a solve that is given no other.
    """

    rest: Float[np.ndarray, "m d"]
    """Points at rest; links have their lengths from here."""
    parent: Int[np.ndarray, "m"]
    """The point on which each hangs; -1 for the root."""
    joints: tuple[Joint, ...]
    """The joint at which point i's link meets its parent's; None: free. The entry of the root is None."""
    effectors: tuple[int, ...]
    """The points that follow targets, in the order in which targets are given."""
    weights: tuple[float, ...]
    """How strongly each effector pulls where limbs meet."""
    loops: tuple[tuple[int, int, float], ...] = ()
    """Pairs of points held at a distance from each other: what closes a linkage."""
    thickness: float = 0.0
    """Radius of the links, kept clear of obstacles."""
    length: Float[np.ndarray, "m"] = field(init=False)
    """Length of each point's link; 0 for the root."""

    def __post_init__(self) -> None:
        """Check all of it, and lay it out for the kernels once."""
        rest = _points(self.rest, "rest")
        m, d = rest.shape
        if d not in (2, 3) or m < 2:
            raise InvalidArgumentError("rest", f"has shape {rest.shape}; wanted at least two points in 2-D or 3-D")
        parent = np.asarray(self.parent, dtype=np.int64)
        if parent.shape != (m,) or parent[0] != -1 or np.any(parent[1:] < 0) or np.any(parent[1:] >= np.arange(1, m)):
            raise InvalidArgumentError("parent", "must be -1 for point 0, and for every other point one before it")
        joints = tuple(self.joints) if len(self.joints) else (None,) * m
        if len(joints) != m:
            raise InvalidArgumentError(
                "joints", f"has {len(joints)} entries; wanted {m}, one a point, the root's unused"
            )
        for i, joint in enumerate(joints):
            if joint is not None:
                _check_joint(joint, d, i)
        if not self.effectors or any(not 0 < e < m for e in self.effectors):
            raise InvalidArgumentError("effectors", f"must name points 1 to {m - 1}, at least one")
        if len(set(self.effectors)) < len(self.effectors):
            raise InvalidArgumentError("effectors", "names a point twice")
        if len(self.weights) != len(self.effectors) or any(not 0 < w < np.inf for w in self.weights):
            raise InvalidArgumentError("weights", f"must be {len(self.effectors)} positive numbers, one an effector")
        for i, j, distance in self.loops:
            if not (0 <= i < m and 0 <= j < m and i != j and 0 <= distance < np.inf):
                raise InvalidArgumentError("loops", f"({i}, {j}, {distance}) must be two points and their distance")
        if not 0 <= self.thickness < np.inf:
            raise InvalidArgumentError("thickness", f"must be zero or positive, not {self.thickness}")
        length = np.zeros(m)
        length[1:] = np.linalg.norm(rest[1:] - rest[parent[1:]], axis=1)
        put = object.__setattr__
        put(self, "rest", rest)
        put(self, "parent", parent)
        put(self, "joints", joints)
        put(self, "length", length)
        for array in (rest, parent, length):
            array.flags.writeable = False
        self._pack()

    # --- ways to make one ---

    @staticmethod
    def chain(
        lengths: Any,
        *,
        base: Any = (0.0, 0.0),
        direction: Any = None,
        limits: Any = None,
        joints: Sequence[Joint] | None = None,
        thickness: float = 0.0,
    ) -> Skeleton:
        """A chain of links, straight at rest; its last point follows the target.

        Args:
            lengths: of the links, root first.
            base: where the root is; two numbers make a planar chain, three one in space.
            direction: along which it lies at rest; the x axis when left out.
            limits: (n, 2) angles [rad] of a planar chain, each counted from the link before.
            joints: one `Arc`, `Hinge`, `Cone` or None for each link, in place of `limits`.
            thickness: radius of the links, for obstacles.
        """
        L = np.atleast_1d(np.asarray(lengths, dtype=np.float64))
        if L.ndim != 1 or len(L) == 0 or not np.all(np.isfinite(L)) or np.any(L < 0) or L.sum() == 0:
            raise InvalidArgumentError("lengths", "must be numbers, none negative, not all zero")
        origin = _points([base], "base")[0]
        d = len(origin)
        along = np.eye(d)[0] if direction is None else np.asarray(direction, dtype=np.float64)
        if along.shape != (d,) or not np.all(np.isfinite(along)) or not np.linalg.norm(along) > 0:
            raise InvalidArgumentError("direction", f"must be {d} numbers, not all zero")
        along = along / np.linalg.norm(along)
        if limits is not None:
            if joints is not None:
                raise InvalidArgumentError("limits", "give limits or joints, not both")
            arcs = np.asarray(limits, dtype=np.float64)
            if arcs.shape != (len(L), 2) or d != 2:
                raise InvalidArgumentError(
                    "limits", f"has shape {arcs.shape}; wanted ({len(L)}, 2), for a planar chain"
                )
            joints = [Arc(float(low), float(high)) for low, high in arcs]
        if joints is not None and len(joints) != len(L):
            raise InvalidArgumentError("joints", f"has {len(joints)} entries; wanted {len(L)}, one a link")
        rest = origin + np.concatenate([[0.0], np.cumsum(L)])[:, None] * along
        skeleton = Skeleton(
            rest, np.arange(-1, len(L)), (None, *(joints or (None,) * len(L))), (len(L),), (1.0,), (), thickness
        )
        # A difference of sums is not the length it came from to the last bit, and zero has no direction.
        return skeleton._with_lengths(np.concatenate([[0.0], L]), along)

    @staticmethod
    def tree(
        rest: Any,
        parent: Sequence[int],
        *,
        effectors: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        joints: Mapping[int, Joint] | None = None,
        loops: Sequence[tuple[int, int, float]] = (),
        thickness: float = 0.0,
    ) -> Skeleton:
        """Any tree of links, from its points at rest.

        Args:
            rest: (m, 2) or (m, 3) points.
            parent: for each point the one it hangs on, always one named before it; -1 for the root, point 0.
            effectors: points that follow targets; all ends when left out.
            weights: one an effector; all equal when left out.
            joints: joints by point number.
            loops: (i, j, distance) pairs to hold together; distance 0 joins two points.
            thickness: radius of the links, for obstacles.
        """
        points = _points(rest, "rest")
        ends = [i for i in range(1, len(points)) if i not in set(int(p) for p in parent)]
        chosen = tuple(int(e) for e in (ends if effectors is None else effectors))
        every: list[Joint] = [None] * len(points)
        for i, joint in (joints or {}).items():
            if not 0 < i < len(points):
                raise InvalidArgumentError("joints", f"names point {i}; there are 1 to {len(points) - 1}")
            every[i] = joint
        strength = (1.0,) * len(chosen) if weights is None else tuple(float(w) for w in weights)
        fixed = tuple((int(i), int(j), float(d)) for i, j, d in loops)
        numbers = np.asarray(parent, dtype=np.int64)
        return Skeleton(points, numbers, tuple(every), chosen, strength, fixed, thickness)

    # --- what it is ---

    @property
    def dimension(self) -> int:
        """2 or 3."""
        return self.rest.shape[1]

    @property
    def limited(self) -> bool:
        """Whether any joint restricts its link."""
        return any(joint is not None for joint in self.joints)

    @property
    def is_chain(self) -> bool:
        """Whether it is one chain whose last point follows the one target."""
        m = len(self.parent)
        return bool(np.array_equal(self.parent, np.arange(-1, m - 1))) and self.effectors == (m - 1,)

    def reach(self, effector: int = 0) -> tuple[float, float]:
        """Smallest and largest distance from the root at which an effector can stand, limits aside."""
        from ik_sim.fabrik.search import reach_of

        most, least = reach_of(self._parent, self._length, self.effectors[effector])
        return float(least), float(most)

    def angles(self, points: Any) -> Float[np.ndarray, "m"]:
        """Angle of every joint at these points [rad]: signed for hinges and in the plane, else of the swing."""
        from ik_sim.fabrik.search import angles

        p = self.pad(points, "points")
        out = np.zeros(len(self.parent))
        angles(self._parent, self._length, self._joint if self.limited else self._lay_out_joints(), p, out)
        return out

    def pose(self, angles: Any) -> Float[np.ndarray, "m 2"]:
        """Points of a planar skeleton whose joints stand at these angles [rad], one for each point but the root."""
        a = np.asarray(angles, dtype=np.float64)
        if self.dimension != 2 or a.shape != (len(self.parent) - 1,) or not np.all(np.isfinite(a)):
            raise InvalidArgumentError("angles", f"must be {len(self.parent) - 1} numbers, for a planar skeleton")
        points, heading = np.array(self.rest), np.zeros(len(self.parent))
        for i in range(1, len(points)):
            m = int(self.parent[i])
            rest = np.arctan2(self._u[i, 1], self._u[i, 0])
            before = np.arctan2(self._u[m, 1], self._u[m, 0]) if m else 0.0
            heading[i] = (heading[m] - before if m else 0.0) + rest + a[i - 1]
            points[i] = points[m] + self.length[i] * np.array([np.cos(heading[i]), np.sin(heading[i])])
        return points

    def pad(self, points: Any, name: str) -> Float[np.ndarray, "m 3"]:
        """A fresh (m, 3) copy of points, with z = 0 in the plane."""
        p = np.asarray(points, dtype=np.float64)
        if p.shape != self.rest.shape:
            raise InvalidArgumentError(name, f"has shape {p.shape}; wanted {self.rest.shape}")
        out = np.zeros((len(p), 3))
        out[:, : p.shape[1]] = p
        return out

    # --- for the kernels ---

    _parent: Any = field(init=False, repr=False)
    _length: Any = field(init=False, repr=False)
    _u: Any = field(init=False, repr=False)
    _joint: Any = field(init=False, repr=False)
    _branch: Any = field(init=False, repr=False)
    _pulls: Any = field(init=False, repr=False)
    _loops: Any = field(init=False, repr=False)
    _start: Any = field(init=False, repr=False)
    _kind: Any = field(init=False, repr=False)

    def _with_lengths(self, length: Any, along: Any) -> Skeleton:
        put = object.__setattr__
        put(self, "length", length)
        length.flags.writeable = False
        self._pack(along)
        return self

    def _pack(self, along: Any = None) -> None:
        m, d = self.rest.shape
        rest = np.zeros((m, 3))
        rest[:, :d] = self.rest
        u = rest - rest[self.parent]
        u[0] = 1.0, 0.0, 0.0
        size = np.linalg.norm(u, axis=1)
        u /= np.where(size > 0, size, 1.0)[:, None]
        for i in np.flatnonzero(size == 0):  # parents come first
            u[i] = u[self.parent[i]]
        if along is not None:
            u[1:, :d] = along
        pulls = np.array([[e, w] for e, w in zip(self.effectors, self.weights, strict=True)], dtype=np.float64)
        total, count, parent = [0.0] * m, [0] * m, self.parent.tolist()
        strengths = [*zip(self.effectors, self.weights, strict=True), *((i, 1.0) for x in self.loops for i in x[:2])]
        for i, w in strengths:
            total[i] += w
            count[i] += 1
        for i in range(m - 1, 0, -1):
            total[parent[i]] += total[i]
            count[parent[i]] += count[i]
        put = object.__setattr__
        put(self, "_parent", np.array(np.maximum(self.parent, 0)))
        put(self, "_length", np.array(self.length))
        put(self, "_u", u)
        put(self, "_joint", self._lay_out_joints() if self.limited else np.empty((0, c.JOINT)))
        put(self, "_branch", np.array(total) / np.maximum(count, 1))  # of a branch: the mean weight of what pulls on it
        put(self, "_pulls", pulls)
        put(self, "_loops", np.array(self.loops, dtype=np.float64).reshape(-1, 3))
        put(self, "_start", rest)
        free = not (self.limited or self.loops)
        put(self, "_kind", (d, free, free and self.is_chain))

    def _lay_out_joints(self) -> Float[np.ndarray, "m k"]:
        m, u = len(self.parent), self._u
        geometry = np.zeros((m, c.JOINT))
        children = np.bincount(self.parent[1:], minlength=m)
        child = np.full(m, -1)
        child[self.parent[1:]] = np.arange(1, m)
        geometry[:, c.ONLY_CHILD] = np.where(children == 1, child, -1)
        for i in range(1, m):
            k = self.parent[i] if self.parent[i] > 0 else i
            _lay_out(geometry[i], self.joints[i], self.dimension, u[i], u[k])
        return geometry


def lay_out_obstacles(obstacles: Sequence[Sphere | Box], dimension: int, margin: float) -> Float[np.ndarray, "k 16"]:
    """The obstacles as rows for the kernels, grown by `margin`."""
    rows = np.zeros((len(obstacles), c.OBSTACLE))
    for k, thing in enumerate(obstacles):
        name = f"obstacles[{k}]"
        centre = np.asarray(thing.centre, dtype=np.float64)
        if centre.shape != (dimension,) or not np.all(np.isfinite(centre)):
            raise InvalidArgumentError(name, f"its centre must be {dimension} numbers")
        rows[k, 1 : 1 + dimension] = centre
        rows[k, 7:16] = np.eye(3).ravel()
        if isinstance(thing, Sphere):
            if not 0 < thing.radius < np.inf:
                raise InvalidArgumentError(name, f"its radius must be positive, not {thing.radius}")
            rows[k, 0], rows[k, 4] = c.SPHERE, thing.radius + margin
            continue
        half = np.asarray(thing.half_sizes, dtype=np.float64)
        if half.shape != (dimension,) or not np.all(half > 0) or not np.all(np.isfinite(half)):
            raise InvalidArgumentError(name, f"its half sizes must be {dimension} positive numbers")
        rows[k, 0] = c.BOX
        rows[k, 4:7] = 1e30  # across the plane a rectangle has no end
        rows[k, 4 : 4 + dimension] = half + margin
        if thing.rotation is not None:
            R = np.eye(3)
            if dimension == 2:
                a = float(thing.rotation)
                R[:2, :2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
            else:
                R = np.asarray(thing.rotation, dtype=np.float64)
            if R.shape != (3, 3) or not np.allclose(R @ R.T, np.eye(3), atol=1e-9):
                raise InvalidArgumentError(
                    name, "its rotation must be a (3, 3) rotation matrix, or an angle in the plane"
                )
            rows[k, 7:16] = R.ravel()
    return rows


def _points(points: Any, name: str) -> Float[np.ndarray, "m d"]:
    p = np.array(points, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] not in (2, 3):
        raise InvalidArgumentError(name, f"has shape {p.shape}; wanted points with two or three coordinates")
    if not np.all(np.isfinite(p)):
        row = int(np.flatnonzero(~np.isfinite(p).all(axis=1))[0])
        raise InvalidArgumentError(name, f"point {row} is {p[row].tolist()}; wanted finite numbers")
    return np.ascontiguousarray(p)


def _check_joint(joint: Any, dimension: int, i: int) -> None:
    name = f"joints[{i}]"
    if isinstance(joint, Arc):
        if dimension != 2:
            raise InvalidArgumentError(name, "an Arc belongs to the plane; in space take a Hinge or a Cone")
    elif isinstance(joint, Hinge | Cone):
        if dimension != 3:
            raise InvalidArgumentError(name, f"a {type(joint).__name__} belongs to space; in the plane take an Arc")
    else:
        raise InvalidArgumentError(name, f"must be an Arc, a Hinge, a Cone or None, not {joint!r}")
    if isinstance(joint, Cone):
        if not 0 <= joint.half_angle <= np.pi:
            raise InvalidArgumentError(name, f"half_angle must be in [0, π], not {joint.half_angle}")
        return
    if not (np.isfinite(joint.lower) and np.isfinite(joint.upper) and joint.lower <= joint.upper):
        raise InvalidArgumentError(name, f"[{joint.lower}, {joint.upper}] must be finite angles [rad], lower first")
    if isinstance(joint, Hinge):
        axis = np.asarray(joint.axis, dtype=np.float64)
        if axis.shape != (3,) or not np.all(np.isfinite(axis)) or not np.linalg.norm(axis) > 0:
            raise InvalidArgumentError(name, "its axis must be three numbers, not all zero")


def _lay_out(row: Any, joint: Joint, dimension: int, u: Any, u_parent: Any) -> None:
    """Fill one row of `joint` (see cycle.py) in place."""
    row[c.U : c.U + 3] = u
    row[c.HALF], row[c.COS_C], row[c.COS_H], row[c.FLAT] = np.pi, 1.0, -1.0, float(dimension == 2)
    axis = None
    if dimension == 2:
        axis = np.array([0.0, 0.0, 1.0])
    elif isinstance(joint, Hinge):
        axis = np.asarray(joint.axis, dtype=np.float64)
        axis = axis / np.linalg.norm(axis)
    if isinstance(joint, Arc | Hinge):
        row[c.CENTRE] = 0.5 * (joint.lower + joint.upper)
        row[c.HALF] = 0.5 * (joint.upper - joint.lower)
    elif isinstance(joint, Cone):
        row[c.HALF] = joint.half_angle
    half = min(float(row[c.HALF]), np.pi)
    row[c.COS_C], row[c.SIN_C] = np.cos(row[c.CENTRE]), np.sin(row[c.CENTRE])
    row[c.COS_H], row[c.SIN_H] = np.cos(half), np.sin(half)
    row[c.KIND] = c.FREE
    if axis is None:
        row[c.KIND] = c.CONE if isinstance(joint, Cone) else c.FREE
        return
    row[c.KIND] = c.HINGE
    row[c.A : c.A + 3] = axis
    for direction, along, across, first, second in (
        (u, c.ALONG, c.ACROSS, c.E1, c.E2),
        (u_parent, c.F_ALONG, c.F_ACROSS, c.F1, c.F2),
    ):
        row[along] = direction @ axis
        part = direction - row[along] * axis
        row[across] = np.linalg.norm(part)
        if row[across] < 1e-12:  # the link lies along its own hinge: a roll, which moves no point of it
            part = np.cross(axis, [1.0, 0.0, 0.0] if abs(axis[0]) < 0.9 else [0.0, 1.0, 0.0])
        row[first : first + 3] = part / np.linalg.norm(part)
        row[second : second + 3] = np.cross(axis, row[first : first + 3])
