"""All branches of many poses in one call, for arms of the UR family: a million poses a second on one core.

The same algebra as `closed_form.solve_ur` and the same forward kinematics as the judge, but without a single jump:
sines and arc tangents are polynomials, choices are selections, so that the compiler works on several poses at once
(LLVM turns the loop over poses into vector instructions). Poses with a singular wrist, where joints share their sum,
are done again one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numba.np.unsafe import ndarray

from ik_sim.chain import FRAMES, LOWER, PARAMETERS, Chain
from ik_sim.compiled import kernel
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import record as r
from ik_sim.solvers.solver import batch_arguments, check_target, in_threads
from ik_sim.solvers.ur_arm import ur_branch
from ik_sim.target import POSE, Tolerance

to_fixed_tuple: Any = ndarray.to_fixed_tuple  # an array's numbers as scalars, which loops keep in registers
TAN_EIGHTH = 0.41421356237309503  # tan(π/8)
PI, HALF_PI, QUARTER_PI, TURN = np.pi, 0.5 * np.pi, 0.25 * np.pi, 2.0 * np.pi
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11  # π/2, its first 33 bits and the rest
NEARLY_SINGULAR = 1e-6  # sine of the angle between tool axis and arm plane's normal below which the wrist is done alone


@kernel(inlined=True, fused=True)
def sine_cosine(x):
    """Sine and cosine by Taylor series on [-π/4, π/4] and quadrants; for |x| < 100 to 2e-16."""
    n = np.rint(x * (1.0 / HALF_PI))
    y = (x - n * HALF_PI_HIGH) - n * HALF_PI_LOW
    z = y * y
    s = z * (1.0 / 355687428096000.0) - 1.0 / 1307674368000.0
    s = s * z + 1.0 / 6227020800.0
    s = s * z - 1.0 / 39916800.0
    s = s * z + 1.0 / 362880.0
    s = s * z - 1.0 / 5040.0
    s = s * z + 1.0 / 120.0
    s = s * z - 1.0 / 6.0
    s = y + y * z * s
    k = z * (1.0 / 20922789888000.0) - 1.0 / 87178291200.0
    k = k * z + 1.0 / 479001600.0
    k = k * z - 1.0 / 3628800.0
    k = k * z + 1.0 / 40320.0
    k = k * z - 1.0 / 720.0
    k = k * z + 1.0 / 24.0
    k = 1.0 - 0.5 * z + z * z * k
    # quadrant n: (s, k), (k, -s), (-s, -k), (-k, s)
    odd = n - 2.0 * np.floor(0.5 * n)
    half = n - 4.0 * np.floor(0.25 * n)
    sine = k if odd == 1.0 else s
    cosine = s if odd == 1.0 else k
    sine = -sine if half >= 2.0 else sine
    cosine = -cosine if half == 1.0 or half == 2.0 else cosine
    return sine, cosine


@kernel(inlined=True, fused=True)
def arc_tangent(y, x):
    """atan2(y, x) to 3e-16: a Chebyshev fit of atan(u)/u in u² on [0, tan²(π/8)], computed with fifty digits."""
    a, b = abs(y), abs(x)
    most, least = max(a, b), min(a, b)
    t = least / (most if most > 0.0 else 1.0)
    far = t > TAN_EIGHTH
    u = (t - 1.0) / (t + 1.0)
    u = u if far else t
    z = u * u
    p = -0.017805397205419445 * z + 0.037965257453865936
    p = p * z - 0.050351024566015518
    p = p * z + 0.058468782973308725
    p = p * z - 0.066629518136291901
    p = p * z + 0.07692045330902225
    p = p * z - 0.090908968090640271
    p = p * z + 0.11111110744919658
    p = p * z - 0.14285714279250244
    p = p * z + 0.19999999999940891
    p = p * z - 0.3333333333333312
    angle = u + u * z * p
    angle = angle + QUARTER_PI if far else angle
    angle = HALF_PI - angle if a > b else angle
    angle = PI - angle if x < 0.0 else angle
    return -angle if y < 0.0 else angle


@kernel(inlined=True, fused=True)
def legal_turn(q, seed, lower, upper):
    """As `record.nearest_turn`, for finite limits: the value and how far it lies outside the limits."""
    q = q + TURN * np.rint((seed - q) * (1.0 / TURN))
    over = max(np.ceil((q - upper - 1e-10) * (1.0 / TURN)), 0.0)
    down = q - TURN * over
    under = max(np.ceil((lower - q - 1e-10) * (1.0 / TURN)), 0.0)
    up = q + TURN * under
    moved = down if over > 0.0 else up
    beyond = max(max(lower - moved, moved - upper), 0.0)
    other = moved + TURN if over > 0.0 else moved - TURN  # where neither is legal, the one that misses by less
    missed = max(max(lower - other, other - upper), 0.0)
    worse = beyond > 1e-10 and missed < beyond
    moved = other if worse else moved
    beyond = missed if worse else beyond
    return min(max(moved, lower), upper), (beyond if beyond > 1e-10 else 0.0)


@kernel(inlined=True, fused=True)
def turned(r0, r1, cos, sin):
    """One row of a rotation, its first two entries, after turning about the third axis."""
    return r0 * cos + r1 * sin, r1 * cos - r0 * sin


@kernel(inlined=True, fused=True)
def ur_pair(B, E, l2, l3, d4, d5, side1, side5, t00, t01, t02, t03, t10, t11, t12, t13, t20, t21, t22, t23):
    """Family angles of two branches that differ by their elbow, and 1 where the wrist is singular (0 elsewhere).

    θ_1, θ_5, θ_6, then θ_2, θ_3, θ_4 with the elbow to one side and to the other.
    """
    gap = abs(l2 - l3)
    # the target as the ideal arm sees it
    a00 = B[0] * t00 + B[1] * t10 + B[2] * t20
    a01 = B[0] * t01 + B[1] * t11 + B[2] * t21
    a02 = B[0] * t02 + B[1] * t12 + B[2] * t22
    a03 = B[0] * t03 + B[1] * t13 + B[2] * t23 + B[3]
    a10 = B[4] * t00 + B[5] * t10 + B[6] * t20
    a11 = B[4] * t01 + B[5] * t11 + B[6] * t21
    a12 = B[4] * t02 + B[5] * t12 + B[6] * t22
    a13 = B[4] * t03 + B[5] * t13 + B[6] * t23 + B[7]
    a20 = B[8] * t00 + B[9] * t10 + B[10] * t20
    a21 = B[8] * t01 + B[9] * t11 + B[10] * t21
    a22 = B[8] * t02 + B[9] * t12 + B[10] * t22
    a23 = B[8] * t03 + B[9] * t13 + B[10] * t23 + B[11]
    D0 = a00 * E[0] + a01 * E[4] + a02 * E[8]
    D2 = a00 * E[2] + a01 * E[6] + a02 * E[10]
    D3 = a10 * E[0] + a11 * E[4] + a12 * E[8]
    D5 = a10 * E[2] + a11 * E[6] + a12 * E[10]
    D6 = a20 * E[0] + a21 * E[4] + a22 * E[8]
    D8 = a20 * E[2] + a21 * E[6] + a22 * E[10]
    D9 = a00 * E[3] + a01 * E[7] + a02 * E[11] + a03
    D10 = a10 * E[3] + a11 * E[7] + a12 * E[11] + a13
    D11 = a20 * E[3] + a21 * E[7] + a22 * E[11] + a23
    # the arm plane
    rho2 = D9 * D9 + D10 * D10
    root = side1 * np.sqrt(max(rho2 - d4 * d4, 0.0))
    s1, c1 = D10 * root + D9 * d4, D9 * root - D10 * d4
    size = np.sqrt(s1 * s1 + c1 * c1)
    size = size if size > 0.0 else 1.0
    s1, c1 = s1 / size, c1 / size
    # link 5
    wx, wy, wz = D9 - d4 * s1, D10 + d4 * c1, D11
    off = wx * s1 - wy * c1
    wx, wy = wx - off * s1, wy + off * c1
    kx, ky, kz = -c1 * D8, -s1 * D8, s1 * D5 + c1 * D2
    size = np.sqrt(kx * kx + ky * ky + kz * kz)
    near = 1.0 if size < NEARLY_SINGULAR else 0.0
    size = side5 * (size if size > 0.0 else 1.0)
    kx, ky, kz = kx / size, ky / size, kz / size
    X, Y = -((wx - d5 * kx) * c1 + (wy - d5 * ky) * s1), -(wz - d5 * kz)
    # the wrist
    s234, c234 = kx * c1 + ky * s1, -kz
    size = np.sqrt(s234 * s234 + c234 * c234)
    size = size if size > 0.0 else 1.0
    s234, c234 = s234 / size, c234 / size
    x4x, x4y, x4z = c234 * c1, c234 * s1, s234
    cos5 = s1 * D2 - c1 * D5
    sin5 = -(x4x * D2 + x4y * D5 + x4z * D8)
    size = np.sqrt(sin5 * sin5 + cos5 * cos5)
    size = size if size > 0.0 else 1.0
    s5, c5 = sin5 / size, cos5 / size
    x5x, x5y, x5z = c5 * x4x + s5 * s1, c5 * x4y - s5 * c1, c5 * x4z
    y5x, y5y, y5z = -s234 * c1, -s234 * s1, c234
    theta6 = arc_tangent(D0 * y5x + D3 * y5y + D6 * y5z, D0 * x5x + D3 * x5y + D6 * x5z)
    theta5 = arc_tangent(sin5, cos5)
    # the elbow
    dist = np.sqrt(X * X + Y * Y)
    outer = max((l2 + l3 - dist) * (l2 + l3 + dist), 0.0)
    inner = max((dist - gap) * (dist + gap), 0.0)
    m, n = np.sqrt(outer), np.sqrt(inner)
    whole = outer + inner
    theta3 = 2.0 * arc_tangent(m, n)
    beta = arc_tangent(l3 * (2.0 * m * n / whole), l2 + l3 * ((inner - outer) / whole))
    direction, sum234 = arc_tangent(Y, X), arc_tangent(s234, c234)
    up, down = direction - beta, direction + beta
    return (
        arc_tangent(s1, c1), theta5, theta6,
        up, theta3, sum234 - up - theta3, down, -theta3, sum234 - down + theta3, near,
    )  # fmt: skip


@kernel(inlined=True, fused=True)
def next_frame(F, cos, sin, r00, r01, r02, r10, r11, r12, r20, r21, r22, x, y, z):
    """A pose turned about its z axis, then moved on by a fixed frame F (twelve numbers)."""
    r00, r01 = turned(r00, r01, cos, sin)
    r10, r11 = turned(r10, r11, cos, sin)
    r20, r21 = turned(r20, r21, cos, sin)
    f00, f01, f02, f03, f10, f11, f12, f13, f20, f21, f22, f23 = F
    return (
        r00 * f00 + r01 * f10 + r02 * f20, r00 * f01 + r01 * f11 + r02 * f21, r00 * f02 + r01 * f12 + r02 * f22,
        r10 * f00 + r11 * f10 + r12 * f20, r10 * f01 + r11 * f11 + r12 * f21, r10 * f02 + r11 * f12 + r12 * f22,
        r20 * f00 + r21 * f10 + r22 * f20, r20 * f01 + r21 * f11 + r22 * f21, r20 * f02 + r21 * f12 + r22 * f22,
        x + r00 * f03 + r01 * f13 + r02 * f23,
        y + r10 * f03 + r11 * f13 + r12 * f23,
        z + r20 * f03 + r21 * f13 + r22 * f23,
    )  # fmt: skip


@kernel(inlined=True, fused=True)
def miss(
    t00, t01, t02, t03, t10, t11, t12, t13, t20, t21, t22, t23, r00, r01, r02, r10, r11, r12, r20, r21, r22, x, y, z
):
    """Distance [m] and angle [rad] between a target t and a pose."""
    dx, dy, dz = x - t03, y - t13, z - t23
    m00 = t00 * r00 + t10 * r10 + t20 * r20
    m01 = t00 * r01 + t10 * r11 + t20 * r21
    m02 = t00 * r02 + t10 * r12 + t20 * r22
    m10 = t01 * r00 + t11 * r10 + t21 * r20
    m11 = t01 * r01 + t11 * r11 + t21 * r21
    m12 = t01 * r02 + t11 * r12 + t21 * r22
    m20 = t02 * r00 + t12 * r10 + t22 * r20
    m21 = t02 * r01 + t12 * r11 + t22 * r21
    m22 = t02 * r02 + t12 * r12 + t22 * r22
    wx, wy, wz = m21 - m12, m02 - m20, m10 - m01
    return (
        np.sqrt(dx * dx + dy * dy + dz * dz),
        arc_tangent(np.sqrt(wx * wx + wy * wy + wz * wz), m00 + m11 + m22 - 1.0),
    )


@kernel(inlined=True, fused=True)
def from_shoulder(F, P, q1, q2, q3, s4, c4, s5, c5):
    """The tool's pose from the one before joint 2; of joints 5 and 6 sine and cosine."""
    s1, c1 = sine_cosine(q1)
    s2, c2 = sine_cosine(q2)
    s3, c3 = sine_cosine(q3)
    P = next_frame(F[24:36], c1, s1, *P)
    P = next_frame(F[36:48], c2, s2, *P)
    P = next_frame(F[48:60], c3, s3, *P)
    P = next_frame(F[60:72], c4, s4, *P)
    return next_frame(F[72:84], c5, s5, *P)


BLOCK = 64  # poses that are worked on together
# Rows of a block's scratch, BLOCK numbers each: target, seed; joints 1, 5, 6, then 2, 3, 4 of either elbow; how far
# outside the limits, either elbow; singular wrist; errors, either elbow.
TARGET, SEED, SHARED, ELBOWS, OUTSIDE, SINGULAR, POSITION, ROTATION, ROWS = 0, 12, 18, 21, 27, 29, 30, 32, 34


@kernel(fused=True)
def place_pair(constants, limits, side1, side5, W):
    """Joints of two branches for all poses of a block. All that is indexed lies in W at known distances: it vectorises."""
    B, E, l2, l3, d4, d5 = (
        constants[0:12],
        constants[12:24],
        -constants[24],
        -constants[25],
        constants[26],
        constants[27],
    )
    sign, offset = constants[28:34], constants[34:40]
    for i in range(64):
        t1, t5, t6, t2a, t3a, t4a, t2b, t3b, t4b, near = ur_pair(
            B, E, l2, l3, d4, d5, side1, side5, W[i], W[i + 64], W[i + 128], W[i + 192], W[i + 256], W[i + 320],
            W[i + 384], W[i + 448], W[i + 512], W[i + 576], W[i + 640], W[i + 704],
        )  # fmt: skip
        q0, b0 = legal_turn(sign[0] * (t1 - offset[0]), W[i + 768], limits[0], limits[6])
        q4, b4 = legal_turn(sign[4] * (t5 - offset[4]), W[i + 1024], limits[4], limits[10])
        q5, b5 = legal_turn(sign[5] * (t6 - offset[5]), W[i + 1088], limits[5], limits[11])
        a1, u1 = legal_turn(sign[1] * (t2a - offset[1]), W[i + 832], limits[1], limits[7])
        a2, u2 = legal_turn(sign[2] * (t3a - offset[2]), W[i + 896], limits[2], limits[8])
        a3, u3 = legal_turn(sign[3] * (t4a - offset[3]), W[i + 960], limits[3], limits[9])
        d1, v1 = legal_turn(sign[1] * (t2b - offset[1]), W[i + 832], limits[1], limits[7])
        d2, v2 = legal_turn(sign[2] * (t3b - offset[2]), W[i + 896], limits[2], limits[8])
        d3, v3 = legal_turn(sign[3] * (t4b - offset[3]), W[i + 960], limits[3], limits[9])
        W[i + 1152], W[i + 1216], W[i + 1280] = q0, q4, q5
        W[i + 1344], W[i + 1408], W[i + 1472], W[i + 1536], W[i + 1600], W[i + 1664] = a1, a2, a3, d1, d2, d3
        shared = max(max(b0, b4), b5)
        W[i + 1728], W[i + 1792] = max(max(shared, u1), max(u2, u3)), max(max(shared, v1), max(v2, v3))
        W[i + 1856] = near


@kernel(fused=True)
def judge_pair(F, W):
    """What the joints of two branches reach, by the chain's own product of frames."""
    for i in range(64):
        s0, c0 = sine_cosine(W[i + 1152])
        s4, c4 = sine_cosine(W[i + 1216])
        s5, c5 = sine_cosine(W[i + 1280])
        base = next_frame(F[12:24], c0, s0, F[0], F[1], F[2], F[4], F[5], F[6], F[8], F[9], F[10], F[3], F[7], F[11])
        target = (
            W[i], W[i + 64], W[i + 128], W[i + 192], W[i + 256], W[i + 320],
            W[i + 384], W[i + 448], W[i + 512], W[i + 576], W[i + 640], W[i + 704],
        )  # fmt: skip
        P = from_shoulder(F, base, W[i + 1344], W[i + 1408], W[i + 1472], s4, c4, s5, c5)
        W[i + 1920], W[i + 2048] = miss(*target, *P)
        P = from_shoulder(F, base, W[i + 1536], W[i + 1600], W[i + 1664], s4, c4, s5, c5)
        W[i + 1984], W[i + 2112] = miss(*target, *P)


@kernel
def ur_branches(c, T, seeds, s, first, last, q, position, rotation, outside, singular):
    """All eight branches of the poses first … last: joints, errors, distance outside the limits, singular wrists."""
    p, f = int(c[PARAMETERS]), int(c[FRAMES])
    constants = to_fixed_tuple(c[p : p + 40], 40)
    limits = to_fixed_tuple(c[int(c[LOWER]) : int(c[LOWER]) + 12], 12)
    F = to_fixed_tuple(c[f : f + 84], 84)
    W = np.zeros(ROWS * BLOCK)
    for start in range(first, last, BLOCK):
        here = min(BLOCK, last - start)
        for i in range(here):
            for k in range(12):
                W[i + BLOCK * k] = T[start + i, k // 4, k % 4]
            for k in range(6):
                W[i + BLOCK * (SEED + k)] = seeds[start + i, k]
        for pair in range(4):
            place_pair(constants, limits, 1.0 - 2.0 * (pair & 1), 1.0 - (pair & 2), W)
            judge_pair(F, W)
            for elbow in range(2):
                branch = pair + 4 * elbow
                for i in range(here):
                    row = q[start + i, branch]
                    row[0], row[4], row[5] = W[i + 1152], W[i + 1216], W[i + 1280]
                    for k in range(3):
                        row[1 + k] = W[i + BLOCK * (ELBOWS + 3 * elbow + k)]
                    outside[start + i, branch] = W[i + BLOCK * (OUTSIDE + elbow)]
                    singular[start + i] |= W[i + BLOCK * SINGULAR] > 0.0
                    position[start + i, branch] = W[i + BLOCK * (POSITION + elbow)]
                    rotation[start + i, branch] = W[i + BLOCK * (ROTATION + elbow)]
    for i in range(first, last):
        if singular[i]:
            _one_by_one(c, T[i], seeds[i], s, q[i], position[i], rotation[i], outside[i])


@kernel
def _one_by_one(c, T, seed, s, q, position, rotation, outside):
    """The branches of a pose whose wrist is singular or nearly so: joint 6 keeps the seed's value where it is free."""
    D = ideal.family_target(c, T)
    theta6 = ideal.family_angle(c, seed, 5, 4)
    work, theta, row = np.empty(6), np.empty(6), np.zeros(6 + r.RECORD)
    for branch in range(8):
        ur_branch(c, D, branch & 1, branch >> 1 & 1, branch >> 2, theta6, work, theta)
        outside[branch], _, _ = ideal.to_joints(c, theta, seed, row, 4)
        r.judge(c, T, POSE, s, row)
        r.copy(row[:6], q[branch])
        position[branch], rotation[branch] = row[6 + r.POSITION_ERROR], row[6 + r.ROTATION_ERROR]


@dataclass(frozen=True, eq=False)
class Branches:
    """All branches of k poses; branch b has θ_1 on side b & 1, θ_5 of sign b & 2 and the elbow on side b & 4."""

    q: Float[np.ndarray, "k 8 6"]
    """Each joint by the whole turn nearest to the seed, and inside its limits."""
    position_error: Float[np.ndarray, "k 8"]
    """[m], of just these joints."""
    rotation_error: Float[np.ndarray, "k 8"]
    """[rad]"""
    converged: Bool[np.ndarray, "k 8"]
    """Whether both errors are within the tolerance."""
    outside: Float[np.ndarray, "k 8"]
    """How far the branch lies outside a joint limit [rad]; its joints above are clipped then, and miss."""
    singular: Bool[np.ndarray, "k"]
    """Whether the wrist is singular: only a sum of joints is given then, and the two signs of θ_5 coincide."""


def all_branches(
    chain: Chain, targets: Any, q_seeds: Any = None, *, tolerance: Tolerance | None = None, threads: int | None = None
) -> Branches:
    """All branches of many poses, each judged by forward kinematics; for arms that are exactly of the UR family.

    Unlike :func:`all_solutions` it lists each branch once, whatever turns the limits allow.

    Args:
        chain: the arm.
        targets: poses, (k, 4, 4).
        q_seeds: (k, 6), or one (6,) for all [rad]; the middle of the limits when left out.
        tolerance: what the judge asks for.
        threads: how many threads share the work; all cores when left out. The bits don't depend on it.

    Raises:
        IkSimError: a chain of another family.
        InvalidArgumentError: wrong shapes, NaN, or a matrix that is no pose; the message names the row.
    """
    if chain.family != "ur" or chain.form >= 10:
        raise IkSimError(f"all_branches takes arms that are exactly of the ur family; this chain is {_kind_of(chain)}")
    T, seeds = batch_arguments(chain, targets, q_seeds)
    k, faulty = len(T), _first_fault(T)
    if faulty >= 0:
        check_target(T[faulty], POSE, f"targets[{faulty}]")
    if not np.isfinite(seeds).all():
        raise InvalidArgumentError("q_seeds", "holds NaN or infinity")
    seeds = np.clip(seeds, chain.lower, chain.upper)
    stop = tolerance or Tolerance()
    settings = np.array([stop.position, stop.rotation])
    q, singular = np.empty((k, 8, 6)), np.zeros(k, dtype=bool)
    position, rotation, outside = np.empty((k, 8)), np.empty((k, 8)), np.empty((k, 8))

    def work(first: int, last: int) -> None:
        ur_branches(chain.packed, T, seeds, settings, first, last, q, position, rotation, outside, singular)

    in_threads(work, k, threads)
    converged = (position <= stop.position) & (rotation <= stop.rotation)
    return Branches(q, position, rotation, converged, outside, singular)


def _kind_of(chain: Chain) -> str:
    if chain.family == "ur":
        return "only nearly so (its answers need polishing: all_solutions)"
    return f"of the {chain.family} family (use all_solutions or solve_batch)"


@kernel
def _first_fault(T):
    """The first row that is no pose, or -1."""
    for i in range(T.shape[0]):
        if r.target_fault(T[i], POSE) != r.FINE:
            return i
    return -1
