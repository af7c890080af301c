"""Pictures of an arm with its goal and obstacles, from a scene of their own: drawing never touches physics."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from ik_sim.chain import CENTRE
from ik_sim.env.setup import Setup
from ik_sim.process import quiet
from ik_sim.se3 import matrix_to_quat_xyzw
from ik_sim.simulation import Simulation

GREEN, RED, GREY = (0.15, 0.68, 0.38, 1.0), (0.84, 0.27, 0.22, 1.0), (0.86, 0.87, 0.89, 1.0)
BELOW = -0.004  # [m] top of the floor, just under the robot's feet


class Scene:
    """A robot that is posed, not simulated; in a window where `window` says so."""

    def __init__(self, setup: Setup, width: int, height: int, window: bool) -> None:
        self._setup, self._size = setup, (width, height)
        self._arm = arm = Simulation(setup.robot, gui=window, visuals=True)
        p, client = arm._p, arm._client
        reach = max(setup.reach, 0.05)
        self._markers: list[int] = []
        with quiet():
            if window:
                p.configureDebugVisualizer(p.COV_ENABLE_GUI, 0, physicsClientId=client)
            half = (1.2 if setup.normal is None else 2.5) * reach  # seen from above, it fills the picture
            self._add(
                p.createVisualShape(
                    p.GEOM_BOX, halfExtents=[half, half, 0.01], rgbaColor=GREY, specularColor=[0, 0, 0],
                    physicsClientId=client,
                ),
                (0.0, 0.0, BELOW - 0.01),
            )  # fmt: skip
            radius = max(setup.tolerance.position, 0.03 * reach)  # else hardly seen
            self._goal = self._ball(radius, GREEN)
            self._spheres: list[tuple[int, float]] = [(-1, -1.0)] * setup.obstacles
        centre = setup.robot.chain.packed[CENTRE : CENTRE + 3]
        if setup.normal is not None:  # a planar arm is seen from above
            eye = centre + np.array([0.0, -0.7, 1.75]) * reach
            look = centre
        else:
            look = centre + np.array([0.15, 0.0, 0.2]) * reach
            eye = look + np.array([1.25, -1.1, 0.75]) * reach
        self._view = p.computeViewMatrix(eye.tolist(), look.tolist(), [0.0, 0.0, 1.0])
        self._projection = p.computeProjectionMatrixFOV(48.0, width / height, 0.05 * reach, 10.0 * reach)
        if window:
            distance = float(np.linalg.norm(eye - look))
            p.resetDebugVisualizerCamera(distance, 48.0, -30.0, look.tolist(), physicsClientId=client)

    def _add(self, shape: int, at: Any) -> int:
        p, client = self._arm._p, self._arm._client
        return p.createMultiBody(0.0, -1, shape, basePosition=list(at), physicsClientId=client)

    def _ball(self, radius: float, color: tuple[float, ...]) -> int:
        p, client = self._arm._p, self._arm._client
        shape = p.createVisualShape(p.GEOM_SPHERE, radius=radius, rgbaColor=color, physicsClientId=client)
        return self._add(shape, (0.0, 0.0, 0.0))

    def pose(
        self, q: Float[np.ndarray, "n"], T_goal: Float[np.ndarray, "4 4"], spheres: Float[np.ndarray, "s 4"]
    ) -> None:
        """Show the arm at `q` with its goal and obstacles."""
        arm, p, client = self._arm, self._arm._p, self._arm._client
        arm.reset(q)
        base = arm.link_pose(self._setup.robot.chain.base_link)

        def put(body: int, T: Float[np.ndarray, "4 4"]) -> None:
            quaternion = matrix_to_quat_xyzw(T[:3, :3]).tolist()
            p.resetBasePositionAndOrientation(body, T[:3, 3].tolist(), quaternion, physicsClientId=client)

        put(self._goal, base @ T_goal)
        for s, sphere in enumerate(spheres):
            body, radius = self._spheres[s]
            if radius != sphere[3]:  # another episode
                if body >= 0:
                    p.removeBody(body, physicsClientId=client)
                body = self._ball(max(float(sphere[3]), 1e-4), RED)
                self._spheres[s] = (body, float(sphere[3]))
            T = np.eye(4)
            T[:3, 3] = sphere[:3]
            put(body, base @ T)

    def picture(self) -> UInt8[np.ndarray, "h w 3"]:
        """What the camera sees."""
        arm, p = self._arm, self._arm._p
        width, height = self._size
        with quiet():
            pixels = p.getCameraImage(
                # Without shadows: their map is too coarse for a floor of this size, and draws rings on it.
                width, height, self._view, self._projection, shadow=0, lightDirection=[1.0, -0.8, 2.6],
                lightDistance=2.0, lightAmbientCoeff=0.55, lightDiffuseCoeff=0.5, lightSpecularCoeff=0.15,
                renderer=p.ER_TINY_RENDERER, physicsClientId=arm._client,
            )[2]  # fmt: skip
        return np.asarray(pixels, dtype=np.uint8).reshape(height, width, 4)[:, :, :3].copy()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._arm.close()
