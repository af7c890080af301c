"""The lab in a real browser: headless Chromium drags, clicks and types; numbers on the page against the solvers' own."""

from __future__ import annotations

import asyncio
import io
import itertools
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from ik_sim import all_solutions, load_robot, load_solver
from ik_sim.target import Target
from ik_sim.viewer import state as lab_state
from ik_sim.viewer.server import LabServer

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# No graphics card is needed: WebGL is drawn by the processor. The rest keeps the browser from calling home.
ARGUMENTS = (
    "--no-sandbox --disable-gpu --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader --disable-quic "
    "--no-first-run --disable-background-networking --disable-component-update --disable-sync"
).split()
UR5, IIWA = load_robot("ur5"), load_robot("iiwa14")
RELAXED = [0.3, 0.7, 0.4, -1.5, 0.2, 1.0, 0.0]
PATIENCE = 120_000  # [ms] for a page that may wait for a kernel to be compiled


@pytest.fixture(scope="module")
def server() -> Iterator[LabServer]:
    with LabServer(port=0) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next(found for found in map(shutil.which, BROWSERS) if found)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(server: LabServer, browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens the lab in a state, at a size, and waits for the solver's first answer."""
    pages = []

    def open_page(size: tuple[int, int] = (1280, 720), dark: bool = False, sharp: float = 0.2, **state: Any) -> Any:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, accept_downloads=True)
        pages.append(page)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        start = {"page": "spatial", "dark": dark, "state": {"robot": "ur5", **state}}
        socket = server.address.replace("http", "ws")
        page.set_default_timeout(PATIENCE)
        # Few pixels of the scene for each of the page: without a graphics card they cost most of the time.
        page.goto(f"{server.address}/?fixedDpr={sharp}&websocket={socket}/{lab_state.to_link(start)}")
        until(page, lambda d: d.get("status") not in (None, "joints"))
        return page

    yield open_page
    for page in pages:
        assert page.errors == []
        page.close()


def shown(page: Any) -> dict[str, str]:
    """The status line's data attributes, and what it says."""
    return page.evaluate(
        """() => {
            const line = document.getElementById("lab-status");
            if (!line) return {};
            const found = {text: line.innerText};
            for (const a of line.attributes) if (a.name.startsWith("data-")) found[a.name.slice(5)] = a.value;
            return found;
        }"""
    )


def until(page: Any, what: Callable[[dict[str, str]], Any], seconds: float = PATIENCE / 1000) -> dict[str, str]:
    """Wait until the status line is as wanted, and return it."""
    end = time.monotonic() + seconds
    while True:
        status = shown(page)
        if status and what(status):
            return status
        assert time.monotonic() < end, f"the page says {status}"
        page.wait_for_timeout(50)


def floats(text: str) -> np.ndarray:
    return np.array([float(x) for x in text.split()])


def control(page: Any, label: str) -> Any:
    """The input that belongs to a label."""
    return page.get_by_text(label, exact=True).first.locator("xpath=following::input[not(@type='hidden')][1]")


def choose(page: Any, label: str, option: str) -> None:
    control(page, label).click()
    page.get_by_role("option", name=option, exact=True).click()


def lab_of(server: LabServer) -> Any:
    """The server's side of the tab that was opened last."""
    return server.labs[max(server.labs)]


def pixel(page: Any, client: Any, point: Any) -> np.ndarray:
    """Where a point of the scene is on the page."""
    camera = client.camera
    w, x, y, z = camera.wxyz
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    p = R.T @ (np.asarray(point) - camera.position)
    focal = 0.5 * camera.image_height / math.tan(0.5 * camera.fov)
    scene = focal * p[:2] / p[2] + 0.5 * np.array([camera.image_width, camera.image_height])
    return scene * page.viewport_size["height"] / camera.image_height


def picture(page: Any) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)


def test_dragging_an_arrow_of_the_gizmo_moves_the_arm_as_the_solver_says(server: LabServer, opened: Any) -> None:
    page = opened(solver="levenberg_marquardt")
    lab = lab_of(server)
    before = shown(page)
    scale, T = lab.page._gizmo.scale, lab.page.T.copy()
    seed, axis = floats(before["q"]), 2  # the blue arrow, which lies across the view
    page.wait_for_timeout(3000)  # the picture comes after the words
    for reach in (0.9, 0.7, 0.55):
        # Anew each time: a miss turns the camera.
        start = pixel(page, lab.client, T[:3, 3] + reach * scale * T[:3, axis])
        along = start - pixel(page, lab.client, T[:3, 3])
        page.mouse.move(*start)
        page.wait_for_timeout(500)
        page.mouse.down()
        for share in np.linspace(0.1, 1.0, 10):
            page.mouse.move(*(start + share * 60.0 * along / np.linalg.norm(along)))
            page.wait_for_timeout(30)
        page.mouse.up()
        for _ in range(40):
            page.wait_for_timeout(250)
            if shown(page)["target"] != before["target"]:
                break
        else:
            continue
        break
    page.wait_for_timeout(2000)
    lab.settle()
    page.wait_for_timeout(500)
    after = shown(page)
    moved = floats(after["target"]) - T[:3, 3]
    assert moved @ T[:3, axis] > 0.02  # the way the mouse went
    q = floats(after["q"])
    goal = lab.page.T
    np.testing.assert_allclose(UR5.chain.fk(q), goal, atol=2e-6)
    own = load_solver("levenberg_marquardt").solve(UR5.chain, Target.pose(goal), seed)
    np.testing.assert_allclose(q, own.q, atol=1e-4)  # the page came there in steps
    assert float(after["position-error"]) < 1e-6
    assert int(control(page, "x y z [m]").count()) == 1
    assert float(control(page, "x y z [m]").input_value()) == pytest.approx(goal[0, 3], abs=6e-5)


def test_solver_preset_reset_and_keys(server: LabServer, opened: Any) -> None:
    page = opened(T=UR5.chain.fk(UR5.q_home + 0.2)[:3].ravel().tolist())
    target = Target.pose(UR5.chain.fk(UR5.q_home + 0.2))
    choose(page, "Solver", "damped_least_squares")
    status = until(page, lambda d: d.get("solver") == "damped_least_squares")
    assert load_solver("damped_least_squares").solve(UR5.chain, target, floats(status["q"])).converged
    choose(page, "Preset", "Limits in the way")
    status = until(page, lambda d: d.get("status") == "joint_limits")
    own = load_solver("closed_form").solve(IIWA.chain, Target.pose(lab_of(server).page.T), IIWA.q_home)
    assert status["kind"] == "bad"
    assert own.reason in status["text"]
    np.testing.assert_allclose(floats(status["q"]), own.q, atol=1e-8)
    page.mouse.click(300, 60)  # keys go to the page, not to the list
    page.keyboard.press("o")
    until(page, lambda d: d.get("target", "").endswith("0.51"))
    page.keyboard.press("r")
    until(page, lambda d: d.get("target") == status["target"] and d.get("status") == "joint_limits")


def test_the_arm_angle_slider_turns_the_elbow_by_its_keys(server: LabServer, opened: Any) -> None:
    page = opened(robot="iiwa14", q=RELAXED)
    page.get_by_role("tab", name="Branches").click()
    T = IIWA.chain.fk(np.array(RELAXED))
    box = control(page, "Arm angle [deg]")
    box.click()
    box.fill("20")
    box.press("Enter")
    status = until(page, lambda d: d.get("arm-angle") == "20.0")
    q = floats(status["q"])
    np.testing.assert_allclose(IIWA.chain.fk(q), T, atol=1e-7)
    there = all_solutions(IIWA.chain, Target.pose(T), np.array(RELAXED), arm_angle=math.radians(20.0))
    assert min(np.abs(s.q - q).max() for s in there) < 1e-6
    page.mouse.click(300, 60)
    page.keyboard.press("9")
    status = until(page, lambda d: abs(float(d.get("arm-angle", "0")) - 22.0) < 0.11)
    np.testing.assert_allclose(IIWA.chain.fk(floats(status["q"])), T, atol=1e-7)
    assert "Legal arm angles" in page.inner_text("#lab-arcs")


def test_two_tabs_and_a_connection_that_breaks(server: LabServer, opened: Any) -> None:
    one, two = opened(), opened(robot="iiwa14")
    one.bring_to_front()
    choose(one, "Solver", "levenberg_marquardt")
    until(one, lambda d: d.get("solver") == "levenberg_marquardt")
    assert shown(two)["robot"] == "iiwa14"
    assert shown(two)["solver"] == "auto"
    one.mouse.click(300, 60)
    one.keyboard.press("o")
    before = until(one, lambda d: float(d["target"].split()[2]) > UR5.chain.fk(UR5.q_home)[2, 3] + 0.005)
    sockets = server.viser._websock_server._live_connections
    loop = server.viser._event_loop
    first = sorted(server.labs)[-2]
    labs = set(server.labs)
    asyncio.run_coroutine_threadsafe(sockets[first].close(), loop).result(10.0)  # as when a network fails
    end = time.monotonic() + 60.0
    while not set(server.labs) - labs:
        assert time.monotonic() < end
        one.wait_for_timeout(100)
    after = until(one, lambda d: d.get("status") == "converged" and d.get("target") == before["target"])
    assert after["solver"] == "levenberg_marquardt"
    assert shown(two)["robot"] == "iiwa14"


def test_a_saved_preset_is_uploaded_again_and_a_film_shows_the_arm_move(opened: Any, tmp_path: Path) -> None:
    page = opened(robot="iiwa14", q=RELAXED, solver="levenberg_marquardt", amplitude=[1.0] + 6 * [0.0])
    before = shown(page)
    page.get_by_text("Share, save, film").click(force=True)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as preset file").click()
    preset = tmp_path / saved.value.suggested_filename
    saved.value.save_as(preset)
    read = lab_state.read_preset(preset)
    assert (read["page"], read["state"]["robot"], read["state"]["solver"]) == (
        "spatial", "iiwa14", "levenberg_marquardt",
    )  # fmt: skip

    choose(page, "Preset", "Limits in the way")
    until(page, lambda d: d.get("status") == "joint_limits")
    page.locator("input[type=file]").set_input_files(preset)
    after = until(page, lambda d: d.get("solver") == "levenberg_marquardt")
    assert after["robot"] == before["robot"]
    np.testing.assert_allclose(floats(after["target"]), floats(before["target"]), atol=1e-9)
    np.testing.assert_allclose(floats(after["q"]), floats(before["q"]), atol=1e-9)

    other = tmp_path / "other.json"
    other.write_text('{"format": "another"}')
    page.locator("input[type=file]").set_input_files(other)
    until(page, lambda d: "is not a state of the lab" in d.get("text", ""))

    page.mouse.click(300, 60)
    page.keyboard.press("3")  # sines
    until(page, lambda d: d.get("status") == "joints")
    with page.expect_download() as filmed:
        page.keyboard.press("f")
    film = tmp_path / "film.gif"
    filmed.value.save_as(film)
    with Image.open(film) as gif:
        frames = [np.asarray(frame.convert("RGB")).astype(int) for frame in ImageSequence.Iterator(gif)]
        assert (gif.format, gif.info["loop"]) == ("GIF", 0)
    assert len(frames) > 3
    moved = [float((np.abs(a - b).sum(axis=2) > 60).mean()) for a, b in itertools.pairwise(frames)]
    assert max(moved) > 0.002  # the arm is in the picture, and moves
    assert max(moved) < 0.4  # and the rest stands still


@pytest.mark.parametrize(("size", "dark"), [((1280, 720), False), ((1280, 720), True), ((820, 1180), False)])
def test_the_page_is_readable(opened: Any, size: tuple[int, int], dark: bool) -> None:
    page = opened(size=size, dark=dark, sharp=0.5, branches=True)
    page.wait_for_timeout(1000)
    box = page.locator("#lab-status").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["x"] + box["width"] <= size[0]
    assert box["y"] + box["height"] <= size[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    image = picture(page)
    ground = image[5, size[0] // 3]
    assert (ground.mean() < 60) == dark
    ink = np.abs(image - ground).sum(axis=2) > 120
    # The arm and its ghosts are in sight, beside the panel.
    assert ink[size[1] // 4 :, size[0] // 8 : size[0] // 2].mean() > 0.01
