"""The reason codes of `record.py` in words a person can act on."""

from __future__ import annotations

from math import degrees, isfinite
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.solvers import record as r
from ik_sim.target import KIND_NAMES


def sentence(row: Float[np.ndarray, "k"], chain: Chain, solver: Any) -> str:
    """One sentence on how the solve ended, with its numbers."""
    record = row[-r.RECORD :].tolist()
    code = int(record[r.REASON])
    d = record[r.DETAIL : r.DETAIL + r.DETAILS]
    if code == r.NO_REASON:
        text = "within tolerance"
        if record[r.SINGULAR_POSE]:
            text += "; a singular posture: joints that it leaves free keep the seed's values as far as reach and limits allow"
    elif code == r.BEYOND_OUTER:
        text = (
            f"the wrist would have to be {d[0]:.3g} m beyond the outer radius {d[1]:.4g} m, "
            f"along ({d[2]:.2f}, {d[3]:.2f}, {d[4]:.2f}) from the shoulder"
        )
    elif code == r.INSIDE_INNER:
        text = f"the wrist would have to be {d[0]:.3g} m inside the inner radius {d[1]:.4g} m about the shoulder"
    elif code == r.INSIDE_CYLINDER:
        text = f"wrist centre {d[0]:.4f} m from the base axis, inside the {d[1]:.5g} m cylinder that no wrist can enter"
    elif code == r.OFF_PLANE:
        text = f"the target is {d[0]:.3g} m out of the plane that this arm moves in"
    elif code == r.TILTED:
        text = f"the orientation can't be met: this arm leaves {degrees(d[0]):.3g}° at the nearest posture"
    elif code == r.ELBOW_LIMIT:
        side = "beyond" if d[3] else "inside"
        text = (
            f"the wrist would be {d[0]:.3g} m {side} the radius {d[1]:.4g} m that the limit of {_joint(chain, 3)} "
            f"({degrees(d[2]):.4g}°) leaves about the shoulder"
        )
    elif code == r.BRANCHES_BLOCKED:
        count = int(d[0])
        which = "the only branch breaks" if count == 1 else f"all {count} branches break"
        text = f"{which} a joint limit{_miss(chain, d[1], d[2])}"
    elif code == r.NO_LEGAL_ARC:
        text = f"no arm angle is inside the joint limits on any of the 8 sign branches{_miss(chain, d[1], d[2])}"
    elif code == r.BUDGET_SPENT:
        text = f"{_count(d[0], 'iteration')} and {_count(d[1], 'restart')} used up, still {_left(record)}"
    elif code == r.TIME_SPENT:
        text = f"{d[0]:g} s used up after {int(d[1])} iterations, still {_left(record)}"
    elif code == r.FABRIK_SPENT:
        text = (
            f"{_count(d[0], 'FABRIK cycle')} used up, still {d[1]:.3g} m from the two-link target: bent by only "
            f"{degrees(d[2]):.3g}°, it needs about {d[3]:.0f} cycles"
        )
    elif code == r.NO_PROGRESS:
        text = f"no start among {int(d[0]) + 1} gets nearer, {_left(record)}"
    elif code == r.AT_SINGULARITY:
        text = f"stuck at a singular posture (least singular value {d[0]:.1g}), {_left(record)}"
    elif code == r.LIMIT_HOLDS:
        text = f"{_joint(chain, d[0])} is held at its limit of {d[1]:.4g}, {_left(record)}"
    elif code == r.NOT_THIS_KIND:
        kind = KIND_NAMES[int(d[0])]
        text = f"{_name(solver)} can't take {'an' if kind == 'axis' else 'a'} {kind} target on a {chain.family} chain"
    elif code == r.NOT_THIS_FAMILY:
        text = f"{_name(solver)} knows no closed form for this chain of {chain.n} joints"
    elif code == r.BEYOND_SUM:
        text = (
            f"{d[0]:.3g} m beyond the reach of all links together ({d[1]:.4g} m from the first joint), "
            f"along ({d[2]:.2f}, {d[3]:.2f}, {d[4]:.2f})"
        )
    else:
        text = f"the answer misses the tolerance: {_left(record)}"
    if record[r.SEED_MOVED]:
        text += "; the seed was outside the limits and was moved inside"
    return text


def _left(record: list[float]) -> str:
    return f"{record[r.POSITION_ERROR]:.3g} m and {degrees(record[r.ROTATION_ERROR]):.3g}° away"


def _joint(chain: Chain, index: float) -> str:
    return chain.joint_names[int(index)]


def _miss(chain: Chain, index: float, amount: float) -> str:
    return f": the nearest misses {_joint(chain, index)} by {degrees(amount):.2g}°" if isfinite(amount) else ""


def _name(solver: Any) -> str:
    return getattr(solver, "name", None) or type(solver).__name__


def _count(number: float, noun: str) -> str:
    return f"{int(number)} {noun}{'' if int(number) == 1 else 's'}"
