"""`ik-sim bench`: run, resume, or gate a benchmark."""

from __future__ import annotations

import json as jsonlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from ik_sim.errors import FileFormatError, InvalidArgumentError, UnknownNameError

PASS, REGRESSED, INCOMPLETE = 0, 1, 1


@dataclass(frozen=True)
class Bench:
    """Run solvers and other libraries on the same targets, and judge them all alike.

    Started again on its folder, a benchmark goes on where it stopped. Exit code 0; 1 with --baseline when something
    regressed, with --install-peers when one could not be had; 2 misuse.
    """

    solver: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Who takes part, once for each: one of our solvers as NAME or NAME:key=value,…; a peer as NAME or NAME:default; your
    own as FILE.py:CLASS. Left out: closed_form, combined, levenberg_marquardt and auto."""
    peers: bool = False
    """All peers that are installed take part too, each with settings that do it justice and with its defaults."""
    robot: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A robot's name or the path of a URDF, once for each; ur5 and iiwa14 when left out."""
    targets: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """uniform, edge, singular, unreachable, paths, or a .npy or .csv file of poses; uniform when left out."""
    start: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Where each solve starts: zero, random or near; random when left out."""
    count: int = 1000
    """Targets per robot, set and start."""
    seed: int = 0
    """Of targets and starts."""
    position: float = 1e-6
    """Tolerance [m]."""
    rotation: float = 1e-6
    """Tolerance [rad]."""
    max_iterations: int | None = None
    """Budget of iterations for everybody; answers that took more don't count."""
    max_restarts: int | None = None
    """Budget of restarts for everybody, likewise."""
    max_seconds: float | None = None
    """Budget of time for everybody [s], likewise."""
    reference: str = ""
    """Whom times are compared with; the first when left out."""
    slow_share: float = 0.1
    """Share of the targets for peers that take milliseconds."""
    chunk: int = 0
    """Targets in one task; 0: about half a second's work."""
    jobs: int = 1
    """Processes on this machine. More than one disturb each other's times a little."""
    scheduler: str | None = None
    """Address of a Dask scheduler, such as tcp://host:8786: run there."""
    baseline: Path | None = None
    """An earlier summary.json: exit with 1 if success or time ratios regressed beyond noise."""
    slack: float = 0.25
    """With --baseline: by what share a ratio of median times may grow, beyond its interval."""
    install_peers: bool = False
    """Install the peers named by --solver, or all, into environments in the user's cache, and stop."""
    list: bool = False
    """List solvers and peers, and whether they are installed, and stop."""
    out: Path = Path("runs/bench")
    """Where rows, summary and report go."""
    json: Path | None = None
    """Also write the summary to this file; - writes it to standard output, in place of the tables."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        from ik_sim import benchmark
        from ik_sim.benchmark import page, store
        from ik_sim.benchmark.contestants import PRESETS, available
        from ik_sim.peers import PEERS, peer_class
        from ik_sim.run_folder import json_text
        from ik_sim.solvers import SOLVERS

        talk = not self.quiet and str(self.json) != "-"

        def say(text: str) -> None:
            if not self.quiet:
                print(f"ik-sim: {text}", file=sys.stderr, flush=True)

        every = [name if not v else f"{name}:{v}" for name in PEERS for v in peer_class(name).variants]  # type: ignore[attr-defined]
        every = [*PRESETS, *every]
        if self.list:
            for name in (*SOLVERS, *every):
                print(f"{name:<26} {available(name) or 'ready'}")
            return PASS
        if self.install_peers:
            from ik_sim.peers.host import install

            wanted = dict.fromkeys(spec.partition(":")[0] for spec in self.solver) or dict.fromkeys(PEERS)
            for name in wanted:
                if name not in PEERS:
                    raise UnknownNameError("peer", name, PEERS)
            failures = install(list(wanted), say)
            for failure in failures:
                say(failure)
            say(f"{'the rest is' if failures else 'all are'} ready; `ik-sim bench --list` shows who can take part")
            return INCOMPLETE if failures else PASS
        baseline = _read_baseline(self.baseline)
        plan = benchmark.Plan(
            robots=self.robot or benchmark.Plan.robots,
            solvers=tuple(dict.fromkeys((*(self.solver or benchmark.Plan.solvers), *(every if self.peers else ())))),
            targets=self.targets or benchmark.Plan.targets, seeds=self.start or benchmark.Plan.seeds, count=self.count,
            seed=self.seed, position=self.position, rotation=self.rotation, max_iterations=self.max_iterations,
            max_restarts=self.max_restarts, max_seconds=self.max_seconds, reference=self.reference,
            slow_share=self.slow_share, chunk=self.chunk,
        )  # fmt: skip
        if self.jobs < 1:
            raise InvalidArgumentError("jobs", f"must be 1 or more, not {self.jobs}")
        on_task, end = _progress(self.quiet)
        try:
            summary = benchmark.run(plan, self.out, jobs=self.jobs, scheduler=self.scheduler, say=say, on_task=on_task)
        except KeyboardInterrupt:
            say(f"stopped; what is measured is in {self.out}, the same command goes on")
            return 130
        finally:
            end()
        page.write_report(self.out, summary, store.read_rows(self.out / "rows.csv"))
        if self.json is not None:
            if str(self.json) == "-":
                print(json_text(summary), end="")
            else:
                self.json.parent.mkdir(parents=True, exist_ok=True)
                store.write(self.json, json_text(summary).encode())
        if talk:
            print(page.text(summary))
            print(f"\n  report: {self.out / 'report.html'}    rows: {self.out / 'rows.csv'}")
        if baseline is None:
            return PASS
        changes = benchmark.compare(baseline, summary, self.slack)
        for change in changes:
            print(change.message, file=sys.stderr)
        worse = any(change.worse for change in changes)
        if talk:
            print("  baseline: " + ("regressed" if worse else "no regression beyond noise"))
        return REGRESSED if worse else PASS


def _read_baseline(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        found = jsonlib.loads(path.read_text(encoding="utf-8"))
        for key in ("plan", "reference", "entries"):
            found[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else error
        advice = "give the summary.json of an earlier run's folder"
        raise FileFormatError(path, f"is no summary of a benchmark ({why}); {advice}") from None
    return found


def _progress(quiet: bool) -> tuple[Any, Any]:
    if quiet or not sys.stderr.isatty():
        return lambda done, total: None, lambda: None
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    state: dict[str, Any] = {}

    def on_task(done: int, total: int) -> None:
        if not state:
            bar.start()
            state["id"] = bar.add_task("bench", total=total)
        bar.update(state["id"], completed=done)

    return on_task, lambda: bar.stop() if state else None
