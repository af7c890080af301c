"""One cycle of FABRIK on a tree of points: the kernels, on plain arrays.

Points are (N, 3); a planar skeleton has z = 0 throughout. Point 0 is the fixed root, every other point i hangs on
`parent[i] < i` at the distance `length[i]`. Backward is tip to root, forward is root to tip, as in the whole package.

Limits are kept without a single angle being computed. Each link carries a frame R, the rotation from its rest pose;
the link's direction is R u. A hinge about the axis a turns the link's frame inside its parent's frame; the wanted
direction, seen across the axis, is a pair (x, y) = (cos α, sin α), and clamping to the arc [c − h, c + h] means
comparing x cos c + y sin c with cos h. A cone is the same comparison with the rest direction. In the plane every
joint is a hinge about z; there the same is written out once more for frames of one angle, four times as fast.
"""

from collections import namedtuple

import numpy as np

from ik_sim.compiled import kernel

FREE, HINGE, CONE = 0, 1, 2

# Columns of a row of `joint`, which says how a point's link may turn against its parent's.
KIND = 0
U = 1  # direction of the link at rest (3)
A = 4  # axis of the hinge at rest (3)
E1 = 7  # part of u across the axis, unit (3)
E2 = 10  # a × e1 (3)
ALONG, ACROSS = 13, 14  # u = along a + across e1
COS_C, SIN_C, COS_H, SIN_H = 15, 16, 17, 18  # the arc: centre and half width; cones use only h
CENTRE, HALF = 19, 20
F1 = 21  # part of the parent's u across the axis, unit (3)
F2 = 24  # a × f1 (3)
F_ALONG, F_ACROSS = 27, 28
ONLY_CHILD = 29  # the only point that hangs on this one, or -1
FLAT = 30  # 1 in the plane, where a frame is one angle
JOINT = 31

# Columns of a row of `obstacles`.
SPHERE, BOX = 0, 1
OBSTACLE = 16  # kind, centre (3), radius or half sizes (3), rotation (9)

# Columns of `pulls`: what draws a point somewhere. A loop is two rows.
PULL_POINT, PULL_WEIGHT = 0, 1

Work = namedtuple("Work", "back pull weight R B Q old")
"""back: points after the backward pass; pull, weight: sums of proposals; R, B: frames of links forward and backward
(N, 9), one row where there are no limits; Q: scratch; old: directions before the cycle."""


@kernel
def workspace(n, limited):
    """Room for one solve of n points."""
    m = n if limited else 1
    w = Work(
        np.zeros((n, 3)), np.zeros((n, 3)), np.zeros(n), np.zeros((m, 9)), np.zeros((m, 9)), np.zeros(9),
        np.zeros((n, 3)),
    )  # fmt: skip
    for i in range(m):
        w.R[i, 0] = w.R[i, 4] = w.R[i, 8] = 1.0
    return w


# --- three-vectors and frames, as scalars ---


@kernel
def unit(x, y, z, fx, fy, fz):
    """The unit vector along (x, y, z); the fixed direction f where there is none."""
    size = np.sqrt(x * x + y * y + z * z)
    if size > 1e-300:
        return x / size, y / size, z / size
    return fx, fy, fz


@kernel
def apply(R, i, x, y, z):
    """R v for the frame in row i, stored as nine numbers, row by row."""
    return (
        R[i, 0] * x + R[i, 1] * y + R[i, 2] * z,
        R[i, 3] * x + R[i, 4] * y + R[i, 5] * z,
        R[i, 6] * x + R[i, 7] * y + R[i, 8] * z,
    )  # fmt: skip


@kernel
def turn(R, i, ax, ay, az, c, s, out, k):
    """Row k of out = R Rot(a, θ) for row i of R, with c = cos θ and s = sin θ; the axis is given before R."""
    v = 1.0 - c
    m00, m01, m02 = c + ax * ax * v, ax * ay * v - az * s, ax * az * v + ay * s
    m10, m11, m12 = ay * ax * v + az * s, c + ay * ay * v, ay * az * v - ax * s
    m20, m21, m22 = az * ax * v - ay * s, az * ay * v + ax * s, c + az * az * v
    for j in range(0, 9, 3):
        x, y, z = R[i, j], R[i, j + 1], R[i, j + 2]
        out[k, j] = x * m00 + y * m10 + z * m20
        out[k, j + 1] = x * m01 + y * m11 + z * m21
        out[k, j + 2] = x * m02 + y * m12 + z * m22


@kernel
def turn_outside(R, i, ax, ay, az, c, s, out, k):
    """Row k of out = Rot(a, θ) R for row i of R, the axis in base axes."""
    v = 1.0 - c
    m00, m01, m02 = c + ax * ax * v, ax * ay * v - az * s, ax * az * v + ay * s
    m10, m11, m12 = ay * ax * v + az * s, c + ay * ay * v, ay * az * v - ax * s
    m20, m21, m22 = az * ax * v - ay * s, az * ay * v + ax * s, c + az * az * v
    for j in range(3):
        x, y, z = R[i, j], R[i, 3 + j], R[i, 6 + j]
        out[k, j] = m00 * x + m01 * y + m02 * z
        out[k, 3 + j] = m10 * x + m11 * y + m12 * z
        out[k, 6 + j] = m20 * x + m21 * y + m22 * z


@kernel
def turn_flat(R, i, c, s):
    """Row i of R becomes the turn in the plane with that cosine and sine."""
    R[i, 0], R[i, 1], R[i, 3], R[i, 4] = c, -s, s, c


@kernel
def swing_axis(ax, ay, az, bx, by, bz, hx, hy, hz):
    """Axis, cosine and sine of the shortest rotation from a to b; for opposite ones about h, made perpendicular."""
    x, y, z = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    c = ax * bx + ay * by + az * bz
    s = np.sqrt(x * x + y * y + z * z)
    if s > 1e-12:
        return x / s, y / s, z / s, c, s
    if c > 0.0:
        return 0.0, 0.0, 1.0, 1.0, 0.0
    d = hx * ax + hy * ay + hz * az
    x, y, z = hx - d * ax, hy - d * ay, hz - d * az
    if x * x + y * y + z * z < 1e-6:  # h lies along a: any other
        if abs(ax) < 0.9:
            x, y, z = 1.0 - ax * ax, -ax * ay, -ax * az
        else:
            x, y, z = -ay * ax, 1.0 - ay * ay, -ay * az
    x, y, z = unit(x, y, z, 0.0, 0.0, 1.0)
    return x, y, z, -1.0, 0.0


@kernel
def towards(ax, ay, az, bx, by, bz, c, s):
    """The direction at the angle (c, s) from a, on the side of b."""
    d = ax * bx + ay * by + az * bz
    x, y, z = bx - d * ax, by - d * ay, bz - d * az
    size = np.sqrt(x * x + y * y + z * z)
    if size < 1e-12:  # b along a: any side
        if abs(ax) < 0.9:
            x, y, z = 1.0 - ax * ax, -ax * ay, -ax * az
        else:
            x, y, z = -ay * ax, 1.0 - ay * ay, -ay * az
        if az == 0.0:  # and in the plane stay in the plane
            x, y, z = -ay, ax, 0.0
        size = np.sqrt(x * x + y * y + z * z)
    return c * ax + s * x / size, c * ay + s * y / size, c * az + s * z / size


# --- limits ---


@kernel
def clamp_arc(joint, i, x, y):
    """The pair (cos α, sin α) brought into the arc of joint i; the nearer end where it lay outside."""
    size = np.sqrt(x * x + y * y)
    if size < 1e-12:  # straight along the axis: every angle is as good; take the centre
        return joint[i, COS_C], joint[i, SIN_C]
    x, y = x / size, y / size
    if joint[i, HALF] >= np.pi:
        return x, y
    cc, sc, ch = joint[i, COS_C], joint[i, SIN_C], joint[i, COS_H]
    if x * cc + y * sc >= ch:
        return x, y
    v = joint[i, SIN_H] if y * cc - x * sc >= 0.0 else -joint[i, SIN_H]
    return ch * cc - v * sc, v * cc + ch * sc


@kernel
def limit_forward(joint, i, R, m, x, y, z):
    """The legal direction nearest to (x, y, z) of link i, whose parent's frame is row m of R; its own goes to row i."""
    if joint[i, FLAT] != 0.0:
        c0, s0 = R[m, 0], R[m, 3]
        ex, ey = c0 * joint[i, U] - s0 * joint[i, U + 1], s0 * joint[i, U] + c0 * joint[i, U + 1]
        c, s = clamp_arc(joint, i, x * ex + y * ey, y * ex - x * ey)
        turn_flat(R, i, c0 * c - s0 * s, s0 * c + c0 * s)
        return c * ex - s * ey, c * ey + s * ex, 0.0
    if joint[i, KIND] == HINGE:
        px, py, pz = joint[i, A], joint[i, A + 1], joint[i, A + 2]
        e1x, e1y, e1z = apply(R, m, joint[i, E1], joint[i, E1 + 1], joint[i, E1 + 2])
        e2x, e2y, e2z = apply(R, m, joint[i, E2], joint[i, E2 + 1], joint[i, E2 + 2])
        c, s = clamp_arc(joint, i, x * e1x + y * e1y + z * e1z, x * e2x + y * e2y + z * e2z)
        turn(R, m, px, py, pz, c, s, R, i)
        ax, ay, az = apply(R, m, px, py, pz)
        along, across = joint[i, ALONG], joint[i, ACROSS]
        return unit(
            along * ax + across * (c * e1x + s * e2x),
            along * ay + across * (c * e1y + s * e2y),
            along * az + across * (c * e1z + s * e2z),
            1.0, 0.0, 0.0,
        )  # fmt: skip
    ux, uy, uz = apply(R, m, joint[i, U], joint[i, U + 1], joint[i, U + 2])
    if joint[i, KIND] == CONE and ux * x + uy * y + uz * z < joint[i, COS_H]:
        x, y, z = towards(ux, uy, uz, x, y, z, joint[i, COS_H], joint[i, SIN_H])
    ax, ay, az, c, s = swing_axis(ux, uy, uz, x, y, z, 0.0, 0.0, 1.0)
    turn_outside(R, m, ax, ay, az, c, s, R, i)
    return x, y, z


@kernel
def limit_backward(joint, i, child, R, B, Q, x, y, z):
    """The legal direction nearest to (x, y, z) of link i, as its only child sees it; its frame goes to row i of B.

    B holds the frames of this pass, R those before it.
    """
    if joint[child, FLAT] != 0.0:
        c0, s0 = B[child, 0], B[child, 3]
        fx, fy = c0 * joint[i, U] - s0 * joint[i, U + 1], s0 * joint[i, U] + c0 * joint[i, U + 1]
        c, s = clamp_arc(joint, child, x * fx + y * fy, x * fy - y * fx)
        turn_flat(B, i, c0 * c + s0 * s, s0 * c - c0 * s)
        return c * fx + s * fy, c * fy - s * fx, 0.0
    if joint[child, KIND] == HINGE:
        px, py, pz = joint[child, A], joint[child, A + 1], joint[child, A + 2]
        f1x, f1y, f1z = apply(B, child, joint[child, F1], joint[child, F1 + 1], joint[child, F1 + 2])
        f2x, f2y, f2z = apply(B, child, joint[child, F2], joint[child, F2 + 1], joint[child, F2 + 2])
        # Seen from the child the link has turned by −α: its direction across the axis is f1 cos α − f2 sin α.
        c, s = clamp_arc(joint, child, x * f1x + y * f1y + z * f1z, -(x * f2x + y * f2y + z * f2z))
        turn(B, child, px, py, pz, c, -s, B, i)
        ax, ay, az = apply(B, child, px, py, pz)
        along, across = joint[child, F_ALONG], joint[child, F_ACROSS]
        return unit(
            along * ax + across * (c * f1x - s * f2x),
            along * ay + across * (c * f1y - s * f2y),
            along * az + across * (c * f1z - s * f2z),
            1.0, 0.0, 0.0,
        )  # fmt: skip
    # Keep the present bend, B = B_child R_childᵀ R, swing the link to the wanted direction, then back into the cone.
    for j in range(3):
        for k in range(3):
            v = 0.0
            for h in range(0, 9, 3):
                v += R[child, h + j] * R[i, h + k]
            Q[3 * j + k] = v
    for j in range(0, 9, 3):
        for k in range(3):
            B[i, j + k] = B[child, j] * Q[k] + B[child, j + 1] * Q[3 + k] + B[child, j + 2] * Q[6 + k]
    ux, uy, uz = apply(B, i, joint[i, U], joint[i, U + 1], joint[i, U + 2])
    ax, ay, az, c, s = swing_axis(ux, uy, uz, x, y, z, 0.0, 0.0, 1.0)
    turn_outside(B, i, ax, ay, az, c, s, B, i)
    if joint[child, KIND] == CONE:
        rx, ry, rz = apply(B, i, joint[child, U], joint[child, U + 1], joint[child, U + 2])
        dx, dy, dz = apply(B, child, joint[child, U], joint[child, U + 1], joint[child, U + 2])
        if rx * dx + ry * dy + rz * dz < joint[child, COS_H]:
            nx, ny, nz = towards(dx, dy, dz, rx, ry, rz, joint[child, COS_H], joint[child, SIN_H])
            ax, ay, az, c, s = swing_axis(rx, ry, rz, nx, ny, nz, 0.0, 0.0, 1.0)
            turn_outside(B, i, ax, ay, az, c, s, B, i)
    return apply(B, i, joint[i, U], joint[i, U + 1], joint[i, U + 2])


# --- obstacles ---


@kernel
def box_distance(obstacles, k, px, py, pz):
    """Signed distance of a point from a box, and the outward normal there, in base axes."""
    x, y, z = px - obstacles[k, 1], py - obstacles[k, 2], pz - obstacles[k, 3]
    lx = obstacles[k, 7] * x + obstacles[k, 10] * y + obstacles[k, 13] * z
    ly = obstacles[k, 8] * x + obstacles[k, 11] * y + obstacles[k, 14] * z
    lz = obstacles[k, 9] * x + obstacles[k, 12] * y + obstacles[k, 15] * z
    qx, qy, qz = abs(lx) - obstacles[k, 4], abs(ly) - obstacles[k, 5], abs(lz) - obstacles[k, 6]
    sx, sy, sz = 1.0 if lx >= 0.0 else -1.0, 1.0 if ly >= 0.0 else -1.0, 1.0 if lz >= 0.0 else -1.0
    if qx <= 0.0 and qy <= 0.0 and qz <= 0.0:
        if qx >= qy and qx >= qz:
            d, nx, ny, nz = qx, sx, 0.0, 0.0
        elif qy >= qz:
            d, nx, ny, nz = qy, 0.0, sy, 0.0
        else:
            d, nx, ny, nz = qz, 0.0, 0.0, sz
    else:
        ex, ey, ez = max(qx, 0.0), max(qy, 0.0), max(qz, 0.0)
        d = np.sqrt(ex * ex + ey * ey + ez * ez)
        nx, ny, nz = sx * ex / d, sy * ey / d, sz * ez / d
    return (
        d,
        obstacles[k, 7] * nx + obstacles[k, 8] * ny + obstacles[k, 9] * nz,
        obstacles[k, 10] * nx + obstacles[k, 11] * ny + obstacles[k, 12] * nz,
        obstacles[k, 13] * nx + obstacles[k, 14] * ny + obstacles[k, 15] * nz,
    )  # fmt: skip


@kernel
def nearest_to_box(obstacles, k, px, py, pz, dx, dy, dz, length):
    """Where along a link it comes nearest to the box, as a share of its length, and that signed distance.

    The distance from a convex body is convex along a line, so a golden section finds its least value.
    """
    g = 0.6180339887498949
    low, high = 0.0, 1.0
    a, b = high - g * (high - low), low + g * (high - low)
    fa = box_distance(obstacles, k, px + a * length * dx, py + a * length * dy, pz + a * length * dz)[0]
    fb = box_distance(obstacles, k, px + b * length * dx, py + b * length * dy, pz + b * length * dz)[0]
    for _ in range(40):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - g * (high - low)
            fa = box_distance(obstacles, k, px + a * length * dx, py + a * length * dy, pz + a * length * dz)[0]
        else:
            low, a, fa = a, b, fb
            b = low + g * (high - low)
            fb = box_distance(obstacles, k, px + b * length * dx, py + b * length * dy, pz + b * length * dz)[0]
    best, at = (fa, a) if fa < fb else (fb, b)
    end = box_distance(obstacles, k, px + length * dx, py + length * dy, pz + length * dz)[0]
    if end < best:
        best, at = end, 1.0
    start = box_distance(obstacles, k, px, py, pz)[0]
    if start < best:
        best, at = start, 0.0
    return at, best


@kernel
def link_clearance(obstacles, k, px, py, pz, dx, dy, dz, length):
    """Distance of a link from an obstacle; negative by how deep it is inside."""
    if obstacles[k, 0] == SPHERE:
        cx, cy, cz = obstacles[k, 1] - px, obstacles[k, 2] - py, obstacles[k, 3] - pz
        t = min(max(cx * dx + cy * dy + cz * dz, 0.0), length)
        x, y, z = cx - t * dx, cy - t * dy, cz - t * dz
        return np.sqrt(x * x + y * y + z * z) - obstacles[k, 4]
    return nearest_to_box(obstacles, k, px, py, pz, dx, dy, dz, length)[1]


@kernel
def push_off(obstacles, px, py, pz, length, dx, dy, dz):
    """The direction near d in which a link of this length from p is clear of the obstacles, as far as a few rounds get.

    The directions in which a link hits a sphere form a cone about the line to its centre: d moves to the cone's rim.
    From a box the point that lies deepest is moved out along the box's normal.
    """
    for _ in range(12):
        moved = False
        for k in range(obstacles.shape[0]):
            if obstacles[k, 0] == SPHERE:
                cx, cy, cz = obstacles[k, 1] - px, obstacles[k, 2] - py, obstacles[k, 3] - pz
                far, radius = np.sqrt(cx * cx + cy * cy + cz * cz), obstacles[k, 4]
                if far - radius >= length:
                    continue
                if far <= radius:  # the joint itself is inside: straight out
                    x, y, z = unit(-cx, -cy, -cz, dx, dy, dz)
                    moved = moved or x * dx + y * dy + z * dz < 1.0 - 1e-12
                    dx, dy, dz = x, y, z
                    continue
                cx, cy, cz = cx / far, cy / far, cz / far
                tangent = np.sqrt((far - radius) * (far + radius))
                if length >= tangent:
                    c, s = tangent / far, radius / far
                else:
                    c = (far * far + length * length - radius * radius) / (2.0 * far * length)
                    s = np.sqrt(max(0.0, 1.0 - c * c))
                if cx * dx + cy * dy + cz * dz > c:
                    dx, dy, dz = towards(cx, cy, cz, dx, dy, dz, c, s)
                    moved = True
            else:
                wide = obstacles[k, 6] if obstacles[k, 6] < 1e6 else 0.0  # a rectangle has no end across the plane
                reach = length + np.sqrt(obstacles[k, 4] ** 2 + obstacles[k, 5] ** 2 + wide**2)
                cx, cy, cz = obstacles[k, 1] - px, obstacles[k, 2] - py, obstacles[k, 3] - pz
                if cx * cx + cy * cy + cz * cz > reach * reach:
                    continue
                at, depth = nearest_to_box(obstacles, k, px, py, pz, dx, dy, dz, length)
                if depth >= 0.0:
                    continue
                x, y, z = px + at * length * dx, py + at * length * dy, pz + at * length * dz
                _, nx, ny, nz = box_distance(obstacles, k, x, y, z)
                if at * length < 1e-9:
                    dx, dy, dz = nx, ny, nz
                else:
                    out = -1.01 * depth + 1e-12
                    dx, dy, dz = unit(x + out * nx - px, y + out * ny - py, z + out * nz - pz, nx, ny, nz)
                moved = True
        if not moved:
            break
    return dx, dy, dz


@kernel
def deepest(parent, length, obstacles, p):
    """How deep the worst link is inside an obstacle (0: all clear), which link and which obstacle."""
    worst, link, which = 0.0, -1, -1
    for i in range(1, p.shape[0]):
        k = parent[i]
        dx, dy, dz = unit(p[i, 0] - p[k, 0], p[i, 1] - p[k, 1], p[i, 2] - p[k, 2], 1.0, 0.0, 0.0)
        for j in range(obstacles.shape[0]):
            d = -link_clearance(obstacles, j, p[k, 0], p[k, 1], p[k, 2], dx, dy, dz, length[i])
            if d > worst:
                worst, link, which = d, i, j
    return worst, link, which


# --- the passes ---


@kernel
def chain_cycle(length, target, p, back):
    """Both passes of an unlimited chain with one target: nothing but square roots. Points after backward in `back`."""
    n = p.shape[0] - 1
    x, y, z = target[0], target[1], target[2]
    back[n, 0], back[n, 1], back[n, 2] = x, y, z
    for i in range(n - 1, -1, -1):
        dx, dy, dz = p[i, 0] - x, p[i, 1] - y, p[i, 2] - z
        size = np.sqrt(dx * dx + dy * dy + dz * dz)
        if size > 1e-300:
            f = length[i + 1] / size
            x, y, z = x + f * dx, y + f * dy, z + f * dz
        else:
            x -= length[i + 1]
        back[i, 0], back[i, 1], back[i, 2] = x, y, z
    x, y, z = p[0, 0], p[0, 1], p[0, 2]
    for i in range(1, n + 1):
        dx, dy, dz = back[i, 0] - x, back[i, 1] - y, back[i, 2] - z
        size = np.sqrt(dx * dx + dy * dy + dz * dz)
        if size > 1e-300:
            f = length[i] / size
            x, y, z = x + f * dx, y + f * dy, z + f * dz
        else:
            x += length[i]
        p[i, 0], p[i, 1], p[i, 2] = x, y, z


@kernel
def backward(parent, length, joint, branch, pulls, targets, loops, obstacles, limited, p, w):
    """Tip to root: every pulled point goes where it is wanted, every sub-base to the centroid of the proposals."""
    back, pull, weight, R, B, Q = w.back, w.pull, w.weight, w.R, w.B, w.Q  # counted once, not at every use
    n = p.shape[0]
    for i in range(n):
        weight[i] = 0.0
        for k in range(3):
            pull[i, k] = 0.0
            back[i, k] = p[i, k]
    for e in range(pulls.shape[0]):
        i, f = int(pulls[e, PULL_POINT]), pulls[e, PULL_WEIGHT]
        weight[i] += f
        for k in range(3):
            pull[i, k] += f * targets[e, k]
    for e in range(loops.shape[0]):
        i, j = int(loops[e, 0]), int(loops[e, 1])
        x, y, z = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
        size = np.sqrt(x * x + y * y + z * z)
        half = 0.5 * (size - loops[e, 2])
        x, y, z = unit(x, y, z, 1.0, 0.0, 0.0)
        weight[i] += 1.0
        weight[j] += 1.0
        pull[i, 0] += p[i, 0] + half * x
        pull[i, 1] += p[i, 1] + half * y
        pull[i, 2] += p[i, 2] + half * z
        pull[j, 0] += p[j, 0] - half * x
        pull[j, 1] += p[j, 1] - half * y
        pull[j, 2] += p[j, 2] - half * z
    for i in range(n - 1, 0, -1):
        m = parent[i]
        f = weight[i]
        if f <= 0.0:  # nothing pulls here or beyond: the link follows its parent later
            if limited:
                for k in range(9):
                    B[i, k] = R[i, k]
            continue
        x, y, z = pull[i, 0] / f, pull[i, 1] / f, pull[i, 2] / f
        back[i, 0], back[i, 1], back[i, 2] = x, y, z
        px, py, pz = p[m, 0], p[m, 1], p[m, 2]
        dx, dy, dz = unit(x - px, y - py, z - pz, 1.0, 0.0, 0.0)
        if limited:
            child = int(joint[i, ONLY_CHILD])
            if child >= 0 and weight[child] > 0.0:
                dx, dy, dz = limit_backward(joint, i, child, R, B, Q, dx, dy, dz)
            elif joint[i, FLAT] != 0.0:
                ux, uy, uz = apply(R, i, joint[i, U], joint[i, U + 1], 0.0)
                c, s = ux * dx + uy * dy, ux * dy - uy * dx
                turn_flat(B, i, R[i, 0] * c - R[i, 3] * s, R[i, 3] * c + R[i, 0] * s)
            else:
                ux, uy, uz = apply(R, i, joint[i, U], joint[i, U + 1], joint[i, U + 2])
                hx, hy, hz = apply(R, i, joint[i, A], joint[i, A + 1], joint[i, A + 2])
                ax, ay, az, c, s = swing_axis(ux, uy, uz, dx, dy, dz, hx, hy, hz)
                turn_outside(R, i, ax, ay, az, c, s, B, i)
        if obstacles.shape[0] > 0:
            dx, dy, dz = push_off(obstacles, x, y, z, length[i], -dx, -dy, -dz)
            dx, dy, dz = -dx, -dy, -dz
        f = branch[i]
        weight[m] += f
        pull[m, 0] += f * (x - length[i] * dx)
        pull[m, 1] += f * (y - length[i] * dy)
        pull[m, 2] += f * (z - length[i] * dz)


@kernel
def forward(parent, length, joint, obstacles, limited, cos_cap, sin_cap, p, w):
    """Root to tip: every link at its length, towards where the backward pass left its end, inside cap and limits."""
    back, R, old = w.back, w.R, w.old  # counted once, not at every use
    for i in range(1, p.shape[0]):
        m = parent[i]
        px, py, pz = p[m, 0], p[m, 1], p[m, 2]
        ox, oy, oz = old[i, 0], old[i, 1], old[i, 2]
        dx, dy, dz = unit(back[i, 0] - px, back[i, 1] - py, back[i, 2] - pz, ox, oy, oz)
        if ox * dx + oy * dy + oz * dz < cos_cap:
            dx, dy, dz = towards(ox, oy, oz, dx, dy, dz, cos_cap, sin_cap)
        if limited:
            # The root's frame, row 0, is the base's and never turns.
            dx, dy, dz = limit_forward(joint, i, R, m, dx, dy, dz)
        if obstacles.shape[0] > 0:
            dx, dy, dz = push_off(obstacles, px, py, pz, length[i], dx, dy, dz)
            if limited:  # limits are a promise, clearance is an aim
                dx, dy, dz = limit_forward(joint, i, R, m, dx, dy, dz)
        p[i, 0], p[i, 1], p[i, 2] = px + length[i] * dx, py + length[i] * dy, pz + length[i] * dz
        old[i, 0], old[i, 1], old[i, 2] = dx, dy, dz


@kernel
def settle(parent, length, joint, limited, p, w):
    """Make the points of a start legal: lengths, limits, frames. A point where there is none gets a fixed direction."""
    back, R, old = w.back, w.R, w.old  # counted once, not at every use
    for i in range(1, p.shape[0]):
        for k in range(3):
            back[i, k] = p[i, k]
    for i in range(1, p.shape[0]):
        m = parent[i]
        # Directions are taken between the points as given, so that a start of other lengths keeps its shape.
        x, y, z = back[i, 0], back[i, 1], back[i, 2]
        if m > 0:
            x, y, z = x - back[m, 0], y - back[m, 1], z - back[m, 2]
        else:
            x, y, z = x - p[0, 0], y - p[0, 1], z - p[0, 2]
        size = np.sqrt(x * x + y * y + z * z)
        exact = abs(size - length[i]) <= 1e-12 * length[i] and m == 0
        if size > 1e-300:
            dx, dy, dz = x / size, y / size, z / size
        elif m > 0:
            dx, dy, dz = old[m, 0], old[m, 1], old[m, 2]
        else:
            dx, dy, dz = 1.0, 0.0, 0.0
        if limited:
            dx, dy, dz = limit_forward(joint, i, R, m, dx, dy, dz)
            exact = False
        old[i, 0], old[i, 1], old[i, 2] = dx, dy, dz
        if not exact:
            p[i, 0] = p[m, 0] + length[i] * dx
            p[i, 1] = p[m, 1] + length[i] * dy
            p[i, 2] = p[m, 2] + length[i] * dz
