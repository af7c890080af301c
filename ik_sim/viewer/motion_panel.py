"""Joints as sinusoids of time, and the trace that the tool leaves: q_i(t) = middle + amplitude · sin(2π f t + phase)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.viewer.drawings import polyline
from ik_sim.viewer.state import flag, numbers

LONGEST = 1500
"""Points of a trace."""
CALM = 0.15
"""Between two looks at the numbers and the trace [s]; the arm itself moves at every tick."""


def sines(
    middle: Float[np.ndarray, "n"],
    amplitude: Float[np.ndarray, "n"],
    frequency: Float[np.ndarray, "n"],
    phase: Float[np.ndarray, "n"],
    time: float,
) -> Float[np.ndarray, "n"]:
    """Joint values at a time [s]: frequencies in Hz, phases in rad."""
    return middle + amplitude * np.sin(2.0 * np.pi * frequency * time + phase)


class MotionPanel:
    """The tab Motion of the page for an arm in space."""

    def __init__(self, page: Any, state: Mapping[str, Any]) -> None:
        self.page = page
        chain, gui, listen = page.robot.chain, page.client.gui, page.lab.listen
        zeros, n = [0.0] * chain.n, chain.n
        self.amplitude = np.clip(np.array(numbers(state, "amplitude", zeros, n)), 0.0, 2.0 * math.pi)
        self.frequency = np.clip(np.array(numbers(state, "frequency", [0.2] * n, n)), 0.0, 5.0)
        self.phase = np.array(numbers(state, "phase", zeros, n))
        self.middle = page.q.copy()
        self.running = flag(state, "moving", False)
        self._begin, self._shown = math.nan, -math.inf
        self._trail: list[Any] = []
        self._line: Any = None
        self._run = gui.add_checkbox("Move", self.running, hint="About the posture the arm has now. Key: 3")
        listen(self._run.on_update, lambda _: self._set(self._run.value))
        self._joint = gui.add_dropdown("Joint", chain.joint_names)
        listen(self._joint.on_update, lambda _: self._show())
        self._sliders = (
            gui.add_slider("Amplitude [deg]", 0.0, 180.0, 1.0, 0.0),
            gui.add_slider("Frequency [Hz]", 0.0, 2.0, 0.01, 0.2),
            gui.add_slider("Phase [deg]", -180.0, 180.0, 1.0, 0.0),
        )
        for slider in self._sliders:
            listen(slider.on_update, lambda _: self._changed())
        self._trace = gui.add_checkbox("Trace of the tool", flag(state, "trace", True))
        listen(self._trace.on_update, lambda _: self._draw())
        clear = gui.add_button("Clear the trace")
        listen(clear.on_click, lambda _: self.clear())
        self._table = gui.add_markdown("")
        self._show()

    def state(self) -> dict[str, Any]:
        """What of the page's state is the motion's."""
        found = {
            "amplitude": self.amplitude.tolist(), "frequency": self.frequency.tolist(), "phase": self.phase.tolist(),
            "moving": self.running, "trace": self._trace.value,
        }  # fmt: skip
        return {**found, **({"q": self.middle.tolist()} if self.running else {})}

    def toggle(self) -> None:
        """Start or stop."""
        self._run.value = not self.running
        self._set(not self.running)

    def stop(self) -> None:
        """Hold still."""
        if self.running:
            self._run.value = False
            self._set(False)

    def clear(self) -> None:
        """Forget the trace."""
        self._trail = []
        self._draw()

    def tick(self, now: float) -> None:
        """Move the joints."""
        if not self.running:
            return
        if math.isnan(self._begin):
            self._begin = now
            self.page.path.stop()
        t = now - self._begin
        chain = self.page.robot.chain
        wanted = sines(self.middle, self.amplitude, self.frequency, self.phase, t)
        q = chain.clip(wanted)
        cut = [name for name, a, b in zip(chain.joint_names, wanted, q, strict=True) if abs(a - b) > 1e-9]
        self.page.arm.show(q)
        self._trail = [*self._trail[1 - LONGEST :], chain.fk(q)[:3, 3]]
        if now - self._shown > CALM:
            self._shown = now
            self.page.pose(q, f"t = {t:.1f} s" + (f"; held at a limit: {', '.join(cut)}" if cut else ""))
            self._draw()

    def _set(self, running: bool) -> None:
        if running:
            self.middle, self._begin = self.page.q.copy(), math.nan
        self.running = running

    def _index(self) -> int:
        return self.page.robot.chain.joint_names.index(self._joint.value)

    def _show(self) -> None:
        i = self._index()
        values = (math.degrees(self.amplitude[i]), self.frequency[i], math.degrees(self.phase[i]))
        for slider, value in zip(self._sliders, values, strict=True):
            slider.value = float(np.clip(value, slider.min, slider.max))
        rows = [
            f"| {name} | {math.degrees(a):.0f} | {f:.2f} | {math.degrees(p):.0f} |"
            for name, a, f, p in zip(
                self.page.robot.chain.joint_names, self.amplitude, self.frequency, self.phase, strict=True
            )
        ]
        self._table.content = "\n".join(["| joint | deg | Hz | phase |", "|---|---|---|---|", *rows])

    def _changed(self) -> None:
        i = self._index()
        a, f, p = (float(slider.value) for slider in self._sliders)
        self.amplitude[i], self.frequency[i], self.phase[i] = math.radians(a), f, math.radians(p)
        self._show()

    def _draw(self) -> None:
        if len(self._trail) < 2 or not self._trace.value:
            if self._line is not None:
                self._line.remove()
                self._line = None
            return
        segments = polyline(np.array(self._trail))
        if self._line is None:
            self._line = self.page.client.scene.add_line_segments(
                "/space/trace", segments, (156, 89, 201), thickness=0.006
            )
        else:
            self._line.points = segments.astype(np.float32)
