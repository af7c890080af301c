"""Run a plan: on this machine, on several of its cores, or on a Dask cluster; each finished task is on disk at once."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ik_sim import __version__
from ik_sim.benchmark import store
from ik_sim.benchmark.contestants import available, check_name
from ik_sim.benchmark.measure import close_contestants, measure, pilot, robot_of
from ik_sim.benchmark.plan import FORMAT, Plan, Task, tasks
from ik_sim.benchmark.statistics import summarise
from ik_sim.errors import FileFormatError, IkSimError, MissingDependencyError
from ik_sim.run_folder import json_text

RETRIES = 3
"""How often a sweep starts again when its worker processes died and nothing came of it."""
_PACKAGES = ("numpy", "numba", "scipy", "nlopt", "joblib", "distributed", "pybullet")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(
    plan: Plan,
    out: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_task: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure what isn't measured yet and write rows and summary; returns the summary.

    Args:
        plan: what to run.
        out: a new folder, or one in which this plan was begun.
        jobs: processes on this machine; one when it is 1, which is best for times.
        scheduler: address of a Dask scheduler, such as tcp://host:8786; takes the place of `jobs`.
        say: told in a line what can't take part, and what is resumed.
        on_task: told how many tasks are done, of how many.

    Raises:
        FileFormatError: a file in `out` is damaged, or of another benchmark.
        IkSimError: a name that doesn't exist, or nobody left to run.
    """
    for robot in plan.robots:
        robot_of(robot)
    for spec in plan.solvers:
        check_name(spec)
    asked = plan
    try:
        begun = _begin(plan, out, say)
        plan, entries = Plan.from_plain(begun["plan"]), {k: tuple(v) for k, v in begun["entries"].items()}
        todo = {task.key(plan): task for task in tasks(plan)}
        done = store.finished(out / "parts", plan, set(todo))
        if done:
            say(f"resuming: {len(done)} of {len(todo)} tasks are done")
        started = time.perf_counter()
        missing = [task for key, task in todo.items() if key not in done]
        on_task(len(done), len(todo))
        workers = set()
        for key, facts, content in _results(plan, missing, entries, jobs, scheduler, say):
            store.write(out / "parts" / f"{key}.csv", content)
            done[key] = facts
            workers.add(facts["worker"])
            on_task(len(done), len(todo))
        wall = time.perf_counter() - started
    finally:
        close_contestants()
    rows = store.assemble(out, plan, list(todo))
    whole = wall if len(missing) == len(todo) else None
    result = _summary(asked, plan, begun, rows, done, whole, len(workers), scheduler)
    store.write(out / "summary.json", json_text(result).encode())
    return result


def _begin(plan: Plan, out: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The folder's `bench.json`: as it stands if this plan was begun there, else after a pilot."""
    head = out / "bench.json"
    if head.is_file():
        try:
            begun = json.loads(head.read_text(encoding="utf-8"))
            asked = begun["asked"]
        except (OSError, ValueError, KeyError) as error:
            raise FileFormatError(head, f"can't be read as a benchmark: {error}") from None
        if begun.get("format") != FORMAT or begun.get("version") != __version__:
            raise FileFormatError(head, f"was begun by ik_sim {begun.get('version')}; name another place with --out")
        if asked != plan.plain():
            differing = [k for k, v in plan.plain().items() if asked.get(k) != v]
            raise FileFormatError(
                head, f"holds another benchmark (other {', '.join(differing)}); name another place with --out"
            )
        (out / "parts").mkdir(exist_ok=True)
        return begun
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise IkSimError(f"{out} exists and is not a benchmark; name another place with --out")
    skipped = {spec: reason for spec in plan.solvers if (reason := available(spec))}
    for spec, reason in skipped.items():
        say(f"skipped: {spec}: {reason}")
    here = tuple(spec for spec in plan.solvers if spec not in skipped)
    if not here:
        raise IkSimError(f"nobody to run: {'; '.join(f'{k}: {v}' for k, v in skipped.items())}")
    entries, more, chunk, facts = pilot(plan.with_solvers(here, plan.chunk), say)
    running = tuple(spec for spec in here if any(spec in names for names in entries.values()))
    if not running:
        raise IkSimError(f"nobody to run: {'; '.join(f'{k}: {v}' for k, v in more.items())}")
    decided = plan.with_solvers(running, plan.chunk or chunk)
    begun = {
        "format": FORMAT, "version": __version__, "asked": plan.plain(), "plan": decided.plain(),
        "fingerprint": decided.fingerprint, "entries": {k: list(v) for k, v in entries.items()},
        "skipped": {**skipped, **more}, "contestants": facts, "machine": machine(), "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "parts").mkdir(exist_ok=True)
    store.write(head, json_text(begun).encode())
    return begun


def work(plan: Plan, task: Task, solvers: tuple[str, ...]) -> tuple[str, dict[str, Any], bytes]:
    """A task measured, and written out where it was measured: whoever hands out tasks only saves what comes back.

    Returns:
        its key, facts about the run, the content of its file.
    """
    started = time.perf_counter()
    key, facts, rows = measure(plan, task, solvers)
    text = store.csv_bytes(rows, head=False)
    facts = {**facts, "seconds": time.perf_counter() - started, "worker": f"{uuid.getnode():x}-{os.getpid()}"}
    return key, facts, store.part_bytes(plan, key, facts, len(rows), text)


def _results(
    plan: Plan,
    missing: list[Task],
    entries: dict[str, tuple[str, ...]],
    jobs: int,
    scheduler: str | None,
    say: Callable[[str], None],
) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Finished tasks as they come, whatever happens to the workers."""
    if jobs == 1 and scheduler is None:
        for task in missing:
            yield work(plan, task, entries[task.robot])
        return
    import joblib  # pyright: ignore[reportMissingImports]

    left = {task.key(plan): task for task in missing}
    failures = 0
    with _backend(jobs, scheduler):
        while left:
            before = len(left)
            calls = [joblib.delayed(work)(plan, task, entries[task.robot]) for task in left.values()]
            try:
                results: Any = joblib.Parallel(
                    return_as="generator_unordered",
                    pre_dispatch="3*n_jobs",
                    batch_size=1,  # pyright: ignore[reportArgumentType]
                )(calls)
                for result in results:
                    left.pop(result[0])
                    yield result
            except Exception as error:
                if isinstance(error, IkSimError) or not _lost_workers(error):
                    raise
                failures = failures + 1 if len(left) == before else 0
                if failures >= RETRIES:
                    raise IkSimError(f"workers end again and again: {error}") from error
                say(f"a worker ended; {len(left)} tasks run again or for the first time")


def _lost_workers(error: Exception) -> bool:
    return type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker", "CommClosedError")


def _backend(jobs: int, scheduler: str | None) -> Any:
    import contextlib

    import joblib  # pyright: ignore[reportMissingImports]

    for name in _ONE_THREAD:  # inherited by worker processes: one core each
        os.environ.setdefault(name, "1")
    if scheduler is None:
        return joblib.parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1)
    try:
        from distributed import Client  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingDependencyError("dask[distributed]", "--scheduler", "pip install 'ik_sim[cluster]'") from None

    @contextlib.contextmanager
    def cluster() -> Iterator[None]:
        try:
            client = Client(scheduler, timeout=10, set_as_default=True)
        except (OSError, ValueError) as error:
            raise IkSimError(f"no Dask scheduler answers at {scheduler}: {error}") from None
        with client:
            threads: Any = client.nthreads()
            n = max(1, sum(threads.values()))
            with joblib.parallel_config(backend="dask", n_jobs=n, wait_for_workers_timeout=30):
                yield

    return cluster()


def machine() -> dict[str, Any]:
    """What the times depend on."""
    name = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    return {
        "processor": name, "cores": os.cpu_count(), "system": platform.platform(), "python": sys.version.split()[0],
        "threads_per_solver": 1, "load_at_start": [round(x, 2) for x in load],
        "versions": {"ik_sim": __version__, **{p: v for p in _PACKAGES if (v := _version(p))}},
    }  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _summary(
    asked: Plan, plan: Plan, begun: dict[str, Any], rows: store.Rows, done: dict[str, dict[str, Any]], wall: float | None,
    workers: int, scheduler: str | None,
) -> dict[str, Any]:  # fmt: skip
    first: dict[str, list[float]] = {}
    for facts in done.values():
        for spec, value in facts["first_call_ms"].items():
            if value is not None:
                first.setdefault(spec, []).append(value)
    busy = sum(facts["seconds"] for facts in done.values())
    overhead = None if not wall or not workers else max(0.0, 1.0 - busy / (wall * workers))
    return {
        "format": FORMAT, "plan": plan.plain(), "asked": asked.plain(), "reference": plan.reference_solver,
        "rows": len(rows), "tasks": len(done), "seconds_in_tasks": busy, "seconds": wall, "overhead_share": overhead,
        "workers": workers, "scheduler": scheduler, "skipped": begun["skipped"], "contestants": begun["contestants"],
        "first_call_ms": {spec: max(values) for spec, values in first.items()}, "machine": begun["machine"],
        "begun": begun["begun"], "entries": summarise(rows, plan.reference_solver),
    }  # fmt: skip
