"""Presets of the page for an arm in space: each teaches one thing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ik_sim.se3 import rpy_to_matrix, transform
from ik_sim.viewer.lab import Preset


def _pose(xyz: Sequence[float], rpy_deg: Sequence[float] = (180.0, 0.0, 0.0)) -> list[float]:
    """Twelve numbers, as a state holds them; the tool points down when no orientation is given."""
    T = transform(rpy_to_matrix(np.radians(np.array(rpy_deg, dtype=float))), np.array(xyz, dtype=float))
    return T[:3].ravel().tolist()


_BESIDE = [1.158, -1.378, 1.986, -2.179, -1.571, 2.728]  # elbow up, near the first waypoint of the flip
_FRONT = [0.0, -1.2, 1.5, -1.87, -1.57, 0.0]

PRESETS = {
    "Drag the target": Preset(
        "Drag an arrow or a ring at the tool: the UR5 follows. The line above says how near the solver came, and why.",
        {"robot": "ur5"},
    ),
    "Eight ways to one pose": Preset(
        "Shoulder left or right, wrist up or down, elbow up or down: 2 · 2 · 2 postures hold the tool alike. "
        "Click a ghost, or press M, to take one.",
        {"robot": "ur5", "branches": True},
    ),
    "An elbow that is free": Preset(
        "Seven joints, six numbers to meet: the elbow may turn on a circle. Tab *Branches*: turn it with the arm angle. "
        "Where an arc ends, a joint is at its limit.",
        {"robot": "iiwa14", "circle": True, "q": [0.3, 0.7, 0.4, -1.5, 0.2, 1.0, 0.0]},
    ),
    "Limits in the way": Preset(
        "Near enough, and yet no posture: each of the eight branches breaks a joint limit, joint 6 by the least. "
        "Turn the tool by 30 degrees about its y axis and it goes.",
        {"robot": "iiwa14", "T": _pose((0.5, 0.0, 0.5), (0.0, -90.0, 0.0)), "solver": "closed_form"},
    ),
    "Branch flip": Preset(
        "The line crosses the pillar above the base, where the wrist can't go: three targets are missed, and behind it the "
        "wrist has flipped, joint 5 by half a turn. Drag both waypoints outwards by 2 cm, and the jump is gone. The closed "
        "form (auto) passes without a flip.",
        {
            "robot": "ur5", "solver": "levenberg_marquardt", "q": _BESIDE, "T": _pose((-0.105, -0.5, 0.2)),
            "waypoints": [[*_pose((-0.105, -0.5, 0.2)), *_BESIDE], [*_pose((-0.105, 0.5, 0.2)), *_BESIDE]],
        },
    ),
    "λ = 0 at a singularity": Preset(
        "The UR5 is stretched and the target lies 2 cm inwards. Without damping the first step is 6 rad and the error "
        "grows from 2 cm to 1.6 m before it shrinks (see the curve). Set damping=0.02, then 0.1: smooth, then stuck.",
        {
            "robot": "ur5", "q": [0.3, -0.9, 0.0, -0.6, -1.2, 0.0], "T": _pose((-0.517, -0.302, 0.632), (176.0, 21.0, 106.0)),
            "solver": "damped_least_squares", "settings": "damping=0 restarts=0 max_iterations=100", "ellipsoid": True,
        },
    ),
    "FABRIK crawls when stretched": Preset(
        "Almost at full stretch FABRIK needs over a thousand cycles: near a straight arm each cycle gains little. "
        "Pull the target in by 4 mm: a fifth of them. The solver closed_form needs none.",
        {
            "robot": "iiwa14", "T": _pose((0.772, 0.0, 0.89), (0.0, 76.0, 0.0)), "solver": "fabrik",
            "settings": "restarts=0", "circle": False,
        },
    ),
    "A flat ellipsoid": Preset(
        "The ellipsoid is how fast the tool can go each way. The arm is nearly straight: along itself it can hardly move. "
        "Bend joint 4 and watch it fill.",
        {"robot": "iiwa14", "q": [0.2, 0.7, 0.0, -0.12, 0.0, 0.5, 0.0], "ellipsoid": True, "circle": False, "cloud": True},
    ),
    "A weak servo lags": Preset(
        "The ghost is what was commanded, the arm what physics made of it. The solver's error is a million times smaller "
        "than the servo's. Raise the servo gain and play again.",
        {
            "robot": "ur5", "q": _FRONT, "T": _pose((-0.6, -0.3, 0.3)), "gain": 0.05, "stretch": 1.0, "play": True,
            "loop": True,
            "waypoints": [
                [*_pose(xyz), *_FRONT] for xyz in ((-0.6, -0.3, 0.3), (-0.5, 0.25, 0.5), (-0.35, 0.3, 0.2), (-0.6, -0.3, 0.3))
            ],
        },
    ),
    "Joints as sines": Preset(
        "Each joint swings for itself; the tool's trace closes when the frequencies are in whole ratios.",
        {
            "robot": "iiwa14", "q": [0.0, 0.6, 0.0, -1.3, 0.0, 1.0, 0.0], "circle": False, "moving": True,
            "amplitude": [0.7, 0.25, 0.0, 0.3, 0.0, 0.5, 0.0], "frequency": [0.1, 0.2, 0.2, 0.3, 0.2, 0.4, 0.2],
            "phase": [0.0, 0.0, 0.0, math.pi / 2, 0.0, 0.0, 0.0],
        },
    ),
}  # fmt: skip
