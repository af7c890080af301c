"""The UR family: six joints, three of them parallel.

A target fixes the wrist centre, that fixes θ_1 up to two values, the tool axis fixes the direction of link 5 up to its
sign, and a two-link triangle does the rest: at most eight branches.

Source: Hawkins 2013.
"""

import numpy as np

from ik_sim.chain import LOWER, PARAMETERS, UPPER
from ik_sim.compiled import kernel
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import record as r


@kernel
def ur_plane(c, x, y, k1):
    """Sine and cosine of θ_1 on branch k1 for a wrist centre at (x, y), and by how much it is inside the shoulder cylinder."""
    d4 = c[int(c[PARAMETERS]) + 26]
    rho = np.sqrt(x * x + y * y)
    if rho < 1e-12:
        return 0.0, 1.0, abs(d4)
    root = np.sqrt(max((rho - d4) * (rho + d4), 0.0))
    if k1 == 1:
        root = -root
    # θ_1 = ψ + g with sin g = d4/ρ; the other branch has π - g.
    s1 = (y * root + x * d4) / (rho * rho)
    c1 = (x * root - y * d4) / (rho * rho)
    length = np.sqrt(s1 * s1 + c1 * c1)
    return s1 / length, c1 / length, abs(d4) - rho


@kernel
def ur_link5(c, D, s1, c1, k5, theta6, out):
    """Direction of link 5 and where the two-link tip must come, in the arm plane.

    D is the target in family axes (see `family_target`). Writes to out: direction (3), tip relative to the shoulder (3).
    Returns whether the wrist is singular, and so θ_6 free: it takes `theta6`, turned as little as reach demands.
    """
    p = int(c[PARAMETERS]) + 24
    l2, l3, d4, d5 = -c[p], -c[p + 1], c[p + 2], c[p + 3]
    wx, wy, wz = D[9] - d4 * s1, D[10] + d4 * c1, D[11]  # wrist centre projected into the plane
    out_of_plane = wx * s1 - wy * c1
    wx, wy = wx - out_of_plane * s1, wy + out_of_plane * c1
    # z_2d × z_d with z_2d = (s1, -c1, 0)
    kx, ky, kz = -c1 * D[8], -s1 * D[8], s1 * D[5] + c1 * D[2]
    size = np.sqrt(kx * kx + ky * ky + kz * kz)
    singular = size < 1e-10
    if singular:
        s6, c6 = np.sin(theta6), np.cos(theta6)
        kx, ky, kz = -(s6 * D[0] + c6 * D[1]), -(s6 * D[3] + c6 * D[4]), -(s6 * D[6] + c6 * D[7])
        along = kx * s1 - ky * c1
        kx, ky = kx - along * s1, ky + along * c1
        size = np.sqrt(kx * kx + ky * ky + kz * kz)
    elif k5 == 1:
        size = -size
    kx, ky, kz = kx / size, ky / size, kz / size
    if abs(size) < 1e-6 or singular:
        # The direction is free (or only noise): turn it about z_2d by the least angle that brings the tip into the ring.
        square = wx * wx + wy * wy + wz * wz
        dot = wx * kx + wy * ky + wz * kz
        low = (square + d5 * d5 - (l2 + l3) * (l2 + l3)) / (2.0 * d5)
        high = (square + d5 * d5 - (l2 - l3) * (l2 - l3)) / (2.0 * d5)
        if d5 < 0.0:
            low, high = high, low
        wanted = min(max(dot, low), high)
        reach = np.sqrt(square)
        if wanted != dot and abs(wanted) <= reach and (singular or abs(wanted - dot) < 1e-4):
            # unit vector across: z_2d × ŵ; the new direction has `wanted` along w and the rest across, on its own side
            ux, uy, uz = wx / reach, wy / reach, wz / reach
            ax, ay, az = -c1 * uz, -s1 * uz, s1 * uy + c1 * ux
            side = kx * ax + ky * ay + kz * az
            along = wanted / reach
            across = np.sqrt(max(1.0 - along * along, 0.0))
            if side < 0.0:
                across = -across
            kx, ky, kz = along * ux + across * ax, along * uy + across * ay, along * uz + across * az
    out[0], out[1], out[2] = kx, ky, kz
    out[3], out[4], out[5] = wx - d5 * kx, wy - d5 * ky, wz - d5 * kz
    return singular


@kernel
def ur_wrist(D, s1, c1, link5):
    """θ_2 + θ_3 + θ_4, θ_5 and θ_6 once plane and link 5 are chosen; the orientation is met whatever θ_2 and θ_3 are."""
    s234, c234 = link5[0] * c1 + link5[1] * s1, -link5[2]
    size = np.sqrt(s234 * s234 + c234 * c234)
    s234, c234 = s234 / size, c234 / size
    x4x, x4y, x4z = c234 * c1, c234 * s1, s234
    cos5 = s1 * D[2] - c1 * D[5]
    sin5 = -(x4x * D[2] + x4y * D[5] + x4z * D[8])
    size = np.sqrt(sin5 * sin5 + cos5 * cos5)
    s5, c5 = sin5 / size, cos5 / size
    x5x, x5y, x5z = c5 * x4x + s5 * s1, c5 * x4y - s5 * c1, c5 * x4z
    y5x, y5y, y5z = -s234 * c1, -s234 * s1, c234  # y_5 = -z_4
    theta6 = np.arctan2(D[0] * y5x + D[3] * y5y + D[6] * y5z, D[0] * x5x + D[3] * x5y + D[6] * x5z)
    return np.arctan2(s234, c234), np.arctan2(sin5, cos5), theta6


@kernel
def ur_angles(D, s1, c1, link5, theta2, theta3, theta):
    """All six angles once the plane, link 5 and the two-link angles are chosen."""
    sum234, theta5, theta6 = ur_wrist(D, s1, c1, link5)
    theta[0], theta[1], theta[2] = np.arctan2(s1, c1), theta2, theta3
    theta[3], theta[4], theta[5] = r.wrap(sum234 - theta2 - theta3), theta5, theta6


@kernel
def ur_branch(c, D, k1, k5, k3, theta6, work, theta):
    """Branch (k1, k5, k3) as six family angles. Returns (reach gap [m], wrist singular); a gap above 0 is out of reach.

    With a gap the angles belong to the nearest reachable tip.
    """
    p = int(c[PARAMETERS]) + 24
    l2, l3 = -c[p], -c[p + 1]
    s1, c1, inside = ur_plane(c, D[9], D[10], k1)
    singular = ur_link5(c, D, s1, c1, k5, theta6, work)
    X, Y = -(work[3] * c1 + work[4] * s1), -work[5]
    dist = np.sqrt(X * X + Y * Y)
    gap = max(dist - (l2 + l3), abs(l2 - l3) - dist)
    delta = ideal.bend(l2, l3, dist)
    theta3 = delta if k3 == 0 else -delta
    theta2 = r.wrap(np.arctan2(Y, X) - np.arctan2(l3 * np.sin(theta3), l2 + l3 * np.cos(theta3)))
    ur_angles(D, s1, c1, work, theta2, theta3, theta)
    return max(gap, inside), singular


@kernel
def _joint(c, i, theta, seed):
    """Family angle i as a joint value: (value, violation) by the legal turn nearest to the seed."""
    signs = int(c[PARAMETERS]) + 28
    value = c[signs + i] * (theta - c[signs + 6 + i])
    return r.nearest_turn(value, seed, c[int(c[LOWER]) + i], c[int(c[UPPER]) + i])


@kernel
def solve_ur(c, T, kind, s, out):
    """Nearest legal branch. Leaves joints and, on a miss, status and reason in `out`; True when a branch is legal.

    The joints that branches share are weighed first, and branches given up as soon as another one is nearer.
    """
    D = ideal.family_target(c, T)
    p = int(c[PARAMETERS]) + 24
    l2, l3 = -c[p], -c[p + 1]
    work, seed = np.empty(6), np.empty(6)
    for i in range(6):
        seed[i] = out[i]
    theta6 = ideal.family_angle(c, seed, 5, 4)
    nearest = np.inf
    for k1 in range(2):
        s1, c1, inside = ur_plane(c, D[9], D[10], k1)
        if inside > ideal.REACH_SLACK:
            break
        q1, beyond = _joint(c, 0, np.arctan2(s1, c1), seed[0])
        d1 = (q1 - seed[0]) * (q1 - seed[0])
        if beyond > ideal.LIMIT_SLACK or d1 >= nearest:
            continue
        for k5 in range(2):
            singular = ur_link5(c, D, s1, c1, k5, theta6, work)
            if singular and k5 == 1:
                continue
            X, Y = -(work[3] * c1 + work[4] * s1), -work[5]
            dist = np.sqrt(X * X + Y * Y)
            if dist > l2 + l3 + ideal.REACH_SLACK or dist < abs(l2 - l3) - ideal.REACH_SLACK:
                continue
            sum234, theta5, angle6 = ur_wrist(D, s1, c1, work)
            q5, beyond5 = _joint(c, 4, theta5, seed[4])
            q6, beyond6 = _joint(c, 5, angle6, seed[5])
            d5 = d1 + (q5 - seed[4]) * (q5 - seed[4]) + (q6 - seed[5]) * (q6 - seed[5])
            if beyond5 > ideal.LIMIT_SLACK or beyond6 > ideal.LIMIT_SLACK or d5 >= nearest:
                continue
            delta, beta = ideal.elbow_triangle(l2, l3, dist)
            direction = np.arctan2(Y, X)
            for k3 in range(2):
                theta3 = delta if k3 == 0 else -delta
                theta2 = direction - (beta if k3 == 0 else -beta)
                q2, beyond2 = _joint(c, 1, theta2, seed[1])
                q3, beyond3 = _joint(c, 2, theta3, seed[2])
                q4, beyond4 = _joint(c, 3, sum234 - theta2 - theta3, seed[3])
                distance = (
                    d5
                    + (q2 - seed[1]) * (q2 - seed[1])
                    + (q3 - seed[2]) * (q3 - seed[2])
                    + (q4 - seed[3]) * (q4 - seed[3])
                )
                if (
                    distance < nearest
                    and beyond2 <= ideal.LIMIT_SLACK
                    and beyond3 <= ideal.LIMIT_SLACK
                    and beyond4 <= ideal.LIMIT_SLACK
                ):
                    nearest = distance
                    out[0], out[1], out[2], out[3], out[4], out[5] = q1, q2, q3, q4, q5, q6
                    out[6 + r.SINGULAR_POSE] = 1.0 if singular else 0.0
    if nearest < np.inf:
        return True
    _why_no_ur_branch(c, D, seed, theta6, work, out)
    return False


@kernel
def _why_no_ur_branch(c, D, seed, theta6, work, out):
    """Which ring radius the nearest of the four tips misses, or how the limits block what is in reach.

    The joints are those that come nearest, and nearest to the seed among them.
    """
    p = int(c[PARAMETERS]) + 24
    outer, inner = -c[p] - c[p + 1], abs(c[p] - c[p + 1])
    theta, q, gaps = np.empty(6), np.empty(6), np.empty(4)
    least, beside, dist, x, y, z = np.inf, 0.0, 0.0, 0.0, 0.0, 0.0
    for k1 in range(2):
        s1, c1, beside = ur_plane(c, D[9], D[10], k1)
        for k5 in range(2):
            ur_link5(c, D, s1, c1, k5, theta6, work)
            far = np.sqrt(work[3] * work[3] + work[4] * work[4] + work[5] * work[5])
            gap = max(far - outer, inner - far)
            gaps[2 * k1 + k5] = gap
            if gap < least:
                least, dist, x, y, z = gap, far, work[3], work[4], work[5]
    if max(least, beside) <= ideal.REACH_SLACK:
        _say_ur_blocked(c, D, seed, theta6, work, theta, q, out)
        return
    best = np.inf
    for k in range(8):
        if gaps[k // 2] > max(least, 0.0) or (k % 2 == 1 and least > 0.0):
            continue  # farther than need be, or stretched or folded, where both elbows are one
        ur_branch(c, D, k // 4, k // 2 % 2, k % 2, theta6, work, theta)
        beyond, _, away = ideal.to_joints(c, theta, seed, q, 4)
        if beyond > ideal.LIMIT_SLACK:
            away += 1e6 * (1.0 + beyond)
        if away < best:
            best = away
            r.copy(q, out)
    if beside > ideal.REACH_SLACK:
        r.say(c, out, r.OUT_OF_REACH, r.INSIDE_CYLINDER, abs(c[p + 2]) - beside, abs(c[p + 2]))
    elif dist > outer:
        r.say(c, out, r.OUT_OF_REACH, r.BEYOND_OUTER, dist - outer, outer, x / dist, y / dist, z / dist)
    else:
        r.say(c, out, r.OUT_OF_REACH, r.INSIDE_INNER, inner - dist, inner)


@kernel
def _say_ur_blocked(c, D, seed, theta6, work, theta, q, out):
    """All branches in reach once more, for the one that breaks its limits least."""
    least, blocked, reachable = np.inf, 0, 0
    for k1 in range(2):
        for k5 in range(2):
            for k3 in range(2):
                gap, singular = ur_branch(c, D, k1, k5, k3, theta6, work, theta)
                if gap > 2.0 * ideal.REACH_SLACK or (singular and k5 == 1):
                    continue
                reachable += 1
                beyond, where, _ = ideal.to_joints(c, theta, seed, q, 4)
                if beyond < least:
                    least, blocked = beyond, where
                    r.copy(q, out)
    r.say(c, out, r.JOINT_LIMITS, r.BRANCHES_BLOCKED, float(reachable), float(blocked), least)
