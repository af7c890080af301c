"""What every environment computes at every step, for many arms in one call."""

import numpy as np

from ik_sim.chain import JOINTS, pose_and_axes, tool_pose
from ik_sim.compiled import kernel
from ik_sim.solvers.record import pose_errors
from ik_sim.target import AXIS, POINT


@kernel
def cut(actions, out):
    """Actions cut to [-1, 1], to out; False, with out unfinished, where one is NaN or infinite."""
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            if not np.isfinite(actions[i, j]):
                return False
            out[i, j] = min(max(actions[i, j], -1.0), 1.0)
    return True


@kernel
def steer(actions, origin, joint_step, lower, upper, q, share, speeds, q_command, drive):
    """Commanded joints, inside the limits, and the speeds at which motors head for them, for k arms.

    Args:
        actions: (k, n) in [-1, 1].
        origin: where they start from (k, n); may be q_command itself.
        joint_step: full deflection (n,) [rad or m].
        lower: joint limits (n,).
        upper: joint limits (n,).
        q: measured joints (k, n).
        share: speed for an error (k, 1) [1/s].
        speeds: largest (n,) [rad/s or m/s].
        q_command: filled, (k, n).
        drive: filled, (k, n).
    """
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            wanted = min(max(origin[i, j] + actions[i, j] * joint_step[j], lower[j]), upper[j])
            q_command[i, j] = wanted
            drive[i, j] = min(max(share[i, 0] * (wanted - q[i, j]), -speeds[j]), speeds[j])


@kernel
def displace(c, q, actions, step, normal, T):
    """Where Cartesian actions send tools from the joints q, for k arms.

    Args:
        c: the chain.
        q: (k, n).
        actions: shifts along base axes, x and y only for a planar arm, then turns, if any: about the base axes, or one
            about the normal; (k, a) in [-1, 1].
        step: full deflection [m, rad].
        normal: of a planar arm, else zero (3,).
        T: filled, (k, 4, 4); its last rows stay as they are.
    """
    planar = normal[0] != 0.0 or normal[1] != 0.0 or normal[2] != 0.0
    shifts = 2 if planar else 3
    w, turned = np.zeros(3), np.empty((3, 3))
    for i in range(q.shape[0]):
        pose = tool_pose(c, q[i])
        for d in range(3):
            T[i, d, 3] = pose[9 + d]
            for e in range(3):
                T[i, d, e] = pose[3 * d + e]
        for d in range(shifts):
            T[i, d, 3] += actions[i, d] * step[0]
        if actions.shape[1] == shifts:
            continue
        for d in range(3):
            w[d] = step[1] * (actions[i, 2] * normal[d] if planar else actions[i, 3 + d])
        angle = np.sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
        if angle == 0.0:
            continue
        # Rodrigues, column by column: v cos + (u × v) sin + u (u · v)(1 - cos).
        sine, rest = np.sin(angle) / angle, (1.0 - np.cos(angle)) / (angle * angle)
        for e in range(3):
            x, y, z = T[i, 0, e], T[i, 1, e], T[i, 2, e]
            along = rest * (w[0] * x + w[1] * y + w[2] * z)
            turned[0, e] = np.cos(angle) * x + sine * (w[1] * z - w[2] * y) + along * w[0]
            turned[1, e] = np.cos(angle) * y + sine * (w[2] * x - w[0] * z) + along * w[1]
            turned[2, e] = np.cos(angle) * z + sine * (w[0] * y - w[1] * x) + along * w[2]
        for d in range(3):
            for e in range(3):
                T[i, d, e] = turned[d, e]


@kernel
def measure(c, q, q_command, T_goal, desired, kind, terms, poses, errors, achieved, rewards, success):
    """Tool poses at q, their distances to the goals, and what those are worth, for k arms.

    Args:
        c: the chain.
        q: measured joints (k, n).
        q_command: commanded joints (k, n).
        T_goal: (k, 4, 4).
        desired: the goals as they are observed (k, g), float32.
        kind: POSE, POINT or AXIS.
        terms: of the reward, see `worth`.
        poses: filled, (k, 12): rotation row by row, then position.
        errors: filled, (k, 5): position and rotation error at q, then at q_command [m, rad], then the largest
            difference of the two [rad or m].
        achieved: filled, (k, g): the tools as they are observed, float32.
        rewards: filled, (k,), float32: a function of what is observed, not of the exact errors.
        success: filled, (k,).
    """
    g = achieved.shape[1]
    seen, goal = np.empty(g), np.empty(g)
    for i in range(q.shape[0]):
        pose = tool_pose(c, q[i])
        for j in range(12):
            poses[i, j] = pose[j]
        errors[i, 0], errors[i, 1] = pose_errors(c, T_goal[i], kind, q[i])
        errors[i, 2], errors[i, 3] = pose_errors(c, T_goal[i], kind, q_command[i])
        errors[i, 4] = 0.0
        for j in range(q.shape[1]):
            errors[i, 4] = max(errors[i, 4], abs(q_command[i, j] - q[i, j]))
        for d in range(3):
            achieved[i, d] = poses[i, 9 + d]
            if kind == AXIS:
                achieved[i, 3 + d] = poses[i, 3 * d + 2]
            elif kind != POINT:
                achieved[i, 3 + d] = poses[i, 3 * d]
                achieved[i, 6 + d] = poses[i, 3 * d + 1]
        for j in range(g):
            seen[j] = achieved[i, j]
            goal[j] = desired[i, j]
        rewards[i], success[i] = worth(seen, goal, kind, terms)


@kernel
def observe(q, velocity, poses, achieved, desired, T_goal, low, high, goals_at, seen):
    """Observations (k, m), float32, cut to low and high.

    Joint values and speeds go to the front; from column goals_at on, unless it is -1, tool, goal and the way from one
    to the other. What lies between has been filled before, and is cut.
    """
    n, g = q.shape[1], achieved.shape[1]
    for i in range(q.shape[0]):
        for j in range(n):
            seen[i, j] = q[i, j]
            seen[i, n + j] = velocity[i, j]
        if goals_at >= 0:
            for j in range(g):
                seen[i, goals_at + j] = achieved[i, j]
                seen[i, goals_at + g + j] = desired[i, j]
            for d in range(3):
                seen[i, goals_at + 2 * g + d] = T_goal[i, d, 3] - poses[i, 9 + d]
        for j in range(seen.shape[1]):
            seen[i, j] = min(max(seen[i, j], low[j]), high[j])


@kernel
def judge(achieved, desired, kind, terms, rewards, success):
    """Rewards (k,), float32, and successes (k,) of rows of goals."""
    for i in range(achieved.shape[0]):
        rewards[i], success[i] = worth(achieved[i], desired[i], kind, terms)


@kernel
def worth(achieved, desired, kind, terms):
    """Reward and success of one pair of goals.

    Args:
        achieved: (g,).
        desired: (g,).
        kind: POSE, POINT or AXIS.
        terms: tolerance [m], tolerance [rad], rotation weight [m/rad], success reward, 1 for a sparse reward or 0.
    """
    position, rotation = goal_errors(achieved, desired, kind)
    success = position <= terms[0] and rotation <= terms[1]
    if terms[4] != 0.0:
        return (0.0 if success else -1.0), success
    return (terms[3] if success else 0.0) - (position + terms[2] * rotation), success


@kernel
def goal_errors(a, d, kind):
    """Position [m] and rotation error [rad] between two goals as the observation holds them.

    A goal is the position, then nothing (POINT), the tool's z axis (AXIS) or its x and y axes (POSE).
    """
    dx, dy, dz = a[0] - d[0], a[1] - d[1], a[2] - d[2]
    position = np.sqrt(dx * dx + dy * dy + dz * dz)
    if kind == POINT:
        return position, 0.0
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
    return position, np.arctan2(np.sqrt(wx * wx + wy * wy + wz * wz), along)


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
