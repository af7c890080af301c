"""What a benchmark runs, in plain values: the same plan gives the same rows, but for the times in them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from ik_sim import __version__
from ik_sim.errors import InvalidArgumentError, UnknownNameError

FORMAT = 1
"""Of plans, parts and rows; goes up when an older reader would misread them."""
PATH_POINTS = 100
"""Targets on each path of the set "paths"."""


@dataclass(frozen=True)
class Plan:
    """Robots × target sets × seeds × solvers."""

    robots: tuple[str, ...] = ("ur5", "iiwa14")
    """Names, or paths of URDFs."""
    solvers: tuple[str, ...] = ("closed_form", "combined", "levenberg_marquardt", "auto")
    """Our solvers as NAME or NAME:key=value,…; peers as NAME or NAME:VARIANT; a user's as FILE.py:CLASS."""
    targets: tuple[str, ...] = ("uniform",)
    """Target sets, or paths of files (.npy, .csv)."""
    seeds: tuple[str, ...] = ("random",)
    """Where each solve starts: zero, random, near."""
    count: int = 1000
    """Targets per robot, set and seed; on paths rounded up to whole paths."""
    seed: int = 0
    """Of targets and starts. Target i is the same whatever the count."""
    position: float = 1e-6
    """Tolerance [m]."""
    rotation: float = 1e-6
    """Tolerance [rad]."""
    max_iterations: int | None = None
    """Budget of iterations over all restarts; given to every solver that takes one, and an answer beyond it doesn't count."""
    max_restarts: int | None = None
    """Budget of restarts, likewise."""
    max_seconds: float | None = None
    """Budget of time [s], likewise."""
    reference: str = ""
    """The solver that times are compared with; the first one when empty."""
    slow_share: float = 0.1
    """Peers that take milliseconds get this share of the targets, evenly spread."""
    chunk: int = 0
    """Queries in one task; 0 lets a pilot choose, so that a task takes about half a second."""

    def __post_init__(self) -> None:
        """Refuse what can't be run."""
        from ik_sim.benchmark.targets import SEEDS, TARGETS, is_file

        for name in ("robots", "solvers", "targets", "seeds"):
            values = getattr(self, name)
            if not values:
                raise InvalidArgumentError(name, "names nothing to run")
            if len(set(values)) < len(values):
                raise InvalidArgumentError(name, f"names one thing twice: {', '.join(values)}")
        for name in self.seeds:
            if name not in SEEDS:
                raise UnknownNameError("kind of seed", name, SEEDS)
        for name in self.targets:
            if name not in TARGETS and not is_file(name):
                raise UnknownNameError("target set", name, (*TARGETS, "a .npy or .csv file"))
        for name in ("count", "position", "rotation", "slow_share"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(name, f"must be above 0, not {getattr(self, name)!r}")
        for name in ("max_iterations", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgumentError(name, f"must be above 0, not {value!r}")
        if self.max_restarts is not None and self.max_restarts < 0:
            raise InvalidArgumentError("max_restarts", f"must be 0 or more, not {self.max_restarts!r}")
        if self.reference and self.reference not in self.solvers:
            raise InvalidArgumentError(
                "reference", f"{self.reference!r} is not among the solvers: {', '.join(self.solvers)}"
            )

    @property
    def reference_solver(self) -> str:
        """The reference by name."""
        return self.reference or self.solvers[0]

    @property
    def budget(self) -> dict[str, Any]:
        """max_iterations, max_restarts and max_seconds; None without a bound."""
        return {name: getattr(self, name) for name in ("max_iterations", "max_restarts", "max_seconds")}

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return json.loads(json.dumps(asdict(self)))

    @staticmethod
    def from_plain(values: dict[str, Any]) -> Plan:
        """From :meth:`plain`."""
        known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return Plan(**known)

    def with_solvers(self, solvers: tuple[str, ...], chunk: int) -> Plan:
        """The plan as it is run: without the solvers that can't be, with the pilot's chunk."""
        return replace(
            self, solvers=solvers, chunk=chunk, reference=self.reference if self.reference in solvers else ""
        )

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes a row."""
        text = json.dumps([FORMAT, __version__, self.plain()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Task:
    """A stretch of one (robot, target set, seed), solved by every solver in turn: the unit of work and of resuming."""

    robot: str
    targets: str
    seed_kind: str
    number: int
    first: int
    last: int

    def key(self, plan: Plan) -> str:
        """Its file name, without suffix."""
        places = plan.robots.index(self.robot), plan.targets.index(self.targets), plan.seeds.index(self.seed_kind)
        return "r{}.t{}.s{}.{:05d}".format(*places, self.number)


def tasks(plan: Plan) -> list[Task]:
    """All of them in order; a path is never cut."""
    found = []
    for robot in plan.robots:
        for targets in plan.targets:
            paths = targets == "paths"
            size = PATH_POINTS if paths else max(plan.chunk, 1)
            count = -(-plan.count // size) * size if paths else plan.count
            for kind in plan.seeds:
                if paths and kind != plan.seeds[0]:
                    continue  # on a path every solve starts from the last answer
                for number, first in enumerate(range(0, count, size)):
                    found.append(Task(robot, targets, kind, number, first, min(first + size, count)))
    return found
