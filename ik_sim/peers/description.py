"""Our chain in the words of :class:`ik_sim.peers.peer.Arm`, and as a URDF that any peer reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ik_sim.chain import AXES, FRAMES, JOINTS, Chain
from ik_sim.errors import IkSimError
from ik_sim.se3 import matrix_to_rpy


def describe(name: str, chain: Chain) -> tuple[dict[str, Any], str]:
    """The arm as plain values, and its URDF text: links l0 … l(n+1), axes all z, limits, a mass for each link.

    Unlimited joints get ±π. Raises IkSimError for chains with prismatic or coupled joints, which most peers lack.
    """
    rows = chain.packed[int(chain.packed[AXES]) :][: 4 * int(chain.packed[JOINTS])].reshape(-1, 4)
    if len(rows) != chain.n or rows[:, 0].any() or not np.array_equal(rows[:, 2:], np.tile([1.0, 0.0], (chain.n, 1))):
        raise IkSimError(f"peers take arms of revolute joints, each its own; {name} has others")
    flat = chain.packed[int(chain.packed[FRAMES]) :][: 12 * (chain.n + 1)].reshape(-1, 3, 4)
    frames = np.tile(np.eye(4), (chain.n + 1, 1, 1))
    frames[:, :3] = flat
    lower = np.where(np.isfinite(chain.lower), chain.lower, -np.pi)
    upper = np.where(np.isfinite(chain.upper), chain.upper, np.pi)
    arm = {"name": name, "frames": frames.tolist(), "lower": lower.tolist(), "upper": upper.tolist()}
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    links = "".join(f'<link name="l{i}">{inertial}</link>' for i in range(chain.n + 2))
    joints = []
    for i, frame in enumerate(frames):
        rpy = " ".join(f"{x:.17g}" for x in matrix_to_rpy(np.ascontiguousarray(frame[:3, :3])))
        xyz = " ".join(f"{x:.17g}" for x in frame[:3, 3])
        kind, limit = "fixed", ""
        if i < chain.n:
            kind = "revolute"
            limit = (
                f'<axis xyz="0 0 1"/><limit lower="{lower[i]:.17g}" upper="{upper[i]:.17g}" effort="1" velocity="1"/>'
            )
        joints.append(
            f'<joint name="j{i}" type="{kind}"><parent link="l{i}"/><child link="l{i + 1}"/>'
            f'<origin xyz="{xyz}" rpy="{rpy}"/>{limit}</joint>'
        )
    return arm, f'<?xml version="1.0"?><robot name="{name}">{links}{"".join(joints)}</robot>'
