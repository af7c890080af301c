"""The solver's settings, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ik_sim.errors import InvalidArgumentError
from ik_sim.fabrik import search as r
from ik_sim.fabrik.skeleton import Box, Skeleton, Sphere, lay_out_obstacles


class Status(StrEnum):
    """How a solve ended."""

    CONVERGED = "converged"
    OUT_OF_REACH = "out_of_reach"
    JOINT_LIMITS = "joint_limits"
    OBSTRUCTED = "obstructed"
    STALLED = "stalled"
    MAX_CYCLES = "max_cycles"


STATUSES = tuple(Status)  # in the order of the codes in search.py


class Solution:
    """Points, and how good they are. Lengths and limits hold whatever the status."""

    __slots__ = ("_row", "_targets", "points", "skeleton")

    points: Float[np.ndarray, "m d"]
    """The best points that were met."""

    def __init__(
        self,
        points: Float[np.ndarray, "m d"],
        row: Float[np.ndarray, "k"],
        skeleton: Skeleton,
        targets: Float[np.ndarray, "e 3"],
    ) -> None:
        """Wrap a kernel's answer (see search.py for the row)."""
        self.points, self._row, self.skeleton, self._targets = points, row, skeleton, targets

    @property
    def status(self) -> Status:
        """How it ended."""
        return STATUSES[int(self._row[r.STATUS])]

    @property
    def converged(self) -> bool:
        """Whether every effector is at its target, every loop closed and every link clear, to the tolerance."""
        return bool(self._row[r.STATUS] == r.CONVERGED)

    @property
    def miss(self) -> float:
        """The largest distance of an effector from its target, or of a loop from being closed."""
        return float(self._row[r.MISS])

    @property
    def misses(self) -> Float[np.ndarray, "e"]:
        """Distance of each effector from its target."""
        d = self.skeleton.dimension
        return np.linalg.norm(self.points[list(self.skeleton.effectors)] - self._targets[:, :d], axis=1)

    @property
    def cycles(self) -> int:
        """Pairs of passes, over all starts."""
        return int(self._row[r.CYCLES])

    @property
    def turns(self) -> int:
        """Steps that turned all joints together, where passes had stalled."""
        return int(self._row[r.TURNED])

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return int(self._row[r.RESTARTS])

    @property
    def links_placed(self) -> int:
        """How often a link was placed: two a link and cycle."""
        return int(self._row[r.PLACED])

    @property
    def was_in_line(self) -> bool:
        """Whether the start lay in line with its target, where passes never leave the line, and was bent first."""
        return bool(self._row[r.BENT])

    @property
    def depth(self) -> float:
        """How deep the worst link is inside an obstacle; 0 when all are clear."""
        return float(self._row[r.DEPTH])

    @property
    def angles(self) -> Float[np.ndarray, "n"]:
        """Angle of every joint [rad], the root's first link first: signed in the plane and for hinges."""
        return self.skeleton.angles(self.points)[1:]

    @property
    def reason(self) -> str:
        """Why it ended as it did, in one sentence with its numbers."""
        return _sentence(self._row, self.skeleton)

    def __repr__(self) -> str:
        """All of it on one line."""
        return f"Solution(status={self.status}, miss={self.miss:.3g}, cycles={self.cycles}, reason={self.reason!r})"


class BatchSolution:
    """Answers to many targets: the fields of :class:`Solution` as arrays; `batch[i]` is one of them."""

    def __init__(self, points: Any, rows: Any, skeleton: Skeleton, targets: Any) -> None:
        """Wrap the rows that a kernel filled."""
        self.points: Float[np.ndarray, "k m d"] = points
        self._rows, self._skeleton, self._targets = rows, skeleton, targets

    @property
    def status(self) -> list[Status]:
        """How each ended."""
        return [STATUSES[int(code)] for code in self._rows[:, r.STATUS]]

    @property
    def converged(self) -> Bool[np.ndarray, "k"]:
        """Which arrived."""
        return self._rows[:, r.STATUS] == r.CONVERGED

    @property
    def status_code(self) -> Int[np.ndarray, "k"]:
        """Place of each status in `Status`."""
        return self._rows[:, r.STATUS].astype(np.int64)

    @property
    def miss(self) -> Float[np.ndarray, "k"]:
        """Largest miss of each."""
        return self._rows[:, r.MISS]

    @property
    def cycles(self) -> Int[np.ndarray, "k"]:
        """Cycles of each."""
        return self._rows[:, r.CYCLES].astype(np.int64)

    @property
    def restarts(self) -> Int[np.ndarray, "k"]:
        """Restarts of each."""
        return self._rows[:, r.RESTARTS].astype(np.int64)

    def __len__(self) -> int:
        """Number of targets."""
        return len(self._rows)

    def __getitem__(self, i: int) -> Solution:
        """One answer."""
        return Solution(self.points[i], self._rows[i], self._skeleton, self._targets[i])

    def __iter__(self) -> Iterator[Solution]:
        """All answers in order."""
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True, eq=False)
class Trace:
    """Every pass of one solve."""

    solution: Solution
    passes: tuple[str, ...]
    """What each row shows: start, backward, forward, bend, restart, turn."""
    points: Float[np.ndarray, "k m d"]
    """Points after each. After a backward pass the root is where the pass left it."""

    @property
    def misses(self) -> Float[np.ndarray, "k"]:
        """Largest distance of an effector from its target after each pass."""
        s = self.solution
        ends = self.points[:, list(s.skeleton.effectors)] - s._targets[:, : s.skeleton.dimension]
        return np.linalg.norm(ends, axis=2).max(axis=1)


_PHASES = ("start", "backward", "forward", "bend", "restart", "turn")
_NO_TRACE, _NO_PHASES = np.empty((0, 1, 3)), np.empty(0)


@dataclass(frozen=True)
class Solver:
    """Settings of FABRIK. The object is its settings; the same input gives the same bits."""

    tolerance: float = 1e-6
    """An effector this near to its target has arrived, in the skeleton's own unit of length."""
    max_cycles: int = 10_000
    """Pairs of passes, over all starts. Near the stretched pose a cycle gains little: see docs/fabrik.md."""
    rotation_cap: float | None = None
    """The most a link may turn in one cycle [rad]: smaller makes motion calmer and solves slower."""
    bend: float = 0.1
    """How far a chain in line with its target is bent before the first cycle [rad]; 0 leaves the deadlock as it is."""
    max_restarts: int = 16
    """Random starts after the first, for skeletons with limits, obstacles or loops, which can stall."""
    turns: int = 40
    """Where passes stall on joints with limits, so many steps that turn all joints together; 0: passes alone."""
    seed: int = 0
    """Of the random starts."""
    patience: int | None = None
    """Cycles without progress before a start is given up: 1 % in 25 cycles with limits or obstacles, 0.1 % in 100
    with several effectors; a free chain with one target is never given up."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 < self.tolerance < np.inf:
            raise InvalidArgumentError("tolerance", f"must be positive, not {self.tolerance}")
        for name in ("max_cycles", "max_restarts", "turns", "seed"):
            if not 0 <= getattr(self, name) < 2**53:
                raise InvalidArgumentError(name, f"must be zero or positive, not {getattr(self, name)}")
        if self.rotation_cap is not None and not 0 < self.rotation_cap <= np.pi:
            raise InvalidArgumentError("rotation_cap", f"must be in (0, π] rad, not {self.rotation_cap}")
        if not 0 <= self.bend < 1:
            raise InvalidArgumentError("bend", f"must be in [0, 1) rad, not {self.bend}")
        object.__setattr__(self, "_rows", {})

    def solve(
        self, skeleton: Skeleton, target: Any, start: Any = None, *, obstacles: Sequence[Sphere | Box] = ()
    ) -> Solution:
        """Points that bring the effectors to their targets.

        Args:
            skeleton: what is posed.
            target: one point (d,), or one for each effector (e, d).
            start: (m, d) points to begin from, the last solution's for smooth motion; the rest pose when left out.
                Lengths and limits that it breaks are mended first. The root stays where `start` has it.
            obstacles: spheres and boxes that links keep clear of.

        Raises:
            InvalidArgumentError: a wrong shape, NaN or infinity.
        """
        targets, p = self._arguments(skeleton, target, start)
        blocks = lay_out_obstacles(obstacles, skeleton.dimension, skeleton.thickness) if obstacles else _NO_OBSTACLES
        row = np.empty(r.ANSWER)
        code = r.solve(
            skeleton._parent, skeleton._length, skeleton._joint, skeleton._branch, skeleton._pulls, skeleton._loops,
            blocks, self._settings(skeleton, len(blocks)), targets, p, _NO_TRACE, _NO_PHASES, row,
        )  # fmt: skip
        if code:
            raise _misuse(code, skeleton, targets, p)
        return Solution(p[:, :2] if skeleton.rest.shape[1] == 2 else p, row, skeleton, targets)

    def trace(
        self,
        skeleton: Skeleton,
        target: Any,
        start: Any = None,
        *,
        obstacles: Sequence[Sphere | Box] = (),
        rows: int = 2000,
    ) -> Trace:
        """As :meth:`solve`, with the points after every pass (the first `rows` of them)."""
        targets, p = self._arguments(skeleton, target, start)
        blocks = lay_out_obstacles(obstacles, skeleton.dimension, skeleton.thickness)
        row, points, phases = np.empty(r.ANSWER), np.empty((rows, len(p), 3)), np.empty(rows)
        code = r.solve(
            skeleton._parent, skeleton._length, skeleton._joint, skeleton._branch, skeleton._pulls, skeleton._loops,
            blocks, self._settings(skeleton, len(blocks)), targets, p, points, phases, row,
        )  # fmt: skip
        if code:
            raise _misuse(code, skeleton, targets, p)
        used, d = int(row[r.TRACE_ROWS]), skeleton.dimension
        solution = Solution(np.ascontiguousarray(p[:, :d]), row, skeleton, targets)
        return Trace(solution, tuple(_PHASES[int(k)] for k in phases[:used]), points[:used, :, :d].copy())

    def solve_batch(
        self,
        skeleton: Skeleton,
        targets: Any,
        starts: Any = None,
        *,
        lengths: Any = None,
        obstacles: Sequence[Sphere | Box] = (),
        threads: int | None = None,
    ) -> BatchSolution:
        """Many targets in one call: the same bits as that many single solves, whatever the number of threads.

        Args:
            skeleton: what is posed.
            targets: (k, d), or (k, e, d) for several effectors.
            starts: (k, m, d), or one start (m, d) for all; the rest pose when left out.
            lengths: (k, n) links' lengths, root first, one row a solve: the same joints on other bones.
            obstacles: as in :meth:`solve`.
            threads: how many threads share the work; all cores when left out.
        """
        d, e, m = skeleton.dimension, len(skeleton.effectors), len(skeleton.parent)
        t = np.asarray(targets, dtype=np.float64)
        if t.ndim == 2 and e == 1:
            t = t[:, None, :]
        if t.ndim != 3 or t.shape[1:] != (e, d):
            raise InvalidArgumentError("targets", f"has shape {t.shape}; wanted (k, {e}, {d})")
        k = len(t)
        padded = np.zeros((k, e, 3))
        padded[..., :d] = t
        p = np.zeros((k, m, 3))
        start = np.asarray(skeleton.rest if starts is None else starts, dtype=np.float64)
        if start.shape not in ((m, d), (k, m, d)):
            raise InvalidArgumentError("starts", f"has shape {start.shape}; wanted ({k}, {m}, {d}) or ({m}, {d})")
        p[..., :d] = start
        if lengths is None:
            every = skeleton._length[None, :]
        else:
            given = np.asarray(lengths, dtype=np.float64)
            if given.shape != (k, m - 1):
                raise InvalidArgumentError("lengths", f"has shape {given.shape}; wanted ({k}, {m - 1})")
            every = np.zeros((k, m))
            every[:, 1:] = given
        blocks = lay_out_obstacles(obstacles, d, skeleton.thickness)
        settings, rows = self._settings(skeleton, len(blocks)), np.empty((k, r.ANSWER))
        workers = max(1, min(threads or os.cpu_count() or 1, k // 64))
        bounds = np.linspace(0, k, workers + 1).astype(int).tolist()

        def work(first: int, last: int) -> int:
            return r.solve_rows(
                skeleton._parent, every, skeleton._joint, skeleton._branch, skeleton._pulls, skeleton._loops, blocks,
                settings, padded, p, rows, first, last,
            )  # fmt: skip

        if workers == 1:
            codes = [work(0, k)]
        else:
            with ThreadPoolExecutor(workers) as pool:
                codes = list(pool.map(work, bounds[:-1], bounds[1:]))
        for code in codes:
            if code:
                i = code // 4 - 1
                raise _misuse(code % 4, skeleton, padded[i], p[i], f"row {i}: ")
        return BatchSolution(p[..., :d], rows, skeleton, padded)

    # --- pieces ---

    def _arguments(self, skeleton: Skeleton, target: Any, start: Any) -> tuple[Any, Any]:
        d, pulls = skeleton.rest.shape[1], skeleton._pulls
        targets = np.zeros((len(pulls), 3))
        try:
            t = np.asarray(target, dtype=np.float64)
        except (TypeError, ValueError):
            t = np.empty(0)
        if t.shape != (len(pulls), d) and not (len(pulls) == 1 and t.shape == (d,)):
            wanted = (d,) if len(pulls) == 1 else (len(pulls), d)
            raise InvalidArgumentError("target", f"has shape {t.shape}; wanted numbers of shape {wanted}")
        targets[:, :d] = t
        return targets, skeleton._start.copy() if start is None else skeleton.pad(start, "start")

    def _settings(self, skeleton: Skeleton, blocks: int) -> Any:
        key = (skeleton._kind, blocks > 0)
        known: dict[Any, Any] = self._rows  # type: ignore[attr-defined]
        if key not in known:
            dimension, free, simple = skeleton._kind
            free = free and not blocks
            simple = simple and not blocks and self.rotation_cap is None
            cap = np.pi if self.rotation_cap is None else self.rotation_cap
            cosine = -2.0 if self.rotation_cap is None else np.cos(cap)
            patience, drop = (np.inf, 1.0) if simple else (100.0, 0.999) if free else (25.0, 0.99)
            if self.patience is not None:
                patience, drop = float(self.patience), 0.99 if simple else drop
            known[key] = np.array(
                [self.tolerance, self.max_cycles, cosine, np.sin(cap), self.bend, self.max_restarts, self.seed,
                 patience, drop, dimension == 2, simple, self.turns], dtype=np.float64,
            )  # fmt: skip
        return known[key]


_NO_OBSTACLES = np.empty((0, r.c.OBSTACLE))


def solve(
    skeleton: Skeleton, target: Any, start: Any = None, *, obstacles: Sequence[Sphere | Box] = (), **settings: Any
) -> Solution:
    """One solve; `settings` are those of :class:`Solver`.

    ```python
    arm = fabrik.Skeleton.chain([1, 1, 1], limits=[(-1.5, 1.5)] * 3)
    fabrik.solve(arm, (0.8, 1.9)).points
    ```
    """
    return Solver(**settings).solve(skeleton, target, start, obstacles=obstacles)


def _misuse(code: int, skeleton: Skeleton, targets: Any, p: Any, where: str = "") -> InvalidArgumentError:
    if code == r.BAD_TARGET:
        i = int(np.flatnonzero(~np.isfinite(targets).all(axis=1))[0])
        return InvalidArgumentError("target", f"{where}target {i} is {targets[i].tolist()}; wanted finite numbers")
    if code == r.BAD_POINT:
        i = int(np.flatnonzero(~np.isfinite(p).all(axis=1))[0])
        return InvalidArgumentError("start", f"{where}point {i} is {p[i].tolist()}; wanted finite numbers")
    return InvalidArgumentError("lengths", f"{where}must be finite, none negative")


def _sentence(row: Any, skeleton: Skeleton) -> str:
    a, b, d, e = (float(x) for x in row[r.DETAIL : r.DETAIL + 4])
    reason, miss = int(row[r.REASON]), row[r.MISS]
    which = "the target" if len(skeleton.effectors) == 1 else f"target {int(a)}"
    if reason == r.BEYOND:
        return f"{which} is {b:.6g} from the root, {e:.6g} beyond the {d:.6g} that all links reach together"
    if reason == r.INSIDE:
        return f"{which} is {b:.6g} from the root, {e:.6g} inside the {d:.6g} that the longest link leaves out"
    if reason == r.LIMIT_HOLDS:
        return (
            f"point {int(a)}'s joint stands at a limit, {b:.6g} rad, and {int(d)} restarts found no way round; "
            f"{miss:.3g} is left"
        )
    if reason == r.TARGET_IN_OBSTACLE:
        return f"{which} lies {d:.3g} inside obstacle {int(b)}"
    if reason == r.IN_OBSTACLE:
        return f"the link of point {int(a)} is {d:.3g} inside obstacle {int(b)}; no clear pose was found"
    if reason == r.SPENT:
        return f"after all {int(a)} cycles {miss:.3g} is left"
    if reason == r.IN_LINE:
        return f"every link lies in line with the target, where passes never leave the line; {miss:.3g} is left"
    if reason == r.NOT_JOINTLY:
        return f"the targets pull against each other: target {int(a)} is missed by {b:.3g}, a weighted compromise"
    if reason == r.LOOP_OPEN:
        return f"loop {int(a)} stays open by {b:.3g}"
    if reason == r.NO_PROGRESS:
        return f"no progress after {int(b)} cycles and {int(a)} restarts; {miss:.3g} is left"
    return f"every target is met to {miss:.3g}"
