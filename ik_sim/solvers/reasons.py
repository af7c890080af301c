"""The reason codes of `record.py` in words a person can act on."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.solvers import record as r
from ik_sim.target import KIND_NAMES


def sentence(row: Float[np.ndarray, "k"], chain: Chain, solver: Any) -> str:
    """One sentence on how the solve ended, with its numbers."""
    n = chain.n
    code = int(row[n + r.REASON])
    d = row[n + r.DETAIL : n + r.DETAIL + r.DETAILS]
    position, rotation = row[n + r.POSITION_ERROR], row[n + r.ROTATION_ERROR]
    name = getattr(solver, "name", None) or type(solver).__name__
    left = f"{position:.3g} m and {np.degrees(rotation):.3g}° away"
    moved = "; the seed was outside the limits and was moved inside" if row[n + r.SEED_MOVED] else ""

    def joint(index: float) -> str:
        return chain.joint_names[int(index)]

    def miss(index: float, amount: float) -> str:
        if not np.isfinite(amount):
            return ""
        return f": the nearest misses {joint(index)} by {np.degrees(amount):.2g}°"

    if code == r.NO_REASON:
        text = "within tolerance"
        if row[n + r.SINGULAR_POSE]:
            text += "; a singular posture: joints that it leaves free keep the seed's values as far as reach and limits allow"
    elif code == r.BEYOND_OUTER:
        along = ", ".join(f"{x:.2f}" for x in d[2:5])
        text = f"the wrist would have to be {d[0]:.3g} m beyond the outer radius {d[1]:.4g} m, along ({along}) from the shoulder"
    elif code == r.INSIDE_INNER:
        text = f"the wrist would have to be {d[0]:.3g} m inside the inner radius {d[1]:.4g} m about the shoulder"
    elif code == r.INSIDE_CYLINDER:
        text = f"wrist centre {d[0]:.4f} m from the base axis, inside the {d[1]:.5g} m cylinder that no wrist can enter"
    elif code == r.OFF_PLANE:
        text = f"the target is {d[0]:.3g} m out of the plane that this arm moves in"
    elif code == r.TILTED:
        text = f"the orientation can't be met: this arm leaves {np.degrees(d[0]):.3g}° at the nearest posture"
    elif code == r.ELBOW_LIMIT:
        side = "beyond" if d[3] else "inside"
        text = (
            f"the wrist would be {d[0]:.3g} m {side} the radius {d[1]:.4g} m that the limit of {joint(3)} "
            f"({np.degrees(d[2]):.4g}°) leaves about the shoulder"
        )
    elif code == r.BRANCHES_BLOCKED:
        count = int(d[0])
        which = "the only branch breaks" if count == 1 else f"all {count} branches break"
        text = f"{which} a joint limit{miss(d[1], d[2])}"
    elif code == r.NO_LEGAL_ARC:
        text = f"no arm angle is inside the joint limits on any of the 8 sign branches{miss(d[1], d[2])}"
    elif code == r.BUDGET_SPENT:
        text = f"{_count(d[0], 'iteration')} and {_count(d[1], 'restart')} used up, still {left}"
    elif code == r.TIME_SPENT:
        text = f"{d[0]:g} s used up after {int(d[1])} iterations, still {left}"
    elif code == r.FABRIK_SPENT:
        text = (
            f"{_count(d[0], 'FABRIK cycle')} used up, still {d[1]:.3g} m from the two-link target: bent by only "
            f"{np.degrees(d[2]):.3g}°, it needs about {d[3]:.0f} cycles"
        )
    elif code == r.NO_PROGRESS:
        text = f"no start among {int(d[0]) + 1} gets nearer, {left}"
    elif code == r.AT_SINGULARITY:
        text = f"stuck at a singular posture (least singular value {d[0]:.1g}), {left}"
    elif code == r.LIMIT_HOLDS:
        text = f"{joint(d[0])} is held at its limit of {d[1]:.4g}, {left}"
    elif code == r.NOT_THIS_KIND:
        kind = KIND_NAMES[int(d[0])]
        text = f"{name} can't take {'an' if kind == 'axis' else 'a'} {kind} target on a {chain.family} chain"
    elif code == r.NOT_THIS_FAMILY:
        text = f"{name} knows no closed form for this chain of {n} joints"
    elif code == r.BEYOND_SUM:
        along = ", ".join(f"{x:.2f}" for x in d[2:5])
        text = (
            f"{d[0]:.3g} m beyond the reach of all links together ({d[1]:.4g} m from the first joint), along ({along})"
        )
    else:
        text = f"the answer misses the tolerance: {left}"
    return text + moved


def _count(number: float, noun: str) -> str:
    return f"{int(number)} {noun}{'' if int(number) == 1 else 's'}"
