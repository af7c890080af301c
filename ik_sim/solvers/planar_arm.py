"""The planar families: the two-link triangle; planar2 reaches points, planar3 poses in its plane."""

import numpy as np

from ik_sim.chain import DOF, FAMILY, PARAMETERS
from ik_sim.compiled import kernel
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import record as r
from ik_sim.target import POSE


@kernel
def solve_planar(c, T, kind, s, out):
    """Both elbows of the two-link triangle; with three links the last one's direction is given by the pose."""
    n = int(c[DOF])
    p = int(c[PARAMETERS]) + 24
    D = ideal.family_target(c, T)
    theta, q, seed, best = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        seed[i] = out[i]
    l1, l2 = c[p], c[p + 1]
    x, y = D[9], D[10]
    yaw = np.arctan2(D[3], D[0])
    if kind != POSE:  # the target's axes say nothing: the tool's place in the family frame is needed as it is
        b = int(c[PARAMETERS])
        x = c[b] * T[0, 3] + c[b + 1] * T[1, 3] + c[b + 2] * T[2, 3] + c[b + 3]
        y = c[b + 4] * T[0, 3] + c[b + 5] * T[1, 3] + c[b + 6] * T[2, 3] + c[b + 7]
    if n == 3:
        x, y = x - c[p + 2] * np.cos(yaw), y - c[p + 2] * np.sin(yaw)
    dist = np.sqrt(x * x + y * y)
    gap = max(dist - (l1 + l2), abs(l1 - l2) - dist)
    if n == 2 and kind == POSE:  # the pose holds more than two joints can choose: its yaw says where the elbow is
        ex, ey = x - l2 * np.cos(yaw), y - l2 * np.sin(yaw)
        if abs(np.sqrt(ex * ex + ey * ey) - l1) <= s[r.TOLERANCE_POSITION]:
            theta[0] = np.arctan2(ey, ex)
            theta[1] = r.wrap(yaw - theta[0])
            beyond, where, away = ideal.to_joints(c, theta, seed, q, n)
            r.copy(q, out)
            if beyond <= ideal.LIMIT_SLACK:
                return True
            r.say(c, out, r.JOINT_LIMITS, r.BRANCHES_BLOCKED, 1.0, float(where), beyond)
            return False
    delta = ideal.bend(l1, l2, dist)
    direction = np.arctan2(y, x)
    if dist < 1e-12:
        direction = ideal.family_angle(c, seed, 0, n) + 0.5 * delta  # folded onto the base: any direction will do
    nearest, least, blocked = np.inf, np.inf, 0
    for k in range(2):
        theta[1] = delta if k == 0 else -delta
        theta[0] = r.wrap(direction - np.arctan2(l2 * np.sin(theta[1]), l1 + l2 * np.cos(theta[1])))
        if n == 3:
            theta[2] = r.wrap(yaw - theta[0] - theta[1])
        beyond, where, away = ideal.to_joints(c, theta, seed, q, n)
        if n == 2 and kind == POSE:
            away = abs(r.wrap(yaw - theta[0] - theta[1]))
        if beyond <= ideal.LIMIT_SLACK:
            if away < nearest:
                nearest = away
                r.copy(q, best)
        elif beyond < least:
            least, blocked = beyond, where
            if nearest == np.inf:
                r.copy(q, best)
    r.copy(best, out)
    if gap > ideal.REACH_SLACK:
        if dist > l1 + l2:
            r.say(c, out, r.OUT_OF_REACH, r.BEYOND_OUTER, gap, l1 + l2, x / dist, y / dist, 0.0)
        else:
            r.say(c, out, r.OUT_OF_REACH, r.INSIDE_INNER, gap, abs(l1 - l2))
        return False
    if nearest < np.inf:
        return True
    r.say(c, out, r.JOINT_LIMITS, r.BRANCHES_BLOCKED, 1.0 if delta == 0.0 else 2.0, float(blocked), least)
    return False


@kernel
def say_off_plane(c, T, kind, slack, out):
    """A plane can be missed too: planar arms can't leave theirs, by more than `slack` [m], nor tilt out of it."""
    n = int(c[DOF])
    if c[FAMILY] != 1.0 and c[FAMILY] != 2.0:
        return
    if out[n + r.STATUS] == r.JOINT_LIMITS:
        return
    b = int(c[PARAMETERS])
    D = ideal.family_target(c, T)
    height = D[11]
    if kind != POSE:  # the tool itself may lie beside the plane of the joints, by as much at every posture
        e = b + 12
        beside = -(c[e + 2] * c[e + 3] + c[e + 6] * c[e + 7] + c[e + 10] * c[e + 11])
        height = c[b + 8] * T[0, 3] + c[b + 9] * T[1, 3] + c[b + 10] * T[2, 3] + c[b + 11] - beside
    if abs(height) > slack and out[n + r.STATUS] != r.OUT_OF_REACH:
        r.say(c, out, r.OUT_OF_REACH, r.OFF_PLANE, abs(height))
    elif out[n + r.STATUS] != r.OUT_OF_REACH and slack < 1e-8:
        r.say(c, out, r.OUT_OF_REACH, r.TILTED, out[n + r.ROTATION_ERROR])
