"""One solve: cycles until the tips arrive or a reason is found why they do not, in one kernel.

`solve` moves the points `p` in place and fills the row `out`. Points are checked, brought to their lengths and inside
their limits first; the best points met are what stays at the end.
"""

import numpy as np

from ik_sim.compiled import kernel
from ik_sim.fabrik import cycle as c
from ik_sim.fabrik.cycle import (  # fmt: skip
    backward,
    chain_cycle,
    deepest,
    forward,
    limit_forward,
    settle,
    swing_axis,
    towards,
    unit,
    workspace,
)  # fmt: skip
from ik_sim.fabrik.turning import turn_together

# Places in the settings row.
(
    TOLERANCE, MAX_CYCLES, COS_CAP, SIN_CAP, BEND, MAX_RESTARTS, SEED, PATIENCE, NEEDED_DROP, PLANE, SIMPLE, TURNS,
) = range(12)  # fmt: skip
SETTINGS = 12

# Places in the answer.
STATUS, REASON, MISS, SCORE, CYCLES, RESTARTS, PLACED, BENT, DEPTH, TRACE_ROWS, TURNED, DETAIL = range(12)
DETAILS = 4
ANSWER = DETAIL + DETAILS

# Statuses, in the order of `Status`.
CONVERGED, OUT_OF_REACH, JOINT_LIMITS, OBSTRUCTED, STALLED, MAX_CYCLES_SPENT = range(6)

# Reasons; solver.py puts them into words.
(
    NO_REASON, BEYOND, INSIDE, LIMIT_HOLDS, IN_OBSTACLE, TARGET_IN_OBSTACLE, NO_PROGRESS, SPENT, IN_LINE, NOT_JOINTLY,
    LOOP_OPEN,
) = range(11)  # fmt: skip

LONG = 64  # links from which on a chain is folded when it settles slowly
MOST_PULLS = 120  # targets and loops beyond which joints are not turned together: a step grows with their cube

FINE, BAD_POINT, BAD_TARGET, BAD_LENGTH = 0, 1, 2, 3

START, BACKWARD, FORWARD, BENDING, RESTART, TURNING = range(6)  # what a row of the trace shows


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
def reach_of(parent, length, i):
    """Largest and smallest distance from the root at which point i can stand, limits aside: Σ L and 2 max L − Σ L."""
    total, longest = 0.0, 0.0
    while i > 0:
        total += length[i]
        longest = max(longest, length[i])
        i = parent[i]
    return total, max(0.0, 2.0 * longest - total)


@kernel
def measure(pulls, targets, loops, p):
    """Largest miss, the weighted root mean square of all, and whose the largest is (loops count on after targets)."""
    worst, which, total, weights = 0.0, 0, 0.0, 0.0
    for e in range(pulls.shape[0]):
        i = int(pulls[e, 0])
        x, y, z = p[i, 0] - targets[e, 0], p[i, 1] - targets[e, 1], p[i, 2] - targets[e, 2]
        d = np.sqrt(x * x + y * y + z * z)
        if d > worst:
            worst, which = d, e
        total += pulls[e, 1] * d * d
        weights += pulls[e, 1]
    for e in range(loops.shape[0]):
        i, j = int(loops[e, 0]), int(loops[e, 1])
        x, y, z = p[i, 0] - p[j, 0], p[i, 1] - p[j, 1], p[i, 2] - p[j, 2]
        d = abs(np.sqrt(x * x + y * y + z * z) - loops[e, 2])
        if d > worst:
            worst, which = d, pulls.shape[0] + e
        total += d * d
        weights += 1.0
    return worst, np.sqrt(total / weights), which


@kernel
def lay_straight(parent, length, target, p, inside):
    """The closest answer to a target out of reach: all links towards it, or all but the longest against."""
    n = p.shape[0] - 1
    longest = 1
    for i in range(2, n + 1):
        if length[i] > length[longest]:
            longest = i
    x, y, z = target[0] - p[0, 0], target[1] - p[0, 1], target[2] - p[0, 2]
    k = parent[longest]
    # A target on the root itself has no direction: keep that of the longest link.
    fx, fy, fz = unit(
        p[longest, 0] - p[k, 0], p[longest, 1] - p[k, 1], p[longest, 2] - p[k, 2], 1.0, 0.0, 0.0
    )  # fmt: skip
    if x * x + y * y + z * z < 1e-200:
        x, y, z = fx, fy, fz
    x, y, z = unit(x, y, z, fx, fy, fz)
    for i in range(1, n + 1):
        f = length[i] if not inside or i == longest else -length[i]
        for j in range(3):
            p[i, j] = p[i - 1, j] + f * (x if j == 0 else (y if j == 1 else z))


@kernel
def in_line(parent, length, i, target, p, share):
    """Whether no link from the root to point i leaves the line to its target by more than that share of the reach.

    Also the direction of that line.
    """
    x, y, z = target[0] - p[0, 0], target[1] - p[0, 1], target[2] - p[0, 2]
    total, _ = reach_of(parent, length, i)
    if np.sqrt(x * x + y * y + z * z) < 1e-12 * total:
        x, y, z = p[i, 0] - p[parent[i], 0], p[i, 1] - p[parent[i], 1], p[i, 2] - p[parent[i], 2]
    x, y, z = unit(x, y, z, 1.0, 0.0, 0.0)
    worst, links = 0.0, 0
    while i > 0:
        m = parent[i]
        dx, dy, dz = p[i, 0] - p[m, 0], p[i, 1] - p[m, 1], p[i, 2] - p[m, 2]
        along = x * dx + y * dy + z * dz
        dx, dy, dz = dx - along * x, dy - along * y, dz - along * z
        worst = max(worst, np.sqrt(dx * dx + dy * dy + dz * dz))
        links += 1
        i = m
    return worst < share * total and links > 1, x, y, z


@kernel
def bend_path(parent, i, x, y, z, angle, plane, w):
    """Bend the links from point i to the root alternately off the line (x, y, z), in one fixed plane."""
    if plane or (x * x + y * y) > 1e-6:
        nx, ny, nz = unit(-y, x, 0.0, 0.0, 1.0, 0.0)
    else:
        nx, ny, nz = 1.0, 0.0, 0.0
    side = 1.0
    cosine, sine = np.cos(angle), np.sin(angle)
    while i > 0:
        ox, oy, oz = w.old[i, 0], w.old[i, 1], w.old[i, 2]
        w.old[i, 0] = cosine * ox + side * sine * nx
        w.old[i, 1] = cosine * oy + side * sine * ny
        w.old[i, 2] = cosine * oz + side * sine * nz
        side = -side
        i = parent[i]


@kernel
def crumple(length, angle, plane, p):
    """Turn the links of a chain alternately by that angle to either side of where they point.

    A small miss runs along a chain from joint to joint, and at each only its part along the next link goes on: a
    cycle shrinks it by about Π cos² of the angles between links. A long chain that lies smoothly passes all of it on.
    Folds too small to be seen stop it.
    """
    sine, cosine, side = np.sin(angle), np.cos(angle), 1.0
    sx, sy, sz = 0.0, 0.0, 1.0
    bx, by, bz = p[0, 0], p[0, 1], p[0, 2]  # where the link began before
    for i in range(1, p.shape[0]):
        x, y, z = unit(p[i, 0] - bx, p[i, 1] - by, p[i, 2] - bz, 1.0, 0.0, 0.0)
        bx, by, bz = p[i, 0], p[i, 1], p[i, 2]
        if plane:
            sx, sy, sz = -y, x, 0.0
        else:  # the side across the link before, brought across this one
            d = sx * x + sy * y + sz * z
            if abs(d) > 0.999:
                sx, sy, sz, d = (1.0, 0.0, 0.0, x) if abs(x) < 0.9 else (0.0, 1.0, 0.0, y)
            sx, sy, sz = unit(sx - d * x, sy - d * y, sz - d * z, 0.0, 0.0, 1.0)
        f, g = length[i] * cosine, length[i] * sine * side
        p[i, 0], p[i, 1], p[i, 2] = (
            p[i - 1, 0] + f * x + g * sx, p[i - 1, 1] + f * y + g * sy, p[i - 1, 2] + f * z + g * sz,
        )  # fmt: skip
        side = -side


@kernel
def lay_folded(length, target, plane, p):
    """A long chain in folds along the line to its target, all at the angle at which they reach just as far."""
    x, y, z = target[0] - p[0, 0], target[1] - p[0, 1], target[2] - p[0, 2]
    most = 0.0
    for i in range(1, p.shape[0]):
        most += length[i]
    cosine = min(1.0, np.sqrt(x * x + y * y + z * z) / most)
    sine, aside = np.sqrt(1.0 - cosine * cosine), 0.0
    x, y, z = unit(x, y, z, 1.0, 0.0, 0.0)
    if plane or x * x + y * y > 1e-6:
        sx, sy, sz = unit(-y, x, 0.0, 0.0, 1.0, 0.0)
    else:
        sx, sy, sz = 1.0, 0.0, 0.0
    for i in range(1, p.shape[0]):
        f, g = length[i] * cosine, length[i] * sine
        if aside > 0.0:
            g = -g
        aside += g
        p[i, 0], p[i, 1], p[i, 2] = (
            p[i - 1, 0] + f * x + g * sx, p[i - 1, 1] + f * y + g * sy, p[i - 1, 2] + f * z + g * sz,
        )  # fmt: skip


@kernel
def place(parent, length, joint, limited, p, w, i, x, y, z):
    """Point i in direction (x, y, z) from its parent, inside its limit, where it and its direction are then kept."""
    m = parent[i]
    if limited:
        x, y, z = limit_forward(joint, i, w.R, m, x, y, z)
    w.old[i, 0], w.old[i, 1], w.old[i, 2] = x, y, z
    p[i, 0], p[i, 1], p[i, 2] = p[m, 0] + length[i] * x, p[m, 1] + length[i] * y, p[m, 2] + length[i] * z


@kernel
def stand(parent, length, joint, limited, p, w):
    """Points from the directions in w.old, inside the limits."""
    for i in range(1, p.shape[0]):
        dx, dy, dz = unit(w.old[i, 0], w.old[i, 1], w.old[i, 2], 1.0, 0.0, 0.0)
        place(parent, length, joint, limited, p, w, i, dx, dy, dz)


@kernel
def mark_unmet(parent, pulls, targets, loops, tolerance, p, unmet):
    """Mark the points between the root and whatever missed its target; returns how many did."""
    count = 0
    for i in range(p.shape[0]):
        unmet[i] = False
    for e in range(pulls.shape[0] + 2 * loops.shape[0]):
        if e < pulls.shape[0]:
            i = int(pulls[e, 0])
            x, y, z = p[i, 0] - targets[e, 0], p[i, 1] - targets[e, 1], p[i, 2] - targets[e, 2]
            d = np.sqrt(x * x + y * y + z * z)
        else:
            k, end = divmod(e - pulls.shape[0], 2)
            i, j = int(loops[k, end]), int(loops[k, 1 - end])
            x, y, z = p[i, 0] - p[j, 0], p[i, 1] - p[j, 1], p[i, 2] - p[j, 2]
            d = abs(np.sqrt(x * x + y * y + z * z) - loops[k, 2])
        if d > tolerance:
            count += 1
            while i > 0:
                unmet[i] = True
                i = parent[i]
    return count


@kernel
def scatter(parent, length, joint, limited, plane, p, w, random, chosen):
    """A random start: every joint of the chosen points uniform in its arc, cone or sphere; the others keep theirs."""
    for i in range(1, p.shape[0]):
        m = parent[i]
        a, b = 2.0 * np.pi * draw(random), draw(random)
        if not chosen[i]:
            place(parent, length, joint, limited, p, w, i, w.old[i, 0], w.old[i, 1], w.old[i, 2])
            continue
        if plane:
            x, y, z = np.cos(a), np.sin(a), 0.0
        else:
            z = 2.0 * b - 1.0
            r = np.sqrt(1.0 - z * z)
            x, y, z = r * np.cos(a), r * np.sin(a), z
        if limited:
            if joint[i, c.KIND] == c.HINGE:
                t = joint[i, c.CENTRE] + min(joint[i, c.HALF], np.pi) * (2.0 * b - 1.0)
                e1x, e1y, e1z = c.apply(w.R, m, joint[i, c.E1], joint[i, c.E1 + 1], joint[i, c.E1 + 2])
                e2x, e2y, e2z = c.apply(w.R, m, joint[i, c.E2], joint[i, c.E2 + 1], joint[i, c.E2 + 2])
                x = np.cos(t) * e1x + np.sin(t) * e2x
                y = np.cos(t) * e1y + np.sin(t) * e2y
                z = np.cos(t) * e1z + np.sin(t) * e2z
            elif joint[i, c.KIND] == c.CONE:
                ux, uy, uz = c.apply(w.R, m, joint[i, c.U], joint[i, c.U + 1], joint[i, c.U + 2])
                cosine = 1.0 - b * (1.0 - joint[i, c.COS_H])
                x, y, z = towards(ux, uy, uz, x, y, z, cosine, np.sqrt(max(0.0, 1.0 - cosine * cosine)))
        place(parent, length, joint, limited, p, w, i, x, y, z)


@kernel
def joint_angle(joint, i, R, m, x, y, z):
    """Angle of a hinge, or of the swing at a ball joint, with link i along (x, y, z) [rad]."""
    if joint[i, c.KIND] == c.HINGE:
        e1x, e1y, e1z = c.apply(R, m, joint[i, c.E1], joint[i, c.E1 + 1], joint[i, c.E1 + 2])
        e2x, e2y, e2z = c.apply(R, m, joint[i, c.E2], joint[i, c.E2 + 1], joint[i, c.E2 + 2])
        return np.arctan2(x * e2x + y * e2y + z * e2z, x * e1x + y * e1y + z * e1z)
    ux, uy, uz = c.apply(R, m, joint[i, c.U], joint[i, c.U + 1], joint[i, c.U + 2])
    _, _, _, cosine, sine = swing_axis(ux, uy, uz, x, y, z, 0.0, 0.0, 1.0)
    return np.arctan2(sine, cosine)


@kernel
def angles(parent, length, joint, p, out):
    """Every joint's angle; frames are followed from the root."""
    limited = joint.shape[0] > 0
    w = workspace(p.shape[0], limited)
    settle(parent, length, joint, limited, p, w)
    for i in range(1, p.shape[0]):
        out[i] = joint_angle(joint, i, w.R, parent[i], w.old[i, 0], w.old[i, 1], w.old[i, 2])


@kernel
def held_joint(parent, length, joint, p, w):
    """The first joint that stands at an end of its arc or cone (its point) and its angle; -1: none does."""
    settle(parent, length, joint, joint.shape[0] > 0, p, w)
    for i in range(1, p.shape[0]):
        if joint[i, c.KIND] == c.FREE or joint[i, c.HALF] >= np.pi:
            continue
        t = joint_angle(joint, i, w.R, parent[i], w.old[i, 0], w.old[i, 1], w.old[i, 2])
        u = t - joint[i, c.CENTRE]
        u -= 2.0 * np.pi * np.rint(u / (2.0 * np.pi))
        if abs(u) >= joint[i, c.HALF] - 1e-7:
            return i, t
    return -1, 0.0


@kernel
def note(trace, phases, out, phase, p):
    """Write the points to the next row of the trace, where there is one."""
    row = int(out[TRACE_ROWS])
    if row < trace.shape[0]:
        phases[row] = phase
        for i in range(p.shape[0]):
            for k in range(3):
                trace[row, i, k] = p[i, k]
        out[TRACE_ROWS] += 1.0


@kernel
def say(out, status, reason, a, b, d, e):
    """Write a verdict and the numbers of its sentence."""
    out[STATUS], out[REASON] = status, reason
    out[DETAIL], out[DETAIL + 1], out[DETAIL + 2], out[DETAIL + 3] = a, b, d, e


@kernel
def solve(parent, length, joint, branch, pulls, loops, obstacles, s, targets, p, trace, phases, out):
    """Move p so that its pulled points meet the targets; see the file's head. Returns a misuse code."""
    n = p.shape[0] - 1
    for i in range(ANSWER):
        out[i] = 0.0
    for e in range(targets.shape[0]):
        for k in range(3):
            if not np.isfinite(targets[e, k]):
                return BAD_TARGET
    for i in range(n + 1):
        for k in range(3):
            if not np.isfinite(p[i, k]):
                return BAD_POINT
        if not (0.0 <= length[i] < np.inf):
            return BAD_LENGTH
    limited, blocked = joint.shape[0] > 0, obstacles.shape[0] > 0
    plane, simple, tolerance = s[PLANE] != 0.0, s[SIMPLE] != 0.0, s[TOLERANCE]
    w = workspace(n + 1, limited)
    random = np.empty(1, np.uint64)
    random[0] = np.uint64(s[SEED])
    settle(parent, length, joint, limited, p, w)
    note(trace, phases, out, START, p)
    miss, score, which = measure(pulls, targets, loops, p)

    if simple and miss > tolerance:  # one target, no limits: whether it can be reached is known beforehand
        x, y, z = targets[0, 0] - p[0, 0], targets[0, 1] - p[0, 1], targets[0, 2] - p[0, 2]
        far = np.sqrt(x * x + y * y + z * z)
        most, least = reach_of(parent, length, n)
        beyond, inside = far >= most - tolerance, least > 0.0 and far <= least + tolerance
        if beyond or inside:
            lay_straight(parent, length, targets[0], p, not beyond)
            note(trace, phases, out, FORWARD, p)
            miss, score, which = measure(pulls, targets, loops, p)
            out[PLACED] = n
            out[MISS], out[SCORE] = miss, score
            if miss <= tolerance:
                return FINE
            if beyond:
                say(out, OUT_OF_REACH, BEYOND, 0.0, far, most, far - most)
            else:
                say(out, OUT_OF_REACH, INSIDE, 0.0, far, least, least - far)
            return FINE

    if miss > tolerance and s[BEND] > 0.0:  # a chain in line with its target never leaves the line by itself
        bent = False
        for e in range(pulls.shape[0]):
            i = int(pulls[e, 0])
            flat, x, y, z = in_line(parent, length, i, targets[e], p, 1e-9)
            if flat:
                bend_path(parent, i, x, y, z, s[BEND], plane, w)
                bent = True
        if bent:
            stand(parent, length, joint, limited, p, w)
            note(trace, phases, out, BENDING, p)
            out[BENT] = 1.0
            miss, score, which = measure(pulls, targets, loops, p)

    best = np.empty((n + 1, 3))
    base, unmet, base_score = np.empty((n + 1, 3)), np.empty(n + 1, np.bool_), np.inf
    base_unmet = 2**31  # no start yet; targets and loops together can be more than there are points
    turns = s[TURNS]
    if not limited or blocked or s[COS_CAP] > -2.0 or pulls.shape[0] + loops.shape[0] > MOST_PULLS:
        turns = 0.0
    turned, folds, previous, slow = False, 0, miss, 0
    best_score, best_depth = np.inf, np.inf
    last, waited, before, dead, ended = np.inf, 0.0, np.inf, 0, NO_PROGRESS
    # A free chain needs a new start only out of a deadlock, and one is enough. A free tree whose targets can't all be
    # reached is a compromise, and the one nearest to the start is the one that is wanted.
    most_restarts = s[MAX_RESTARTS]
    if simple:
        most_restarts = min(1.0, most_restarts)
    elif not (blocked or loops.shape[0] > 0):
        for e in range(pulls.shape[0]):
            x, y, z = targets[e, 0] - p[0, 0], targets[e, 1] - p[0, 1], targets[e, 2] - p[0, 2]
            far = np.sqrt(x * x + y * y + z * z)
            most, least = reach_of(parent, length, int(pulls[e, 0]))
            if far > most + tolerance or far < least - tolerance:
                most_restarts = 0.0
    while True:
        depth = deepest(parent, length, obstacles, p)[0] if blocked else 0.0
        better = score < best_score
        if blocked:  # clear of obstacles counts first
            clear, was_clear = depth <= tolerance, best_depth <= tolerance
            better = (clear and (not was_clear or score < best_score)) or (
                not clear and not was_clear and depth + score < best_depth + best_score
            )
        if better:
            best_score, best_depth = score, depth
            for i in range(n + 1):
                best[i, 0], best[i, 1], best[i, 2] = p[i, 0], p[i, 1], p[i, 2]
        if miss <= tolerance and depth <= tolerance:
            for i in range(n + 1):
                best[i, 0], best[i, 1], best[i, 2] = p[i, 0], p[i, 1], p[i, 2]
            break
        if out[CYCLES] >= s[MAX_CYCLES]:
            ended = SPENT
            break
        if score + depth < last * s[NEEDED_DROP]:
            last, waited = score + depth, 0.0
        else:
            waited += 1.0
        dead = dead + 1 if abs(score - before) <= 1e-14 * (score + before) else 0
        before = score
        if simple and dead >= 3:  # standing still, or leaving the line too slowly to be seen?
            stuck = in_line(parent, length, n, targets[0], p, 1e-14)[0]
        else:
            stuck = dead >= 3
        if (waited >= s[PATIENCE] or stuck) and turns > 0.0 and not turned:
            turned, last, waited, before, dead = True, np.inf, 0.0, np.inf, 0
            out[TURNED] += turn_together(
                parent, length, joint, pulls, targets, loops, tolerance, min(turns, s[MAX_CYCLES] - out[CYCLES]), p, w
            )  # fmt: skip
            note(trace, phases, out, TURNING, p)
            miss, score, which = measure(pulls, targets, loops, p)
            continue
        if waited >= s[PATIENCE] or stuck:
            if out[RESTARTS] >= most_restarts:
                break
            out[RESTARTS] += 1.0
            turned, last, waited, before, dead = False, np.inf, 0.0, np.inf, 0
            # What has arrived stays; a start that more targets are met from replaces the one before.
            count = mark_unmet(parent, pulls, targets, loops, tolerance, p, unmet)
            if count < base_unmet or (count == base_unmet and score < base_score):
                base_unmet, base_score = count, score
                for i in range(n + 1):
                    base[i, 0], base[i, 1], base[i, 2] = p[i, 0], p[i, 1], p[i, 2]
            else:
                for i in range(n + 1):
                    p[i, 0], p[i, 1], p[i, 2] = base[i, 0], base[i, 1], base[i, 2]
                settle(parent, length, joint, limited, p, w)
                mark_unmet(parent, pulls, targets, loops, tolerance, p, unmet)
            scatter(parent, length, joint, limited, plane, p, w, random, unmet)
            note(trace, phases, out, RESTART, p)
        if simple and n >= LONG and s[BEND] > 0.0:
            # Slow when as many more cycles as these would not do: the miss shrinks by a share that hardly changes.
            slow = slow + 1 if miss > 0.7 * previous else 0
            previous = miss
            if slow >= 3 and folds < 3:
                x, y, z = targets[0, 0] - p[0, 0], targets[0, 1] - p[0, 1], targets[0, 2] - p[0, 2]
                most, least = reach_of(parent, length, n)
                spare = max(0.0, most - np.sqrt(x * x + y * y + z * z))
                slow, folds = -4, folds + 1
                # Enough to stop a miss on its way, and not to be pulled flat by it; never more than there is room for.
                wanted = max(np.sqrt(3.0 / n), 2.0 * np.sqrt(miss / spare) if spare > 0.0 else 0.0)
                crumple(length, min(wanted, np.sqrt(spare / most), 0.7), plane, p)
                note(trace, phases, out, BENDING, p)
            elif slow >= 3 and folds == 3 and out[RESTARTS] < most_restarts:
                slow, folds = 0, 4
                out[RESTARTS] += 1.0
                lay_folded(length, targets[0], plane, p)
                note(trace, phases, out, RESTART, p)
        if simple:
            chain_cycle(length, targets[0], p, w.back)
        else:
            backward(parent, length, joint, branch, pulls, targets, loops, obstacles, limited, p, w)
            if trace.shape[0] > 0:
                note(trace, phases, out, BACKWARD, w.back)
            forward(parent, length, joint, obstacles, limited, s[COS_CAP], s[SIN_CAP], p, w)
        if trace.shape[0] > 0:
            if simple:
                note(trace, phases, out, BACKWARD, w.back)
            note(trace, phases, out, FORWARD, p)
        out[CYCLES] += 1.0
        out[PLACED] += 2 * n
        miss, score, which = measure(pulls, targets, loops, p)

    for i in range(n + 1):
        p[i, 0], p[i, 1], p[i, 2] = best[i, 0], best[i, 1], best[i, 2]
    miss, score, which = measure(pulls, targets, loops, p)
    out[MISS], out[SCORE] = miss, score
    link, inside_of = -1, -1
    if blocked:
        out[DEPTH], link, inside_of = deepest(parent, length, obstacles, p)
    if miss <= tolerance and out[DEPTH] <= tolerance:
        return FINE
    # Why not? What is proved comes first.
    for e in range(pulls.shape[0]):
        i = int(pulls[e, 0])
        x, y, z = targets[e, 0] - p[0, 0], targets[e, 1] - p[0, 1], targets[e, 2] - p[0, 2]
        far = np.sqrt(x * x + y * y + z * z)
        most, least = reach_of(parent, length, i)
        if far > most + tolerance:
            say(out, OUT_OF_REACH, BEYOND, float(e), far, most, far - most)
            return FINE
        if far < least - tolerance:
            say(out, OUT_OF_REACH, INSIDE, float(e), far, least, least - far)
            return FINE
        for k in range(obstacles.shape[0]):
            d = c.link_clearance(obstacles, k, targets[e, 0], targets[e, 1], targets[e, 2], 1.0, 0.0, 0.0, 0.0)
            if d < -tolerance:
                say(out, OBSTRUCTED, TARGET_IN_OBSTACLE, float(e), float(k), -d, 0.0)
                return FINE
    if ended == SPENT:
        say(out, MAX_CYCLES_SPENT, SPENT, out[CYCLES], float(which), 0.0, 0.0)
        return FINE
    if out[DEPTH] > tolerance:
        say(out, OBSTRUCTED, IN_OBSTACLE, float(link), float(inside_of), out[DEPTH], 0.0)
        return FINE
    if limited:
        i, t = held_joint(parent, length, joint, best, w)
        if i >= 0:
            say(out, JOINT_LIMITS, LIMIT_HOLDS, float(i), t, out[RESTARTS], 0.0)
            return FINE
    if which >= pulls.shape[0]:
        say(out, STALLED, LOOP_OPEN, float(which - pulls.shape[0]), miss, 0.0, 0.0)
    elif pulls.shape[0] > 1:
        say(out, STALLED, NOT_JOINTLY, float(which), miss, 0.0, 0.0)
    else:
        flat, x, y, z = in_line(parent, length, int(pulls[0, 0]), targets[0], p, 1e-9)
        say(out, STALLED, IN_LINE if flat else NO_PROGRESS, out[RESTARTS], out[CYCLES], 0.0, 0.0)
    return FINE


@kernel
def solve_rows(parent, lengths, joint, branch, pulls, loops, obstacles, s, targets, points, out, first, last):
    """Rows first to last of a batch; a single row of lengths serves all. Returns 1 + the row that is misused, or 0."""
    trace, phases = np.empty((0, 1, 3)), np.empty(0)
    for i in range(first, last):
        length = lengths[i if lengths.shape[0] > 1 else 0]
        code = solve(
            parent, length, joint, branch, pulls, loops, obstacles, s, targets[i], points[i], trace, phases, out[i]
        )  # fmt: skip
        if code != FINE:
            return (i + 1) * 4 + code
    return 0
