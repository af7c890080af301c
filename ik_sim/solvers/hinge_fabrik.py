"""FABRIK on the true hinges of a serial chain: two passes that keep every link rigid and every joint legal.

The classical passes move points and would need balls for joints. Here a link is a whole frame. Backward, the tool is put
on the target and each link, from tool to base, takes the place nearest to where it was that its hinge with the link
after it allows. Forward, the base is put back and each joint turns so that its link comes nearest to where the
backward pass left it. "Nearest" weighs the origins and, with a length, the axes; the best turn about one axis is an
arc tangent, clamped to the joint's limits on its way. After every cycle the chain is a legal configuration.

With an orientation to meet the tool goes to the full pose. A point leaves the tool's orientation as it was: axes weigh
as much then, or a joint that carries its next hinge on a short arm would swing wildly after it.

Sources: Aristidou & Lasenby 2011 (the two passes); Aristidou, Chrysanthou & Lasenby 2016 (hinges and limits); the
frames instead of points are ours.
"""

import numpy as np

from ik_sim.chain import AXES, FRAMES, JOINTS, LOWER, UPPER
from ik_sim.compiled import kernel
from ik_sim.target import AXIS, POSE


@kernel
def place_frames(c, q, G):
    """G[j] is the frame of joint j after its motion, row by row with its origin (12 numbers); G[m] is the tool's."""
    a, f = int(c[AXES]), int(c[FRAMES])
    m = int(c[JOINTS])
    for j in range(m + 1):
        _after(c, f + 12 * j, G, j - 1, G, j)
        if j < m:
            _turn(c, a + 4 * j, c[a + 4 * j + 2] * q[int(c[a + 4 * j + 1])] + c[a + 4 * j + 3], G, j)


@kernel
def _after(c, f, G, parent, H, j):
    """H[j] = G[parent] · F, F the twelve numbers at c[f]; parent -1 is the base."""
    for i in range(3):
        if parent < 0:
            for k in range(4):
                H[j, 4 * i + k] = c[f + 4 * i + k]
            continue
        x, y, z = G[parent, 4 * i], G[parent, 4 * i + 1], G[parent, 4 * i + 2]
        for k in range(4):
            H[j, 4 * i + k] = x * c[f + k] + y * c[f + 4 + k] + z * c[f + 8 + k]
        H[j, 4 * i + 3] += G[parent, 4 * i + 3]


@kernel
def _turn(c, a, x, G, j):
    """Move frame j about or along its own z axis by x, as its joint's kind at c[a] says."""
    if c[a] != 0.0:
        for i in range(3):
            G[j, 4 * i + 3] += x * G[j, 4 * i + 2]
        return
    cos, sin = np.cos(x), np.sin(x)
    for i in range(3):
        u, v = G[j, 4 * i], G[j, 4 * i + 1]
        G[j, 4 * i], G[j, 4 * i + 1] = u * cos + v * sin, v * cos - u * sin


@kernel
def _before(c, f, H, j, G, parent):
    """G[parent] = H[j] · F⁻¹."""
    for i in range(3):
        x, y, z = H[j, 4 * i], H[j, 4 * i + 1], H[j, 4 * i + 2]
        for k in range(3):
            G[parent, 4 * i + k] = x * c[f + 4 * k] + y * c[f + 4 * k + 1] + z * c[f + 4 * k + 2]
        G[parent, 4 * i + 3] = H[j, 4 * i + 3]
    for i in range(3):
        x, y, z = G[parent, 4 * i], G[parent, 4 * i + 1], G[parent, 4 * i + 2]
        G[parent, 4 * i + 3] -= x * c[f + 3] + y * c[f + 7] + z * c[f + 11]


@kernel
def _best_turn(zx, zy, zz, px, py, pz, A, a, B, b, square):
    """The turn about the axis z through p that brings frame A[a] nearest to frame B[b]."""
    sine, cosine = 0.0, 0.0
    for column in range(4):
        if column == 3:
            ux, uy, uz = A[a, 3] - px, A[a, 7] - py, A[a, 11] - pz
            vx, vy, vz = B[b, 3] - px, B[b, 7] - py, B[b, 11] - pz
            weight = 1.0
        else:
            ux, uy, uz = A[a, column], A[a, 4 + column], A[a, 8 + column]
            vx, vy, vz = B[b, column], B[b, 4 + column], B[b, 8 + column]
            weight = square
        sine += weight * (zx * (uy * vz - uz * vy) + zy * (uz * vx - ux * vz) + zz * (ux * vy - uy * vx))
        along = (ux * zx + uy * zy + uz * zz) * (vx * zx + vy * zy + vz * zz)
        cosine += weight * (ux * vx + uy * vy + uz * vz - along)
    if sine * sine + cosine * cosine < 1e-30:
        return 0.0
    return np.arctan2(sine, cosine)


@kernel
def cycle(c, T, kind, q, length, G, H, room):
    """One backward and one forward pass; q gets the new joints. G holds the frames at q before and after.

    H (m + 1, 12) and room (2, 12) are scratch: H[j] is where the backward pass wants the link after joint j.
    `length` weighs a radian against distances [m].
    """
    m = int(c[JOINTS])
    a, f = int(c[AXES]), int(c[FRAMES])
    lower, upper = int(c[LOWER]), int(c[UPPER])
    square = length * length
    # Backward: the tool onto the target …
    for i in range(3):
        for k in range(3):
            H[m, 4 * i + k] = G[m, 4 * i + k] if kind != POSE else T[i, k]
        H[m, 4 * i + 3] = T[i, 3]
    if kind == AXIS:
        _align_z(T, H, m)
    # … then each link onto its hinge with the next. room[0] is that next link's frame before its joint's motion.
    for i in range(12):
        room[0, i] = H[m, i]
    for j in range(m - 1, -1, -1):
        _before(c, f + 12 * (j + 1), room, 0, H, j)
        k, scale, shift = int(c[a + 4 * j + 1]), c[a + 4 * j + 2], c[a + 4 * j + 3]
        x = scale * q[k] + shift
        if j > 0 and scale != 0.0:
            # The link before, if this joint kept its value; then turned about the hinge to lie near where it was.
            zx, zy, zz = H[j, 2], H[j, 6], H[j, 10]
            for i in range(12):
                room[0, i] = H[j, i]
            _turn(c, a + 4 * j, -x, room, 0)
            _before(c, f + 12 * j, room, 0, room, 1)
            if c[a + 4 * j] == 0.0:
                step = -_best_turn(zx, zy, zz, H[j, 3], H[j, 7], H[j, 11], room, 1, G, j - 1, square)
            else:
                step = -(
                    (G[j - 1, 3] - room[1, 3]) * zx
                    + (G[j - 1, 7] - room[1, 7]) * zy
                    + (G[j - 1, 11] - room[1, 11]) * zz
                )
            x = scale * min(max(q[k] + step / scale, c[lower + k]), c[upper + k]) + shift
        for i in range(12):
            room[0, i] = H[j, i]
        _turn(c, a + 4 * j, -x, room, 0)
    # Forward: from the base, each joint brings its link near to where the backward pass wants it.
    for j in range(m):
        _after(c, f + 12 * j, G, j - 1, G, j)
        k, scale, shift = int(c[a + 4 * j + 1]), c[a + 4 * j + 2], c[a + 4 * j + 3]
        x = scale * q[k] + shift
        first = True
        for i in range(j):
            if int(c[a + 4 * i + 1]) == k:
                first = False  # a mimic joint: its master has moved already
        if first and scale != 0.0:
            _turn(c, a + 4 * j, x, G, j)
            zx, zy, zz = G[j, 2], G[j, 6], G[j, 10]
            px, py, pz = G[j, 3], G[j, 7], G[j, 11]
            _after(c, f + 12 * (j + 1), G, j, room, 0)
            _after(c, f + 12 * (j + 1), H, j, room, 1)
            if c[a + 4 * j] == 0.0:
                step = _best_turn(zx, zy, zz, px, py, pz, room, 0, room, 1, square)
            else:
                step = (
                    (room[1, 3] - room[0, 3]) * zx + (room[1, 7] - room[0, 7]) * zy + (room[1, 11] - room[0, 11]) * zz
                )
            q[k] = min(max(q[k] + step / scale, c[lower + k]), c[upper + k])
            x = scale * q[k] + shift
            _after(c, f + 12 * j, G, j - 1, G, j)
        _turn(c, a + 4 * j, x, G, j)
    _after(c, f + 12 * m, G, m - 1, G, m)


@kernel
def _align_z(T, H, m):
    """Turn frame H[m] by the shortest way so that its z axis lies along the target's."""
    zx, zy, zz = H[m, 2], H[m, 6], H[m, 10]
    tx, ty, tz = T[0, 2], T[1, 2], T[2, 2]
    vx, vy, vz = zy * tz - zz * ty, zz * tx - zx * tz, zx * ty - zy * tx
    cos = zx * tx + zy * ty + zz * tz
    if cos < -0.999999:  # opposite: half a turn about the tool's x
        for i in range(3):
            H[m, 4 * i + 1] = -H[m, 4 * i + 1]
            H[m, 4 * i + 2] = -H[m, 4 * i + 2]
        return
    k = 1.0 / (1.0 + cos)
    for column in range(3):
        x, y, z = H[m, column], H[m, 4 + column], H[m, 8 + column]
        dot = vx * x + vy * y + vz * z
        H[m, column] = x * cos + (vy * z - vz * y) + vx * dot * k
        H[m, 4 + column] = y * cos + (vz * x - vx * z) + vy * dot * k
        H[m, 8 + column] = z * cos + (vx * y - vy * x) + vz * dot * k
