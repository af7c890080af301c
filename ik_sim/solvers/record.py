"""The row of numbers in which a kernel answers, and the judge that writes its verdict there.

Every compiled solver is one kernel `solve(c, T, kind, q_seed, s, out)`:

| argument | is |
|---|---|
| c | `Chain.packed` |
| T, kind | the target's (4, 4) matrix and POSE, POINT or AXIS |
| q_seed | where to start, (n,) |
| s | settings: the two tolerances first, the solver's own after them |
| out | (n + RECORD,): the joints, then the record below; where a trace is wanted, its rows behind that |

A row of the trace is (3 + n): phase, position error, rotation error, joints, one row an iteration (`trace_rows`).

It opens with `begin`, which checks its arguments and moves the seed inside the limits, and ends with `judge`, which
clips the joints, computes the pose they really reach and alone decides on CONVERGED.
"""

import numpy as np

from ik_sim.chain import DOF, LOWER, UPPER, tool_pose
from ik_sim.compiled import kernel
from ik_sim.target import AXIS, POINT

# Places behind the joints.
STATUS, POSITION_ERROR, ROTATION_ERROR, ITERATIONS, EVALUATIONS, RESTARTS = 0, 1, 2, 3, 4, 5
REASON, DETAIL, SEED_MOVED, SLSQP_RUNS, SINGULAR_POSE, TRACE_ROWS = 6, 7, 13, 14, 15, 16
DETAILS = 6
RECORD = 20

# Statuses, in the order of `Status`.
CONVERGED, OUT_OF_REACH, JOINT_LIMITS, SINGULAR, STALLED, MAX_ITERATIONS, UNSUPPORTED = 0, 1, 2, 3, 4, 5, 6

# Reasons; each is put into words in solver.py.
(
    NO_REASON, BEYOND_OUTER, INSIDE_INNER, INSIDE_CYLINDER, OFF_PLANE, ELBOW_LIMIT, BRANCHES_BLOCKED, NO_LEGAL_ARC,
    BUDGET_SPENT, NO_PROGRESS, AT_SINGULARITY, NOT_THIS_KIND, NOT_THIS_FAMILY, TILTED, BEYOND_SUM, LIMIT_HOLDS,
    TIME_SPENT, NOT_JUDGED_GOOD, FABRIK_SPENT,
) = range(19)  # fmt: skip

# Misuse, found before anything is computed.
FINE, BAD_SEED_LENGTH, BAD_SEED_VALUE, BAD_TARGET_VALUE, BAD_ROTATION, BAD_BOTTOM_ROW, BAD_OUT = 0, 1, 2, 3, 4, 5, 6
BAD_SETTINGS = 7  # a setting doesn't fit this chain; `KernelSolver.misfit` says which

TOLERANCE_POSITION, TOLERANCE_ROTATION, SETTINGS = 0, 1, 2  # a solver's own settings start at SETTINGS


@kernel
def target_fault(T, kind):
    """What is wrong with a target's matrix: a misuse code, FINE if nothing."""
    for i in range(3):
        for k in range(4):
            if not np.isfinite(T[i, k]):
                return BAD_TARGET_VALUE
    if not (abs(T[3, 0]) <= 1e-9 and abs(T[3, 1]) <= 1e-9 and abs(T[3, 2]) <= 1e-9 and abs(T[3, 3] - 1.0) <= 1e-9):
        return BAD_BOTTOM_ROW
    if kind != POINT:
        xx = T[0, 0] * T[0, 0] + T[1, 0] * T[1, 0] + T[2, 0] * T[2, 0] - 1.0
        yy = T[0, 1] * T[0, 1] + T[1, 1] * T[1, 1] + T[2, 1] * T[2, 1] - 1.0
        zz = T[0, 2] * T[0, 2] + T[1, 2] * T[1, 2] + T[2, 2] * T[2, 2] - 1.0
        xy = T[0, 0] * T[0, 1] + T[1, 0] * T[1, 1] + T[2, 0] * T[2, 1]
        xz = T[0, 0] * T[0, 2] + T[1, 0] * T[1, 2] + T[2, 0] * T[2, 2]
        yz = T[0, 1] * T[0, 2] + T[1, 1] * T[1, 2] + T[2, 1] * T[2, 2]
        worst = max(max(abs(xx), abs(yy), abs(zz)), max(abs(xy), abs(xz), abs(yz)))
        # The x axis must be y × z: a reflection has it the other way round.
        hand = (
            T[0, 0] * (T[1, 1] * T[2, 2] - T[2, 1] * T[1, 2])
            + T[1, 0] * (T[2, 1] * T[0, 2] - T[0, 1] * T[2, 2])
            + T[2, 0] * (T[0, 1] * T[1, 2] - T[1, 1] * T[0, 2])
        )
        if worst > 1e-6 or hand < 0.0:
            return BAD_ROTATION
    return FINE


@kernel
def begin(c, T, kind, q_seed, out):
    """Check the arguments; put the seed, clipped into the limits, where the answer will stand. Returns a misuse code."""
    n = int(c[DOF])
    if q_seed.shape[0] != n:
        return BAD_SEED_LENGTH
    if out.shape[0] < n + RECORD or T.shape[0] != 4 or T.shape[1] != 4:
        return BAD_OUT
    fault = target_fault(T, kind)
    if fault != FINE:
        return fault
    lower, upper = int(c[LOWER]), int(c[UPPER])
    for i in range(n, n + RECORD):
        out[i] = 0.0
    for i in range(n):
        q = q_seed[i]
        if not np.isfinite(q):
            return BAD_SEED_VALUE
        if q < c[lower + i]:
            q = c[lower + i]
            out[n + SEED_MOVED] = 1.0
        if q > c[upper + i]:
            q = c[upper + i]
            out[n + SEED_MOVED] = 1.0
        out[i] = q
    return FINE


@kernel
def trace_rows(c, out):
    """The rows behind the record, (rows, 3 + n); none unless a trace was asked for."""
    n = int(c[DOF])
    return out[n + RECORD :].reshape(((out.shape[0] - n - RECORD) // (3 + n), 3 + n))


@kernel
def pose_errors(c, T, kind, q):
    """Distance [m] and angle [rad] between the tool at joints q and the target, by the chain's own kinematics."""
    r00, r01, r02, r10, r11, r12, r20, r21, r22, x, y, z = tool_pose(c, q)
    dx, dy, dz = x - T[0, 3], y - T[1, 3], z - T[2, 3]
    position = np.sqrt(dx * dx + dy * dy + dz * dz)
    if kind == POINT:
        return position, 0.0
    if kind == AXIS:
        ux, uy, uz = r12 * T[2, 2] - r22 * T[1, 2], r22 * T[0, 2] - r02 * T[2, 2], r02 * T[1, 2] - r12 * T[0, 2]
        cos = r02 * T[0, 2] + r12 * T[1, 2] + r22 * T[2, 2]
        return position, np.arctan2(np.sqrt(ux * ux + uy * uy + uz * uz), cos)
    # M = R_targetᵀ R; its antisymmetric part holds 2 sin, its trace 1 + 2 cos.
    m00 = T[0, 0] * r00 + T[1, 0] * r10 + T[2, 0] * r20
    m01 = T[0, 0] * r01 + T[1, 0] * r11 + T[2, 0] * r21
    m02 = T[0, 0] * r02 + T[1, 0] * r12 + T[2, 0] * r22
    m10 = T[0, 1] * r00 + T[1, 1] * r10 + T[2, 1] * r20
    m11 = T[0, 1] * r01 + T[1, 1] * r11 + T[2, 1] * r21
    m12 = T[0, 1] * r02 + T[1, 1] * r12 + T[2, 1] * r22
    m20 = T[0, 2] * r00 + T[1, 2] * r10 + T[2, 2] * r20
    m21 = T[0, 2] * r01 + T[1, 2] * r11 + T[2, 2] * r21
    m22 = T[0, 2] * r02 + T[1, 2] * r12 + T[2, 2] * r22
    wx, wy, wz = m21 - m12, m02 - m20, m10 - m01
    return position, np.arctan2(np.sqrt(wx * wx + wy * wy + wz * wz), m00 + m11 + m22 - 1.0)


@kernel
def judge(c, T, kind, s, out):
    """Clip the joints in `out`, measure what they reach, and say CONVERGED if both tolerances hold.

    Returns whether they do. A status other than CONVERGED stays as the solver wrote it.
    """
    n = int(c[DOF])
    lower, upper = int(c[LOWER]), int(c[UPPER])
    for i in range(n):
        out[i] = min(max(out[i], c[lower + i]), c[upper + i])
    position, rotation = pose_errors(c, T, kind, out)
    out[n + POSITION_ERROR] = position
    out[n + ROTATION_ERROR] = rotation
    if position <= s[TOLERANCE_POSITION] and rotation <= s[TOLERANCE_ROTATION]:
        out[n + STATUS] = CONVERGED
        out[n + REASON] = NO_REASON
        return True
    if out[n + STATUS] == CONVERGED:
        out[n + STATUS] = STALLED
        out[n + REASON] = NOT_JUDGED_GOOD
    return False


@kernel
def say(c, out, status, reason, d0=0.0, d1=0.0, d2=0.0, d3=0.0, d4=0.0, d5=0.0):
    """Write a status with its reason and the reason's numbers."""
    r = int(c[DOF])
    out[r + STATUS] = status
    out[r + REASON] = reason
    r += DETAIL
    out[r], out[r + 1], out[r + 2], out[r + 3], out[r + 4], out[r + 5] = d0, d1, d2, d3, d4, d5


@kernel
def copy(source, target):
    """The first numbers of target become those of source (a slice assignment takes far longer to compile)."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel
def wrap(x):
    """The same angle in (-π, π]."""
    if -np.pi < x <= np.pi:
        return x
    return x - 2.0 * np.pi * np.ceil((x - np.pi) / (2.0 * np.pi))


@kernel
def nearest_turn(q, seed, lower, upper):
    """q plus the whole turns that bring it nearest to the seed inside [lower, upper], and how far outside it stays.

    Where no turn lies inside, the one nearest to a limit.
    """
    turn = 2.0 * np.pi
    q += turn * np.rint((seed - q) / turn)
    if lower - 1e-10 <= q <= upper + 1e-10:  # a limit met to rounding is no reason to go round to the other end
        return min(max(q, lower), upper), 0.0
    if q > upper:
        down = q - turn * np.ceil((q - upper) / turn)
        if down >= lower:
            return down, 0.0
        up = down + turn
    else:
        up = q + turn * np.ceil((lower - q) / turn)
        if up <= upper:
            return up, 0.0
        down = up - turn
    if lower - down < up - upper:
        return down, lower - down
    return up, up - upper
