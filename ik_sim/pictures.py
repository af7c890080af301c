"""Pictures of an arm on its path: cameras that frame by themselves, a soft shadow, the trace and a ghost of the command.

    with Studio(robot, log) as studio:
        picture = studio.picture(time=1.5)                  # (height, width, 3) uint8

The renderer draws the arm, the paths and the marks; floor, shadow and sky are painted here, the same for every
renderer: the floor by the camera's own geometry, the shadow from a second look along the light.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from scipy import ndimage

from ik_sim.chain import Chain
from ik_sim.errors import InvalidArgumentError, UnknownNameError
from ik_sim.robots import Robot
from ik_sim.stage import Look, Stage
from ik_sim.urdf import Shape

CAMERAS = ("auto", "corner", "front", "side", "back", "top")
MEASURED, TARGET, GHOST = (0.83, 0.27, 0.0), (0.0, 0.45, 0.70), (0.34, 0.71, 0.91)  # colours of Okabe & Ito 2008
PEDESTAL = (0.55, 0.58, 0.62)
SKY_TOP, SKY_LOW, FLOOR = (
    np.array([222.0, 230.0, 238.0]),
    np.array([250.0, 251.0, 252.0]),
    np.array([236.0, 238.0, 241.0]),
)
LIGHT = np.array([0.35, -0.3, 1.0])
"""Towards the light; what it casts falls along this direction onto the floor."""
GHOST_FROM = 5e-4
"""[m] A ghost is drawn from this distance on; below it nobody could see one."""
GHOST_SHARE = 0.45
"""How much of a pixel the ghost takes."""
_SHADOW_PIXELS = 224


# --- cameras ---


@dataclass(frozen=True, eq=False)
class Camera:
    """Where a picture is taken from, in the frame of the arm's base."""

    eye: Float[np.ndarray, "3"]
    """[m]"""
    R_base_camera: Float[np.ndarray, "3 3"]
    """Columns: right, up, backwards."""
    fov: float
    """Full angle of view, upright [rad]."""
    near: float
    far: float

    @property
    def view(self) -> Float[np.ndarray, "4 4"]:
        """From the base's frame into the camera's."""
        T = np.eye(4)
        T[:3, :3] = self.R_base_camera.T
        T[:3, 3] = -self.R_base_camera.T @ self.eye
        return T

    def projection(self, aspect: float) -> Float[np.ndarray, "4 4"]:
        """As OpenGL has it."""
        f, n, far = 1.0 / np.tan(0.5 * self.fov), self.near, self.far
        P = np.zeros((4, 4))
        P[0, 0], P[1, 1] = f / aspect, f
        P[2, 2], P[2, 3], P[3, 2] = -(far + n) / (far - n), -2.0 * far * n / (far - n), -1.0
        return P

    def pixels(self, points: Any, size: tuple[int, int]) -> Float[np.ndarray, "k 2"]:
        """Where points of the base's frame appear: column and row."""
        p = (np.asarray(points, dtype=float) - self.eye) @ self.R_base_camera
        f = 0.5 * size[1] / np.tan(0.5 * self.fov)
        return np.stack([0.5 * size[0] - f * p[:, 0] / p[:, 2], 0.5 * size[1] + f * p[:, 1] / p[:, 2]], axis=1)


def frame(
    points: Any,
    azimuth: float,
    elevation: float,
    aspect: float,
    fov: float = 0.5,
    margin: float = 0.07,
    headroom: float = 0.0,
) -> Camera:
    """The nearest camera that looks from that direction and has all points in its picture.

    The borders of a picture are four planes through the camera, so with its direction given the nearest place follows
    from the outermost points alone, without search.

    Args:
        points: in the base [m].
        azimuth: of the camera about the base's z axis [rad].
        elevation: of the camera above the horizon [rad].
        aspect: width over height.
        fov: full angle of view, upright [rad].
        margin: share of the picture left empty at each border.
        headroom: share left empty at the upper border besides, for words.
    """
    points = np.asarray(points, dtype=float)
    ca, sa, ce, se = np.cos(azimuth), np.sin(azimuth), np.cos(elevation), np.sin(elevation)
    back = np.array([ca * ce, sa * ce, se])
    right = np.array([-sa, ca, 0.0])
    R = np.stack([right, np.cross(back, right), back], axis=1)
    p = points @ R
    half_height = np.tan(0.5 * fov) * (1.0 - 2.0 * margin)
    centre, distances = np.zeros(3), []
    side, top = half_height * aspect, half_height - 2.0 * headroom * np.tan(0.5 * fov)
    bounds = []
    for i, above, below in ((0, side, side), (1, top, half_height)):
        # x - cx <= above (cz - z) and cx - x <= below (cz - z) for all points: they bound cx from both sides, and the
        # bounds meet at the smallest cz.
        low, high = (p[:, i] + above * p[:, 2]).max(), (p[:, i] - below * p[:, 2]).min()
        bounds.append((i, low, above, high, below))
        distances.append((low - high) / (above + below))
    centre[2] = max(distances)
    for i, low, above, high, below in bounds:
        centre[i] = 0.5 * (low - above * centre[2] + high + below * centre[2])
    depths = centre[2] - p[:, 2]
    span = max(float(depths.max() - depths.min()), 0.1)
    return Camera(R @ centre, R, fov, max(0.02, float(depths.min()) - span), float(depths.max()) + 3.0 * span)


def arm_points(robot: Robot, q: Any) -> Float[np.ndarray, "k 3"]:
    """Points around the arm at some configurations (k, n): its surface as far as its file's shapes are understood.

    Where they aren't (files of meshes other than OBJ), its joints with as much room as its links seem to be thick.
    """
    frames = np.stack([robot.chain.joint_frames(row) for row in np.atleast_2d(q)])
    surface = [
        (frames[:, i, :3, :3] @ points.T + frames[:, i, :3, 3:]).transpose(0, 2, 1).reshape(-1, 3)
        for i, points in _surface(robot)
    ]
    joints = frames[:, :, :3, 3].reshape(-1, 3)
    room = 0.0 if surface else thickness(robot.chain)
    corners = [joints + room * np.array(corner) for corner in np.ndindex(2, 2, 2)] + [joints - room]
    return np.concatenate([*(corners if room else [joints]), *surface])


@lru_cache(maxsize=16)
def _surface(robot: Robot) -> list[tuple[int, Float[np.ndarray, "k 3"]]]:
    """Outermost points of each link's shapes: the number of the joint frame that carries them, and where in it."""
    chain, model = robot.chain, robot.model
    frames = chain.joint_frames(robot.q_home)
    children = {joint.name: joint.child for joint in model.joints}
    carried = [(0, model.link(chain.base_link), frames[0])]
    for i, name in enumerate(chain.joint_names, start=1):
        part = model.chain(chain.base_link, children[name])
        at = {joint: value for joint, value in zip(chain.joint_names, robot.q_home, strict=True)}
        carried.append((i, model.link(children[name]), part.fk([at[joint] for joint in part.joint_names])))
    if len(frames) != len(carried) + 1:  # mimic joints have frames of their own
        return []
    out = []
    for i, link, T_base_link in carried:
        T = np.linalg.inv(frames[i]) @ T_base_link
        for shape in link.visuals:
            points = _shape_points(shape)
            if points is None:
                return []
            points = points @ shape.T_link_shape[:3, :3].T + shape.T_link_shape[:3, 3]
            points = points @ T[:3, :3].T + T[:3, 3]
            out.append((i, points[np.unique((points @ _DIRECTIONS.T).argmax(axis=0))]))
    return out


def _shape_points(shape: Shape) -> Float[np.ndarray, "k 3"] | None:
    if shape.kind == "mesh":
        if shape.path is None or shape.path.suffix.lower() != ".obj":
            return None
        with open(shape.path, encoding="utf-8", errors="replace") as file:
            rows = [line.split()[1:4] for line in file if line.startswith("v ")]
        return np.array(rows, dtype=float).reshape(-1, 3) * (shape.size or (1.0, 1.0, 1.0))
    corners = np.array(list(np.ndindex(2, 2, 2))) * 2.0 - 1.0
    if shape.kind == "box":
        return 0.5 * corners * shape.size
    if shape.kind == "sphere":
        return corners * shape.size[0]
    if shape.kind in ("cylinder", "capsule"):
        radius, length = shape.size
        return corners * [radius, radius, 0.5 * length + radius * (shape.kind == "capsule")]
    return None


_DIRECTIONS = np.array([d for d in np.ndindex(5, 5, 5) if d != (2, 2, 2)]) - 2.0
"""In which the outermost points are looked for."""


def thickness(chain: Chain) -> float:
    """How far an arm's surface is from its joints, roughly [m]: a tenth of its longest link, as arms are built."""
    frames = chain.joint_frames(chain.q_middle)[:, :3, 3]
    return 0.17 * float(np.linalg.norm(np.diff(frames, axis=0), axis=1).max())


def camera(name: str, robot: Robot, q: Any, path: Any, aspect: float, headroom: float = 0.0) -> Camera:
    """A preset, framed on the arm at these configurations and on a path.

    `auto` looks at a planar arm from the top, and at others from the corner from which the path is widest, with the
    tool on the near side of the arm.

    Args:
        name: one of CAMERAS.
        robot: the arm.
        q: configurations to have in the picture (k, n) [rad].
        path: points to have in the picture (m, 3) [m].
        aspect: width over height.
        headroom: share of the picture left empty at the upper border.
    """
    if name not in CAMERAS:
        raise UnknownNameError("camera", name, CAMERAS)
    chain, path = robot.chain, np.asarray(path, dtype=float).reshape(-1, 3)
    points = np.concatenate([arm_points(robot, q), path])
    if name == "auto" and chain.family.startswith("planar"):
        name = "top"
    fixed = {"front": (0.0, 0.12), "back": (np.pi, 0.35), "side": (-0.5 * np.pi, 0.12), "top": (-0.5 * np.pi, 1.5607)}
    if name in fixed:
        return frame(points, *fixed[name], aspect, headroom=headroom)
    centre = chain.joint_frames(np.atleast_2d(q)[0])[:, :3, 3].mean(axis=0)
    towards = path.mean(axis=0) - centre if len(path) else np.array([1.0, -1.0, 0.0])
    heading = np.arctan2(towards[1], towards[0])
    choices = (
        [heading + turn for turn in np.radians([-75.0, -55.0, -35.0, 35.0, 55.0, 75.0])] if name == "auto" else [-0.7]
    )
    spread = path - path.mean(axis=0) if len(path) else np.zeros((1, 3))
    best = max(
        choices,
        key=lambda a: float(np.linalg.norm(spread @ np.array([-np.sin(a), np.cos(a), 0.0]))) + 1e-6 * np.cos(a + 0.7),
    )
    return frame(points, float(best), 0.38, aspect, headroom=headroom)


# --- painting ---


@dataclass(frozen=True, eq=False)
class Backdrop:
    """Sky and floor behind a camera's picture, and where the floor is."""

    camera: Camera
    size: tuple[int, int]
    centre: Float[np.ndarray, "3"]
    """Of the floor [m]."""
    reach: float
    """How far from it the floor is seen [m]."""

    @cached_property
    def _floor(self) -> tuple[Float[np.ndarray, "h w 2"], Bool[np.ndarray, "h w"]]:
        """Where each pixel's ray meets the floor [m], and whether it does."""
        width, height = self.size
        half = np.tan(0.5 * self.camera.fov)
        x = (np.arange(width) + 0.5) / width * 2.0 - 1.0
        y = 1.0 - (np.arange(height) + 0.5) / height * 2.0
        rays = np.empty((height, width, 3))
        rays[..., 0], rays[..., 1], rays[..., 2] = x * half * width / height, (y * half)[:, None], -1.0
        rays = rays @ self.camera.R_base_camera.T
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = (self.centre[2] - self.camera.eye[2]) / rays[..., 2]
        hits = np.isfinite(distance) & (distance > 0.0)
        spot = self.camera.eye[:2] + np.where(hits, distance, 0.0)[..., None] * rays[..., :2]
        return spot, hits

    @cached_property
    def empty(self) -> Float[np.ndarray, "h w 3"]:
        """Sky and floor with its grid of 0.1 m, fading out."""
        height = self.size[1]
        down = np.linspace(0.0, 1.0, height)[:, None, None]
        sky = SKY_TOP + (SKY_LOW - SKY_TOP) * down
        spot, hits = self._floor
        away = np.linalg.norm(spot - self.centre[:2], axis=-1) / self.reach
        fade = np.where(hits, np.clip(1.6 - 1.2 * away, 0.0, 1.0), 0.0)
        lines = np.zeros(hits.shape)
        # A line is as wide as a pixel there, however far away: its slope over neighbouring pixels says how much that is.
        for step, weight in ((0.1, 0.06), (0.5, 0.13)):
            for axis in (0, 1):
                place = spot[..., axis] / step
                slope = np.abs(np.gradient(place, axis=0)) + np.abs(np.gradient(place, axis=1)) + 1e-9
                off = np.abs(place - np.round(place))
                fine = np.clip(0.35 / slope - 0.35, 0.0, 1.0)  # where lines run together they are left out
                lines = np.maximum(lines, weight * fine * np.clip(1.3 - off / slope, 0.0, 1.0))
        floor = FLOOR * (1.0 - lines[..., None])
        return (sky + fade[..., None] * (floor - sky)).astype(np.float32)

    @cached_property
    def _sun(self) -> Camera:
        """Looks along the light from so far that its rays are all but parallel."""
        corners = np.array(list(np.ndindex(2, 2, 2))) * [2.0, 2.0, 1.0] - [1.0, 1.0, 0.0]
        points = self.centre + self.reach * corners
        azimuth, elevation = np.arctan2(LIGHT[1], LIGHT[0]), np.arctan2(LIGHT[2], np.linalg.norm(LIGHT[:2]))
        return frame(points, float(azimuth), float(elevation), 1.0, fov=0.05, margin=0.0)

    @cached_property
    def _sun_pixels(self) -> Float[np.ndarray, "2 k"]:
        """Row and column of each pixel's spot of floor in the look along the light; outside it where there is none."""
        spot, hits = self._floor
        ground = np.concatenate([spot.reshape(-1, 2), np.full((hits.size, 1), self.centre[2])], axis=1)
        found = self._sun.pixels(ground, (_SHADOW_PIXELS, _SHADOW_PIXELS)).T[::-1] - 0.5
        return np.where(hits.ravel(), found, -9.0).astype(np.float32)

    def shadowed(self, stage: Stage) -> Float[np.ndarray, "h w 3"]:
        """The backdrop with the shadow of what stands on the stage now."""
        n, sun = _SHADOW_PIXELS, self._sun
        look = stage.look(sun.view, sun.projection(1.0), (n, n), (sun.near, sun.far), LIGHT)
        soft = ndimage.gaussian_filter((look.body == 0).astype(np.float32), 0.011 * n)
        dark = ndimage.map_coordinates(soft, self._sun_pixels, order=1, mode="constant").reshape(self.size[::-1])
        return self.empty * (1.0 - 0.3 * dark)[..., None]


class Studio:
    """Takes the pictures of one run: its arm, its paths, at any time.

    Args:
        robot: the arm.
        times: of the rows below [s], growing.
        q_measured: where the arm was (k, n) [rad].
        q_command: where it was told to be (k, n) [rad]; its ghost is drawn. None: no ghost.
        targets: where the tool should have been (k, 3) [m].
        size: width and height in pixels.
        view: one of CAMERAS, or a camera.
        renderer: egl, tiny or auto.
        smooth: pixels drawn for each one shown, along either side; more is smoother and slower.
        headroom: share of the picture left empty at the upper border, for words.
    """

    def __init__(
        self,
        robot: Robot,
        times: Any,
        q_measured: Any,
        q_command: Any = None,
        targets: Any = None,
        *,
        size: tuple[int, int] = (960, 540),
        view: str | Camera = "auto",
        renderer: str = "auto",
        smooth: int = 2,
        headroom: float = 0.0,
    ) -> None:
        if min(size) < 16 or smooth < 1:
            raise InvalidArgumentError("size", f"must be at least 16 x 16 pixels, not {size[0]} x {size[1]}")
        self.robot, self.size, self._smooth = robot, size, smooth
        chain = robot.chain
        self.times = np.asarray(times, dtype=float)
        self.q_measured = np.asarray(q_measured, dtype=float).reshape(-1, chain.n)
        self.q_command = None if q_command is None else np.asarray(q_command, dtype=float).reshape(-1, chain.n)
        if len(self.times) != len(self.q_measured) or not len(self.times):
            raise InvalidArgumentError(
                "times", f"has {len(self.times)} rows where q_measured has {len(self.q_measured)}"
            )
        # Straight lines between joint values, as the setpoints run; enough points that the trace is round.
        fine = np.interp(
            np.linspace(0.0, len(self.times) - 1.0, min(4000, max(2, 2 * len(self.times)))),
            np.arange(len(self.times)),
            self.times,
        )
        self._trace_times = fine
        trace = chain.fk_batch(self._at(self.q_measured, fine))[:, :3, 3]
        path = trace if targets is None else np.asarray(targets, dtype=float).reshape(-1, 3)
        few = self.q_measured[np.unique(np.linspace(0, len(self.times) - 1, 24).astype(int))]
        aspect = size[0] / size[1]
        self.camera = camera(view, robot, few, path, aspect, headroom) if isinstance(view, str) else view
        shown = arm_points(robot, few)
        low = min(0.0, float(chain.fk_batch(few)[:, 2, 3].min()), float(path[:, 2].min()))
        points = np.concatenate([shown, path])
        flat = points[:, :2] - LIGHT[:2] / LIGHT[2] * np.maximum(points[:, 2:] - low, 0.0)
        everywhere = np.concatenate([points[:, :2], flat])
        middle = 0.5 * (everywhere.max(axis=0) + everywhere.min(axis=0))
        reach = 1.15 * float(np.linalg.norm(everywhere - middle, axis=1).max())
        if chain.family.startswith("planar"):
            low = -thickness(chain)
        self.backdrop = Backdrop(self.camera, size, np.array([*middle, low]), reach)
        self.stage = Stage(robot, renderer)
        width = 0.0022 * float(np.linalg.norm(self.camera.eye - points.mean(axis=0))) * self.camera.fov / 0.5
        self._trace: list[tuple[int, int]] = []
        if targets is not None and len(path) > 1:
            self.stage.line(path, TARGET, width, "target")
        if len(trace) > 1:
            self._trace = self.stage.line(trace, MEASURED, 1.35 * width, "trace", pieces=96)
        if low < -0.02 and not chain.family.startswith("planar"):
            self.stage.line([[0.0, 0.0, low], [0.0, 0.0, -1e-3]], PEDESTAL, 0.5 * thickness(chain), "visual")
        self._mark = self.stage.ball(TARGET, 3.2 * width, "target") if targets is not None else None
        self._targets = path
        self.renderer = self.stage.renderer
        if self.renderer == "egl":  # the first picture is drawn before the lights are on
            self._look()

    def close(self) -> None:
        """Give everything back."""
        self.stage.close()

    def __enter__(self) -> Studio:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def picture(self, time: float) -> UInt8[np.ndarray, "h w 3"]:
        """The arm at that time [s], with its trace until then and the target path."""
        q = self._at(self.q_measured, np.array([time]))[0]
        done = int(np.searchsorted(self._trace_times, time + 1e-9))
        for body, last in self._trace:
            self.stage.reveal(body, last < done)
        if self._mark is not None:
            spot = (
                [np.interp(time, self.times, self._targets[:, i]) for i in range(3)]
                if len(self._targets) == len(self.times)
                else self._targets[0]
            )
            self.stage.place(self._mark, spot)
        self.stage.pose(q)
        look = self._look()
        ground = self.backdrop.shadowed(self.stage)
        solid = look.body >= 0
        out = _blend(ground, self._small(look.rgb * solid[..., None]), self._small(solid), 1.0)
        if self.q_command is None:
            return _bytes(out)
        q_ghost = self._at(self.q_command, np.array([time]))[0]
        joints, ghost_joints = (self.robot.chain.joint_frames(x)[:, :3, 3] for x in (q, q_ghost))
        if np.abs(joints - ghost_joints).max() < GHOST_FROM:
            return _bytes(out)
        self.stage.pose(q_ghost)
        ghost = self._look()
        over = (ghost.body == 0) & (~solid | (ghost.distance < look.distance - GHOST_FROM))
        tint = (0.35 * ghost.rgb.mean(axis=-1, keepdims=True) + 0.65 * 255.0 * np.array(GHOST)) * over[..., None]
        return _bytes(_blend(out, self._small(tint.astype(np.uint8)), self._small(over), GHOST_SHARE))

    # --- inside ---

    def _at(self, rows: Any, times: Any) -> Any:
        return np.stack([np.interp(times, self.times, rows[:, j]) for j in range(rows.shape[1])], axis=1)

    def _look(self) -> Look:
        size = (self.size[0] * self._smooth, self.size[1] * self._smooth)
        c = self.camera
        light = c.R_base_camera @ np.array([-0.5, 0.9, 0.8])  # over the photographer's left shoulder
        return self.stage.look(c.view, c.projection(size[0] / size[1]), size, (c.near, c.far), light)

    def _small(self, x: Any) -> Any:
        """Means over the pixels drawn for each one shown; a mask becomes shares from 0 to 1."""
        mask = x.dtype == bool
        image = Image.fromarray(x.astype(np.uint8) * 255 if mask else x)
        found = np.asarray(image.reduce(self._smooth) if self._smooth > 1 else image, dtype=np.float32)
        return found / 255.0 if mask else found


def _blend(ground: Any, colour: Any, share: Any, weight: float) -> Any:
    """Paint a colour, already multiplied by its share of each pixel, over the ground."""
    return ground * (1.0 - weight * share)[..., None] + weight * colour


def _bytes(picture: Any) -> UInt8[np.ndarray, "h w 3"]:
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)
