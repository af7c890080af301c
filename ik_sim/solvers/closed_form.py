"""Closed forms: the answer without iterating, for arms whose family is known (see `families.py`).

`ur_arm`, `srs_arm` and `planar_arm` hold the families. Of a target's branches the legal one nearest to the seed is
taken, joints moved by whole turns where that helps; a seven-joint arm keeps the seed's own branch and arm angle where
they are legal. Where a singular posture leaves a joint free it keeps the seed's value, or moves from it as little as
reach and limits demand. An arm that is almost of a family is solved on the ideal arm and then polished on the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ik_sim.chain import DOF, FAMILY, PARAMETERS, SLACK
from ik_sim.compiled import kernel
from ik_sim.solvers import ideal_arm as ideal
from ik_sim.solvers import record as r
from ik_sim.solvers.levenberg_marquardt import polish, search_on
from ik_sim.solvers.planar_arm import say_off_plane, solve_planar
from ik_sim.solvers.solver import KernelSolver
from ik_sim.solvers.srs_arm import solve_srs
from ik_sim.solvers.ur_arm import solve_ur
from ik_sim.target import AXIS, POSE, Tolerance


@kernel
def ideal_ur(c, T, kind, q_seed, s, out):
    """The UR family, exactly."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        solve_ur(c, T, kind, s, out)
        r.judge(c, T, kind, s, out)
    return code


@kernel
def ideal_srs(c, T, kind, q_seed, s, out):
    """The srs family, exactly."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        solve_srs(c, T, kind, s, out)
        r.judge(c, T, kind, s, out)
    return code


@kernel
def ideal_planar(c, T, kind, q_seed, s, out):
    """The planar families, exactly."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        solve_planar(c, T, kind, s, out)
        if not r.judge(c, T, kind, s, out):
            say_off_plane(c, T, kind, 1e-9, out)
    return code


@kernel
def proved_for_real(c, T, out):
    """Whether what the ideal arm misses is beyond the real one too, wherever its errors put the wrist (`Family.slack`)."""
    n = int(c[DOF])
    if out[n + r.STATUS] != r.OUT_OF_REACH:
        return False
    if c[FAMILY] != 3.0:
        return out[n + r.DETAIL] > c[SLACK]
    # How link 5 lies may change a lot with a small change of the tool's axis, so only what holds for any link 5 counts.
    D = ideal.family_target(c, T)
    p = int(c[PARAMETERS]) + 24
    l2, l3, d4, d5 = -c[p], -c[p + 1], c[p + 2], c[p + 3]
    rho2 = D[9] * D[9] + D[10] * D[10]
    if abs(d4) - np.sqrt(rho2) > c[SLACK]:
        return True
    across = l2 + l3 + abs(d5)
    return np.sqrt(rho2 + D[11] * D[11]) > np.sqrt(across * across + d4 * d4) + c[SLACK]


@kernel
def finish_on_real(c, T, kind, s, out):
    """From the ideal arm's answer in `out` to the real chain's: polish, and if that fails search on. Judges.

    Returns the number of iterations.
    """
    n = int(c[DOF])
    if proved_for_real(c, T, out):
        r.judge(c, T, kind, s, out)
        return 0
    status = out[n + r.STATUS]
    steps = polish(c, T, kind, s, 30, out)
    if not r.judge(c, T, kind, s, out):
        more = search_on(c, T, kind, s, 400, 20, out)
        steps += more
        if not r.judge(c, T, kind, s, out) and status == r.OUT_OF_REACH:
            r.say(c, out, r.STALLED, r.NO_PROGRESS, 20.0)  # the ideal arm's reach is no proof for this one
    return steps


@kernel
def real_arm(c, T, kind, q_seed, s, out):
    """An arm that is almost of its family: the ideal arm's answer, polished on the real chain."""
    code = r.begin(c, T, kind, q_seed, out)
    if code != r.FINE:
        return code
    n = int(c[DOF])
    if c[FAMILY] == 3.0:
        solve_ur(c, T, kind, s, out)
    elif c[FAMILY] == 4.0:
        solve_srs(c, T, kind, s, out)
    else:
        solve_planar(c, T, kind, s, out)
    out[n + r.ITERATIONS] = float(finish_on_real(c, T, kind, s, out))
    if out[n + r.STATUS] == r.STALLED:
        say_off_plane(c, T, kind, c[SLACK], out)
    return code


@kernel
def no_closed_form(c, T, kind, q_seed, s, out):
    """Says `unsupported`, with the reason."""
    code = r.begin(c, T, kind, q_seed, out)
    if code == r.FINE:
        if c[FAMILY] == 0.0:
            r.say(c, out, r.UNSUPPORTED, r.NOT_THIS_FAMILY)
        else:
            r.say(c, out, r.UNSUPPORTED, r.NOT_THIS_KIND, float(kind))
        r.judge(c, T, kind, s, out)
    return code


@dataclass(frozen=True)
class ClosedForm(KernelSolver):
    """The family's closed form: the legal answer nearest to the seed, in microseconds.

    Supports poses on ur, srs and planar3 chains, points and poses on planar2 chains. Anything else: `unsupported`.
    """

    stop: Tolerance = Tolerance()
    """What the judge asks for."""

    def kernel_for(self, family: str, near: bool, kind: int) -> Any:
        """Each family has a kernel of its own, so that only what an arm needs is ever compiled."""
        if not supports(family, kind):
            return no_closed_form
        if near:
            return real_arm
        return {"ur": ideal_ur, "srs": ideal_srs}.get(family, ideal_planar)


def supports(family: str, kind: int) -> bool:
    """Whether there is a closed form for targets of this kind on chains of this family."""
    return (family in ("ur", "srs", "planar3") and kind == POSE) or (family == "planar2" and kind != AXIS)
