"""What all closed forms share: the target as the ideal arm sees it, and that arm's angles as joint values.

A chain's packed row tells how the ideal arm of its family lies in it: its place, its tool, its lengths, and the
direction and offset of every joint (see `families.py`).
"""

import numpy as np

from ik_sim.chain import DOF, LOWER, PARAMETERS, UPPER
from ik_sim.compiled import kernel
from ik_sim.solvers import record as r

REACH_SLACK = 1e-10  # [m] a target this far outside the ring counts as on it; the judge has the last word
LIMIT_SLACK = (
    1e-7  # [rad] a branch this far outside a limit is clipped and judged: near a singularity angles carry that
)


@kernel
def family_target(c, T):
    """The target as the ideal arm sees it: twelve numbers, rotation row by row, then position."""
    b = int(c[PARAMETERS])
    e = b + 12
    # A = B⁻¹ T, then A E⁻¹
    a00 = c[b] * T[0, 0] + c[b + 1] * T[1, 0] + c[b + 2] * T[2, 0]
    a01 = c[b] * T[0, 1] + c[b + 1] * T[1, 1] + c[b + 2] * T[2, 1]
    a02 = c[b] * T[0, 2] + c[b + 1] * T[1, 2] + c[b + 2] * T[2, 2]
    a03 = c[b] * T[0, 3] + c[b + 1] * T[1, 3] + c[b + 2] * T[2, 3] + c[b + 3]
    a10 = c[b + 4] * T[0, 0] + c[b + 5] * T[1, 0] + c[b + 6] * T[2, 0]
    a11 = c[b + 4] * T[0, 1] + c[b + 5] * T[1, 1] + c[b + 6] * T[2, 1]
    a12 = c[b + 4] * T[0, 2] + c[b + 5] * T[1, 2] + c[b + 6] * T[2, 2]
    a13 = c[b + 4] * T[0, 3] + c[b + 5] * T[1, 3] + c[b + 6] * T[2, 3] + c[b + 7]
    a20 = c[b + 8] * T[0, 0] + c[b + 9] * T[1, 0] + c[b + 10] * T[2, 0]
    a21 = c[b + 8] * T[0, 1] + c[b + 9] * T[1, 1] + c[b + 10] * T[2, 1]
    a22 = c[b + 8] * T[0, 2] + c[b + 9] * T[1, 2] + c[b + 10] * T[2, 2]
    a23 = c[b + 8] * T[0, 3] + c[b + 9] * T[1, 3] + c[b + 10] * T[2, 3] + c[b + 11]
    return (
        a00 * c[e] + a01 * c[e + 4] + a02 * c[e + 8],
        a00 * c[e + 1] + a01 * c[e + 5] + a02 * c[e + 9],
        a00 * c[e + 2] + a01 * c[e + 6] + a02 * c[e + 10],
        a10 * c[e] + a11 * c[e + 4] + a12 * c[e + 8],
        a10 * c[e + 1] + a11 * c[e + 5] + a12 * c[e + 9],
        a10 * c[e + 2] + a11 * c[e + 6] + a12 * c[e + 10],
        a20 * c[e] + a21 * c[e + 4] + a22 * c[e + 8],
        a20 * c[e + 1] + a21 * c[e + 5] + a22 * c[e + 9],
        a20 * c[e + 2] + a21 * c[e + 6] + a22 * c[e + 10],
        a00 * c[e + 3] + a01 * c[e + 7] + a02 * c[e + 11] + a03,
        a10 * c[e + 3] + a11 * c[e + 7] + a12 * c[e + 11] + a13,
        a20 * c[e + 3] + a21 * c[e + 7] + a22 * c[e + 11] + a23,
    )


@kernel
def bend(l2, l3, dist):
    """Angle between the two links that puts the tip at distance `dist`: 0 stretched, π folded, accurate at both ends.

    Distances outside the ring give the nearest end.
    """
    outer = max((l2 + l3 - dist) * (l2 + l3 + dist), 0.0)
    gap = abs(l2 - l3)
    inner = max((dist - gap) * (dist + gap), 0.0)
    return 2.0 * np.arctan2(np.sqrt(outer), np.sqrt(inner))


@kernel
def elbow_triangle(l2, l3, dist):
    """Bend δ and the angle β at the base between the first link and the target, for a tip at `dist` (see `bend`)."""
    outer = max((l2 + l3 - dist) * (l2 + l3 + dist), 0.0)
    gap = abs(l2 - l3)
    inner = max((dist - gap) * (dist + gap), 0.0)
    a, b = np.sqrt(outer), np.sqrt(inner)
    whole = outer + inner
    sine, cosine = 2.0 * a * b / whole, (inner - outer) / whole
    return 2.0 * np.arctan2(a, b), np.arctan2(l3 * sine, l2 + l3 * cosine)


@kernel
def to_joints(c, theta, seed, q, lengths):
    """Family angles to joint values, each by the whole turn that is legal and nearest to the seed.

    Returns the largest violation [rad], the joint it is on, and the squared distance to the seed.
    """
    n = int(c[DOF])
    signs = int(c[PARAMETERS]) + 24 + lengths
    lower, upper = int(c[LOWER]), int(c[UPPER])
    worst, where, distance = 0.0, 0, 0.0
    for i in range(n):
        value = c[signs + i] * (theta[i] - c[signs + n + i])
        value, beyond = r.nearest_turn(value, seed[i], c[lower + i], c[upper + i])
        q[i] = value
        distance += (value - seed[i]) * (value - seed[i])
        if beyond > worst:
            worst, where = beyond, i
    return worst, where, distance


@kernel
def family_angle(c, q, i, lengths):
    """Family angle of joint i, in (-π, π]."""
    n = int(c[DOF])
    signs = int(c[PARAMETERS]) + 24 + lengths
    return r.wrap(c[signs + i] * q[i] + c[signs + n + i])
