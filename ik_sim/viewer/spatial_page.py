"""An arm in space: drag the target and the arm follows, by any solver, with everything that surrounds an answer.

The page holds one posture `q` and one target. Whoever moves the target (gizmo, numbers, keys, a path) ends in `aim`;
whoever moves the joints (sliders, a branch, the arm angle, a sine) ends in `pose`, which takes the target along.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import viser
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.robots import Robot, load_robot, robot_names
from ik_sim.se3 import matrix_to_rpy, quat_xyzw_to_matrix, rotation_exp, rpy_to_matrix, transform
from ik_sim.solvers import SOLVERS, Arc, Solution, Status, all_solutions, arm_angle_arcs, load_solver
from ik_sim.target import AXIS, KIND_NAMES, POINT, POSE, Target
from ik_sim.tasks import parse_override
from ik_sim.viewer import drawings
from ik_sim.viewer.arm_view import ArmView, Ghosts, size_of
from ik_sim.viewer.lab import Lab, Preset
from ik_sim.viewer.motion_panel import MotionPanel
from ik_sim.viewer.path_panel import PathPanel
from ik_sim.viewer.plots import Plot
from ik_sim.viewer.spatial_presets import PRESETS
from ik_sim.viewer.state import choice, flag, number, numbers

KINDS = {"pose": "pose (6 numbers)", "point": "point (3)", "axis": "point + axis (5)"}
SECONDS = 0.25
"""A solver that reads the clock gives up after so long [s], unless its settings say otherwise: the page stays alive."""
FEW = 16
"""As many branches are shown."""
BLUE, GREEN, RED, ORANGE, GREY = (58, 120, 200), (47, 158, 68), (224, 49, 49), (232, 137, 12), (150, 156, 165)
VIOLET = (156, 89, 201)
NUDGE, TURN = 0.01, math.radians(2.0)
"""What one key moves the target by [m], [rad]."""


@lru_cache(maxsize=16)
def _robot(name: str, base_link: str, tool_link: str, changed: int) -> Robot:
    """A robot, read once for each state of its file, so that its meshes are too."""
    return load_robot(name, base_link=base_link or None, tool_link=tool_link or None)


def robot_of(name: str, base_link: str = "", tool_link: str = "") -> Robot:
    """A robot by name or path, read anew when its file has changed; empty links are the robot's own."""
    robot = load_robot(name, base_link=base_link or None, tool_link=tool_link or None)
    return _robot(name, base_link, tool_link, robot.urdf_path.stat().st_mtime_ns)


class SpatialPage:
    """See the module. `q` and `target` are in the chain's base axes."""

    presets: ClassVar[dict[str, Preset]] = PRESETS

    def __init__(self, client: viser.ClientHandle, lab: Lab, state: dict[str, Any]) -> None:
        self.client, self.lab = client, lab
        name = state.get("robot", "ur5")
        if not isinstance(name, str) or not (name in robot_names() or lab.may_read(name)):
            raise InvalidArgumentError("robot", f"{name!r} can't be opened from this page; known: {robot_names()}")
        self.robot_name = name
        links = [value if isinstance(value := state.get(key), str) else "" for key in ("base_link", "tool_link")]
        self.base_link, self.tool_link = links
        self.robot = robot_of(name, *links)
        chain = self.robot.chain
        self.q = self.seed = chain.clip(numbers(state, "q", self.robot.q_home, chain.n))
        self.kind = KIND_NAMES.index(choice(state, "kind", KIND_NAMES, "pose"))
        self.T = _pose_of(state.get("T"), chain.fk(self.q))
        self.solver_name = choice(state, "solver", SOLVERS, "auto")
        text = state.get("settings", "")
        self.settings_text = text if isinstance(text, str) else ""
        self.solver = self._solver(self.solver_name, self.settings_text)
        self.solution: Solution | None = None
        self.size = size_of(self.robot)
        self._hot: set[tuple[str, int]] = set()  # what has been compiled already
        self._asked: tuple[Target, Float[np.ndarray, "n"]] | None = None
        self._trace_at = 0.0
        self._branches: list[Float[np.ndarray, "n"]] = []
        self._arcs: list[Arc] = []
        self._commands: list[Any] = []
        self._build(state)
        self.pose(self.q, target="T" not in state)
        lab.do(self.solve)  # later: the arm is seen while a solver is compiled

    # --- building ---

    def _build(self, state: Mapping[str, Any]) -> None:
        scene = self.client.scene
        self._root = scene.add_frame("/space", show_axes=False)
        scene.add_grid(
            "/space/floor", width=4.0 * self.size, height=4.0 * self.size, cell_size=0.1 if self.size < 3 else 0.5,
            section_size=0.5 if self.size < 3 else 2.5, position=(0.0, 0.0, -0.001), shadow_opacity=0.25,
            cell_color=(70, 74, 80) if self.lab.dark else (222, 226, 230), fade_distance=6.0 * self.size,
            section_color=(100, 105, 112) if self.lab.dark else (190, 196, 203), cell_thickness=0.8,
        )  # fmt: skip
        self.arm = ArmView(self.client, self.robot, "/space/arm")
        self.ghosts = Ghosts(self.client, self.robot, "/space/branches", BLUE, 0.28)
        self._gizmo = scene.add_transform_controls(
            "/space/target", scale=0.22 * self.size**0.5, line_width=3.0, depth_test=False,
            disable_rotations=self.kind == POINT, wxyz=drawings.wxyz(self.T[:3, :3]), position=self.T[:3, 3],
        )  # fmt: skip
        self.lab.listen(self._gizmo.on_update, self._dragged, key="target")
        self._miss: Any = None
        self._ellipsoid: Any = None
        self._cloud: Any = None
        self._trace: Any = None
        self._circle: list[Any] = []
        self._camera()
        gui = self.client.gui
        self._tabs = gui.add_tab_group()
        with self._tabs.add_tab("Target"):
            self._target_controls()
        with self._tabs.add_tab("Branches"):
            self._branch_controls(state)
        with self._tabs.add_tab("Joints"):
            self._joint_controls(state)
        with self._tabs.add_tab("Path"):
            self.path = PathPanel(self, state)
        with self._tabs.add_tab("Motion"):
            self.motion = MotionPanel(self, state, self.robot.chain.n, "3")
        self._keys()

    def _camera(self) -> None:
        camera = self.client.camera
        wide = camera.image_width > 1.2 * camera.image_height
        # The panel covers the right of a wide window, and the upper right of a tall one.
        far, right, up = (2.1, 0.19, 0.0) if wide else (3.1, 0.11, 0.16)
        middle, distance = np.array([0.0, 0.0, 0.36 * self.size]), far * self.size
        place = drawings.look_from(middle, distance)
        side = np.cross(middle - place, (0.0, 0.0, 1.0))
        aside = distance * (right * side / np.linalg.norm(side) + np.array([0.0, 0.0, up]))
        aside[2] += 1e-5 * (1 + self.client.client_id % 1000)  # a tab is known again by its camera: no two alike
        with self.client.atomic():
            camera.up_direction = (0.0, 0.0, 1.0)
            camera.fov = math.radians(45.0)
            camera.position = place + aside
            camera.look_at = middle + aside  # last: a new position carries the point looked at along

    def _target_controls(self) -> None:
        gui, listen = self.client.gui, self.lab.listen
        names = list(dict.fromkeys([*robot_names(), self.robot_name]))
        self._robots = gui.add_dropdown("Robot", names, initial_value=self.robot_name)
        listen(self._robots.on_update, lambda _: self._change_robot(self._robots.value))
        self._kinds = gui.add_dropdown("Target", list(KINDS.values()), initial_value=KINDS[KIND_NAMES[self.kind]])
        listen(self._kinds.on_update, self._changed_kind)
        self._xyz = gui.add_vector3(
            "x y z [m]", _three(self.T[:3, 3]), step=0.001, hint="Keys: J L along x, K I along y, U O along z"
        )
        self._rpy = gui.add_vector3(
            "r p y [deg]", _three(np.degrees(matrix_to_rpy(self.T[:3, :3]))), step=0.1, visible=self.kind != POINT,
            hint="Roll, pitch, yaw. Keys: the same with shift",
        )  # fmt: skip
        listen(
            self._xyz.on_update, lambda _: self.aim(transform(self.T[:3, :3], np.array(self._xyz.value, dtype=float)))
        )
        listen(self._rpy.on_update, lambda _: self._turned())
        self._solvers = gui.add_dropdown(
            "Solver", list(SOLVERS), initial_value=self.solver_name, hint="Keys: N, shift+N"
        )
        listen(self._solvers.on_update, lambda _: self._change_solver(self._solvers.value, self._settings.value))
        self._settings = gui.add_text(
            "Settings", self.settings_text,
            hint="such as damping=0 max_iterations=20; a new solver starts where the last one did, to be compared",
        )  # fmt: skip
        listen(self._settings.on_update, lambda _: self._change_solver(self._solvers.value, self._settings.value))
        home = gui.add_button("Arm to its home posture", hint="Key: H")
        listen(home.on_click, lambda _: self.pose(self.robot.q_home))
        self._curve = Plot(
            gui,
            "Error over iterations",
            ("position [m]", "rotation [rad]"),
            x="iteration",
            y="log₁₀ error",
            dark=self.lab.dark,
        )
        with gui.add_folder("Another arm", expand_by_default=False, visible=self.lab.any_file):
            self._file = gui.add_text("URDF file", "", hint="Path of a URDF on this machine")
            self._base = gui.add_text("Base link", "", hint="Where the chain starts; the file's root when empty")
            self._tool = gui.add_text("Tool link", "", hint="Where it ends; may be empty where the file has one tip")
            button = gui.add_button("Open this URDF")
            listen(button.on_click, lambda _: self._open_file())

    def _branch_controls(self, state: Mapping[str, Any]) -> None:
        gui, listen = self.client.gui, self.lab.listen
        self._show_branches = gui.add_checkbox(
            "Show every branch", flag(state, "branches", False), hint="Click a ghost to take it. Key: B"
        )
        listen(self._show_branches.on_update, lambda _: self._draw_branches())
        self._branch = gui.add_dropdown("Take branch", ["-"], hint="The nearest first. Key: M takes the next")
        listen(self._branch.on_update, self._chose_branch)
        self._branch_text = gui.add_markdown("")
        srs = self.robot.chain.family == "srs"
        self._psi = gui.add_slider(
            "Arm angle [deg]", -180.0, 180.0, 0.5, 0.0, visible=srs,
            hint="Turns the elbow about the line from shoulder to wrist while the tool stays. Keys: 8 and 9",
        )  # fmt: skip
        listen(self._psi.on_update, lambda _: self.turn_elbow(math.radians(self._psi.value)), key="psi")
        self._arc_bar = gui.add_html("", visible=srs)
        self._show_circle = gui.add_checkbox("Elbow circle and legal arcs", flag(state, "circle", srs), visible=srs)
        listen(self._show_circle.on_update, lambda _: self._draw_circle())

    def _joint_controls(self, state: Mapping[str, Any]) -> None:
        gui, listen = self.client.gui, self.lab.listen
        self._sliders: list[Any] = []
        chain = self.robot.chain
        self._unit = [math.degrees(1.0) if turns else 1.0 for turns in turning(self.robot)]
        for i, name in enumerate(chain.joint_names):
            low, high = bounds(self.robot, i)
            step = 0.1 if self._unit[i] > 1.0 else 0.0005
            low, high = low * self._unit[i], high * self._unit[i]
            unit, digits = ("deg", 2) if self._unit[i] > 1.0 else ("m", 4)
            here = float(np.clip(round(self.q[i] * self._unit[i], digits), low, high))
            slider = gui.add_slider(f"{name} [{unit}]", low, max(high, low + step), step, here, disabled=low >= high)
            self._sliders.append(slider)
            listen(slider.on_update, lambda _, i=i: self._slid(i))
        self._show_ellipsoid = gui.add_checkbox(
            "Manipulability ellipsoid", flag(state, "ellipsoid", False), hint="Key: V"
        )
        listen(self._show_ellipsoid.on_update, lambda _: self._draw_ellipsoid())
        self._show_cloud = gui.add_checkbox(
            "Reach", flag(state, "cloud", False), hint="6000 postures drawn evenly. Key: Z"
        )
        listen(self._show_cloud.on_update, lambda _: self._draw_cloud())
        self._ellipsoid_text = gui.add_markdown("")
        if self._show_cloud.value:
            self._draw_cloud()

    def _keys(self) -> None:
        def command(label: str, key: str, act: Callable[[], None], modifier: str | None = None) -> None:
            handle: Any = self.client.gui.add_command(label, hotkey=key, modifier=modifier)  # type: ignore[arg-type]
            self._commands.append(handle)
            self.lab.listen(handle.on_trigger, lambda _: act())

        for key, axis, way in (("L", 0, 1), ("J", 0, -1), ("I", 1, 1), ("K", 1, -1), ("O", 2, 1), ("U", 2, -1)):
            sign, name = ("+" if way > 0 else "-"), "xyz"[axis]
            command(f"Target {sign}{name}", key, lambda a=axis, w=way: self._nudge(a, w, turn=False))
            command(f"Turn target {sign}{name}", key, lambda a=axis, w=way: self._nudge(a, w, turn=True), "shift")
        command("Next solver", "N", lambda: self._step_solver(1))
        command("Previous solver", "N", lambda: self._step_solver(-1), "shift")
        command("Home posture", "H", lambda: self.pose(self.robot.q_home))
        command("Show every branch", "B", lambda: self._tick_box(self._show_branches, self._draw_branches))
        command("Take the next branch", "M", self._next_branch)
        command("Ellipsoid", "V", lambda: self._tick_box(self._show_ellipsoid, self._draw_ellipsoid))
        command("Reach", "Z", lambda: self._tick_box(self._show_cloud, self._draw_cloud))
        command("Next kind of target", "X", self._next_kind)
        if self.robot.chain.family == "srs":
            command("Arm angle up", "9", lambda: self.turn_elbow(math.radians(self._psi.value + 2.0)))
            command("Arm angle down", "8", lambda: self.turn_elbow(math.radians(self._psi.value - 2.0)))
        command("Add waypoint", "1", lambda: self.path.add())
        command("Play the path in physics", "2", lambda: self.path.toggle())
        command("Sines on or off", "3", lambda: self.motion.toggle())

    @staticmethod
    def _tick_box(box: Any, act: Callable[[], None]) -> None:
        box.value = not box.value
        act()

    # --- the page ---

    def close(self) -> None:
        """Remove everything."""
        self.path.close()
        for command in self._commands:
            command.remove()
        self._tabs.remove()
        self._root.remove()

    def state(self) -> dict[str, Any]:
        """Plain data, from which the page can be built again."""
        return {
            "robot": self.robot_name,
            "base_link": self.base_link,
            "tool_link": self.tool_link,
            "kind": KIND_NAMES[self.kind],
            "T": [float(x) for x in self.T[:3].ravel()],
            "q": [float(x) for x in self.q],
            "solver": self.solver_name,
            "settings": self.settings_text,
            "branches": self._show_branches.value,
            "circle": self._show_circle.value,
            "ellipsoid": self._show_ellipsoid.value,
            "cloud": self._show_cloud.value,
            **self.path.state(),
            **self.motion.state(),
        }

    def tick(self, now: float) -> None:
        """Whatever moves by itself, and the plot of the last solve."""
        self.path.tick(now)
        self.motion.tick(now)
        if self._asked is not None and now >= self._trace_at:
            self._trace_at = now + 0.25
            target, seed = self._asked
            self._asked = None
            self._plot_trace(target, seed)

    # --- target and posture ---

    @property
    def target(self) -> Target:
        """What the solver is asked for."""
        if self.kind == POINT:
            return Target.point(self.T[:3, 3])
        if self.kind == AXIS:
            return Target.axis(self.T[:3, 3], self.T[:3, 2])
        return Target.pose(self.T)

    def aim(self, T: Float[np.ndarray, "4 4"], gizmo: bool = True) -> None:
        """Move the target and let the arm follow; `gizmo` is false when the gizmo is what has moved it."""
        self.T = T
        self._show_target(gizmo)
        self.solve()

    def solve(self, again: bool = False) -> None:
        """Solve for the target from where the arm is, and show everything about the answer.

        `again`: from where the last solve began, so that two solvers can be compared on one problem.
        """
        target, seed = self.target, (self._began if again else self.seed).copy()
        self._began = seed
        self.get_ready(target, seed)
        clock = time.perf_counter_ns()
        solution = self.solver.solve(self.robot.chain, target, seed)
        self.seconds = (time.perf_counter_ns() - clock) * 1e-9
        self.solution = solution
        self.q = np.array(solution.q)
        if solution.status != Status.OUT_OF_REACH:  # out there, any branch is as near: come back on the one one left
            self.seed = self.q
        self._asked = (target, seed)
        self._say(solution)
        self._show_arm()

    def get_ready(self, target: Target, seed: Float[np.ndarray, "n"]) -> None:
        """Have the solver compiled for targets of this kind, so that what follows is its own time."""
        work = (f"{self.solver_name} {self.settings_text}", target.kind)
        if work not in self._hot:
            self.lab.say(f"{self.solver_name} gets ready", "busy")
            self.solver.solve(self.robot.chain, target, seed)
            self._hot.add(work)

    def pose(self, q: Any, note: str = "", target: bool = True) -> None:
        """Put the arm at q and the target where the tool then is."""
        self.q = self.seed = self._began = self.robot.chain.clip(q)
        if target:
            self.T = self.robot.chain.fk(self.q)
        self.solution = None
        self._asked = None
        self._show_target(True)
        p = ", ".join(f"{x:.4f}" for x in self.T[:3, 3])
        text = f"forward kinematics: the tool is at {p} m" + (f"\n{note}" if note else "")
        self.lab.say(text, "info", {"status": "joints", "q": _short(self.q)})
        self._show_arm()

    # --- for the sines; see `Moved` in motion_panel.py ---

    def moved_chain(self) -> Chain:
        """The robot's."""
        return self.robot.chain

    def posture(self) -> Float[np.ndarray, "n"]:
        """Where the joints are."""
        return self.q.copy()

    def begin_motion(self) -> None:
        """No path is played meanwhile."""
        self.path.stop()

    def move_joints(self, q: Float[np.ndarray, "n"], note: str) -> None:
        """Draw the arm there, with everything around it where there is something to say."""
        self.arm.show(q)
        if note:
            self.pose(q, note)

    def show_trace(self, points: Float[np.ndarray, "k 3"]) -> None:
        """Draw the way of the tool."""
        if len(points) < 2:
            if self._trace is not None:
                self._trace.remove()
                self._trace = None
            return
        segments = drawings.polyline(points)
        if self._trace is None:
            self._trace = self.client.scene.add_line_segments("/space/trace", segments, VIOLET, thickness=0.006)
        else:
            self._trace.points = segments.astype(np.float32)

    # --- showing ---

    def _say(self, s: Solution) -> None:
        words = [f"position error {s.position_error:.2e} m"]
        if self.kind != POINT:
            words.append(f"rotation error {s.rotation_error:.2e} rad")
        words += [f"{s.iterations} iterations" + (f", {s.restarts} restarts" if s.restarts else "")]
        words.append(f"{1000.0 * self.seconds:.3g} ms")
        text = f"{str(s.status).replace('_', ' ')}: {s.reason}\n{' · '.join(words)}"
        kind = "ok" if s.converged else "bad"
        data = {
            "status": str(s.status), "position-error": s.position_error, "rotation-error": s.rotation_error,
            "iterations": s.iterations, "solver": self.solver_name, "robot": self.robot_name, "q": _short(self.q),
            "milliseconds": round(1000.0 * self.seconds, 4), "target": _short(self.T[:3, 3]),
        }  # fmt: skip
        self.lab.say(text, kind, data)

    def _show_target(self, gizmo: bool) -> None:
        if gizmo:
            self._gizmo.position, self._gizmo.wxyz = self.T[:3, 3], drawings.wxyz(self.T[:3, :3])
        self._xyz.value = _three(self.T[:3, 3])
        self._rpy.value = _three(np.degrees(matrix_to_rpy(self.T[:3, :3])))

    def _show_arm(self) -> None:
        self.arm.show(self.q)
        for slider, x, unit in zip(self._sliders, self.q, self._unit, strict=True):
            slider.value = float(np.clip(round(x * unit, 2 if unit > 1.0 else 4), slider.min, slider.max))
        tool = self.robot.chain.fk(self.q)[:3, 3]
        if np.linalg.norm(tool - self.T[:3, 3]) > 1e-3:
            segment = np.array([[tool, self.T[:3, 3]]])
            if self._miss is None:
                self._miss = self.client.scene.add_line_segments("/space/miss", segment, RED, thickness=0.006)
            else:
                self._miss.points = segment.astype(np.float32)
                self._miss.visible = True
        elif self._miss is not None:
            self._miss.visible = False
        self._draw_branches()
        self._draw_circle()
        self._draw_ellipsoid()

    # --- what people do ---

    def _dragged(self, event: Any) -> None:
        w, x, y, z = self._gizmo.wxyz
        self.aim(transform(quat_xyzw_to_matrix(np.array([x, y, z, w])), np.array(self._gizmo.position)), gizmo=False)

    def _turned(self) -> None:
        self.aim(transform(rpy_to_matrix(np.radians(np.array(self._rpy.value))), self.T[:3, 3]))

    def _nudge(self, axis: int, way: int, turn: bool) -> None:
        T = self.T.copy()
        step = np.zeros(3)
        step[axis] = way * (TURN if turn else NUDGE)
        if turn:
            T[:3, :3] = rotation_exp(step) @ T[:3, :3]
        else:
            T[:3, 3] += step
        self.aim(T)

    def _slid(self, i: int) -> None:
        q = self.q.copy()
        q[i] = self._sliders[i].value / self._unit[i]
        self.pose(q)

    def _changed_kind(self, event: Any) -> None:
        self.kind = list(KINDS.values()).index(self._kinds.value)
        self._gizmo.disable_rotations = self.kind == POINT
        self._rpy.visible = self.kind != POINT
        self.solve()

    def _next_kind(self) -> None:
        self._kinds.value = list(KINDS.values())[(self.kind + 1) % len(KINDS)]
        self._changed_kind(None)

    def _open_file(self) -> None:
        if not self._file.value.strip():
            raise InvalidArgumentError("URDF file", "type the path of a URDF on this machine")
        self._change_robot(self._file.value.strip(), self._base.value.strip(), self._tool.value.strip())

    def _change_robot(self, name: str, base_link: str = "", tool_link: str = "") -> None:
        state = self.state()
        kept = {key: state[key] for key in ("solver", "kind", "branches", "ellipsoid", "cloud")}
        links = {"base_link": base_link, "tool_link": tool_link}
        self.lab.open("spatial", {"robot": name, **{k: v for k, v in links.items() if v}, **kept})

    def _solver(self, name: str, settings: str) -> Any:
        given = dict(parse_override(word) for word in settings.split())
        if "max_seconds" in getattr(SOLVERS[name], "__dataclass_fields__", {}):
            given.setdefault("max_seconds", SECONDS)
        return load_solver(name, **given)

    def _change_solver(self, name: str, settings: str) -> None:
        solver = self._solver(name, settings)
        self.solver, self.solver_name, self.settings_text = solver, name, settings
        self._solvers.value = name
        self.solve(again=True)
        self.path.recompute()

    def _step_solver(self, step: int) -> None:
        names = list(SOLVERS)
        self._change_solver(names[(names.index(self.solver_name) + step) % len(names)], self._settings.value)

    # --- branches and the elbow ---

    def _draw_branches(self) -> None:
        chain = self.robot.chain
        found, text = [], ""
        if self._show_branches.value:
            try:
                found = [s.q for s in all_solutions(chain, self.target, self.q, turns=False)][:FEW]
                text = (
                    f"{len(found)} branches reach this target inside the limits." if found else "No branch reaches it."
                )
            except IkSimError as error:
                text = str(error)
        self._branches = found
        options = ["-", *(f"{i + 1}: {np.abs(q - self.q).max():.2f} rad away" for i, q in enumerate(found))]
        if tuple(options) != tuple(self._branch.options):
            self._branch.options = options
        self._branch.value = "-"
        if self._branch_text.content != text:
            self._branch_text.content = text
        others = [q for q in found if np.abs(q - self.q).max() > 1e-3]
        if self.ghosts.show(others):
            for handle in self.ghosts.handles:
                self.lab.listen(handle.on_click, self._clicked_ghost)
        self._others = others

    def _clicked_ghost(self, event: Any) -> None:
        index = event.instance_index
        if index is not None and 0 <= index < len(self._others):
            self._take(self._others[index])

    def _chose_branch(self, event: Any) -> None:
        number_of, colon, _ = self._branch.value.partition(":")
        if colon and int(number_of) <= len(self._branches):
            self._take(self._branches[int(number_of) - 1])

    def _next_branch(self) -> None:
        if not self._show_branches.value:
            self._show_branches.value = True
            self._draw_branches()
        if self._others:
            # In an order that doesn't depend on whole turns, so that going on visits them all.
            order = sorted([*self._others, self.q], key=lambda q: tuple(np.round([*np.cos(q), *np.sin(q)], 3)))
            here = next(i for i, q in enumerate(order) if q is self.q)
            self._take(order[(here + 1) % len(order)])

    def _take(self, q: Float[np.ndarray, "n"]) -> None:
        """Stand on another branch of the same target: the solver starts there and stays."""
        self.q = self.seed = np.array(q)
        self.solve()

    def turn_elbow(self, psi: float) -> None:
        """Turn the elbow to an arm angle while the tool stays; where that is not legal the arm stays, and it is said."""
        psi = (psi + math.pi) % (2.0 * math.pi) - math.pi
        if self.kind != POSE:
            raise IkSimError("an arm angle belongs to a whole pose: choose the target “pose”")
        found = all_solutions(self.robot.chain, Target.pose(self.T), self.q, arm_angle=psi, turns=False)
        there = [s for s in found if self._has_angle(s.q, psi)]  # a single legal posture is listed whatever its angle
        if not there:
            self._psi.value = round(math.degrees(psi), 1)
            self.lab.say(
                f"no posture inside the limits has the arm angle {math.degrees(psi):.1f} deg here; the legal arcs are "
                "green on the circle and in the bar",
                "bad",
                {"status": "joint_limits", "arm-angle": round(math.degrees(psi), 3), "q": _short(self.q)},
            )
            return
        own = drawings.branch_signs(self.robot.chain, self.q)
        nearest = min(
            there, key=lambda s: (drawings.branch_signs(self.robot.chain, s.q) != own, np.abs(s.q - self.q).max())
        )
        self.q = self.seed = self._began = np.array(nearest.q)
        self.solution = nearest
        self.seconds, self._asked = 0.0, None
        self.lab.say(
            f"arm angle {math.degrees(psi):.1f} deg: the elbow has turned, the tool has not\n"
            f"position error {nearest.position_error:.2e} m · rotation error {nearest.rotation_error:.2e} rad",
            "ok",
            {
                "status": str(nearest.status), "arm-angle": round(math.degrees(psi), 3), "q": _short(self.q),
                "position-error": nearest.position_error, "rotation-error": nearest.rotation_error,
            },
        )  # fmt: skip
        self._show_arm()

    def _has_angle(self, q: Float[np.ndarray, "n"], psi: float) -> bool:
        gap = drawings.elbow_circle(self.robot.chain, q).angle - psi
        return abs(gap - 2.0 * math.pi * round(gap / (2.0 * math.pi))) < 1e-4

    def _draw_circle(self) -> None:
        for handle in self._circle:
            handle.remove()
        self._circle = []
        if self.robot.chain.family != "srs":
            return
        try:
            circle = drawings.elbow_circle(self.robot.chain, self.q)
            arcs = arm_angle_arcs(self.robot.chain, Target.pose(self.robot.chain.fk(self.q)))
        except IkSimError as error:
            self._arc_bar.content = f'<div style="margin:0 0.75em;font-size:0.8em">{error}</div>'
            return
        own = drawings.branch_signs(self.robot.chain, self.q)
        self._arcs = arcs
        self._psi.value = round(math.degrees(circle.angle), 1)
        self._arc_bar.content = arc_bar(arcs, own, circle.angle)
        if not self._show_circle.value:
            return
        scene = self.client.scene
        whole = drawings.polyline(circle.points(np.linspace(-np.pi, np.pi, 97)))
        self._circle.append(scene.add_line_segments("/space/elbow/circle", whole, GREY, thickness=0.003))
        for mine in (False, True):
            pieces = [
                drawings.polyline(
                    circle.points(np.linspace(a.low, a.high, 49), circle.radius + (0.0 if mine else 0.02))
                )
                for a in arcs
                if (a.signs == own) == mine
            ]
            if pieces:
                colour, thick = (GREEN, 0.014) if mine else ((120, 190, 140), 0.005)
                name = f"/space/elbow/{'own' if mine else 'others'}"
                self._circle.append(scene.add_line_segments(name, np.concatenate(pieces), colour, thickness=thick))
        here = circle.points(np.array([circle.angle]))[0]
        self._circle.append(scene.add_icosphere("/space/elbow/here", 0.022, color=ORANGE, position=here))

    # --- ellipsoid and reach ---

    def _draw_ellipsoid(self) -> None:
        if not self._show_ellipsoid.value:
            if self._ellipsoid is not None:
                self._ellipsoid.visible = False
            if self._ellipsoid_text.content:
                self._ellipsoid_text.content = ""
            return
        e = drawings.manipulability(self.robot.chain, self.q)
        a, b, c = np.maximum(0.3 * e.radii, 2e-3).tolist()
        shown = (a, b, c)
        tool = self.robot.chain.fk(self.q)[:3, 3]
        if self._ellipsoid is None:
            self._ellipsoid = self.client.scene.add_icosphere(
                "/space/ellipsoid", 1.0, color=ORANGE, opacity=0.4, subdivisions=3, scale=shown, cast_shadow=False
            )
        self._ellipsoid.scale = shown
        self._ellipsoid.position, self._ellipsoid.wxyz = tool, drawings.wxyz(e.R)
        self._ellipsoid.visible = True
        values = ", ".join(f"{x:.4f}" for x in e.radii)
        self._ellipsoid_text.content = (
            f"Singular values σ = {values} m/rad; manipulability σ₁σ₂σ₃ = {e.volume:.5f}; condition σ₁/σ₃ = {e.condition:.3g}. "
            "Drawn at 0.3 of its size."
        )

    def _draw_cloud(self) -> None:
        if not self._show_cloud.value:
            if self._cloud is not None:
                self._cloud.visible = False
            return
        if self._cloud is None:
            scene, points = self.client.scene, drawings.reach_cloud(self.robot.chain)
            colour = (90, 150, 220) if self.lab.dark else (110, 155, 215)
            self._cloud = scene.add_frame("/space/reach", show_axes=False)
            scene.add_point_cloud(
                "/space/reach/points", points, colour, point_size=0.003 * self.size, point_shape="circle",
                precision="float32", point_shading="flat",
            )  # fmt: skip
            if np.linalg.matrix_rank(points - points.mean(axis=0), tol=1e-3) == 3:  # not the disc of a planar arm
                vertices, faces = drawings.hull(points)
                scene.add_mesh_simple(
                    "/space/reach/hull", vertices, faces, color=colour, opacity=0.12, side="double", cast_shadow=False,
                    receive_shadow=False,
                )  # fmt: skip
        self._cloud.visible = True

    # --- the plot ---

    def _plot_trace(self, target: Target, seed: Float[np.ndarray, "n"]) -> None:
        if not hasattr(self.solver, "trace"):
            self._curve.show(np.zeros(0), np.zeros(0), np.zeros(0))
            return
        trace = self.solver.trace(self.robot.chain, target, seed, rows=1000)
        floor = 1e-17
        self._curve.show(
            np.arange(len(trace.phase), dtype=float),
            np.log10(np.maximum(trace.position_error, floor)),
            np.log10(np.maximum(trace.rotation_error, floor)),
        )


def turning(robot: Robot) -> list[bool]:
    """Of each joint of the chain whether it turns (or else slides)."""
    kinds = {joint.name: joint.kind for joint in robot.chain.joints}
    return [kinds[name] != "prismatic" for name in robot.chain.joint_names]


def bounds(robot: Robot, i: int) -> tuple[float, float]:
    """What a slider of joint i spans [rad or m]: its limits, half a turn or a metre either way where it has none."""
    low, high = float(robot.chain.lower[i]), float(robot.chain.upper[i])
    span = math.pi if turning(robot)[i] else 1.0
    return (low if math.isfinite(low) else -span), (high if math.isfinite(high) else span)


def arc_bar(arcs: list[Arc], own: tuple[int, int, int], angle: float) -> str:
    """The legal arm angles from -180 to 180 deg as a bar: green for the branch the arm is on, pale for the others."""

    def stripe(low: float, high: float, mine: bool) -> str:
        left, width = 100.0 * (low + math.pi) / (2.0 * math.pi), 100.0 * (high - low) / (2.0 * math.pi)
        top, colour = ("0", "#2f9e44") if mine else ("11px", "#9fd3ad")
        place = f"left:{left:.2f}%;width:{width:.2f}%;top:{top}"
        return f'<div style="position:absolute;{place};height:9px;background:{colour}"></div>'

    stripes = []
    for arc in sorted(arcs, key=lambda a: a.signs == own):
        low, high = arc.low, arc.high
        for shift in (-2.0 * math.pi, 0.0, 2.0 * math.pi):
            a, b = max(low + shift, -math.pi), min(high + shift, math.pi)
            if b > a:
                stripes.append(stripe(a, b, arc.signs == own))
    here = 100.0 * (angle + math.pi) / (2.0 * math.pi)
    mine = [arc for arc in arcs if arc.signs == own]
    words = ", ".join(f"{math.degrees(a.low):.1f} to {math.degrees(a.high):.1f}" for a in mine) or "none"
    return (
        f'<div id="lab-arcs" data-own="{words}" style="margin:0.1em 0.75em 0.6em;font-size:0.8em">'
        '<div style="position:relative;height:20px;border:1px solid #8888;border-radius:3px;overflow:hidden">'
        f'{"".join(stripes)}<div style="position:absolute;left:{here:.2f}%;top:0;bottom:0;width:2px;background:#e8890c"></div>'
        f"</div>Legal arm angles: {words} deg (green, this branch); below, pale: the other branches.</div>"
    )


def _pose_of(value: Any, default: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
    """A pose from twelve numbers of a state."""
    given = numbers({"T": value}, "T", default[:3].ravel(), 12)
    T = np.vstack([np.reshape(given, (3, 4)), [0.0, 0.0, 0.0, 1.0]])
    return Target.pose(T).T


def _three(values: Any) -> tuple[float, float, float]:
    x, y, z = (round(float(v), 4) + 0.0 for v in values)
    return (x, y, z)


def _short(values: Any) -> str:
    return " ".join(f"{x:.9g}" for x in values)


__all__ = ["SpatialPage", "arc_bar", "bounds", "number", "robot_of", "turning"]
