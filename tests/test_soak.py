"""The soak finds what is left behind, and a short one finds nothing."""

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation


@pytest.fixture
def soak() -> ModuleType:
    """The script as a module of its own."""
    path = Path(__file__).parents[1] / "scripts" / "soak"
    spec = importlib.util.spec_from_loader("soak", SourceFileLoader("soak", str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_repeated_runs_and_thousands_of_resets_leave_no_memory_file_or_client(soak):
    result = soak.soak(0.05, talk=False)
    assert result["resets"] >= 9000
    assert result["passed"], result


def test_a_client_that_is_left_open_is_found(soak, monkeypatch):
    left: list[Simulation] = []

    def leaking_round(*_: object) -> None:
        if len(left) < 12:
            left.append(Simulation(load_robot("planar2")))

    monkeypatch.setattr(soak, "one_round", leaking_round)
    result = soak.soak(0.0, talk=False)
    for simulation in left:
        simulation.close()
    assert result["clients_start_end_closed"][2] == len(left)
    assert not result["passed"]


def test_memory_that_grows_is_found(soak, monkeypatch):
    left: list[bytes] = []

    def leaking_round(*_: object) -> None:
        if len(left) < 10:
            left.append(bytes([len(left) + 1]) * 20_000_000)

    monkeypatch.setattr(soak, "one_round", leaking_round)
    monkeypatch.setattr(soak, "WARM_UP", 1)
    result = soak.soak(0.02, talk=False)
    assert result["growth_mb"] > 15.0
    assert not result["passed"]
