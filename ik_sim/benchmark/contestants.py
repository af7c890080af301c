"""Whoever takes part: our solvers, peers in their processes, a user's class; all answer chunks in the same words."""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float  # pyright: ignore[reportMissingImports]

from ik_sim.benchmark.plan import Plan
from ik_sim.chain import Chain
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.peers import PEERS, peer_class
from ik_sim.peers.description import describe
from ik_sim.peers.host import PeerProcess, find_python
from ik_sim.peers.worker import WARM, WARM_NS
from ik_sim.se3 import pose_error
from ik_sim.solvers import SOLVERS, Solution, load_solver

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "pybullet": ("bullet", {"damping": 1e-4, "max_iterations": 200, "threshold": 1e-9, "restarts": 30}),
    "pybullet:single": ("bullet", {"damping": 1e-4, "max_iterations": 200, "threshold": 1e-9}),
    "pybullet:default": ("bullet", {}),
}
"""PyBullet is an adapter in `solvers` already: here with settings that do it justice, with these but one start, as shipped."""


class Contestant:
    """Our solver, or anything with `solve(chain, target, q_seed)` that returns a Solution or an array of joints."""

    slow = False

    def __init__(self, label: str, solver: Any, chain: Chain) -> None:
        """Take the solver as it is."""
        self.label, self.solver, self.chain = label, solver, chain
        self.facts: dict[str, Any] = {"settings": repr(solver)}
        self.first_call_ms: float | None = None

    def chunk(
        self, T: Float[np.ndarray, "k 4 4"], seeds: Float[np.ndarray, "k n"], follow: bool
    ) -> list[dict[str, Any]]:
        """Solve one after the other, each call timed alone; the first few are made once before, as in a peer's process.

        Returns:
            per query `q`, `time_ns`, `claimed`, `status`, `iterations`, `evaluations`, `restarts`.
        """
        solve, chain, clock = self.solver.solve, self.chain, time.perf_counter_ns
        start = clock()
        solve(chain, T[0].copy(), seeds[0])
        if self.first_call_ms is None:
            self.first_call_ms = 1e-6 * (clock() - start)
        for i in range(1, min(WARM, len(T))):
            if clock() - start > WARM_NS:
                break
            solve(chain, T[i].copy(), seeds[0 if follow else i])
        answers = []
        collecting = gc.isenabled()
        gc.disable()
        try:
            q_seed = seeds[0]
            for i in range(len(T)):
                if not follow:
                    q_seed = seeds[i]
                target = T[i].copy()
                start = clock()
                solution = solve(chain, target, q_seed)
                q = solution.q if isinstance(solution, Solution) else solution
                answers.append((q, clock() - start, solution))
                if follow and q is not None and np.isfinite(q).all():
                    q_seed = np.clip(q, chain.lower, chain.upper)
        finally:
            if collecting:
                gc.enable()
        return [self._row(*answer) for answer in answers]

    @staticmethod
    def _row(q: Any, time_ns: int, solution: Any) -> dict[str, Any]:
        row: dict[str, Any] = {"q": None if q is None else np.array(q, dtype=float), "time_ns": time_ns}
        if not isinstance(solution, Solution):
            return {**row, "claimed": False, "status": "", "iterations": None, "evaluations": None, "restarts": None}
        return {
            **row, "claimed": solution.converged, "status": str(solution.status), "iterations": solution.iterations,
            "evaluations": solution.evaluations, "restarts": solution.restarts,
        }  # fmt: skip

    def close(self) -> None:
        """Nothing to end."""


class PeerContestant(Contestant):
    """A peer in its own process."""

    def __init__(self, label: str, name: str, variant: str, plan: Plan, robot: str, chain: Chain) -> None:
        """Start it and prove that its forward kinematics is ours, before anything is timed.

        Raises:
            IkSimError: not installed, not for this arm, or another idea of the arm.
        """
        cls: Any = peer_class(name)
        if variant not in cls.variants:
            raise UnknownNameError(f"variant of {name}", variant, [v for v in cls.variants if v])
        arm, urdf = describe(robot, chain)
        self.label, self.chain, self.slow = label, chain, cls.slow
        self.process = PeerProcess(name, variant, arm, urdf, budget=plan.budget)
        self.first_call_ms = None
        self.facts = {**self.process.facts, "settings": str(self.process.settings), "licence": cls.licence}
        if self.process.lacking:
            self.facts["no_setting_for"] = self.process.lacking
        q = chain.random_q(np.random.default_rng(0), 20)
        theirs, ours = self.process.fk(q), chain.fk_batch(q)
        gap = float(np.abs(theirs - ours).max())
        self.facts["fk_gap"] = gap
        if not gap <= cls.fk_tolerance:
            self.close()
            raise IkSimError(f"peer {label!r} has another idea of {robot}: its tool is up to {gap:.2g} from ours")

    def chunk(
        self, T: Float[np.ndarray, "k 4 4"], seeds: Float[np.ndarray, "k n"], follow: bool
    ) -> list[dict[str, Any]]:
        """As :meth:`Contestant.chunk`."""
        if self.first_call_ms is None:
            answer = self.process.chunk(T[:1], seeds[:1], False, warm=False)
            self.first_call_ms = 1e-6 * (answer["time_ns"][0] or 0.0)
        answer = self.process.chunk(T, seeds, follow)
        failed = answer.get("failed") or [""] * len(T)
        columns = zip(answer["q"], answer["time_ns"], answer["claimed"], answer["iterations"], failed, strict=True)
        return [
            {"q": None if q is None else np.array(q, dtype=float), "time_ns": t, "claimed": claimed, "status": word,
             "iterations": iterations, "evaluations": None, "restarts": None}
            for q, t, claimed, iterations, word in columns
        ]  # fmt: skip

    def close(self) -> None:
        """End its process."""
        self.process.close()


def check_name(spec: str) -> None:
    """Raise what `open_contestant` would about the name alone."""
    name, _, rest = spec.partition(":")
    if spec in PRESETS or name.endswith(".py"):
        return
    if name in PEERS:
        if rest not in peer_class(name).variants:  # type: ignore[attr-defined]
            raise UnknownNameError(f"variant of {name}", rest, [v for v in peer_class(name).variants if v])  # type: ignore[attr-defined]
    elif name in SOLVERS:
        load_solver(name, **_settings(spec, rest))
    else:
        raise UnknownNameError("solver or peer", name, [*SOLVERS, *PEERS, *(p for p in PRESETS if ":" not in p)])


def available(spec: str) -> str:
    """Why this contestant can't take part here; empty where it can."""
    name = spec.partition(":")[0]
    if name in PEERS and find_python(name) is None:
        packages = " ".join(peer_class(name).requirements)  # type: ignore[attr-defined]
        return f"not installed; `ik-sim bench --install-peers --solver {name}` gets {packages}"
    if name == "pybullet" and importlib.util.find_spec("pybullet") is None:
        return "not installed; pip install pybullet"
    return ""


def open_contestant(spec: str, plan: Plan, robot: str, chain: Chain) -> Contestant:
    """The contestant of that name, set up for a robot and the plan's tolerance and budget.

    Args:
        spec: NAME, NAME:key=value,…, PEER:VARIANT or FILE.py:CLASS.
        plan: tolerance and budget.
        robot: the robot's name.
        chain: its chain.

    Raises:
        IkSimError: an unknown name, a peer that isn't there or can't take the arm.
    """
    check_name(spec)
    name, _, rest = spec.partition(":")
    if name.endswith(".py"):
        return Contestant(spec, _from_file(name, rest), chain)
    if name in PEERS:
        return PeerContestant(spec, name, rest, plan, robot, chain)
    name, settings = PRESETS[spec] if spec in PRESETS else (name, _settings(spec, rest))
    known = {f.name for f in dataclasses.fields(SOLVERS[name])}
    names = {"max_restarts": "restarts"}
    budget = {key: value for key, value in plan.budget.items() if value is not None}
    given = {names.get(key, key): value for key, value in budget.items() if names.get(key, key) in known}
    solver = load_solver(name, position=plan.position, rotation=plan.rotation, **{**settings, **given})
    contestant = Contestant(spec, solver, chain)
    lacking = [key for key in budget if names.get(key, key) not in known]
    if lacking:
        contestant.facts["no_setting_for"] = lacking
    return contestant


def _settings(spec: str, text: str) -> dict[str, Any]:
    import tomllib

    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidArgumentError("solver", f"{spec!r}: settings are key=value, separated by commas")
        try:
            found[key] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found


def _from_file(path: str, cls: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if not Path(path).is_file() or spec is None or spec.loader is None:
        raise InvalidArgumentError("solver", f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not cls or not hasattr(module, cls):
        raise UnknownNameError(f"class in {path}", cls, [n for n, v in vars(module).items() if isinstance(v, type)])
    solver = getattr(module, cls)()
    if not callable(getattr(solver, "solve", None)):
        raise InvalidArgumentError("solver", f"{path}:{cls} has no method solve(chain, target, q_seed)")
    return solver


def judged(chain: Chain, T: Float[np.ndarray, "4 4"], q: Any) -> tuple[float, float, float]:
    """Position error [m], rotation error [rad] and largest limit violation [rad or m] of an answer, as it was returned."""
    if q is None or q.shape != (chain.n,) or not np.isfinite(q).all():
        return np.nan, np.nan, np.nan
    position, rotation = pose_error(chain.fk(q), T)
    beyond = float(np.maximum(np.maximum(chain.lower - q, q - chain.upper), 0.0).max())
    return float(position), float(rotation), beyond
