"""Where passes stall on joints with limits: all joints turned together, by damped Gauss-Newton steps.

A pass sees one joint at a time, so it never turns a ball joint for the sake of a hinge farther out. Here every joint
is a coordinate: a hinge its angle, a ball joint the two in which its link swings about its rest direction. A step
solves (J Jᵀ + μ I) y = e and moves by Jᵀ y; a coordinate that stands at its limit and would leave it is held, and a
step that brings the effectors no nearer is taken back and damped more (Levenberg 1944).
"""

import numpy as np

from ik_sim.compiled import kernel
from ik_sim.fabrik import cycle as c
from ik_sim.fabrik.cycle import apply, limit_forward, unit
from ik_sim.linear import solve_spd

LARGEST_STEP = 0.5  # [rad]


@kernel
def read_joints(parent, joint, p, w, local, angle):
    """Each link's direction seen from its parent's frame, and its angle: of the hinge, or between it and rest."""
    R, old = w.R, w.old
    for i in range(1, p.shape[0]):
        m = parent[i]
        x, y, z = old[i, 0], old[i, 1], old[i, 2]
        for k in range(3):
            local[i, k] = R[m, k] * x + R[m, 3 + k] * y + R[m, 6 + k] * z
        x, y, z = local[i, 0], local[i, 1], local[i, 2]
        if joint[i, c.KIND] == c.HINGE:
            a = x * joint[i, c.E1] + y * joint[i, c.E1 + 1] + z * joint[i, c.E1 + 2]
            b = x * joint[i, c.E2] + y * joint[i, c.E2 + 1] + z * joint[i, c.E2 + 2]
            t = np.arctan2(b, a) - joint[i, c.CENTRE]
            angle[i] = t - 2.0 * np.pi * np.rint(t / (2.0 * np.pi))
        else:
            angle[i] = np.arccos(min(1.0, max(-1.0, x * joint[i, c.U] + y * joint[i, c.U + 1] + z * joint[i, c.U + 2])))


@kernel
def axes_of(parent, joint, p, w, local, angle, axes):
    """The rotations, in base axes, that the coordinates of each joint give its link: two rows a point.

    A link that swings carries its frame by the shortest rotation from rest, Q = (1 + u·d, u × d) as a quaternion: when
    d moves by e, the frame turns by 2 vec(dQ Q*) / |Q|².
    """
    R = w.R
    for i in range(1, p.shape[0]):
        m = parent[i]
        for k in range(6):
            axes[i, k] = 0.0
        if joint[i, c.KIND] == c.HINGE:
            x, y, z = apply(R, m, joint[i, c.A], joint[i, c.A + 1], joint[i, c.A + 2])
            axes[i, 0], axes[i, 1], axes[i, 2] = x, y, z
            continue
        ux, uy, uz = joint[i, c.U], joint[i, c.U + 1], joint[i, c.U + 2]
        dx, dy, dz = local[i, 0], local[i, 1], local[i, 2]
        for column in range(2):
            ex, ey, ez = swing_of(ux, uy, uz, dx, dy, dz, column)
            q0 = 1.0 + ux * dx + uy * dy + uz * dz
            if q0 < 1e-9:  # turned right round: which way is not defined
                continue
            qx, qy, qz = uy * dz - uz * dy, uz * dx - ux * dz, ux * dy - uy * dx
            r0 = ux * ex + uy * ey + uz * ez
            rx, ry, rz = uy * ez - uz * ey, uz * ex - ux * ez, ux * ey - uy * ex
            x = q0 * rx - r0 * qx - (ry * qz - rz * qy)
            y = q0 * ry - r0 * qy - (rz * qx - rx * qz)
            z = q0 * rz - r0 * qz - (rx * qy - ry * qx)
            x, y, z = apply(R, m, x / q0, y / q0, z / q0)  # 2 / |Q|² = 1 / q0
            k = 3 * column
            axes[i, k], axes[i, k + 1], axes[i, k + 2] = x, y, z


@kernel
def swing_of(ux, uy, uz, dx, dy, dz, column):
    """Unit vector across d: away from u (column 0), or around it (column 1)."""
    d = ux * dx + uy * dy + uz * dz
    x, y, z = d * dx - ux, d * dy - uy, d * dz - uz
    if x * x + y * y + z * z < 1e-16:  # at rest every way leads away from it
        if abs(dx) < 0.9:
            x, y, z = 1.0 - dx * dx, -dx * dy, -dx * dz
        else:
            x, y, z = -dy * dx, 1.0 - dy * dy, -dy * dz
    x, y, z = unit(x, y, z, 0.0, 0.0, 1.0)
    if column == 0:
        return x, y, z
    return dy * z - dz * y, dz * x - dx * z, dx * y - dy * x


@kernel
def raise_joints(parent, length, joint, local, p, w):
    """Points and frames from directions seen from the parents' frames, inside the limits."""
    R, old = w.R, w.old
    for i in range(1, p.shape[0]):
        m = parent[i]
        x, y, z = apply(R, m, local[i, 0], local[i, 1], local[i, 2])
        x, y, z = unit(x, y, z, 1.0, 0.0, 0.0)
        x, y, z = limit_forward(joint, i, R, m, x, y, z)
        old[i, 0], old[i, 1], old[i, 2] = x, y, z
        p[i, 0], p[i, 1], p[i, 2] = p[m, 0] + length[i] * x, p[m, 1] + length[i] * y, p[m, 2] + length[i] * z


@kernel
def move_joints(joint, local, angle, step, moved):
    """Directions after a step of all coordinates, each kept inside its limits."""
    for i in range(1, local.shape[0]):
        half = min(joint[i, c.HALF], np.pi)
        if joint[i, c.KIND] == c.HINGE:
            t = angle[i] + step[2 * i]
            if joint[i, c.HALF] < np.pi:
                t = min(max(t, -half), half)
            t += joint[i, c.CENTRE]
            a, b = np.cos(t), np.sin(t)
            for k in range(3):  # the part along the axis is put back by the joint itself
                moved[i, k] = a * joint[i, c.E1 + k] + b * joint[i, c.E2 + k]
            continue
        ux, uy, uz = joint[i, c.U], joint[i, c.U + 1], joint[i, c.U + 2]
        dx, dy, dz = local[i, 0], local[i, 1], local[i, 2]
        a = min(step[2 * i], half - angle[i])
        b = step[2 * i + 1]
        x, y, z = swing_of(ux, uy, uz, dx, dy, dz, 0)
        ex, ey, ez = swing_of(ux, uy, uz, dx, dy, dz, 1)
        x, y, z = a * x + b * ex, a * y + b * ey, a * z + b * ez
        size = np.sqrt(x * x + y * y + z * z)
        s = np.sin(size) / size if size > 1e-12 else 1.0
        co = np.cos(size)
        moved[i, 0], moved[i, 1], moved[i, 2] = co * dx + s * x, co * dy + s * y, co * dz + s * z


@kernel
def misses_of(pulls, targets, loops, p, e):
    """The rows that a step makes smaller: target less effector, weighted, and loops' gaps. Returns their square."""
    total = 0.0
    for i in range(pulls.shape[0]):
        k, f = int(pulls[i, 0]), np.sqrt(pulls[i, 1])
        for j in range(3):
            e[3 * i + j] = f * (targets[i, j] - p[k, j])
            total += e[3 * i + j] ** 2
    for i in range(loops.shape[0]):
        row = 3 * (pulls.shape[0] + i)
        a, b = int(loops[i, 0]), int(loops[i, 1])
        x, y, z = p[a, 0] - p[b, 0], p[a, 1] - p[b, 1], p[a, 2] - p[b, 2]
        if loops[i, 2] == 0.0:
            e[row], e[row + 1], e[row + 2] = x, y, z
        else:
            e[row], e[row + 1], e[row + 2] = np.sqrt(x * x + y * y + z * z) - loops[i, 2], 0.0, 0.0
        total += e[row] ** 2 + e[row + 1] ** 2 + e[row + 2] ** 2
    return total


@kernel
def add_path(parent, axes, p, i, row, f, nx, ny, nz, along, J):
    """Add to J how the coordinates between point i and the root move it: all three rows, or one along n."""
    k = i
    while k > 0:
        m = parent[k]
        x, y, z = p[i, 0] - p[m, 0], p[i, 1] - p[m, 1], p[i, 2] - p[m, 2]
        for column in range(2):
            h = 3 * column
            ax, ay, az = axes[k, h], axes[k, h + 1], axes[k, h + 2]
            vx, vy, vz = f * (ay * z - az * y), f * (az * x - ax * z), f * (ax * y - ay * x)
            if along:
                J[row, 2 * k + column] += vx * nx + vy * ny + vz * nz
            else:
                J[row, 2 * k + column] += vx
                J[row + 1, 2 * k + column] += vy
                J[row + 2, 2 * k + column] += vz
        k = m


@kernel
def jacobian(parent, axes, pulls, loops, p, J):
    """How every row of `misses_of` falls with every coordinate, two a point."""
    J[:, :] = 0.0
    for e in range(pulls.shape[0]):
        add_path(parent, axes, p, int(pulls[e, 0]), 3 * e, np.sqrt(pulls[e, 1]), 0.0, 0.0, 0.0, False, J)
    for e in range(loops.shape[0]):
        row = 3 * (pulls.shape[0] + e)
        a, b = int(loops[e, 0]), int(loops[e, 1])
        x, y, z = unit(p[a, 0] - p[b, 0], p[a, 1] - p[b, 1], p[a, 2] - p[b, 2], 1.0, 0.0, 0.0)
        along = loops[e, 2] > 0.0
        add_path(parent, axes, p, a, row, -1.0, x, y, z, along, J)
        add_path(parent, axes, p, b, row, 1.0, x, y, z, along, J)


@kernel
def solve_damped(A, damping, e, L, y):
    """Solve (A + damping I) y = e and leave A and e as they are; L is scratch. False where it isn't positive definite."""
    n = A.shape[0]
    for i in range(n):
        y[i] = e[i]
        for j in range(i + 1):
            L[i, j] = A[i, j]
        L[i, i] += damping
    return solve_spd(L, y, n)


@kernel
def find_step(joint, J, e, damping, angle, held, A, L, y, step):
    """The damped step; coordinates that stand at a limit and would leave it are held. False when there is none."""
    rows, columns = J.shape
    for i in range(columns):
        held[i] = 0.0
    for _ in range(4):
        for i in range(rows):
            for j in range(i + 1):
                A[i, j] = 0.0
        for k in range(columns):
            if held[k] == 0.0:
                for i in range(rows):
                    if J[i, k] != 0.0:
                        for j in range(i + 1):
                            A[i, j] += J[i, k] * J[j, k]
        if not solve_damped(A, damping, e, L, y):
            return False
        again = False
        for k in range(columns):
            step[k] = 0.0
            if held[k] != 0.0:
                continue
            for i in range(rows):
                step[k] += J[i, k] * y[i]
            i = k // 2
            half = joint[i, c.HALF]
            if half >= np.pi or (k % 2 == 1):
                continue
            out = (step[k] > 0.0 and angle[i] >= half - 1e-9) or (
                step[k] < 0.0 and angle[i] <= -half + 1e-9 and joint[i, c.KIND] == c.HINGE
            )
            if out:
                held[k], step[k], again = 1.0, 0.0, True
        if not again:
            break
    return True


@kernel
def turn_together(parent, length, joint, pulls, targets, loops, tolerance, most, p, w):
    """Turn all joints of the points p together until every target is met or nothing improves; returns the steps."""
    n, rows = p.shape[0], 3 * (pulls.shape[0] + loops.shape[0])
    local, moved, angle = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros(n)
    axes, J = np.zeros((n, 6)), np.zeros((rows, 2 * n))
    A, L = np.zeros((rows, rows)), np.zeros((rows, rows))
    e, y, step, held = np.zeros(rows), np.zeros(rows), np.zeros(2 * n), np.zeros(2 * n)
    goal = 0.25 * tolerance * tolerance
    for i in range(pulls.shape[0]):
        goal = min(goal, 0.25 * tolerance * tolerance * pulls[i, 1])
    read_joints(parent, joint, p, w, local, angle)
    total = misses_of(pulls, targets, loops, p, e)
    mu, count, mark, rounds = 1e-3, 0, total, 0
    while count < most and total > goal:
        axes_of(parent, joint, p, w, local, angle, axes)
        jacobian(parent, axes, pulls, loops, p, J)
        size = 0.0
        for i in range(rows):
            for k in range(2 * n):
                size += J[i, k] * J[i, k]
        if size == 0.0:
            break
        better = False
        while count < most and mu < 1e8:
            count += 1
            if not find_step(joint, J, e, mu * size / rows, angle, held, A, L, y, step):
                mu *= 10.0
                continue
            largest = 0.0
            for k in range(2 * n):
                largest = max(largest, abs(step[k]))
            if largest > LARGEST_STEP:
                for k in range(2 * n):
                    step[k] *= LARGEST_STEP / largest
            move_joints(joint, local, angle, step, moved)
            raise_joints(parent, length, joint, moved, p, w)
            now = misses_of(pulls, targets, loops, p, e)
            if now < total * (1.0 - 1e-12):
                better = True
                total = now
                mu = max(mu * 0.2, 1e-12)
                break
            raise_joints(parent, length, joint, local, p, w)
            misses_of(pulls, targets, loops, p, e)
            mu *= 6.0
        if not better:
            break
        read_joints(parent, joint, p, w, local, angle)
        rounds += 1
        if rounds % 10 == 0:
            if total > 0.9 * mark:
                break
            mark = total
    return count
