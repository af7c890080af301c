"""A serial chain of joints: where the tool is for given joint values, how it moves, and what the joints may do.

A :class:`Chain` is built once from joints (`urdf.py` does so from a file) and then only read. Fixed joints are folded
into their neighbours, every axis is turned to z, and the numbers are laid into one flat array, `Chain.packed`, which
is all that a compiled kernel needs to know about an arm:

    T_base_tool(q) = F_0 · M_0(x_0) · F_1 · M_1(x_1) … F_m,    x_j = scale_j · q[dof_j] + offset_j,

M a turn about z or a shift along z. A mimic joint is a joint that shares its `dof` with another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim import families
from ik_sim.compiled import kernel
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.se3 import check_pose

# Where things stand in `packed`: a head of numbers and offsets, then the blocks they point to.
DOF, JOINTS, FAMILY, NEAR, FRAMES, AXES, LOWER, UPPER, PARAMETERS, REACH = range(10)
CENTRE, SLACK, TURN = 10, 13, 14
HEAD = 16

KINDS = ("revolute", "continuous", "prismatic", "fixed")


@dataclass(frozen=True)
class Mimic:
    """A joint that follows another: position = multiplier · master + offset."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, eq=False)
class Joint:
    """One joint as a robot description writes it."""

    name: str
    kind: str
    """revolute, continuous, prismatic or fixed"""
    T_parent_joint: Float[np.ndarray, "4 4"]
    """Pose of the joint in the link before it, at joint value 0."""
    axis: Float[np.ndarray, "3"] = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    """Direction in joint axes; any length."""
    lower: float = -np.inf
    upper: float = np.inf
    """Limits [rad] or [m]."""
    velocity: float = np.inf
    """[rad/s] or [m/s]"""
    effort: float = np.inf
    """[Nm] or [N]"""
    mimic: Mimic | None = None
    soft_lower: float | None = None
    soft_upper: float | None = None
    """Limits of a safety controller, listed beside the hard ones; the hard ones are in force."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Geometry and limits of one arm from `base_link` to `tool_link`; build it with :meth:`from_joints`."""

    joints: tuple[Joint, ...]
    base_link: str
    tool_link: str
    T_last_tool: Float[np.ndarray, "4 4"]
    joint_names: tuple[str, ...]
    """The independent joints in order from base to tool: q[i] belongs to joint_names[i]."""
    lower: Float[np.ndarray, "n"]
    upper: Float[np.ndarray, "n"]
    """Position limits [rad] or [m]; infinite for continuous joints. Mimic joints narrow their master's."""
    velocity_limits: Float[np.ndarray, "n"]
    effort_limits: Float[np.ndarray, "n"]
    soft_lower: Float[np.ndarray, "n"]
    soft_upper: Float[np.ndarray, "n"]
    packed: Float[np.ndarray, "k"]
    """The chain as kernels read it. Treat as read-only: it is writable only because numba calls are faster that way."""
    family_fit: families.Family | None
    """The ideal arm of the chain's family, None for plain serial chains."""
    record_size: int = 0
    """Length of the row in which a compiled solver answers (see solvers/record.py): the joints and 20 numbers more."""
    form: int = 0
    """One number for family and fit: the family's code, plus 10 if the chain is only almost of it."""

    # --- building ---

    @staticmethod
    def from_joints(
        joints: Sequence[Joint], *, base_link: str = "base", tool_link: str = "tool", T_last_tool: Any = None
    ) -> Chain:
        """A chain from its joints in order from base to tool, fixed ones included.

        Args:
            joints: at least one of them movable.
            base_link: name of the link that the first joint stands on.
            tool_link: name of the link that is the tool.
            T_last_tool: pose of the tool in the link after the last joint; identity when left out.

        Raises:
            IkSimError: a joint is malformed (the message names it), a name comes twice, or nothing can move.
        """
        tool = np.eye(4) if T_last_tool is None else check_pose(T_last_tool, "T_last_tool")
        names = [joint.name for joint in joints]
        for name in names:
            if names.count(name) > 1:
                raise IkSimError(f"joint {name!r} comes twice in the chain")
        independent = [j for j in joints if j.kind != "fixed" and j.mimic is None]
        if not independent:
            raise IkSimError(f"no joint moves between {base_link!r} and {tool_link!r}")
        index = {joint.name: i for i, joint in enumerate(independent)}
        lower = np.array([float(j.lower) for j in independent])
        upper = np.array([float(j.upper) for j in independent])
        velocity = np.array([float(j.velocity) for j in independent])
        frames, rows = [], []
        T = np.eye(4)
        for joint in joints:
            _check_joint(joint)
            T = T @ check_pose(joint.T_parent_joint, f"T_parent_joint of joint {joint.name!r}")
            if joint.kind == "fixed":
                continue
            A = _axis_frame(joint.axis)
            dof, scale, offset = _master(joint, joints, index)
            frames.append((T @ A)[:3].ravel())
            rows.append([1.0 if joint.kind == "prismatic" else 0.0, dof, scale, offset])
            T = A.T
            if joint.mimic is not None and scale != 0.0:  # its own limits bound its master
                bounds = sorted(((joint.lower - offset) / scale, (joint.upper - offset) / scale))
                lower[dof], upper[dof] = max(lower[dof], bounds[0]), min(upper[dof], bounds[1])
                velocity[dof] = min(velocity[dof], joint.velocity / abs(scale))
        frames.append((T @ tool)[:3].ravel())
        soft_lower = np.array([j.lower if j.soft_lower is None else j.soft_lower for j in independent])
        soft_upper = np.array([j.upper if j.soft_upper is None else j.soft_upper for j in independent])
        return Chain._packed(
            joints=tuple(joints), base_link=base_link, tool_link=tool_link, T_last_tool=tool,
            joint_names=tuple(index), lower=lower, upper=upper, velocity_limits=velocity,
            effort_limits=np.array([float(j.effort) for j in independent]), soft_lower=soft_lower,
            soft_upper=soft_upper, frames=np.array(frames), rows=np.array(rows),
        )  # fmt: skip

    @staticmethod
    def _packed(*, frames: Any, rows: Any, lower: Any, upper: Any, **rest: Any) -> Chain:
        n, m = len(lower), len(rows)
        if (lower > upper).any():
            i = int(np.argmax(lower > upper))
            raise IkSimError(
                f"joint {rest['joint_names'][i]!r} has lower limit {lower[i]:g} above its upper limit {upper[i]:g}"
            )
        # A whole turn of a joint changes nothing but its number where the limits leave room for one: 2π, else 0.
        turn = np.where(upper - lower >= 2.0 * np.pi, 2.0 * np.pi, 0.0)
        for kind, dof, scale, _ in rows:
            if kind or scale != round(scale):
                turn[int(dof)] = 0.0
        blocks = [frames.ravel(), rows.ravel(), lower, upper, turn]
        starts = HEAD + np.concatenate([[0], np.cumsum([len(b) for b in blocks])])
        head = np.zeros(HEAD)
        head[[DOF, JOINTS]] = n, m
        head[[FRAMES, AXES, LOWER, UPPER, TURN, PARAMETERS]] = starts
        packed = np.concatenate([head, *blocks])
        family = None
        plain = np.column_stack([np.zeros(m), np.arange(m), np.ones(m), np.zeros(m)])
        if m == n and np.array_equal(rows, plain):  # revolute joints only, none of them a mimic
            T = _frames(frames, np.zeros(n))
            family = families.recognise(
                T[1 : n + 1, :3, 2], T[1 : n + 1, :3, 3], T[n + 1], lambda q: _frames(frames, q)[n + 1]
            )
        if family is not None:
            packed[FAMILY] = families.CODES[family.name]
            packed[NEAR] = 0.0 if family.exact else 1.0
            packed[SLACK] = family.slack
            packed = np.concatenate([packed, family.pack()])
        # The tool stays within the summed link lengths of the first joint, whose origin is fixed in the base.
        travel = np.maximum(np.abs(lower), np.abs(upper))
        reach = np.linalg.norm(frames[1:, [3, 7, 11]], axis=1).sum()
        for kind, dof, scale, offset in rows:
            if kind:
                reach += abs(offset) + (abs(scale) * travel[int(dof)] if scale != 0.0 else 0.0)
        packed[REACH] = reach
        packed[CENTRE : CENTRE + 3] = frames[0, [3, 7, 11]]
        for array in (lower, upper, *(v for v in rest.values() if isinstance(v, np.ndarray))):
            array.setflags(write=False)
        form = int(packed[FAMILY] + 10 * packed[NEAR])
        return Chain(lower=lower, upper=upper, packed=packed, family_fit=family, record_size=n + 20, form=form, **rest)

    def with_limits(self, limits: Mapping[str, tuple[float, float]]) -> Chain:
        """The same chain with other position limits [rad or m] for the named joints."""
        lower, upper = self.lower.copy(), self.upper.copy()
        for name, (low, high) in limits.items():
            if name not in self.joint_names:
                raise UnknownNameError("joint", name, self.joint_names)
            if not low <= high:
                raise InvalidArgumentError(f"limits of {name!r}", f"lower {low} must not exceed upper {high}")
            i = self.joint_names.index(name)
            lower[i], upper[i] = low, high
        m = int(self.packed[JOINTS])
        frames = self.packed[int(self.packed[FRAMES]) :][: 12 * (m + 1)].reshape(-1, 12)
        rows = self.packed[int(self.packed[AXES]) :][: 4 * m].reshape(-1, 4)
        return Chain._packed(
            joints=self.joints, base_link=self.base_link, tool_link=self.tool_link, T_last_tool=self.T_last_tool,
            joint_names=self.joint_names, lower=lower, upper=upper, velocity_limits=self.velocity_limits,
            effort_limits=self.effort_limits, soft_lower=self.soft_lower, soft_upper=self.soft_upper,
            frames=frames, rows=rows,
        )  # fmt: skip

    def locked(self, values: Mapping[str, float]) -> Chain:
        """The same chain with the named joints held at `values` [rad or m]: limits that leave no room."""
        for name, value in values.items():
            if name not in self.joint_names:
                raise UnknownNameError("joint", name, self.joint_names)
            i = self.joint_names.index(name)
            if not self.lower[i] <= value <= self.upper[i]:
                raise InvalidArgumentError(
                    f"locked[{name!r}]", f"{value:g} is outside its limits [{self.lower[i]:g}, {self.upper[i]:g}]"
                )
        return self.with_limits({name: (value, value) for name, value in values.items()})

    def with_tool(self, T_tool_offset: Any) -> Chain:
        """The same chain with a tool mounted: `T_tool_offset` is the new tool in the old tool's axes."""
        T = self.T_last_tool @ check_pose(T_tool_offset, "T_tool_offset")
        chain = Chain.from_joints(self.joints, base_link=self.base_link, tool_link=self.tool_link, T_last_tool=T)
        return chain.with_limits(dict(zip(self.joint_names, zip(self.lower, self.upper, strict=True), strict=True)))

    # --- reading ---

    @property
    def n(self) -> int:
        """Number of independent joints."""
        return len(self.joint_names)

    @property
    def family(self) -> str:
        """planar2, planar3, ur, srs, or serial when no closed form is known."""
        return "serial" if self.family_fit is None else self.family_fit.name

    @cached_property
    def q_middle(self) -> Float[np.ndarray, "n"]:
        """A start when none is given: the middle of the limits, 0 or the nearest legal value for unlimited joints."""
        bounded = np.isfinite(self.lower) & np.isfinite(self.upper)
        with np.errstate(invalid="ignore"):
            middle = np.where(bounded, 0.5 * (self.lower + self.upper), np.clip(0.0, self.lower, self.upper))
        middle.setflags(write=False)
        return middle

    def check_q(self, q: Any, name: str = "q") -> Float[np.ndarray, "n"]:
        """`q` as a fresh array of n finite numbers.

        Raises:
            InvalidArgumentError: another length (the message lists the joints), NaN or infinity.
        """
        try:
            array = np.array(q, dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(name, f"must be {self.n} numbers ({error})") from None
        if array.shape != (self.n,):
            given = len(array) if array.ndim == 1 else f"shape {array.shape}"
            raise InvalidArgumentError(name, f"{given} given, {self.n} wanted: {', '.join(self.joint_names)}")
        if not np.isfinite(array).all():
            raise InvalidArgumentError(name, f"holds NaN or infinity: {array.tolist()}")
        return array

    def fk(self, q: Any) -> Float[np.ndarray, "4 4"]:
        """Forward kinematics: the pose T_base_tool of the tool in the base, for joint values q [rad or m]."""
        T = np.eye(4)
        _fk_kernel(self.packed, self.check_q(q), T)
        return T

    def fk_batch(self, q: Any) -> Float[np.ndarray, "k 4 4"]:
        """Forward kinematics of many configurations, (k, n) to (k, 4, 4)."""
        array = np.array(q, dtype=np.float64, order="C")
        if array.ndim != 2 or array.shape[1] != self.n:
            raise InvalidArgumentError(
                "q", f"has shape {array.shape}; wanted (k, {self.n}): {', '.join(self.joint_names)}"
            )
        if not np.isfinite(array).all():
            raise InvalidArgumentError("q", "holds NaN or infinity")
        T = np.empty((len(array), 4, 4))
        _fk_batch_kernel(self.packed, array, T)
        return T

    def jacobian(self, q: Any) -> Float[np.ndarray, "6 n"]:
        """Geometric Jacobian in base axes at the tool origin: rows linear [m], then angular [rad], per joint unit."""
        J = np.empty((6, self.n))
        _jacobian_kernel(self.packed, self.check_q(q), J, np.empty((int(self.packed[JOINTS]), 6)))
        return J

    def joint_frames(self, q: Any) -> Float[np.ndarray, "m 4 4"]:
        """Poses in the base of: the base itself, each moving joint after its motion (its axis is z), the tool."""
        T = np.empty((int(self.packed[JOINTS]) + 2, 4, 4))
        _frames_kernel(self.packed, self.check_q(q), T)
        return T

    def all_joint_positions(self, q: Any) -> dict[str, float]:
        """Value of every moving joint on the chain by name, mimic joints included [rad or m]."""
        q = self.check_q(q)
        m = int(self.packed[JOINTS])
        rows = self.packed[int(self.packed[AXES]) :][: 4 * m].reshape(-1, 4)
        moving = [j.name for j in self.joints if j.kind != "fixed"]
        return {name: float(r[2] * q[int(r[1])] + r[3]) for name, r in zip(moving, rows, strict=True)}

    def clip(self, q: Any) -> Float[np.ndarray, "n"]:
        """The nearest configuration inside the limits, joint by joint."""
        return np.clip(self.check_q(q), self.lower, self.upper)

    def within_limits(self, q: Any, tolerance: float = 0.0) -> bool:
        """Whether every joint is inside its limits, to `tolerance` [rad or m]."""
        q = self.check_q(q)
        return bool(((q >= self.lower - tolerance) & (q <= self.upper + tolerance)).all())

    def random_q(
        self, rng: np.random.Generator, size: int | None = None, within: float = 1.0
    ) -> Float[np.ndarray, "..."]:
        """Uniform draws inside the limits (±π for unlimited joints), from the inner share `within` of each range."""
        lower = np.where(np.isfinite(self.lower), self.lower, np.minimum(-np.pi, self.upper - 2 * np.pi))
        upper = np.where(np.isfinite(self.upper), self.upper, np.maximum(np.pi, lower + 2 * np.pi))
        middle, half = 0.5 * (lower + upper), 0.5 * within * (upper - lower)
        shape = (self.n,) if size is None else (size, self.n)
        return np.clip(rng.uniform(middle - half, middle + half, shape), self.lower, self.upper)


def _check_joint(joint: Joint) -> None:
    if joint.kind not in KINDS:
        raise IkSimError(f"joint {joint.name!r} has the type {joint.kind!r}; known: {', '.join(sorted(KINDS))}")
    if joint.kind == "fixed":
        return
    length = float(np.linalg.norm(joint.axis))
    if not (np.isfinite(length) and length > 1e-9):
        raise IkSimError(
            f"joint {joint.name!r} has the axis {np.asarray(joint.axis).tolist()}: it must be a finite direction"
        )
    if np.isnan([joint.lower, joint.upper, joint.velocity, joint.effort]).any():
        raise IkSimError(f"joint {joint.name!r} has a NaN among its limits")


def _axis_frame(axis: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    """A rotation whose z axis is `axis`; made of exact zeros and ones for the coordinate axes."""
    z = np.asarray(axis, dtype=np.float64) / np.linalg.norm(axis)
    if z[2] == 1.0 and z[0] == 0.0 and z[1] == 0.0:  # 1.0 alone may be a tilt that its square hides
        return np.eye(4)
    x = np.zeros(3)
    x[int(np.argmin(np.abs(z)))] = 1.0
    x -= z * (z @ x)
    x /= np.linalg.norm(x)
    A = np.eye(4)
    A[:3, 0], A[:3, 1], A[:3, 2] = x, np.cross(z, x), z
    return A


def _master(joint: Joint, joints: Sequence[Joint], index: Mapping[str, int]) -> tuple[int, float, float]:
    """Which independent joint moves this one, and how: (index, scale, offset)."""
    scale, offset, seen = 1.0, 0.0, [joint.name]
    by_name = {j.name: j for j in joints}
    while joint.mimic is not None:
        offset += scale * joint.mimic.offset
        scale *= joint.mimic.multiplier
        name = joint.mimic.joint
        if name in seen:
            raise IkSimError(f"joints mimic each other in a circle: {' -> '.join([*seen, name])}")
        if name not in by_name or by_name[name].kind == "fixed":
            raise IkSimError(f"joint {joint.name!r} mimics {name!r}, which is not a moving joint of the chain")
        seen.append(name)
        joint = by_name[name]
    return index[joint.name], scale, offset


def _frames(frames: Float[np.ndarray, "m 12"], q: Float[np.ndarray, "n"]) -> Float[np.ndarray, "k 4 4"]:
    """Base, joint frames and tool of a chain of plain revolute joints, without compiled code (a chain is built often)."""
    T = [np.eye(4)]
    for row, angle in zip(frames, [*q, 0.0], strict=True):
        M = np.eye(4)
        M[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        T.append(T[-1] @ np.vstack([row.reshape(3, 4), [0.0, 0.0, 0.0, 1.0]]) @ M)
    return np.array(T)


# --- kernels: the same product of frames, kept in scalars so that nothing is allocated ---


@kernel
def tool_pose(c, q):
    """Rotation (row by row) and position of the tool: twelve numbers r00, r01, r02, r10, … r22, x, y, z."""
    m = int(c[JOINTS])
    f = int(c[FRAMES])
    a = int(c[AXES])
    r00, r01, r02, px = c[f], c[f + 1], c[f + 2], c[f + 3]
    r10, r11, r12, py = c[f + 4], c[f + 5], c[f + 6], c[f + 7]
    r20, r21, r22, pz = c[f + 8], c[f + 9], c[f + 10], c[f + 11]
    for _ in range(m):
        x = c[a + 2] * q[int(c[a + 1])] + c[a + 3]
        if c[a] == 0.0:
            cos, sin = np.cos(x), np.sin(x)
            r00, r01 = r00 * cos + r01 * sin, r01 * cos - r00 * sin
            r10, r11 = r10 * cos + r11 * sin, r11 * cos - r10 * sin
            r20, r21 = r20 * cos + r21 * sin, r21 * cos - r20 * sin
        else:
            px += r02 * x
            py += r12 * x
            pz += r22 * x
        a += 4
        f += 12
        f00, f01, f02, f03 = c[f], c[f + 1], c[f + 2], c[f + 3]
        f10, f11, f12, f13 = c[f + 4], c[f + 5], c[f + 6], c[f + 7]
        f20, f21, f22, f23 = c[f + 8], c[f + 9], c[f + 10], c[f + 11]
        px, py, pz = (
            px + r00 * f03 + r01 * f13 + r02 * f23,
            py + r10 * f03 + r11 * f13 + r12 * f23,
            pz + r20 * f03 + r21 * f13 + r22 * f23,
        )
        r00, r01, r02 = (
            r00 * f00 + r01 * f10 + r02 * f20,
            r00 * f01 + r01 * f11 + r02 * f21,
            r00 * f02 + r01 * f12 + r02 * f22,
        )
        r10, r11, r12 = (
            r10 * f00 + r11 * f10 + r12 * f20,
            r10 * f01 + r11 * f11 + r12 * f21,
            r10 * f02 + r11 * f12 + r12 * f22,
        )
        r20, r21, r22 = (
            r20 * f00 + r21 * f10 + r22 * f20,
            r20 * f01 + r21 * f11 + r22 * f21,
            r20 * f02 + r21 * f12 + r22 * f22,
        )
    return r00, r01, r02, r10, r11, r12, r20, r21, r22, px, py, pz


@kernel
def _fk_kernel(c, q, T):
    T[0, 0], T[0, 1], T[0, 2], T[1, 0], T[1, 1], T[1, 2], T[2, 0], T[2, 1], T[2, 2], T[0, 3], T[1, 3], T[2, 3] = (
        tool_pose(c, q)
    )


@kernel
def _fk_batch_kernel(c, q, T):
    for k in range(q.shape[0]):
        _fk_kernel(c, q[k], T[k])
        T[k, 3, 0] = T[k, 3, 1] = T[k, 3, 2] = 0.0
        T[k, 3, 3] = 1.0


@kernel
def _frames_kernel(c, q, T):
    m = int(c[JOINTS])
    f = int(c[FRAMES])
    a = int(c[AXES])
    T[:] = 0.0
    for i in range(4):
        T[0, i, i] = 1.0
    for j in range(m + 1):
        for i in range(3):
            for k in range(4):
                T[j + 1, i, k] = (
                    T[j, i, 0] * c[f + k]
                    + T[j, i, 1] * c[f + 4 + k]
                    + T[j, i, 2] * c[f + 8 + k]
                    + (T[j, i, 3] if k == 3 else 0.0)
                )
        T[j + 1, 3, 3] = 1.0
        f += 12
        if j == m:
            break
        x = c[a + 2] * q[int(c[a + 1])] + c[a + 3]
        if c[a] == 0.0:
            cos, sin = np.cos(x), np.sin(x)
            for i in range(3):
                T[j + 1, i, 0], T[j + 1, i, 1] = (
                    T[j + 1, i, 0] * cos + T[j + 1, i, 1] * sin,
                    T[j + 1, i, 1] * cos - T[j + 1, i, 0] * sin,
                )
        else:
            for i in range(3):
                T[j + 1, i, 3] += T[j + 1, i, 2] * x
        a += 4


@kernel
def pose_and_axes(c, q, axes):
    """The tool pose as in `tool_pose`; each moving joint's axis and a point on it, in base axes, go to axes (m, 6)."""
    m = int(c[JOINTS])
    f = int(c[FRAMES])
    a = int(c[AXES])
    r00, r01, r02, px = c[f], c[f + 1], c[f + 2], c[f + 3]
    r10, r11, r12, py = c[f + 4], c[f + 5], c[f + 6], c[f + 7]
    r20, r21, r22, pz = c[f + 8], c[f + 9], c[f + 10], c[f + 11]
    for j in range(m):
        axes[j, 0], axes[j, 1], axes[j, 2] = r02, r12, r22
        axes[j, 3], axes[j, 4], axes[j, 5] = px, py, pz
        x = c[a + 2] * q[int(c[a + 1])] + c[a + 3]
        if c[a] == 0.0:
            cos, sin = np.cos(x), np.sin(x)
            r00, r01 = r00 * cos + r01 * sin, r01 * cos - r00 * sin
            r10, r11 = r10 * cos + r11 * sin, r11 * cos - r10 * sin
            r20, r21 = r20 * cos + r21 * sin, r21 * cos - r20 * sin
        else:
            px += r02 * x
            py += r12 * x
            pz += r22 * x
        a += 4
        f += 12
        f00, f01, f02, f03 = c[f], c[f + 1], c[f + 2], c[f + 3]
        f10, f11, f12, f13 = c[f + 4], c[f + 5], c[f + 6], c[f + 7]
        f20, f21, f22, f23 = c[f + 8], c[f + 9], c[f + 10], c[f + 11]
        px, py, pz = (
            px + r00 * f03 + r01 * f13 + r02 * f23,
            py + r10 * f03 + r11 * f13 + r12 * f23,
            pz + r20 * f03 + r21 * f13 + r22 * f23,
        )
        r00, r01, r02 = (
            r00 * f00 + r01 * f10 + r02 * f20,
            r00 * f01 + r01 * f11 + r02 * f21,
            r00 * f02 + r01 * f12 + r02 * f22,
        )
        r10, r11, r12 = (
            r10 * f00 + r11 * f10 + r12 * f20,
            r10 * f01 + r11 * f11 + r12 * f21,
            r10 * f02 + r11 * f12 + r12 * f22,
        )
        r20, r21, r22 = (
            r20 * f00 + r21 * f10 + r22 * f20,
            r20 * f01 + r21 * f11 + r22 * f21,
            r20 * f02 + r21 * f12 + r22 * f22,
        )
    return r00, r01, r02, r10, r11, r12, r20, r21, r22, px, py, pz


@kernel
def jacobian_from_axes(c, axes, px, py, pz, J):
    """Fill J (6, n) from joint axes and the tool position; a mimic joint adds to its master's column."""
    n = int(c[DOF])
    a = int(c[AXES])
    for i in range(6):
        for k in range(n):
            J[i, k] = 0.0
    for j in range(int(c[JOINTS])):
        k = int(c[a + 1])
        s = c[a + 2]
        zx, zy, zz = axes[j, 0] * s, axes[j, 1] * s, axes[j, 2] * s
        if c[a] == 0.0:
            dx, dy, dz = px - axes[j, 3], py - axes[j, 4], pz - axes[j, 5]
            J[0, k] += zy * dz - zz * dy
            J[1, k] += zz * dx - zx * dz
            J[2, k] += zx * dy - zy * dx
            J[3, k] += zx
            J[4, k] += zy
            J[5, k] += zz
        else:
            J[0, k] += zx
            J[1, k] += zy
            J[2, k] += zz
        a += 4


@kernel
def _jacobian_kernel(c, q, J, axes):
    T = pose_and_axes(c, q, axes)
    jacobian_from_axes(c, axes, T[9], T[10], T[11], J)
