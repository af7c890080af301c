"""A path through waypoints: solved along straight lines, its joints against their limits, and played in physics.

The page's arm is then the simulated one, and a ghost beside it is what was commanded. Three errors at the tool are
plotted as they happen: what the solver left (fk of the command against the target), what the servo added (fk of the
command against fk of what was measured), and both together (the measured tool against the target).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.control import ControlSettings
from ik_sim.errors import InvalidArgumentError
from ik_sim.se3 import transform
from ik_sim.simulation import Simulation
from ik_sim.target import POSE, Target
from ik_sim.trajectory import line_poses
from ik_sim.viewer.drawings import polyline, wxyz
from ik_sim.viewer.plots import Plot
from ik_sim.viewer.state import flag, number, numbers

STEPS = 40
"""Targets from one waypoint to the next."""
JUMP = 0.3
"""A joint that moves more than this from one target to the next is said to jump [rad or m]."""
MOST = 20
"""Waypoints."""
PHYSICS_RATE = 240.0
RED, ORANGE, GREEN = (224, 49, 49), (232, 137, 12), (47, 158, 68)


class PathPanel:
    """The tab Path of the page for an arm in space."""

    def __init__(self, page: Any, state: Mapping[str, Any]) -> None:
        self.page = page
        gui, listen = page.client.gui, page.lab.listen
        self._dark = page.lab.dark
        self.waypoints: list[tuple[Float[np.ndarray, "4 4"], Float[np.ndarray, "n"]]] = _waypoints(page, state)
        """Targets, each with the posture that the arm had when it was added."""
        self.q: Float[np.ndarray, "k n"] | None = None
        self.targets: Any = None
        self.jumps: list[int] = []
        self._simulation: Simulation | None = None
        self._tick = 0
        self._drawn: list[Any] = []
        self._handles: list[Any] = []
        self._ghost: Any = None
        self._text = gui.add_markdown("")
        buttons = (
            ("Add waypoint", "The target as it is now. Key: 1", self.add),
            ("Remove the last", "", self.remove_last),
            ("Remove all", "", self.clear),
        )
        for label, hint, act in buttons:
            button = gui.add_button(label, hint=hint or None)
            listen(button.on_click, lambda _, act=act: act())
        self._curves = Plot(
            gui, "Joints between their limits (−1 lower, 1 upper)", page.robot.chain.joint_names,
            x="waypoint", y="share of the range", dark=self._dark, limits=(-1.05, 1.05), height=240,
        )  # fmt: skip
        self._gain = gui.add_slider(
            "Servo gain",
            0.01,
            1.0,
            0.01,
            number(state, "gain", 1.0, 0.01, 1.0),
            hint="Share of an error removed a step",
        )
        self._payload = gui.add_slider("Payload [kg]", 0.0, 20.0, 0.5, number(state, "payload", 0.0, 0.0, 20.0))
        self._seconds = gui.add_slider("Seconds a stretch", 0.5, 10.0, 0.5, number(state, "stretch", 2.0, 0.5, 10.0))
        self._play = gui.add_button("Play in physics", hint="Again: stop. Key: 2")
        listen(self._play.on_click, lambda _: self.toggle())
        self._loop = gui.add_checkbox("Again and again", flag(state, "loop", False))
        self._errors = Plot(
            gui, "Error at the tool", ("solver", "servo", "tracking"), x="time [s]", y="log₁₀ mm", dark=self._dark
        )
        self._wanted = flag(state, "play", False)
        self._rows: list[tuple[float, float, float, float]] = []
        self._shown = 0.0
        self._stale = True

    # --- editing ---

    def add(self) -> None:
        """The target as it is now becomes the next waypoint."""
        if self.page.kind != POSE:
            raise InvalidArgumentError("waypoint", "a path runs through whole poses: choose the target “pose” first")
        if len(self.waypoints) >= MOST:
            raise InvalidArgumentError("waypoint", f"there are {MOST} already")
        self.waypoints.append((self.page.T.copy(), self.page.q.copy()))
        self.recompute()

    def remove_last(self) -> None:
        """Forget the last waypoint."""
        if self.waypoints:
            self.waypoints.pop()
        self.recompute()

    def clear(self) -> None:
        """Forget all waypoints."""
        self.waypoints = []
        self.recompute()

    def state(self) -> dict[str, Any]:
        """What of the page's state is the path's."""
        return {
            "waypoints": [[*(float(x) for x in T[:3].ravel()), *(float(x) for x in q)] for T, q in self.waypoints],
            "gain": float(self._gain.value),
            "payload": float(self._payload.value),
            "stretch": float(self._seconds.value),
            "loop": self._loop.value,
            "play": self._simulation is not None,
        }

    def recompute(self) -> None:
        """Solve the path again, soon."""
        self.stop()
        self._stale = True

    # --- solving ---

    def _solve(self) -> None:
        self._stale = False
        self._clear_drawing()
        self.q, self.targets, self.jumps = None, None, []
        if len(self.waypoints) < 2:
            self._curves.show(np.zeros(0), *([np.zeros(0)] * self.page.robot.chain.n))
            how = (
                "Move the target and add a waypoint, then another: straight lines join them. A waypoint can be dragged."
            )
            self._text.content = f"One waypoint is there. {how}" if self.waypoints else how
            self._draw_points()
            return
        chain = self.page.robot.chain
        legs = [
            line_poses(a[0], b[0], np.linspace(0.0, 1.0, STEPS + 1)[i > 0 :].tolist())
            for i, (a, b) in enumerate(zip(self.waypoints, self.waypoints[1:], strict=False))
        ]
        self.targets = np.concatenate(legs)
        q = self.waypoints[0][1]
        rows, missed = [], []
        for i, T in enumerate(self.targets):
            self.page.get_ready(Target.pose(T), q)
            solution = self.page.solver.solve(chain, Target.pose(T), q)
            q = np.array(solution.q)
            rows.append(q)
            if not solution.converged:
                missed.append(i)
        self.q = np.array(rows)
        steps = np.abs(np.diff(self.q, axis=0))
        self.jumps = [int(i) for i in np.flatnonzero(steps.max(axis=1) > JUMP)]
        where = np.arange(len(self.targets)) / STEPS
        self._curves.show(where, *shares(chain.lower, chain.upper, self.q).T)
        self._text.content = self._words(steps, missed)
        self._draw_points()
        self._draw_lines(missed)

    def _words(self, steps: Float[np.ndarray, "k n"], missed: list[int]) -> str:
        names = self.page.robot.chain.joint_names
        words = [f"{len(self.waypoints)} waypoints, {len(self.targets)} targets by {self.page.solver_name}."]
        for i in self.jumps[:4]:
            j = int(np.argmax(steps[i]))
            words.append(f"**Jump** of {steps[i, j]:.2f} in {names[j]} at {i / STEPS:.2f}.")
        if len(self.jumps) > 4:
            words.append(f"And {len(self.jumps) - 4} jumps more.")
        words.append(
            f"**{len(missed)} targets are not reached**, the first at {missed[0] / STEPS:.2f}." if missed
            else "Every target is reached." if self.jumps else "Every target is reached, and no joint jumps."
        )  # fmt: skip
        return " ".join(words)

    # --- drawing ---

    def _draw_points(self) -> None:
        if len(self._handles) == len(self.waypoints):  # one of them may be under somebody's mouse
            return
        self._remove_handles()
        scene = self.page.client.scene
        for i, (T, _) in enumerate(self.waypoints):
            handle = scene.add_transform_controls(
                f"/space/waypoint_{i}", scale=0.1 * self.page.size**0.5, disable_rotations=True, depth_test=False,
                line_width=2.0, position=T[:3, 3], wxyz=wxyz(T[:3, :3]),
            )  # fmt: skip
            scene.add_label(f"/space/waypoint_{i}/name", str(i), position=(0.0, 0.0, 0.03))
            self.page.lab.listen(handle.on_update, lambda event, i=i: self._moved(i, event), key=("waypoint", i))
            self._handles.append(handle)

    def _moved(self, i: int, event: Any) -> None:
        if i < len(self.waypoints):
            T, q = self.waypoints[i]
            self.waypoints[i] = (transform(T[:3, :3], np.array(event.target.position)), q)
            self.recompute()

    def _remove_handles(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _draw_lines(self, missed: list[int]) -> None:
        scene, points = self.page.client.scene, self.targets[:, :3, 3]
        colours = np.tile(np.array(GREEN, dtype=np.uint8), (len(points) - 1, 2, 1))
        for i in missed:
            colours[max(0, i - 1) : i + 1] = ORANGE
        for i in self.jumps:
            colours[i] = RED
        self._drawn.append(scene.add_line_segments("/space/path/line", polyline(points), colours, thickness=0.006))
        if self.jumps:
            at = points[np.array(self.jumps)]
            self._drawn.append(
                scene.add_point_cloud("/space/path/jumps", at, RED, point_size=0.03, point_shape="circle",
                                      precision="float32", point_shading="flat")
            )  # fmt: skip

    def _clear_drawing(self) -> None:
        for handle in reversed(self._drawn):
            handle.remove()
        self._drawn = []

    # --- playing ---

    def toggle(self) -> None:
        """Play the path in physics, or stop."""
        if self._simulation is not None:
            self.stop()
            return
        if self._stale:
            self._solve()
        if self.q is None:
            raise InvalidArgumentError("path", "needs two waypoints before it can be played")
        self._start()

    def _start(self) -> None:
        assert self.q is not None
        from ik_sim.viewer.arm_view import Ghosts

        self.page.motion.stop()
        control = ControlSettings(position_gain=float(self._gain.value), payload=float(self._payload.value))
        self._simulation = Simulation(self.page.robot, control, q=self.q[0])
        self._steps = max(1, round(float(self._seconds.value) / STEPS * PHYSICS_RATE))
        self._ghost = self._ghost or Ghosts(self.page.client, self.page.robot, "/space/command", ORANGE, 0.35)
        self._begin = math.nan
        self._tick, self._rows = 0, []
        self._play.label = "Stop"

    def stop(self) -> None:
        """End the simulation; the arm goes back to its target."""
        if self._simulation is None:
            return
        self._simulation.close()
        self._simulation = None
        self._play.label = "Play in physics"
        if self._ghost is not None:
            self._ghost.remove()
            self._ghost = None
        self.page.arm.show(self.page.q)

    def close(self) -> None:
        """End the simulation without a word."""
        if self._simulation is not None:
            self._simulation.close()
            self._simulation = None

    def tick(self, now: float) -> None:
        """Solve what has changed, and let physics keep up with the clock."""
        if self._stale:
            self._solve()
            if self._wanted and self.q is not None:
                self._wanted = False
                self._start()
        if self._simulation is None or self.q is None:
            return
        if math.isnan(self._begin):
            self._begin = now
        seconds = self._steps / PHYSICS_RATE
        due = min(len(self.q), int((now - self._begin) / seconds) + 1, self._tick + 30)
        for i in range(self._tick, due):
            self._one(i, seconds)
        moved, self._tick = due > self._tick, due
        if moved:
            self.page.arm.show(self._simulation.q)
            self._ghost.show([self.q[due - 1]])
        if now - self._shown > 0.2 or due == len(self.q):
            self._shown = now
            self._plot()
        if due == len(self.q):
            if self._loop.value:
                self._simulation.reset(self.q[0])
                self._tick, self._begin, self._rows = 0, math.nan, []
            else:
                self._finish()

    def _one(self, i: int, seconds: float) -> None:
        """One command, its physics steps, and the three errors [mm]."""
        assert self._simulation is not None
        assert self.q is not None
        chain = self.page.robot.chain
        self._simulation.move(self.q[i], self._steps)
        target, command = self.targets[i][:3, 3], chain.fk(self.q[i])[:3, 3]
        measured = chain.fk(self._simulation.q)[:3, 3]
        pairs = ((command, target), (measured, command), (measured, target))
        solver, servo, tracking = (1000.0 * float(np.linalg.norm(a - b)) for a, b in pairs)
        self._rows.append(((i + 1) * seconds, solver, servo, tracking))

    def _plot(self) -> None:
        if len(self._rows) > 1:
            rows = np.array(self._rows)
            self._errors.show(rows[:, 0], *np.log10(np.maximum(rows[:, 1:], 1e-9)).T)

    def _finish(self) -> None:
        worst = np.max(np.array(self._rows)[:, 1:], axis=0)
        self.stop()
        self.page.lab.say(
            f"played: at the tool at most {worst[2]:.3g} mm off; of that the solver left {worst[0]:.2g} mm and the servo "
            f"{worst[1]:.3g} mm",
            "info",
            {
                "status": "played",
                "solver-mm": float(worst[0]),
                "servo-mm": float(worst[1]),
                "tracking-mm": float(worst[2]),
            },
        )


def shares(lower: Any, upper: Any, q: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k n"]:
    """Joint values between their limits: -1 at the lower, 1 at the upper; half turns where a joint has no limits."""
    bounded = np.isfinite(lower) & np.isfinite(upper)
    middle = np.where(bounded, 0.5 * (np.where(bounded, lower, 0.0) + np.where(bounded, upper, 0.0)), 0.0)
    half = np.where(bounded, 0.5 * (np.where(bounded, upper, 0.0) - np.where(bounded, lower, 0.0)), np.pi)
    return (q - middle) / np.where(half > 0.0, half, 1.0)


def _waypoints(page: Any, state: Mapping[str, Any]) -> list[Any]:
    """Waypoints from a state: twelve numbers of a pose and the joints, each; what is not that is left out."""
    chain, found = page.robot.chain, []
    given = state.get("waypoints")
    for row in given[:MOST] if isinstance(given, list) else []:
        values = numbers({"row": row}, "row", (), 12 + chain.n)
        if values:
            T = np.vstack([np.reshape(values[:12], (3, 4)), [0.0, 0.0, 0.0, 1.0]])
            found.append((Target.pose(T).T, chain.clip(values[12:])))
    return found
