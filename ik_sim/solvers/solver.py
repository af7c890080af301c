"""What a solver is, what it answers, and the judge that no solver can bribe.

A solver is a frozen dataclass: the object *is* its settings. `solve` takes a chain, a target and a seed and returns a
:class:`Solution`, whose errors are computed from the joints it carries by the chain's own forward kinematics. The
compiled solvers share :class:`KernelSolver`, which turns one kernel (see `record.py`) into `solve`, `solve_batch` and
`trace`; a solver written in plain Python hands its joints to :func:`judge`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Protocol, runtime_checkable

import numba
import numpy as np
from jaxtyping import Bool, Float, Int

from ik_sim.chain import Chain
from ik_sim.compiled import Pointer, kernel
from ik_sim.errors import InvalidArgumentError
from ik_sim.se3 import check_pose
from ik_sim.solvers import record as r
from ik_sim.solvers.reasons import sentence
from ik_sim.target import POINT, POSE, Target, Tolerance


class Status(StrEnum):
    """How a solve ended. Only the judge says `converged`."""

    CONVERGED = "converged"
    OUT_OF_REACH = "out_of_reach"
    JOINT_LIMITS = "joint_limits"
    SINGULAR = "singular"
    STALLED = "stalled"
    MAX_ITERATIONS = "max_iterations"
    UNSUPPORTED = "unsupported"


_empty = np.empty
STATUSES = tuple(Status)  # in the order of the codes in record.py


class Solution:
    """Joints, and the judge's words on them.

    The numbers are read from one row that the kernel filled; the sentence `reason` is written when it is asked for.
    """

    __slots__ = ("_chain", "_row", "_solver")

    def __init__(self, row: Float[np.ndarray, "k"], chain: Chain, solver: Any) -> None:
        """Wrap a kernel's answer (see record.py for the row)."""
        self._row = row
        self._chain = chain
        self._solver = solver

    @property
    def q(self) -> Float[np.ndarray, "n"]:
        """Joint values [rad or m], inside the limits whatever the status."""
        return self._row[: -r.RECORD]

    def _number(self, place: int) -> float:
        return float(self._row[place - r.RECORD])

    @property
    def status(self) -> Status:
        """How the solve ended."""
        return STATUSES[int(self._row[r.STATUS - r.RECORD])]

    @property
    def converged(self) -> bool:
        """Whether both tolerances hold."""
        return bool(self._row[r.STATUS - r.RECORD] == r.CONVERGED)

    @property
    def position_error(self) -> float:
        """Distance of the tool at `q` from the target [m]."""
        return self._number(r.POSITION_ERROR)

    @property
    def rotation_error(self) -> float:
        """Rotation angle between tool and target [rad]; between their axes for an axis target, 0 for a point."""
        return self._number(r.ROTATION_ERROR)

    @property
    def iterations(self) -> int:
        """Iterations of the method (FABRIK: cycles), over all restarts."""
        return int(self._number(r.ITERATIONS))

    @property
    def evaluations(self) -> int:
        """Evaluations of an optimiser's objective, 0 for methods without one."""
        return int(self._number(r.EVALUATIONS))

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return int(self._number(r.RESTARTS))

    @property
    def slsqp_runs(self) -> int:
        """How often the optimiser was called."""
        return int(self._number(r.SLSQP_RUNS))

    @property
    def used_slsqp(self) -> bool:
        """Whether the optimiser was called at all."""
        return self.slsqp_runs > 0

    @property
    def seed_moved(self) -> bool:
        """Whether the seed lay outside the limits and was clipped before the start."""
        return bool(self._number(r.SEED_MOVED))

    @property
    def singular(self) -> bool:
        """Whether the answer is a singular posture, where a joint was free and was kept at the seed's value."""
        return bool(self._number(r.SINGULAR_POSE))

    @property
    def reason(self) -> str:
        """Why the solve ended as it did, in one sentence with its numbers."""
        return sentence(self._row, self._chain, self._solver)

    def __repr__(self) -> str:
        """All of it on one line."""
        return (
            f"Solution(q={np.array2string(self.q, precision=6, separator=', ', max_line_width=200)}, "
            f"status={self.status}, "
            f"position_error={self.position_error:.3g}, rotation_error={self.rotation_error:.3g}, "
            f"iterations={self.iterations}, reason={self.reason!r})"
        )


class ToldSolution(Solution):
    """A solution whose solver is not a kernel and says itself why it missed."""

    __slots__ = ("_told",)

    def __init__(self, row: Float[np.ndarray, "k"], chain: Chain, solver: Any, told: str) -> None:
        """As a solution, with the solver's sentence on a miss."""
        super().__init__(row, chain, solver)
        self._told = told

    @property
    def reason(self) -> str:
        """The solver's own sentence on a miss."""
        return super().reason if self.converged else self._told


class BatchSolution:
    """Answers to many targets: the fields of :class:`Solution` as arrays; `batch[i]` is one of them."""

    def __init__(self, rows: Float[np.ndarray, "k m"], chain: Chain, solver: Any) -> None:
        """Wrap the rows that a kernel filled."""
        self._rows, self._chain, self._solver = rows, chain, solver

    @property
    def q(self) -> Float[np.ndarray, "k n"]:
        """Joint values [rad or m]."""
        return self._rows[:, : self._chain.n]

    def _column(self, place: int) -> Float[np.ndarray, "k"]:
        return self._rows[:, self._chain.n + place]

    @property
    def converged(self) -> Bool[np.ndarray, "k"]:
        """Whether both tolerances hold."""
        return self._column(r.STATUS) == r.CONVERGED

    @property
    def status(self) -> list[Status]:
        """How each solve ended."""
        return [STATUSES[int(code)] for code in self._column(r.STATUS)]

    @property
    def position_error(self) -> Float[np.ndarray, "k"]:
        """How far each tool is from its target [m]."""
        return self._column(r.POSITION_ERROR)

    @property
    def rotation_error(self) -> Float[np.ndarray, "k"]:
        """By what angle each tool is off its target [rad]."""
        return self._column(r.ROTATION_ERROR)

    @property
    def iterations(self) -> Int[np.ndarray, "k"]:
        """Iterations of each."""
        return self._column(r.ITERATIONS).astype(np.int64)

    @property
    def evaluations(self) -> Int[np.ndarray, "k"]:
        """Evaluations of an optimiser's objective, of each."""
        return self._column(r.EVALUATIONS).astype(np.int64)

    @property
    def restarts(self) -> Int[np.ndarray, "k"]:
        """Starts after the first, of each."""
        return self._column(r.RESTARTS).astype(np.int64)

    @property
    def reason(self) -> list[str]:
        """Why each ended as it did."""
        return [solution.reason for solution in self]

    def __len__(self) -> int:
        """Number of targets."""
        return len(self._rows)

    def __getitem__(self, i: int) -> Solution:
        """One answer."""
        return Solution(self._rows[i], self._chain, self._solver)

    def __iter__(self) -> Iterator[Solution]:
        """All answers in order."""
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened inside one solve, one entry an iteration."""

    solution: Solution
    phase: Float[np.ndarray, "k"]
    """0 for the method itself, 1 for the optimiser that follows it; each restart, and each further target of the two-link
    search or elbow direction, counts another hundred."""
    position_error: Float[np.ndarray, "k"]
    """[m]; for FABRIK on an arm the distance of the iterated tip from its target."""
    rotation_error: Float[np.ndarray, "k"]
    """[rad]"""
    q: Float[np.ndarray, "k n"]

    @property
    def step(self) -> Float[np.ndarray, "k"]:
        """Largest joint change from one iteration to the next [rad or m]; 0 for the first."""
        return np.concatenate([[0.0], np.abs(np.diff(self.q, axis=0)).max(axis=1)]) if len(self.q) else np.zeros(0)


@runtime_checkable
class Solver(Protocol):
    """All that `track`, `bench` and the tests ask of a solver."""

    def solve(self, chain: Chain, target: Any, q_seed: Any = None) -> Solution:
        """Joints for the target, near the seed where there is a choice."""
        ...


_ARGUMENTS = numba.types.int64(
    numba.float64[::1], numba.float64[:, ::1], numba.int64, numba.float64[::1], numba.float64[::1], numba.float64[::1],
)  # fmt: skip


_compiling = threading.Lock()  # a second thread that met `disable_compile` before its own `compile` would be refused


def _entry(dispatcher: Any) -> Any:
    """The kernel compiled for plain arrays only; anything else raises TypeError and takes the checked way round."""
    with _compiling:
        return _compiled_once(dispatcher)


@cache
def _compiled_once(dispatcher: Any) -> Any:
    dispatcher.compile(_ARGUMENTS)
    dispatcher.disable_compile()
    return dispatcher


@kernel
def _solve_rows(solve, c, T, kind, q_seed, s, out, first, last):
    for i in range(first, last):
        code = solve(c, T[i], kind, q_seed[i], s, out[i])
        if code != 0:
            return code * (last + 1) + i  # which, and where
    return 0


def check_numbers(solver: Any) -> None:
    """Refuse settings that no solver can mean: not finite, or a budget or random seed below 0.

    Raises:
        InvalidArgumentError: naming the setting.
    """
    for f in fields(solver):
        value: Any = getattr(solver, f.name)
        numbers: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
        if any(isinstance(x, float) and not np.isfinite(x) for x in numbers):
            raise InvalidArgumentError(f.name, f"must be finite, not {value}")
        if f.name in NOT_NEGATIVE and numbers[0] < 0:
            raise InvalidArgumentError(f.name, f"must be 0 or above, not {value}")
        if f.name == "seed" and value >= 2**53:  # it travels among floats
            raise InvalidArgumentError("seed", f"must be below 2**53, not {value}")


NOT_NEGATIVE = ("max_iterations", "max_evaluations", "max_seconds", "restarts", "seed", "patience")


class KernelSolver:
    """Turns kernels into a solver. A subclass is a frozen dataclass with a `kernel`, or `kernel_for`, and `settings()`.

    Settings called `stop` hold the :class:`~ik_sim.target.Tolerance`, for the stopping rule and the judge alike.
    """

    kernel: ClassVar[Any]
    stop: Tolerance

    def settings(self) -> tuple[float, ...]:
        """The solver's own numbers, in the order its kernel reads them behind the two tolerances."""
        return ()

    def __post_init__(self) -> None:
        """Lay the settings out for the kernel once."""
        check_numbers(self)
        packed = np.array([self.stop.position, self.stop.rotation, *self.settings()], dtype=np.float64)
        object.__setattr__(self, "_settings", packed)
        object.__setattr__(self, "_entries", {})

    def __getstate__(self) -> dict[str, Any]:
        """Only the settings travel between processes."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild from the settings."""
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def kernel_for(self, family: str, near: bool, kind: int) -> Any:
        """The kernel for targets of this kind on chains of this family (`near`: almost of it)."""
        return type(self).kernel

    def misfit(self, chain: Chain) -> InvalidArgumentError:
        """What to say when the kernel refuses the settings for this chain (BAD_SETTINGS)."""
        return InvalidArgumentError("settings", f"{self} doesn't fit a chain of {chain.n} joints")

    def _compiled(self, chain: Chain, kind: int) -> Any:
        """The compiled kernel for this chain and kind of target, remembered under 4 · form + kind."""
        self._prepare()
        fit = chain.family_fit
        entry = _entry(self.kernel_for(chain.family, fit is not None and not fit.exact, kind))
        self._entries[4 * chain.form + kind] = entry  # type: ignore[attr-defined]
        return entry

    def _prepare(self) -> None:
        """Whatever must happen once per process before the kernel may run."""

    def solve(self, chain: Chain, target: Any, q_seed: Any = None) -> Solution:
        """Joints that bring the tool to the target, near `q_seed` where there is a choice.

        Args:
            chain: the arm.
            target: a :class:`~ik_sim.target.Target`, or a (4, 4) array as a pose, in base axes.
            q_seed: where the arm is now, (n,) [rad or m]; the middle of the limits when left out. A seed outside
                the limits is moved inside and `Solution.seed_moved` says so.

        Raises:
            InvalidArgumentError: a wrong shape, NaN or infinity, a pose that isn't a rigid motion.
        """
        if type(target) is Target:
            T, kind = target.T, target.kind
        else:
            T, kind = target, POSE
        if q_seed is None:
            q_seed = np.array(chain.q_middle)
        out = _empty(chain.record_size)
        entry = self._entries.get(4 * chain.form + kind) or self._compiled(chain, kind)  # type: ignore[attr-defined]
        try:
            code = entry(chain.packed, T, kind, q_seed, self._settings, out)  # type: ignore[attr-defined]
        except (TypeError, ValueError):  # a list, integers, a view, a read-only array: all fine after a copy
            code = -1
        if code != 0:
            T, q_seed = check_target(T, kind), chain.check_q(q_seed, "q_seed")
            code = entry(chain.packed, T, kind, q_seed, self._settings, out)  # type: ignore[attr-defined]
            if code != 0:
                raise self.misfit(chain)
        return Solution(out, chain, self)

    def trace(self, chain: Chain, target: Any, q_seed: Any = None, rows: int = 20_000) -> Trace:
        """As :meth:`solve`, with a record of every iteration (the first `rows` of them)."""
        T, kind = (target.T, target.kind) if isinstance(target, Target) else (target, POSE)
        seed = chain.check_q(chain.q_middle if q_seed is None else q_seed, "q_seed")
        out = np.zeros(chain.n + r.RECORD + rows * (3 + chain.n))
        entry = self._entries.get(4 * chain.form + kind) or self._compiled(chain, kind)  # type: ignore[attr-defined]
        if entry(chain.packed, check_target(T, kind), kind, seed, self._settings, out) != 0:  # type: ignore[attr-defined]
            raise self.misfit(chain)
        end = chain.n + r.RECORD
        solution = Solution(out[:end].copy(), chain, self)
        used = out[end:].reshape(rows, 3 + chain.n)[: int(out[chain.n + r.TRACE_ROWS])].copy()
        return Trace(solution, used[:, 0], used[:, 1], used[:, 2], used[:, 3:])

    def solve_batch(
        self, chain: Chain, targets: Any, q_seeds: Any = None, *, kind: int = POSE, threads: int | None = None
    ) -> BatchSolution:
        """Many targets in one call: the same bits as that many single solves, whatever the number of threads.

        Args:
            chain: the arm.
            targets: (k, 4, 4), or a sequence of targets of one kind.
            q_seeds: (k, n), or one seed (n,) for all; the middle of the limits when left out.
            kind: POSE, POINT or AXIS for a bare array.
            threads: how many threads share the work; all cores when left out.

        Raises:
            InvalidArgumentError: as :meth:`solve`; the message names the first offending row.
        """
        if not isinstance(targets, np.ndarray) and len(targets) and isinstance(targets[0], Target):
            kinds = {t.kind for t in targets}
            if len(kinds) > 1:
                raise InvalidArgumentError("targets", "must be of one kind in one batch")
            kind = kinds.pop()
            targets = np.stack([t.T for t in targets])
        T, seeds = batch_arguments(chain, targets, q_seeds)
        k = len(T)
        rows = np.empty((k, chain.n + r.RECORD))
        entry = self._entries.get(4 * chain.form + kind) or self._compiled(chain, kind)  # type: ignore[attr-defined]

        def work(first: int, last: int) -> int:
            s = self._settings  # type: ignore[attr-defined]
            return _solve_rows(Pointer(entry, _ARGUMENTS), chain.packed, T, kind, seeds, s, rows, first, last)

        for code, last in in_threads(work, k, threads):
            if code:
                i = int(code % (last + 1))
                check_target(T[i], kind, f"targets[{i}]")
                chain.check_q(seeds[i], f"q_seeds[{i}]")
                raise self.misfit(chain)
        return BatchSolution(rows, chain, self)


def batch_arguments(
    chain: Chain, targets: Any, q_seeds: Any
) -> tuple[Float[np.ndarray, "k 4 4"], Float[np.ndarray, "k n"]]:
    """Targets and seeds of a batch as contiguous arrays of matching shapes; their values are not looked at.

    Raises:
        InvalidArgumentError: the shapes don't fit each other or the chain.
    """
    T = np.ascontiguousarray(targets, dtype=np.float64)
    if T.ndim != 3 or T.shape[1:] != (4, 4):
        raise InvalidArgumentError("targets", f"has shape {T.shape}; wanted (k, 4, 4)")
    k = len(T)
    seeds = np.asarray(chain.q_middle if q_seeds is None else q_seeds, dtype=np.float64)
    if seeds.shape not in ((k, chain.n), (chain.n,)):
        raise InvalidArgumentError(
            "q_seeds",
            f"has shape {seeds.shape}; wanted ({k}, {chain.n}) or ({chain.n},): {', '.join(chain.joint_names)}",
        )
    return _writable(T), _writable(np.ascontiguousarray(np.broadcast_to(seeds, (k, chain.n))))


def in_threads(work: Callable[[int, int], Any], k: int, threads: int | None = None) -> list[tuple[Any, int]]:
    """work(first, last) for parts of range(k) that together are all of it, in threads; (result, last) of each."""
    workers = max(1, min(threads or os.cpu_count() or 1, k // 32))
    bounds = np.linspace(0, k, workers + 1).astype(int)
    if workers == 1:
        return [(work(0, k), k)]
    with ThreadPoolExecutor(workers) as pool:
        return list(zip(pool.map(work, bounds[:-1], bounds[1:]), map(int, bounds[1:]), strict=True))


def _writable(array: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return array if array.flags.writeable else array.copy()


def check_target(T: Any, kind: int, name: str = "target") -> Float[np.ndarray, "4 4"]:
    """A target's matrix as a fresh contiguous array, or an error that says what is wrong with it."""
    if kind != POINT:
        return check_pose(T, name)
    array = np.array(T, dtype=np.float64, order="C")
    if array.shape != (4, 4) or not np.isfinite(array).all() or np.abs(array[3] - (0.0, 0.0, 0.0, 1.0)).max() > 1e-9:
        raise InvalidArgumentError(name, "a point target must be a finite (4, 4) array that ends in 0 0 0 1")
    return array


_judge_settings: Callable[[Tolerance], Any] = cache(lambda t: np.array([t.position, t.rotation]))


def _say(row: Float[np.ndarray, "k"], n: int, status: int, reason: int, *details: float) -> None:
    row[[n + r.STATUS, n + r.REASON]] = status, reason
    row[n + r.DETAIL : n + r.DETAIL + len(details)] = details


@kernel
def _judge_alone(c, T, kind, s, out):
    r.judge(c, T, kind, s, out)
    return 0


def judge(
    chain: Chain,
    target: Any,
    q: Any,
    tolerance: Tolerance | None = None,
    *,
    status: Status = Status.STALLED,
    iterations: int = 0,
    evaluations: int = 0,
    restarts: int = 0,
    reason: str = "",
    solver: Any = None,
) -> Solution:
    """The verdict on joints from anywhere: clipped into the limits, then measured by the chain's forward kinematics.

    Args:
        chain: the arm.
        target: what was to be reached.
        q: the joints that someone proposes, (n,).
        tolerance: 1e-6 m and 1e-6 rad when left out.
        status: what to say when the tolerances don't hold.
        iterations: passed on to the solution, as are `evaluations` and `restarts`.
        evaluations: of an objective.
        restarts: starts after the first.
        reason: why the tolerances don't hold, with numbers; made from the other arguments when left out.
        solver: shown in the solution's words.
    """
    T, kind = (target.T, target.kind) if isinstance(target, Target) else (target, POSE)
    T = check_target(T, kind)
    row = np.zeros(chain.n + r.RECORD)
    row[: chain.n] = chain.check_q(q)
    row[[chain.n + r.ITERATIONS, chain.n + r.EVALUATIONS, chain.n + r.RESTARTS]] = iterations, evaluations, restarts
    if status is Status.MAX_ITERATIONS:
        _say(row, chain.n, r.MAX_ITERATIONS, r.BUDGET_SPENT, iterations, restarts)
    elif status is Status.UNSUPPORTED:
        _say(row, chain.n, r.UNSUPPORTED, r.NOT_THIS_KIND, kind)
    else:
        _say(row, chain.n, STATUSES.index(status), r.NOT_JUDGED_GOOD)
    _judge_alone(chain.packed, T, kind, _judge_settings(tolerance or Tolerance()), row)
    return ToldSolution(row, chain, solver, reason) if reason else Solution(row, chain, solver)
