"""The planar bench in a real browser: clicks, drags and keys, and the numbers on the page against the solvers' own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ik_sim.viewer import state as lab_state
from ik_sim.viewer.planar import METHODS, PlanarLab
from ik_sim.viewer.planar_frame import COLOURS
from ik_sim.viewer.planar_lessons import LESSONS
from ik_sim.viewer.server import LabServer

pytestmark = pytest.mark.browser

_spec = importlib.util.spec_from_file_location("viewer_browser", Path(__file__).with_name("test_viewer_browser.py"))
assert _spec is not None
assert _spec.loader is not None
harness: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(harness)
server, browser = harness.server, harness.browser
shown, until, choose, floats = harness.shown, harness.until, harness.choose, harness.floats


@pytest.fixture
def opened(server: LabServer, browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a lesson at a size, and waits for its numbers."""
    pages = []

    def open_page(
        name: str, size: tuple[int, int] = (1280, 720), dark: bool = False, sharp: float = 0.2, **state: Any
    ) -> Any:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        pages.append(page)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        start = {"page": "planar", "dark": dark, "state": {"lesson": name, **LESSONS[name].state, **state}}
        page.set_default_timeout(harness.PATIENCE)
        socket = server.address.replace("http", "ws")
        page.goto(f"{server.address}/?fixedDpr={sharp}&websocket={socket}/{lab_state.to_link(start)}")
        until(page, lambda d: "q" in d)
        page.wait_for_timeout(1500)  # the picture comes after the words
        return page

    yield open_page
    for page in pages:
        assert page.errors == []
        page.close()


def place(page: Any, server: LabServer, point: Any) -> Any:
    """Where a point of the bench is on the page [pixels]."""
    lab = harness.lab_of(server)
    x, y = (np.asarray(point) + lab.page._offset) * lab.page._scale
    return harness.pixel(page, lab.client, [x, y, 0.0])


def press(page: Any, name: str) -> None:
    """A click of the mouse on a button, without waiting for a picture in which nothing moves."""
    page.get_by_role("button", name=name, exact=True).click(force=True)


def test_click_step_method_preset_and_reset_show_the_solvers_numbers(server: LabServer, opened: Any) -> None:
    page = opened("passes")
    page.mouse.click(*place(page, server, [-1.0, 1.7]))
    status = until(page, lambda d: d["target"] != "1.2 1.5")
    target = floats(status["target"])
    np.testing.assert_allclose(target, [-1.0, 1.7], atol=0.02)  # a pixel is 0.011
    lab = PlanarLab.from_dict(LESSONS["passes"].state)
    lab.set_target(target)
    for phase in ("backward", "forward"):
        press(page, "Step")
        lab.step()
        status = until(page, lambda d, phase=phase: d["phase"] == phase)
        np.testing.assert_array_equal(floats(status["q"]), lab.angles())
        assert float(status["miss"]) == lab.misses()[0]
    press(page, "Solve")
    lab.solve()
    status = until(page, lambda d: d["state"] == "reached")
    assert (status["kind"], int(status["iteration"])) == ("ok", lab.iteration())
    np.testing.assert_array_equal(floats(status["q"]), lab.angles())
    choose(page, "Method", METHODS["ccd"])
    until(page, lambda d: d["method"] == "ccd")
    lab.set(method="ccd", shown=("ccd",))
    press(page, "Solve")
    lab.solve()
    status = until(page, lambda d: d["state"] == "reached")
    np.testing.assert_array_equal(floats(status["q"]), lab.angles())
    assert page.locator('#planar-methods tr[data-method="ccd"]').get_attribute("data-iterations") == str(
        lab.iteration()
    )
    page.get_by_role("tab", name="Numbers").click(force=True)
    assert f"{lab.jacobian()[0, 0]:.3f}" in page.inner_text("#planar-numbers")

    choose(page, "Preset", LESSONS["deadlock"].title)
    until(page, lambda d: d["target"] == "1.5 0.0")
    press(page, "Solve")
    status = until(page, lambda d: d["state"] == "stalled")
    assert status["kind"] == "bad"
    assert "in line with the target" in status["text"]
    press(page, "Cure: Bend by 0.1 rad first")
    until(page, lambda d: d["iteration"] == "0")
    press(page, "Solve")
    until(page, lambda d: d["state"] == "reached")
    page.mouse.click(300, 700)  # keys go to the page, not to a button; this one is a new target as well
    until(page, lambda d: d["target"] != "1.5 0.0")
    page.keyboard.press("r")
    status = until(page, lambda d: d["target"] == "1.5 0.0")
    assert status["iteration"] == "0"
    np.testing.assert_array_equal(floats(status["q"]), 0.0)


def test_dragging_an_arrow_of_the_target_moves_it_along_and_the_arm_follows(server: LabServer, opened: Any) -> None:
    page = opened("passes", bench={"follow": True})
    lab = harness.lab_of(server)
    reach = 0.13 / lab.page._scale  # well out on the arrow, which is 0.17 long
    start, end = place(page, server, [1.2 + reach, 1.5]), place(page, server, [0.2 + reach, 1.5])
    page.mouse.move(*start)
    page.wait_for_timeout(300)
    page.mouse.down()
    for share in np.linspace(0.0, 1.0, 6)[1:]:
        page.mouse.move(*(start + share * (end - start)))
        page.wait_for_timeout(100)
    page.mouse.up()
    status = until(page, lambda d: d["state"] == "reached" and d["running"] == "false")
    x, y = floats(status["target"])
    assert y == pytest.approx(1.5, abs=1e-4)
    assert x == pytest.approx(0.2, abs=0.06)
    tip = lab.page.bench.skeleton.pose(floats(status["q"]))[-1]
    assert np.linalg.norm(tip - [x, y]) <= 1.01e-4


def test_sines_move_the_arm_and_the_way_of_its_tip_is_seen(server: LabServer, opened: Any) -> None:
    page = opened("passes", sharp=1.0)
    assert shown(page)["moving"] == "false"
    page.get_by_role("tab", name="Motion").click(force=True)
    for label, value in (("Amplitude [deg]", "60"), ("Frequency [Hz]", "0.25")):
        box = harness.control(page, label)
        box.fill(value)
        box.press("Enter")
    lab = harness.lab_of(server)
    until(page, lambda d: np.allclose((lab.page.motion.amplitude[0], lab.page.motion.frequency[0]), (np.pi / 3, 0.25)))
    page.mouse.click(300, 700)  # keys go to the page, not to a control
    page.keyboard.press("0")
    until(page, lambda d: d["moving"] == "true" and "follow their sines" in d["text"])
    status = until(page, lambda d: floats(d["q"])[0] > 0.3 + 0.9 * np.pi / 3)
    np.testing.assert_allclose(floats(status["q"])[1:], [-0.5, 0.8], atol=1e-9)
    until(page, lambda d: floats(d["q"])[0] < 0.3 - 0.9 * np.pi / 3)
    page.keyboard.press("0")
    until(page, lambda d: d["moving"] == "false")
    page.wait_for_timeout(2500)
    trace, image = lab.page.bench.trace, harness.picture(page)
    x, y = np.round(place(page, server, trace[len(trace) // 4])).astype(int)
    wanted = np.array([int(COLOURS["light"]["trace"][i : i + 2], 16) for i in (1, 3, 5)])
    spot = image[y - 4 : y + 5, x - 4 : x + 5].reshape(-1, 3)
    assert np.abs(spot - wanted).sum(axis=1).min() < 90


@pytest.mark.parametrize(("size", "dark"), [((1280, 720), False), ((1280, 720), True), ((820, 1180), False)])
def test_the_bench_is_in_sight_and_its_colours_say_how_it_stands(
    server: LabServer, opened: Any, size: tuple[int, int], dark: bool
) -> None:
    page = opened("passes", size=size, dark=dark, sharp=1.0)
    bench = harness.lab_of(server).page.bench
    for act, role in ((None, "solving"), ("Solve", "reached")):
        if act:
            press(page, act)
            until(page, lambda d, role=role: d["state"] == role)
            page.wait_for_timeout(1000)
        image = harness.picture(page)
        points = bench.points()
        x, y = np.round(place(page, server, 0.5 * (points[0] + points[1]))).astype(int)
        spot = image[y - 2 : y + 3, x - 2 : x + 3].reshape(-1, 3)  # on the first link, four pixels wide at least
        colours = {
            name: [int(text[i : i + 2], 16) for i in (1, 3, 5)]
            for name, text in COLOURS["dark" if dark else "light"].items()
            if name in ("solving", "reached", "unreachable", "ink", "ground", "reach", "ghost")
        }
        # The browser's tone mapping bends colours a little: which of them is nearest to each pixel?
        seen = [min(colours, key=lambda name, p=p: np.abs(p - colours[name]).sum()) for p in spot]
        assert seen.count(role) > len(seen) / 2
    panel = page.locator("#lab-status").bounding_box()
    assert panel is not None
    assert panel["x"] + panel["width"] <= size[0]
    for angle in np.linspace(0.0, 2 * np.pi, 12):  # the outer circle is all in sight
        x, y = place(page, server, 3.0 * np.array([np.cos(angle), np.sin(angle)]))
        assert 0 < y < size[1]
        assert 0 < x < panel["x"]
