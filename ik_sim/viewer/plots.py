"""Curves in a tab's panel."""

from __future__ import annotations

from typing import Any

import numpy as np

COLOURS = ("#3a78c8", "#e8890c", "#2f9e44", "#e03131", "#9c59c9", "#0e9aa7", "#b08900", "#7a7f87")


class Plot:
    """A chart whose curves are replaced as a whole.

    Args:
        gui: where viser's controls are added.
        title: above the chart.
        names: of the curves.
        x: what is to the right.
        y: what is upwards.
        dark: light lines on a dark ground.
        limits: a fixed range upwards.
    """

    def __init__(
        self, gui: Any, title: str, names: tuple[str, ...], *, x: str, y: str, dark: bool, height: int = 210,
        limits: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        ink, line = ("#c9cdd2", "#454a50") if dark else ("#444950", "#e3e6ea")
        axis = {"stroke": ink, "grid": {"stroke": line, "width": 1}, "ticks": {"stroke": line, "width": 1}}
        series = [{"label": x}]
        for i, name in enumerate(names):
            series.append({"label": name, "stroke": COLOURS[i % len(COLOURS)], "width": 2})  # type: ignore[dict-item]
        nothing = tuple(np.array([0.0, 1.0]) for _ in range(1)) + tuple(np.full(2, np.nan) for _ in names)
        y_scale: dict[str, Any] = {"range": limits} if limits is not None else {}
        self._handle: Any = gui.add_uplot(
            nothing, tuple(series), title=title, height=height, scales={"x": {"time": False}, "y": y_scale},
            axes=({**axis, "label": x, "labelSize": 18, "size": 30}, {**axis, "label": y, "labelSize": 18, "size": 42}),
            legend={"show": True},
        )  # fmt: skip
        self._count = len(names)

    def show(self, x: Any, *curves: Any) -> None:
        """Draw these curves; NaN leaves a gap."""
        assert len(curves) == self._count
        if len(x) == 0:
            x, curves = np.array([0.0, 1.0]), tuple(np.full(2, np.nan) for _ in curves)
        self._handle.data = (np.asarray(x, dtype=float), *(np.asarray(c, dtype=float) for c in curves))
