"""Every solution of a pose, not only the nearest: all branches, whole turns inside the limits, legal arm angles.

For the UR family that is a finite list: eight branches, each joint by every whole turn that its limits hold (up to 512
rows with limits of ±360°). For the srs family the elbow moves on arcs: :func:`arm_angle_arcs` gives their exact ends,
and :func:`all_solutions` takes one point, or several, from each. Rows that differ by less than `MERGED` are one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.compiled import kernel
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import record as r
from ik_sim.solvers.closed_form import ClosedForm, supports
from ik_sim.solvers.levenberg_marquardt import polish
from ik_sim.solvers.solver import Solution, Status, check_target
from ik_sim.solvers.srs_arm import CIRCLE, MAX_ROOTS, STRETCHED, srs_circle, srs_joints, srs_roots, srs_seed
from ik_sim.solvers.ur_arm import ur_branch, ur_plane
from ik_sim.target import KIND_NAMES, POSE, Target, Tolerance

ALMOST_SINGULAR = 1e-6  # [rad] a wrist this straight is marked singular: rounding decides where joints 4 and 6 are
ROUNDING = 1e-9  # [rad] an arm angle this near to an arc counts as on it: the seed may stand at a limit
MERGED = 1e-6  # [rad] rows nearer than this in every joint count once: the two elbows of a straight arm, say


class SolutionSet(list[Solution]):
    """Solutions nearest to the seed first; when there is none, `status` and `reason` tell why."""

    status: Status = Status.CONVERGED
    reason: str = "within tolerance"


@dataclass(frozen=True)
class Arc:
    """A stretch of legal arm angles on one sign branch of a seven-joint arm."""

    signs: tuple[int, int, int]
    """Of joints 2, 4 and 6, as the family counts them."""
    low: float
    high: float
    """Arm angles [rad]; high may exceed π where an arc runs over it. A whole circle is (-π, π)."""

    @property
    def middle(self) -> float:
        """The arm angle farthest from both ends [rad]."""
        return 0.5 * (self.low + self.high)

    @property
    def width(self) -> float:
        """How far the elbow may turn [rad]."""
        return self.high - self.low


SIGNS = tuple((1 - 2 * (b & 1), 1 - (b & 2), 1 - (b & 4) // 2) for b in range(8))


@kernel
def _ur_rows(c, T, seed, theta, singular):
    D = ideal.family_target(c, T)
    work = np.empty(6)
    row = 0
    theta6 = ideal.family_angle(c, seed, 5, 4)
    for k1 in range(2):
        for k5 in range(2):
            for k3 in range(2):
                gap, free = ur_branch(c, D, k1, k5, k3, theta6, work, theta[row])
                if gap <= ideal.REACH_SLACK and not (free and k5 == 1):
                    singular[row] = 1.0 if free or abs(np.sin(theta[row, 4])) < ALMOST_SINGULAR else 0.0
                    row += 1
        # Of a wrist that is singular but for the target's rounding, joint 6 may as well keep the seed's value.
        s1, c1, inside = ur_plane(c, D[9], D[10], k1)
        E, angle = _straight_wrist(D, s1, c1)
        if inside <= ideal.REACH_SLACK and 1e-10 <= angle < ALMOST_SINGULAR:
            for k3 in range(2):
                gap, free = ur_branch(c, E, k1, 0, k3, theta6, work, theta[row])
                if gap <= ideal.REACH_SLACK:
                    singular[row] = 1.0
                    row += 1
    return row


@kernel
def _straight_wrist(D, s1, c1):
    """The target turned about its wrist centre until its z axis is square to the arm plane, and by what angle [rad]."""
    along = D[2] * s1 - D[5] * c1
    side = 1.0 if along >= 0.0 else -1.0
    nx, ny = side * s1, -side * c1
    wx, wy, wz = -D[8] * ny, D[8] * nx, D[2] * ny - D[5] * nx  # z × n, whose length is the sine of the angle
    E = np.empty(12)
    for k in range(3):
        x, y, z = D[k], D[3 + k], D[6 + k]
        E[k], E[3 + k], E[6 + k] = x + wy * z - wz * y, y + wz * x - wx * z, z + wx * y - wy * x
    for k in range(9, 12):
        E[k] = D[k]
    for k in range(3):  # to first order it has turned; the third axis is the normal and the others go square to it
        normal = (nx, ny, 0.0)
        E[3 * k + 2] = normal[k]
    dot = E[0] * nx + E[3] * ny
    x, y, z = E[0] - dot * nx, E[3] - dot * ny, E[6]
    size = np.sqrt(x * x + y * y + z * z)
    x, y, z = x / size, y / size, z / size
    E[0], E[3], E[6] = x, y, z
    E[1], E[4], E[7] = ny * z, -nx * z, nx * y - ny * x
    turned = (E[0], E[1], E[2], E[3], E[4], E[5], E[6], E[7], E[8], E[9], E[10], E[11])
    return turned, np.sqrt(wx * wx + wy * wy + wz * wz)


@kernel
def _srs_circle_alone(c, T, g):
    D = ideal.family_target(c, T)
    return srs_circle(c, D, g)


@kernel
def _srs_roots_alone(c, T, g, roots):
    return srs_roots(c, ideal.family_target(c, T), g, roots)


@kernel
def _srs_at(c, T, g, psi, s2, s4, s6, seed, q):
    """Joints at one arm angle and sign branch; returns (violation, joint)."""
    D = ideal.family_target(c, T)
    free, theta, d = np.empty(7), np.empty(7), np.empty(6)
    srs_seed(c, g, seed, free)
    beyond, where, _ = srs_joints(c, D, g, np.cos(psi), np.sin(psi), s2, s4, s6, seed, free, d, theta, q)
    return beyond, where


@kernel
def _seed_arm_angle(c, g, seed):
    free = np.empty(7)
    psi, _, _, _ = srs_seed(c, g, seed, free)
    return psi


@kernel
def _judge_row(c, T, kind, s, out):
    r.judge(c, T, kind, s, out)


@kernel
def _polish_row(c, T, kind, s, out):
    polish(c, T, kind, s, 30, out)


def all_solutions(
    chain: Chain,
    target: Any,
    q_seed: Any = None,
    *,
    turns: bool = True,
    arm_angle: float | Literal["nearest", "middle"] = "nearest",
    samples: int = 1,
    tolerance: Tolerance | None = None,
) -> SolutionSet:
    """All joint vectors inside the limits that reach the target, judged, the nearest to `q_seed` first.

    Args:
        chain: of family ur, srs, planar2 or planar3.
        target: a pose (planar2: a point too), in base axes.
        q_seed: what "nearest" is measured from, and what joints keep that a singular posture leaves free.
        turns: include whole turns where the limits hold several; otherwise each joint by its turn nearest to the seed.
        arm_angle: seven-joint arms: which point of each legal arc, or one arm angle [rad] for all sign branches
            (then only the branches that are legal there).
        samples: seven-joint arms: points per arc, evenly spread, when above 1.
        tolerance: 1e-6 m and 1e-6 rad when left out.

    Raises:
        IkSimError: the chain has no closed form, or not for this kind of target.
        InvalidArgumentError: as :meth:`ik_sim.solvers.solver.KernelSolver.solve`.
    """
    T, kind = (target.T, target.kind) if isinstance(target, Target) else (target, POSE)
    T = check_target(T, kind)
    seed = chain.clip(chain.q_middle if q_seed is None else q_seed)
    if not supports(chain.family, kind):
        raise IkSimError(
            f"no closed form lists all solutions of a {KIND_NAMES[kind]} target on a {chain.family} chain; "
            "closed forms exist for poses on ur, srs and planar3 chains and for points on planar2"
        )
    rows, singular = _rows(chain, T, kind, seed, arm_angle, samples)
    solver = ClosedForm(stop=tolerance or Tolerance())
    found = SolutionSet()
    branches: list[tuple[Float[np.ndarray, "n"], list[Float[np.ndarray, "n"]]]] = []  # each with its rows
    alike = 10 * MERGED if chain.form < 10 else 0.1  # polishing may bring two branches together
    for q0, flag in zip(rows, singular, strict=True):
        twins = [row for q1, kept in branches if np.abs(_wrapped(q1 - q0)).max() < alike for row in kept]
        branches.append((q0, []))
        for q in _turned(chain, q0, seed) if turns else [q0]:
            row = np.zeros(chain.record_size)
            row[: chain.n] = q
            row[chain.n + r.SINGULAR_POSE] = flag
            if chain.form >= 10:
                _polish_row(chain.packed, T, kind, solver._settings, row)  # type: ignore[attr-defined]
            _judge_row(chain.packed, T, kind, solver._settings, row)  # type: ignore[attr-defined]
            if row[chain.n + r.STATUS] != r.CONVERGED:
                continue
            if twins and np.abs(np.array(twins) - row[: chain.n]).max(axis=1).min() < MERGED:
                continue
            branches[-1][1].append(row[: chain.n])
            found.append(Solution(row, chain, solver))
    found.sort(key=lambda s: float(np.sum((s.q - seed) ** 2)))
    if not found:
        alone = solver.solve(chain, Target(T, kind), seed)
        found.status, found.reason = alone.status, alone.reason
        if alone.converged and chain.family == "srs" and isinstance(arm_angle, int | float):
            found.status = Status.JOINT_LIMITS
            found.reason = (
                f"no sign branch is inside the joint limits at an arm angle of {np.degrees(arm_angle):.4g}°; "
                "the pose has legal arm angles elsewhere"
            )
        elif alone.converged:  # a single legal point, such as a joint that is held still
            found.append(alone)
    return found


def _rows(
    chain: Chain, T: Any, kind: int, seed: Any, arm_angle: Any, samples: int
) -> tuple[list[Float[np.ndarray, "n"]], list[float]]:
    """One joint vector per branch, by the turn nearest to the seed, and whether it is singular; limits not yet judged."""
    c = chain.packed
    assert chain.family_fit is not None
    sign, offset = chain.family_fit.sign, chain.family_fit.offset
    if chain.family == "ur":
        theta, singular = np.empty((12, 6)), np.zeros(12)
        count = _ur_rows(c, T, seed, theta, singular)
        rows = [_nearest(chain, sign * (t - offset), seed) for t in theta[:count]]
        return [q for q in rows if q is not None], [s for q, s in zip(rows, singular, strict=False) if q is not None]
    if chain.family != "srs":
        rows = _planar(chain, T, kind, seed)
        return rows, [0.0] * len(rows)
    g = np.empty(CIRCLE)
    if _srs_circle_alone(c, T, g) > ideal.REACH_SLACK:
        return [], []
    if g[13] < STRETCHED:  # no circle: the nearest solution of each sign branch is what there is
        alone = ClosedForm().solve(chain, T, seed)
        return ([alone.q], [1.0]) if alone.converged else ([], [])
    rows, q = [], np.empty(7)
    if isinstance(arm_angle, int | float):
        places = [(signs, float(arm_angle)) for signs in SIGNS]
    elif arm_angle in ("nearest", "middle"):
        places = []
        psi = _seed_arm_angle(c, g, seed)
        for arc in arm_angle_arcs(chain, T):
            if samples > 1:
                places += [(arc.signs, x) for x in arc.low + arc.width * (np.arange(samples) + 0.5) / samples]
            else:
                places.append((arc.signs, arc.middle if arm_angle == "middle" else _into(arc, psi)))
    else:
        raise InvalidArgumentError("arm_angle", f'must be a number [rad], "nearest" or "middle", not {arm_angle!r}')
    for (s2, s4, s6), psi in places:
        beyond, _ = _srs_at(c, T, g, psi, float(s2), float(s4), float(s6), seed, q)
        if beyond <= ideal.LIMIT_SLACK:
            rows.append(q.copy())
    return rows, [0.0] * len(rows)


def _planar(chain: Chain, T: Any, kind: int, seed: Any) -> list[Float[np.ndarray, "n"]]:
    """Both elbows of a planar arm, found from the limits opened to all turns and two seeds mirrored at the elbow."""
    free = chain.with_limits(dict.fromkeys(chain.joint_names, (-np.inf, np.inf)))
    assert free.family_fit is not None
    sign, offset = free.family_fit.sign, free.family_fit.offset
    first = ClosedForm().solve(free, Target(T, kind), seed)
    if not first.converged:
        return []
    theta = sign * first.q + offset
    l1, l2 = free.family_fit.lengths[:2]
    swing = 2.0 * np.arctan2(l2 * np.sin(theta[1]), l1 + l2 * np.cos(theta[1]))
    other = theta.copy()
    other[0], other[1] = theta[0] + swing, -theta[1]
    if chain.n == 3:
        other[2] = theta.sum() - other[0] - other[1]
    rows = [_nearest(chain, sign * (t - offset), seed) for t in (theta, other)]
    return [q for q in rows if q is not None]


def _into(arc: Arc, psi: float) -> float:
    """Arm angle psi itself where the arc holds it, else the nearest end, a thousandth of a radian (or a quarter) inside."""
    candidates = [psi + 2.0 * np.pi * k for k in (-1, 0, 1)]
    for x in candidates:
        if arc.low - ROUNDING <= x <= arc.high + ROUNDING:
            return x
    inside = min(1e-3, 0.25 * arc.width)
    low, high = arc.low + inside, arc.high - inside
    return min((min(max(x, low), high) for x in candidates), key=lambda x: min(abs(x - y) for y in candidates))


def _wrapped(angles: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """The same angles within half a turn of 0."""
    return angles - 2.0 * np.pi * np.rint(angles / (2.0 * np.pi))


def _nearest(chain: Chain, q: Any, seed: Any) -> Float[np.ndarray, "n"] | None:
    """Each joint by the legal turn nearest to the seed; None when one of them has no legal turn."""
    out = np.empty(chain.n)
    for i in range(chain.n):
        out[i], beyond = r.nearest_turn(q[i], seed[i], chain.lower[i], chain.upper[i])
        if beyond > ideal.LIMIT_SLACK:
            return None
    return out


def _turned(chain: Chain, q: Any, seed: Any) -> list[Float[np.ndarray, "n"]]:
    """All combinations of whole turns inside the limits; for unlimited joints the one nearest to the seed only."""
    options = []
    for i in range(chain.n):
        low, high = chain.lower[i], chain.upper[i]
        if not (np.isfinite(low) and np.isfinite(high)):
            options.append([q[i]])
            continue
        turns = range(
            int(np.ceil((low - q[i] - ideal.LIMIT_SLACK) / (2 * np.pi))),
            int(np.floor((high - q[i] + ideal.LIMIT_SLACK) / (2 * np.pi))) + 1,
        )
        options.append([q[i] + 2 * np.pi * k for k in turns] or [q[i]])
    return [np.array(choice) for choice in itertools.product(*options)]


def arm_angle_arcs(chain: Chain, target: Any) -> list[Arc]:
    """The legal arm angles of a pose on a seven-joint arm: all arcs of all eight sign branches, with exact ends.

    The arm angle turns the elbow about the line from shoulder to wrist; 0 puts it in the vertical plane through that
    line, on the upper side. Empty when the pose is out of reach or no arm angle is legal.

    Raises:
        IkSimError: the chain isn't of the srs family, or its elbow is straight at this pose, where there is no circle.
    """
    T = check_target(target.T if isinstance(target, Target) else target, POSE)
    if chain.family != "srs":
        raise IkSimError(
            f"arm angles belong to seven-joint arms with spherical shoulder and wrist, not to a {chain.family} chain"
        )
    c, g, roots = chain.packed, np.empty(CIRCLE), np.empty(MAX_ROOTS)
    if _srs_circle_alone(c, T, g) > ideal.REACH_SLACK:
        return []
    if g[13] < STRETCHED:
        raise IkSimError("the elbow is straight at this pose: it stays where it is at every arm angle")
    ends = roots[: _srs_roots_alone(c, T, g, roots)]
    seed, q, arcs = np.array(chain.q_middle), np.empty(7), []
    gaps = [(-np.pi, np.pi)] if len(ends) == 0 else [*itertools.pairwise(ends), (ends[-1], ends[0] + 2 * np.pi)]
    for signs in SIGNS:
        legal = []
        for low, high in gaps:
            if high - low < 1e-12:
                continue
            beyond, _ = _srs_at(c, T, g, 0.5 * (low + high), float(signs[0]), float(signs[1]), float(signs[2]), seed, q)
            if beyond > ideal.LIMIT_SLACK:
                continue
            if legal and legal[-1][1] == low:
                legal[-1] = (legal[-1][0], high)
            else:
                legal.append((low, high))
        if len(legal) > 1 and legal[-1][1] == legal[0][0] + 2 * np.pi:  # one arc runs over π
            legal = [*legal[1:-1], (legal[-1][0], legal[0][1] + 2 * np.pi)]
        if len(legal) == 1 and legal[0][1] - legal[0][0] >= 2 * np.pi - 1e-12:
            legal = [(-np.pi, np.pi)]
        arcs += [Arc(signs, float(low), float(high)) for low, high in legal]
    return arcs
