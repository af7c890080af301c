"""The srs family: seven joints, shoulder and wrist spherical.

The elbow may turn on a circle about the line from shoulder to wrist. With the arm angle ψ on that circle every joint is
an arc tangent or cosine of sines and cosines of ψ, so the joint limits cut the circle into arcs whose ends are roots of
k_0 + k_c cos ψ + k_s sin ψ.

Source: Shimizu et al. 2008.
"""

import numpy as np

from ik_sim.chain import LOWER, PARAMETERS, UPPER
from ik_sim.compiled import kernel
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import record as r

STRETCHED = 1e-6  # [rad] bend below which an elbow counts as straight
STRAIGHT_SEED = 1e-3  # [rad] bend below which a seed's elbow says nothing about the arm angle …
NEXT_TO_STRAIGHT = 0.1  # [rad] … and bend of an answer below which one near such a seed is worth a search
CIRCLE = 24  # numbers that describe one elbow circle, see `srs_circle`


@kernel
def srs_circle(c, D, g):
    """Everything about the elbow circle of a target that doesn't depend on the arm angle. Returns the reach gap [m].

    Writes to g: u (0-2) from shoulder to wrist, e1 (3-5), e2 (6-8), cos β, sin β, cos γ, sin γ, δ, cos δ, sin δ (9-15),
    the distance (16).
    """
    p = int(c[PARAMETERS]) + 24
    l2, l3 = c[p], c[p + 1]
    x, y, z = D[9], D[10], D[11]
    dist = np.sqrt(x * x + y * y + z * z)
    if dist > 1e-12:
        ux, uy, uz = x / dist, y / dist, z / dist
    else:
        ux, uy, uz = 0.0, 0.0, 1.0
    across = np.sqrt(ux * ux + uy * uy)
    if across > 1e-9:
        e1x, e1y, e1z = -uz * ux / across, -uz * uy / across, across
    else:  # above or below the shoulder: count the arm angle from x
        e1x, e1y, e1z = 1.0, 0.0, 0.0
        along = ux
        e1x, e1y, e1z = e1x - along * ux, e1y - along * uy, e1z - along * uz
        size = np.sqrt(e1x * e1x + e1y * e1y + e1z * e1z)
        e1x, e1y, e1z = e1x / size, e1y / size, e1z / size
    g[0], g[1], g[2], g[3], g[4], g[5] = ux, uy, uz, e1x, e1y, e1z
    g[6], g[7], g[8] = uy * e1z - uz * e1y, uz * e1x - ux * e1z, ux * e1y - uy * e1x
    delta = ideal.bend(l2, l3, dist)
    cd, sd = np.cos(delta), np.sin(delta)
    reach = np.sqrt(l2 * l2 + l3 * l3 + 2.0 * l2 * l3 * cd)  # the ring's end when the target is outside it
    if reach > 1e-12:
        g[9], g[10], g[11], g[12] = (l2 + l3 * cd) / reach, l3 * sd / reach, (l3 + l2 * cd) / reach, l2 * sd / reach
    else:  # equal links folded onto the shoulder: any direction will do
        g[9], g[10], g[11], g[12] = 0.0, 1.0, 0.0, 1.0
    g[13], g[14], g[15], g[16] = delta, cd, sd, dist
    return max(dist - (l2 + l3), abs(l2 - l3) - dist)


@kernel
def srs_directions(g, cp, sp, d):
    """Directions of upper arm (0-2) and forearm (3-5) at the arm angle with cosine cp and sine sp."""
    vx, vy, vz = g[3] * cp + g[6] * sp, g[4] * cp + g[7] * sp, g[5] * cp + g[8] * sp
    d[0], d[1], d[2] = g[9] * g[0] + g[10] * vx, g[9] * g[1] + g[10] * vy, g[9] * g[2] + g[10] * vz
    d[3], d[4], d[5] = g[11] * g[0] - g[12] * vx, g[11] * g[1] - g[12] * vy, g[11] * g[2] - g[12] * vz


@kernel
def srs_elbow_direction_to_angle(g, x, y, z):
    """Arm angle of an elbow that lies towards (x, y, z); 0 when that is along the circle's axis."""
    a, b = x * g[3] + y * g[4] + z * g[5], x * g[6] + y * g[7] + z * g[8]
    return np.arctan2(b, a) if a * a + b * b > 1e-20 else 0.0


@kernel
def srs_angles(D, d, s2, s4, s6, free, theta):
    """Seven family angles from link directions d and the signs of θ_2, θ_4, θ_6.

    Where a pair of joints turns about one line only their sum counts: the first keeps its value in `free`.
    Returns a bit mask of such pairs (1: joints 1 and 3, 2: joints 3 and 5, 4: joints 5 and 7).
    """
    pairs = 0
    ax, ay, az, bx, by, bz = d[0], d[1], d[2], d[3], d[4], d[5]
    # θ_1, θ_2 put z_2 along the upper arm
    across = np.sqrt(ax * ax + ay * ay)
    theta[1] = s2 * np.arctan2(across, az)
    if across < 1e-11:
        theta[0] = free[0]
        pairs |= 1
        c1, s1 = np.cos(theta[0]), np.sin(theta[0])
        n2, m2 = 0.0, (1.0 if az > 0.0 else -1.0)
    else:
        theta[0] = np.arctan2(s2 * ay, s2 * ax)
        c1, s1 = s2 * ax / across, s2 * ay / across
        size = np.sqrt(across * across + az * az)
        n2, m2 = s2 * across / size, az / size
    x2x, x2y, x2z = m2 * c1, m2 * s1, -n2
    y2x, y2y = -s1, c1
    z2x, z2y, z2z = n2 * c1, n2 * s1, m2
    # θ_3, θ_4 put z_4 along the forearm
    px, py = bx * x2x + by * x2y + bz * x2z, bx * y2x + by * y2y
    pz = bx * z2x + by * z2y + bz * z2z
    across = np.sqrt(px * px + py * py)
    theta[3] = s4 * np.arctan2(across, pz)
    if across < 1e-11:
        theta[2] = free[2]
        pairs |= 2
        c3, s3 = np.cos(theta[2]), np.sin(theta[2])
        n4, m4 = 0.0, (1.0 if pz > 0.0 else -1.0)
    else:
        theta[2] = np.arctan2(s4 * py, s4 * px)
        c3, s3 = s4 * px / across, s4 * py / across
        size = np.sqrt(across * across + pz * pz)
        n4, m4 = s4 * across / size, pz / size
    # frame 4 in base axes: y_4 = y_2 turned by θ_3 (its own sign rule: y' of frame 3), x_4 and z_4 from θ_4
    ux, uy, uz = c3 * x2x + s3 * y2x, c3 * x2y + s3 * y2y, c3 * x2z
    y4x, y4y, y4z = -s3 * x2x + c3 * y2x, -s3 * x2y + c3 * y2y, -s3 * x2z
    x4x, x4y, x4z = m4 * ux - n4 * z2x, m4 * uy - n4 * z2y, m4 * uz - n4 * z2z
    z4x, z4y, z4z = n4 * ux + m4 * z2x, n4 * uy + m4 * z2y, n4 * uz + m4 * z2z
    # θ_5, θ_6 put z_6 along the tool axis
    px, py = D[2] * x4x + D[5] * x4y + D[8] * x4z, D[2] * y4x + D[5] * y4y + D[8] * y4z
    pz = D[2] * z4x + D[5] * z4y + D[8] * z4z
    across = np.sqrt(px * px + py * py)
    theta[5] = s6 * np.arctan2(across, pz)
    if across < 1e-11:
        theta[4] = free[4]
        pairs |= 4
        c5, s5 = np.cos(theta[4]), np.sin(theta[4])
        n6, m6 = 0.0, (1.0 if pz > 0.0 else -1.0)
    else:
        theta[4] = np.arctan2(s6 * py, s6 * px)
        c5, s5 = s6 * px / across, s6 * py / across
        size = np.sqrt(across * across + pz * pz)
        n6, m6 = s6 * across / size, pz / size
    ux, uy, uz = c5 * x4x + s5 * y4x, c5 * x4y + s5 * y4y, c5 * x4z + s5 * y4z
    y6x, y6y, y6z = -s5 * x4x + c5 * y4x, -s5 * x4y + c5 * y4y, -s5 * x4z + c5 * y4z
    x6x, x6y, x6z = m6 * ux - n6 * z4x, m6 * uy - n6 * z4y, m6 * uz - n6 * z4z
    theta[6] = np.arctan2(D[0] * y6x + D[3] * y6y + D[6] * y6z, D[0] * x6x + D[3] * x6y + D[6] * x6z)
    return pairs


@kernel
def srs_joints(c, D, g, cp, sp, s2, s4, s6, seed, free, d, theta, q):
    """Joints at one arm angle and sign branch; free pairs share their sum so that both are legal where possible.

    Returns (violation, joint, squared distance to the seed).
    """
    srs_directions(g, cp, sp, d)
    pairs = srs_angles(D, d, s2, s4, s6, free, theta)
    beyond, where, distance = ideal.to_joints(c, theta, seed, q, 2)
    if pairs and beyond > 0.0:
        share_pairs(c, pairs, seed, theta, int(c[PARAMETERS]) + 26)
        beyond, where, distance = ideal.to_joints(c, theta, seed, q, 2)
    return beyond, where, distance


@kernel
def _both_ways(c, theta, seed, options):
    """What each joint does as it is and flipped, as other signs of θ_2, θ_4, θ_6 with the same link directions ask for.

    Writes to options: value, violation [rad] and squared distance to the seed, for 7 joints × 2. The eight branches are
    made of just these (see `_branch`), so they cost little more than two.
    """
    signs = int(c[PARAMETERS]) + 26
    lower, upper = int(c[LOWER]), int(c[UPPER])
    for i in range(7):
        for flipped in range(2):
            angle = theta[i]
            if flipped == 1:
                angle = -angle if i % 2 == 1 else angle + np.pi
            value = c[signs + i] * (angle - c[signs + 7 + i])
            value, beyond = r.nearest_turn(value, seed[i], c[lower + i], c[upper + i])
            k = 3 * (2 * i + flipped)
            options[k], options[k + 1], options[k + 2] = value, beyond, (value - seed[i]) * (value - seed[i])


@kernel
def _branch(options, branch, q):
    """Joints of a sign branch (bits 1, 2, 4: θ_2, θ_4, θ_6) put together from `_both_ways`; returns as `to_joints`."""
    b2, b4, b6 = branch & 1, branch >> 1 & 1, branch >> 2 & 1
    worst, where, distance = 0.0, 0, 0.0
    for i in range(7):
        if i < 2:
            flipped = b2
        elif i == 2:
            flipped = b2 ^ b4
        elif i == 3:
            flipped = b4
        elif i == 4:
            flipped = b4 ^ b6
        else:
            flipped = b6
        k = 3 * (2 * i + flipped)
        q[i] = options[k]
        distance += options[k + 2]
        if options[k + 1] > worst:
            worst, where = options[k + 1], i
    return worst, where, distance


def _needed_bits(branch: int) -> int:
    """Which of the bits of `_illegal_bits` stand for this sign branch."""
    b2, b4, b6 = branch & 1, branch >> 1 & 1, branch >> 2 & 1
    return sum(1 << (2 * i + flip) for i, flip in enumerate((b2, b2, b2 ^ b4, b4, b4 ^ b6, b6, b6)))


NEEDED_BITS = tuple(_needed_bits(branch) for branch in range(8))


@kernel
def _illegal_bits(c, theta):
    """Bit 2 i + flipped is set where joint i, as it is or flipped (see `_both_ways`), breaks a limit at every turn."""
    signs = int(c[PARAMETERS]) + 26
    lower, upper = int(c[LOWER]), int(c[UPPER])
    turn = 2.0 * np.pi
    bits = 0
    for i in range(7):
        for flipped in range(2):
            angle = theta[i]
            if flipped == 1:
                angle = -angle if i % 2 == 1 else angle + np.pi
            above = c[signs + i] * (angle - c[signs + 7 + i]) - c[lower + i] + ideal.LIMIT_SLACK
            above -= turn * np.floor(above / turn)
            if above > c[upper + i] - c[lower + i] + 2.0 * ideal.LIMIT_SLACK:
                bits |= 1 << (2 * i + flipped)
    return bits


@kernel
def _branch_joints(c, D, g, cp, sp, branch, pairs, options, seed, free, d, theta, q):
    """Joints of one sign branch at an arm angle; free pairs depend on the signs and are worked out anew."""
    if pairs:
        s2, s4, s6 = 1.0 - 2.0 * (branch & 1), 1.0 - (branch & 2), 1.0 - 0.5 * (branch & 4)
        return srs_joints(c, D, g, cp, sp, s2, s4, s6, seed, free, d, theta, q)
    return _branch(options, branch, q)


@kernel
def share_pairs(c, pairs, seed, theta, signs):
    """Where only the sum of two angles counts, move what is over the second's limits to the first."""
    for _ in range(3):
        for pair in range(2, -1, -1):
            first, second = 2 * pair, 2 * pair + 2
            if not pairs >> pair & 1:
                continue
            raw = c[signs + second] * (theta[second] - c[signs + 7 + second])
            lower, upper = c[int(c[LOWER]) + second], c[int(c[UPPER]) + second]
            value, over = r.nearest_turn(raw, seed[second], lower, upper)
            if over > 0.0:  # the second onto its limit, the first the other way
                shift = (min(max(value, lower), upper) - value) * c[signs + second]
                # θ_mid = 0 adds the two angles, θ_mid = π subtracts them
                along = 1.0 if np.cos(theta[first + 1]) > 0.0 else -1.0
                theta[second] += shift
                theta[first] -= along * shift


@kernel
def _add_roots(k0, kc, ks, roots, count):
    """Angles where k0 + kc cos ψ + ks sin ψ = 0."""
    size = np.sqrt(kc * kc + ks * ks)
    if size < 1e-14 or abs(k0) > size:
        return count
    middle, half = np.arctan2(ks, kc), np.arctan2(np.sqrt((size - k0) * (size + k0)), -k0)
    roots[count], roots[count + 1] = r.wrap(middle + half), r.wrap(middle - half)
    return count + 2


@kernel
def _add_limit_roots(c, joint, nk, dk, roots, count):
    """Roots of both limits of a joint whose angle is atan2(N, D); N and D as (k0, kc, ks)."""
    signs = int(c[PARAMETERS]) + 26
    low, high = c[int(c[LOWER]) + joint], c[int(c[UPPER]) + joint]
    if high - low >= 2.0 * np.pi:
        return count
    for side in range(2):
        limit = c[signs + joint] * (low if side == 0 else high) + c[signs + 7 + joint]
        cl, sl = np.cos(limit), np.sin(limit)
        count = _add_roots(nk[0] * cl - dk[0] * sl, nk[1] * cl - dk[1] * sl, nk[2] * cl - dk[2] * sl, roots, count)
    return count


@kernel
def srs_roots(c, D, g, roots):
    """All arm angles where a joint limit is met or a joint's direction flips, sorted. Returns how many.

    The same for all eight sign branches: a sign turns an angle by π, which moves no root.
    """
    signs = int(c[PARAMETERS]) + 26
    u, e1, e2 = g[0:3], g[3:6], g[6:9]
    cb, sb, cg, sg, cd, sd = g[9], g[10], g[11], g[12], g[14], g[15]
    count = 0
    # upper arm a = cb u + sb (e1 cos + e2 sin); forearm b = cg u - sg (e1 cos + e2 sin); m = sd (e1 sin - e2 cos)
    count = _add_limit_roots(
        c, 0, (cb * u[1], sb * e1[1], sb * e2[1]), (cb * u[0], sb * e1[0], sb * e2[0]), roots, count
    )
    az = (cb * u[2], sb * e1[2], sb * e2[2])
    bz = (cg * u[2], -sg * e1[2], -sg * e2[2])
    mz = (0.0, -sd * e2[2], sd * e1[2])
    third = (cd * az[0] - bz[0], cd * az[1] - bz[1], cd * az[2] - bz[2])
    count = _add_limit_roots(c, 2, mz, third, roots, count)
    td = (D[2], D[5], D[8])
    tu = u[0] * td[0] + u[1] * td[1] + u[2] * td[2]
    t1 = e1[0] * td[0] + e1[1] * td[1] + e1[2] * td[2]
    t2 = e2[0] * td[0] + e2[1] * td[1] + e2[2] * td[2]
    bt = (cg * tu, -sg * t1, -sg * t2)
    at = (cb * tu, sb * t1, sb * t2)
    mt = (0.0, -sd * t2, sd * t1)
    fifth = (cd * bt[0] - at[0], cd * bt[1] - at[1], cd * bt[2] - at[2])
    count = _add_limit_roots(c, 4, mt, fifth, roots, count)
    xu = u[0] * D[0] + u[1] * D[3] + u[2] * D[6]
    x1 = e1[0] * D[0] + e1[1] * D[3] + e1[2] * D[6]
    x2 = e2[0] * D[0] + e2[1] * D[3] + e2[2] * D[6]
    yu = u[0] * D[1] + u[1] * D[4] + u[2] * D[7]
    y1 = e1[0] * D[1] + e1[1] * D[4] + e1[2] * D[7]
    y2 = e2[0] * D[1] + e2[1] * D[4] + e2[2] * D[7]
    count = _add_limit_roots(c, 6, (cg * yu, -sg * y1, -sg * y2), (-cg * xu, sg * x1, sg * x2), roots, count)
    for joint in (1, 5):
        k = az if joint == 1 else bt
        low, high = c[int(c[LOWER]) + joint], c[int(c[UPPER]) + joint]
        for side in range(2):
            limit = c[signs + joint] * (low if side == 0 else high) + c[signs + 7 + joint]
            if np.isfinite(limit):
                count = _add_roots(k[0] - np.cos(limit), k[1], k[2], roots, count)
        count = _add_roots(k[0] - 1.0, k[1], k[2], roots, count)
        count = _add_roots(k[0] + 1.0, k[1], k[2], roots, count)
    for i in range(1, count):  # insertion sort: at most a few dozen
        value = roots[i]
        k = i - 1
        while k >= 0 and roots[k] > value:
            roots[k + 1] = roots[k]
            k -= 1
        roots[k + 1] = value
    return count


MAX_ROOTS = 40
ROOM = MAX_ROOTS + 30 + 42


@kernel
def srs_legal_near(c, D, g, psi, seed, free, room, q):
    """The legal joints nearest to arm angle psi over all sign branches and arcs; the arcs nearest to psi come first.

    Returns (found, least violation seen, its joint). `room` is scratch (ROOM,); the arm angle of the answer
    stays in room[MAX_ROOTS + 8].
    """
    roots, d = room[:MAX_ROOTS], room[MAX_ROOTS : MAX_ROOTS + 6]
    theta, trial = room[MAX_ROOTS + 16 : MAX_ROOTS + 23], room[MAX_ROOTS + 23 : MAX_ROOTS + 30]
    options = room[MAX_ROOTS + 30 : MAX_ROOTS + 72]
    count = srs_roots(c, D, g, roots)
    least, blocked, best = np.inf, 0, np.inf
    # Gaps between roots, outwards from psi. Without roots the circle is one gap.
    gaps = max(count, 1)
    home = 0
    while home < count and roots[home] <= psi:
        home += 1  # psi lies in the gap that ends at roots[home]
    found = False
    up, down = 0, 0  # how many gaps have been tried on either side
    found_distance = np.inf
    for turn in range(gaps):
        # the nearer of the next gap above and the next below; the home gap first
        if count == 0:
            low, width, distance = -np.pi, 2.0 * np.pi, 0.0
        elif turn == 0:
            low, high = roots[(home - 1) % count], roots[home % count]
            width = high - low if high > low else high - low + 2.0 * np.pi
            if count == 1:
                width = 2.0 * np.pi
            distance = 0.0
        else:
            i_up, i_down = (home + up) % count, (home - 1 - down) % count
            d_up = roots[i_up] - psi
            d_up += 2.0 * np.pi if d_up < 0.0 else 0.0
            d_down = psi - roots[i_down]
            d_down += 2.0 * np.pi if d_down < 0.0 else 0.0
            if d_up <= d_down:
                low, high, distance = roots[i_up], roots[(i_up + 1) % count], d_up
                up += 1
            else:
                low, high, distance = roots[(i_down - 1) % count], roots[i_down], d_down
                down += 1
            width = high - low if high > low else high - low + 2.0 * np.pi
        if found and distance > found_distance + 1e-9:
            break
        if width < 1e-13:
            continue
        # Which sign branches are legal here? The middle of the gap tells for the whole of it.
        middle = low + 0.5 * width
        into = min(1e-3, 0.25 * width)  # a little inside, where rounding can't put a joint over its limit
        offset = psi - low
        offset -= 2.0 * np.pi * np.floor(offset / (2.0 * np.pi))
        if offset <= width:
            wanted = low + min(max(offset, into), width - into)
        elif offset - width < 2.0 * np.pi - offset:
            wanted = low + width - into
        else:
            wanted = low + into
        cm, sm = np.cos(middle), np.sin(middle)
        srs_directions(g, cm, sm, d)
        pairs = srs_angles(D, d, 1.0, 1.0, 1.0, free, theta)
        illegal = _illegal_bits(c, theta)
        wanted_known, wanted_pairs, cw, sw = False, 0, 0.0, 0.0
        for branch in range(8):
            if pairs:
                beyond, _, _ = _branch_joints(c, D, g, cm, sm, branch, pairs, options, seed, free, d, theta, trial)
                if beyond > ideal.LIMIT_SLACK:
                    continue
            elif illegal & NEEDED_BITS[branch]:
                continue
            if not wanted_known:
                cw, sw = np.cos(wanted), np.sin(wanted)
                srs_directions(g, cw, sw, d)
                wanted_pairs = srs_angles(D, d, 1.0, 1.0, 1.0, free, theta)
                _both_ways(c, theta, seed, options)
                wanted_known = True
            beyond, _, away = _branch_joints(
                c, D, g, cw, sw, branch, wanted_pairs, options, seed, free, d, theta, trial
            )
            if beyond <= ideal.LIMIT_SLACK and away < best:
                best, found, found_distance = away, True, distance
                room[MAX_ROOTS + 8] = wanted
                r.copy(trial, q)
    if found:
        return True, 0.0, 0
    for i in range(2 * gaps):  # a joint held still leaves no arc but single arm angles; middles for what misses least
        angle = roots[i // 2] if count > 0 else -np.pi
        if i % 2 == 1:
            after = roots[i // 2 + 1] if i // 2 + 1 < count else (roots[0] if count > 0 else -np.pi) + 2.0 * np.pi
            angle += 0.5 * (after - angle)
        cw, sw = np.cos(angle), np.sin(angle)
        for branch in range(8):
            s2, s4, s6 = 1.0 - 2.0 * (branch & 1), 1.0 - (branch & 2), 1.0 - 0.5 * (branch & 4)
            beyond, where, away = srs_joints(c, D, g, cw, sw, s2, s4, s6, seed, free, d, theta, trial)
            if beyond <= ideal.LIMIT_SLACK and away < best:
                best, found = away, True
                room[MAX_ROOTS + 8] = angle
                r.copy(trial, q)
            elif not found and beyond < least:
                least, blocked = beyond, where
                r.copy(trial, q)
    return found, least, blocked


@kernel
def srs_other_signs(c, D, g, cp, sp, seed, free, room, q):
    """The nearest of all sign branches that are legal at one arm angle, to q; False where there is none, or free pairs."""
    options, theta, trial = room[MAX_ROOTS + 30 : MAX_ROOTS + 72], room[6:13], room[13:20]
    srs_directions(g, cp, sp, room)
    if srs_angles(D, room, 1.0, 1.0, 1.0, free, theta):
        return False
    _both_ways(c, theta, seed, options)
    best = np.inf
    for branch in range(8):
        beyond, _, away = _branch(options, branch, trial)
        if beyond == 0.0 and away < best:
            best = away
            r.copy(trial, q)
    return best < np.inf


@kernel
def srs_seed(c, g, seed, free):
    """The seed's family angles (to `free`), its arm angle on this circle, and its signs of θ_2, θ_4, θ_6."""
    for i in range(7):
        free[i] = ideal.family_angle(c, seed, i, 2)
    s = np.sin(free[1])
    psi = srs_elbow_direction_to_angle(g, s * np.cos(free[0]), s * np.sin(free[0]), np.cos(free[1]))
    s2 = -1.0 if free[1] < 0.0 else 1.0
    s4 = -1.0 if free[3] < 0.0 else 1.0
    s6 = -1.0 if free[5] < 0.0 else 1.0
    return psi, s2, s4, s6


@kernel
def srs_from_straight(c, D, g, s2, s6, seed, free, d, theta, trial, q):
    """The arm angle and the sign of θ_4 that move a straight seed least, its signs of θ_2 and θ_6 kept.

    A straight elbow has no arm angle. Samples the circle, then halves the step about the best sample until it stands.
    Returns whether a legal one was found.
    """
    best, best_psi, best_s4 = np.inf, 0.0, 1.0
    step = 2.0 * np.pi / 48
    for k in range(48):
        cp, sp = np.cos(k * step), np.sin(k * step)
        for sign in range(2):
            s4 = 1.0 - 2.0 * sign
            beyond, _, away = srs_joints(c, D, g, cp, sp, s2, s4, s6, seed, free, d, theta, trial)
            if beyond == 0.0 and away < best:
                best, best_psi, best_s4 = away, k * step, s4
                r.copy(trial, q)
    if best == np.inf:
        return False
    while step > 1e-9:
        step *= 0.5
        for side in (-1.0, 1.0):
            psi = best_psi + side * step
            beyond, _, away = srs_joints(
                c, D, g, np.cos(psi), np.sin(psi), s2, best_s4, s6, seed, free, d, theta, trial
            )
            if beyond == 0.0 and away < best:
                best, best_psi = away, psi
                r.copy(trial, q)
                break
    return True


@kernel
def solve_srs(c, T, kind, s, out):
    """The seed's own branch and arm angle where legal, else the nearest legal arm angle. As `solve_ur` otherwise."""
    D = ideal.family_target(c, T)
    scratch = np.empty(CIRCLE + ROOM + 28)  # one allocation: it costs as much as several arc tangents
    g, room = scratch[:CIRCLE], scratch[CIRCLE : CIRCLE + ROOM]
    seed, free = scratch[CIRCLE + ROOM : CIRCLE + ROOM + 7], scratch[CIRCLE + ROOM + 7 : CIRCLE + ROOM + 14]
    theta, q = scratch[CIRCLE + ROOM + 14 : CIRCLE + ROOM + 21], scratch[CIRCLE + ROOM + 21 :]
    for i in range(7):
        seed[i] = out[i]
    gap = srs_circle(c, D, g)
    psi, s2, s4, s6 = srs_seed(c, g, seed, free)
    if g[13] < STRETCHED:
        # A straight elbow: the joints about it share their sum, so only the signs are left to choose.
        free_pairs = g[10]
        g[10], g[12] = 0.0, 0.0
        g[9], g[11] = 1.0, 1.0
        best, least, blocked = np.inf, np.inf, 0
        own = (0 if s2 > 0.0 else 1) + (0 if s4 > 0.0 else 2) + (0 if s6 > 0.0 else 4)
        for k in range(8):
            branch = own ^ k  # the seed's own signs first
            b2, b4, b6 = 1.0 - 2.0 * (branch & 1), 1.0 - (branch & 2), 1.0 - 0.5 * (branch & 4)
            beyond, where, away = srs_joints(c, D, g, 1.0, 0.0, b2, b4, b6, seed, free, room, theta, q)
            if beyond <= ideal.LIMIT_SLACK and away < best:
                best = away
                r.copy(q, out)
                if gap > ideal.REACH_SLACK:
                    break  # on a miss one legal posture is as good as another
            elif beyond < least:
                least, blocked = beyond, where
                if best == np.inf:
                    r.copy(q, out)
        found = best < np.inf
        g[10] = free_pairs
    else:
        found, least, blocked = False, np.inf, 0
        if abs(free[3]) < STRAIGHT_SEED and g[13] < NEXT_TO_STRAIGHT and gap <= ideal.REACH_SLACK:
            found = srs_from_straight(c, D, g, s2, s6, seed, free, room[:6], theta, room[6:13], q)
        if not found:
            cp, sp = np.cos(psi), np.sin(psi)
            least, blocked, away = srs_joints(c, D, g, cp, sp, s2, s4, s6, seed, free, room, theta, q)
            found = least <= ideal.LIMIT_SLACK
        if not found and gap <= ideal.REACH_SLACK:
            found = srs_other_signs(c, D, g, np.cos(psi), np.sin(psi), seed, free, room, q)
        if found or gap > ideal.REACH_SLACK:
            r.copy(q, out)
        if not found and gap <= ideal.REACH_SLACK:
            found, least, blocked = srs_legal_near(c, D, g, psi, seed, free, room, q)
            r.copy(q, out)
    out[7 + r.SINGULAR_POSE] = 1.0 if g[13] < STRETCHED else 0.0
    p = int(c[PARAMETERS]) + 24
    outer, inner = c[p] + c[p + 1], abs(c[p] - c[p + 1])
    if gap > ideal.REACH_SLACK:
        if g[16] > outer:
            r.say(c, out, r.OUT_OF_REACH, r.BEYOND_OUTER, g[16] - outer, outer, g[0], g[1], g[2])
        else:
            r.say(c, out, r.OUT_OF_REACH, r.INSIDE_INNER, inner - g[16], inner)
        return False
    if found:
        return True
    low, high = elbow_range(c)
    if g[13] > high + ideal.LIMIT_SLACK:  # the elbow can't fold that far: that too is a radius
        radius = np.sqrt(c[p] * c[p] + c[p + 1] * c[p + 1] + 2.0 * c[p] * c[p + 1] * np.cos(high))
        r.say(c, out, r.OUT_OF_REACH, r.ELBOW_LIMIT, radius - g[16], radius, high)
        return False
    if g[13] < low - ideal.LIMIT_SLACK:  # nor stretch that far
        radius = np.sqrt(c[p] * c[p] + c[p + 1] * c[p + 1] + 2.0 * c[p] * c[p + 1] * np.cos(low))
        r.say(c, out, r.OUT_OF_REACH, r.ELBOW_LIMIT, g[16] - radius, radius, low, 1.0)
        return False
    r.say(c, out, r.JOINT_LIMITS, r.NO_LEGAL_ARC, 8.0, float(blocked), least)
    return False


@kernel
def elbow_range(c):
    """The least and the greatest bend |θ_4| that the elbow's limits allow [rad]."""
    signs = int(c[PARAMETERS]) + 26
    low, high = c[int(c[LOWER]) + 3], c[int(c[UPPER]) + 3]
    if high - low >= 2.0 * np.pi:
        return 0.0, np.pi
    a, b = c[signs + 3] * low + c[signs + 10], c[signs + 3] * high + c[signs + 10]
    a, b = min(a, b), max(a, b)
    turns = 2.0 * np.pi * np.rint(0.5 * (a + b) / (2.0 * np.pi))
    a, b = a - turns, b - turns
    if b >= np.pi or a <= -np.pi:
        greatest = np.pi
    else:
        greatest = max(abs(a), abs(b))
    least = 0.0 if a <= 0.0 <= b else min(abs(a), abs(b))
    return least, greatest
