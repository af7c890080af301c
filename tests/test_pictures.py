"""Pictures: what is in them, that it is in view, and that they are the same everywhere."""

import hashlib
import logging
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ik_sim import pictures, stage
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.pictures import CAMERAS, Studio, arm_points, camera, frame
from ik_sim.robots import load_robot
from ik_sim.stage import Stage

UR5, IIWA, PLANAR3 = load_robot("ur5"), load_robot("iiwa14"), load_robot("planar3")
ROBOTS = [UR5, IIWA, PLANAR3]
GOLDEN = Path(__file__).parent / "data" / "golden"


def motion(robot, count: int = 9):
    """Times, joint values and tool positions of a short motion."""
    shares = np.linspace(0.0, 1.0, count)
    q = robot.q_home + 0.3 * shares[:, None] * np.where(np.arange(robot.chain.n) % 2, -1.0, 1.0)
    return shares, q, robot.chain.fk_batch(q)[:, :3, 3]


def studio(robot, *, ghost: float | None = None, size=(160, 120), **more) -> Studio:
    times, q, path = motion(robot)
    command = None if ghost is None else q + ghost
    return Studio(robot, times, q, command, path, size=size, renderer="tiny", smooth=1, **more)


# --- cameras ---


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: robot.name)
@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("aspect", [16 / 9, 0.6])
def test_every_preset_has_the_whole_arm_and_path_in_its_picture(robot, name, aspect):
    _, q, path = motion(robot)
    size = (round(400 * aspect), 400)
    points = np.concatenate([arm_points(robot, q), path])
    pixels = camera(name, robot, q, path, size[0] / size[1]).pixels(points, size)
    assert pixels.min() > 0.0
    assert pixels[:, 0].max() < size[0]
    assert pixels[:, 1].max() < size[1]


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: robot.name)
@pytest.mark.parametrize("name", CAMERAS)
def test_no_part_of_the_arm_is_cut_off_at_a_border(robot, name):
    with studio(robot, view=name, headroom=0.1) as s:
        for q in s.q_measured[::4]:
            s.stage.pose(q)
            body = s._look().body
            assert (body == 0).any()
            assert not (body[[0, -1]] == 0).any()
            assert not (body[:, [0, -1]] == 0).any()
            assert not (body[:12] == 0).any()  # the words' place


def test_a_camera_is_as_near_as_its_margin_allows():
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 3))
    margin, size = 0.1, (300, 200)
    pixels = frame(points, 0.7, 0.3, 1.5, margin=margin).pixels(points, size)
    room = np.array(
        [pixels[:, 0].min() / 300, 1 - pixels[:, 0].max() / 300, pixels[:, 1].min() / 200, 1 - pixels[:, 1].max() / 200]
    )
    # In the tighter direction both borders are touched by points, to rounding.
    assert min(np.abs(room[:2] - margin).max(), np.abs(room[2:] - margin).max()) < 1e-6
    assert room.min() > margin - 1e-6


def test_headroom_is_kept_free():
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (50, 3))
    pixels = frame(points, 0.7, 0.3, 1.5, margin=0.05, headroom=0.2).pixels(points, (300, 200))
    assert pixels[:, 1].min() > 0.25 * 200 - 1e-6


def test_pixels_agree_with_the_renderer():
    with studio(UR5) as s:
        s.stage.show(visual=False, target=False, trace=False)
        point = np.array([0.3, 0.2, 0.4])
        s.stage.place(s.stage.ball((1.0, 0.0, 0.0), 0.02, "frames"), point)
        s.stage.show(frames=True)
        look = s._look()
        column, row = s.camera.pixels(point[None], s.size)[0]
        balls = np.argwhere(look.body == look.body[round(row), round(column)])
    assert look.body[round(row), round(column)] > 0
    # A ball's picture is centred on its centre, to a pixel.
    np.testing.assert_allclose(balls.mean(axis=0), [row - 0.5, column - 0.5], atol=1.0)


# --- what is seen ---


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: robot.name)
def test_a_headless_picture_shows_the_robot_and_repeats(robot):
    with studio(robot, size=(320, 240)) as s:
        first, again = s.picture(0.5), s.picture(0.5)
        share = (s._look().body == 0).mean()
    assert first.dtype == np.uint8
    assert first.shape == (240, 320, 3)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 20
    assert 0.02 < share < 0.7
    np.testing.assert_array_equal(first, again)
    with studio(robot, size=(320, 240)) as s:
        np.testing.assert_array_equal(s.picture(0.5), first)


def count(picture: np.ndarray, colour: tuple[float, float, float]) -> int:
    """Pixels of that hue, lit or in shade."""
    rgb = picture.astype(float)
    wanted = np.array(colour) / np.linalg.norm(colour)
    length = np.linalg.norm(rgb, axis=-1)
    return int(((rgb @ wanted > 0.985 * length) & (length > 60)).sum())


def test_the_trace_grows_and_the_target_path_is_there_from_the_start():
    with studio(UR5, size=(320, 240)) as s:
        shown = [s.picture(t) for t in (0.0, 0.4, 0.8)]
    trace = [count(p, pictures.MEASURED) for p in shown]
    assert trace[0] < trace[1] < trace[2]
    assert count(shown[0], pictures.TARGET) > 30


def test_a_trace_can_go_back_in_time():
    with studio(UR5) as s:
        first = s.picture(0.3)
        s.picture(0.9)
        np.testing.assert_array_equal(s.picture(0.3), first)


def test_a_ghost_shows_where_the_command_is_and_vanishes_when_it_is_met():
    with studio(UR5) as s:
        plain = s.picture(0.5)
    with studio(UR5, ghost=0.0) as s:
        np.testing.assert_array_equal(s.picture(0.5), plain)
    with studio(UR5, ghost=0.1) as s:
        changed = (s.picture(0.5) != plain).any(axis=-1)
    assert 0.01 < changed.mean() < 0.4


def test_the_arm_casts_a_soft_shadow():
    with studio(UR5, size=(320, 240)) as s:
        s.picture(0.5)
        darker = s.backdrop.empty.mean(axis=-1) - s.backdrop.shadowed(s.stage).mean(axis=-1)
    assert darker.max() > 30.0  # of 255
    assert darker.min() > -1e-3
    assert len(np.unique(np.round(darker, 1))) > 50  # an edge of many shades


def test_a_thousand_points_are_few_bodies():
    # U125: drawing a line for each step makes a display crawl.
    times = np.linspace(0.0, 1.0, 1000)
    q = UR5.q_home + np.sin(6.0 * times)[:, None] * 0.1
    with Studio(UR5, times, q, None, UR5.chain.fk_batch(q)[:, :3, 3], size=(64, 64), renderer="tiny", smooth=1) as s:
        assert len(s._trace) <= 96
        before = s.picture(0.0)
        assert (s.picture(1.0) != before).any()


def test_the_trace_costs_a_small_share_of_a_picture():
    times = np.linspace(0.0, 1.0, 1000)
    q = UR5.q_home + np.sin(6.0 * times)[:, None] * 0.1
    path = UR5.chain.fk_batch(q)[:, :3, 3]
    with Studio(UR5, times, q, None, path, size=(160, 120), renderer="tiny") as s:

        def cost(trace: bool) -> float:
            s.stage.show(trace=trace, target=trace)
            began = time.process_time()
            for when in (0.2, 0.5, 0.8):
                s.picture(when)
            return time.process_time() - began

        pairs = [(cost(False), cost(True)) for _ in range(5)]
    without, with_trace = (min(column) for column in zip(*pairs, strict=True))
    assert with_trace < 1.3 * without


@pytest.mark.parametrize("part", stage.PARTS)
def test_each_part_can_be_turned_off_and_on_without_loading_again(part):
    with studio(UR5, size=(160, 120)) as s:
        s.stage.show(collision=part == "collision", frames=part == "frames")
        with_it = s.picture(0.5)
        bodies = s.stage._p.getNumBodies(physicsClientId=s.stage._client)
        s.stage.show(**{part: False})
        without = s.picture(0.5)
        s.stage.show(**{part: True})
        again = s.picture(0.5)
        assert s.stage._p.getNumBodies(physicsClientId=s.stage._client) == bodies
    assert (with_it != without).any()
    np.testing.assert_array_equal(with_it, again)


def test_the_renderer_is_chosen_and_said_in_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="ik_sim"), Stage(UR5) as s:
        assert s.renderer in ("egl", "tiny")
    assert f"pictures by {s.renderer}" in caplog.text


def test_without_a_driver_tinyrenderer_takes_over_and_says_why(monkeypatch, caplog):
    monkeypatch.setattr(stage, "_egl_problem", lambda: "libEGL.so.1 is not installed")
    with caplog.at_level(logging.INFO, logger="ik_sim"), Stage(UR5) as s:
        assert s.renderer == "tiny"
    assert "no EGL, libEGL.so.1 is not installed" in caplog.text
    with pytest.raises(IkSimError, match="renderer tiny works everywhere"):
        Stage(UR5, "egl")


def test_both_renderers_show_the_same_scene():
    if stage._egl_problem() is not None:
        pytest.skip("no EGL here")
    seen = []
    for renderer in ("tiny", "egl"):
        times, q, path = motion(UR5)
        with Studio(UR5, times, q, None, path, size=(160, 120), renderer=renderer, smooth=1) as s:
            seen.append(s.picture(0.5).astype(float))
    assert np.abs(seen[0] - seen[1]).mean() < 12.0  # of 255: shading differs a little, nothing is missing


def test_misuse_is_refused():
    with pytest.raises(UnknownNameError):
        Stage(UR5, "vulkan")
    with pytest.raises(UnknownNameError):
        camera("below", UR5, UR5.q_home, np.zeros((0, 3)), 1.0)
    with pytest.raises(InvalidArgumentError):
        studio(UR5, size=(8, 8))
    with Stage(UR5, "tiny") as s, pytest.raises(UnknownNameError):
        s.show(wheels=True)


# --- golden ---


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: robot.name)
def test_the_golden_picture(robot):
    """TinyRenderer draws the same bits everywhere; what is painted around them may round differently, by one."""
    with studio(robot, ghost=0.06, size=(160, 120)) as s:
        picture = s.picture(0.6)
    path = GOLDEN / f"{robot.name}.png"
    if not path.exists():  # a new picture is to be looked at before it is committed
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path, optimize=True)
        pytest.fail(f"{path} was missing and has been drawn: look at it, and commit it")
    expected = np.asarray(Image.open(path))
    off = np.abs(picture.astype(int) - expected.astype(int))
    digest = hashlib.sha256(picture.tobytes()).hexdigest()[:12]
    assert off.max() <= 2, f"{(off > 2).any(axis=-1).sum()} pixels differ ({digest})"


def test_a_chain_that_starts_above_the_files_root_is_shown_in_its_own_base():
    upper = (
        load_robot("ur5", base_link="shoulder_link") if "shoulder_link" in {x.name for x in UR5.model.links} else None
    )
    if upper is None:
        pytest.skip("no such link")
    with studio(upper) as s:
        s.stage.pose(upper.q_home)
        p, body = s.stage._p, s.stage._arms[0]
        index = next(
            i for i in range(p.getNumJoints(body, physicsClientId=s.stage._client))
            if p.getJointInfo(body, i, physicsClientId=s.stage._client)[12].decode() == upper.chain.tool_link
        )  # fmt: skip
        at = p.getLinkState(body, index, computeForwardKinematics=1, physicsClientId=s.stage._client)[4]
    np.testing.assert_allclose(at, upper.chain.fk(upper.q_home)[:3, 3], atol=1e-6)
