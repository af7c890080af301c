"""The command line: exit codes, one-line errors, and nothing heavy for a question."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ik_sim import commands
from ik_sim.cli import COMMANDS, MISUSE, PASS, command_class, main
from ik_sim.robots import load_robot


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ik_sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {root!r}); from ik_sim.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


# --- questions ---


def test_help_lists_every_command_and_imports_nothing_heavy():
    root = str(Path(__file__).parents[1])
    program = (
        f"import sys; sys.path.insert(0, {root!r}); from ik_sim.cli import main; code = main(['--help'])\n"
        "heavy = {'numpy', 'numba', 'pybullet', 'scipy', 'rich', 'tyro'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for name in COMMANDS:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_each_of_its_options(name, capsys):
    assert main([name, "--help"]) == PASS
    text = capsys.readouterr().out
    assert f"usage: ik-sim {name}" in text
    command = command_class(name)
    assert (command.__doc__ or "").splitlines()[0] == COMMANDS[name][1]  # the overview says the same
    for field in dataclasses.fields(command):
        assert "Positional" in str(field.type) or f"--{field.name.replace('_', '-')}" in text


def test_help_of_a_command_needs_neither_numpy_nor_physics():
    root = str(Path(__file__).parents[1])
    program = (
        f"import sys; sys.path.insert(0, {root!r}); from ik_sim.cli import main; main(['track', '--help'])\n"
        "print('HEAVY', sorted({'numpy', 'numba', 'pybullet', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def test_the_version_is_printed(capsys):
    import ik_sim as package

    assert main(["--version"]) == PASS
    assert capsys.readouterr().out == f"ik-sim {package.__version__}\n"


def test_nothing_asked_is_misuse_with_the_overview(capsys):
    assert main([]) == MISUSE
    assert "usage: ik-sim COMMAND" in capsys.readouterr().out


def test_robots_are_listed_with_their_joints_and_both_kinds_of_limits(capsys, tmp_path):
    assert main(["robots"]) == PASS
    listing = capsys.readouterr().out
    for name in ("ur5", "iiwa14", "planar2", "planar3"):
        assert name in listing
    assert main(["robots", "iiwa14", "--json", "joints.json"]) == PASS
    table = capsys.readouterr().out
    assert "soft_lower" in table
    assert "joint_7" in table
    rows = json.loads(Path("joints.json").read_text())
    assert rows[3]["velocity"] == pytest.approx(1.309, abs=1e-3)
    assert main(["robots", str(load_robot("planar2").urdf_path), "--json", "-"]) == PASS
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_tasks_are_listed(capsys):
    assert main(["tasks"]) == PASS
    assert "paper_iiwa14" in capsys.readouterr().out
    assert main(["tasks", "--json", "-"]) == PASS
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["paper_ur5"]["robot"] == "ur5"


# --- track ---


def test_a_run_that_passes_writes_its_folder_and_shows_the_table(capsys):
    assert main(["track", "planar3_line"]) == PASS
    out = capsys.readouterr().out
    assert out.startswith("PASS  planar3_line")
    assert "runs/planar3_line/report.html" in out
    assert json.loads(Path("runs/planar3_line/verdict.json").read_text())["passed"] is True


def test_a_broken_tolerance_is_exit_code_1_with_the_cause(capsys):
    assert (
        main(["track", "planar3_line", "--gain", "0.003", "--out", "here", "--json", "verdict.json"]) == commands.BROKEN
    )
    out = capsys.readouterr().out
    assert out.startswith("FAIL")
    assert "controller lag" in out
    assert json.loads(Path("verdict.json").read_text())["violations"]
    assert Path("here/junit.xml").exists()


def test_quiet_prints_nothing_and_a_dash_prints_json_alone(capsys):
    assert main(["track", "planar3_line", "--quiet"]) == PASS
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert main(["track", "planar3_line", "--json", "-"]) == PASS
    assert json.loads(capsys.readouterr().out)["task"] == "planar3_line"


def test_options_reach_the_run(capsys):
    arguments = ["planar3_line", "--solver", "closed_form", "--set", "control.payload=1", "--set", "hold=0.2"]
    assert main(["track", *arguments, "--torque-scale", "0.9", "--seed", "4", "--quiet"]) == PASS
    head = json.loads(Path("runs/planar3_line/run.json").read_text())
    assert head["solver"].startswith("ClosedForm(")
    assert head["control"]["payload"] == 1.0
    assert head["task"]["hold"] == 0.2
    assert head["seed"] == 4
    effort = load_robot("planar3").chain.effort_limits[0]
    assert head["control"]["torque_limits"]["joint_1"] == pytest.approx(0.9 * effort)


NAN_TASK = """
title = "t"
robot = "ur5"
rate = 20
[path]
kind = "line"
displacement = [0, 0, 0.1]
duration = nan
[tolerance]
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["track", "paper_ur55"], "no task 'paper_ur55' (did you mean 'paper_ur5'?)"),
        (["track", "missing.toml"], "missing.toml: no such file"),
        (["track", "nan.toml"], "path.duration: a finite number is wanted, not nan"),
        (["track", "paper_ur5", "--robot", "iiwa14"], "is written for ur5 with 6 joints; iiwa14 has 7"),
        (["track", "paper_ur5", "--robot", "ur6"], "no robot 'ur6'"),
        (["track", "paper_ur5", "--solver", "combned"], "no solver 'combned' (did you mean 'combined'?)"),
        (["track", "paper_ur5", "--set", "solver.no_such=1"], "no_such"),
        (["track", "paper_ur5", "--set", "control.gain=1"], "unknown key 'control.gain'"),
        (["track", "paper_ur5", "--set", "control"], "takes key=value"),
        (["track", "paper_ur5", "--gain", "7"], "control.position_gain: is a share"),
        (["track", "planar3_line", "--out", "taken"], "exists and is not a run folder"),
        (["validate", "paper_ur5", "nothing"], "no task 'nothing'"),
        (["robots", "ur6"], "no robot 'ur6'"),
        (["trak"], "no command 'trak' (did you mean 'track'?)"),
    ],
)
def test_misuse_is_exit_code_2_and_one_line(arguments, words, capsys):
    Path("nan.toml").write_text(NAN_TASK)
    Path("taken").mkdir()
    Path("taken/file").write_text("mine")
    assert main(arguments) == MISUSE
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("ik-sim: error: ")
    assert words in lines[0]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "arguments", [["track"], ["track", "a", "b"], ["track", "paper_ur5", "--gain", "x"], ["tasks", "--no"]]
)
def test_a_command_line_that_does_not_parse_is_exit_code_2(arguments, capsys):
    assert main(arguments) == MISUSE
    assert "Traceback" not in capsys.readouterr().err


def test_a_window_without_a_display_is_one_line(monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    assert main(["track", "planar3_line", "--gui"]) == MISUSE
    assert "no window possible: DISPLAY is not set" in capsys.readouterr().err


# --- validate ---


def test_validate_judges_many_tasks_and_writes_one_junit_file(capsys):
    assert main(["validate", "planar3_line", "planar2_circle", "--out", "ci", "--json", "all.json"]) == PASS
    out = capsys.readouterr().out
    assert "2 of 2 tasks pass" in out
    root = ET.parse("ci/junit.xml").getroot()
    assert [suite.get("name") for suite in root] == ["planar3_line", "planar2_circle"]
    assert root.get("failures") == "0"
    assert json.loads(Path("all.json").read_text())["passed"] is True
    assert Path("ci/planar2_circle/report.html").exists()


def test_validate_fails_with_the_cause_and_goes_on(capsys):
    weak = ["--set", "control.position_gain=0.01", "--junit", "result.xml"]
    assert main(["validate", "planar3_line", "planar2_circle", *weak]) == commands.BROKEN
    out = capsys.readouterr().out
    assert out.count("FAIL") == 2
    assert "controller lag" in out
    assert "0 of 2 tasks pass" in out
    root = ET.parse("result.xml").getroot()
    assert int(root.get("failures") or 0) > 0


# --- as a process ---


def test_python_m_works_and_stdout_holds_only_the_table():
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "ik_sim", "track", "planar3_line"],
        capture_output=True, text=True, check=False, env={**__import__("os").environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == PASS
    assert done.stdout.startswith("PASS  planar3_line")


def test_an_interrupt_leaves_nothing_half_written_and_exits_130(tmp_path):
    root = str(Path(__file__).parents[1])
    # A run of ten simulated minutes, interrupted once it is on its way.
    program = (
        f"import sys; sys.path.insert(0, {root!r}); import ik_sim.tracking as t\n"
        "from ik_sim.cli import main\n"
        "record = t.record\n"
        "def say(*a, **k):\n    print('started', flush=True)\n    return record(*a, **k)\n"
        "t.record = say\n"
        "sys.exit(main(['track', 'planar3_line', '--set', 'path.duration=600']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_errors_of_a_process_have_no_traceback():
    done = ik_sim("track", "no_such_task")
    assert done.returncode == MISUSE
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
