"""Joints as sinusoids of time, and the trace that the tool leaves: q_i(t) = middle + amplitude · sin(2π f t + phase)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import viser
from jaxtyping import Float

from ik_sim.chain import Chain
from ik_sim.errors import IkSimError
from ik_sim.viewer.lab import Lab
from ik_sim.viewer.state import flag, numbers

LONGEST = 1500
"""Points of a trace."""
CALM = 0.15
"""Between two looks at the numbers and the trace [s]; the arm itself moves at every tick."""

_NONE = ("-",)
"""Instead of names, where there is no single arm to move."""


def sines(
    middle: Float[np.ndarray, "n"],
    amplitude: Float[np.ndarray, "n"],
    frequency: Float[np.ndarray, "n"],
    phase: Float[np.ndarray, "n"],
    time: float,
) -> Float[np.ndarray, "n"]:
    """Joint values at a time [s]: frequencies in Hz, phases in rad."""
    return middle + amplitude * np.sin(2.0 * np.pi * frequency * time + phase)


@runtime_checkable
class Moved(Protocol):
    """A page whose arm is moved by sines."""

    client: viser.ClientHandle
    lab: Lab

    def moved_chain(self) -> Chain:
        """What is moved now.

        Raises:
            IkSimError: nothing that could be.
        """
        ...

    def posture(self) -> Float[np.ndarray, "n"]:
        """Where the joints are."""
        ...

    def begin_motion(self) -> None:
        """Hold whatever else moves the arm."""
        ...

    def move_joints(self, q: Float[np.ndarray, "n"], note: str) -> None:
        """Draw the arm there; say `note` about it where there is one."""
        ...

    def show_trace(self, points: Float[np.ndarray, "k 3"]) -> None:
        """Draw the way of the tool; no points: take it away."""
        ...


class MotionPanel:
    """The tab Motion of a page. `most` is the number of joints for which there is room, `key` the one that starts it."""

    def __init__(self, page: Moved, state: Mapping[str, Any], most: int, key: str) -> None:
        self.page = page
        self._names = self._joints()
        gui, listen = page.client.gui, page.lab.listen
        zeros = [0.0] * most
        self.amplitude = np.clip(np.array(numbers(state, "amplitude", zeros, most)), 0.0, 2.0 * math.pi)
        self.frequency = np.clip(np.array(numbers(state, "frequency", [0.2] * most, most)), 0.0, 5.0)
        self.phase = np.array(numbers(state, "phase", zeros, most))
        self.middle = page.posture()
        self.running = flag(state, "moving", False) and self._names != _NONE
        self._begin, self._shown = math.nan, -math.inf
        self._last: tuple[Float[np.ndarray, "n"], str] | None = None
        self._trail: list[Any] = []
        self._run = gui.add_checkbox("Move", self.running, hint=f"About the posture the arm has now. Key: {key}")
        listen(self._run.on_update, lambda _: self._set(self._run.value))
        self._joint = gui.add_dropdown("Joint", self._names)
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
            self.page.begin_motion()
        t, chain = now - self._begin, self.page.moved_chain()
        n = chain.n
        wanted = sines(self.middle, self.amplitude[:n], self.frequency[:n], self.phase[:n], t)
        q = chain.clip(wanted)
        cut = [name for name, a, b in zip(chain.joint_names, wanted, q, strict=True) if abs(a - b) > 1e-9]
        self._trail = [*self._trail[1 - LONGEST :], chain.fk(q)[:3, 3]]
        look = now - self._shown > CALM
        note = f"t = {t:.1f} s" + (f"; held at a limit: {', '.join(cut)}" if cut else "")
        self._last = q, note
        self.page.move_joints(q, note if look else "")
        if look:
            self._shown = now
            self._draw()

    def refresh(self) -> None:
        """Show the joints that the arm has now."""
        names = self._joints()
        if names != self._names:
            self._names = self._joint.options = names
            self._show()

    def _joints(self) -> tuple[str, ...]:
        try:
            return tuple(self.page.moved_chain().joint_names)
        except IkSimError:
            return _NONE

    def _set(self, running: bool) -> None:
        if running:
            try:
                self.middle, self._begin = self.page.moved_chain().clip(self.page.posture()), math.nan
                self._last = None
            except IkSimError:
                self._run.value = False
                raise
        ended, self.running = self.running and not running, running
        if ended and self._last is not None:
            self.page.move_joints(*self._last)  # all that is shown about the arm is of where it was left

    def _index(self) -> int:
        return self._names.index(self._joint.value)

    def _show(self) -> None:
        i = self._index()
        values = (math.degrees(self.amplitude[i]), self.frequency[i], math.degrees(self.phase[i]))
        for slider, value in zip(self._sliders, values, strict=True):
            slider.value = float(np.clip(value, slider.min, slider.max))
        rows = [
            f"| {name} | {math.degrees(a):.0f} | {f:.2f} | {math.degrees(p):.0f} |"
            for name, a, f, p in zip(self._names, self.amplitude, self.frequency, self.phase, strict=False)
        ]
        self._table.content = "\n".join(["| joint | deg | Hz | phase |", "|---|---|---|---|", *rows])

    def _changed(self) -> None:
        i = self._index()
        a, f, p = (float(slider.value) for slider in self._sliders)
        self.amplitude[i], self.frequency[i], self.phase[i] = math.radians(a), f, math.radians(p)
        self._show()

    def _draw(self) -> None:
        seen = self._trail if self._trace.value and len(self._trail) > 1 else []
        self.page.show_trace(np.array(seen).reshape(-1, 3))
