"""FABRIK combined with SLSQP: a few cheap cycles, then the optimiser where the cycles would crawl.

On an arm whose wrist can be taken off (UR and shoulder-elbow-wrist families) the pose leaves a two-link problem: put
the tip of upper arm and forearm on a target point. FABRIK alternates between the circles on which its joint may lie
and gains a factor of cos² δ per cycle, δ the bend of the elbow in the answer, so it crawls where the arm is nearly
stretched or folded. After n_l cycles SLSQP takes over from where FABRIK stands, and is fast exactly there.

The links' directions then give all joints: one vector per target on the UR family (up to four targets), eight sign
branches on the srs family. Those inside the limits that the judge accepts are kept, the nearest to the seed returned.

Source: Xu et al. 2022, "A Combined Inverse Kinematics Algorithm Using FABRIK with Optimization" (arXiv 2209.02532).
Beyond it: a start at the seed's elbow, a switch that knows the cycles beforehand, and, for the srs family, further
elbow directions when the limits allow none at the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ik_sim.chain import DOF, FAMILY, JOINTS, LOWER, PARAMETERS, UPPER
from ik_sim.compiled import kernel
from ik_sim.errors import InvalidArgumentError
from ik_sim.solvers import hinge_fabrik, nlopt_c, slsqp
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import iterating as it
from ik_sim.solvers import record as r
from ik_sim.solvers.closed_form import finish_on_real
from ik_sim.solvers.solver import KernelSolver
from ik_sim.solvers.srs_arm import (
    CIRCLE,
    MAX_ROOTS,
    NEXT_TO_STRAIGHT,
    ROOM,
    STRAIGHT_SEED,
    STRETCHED,
    elbow_range,
    share_pairs,
    solve_srs,
    srs_angles,
    srs_circle,
    srs_elbow_direction_to_angle,
    srs_from_straight,
    srs_legal_near,
    srs_seed,
)
from ik_sim.solvers.ur_arm import solve_ur, ur_angles, ur_link5, ur_plane
from ik_sim.target import POSE, Tolerance

# Settings behind the shared ones.
(
    CYCLES, WITH_SLSQP, PREDICT, RULE, FROM_SEED, FURTHER, BEND, PLANAR, SPATIAL, MOST_EVALUATIONS, SKIP_STRETCHED,
    WHOLE_CHAIN,
) = range(it.OWN, it.OWN + 12)  # fmt: skip

# Places in the scratch row that counts the work of one solve.
COUNT_CYCLES, COUNT_EVALUATIONS, COUNT_RUNS, DEADLINE, OUT_OF_TIME, ROW = 0, 1, 2, 3, 4, 5


@kernel
def predicted_cycles(l2, l3, delta, tolerance):
    """How many FABRIK cycles a two-link chain needs whose answer is bent by `delta` [rad], from a start well off it.

    Logistic law near the stretch and near the fold; in between each cycle gains a factor of cos² δ.
    """
    folded = np.pi - delta
    if delta < 0.5:
        squared = max(delta * delta, 1e-16)
        return np.log1p(l2 * l3 * squared / (2.0 * (l2 + l3) * tolerance)) / squared
    if folded < 0.02:
        squared = max(folded * folded, 1e-16)
        return np.log1p(l2 * l3 * squared / (2.0 * max(abs(l2 - l3), 1e-9) * tolerance)) / squared
    rate = -np.log(max(np.cos(delta) * np.cos(delta), 1e-12))
    return np.log(max(l2 * l3 * np.sin(delta) / ((l2 + l3) * tolerance), 2.0)) / rate


@kernel
def two_link(l2, l3, dist, along, across, tolerance, most, trace, counts, state):
    """FABRIK in the plane that holds shoulder (0, 0), target (dist, 0) and the elbow, which starts at (along, across) · l2.

    Writes the elbow's unit direction to state[0:2] and returns the miss [m] after at most `most` cycles. The rows of a
    trace get the miss and, for the caller to replace by joints, the directions of both links.
    """
    x, y = l2 * along, l2 * across
    tx, ty = x + l3 * along - dist, y + l3 * across
    miss = np.sqrt(tx * tx + ty * ty)
    cycles, done = 0, int(counts[ROW])
    while miss > tolerance and cycles < most:
        if cycles % 1024 == 1023 and counts[DEADLINE] > 0.0 and it.seconds() > counts[DEADLINE]:
            counts[OUT_OF_TIME] = 1.0
            break
        dx, dy = x - dist, y
        size = np.sqrt(dx * dx + dy * dy)
        if size > 0.0:
            dx, dy = dx / size, dy / size
        else:
            dx, dy = 1.0, 0.0
        x, y = dist + l3 * dx, l3 * dy
        size = np.sqrt(x * x + y * y)
        if size > 0.0:
            x, y = l2 * x / size, l2 * y / size
        else:
            x, y = l2, 0.0
        miss = abs(np.sqrt((dist - x) * (dist - x) + y * y) - l3)
        cycles += 1
        if done + cycles <= trace.shape[0]:
            row = trace[done + cycles - 1]
            row[0], row[1], row[2], row[3], row[4] = 0.0, miss, 0.0, x / l2, y / l2
            fx, fy = dist - x, -y
            size = np.sqrt(fx * fx + fy * fy)
            row[5], row[6] = (fx / size, fy / size) if size > 0.0 else (1.0, 0.0)
    state[0], state[1] = x / l2, y / l2
    counts[COUNT_CYCLES] += cycles
    counts[ROW] = min(done + cycles, trace.shape[0])
    return miss


@kernel
def work_left(s, counts):
    """Cycles and evaluations that the budget still holds; FABRIK alone has its whole budget for each target."""
    if s[WITH_SLSQP] == 0.0:
        return int(s[it.MAX_ITERATIONS])
    return int(s[it.MAX_ITERATIONS] - counts[COUNT_CYCLES] - counts[COUNT_EVALUATIONS])


@kernel
def in_plane(l2, l3, dist, along, across, s, data, trace, counts, state):
    """Elbow direction (to state[0:2]) for a tip at (dist, 0): FABRIK, then SLSQP on the two angles if it hasn't arrived."""
    if s[PREDICT] != 0.0 and predicted_cycles(l2, l3, ideal.bend(l2, l3, dist), s[r.TOLERANCE_POSITION]) > s[PREDICT]:
        most = 0
    else:
        most = min(int(s[CYCLES]), work_left(s, counts))
    miss = two_link(l2, l3, dist, along, across, s[r.TOLERANCE_POSITION], most, trace, counts, state)
    if miss > s[r.TOLERANCE_POSITION] and s[WITH_SLSQP] != 0.0 and work_left(s, counts) > 0:
        miss = _optimise_in_plane(l2, l3, dist, state, s, data, trace, counts)
    else:
        fx, fy = dist - l2 * state[0], -l2 * state[1]
        size = np.sqrt(fx * fx + fy * fy)
        if size > 0.0:
            state[2], state[3] = fx / size, fy / size
        else:
            state[2], state[3] = 1.0, 0.0
    return miss


@kernel
def _optimise_in_plane(l2, l3, dist, state, s, data, trace, counts):
    """SLSQP on the two angles in the elbow's plane, from the elbow direction in state[0:2]; both directions to state.

    Rows of a trace are as those of `two_link`, in phase 1.
    """
    x = np.empty(2)
    ex, ey = state[0], state[1]
    fx, fy = dist - l2 * ex, -l2 * ey
    x[0] = np.arctan2(ey, ex)
    x[1] = r.wrap(np.arctan2(fy, fx) - x[0])
    place = nlopt_c.PARAMETERS
    data[place], data[place + 1], data[place + 2], data[place + 3] = l2, l3, dist, 0.0
    f = nlopt_c.minimise(
        s[PLANAR], x, x, x, False, data, int(s[RULE]), s[r.TOLERANCE_POSITION],
        min(int(s[MOST_EVALUATIONS]), work_left(s, counts)),
    )  # fmt: skip
    counts[COUNT_EVALUATIONS] += data[nlopt_c.COUNT]
    counts[COUNT_RUNS] += 1.0
    state[0], state[1] = np.cos(x[0]), np.sin(x[0])
    state[2], state[3] = np.cos(x[0] + x[1]), np.sin(x[0] + x[1])
    if trace.shape[0] > 0:
        log = nlopt_c.logged(data, 2)
        for i in range(log.shape[0]):
            if counts[ROW] < trace.shape[0]:
                row = trace[int(counts[ROW])]
                row[0], row[1], row[2] = 1.0, np.sqrt(log[i, 0]), 0.0
                row[3], row[4] = np.cos(log[i, 1]), np.sin(log[i, 1])
                row[5], row[6] = np.cos(log[i, 1] + log[i, 2]), np.sin(log[i, 1] + log[i, 2])
                counts[ROW] += 1.0
    return np.sqrt(f)


@kernel
def start_direction(vx, vy, dist, l2, l3, s, side):
    """Where the elbow starts, as (along, across) the direction to the target.

    (vx, vy) is the start direction in the same axes. Collinear with the target it would never leave the line, so it is
    bent towards `side` (+1 or -1 across); a chain that reaches the target straight is left straight.
    """
    if abs(vy) < 1e-6:
        if s[SKIP_STRETCHED] != 0.0 and vx > 0.0 and abs(l2 + l3 - dist) <= s[r.TOLERANCE_POSITION]:
            return vx, vy
        cos, sin = np.cos(s[BEND]), np.sin(s[BEND])
        along = cos * (1.0 if vx > 0.0 else -1.0)
        return along, sin * side
    return vx, vy


@kernel
def combined_ur(c, T, s, trace, data, counts, out):
    """All reachable targets of the UR family, each solved by `in_plane`; the nearest accepted answer stays in `out`."""
    D = ideal.family_target(c, T)
    p = int(c[PARAMETERS]) + 24
    l2, l3 = -c[p], -c[p + 1]
    work, theta, q, seed, best, state = np.empty(6), np.empty(6), np.empty(6), np.empty(6), np.empty(6), np.empty(4)
    for i in range(6):
        seed[i] = out[i]
        best[i] = out[i]
    theta6 = ideal.family_angle(c, seed, 5, 4)
    if s[FROM_SEED] != 0.0:
        t2 = ideal.family_angle(c, seed, 1, 4)
        v1, v0 = -np.cos(t2), -np.sin(t2)  # the seed's elbow direction along x_1 and z_0, in whichever plane
        t23 = t2 + ideal.family_angle(c, seed, 2, 4)
        side0 = -(v1 * -np.sin(t23) - v0 * -np.cos(t23))  # which way the elbow lies off the seed's own line
    else:
        v1, v0, side0 = -1.0, 0.0, 0.0
    nearest, least_miss, least_beyond, blocked, reachable, arrived, last_bend = np.inf, np.inf, np.inf, 0, 0, 0, 0.0
    for k1 in range(2):
        s1, c1, inside = ur_plane(c, D[9], D[10], k1)
        if inside > ideal.REACH_SLACK:
            continue
        for k5 in range(2):
            singular = ur_link5(c, D, s1, c1, k5, theta6, work)
            if singular and k5 == 1:
                continue
            w1, w0 = work[3] * c1 + work[4] * s1, work[5]
            dist = np.sqrt(w1 * w1 + w0 * w0)
            if dist > l2 + l3 + ideal.REACH_SLACK or dist < abs(l2 - l3) - ideal.REACH_SLACK:
                continue
            reachable += 1
            u1, u0 = (w1 / dist, w0 / dist) if dist > 0.0 else (1.0, 0.0)
            # `across` is the direction that turns x_1 towards z_0 by a right angle from u
            if side0 != 0.0:
                side = 1.0 if side0 > 0.0 else -1.0
            else:
                side = 1.0 if u1 >= 0.0 else -1.0  # towards +z_0
            along, across = start_direction(v1 * u1 + v0 * u0, v0 * u1 - v1 * u0, dist, l2, l3, s, side)
            first_row = int(counts[ROW])
            miss = in_plane(l2, l3, dist, along, across, s, data, trace, counts, state)
            if miss > s[r.TOLERANCE_POSITION]:
                if miss < least_miss:
                    least_miss, last_bend = miss, ideal.bend(l2, l3, dist)
            else:
                arrived += 1
            a1, a0 = u1 * state[0] - u0 * state[1], u0 * state[0] + u1 * state[1]
            b1, b0 = u1 * state[2] - u0 * state[3], u0 * state[2] + u1 * state[3]
            theta2 = np.arctan2(-a0, -a1)
            theta3 = r.wrap(np.arctan2(-b0, -b1) - theta2)
            if trace.shape[0] > 0:
                for i in range(first_row, int(counts[ROW])):
                    row = trace[i]
                    ex, ey, fx, fy = row[3], row[4], row[5], row[6]
                    t2 = np.arctan2(-(u0 * ex + u1 * ey), -(u1 * ex - u0 * ey))
                    t3 = r.wrap(np.arctan2(-(u0 * fx + u1 * fy), -(u1 * fx - u0 * fy)) - t2)
                    ur_angles(D, s1, c1, work, t2, t3, theta)
                    ideal.to_joints(c, theta, seed, q, 4)
                    for k in range(6):
                        row[3 + k] = q[k]
                    row[0] += 100.0 * (reachable - 1)
            ur_angles(D, s1, c1, work, theta2, theta3, theta)
            beyond, where, distance = ideal.to_joints(c, theta, seed, q, 4)
            if miss > s[r.TOLERANCE_POSITION]:
                if arrived == 0 and miss <= least_miss:
                    r.copy(q, best)
                continue
            if beyond > ideal.LIMIT_SLACK:
                if beyond < least_beyond:
                    least_beyond, blocked = beyond, where
                    if nearest == np.inf:
                        r.copy(q, best)
            elif distance < nearest:
                nearest = distance
                r.copy(q, best)
    if reachable == 0:
        solve_ur(c, T, POSE, s, out)  # the same proofs as the closed form's
        return
    r.copy(best, out)
    if nearest < np.inf:
        return
    if arrived == 0:
        _say_spent(c, s, l2, l3, counts, least_miss, last_bend, out)
    else:
        r.say(c, out, r.JOINT_LIMITS, r.BRANCHES_BLOCKED, float(arrived), float(blocked), least_beyond)


@kernel
def _say_spent(c, s, l2, l3, counts, miss, delta, out):
    if counts[OUT_OF_TIME] != 0.0:
        r.say(c, out, r.MAX_ITERATIONS, r.TIME_SPENT, s[it.MAX_SECONDS], counts[COUNT_CYCLES])
        return
    if work_left(s, counts) <= 0:
        r.say(c, out, r.MAX_ITERATIONS, r.BUDGET_SPENT, counts[COUNT_CYCLES] + counts[COUNT_EVALUATIONS], 0.0)
        return
    cycles = predicted_cycles(l2, l3, delta, s[r.TOLERANCE_POSITION])
    status = r.STALLED if s[WITH_SLSQP] != 0.0 else r.MAX_ITERATIONS
    r.say(c, out, status, r.FABRIK_SPENT, counts[COUNT_CYCLES], miss, delta, cycles)


@kernel
def combined_srs(c, T, s, trace, data, counts, out):
    """The srs family: the elbow's plane comes from the start direction, the joints from eight sign branches."""
    D = ideal.family_target(c, T)
    p = int(c[PARAMETERS]) + 24
    l2, l3 = c[p], c[p + 1]
    g, room, d = np.empty(CIRCLE), np.empty(ROOM), np.empty(6)
    seed, free, theta, q, trial, state = np.empty(7), np.empty(7), np.empty(7), np.empty(7), np.empty(7), np.empty(4)
    legal = np.empty(7)
    for i in range(7):
        seed[i] = out[i]
    gap = srs_circle(c, D, g)
    low, high = elbow_range(c)
    if gap > ideal.REACH_SLACK or g[13] > high + ideal.LIMIT_SLACK or g[13] < low - ideal.LIMIT_SLACK:
        solve_srs(c, T, POSE, s, out)  # the same proofs as the closed form's
        return
    srs_seed(c, g, seed, free)
    dist = g[16]
    # start direction v, in base axes of the ideal arm
    sine = np.sin(free[1])
    ex, ey, ez = sine * np.cos(free[0]), sine * np.sin(free[0]), np.cos(free[1])
    if s[FROM_SEED] != 0.0:
        vx, vy, vz = ex, ey, ez
    else:
        vx, vy, vz = 0.0, 0.0, 1.0
    along = vx * g[0] + vy * g[1] + vz * g[2]
    nx, ny, nz = vx - along * g[0], vy - along * g[1], vz - along * g[2]
    across = np.sqrt(nx * nx + ny * ny + nz * nz)
    if across < 1e-6:  # collinear: bend towards the seed's elbow, else towards x
        side = ex * g[0] + ey * g[1] + ez * g[2]
        nx, ny, nz = ex - side * g[0], ey - side * g[1], ez - side * g[2]
        size = np.sqrt(nx * nx + ny * ny + nz * nz)
        if size < 1e-6:
            nx, ny, nz = 1.0 - g[0] * g[0], -g[0] * g[1], -g[0] * g[2]
            size = np.sqrt(nx * nx + ny * ny + nz * nz)
            if size < 1e-6:
                nx, ny, nz = g[3], g[4], g[5]
                size = 1.0
    else:
        size = across
    nx, ny, nz = nx / size, ny / size, nz / size
    if s[FROM_SEED] != 0.0 and abs(free[3]) < STRAIGHT_SEED and STRETCHED < g[13] < NEXT_TO_STRAIGHT:
        sign2, sign6 = -1.0 if free[1] < 0.0 else 1.0, -1.0 if free[5] < 0.0 else 1.0
        if srs_from_straight(c, D, g, sign2, sign6, seed, free, d, theta, trial, q):  # a straight elbow has no plane
            psi, _, _, _ = srs_seed(c, g, q, legal)
            nx, ny, nz = (
                g[3] * np.cos(psi) + g[6] * np.sin(psi), g[4] * np.cos(psi) + g[7] * np.sin(psi),
                g[5] * np.cos(psi) + g[8] * np.sin(psi),
            )  # fmt: skip
    along, across = start_direction(along, across, dist, l2, l3, s, 1.0)
    psi = srs_elbow_direction_to_angle(g, nx, ny, nz)
    first_row = int(counts[ROW])
    miss = _spatial(c, g, l2, l3, dist, along, across, nx, ny, nz, seed, free, s, data, trace, counts, state, d)
    least, blocked = _best_branch(c, D, d, seed, free, theta, trial, q)
    _rows_to_joints(c, D, g, nx, ny, nz, 0.0, first_row, trace, counts, seed, free, room, theta, trial)
    r.copy(q, out)
    out[7 + r.SINGULAR_POSE] = 1.0 if g[13] < STRETCHED else 0.0
    if miss > s[r.TOLERANCE_POSITION]:
        _say_spent(c, s, l2, l3, counts, miss, g[13], out)
        return
    if least <= ideal.LIMIT_SLACK:
        return
    if s[FURTHER] != 0.0 and g[13] > STRETCHED:
        found, _, _ = srs_legal_near(c, D, g, psi, seed, free, room, trial)
        if found:
            angle = room[MAX_ROOTS + 8]
            cos, sin = np.cos(angle), np.sin(angle)
            nx, ny, nz = g[3] * cos + g[6] * sin, g[4] * cos + g[7] * sin, g[5] * cos + g[8] * sin
            turn = max(s[BEND], 0.5)
            first_row = int(counts[ROW])
            r.copy(trial, legal)
            miss = in_plane(l2, l3, dist, np.cos(turn), np.sin(turn), s, data, trace, counts, state)
            _rows_to_joints(c, D, g, nx, ny, nz, 100.0, first_row, trace, counts, seed, free, room, theta, trial)
            for i in range(2):
                a, b = state[2 * i], state[2 * i + 1]
                d[3 * i], d[3 * i + 1], d[3 * i + 2] = a * g[0] + b * nx, a * g[1] + b * ny, a * g[2] + b * nz
            least, blocked = _best_branch(c, D, d, seed, free, theta, trial, q)
            r.copy(q, out)
            if miss > s[r.TOLERANCE_POSITION]:
                _say_spent(c, s, l2, l3, counts, miss, g[13], out)
                return
            if (
                least > ideal.LIMIT_SLACK
            ):  # an arc so narrow that the tolerance of the iteration leaves it: take its own joints
                r.copy(legal, out)
            return
    r.say(c, out, r.JOINT_LIMITS, r.BRANCHES_BLOCKED, 8.0, float(blocked), least)


@kernel
def _rows_to_joints(c, D, g, nx, ny, nz, phase, first, trace, counts, seed, free, d, theta, trial):
    """Trace rows from `first` on: from link directions in the plane of the target's direction and n to joints.

    Rows of SLSQP on the first four joints already hold directions in space, six numbers; their phase is 2 so far.
    """
    for i in range(first, int(counts[ROW])):
        row = trace[i]
        if row[0] == 2.0:
            row[0] = 1.0
            r.copy(row[3:9], d)
        else:
            for k in range(2):
                a, b = row[3 + 2 * k], row[4 + 2 * k]
                d[3 * k], d[3 * k + 1], d[3 * k + 2] = a * g[0] + b * nx, a * g[1] + b * ny, a * g[2] + b * nz
        row[0] += phase
        _best_branch(c, D, d, seed, free, theta, trial, row[3:])


@kernel
def _first_four(x, d):
    """Link directions, to d, that the first four angles x give."""
    c1, s1, c2, s2 = np.cos(x[0]), np.sin(x[0]), np.cos(x[1]), np.sin(x[1])
    c3, s3, c4, s4 = np.cos(x[2]), np.sin(x[2]), np.cos(x[3]), np.sin(x[3])
    d[0], d[1], d[2] = s2 * c1, s2 * s1, c2
    u, v = s4 * c3, s4 * s3
    d[3] = u * c2 * c1 - v * s1 + c4 * s2 * c1
    d[4] = u * c2 * s1 + v * c1 + c4 * s2 * s1
    d[5] = -u * s2 + c4 * c2


@kernel
def _spatial(c, g, l2, l3, dist, along, across, nx, ny, nz, seed, free, s, data, trace, counts, state, d):
    """Link directions (to d): FABRIK in the plane of u and n, then SLSQP. Returns the miss.

    After a fixed number of cycles SLSQP works on the first four joints; after the predicted one on the two angles in
    that plane, a third of the work.
    """
    crawls = s[PREDICT] != 0.0 and predicted_cycles(l2, l3, g[13], s[r.TOLERANCE_POSITION]) > s[PREDICT]
    if crawls:
        most = 0
    else:
        most = min(int(s[CYCLES]), work_left(s, counts))
    miss = two_link(l2, l3, dist, along, across, s[r.TOLERANCE_POSITION], most, trace, counts, state)
    a, b = state[0], state[1]
    fa, fb = dist - l2 * a, -l2 * b
    size = np.sqrt(fa * fa + fb * fb)
    fa, fb = (fa / size, fb / size) if size > 0.0 else (1.0, 0.0)
    d[0], d[1], d[2] = a * g[0] + b * nx, a * g[1] + b * ny, a * g[2] + b * nz
    d[3], d[4], d[5] = fa * g[0] + fb * nx, fa * g[1] + fb * ny, fa * g[2] + fb * nz
    if miss <= s[r.TOLERANCE_POSITION] or s[WITH_SLSQP] == 0.0 or work_left(s, counts) <= 0:
        return miss
    if s[PREDICT] == 0.0:
        miss = _optimise_first_four(c, g, l2, l3, dist, seed, free, s, data, trace, counts, d)
        if miss <= s[r.TOLERANCE_POSITION] or work_left(s, counts) <= 0:
            return miss
        # θ_2 = 0 and θ_3 = ±90° are stationary for these angles though not for the arm: finish in the elbow's plane.
    miss = _optimise_in_plane(l2, l3, dist, state, s, data, trace, counts)
    for i in range(2):
        a, b = state[2 * i], state[2 * i + 1]
        d[3 * i], d[3 * i + 1], d[3 * i + 2] = a * g[0] + b * nx, a * g[1] + b * ny, a * g[2] + b * nz
    return miss


@kernel
def _optimise_first_four(c, g, l2, l3, dist, seed, free, s, data, trace, counts, d):
    """SLSQP on the first four joints, as the source has it, from the link directions in d and back to them."""
    x = np.empty(4)
    _shoulder_angles(c, d, seed, free, x)
    place = nlopt_c.PARAMETERS
    data[place], data[place + 1] = l2, l3
    data[place + 2], data[place + 3], data[place + 4] = dist * g[0], dist * g[1], dist * g[2]
    f = nlopt_c.minimise(
        s[SPATIAL], x, x, x, False, data, int(s[RULE]), s[r.TOLERANCE_POSITION],
        min(int(s[MOST_EVALUATIONS]), work_left(s, counts)),
    )  # fmt: skip
    counts[COUNT_EVALUATIONS] += data[nlopt_c.COUNT]
    counts[COUNT_RUNS] += 1.0
    _first_four(x, d)
    if trace.shape[0] > 0:
        log = nlopt_c.logged(data, 4)
        for i in range(log.shape[0]):
            if counts[ROW] < trace.shape[0]:
                row = trace[int(counts[ROW])]
                row[0], row[1], row[2] = 2.0, np.sqrt(log[i, 0]), 0.0
                _first_four(log[i, 1:], row[3:])
                counts[ROW] += 1.0
    return np.sqrt(f)


@kernel
def _shoulder_angles(c, d, seed, free, x):
    """The first four angles for link directions d, with the signs of θ_2 and θ_4 that are legal and nearest to the seed.

    Seed angles outside the limits would be clipped by an optimiser with bounds and mislead it; one of the four pairs
    of signs is legal on all but a few poses.
    """
    p = int(c[PARAMETERS]) + 26
    across = np.sqrt(d[0] * d[0] + d[1] * d[1])
    best = np.inf
    for pair in range(4):
        s2, s4 = 1.0 - 2.0 * (pair & 1), 1.0 - (pair & 2)
        t2 = s2 * np.arctan2(across, d[2])
        t1 = free[0] if across < 1e-11 else np.arctan2(s2 * d[1], s2 * d[0])
        c1, s1, c2, sin2 = np.cos(t1), np.sin(t1), np.cos(t2), np.sin(t2)
        px = d[3] * c2 * c1 + d[4] * c2 * s1 - d[5] * sin2
        py = -d[3] * s1 + d[4] * c1
        pz = d[3] * sin2 * c1 + d[4] * sin2 * s1 + d[5] * c2
        size = np.sqrt(px * px + py * py)
        t4 = s4 * np.arctan2(size, pz)
        t3 = free[2] if size < 1e-11 else np.arctan2(s4 * py, s4 * px)
        cost = 0.0
        for i in range(4):
            t = t1 if i == 0 else (t2 if i == 1 else (t3 if i == 2 else t4))
            value = c[p + i] * (t - c[p + 7 + i])
            low, high = c[int(c[LOWER]) + i], c[int(c[UPPER]) + i]
            value, beyond = r.nearest_turn(value, seed[i], low, high)
            cost += (value - seed[i]) * (value - seed[i]) + (1e6 * (1.0 + beyond) if beyond > 0.0 else 0.0)
        if cost < best:
            best = cost
            x[0], x[1], x[2], x[3] = t1, t2, t3, t4


@kernel
def _best_branch(c, D, d, seed, free, theta, trial, q):
    """The legal sign branch nearest to the seed, else the one that breaks its limits least, to q.

    Returns its largest violation [rad] and the joint that has it.
    """
    signs = int(c[PARAMETERS]) + 26
    least, blocked, best = np.inf, 0, np.inf
    for branch in range(8):
        s2, s4, s6 = 1.0 - 2.0 * (branch & 1), 1.0 - (branch & 2), 1.0 - 0.5 * (branch & 4)
        pairs = srs_angles(D, d, s2, s4, s6, free, theta)
        beyond, where, away = ideal.to_joints(c, theta, seed, trial, 2)
        if pairs and beyond > 0.0:
            share_pairs(c, pairs, seed, theta, signs)
            beyond, where, away = ideal.to_joints(c, theta, seed, trial, 2)
        if beyond <= ideal.LIMIT_SLACK:
            if least > ideal.LIMIT_SLACK or away < best:
                least, blocked, best = beyond, where, away
                for i in range(7):
                    q[i] = trial[i]
        elif beyond < least:
            least, blocked = beyond, where
            for i in range(7):
                q[i] = trial[i]
    return least, blocked


@kernel
def combined_chain(c, T, kind, s, trace, out):
    """Any other chain or target: FABRIK on the chain's own hinges, then SLSQP on all joints; restarts between."""
    n, m = int(c[DOF]), int(c[JOINTS])
    w = it.start(c, s, out)
    st = w.state
    G, H, room = np.empty((m + 1, 12)), np.empty((m + 1, 12)), np.empty((2, 12))
    lower, upper = np.empty(n), np.empty(n)
    for i in range(n):
        lower[i], upper[i] = c[int(c[LOWER]) + i], c[int(c[UPPER]) + i]
    with_slsqp = s[WITH_SLSQP] != 0.0
    rows = min(trace.shape[0], int(s[MOST_EVALUATIONS]))
    data = slsqp.chain_block(c, T, kind, rows) if with_slsqp else np.empty(0)
    length = st[it.LENGTH] / max(n, 1)
    evaluations, runs, cycles, spent_here = 0.0, 0.0, 0.0, 0
    restart = -1.0
    while it.goes_on(c, T, kind, s, trace, w, out):
        if st[it.RESTART] != restart:
            restart, spent_here = st[it.RESTART], 0
        if with_slsqp and spent_here >= (15 if s[PREDICT] != 0.0 else int(s[CYCLES])):
            it.nudge(c, w, 1e-4)  # off a straight chain, where the gradient vanishes
            most = int(min(s[MOST_EVALUATIONS], s[it.MAX_ITERATIONS] - st[it.ITERATION] + 1.0))
            used = slsqp.run_chain(c, T, kind, s, w, data, s[WHOLE_CHAIN], lower, upper, most, trace)
            evaluations += used
            runs += 1.0
            st[it.ITERATION] += used - 1.0
            st[it.WAITED] = s[it.PATIENCE]  # a finished run has nothing to wait for: the next start is random
            st[it.LAST_BEST] = 0.0
            continue
        for i in range(n):
            w.dq[i] = w.q[i]
        hinge_fabrik.place_frames(c, w.q, G)
        hinge_fabrik.cycle(c, T, kind, w.q, length, G, H, room)
        cycles += 1.0
        spent_here += 1
        moved = 0.0
        for i in range(n):
            moved = max(moved, abs(w.q[i] - w.dq[i]))
        if moved < 1e-9:
            it.nudge(c, w, s[BEND])  # a chain in line with its target: no cycle leaves the line
    it.conclude(c, T, kind, s, w, out)
    out[n + r.ITERATIONS] = cycles
    out[n + r.EVALUATIONS] = evaluations
    out[n + r.SLSQP_RUNS] = runs


@kernel
def whole_chain(c, T, kind, q_seed, s, out):
    """Any chain and target: see `combined_chain`."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        combined_chain(c, T, kind, s, r.trace_rows(c, out), out)
    return code


@kernel
def fresh_counts(s):
    """The scratch row of one solve, with its deadline."""
    counts = np.zeros(8)
    if s[it.MAX_SECONDS] > 0.0:
        counts[DEADLINE] = it.seconds() + s[it.MAX_SECONDS]
    return counts


@kernel
def _write_counts(c, counts, out):
    n = int(c[DOF])
    out[n + r.ITERATIONS] = counts[COUNT_CYCLES]
    out[n + r.EVALUATIONS] = counts[COUNT_EVALUATIONS]
    out[n + r.SLSQP_RUNS] = counts[COUNT_RUNS]
    out[n + r.TRACE_ROWS] = counts[ROW]


@kernel
def two_link_ur(c, T, kind, q_seed, s, out):
    """Poses on an exact UR arm."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        counts = fresh_counts(s)
        trace = r.trace_rows(c, out)
        combined_ur(c, T, s, trace, nlopt_c.block_for(2, min(trace.shape[0], int(s[MOST_EVALUATIONS]))), counts, out)
        _write_counts(c, counts, out)
        r.judge(c, T, kind, s, out)
    return code


@kernel
def two_link_srs(c, T, kind, q_seed, s, out):
    """Poses on an exact srs arm."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        counts = fresh_counts(s)
        trace = r.trace_rows(c, out)
        combined_srs(c, T, s, trace, nlopt_c.block_for(4, min(trace.shape[0], int(s[MOST_EVALUATIONS]))), counts, out)
        _write_counts(c, counts, out)
        r.judge(c, T, kind, s, out)
    return code


@kernel
def two_link_near(c, T, kind, q_seed, s, out):
    """An arm that is almost of its family: solved on the ideal arm, polished on the real one."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        counts = fresh_counts(s)
        trace = r.trace_rows(c, out)
        data = nlopt_c.block_for(4, min(trace.shape[0], int(s[MOST_EVALUATIONS])))
        if c[FAMILY] == 3.0:
            combined_ur(c, T, s, trace, data, counts, out)
        else:
            combined_srs(c, T, s, trace, data, counts, out)
        _write_counts(c, counts, out)
        finish_on_real(c, T, kind, s, out)
    return code


def kernel_for(family: str, near: bool, kind: int) -> Any:
    """The kernel for chains of a family: the two-link way where the wrist can be taken off, else the whole chain."""
    if kind != POSE or family not in ("ur", "srs"):
        return whole_chain
    if near:
        return two_link_near
    return two_link_ur if family == "ur" else two_link_srs


@dataclass(frozen=True)
class Combined(KernelSolver):
    """FABRIK, then SLSQP. On the UR and srs families the two-link way for poses; else the whole chain; any target."""

    stop: Tolerance = Tolerance()
    """Stopping rule and verdict; the position part also stops FABRIK and SLSQP."""
    switch_after: int | Literal["predicted"] = "predicted"
    """n_l, the cycles before SLSQP takes over (the source picks 5 for the UR5, 15 for the iiwa); "predicted" goes to
    SLSQP at once where the known bend of the answer tells that FABRIK would need more than 200 cycles, about the cost
    of an SLSQP run, and lets FABRIK finish elsewhere. SLSQP then takes the two angles in the elbow's plane; after a
    fixed n_l, on the srs family, the first four joints, as the source has it. A whole chain switches after 15 cycles."""
    stopping_rule: Literal["precise", "stopval", "ftol"] = "precise"
    """Of SLSQP on f = miss²: precise is f ≤ 1e-6 ε²; stopval f ≤ ε²; ftol a change of f ≤ ε², as the source has it,
    which loses up to 3 % of poses."""
    start: Literal["seed", "stretched"] = "seed"
    """Where the elbow starts: at the seed's elbow, which keeps a path on its branch, or in the direction of the
    stretched zero posture, as the source has it."""
    further_elbows: bool = True
    """srs family: when the limits allow no joints at the first elbow direction, go on with a legal one."""
    bend: float = 0.1
    """How far a chain in line with its target is bent before the first cycle [rad]."""
    skip_stretched: bool = True
    """Take a chain that reaches its target straight as it is, without bending it first."""
    max_evaluations: int = 200
    """Cap on SLSQP's evaluations per two-link target or start."""
    max_iterations: int = 5000
    """Budget of cycles and evaluations together, over all targets of a pose and all restarts."""
    restarts: int = 50
    """Whole chains: random starts after the seed."""
    seed: int = 0
    """Of the random starts."""
    max_seconds: float = 0.0
    """Budget in time [s]; 0 for none."""

    def __post_init__(self) -> None:
        """Check what the type alone can't."""
        if self.switch_after != "predicted" and not (isinstance(self.switch_after, int) and self.switch_after >= 0):
            raise InvalidArgumentError(
                "switch_after", f'must be a number of cycles or "predicted", not {self.switch_after!r}'
            )
        if self.stopping_rule not in nlopt_c.RULES:
            raise InvalidArgumentError(
                "stopping_rule", f"must be one of {', '.join(nlopt_c.RULES)}, not {self.stopping_rule!r}"
            )
        if self.start not in ("seed", "stretched"):
            raise InvalidArgumentError("start", f'must be "seed" or "stretched", not {self.start!r}')
        super().__post_init__()

    def kernel_for(self, family: str, near: bool, kind: int) -> Any:
        """See :func:`kernel_for`."""
        return kernel_for(family, near, kind)

    def _prepare(self) -> None:
        nlopt_c.load()
        addresses = nlopt_c.planar_objective(), nlopt_c.spatial_objective(), slsqp.chain_objective()
        self._settings[[PLANAR, SPATIAL, WHOLE_CHAIN]] = addresses  # type: ignore[attr-defined]

    def settings(self) -> tuple[float, ...]:
        """In the order of the constants above; the callbacks' addresses are filled in when they exist."""
        predicted = self.switch_after == "predicted"
        cycles = 400 if predicted else int(self.switch_after)
        return (
            self.max_iterations, self.restarts, self.seed, self.max_seconds, 300, 0.9,
            cycles, 1, 200 if predicted else 0, nlopt_c.RULES[self.stopping_rule], self.start == "seed",
            self.further_elbows, self.bend, 0, 0, self.max_evaluations, self.skip_stretched, 0,
        )  # fmt: skip
