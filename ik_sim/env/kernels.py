"""What every environment computes at every step, for many arms in one call."""

import numpy as np

from ik_sim.chain import JOINTS, pose_and_axes, tool_pose
from ik_sim.compiled import kernel
from ik_sim.solvers.record import pose_errors
from ik_sim.target import AXIS, POINT


@kernel
def measure(c, q, q_command, T_goal, kind, poses, errors):
    """Tool poses at q and the distances to the goals, for k arms.

    Args:
        c: the chain.
        q: measured joints (k, n).
        q_command: commanded joints (k, n).
        T_goal: (k, 4, 4).
        kind: POSE, POINT or AXIS.
        poses: filled, (k, 12): rotation row by row, then position.
        errors: filled, (k, 4): position and rotation error at q, then at q_command [m, rad].
    """
    for i in range(q.shape[0]):
        pose = tool_pose(c, q[i])
        for j in range(12):
            poses[i, j] = pose[j]
        errors[i, 0], errors[i, 1] = pose_errors(c, T_goal[i], kind, q[i])
        errors[i, 2], errors[i, 3] = pose_errors(c, T_goal[i], kind, q_command[i])


@kernel
def goal_errors(achieved, desired, kind, errors):
    """Position [m] and rotation error [rad] between rows of goals as the observation holds them, to errors (k, 2).

    A row is the position, then nothing (POINT), the tool's z axis (AXIS) or its x and y axes (POSE).
    """
    for i in range(achieved.shape[0]):
        a, d = achieved[i], desired[i]
        dx, dy, dz = a[0] - d[0], a[1] - d[1], a[2] - d[2]
        errors[i, 0] = np.sqrt(dx * dx + dy * dy + dz * dz)
        errors[i, 1] = 0.0
        if kind == POINT:
            continue
        # Σ a_j × d_j over the axes and Σ a_j · d_j: sine and cosine of the one angle, or 2 sin and 1 + 2 cos of three.
        wx = a[4] * d[5] - a[5] * d[4]
        wy = a[5] * d[3] - a[3] * d[5]
        wz = a[3] * d[4] - a[4] * d[3]
        along = a[3] * d[3] + a[4] * d[4] + a[5] * d[5]
        if kind != AXIS:
            wx += a[7] * d[8] - a[8] * d[7]
            wy += a[8] * d[6] - a[6] * d[8]
            wz += a[6] * d[7] - a[7] * d[6]
            along += a[6] * d[6] + a[7] * d[7] + a[8] * d[8]
            ax, ay, az = a[4] * a[8] - a[5] * a[7], a[5] * a[6] - a[3] * a[8], a[3] * a[7] - a[4] * a[6]
            bx, by, bz = d[4] * d[8] - d[5] * d[7], d[5] * d[6] - d[3] * d[8], d[3] * d[7] - d[4] * d[6]
            wx += ay * bz - az * by
            wy += az * bx - ax * bz
            wz += ax * by - ay * bx
            along += ax * bx + ay * by + az * bz - 1.0
        errors[i, 1] = np.arctan2(np.sqrt(wx * wx + wy * wy + wz * wz), along)


@kernel
def clearances(c, q, spheres, radius, out):
    """Smallest gap between an arm and its spheres [m], for k arms; below 0 they overlap.

    The arm is a string of capsules of one radius: from the base over a point on each joint's axis to the tool.

    Args:
        c: the chain.
        q: (k, n).
        spheres: (k, s, 4), centre and radius.
        radius: of the capsules [m].
        out: filled, (k,).
    """
    m = int(c[JOINTS])
    axes = np.empty((m, 6))
    points = np.empty((m + 2, 3))
    for i in range(q.shape[0]):
        pose = pose_and_axes(c, q[i], axes)
        for d in range(3):
            points[0, d] = 0.0
            points[m + 1, d] = pose[9 + d]
            for j in range(m):
                points[j + 1, d] = axes[j, 3 + d]
        least = np.inf
        for s in range(spheres.shape[1]):
            for j in range(m + 1):
                ux, uy, uz = (
                    points[j + 1, 0] - points[j, 0],
                    points[j + 1, 1] - points[j, 1],
                    points[j + 1, 2] - points[j, 2],
                )
                vx = spheres[i, s, 0] - points[j, 0]
                vy = spheres[i, s, 1] - points[j, 1]
                vz = spheres[i, s, 2] - points[j, 2]
                length = ux * ux + uy * uy + uz * uz
                t = 0.0
                if length > 0.0:
                    t = min(max((ux * vx + uy * vy + uz * vz) / length, 0.0), 1.0)
                vx -= t * ux
                vy -= t * uy
                vz -= t * uz
                gap = np.sqrt(vx * vx + vy * vy + vz * vz) - spheres[i, s, 3] - radius
                if gap < least:
                    least = gap
        out[i] = least
