"""Compiled kernels never answer for an older source, start fast from their cache, and do without one when they must."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ik_sim import compiled

CHECKOUT = Path(__file__).parents[1]
COMPILING = "ik_sim: compiling numerical kernels for this machine"
NO_CACHE = "ik_sim: no kernel cache"

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Run a program in a process and a folder of its own; the processes of a test share one kernel cache."""

    def run(code: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment(tmp_path, **changes),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def environment(folder: Path, **changes: str | None) -> dict[str, str]:
    """This process's environment with a fresh cache, and the package importable from anywhere."""
    known = {**os.environ, "IK_SIM_CACHE": str(folder / "cache"), "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{folder}"}
    known.pop("PYTHONDONTWRITEBYTECODE", None)
    return {name: value for name, value in {**known, **changes}.items() if value is not None}


def value(result: subprocess.CompletedProcess[str]) -> float:
    """The number a program printed."""
    assert result.returncode == 0, result.stderr
    return float(result.stdout)


CALLER = """
from ik_sim import kernel
from callee import step

@kernel
def twice(x):
    return step(step(x))
"""
CALLEE = """
from ik_sim import kernel

@kernel
def step(x):
    return x + {step}
"""
USE = "import caller; print(caller.twice(0.0))"


def write(folder: Path, **texts: str) -> None:
    """Write modules, as an editor does: a new file in place of the old one."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)  # two edits within a second must not be taken for one


# --- the cache tells the truth ---


@pytest.mark.parametrize(
    ("reach", "call"),
    [
        ("from callee import step", "step(step(x))"),
        ("import callee", "callee.step(callee.step(x))"),
    ],
)
def test_an_edit_of_a_callee_in_another_file_is_seen(program: Program, tmp_path: Path, reach: str, call: str) -> None:
    caller = f"from ik_sim import kernel\n{reach}\n\n@kernel\ndef twice(x):\n    return {call}\n"
    write(tmp_path, caller=caller, callee=CALLEE.format(step=10))
    assert value(program(USE)) == 20.0
    assert value(program(USE)) == 20.0
    write(tmp_path, callee=CALLEE.format(step=505))  # the caller's own file stays as it is
    assert value(program(USE)) == 1010.0


def test_an_edit_three_files_away_is_seen(program: Program, tmp_path: Path) -> None:
    far = "from ik_sim import kernel\n\n@kernel\ndef far(x):\n    return x * {}\n"
    callee = "from ik_sim import kernel\nfrom far import far\n\n@kernel\ndef step(x):\n    return far(x) + 1.0\n"
    write(tmp_path, caller=CALLER, callee=callee, far=far.format(2))
    assert value(program(USE)) == 3.0  # 2 (2·0 + 1) + 1
    write(tmp_path, far=far.format(5))
    assert value(program(USE)) == 6.0


def test_an_edit_of_a_callee_under_numba_s_own_decorator_is_seen(program: Program, tmp_path: Path) -> None:
    callee = "import numba\n\n@numba.njit\ndef step(x):\n    return step_back(x) if x > 1e9 else x + {}\n"
    callee += "\n@numba.njit\ndef step_back(x):\n    return x - 1.0\n"
    write(tmp_path, caller=CALLER, callee=callee.format(10))
    assert value(program(USE)) == 20.0
    write(tmp_path, callee=callee.format(505))
    assert value(program(USE)) == 1010.0


@pytest.mark.parametrize(
    ("reach", "name", "old", "new"),
    [
        ("from settings import GAIN", "GAIN", "2.0", "7.0"),
        ("import settings", "settings.GAIN", "2.0", "7.0"),
        ("from settings import GAIN", "GAIN", "np.array([2.0])", "np.array([7.0])"),
        ("", "GAIN", "2.0", "7.0"),
    ],
)
def test_a_constant_that_was_frozen_into_a_kernel_is_seen_to_change(
    program: Program, tmp_path: Path, reach: str, name: str, old: str, new: str
) -> None:
    caller = "from ik_sim import kernel\n{}\n\n@kernel\ndef twice(x):\n    return {}\n"
    text = f"(x + {name})" + ("[0]" if "array" in old else "")
    if reach:
        write(tmp_path, caller=caller.format(reach, text), settings=f"import numpy as np\nGAIN = {old}\n")
    else:  # the file stays the same; the number comes from elsewhere
        where = "import os\nimport numpy as np\nGAIN = eval(os.environ['GAIN'])"
        write(tmp_path, caller=caller.format(where, text))
    assert value(program(USE, GAIN=old)) == 2.0
    if reach:
        write(tmp_path, settings=f"import numpy as np\nGAIN = {new}\n")
    assert value(program(USE, GAIN=new)) == 7.0


def test_a_callee_in_a_closure_is_seen_to_change(program: Program, tmp_path: Path) -> None:
    caller = (
        "from ik_sim import kernel\nimport callee\n\ndef make(step):\n    @kernel\n    def twice(x):\n"
        "        return step(step(x))\n    return twice\n\ntwice = make(callee.step)\n"
    )
    write(tmp_path, caller=caller, callee=CALLEE.format(step=10))
    assert value(program(USE)) == 20.0
    write(tmp_path, callee=CALLEE.format(step=505))
    assert value(program(USE)) == 1010.0


def test_an_edit_is_seen_by_a_module_that_is_loaded_again(program: Program, tmp_path: Path) -> None:
    write(tmp_path, caller=CALLER, callee=CALLEE.format(step=10))
    again = (
        "import importlib, pathlib, shutil, callee, caller\n"
        "assert caller.twice(0.0) == 20.0\n"
        "path = pathlib.Path('callee.py')\n"
        "path.write_text(path.read_text().replace('10', '505'))\n"
        "shutil.rmtree('__pycache__')\n"
        "importlib.reload(callee); importlib.reload(caller)\n"
        "print(caller.twice(0.0))"
    )
    assert value(program(again)) == 1010.0


def test_an_edit_of_the_package_leads_to_a_fresh_cache_for_just_the_kernels_that_it_can_reach(tmp_path: Path) -> None:
    """On a copy of the package, file by file: whose cache moves to another folder?"""
    shutil.copytree(CHECKOUT / "ik_sim", tmp_path / "ik_sim", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "from pathlib import Path\nfrom ik_sim import compiled\n"
        "for name in ('chain.py', 'solvers/closed_form.py', 'solvers/combined.py'):\n"
        "    print(name, compiled._cache_folder(frozenset(), Path('ik_sim').resolve() / name))\n"
        "print('a user', compiled._cache_folder(frozenset(), None))"
    )

    def folders() -> dict[str, str]:
        env = environment(tmp_path, PYTHONPATH=str(tmp_path))
        command = [sys.executable, "-c", code]
        out = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout
        return dict(line.rsplit(" ", 1) for line in out.splitlines())

    before = folders()
    assert folders() == before
    assert len(set(before.values())) == 4
    everybody = set(before)
    for name, reached in {
        "cli.py": set(),  # or every edit of a message would cost a minute of compiling
        "simulation.py": set(),
        "solvers/combined.py": {"solvers/combined.py", "a user"},
        "solvers/nlopt_c.py": {"solvers/combined.py", "a user"},
        "solvers/closed_form.py": {"solvers/closed_form.py", "solvers/combined.py", "a user"},
        "target.py": {"solvers/closed_form.py", "solvers/combined.py", "a user"},  # numbers frozen into kernels
        "chain.py": everybody,
        "compiled.py": everybody,
    }.items():
        path = tmp_path / "ik_sim" / name
        path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
        after = folders()
        assert {who for who in everybody if after[who] != before[who]} == reached, name
        before = after


def test_old_caches_are_dropped_and_young_ones_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_KEPT_FOLDERS", 8)
    week_ago = time.time() - 7 * 86400
    for i in range(10):
        (tmp_path / f"old{i}").mkdir()
        os.utime(tmp_path / f"old{i}", (week_ago + i, week_ago + i))
    for i in range(5):
        (tmp_path / f"young{i}").mkdir()
    (tmp_path / "mine").mkdir()
    compiled._drop_old_folders(tmp_path, keep=tmp_path / "mine")
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {"mine", *(f"young{i}" for i in range(5)), "old8", "old9"}  # eight, the latest ones
    monkeypatch.setattr(compiled, "_KEPT_FOLDERS", 2)
    compiled._drop_old_folders(tmp_path, keep=tmp_path / "mine")
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {"mine", *(f"young{i}" for i in range(5))}  # a young one may be in use by a program that runs now


# --- several processes, no cache, first and second start ---


def test_processes_that_start_on_one_cold_cache_at_once_all_succeed(tmp_path: Path) -> None:
    write(tmp_path, caller=CALLER, callee=CALLEE.format(step=10))
    code = (
        "import ik_sim, numpy as np, caller\n"
        "chain = ik_sim.load_robot('ur5').chain\n"
        "print(float(chain.fk(np.zeros(6))[0, 3]), caller.twice(0.0), caller.twice(0))"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        x, twice, whole = out.split()
        assert float(x) == pytest.approx(-0.81725, abs=1e-12)  # the published zero pose
        assert (twice, whole) == ("20.0", "20")


def test_the_first_start_says_what_takes_so_long_and_the_second_says_nothing(program: Program) -> None:
    code = "import ik_sim, numpy as np; print(ik_sim.load_robot('iiwa14').chain.fk(np.zeros(7))[2, 3])"
    first = program(code)
    assert value(first) == pytest.approx(1.306, abs=1e-12)
    assert first.stderr == f"{COMPILING} (kept for next time) ...\n"
    second = program(code)
    assert value(second) == value(first)
    assert second.stderr == ""


def test_one_kernel_handed_to_another_is_not_compiled_again_at_the_next_start(program: Program, tmp_path: Path) -> None:
    write(
        tmp_path,
        caller=(
            "import numba\nfrom ik_sim.compiled import Pointer, kernel\n\n"
            "@kernel\ndef square(x):\n    return x * x\n\n"
            "@kernel\ndef summed(f, n):\n    total = 0.0\n    for i in range(n):\n        total += f(float(i))\n"
            "    return total\n\n"
            "signature = numba.float64(numba.float64)\nsquare.compile(signature)\n"
            "print(summed(Pointer(square, signature), 4))\n"
        ),
    )
    first, second = program("import caller"), program("import caller")
    assert value(first) == value(second) == 14.0
    assert COMPILING in first.stderr
    assert second.stderr == ""


@pytest.mark.parametrize("cause", ["a file in the way", "a home below a file", "a folder that can't be written"])
def test_without_a_place_for_the_cache_kernels_still_work_and_one_notice_says_so(
    program: Program, tmp_path: Path, cause: str
) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    write(tmp_path, caller=CALLER, callee=CALLEE.format(step=10))
    changes: dict[str, str | None] = {"IK_SIM_CACHE": str(tmp_path / "file" / "cache")}
    if cause == "a home below a file":
        changes = {"IK_SIM_CACHE": None, "XDG_CACHE_HOME": None, "HOME": str(tmp_path / "file" / "home")}
    elif cause == "a folder that can't be written":
        if os.geteuid() == 0:
            changes = {"IK_SIM_CACHE": "/proc/ik_sim"}  # root may write everywhere else
        else:
            (tmp_path / "locked").mkdir(mode=0o500)
            changes = {"IK_SIM_CACHE": str(tmp_path / "locked")}
    code = f"import ik_sim, numpy as np\nik_sim.load_robot('ur5').chain.fk(np.zeros(6))\n{USE}"
    result = program(code, **changes)
    assert value(result) == 20.0
    notices = result.stderr.splitlines()
    assert len(notices) == 2, result.stderr
    assert notices[0].startswith(NO_CACHE)
    assert "Set IK_SIM_CACHE to a folder that can be written." in notices[0]
    assert notices[1] == f"{COMPILING} ..."  # nothing is kept for next time


def test_the_cache_lies_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IK_SIM_CACHE", "/somewhere/else")
    assert compiled.cache_root() == Path("/somewhere/else/kernels")
    monkeypatch.delenv("IK_SIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert compiled.cache_root() == Path("/xdg/ik_sim/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert compiled.cache_root() == Path("/home/someone/.cache/ik_sim/kernels")


def test_nothing_is_written_outside_the_cache(program: Program, tmp_path: Path) -> None:
    write(tmp_path, caller=CALLER, callee=CALLEE.format(step=10))
    (tmp_path / "home").mkdir()
    result = program(USE, HOME=str(tmp_path / "home"), PYTHONDONTWRITEBYTECODE="1")
    assert value(result) == 20.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "callee.py", "caller.py", "home"]
    assert not list((tmp_path / "home").iterdir())


def test_a_kernel_typed_at_a_prompt_works_without_a_cache(program: Program) -> None:
    code = "from ik_sim import kernel\n@kernel\ndef f(x):\n    return x / 0.0 + 1.0\nprint(f(1.0))"
    assert value(program(code)) == float("inf")  # division as in IEEE 754, no exception


# --- what importing costs ---


def test_importing_the_package_imports_no_numba_no_pybullet_and_no_numpy(program: Program) -> None:
    code = (
        "import sys, ik_sim\n"
        "print(*sorted({'numba', 'pybullet', 'numpy', 'scipy', 'nlopt', 'llvmlite'} & set(sys.modules)))"
    )
    result = program(code)
    assert (result.stdout.strip(), result.stderr) == ("", "")


def test_help_imports_no_numba_and_no_pybullet(program: Program) -> None:
    code = (
        "import sys\nfrom ik_sim import cli\nsys.argv = ['ik-sim', '--help']\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('LOADED', *sorted({'numba', 'pybullet', 'llvmlite', 'nlopt'} & set(sys.modules)))"
    )
    result = program(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "LOADED"
    assert "track" in result.stdout
