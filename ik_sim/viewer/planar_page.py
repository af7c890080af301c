"""The planar bench in the browser: seen straight from above, clicked and dragged, with its knobs and its numbers.

All that is known here about inverse kinematics is in `planar.py`; this file draws frames and turns what a person does
into calls of :class:`~ik_sim.viewer.planar.PlanarLab`.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import viser
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.viewer.lab import Lab, Preset
from ik_sim.viewer.motion_panel import MotionPanel
from ik_sim.viewer.planar import METHODS, MODELS, MOST_LIMBS, MOST_LINKS, PlanarLab
from ik_sim.viewer.planar_frame import (
    COLOURS,
    STATUS_WORDS,
    Area,
    Arrow,
    Circle,
    Dot,
    Frame,
    Label,
    Line,
    arrow_outline,
    best_columns,
    dashes,
    frame,
    read_outs,
    svg,
)  # fmt: skip
from ik_sim.viewer.planar_lessons import LESSONS

CURVES = {
    "fabrik": "#e8890c", "jacobian_transpose": "#c2255c", "damped_least_squares": "#1c7ed6", "ccd": "#2f9e44",
    "closed_form": "#868e96", "selectively_damped": "#7048e8", "levenberg_marquardt": "#0ca678",
}  # fmt: skip
KINDS = {
    "solving": "busy", "reached": "ok", "unreachable": "bad", "stalled": "bad", "unsupported": "info", "failed": "bad",
}  # fmt: skip
"""Of the status line, by a method's status."""
FOV = math.radians(20.0)
MARGIN = 1.06
"""How much more of the plane is seen than the drawing takes: the titles stand at its upper edge."""
COVERED = ((9 / 16, 3 / 4, 1.1), (0.32, 0.4, 0.53))
"""Heights of a window over its width, and the shares of that width that the controls cover then (400 pixels)."""
NUDGE = 0.02
"""What one key moves the target by, as a share of the reach."""
_LEVELS = {Area: 0, Circle: 1, Line: 2, Dot: 5, Arrow: 4, Label: 6}
_FREE = 179.0  # [°] limits as wide as that count as none


class PlanarPage:
    """See the module; `bench` is the state machine behind the page."""

    presets: ClassVar[dict[str, Preset]] = {
        lesson.title: Preset(lesson.text, {"lesson": name, **lesson.state}) for name, lesson in LESSONS.items()
    }

    def __init__(self, client: viser.ClientHandle, lab: Lab, state: dict[str, Any]) -> None:
        self.client, self.lab = client, lab
        state = dict(state)
        lesson = state.pop("lesson", "")
        stop = state.pop("stop", 0)
        self.lesson_name = lesson if isinstance(lesson, str) and lesson in LESSONS else ""
        self.stop = stop if isinstance(stop, int) and not isinstance(stop, bool) and 0 <= stop < 100 else 0
        """How many targets of the lesson's tour were visited."""
        motion = state.pop("motion", {})
        self.bench = PlanarLab.from_dict(state)
        self.target_chosen = 0
        """The tip whose target keys and numbers move."""
        self._commands: list[Any] = []
        self._nodes: dict[Any, Any] = {}
        self._labels: list[Any] = []
        self._gizmos: list[Any] = []
        self._frame: Frame | None = None
        self._view: Any = None
        self._held: int | None = None
        """The gizmo under the pointer: it is where the person has it, and not put back to an older place."""
        self._dirty = True
        self._note = ""
        """What there is to say of the sines."""
        self._build(motion if isinstance(motion, Mapping) else {})
        self._draw()

    # --- building ---

    def _build(self, motion: Mapping[str, Any]) -> None:
        client, gui, listen = self.client, self.client.gui, self.lab.listen
        self._root = client.scene.add_frame("/plane", show_axes=False)
        listen(client.scene.on_click(), self._clicked)
        lesson = LESSONS.get(self.lesson_name)
        self._top: list[Any] = []
        steps = gui.add_button_group("Go", ("Step", "Back", "Solve", "Run", "Start"))
        self._top.append(steps)
        listen(steps.on_click, lambda event: self._go(event.target.value))
        if lesson is not None and lesson.tour:
            tour = gui.add_button("Next target", hint="Key: O")
            listen(tour.on_click, lambda _: self._next_stop())
            self._top.append(tour)
        if lesson is not None and lesson.cure:
            cure = gui.add_button(f"Cure: {lesson.cure}", hint="Key: M")
            listen(cure.on_click, lambda _: self._cure())
            self._top.append(cure)
        self._method = gui.add_dropdown("Method", list(METHODS.values()), initial_value=METHODS[self._b.method])
        listen(self._method.on_update, lambda _: self._choose(_named(METHODS, self._method.value)))
        self._top.append(self._method)
        self._tabs = gui.add_tab_group()
        with self._tabs.add_tab("Run"):
            self._run_tab()
        with self._tabs.add_tab("Arm"):
            self._arm_tab()
        with self._tabs.add_tab("Knobs"):
            self._knobs_tab()
        with self._tabs.add_tab("Numbers"):
            self._numbers = gui.add_html("")
        with self._tabs.add_tab("Motion"):
            self.motion = MotionPanel(self, motion, MOST_LINKS, "0")
        self._keys()
        self._sync()

    @property
    def _b(self) -> Any:
        return self.bench.bench

    def _run_tab(self) -> None:
        gui, listen = self.client.gui, self.lab.listen
        self._table = gui.add_html("")
        self._plot: Any = None
        self._plot_folder = gui.add_folder("Convergence", expand_by_default=True)
        with gui.add_folder("Side by side", expand_by_default=False):
            self._shown = {}
            for name, title in METHODS.items():
                box = gui.add_checkbox(title, name in self._b.shown)
                listen(box.on_update, lambda _: self._show_methods())
                self._shown[name] = box
        self._follow = gui.add_checkbox("Follow the target", self._b.follow, hint="A new target sets the arm going")
        listen(self._follow.on_update, lambda _: self._set(follow=self._follow.value))
        self._which = gui.add_slider("Target of tip", 1, MOST_LIMBS, 1, 1)
        listen(self._which.on_update, lambda _: self._choose_target(int(self._which.value) - 1))
        self._target = gui.add_vector2("Target x, y", (0.0, 0.0), step=0.01)
        listen(self._target.on_update, lambda _: self._aim(self._target.value))
        drawing = gui.add_button("Drawing (SVG)")
        listen(drawing.on_click, lambda _: self._send_svg())

    def _arm_tab(self) -> None:
        gui, listen = self.client.gui, self.lab.listen
        self._model = gui.add_dropdown("Model", list(MODELS.values()), initial_value=MODELS[self._b.model])
        listen(self._model.on_update, lambda _: self._set_model(_named(MODELS, self._model.value)))
        self._links = gui.add_slider("Links", 1, MOST_LINKS, 1, len(self._b.lengths))
        listen(self._links.on_update, lambda _: self._act(lambda: self.bench.set_links(int(self._links.value))))
        self._limbs = gui.add_slider("Limbs", 2, MOST_LIMBS, 1, self._b.limbs)
        listen(self._limbs.on_update, lambda _: self._set(limbs=int(self._limbs.value)))
        self._all = gui.add_slider("All lengths", 0.1, 2.0, 0.05, min(2.0, max(0.1, self._b.lengths[0])))
        listen(self._all.on_update, lambda _: self._act(lambda: self.bench.set_all_lengths(self._all.value)))
        self._joint_folder = gui.add_folder("Each link, each joint's limits")
        self._joint_rows: list[tuple[Any, Any]] = []

    def _joint_controls(self) -> None:
        """One row of controls a link; built anew when their number changes."""
        gui, listen = self.client.gui, self.lab.listen
        while len(self._joint_rows) > len(self._b.lengths):
            for handle in self._joint_rows.pop():
                handle.remove()
        with self._joint_folder:
            while len(self._joint_rows) < len(self._b.lengths):
                i = len(self._joint_rows)
                length = gui.add_slider(f"L{i + 1}", 0.0, 2.0, 0.05, 1.0)
                listen(length.on_update, lambda _, i=i, h=length: self._act(lambda: self.bench.set_length(i, h.value)))
                limit = gui.add_multi_slider(
                    f"θ{i + 1} [°]", -180, 180, 1, (-180, 180), hint="Limits; both ends at ±180° leave the joint free"
                )
                listen(limit.on_update, lambda _: self._set(limits=self._limits_shown()))
                self._joint_rows.append((length, limit))

    def _limits_shown(self) -> tuple[tuple[float, float] | None, ...]:
        rows = []
        for _, handle in self._joint_rows:
            low, high = (float(x) for x in handle.value)
            rows.append(None if low <= -_FREE and high >= _FREE else (math.radians(low), math.radians(high)))
        return tuple(rows)

    def _knobs_tab(self) -> None:
        gui, listen = self.client.gui, self.lab.listen
        self._knobs: dict[str, tuple[Any, Callable[[Any], float]]] = {}

        def knob(name: str, label: str, low: float, high: float, step: float, hint: str, shown: Callable[[Any], float],
                 meant: Callable[[float], Any]) -> None:  # fmt: skip
            handle: Any = gui.add_slider(
                label, low, high, step, min(max(shown(getattr(self._b, name)), low), high), hint=hint
            )
            listen(handle.on_update, lambda _: self._set(**{name: meant(handle.value)}))
            self._knobs[name] = (handle, shown)

        knob("alpha", "α transpose", 0.05, 2.0, 0.05, "Gain, relative to 1/σ_max²", float, float)
        knob("damping", "λ damping", 0.0, 1.0, 0.01, "Of damped least squares, in units of length", float, float)
        knob(
            "clamp", "Error clamp", 0.0, 2.0, 0.1, "Longest error of a damped step, in mean links; 0: any", float, float
        )
        knob(
            "tolerance", "Tolerance 10^", -9.0, -1.0, 0.5, "A tip this near has arrived", math.log10, lambda x: 10.0**x
        )
        knob("rotation_cap", "Rotation cap [°]", 0, 180, 1, "Most a link turns a cycle; 180: no cap",
             lambda x: 180.0 if x is None else math.degrees(x),
             lambda x: None if x >= 180 else math.radians(max(x, 0.1)))  # fmt: skip
        knob("bend", "Bend [rad]", 0.0, 0.5, 0.05, "FABRIK's way out of a line; 0 leaves the deadlock", float, float)
        knob("heading", "Heading [°]", -181, 180, 1, "Of the last of three links in the closed form; −181: as at start",
             lambda x: -181.0 if x is None else math.degrees(x),
             lambda x: None if x < -180 else math.radians(x))  # fmt: skip
        knob("iterations_per_frame", "Iterations a frame", 1, 50, 1, "While it runs", float, int)
        knob("budget", "Budget", 100, 10_000, 100, "Iterations after which Solve gives up", float, int)

    def _keys(self) -> None:
        def command(label: str, key: str, act: Callable[[], None], modifier: str | None = None) -> None:
            handle: Any = self.client.gui.add_command(label, hotkey=key, modifier=modifier)  # type: ignore[arg-type]
            self._commands.append(handle)
            self.lab.listen(handle.on_trigger, lambda _: act())

        command("Step", "X", lambda: self._go("Step"))
        command("Step back", "Z", lambda: self._go("Back"))
        command("Solve", "V", lambda: self._go("Solve"))
        command("Run or pause", "space", lambda: self._go("Run"))
        command("Back to the start", "H", lambda: self._go("Start"))
        command("Sines on or off", "0", self.motion.toggle)
        command("Next target of the tour", "O", self._next_stop)
        command("Cure", "M", self._cure)
        command("Next method", "N", lambda: self._step_method(1))
        command("Previous method", "N", lambda: self._step_method(-1), "shift")
        command("Next model", "U", self._next_model)
        command("Other tip's target", "B", lambda: self._choose_target(self.target_chosen + 1))
        for key, x, y in (("L", 1, 0), ("J", -1, 0), ("I", 0, 1), ("K", 0, -1)):
            command(f"Target {'+' if x + y > 0 else '-'}{'x' if x else 'y'}", key, lambda x=x, y=y: self._nudge(x, y))
        for i in range(9):
            name = str(i + 1)
            command(f"Longer link {name}", name, lambda i=i: self._stretch(i, 0.05), None)
            command(f"Shorter link {name}", name, lambda i=i: self._stretch(i, -0.05), "shift")

    # --- what a person does ---

    def _act(self, act: Callable[[], None]) -> None:
        """Do something to the bench and show the result; misuse is said, and the controls go back to what holds."""
        self._held = None
        self.motion.stop()
        try:
            act()
        finally:
            self._sync()
            self._dirty = True
            self._draw()

    def _set(self, **settings: Any) -> None:
        self._act(lambda: self.bench.set(**settings))

    def _go(self, what: str) -> None:
        if what == "Run":
            self.motion.stop()
            self.bench.running = not self.bench.running
            self._dirty = True
            return
        act = {"Step": self.bench.step, "Back": self.bench.back, "Solve": self.bench.solve, "Start": self.bench.rewind}
        self._act(act[what])

    def _choose(self, method: str) -> None:
        shown = self._b.shown if len(self._b.shown) > 1 else ()
        self._set(method=method, shown=(*shown, method))

    def _step_method(self, way: int) -> None:
        names = list(METHODS)
        self._choose(names[(names.index(self._b.method) + way) % len(names)])

    def _show_methods(self) -> None:
        shown = tuple(name for name, box in self._shown.items() if box.value)
        method = self._b.method if self._b.method in shown or not shown else shown[0]
        self._set(shown=shown, method=method)

    def _set_model(self, model: str) -> None:
        lengths = self._b.lengths if model != "single" or len(self._b.lengths) > 1 else (*self._b.lengths, 1.0)
        self._set(model=model, lengths=lengths)

    def _next_model(self) -> None:
        names = list(MODELS)
        self._set_model(names[(names.index(self._b.model) + 1) % len(names)])

    def _stretch(self, link: int, by: float) -> None:
        if link < len(self._b.lengths):
            self._act(lambda: self.bench.set_length(link, max(0.0, round(self._b.lengths[link] + by, 6))))

    def _choose_target(self, k: int) -> None:
        self.target_chosen = k % len(self.bench.targets)
        self._sync()

    def _aim(self, point: Any, effector: int | None = None, held: int | None = None) -> None:
        which = self.target_chosen if effector is None else effector

        def act() -> None:
            self._held = held
            self.bench.set_target(point, which)

        self._act(act)

    def _nudge(self, x: int, y: int) -> None:
        step = NUDGE * self.bench.size
        self._aim(self.bench.targets[self.target_chosen] + step * np.array([x, y]))

    def _clicked(self, event: Any) -> None:
        """A click on the plane: the ray meets z = 0 at the new target."""
        origin, way = np.array(event.ray_origin), np.array(event.ray_direction)
        if self._frame is None or abs(way[2]) < 1e-9:
            return
        hit = origin - way * (origin[2] / way[2])
        point = self._frame.locate(*(hit[:2] / self._scale))
        if np.abs(point).max() > 10.0 * self.bench.size:
            raise InvalidArgumentError("target", "is too far from the arm to be meant")
        self._act(lambda: self.bench.set_target(point))

    def _dragged(self, k: int) -> None:
        place = np.array(self._gizmos[k].position[:2]) / self._scale - self._offset
        self.target_chosen = k
        self._aim(place, k, held=k)

    def _next_stop(self) -> None:
        lesson = LESSONS.get(self.lesson_name)
        if lesson is None or not lesson.tour:
            raise IkSimError("this lesson has no tour of targets")
        stop = self.stop % len(lesson.tour)
        self.stop = stop + 1
        self._aim(lesson.tour[stop], 0)

    def _cure(self) -> None:
        lesson = LESSONS.get(self.lesson_name)
        if lesson is None or not lesson.cure:
            raise IkSimError("this lesson needs no cure")

        def act() -> None:
            self.bench.set(**lesson.cure_settings)
            self.bench.rewind()

        self._act(act)

    def _send_svg(self) -> None:
        drawing = svg(frame(self.bench), "dark" if self.lab.dark else "light")
        self.client.send_file_download("ik_sim_bench.svg", drawing.encode(), save_immediately=True)

    # --- showing ---

    def _sync(self) -> None:
        """Let every control show what holds."""
        b = self._b
        self._method.value = METHODS[b.method]
        for name, box in self._shown.items():
            box.value = name in b.shown
        self._follow.value = b.follow
        self._model.value = MODELS[b.model]
        self._links.value = len(b.lengths)
        self._limbs.value = b.limbs
        self._limbs.visible = b.model in ("spider", "tree")
        if len(set(b.lengths)) == 1:
            self._all.value = min(2.0, max(0.1, b.lengths[0]))
        self._joint_controls()
        for i, (length, limit) in enumerate(self._joint_rows):
            length.value = min(2.0, b.lengths[i])
            given = b.limits[i] if i < len(b.limits) else None
            low, high = (-180, 180) if given is None else (round(math.degrees(x)) for x in given)
            if tuple(limit.value) != (max(low, -180), min(high, 180)):
                limit.value = (max(low, -180), min(high, 180))
        for name, (handle, shown) in self._knobs.items():
            handle.value = min(max(shown(getattr(b, name)), handle.min), handle.max)
        count = len(self.bench.targets)
        self.target_chosen = min(self.target_chosen, count - 1)
        self._which.visible = count > 1
        if count > 1:
            self._which.max = count
        self._which.value = self.target_chosen + 1
        self.motion.refresh()
        x, y = self.bench.targets[self.target_chosen]
        self._target.value = (round(float(x), 4), round(float(y), 4))

    def tick(self, now: float) -> None:
        """Move what runs, and draw."""
        if self.bench.running:
            self.bench.tick()
            self._dirty = True
        self.motion.tick(now)
        if self._dirty or self._size_of_window() != self._window:
            self._draw()

    def _draw(self) -> None:
        self._dirty = False
        with self.client.atomic():
            self._draw_scene()
        self._draw_numbers()

    def _size_of_window(self) -> tuple[int, int]:
        camera = self.client.camera
        return int(camera.image_width), int(camera.image_height)

    def _ground(self) -> tuple[float, float]:
        """Height of the window over its width, and the share of the width that the controls cover."""
        tall = self._window[1] / max(self._window[0], 1)
        return tall, float(np.interp(tall, *COVERED))

    def _draw_scene(self) -> None:
        self._window = self._size_of_window()
        tall, covered = self._ground()
        columns = best_columns(len(self._b.shown), 1.0 - covered, tall)
        picture = frame(self.bench, width=2.6 * self.bench.size, columns=columns)
        self._frame = picture
        x0, y0, x1, y1 = picture.bounds
        self._scale = 2.0 / (y1 - y0)
        view = (round((x1 - x0) / (y1 - y0), 6), self._window)
        if view != self._view:
            self._view = view
            self._look((x1 - x0) * self._scale)
        unit = 1e-3 * picture.width
        colours = {role: _rgb(text) for role, text in COLOURS["dark" if self.lab.dark else "light"].items()}
        segments: dict[tuple[int, float], list[tuple[Any, Any]]] = {}
        dots: dict[float, list[tuple[Any, Any]]] = {}
        labels: list[tuple[tuple[float, float], str]] = []
        areas: list[tuple[Any, Any, Area]] = []
        for panel in picture.panels:
            offset = np.array(panel.offset)
            if panel.method == self._b.method:
                self._offset = offset
            if panel.title:
                labels.append((_move(offset, (-0.47 * picture.width, 0.47 * picture.width)), panel.title))
            for item in panel.items:
                colour = colours[item.role]
                if isinstance(item, Label):
                    labels.append((_move(offset, item.at, unit * np.array(item.offset)), item.text))
                elif isinstance(item, Dot) and not item.hollow:
                    dots.setdefault(item.radius, []).append((offset + item.centre, colour))
                elif isinstance(item, Area):
                    areas.append((offset, colour, item))
                else:
                    level = _LEVELS[type(item)] + (item.width >= 8.0 if isinstance(item, Line) else 0)
                    for width, piece in _strokes(item, unit):
                        segments.setdefault((level, width), []).extend(
                            (part + offset, colour) for part in itertools.pairwise(piece)
                        )
        self._show_segments(segments, picture)
        self._show_dots(dots, picture)
        self._show_areas(areas)
        self._show_labels(labels)
        self._show_gizmos()

    def _show_segments(self, segments: dict[tuple[int, float], list[tuple[Any, Any]]], picture: Frame) -> None:
        for key in [k for k in self._nodes if k[0] == "line" and k[1:] not in segments]:
            self._nodes[key].visible = False
        for (level, width), parts in segments.items():
            points = np.zeros((len(parts), 2, 3), dtype=np.float32)
            points[:, :, :2] = np.array([part for part, _ in parts]) * self._scale
            points[:, :, 2] = _height(level)
            # Colours of lines are shown as if they were linear, unlike those of points.
            linear = 255.0 * (np.array([c for _, c in parts]) / 255.0) ** 2.2
            colours = np.repeat(np.round(linear).astype(np.uint8)[:, None, :], 2, axis=1)
            key = ("line", level, width)
            thick = width * 1e-3 * picture.width * self._scale
            node = self._nodes.get(key)
            if node is None:
                self._nodes[key] = self.client.scene.add_line_segments(
                    f"/plane/line_{level}_{width:g}", points, colours, thickness=thick
                )
            else:
                node.points, node.colors, node.thickness, node.visible = points, colours, thick, True

    def _show_dots(self, dots: dict[float, list[tuple[Any, Any]]], picture: Frame) -> None:
        for key in [k for k in self._nodes if k[0] == "dot" and k[1] not in dots]:
            self._nodes[key].visible = False
        for radius, parts in dots.items():
            points = np.full((len(parts), 3), _height(_LEVELS[Dot] + 0.1 * radius), dtype=np.float32)
            points[:, :2] = np.array([place for place, _ in parts]) * self._scale
            colours = np.array([c for _, c in parts], dtype=np.uint8)
            size = radius * 1e-3 * picture.width * self._scale
            key = ("dot", radius)
            node = self._nodes.get(key)
            if node is None:
                self._nodes[key] = self.client.scene.add_point_cloud(
                    f"/plane/dot_{radius:g}", points, colours, point_size=size, point_shape="circle",
                    point_shading="flat", precision="float32",
                )  # fmt: skip
            else:
                node.points, node.colors, node.point_size, node.visible = points, colours, size, True

    def _show_areas(self, areas: list[tuple[Any, Any, Area]]) -> None:
        wanted = tuple((item.sectors.tobytes(), item.centre, tuple(offset), self._scale) for offset, _, item in areas)
        if self._nodes.get("areas shown", ()) == wanted:
            return
        self._nodes["areas shown"] = wanted
        for key in [k for k in self._nodes if k[0] == "area"]:
            self._nodes.pop(key).remove()
        for k, (offset, colour, item) in enumerate(areas):
            vertices, faces = _triangles(item)
            vertices = (vertices + offset) * self._scale
            vertices = np.column_stack([vertices, np.zeros(len(vertices))]).astype(np.float32)
            self._nodes["area", k] = self.client.scene.add_mesh_simple(
                f"/plane/area_{k}", vertices, faces, color=colour, opacity=0.22, side="double", cast_shadow=False,
                receive_shadow=False,
            )  # fmt: skip

    def _show_labels(self, labels: list[tuple[tuple[float, float], str]]) -> None:
        for k, ((x, y), text) in enumerate(labels):
            place = (x * self._scale, y * self._scale, _height(6))
            if k == len(self._labels):
                self._labels.append(
                    self.client.scene.add_label(f"/plane/label_{k}", text, position=place, anchor="center-left")
                )
                continue
            handle = self._labels[k]
            if handle.text != text:
                handle.text = text
            handle.position, handle.visible = place, True
        for handle in self._labels[len(labels) :]:
            handle.visible = False

    def _show_gizmos(self) -> None:
        while len(self._gizmos) > len(self.bench.targets):
            self._gizmos.pop().remove()
        while len(self._gizmos) < len(self.bench.targets):
            k = len(self._gizmos)
            gizmo: Any = self.client.scene.add_transform_controls(
                f"/plane/target_{k + 1}", scale=0.17, line_width=2.0, active_axes=(True, True, False),
                disable_rotations=True, depth_test=False, opacity=0.8,
            )  # fmt: skip
            self.lab.listen(gizmo.on_update, lambda _, k=k: self._dragged(k), key=("target", k))
            self._gizmos.append(gizmo)
        for k, (gizmo, target) in enumerate(zip(self._gizmos, self.bench.targets, strict=True)):
            if k == self._held:
                continue
            place = (target + self._offset) * self._scale
            wanted = np.array([place[0], place[1], 0.0])
            if np.abs(np.array(gizmo.position) - wanted).max() > 1e-9:
                gizmo.position = wanted

    def _look(self, width: float) -> None:
        """Straight down, far away with a narrow view, so that it looks like a drawing; clear of the controls."""
        tall, covered = self._ground()
        high = MARGIN * max(2.0, width * tall / (1.0 - covered))
        middle = np.array([0.5 * high * covered / tall, 0.0, 0.0])
        camera = self.client.camera
        camera.fov = FOV
        # The position takes the point looked at along, so it comes first.
        camera.position = middle + np.array([0.0, 0.0, 0.5 * high / math.tan(0.5 * FOV)])
        camera.look_at = middle
        camera.up_direction = (0.0, 1.0, 0.0)

    def _draw_numbers(self) -> None:
        lab, b = self.bench, self._b
        status = lab.status()
        message = lab.message()
        if lab.running and status == "solving":
            message = f"Running. {message}"
        if self.motion.running and self._note:
            message = f"The joints follow their sines, {self._note}. {message}"
        angles = lab.angles()
        data = {
            "method": b.method, "state": status, "iteration": lab.iteration(), "phase": lab.phase(),
            "miss": float(lab.misses().max()), "running": str(lab.running).lower(),
            "moving": str(self.motion.running).lower(),
            "q": " ".join(repr(float(a)) for a in angles),
            "target": " ".join(repr(float(x)) for x in lab.targets.ravel()),
        }  # fmt: skip
        self.lab.say(message, KINDS[status], data)
        self._table.content = self._methods_table()
        self._draw_curve()
        blocks = "".join(
            f'<div style="margin:0.5em 0 0.15em;font-weight:600">{html.escape(r.title)}</div>'
            f'<pre style="margin:0;font-size:11px;line-height:1.25;overflow-x:auto">{html.escape(r.text)}</pre>'
            for r in read_outs(lab)
        )
        self._numbers.content = f'<div id="planar-numbers" style="padding:0 0.75em;font-size:0.85em">{blocks}</div>'

    def _methods_table(self) -> str:
        lab, rows = self.bench, []
        palette = COLOURS["dark" if self.lab.dark else "light"]
        roles = {"solving": "solving", "reached": "reached", "unsupported": "other"}
        for name in self._b.shown:
            status = lab.status(name)
            left = lab.run(name).misses[lab.cursor[name]]
            colour = palette[roles.get(status, "unreachable")]
            rows.append(
                f'<tr data-method="{name}" data-state="{status}" data-iterations="{lab.iteration(name)}" '
                f'data-left="{left!r}"><td><span style="color:{CURVES[name]}">●</span> {html.escape(METHODS[name])}</td>'
                f'<td style="text-align:right">{lab.iteration(name)}</td><td style="text-align:right">{left:.2e}</td>'
                f'<td style="color:{colour};font-weight:600">{STATUS_WORDS[status]}</td></tr>'
            )
        return (
            '<table id="planar-methods" style="width:100%;font-size:0.78em;border-spacing:0.4em 0.1em">'
            '<tr style="opacity:0.7"><td>method</td><td style="text-align:right">iterations</td>'
            '<td style="text-align:right">left</td><td></td></tr>' + "".join(rows) + "</table>"
        )

    def _draw_curve(self) -> None:
        lab, shown = self.bench, self._b.shown
        curves = {name: lab.curve(name) for name in shown}
        last = max(int(x[-1]) for x, _ in curves.values())
        step = max(1, last // 300)
        x = np.arange(0, last + step, step, dtype=np.float64)
        data = [x]
        for iterations, left in curves.values():
            y = np.full(len(x), np.nan)
            place = np.searchsorted(iterations, x, side="right") - 1
            y = np.where(x <= iterations[-1] + step - 1, np.log10(np.maximum(left[place], 1e-12)), y)
            data.append(y)
        if len(x) < 2:
            data = [np.array([0.0, 1.0]), *(np.array([row[0], np.nan]) for row in data[1:])]
        key = (shown, self.lab.dark)
        if self._plot is not None and self._nodes.get("plot") == key:
            self._plot.data = tuple(data)
            return
        self._nodes["plot"] = key
        if self._plot is not None:
            self._plot.remove()
        ink, line = ("#c9cdd2", "#454a50") if self.lab.dark else ("#444950", "#e3e6ea")
        axis: Any = {"stroke": ink, "grid": {"stroke": line, "width": 1}, "ticks": {"stroke": line, "width": 1}}
        series: list[Any] = [{"label": "iteration"}]
        series += [{"label": METHODS[name], "stroke": CURVES[name], "width": 2} for name in shown]
        axes: Any = (
            {**axis, "label": "iteration", "labelSize": 18, "size": 30},
            {**axis, "label": "log₁₀ distance left", "labelSize": 18, "size": 42},
        )
        with self._plot_folder:
            self._plot = self.client.gui.add_uplot(
                tuple(data), tuple(series), height=190, scales={"x": {"time": False}, "y": {}}, axes=axes,
                legend={"show": len(shown) > 1},
            )  # fmt: skip

    # --- for the sines; see `Moved` in motion_panel.py ---

    def moved_chain(self) -> Chain:
        """A single arm's."""
        return self.bench.chain

    def posture(self) -> Float[np.ndarray, "n"]:
        """Where the joints are."""
        return self.bench.angles()

    def begin_motion(self) -> None:
        """No solver runs meanwhile."""
        self.bench.pause()

    def move_joints(self, q: Float[np.ndarray, "n"], note: str) -> None:
        """Pose the arm; the target stays, and every method would start from here."""
        self.bench.set_angles(q)
        self._note = note or self._note
        self._dirty = True

    def show_trace(self, points: Float[np.ndarray, "k 3"]) -> None:
        """Draw the way of the tip."""
        self.bench.trace = points[:, :2]
        self._dirty = True

    # --- the page ---

    def close(self) -> None:
        """Remove everything, and give the camera back its own way of looking."""
        for command in self._commands:
            command.remove()
        self.client.scene.remove_click_callback("all")
        self._tabs.remove()
        for handle in self._top:
            handle.remove()
        self._root.remove()
        self.client.camera.fov = math.radians(75.0)

    def state(self) -> dict[str, Any]:
        """Plain data, from which the page can be built again."""
        bench = self.bench.to_dict()
        motion = self.motion.state()
        middle = motion.pop("q", None)
        if middle is not None:  # a page that is built again swings about the same middle
            bench["start"] = self.bench.skeleton.pose(middle).tolist()
        return {"lesson": self.lesson_name, "stop": self.stop, **bench, "motion": motion}


def _named(titles: dict[str, str], title: str) -> str:
    return next(name for name, shown in titles.items() if shown == title)


def _rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def _height(level: float) -> float:
    """How far above the plane things of a level float, so that they cover what is below."""
    return 0.006 * level


def _move(offset: Any, at: Any, by: Any = (0.0, 0.0)) -> tuple[float, float]:
    return float(offset[0] + at[0] + by[0]), float(offset[1] + at[1] + by[1])


def _strokes(item: Any, unit: float) -> list[tuple[float, Any]]:
    """What is drawn as lines: widths, and the points of each stroke."""
    if isinstance(item, Arrow):
        shaft, (tip, left, right) = arrow_outline(item, unit)
        fan = [np.array([tip, left + (right - left) * s]) for s in np.linspace(0.0, 1.0, 9)]
        return [(item.width, shaft), *((3.0, line) for line in fan)]
    if isinstance(item, Dot):
        return [(3.0, _circle(item.centre, item.radius * unit, 24))]
    points = _circle(item.centre, item.radius, 96) if isinstance(item, Circle) else item.points
    if item.dashed:
        return [(item.width, piece) for piece in dashes(points, 14.0 * unit, 10.0 * unit)]
    return [(item.width, points)]


def _circle(centre: Any, radius: float, count: int) -> Any:
    angles = np.linspace(0.0, 2.0 * math.pi, count + 1)
    return np.array(centre) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _triangles(item: Area) -> tuple[Any, Any]:
    """Corners (k, 2) and faces of the sectors, cut so that their arcs look round."""
    corners: list[Any] = []
    faces: list[Any] = []
    total = 0
    for inner, outer, first, last in item.sectors:
        count = max(1, math.ceil((last - first) / math.radians(4.0)))
        angles = np.linspace(first, last, count + 1)
        way = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        start = total
        total += 2 * len(way)
        corners += [inner * way, outer * way]
        a = start + np.arange(count)
        b = a + count + 1
        faces += [np.stack([a, b, b + 1], axis=1), np.stack([a, b + 1, a + 1], axis=1)]
    return np.vstack(corners) + np.array(item.centre), np.vstack(faces).astype(np.uint32)
