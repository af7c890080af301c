"""What pictures are taken of: one arm, shown anywhere, with lines and marks around it. No physics runs here.

A stage is a PyBullet client of its own, so a picture never disturbs a simulation, and one stage takes the pictures of
a whole video. TinyRenderer draws the same bits on every machine; OpenGL through EGL is three to five times faster
where a driver for it is installed. Neither knows debug lines: paths are thin tubes, in pieces that can be hidden.

Floor, shadow and sky are not in the scene. `pictures` paints them from what :meth:`Stage.look` returns, because the
renderers' own differ from each other and from what one would like to see.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import logging
import sys
import tempfile
import weakref
import xml.etree.ElementTree as ET  # only to change a file that physics_urdf has written
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from ik_sim.control import ControlSettings
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.physics_urdf import physics_urdf
from ik_sim.process import quiet
from ik_sim.robots import Robot
from ik_sim.se3 import matrix_to_quat_xyzw, quat_xyzw_to_matrix, transform
from ik_sim.simulation import _disconnect, _pybullet

RENDERERS = ("auto", "egl", "tiny")
PARTS = ("visual", "collision", "frames", "target", "trace")
"""What :meth:`Stage.show` turns on and off."""
Colour = tuple[float, float, float]
_AWAY = [0.0, 0.0, -1000.0]
"""Where hidden things wait: far outside every picture."""
_log = logging.getLogger("ik_sim")


@dataclass(frozen=True, eq=False)
class Look:
    """What a camera saw."""

    rgb: UInt8[np.ndarray, "h w 3"]
    distance: Float[np.ndarray, "h w"]
    """Along the viewing direction [m]; meaningless where there is nothing."""
    body: Int[np.ndarray, "h w"]
    """-1: nothing; 0: the arm; other numbers: lines and marks."""


class Stage:
    """An arm to take pictures of: a context manager over one PyBullet client.

    Args:
        robot: the arm.
        renderer: egl, tiny, or auto: EGL where it works, else TinyRenderer.

    Raises:
        MissingDependencyError: PyBullet is not installed.
        IkSimError: EGL was asked for and can't be had.
    """

    def __init__(self, robot: Robot, renderer: str = "auto") -> None:
        if renderer not in RENDERERS:
            raise UnknownNameError("renderer", renderer, RENDERERS)
        self.robot = robot
        self._p: Any = _pybullet()
        self._folder = tempfile.TemporaryDirectory(prefix="ik_sim_")
        with quiet():
            self._client = self._p.connect(self._p.DIRECT)
        self._disconnect = weakref.finalize(self, _disconnect, self._p, self._client)
        try:
            self.renderer, self.renderer_reason = self._choose(renderer)
            _log.info("pictures by %s: %s", self.renderer, self.renderer_reason)
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        self._disconnect()
        self._folder.cleanup()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # --- what is there ---

    def pose(self, q: Any) -> None:
        """Put the arm at q [rad], without physics."""
        self._q = self.robot.chain.check_q(q, "q")
        positions = self.robot.chain.all_joint_positions(self._q)
        for body in self._arms:
            for name, index in self._joints.items():
                self._p.resetJointState(body, index, positions.get(name, 0.0), physicsClientId=self._client)
        if self._shown["frames"]:
            self._place_frames()

    def line(
        self, points: Any, colour: Colour, radius: float, part: str = "target", pieces: int = 1
    ) -> list[tuple[int, int]]:
        """Add a tube through points in the base [m], in so many pieces.

        Returns:
            For each piece its number and the index of its last point: pieces are hidden until :meth:`reveal` says so,
            a single one is shown at once.
        """
        points = np.asarray(points, dtype=float)
        if points.ndim != 2 or points.shape[1] != 3 or not np.isfinite(points).all():
            raise InvalidArgumentError("points", f"must be finite points in three dimensions, not {points.shape}")
        out = []
        for ends in np.array_split(np.arange(1, len(points)), min(pieces, max(1, len(points) - 1))):
            if len(ends):
                vertices, normals, faces = _tube(points[ends[0] - 1 : ends[-1] + 1], radius)
                body = self._mesh(vertices, normals, faces, colour)
                self._parts[part].append(body)
                self._at[body] = np.eye(4)
                out.append((body, int(ends[-1])))
                if pieces > 1:
                    self._revealed.discard(body)
                    self._move(body)
        return out

    def ball(self, colour: Colour, radius: float, part: str = "target") -> int:
        """Add a ball, at the base's origin; returns its number for :meth:`place`."""
        vertices, normals, faces = _ball(radius)
        body = self._mesh(vertices, normals, faces, colour)
        self._parts[part].append(body)
        self._at[body] = np.eye(4)
        return body

    def place(self, body: int, position: Any) -> None:
        """Move a mark to a point in the base [m]."""
        self._at[body] = np.eye(4)
        self._at[body][:3, 3] = position
        self._move(body)

    def reveal(self, body: int, shown: bool = True) -> None:
        """Show or hide one piece of a line."""
        if shown != (body in self._revealed):
            (self._revealed.add if shown else self._revealed.discard)(body)
            self._move(body)

    def show(self, **parts: bool) -> None:
        """Turn parts on or off, by the names in PARTS; nothing is loaded a second time."""
        for name, shown in parts.items():
            if name not in PARTS:
                raise UnknownNameError("part of a picture", name, PARTS)
            self._shown[name] = bool(shown)
            if name == "collision" and shown and not self._parts[name]:
                body = self._load_arm(collision=True)
                self._parts[name].append(body)
                self._arms.append(body)
                self._at[body] = np.eye(4)
                self._revealed.add(body)
                self.pose(self._q)
            if name == "frames" and shown:
                self._place_frames()
            for body in self._parts[name]:
                self._move(body)

    # --- looking ---

    def look(
        self,
        view: Float[np.ndarray, "4 4"],
        projection: Float[np.ndarray, "4 4"],
        size: tuple[int, int],
        near_far: tuple[float, float],
        light: Float[np.ndarray, "3"],
    ) -> Look:
        """One picture of width × height pixels, straight from the renderer."""
        p, (width, height) = self._p, size
        with quiet():
            picture = p.getCameraImage(
                width,
                height,
                view.T.ravel().tolist(),
                projection.T.ravel().tolist(),
                lightDirection=light.tolist(),
                lightColor=[1.0, 1.0, 1.0],
                lightDistance=3.0,
                lightAmbientCoeff=0.62,
                lightDiffuseCoeff=0.42,
                lightSpecularCoeff=0.06,
                shadow=0,
                renderer=p.ER_BULLET_HARDWARE_OPENGL if self.renderer == "egl" else p.ER_TINY_RENDERER,
                physicsClientId=self._client,
            )
        # Wheels of PyBullet without numpy return flat tuples.
        rgb = np.asarray(picture[2]).reshape(height, width, 4)[..., :3].astype(np.uint8)
        near, far = near_far
        depth = np.asarray(picture[3], dtype=float).reshape(height, width)
        body = np.asarray(picture[4]).reshape(height, width).astype(int)
        return Look(rgb, far * near / (far - (far - near) * depth), np.where(body < 0, -1, body & ((1 << 24) - 1)))

    # --- inside ---

    def _choose(self, renderer: str) -> tuple[str, str]:
        if renderer == "tiny":
            return "tiny", "as asked"
        problem = _egl_problem()
        if problem is None:
            with quiet(also_stderr=True):
                spec = importlib.util.find_spec("eglRenderer")
                assert spec is not None
                plugin = self._p.loadPlugin(spec.origin, "_eglRendererPlugin", physicsClientId=self._client)
            if plugin >= 0:
                return "egl", "OpenGL without a window"
            problem = "its plugin does not load"
        if renderer == "egl":
            raise IkSimError(f"no pictures by EGL: {problem}; renderer tiny works everywhere")
        return "tiny", f"no EGL, {problem}"

    def _load(self) -> None:
        p, client = self._p, self._client
        with quiet():
            p.setPhysicsEngineParameter(enableFileCaching=0, physicsClientId=client)
        self._parts: dict[str, list[int]] = {name: [] for name in PARTS}
        self._shown = dict.fromkeys(PARTS, False) | {"visual": True, "target": True, "trace": True}
        self._at: dict[int, Float[np.ndarray, "4 4"]] = {}
        self._revealed: set[int] = set()
        self._centres: dict[int, Float[np.ndarray, "4 4"]] = {}
        self._frames: list[tuple[str, int]] = []
        arm = self._load_arm(collision=False)
        self._arms = [arm]
        self._parts["visual"].append(arm)
        self._at[arm] = np.eye(4)
        self._revealed.add(arm)
        names = set(self.robot.chain.all_joint_positions(self.robot.chain.q_middle))
        self._joints: dict[str, int] = {}
        for i in range(p.getNumJoints(arm, physicsClientId=client)):
            name = p.getJointInfo(arm, i, physicsClientId=client)[1].decode()
            if name in names:
                self._joints[name] = i
        # Pictures are in the frame of the chain's base, whatever stands below it in the robot's file.
        base = self.robot.chain.base_link
        if base != self.robot.model.root:
            whole, upper = (self.robot.model.chain(link, self.robot.chain.tool_link) for link in (None, base))
            at_rest = {
                name: float(value) for name, value in zip(whole.joint_names, whole.clip(np.zeros(whole.n)), strict=True)
            }
            q = np.array([at_rest[name] for name in upper.joint_names])
            T_root_base = whole.fk(list(at_rest.values())) @ np.linalg.inv(upper.fk(q))
            self._at[arm] = np.linalg.inv(T_root_base)
            self._move(arm)
        self.pose(self.robot.q_home)

    def _load_arm(self, collision: bool) -> int:
        p = self._p
        with quiet(), physics_urdf(self.robot.model, self.robot.chain, ControlSettings(), not collision) as (path, _):
            if collision:
                _show_collision(Path(path), self.robot)
            try:
                body = p.loadURDF(
                    path, useFixedBase=True, flags=p.URDF_MAINTAIN_LINK_ORDER, physicsClientId=self._client
                )
            except p.error as error:
                raise IkSimError(f"{self.robot.urdf_path}: PyBullet can't load it ({error})") from None
        info = p.getDynamicsInfo(body, -1, physicsClientId=self._client)
        self._centres[body] = transform(quat_xyzw_to_matrix(np.array(info[4])), np.array(info[3]))
        return body

    def _place_frames(self) -> None:
        if not self._frames:
            length = 0.15 * max(0.2, float(np.linalg.norm(self.robot.chain.fk(self.robot.q_home)[:3, 3])))
            for frame in ("base", "tool"):
                for axis, colour in zip(np.eye(3), ((0.84, 0.15, 0.1), (0.1, 0.6, 0.2), (0.1, 0.3, 0.85)), strict=True):
                    for body, _ in self.line([np.zeros(3), length * axis], colour, 0.035 * length, "frames"):
                        self._frames.append((frame, body))
        T = self.robot.chain.fk(self._q)
        for frame, body in self._frames:
            self._at[body] = np.eye(4) if frame == "base" else T
            self._move(body)

    def _move(self, body: int) -> None:
        shown = body in self._revealed and any(self._shown[n] for n in PARTS if body in self._parts[n])
        T = self._at[body]
        if body in self._centres:  # PyBullet places a body by its centre of mass
            T = T @ self._centres[body]
        self._p.resetBasePositionAndOrientation(
            body,
            T[:3, 3].tolist() if shown else _AWAY,
            matrix_to_quat_xyzw(T[:3, :3]).tolist(),
            physicsClientId=self._client,
        )

    def _mesh(self, vertices: Any, normals: Any, faces: Any, colour: Colour) -> int:
        """A body of triangles; as a file, because the EGL renderer refuses meshes from memory."""
        p, path = self._p, Path(self._folder.name) / f"{len(self._at)}.obj"
        lines = [*(f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in vertices), "vt 0 0"]
        lines += [f"vn {x:.5f} {y:.5f} {z:.5f}" for x, y, z in normals]
        lines += ["f " + " ".join(f"{i}/1/{i}" for i in face) for face in faces + 1]
        path.write_text("\n".join(lines) + "\n")
        with quiet():
            shape = p.createVisualShape(
                p.GEOM_MESH, fileName=str(path), rgbaColor=[*colour, 1.0], specularColor=[0.0, 0.0, 0.0],
                physicsClientId=self._client,
            )  # fmt: skip
            body = p.createMultiBody(0.0, -1, shape, physicsClientId=self._client)
        with contextlib.suppress(OSError):
            path.unlink()
        self._revealed.add(body)
        return body


@cache
def _egl_problem() -> str | None:
    """Why EGL can't be used, as far as one can know without trying; None if nothing speaks against it.

    A driver that is missing would end the process from inside PyBullet, so its libraries are looked for first.
    """
    if not sys.platform.startswith("linux"):
        return "which only Linux has"
    if importlib.util.find_spec("eglRenderer") is None:
        return "this PyBullet has no plugin for it"
    for name in ("libEGL.so.1", "libGL.so.1"):
        try:
            ctypes.CDLL(name)
        except OSError:
            return f"{name} is not installed"
    egl = ctypes.CDLL("libEGL.so.1")
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    if not address:
        return "no driver answers"
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(address)
    count = ctypes.c_int(0)
    if not query(0, None, ctypes.byref(count)) or count.value < 1:
        return "no device found"
    return None


def _show_collision(path: Path, robot: Robot) -> None:
    """Make the collision shapes of a robot's file what is seen."""
    tree = ET.parse(path)
    original = ET.parse(robot.urdf_path).getroot()
    root = tree.getroot()
    colours = ("0.93 0.55 0.15 1", "0.98 0.78 0.35 1")
    shapes = {link.get("name"): link.findall("collision") for link in original.findall("link")}
    for i, link in enumerate(root.findall("link")):
        model = robot.model.link(link.get("name", "")) if link.get("name") in shapes else None
        for j, shape in enumerate(shapes.get(link.get("name"), [])):
            visual = ET.SubElement(link, "visual")
            visual.extend([child for child in shape if child.tag in ("origin", "geometry")])
            mesh = visual.find("geometry/mesh")
            if mesh is not None and model is not None:
                mesh.set("filename", str(model.collisions[j].path))
            material = ET.SubElement(visual, "material", name=f"collision_{i}_{j}")
            ET.SubElement(material, "color", rgba=colours[i % 2])
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _tube(points: Float[np.ndarray, "k 3"], radius: float, sides: int = 8) -> tuple[Any, Any, Any]:
    """Vertices, normals and triangles of a tube, its ends closed by cones of no length."""
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    points = points[np.concatenate([[True], steps > 1e-7])]
    if len(points) == 1:  # no length: a dot
        vertices, normals, faces = _ball(radius)
        return vertices + points[0], normals, faces
    along = np.gradient(points, axis=0)
    lengths = np.linalg.norm(along, axis=1, keepdims=True)
    along = along / np.where(lengths > 1e-9, lengths, 1.0)
    along[lengths[:, 0] <= 1e-9] = [0.0, 0.0, 1.0]  # where a path turns back on itself
    # One reference for the whole tube, so that neighbouring rings are not twisted: the axis least along the path.
    reference = np.eye(3)[int(np.argmin(np.abs(along).max(axis=0)))]
    u = np.cross(along, reference)
    size = np.linalg.norm(u, axis=1, keepdims=True)
    u = np.where(size > 1e-6, u / np.maximum(size, 1e-6), np.roll(reference, 1))
    v = np.cross(along, u)
    angles = np.arange(sides) * 2.0 * np.pi / sides
    normals = (u[:, None] * np.cos(angles)[None, :, None] + v[:, None] * np.sin(angles)[None, :, None]).reshape(-1, 3)
    vertices = np.repeat(points, sides, axis=0) + radius * normals
    a = (np.arange(len(points) - 1)[:, None] * sides + np.arange(sides)).ravel()
    b = (np.arange(len(points) - 1)[:, None] * sides + (np.arange(sides) + 1) % sides).ravel()
    faces = [np.stack([a, b + sides, a + sides], axis=1), np.stack([a, b, b + sides], axis=1)]
    for ring, centre, sign in ((0, len(vertices), -1), ((len(points) - 1) * sides, len(vertices) + 1, 1)):
        rim, turn = ring + np.arange(sides), ring + (np.arange(sides) + 1) % sides
        faces.append(np.stack([np.full(sides, centre), *((rim, turn) if sign > 0 else (turn, rim))], axis=1))
    vertices = np.vstack([vertices, points[0], points[-1]])
    normals = np.vstack([normals, -along[0], along[-1]])
    return vertices, normals, np.vstack(faces)


def _ball(radius: float, sides: int = 20) -> tuple[Any, Any, Any]:
    rings = sides // 2
    theta, phi = np.linspace(0.0, np.pi, rings + 1), np.arange(sides) * 2.0 * np.pi / sides
    normals = np.stack(
        [
            np.outer(np.sin(theta), np.cos(phi)),
            np.outer(np.sin(theta), np.sin(phi)),
            np.outer(np.cos(theta), np.ones(sides)),
        ],
        axis=-1,
    ).reshape(-1, 3)
    i, j = (x.ravel() for x in np.meshgrid(np.arange(rings), np.arange(sides), indexing="ij"))
    a, b = i * sides + j, i * sides + (j + 1) % sides
    faces = np.vstack([np.stack([a, a + sides, b], axis=1), np.stack([b, a + sides, b + sides], axis=1)])
    return radius * normals, normals, faces
