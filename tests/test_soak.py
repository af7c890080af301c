"""The soak finds what is left behind, and a short one finds nothing. Each in a process of its own: that is what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "scripts" / "soak"

LOAD = f"""
import importlib.util, json
from importlib.machinery import SourceFileLoader
spec = importlib.util.spec_from_loader("soak", SourceFileLoader("soak", {str(SCRIPT)!r}))
soak = importlib.util.module_from_spec(spec)
spec.loader.exec_module(soak)
left = []
"""


def soaked(minutes: float, leak: str = "") -> dict[str, Any]:
    """What the soak measures when its rounds are replaced by a leak."""
    code = f"{LOAD}{leak}\nprint(json.dumps(soak.soak({minutes}, talk=False)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_repeated_runs_and_thousands_of_resets_leave_no_memory_file_or_client() -> None:
    result = soaked(0.05)
    assert result["resets"] >= 9000
    assert result["passed"], result


def test_a_client_that_is_left_open_is_found() -> None:
    leak = """
def one_round(*_):
    if len(left) < 12:
        left.append(soak.Simulation(soak.load_robot("planar2")))
soak.one_round = one_round
"""
    result = soaked(0.0, leak)
    assert result["rounds"] == result["clients_start_end_closed"][2] == 9
    assert not result["passed"]


def test_memory_that_grows_is_found() -> None:
    leak = """
def one_round(*_):
    if len(left) < 10:
        left.append(bytes([len(left) + 1]) * 20_000_000)
soak.one_round, soak.WARM_UP = one_round, 1
"""
    result = soaked(0.02, leak)
    assert result["growth_mb"] > 15.0
    assert not result["passed"]
