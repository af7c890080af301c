"""What the numeric methods share: the error vector, the budget, restarts, the best iterate, limits inside the step.

A method is a loop of its own:

    w = start(c, s, out)
    while goes_on(c, T, kind, s, trace, w, out):
        …fill w.dq from w.e and w.J…
        move(c, w.q, w.dq)
    conclude(c, T, kind, s, w, out)

`goes_on` measures the present joints, keeps the best, writes the trace and restarts from a seeded random draw where
the method no longer gets nearer. Nothing is allocated once the loop runs.
"""

from collections import namedtuple
from typing import Any

import numpy as np
from numba import types

from ik_sim.chain import CENTRE, DOF, JOINTS, LOWER, REACH, TURN, UPPER, jacobian_from_axes, pose_and_axes
from ik_sim.compiled import kernel
from ik_sim.linear import solve_spd, solve_spd6, svd_rows
from ik_sim.solvers import record as r
from ik_sim.target import AXIS, POINT

# Settings that all of them have, behind the two tolerances; a method's own start at OWN.
MAX_ITERATIONS, MAX_RESTARTS, RANDOM_SEED, MAX_SECONDS, PATIENCE, NEEDED_DROP = 2, 3, 4, 5, 6, 7
OWN = 8

STARTS_BEYOND_REACH = 25
"""Random starts towards a target that is proved to be out of reach: enough to come near, and no start will arrive."""

# Places in Workspace.state.
ITERATION, RESTART, BEST, LAST_BEST, WAITED, ROWS, SPENT, START_TIME, LENGTH, TRIED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9

Workspace = namedtuple("Workspace", "q dq e J axes A best state random W V sigma held")
"""q, dq: joints and their step; e, J: error (6,) and Jacobian (6, n); A, W, V, sigma, held: scratch; best: joints."""

_types: Any = types  # numba makes the names in it at run time
_clock_gettime = _types.ExternalFunction("clock_gettime", _types.int32(_types.int32, _types.intp))
_MONOTONIC = 1


@kernel
def seconds():
    """The monotonic clock [s]."""
    stamp = np.empty(2, np.int64)
    _clock_gettime(_MONOTONIC, stamp.ctypes.data)
    return stamp[0] + 1e-9 * stamp[1]


@kernel
def draw(random):
    """The next number in [0, 1) of the generator splitmix64, whose state is random[0]."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def start(c, s, out):
    """The workspace of one solve, with the seed that `begin` left in `out`."""
    n, m = int(c[DOF]), int(c[JOINTS])
    k = max(n, 6)
    state = np.zeros(12)
    state[BEST] = np.inf
    state[LAST_BEST] = np.inf
    random = np.empty(1, np.uint64)
    random[0] = np.uint64(s[RANDOM_SEED])
    q, best = np.empty(n), np.empty(n)
    for i in range(n):
        q[i] = out[i]
        best[i] = out[i]
    if s[MAX_SECONDS] > 0.0:
        state[START_TIME] = seconds()
    state[LENGTH] = max(c[REACH], 1e-9)
    return Workspace(
        q, np.empty(n), np.empty(6), np.empty((6, n)), np.empty((m, 6)), np.empty((k, k)), best, state, random,
        np.empty((6, n)), np.empty((6, 6)), np.empty(6), np.zeros(n),
    )  # fmt: skip


@kernel
def measure(c, T, kind, w):
    """Error and Jacobian at w.q, to w.e and w.J: see `error_and_jacobian`."""
    return error_and_jacobian(c, T, kind, w.q, w.e, w.J, w.axes)


@kernel
def error_and_jacobian(c, T, kind, q, e, J, axes):
    """Rows of error e and Jacobian J: position [m], then rotation vector to the target [rad], in base axes.

    Point targets have zero rotation rows; for an axis target the roll about the tool's z axis is taken out.
    Returns the position error [m] and the rotation error [rad].
    """
    r00, r01, r02, r10, r11, r12, r20, r21, r22, x, y, z = pose_and_axes(c, q, axes)
    jacobian_from_axes(c, axes, x, y, z, J)
    n = q.shape[0]
    e[0], e[1], e[2] = T[0, 3] - x, T[1, 3] - y, T[2, 3] - z
    position = np.sqrt(e[0] * e[0] + e[1] * e[1] + e[2] * e[2])
    if kind == POINT:
        e[3] = e[4] = e[5] = 0.0
        for k in range(n):
            J[3, k] = J[4, k] = J[5, k] = 0.0
        return position, 0.0
    if kind == AXIS:
        ux, uy, uz = r12 * T[2, 2] - r22 * T[1, 2], r22 * T[0, 2] - r02 * T[2, 2], r02 * T[1, 2] - r12 * T[0, 2]
        sine = np.sqrt(ux * ux + uy * uy + uz * uz)
        angle = np.arctan2(sine, r02 * T[0, 2] + r12 * T[1, 2] + r22 * T[2, 2])
        if sine > 1e-12:
            e[3], e[4], e[5] = ux * angle / sine, uy * angle / sine, uz * angle / sine
        elif angle > 1.0:  # opposite: any axis across will do
            e[3], e[4], e[5] = r00 * angle, r10 * angle, r20 * angle
        else:
            e[3], e[4], e[5] = ux, uy, uz
        for k in range(n):
            along = r02 * J[3, k] + r12 * J[4, k] + r22 * J[5, k]
            J[3, k] -= along * r02
            J[4, k] -= along * r12
            J[5, k] -= along * r22
        return position, angle
    # D = R_target Rᵀ turns the tool into the target, in base axes.
    d01 = T[0, 0] * r10 + T[0, 1] * r11 + T[0, 2] * r12
    d02 = T[0, 0] * r20 + T[0, 1] * r21 + T[0, 2] * r22
    d10 = T[1, 0] * r00 + T[1, 1] * r01 + T[1, 2] * r02
    d12 = T[1, 0] * r20 + T[1, 1] * r21 + T[1, 2] * r22
    d20 = T[2, 0] * r00 + T[2, 1] * r01 + T[2, 2] * r02
    d21 = T[2, 0] * r10 + T[2, 1] * r11 + T[2, 2] * r12
    d00 = T[0, 0] * r00 + T[0, 1] * r01 + T[0, 2] * r02
    d11 = T[1, 0] * r10 + T[1, 1] * r11 + T[1, 2] * r12
    d22 = T[2, 0] * r20 + T[2, 1] * r21 + T[2, 2] * r22
    lx, ly, lz = d21 - d12, d02 - d20, d10 - d01
    sine2 = np.sqrt(lx * lx + ly * ly + lz * lz)
    angle = np.arctan2(sine2, d00 + d11 + d22 - 1.0)
    if angle < 3.1:
        scale = angle / sine2 if sine2 > 1e-12 else 0.5
        e[3], e[4], e[5] = scale * lx, scale * ly, scale * lz
    else:  # near half a turn the antisymmetric part fades: take the axis from the symmetric one
        if d00 >= d11 and d00 >= d22:
            ax, ay, az = d00 + 1.0, 0.5 * (d01 + d10), 0.5 * (d02 + d20)
            side = lx
        elif d11 >= d22:
            ax, ay, az = 0.5 * (d01 + d10), d11 + 1.0, 0.5 * (d12 + d21)
            side = ly
        else:
            ax, ay, az = 0.5 * (d02 + d20), 0.5 * (d12 + d21), d22 + 1.0
            side = lz
        scale = angle / np.sqrt(ax * ax + ay * ay + az * az)
        if side < 0.0:
            scale = -scale
        e[3], e[4], e[5] = scale * ax, scale * ay, scale * az
    return position, angle


@kernel
def goes_on(c, T, kind, s, trace, w, out):
    """Measure, remember, decide. True when the method should make another step from w.q (w.e and w.J are fresh)."""
    position, rotation = measure(c, T, kind, w)
    st = w.state
    n = w.q.shape[0]
    size = position * position + rotation * rotation
    if st[ROWS] < trace.shape[0]:
        row = trace[int(st[ROWS])]
        row[0], row[1], row[2] = 100.0 * st[RESTART], position, rotation
        for i in range(n):
            row[3 + i] = w.q[i]
        st[ROWS] += 1.0
    done = position <= s[r.TOLERANCE_POSITION] and rotation <= s[r.TOLERANCE_ROTATION]
    if done or size < st[BEST]:
        if size < st[BEST]:
            st[BEST] = size
        for i in range(n):
            w.best[i] = w.q[i]
    if done:
        st[SPENT] = 0.0
        return False
    # Does this start still get nearer? Compare with the best of this start, a while ago.
    if size < st[LAST_BEST] * s[NEEDED_DROP]:
        st[LAST_BEST] = size
        st[WAITED] = 0.0
    else:
        st[WAITED] += 1.0
    if st[ITERATION] >= s[MAX_ITERATIONS]:
        st[SPENT] = 1.0
        return False
    if s[MAX_SECONDS] > 0.0 and seconds() - st[START_TIME] > s[MAX_SECONDS]:
        st[SPENT] = 2.0
        return False
    if st[WAITED] >= s[PATIENCE]:
        if st[RESTART] >= s[MAX_RESTARTS] or (st[RESTART] >= STARTS_BEYOND_REACH and beyond_reach(c, T, s)):
            st[SPENT] = 3.0
            return False
        st[RESTART] += 1.0
        st[WAITED] = 0.0
        st[LAST_BEST] = np.inf
        random_start(c, w)
        position, rotation = measure(c, T, kind, w)
    st[ITERATION] += 1.0
    return True


@kernel
def beyond_reach(c, T, s):
    """Whether the target is farther from the first joint than all links together reach: proved, for any chain."""
    x, y, z = T[0, 3] - c[CENTRE], T[1, 3] - c[CENTRE + 1], T[2, 3] - c[CENTRE + 2]
    return np.sqrt(x * x + y * y + z * z) > c[REACH] + s[r.TOLERANCE_POSITION]


@kernel
def random_start(c, w):
    """A uniform draw inside the limits; unlimited joints within half a turn of where they may be."""
    lower, upper = int(c[LOWER]), int(c[UPPER])
    for i in range(w.q.shape[0]):
        low, high = c[lower + i], c[upper + i]
        if not np.isfinite(low):
            low = min(-np.pi, high - 2.0 * np.pi) if np.isfinite(high) else -np.pi
        if not np.isfinite(high):
            high = max(np.pi, low + 2.0 * np.pi)
        w.q[i] = low + (high - low) * draw(w.random)


@kernel
def nudge(c, w, size):
    """Turn every joint by a small seeded amount, inside the limits: off a straight chain or another dead point."""
    lower, upper = int(c[LOWER]), int(c[UPPER])
    for i in range(w.q.shape[0]):
        x = w.q[i] + size * (2.0 * draw(w.random) - 1.0)
        w.q[i] = min(max(x, c[lower + i]), c[upper + i])


@kernel
def move(c, q, dq):
    """Take the step dq and stay inside the limits: at a limit a joint stops, or goes back by a whole turn if it may.

    Returns the largest joint change that was really made, whole turns apart.
    """
    lower, upper, turn = int(c[LOWER]), int(c[UPPER]), int(c[TURN])
    largest = 0.0
    for i in range(q.shape[0]):
        x = q[i] + dq[i]
        if x > c[upper + i]:
            if x - c[turn + i] < x and x - c[turn + i] >= c[lower + i]:
                x, q[i] = x - c[turn + i], q[i] - c[turn + i]
            else:
                x = c[upper + i]
        elif x < c[lower + i]:
            if x + c[turn + i] > x and x + c[turn + i] <= c[upper + i]:
                x, q[i] = x + c[turn + i], q[i] + c[turn + i]
            else:
                x = c[lower + i]
        largest = max(largest, abs(x - q[i]))
        q[i] = x
    return largest


@kernel
def damped_step(c, J, e, A, dq, held, q, damping):
    """dq = Jᵀ(J Jᵀ + damping I)⁻¹ e over the joints that can follow.

    A joint that stands at a limit and would be pushed over it is held and the step solved again for the others.
    Chains of fewer than six joints take the equal form (JᵀJ + damping I)⁻¹ Jᵀe, whose matrix is then the regular one.
    Returns False when the system was singular to rounding (dq is then zero).
    """
    n = q.shape[0]
    lower, upper, turn = int(c[LOWER]), int(c[UPPER]), int(c[TURN])
    for i in range(n):
        held[i] = 0.0
    for _ in range(n):
        if n < 6:
            regular = _joint_system(J, e, A, dq, held, damping)
        else:
            regular = _task_system(J, e, dq, held, damping)
        if not regular:
            for i in range(n):
                dq[i] = 0.0
            return False
        again = False
        for i in range(n):
            at_limit = (dq[i] > 0.0 and q[i] >= c[upper + i]) or (dq[i] < 0.0 and q[i] <= c[lower + i])
            if at_limit and held[i] == 0.0 and c[turn + i] == 0.0:
                held[i] = 1.0
                again = True
        if not again:
            break
    return True


@kernel
def _task_system(J, e, dq, held, damping):
    """dq = Jᵀ y with (J Jᵀ + damping I) y = e, without the held joints' columns.

    The 21 entries stay in scalars from the sums through the Cholesky factor: several times faster than in an array.
    """
    n = dq.shape[0]
    a00 = damping
    a10, a11 = 0.0, damping
    a20, a21, a22 = 0.0, 0.0, damping
    a30, a31, a32, a33 = 0.0, 0.0, 0.0, damping
    a40, a41, a42, a43, a44 = 0.0, 0.0, 0.0, 0.0, damping
    a50, a51, a52, a53, a54, a55 = 0.0, 0.0, 0.0, 0.0, 0.0, damping
    for k in range(n):
        if held[k] == 0.0:
            j0, j1, j2, j3, j4, j5 = J[0, k], J[1, k], J[2, k], J[3, k], J[4, k], J[5, k]
            a00 += j0 * j0
            a10 += j1 * j0
            a11 += j1 * j1
            a20 += j2 * j0
            a21 += j2 * j1
            a22 += j2 * j2
            a30 += j3 * j0
            a31 += j3 * j1
            a32 += j3 * j2
            a33 += j3 * j3
            a40 += j4 * j0
            a41 += j4 * j1
            a42 += j4 * j2
            a43 += j4 * j3
            a44 += j4 * j4
            a50 += j5 * j0
            a51 += j5 * j1
            a52 += j5 * j2
            a53 += j5 * j3
            a54 += j5 * j4
            a55 += j5 * j5
    regular, y0, y1, y2, y3, y4, y5 = solve_spd6(
        a00, a10, a11, a20, a21, a22, a30, a31, a32, a33, a40, a41, a42, a43, a44, a50, a51, a52, a53, a54, a55,
        e[0], e[1], e[2], e[3], e[4], e[5],
    )  # fmt: skip
    for k in range(n):
        dq[k] = 0.0
        if held[k] == 0.0:
            dq[k] = J[0, k] * y0 + J[1, k] * y1 + J[2, k] * y2 + J[3, k] * y3 + J[4, k] * y4 + J[5, k] * y5
    return regular


@kernel
def _joint_system(J, e, A, dq, held, damping):
    """(JᵀJ + damping I) dq = Jᵀ e, with dq = 0 for the held joints."""
    n = dq.shape[0]
    for i in range(n):
        if held[i] != 0.0:
            for k in range(i):
                A[i, k] = 0.0
            A[i, i] = 1.0
            dq[i] = 0.0
            continue
        b = 0.0
        for j in range(6):
            b += J[j, i] * e[j]
        dq[i] = b
        for k in range(i + 1):
            v = 0.0
            if held[k] == 0.0:
                for j in range(6):
                    v += J[j, i] * J[j, k]
            A[i, k] = v
        A[i, i] += damping
    return solve_spd(A, dq, n)


@kernel
def hold_at_limits(c, q, dq):
    """Take out of dq what would push a joint over the limit it stands at."""
    lower, upper, turn = int(c[LOWER]), int(c[UPPER]), int(c[TURN])
    for i in range(q.shape[0]):
        if c[turn + i] != 0.0:
            continue
        if (dq[i] > 0.0 and q[i] >= c[upper + i]) or (dq[i] < 0.0 and q[i] <= c[lower + i]):
            dq[i] = 0.0


@kernel
def hold_columns_at_limits(c, w):
    """Zero the columns of w.J whose joint stands at a limit and is pushed over it by the gradient of the error."""
    lower, upper, turn = int(c[LOWER]), int(c[UPPER]), int(c[TURN])
    for i in range(w.q.shape[0]):
        if c[turn + i] != 0.0:
            continue
        g = 0.0
        for j in range(6):
            g += w.J[j, i] * w.e[j]
        if (g > 0.0 and w.q[i] >= c[upper + i]) or (g < 0.0 and w.q[i] <= c[lower + i]):
            for j in range(6):
                w.J[j, i] = 0.0


@kernel
def limit_step(dq, most):
    """Scale dq so that no joint turns by more than `most` [rad or m]."""
    largest = 0.0
    for i in range(dq.shape[0]):
        largest = max(largest, abs(dq[i]))
    if largest > most:
        for i in range(dq.shape[0]):
            dq[i] *= most / largest


@kernel
def conclude(c, T, kind, s, w, out):
    """Hand the best joints to the judge and say why it went no further."""
    n = w.q.shape[0]
    st = w.state
    for i in range(n):  # `out` still holds the seed: of several whole turns the one nearest to it
        if c[int(c[TURN]) + i] != 0.0:
            out[i], _ = r.nearest_turn(w.best[i], out[i], c[int(c[LOWER]) + i], c[int(c[UPPER]) + i])
        else:
            out[i] = w.best[i]
    out[n + r.ITERATIONS] = st[ITERATION]
    out[n + r.RESTARTS] = st[RESTART]
    out[n + r.TRACE_ROWS] = st[ROWS]
    out[n + r.STATUS] = r.STALLED
    if r.judge(c, T, kind, s, out):
        return
    x, y, z = T[0, 3] - c[CENTRE], T[1, 3] - c[CENTRE + 1], T[2, 3] - c[CENTRE + 2]
    if beyond_reach(c, T, s):
        far = np.sqrt(x * x + y * y + z * z)
        r.say(c, out, r.OUT_OF_REACH, r.BEYOND_SUM, far - c[REACH], c[REACH], x / far, y / far, z / far)
        return
    held = limit_that_holds(c, T, kind, w, out, 1.0 if st[SPENT] == 3.0 else 1e-6)
    if held >= 0:  # with the budget spent: only if nothing but the limit keeps the best joints from getting nearer
        r.say(c, out, r.JOINT_LIMITS, r.LIMIT_HOLDS, float(held), out[held])
        return
    if st[SPENT] == 1.0:
        r.say(c, out, r.MAX_ITERATIONS, r.BUDGET_SPENT, st[ITERATION], st[RESTART])
        return
    if st[SPENT] == 2.0:
        r.say(c, out, r.MAX_ITERATIONS, r.TIME_SPENT, s[MAX_SECONDS], st[ITERATION])
        return
    why_stopped(c, T, kind, s, w, out)


@kernel
def limit_that_holds(c, T, kind, w, out, share):
    """The joint at a limit over which the downhill direction of the error leads most, or -1.

    The squared slope along all joints that are free must be below `share` of the squared slope into that limit.
    """
    n = w.q.shape[0]
    lower, upper = int(c[LOWER]), int(c[UPPER])
    for i in range(n):
        w.q[i] = out[i]
    measure(c, T, kind, w)
    worst, where = 0.0, -1
    rest = 0.0
    for i in range(n):
        g = 0.0
        for j in range(6):
            g += w.J[j, i] * w.e[j]
        at_upper, at_lower = w.q[i] >= c[upper + i] - 1e-9, w.q[i] <= c[lower + i] + 1e-9
        if (at_upper and g > 0.0) or (at_lower and g < 0.0):
            if abs(g) > worst:
                worst, where = abs(g), i
        else:
            rest += g * g
    return where if share * worst * worst > rest else -1


@kernel
def why_stopped(c, T, kind, s, w, out):
    """Stalled or singular: look at the best joints that were found (w holds the Jacobian there)."""
    n = w.q.shape[0]
    rows = 3 if kind == POINT else 6
    svd_rows(w.J, rows, n, w.W, w.V, w.sigma)
    wanted = min(n, 3 if kind == POINT else (5 if kind == AXIS else 6))
    least = _nth_largest(w.sigma, rows, wanted)
    if least < 1e-4:
        r.say(c, out, r.SINGULAR, r.AT_SINGULARITY, least)
    else:
        r.say(c, out, r.STALLED, r.NO_PROGRESS, w.state[RESTART], w.state[ITERATION])


@kernel
def _nth_largest(values, count, nth):
    """The nth largest of the first `count` values, counted from 1."""
    for i in range(count):
        above, equal = 0, 0
        for k in range(count):
            if values[k] > values[i]:
                above += 1
            elif values[k] == values[i]:
                equal += 1
        if above < nth <= above + equal:
            return values[i]
    return 0.0
