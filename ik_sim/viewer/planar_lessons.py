"""Presets of the planar bench, each of which teaches one thing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_DEGREE = math.pi / 180.0


@dataclass(frozen=True)
class Lesson:
    """One thing to see."""

    title: str
    text: str
    """What to do and what to look at."""
    state: Mapping[str, Any]
    """For `PlanarLab.from_dict`."""
    cure: str = ""
    """What helps, on the button that does it."""
    cure_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the bench that the button changes."""
    tour: tuple[tuple[float, float], ...] = ()
    """Targets to visit one after the other."""


def _at(radius: float, degrees: float) -> tuple[float, float]:
    return (radius * math.cos(degrees * _DEGREE), radius * math.sin(degrees * _DEGREE))


LESSONS: dict[str, Lesson] = {
    "passes": Lesson(
        "FABRIK, pass by pass",
        "**Step** makes one pass. Backward: the tip is put on the target, and each joint follows along the line to where "
        "it was, at the length of its link; the root has left its place. Forward: the same from the root. Each pair "
        "brings the tip nearer.",
        {"start": [0.3, -0.5, 0.8], "targets": [[1.2, 1.5]], "bench": {"follow": False}},
    ),
    "race": Lesson(
        "Five methods, one start",
        "The same arm, start and target for all. **Run** and watch the curves: straight lines on the logarithmic scale "
        "are linear convergence, a dive at the end is Newton's. The closed form needs no iteration.",
        {
            "start": [0.3, -0.5, 0.8], "targets": [[1.2, 1.5]],
            "bench": {
                "shown": ["fabrik", "jacobian_transpose", "damped_least_squares", "ccd", "closed_form"],
                "method": "damped_least_squares", "follow": False,
            },
        },
    ),
    "crawl": Lesson(
        "Stretched: FABRIK crawls",
        "The target is at 99 % of the reach. FABRIK needs about 1 / (1 − r/R) cycles, 135 here, where damped least squares "
        "needs some dozens of steps. At 90 % FABRIK is there in under 20.",
        {
            "start": [0.0, 0.0, 0.0], "targets": [list(_at(2.97, 0.7 / _DEGREE))],
            "bench": {"shown": ["fabrik", "damped_least_squares"], "method": "fabrik", "iterations_per_frame": 2,
                      "follow": False, "tolerance": 1e-5},
        },
        tour=(_at(2.7, 0.7 / _DEGREE),),
    ),
    "deadlock": Lesson(
        "In line: the deadlock, and its cure",
        "The arm lies on the line to its target. Passes move points along that line only, and the tip swings over the "
        "target for ever. The cure: bend the links alternately by a small angle once, before the first cycle.",
        {"start": [0.0, 0.0, 0.0], "targets": [[1.5, 0.0]], "bench": {"bend": 0.0, "follow": False}},
        cure="Bend by 0.1 rad first", cure_settings={"bend": 0.1},
    ),
    "blow_up": Lesson(
        "λ = 0 at a singularity",
        "The arm is almost straight, and the error points along it. There J Jᵀ is nearly singular, and the pseudo-inverse "
        "(λ = 0) asks for turns of thousands of degrees: see “largest turn asked for” under Numbers. λ keeps the step below "
        "|e| / 2λ, and pays with a few more steps where the arm is bent.",
        {
            "start": [0.5, 0.02], "targets": [[1.1, 0.9]],
            "bench": {"lengths": [1.0, 1.0], "method": "damped_least_squares", "shown": ["damped_least_squares"],
                      "damping": 0.0, "clamp": 0.0, "follow": False},
        },
        cure="λ = 0.2", cure_settings={"damping": 0.2},
    ),
    "limits": Lesson(
        "Limits make a target unreachable",
        "The target is well inside the outer circle, but the joint limits leave only the shaded region of the reach. "
        "FABRIK ends at the nearest posture it finds and says which limit holds it.",
        {
            "start": [0.1, 0.2, 0.1], "targets": [[-1.5, 0.3]],
            "bench": {"limits": [[-90 * _DEGREE, 90 * _DEGREE]] + [[-60 * _DEGREE, 60 * _DEGREE]] * 2, "follow": False},
        },
        cure="Take the limits off", cure_settings={"limits": ()},
    ),
    "flip": Lesson(
        "Branch flip",
        "Joint 1 may turn from −45° to 135°. The closed form stays on the elbow that is nearer to the last posture, until "
        "that branch leaves the limits: **Next target** moves the target by ten degrees, and both joints jump by far more.",
        {
            "start": [75.6 * _DEGREE, -91.1 * _DEGREE], "targets": [list(_at(1.4, 30))],
            "bench": {"lengths": [1.0, 1.0], "limits": [[-45 * _DEGREE, 135 * _DEGREE], None],
                      "method": "closed_form", "shown": ["closed_form"]},
        },
        cure="Joint 1 up to 180°", cure_settings={"limits": ((-45 * _DEGREE, math.pi), None)},
        tour=(_at(1.4, 55), _at(1.4, 80), _at(1.4, 88), _at(1.4, 98), _at(1.4, 110)),
    ),
    "hole": Lesson(
        "The inner circle",
        "The longest link is longer than all others together, so the tip can't come nearer to the root than "
        "2 max L − Σ L. A target inside is clamped to that circle. With three equal links there is no such hole.",
        {"start": [0.3, 0.2, 0.1], "targets": [[0.4, 0.3]], "bench": {"lengths": [2.0, 0.5, 0.5], "follow": False}},
        cure="Three equal links", cure_settings={"lengths": (1.0, 1.0, 1.0)},
    ),
    "gain": Lesson(
        "Gain of the transpose",
        "At α = 2 the steepest descent swings from side to side and gains nothing; near 0 it creeps. The gain is counted "
        "in 1/σ_max(J)², so that it means the same on every arm. A value of 1 never overshoots.",
        {
            "start": [0.3, -0.5, 0.8], "targets": [[0.5, 0.5]],
            "bench": {"method": "jacobian_transpose", "shown": ["jacobian_transpose"], "alpha": 2.0, "budget": 300,
                      "follow": False},
        },
        cure="α = 1", cure_settings={"alpha": 1.0},
    ),
    "tug": Lesson(
        "Limbs that pull against each other",
        "Three limbs on a trunk, a target for each. In the backward pass every limb proposes a place for the point where "
        "they meet (small rings); it goes to their mean. If not all targets can be met, the answer is a compromise.",
        {
            "bench": {"model": "tree", "lengths": [0.7, 0.7], "trunk": [0.9, 0.9], "limbs": 3, "follow": False},
            "targets": [[1.6, 1.9], [0.1, 2.9], [-1.7, 1.2]],
        },
    ),
}  # fmt: skip
"""By name, in the order in which they are offered."""
