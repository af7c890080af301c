"""The lab without a browser: real tabs over real connections, and what they are shown against the solvers' own numbers."""

from __future__ import annotations

import io
import json
import logging
import math
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ik_sim import all_solutions, arm_angle_arcs, load_robot, load_solver
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.target import Target
from ik_sim.viewer import drawings
from ik_sim.viewer import state as lab_state
from ik_sim.viewer.arm_view import link_poses, shapes
from ik_sim.viewer.lab import COLOURS, encode
from ik_sim.viewer.motion_panel import sines
from ik_sim.viewer.path_panel import JUMP, shares
from ik_sim.viewer.server import LabServer, is_loopback, meaning_of
from ik_sim.viewer.spatial_page import SpatialPage, arc_bar
from ik_sim.viewer.spatial_presets import PRESETS

DATA = Path(__file__).parent / "data" / "urdf"
GIZMO = "/space/target"
UR5, IIWA = load_robot("ur5"), load_robot("iiwa14")
RELAXED = [0.3, 0.7, 0.4, -1.5, 0.2, 1.0, 0.0]  # an iiwa posture away from limits and singularities

Tabs = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[LabServer]:
    with LabServer(port=0) as running:
        yield running


@pytest.fixture
def opened(server: LabServer, fake_tab: Tabs) -> Callable[..., Any]:
    """Opens a tab in a state of its own, and waits until the solver has answered."""

    def open_tab(**state: Any) -> Any:
        tab = fake_tab(server.address, lab_state.to_link({"page": "spatial", "state": {"robot": "ur5", **state}}))
        tab.wait(lambda: tab.status.get("status") not in (None, "joints") or "error" in tab.status, 180.0)
        assert "error" not in tab.status, tab.status
        return tab

    return open_tab


def lab_of(server: LabServer, tab: Any) -> Any:
    """The server's side of a tab: the one that shows the same arm and was opened last."""
    return server.labs[max(server.labs)]


def floats(text: str) -> np.ndarray:
    return np.array([float(x) for x in text.split()])


# --- the target and the solvers ---


def test_the_arm_follows_the_gizmo_and_the_line_shows_the_solvers_own_numbers(opened: Tabs) -> None:
    tab = opened(solver="levenberg_marquardt")
    seed, T = floats(tab.status["q"]), UR5.chain.fk(UR5.q_home)
    T[:3, 3] += [0.05, 0.1, -0.03]
    tab.drag(GIZMO, T[:3, 3], drawings.wxyz(T[:3, :3]))
    tab.wait(lambda: np.allclose(floats(tab.status["target"]), T[:3, 3]))
    own = load_solver("levenberg_marquardt").solve(UR5.chain, Target.pose(T), seed)
    shown = tab.status
    assert shown["status"] == "converged"
    assert int(shown["iterations"]) == own.iterations > 0
    # The pose goes to the page and back as a quaternion: bits may differ, joints don't to the nine digits that are shown.
    np.testing.assert_allclose(floats(shown["q"]), own.q, atol=1e-7)
    np.testing.assert_allclose(UR5.chain.fk(floats(shown["q"])), T, atol=1e-6)
    assert own.reason in shown["text"]


def test_sixty_moves_that_arrive_while_a_solver_works_cost_one_solve(server: LabServer, opened: Tabs) -> None:
    tab = opened()
    lab = lab_of(server, tab)
    solves, release = [], threading.Event()
    page = lab.page
    original = page.solve
    page.solve = lambda: solves.append(page.T.copy()) or original()
    lab.do(lambda: release.wait(20.0))  # stands for a slow solve
    T = page.T.copy()
    overtaken = lab.newest_wins
    for _ in range(60):
        T[1, 3] += 0.002
        tab.drag(GIZMO, T[:3, 3], drawings.wxyz(T[:3, :3]))
    tab.wait(lambda: lab.newest_wins == overtaken + 59)
    release.set()
    tab.wait(lambda: np.allclose(floats(tab.status["target"]), T[:3, 3]))
    assert len(solves) == 1
    np.testing.assert_allclose(solves[0][:3, 3], T[:3, 3])


@pytest.mark.parametrize("solver", ["closed_form", "damped_least_squares", "fabrik", "bullet"])
def test_a_solver_is_switched_and_its_words_are_shown(opened: Tabs, solver: str) -> None:
    tab = opened(T=UR5.chain.fk(UR5.q_home + 0.2)[:3].ravel().tolist())
    tab.set("Solver", solver)
    tab.wait(lambda: tab.status.get("solver") == solver, 120.0)
    assert tab.status["status"] in ("converged", "stalled", "max_iterations")
    assert tab.status["kind"] == ("ok" if tab.status["status"] == "converged" else "bad")
    tab.set("Settings", "no_such_setting=1")
    tab.wait(lambda: "no_such_setting" in tab.status["text"])
    assert tab.status["kind"] == "bad"


def test_a_target_out_of_reach_is_said_in_red_and_the_way_back_is_the_old_branch(opened: Tabs) -> None:
    tab = opened()
    q, T = floats(tab.status["q"]), UR5.chain.fk(UR5.q_home)
    turn = drawings.wxyz(T[:3, :3])
    tab.drag(GIZMO, 2.0 * T[:3, 3], turn)
    tab.wait(lambda: tab.status["status"] == "out_of_reach")
    assert tab.status["kind"] == "bad"
    assert "beyond the outer radius" in tab.status["text"]
    assert UR5.chain.within_limits(floats(tab.status["q"]), 1e-8)
    tab.drag(GIZMO, T[:3, 3], turn)
    tab.wait(lambda: tab.status["status"] == "converged")
    np.testing.assert_allclose(floats(tab.status["q"]), q, atol=1e-6)


def test_points_and_axes_are_targets_too(opened: Tabs) -> None:
    tab = opened()
    tab.set("Target", "point (3)")
    tab.set("x y z [m]", (-0.4, 0.3, 0.3))
    tab.wait(
        lambda: np.allclose(floats(tab.status["target"]), (-0.4, 0.3, 0.3)) and "rotation" not in tab.status["text"]
    )
    q = floats(tab.status["q"])
    assert np.linalg.norm(UR5.chain.fk(q)[:3, 3] - (-0.4, 0.3, 0.3)) < 2e-6
    assert not tab.prop("r p y [deg]", "visible")
    tab.set("Target", "point + axis (5)")
    tab.set("r p y [deg]", (180.0, 0.0, 0.0))
    tab.wait(lambda: "rotation error" in tab.status["text"] and tab.status["status"] == "converged")
    np.testing.assert_allclose(UR5.chain.fk(floats(tab.status["q"]))[:3, 2], (0.0, 0.0, -1.0), atol=1e-5)


def test_keys_move_and_turn_the_target(opened: Tabs) -> None:
    tab = opened()
    T = UR5.chain.fk(UR5.q_home)
    tab.key("Target +z")
    tab.wait(lambda: np.allclose(floats(tab.status["target"]), T[:3, 3] + [0.0, 0.0, 0.01], atol=1e-8))
    rpy = tab.value("r p y [deg]")
    tab.key("Turn target +z")
    tab.wait(lambda: not np.allclose(tab.value("r p y [deg]"), rpy))
    tool = UR5.chain.fk(floats(tab.status["q"]))
    c, s = math.cos(math.radians(2.0)), math.sin(math.radians(2.0))
    turned = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ T[:3, :3]
    np.testing.assert_allclose(tool[:3, :3], turned, atol=1e-6)


def test_every_mouse_control_has_a_key_or_is_a_control_that_keys_reach(opened: Tabs) -> None:
    tab = opened(robot="iiwa14")
    wanted = {
        "Target +x", "Turn target -y", "Take the next branch", "Next solver", "Arm angle up", "Add waypoint",
        "Play the path in physics", "Sines on or off", "Reset", "Next preset", "Screenshot",
    }  # fmt: skip
    tab.wait(lambda: wanted <= set(tab.commands.values()))


# --- joints ---


def test_joint_sliders_pose_the_arm_and_take_the_target_along(opened: Tabs) -> None:
    tab = opened()
    tab.set("elbow_joint [deg]", 60.0)
    tab.wait(lambda: tab.status["status"] == "joints")
    q = floats(tab.status["q"])
    assert q[2] == pytest.approx(math.radians(60.0), abs=1e-8)
    np.testing.assert_allclose(tab.value("x y z [m]"), UR5.chain.fk(q)[:3, 3], atol=6e-5)  # four decimals are shown
    limits = np.degrees([UR5.chain.lower[2], UR5.chain.upper[2]])
    np.testing.assert_allclose([tab.prop("elbow_joint [deg]", end) for end in ("min", "max")], limits)


def test_the_ellipsoid_shows_the_singular_values_of_the_jacobian(opened: Tabs) -> None:
    tab = opened(ellipsoid=True)
    tab.wait(lambda: "Singular values" in tab.text)
    shown = [float(x) for x in re.search(r"σ = ([\d., ]+) m/rad", tab.text)[1].split(",")]  # type: ignore[index]
    J = UR5.chain.jacobian(UR5.q_home)[:3]
    np.testing.assert_allclose(np.square(shown), np.linalg.eigvalsh(J @ J.T)[::-1], atol=2e-4)
    tab.wait(lambda: "/space/ellipsoid" in tab.scene)
    assert tab.scene["/space/ellipsoid"]["props"]["scale"] == pytest.approx([0.3 * x for x in shown], abs=2e-5)


def test_the_ellipsoid_is_a_turned_frame_and_goes_flat_in_a_singular_posture() -> None:
    e = drawings.manipulability(IIWA.chain, np.array(RELAXED))
    np.testing.assert_allclose(e.R.T @ e.R, np.eye(3), atol=1e-12)
    assert np.linalg.det(e.R) == pytest.approx(1.0)
    J = IIWA.chain.jacobian(np.array(RELAXED))[:3]
    assert e.volume == pytest.approx(math.sqrt(np.linalg.det(J @ J.T)))
    straight = drawings.manipulability(IIWA.chain, np.zeros(7))
    assert straight.radii[2] < 1e-12
    assert straight.condition == math.inf


def test_reach_is_drawn_from_postures_inside_the_limits(opened: Tabs) -> None:
    tab = opened()
    tab.set("Reach", True)
    tab.wait(lambda: "/space/reach" in tab.scene)
    points = drawings.reach_cloud(UR5.chain)
    assert points.shape == (6000, 3)
    assert 0.8 < np.linalg.norm(points - [0.0, 0.0, 0.089], axis=1).max() < 1.1  # 0.817 m to the wrist, then the hand
    np.testing.assert_array_equal(points, drawings.reach_cloud(UR5.chain))
    vertices, faces = drawings.hull(points)
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    normals = np.cross(b - a, c - a)
    assert (np.einsum("ij,ij->i", normals, a - points.mean(axis=0)) > 0.0).all()  # wound outwards
    heights = (points @ normals.T - np.einsum("ij,ij->i", normals, a)) / np.linalg.norm(normals, axis=1)
    assert heights.max() < 1e-9  # nothing sticks out


# --- branches and the elbow ---


def test_every_branch_is_a_ghost_and_a_click_takes_it(server: LabServer, opened: Tabs) -> None:
    tab = opened(branches=True)
    seed = floats(tab.status["q"])
    branches = [s.q for s in all_solutions(UR5.chain, Target.pose(UR5.chain.fk(UR5.q_home)), seed, turns=False)]
    assert len(branches) == 8
    tab.wait(lambda: len(tab.prop("Take branch", "options")) == 9)

    def ghosts_shown() -> list[str]:
        return [name for name, node in tab.scene.items() if node["kind"] == "BatchedMeshesMessage"]

    tab.wait(lambda: len(ghosts_shown()) == 7)  # the links; each holds the seven other postures
    ghosts = ghosts_shown()
    tab.send(
        "SceneNodeClickMessage", name=ghosts[3], instance_index=2, ray_origin=(0.0, 0.0, 3.0), modifier=None,
        ray_direction=(0.0, 0.0, -1.0), screen_pos=(0.5, 0.5), owner=tab.scene[ghosts[3]]["owner"],
    )  # fmt: skip
    tab.wait(lambda: not np.allclose(floats(tab.status["q"]), seed, atol=1e-3))
    taken = floats(tab.status["q"])
    assert min(np.abs(taken - q).max() for q in branches) < 1e-6
    assert tab.status["status"] == "converged"


def test_the_branch_key_visits_every_branch(opened: Tabs) -> None:
    tab = opened(branches=True)
    tab.wait(lambda: len(tab.prop("Take branch", "options")) == 9)
    visited = {tuple(np.round(floats(tab.status["q"]), 3))}
    for _ in range(7):
        before = tab.status["q"]
        tab.key("Take the next branch")
        tab.wait(lambda before=before: tab.status["q"] != before)
        visited.add(tuple(np.round(floats(tab.status["q"]), 3)))
    assert len(visited) == 8


def test_the_arm_angle_turns_the_elbow_and_not_the_tool(opened: Tabs) -> None:
    tab = opened(robot="iiwa14", q=RELAXED)
    T = IIWA.chain.fk(np.array(RELAXED))
    own = math.degrees(drawings.elbow_circle(IIWA.chain, np.array(RELAXED)).angle)
    tab.wait(lambda: tab.value("Arm angle [deg]") == pytest.approx(own, abs=0.06))  # or the page's own first value wins
    tab.set("Arm angle [deg]", 25.0)
    tab.wait(lambda: tab.status.get("arm-angle") == "25.0")
    q = floats(tab.status["q"])
    np.testing.assert_allclose(IIWA.chain.fk(q), T, atol=1e-7)
    there = all_solutions(IIWA.chain, Target.pose(T), np.array(RELAXED), arm_angle=math.radians(25.0))
    assert min(np.abs(s.q - q).max() for s in there) < 1e-6
    assert drawings.elbow_circle(IIWA.chain, q).angle == pytest.approx(math.radians(25.0), abs=1e-6)
    tab.wait(lambda: tab.value("Arm angle [deg]") == pytest.approx(25.0, abs=0.06))


def test_an_arm_angle_that_no_branch_allows_leaves_the_arm_where_it_is(opened: Tabs) -> None:
    low = [0.0, 1.9, 0.0, -1.2, 0.0, 0.4, 0.0]
    degrees = np.arange(-180, 180)
    arcs = arm_angle_arcs(IIWA.chain, Target.pose(IIWA.chain.fk(np.array(low))))
    turns = np.radians(degrees)[:, None, None] + 2.0 * np.pi * np.array([-1, 0, 1])
    ends = np.array([(a.low, a.high) for a in arcs])
    legal = ((ends[:, :1] <= turns) & (turns <= ends[:, 1:])).any(axis=(1, 2))
    illegal = np.flatnonzero(~legal)
    assert len(illegal) > 20
    angle = float(degrees[illegal[len(illegal) // 2]])
    tab = opened(robot="iiwa14", q=low)
    q = tab.status["q"]
    tab.set("Arm angle [deg]", angle)
    tab.wait(lambda: "no posture inside the limits" in tab.status["text"])
    assert tab.status["q"] == q
    assert tab.status["kind"] == "bad"


def test_the_elbow_circle_is_where_all_solutions_have_their_elbows() -> None:
    rng = np.random.default_rng(5)
    for q in IIWA.chain.random_q(rng, 20):
        circle = drawings.elbow_circle(IIWA.chain, q)
        T = IIWA.chain.fk(q)
        arcs = arm_angle_arcs(IIWA.chain, Target.pose(T))
        own = drawings.branch_signs(IIWA.chain, q)
        assert any(
            a.low - 1e-6 <= circle.angle + 2 * np.pi * k <= a.high + 1e-6
            for a in arcs
            if a.signs == own
            for k in (-1, 0, 1)
        )
        for s in all_solutions(IIWA.chain, Target.pose(T), q, arm_angle="middle")[:4]:
            other = drawings.elbow_circle(IIWA.chain, s.q)
            elbow = other.points(np.array([other.angle]))[0]
            np.testing.assert_allclose(circle.points(np.array([other.angle]))[0], elbow, atol=1e-6)
    with pytest.raises(IkSimError, match="seven-joint"):
        drawings.elbow_circle(UR5.chain, UR5.q_home)
    with pytest.raises(IkSimError, match="straight"):
        drawings.elbow_circle(IIWA.chain, np.zeros(7))


def test_the_bar_of_legal_arcs_names_the_solvers_ends(opened: Tabs) -> None:
    tab = opened(robot="iiwa14", q=RELAXED)
    arcs = arm_angle_arcs(IIWA.chain, Target.pose(IIWA.chain.fk(np.array(RELAXED))))
    own = drawings.branch_signs(IIWA.chain, np.array(RELAXED))
    ends = [f"{math.degrees(a.low):.1f} to {math.degrees(a.high):.1f}" for a in arcs if a.signs == own]
    assert ends
    tab.wait(lambda: f'data-own="{", ".join(ends)}"' in tab.text)
    tab.wait(lambda: {"/space/elbow/circle", "/space/elbow/own"} <= set(tab.scene))
    assert "none" in arc_bar([], own, 0.0)


# --- paths and motion ---


def test_a_path_is_solved_and_a_jump_on_it_is_named(opened: Tabs) -> None:
    tab = opened(**PRESETS["Branch flip"].state)
    tab.wait(lambda: "**Jump**" in tab.text)
    jumps = re.findall(r"Jump\*\* of ([\d.]+) in (\w+)", tab.text)
    assert max(float(size) for size, _ in jumps) == pytest.approx(math.pi, abs=0.05)
    assert "are not reached" in tab.text
    data = next(
        e["props"]["data"] for e in tab.gui.values() if e["kind"] == "GuiUplotMessage" and len(e["props"]["data"]) == 7
    )
    assert data is not None
    for i, y in enumerate((-0.5, 0.5)):  # the cure that the lesson names
        tab.drag(f"/space/waypoint_{i}", (-0.12, y, 0.2), (0.0, 1.0, 0.0, 0.0))
    tab.wait(lambda: "no joint jumps" in tab.text)
    tab.click("Remove all")
    tab.wait(lambda: "Move the target and add a waypoint" in tab.text)


def test_waypoints_are_added_and_played_in_physics_with_the_error_split(server: LabServer, opened: Tabs) -> None:
    tab = opened(stretch=0.5, gain=0.1)
    tab.click("Add waypoint")
    tab.set("x y z [m]", (-0.55, 0.05, 0.35))
    tab.wait(lambda: tab.status["target"].startswith("-0.55 0.05"))
    tab.click("Add waypoint")
    tab.wait(lambda: "2 waypoints, 41 targets" in tab.text and "no joint jumps" in tab.text)
    tab.click("Play in physics")
    tab.wait(lambda: any("/space/command" in name for name in tab.scene))
    tab.wait(lambda: tab.status.get("status") == "played", 60.0)
    solver, servo, tracking = (float(tab.status[f"{name}-mm"]) for name in ("solver", "servo", "tracking"))
    assert solver < 2e-3
    assert 0.1 < servo < 50.0
    assert abs(tracking - servo) <= solver + 1e-9  # distances: the three make a triangle
    assert not any("/space/command" in name for name in tab.scene)
    tab.set("Servo gain", 1.0)
    tab.click("Play in physics")
    tab.wait(lambda: float(tab.status.get("servo-mm", "1")) < 0.01, 60.0)


def test_joint_values_are_put_between_their_limits_for_the_plot() -> None:
    lower, upper = np.array([-1.0, 0.0, -np.inf]), np.array([1.0, 4.0, np.inf])
    q = np.array([[0.0, 4.0, np.pi], [-1.0, 0.0, 0.0]])
    np.testing.assert_allclose(shares(lower, upper, q), [[0.0, 1.0, 1.0], [-1.0, -1.0, 0.0]])
    assert JUMP > 0.0


def test_sines_have_amplitude_frequency_and_phase() -> None:
    one = np.ones(1)
    assert sines(0.5 * one, 2.0 * one, 0.25 * one, 0.0 * one, 1.0)[0] == pytest.approx(2.5)
    assert sines(0.5 * one, 2.0 * one, 0.25 * one, 0.5 * np.pi * one, 2.0)[0] == pytest.approx(-1.5)
    assert sines(0.5 * one, 2.0 * one, 0.25 * one, 0.3 * one, 4.0)[0] == pytest.approx(0.5 + 2.0 * math.sin(0.3))


def test_joints_swing_inside_their_limits_and_the_tool_leaves_a_trace(opened: Tabs) -> None:
    tab = opened(robot="iiwa14")
    joint = IIWA.chain.joint_names[3]
    tab.set("Joint", joint)
    tab.set("Amplitude [deg]", 180.0)
    tab.set("Frequency [Hz]", 0.5)
    tab.set("Move", True)
    tab.wait(lambda: f"held at a limit: {joint}" in tab.status["text"])
    assert IIWA.chain.within_limits(floats(tab.status["q"]), 1e-8)
    assert "/space/trace" in tab.scene
    tab.set("Move", False)
    tab.click("Clear the trace")
    tab.wait(lambda: "/space/trace" not in tab.scene)


# --- presets ---


@pytest.mark.parametrize("title", PRESETS)
def test_a_preset_shows_what_its_lesson_says(server: LabServer, opened: Tabs, title: str) -> None:
    tab = opened(**PRESETS[title].state)
    status = tab.status
    if title == "Limits in the way":
        assert status["status"] == "joint_limits"
        assert "joint_6" in status["text"]
        tab.set("r p y [deg]", (0.0, -60.0, 0.0))
        tab.wait(lambda: tab.status["status"] == "converged")
    elif title == "FABRIK crawls when stretched":
        many = int(status["iterations"])
        assert many > 1000
        tab.set("x y z [m]", (0.768, 0.0, 0.89))
        tab.wait(lambda: 0 < int(tab.status["iterations"]) < many / 4)
        tab.set("Settings", "")
        tab.set("Solver", "closed_form")
        tab.wait(lambda: tab.status["solver"] == "closed_form" and tab.status["iterations"] == "0")
    elif title == "λ = 0 at a singularity":
        page = lab_of(server, tab).page
        state = PRESETS[title].state
        T = np.vstack([np.reshape(state["T"], (3, 4)), [0.0, 0.0, 0.0, 1.0]])
        trace = page.solver.trace(UR5.chain, Target.pose(T), np.array(state["q"]))
        assert trace.position_error[0] == pytest.approx(0.02, abs=1e-3)
        assert trace.position_error.max() == pytest.approx(1.6, abs=0.1)
        assert trace.step.max() == pytest.approx(6.0, abs=0.3)
        tab.set("Settings", "damping=0.1 restarts=0 max_iterations=100")
        tab.wait(lambda: tab.status["status"] == "stalled")
    elif title == "Eight ways to one pose":
        tab.wait(lambda: "8 branches" in tab.text)
    elif title == "An elbow that is free":
        tab.wait(lambda: "/space/elbow/own" in tab.scene)
    elif title == "A flat ellipsoid":
        scale = tab.wait(lambda: tab.scene["/space/ellipsoid"]["props"]["scale"])
        assert scale[2] < 0.15 * scale[0]
    elif title == "A weak servo lags":
        tab.wait(lambda: any("/space/command" in name for name in tab.scene))
        rows = tab.wait(lambda: [*lab_of(server, tab).page.path._rows[20:40]])
        assert min(servo for _, _, servo, _ in rows) > 1e3 * max(solver for _, solver, _, _ in rows)
    elif title == "Joints as sines":
        tab.wait(lambda: "t = 0." in tab.status["text"])
    else:
        assert title in ("Drag the target", "Branch flip")  # the flip has a test of its own


# --- tabs, links, files ---


def test_two_tabs_have_states_of_their_own(server: LabServer, fake_tab: Tabs) -> None:
    tabs = [fake_tab(server.address, lab_state.to_link({"state": {"robot": name}})) for name in ("ur5", "iiwa14")]
    for tab in tabs:
        tab.wait(lambda tab=tab: tab.status.get("status") == "converged", 120.0)
    tabs[0].key("Target +x")
    tabs[0].wait(lambda: tabs[0].status["target"].startswith("-0.613"))
    assert (tabs[0].status["robot"], tabs[1].status["robot"]) == ("ur5", "iiwa14")
    assert tabs[1].status["target"].startswith("0.6158")


def test_a_tab_that_comes_back_after_a_broken_connection_finds_its_state(server: LabServer, fake_tab: Tabs) -> None:
    here, there = {"position": (0.1, 0.2, 3.0)}, {"position": (0.3, 0.1, 2.0)}
    first, second = fake_tab(server.address, camera=here), fake_tab(server.address, camera=there)
    for tab, solver in ((first, "slsqp"), (second, "ccd")):
        tab.wait(lambda tab=tab: tab.status.get("status") == "converged", 120.0)
        tab.set("Solver", solver)
        tab.wait(lambda tab=tab, solver=solver: tab.status.get("solver") == solver, 120.0)
    labs = [server.labs[i] for i in sorted(server.labs)[-2:]]
    assert not np.allclose(labs[0].client.camera.position, labs[1].client.camera.position, rtol=0.0, atol=1e-6)
    cameras = [
        {name: getattr(lab.client.camera, name).tolist() for name in ("position", "wxyz", "look_at")} for lab in labs
    ]
    first.close()
    second.close()
    time.sleep(0.3)
    again = fake_tab(server.address, camera=cameras[0])
    again.wait(lambda: again.status.get("solver") == "slsqp", 60.0)
    other = fake_tab(server.address, camera=cameras[1])
    other.wait(lambda: other.status.get("solver") == "ccd", 60.0)


def test_a_link_and_a_preset_file_bring_the_state_back(
    server: LabServer, opened: Tabs, fake_tab: Tabs, tmp_path: Path
) -> None:
    tab = opened(robot="iiwa14", q=RELAXED, solver="damped_least_squares", branches=True)
    tab.key("Target +y")
    tab.wait(lambda: tab.status["target"] != "")
    tab.click("Link to this state")
    link = tab.wait(lambda: tab.value("Link"))
    assert link.startswith(f"{server.address}/?websocket=ws://127.0.0.1:")
    copy = fake_tab(server.address, link.rpartition("/")[2])
    copy.wait(lambda: copy.status.get("status") == "converged", 60.0)
    np.testing.assert_allclose(floats(copy.status["q"]), floats(tab.status["q"]), atol=1e-6)
    assert (copy.value("Solver"), copy.value("Show every branch")) == ("damped_least_squares", True)
    tab.click("Save as preset file")
    content = tab.wait(lambda: tab.files.get("ik_sim_lab.json"))
    (tmp_path / "mine.json").write_bytes(content)
    state = lab_state.read_preset(tmp_path / "mine.json")
    with LabServer(port=0, start=state) as other:
        third = fake_tab(other.address)
        third.wait(lambda: third.status.get("status") == "converged", 60.0)
        np.testing.assert_allclose(floats(third.status["q"]), floats(tab.status["q"]), atol=1e-6)
        labs = next(iter(other.labs.values()))
        labs.do(lambda: labs._load(b'{"format": "ik_sim lab 1", "page": "spatial", "state": {"robot": "planar3"}}'))
        third.wait(lambda: third.status.get("robot") == "planar3", 60.0)
        labs.do(lambda: labs._load(b"{}"))
        third.wait(lambda: "is not a state of the lab" in third.status["text"])
        assert third.status["kind"] == "bad"


def test_a_damaged_link_opens_the_lab_and_says_so(server: LabServer, fake_tab: Tabs) -> None:
    tab = fake_tab(server.address, "eJyNoSuchThing")
    tab.wait(lambda: "link" in tab.status.get("text", "") or tab.status.get("status") == "converged", 60.0)
    tab.wait(lambda: "Robot" in tab.labels)


def test_states_survive_link_and_file_and_nonsense_is_refused_in_words() -> None:
    state = {"page": "spatial", "dark": True, "state": {"T": [0.1, 1e-17, -3.0], "robot": "ur5"}}
    assert lab_state.from_link(lab_state.to_link(state)) == state
    assert lab_state.from_json(lab_state.to_json(state)) == state
    bomb = urlsafe_b64encode(zlib.compress(b" " * 10_000_000)).decode()
    for text, words in ((bomb, "more than a state"), ("x", "damaged"), ("!!", "damaged"), (bomb[:40], "cut off")):
        with pytest.raises(InvalidArgumentError, match=words):
            lab_state.from_link(text)
    number_alone = urlsafe_b64encode(zlib.compress(b"5")).decode()
    with pytest.raises(InvalidArgumentError, match="doesn't hold"):
        lab_state.from_link(number_alone)
    for text, words in (("[]", "is not a state"), ("{", "not JSON"), (json.dumps({"format": 2}), "is not a state")):
        with pytest.raises(InvalidArgumentError, match=words):
            lab_state.from_json(text)
    with pytest.raises(InvalidArgumentError, match="at most"):
        lab_state.from_json("1" * 300_000)
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        lab_state.read_preset(Path("/no/such/file.json"))


def test_values_of_a_state_are_bounded_and_replaced_where_they_are_nonsense() -> None:
    state = {"a": 7.0, "b": "x", "c": [1, 2], "d": [1, "x"], "e": True, "f": math.inf, "g": 1}
    assert lab_state.number(state, "a", 1.0, 0.0, 5.0) == 5.0
    assert [lab_state.number(state, key, 2.0) for key in "befz"] == [2.0] * 4
    assert lab_state.numbers(state, "c", (9.0,), 2) == [1.0, 2.0]
    assert lab_state.numbers(state, "c", (9.0,), 3) == lab_state.numbers(state, "d", (9.0,)) == [9.0]
    assert (lab_state.choice(state, "b", ("x", "y"), "y"), lab_state.choice(state, "a", ("x",), "x")) == ("x", "x")
    assert (lab_state.flag(state, "e", False), lab_state.flag(state, "g", False)) == (True, False)


@pytest.mark.parametrize(
    "state",
    [
        {"robot": ["ur5"]}, {"robot": "no_such_robot/"}, {"T": [0.0] * 12}, {"q": [1e9] * 6, "T": "x"}, {"solver": "x.py:Y"},
        {"waypoints": [[1, 2], "x", None]}, {"settings": "max_iterations=x"}, {"amplitude": [1e9] * 6, "moving": 1},
    ],
)  # fmt: skip
def test_a_state_full_of_nonsense_leaves_a_page_that_works(
    server: LabServer, fake_tab: Tabs, state: dict[str, Any]
) -> None:
    tab = fake_tab(server.address, lab_state.to_link({"page": "spatial", "state": state}))
    # The answer or, where it came last, the complaint about the state.
    tab.wait(lambda: "elbow_joint [deg]" in tab.labels and tab.status)
    tab.set("elbow_joint [deg]", 45.0)
    tab.wait(lambda: tab.status.get("status") == "joints" and abs(floats(tab.status["q"])[2] - np.pi / 4) < 1e-6)
    assert tab.value("Solver") == "auto"


def test_an_exception_in_a_solver_ends_neither_the_tab_nor_the_server(
    server: LabServer, opened: Tabs, caplog: pytest.LogCaptureFixture
) -> None:
    tab = opened()
    page = lab_of(server, tab).page
    healthy = page.solver

    class Broken:
        def solve(self, *arguments: Any) -> Any:
            raise ZeroDivisionError("planted")

    page.solver = Broken()
    with caplog.at_level(logging.CRITICAL, "ik_sim"):
        tab.key("Target +x")
        tab.wait(lambda: "ZeroDivisionError: planted" in tab.status["text"])
    assert tab.status["kind"] == "bad"
    page.solver = healthy
    tab.key("Target -x")
    tab.wait(lambda: tab.status["status"] == "converged")


def test_reset_goes_back_to_where_the_preset_began(opened: Tabs) -> None:
    tab = opened()
    tab.set("Preset", "Eight ways to one pose")
    tab.wait(lambda: "8 branches" in tab.text, 60.0)
    q = tab.status["q"]
    for _ in range(3):
        tab.key("Target +x")
    tab.wait(lambda: tab.status["target"].startswith("-0.593"))
    tab.key("Reset")
    tab.wait(lambda: tab.status.get("status") == "converged" and tab.status["q"] == q)
    assert "Shoulder left or right" in tab.text


def test_light_and_dark_keep_the_state(server: LabServer, opened: Tabs) -> None:
    tab = opened()
    tab.key("Target +y")
    tab.wait(lambda: "-0.0992" in tab.status["target"])
    tab.set("Dark", True)
    lab = lab_of(server, tab)
    tab.wait(lambda: lab.dark)
    lab.settle()
    tab.wait(lambda: tab.status.get("status") == "converged" and "-0.0992" in tab.status.get("target", ""))
    assert lab.state()["dark"] is True
    assert tab.value("Dark") is True


def test_any_urdf_is_opened_by_its_path(opened: Tabs) -> None:
    tab = opened()
    tab.set("URDF file", str(DATA / "rail_arm.urdf"))
    tab.click("Open this URDF")
    tab.wait(lambda: "3 tips below" in tab.status["text"])  # and the page is the old one, with all it had
    assert "elbow_joint [deg]" in tab.labels
    tab.set("URDF file", str(DATA / "rail_arm.urdf"))
    tab.set("Tool link", "tool")
    tab.click("Open this URDF")
    tab.wait(
        lambda: tab.status.get("robot", "").endswith("rail_arm.urdf") and tab.status.get("status") == "converged", 120.0
    )
    chain = load_robot(DATA / "rail_arm.urdf", tool_link="tool").chain
    assert all(any(label.startswith(name) for label in tab.labels) for name in chain.joint_names)
    tab.set("URDF file", str(DATA / "no_such.urdf"))
    tab.click("Open this URDF")
    tab.wait(lambda: "no such file" in tab.status["text"].lower())


def test_links_are_drawn_where_the_chain_says() -> None:
    for robot in (
        UR5,
        IIWA,
        *(load_robot(DATA / f"{name}.urdf") for name in ("five_axis", "planar_three", "lift_scissor")),
    ):
        for q in robot.chain.random_q(np.random.default_rng(0), 3):
            poses = link_poses(robot, q)
            np.testing.assert_allclose(poses[robot.chain.base_link], np.eye(4), atol=1e-12)
            np.testing.assert_allclose(poses[robot.chain.tool_link], robot.chain.fk(q), atol=1e-9)
        assert shapes(robot)


# --- the server ---


def test_pictures_lie_on_the_pages_ground_and_films_keep_their_pace() -> None:
    clear = np.zeros((4, 6, 4), dtype=np.uint8)
    red = clear.copy()
    red[..., [0, 3]] = 255
    light, dark = (Image.open(io.BytesIO(encode([clear], 0.0, dark))) for dark in (False, True))
    assert (light.getpixel((0, 0)), dark.getpixel((0, 0))) == ((255, 255, 255), (26, 27, 30))
    film = Image.open(io.BytesIO(encode([clear, red, clear], 0.25, False)))
    assert (film.n_frames, film.size, film.info["duration"]) == (3, (6, 4), 250)  # type: ignore[attr-defined]


def test_only_loopback_addresses_are_quiet_and_others_are_explained() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "192.168.1.4", "example.org", "::"))
    assert "without a password" in meaning_of("0.0.0.0")
    with pytest.raises(InvalidArgumentError, match="no address of this machine"):
        LabServer("203.0.113.7", 0)
    with pytest.raises(InvalidArgumentError, match="65535"):
        LabServer(port=70_000)
    with pytest.raises(InvalidArgumentError, match="there are spatial, planar"):
        LabServer(port=0, start={"page": "round"})


def test_open_to_the_network_no_file_can_be_named_but_that_of_the_command_line(fake_tab: Tabs) -> None:
    named, other = str(DATA / "five_axis.urdf"), str(DATA / "rail_arm.urdf")
    with LabServer(port=0, start={"page": "spatial", "state": {"robot": named}}) as server:
        server.local = False  # as if --host were another address
        tab = fake_tab(server.address)
        tab.wait(lambda: tab.status.get("robot") == named, 120.0)
        assert not tab.prop("Another arm", "visible")
        tab.set("URDF file", other)
        tab.click("Open this URDF")
        tab.wait(lambda: "can't be opened from this page" in tab.status["text"])


def test_a_page_of_another_site_gets_nothing(
    server: LabServer, fake_tab: Tabs, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(server.labs)
    stranger = fake_tab(server.address, origin="http://elsewhere.example")
    friend = fake_tab(server.address, origin=server.address)
    friend.wait(lambda: "Robot" in friend.labels, 60.0)
    assert stranger.labels == []
    assert len(set(server.labs) - before) == 1
    assert "elsewhere.example" in caplog.text


def test_the_way_to_a_tunnel_is_closed(server: LabServer, caplog: pytest.LogCaptureFixture) -> None:
    assert server.viser.request_share_url() is None
    assert "opens none" in caplog.text


def test_the_command_opens_the_lab_on_loopback_and_ctrl_c_ends_it_cleanly(fake_tab: Tabs) -> None:
    command = [sys.executable, "-m", "ik_sim", "view", "--port", "0", "--robot", "planar3", "--dark"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        tab = fake_tab(address)
        tab.wait(lambda: tab.status.get("robot") == "planar3", 120.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20.0)
    assert process.returncode == 0
    assert out == ""
    assert "the lab is closed" in err
    assert "Traceback" not in err


def test_misuse_of_the_command_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from ik_sim.cli import main

    (tmp_path / "not.json").write_text("{}")
    for arguments, words in (
        (["--robot", "ur55"], "did you mean 'ur5'"),
        (["--preset", str(tmp_path / "not.json")], "is not a state of the lab"),
        (["--host", "no.such.host.invalid"], "no address of this machine"),
    ):
        assert main(["view", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_the_status_line_knows_its_colours() -> None:
    assert set(COLOURS) == {"ok", "busy", "bad", "info"}
    assert next(iter(SpatialPage.presets)) == "Drag the target"
