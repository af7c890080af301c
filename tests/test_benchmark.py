"""The benchmark: targets that don't depend on what is run around them, a judge nobody bribes, files that survive a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ik_sim.benchmark import Plan, compare, queries, ratios, run, wilson
from ik_sim.benchmark.contestants import Contestant, open_contestant
from ik_sim.benchmark.gate import different
from ik_sim.benchmark.measure import measure
from ik_sim.benchmark.page import write_report
from ik_sim.benchmark.plan import tasks
from ik_sim.benchmark.store import COLUMNS, Rows, read_rows
from ik_sim.benchmark.targets import PATH_POINTS, smallest_singular_value
from ik_sim.chain import REACH
from ik_sim.errors import FileFormatError, IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.robots import load_robot

QUICK = {"robots": ("planar3",), "solvers": ("damped_least_squares", "jacobian_transpose"), "count": 40, "chunk": 10}


def plan(**more: Any) -> Plan:
    return Plan(**{**QUICK, **more})


def untimed(path: Path) -> list[str]:
    """Rows without the columns that differ from run to run."""
    drop = {COLUMNS.index("time_us")}
    lines = (path / "rows.csv").read_text().splitlines()
    return [",".join(c for i, c in enumerate(line.split(",")) if i not in drop) for line in lines]


# --- targets ---


@pytest.mark.parametrize("name", ["uniform", "edge", "singular", "unreachable", "paths"])
def test_a_target_is_the_same_whatever_is_drawn_around_it(name: str) -> None:
    chain = load_robot("ur5").chain
    first, last = (PATH_POINTS, 2 * PATH_POINTS) if name == "paths" else (20, 30)
    whole = queries(name, "ur5", chain, 0, last, 3, "random")
    part = queries(name, "ur5", chain, first, last, 3, "random")
    assert np.array_equal(whole.T[first:last], part.T)
    assert np.array_equal(whole.q_seeds[first:last], part.q_seeds)
    assert not np.array_equal(whole.T, queries(name, "ur5", chain, 0, last, 4, "random").T)


def test_singular_targets_come_from_nearly_singular_postures() -> None:
    chain = load_robot("iiwa14").chain
    uniform = queries("uniform", "iiwa14", chain, 0, 60, 0, "zero").sigma
    near = queries("singular", "iiwa14", chain, 0, 60, 0, "zero").sigma
    assert np.median(near) < 0.1 * np.median(uniform)


def test_edge_targets_come_from_joints_near_a_limit_but_inside() -> None:
    chain = load_robot("iiwa14").chain
    asked = queries("edge", "iiwa14", chain, 0, 50, 0, "near")
    assert asked.reachable.all()
    assert (asked.q_seeds >= chain.lower).all()
    assert (asked.q_seeds <= chain.upper).all()


def test_unreachable_targets_lie_beyond_the_reach() -> None:
    chain = load_robot("ur5").chain
    asked = queries("unreachable", "ur5", chain, 0, 40, 0, "zero")
    assert asked.reachable.tolist() == [i % 2 == 0 for i in range(40)]
    base = chain.joint_frames(np.zeros(6))[1][:3, 3]
    far = np.linalg.norm(asked.T[~asked.reachable][:, :3, 3] - base, axis=1)
    assert (far > chain.packed[REACH]).all()


def test_smallest_singular_value_vanishes_in_the_stretched_arm() -> None:
    chain = load_robot("ur5").chain
    # rounding of the URDF's numbers leaves about 1e-17; anything above 1e-9 would be another posture
    assert smallest_singular_value(chain, np.array([0.3, -1.0, 0.0, 0.4, 1.0, 0.0])) < 1e-9


def test_targets_come_from_a_file_and_a_bad_row_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "t.csv", tmp_path / "bad.csv"
    good.write_text("x,y,z,qx,qy,qz,qw\n0.3,0.2,0.4,0,0,0,1\n0.1,0.4,0.3,0,0,1,0\n")
    bad.write_text("x,y,z,qx,qy,qz\n0.3,0.2,0.4,0,0,0\n")
    chain = load_robot("ur5").chain
    asked = queries(str(good), "ur5", chain, 0, 2, 0, "zero")
    assert asked.T[1, :3, 3].tolist() == [0.1, 0.4, 0.3]
    assert np.isnan(asked.sigma).all()
    with pytest.raises(FileFormatError, match="qw"):
        queries(str(bad), "ur5", chain, 0, 1, 0, "zero")
    with pytest.raises(IkSimError, match="near seeds"):
        queries(str(good), "ur5", chain, 0, 2, 0, "near")


# --- misuse ---


def test_misuse_says_what_would_be_right() -> None:
    with pytest.raises(UnknownNameError, match="uniform"):
        plan(targets=("unifrom",))
    with pytest.raises(InvalidArgumentError, match="not among the solvers"):
        plan(reference="ccd")
    with pytest.raises(UnknownNameError, match="closed_form"):
        open_contestant("closed_from", plan(), "ur5", load_robot("ur5").chain)
    with pytest.raises(InvalidArgumentError, match="twice"):
        plan(solvers=("ccd", "ccd"))


# --- the judge ---


def test_joints_outside_the_limits_are_no_success_however_right_the_pose(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\nfrom ik_sim.solvers import load_solver\n"
        "class Far:\n    def solve(self, chain, target, q_seed):\n"
        "        return load_solver('closed_form').solve(chain, target, q_seed).q + 4 * np.pi\n"
    )
    spec = f"{file}:Far"
    asked = Plan(robots=("ur5",), solvers=(spec,), count=5, chunk=5)
    _, _, rows = measure(asked, tasks(asked)[0], asked.solvers)
    assert [row["status"] for row in rows] == ["outside_limits"] * 5
    assert not any(row["success"] for row in rows)
    assert all(row["position_error"] < 1e-6 and row["limit_violation"] > 1.0 for row in rows)


def test_a_claim_that_is_not_true_is_counted_as_false() -> None:
    class Boaster:
        def solve(self, chain: Any, target: Any, q_seed: Any) -> Any:
            from ik_sim.solvers import judge

            return judge(chain, chain.fk(q_seed), q_seed)  # reached, yes, but another target

    chain = load_robot("planar3").chain
    asked = plan(solvers=("ccd",), chunk=5)
    from ik_sim.benchmark import measure as module

    key = module._key(asked, "planar3", "ccd")
    module._contestants[key] = Contestant("ccd", Boaster(), chain)
    try:
        _, _, rows = measure(asked, tasks(asked)[0], ("ccd",))
    finally:
        module._contestants.pop(key)
    assert {row["status"] for row in rows} == {"false_claim"}
    assert all(row["claimed"] and row["false_claim"] and not row["success"] for row in rows)


def test_an_answer_beyond_the_budget_does_not_count() -> None:
    chain = load_robot("planar3").chain
    asked = plan(solvers=("jacobian_transpose",), max_iterations=3, chunk=10)
    found = open_contestant("jacobian_transpose", asked, "planar3", chain)
    assert found.solver.max_iterations == 3
    _, _, rows = measure(asked, tasks(asked)[0], ("jacobian_transpose",))
    assert all(row["iterations"] <= 3 or row["status"] == "over_budget" or not row["success"] for row in rows)
    assert all(row["budget_iterations"] == 3 for row in rows)


# --- numbers ---


def test_wilson_interval_agrees_with_the_published_example() -> None:
    # Newcombe 1998, table I: 81 of 263 gives 0.2553 to 0.3662, 0 of 20 gives 0 to 0.1611; four printed digits
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(20, 20)[1] == 1.0


def fake(times: Any, n: int, success: int | None = None) -> Rows:
    columns: dict[str, Any] = {"index": np.arange(n, dtype=float), "time_us": np.asarray(times, dtype=float)}
    columns["reachable"] = np.ones(n, dtype=bool)
    columns["robot"] = np.array(["a"] * n, dtype=object)
    return Rows(columns)


def test_ratio_interval_holds_the_true_ratio_and_narrows() -> None:
    rng = np.random.default_rng(0)
    held, widths = 0, []
    for _ in range(40):
        a, b = rng.lognormal(np.log(3.0), 0.4, 1000), rng.lognormal(0.0, 0.4, 1000)
        found = ratios(fake(a, 1000), fake(b, 1000))
        assert found is not None
        held += found["median_low"] <= 3.0 <= found["median_high"]
        assert found["median_low"] <= found["median"] <= found["median_high"]  # the interval is of the same statistic
        widths.append(found["median_high"] - found["median_low"])
    assert held >= 33  # 95 % of 40 is 38; 33 or fewer by chance: 3 in 10 000
    assert np.median(widths) < 0.4


def test_ratio_of_a_solver_to_itself_is_one() -> None:
    t = np.random.default_rng(1).lognormal(size=200)
    found = ratios(fake(t, 200), fake(t, 200))
    assert found is not None
    assert found["median"] == found["mean_low"] == found["mean_high"] == 1.0


def test_fisher_test_tells_noise_from_change() -> None:
    assert not different(990, 1000, 985, 1000)
    assert different(990, 1000, 940, 1000)
    assert not different(0, 10, 0, 10)
    # exact: 3 of 4 against 1 of 4 has p = 34/70 (Fisher's tea)
    assert not different(3, 4, 1, 4, level=0.485)
    assert different(3, 4, 1, 4, level=0.487)


def entry(solver: str, successes: int, median: float) -> dict[str, Any]:
    ratio = {"median": median, "median_low": 0.95 * median, "median_high": 1.05 * median}
    return {"robot": "r", "targets": "t", "seed_kind": "s", "solver": solver, "n": 1000, "successes": successes,
            "success": successes / 1000, "false_claims": 0, "ratio": ratio}  # fmt: skip


def gate(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"plan": {"robots": ["r"]}, "reference": "a", "entries": list(entries)}


def test_the_gate_is_silent_on_noise_and_speaks_on_regressions() -> None:
    old = gate(entry("a", 1000, 1.0), entry("b", 990, 4.0))
    assert compare(old, gate(entry("a", 1000, 1.0), entry("b", 987, 4.3))) == []
    slower = compare(old, gate(entry("a", 1000, 1.0), entry("b", 990, 8.0)))
    assert [(c.what, c.worse) for c in slower] == [("time ratio", True)]
    worse = compare(old, gate(entry("a", 1000, 1.0), entry("b", 900, 4.0)))
    assert [(c.what, c.worse) for c in worse] == [("success", True)]
    better = compare(old, gate(entry("a", 1000, 1.0), entry("b", 990, 2.0)))
    assert not any(c.worse for c in better)
    with pytest.raises(IkSimError, match="which this run doesn't"):
        compare(old, gate(entry("a", 1000, 1.0)))


# --- a run on disk ---


def test_a_run_writes_flat_rows_a_summary_and_a_report(tmp_path: Path) -> None:
    summary = run(plan(), tmp_path / "b")
    rows = read_rows(tmp_path / "b" / "rows.csv")
    assert len(rows) == summary["rows"] == 80
    assert (rows["time_us"] > 0).all()
    one = summary["entries"][0]
    assert {"success", "success_low", "success_high", "statuses", "false_claims", "ratio"} <= set(one)
    assert {"n", "mean", "median", "p90", "p95", "p99", "max"} == set(one["time_us"])
    assert set(summary["first_call_ms"]) <= set(QUICK["solvers"])
    assert summary["machine"]["versions"]["numpy"] == np.__version__
    write_report(tmp_path / "b", summary, rows)
    page = (tmp_path / "b" / "report.html").read_text()
    assert "damped_least_squares" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert len(list((tmp_path / "b" / "plots").glob("*.svg"))) >= 3


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    run(plan(), tmp_path / "one")
    run(plan(), tmp_path / "two", jobs=2)
    assert untimed(tmp_path / "one") == untimed(tmp_path / "two")


def test_what_is_not_a_task_takes_less_than_a_twentieth(tmp_path: Path) -> None:
    # a process of its own: checked signatures would cost the tasks more than the rest
    code = (
        "import pathlib, sys; from ik_sim.benchmark import Plan, run\n"
        "made = run(Plan(robots=('ur5',), count=1500), pathlib.Path(sys.argv[1]))\n"
        "print(made['overhead_share'], made['tasks'], made['workers'], made['plan']['chunk'])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "b")], capture_output=True, text=True, check=True)
    share, tasks_done, workers, chunk = map(float, done.stdout.split())
    assert share < 0.05
    assert workers == 1
    assert tasks_done == -(-1500 // chunk) >= 3


def test_a_finished_run_measures_nothing_again(tmp_path: Path) -> None:
    run(plan(), tmp_path / "b")
    before = (tmp_path / "b" / "rows.csv").read_bytes()
    run(plan(), tmp_path / "b")
    assert (tmp_path / "b" / "rows.csv").read_bytes() == before


def test_damaged_and_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    out = tmp_path / "b"
    run(plan(), out)
    part = sorted((out / "parts").iterdir())[1]
    whole = part.read_bytes()
    part.write_bytes(whole.replace(b"planar3", b"planar2", 1))
    with pytest.raises(FileFormatError, match=rf"{part.stem}.*damaged"):
        run(plan(), out)
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=part.name):
        run(plan(), out)
    part.write_bytes(whole)
    (out / "parts" / "notes.txt").write_text("mine")
    with pytest.raises(FileFormatError, match=r"notes\.txt"):
        run(plan(), out)
    (out / "parts" / "notes.txt").unlink()
    with pytest.raises(FileFormatError, match="other seed"):
        run(plan(seed=1), out)
    elsewhere = tmp_path / "c"
    run(plan(seed=1), elsewhere)
    foreign = sorted((elsewhere / "parts").iterdir())[1]
    part.write_bytes(foreign.read_bytes())
    with pytest.raises(FileFormatError, match=rf"{part.name}.*another benchmark"):
        run(plan(), out)


def command(out: Path, *more: str) -> list[str]:
    solvers = [word for name in QUICK["solvers"] for word in ("--solver", name)]
    return [sys.executable, "-m", "ik_sim", "bench", *solvers, "--robot", "planar3", "--count", "4000", "--chunk", "10",
            "--out", str(out), *more]  # fmt: skip


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "b"
    with subprocess.Popen(command(out, "--quiet")) as process:
        deadline = time.monotonic() + 300
        while len(list((out / "parts").glob("r*.csv")) if (out / "parts").is_dir() else []) < 5:
            assert process.poll() is None, "ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    measured = {p.name: p.read_bytes() for p in (out / "parts").glob("r*.csv")}
    assert 5 <= len(measured) < 400
    done = subprocess.run(command(out), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    for name, content in measured.items():
        assert (out / "parts" / name).read_bytes() == content
    assert len(read_rows(out / "rows.csv")) == 8000


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_costs_nothing_but_time(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    port = free_port()
    environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
    address = f"tcp://127.0.0.1:{port}"
    scheduler = subprocess.Popen([sys.executable, "-m",
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port),
                                  "--no-dashboard"], stderr=subprocess.DEVNULL, env=environment)  # fmt: skip
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                address,
                "--nthreads",
                "1",
                "--no-nanny",
                "--no-dashboard",
                "--local-directory",
                str(tmp_path / f"w{i}"),
            ],
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        for i in range(2)
    ]
    try:
        out = tmp_path / "b"
        with subprocess.Popen(command(out, "--scheduler", address), stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 300
            while len(list((out / "parts").glob("r*.csv")) if (out / "parts").is_dir() else []) < 5:
                assert process.poll() is None, process.stderr.read() if process.stderr else ""
                assert time.monotonic() < deadline
                time.sleep(0.01)
            workers[0].kill()
            _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert len(list((out / "parts").glob("r*.csv"))) == 400
        assert len(read_rows(out / "rows.csv")) == 8000
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_cluster_command_gives_a_scheduler_whose_rows_are_those_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    starting = [sys.executable, "-m", "ik_sim", "cluster", "--workers", "2", "--port", "0"]
    with subprocess.Popen(starting, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:3] == ["ik-sim", "bench", "--scheduler"]
            summary = run(plan(), tmp_path / "there", scheduler=words[3])
            assert 1 <= summary["workers"] <= 2
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    run(plan(), tmp_path / "here")
    assert untimed(tmp_path / "here") == untimed(tmp_path / "there")


def test_nobody_at_the_scheduler_is_said_plainly(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(IkSimError, match="no Dask scheduler answers"):
        run(plan(), tmp_path / "b", scheduler=f"tcp://127.0.0.1:{free_port()}")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_the_command_gates_against_a_baseline(tmp_path: Path) -> None:
    from ik_sim.benchmark.command import Bench

    first = Bench(solver=QUICK["solvers"], robot=("planar3",), count=60, chunk=20, out=tmp_path / "a", quiet=True)
    assert first.run() == 0
    baseline = tmp_path / "a" / "summary.json"
    again = Bench(
        solver=QUICK["solvers"],
        robot=("planar3",),
        count=60,
        chunk=20,
        out=tmp_path / "a",
        quiet=True,
        baseline=baseline,
    )
    assert again.run() == 0
    old = json.loads(baseline.read_text())
    for e in old["entries"]:
        if e["solver"] == "jacobian_transpose":
            e["ratio"].update(median=1e-3, median_low=9e-4, median_high=1.1e-3)
    baseline = tmp_path / "old.json"
    baseline.write_text(json.dumps(old))
    again = Bench(
        solver=QUICK["solvers"],
        robot=("planar3",),
        count=60,
        chunk=20,
        out=tmp_path / "a",
        quiet=True,
        baseline=baseline,
    )
    assert again.run() == 1
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(FileFormatError, match="no summary"):
        Bench(baseline=tmp_path / "bad.json", quiet=True).run()
