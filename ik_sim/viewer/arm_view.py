"""An arm in a tab's scene: its own meshes, or a translucent double of it, put where joint values say."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import trimesh
import viser
from jaxtyping import Float

from ik_sim.physics_urdf import rest_positions
from ik_sim.robots import Robot
from ik_sim.se3 import inverse, rotation_exp, transform
from ik_sim.urdf import Shape
from ik_sim.viewer.drawings import wxyz

_log = logging.getLogger("ik_sim")
GREY = (176, 182, 190, 255)
"""Of shapes without a texture: a URDF's colours are not read."""


def link_poses(robot: Robot, q: Float[np.ndarray, "n"]) -> dict[str, Float[np.ndarray, "4 4"]]:
    """T_base_link of every link of the file at q, base being the chain's; joints beside the arm are at rest."""
    arm = robot.chain.all_joint_positions(q)
    positions = {**rest_positions(robot.model, dict(zip(robot.chain.joint_names, q.tolist(), strict=True))), **arm}
    poses = {robot.model.root: np.eye(4)}
    waiting = list(robot.model.joints)
    while waiting:
        for joint in [j for j in waiting if j.parent in poses]:
            T = poses[joint.parent] @ joint.T_parent_joint
            x = positions.get(joint.name, 0.0)
            if joint.kind == "prismatic":
                T = T @ transform(np.eye(3), x * joint.axis)
            elif joint.kind in ("revolute", "continuous"):
                T = T @ transform(rotation_exp(x * joint.axis), np.zeros(3))
            poses[joint.child] = T
            waiting.remove(joint)
    T_base_root = inverse(poses[robot.chain.base_link])
    return {name: T_base_root @ T for name, T in poses.items()}


def size_of(robot: Robot) -> float:
    """About how far the arm reaches [m]: the sum of the distances between its joints."""
    frames = robot.chain.joint_frames(robot.q_home)[:, :3, 3]
    return max(0.05, float(np.linalg.norm(np.diff(frames, axis=0), axis=1).sum()))


@lru_cache(maxsize=8)
def shapes(robot: Robot) -> tuple[tuple[str, Any], ...]:
    """What each link looks like, in the link's frame: (link, mesh); sticks where a file shows nothing that can be read."""
    found = []
    for link in robot.model.links:
        for visual in link.visuals:
            try:
                mesh = _mesh(visual)
            except Exception as error:  # readers of mesh files fail in many ways
                _log.warning("%s: %s can't be shown: %s", link.name, visual.filename or visual.kind, error)
                continue
            if mesh is not None:
                found.append((link.name, mesh))
    return tuple(found) if found else _sticks(robot)


def _mesh(visual: Shape) -> Any:
    size = visual.size
    if visual.kind == "mesh":
        if visual.path is None:
            return None
        mesh: Any = trimesh.load(visual.path, force="mesh", process=False)
        mesh.apply_scale(size or (1.0, 1.0, 1.0))
    elif visual.kind == "box":
        mesh = trimesh.creation.box(size)
    elif visual.kind == "cylinder":
        mesh = trimesh.creation.cylinder(size[0], size[1], sections=40)
    elif visual.kind == "capsule":
        mesh = trimesh.creation.capsule(size[1], size[0])
        mesh.apply_translation((0.0, 0.0, -0.5 * size[1]))
    elif visual.kind == "sphere":
        mesh = trimesh.creation.icosphere(3, size[0])
    else:
        return None
    mesh.apply_transform(visual.T_link_shape)
    return _grey(mesh)


def _grey(mesh: Any) -> Any:
    if mesh.visual.kind != "texture":
        mesh.visual.face_colors = GREY
    return mesh


def _sticks(robot: Robot) -> tuple[tuple[str, Any], ...]:
    thick = 0.02 * size_of(robot)
    found = []
    for joint in robot.model.joints:
        end = joint.T_parent_joint[:3, 3]
        found.append((joint.child, _grey(trimesh.creation.icosphere(2, 1.5 * thick))))
        if np.linalg.norm(end) > 1e-6:
            stick = trimesh.creation.cylinder(thick, segment=[np.zeros(3), end], sections=24)
            found.append((joint.parent, _grey(stick)))
    return tuple(found)


@lru_cache(maxsize=8)
def _glb(robot: Robot) -> tuple[tuple[str, bytes], ...]:
    return tuple((link, mesh.export(file_type="glb")) for link, mesh in shapes(robot))


@lru_cache(maxsize=8)
def _hulls(robot: Robot) -> tuple[tuple[str, Any, Any], ...]:
    """Each link's convex hull: light enough to be drawn sixteen times."""
    by_link: dict[str, list[Any]] = {}
    for link, mesh in shapes(robot):
        by_link.setdefault(link, []).append(mesh.vertices)
    hulls = []
    for link, parts in by_link.items():
        hull = trimesh.Trimesh(np.concatenate(parts), process=False).convex_hull
        hulls.append((link, np.asarray(hull.vertices, np.float32), np.asarray(hull.faces, np.uint32)))
    return tuple(hulls)


class ArmView:
    """The arm as it looks."""

    def __init__(self, client: viser.ClientHandle, robot: Robot, name: str) -> None:
        self.robot = robot
        self._root = client.scene.add_frame(name, show_axes=False)
        self._client = client
        self._links: dict[str, Any] = {}
        poses = link_poses(robot, robot.q_home)
        for i, (link, glb) in enumerate(_glb(robot)):
            if link not in self._links:
                T = poses[link]
                self._links[link] = client.scene.add_frame(
                    f"{name}/{link}", show_axes=False, wxyz=wxyz(T[:3, :3]), position=T[:3, 3]
                )
            client.scene.add_glb(f"{name}/{link}/{i}", glb)

    def show(self, q: Float[np.ndarray, "n"]) -> None:
        """Put it at q [rad or m]."""
        poses = link_poses(self.robot, q)
        with self._client.atomic():
            for link, frame in self._links.items():
                frame.position, frame.wxyz = poses[link][:3, 3], wxyz(poses[link][:3, :3])

    @property
    def visible(self) -> bool:
        """Whether it is shown."""
        return self._root.visible

    @visible.setter
    def visible(self, shown: bool) -> None:
        self._root.visible = shown

    def remove(self) -> None:
        """Take it out of the scene."""
        self._root.remove()


class Ghosts:
    """Any number of translucent doubles of an arm, each at joints of its own; a click on one says which."""

    def __init__(
        self, client: viser.ClientHandle, robot: Robot, name: str, colour: tuple[int, int, int], opacity: float = 0.3
    ) -> None:
        self.robot = robot
        self._client, self._name, self._colour, self._opacity = client, name, colour, opacity
        self._root = client.scene.add_frame(name, show_axes=False)
        self._links: dict[str, Any] = {}
        self._count = 0

    def show(self, joints: Sequence[Float[np.ndarray, "n"]]) -> bool:
        """Put them at these joints; True when the things in the scene are new ones, to which listeners must be added."""
        poses = [link_poses(self.robot, q) for q in joints]
        new = len(joints) != self._count
        if new:
            self._clear()
        self._count = len(joints)
        with self._client.atomic():
            for i, (link, vertices, faces) in enumerate(_hulls(self.robot)):
                if not joints:
                    break
                turns = np.array([wxyz(T[link][:3, :3]) for T in poses], dtype=np.float32)
                places = np.array([T[link][:3, 3] for T in poses], dtype=np.float32)
                if new:
                    self._links[link] = self._client.scene.add_batched_meshes_simple(
                        f"{self._name}/{i}", vertices, faces, turns, places, batched_colors=self._colour,
                        opacity=self._opacity, cast_shadow=False, receive_shadow=False, lod="off",
                    )  # fmt: skip
                else:
                    self._links[link].batched_wxyzs = turns
                    self._links[link].batched_positions = places
        return new

    @property
    def handles(self) -> list[Any]:
        """The things in the scene, to listen to."""
        return list(self._links.values())

    def _clear(self) -> None:
        for handle in self._links.values():
            handle.remove()
        self._links = {}

    def remove(self) -> None:
        """Take them out of the scene."""
        self._links = {}
        self._root.remove()
