"""NLopt's SLSQP called from compiled code, so that a run costs microseconds instead of a Python call per evaluation.

The nlopt wheel's shared library exports NLopt's C functions; llvmlite loads it once and kernels call them by name.
Objectives are C callbacks on a block of numbers `data`:

| place | holds |
|---|---|
| 0 | evaluations so far |
| 1 | least value so far |
| 2, 3 | LOG, where a log of the evaluations starts, and LOGGED, how many it has room for |
| BEST … BEST+MOST_UNKNOWNS | where the least value was |
| PARAMETERS … LOG | the objective's own numbers |
| LOG … | the log, (LOGGED, k + 1): value and unknowns of the first evaluations |

NLopt may end with a report of roundoff after it already stood at the answer, so the best point seen counts, not
the return code. SLSQP also asks for values without a gradient: the gradient pointer is then NULL.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding
import nlopt
import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from ik_sim.compiled import callback, kernel

_types: Any = types  # numba makes the names in it at run time
float64, int32, intp, uint32, void = _types.float64, _types.int32, _types.intp, _types.uint32, _types.void
ExternalFunction = _types.ExternalFunction

MOST_UNKNOWNS = 16
COUNT, LEAST, LOG, LOGGED, BEST = 0, 1, 2, 3, 4
PARAMETERS = BEST + MOST_UNKNOWNS
DATA = 64
"""Numbers in a data block without a log (objectives on whole chains need more)."""

SLSQP = int(nlopt.LD_SLSQP)

_create = ExternalFunction("nlopt_create", intp(int32, uint32))
_destroy = ExternalFunction("nlopt_destroy", void(intp))
_set_objective = ExternalFunction("nlopt_set_min_objective", int32(intp, intp, intp))
_set_lower = ExternalFunction("nlopt_set_lower_bounds", int32(intp, intp))
_set_upper = ExternalFunction("nlopt_set_upper_bounds", int32(intp, intp))
_set_stopval = ExternalFunction("nlopt_set_stopval", int32(intp, float64))
_set_ftol_abs = ExternalFunction("nlopt_set_ftol_abs", int32(intp, float64))
_set_xtol_abs1 = ExternalFunction("nlopt_set_xtol_abs1", int32(intp, float64))
_set_maxeval = ExternalFunction("nlopt_set_maxeval", int32(intp, int32))
_optimize = ExternalFunction("nlopt_optimize", int32(intp, intp, intp))

OBJECTIVE = "float64(uint32, CPointer(float64), CPointer(float64), CPointer(float64))"

FTOL, STOPVAL, PRECISE = 0, 1, 2
RULES = {"ftol": FTOL, "stopval": STOPVAL, "precise": PRECISE}


@functools.cache
def load() -> None:
    """Make NLopt's C functions known to compiled code; once a process is enough."""
    from nlopt import _nlopt  # pyright: ignore[reportAttributeAccessIssue] - the wheel's extension, a shared library too

    llvmlite.binding.load_library_permanently(_nlopt.__file__)


@intrinsic
def address(_context: Any, pointer: Any = None) -> Any:
    """The address a C pointer holds: 0 for NULL."""
    if isinstance(pointer, types.CPointer):

        def generate(_target, builder, _signature, arguments):
            return builder.ptrtoint(arguments[0], cgutils.intp_t)

        return types.intp(pointer), generate
    return None


@kernel
def minimise(objective, x, lower, upper, bounded, data, rule, tolerance, most):
    """Run SLSQP on the callback at address `objective` from x; the best point seen replaces x. Returns its value.

    Args:
        objective: address of the callback, as a float (an address has at most 48 bits).
        x: start and answer, (k,).
        lower: bounds (k,), used if `bounded`.
        upper: likewise.
        bounded: whether there are bounds.
        data: the objective's block (see the module's table); its count and best are reset here.
        rule: FTOL stops when the value changes by less than tolerance² (as the method's source); STOPVAL when it is
            below tolerance²; PRECISE when it is below 1e-6 tolerance², or a step below 1e-15.
        tolerance: ε, the distance that is near enough [m].
        most: cap on evaluations.
    """
    k = x.shape[0]
    data[COUNT] = 0.0
    data[LEAST] = np.inf
    for i in range(k):
        data[BEST + i] = x[i]
    opt = _create(SLSQP, k)
    _set_objective(opt, int(objective), data.ctypes.data)
    if bounded:
        _set_lower(opt, lower.ctypes.data)
        _set_upper(opt, upper.ctypes.data)
    square = tolerance * tolerance
    if rule == FTOL:
        _set_ftol_abs(opt, square)
    elif rule == STOPVAL:
        _set_stopval(opt, square)
    else:
        _set_stopval(opt, 1e-6 * square)
        _set_xtol_abs1(opt, 1e-15)
    _set_maxeval(opt, most)
    value = np.empty(1)
    _optimize(opt, x.ctypes.data, value.ctypes.data)
    _destroy(opt)
    for i in range(k):
        x[i] = data[BEST + i]
    return data[LEAST]


@kernel
def block_for(unknowns, evaluations):
    """A data block with room to log so many evaluations."""
    data = np.zeros(DATA + evaluations * (unknowns + 1))
    data[LOG], data[LOGGED] = DATA, evaluations
    return data


@kernel
def logged(data, unknowns):
    """The log of the last run, (evaluations, unknowns + 1)."""
    start, rows = int(data[LOG]), int(min(data[COUNT], data[LOGGED]))
    return data[start : start + rows * (unknowns + 1)].reshape((rows, unknowns + 1))


@kernel
def note(data, x, k, f):
    """Count an evaluation, log it and keep the best point."""
    if data[COUNT] < data[LOGGED]:
        row = int(data[LOG]) + int(data[COUNT]) * (k + 1)
        data[row] = f
        for i in range(k):
            data[row + 1 + i] = x[i]
    data[COUNT] += 1.0
    if f < data[LEAST]:
        data[LEAST] = f
        for i in range(k):
            data[BEST + i] = x[i]


@kernel
def planar_miss(x0, x1, l2, l3, tx, ty):
    """Squared miss of a two-link arm in its plane, tip = l2 (cos, sin)(x0) + l3 (cos, sin)(x0 + x1), and its gradient."""
    c, s, c2, s2 = l2 * np.cos(x0), l2 * np.sin(x0), l3 * np.cos(x0 + x1), l3 * np.sin(x0 + x1)
    dx, dy = c + c2 - tx, s + s2 - ty
    g1 = 2.0 * (c2 * dy - s2 * dx)
    return dx * dx + dy * dy, g1 + 2.0 * (c * dy - s * dx), g1


@kernel
def spatial_miss(x0, x1, x2, x3, l2, l3, tx, ty, tz):
    """Squared miss of the wrist from the first four joints of a shoulder-elbow arm, shoulder at 0, and its gradient."""
    c1, s1, c2, s2 = np.cos(x0), np.sin(x0), np.cos(x1), np.sin(x1)
    c3, s3, c4, s4 = np.cos(x2), np.sin(x2), np.cos(x3), np.sin(x3)
    A, a, b = l2 + l3 * c4, l3 * s4 * c3, l3 * s4 * s3
    rho, rho2 = s2 * A + c2 * a, c2 * A - s2 * a
    px, py = c1 * rho - s1 * b, s1 * rho + c1 * b
    dx, dy, dz = px - tx, py - ty, rho2 - tz
    B, C, E = -l3 * s4, l3 * c4 * c3, l3 * c4 * s3
    D = s2 * B + c2 * C
    return (
        dx * dx + dy * dy + dz * dz,
        2.0 * (-py * dx + px * dy),
        2.0 * (c1 * rho2 * dx + s1 * rho2 * dy - rho * dz),
        2.0 * ((-c1 * c2 * b - s1 * a) * dx + (-s1 * c2 * b + c1 * a) * dy + s2 * b * dz),
        2.0 * ((c1 * D - s1 * E) * dx + (s1 * D + c1 * E) * dy + (c2 * B - s2 * C) * dz),
    )


@functools.cache
def planar_objective() -> float:
    """Address of the callback of :func:`planar_miss`; parameters l2, l3, tx, ty."""

    @callback(OBJECTIVE)
    def planar(k, x, gradient, block):
        size: Any = DATA + 3 * np.int64(block[LOGGED])
        data = carray(block, (size,))
        f, g0, g1 = planar_miss(
            x[0], x[1], data[PARAMETERS], data[PARAMETERS + 1], data[PARAMETERS + 2], data[PARAMETERS + 3]
        )
        if address(gradient) != 0:
            gradient[0], gradient[1] = g0, g1
        note(data, x, 2, f)
        return f

    return keep(planar)


@functools.cache
def spatial_objective() -> float:
    """Address of the callback of :func:`spatial_miss`; parameters l2, l3, tx, ty, tz."""

    @callback(OBJECTIVE)
    def spatial(k, x, gradient, block):
        size: Any = DATA + 5 * np.int64(block[LOGGED])
        data = carray(block, (size,))
        f, g0, g1, g2, g3 = spatial_miss(
            x[0], x[1], x[2], x[3], data[PARAMETERS], data[PARAMETERS + 1],
            data[PARAMETERS + 2], data[PARAMETERS + 3], data[PARAMETERS + 4],
        )  # fmt: skip
        if address(gradient) != 0:
            gradient[0], gradient[1], gradient[2], gradient[3] = g0, g1, g2, g3
        note(data, x, 4, f)
        return f

    return keep(spatial)


_kept: list[object] = []


def keep(compiled: object) -> float:
    """The address of a callback, which from now on lives as long as the process."""
    _kept.append(compiled)
    return float(compiled.address)  # type: ignore[attr-defined]
