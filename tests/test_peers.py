"""Adapters: each peer that is installed knows our arms, and its answers hold where it claims so."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ik_sim.chain import Chain, Joint
from ik_sim.errors import IkSimError, UnknownNameError
from ik_sim.peers import PEERS, peer_class
from ik_sim.peers.description import describe
from ik_sim.peers.host import PeerCrashed, PeerProcess, find_python, install
from ik_sim.peers.peer import Arm, nearest_legal
from ik_sim.robots import load_robot
from ik_sim.se3 import pose_error

ARMS = ("ur5", "iiwa14")


@pytest.mark.parametrize("name", ARMS)
def test_the_arm_as_peers_get_it_is_our_arm(name: str, tmp_path: Path) -> None:
    from ik_sim.urdf import read_urdf

    chain = load_robot(name).chain
    arm, urdf = describe(name, chain)
    (tmp_path / "arm.urdf").write_text(urdf)
    told = Arm(**arm, urdf_path=str(tmp_path / "arm.urdf"))
    read = read_urdf(tmp_path / "arm.urdf").chain(told.base_link, told.tool_link)
    axes, offsets, R = told.screws()
    for q in chain.random_q(np.random.default_rng(0), 20):
        assert np.abs(told.fk(q) - chain.fk(q)).max() < 1e-13
        # roll, pitch and yaw with 17 digits lose a few bits on the way
        assert np.abs(read.fk(q) - chain.fk(q)).max() < 1e-12
    assert np.abs(np.linalg.norm(axes, axis=1) - 1.0).max() < 1e-15
    assert np.allclose(offsets.sum(axis=0), chain.fk(np.zeros(chain.n))[:3, 3], atol=1e-14)
    assert np.allclose(R, chain.fk(np.zeros(chain.n))[:3, :3], atol=1e-14)


def test_arms_that_no_peer_takes_are_refused_in_words() -> None:
    slider = Joint("s", "prismatic", np.eye(4), np.array([0.0, 0.0, 1.0]), 0.0, 1.0, 1.0, 1.0)
    with pytest.raises(IkSimError, match="revolute"):
        describe("lift", Chain.from_joints([slider]))


def test_nearest_legal_turns_whole_turns_into_the_limits() -> None:
    arm = Arm("two", np.tile(np.eye(4), (3, 1, 1)), [-1.0, -7.0], [7.0, 1.0], "")
    found = nearest_legal([[-0.5 - 2 * np.pi, 0.5 + 2 * np.pi], [3.0, 3.0]], np.array([6.0, -6.0]), arm)
    assert found is not None
    assert np.allclose(found, [2 * np.pi - 0.5, 0.5 - 2 * np.pi])
    assert (
        nearest_legal([[0.0, 3.0]], np.zeros(2), Arm("two", np.tile(np.eye(4), (3, 1, 1)), [-1, -1], [1, 1], ""))
        is None
    )
    assert nearest_legal([], np.zeros(2), arm) is None


@pytest.mark.parametrize("name", PEERS)
def test_every_adapter_says_what_it_needs(name: str) -> None:
    cls: Any = peer_class(name)
    assert {"", "default"} <= set(cls.variants)
    assert cls.requirements
    assert cls.licence
    assert cls.__doc__


def installed() -> list[str]:
    """Fast peers that can be imported here: dynibo and optik come with the extra dev, where they have wheels.

    More are tested with IK_SIM_PEERS naming a folder that `ik-sim bench --install-peers` has filled.
    """
    return [name for name in PEERS if not peer_class(name).slow and find_python(name)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("robot", ARMS)
@pytest.mark.parametrize("name", installed())
def test_an_installed_peer_knows_the_arm_and_keeps_its_word(name: str, robot: str) -> None:
    cls: Any = peer_class(name)
    chain = load_robot(robot).chain
    arm, urdf = describe(robot, chain)
    rng = np.random.default_rng(1)
    q = chain.random_q(rng, 10)
    if robot == "iiwa14" and name in ("ur_analytic_ik", "py_ikgeo"):
        with pytest.raises(IkSimError, match="can't take iiwa14"):
            PeerProcess(name, "", arm, urdf)
        return
    with PeerProcess(name, "", arm, urdf) as process:
        assert np.abs(process.fk(q) - chain.fk_batch(q)).max() < cls.fk_tolerance
        T = chain.fk_batch(q)
        answer = process.chunk(T, chain.random_q(rng, 10), False)
    good = 0
    for found, claimed, wanted in zip(answer["q"], answer["claimed"], T, strict=True):
        if found is None:
            continue
        position, rotation = pose_error(chain.fk(found), wanted)
        reached = position < 1e-6 and rotation < 1e-6 and chain.within_limits(found, 1e-9)
        good += reached
        assert reached or not claimed or name == "trac_ik"  # its limits are in single precision
    assert good >= 8  # the weakest of them solve 99 % of uniform targets; 7 of 10 would be a wrong setting
    assert all(t > 0 for t in answer["time_ns"])


@pytest.mark.parametrize("robot", ARMS)
def test_scipy_takes_part_wherever_ik_sim_runs(robot: str) -> None:
    assert find_python("scipy") == sys.executable
    chain = load_robot(robot).chain
    arm, urdf = describe(robot, chain)
    q = chain.random_q(np.random.default_rng(0), 3)
    with PeerProcess("scipy", "", arm, urdf) as process:
        assert np.abs(process.fk(q) - chain.fk_batch(q)).max() < 1e-12
        answer = process.chunk(chain.fk_batch(q), np.clip(q + 0.1, chain.lower, chain.upper), False)
    assert answer["claimed"] == [True] * 3
    for found, wanted in zip(answer["q"], chain.fk_batch(q), strict=True):
        assert max(pose_error(chain.fk(np.array(found)), wanted)) < 1e-6


@pytest.mark.parametrize("name", PEERS)
def test_a_budget_cuts_down_what_a_peer_has_settings_for_and_names_the_rest(name: str) -> None:
    cls: Any = peer_class(name)
    for variant, own in cls.variants.items():
        assert cls.within(variant, {"max_iterations": None}) == (own, [])
        settings, lacking = cls.within(variant, {"max_iterations": 7, "max_restarts": 0, "max_seconds": 1e-3})
        assert settings.keys() == own.keys()
        for key, setting, most in (
            ("max_iterations", "steps", 7),
            ("max_restarts", "restarts", 0),
            ("max_seconds", "seconds", 1e-3),
        ):
            assert (key in lacking) == (setting not in own)
            assert setting not in own or settings[setting] <= most


def test_a_budget_of_iterations_counts_over_all_starts() -> None:
    cls: Any = peer_class("dynibo")
    assert cls.within("", {"max_iterations": 300})[0]["restarts"] == 4  # five starts of 60 steps
    assert cls.within("", {"max_iterations": 30})[0] == {**cls.variants[""], "steps": 30, "restarts": 0}


def test_a_budget_reaches_the_peer_and_what_it_cannot_take_is_on_record() -> None:
    from ik_sim.benchmark import Plan, open_contestant

    chain = load_robot("planar3").chain
    plan = Plan(robots=("planar3",), solvers=("scipy",), max_iterations=3, max_seconds=1e-9)
    contestant = open_contestant("scipy", plan, "planar3", chain)
    try:
        assert "'steps': 3" in contestant.facts["settings"]
        q = chain.random_q(np.random.default_rng(0), 2)
        rows = contestant.chunk(chain.fk_batch(q), chain.random_q(np.random.default_rng(1), 2), False)
        assert all(row["iterations"] <= 3 for row in rows)  # one start: the time is up
        assert "no_setting_for" not in contestant.facts
    finally:
        contestant.close()
    ours = open_contestant("closed_form", plan, "planar3", chain)
    assert ours.facts["no_setting_for"] == ["max_iterations", "max_seconds"]


CRASHING = """
import os
from ik_sim.peers.peer import Peer
class Crashing(Peer):
    package, requirements, environment, licence = "numpy", ("numpy",), "none", "none"
    variants = {"": {}, "default": {}}
    def solve(self, T, q_seed):
        if T[0, 3] > 0.0:
            os._exit(139)
        if T[1, 3] > 0.0:
            raise RuntimeError("no")
        return q_seed, True, 1
    def fk(self, q):
        return self.arm.fk(q)
"""


def test_a_peer_that_crashes_or_raises_spoils_its_own_query_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = tmp_path / "crashing.py"
    module.write_text(CRASHING)
    monkeypatch.setitem(PEERS, "crashing", f"{module}:Crashing")
    chain = load_robot("planar2").chain
    arm, urdf = describe("planar2", chain)
    T = np.tile(np.eye(4), (4, 1, 1))
    T[:, 0, 3], T[:, 1, 3] = [-1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, -1.0]
    with PeerProcess("crashing", "", arm, urdf) as process:
        answer = process.chunk(T, np.zeros((4, 2)), False)
        assert answer["failed"] == ["", "crashed", "raised", ""]
        assert [q is None for q in answer["q"]] == [False, True, True, False]
        process._process.kill()  # type: ignore[union-attr]
        with pytest.raises(PeerCrashed):
            process.fk(np.zeros((1, 2)))


def test_a_missing_peer_is_skipped_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ik_sim.benchmark import Plan, run

    monkeypatch.setenv("IK_SIM_PEERS", str(tmp_path / "nothing"))
    monkeypatch.setattr("ik_sim.benchmark.contestants.find_python", lambda name: None)
    said: list[str] = []
    plan = Plan(robots=("planar2",), solvers=("closed_form", "eaik"), count=5, chunk=5)
    try:
        summary = run(plan, tmp_path / "b", say=said.append)
    except IkSimError:
        pytest.fail("a missing peer must not end the benchmark")
    assert "`ik-sim bench --install-peers --solver eaik`" in summary["skipped"]["eaik"]
    assert any("eaik" in line for line in said)
    with pytest.raises(UnknownNameError, match="default"):
        run(Plan(robots=("planar2",), solvers=("eaik:fast",), count=5), tmp_path / "c")


def test_only_peers_are_installed_and_those_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from ik_sim.benchmark.command import Bench

    asked: list[list[str]] = []
    monkeypatch.setattr("ik_sim.peers.host.install", lambda names, say: asked.append(names) or ["ikpy: no wheel"])
    assert Bench(solver=("eaik:default", "ikpy"), install_peers=True, quiet=True).run() == 1  # one could not be had
    assert asked == [["eaik", "ikpy"]]
    with pytest.raises(UnknownNameError, match="peer"):
        Bench(solver=("closed_form",), install_peers=True, quiet=True).run()


@pytest.mark.slow
@pytest.mark.skipif("IK_SIM_TEST_ALL" not in os.environ, reason="downloads a package; scripts/test --all runs it")
def test_a_peer_installs_into_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IK_SIM_PEERS", str(tmp_path))
    monkeypatch.setattr("ik_sim.peers.host.importlib.util.find_spec", lambda package: None)  # as if not beside us
    assert install(["dynibo"]) == []
    python = find_python("dynibo")
    assert python is not None
    assert python != sys.executable
