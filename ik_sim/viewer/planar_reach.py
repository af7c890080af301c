"""What the joint limits of a planar chain leave of its reach, as sectors of rings about its root.

The set is built from the tip to the root. What lies beyond joint i sweeps, when that joint turns through its arc
[lower, upper], every angle of the arc: in polar coordinates about the joint a set of angles is widened by an interval.
Shifting it along link i − 1 gives the set seen from the joint before. The last two links are exact on every ring
(their distance fixes the bend); each further link looks its cells up in the grid of the one beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

RINGS, RAYS = 180, 720


class ReachGrid:
    """The reachable set of a chain's tip on a polar grid about its root, the first link's zero along the x axis.

    Args:
        lengths: of the links, root first.
        limits: (lower, upper) of each joint [rad], None for a free one.
    """

    def __init__(self, lengths: Sequence[float], limits: Sequence[tuple[float, float] | None]) -> None:
        self.radius = float(sum(lengths))
        self.mask = _mask(tuple(float(x) for x in lengths), tuple(limits))

    def holds(self, point: Any, cells: int = 0) -> bool:
        """Whether a point relative to the root is in the set, widened by that many cells."""
        x, y = (float(v) for v in point)
        ring = int(np.hypot(x, y) / self.radius * RINGS)
        ray = int((np.arctan2(y, x) + np.pi) / (2 * np.pi) * RAYS)
        if ring >= RINGS + cells:
            return False
        rings = np.arange(max(ring - cells, 0), min(ring + cells, RINGS - 1) + 1)
        # Near the root a cell is narrow: count cells along the arc by their width on the outermost ring.
        spread = RAYS if ring < 2 else int(np.ceil(cells * RINGS / max(ring, 1)))
        rays = np.arange(ray - min(spread, RAYS // 2), ray + min(spread, RAYS // 2) + 1) % RAYS
        return bool(self.mask[np.ix_(rings, rays)].any())

    def sectors(self) -> Float[np.ndarray, "k 4"]:
        """Inner and outer radius, first and last angle [rad] of sectors that together cover the set."""
        rows = []
        width = self.radius / RINGS
        for ring in range(RINGS):
            for first, last in _runs(self.mask[ring]):
                rows.append([ring * width, (ring + 1) * width, *(2 * np.pi * np.array([first, last]) / RAYS - np.pi)])
        return np.array(rows).reshape(-1, 4)


def _runs(row: Bool[np.ndarray, "k"]) -> list[tuple[int, int]]:
    """First and one past the last index of every run of True; a run over the end of the row is cut there."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


@lru_cache(maxsize=16)
def _mask(lengths: tuple[float, ...], limits: tuple[tuple[float, float] | None, ...]) -> Bool[np.ndarray, "rings rays"]:
    arcs = [(-np.pi, np.pi) if limit is None else limit for limit in limits]
    reach = float(sum(lengths))
    radii = (np.arange(RINGS) + 0.5) * reach / RINGS
    if len(lengths) == 1:
        tips = [(np.abs(radii - reach) <= reach / RINGS, np.zeros(RINGS))]
    else:
        tips = _two_links(lengths[-2], lengths[-1], arcs[-1], radii, reach / RINGS)
    low, high = arcs[max(len(lengths) - 2, 0)]
    mask = np.zeros((RINGS, RAYS), dtype=bool)
    for there, angle in tips:
        for ring in np.flatnonzero(there):
            mask[ring, _rays(angle[ring] + low, angle[ring] + high)] = True
    angles = (np.arange(RAYS) + 0.5) * 2 * np.pi / RAYS - np.pi
    x, y = radii[:, None] * np.cos(angles), radii[:, None] * np.sin(angles)
    for i in range(len(lengths) - 3, -1, -1):
        far, turn = np.hypot(x - lengths[i], y), np.arctan2(y, x - lengths[i])
        ring = np.floor(far / reach * RINGS).astype(int)
        ray = np.floor((turn + np.pi) / (2 * np.pi) * RAYS).astype(int) % RAYS
        moved = np.where(ring < RINGS, mask[np.minimum(ring, RINGS - 1), ray], False)
        mask = _swept(moved, *arcs[i])
    mask.flags.writeable = False
    return mask


def _two_links(
    a: float, b: float, arc: tuple[float, float], radii: Float[np.ndarray, "k"], width: float
) -> list[tuple[Bool[np.ndarray, "k"], Float[np.ndarray, "k"]]]:
    """For both bends: on which rings the tip of two links can stand, and at what angle from the first link."""
    # The ring that holds the outer or inner end of the reach counts, though its middle may lie a little outside.
    held = np.clip(radii, abs(a - b), a + b)
    bend = 2 * np.arctan2(
        np.sqrt(np.maximum((a + b - held) * (a + b + held), 0)),
        np.sqrt(np.maximum((held - abs(a - b)) * (held + abs(a - b)), 0)),
    )
    near = np.abs(held - radii) <= 0.5 * width
    low, high = arc
    tips = []
    for sign in (1.0, -1.0):
        off = (sign * bend - 0.5 * (low + high) + np.pi) % (2 * np.pi) - np.pi
        angle = np.arctan2(b * np.sin(sign * bend), a + b * np.cos(bend))
        tips.append((near & (np.abs(off) <= 0.5 * (high - low) + 1e-12), angle))
    return tips


def _rays(low: float, high: float) -> Any:
    """The rays whose cells touch [low, high]."""
    if high - low >= 2 * np.pi:
        return slice(None)
    first = int(np.floor((low + np.pi) / (2 * np.pi) * RAYS))
    last = int(np.floor((high + np.pi) / (2 * np.pi) * RAYS))
    return np.arange(first, min(last, first + RAYS - 1) + 1) % RAYS


def _swept(mask: Bool[np.ndarray, "rings rays"], low: float, high: float) -> Bool[np.ndarray, "rings rays"]:
    """Every ring's set of angles widened by the interval [low, high]."""
    if high - low >= 2 * np.pi:
        return np.repeat(mask.any(axis=1, keepdims=True), RAYS, axis=1)
    first, last = (round(x / (2 * np.pi) * RAYS) for x in (low, high))
    count = min(last - first + 1, RAYS)
    total = np.concatenate([np.zeros((len(mask), 1), int), np.cumsum(np.tile(mask, 2), axis=1)], axis=1)
    start = (np.arange(RAYS) - last) % RAYS  # ray j is reached from the rays j − last to j − first
    return total[:, start + count] > total[:, start]
