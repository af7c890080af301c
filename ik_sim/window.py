"""A run in PyBullet's window: path, trace, error, sliders for speed and gain, pause and replay.

    log = watch(load_task("ur5_line"))            # the log of the last run that came to its end

Time passes as on the wall, or as the speed slider says. A gain that is moved starts the run anew: a log is of one gain.
Buttons stand below the sliders, and keys do the same: space pauses, R runs again, Q ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ik_sim.errors import IkSimError
from ik_sim.robots import Robot
from ik_sim.simulation import Simulation
from ik_sim.tasks import Task
from ik_sim.tracking import record
from ik_sim.tracking_log import Sample, TrackingLog

TARGET, MEASURED, INK = [0.0, 0.45, 0.70], [0.83, 0.27, 0.0], [0.11, 0.12, 0.14]  # as in pictures
PATH_PIECES, TRACE_PIECES = 80, 400
"""Into how many lines a path and a trace are drawn at most: each costs the window some time."""
SLOWEST_FRAMES = 1.0
"""A window that can't keep up is drawn at least this often [s], while simulated time catches up with the wall's."""
YAW = 50.0
"""Direction from which the window looks [degrees]."""
_SPACE = ord(" ")


class _Again(Exception):
    """The run is to start anew."""


class _Closed(Exception):
    """The window is to be closed."""


def watch(
    task: Task,
    robot: Robot | None = None,
    solver: Any = None,
    *,
    stay: bool = False,
    on_sample: Callable[[Sample], None] | None = None,
) -> TrackingLog:
    """Run a task in a window.

    Args:
        task: what to track.
        robot: the task's own when left out.
        solver: the task's own when left out.
        stay: keep the window after the run, until somebody closes it.
        on_sample: sees every tick as it happens.

    Returns:
        The log of the last run that came to its end.

    Raises:
        DisplayError: there is no usable display.
        IkSimError: the window was closed before any run had ended.
    """
    robot = robot or task.load_robot()
    solver = solver or task.load_solver()
    trajectory = task.trajectory(robot)
    log = None
    with Simulation(robot, task.control, q=trajectory.q_start, gui=True) as simulation:
        window = _Window(
            simulation, trajectory.targets[:, :3, 3], f"{robot.name}, {task.solver.name.replace('_', ' ')}"
        )

        def tick(sample: Sample) -> None:
            window.tick(sample)
            if on_sample is not None:
                on_sample(sample)

        try:
            while True:
                window.begin()
                try:
                    log = record(
                        replace(task, control=simulation.control), robot, solver, simulation=simulation, on_sample=tick
                    )
                    if not stay:
                        break
                    window.wait()
                except _Again:
                    continue
        except _Closed:
            pass
        except simulation.engine_error:  # what PyBullet says once its window has gone
            pass
    if log is None:
        raise IkSimError("the window was closed before the run had ended; nothing was judged")
    return log


class _Window:
    """What is drawn into the window of a simulation, and what is asked for there."""

    def __init__(self, simulation: Simulation, path: Any, title: str) -> None:
        self._simulation = simulation
        self._p: Any = simulation._p
        self._client = {"physicsClientId": simulation._client}
        p = self._p
        simulation.show(False)  # while a frame is drawn, nothing can be added
        for feature, wanted in (
            (p.COV_ENABLE_GUI, 1),
            (p.COV_ENABLE_RGB_BUFFER_PREVIEW, 0),
            (p.COV_ENABLE_DEPTH_BUFFER_PREVIEW, 0),
            (p.COV_ENABLE_SEGMENTATION_MARK_PREVIEW, 0),
            (p.COV_ENABLE_KEYBOARD_SHORTCUTS, 0),
        ):
            p.configureDebugVisualizer(feature, wanted, **self._client)
        gain = simulation.settings()["position_gain"]
        self._speed_slider = p.addUserDebugParameter(" speed", 0.1, 4.0, 1.0, **self._client)
        self._gain_slider = p.addUserDebugParameter(" position gain", 0.01, 1.0, gain, **self._client)
        self._buttons = {
            name: p.addUserDebugParameter(f" {words}", 1, 0, 0, **self._client)
            for name, words in (("pause", "pause (space)"), ("again", "run again (R)"), ("end", "end (Q)"))
        }
        self._clicks = dict.fromkeys(self._buttons, 0.0)
        self._gain = self._read(self._gain_slider, gain)
        points = self._world(path)[np.unique(np.linspace(0, len(path) - 1, PATH_PIECES + 1).astype(int))]
        for a, b in pairwise(points):
            p.addUserDebugLine(a.tolist(), b.tolist(), TARGET, 2.0, **self._client)
        frames = self._world(simulation.robot.chain.joint_frames(simulation.q_start)[:, :3, 3])
        around = np.concatenate([frames, points])
        centre = 0.5 * (around.max(axis=0) + around.min(axis=0))
        reach = 0.15 + float(np.linalg.norm(around - centre, axis=1).max())
        flat = simulation.robot.chain.family.startswith("planar")
        # Half the window's height is seen at 0.58 of the distance; panels cover its sides.
        p.resetDebugVisualizerCamera(1.9 * reach, YAW, -65.0 if flat else -22.0, centre.tolist(), **self._client)
        left, up = -np.array([np.cos(np.radians(YAW)), np.sin(np.radians(YAW)), 0.0]), np.array([0.0, 0.0, 1.0])
        high = (0.6 if flat else 0.2) * reach + float(around[:, 2].max()) - centre[2]
        self._words_at = centre + 0.8 * reach * left + high * up
        p.addUserDebugText(f" {title}", (self._words_at + 0.14 * reach * up).tolist(), INK, 1.3, **self._client)
        self._text, self._trace = -1, []
        self.begin()

    def begin(self) -> None:
        """Make ready for a run from its start."""
        for line in self._trace:
            self._p.removeUserDebugItem(line, **self._client)
        self._trace, self._last, self._ticks = [], None, 0
        self._wall = self._shown = time.perf_counter()
        self._at, self._speed = 0.0, 1.0
        self._now = 0.0

    def tick(self, sample: Sample) -> None:
        """Show a tick, and wait until it is time for the next one."""
        self._listen()
        tool = self._world(sample.T_measured[None, :3, 3])[0]
        if self._last is None:
            self._last = tool
        # Ever coarser pieces, so that a long run does not slow its window down.
        self._ticks += 1
        if self._ticks % (1 + len(self._trace) // (TRACE_PIECES // 2)) == 0 and len(self._trace) < 4 * TRACE_PIECES:
            line = self._p.addUserDebugLine(self._last.tolist(), tool.tolist(), MEASURED, 6.0, **self._client)
            self._trace.append(line)
            self._last = tool
        self._say(f"{sample.time:.2f} s   error {1e3 * sample.tracking_error[0]:.3f} mm   gain {self._gain:.3g}")
        speed = self._read(self._speed_slider, self._speed)
        if speed != self._speed:
            self._wall, self._at, self._speed = time.perf_counter(), self._now, speed
        self._now = sample.time
        ahead = self._wall + (sample.time - self._at) / self._speed - time.perf_counter()
        if ahead > 0.0 or time.perf_counter() - self._shown > SLOWEST_FRAMES:
            self._simulation.show()
            self._shown = time.perf_counter()
        while (rest := self._wall + (sample.time - self._at) / self._speed - time.perf_counter()) > 0.0:
            time.sleep(min(rest, 0.05))
            if rest > 0.05:
                self._listen()

    def wait(self) -> None:
        """Stay as it is until something is asked for."""
        self._simulation.show()
        while True:
            self._listen()
            time.sleep(0.03)

    # --- inside ---

    def _listen(self) -> None:
        """Do what was asked for: nothing, a pause, a run from the start, or the end."""
        wanted = self._asked()
        if "pause" in wanted:
            began = time.perf_counter()
            self._simulation.show()
            while "pause" not in (wanted := self._asked()) and not wanted & {"again", "end"} and not self._gain_moved():
                time.sleep(0.03)
            self._wall += time.perf_counter() - began
        if "end" in wanted:
            raise _Closed
        if self._gain_moved():
            self._gain = self._read(self._gain_slider, self._gain)
            self._simulation.set_gains(position_gain=min(max(self._gain, 0.01), 1.0))
            raise _Again
        if "again" in wanted:
            raise _Again

    def _asked(self) -> set[str]:
        if not self._p.isConnected(**self._client):
            raise _Closed
        keys = self._p.getKeyboardEvents(**self._client)
        # A short press may be over before it is asked for, and then only its end is told.
        pressed = {key for key, state in keys.items() if state & self._p.KEY_WAS_RELEASED}
        wanted = {name for key, name in ((_SPACE, "pause"), (ord("r"), "again"), (ord("q"), "end")) if key in pressed}
        for name, button in self._buttons.items():
            clicks = self._read(button, self._clicks[name])
            if clicks != self._clicks[name]:
                self._clicks[name] = clicks
                wanted.add(name)
        return wanted

    def _gain_moved(self) -> bool:
        return abs(self._read(self._gain_slider, self._gain) - self._gain) > 1e-3

    def _read(self, parameter: int, before: float) -> float:
        """Where a slider stands; where it stood before, while the window is too busy to answer."""
        try:
            return float(self._p.readUserDebugParameter(parameter, **self._client))
        except self._simulation.engine_error:
            if not self._p.isConnected(**self._client):
                raise _Closed from None
            return before

    def _say(self, words: str) -> None:
        more = {} if self._text < 0 else {"replaceItemUniqueId": self._text}
        self._text = self._p.addUserDebugText(f" {words}", self._words_at.tolist(), INK, 1.3, **more, **self._client)

    def _world(self, points: Any) -> Any:
        """Points of the chain's base in the world's axes."""
        T = self._simulation.link_pose(self._simulation.robot.chain.base_link)
        return np.asarray(points) @ T[:3, :3].T + T[:3, 3]
