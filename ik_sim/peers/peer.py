"""What an adapter is, and the arm as it is told to the peers. Imports NumPy and nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

TURN = 2.0 * np.pi
Answer = tuple["np.ndarray | None", bool, "int | None"]
"""Joints (None: no answer), whether the peer itself says that they reach the target, and its iterations if it tells."""


class Arm:
    """A serial arm of revolute joints, T(q) = F_0 Rz(q_0) F_1 Rz(q_1) … F_n, and its limits."""

    def __init__(self, name: str, frames: Any, lower: Any, upper: Any, urdf_path: str) -> None:
        """Take the numbers as they come from the benchmark."""
        self.name, self.urdf_path = name, urdf_path
        self.frames = np.array(frames, dtype=float)
        self.lower, self.upper = np.array(lower, dtype=float), np.array(upper, dtype=float)
        self.n = len(self.lower)
        self.restarts = np.random.default_rng(0).uniform(self.lower, self.upper, (64, self.n))
        """Random starts inside the limits, the same for every peer and every solve."""

    base_link = "l0"

    @property
    def tool_link(self) -> str:
        """Name of the last link in the URDF at `urdf_path`."""
        return f"l{self.n + 1}"

    def fk(self, q: Any) -> np.ndarray:
        """Tool pose in the base, (4, 4)."""
        T = self.frames[0]
        for angle, frame in zip(q, self.frames[1:], strict=True):
            c, s = np.cos(angle), np.sin(angle)
            R = np.array([[c, -s, 0.0, 0.0], [s, c, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
            T = T @ R @ frame
        return T

    def screws(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Zero posture: axes (n, 3), offsets from base over the joints to the tool (n + 1, 3), tool rotation (3, 3)."""
        T, axes, points = np.eye(4), [], [np.zeros(3)]
        for frame in self.frames[:-1]:
            T = T @ frame
            axes.append(T[:3, 2])
            points.append(T[:3, 3])
        T = T @ self.frames[-1]
        points.append(T[:3, 3])
        clean = np.array(axes)
        clean[np.abs(clean) < 1e-14] = 0.0  # cos(π/2) of a URDF's roll; closed forms look for exactly parallel axes
        return clean, np.diff(np.array(points), axis=0), T[:3, :3]


class Peer:
    """One library. A subclass is small: how to set it up for an arm, one solve, and its own forward kinematics."""

    package: ClassVar[str]
    """What is imported, to see whether it is installed."""
    requirements: ClassVar[tuple[str, ...]]
    """What pip installs."""
    environment: ClassVar[str]
    """Peers that share an environment when they are not installed beside ik_sim."""
    licence: ClassVar[str] = ""
    variants: ClassVar[dict[str, dict[str, Any]]] = {"": {}, "default": {}}
    """Settings by name: "" does the peer justice at a tolerance of 1e-6, "default" is what its documentation shows.

    Three names are the same for all, and a benchmark's budget cuts them down (see `within`): `steps`, the iterations of
    one start; `restarts`, the starts after the first; `seconds`, of one solve, None without an end. A peer that lacks one
    of them has no such setting.
    """
    slow: ClassVar[bool] = False
    """Milliseconds a query: it gets a share of the queries only (see `Plan.slow_share`)."""
    fk_tolerance: ClassVar[float] = 1e-9
    """How near its forward kinematics must come to ours [m and rad]; wider for single precision."""

    def __init__(self, arm: Arm, **settings: Any) -> None:
        """Set the peer up for an arm."""
        self.arm = arm

    @classmethod
    def refuses(cls, arm: Arm) -> str:
        """Why this peer can't take the arm; empty where it can."""
        return ""

    @classmethod
    def within(cls, variant: str, budget: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The settings of a variant inside a budget, and the parts of the budget that the peer has no setting for.

        Args:
            variant: a key of `variants`.
            budget: max_iterations (over all starts), max_restarts, max_seconds; None or left out: no bound.
        """
        settings = dict(cls.variants[variant])
        given = {key: value for key, value in budget.items() if value is not None}
        lacking = []
        for key, name in (("max_iterations", "steps"), ("max_restarts", "restarts"), ("max_seconds", "seconds")):
            if key not in given:
                continue
            if name not in settings:
                lacking.append(key)
            elif settings[name] is None or settings[name] > given[key]:
                settings[name] = given[key]
        if "max_iterations" in given and settings.get("steps") and settings.get("restarts"):
            settings["restarts"] = min(settings["restarts"], given["max_iterations"] // settings["steps"] - 1)
        return settings, lacking

    def solve(self, T: np.ndarray, q_seed: np.ndarray) -> Answer:
        """One query, as a user of the library would write it."""
        raise NotImplementedError

    def fk(self, q: np.ndarray) -> np.ndarray:
        """The peer's own idea of the tool pose, (4, 4)."""
        raise NotImplementedError


def nearest_legal(rows: Any, q_seed: np.ndarray, arm: Arm) -> np.ndarray | None:
    """Of a closed form's rows the one nearest to the seed, whole turns included, inside the limits."""
    rows = np.asarray(rows, dtype=float)
    if rows.size == 0:
        return None
    rows = rows + TURN * np.rint((q_seed - rows) / TURN)
    rows = rows - TURN * np.ceil(np.maximum(rows - arm.upper, 0.0) / TURN)
    rows = rows + TURN * np.ceil(np.maximum(arm.lower - rows, 0.0) / TURN)
    legal = rows[((rows >= arm.lower) & (rows <= arm.upper)).all(axis=1)]
    if not len(legal):
        return None
    return legal[np.argmin(((legal - q_seed) ** 2).sum(axis=1))]
