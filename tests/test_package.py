"""The package as users get it: what is installed, what an import costs, what the lock files promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {name: (ROOT / name).read_text() for name in ("requirements.lock", "requirements-dev.lock")}
CHECKOUT = {"PYTHONPATH": str(ROOT)}
HEAVY = ("numba", "llvmlite", "pybullet", "scipy", "nlopt", "gymnasium", "matplotlib", "plotly", "pyarrow", "viser")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if result.returncode != 0:
        pytest.fail(f"exit code {result.returncode}: {command}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def loaded_after(code: str, cwd: Path) -> set[str]:
    """Names of the top-level modules that a fresh Python holds after `code`."""
    report = "\nimport sys; print('\\nLOADED', *{name.partition('.')[0] for name in sys.modules})"
    return set(run(sys.executable, "-c", code + report, cwd=cwd, **CHECKOUT).rpartition("LOADED")[2].split())


def data_files(kind: str, below: Path) -> set[str]:
    files = (p for p in (below / kind).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(below).as_posix() for p in files}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """site-packages of a fresh environment with nothing but the wheel, which was built from the sdist."""
    folder = tmp_path_factory.mktemp("with a space")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv")
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    command = ("-m", "pip", f"--python={folder / 'venv'}", "install", "--quiet", "--no-deps", "--no-index", wheel)
    run(sys.executable, *command, cwd=folder)
    return site


def installed(site: Path, *arguments: str, cwd: Path) -> str:
    """Run the installed `ik-sim`; the packages it needs come from the environment of these tests."""
    python = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from ik_sim.cli import main; sys.exit(main())"
    return run(sys.executable, "-P", "-c", python, site, *arguments, cwd=cwd)


def test_wheel_adds_only_ik_sim_to_site_packages(site: Path) -> None:
    assert {path.name for path in site.iterdir()} == {"ik_sim", f"ik_sim-{PROJECT['version']}.dist-info"}
    commands = {path.name for path in (site.parents[2] / "bin").iterdir()}
    assert {name for name in commands if not re.match("python|activate", name, re.IGNORECASE)} == {"ik-sim"}


def test_module_and_wheel_agree_on_the_version(tmp_path: Path) -> None:
    told = run(sys.executable, "-c", "import ik_sim; print(ik_sim.__version__)", cwd=tmp_path, **CHECKOUT)
    assert told.strip() == PROJECT["version"]


@pytest.mark.parametrize("kind", ["robots", "tasks"])
def test_wheel_carries_every_data_file_of_the_checkout(site: Path, kind: str) -> None:
    assert data_files(kind, ROOT)
    assert data_files(kind, site / "ik_sim" / "data") == data_files(kind, ROOT)


def test_wheel_carries_every_module_of_the_checkout(site: Path) -> None:
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "ik_sim").rglob("*.py")}
    assert {p.relative_to(site).as_posix() for p in (site / "ik_sim").rglob("*.py")} == modules


def test_installed_package_finds_its_robots_and_tasks_from_any_folder(site: Path, tmp_path: Path) -> None:
    robots = installed(site, "robots", cwd=tmp_path)
    tasks = installed(site, "tasks", cwd=tmp_path)
    assert [p.name for p in (ROOT / "robots").iterdir() if (p / "robot.toml").exists() and p.name not in robots] == []
    assert [p.stem for p in (ROOT / "tasks").glob("*.toml") if p.stem not in tasks] == []


@pytest.mark.slow
def test_installed_package_tracks_the_reference_task(site: Path, tmp_path: Path) -> None:
    installed(site, "track", "paper_ur5", cwd=tmp_path)


def test_importing_ik_sim_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_after("import ik_sim", tmp_path)
    assert "ik_sim" in loaded
    assert not loaded & {*HEAVY, "numpy"}


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    show_help = """
from ik_sim.cli import main
import sys
sys.argv = ["ik-sim", "--help"]
try: main()
except SystemExit as end: assert not end.code
"""
    assert not loaded_after(show_help, tmp_path) & set(HEAVY)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_address(lock: str) -> None:
    assert not re.search(r"://| @ |^-|\.(org|com|net|io)\b", LOCKS[lock], re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_every_package_with_hashes(lock: str) -> None:
    packages = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", LOCKS[lock], flags=re.MULTILINE).strip())
    pinned = re.compile(r"[a-z0-9-]+==[^ ]+( ; [^\\]+)? \\(\n {4}--hash=sha256:[0-9a-f]{64}( \\)?)+")
    assert [package for package in packages if not pinned.fullmatch(package)] == []


def versions(lock: str) -> dict[tuple[str, str], str]:
    """(name, marker) -> version."""
    pins = re.finditer(r"^([a-z0-9-]+)==([^ ]+)(?: ; ([^\\]+))? \\$", lock, re.MULTILINE)
    return {(pin[1], pin[3] or ""): pin[2] for pin in pins}


def test_demo_lock_is_a_part_of_the_dev_lock() -> None:
    assert versions(LOCKS["requirements.lock"]).items() <= versions(LOCKS["requirements-dev.lock"]).items()


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", ("video", "reports")),
        ("requirements-dev.lock", ("video", "reports", "viewer", "cluster", "dev")),
    ],
)
def test_lock_satisfies_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    locked = versions(LOCKS[lock])
    wanted = PROJECT["dependencies"] + [line for e in extras for line in PROJECT["optional-dependencies"][e]]
    for requirement in map(Requirement, wanted):
        found = [v for (name, _), v in locked.items() if name == canonicalize_name(requirement.name)]
        assert found, f"{lock} lacks {requirement}: run scripts/lock"
        assert all(requirement.specifier.contains(v) for v in found), f"{lock} does not satisfy {requirement}"


def test_example_in_the_readme_runs(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "converged" in run(sys.executable, "-c", example, cwd=tmp_path, **CHECKOUT)


def test_no_tracked_file_names_the_folder_it_was_written_in() -> None:
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a checkout, or no git to ask")
    listed = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    tracked = [ROOT / name for name in listed if name]
    assert [p.name for p in tracked if p.is_file() and os.fsencode(ROOT) in p.read_bytes()] == []
