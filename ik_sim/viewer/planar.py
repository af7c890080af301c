"""The planar bench: arms of two, three and more links, and FABRIK's trees, solved one pass or one iteration at a time.

:class:`PlanarLab` holds what a person has set (a :class:`Bench`), where the arm starts, where it shall go, and how many
steps each method has made from that start. The iterates themselves come from :mod:`ik_sim.fabrik`: a run is replayed
from the start whenever a setting of its method changes, so that a turn of the knob α shows at once what that α would
have done. Nothing here draws or knows of a browser: `planar_frame.py` describes pictures, `planar_page.py` shows them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from ik_sim.chain import Chain, Joint
from ik_sim.errors import InvalidArgumentError, UnknownNameError
from ik_sim.fabrik import Arc, Skeleton, Solver
from ik_sim.fabrik.rivals import Rival, step, three_links, two_links
from ik_sim.viewer.planar_reach import ReachGrid

Method = Literal[
    "fabrik", "jacobian_transpose", "damped_least_squares", "ccd", "closed_form", "selectively_damped",
    "levenberg_marquardt",
]  # fmt: skip
METHODS: dict[str, str] = {
    "fabrik": "FABRIK", "jacobian_transpose": "Jacobian transpose", "damped_least_squares": "Damped least squares",
    "ccd": "CCD", "closed_form": "Closed form", "selectively_damped": "Selectively damped",
    "levenberg_marquardt": "Levenberg-Marquardt",
}  # fmt: skip
"""Titles by name."""
Model = Literal["single", "double", "spider", "tree"]
MODELS: dict[str, str] = {
    "single": "one arm", "double": "two arms on one root", "spider": "limbs around one root",
    "tree": "limbs on a trunk",
}  # fmt: skip
Status = Literal["solving", "reached", "unreachable", "stalled", "unsupported", "failed"]

MOST_LINKS, MOST_LIMBS = 12, 8
_BLOCK = 16  # iterations that are computed at once; fixed, so that a run has the same bits however it is stepped


@dataclass(frozen=True)
class Bench:
    """Everything a person can set. Lengths are in the bench's own unit, angles in radians."""

    model: Model = "single"
    """One arm, two arms on one root, limbs around one root, or limbs on a trunk."""
    lengths: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Links of the arm, or of every limb, root first."""
    trunk: tuple[float, ...] = (0.8, 0.8)
    """Links of the trunk of a tree."""
    limbs: int = 3
    """Limbs of a spider or a tree."""
    limits: tuple[tuple[float, float] | None, ...] = ()
    """(lower, upper) of each joint [rad], counted from the link before; None or missing: free. Limbs share them."""
    method: Method = "fabrik"
    """The one whose numbers are shown."""
    shown: tuple[Method, ...] = ("fabrik",)
    """All that run side by side."""
    alpha: float = 1.0
    """Gain of the Jacobian transpose, relative to 1/σ_max(J)²: above 2 it would diverge."""
    damping: float = 0.1
    """λ of damped least squares, in the unit of the lengths."""
    clamp: float = 0.5
    """The longest error that a damped step asks for, as a share of the mean link; 0: any."""
    tolerance: float = 1e-4
    """A tip this near to its target has arrived."""
    rotation_cap: float | None = None
    """The most a link may turn in one FABRIK cycle [rad]."""
    bend: float = 0.1
    """How far FABRIK bends a chain that lies in line with its target [rad]; 0 leaves the deadlock as it is."""
    heading: float | None = None
    """Direction of the last of three links in the closed form [rad]; None: the one it has at the start."""
    iterations_per_frame: int = 1
    """While it runs."""
    budget: int = 2000
    """Iterations after which *Solve* gives up."""
    follow: bool = True
    """Whether a new target sets the arm going."""

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidArgumentError: naming the field and what it may be.
        """
        _one_of("model", self.model, get_args(Model))
        _one_of("method", self.method, get_args(Method))
        for name in self.shown:
            _one_of("shown", name, get_args(Method))
        if self.method not in self.shown:
            object.__setattr__(self, "shown", (*self.shown, self.method))
        object.__setattr__(self, "shown", tuple(m for m in METHODS if m in self.shown))  # one order, no twins
        for name, least in (("lengths", 2 if self.model == "single" else 1), ("trunk", 1)):
            links = getattr(self, name)
            if not least <= len(links) <= MOST_LINKS or any(not 0.0 <= x <= 100.0 for x in links) or not sum(links) > 0:
                raise InvalidArgumentError(name, f"must be {least} to {MOST_LINKS} numbers from 0 to 100, not all zero")
        _within("limbs", self.limbs, 2, MOST_LIMBS)
        if len(self.limits) > MOST_LINKS:
            raise InvalidArgumentError("limits", f"there are at most {MOST_LINKS} joints")
        for i, limit in enumerate(self.limits):
            if limit is not None and not -2 * math.pi <= limit[0] <= limit[1] <= 2 * math.pi:
                raise InvalidArgumentError(f"limits[{i}]", f"must be lower ≤ upper within ±2π rad, not {limit}")
        _within("alpha", self.alpha, 0.05, 2.0)
        _within("damping", self.damping, 0.0, 1.0)
        _within("clamp", self.clamp, 0.0, 10.0)
        _within("tolerance", self.tolerance, 1e-12, 1.0)
        if self.rotation_cap is not None:
            _within("rotation_cap", self.rotation_cap, 1e-3, math.pi)
        _within("bend", self.bend, 0.0, 0.9)
        if self.heading is not None:
            _within("heading", self.heading, -2 * math.pi, 2 * math.pi)
        _within("iterations_per_frame", self.iterations_per_frame, 1, 200)
        _within("budget", self.budget, 1, 10_000)

    def limit(self, joint: int) -> tuple[float, float] | None:
        """Limits of that joint, None for a free one; an arc of a whole turn is free too."""
        limit = self.limits[joint] if joint < len(self.limits) else None
        return None if limit is None or limit[1] - limit[0] >= 2 * math.pi else limit


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidArgumentError(name, f"must be from {low:g} to {high:g}, not {value:g}")


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UnknownNameError(name, value, known)


@dataclass(eq=False)
class Run:
    """What one method does from one start: a row for each pass or iteration, as far as anybody has looked."""

    points: list[Float[np.ndarray, "m 2"]]
    phases: list[str]
    """start, bend, backward, forward, straight (a chain laid towards what it can't reach), iteration, answer."""
    iterations: list[int]
    """Iterations or cycles made at each row; a backward pass belongs to the cycle that it begins."""
    misses: list[float]
    """Largest distance of a tip from its (clamped) target; after a backward pass that of the root from its place."""
    ended: str = ""
    """Why no further row will come."""
    failed: bool = False
    """Whether that is an error of the solver."""
    supported: bool = True
    """Whether the method can move this model at all."""
    other: list[tuple[Float[np.ndarray, "m 2"], str]] = field(default_factory=list)
    """Closed form: the branch not taken, and what is wrong with it."""
    met: bool = False
    """Whether the last row is at its target."""

    def append(self, points: Float[np.ndarray, "m 2"], phase: str, iteration: int, miss: float) -> None:
        """Add a row."""
        self.points.append(points)
        self.phases.append(phase)
        self.iterations.append(iteration)
        self.misses.append(float(miss))


@lru_cache(maxsize=64)
def _skeleton(
    model: str,
    lengths: tuple[float, ...],
    trunk: tuple[float, ...],
    limbs: int,
    limits: tuple[tuple[float, float] | None, ...],
) -> Skeleton:
    arcs = [None if limit is None else Arc(*limit) for limit in limits]
    if model == "single":
        return Skeleton.chain(lengths, joints=arcs if any(arcs) else None)
    rest, parent, joints = [np.zeros(2)], [-1], {}
    foot, heading = 0, 0.5 * math.pi
    if model == "tree":
        for length in trunk:
            rest.append(rest[-1] + [0.0, length])
            parent.append(foot)
            foot += 1
    count = 2 if model == "double" else limbs
    for k in range(count):
        if model == "spider":
            along = heading + 2 * math.pi * k / count
        else:
            along = heading + 0.25 * math.pi * (1 - 2 * k / (count - 1))
        point, before = rest[foot], foot
        for j, length in enumerate(lengths):
            point = point + length * np.array([math.cos(along), math.sin(along)])
            rest.append(point)
            parent.append(before)
            before = len(rest) - 1
            arc = arcs[j]
            if arc is not None:
                off = along - heading if j == 0 and foot else 0.0  # on a trunk the limb stands off at rest
                joints[before] = Arc(arc.lower + off, arc.upper + off)
    return Skeleton.tree(np.array(rest), parent, joints=joints)


@lru_cache(maxsize=64)
def _chain(lengths: tuple[float, ...], limits: tuple[tuple[float, float] | None, ...]) -> Chain:
    """The arm as a chain of hinges about z, for its matrices."""
    joints, T = [], np.eye(4)
    for i, length in enumerate(lengths):
        limit = limits[i]
        low, high = (-np.inf, np.inf) if limit is None else limit
        joints.append(Joint(f"joint_{i + 1}", "revolute", T.copy(), lower=low, upper=high))
        T[0, 3] = length
    return Chain.from_joints(joints, T_last_tool=T)


class PlanarLab:
    """The bench and what happens on it.

    Args:
        bench: the settings; a newcomer's when left out.
        start: joint angles of a single arm [rad], or (m, 2) points; the rest pose when left out.
        targets: one (x, y) for each tip; where the tips stand when left out.
    """

    def __init__(self, bench: Bench | None = None, start: Any = None, targets: Any = None) -> None:
        self.bench = Bench() if bench is None else bench
        self.running = False
        """Whether `tick` moves anything."""
        self._runs: dict[str, tuple[Any, Run]] = {}
        self.cursor: dict[str, int] = {}
        """The row at which each method stands; 0 is the start."""
        self.trace: Float[np.ndarray, "k 2"] = np.zeros((0, 2))
        """The way that the tip of an arm moved by hand has left; to be drawn."""
        self.start = self._settled(self._points(start))
        self.home = (self.start, self._targets(targets))
        self.targets = self.home[1].copy()

    # --- what is posed ---

    @property
    def skeleton(self) -> Skeleton:
        """The points and links, with their limits."""
        b = self.bench
        return _skeleton(b.model, b.lengths, b.trunk, b.limbs, self._limits)

    @property
    def chain(self) -> Chain:
        """A single arm as the other solvers of ik_sim see it.

        Raises:
            InvalidArgumentError: the model is a tree.
        """
        if self.bench.model != "single":
            raise InvalidArgumentError("model", "only a single arm is one chain")
        return _chain(self.bench.lengths, self._limits)

    @property
    def _limits(self) -> tuple[tuple[float, float] | None, ...]:
        return tuple(self.bench.limit(i) for i in range(len(self.bench.lengths)))

    @property
    def limited(self) -> bool:
        """Whether any joint has limits."""
        return any(limit is not None for limit in self._limits)

    @property
    def size(self) -> float:
        """The largest distance from the root that any tip reaches."""
        return max(self.reach(k)[1] for k in range(len(self.targets)))

    def reach(self, effector: int = 0) -> tuple[float, float]:
        """Inner and outer radius about the root for that tip, limits aside: max(0, 2 max L − Σ L) and Σ L."""
        return self.skeleton.reach(effector)

    @property
    def region(self) -> tuple[ReachGrid, list[float]] | None:
        """What the limits leave of a limb's reach, and by what angles it is turned, one a limb [rad].

        None where there are no limits, and for limbs on a trunk, whose foot moves.
        """
        if not self.limited or self.bench.model == "tree":
            return None
        s = self.skeleton
        firsts = [i for i in range(1, len(s.parent)) if s.parent[i] == 0]
        turns = [float(np.arctan2(*(s.rest[i] - s.rest[0])[::-1])) for i in firsts]
        return ReachGrid(self.bench.lengths, self._limits), turns

    # --- targets ---

    @property
    def goals(self) -> Float[np.ndarray, "e 2"]:
        """The targets, each moved to the nearest point that its tip can reach, limits aside."""
        goals = self.targets.copy()
        for k in range(len(goals)):
            inner, outer = self.reach(k)
            arm = goals[k] - self.skeleton.rest[0]
            far = float(np.linalg.norm(arm))
            if far > outer:
                goals[k] = self.skeleton.rest[0] + arm * (outer / far)
            elif far < inner:
                tip = self.start[self.skeleton.effectors[k]] - self.start[0]
                along = arm / far if far > 1e-12 else tip / max(float(np.linalg.norm(tip)), 1e-300)
                goals[k] = self.skeleton.rest[0] + along * inner
        return goals

    def beyond(self, effector: int = 0) -> str:
        """Why that target can't be reached, with the numbers; empty where the links alone can."""
        inner, outer = self.reach(effector)
        far = float(np.linalg.norm(self.targets[effector] - self.skeleton.rest[0]))
        if far > outer * (1 + 1e-12):
            return f"{far:.3f} from the root, {far - outer:.3f} beyond the outer circle of {outer:.3f}"
        if far < inner * (1 - 1e-12):
            return f"{far:.3f} from the root, {inner - far:.3f} inside the inner circle of {inner:.3f}"
        return ""

    def outside_limits(self, effector: int = 0) -> bool:
        """Whether the target lies outside what the joint limits leave of the reach, by more than the grid's width."""
        region = self.region
        if region is None or self.beyond(effector):
            return False
        grid, turns = region
        x, y = self.targets[effector] - self.skeleton.rest[0]
        c, s = math.cos(turns[effector]), math.sin(turns[effector])
        return not grid.holds((c * x + s * y, c * y - s * x), cells=2)

    def set_target(self, point: Any, effector: int | None = None) -> None:
        """Move a target, of the tip whose target is nearest when none is named. All methods start anew from here.

        Raises:
            InvalidArgumentError: not two finite numbers, or no such tip.
        """
        p = np.asarray(point, dtype=np.float64)
        if p.shape != (2,) or not np.isfinite(p).all() or np.abs(p).max() > 1e6:
            raise InvalidArgumentError("target", "must be two finite numbers")
        if effector is None:
            effector = int(np.argmin(np.linalg.norm(self.targets - p, axis=1)))
        if not 0 <= effector < len(self.targets):
            raise InvalidArgumentError("effector", f"must be 0 to {len(self.targets) - 1}, not {effector}")
        self._start_here()
        self.targets[effector] = p
        if self.bench.follow:
            self.running = True

    # --- settings ---

    def set(self, **settings: Any) -> None:
        """Change settings of the bench. Other links, limits or models start anew; the rest replays what was done.

        Raises:
            UnknownNameError: no such setting.
            InvalidArgumentError: a value that it can't have; nothing is changed then.
        """
        bench = _replaced(self.bench, settings)
        old = self.bench
        angles = self.angles() if old.model == "single" else None
        now = self.pose()
        self.bench = bench
        shape = ("model", "lengths", "trunk", "limbs", "limits")
        if all(getattr(old, name) == getattr(bench, name) for name in shape):
            return
        count = len(self.skeleton.parent)
        if bench.model == "single" and angles is not None:
            padded = np.zeros(count - 1)
            padded[: min(count - 1, len(angles))] = angles[: count - 1]
            self.start = self._settled(self.skeleton.pose(padded))
        else:
            same = old.model == bench.model and len(now) == count
            self.start = self._settled(now if same else self.skeleton.rest)
        self.cursor = {}
        tips = self.start[list(self.skeleton.effectors)]
        if len(self.targets) != len(tips) or old.model != bench.model:
            self.targets = tips.copy()
            self.home = (self.start, self.targets.copy())
        else:
            self.home = (self.start if len(self.home[0]) != count else self._settled(self.home[0]), self.home[1])

    def set_length(self, link: int, length: float) -> None:
        """Change one link."""
        lengths = list(self.bench.lengths)
        if not 0 <= link < len(lengths):
            raise InvalidArgumentError("link", f"must be 0 to {len(lengths) - 1}, not {link}")
        lengths[link] = float(length)
        self.set(lengths=tuple(lengths))

    def set_all_lengths(self, length: float) -> None:
        """Change all links."""
        self.set(lengths=(float(length),) * len(self.bench.lengths))

    def set_links(self, count: int) -> None:
        """Change how many links there are; new ones are as long as the last."""
        lengths = self.bench.lengths
        self.set(lengths=(*lengths[:count], *(lengths[-1],) * (count - len(lengths))))

    def set_angles(self, angles: Any) -> None:
        """Pose a single arm by hand [rad]; everything starts from there."""
        if self.bench.model != "single":
            raise InvalidArgumentError("angles", "only a single arm is posed by its angles")
        self.start = self._settled(self.skeleton.pose(angles))
        self.cursor, self.running = {}, False

    # --- steps ---

    def run(self, method: str | None = None) -> Run:
        """What that method (the chosen one) does from the present start, replayed up to where it stands."""
        name = self.bench.method if method is None else method
        key = self._key(name)
        known = self._runs.get(name)
        if known is None or known[0] != key:
            known = (key, self._begin(name))
            self._runs[name] = known
        run = known[1]
        self._extend(name, run, self.cursor.get(name, 0))
        self.cursor[name] = min(self.cursor.get(name, 0), len(run.points) - 1)
        return run

    def step(self, method: str | None = None) -> None:
        """One pass of FABRIK, one iteration of any other method; of all that are shown when none is named."""
        self.running = False
        for name in self.bench.shown if method is None else (method,):
            self._move(name, 1)

    def back(self) -> None:
        """Undo one step of all that are shown."""
        self.running = False
        for name in self.bench.shown:
            self.cursor[name] = max(0, self.cursor.get(name, 0) - 1)

    def solve(self) -> None:
        """Go on to the end, or until the budget is spent, with all that are shown."""
        self.running = False
        for name in self.bench.shown:
            run = self.run(name)
            while not self.over(name):
                self._move(name, _BLOCK)
                for row in range(max(0, self.cursor[name] - _BLOCK), self.cursor[name] + 1):
                    if self._done_at(run, row) or run.iterations[row] >= self.bench.budget:
                        self.cursor[name] = row
                        break

    def reset(self) -> None:
        """Back to the start and the targets that the bench was made with."""
        self.start, self.targets = self.home[0], self.home[1].copy()
        self.cursor, self.running = {}, False

    def rewind(self) -> None:
        """All methods back to their common start, the targets as they are."""
        self.cursor, self.running = {}, False

    def play(self) -> None:
        """Let `tick` move the arms."""
        self.running = True

    def pause(self) -> None:
        """Stop; `step` goes on from here."""
        self.running = False

    def tick(self) -> bool:
        """One frame of the animation: so many iterations of each method. Returns whether anything moved."""
        if not self.running:
            return False
        moved = False
        for name in self.bench.shown:
            for _ in range(self.bench.iterations_per_frame):
                if self.over(name):
                    break
                self._move(name, 1)
                while self.run(name).phases[self.cursor[name]] in ("backward", "bend") and not self.over(name):
                    self._move(name, 1)
                moved = True
        self.running = moved
        return moved

    def over(self, method: str) -> bool:
        """Whether that method is at its target, stands still, or has spent its budget."""
        run = self.run(method)
        row = self.cursor[method]
        return (
            self._done_at(run, row)
            or (bool(run.ended) and row == len(run.points) - 1)
            or run.iterations[row] >= self.bench.budget
        )

    def _done_at(self, run: Run, row: int) -> bool:
        return run.phases[row] != "backward" and run.misses[row] <= self.bench.tolerance

    def _move(self, method: str, rows: int) -> None:
        run = self.run(method)
        self._extend(method, run, self.cursor[method] + rows)
        self.cursor[method] = min(self.cursor[method] + rows, len(run.points) - 1)

    def _start_here(self) -> None:
        """The chosen method's present pose becomes the start of all."""
        self.start = self.pose()
        self.cursor = {}

    def _key(self, method: str) -> Any:
        """All that a run depends on."""
        b = self.bench
        own = {
            "fabrik": (b.rotation_cap, b.bend), "jacobian_transpose": (b.alpha,),
            "damped_least_squares": (b.damping, b.clamp), "closed_form": (b.heading,),
        }.get(method, ())  # fmt: skip
        shape = (b.model, b.lengths, b.trunk, b.limbs, b.limits)
        return (*shape, b.tolerance, own, self.start.tobytes(), self.targets.tobytes())

    def _begin(self, method: str) -> Run:
        if method not in METHODS:
            raise UnknownNameError("method", method, METHODS)
        run = Run([], [], [], [])
        run.append(self.start, "start", 0, self._miss(self.start))
        run.met = self._done_at(run, 0)
        if method != "fabrik" and self.bench.model != "single":
            run.supported = False
            run.ended = f"{METHODS[method]} moves one chain with one tip; only FABRIK takes limbs together"
        elif method == "closed_form" and len(self.bench.lengths) > 3:
            run.supported = False
            run.ended = f"closed forms here are for two and three links, not for {len(self.bench.lengths)}"
        return run

    def _miss(self, points: Float[np.ndarray, "m 2"]) -> float:
        ends = points[list(self.skeleton.effectors)] - self.goals
        return float(np.linalg.norm(ends, axis=1).max())

    def _extend(self, method: str, run: Run, row: int) -> None:
        """Compute rows until there is one with that number, or none will come."""
        while len(run.points) <= row and not run.ended and not run.met:
            try:
                if method == "fabrik":
                    self._fabrik_block(run)
                elif method == "closed_form":
                    self._closed_form(run)
                else:
                    self._rival_block(method, run)
            except Exception as error:  # a lesson goes on whatever a solver does
                run.ended, run.failed = f"{METHODS[method]} failed: {type(error).__name__}: {error}", True

    def _fabrik_block(self, run: Run) -> None:
        first = len(run.points) == 1
        solver = Solver(
            tolerance=self.bench.tolerance, max_cycles=_BLOCK, turns=0, rotation_cap=self.bench.rotation_cap,
            bend=self.bench.bend if first else 0.0, max_restarts=0, patience=2**40,
        )  # fmt: skip
        before = run.points[-1]
        trace = solver.trace(self.skeleton, self._pulls, before, rows=2 * _BLOCK + 2)
        iteration = run.iterations[-1]
        for phase, points in zip(trace.passes[1:], trace.points[1:], strict=True):
            if phase == "forward" and run.phases[-1] != "backward":
                phase = "straight"
            iteration += phase == "backward"
            off = (
                float(np.linalg.norm(points[0] - self.skeleton.rest[0])) if phase == "backward" else self._miss(points)
            )
            run.append(points, phase, iteration, off)
        run.met = self._done_at(run, len(run.points) - 1)
        if not run.met and (len(trace.passes) < 2 * _BLOCK + 1 or self._stands(run, before)):
            last = run.points[-1]
            asked = dataclasses.replace(solver, bend=0.0, max_cycles=100, patience=None)
            run.ended = asked.solve(self.skeleton, self._pulls, last).reason
            self._trim(run)

    @property
    def _pulls(self) -> Float[np.ndarray, "e 2"]:
        return self.goals

    def _rival_block(self, method: str, run: Run) -> None:
        skeleton, goal, before = self.skeleton, self.goals[0], run.points[-1]
        gain, cycles = None, _BLOCK
        if method == "jacobian_transpose":
            # The method takes its gain relative to |J|², which never changes within the one step that is asked for.
            columns = jacobian_columns(before)
            largest = float(np.linalg.norm(columns, 2)) ** 2
            gain = self.bench.alpha * float((columns**2).sum()) / largest if largest > 0.0 else self.bench.alpha
            cycles = 1
        elif method == "damped_least_squares":
            gain = self.bench.damping / float(np.mean(self.bench.lengths))
        rival = Rival(
            method,  # type: ignore[arg-type]
            gain=gain, clamp=self.bench.clamp, tolerance=self.bench.tolerance, max_cycles=cycles,
        )  # fmt: skip
        path = rival.path(skeleton, goal, before, rows=cycles + 1)
        for points in path[1:]:
            run.append(points, "iteration", run.iterations[-1] + 1, self._miss(points))
        run.met = self._done_at(run, len(run.points) - 1)
        if not run.met and (len(path) < cycles + 1 or self._stands(run, before)):
            run.ended = self._why_still(method, run.points[-1])
            self._trim(run)

    def _stands(self, run: Run, before: Float[np.ndarray, "m 2"]) -> bool:
        last, still = run.points[-1], 1e-12 * self.size
        same = 2 if run.phases[-1] == "forward" and len(run.points) > 2 else 1
        return bool(np.abs(last - before).max() <= still and np.abs(last - run.points[-1 - same]).max() <= still)

    def _trim(self, run: Run) -> None:
        """Without the rows in which nothing moved any more, but one."""
        same = 2 if run.phases[-1] == "forward" and len(run.points) > 2 and run.phases[-2] == "backward" else 1
        while len(run.points) > 2 * same + 1 and all(
            np.abs(run.points[-1 - k] - run.points[-1 - k - same]).max() <= 1e-12 * self.size for k in range(same)
        ):
            for rows in (run.points, run.phases, run.iterations, run.misses):
                del rows[-same:]

    def _why_still(self, method: str, points: Float[np.ndarray, "m 2"]) -> str:
        held = self._held(points)
        if held:
            return f"nothing moves any more: {held}"
        J, e = jacobian_columns(points), self.goals[0] - points[-1]
        slope = float(np.linalg.norm(J.T @ e))
        if slope <= 1e-9 * self.size * max(float(np.linalg.norm(e)), 1e-300):
            return "singular, and Jᵀe = 0: the error points along the arm, where no small turn of any joint leads"
        if method == "damped_least_squares" and self.bench.damping == 0.0:
            return "J Jᵀ has no inverse in this posture; λ above 0 gives it one"
        return "nothing moves any more"

    def _held(self, points: Float[np.ndarray, "m 2"]) -> str:
        angles = self.skeleton.angles(points)[1:]
        for i, joint in enumerate(self.skeleton.joints[1:]):
            if isinstance(joint, Arc) and joint.upper - joint.lower < 2 * math.pi:
                off = (angles[i] - 0.5 * (joint.lower + joint.upper) + math.pi) % (2 * math.pi) - math.pi
                if abs(off) >= 0.5 * (joint.upper - joint.lower) - 1e-7:
                    return f"joint {i + 1} stands at its limit of {math.degrees(angles[i]):.1f}°"
        return ""

    # --- closed form ---

    def _closed_form(self, run: Run) -> None:
        lengths, goal = self.bench.lengths, self.goals[0]
        if len(lengths) == 2:
            rows = two_links(lengths, goal)
        else:
            rows = three_links(lengths, goal, self.used_heading())
        now = self.skeleton.angles(self.start)[1:]
        branches = []
        for row in rows:
            angles, worst, joint = [], 0.0, 0
            for i, angle in enumerate(row):
                limit = self._limits[i]
                middle = 0.0 if limit is None else 0.5 * (limit[0] + limit[1])
                near = middle + (float(angle) - middle + math.pi) % (2 * math.pi) - math.pi
                angles.append(near)
                beyond = 0.0 if limit is None else max(limit[0] - near, near - limit[1])
                if beyond > worst:
                    worst, joint = beyond, i
            away = float(np.linalg.norm((np.array(angles) - now + math.pi) % (2 * math.pi) - math.pi))
            wrong = f"joint {joint + 1} would be {math.degrees(worst):.1f}° over its limit" if worst > 1e-9 else ""
            branches.append((bool(wrong), away, angles, wrong))
        branches.sort(key=lambda branch: branch[:2])
        if not branches:  # by rounding only: the goal is clamped into the ring
            run.ended = "the target is out of reach of the closed form"
            return
        free = _skeleton("single", lengths, self.bench.trunk, self.bench.limbs, (None,) * len(lengths))
        run.other = [(free.pose(angles), wrong) for _, _, angles, wrong in branches]
        if branches[0][0]:
            run.ended = (
                f"{'both branches break' if len(branches) > 1 else 'the only branch breaks'} a limit: "
                + "; ".join(branch[3] for branch in branches)
            )
            return
        points, _ = run.other.pop(0)
        run.append(points, "answer", 1, self._miss(points))
        run.met = self._done_at(run, 1)
        if not run.met:
            run.ended = f"the closed form misses by {run.misses[-1]:.2g}"

    def used_heading(self) -> float:
        """Direction of the last of three links [rad]: the one asked for, or the nearest with which the rest reaches."""
        a, b, c = self.bench.lengths
        wished = self.bench.heading
        if wished is None:
            last = self.start[-1] - self.start[-2]
            wished = float(np.arctan2(last[1], last[0]))
        goal = self.goals[0] - self.skeleton.rest[0]
        far = float(np.linalg.norm(goal))
        if far * c == 0.0:
            return wished
        along = float(np.arctan2(goal[1], goal[0]))
        # The wrist's distance from the root grows with the angle between the last link and the line to the target.
        low, high = (
            math.acos(min(max((far**2 + c**2 - limit**2) / (2 * far * c), -1.0), 1.0)) for limit in (abs(a - b), a + b)
        )
        off = (wished - along + math.pi) % (2 * math.pi) - math.pi
        return along + math.copysign(min(max(abs(off), low), high), off)

    # --- reading ---

    def points(self, method: str | None = None) -> Float[np.ndarray, "m 2"]:
        """The points of the row at which that method stands; after a backward pass the root is off its place."""
        name = self.bench.method if method is None else method
        run = self.run(name)
        return run.points[self.cursor[name]]

    def pose(self, method: str | None = None) -> Float[np.ndarray, "m 2"]:
        """As :meth:`points`, but the last one that a real arm could take: never that of a backward pass."""
        name = self.bench.method if method is None else method
        run = self.run(name)
        row = self.cursor[name]
        return run.points[row - 1 if run.phases[row] == "backward" else row]

    def angles(self, method: str | None = None) -> Float[np.ndarray, "n"]:
        """Joint angles of :meth:`pose` [rad]."""
        return self.skeleton.angles(self.pose(method))[1:]

    def misses(self, method: str | None = None) -> Float[np.ndarray, "e"]:
        """How far each tip of :meth:`pose` is from its target, where it was set."""
        return np.linalg.norm(self.pose(method)[list(self.skeleton.effectors)] - self.targets, axis=1)

    def iteration(self, method: str | None = None) -> int:
        """Iterations or cycles that method has made."""
        name = self.bench.method if method is None else method
        return self.run(name).iterations[self.cursor[name]]

    def phase(self, method: str | None = None) -> str:
        """What the method's present row shows; see :class:`Run`."""
        name = self.bench.method if method is None else method
        return self.run(name).phases[self.cursor[name]]

    def curve(self, method: str | None = None) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
        """Iterations and the distance left after each, from the clamped target, up to where the method stands."""
        name = self.bench.method if method is None else method
        run = self.run(name)
        rows = [k for k in range(self.cursor[name] + 1) if run.phases[k] not in ("backward", "bend")]
        return np.array([float(run.iterations[k]) for k in rows]), np.array([run.misses[k] for k in rows])

    def status(self, method: str | None = None) -> Status:
        """How that method stands."""
        name = self.bench.method if method is None else method
        run = self.run(name)
        row = self.cursor[name]
        if run.failed:
            return "failed"
        if not run.supported:
            return "unsupported"
        if any(self.beyond(k) for k in range(len(self.targets))):
            return "unreachable"
        if self._done_at(run, row):
            return "reached"
        if any(self.outside_limits(k) for k in range(len(self.targets))):
            return "unreachable"
        if run.ended and row == len(run.points) - 1:
            return "stalled"
        return "solving"

    def message(self, method: str | None = None) -> str:
        """What there is to say about that method now, in a sentence or two."""
        name = self.bench.method if method is None else method
        run, status = self.run(name), self.status(name)
        row = self.cursor[name]
        if status in ("failed", "unsupported"):
            return run.ended
        parts = []
        for k in range(len(self.targets)):
            which = "The target" if len(self.targets) == 1 else f"Target {k + 1}"
            if self.beyond(k):
                parts.append(f"{which} is unreachable: {self.beyond(k)}. It is clamped to that circle.")
            elif status != "reached" and self.outside_limits(k):
                parts.append(f"{which} is unreachable: it lies outside the region that the joint limits leave.")
        left = self.run(name).misses[row]
        count = run.iterations[row]
        unit = "cycle" if name == "fabrik" else "iteration"
        done = f"{count} {unit}{'' if count == 1 else 's'}"
        if status == "reached":
            parts.append(f"Reached to {left:.2g} after {done}.")
        elif run.ended and row == len(run.points) - 1:
            parts.append(f"Stands still after {done}, {left:.3g} left: {run.ended}.")
            if name == "fabrik" and self.limited and status == "stalled":
                parts.append(self.verdict())
        elif count >= self.bench.budget:
            parts.append(f"The budget of {done} is spent, {left:.3g} left.")
            if name == "fabrik" and self.limited and status == "solving":
                parts.append(self.verdict())
        elif run.phases[row] == "backward":
            parts.append(
                f"Backward pass of cycle {count}: the tip is on its target, the root {left:.3g} off its place."
            )
        elif status != "unreachable" or not run.met:
            parts.append(f"{left:.3g} left after {done}.")
        if name == "closed_form" and run.phases[row] == "answer":
            parts.extend(f"The other elbow (dashed): {wrong or 'legal too'}." for _, wrong in run.other)
            if len(self.bench.lengths) == 3 and self.bench.heading is not None:
                used = self.used_heading()
                if abs((used - self.bench.heading + math.pi) % (2 * math.pi) - math.pi) > 1e-9:
                    parts.append(f"No answer at that heading; the nearest is {math.degrees(used):.1f}°.")
        return " ".join(parts)

    def verdict(self) -> str:
        """What FABRIK's own solver says of the start, which may begin anew from random legal poses."""
        solver = Solver(tolerance=self.bench.tolerance, rotation_cap=self.bench.rotation_cap, bend=self.bench.bend)
        answer = solver.solve(self.skeleton, self.goals, self.start)
        if answer.converged:
            return f"The solver itself gets there: it starts anew, {answer.restarts} time(s) here."
        return f"The solver itself says {answer.status.replace('_', ' ')}: {answer.reason}."

    # --- the matrices ---

    def jacobian(self, method: str | None = None) -> Float[np.ndarray, "2 n"]:
        """J of a single arm's pose: how the tip moves with each joint."""
        return self.chain.jacobian(self.angles(method))[:2].copy()

    def damped(self, method: str | None = None) -> Float[np.ndarray, "2 2"]:
        """J Jᵀ + λ² I."""
        J = self.jacobian(method)
        return J @ J.T + self.bench.damping**2 * np.eye(2)

    def singular_values(self, method: str | None = None) -> Float[np.ndarray, "2"]:
        """Of J, largest first."""
        return np.linalg.svd(self.jacobian(method), compute_uv=False)

    def joint_step(self, method: str | None = None) -> Float[np.ndarray, "n"] | None:
        """What the next iteration asks the joints to turn by [rad], before clamp and limits; None where none is asked."""
        name = self.bench.method if method is None else method
        points, goal = self.pose(name), self.goals[0]
        if self.bench.model != "single":
            return None
        if name == "jacobian_transpose":
            largest = float(self.singular_values(name)[0]) ** 2
            return step(name, points, goal, self.bench.alpha / largest) if largest > 0.0 else None
        if name in ("damped_least_squares", "selectively_damped", "levenberg_marquardt"):
            mean = float(np.mean(self.bench.lengths))
            gain = {"damped_least_squares": self.bench.damping, "selectively_damped": math.pi / 4}.get(
                name, 1e-3 * mean**2
            )
            return step(name, points, goal, gain)
        return None

    def factors(self, method: str | None = None) -> list[Float[np.ndarray, "4 4"]]:
        """A_i = Rot_z(θ_i) Trans_x(L_i) of every link: their product is the tool's pose."""
        out = []
        for angle, length in zip(self.angles(method), self.bench.lengths, strict=True):
            c, s = math.cos(angle), math.sin(angle)
            out.append(np.array([[c, -s, 0, length * c], [s, c, 0, length * s], [0, 0, 1, 0], [0, 0, 0, 1.0]]))
        return out

    # --- keeping ---

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; :meth:`from_dict` builds the same bench in the same state."""
        return {
            "bench": {
                f.name: _plain(getattr(self.bench, f.name)) for f in dataclasses.fields(self.bench)
            },
            "start": self.start.tolist(),
            "targets": self.targets.tolist(),
            "home": [self.home[0].tolist(), self.home[1].tolist()],
            "rows": {name: row for name, row in self.cursor.items() if row and name in self.bench.shown},
            "running": self.running,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PlanarLab:
        """Build what :meth:`to_dict` described; what is missing is a newcomer's.

        Raises:
            UnknownNameError: a key that doesn't exist.
            InvalidArgumentError: a value of the wrong type or out of its range.
        """
        for key in data:
            _one_of("key of a planar bench", str(key), ("bench", "start", "targets", "home", "rows", "running"))
        settings = data.get("bench", {})
        if not isinstance(settings, Mapping):
            raise InvalidArgumentError("bench", "must be a table of settings")
        lab = cls(_replaced(Bench(), dict(settings)), data.get("start"), data.get("targets"))
        home = data.get("home")
        if home is not None:
            if not isinstance(home, list | tuple) or len(home) != 2:
                raise InvalidArgumentError("home", "must be a start and its targets")
            lab.home = (lab._settled(lab._points(home[0])), lab._targets(home[1]))
        rows = data.get("rows", {})
        if not isinstance(rows, Mapping):
            raise InvalidArgumentError("rows", "must be a table of row numbers by method")
        for name, row in rows.items():
            _one_of("method", str(name), tuple(METHODS))
            if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row <= 25_000:
                raise InvalidArgumentError("rows", f"{name}: must be a whole number from 0 to 25000, not {row!r}")
            lab.cursor[str(name)] = row
        lab.running = data.get("running", False) is True
        return lab

    # --- pieces ---

    def _points(self, start: Any) -> Float[np.ndarray, "m 2"]:
        if start is None:
            return np.array(self.skeleton.rest)
        p = _numbers(start, "start")
        if p.ndim == 1:
            return self.skeleton.pose(p)
        if p.shape != self.skeleton.rest.shape:
            raise InvalidArgumentError("start", f"has shape {p.shape}; wanted {self.skeleton.rest.shape}")
        return p

    def _targets(self, targets: Any) -> Float[np.ndarray, "e 2"]:
        ends = list(self.skeleton.effectors)
        if targets is None:
            return self.start[ends].copy()
        t = _numbers(targets, "targets")
        if t.shape == (2,) and len(ends) == 1:
            t = t[None, :]
        if t.shape != (len(ends), 2):
            raise InvalidArgumentError("targets", f"has shape {t.shape}; wanted ({len(ends)}, 2)")
        return t

    def _settled(self, points: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "m 2"]:
        """The points with their lengths and inside their limits, as every solver would take them."""
        skeleton = self.skeleton
        tips = points[list(skeleton.effectors)]
        placed = points - points[0] + skeleton.rest[0]
        trace = Solver(max_cycles=0, bend=0.0, max_restarts=0, turns=0).trace(skeleton, tips, placed, rows=1)
        start = trace.points[0]
        start.flags.writeable = False
        return start


def jacobian_columns(points: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "2 n"]:
    """Column i: how the last point moves when the joint at point i turns, (−(y_tip − y_i), x_tip − x_i)."""
    arms = points[-1] - points[:-1]
    return np.stack([-arms[:, 1], arms[:, 0]])


def _numbers(value: Any, name: str) -> Float[np.ndarray, "..."]:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(name, "must be numbers") from None
    if not np.isfinite(array).all() or (array.size and np.abs(array).max() > 1e6):
        raise InvalidArgumentError(name, "must be finite numbers below a million")
    return array


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    return value


def _replaced(bench: Bench, settings: Mapping[str, Any]) -> Bench:
    """The bench with other settings, which may come as plain data from a file."""
    fields = {f.name for f in dataclasses.fields(Bench)}
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        _one_of("setting of the bench", name, tuple(fields))
        checked[name] = _checked(name, value, getattr(Bench(), name))
    return dataclasses.replace(bench, **checked)


def _checked(name: str, value: Any, default: Any) -> Any:
    if name == "limits":
        rows = value if isinstance(value, list | tuple) else None
        if rows is None or any(r is not None and (not isinstance(r, list | tuple) or len(r) != 2) for r in rows):
            raise InvalidArgumentError(name, "must be a list of (lower, upper) or null")
        return tuple(None if r is None else (_float(name, r[0]), _float(name, r[1])) for r in rows)
    if name in ("lengths", "trunk"):
        if not isinstance(value, list | tuple):
            raise InvalidArgumentError(name, "must be a list of numbers")
        return tuple(_float(name, x) for x in value)
    if name == "shown":
        if not isinstance(value, list | tuple) or not all(isinstance(x, str) for x in value):
            raise InvalidArgumentError(name, "must be a list of names of methods")
        return tuple(value)
    if name in ("rotation_cap", "heading") and value is None:
        return None
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InvalidArgumentError(name, f"must be true or false, not {value!r}")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise InvalidArgumentError(name, f"must be a name, not {value!r}")
        return value
    if isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidArgumentError(name, f"must be a whole number, not {value!r}")
        return value
    return _float(name, value)


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidArgumentError(name, f"must be a finite number, not {value!r}")
    return float(value)
