"""Other methods on the same skeletons: CCD, the Jacobian methods, and the closed forms of two and three links.

They move chains with one target. Joint i turns everything beyond it: by an angle in the plane, by a rotation vector
ω_i about its point in space, so that the tip moves by Σ ω_i × r_i with r_i = tip − p_i. Then J Jᵀ, which is
Σ (|r_i|² I − r_i r_iᵀ), is 2 × 2 or 3 × 3 whatever the number of links, and a method costs O(n) a step, as FABRIK does.
In the plane limits clip the angles; in space the turned links are moved to the nearest legal directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from ik_sim.compiled import kernel
from ik_sim.errors import InvalidArgumentError, UnknownNameError
from ik_sim.fabrik import search as r
from ik_sim.fabrik.cycle import limit_forward, settle, unit, workspace
from ik_sim.fabrik.skeleton import Skeleton
from ik_sim.fabrik.solver import Solution

METHODS = ("ccd", "jacobian_transpose", "damped_least_squares", "selectively_damped", "levenberg_marquardt")
"""In the order of the codes below."""
CCD, TRANSPOSE, DLS, SDLS, LM = range(5)


@kernel
def joint_step(method, p, target, plane, gain, most, omega):
    """Rotation vectors of one step in `omega` (n, 3), row i for the joint at point i; CCD is not one of these.

    gain: share of the gradient step (transpose, 0: the best one), λ (DLS), γ_max (SDLS), w̄ (LM); most: the longest
    error that a step may ask for, 0: any.
    """
    n = p.shape[0] - 1
    d = 2 if plane else 3
    e = np.empty(3)
    for k in range(3):
        e[k] = target[k] - p[n, k]
    size = np.sqrt(e[0] * e[0] + e[1] * e[1] + e[2] * e[2])
    square = size * size
    if most > 0.0 and size > most:
        for k in range(3):
            e[k] *= most / size
    M = np.zeros((3, 3))  # J Jᵀ
    for i in range(n):
        x, y, z = p[n, 0] - p[i, 0], p[n, 1] - p[i, 1], p[n, 2] - p[i, 2]
        if plane:
            M[0, 0] += y * y
            M[0, 1] -= x * y
            M[1, 1] += x * x
        else:
            rr = x * x + y * y + z * z
            M[0, 0] += rr - x * x
            M[0, 1] -= x * y
            M[0, 2] -= x * z
            M[1, 1] += rr - y * y
            M[1, 2] -= y * z
            M[2, 2] += rr - z * z
    M[1, 0], M[2, 0], M[2, 1] = M[0, 1], M[0, 2], M[1, 2]
    f = np.zeros(3)
    if method == TRANSPOSE:
        if gain == 0.0:
            g = M @ e
            a, b = e[0] * g[0] + e[1] * g[1] + e[2] * g[2], g[0] * g[0] + g[1] * g[1] + g[2] * g[2]
            gain = a / b if b > 0.0 else 0.0
        for k in range(3):
            f[k] = gain * e[k]
    elif method == DLS or method == LM:
        damping = gain * gain if method == DLS else gain + 0.5 * square
        A = np.eye(3)
        for i in range(d):
            for k in range(d):
                A[i, k] = M[i, k] + (damping if i == k else 0.0)
        determinant = np.linalg.det(A)
        if abs(determinant) > 1e-300:
            f = np.linalg.solve(A, e)
        if plane:
            f[2] = 0.0
    if method != SDLS:
        for i in range(n):
            x, y, z = p[n, 0] - p[i, 0], p[n, 1] - p[i, 1], p[n, 2] - p[i, 2]
            omega[i, 0], omega[i, 1] = (0.0, 0.0) if plane else (y * f[2] - z * f[1], z * f[0] - x * f[2])
            omega[i, 2] = x * f[1] - y * f[0]
        return
    values, vectors = np.linalg.eigh(np.ascontiguousarray(M[:d, :d]))
    v = np.empty((n, 3))
    for i in range(n):
        omega[i, 0] = omega[i, 1] = omega[i, 2] = 0.0
    for m in range(d):
        sigma = np.sqrt(max(values[m], 0.0))
        if sigma < 1e-12:
            continue
        ux, uy, uz = vectors[0, m], vectors[1, m], vectors[2, m] if d == 3 else 0.0
        alpha = ux * e[0] + uy * e[1] + uz * e[2]
        reach, largest = 0.0, 0.0
        for i in range(n):
            x, y, z = p[n, 0] - p[i, 0], p[n, 1] - p[i, 1], p[n, 2] - p[i, 2]
            v[i, 0], v[i, 1] = (0.0, 0.0) if plane else ((y * uz - z * uy) / sigma, (z * ux - x * uz) / sigma)
            v[i, 2] = (x * uy - y * ux) / sigma
            for k in range(3):
                if plane and k < 2:
                    continue
                # Length of the column of J that belongs to this entry.
                u = z if k == 2 else (x if k == 0 else y)
                reach += abs(v[i, k]) * np.sqrt(x * x + y * y + z * z - u * u)
                largest = max(largest, abs(v[i, k]))
        gamma = gain * min(1.0, sigma / reach) if reach > 0.0 else gain  # N = 1: one effector
        scale = alpha / sigma
        if abs(scale) * largest > gamma:
            scale *= gamma / (abs(scale) * largest)
        for i in range(n):
            for k in range(3):
                omega[i, k] += scale * v[i, k]
    largest = 0.0
    for i in range(n):
        for k in range(3):
            largest = max(largest, abs(omega[i, k]))
    if largest > gain:
        for i in range(n):
            for k in range(3):
                omega[i, k] *= gain / largest


@kernel
def rotate(x, y, z, ax, ay, az):
    """The vector (x, y, z) turned by the rotation vector (ax, ay, az)."""
    angle = np.sqrt(ax * ax + ay * ay + az * az)
    if angle < 1e-300:
        return x, y, z
    ax, ay, az = ax / angle, ay / angle, az / angle
    c, s = np.cos(angle), np.sin(angle)
    d = (ax * x + ay * y + az * z) * (1.0 - c)
    return (
        c * x + s * (ay * z - az * y) + d * ax,
        c * y + s * (az * x - ax * z) + d * ay,
        c * z + s * (ax * y - ay * x) + d * az,
    )  # fmt: skip


@kernel
def apply_step(length, joint, limited, p, omega, w):
    """Turn every link by the rotations of all joints before it, then bring it inside its limits."""
    n = p.shape[0] - 1
    for i in range(1, n + 1):
        x, y, z = unit(
            p[i, 0] - p[i - 1, 0], p[i, 1] - p[i - 1, 1], p[i, 2] - p[i - 1, 2], w.old[i, 0], w.old[i, 1], w.old[i, 2]
        )
        w.back[i, 0], w.back[i, 1], w.back[i, 2] = x, y, z
    # Small rotations about fixed axes commute to first order; applied tip first they are those of the true arm.
    for i in range(1, n + 1):
        x, y, z = w.back[i, 0], w.back[i, 1], w.back[i, 2]
        for k in range(i - 1, -1, -1) if n <= 32 else range(0):
            x, y, z = rotate(x, y, z, omega[k, 0], omega[k, 1], omega[k, 2])
        w.back[i, 0], w.back[i, 1], w.back[i, 2] = x, y, z
    if n > 32:  # one running sum instead: O(n)
        sx = sy = sz = 0.0
        for i in range(1, n + 1):
            sx, sy, sz = sx + omega[i - 1, 0], sy + omega[i - 1, 1], sz + omega[i - 1, 2]
            w.back[i, 0], w.back[i, 1], w.back[i, 2] = rotate(w.back[i, 0], w.back[i, 1], w.back[i, 2], sx, sy, sz)
    for i in range(1, n + 1):
        x, y, z = unit(w.back[i, 0], w.back[i, 1], w.back[i, 2], 1.0, 0.0, 0.0)
        if limited:
            x, y, z = limit_forward(joint, i, w.R, i - 1, x, y, z)
        w.old[i, 0], w.old[i, 1], w.old[i, 2] = x, y, z
        p[i, 0], p[i, 1], p[i, 2] = (
            p[i - 1, 0] + length[i] * x, p[i - 1, 1] + length[i] * y, p[i - 1, 2] + length[i] * z,
        )  # fmt: skip


@kernel
def ccd_sweep(length, joint, limited, target, p, omega, w):
    """One sweep from the last joint to the first: each turns the tip towards the target, inside its limits.

    A joint at which tip or target lies on its axis stays. Points are moved at the end: only the tip is followed.
    """
    n = p.shape[0] - 1
    tx, ty, tz = p[n, 0], p[n, 1], p[n, 2]
    for i in range(n - 1, -1, -1):
        ax, ay, az = tx - p[i, 0], ty - p[i, 1], tz - p[i, 2]
        bx, by, bz = target[0] - p[i, 0], target[1] - p[i, 1], target[2] - p[i, 2]
        x, y, z = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
        sine, cosine = np.sqrt(x * x + y * y + z * z), ax * bx + ay * by + az * bz
        omega[i, 0] = omega[i, 1] = omega[i, 2] = 0.0
        if sine < 1e-300:
            continue
        angle = np.arctan2(sine, cosine)
        ox, oy, oz = x / sine * angle, y / sine * angle, z / sine * angle
        if limited and joint[i + 1, r.c.KIND] == r.c.HINGE and joint[i + 1, r.c.ACROSS] > 1.0 - 1e-12 and az == 0.0:
            # In the plane: the joint's own angle, turned and clipped.
            t = r.joint_angle(joint, i + 1, w.R, i, w.old[i + 1, 0], w.old[i + 1, 1], w.old[i + 1, 2])
            u = t + oz - joint[i + 1, r.c.CENTRE]
            u -= 2.0 * np.pi * np.rint(u / (2.0 * np.pi))
            u = min(max(u, -joint[i + 1, r.c.HALF]), joint[i + 1, r.c.HALF])
            oz = u + joint[i + 1, r.c.CENTRE] - t
        omega[i, 0], omega[i, 1], omega[i, 2] = ox, oy, oz
        ax, ay, az = rotate(ax, ay, az, ox, oy, oz)
        tx, ty, tz = p[i, 0] + ax, p[i, 1] + ay, p[i, 2] + az
    # The joint nearest the tip turned first: a link has undergone those before it in order from its own to the root's.
    apply_step(length, joint, limited, p, omega, w)


@kernel
def run(method, parent, length, joint, s, gain, most, target, p, trace, phases, out):
    """Steps until the tip arrives, the budget is spent or nothing moves; the best points stay in p."""
    n = p.shape[0] - 1
    limited, plane = joint.shape[0] > 0, s[r.PLANE] != 0.0
    for i in range(r.ANSWER):
        out[i] = 0.0
    w = workspace(n + 1, limited)
    omega, best = np.zeros((n, 3)), np.empty((n + 1, 3))
    settle(parent, length, joint, limited, p, w)
    r.note(trace, phases, out, float(r.START), p)
    best_miss, before, dead = np.inf, np.inf, 0
    scale = 0.0
    while True:
        x, y, z = target[0] - p[n, 0], target[1] - p[n, 1], target[2] - p[n, 2]
        miss = np.sqrt(x * x + y * y + z * z)
        if miss < best_miss:
            best_miss = miss
            for i in range(n + 1):
                best[i, 0], best[i, 1], best[i, 2] = p[i, 0], p[i, 1], p[i, 2]
        if miss <= s[r.TOLERANCE]:
            break
        dead = dead + 1 if abs(before - miss) <= 1e-13 * miss else 0
        before = miss
        if dead >= 5:
            r.say(out, float(r.STALLED), float(r.NO_PROGRESS), 0.0, out[r.CYCLES], 0.0, 0.0)
            break
        if out[r.CYCLES] >= s[r.MAX_CYCLES]:
            r.say(out, float(r.MAX_CYCLES_SPENT), float(r.SPENT), out[r.CYCLES], 0.0, 0.0, 0.0)
            break
        if method == CCD:
            ccd_sweep(length, joint, limited, target, p, omega, w)
        else:
            g = gain
            if method == TRANSPOSE and gain > 0.0:  # relative to 1/σ²: see math of the transpose method
                scale = 0.0
                for i in range(n):
                    x, y, z = p[n, 0] - p[i, 0], p[n, 1] - p[i, 1], p[n, 2] - p[i, 2]
                    scale += (x * x + y * y + z * z) * (1.0 if plane else 2.0)
                g = gain / scale if scale > 0.0 else 0.0
            joint_step(method, p, target, plane, g, most, omega)
            apply_step(length, joint, limited, p, omega, w)
        out[r.CYCLES] += 1.0
        out[r.PLACED] += n
        if trace.shape[0] > 0:
            r.note(trace, phases, out, float(r.FORWARD), p)
    for i in range(n + 1):
        p[i, 0], p[i, 1], p[i, 2] = best[i, 0], best[i, 1], best[i, 2]
    out[r.MISS] = out[r.SCORE] = best_miss
    if best_miss > s[r.TOLERANCE]:
        far = np.sqrt((target[0] - p[0, 0]) ** 2 + (target[1] - p[0, 1]) ** 2 + (target[2] - p[0, 2]) ** 2)
        reach, least = r.reach_of(parent, length, n)
        if far > reach + s[r.TOLERANCE]:
            r.say(out, float(r.OUT_OF_REACH), float(r.BEYOND), 0.0, far, reach, far - reach)
        elif far < least - s[r.TOLERANCE]:
            r.say(out, float(r.OUT_OF_REACH), float(r.INSIDE), 0.0, far, least, least - far)


_DEFAULT_GAIN = {"ccd": 0.0, "jacobian_transpose": 0.0, "damped_least_squares": 0.1, "selectively_damped": np.pi / 4,
                 "levenberg_marquardt": 1e-3}  # fmt: skip


@dataclass(frozen=True)
class Rival:
    """One of the other methods, for chains with one target."""

    method: Literal["ccd", "jacobian_transpose", "damped_least_squares", "selectively_damped", "levenberg_marquardt"]
    """Which."""
    gain: float | None = None
    """Transpose: share of the gradient step in (0, 2), the best step when left out. DLS: λ as a share of the chain's
    length. Selectively damped: γ_max [rad]. Levenberg-Marquardt: w̄ as a share of the mean link length squared."""
    clamp: float = 0.5
    """The longest error that a step of DLS may ask for, as a share of the chain's mean link; 0: any."""
    tolerance: float = 1e-6
    """As in `Solver`."""
    max_cycles: int = 10_000
    """Steps, or sweeps."""

    def __post_init__(self) -> None:
        """Check the name."""
        if self.method not in METHODS:
            raise UnknownNameError("method", self.method, METHODS)

    def solve(self, skeleton: Skeleton, target: Any, start: Any = None) -> Solution:
        """As `Solver.solve`."""
        return self._run(skeleton, target, start, np.empty((0, 1, 3)), np.empty(0))

    def path(self, skeleton: Skeleton, target: Any, start: Any = None, rows: int = 2000) -> Float[np.ndarray, "k m d"]:
        """Points at the start and after every step."""
        trace, phases = np.empty((rows, len(skeleton.parent), 3)), np.empty(rows)
        solution = self._run(skeleton, target, start, trace, phases)
        return trace[: int(solution._row[r.TRACE_ROWS]), :, : skeleton.dimension].copy()

    def _run(self, skeleton: Skeleton, target: Any, start: Any, trace: Any, phases: Any) -> Solution:
        from ik_sim.fabrik.solver import Solver

        if not skeleton.is_chain:
            raise InvalidArgumentError("skeleton", "the other methods move one chain whose last point has the target")
        settings = Solver(tolerance=self.tolerance, max_cycles=self.max_cycles)
        targets, p = settings._arguments(skeleton, target, start)
        if not (np.all(np.isfinite(targets)) and np.all(np.isfinite(p))):
            raise InvalidArgumentError("target", "target and start must be finite numbers")
        lengths = skeleton._length[1:]
        gain = _DEFAULT_GAIN[self.method] if self.gain is None else float(self.gain)
        if self.method == "damped_least_squares":
            gain *= float(lengths.mean())
        elif self.method == "levenberg_marquardt":
            gain *= float(lengths.mean()) ** 2
        most = self.clamp * float(lengths.mean()) if self.method == "damped_least_squares" else 0.0
        row = np.empty(r.ANSWER)
        run(
            METHODS.index(self.method), skeleton._parent, skeleton._length, skeleton._joint,
            settings._settings(skeleton, 0), gain, most, targets[0], p, trace, phases, row,
        )  # fmt: skip
        return Solution(np.ascontiguousarray(p[:, : skeleton.dimension]), row, skeleton, targets)


def step(
    method: str, points: Any, target: Any, gain: float, second: Any = None
) -> Float[np.ndarray, "n"] | Float[np.ndarray, "n 3"]:
    """One unclamped step of a Jacobian method: joint angles in the plane, rotation vectors in space.

    Args:
        method: one of METHODS but "ccd".
        points: (n + 1, d) of the chain.
        target: (d,).
        gain: α (0: the best along the gradient), λ, γ_max or w̄, as math of the method has it, not relative.
        second: joint angles wished for besides, in the plane; their part that leaves the tip alone is added.
    """
    p0 = np.asarray(points, dtype=np.float64)
    d = p0.shape[1]
    p, t, omega = np.zeros((len(p0), 3)), np.zeros(3), np.zeros((len(p0) - 1, 3))
    p[:, :d], t[:d] = p0, target
    if method not in METHODS[1:]:
        raise UnknownNameError("method", method, METHODS[1:])
    joint_step(METHODS.index(method), p, t, d == 2, float(gain), 0.0, omega)
    if d == 3:
        return omega
    found = omega[:, 2]
    if second is not None:
        J = np.stack([-(p[-1, 1] - p[:-1, 1]), p[-1, 0] - p[:-1, 0]])
        z = np.asarray(second, dtype=np.float64)
        found = found + z - np.linalg.pinv(J) @ (J @ z)
    return found


def two_links(lengths: Any, target: Any) -> Float[np.ndarray, "k 2"]:
    """Both answers of two links in the plane as joint angles [rad]; none when the target is out of reach.

    The bend comes from the half-angle form, which keeps its accuracy at both ends of the reach.
    """
    a, b = (float(x) for x in lengths)
    x, y = (float(v) for v in target)
    far = float(np.hypot(x, y))
    outer, inner = (a + b - far) * (a + b + far), (far - abs(a - b)) * (far + abs(a - b))
    if outer < -1e-10 * (a + b) or inner < -1e-10 * (a + b):
        return np.empty((0, 2))
    bend = 2.0 * np.arctan2(np.sqrt(max(outer, 0.0)), np.sqrt(max(inner, 0.0)))
    second = np.array([bend, -bend] if 0.0 < bend < np.pi else [bend])
    first = np.arctan2(y, x) - np.arctan2(b * np.sin(second), a + b * np.cos(second))
    return np.stack([(first + np.pi) % (2 * np.pi) - np.pi, second], axis=1)


def three_links(lengths: Any, target: Any, heading: float) -> Float[np.ndarray, "k 3"]:
    """Both answers of three links in the plane whose last link points along `heading` [rad]."""
    a, b, c = (float(x) for x in lengths)
    t = np.asarray(target, dtype=np.float64) - c * np.array([np.cos(heading), np.sin(heading)])
    pairs = two_links((a, b), t)
    return np.column_stack([pairs, heading - pairs.sum(axis=1)]) if len(pairs) else np.empty((0, 3))
