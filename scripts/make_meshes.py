"""Make the visual meshes of the robots that ship with ik_sim: numpy in, OBJ files and one palette picture out.

    python scripts/make_meshes.py [--out FOLDER] [ROBOT ...]

Every link becomes one smooth OBJ in its URDF link frame [m]. All colours of a robot live in one small palette
picture, and a face points its texture coordinate at one swatch of it: several `<visual>` materials in one link
would collapse to one colour in PyBullet's window, a palette keeps them in every renderer.

Three kinds of surface are enough:

- `revolve`: a profile with rounded corners turned about an axis (caps, flanges, housings);
- `tube`: a tapered tube that leaves one joint housing and enters another, with a fillet at both ends;
- `slices`: an implicit body cut into horizontal rings (the S-shaped housings, blended out of simple bodies).

The output is a function of this file only: numbers are rounded, the picture is stored uncompressed, so two runs
give the same bytes.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SIDES = 48
"""Sides of a full turn: round at 1280x720, small on disk."""

Array = np.ndarray
Field = Callable[[Array], Array]
"""Signed distance (or something that behaves like it near 0) of points (..., 3): negative inside."""


# --------------------------------------------------------------------------------------------- placing and writing


def frame(x: Sequence[float], z: Sequence[float], origin: Sequence[float] = (0.0, 0.0, 0.0)) -> Array:
    """Pose (4, 4) whose x and z axes point along `x` and `z` (orthogonal unit vectors)."""
    T = np.eye(4)
    T[:3, 0], T[:3, 1], T[:3, 2], T[:3, 3] = x, np.cross(z, x), z, origin
    return T


def along(axis: str, origin: Sequence[float] = (0.0, 0.0, 0.0)) -> Array:
    """Pose (4, 4) whose z axis points along a named axis such as "+z" or "-y"."""
    sign = -1.0 if axis[0] == "-" else 1.0
    z, x = {
        "x": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),
        "y": ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
        "z": ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)),
    }[axis[1]]
    return frame(x, tuple(sign * np.array(z)), origin)


@dataclass
class Mesh:
    """One link's surface: vertices with normals, and faces that each have one colour of the palette."""

    vertices: list[Array] = field(default_factory=list)
    normals: list[Array] = field(default_factory=list)
    faces: list[tuple[tuple[int, ...], int]] = field(default_factory=list)

    def grid(self, points: Array, normals: Array, color: int, T: Array | None = None) -> None:
        """Add a surface of points (rings, SIDES, 3), closed around the ring, outward when rings rise along +z."""
        rings, sides, _ = points.shape
        T = np.eye(4) if T is None else T
        start = sum(len(block) for block in self.vertices)
        self.vertices.append(points.reshape(-1, 3) @ T[:3, :3].T + T[:3, 3])
        self.normals.append(normals.reshape(-1, 3) @ T[:3, :3].T)
        flat = points.reshape(-1, 3)
        for ring in range(rings - 1):
            for side in range(sides):
                after = (side + 1) % sides
                corners = [ring * sides + side, ring * sides + after, (ring + 1) * sides + after]
                corners.append((ring + 1) * sides + side)
                # At a pole a ring is one point, and the quad a triangle.
                kept = [c for i, c in enumerate(corners) if np.abs(flat[c] - flat[corners[i - 1]]).max() > 1e-7]
                if len(kept) >= 3:
                    self.faces.append((tuple(start + c for c in kept), color))

    def write(self, path: Path, colors: int, material: str) -> None:
        """Write an OBJ whose texture coordinates are the middles of the palette's swatches."""
        vertices, normals = np.concatenate(self.vertices), np.concatenate(self.normals)
        normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        vertex_index, vertex_lines = _unique_lines(vertices, 5)
        normal_index, normal_lines = _unique_lines(normals, 3)
        lines = [f"mtllib {material}", "usemtl palette"]
        lines += [f"v {line}" for line in vertex_lines] + [f"vn {line}" for line in normal_lines]
        lines += [f"vt {_number((color + 0.5) / colors, 5)} 0.5" for color in range(colors)]
        for corners, color in self.faces:
            words = [f"{vertex_index[c]}/{color + 1}/{normal_index[c]}" for c in corners]
            lines.append("f " + " ".join(words))
        path.write_bytes(("\n".join(lines) + "\n").encode("ascii"))


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _unique_lines(rows: Array, digits: int) -> tuple[list[int], list[str]]:
    """Text of each row once; and for each row the number (from 1) of its text."""
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(" ".join(_number(v, digits) for v in row), len(numbers) + 1) for row in rows.tolist()]
    return index, list(numbers)


def write_palette(path: Path, colors: Sequence[tuple[int, int, int]], swatch: int = 8) -> None:
    """Write a PNG with one square of `swatch` pixels per colour, stored uncompressed: the same bytes everywhere."""
    row = b"\0" + b"".join(bytes(color) * swatch for color in colors)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(colors) * swatch, swatch, 8, 2, 0, 0, 0)
    image = zlib.compress(row * swatch, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", image) + chunk(b"IEND", b""))


# ----------------------------------------------------------------------------------------------- surfaces of revolution


def round_profile(corners: Sequence[tuple[float, float, float]], steps: int = 5) -> tuple[Array, Array]:
    """Polyline of (radius, height, rounding) to points (k, 2) and outward normals (k, 2).

    A rounding of 0 keeps the corner sharp: its point comes twice, once with each normal.
    """
    points: list[Array] = []
    normals: list[Array] = []
    xy = np.array([(r, z) for r, z, _ in corners], dtype=float)
    for i, (_, _, rounding) in enumerate(corners):
        if i == 0 or i == len(corners) - 1:
            a, b = (xy[0], xy[1]) if i == 0 else (xy[-2], xy[-1])
            points.append(xy[i])
            normals.append(_right(b - a))
            continue
        d_in, d_out = xy[i] - xy[i - 1], xy[i + 1] - xy[i]
        room = 0.499 * min(np.linalg.norm(d_in), np.linalg.norm(d_out))
        d_in, d_out = d_in / np.linalg.norm(d_in), d_out / np.linalg.norm(d_out)
        turn = np.arctan2(d_in[0] * d_out[1] - d_in[1] * d_out[0], d_in @ d_out)
        if rounding <= 0.0 or abs(turn) < 1e-9:
            points += [xy[i], xy[i]]
            normals += [_right(d_in), _right(d_out)]
            continue
        cut = min(rounding * np.tan(abs(turn) / 2), 2 * room - 1e-9 if len(corners) == 3 else room * 1.9)
        radius = cut / np.tan(abs(turn) / 2)
        start, side = xy[i] - cut * d_in, np.sign(turn)
        center = start - side * radius * _right(d_in)
        for angle in np.linspace(0.0, turn, steps + 1):
            normal = _turned(_right(d_in), angle)
            points.append(center + side * radius * normal)
            normals.append(normal)
    return np.array(points), np.array(normals)


def _right(direction: Array) -> Array:
    return np.array([direction[1], -direction[0]]) / np.linalg.norm(direction)


def _turned(vector: Array, angle: float) -> Array:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c * vector[0] - s * vector[1], s * vector[0] + c * vector[1]])


def revolve(
    mesh: Mesh, corners: Sequence[tuple[float, float, float]], color: int, T: Array, steps: int = 5, sides: int = SIDES
) -> None:
    """Turn a profile of (radius, height, rounding), listed upwards with the body on its left, about the z axis of T."""
    points, normals = round_profile(corners, steps)
    phi = np.arange(sides) * (2 * np.pi / sides)
    around = np.stack([np.cos(phi), np.sin(phi)], axis=-1)

    def turned(rows: Array) -> Array:
        flat = rows[:, None, 0, None] * around[None]
        return np.concatenate([flat, np.broadcast_to(rows[:, None, 1, None], (len(rows), sides, 1))], axis=-1)

    # Where two neighbouring points coincide (sharp corner) the ring of faces has no area: leave it out.
    cuts = [i + 1 for i in range(len(points) - 1) if np.abs(points[i + 1] - points[i]).max() < 1e-9]
    for part in np.split(np.arange(len(points)), cuts):
        mesh.grid(turned(points[part]), turned(normals[part]), color, T)


def housing(mesh: Mesh, T: Array, radius: float, low: float, high: float, body: int, lid: int, *, flip: bool) -> None:
    """A joint housing about the z axis of T: flange at one end, domed lid at the other (`flip`: at the low end)."""
    if flip:
        T = T @ np.diag([1.0, -1.0, -1.0, 1.0])
        low, high = -high, -low
    seam = high - 0.27 * radius
    revolve(mesh, [(0.0, low, 0), (radius - 0.0015, low, 0), (radius, low + 0.0015, 0), (radius, seam, 0)], body, T)
    revolve(mesh, [(radius, seam, 0), (radius - 0.0016, seam + 0.0008, 0), (radius - 0.0016, seam + 0.002, 0)], DARK, T)
    rim = radius - 0.0003
    revolve(
        mesh,
        [(radius - 0.0016, seam + 0.002, 0), (rim, seam + 0.002, 0.0006), (rim, high, 0.2 * radius), (0.0, high, 0)],
        lid,
        T,
        steps=7,
    )


# --------------------------------------------------------------------------------------------------- tubes with fillets


@dataclass(frozen=True)
class Mouth:
    """Where a tube meets a joint housing: the housing's radius, the tube's radius there, and the fillet between [m]."""

    housing: float
    tube: float
    fillet: float


def tube(mesh: Mesh, start: Mouth, end: Mouth | None, length: float, color: int, T: Array, steps: int = 6) -> None:
    """Tube along the x axis of T between housings whose axes are parallel to its z axis; `end` None is a plain end.

    The fillets stop short of tangency and 1 mm under the housing's surface: two surfaces that touch along a line are
    drawn with a ragged edge.
    """
    phi = np.arange(SIDES) * (2 * np.pi / SIDES)
    last = start if end is None else end
    knots = np.concatenate(
        [
            np.linspace(0.2, 1.0, steps + 1),
            [1.5] if end is not None else [],
            np.linspace(2.0, 2.8, steps + 1) if end is not None else [2.0],
        ]
    )

    def surface(t: Array, angle: Array) -> Array:
        blend = np.clip(t - 1.0, 0.0, 1.0)
        near, far = np.clip(1.0 - t, 0.0, 1.0), np.clip(t - 2.0, 0.0, 1.0)
        radius = (1 - blend) * start.tube + blend * last.tube
        radius = radius + start.fillet * (1 - np.cos(near * np.pi / 2)) + last.fillet * (1 - np.cos(far * np.pi / 2))
        side = radius * np.sin(angle)
        x_start = np.sqrt(np.maximum((start.housing - 0.001) ** 2 - side**2, 0.0)) + start.fillet * (
            1 - np.sin(near * np.pi / 2)
        )
        x_end = np.full_like(x_start, length)
        if end is not None:
            x_end = length - np.sqrt(np.maximum((end.housing - 0.001) ** 2 - side**2, 0.0))
            x_end = x_end - end.fillet * (1 - np.sin(far * np.pi / 2))
        return np.stack([(1 - blend) * x_start + blend * x_end, side, -radius * np.cos(angle)], axis=-1)

    t, angle = np.meshgrid(knots, phi, indexing="ij")
    h = 1e-4
    # One-sided at the ends: beyond them the surface goes on differently.
    t_low, t_high = np.maximum(t - h, knots[0]), np.minimum(t + h, knots[-1])
    normals = np.cross(surface(t, angle + h) - surface(t, angle - h), surface(t_high, angle) - surface(t_low, angle))
    mesh.grid(surface(t, angle), _unit(normals), color, T)


def _unit(rows: Array) -> Array:
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-300)


# ------------------------------------------------------------------------------------------------------ implicit bodies


def smooth_union(a: Array, b: Array, k: float) -> Array:
    """Union of two fields with a blend about `k` wide."""
    h = np.clip(0.5 + 0.5 * (b - a) / k, 0.0, 1.0)
    return b + (a - b) * h - k * h * (1 - h)


def round_intersection(a: Array, b: Array, k: float) -> Array:
    """Intersection of two fields whose edge has radius `k`."""
    return np.minimum(np.maximum(a, b), -k) + np.hypot(np.maximum(a + k, 0.0), np.maximum(b + k, 0.0))


def round_cone(p: Array, a: Sequence[float], b: Sequence[float], r_a: float, r_b: float) -> Array:
    """Field of the hull of two spheres (close enough to a distance for blending)."""
    start, way = np.array(a), np.array(b) - np.array(a)
    t = np.clip(((p - start) @ way) / (way @ way), 0.0, 1.0)
    return np.linalg.norm(p - start - t[..., None] * way, axis=-1) - (r_a + (r_b - r_a) * t)


def drum(p: Array, low: float, high: float, radius: float, k_low: float, k_high: float, z: float = 0.0) -> Array:
    """Cylinder about a line parallel to y at height `z`, from y = low to high, with rounded rims."""
    side = np.hypot(p[..., 0], p[..., 2] - z) - radius
    return round_intersection(round_intersection(side, p[..., 1] - high, k_high), low - p[..., 1], k_low)


def smoothstep(value: Array, low: float, high: float) -> Array:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((value - low) / (high - low), 0.0, 1.0)
    return t * t * (3 - 2 * t)


def slices(
    mesh: Mesh,
    body: Field,
    heights: Array,
    center: Callable[[Array], Array],
    color: int,
    T: Array,
    *,
    top: float | None = None,
    bottom: float | None = None,
) -> None:
    """Skin an implicit body with one ring per height; `center` gives a y inside the body for each height.

    The rays of a ring are spread as on an ellipse as wide and as long as the body there, so that thin slices are
    sampled as evenly as round ones. `top` and `bottom` close the skin with a ridge along y at that height.
    """
    sides = SIDES
    y = center(heights)
    middle = np.stack([np.zeros_like(y), y, heights], axis=-1)

    def cast(directions: Array) -> Array:
        near, far = np.zeros(directions.shape[:-1]), np.full(directions.shape[:-1], 0.3)
        for _ in range(40):
            half = 0.5 * (near + far)
            inside = body(middle[:, None] + half[..., None] * directions) < 0.0
            near, far = np.where(inside, half, near), np.where(inside, far, half)
        return near

    compass = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0]])
    reach = cast(np.broadcast_to(compass, (len(heights), 3, 3)))
    phi = np.arange(sides) * (2 * np.pi / sides)
    wide, fore, aft = (np.maximum(reach[:, i, None], 1e-6) for i in range(3))
    long = np.where(np.sin(phi) >= 0, fore, aft)
    rays = _unit(np.stack([wide * np.cos(phi), long * np.sin(phi), np.zeros((len(heights), sides))], axis=-1))
    points = middle[:, None] + cast(rays)[..., None] * rays
    # The rim of the last ring, drawn together to a line.
    for ridge, ring in ((bottom, 0), (top, -1)):
        if ridge is not None:
            line = points[ring] * np.array([0.0, 1.0, 0.0]) + np.array([0.0, 0.0, ridge])
            points = np.insert(points, 0 if ring == 0 else len(points), line, axis=0)
    h = 2e-5
    steps = np.eye(3) * h
    normals = _unit(np.stack([body(points + step) - body(points - step) for step in steps], axis=-1))
    mesh.grid(points, normals, color, T)


# --------------------------------------------------------------------------------------------------------------- robots

LIGHT, HOUSING, ACCENT, DARK, METAL, BLACK = range(6)
"""Swatches every palette has, in this order."""

PALETTES: dict[str, list[tuple[int, int, int]]] = {
    # tube, housing, lid, seal and dark parts, bare metal, rubber
    "ur5": [(222, 225, 228), (196, 200, 205), (104, 158, 194), (72, 76, 82), (168, 172, 177), (38, 40, 43)],
    # housing, second housing tone, orange, dark grey, bare metal, rubber
    "iiwa14": [(232, 233, 232), (203, 206, 208), (243, 118, 24), (66, 69, 73), (172, 175, 178), (38, 40, 43)],
    "planar2": [(206, 211, 217), (52, 110, 165), (240, 150, 40), (70, 74, 80), (176, 180, 185), (36, 38, 42)],
    "planar3": [(206, 211, 217), (52, 110, 165), (240, 150, 40), (70, 74, 80), (176, 180, 185), (36, 38, 42)],
}


def ur5() -> dict[str, Mesh]:
    """The six-axis arm: tubes between T-shaped joint housings with blue lids. Frames as in robots/ur5/ur5.urdf."""
    d1, a2, a3, d4, d5 = 0.089159, 0.425, 0.39225, 0.10915, 0.09465
    # Where the centre planes of the tubes lie along the parallel axes 2, 3, 4, from the plane of axis 1.
    upper, fore = 0.13585, 0.01615
    big, elbow, small = 0.0580, 0.0545, 0.0385
    links = {name: Mesh() for name in ("base", "shoulder", "upper_arm", "forearm", "wrist_1", "wrist_2", "wrist_3")}

    m = links["base"]
    revolve(m, [(0, 0, 0), (0.0745, 0, 0.001), (0.0745, 0.0095, 0.002), (0.0615, 0.0115, 0.002)], METAL, along("+z"))
    revolve(m, [(0.0615, 0.0105, 0), (0.0590, 0.0130, 0.002), (0.0580, 0.0275, 0)], HOUSING, along("+z"))
    revolve(m, [(0.0580, 0.0275, 0), (0.0550, 0.0277, 0), (0.0550, 0.0360, 0)], DARK, along("+z"))
    for angle in np.radians([45, 135, 225, 315]):
        at = (0.0680 * np.cos(angle), 0.0680 * np.sin(angle), 0.008)
        revolve(m, [(0.0048, 0, 0), (0.0048, 0.0055, 0.0008), (0, 0.0055, 0)], DARK, along("+z", at), 2, 16)
    plug = along("-y", (0, -0.052, 0.0200))
    revolve(m, [(0.0075, 0, 0), (0.0075, 0.016, 0.001), (0.0050, 0.016, 0)], DARK, plug, 2, 24)
    revolve(m, [(0.0050, 0.016, 0), (0.0050, 0.022, 0.001), (0, 0.022, 0)], BLACK, plug, 2, 24)

    lift = along("-y", (0, 0, d1))  # axis 2
    m = links["shoulder"]
    revolve(m, [(0.0540, 0.0298, 0), (0.0565, 0.0298, 0), (0.0577, 0.0310, 0), (0.0577, d1, 0)], HOUSING, along("+z"))
    housing(m, lift, big, -0.0700, 0.0665, HOUSING, ACCENT, flip=True)
    seal(m, lift, big, 0.0665, 0.0695)

    m = links["upper_arm"]
    axis = along("+z")
    housing(m, axis, big, 0.0685, 0.2045, HOUSING, ACCENT, flip=False)
    housing(m, along("+z", (-a2, 0, 0)), elbow, 0.0785, 0.1960, HOUSING, ACCENT, flip=False)
    middle = frame((-1, 0, 0), (0, 0, 1), (0, 0, upper))
    tube(m, Mouth(big, 0.0460, 0.010), Mouth(elbow, 0.0430, 0.010), a2, LIGHT, middle)
    seal(m, along("-z", (-a2, 0, 0.0785)), elbow, 0, 0.0030)

    m = links["forearm"]
    housing(m, axis, elbow, -0.0570, 0.0765, HOUSING, ACCENT, flip=True)
    housing(m, along("+z", (-a3, 0, 0)), small, -0.0340, 0.0535, HOUSING, ACCENT, flip=True)
    middle = frame((-1, 0, 0), (0, 0, 1), (0, 0, fore))
    tube(m, Mouth(elbow, 0.0400, 0.011), Mouth(small, 0.0320, 0.0055), a3, LIGHT, middle)
    seal(m, along("+z", (-a3, 0, 0)), small, 0.0535, 0.0560)

    m = links["wrist_1"]
    housing(m, axis, small, 0.0550, 0.1560, HOUSING, ACCENT, flip=False)
    stub(m, along("-y", (0, 0, d4)), small - 0.0004, 0.0465)

    m = links["wrist_2"]
    housing(m, axis, small, 0.0480, 0.1415, HOUSING, ACCENT, flip=False)
    stub(m, along("+y", (0, 0, d5)), small - 0.0004, 0.0465)

    m = links["wrist_3"]
    revolve(
        m,
        [(0.034, 0.0480, 0), (0.0372, 0.0480, 0), (small, 0.0493, 0), (small, 0.0720, 0.0025), (0.033, 0.0745, 0)],
        DARK,
        axis,
    )
    revolve(m, [(0.0335, 0.0740, 0), (0.0315, 0.0742, 0), (0.0315, 0.0823, 0.0008), (0.0165, 0.0823, 0)], METAL, axis)
    revolve(m, [(0.0165, 0.0823, 0), (0.0160, 0.0790, 0), (0, 0.0790, 0)], DARK, axis)
    for angle in np.radians([45, 135, 225, 315]):
        at = (0.025 * np.cos(angle), 0.025 * np.sin(angle), 0.0800)
        revolve(m, [(0.003, 0, 0), (0.003, 0.00245, 0), (0, 0.00245, 0)], BLACK, along("+z", at), 2, 12)
    return links


def seal(mesh: Mesh, T: Array, radius: float, low: float, high: float) -> None:
    """The dark ring that closes the gap between two housings."""
    revolve(mesh, [(radius - 0.0035, low - 0.006, 0), (radius - 0.0035, high + 0.006, 0)], DARK, T)


def stub(mesh: Mesh, T: Array, radius: float, high: float) -> None:
    """The short arm of an L-shaped wrist housing, with its seal."""
    rim = high - 0.0013
    revolve(mesh, [(radius, 0, 0), (radius, rim, 0), (radius - 0.0013, high, 0), (radius - 0.004, high, 0)], HOUSING, T)
    seal(mesh, T, radius, high, high + 0.003)


def s_housing(foot: float, hinge: float, lobe: float, depth: float) -> tuple[Field, Callable[[Array], Array]]:
    """A housing on a round foot at z = 0 that leans towards +y to hold a hinge along y at z = `hinge`.

    The hinge's head is a drum of radius `lobe` from y = 0 to `depth`; the other link's drum has its place at y < 0.
    Returns the field, and a y inside the body for each height.
    """
    face, bend = 0.0025, hinge - 0.93 * lobe

    def body(p: Array) -> Array:
        x, y, z = p[..., 0], p[..., 1], p[..., 2]
        head = drum(p, face, depth, lobe, 0.004, 0.046, hinge)
        lean = smoothstep(z, -0.004, bend)
        wide, long = foot + (0.93 * lobe - foot) * lean, foot + (0.40 * depth - foot) * lean
        neck = (np.hypot(x / wide, (y - 0.46 * depth * lean) / long) - 1.0) * np.minimum(wide, long)
        neck = round_intersection(neck, z - hinge, 0.02)
        joined = smooth_union(head, neck, 0.024)
        limit = face - (foot + 0.03) * (1 - smoothstep(z, 0.0, hinge - lobe))
        return round_intersection(joined, limit - y, 0.004)

    return body, lambda z: 0.46 * depth * smoothstep(z, -0.004, bend)


def iiwa14() -> dict[str, Mesh]:
    """The seven-axis arm: S-shaped light housings, orange covers. Frames as in robots/iiwa14/iiwa14.urdf."""
    links = {f"link_{i}": Mesh() for i in range(8)}
    up = along("+z")

    m = links["link_0"]
    foot = [(0, 0, 0), (0.1150, 0, 0.0015), (0.1150, 0.012, 0.002), (0.110, 0.014, 0.004), (0.0885, 0.146, 0)]
    revolve(m, foot, DARK, up)
    revolve(m, [(0.0885, 0.146, 0), (0.0890, 0.1465, 0.0004), (0.0870, 0.1560, 0.001), (0.0780, 0.1560, 0)], ACCENT, up)
    revolve(m, [(0.0822, 0.150, 0), (0.0822, 0.1605, 0)], BLACK, up)

    def hinged(name: str, foot: float, hinge: float, side: str, lobe: float, depth: float) -> None:
        """One S-shaped link; `side` is where its head lies, and whether the foot is its lower or its upper end."""
        m = links[name]
        body, center = s_housing(foot, hinge, lobe, depth)
        y = (0.0, 1.0 if side[1] == "+" else -1.0, 0.0)
        z = (0.0, 0.0, 1.0 if side[0] == "^" else -1.0)
        T = frame(tuple(np.cross(y, z)), z, (0, 0, 0 if side[0] == "^" else hinge))
        dome = hinge + lobe * np.sin(np.linspace(0, 0.49 * np.pi, 12)[1:])
        rise = np.concatenate([np.linspace(0.0003, hinge, 24), dome])
        slices(m, body, rise, center, LIGHT, T, top=hinge + lobe)
        hub = T @ along("+y", (0, 0, hinge))
        cover = 0.54 * lobe
        revolve(m, [(cover, depth - 0.012, 0), (cover, depth + 0.0030, 0.0020), (0, depth + 0.0030, 0)], ACCENT, hub)
        revolve(m, [(lobe - 0.010, -0.0040, 0), (lobe - 0.010, 0.0060, 0)], DARK, hub)
        if side[0] == "v":
            # Closes the slit to the next link, seen from any side.
            revolve(m, [(foot - 0.0016, -0.0025, 0), (foot - 0.0016, 0.0025, 0)], DARK, T)

    hinged("link_1", 0.0840, 0.2025, "^-", 0.0800, 0.1080)
    hinged("link_2", 0.0640, 0.2045, "v+", 0.0800, 0.1080)
    hinged("link_3", 0.0640, 0.2155, "^+", 0.0680, 0.1000)
    hinged("link_4", 0.0640, 0.1845, "v-", 0.0680, 0.1000)

    m = links["link_5"]
    reach, foot_radius, arm = 0.2155, 0.0640, 0.0460

    def forearm(p: Array) -> Array:
        x, y, z = p[..., 0], p[..., 1], p[..., 2]
        lean = smoothstep(z, 0.030, 0.135)
        wide, fore = foot_radius + (0.96 * arm - foot_radius) * lean, foot_radius + (0.0145 - foot_radius) * lean
        blade = (np.hypot(x / wide, (y + 0.0720 * lean) / fore) - 1.0) * np.minimum(wide, fore)
        blade = round_intersection(blade, z - reach, 0.01)
        joined = smooth_union(drum(p, -0.0930, -0.0500, arm, 0.016, 0.004, reach), blade, 0.012)
        # Room for link 6, which turns about the hinge.
        sweep = np.hypot(x, z - reach) - 0.0800
        return round_intersection(joined, -round_intersection(-0.0500 - y, sweep, 0.012), 0.006)

    dome = reach + arm * np.sin(np.linspace(0, 0.48 * np.pi, 9)[1:])
    rise = np.concatenate([np.linspace(0.0003, reach, 28), dome])
    slices(m, forearm, rise, lambda z: -0.074 * smoothstep(z, 0.030, 0.135), LIGHT, np.eye(4), top=reach + arm)
    hub = along("-y", (0, 0, reach))
    revolve(m, [(0.027, 0.080, 0), (0.027, 0.0950, 0.0018), (0, 0.0950, 0)], ACCENT, hub)

    m = links["link_6"]

    def wrist(p: Array) -> Array:
        ball = drum(p, -0.0460, 0.0640, 0.0600, 0.014, 0.044)
        whole = smooth_union(ball, round_cone(p, (0, 0, 0), (0, 0, 0.09), 0.0465, 0.0465), 0.030)
        return round_intersection(whole, p[..., 2] - 0.0598, 0.004)

    bowl = -0.060 * np.cos(np.linspace(0.02 * np.pi, np.pi / 2, 13))
    rise = np.concatenate(
        [bowl, np.linspace(0.0, 0.0556, 12)[1:], 0.0598 - 0.0042 * np.array([0.7, 0.4, 0.2, 0.1, 0.03])]
    )
    slices(
        m, wrist, rise, lambda z: 0.006 * (1 - smoothstep(z, 0.0, 0.05)), HOUSING, np.eye(4), bottom=-0.060, top=0.0598
    )
    revolve(m, [(0.0330, 0.0520, 0), (0.0330, 0.0665, 0.0018), (0, 0.0665, 0)], ACCENT, along("+y"))
    revolve(m, [(0.0420, -0.0060, 0), (0.0420, 0.0170, 0)], DARK, along("-y", (0, -0.0440, 0)))
    revolve(m, [(0.0450, 0.0590, 0), (0.0450, 0.0640, 0)], BLACK, up)

    m = links["link_7"]
    revolve(m, [(0.042, -0.0208, 0), (0.0465, -0.0208, 0.0006), (0.0465, 0.0160, 0.003), (0.0430, 0.0200, 0)], DARK, up)
    revolve(m, [(0.0430, 0.0200, 0), (0.0410, 0.0205, 0), (0.0410, 0.0250, 0), (0.0440, 0.0252, 0)], BLACK, up)
    revolve(m, [(0.0440, 0.0252, 0), (0.0440, 0.0425, 0.002), (0.0320, 0.0425, 0)], DARK, up)
    revolve(m, [(0.0320, 0.0420, 0), (0.0315, 0.0450, 0.0006), (0.0100, 0.0450, 0), (0.0100, 0.0400, 0)], METAL, up)
    revolve(m, [(0.0105, 0.0410, 0), (0, 0.0410, 0)], BLACK, up)
    for angle in np.arange(7) * (2 * np.pi / 8) + np.pi / 8:
        at = (0.025 * np.cos(angle), 0.025 * np.sin(angle), 0.0430)
        revolve(m, [(0.003, 0, 0), (0.003, 0.0022, 0), (0, 0.0022, 0)], BLACK, along("+z", at), 2, 12)
    return links


def bar(mesh: Mesh, length: float, corners: Sequence[tuple[float, float, float]], color: int, steps: int = 4) -> None:
    """A flat bar with round ends from the origin to x = length; the profile is that of `revolve` at its ends."""
    points, normals = round_profile(corners, steps)
    phi = np.arange(SIDES) * (2 * np.pi / SIDES) + np.pi / SIDES
    around = np.stack([np.cos(phi), np.sin(phi), np.zeros(SIDES)], axis=-1)
    ends = np.where(np.cos(phi)[:, None] > 0, np.array([length, 0.0, 0.0]), np.zeros(3))
    rise = np.array([0.0, 0.0, 1.0])
    cuts = [i + 1 for i in range(len(points) - 1) if np.abs(points[i + 1] - points[i]).max() < 1e-9]
    for part in np.split(np.arange(len(points)), cuts):
        r, z = points[part, 0, None, None], points[part, 1, None, None]
        n_r, n_z = normals[part, 0, None, None], normals[part, 1, None, None]
        mesh.grid(ends + r * around + z * rise, n_r * around + n_z * rise, color)


def planar(lengths: Sequence[float]) -> dict[str, Mesh]:
    """A planar arm of stacked flat bars whose last one carries a stylus down to the plane z = 0."""
    up = along("+z")
    thick, pitch = 0.018, 0.0215
    base = Mesh()
    revolve(base, [(0, 0, 0), (0.0600, 0, 0.001), (0.0600, 0.0090, 0.0025), (0, 0.0090, 0)], DARK, up)
    revolve(base, [(0.0300, 0.0085, 0), (0.0280, 0.0125, 0)], METAL, up)
    links = {"base": base}
    for i, length in enumerate(lengths):
        m = links[f"link_{i + 1}"] = Mesh()
        half, low = 0.0250 - 0.003 * i, 0.012 + pitch * i
        high = low + thick
        bar(m, length, [(0, low, 0), (half, low, 0.003), (half, high, 0.003), (0, high, 0)], (HOUSING, LIGHT)[i % 2])
        # The pivot's cap over the joint below, its pin and washer towards the next bar, or the stylus.
        cap = 0.68 * half
        revolve(m, [(cap, high - 0.001, 0), (cap, high + 0.0022, 0.0012), (0, high + 0.0022, 0)], ACCENT, up)
        pin = 0.30 * half
        revolve(m, [(pin, high, 0), (pin, high + 0.0034, 0.0008), (0, high + 0.0034, 0)], DARK, up)
        end = along("+z", (length, 0, 0))
        if i + 1 < len(lengths):
            revolve(m, [(cap, high - 0.001, 0), (cap, high + pitch - thick, 0)], DARK, end)
            continue
        revolve(m, [(cap, high - 0.001, 0), (cap, high + 0.004, 0.0015), (0, high + 0.004, 0)], DARK, end)
        stylus = [(0, 0.0006, 0), (0.0022, 0.0045, 0.001), (0.0065, 0.0160, 0), (0.0065, low + 0.001, 0)]
        revolve(m, stylus, ACCENT, end)
    return links


ROBOTS: dict[str, Callable[[], dict[str, Mesh]]] = {
    "ur5": ur5,
    "iiwa14": iiwa14,
    "planar2": lambda: planar((0.5, 0.4)),
    "planar3": lambda: planar((0.4, 0.3, 0.2)),
}


def make(name: str, folder: Path) -> None:
    """Write the meshes, the material file and the palette of one robot into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    palette = PALETTES[name]
    write_palette(folder / "palette.png", palette)
    material = "newmtl palette\nKa 1 1 1\nKd 1 1 1\nKs 0.1 0.1 0.1\nmap_Kd palette.png\n"
    (folder / "palette.mtl").write_bytes(material.encode("ascii"))
    for link, mesh in ROBOTS[name]().items():
        if mesh.vertices:
            mesh.write(folder / f"{link}.obj", len(palette), "palette.mtl")


def main() -> None:
    """Read the command line and make the meshes it names (all of them without names)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("robots", nargs="*", metavar="ROBOT", help=f"one or more of {', '.join(ROBOTS)}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "robots", help="robots folder")
    options = parser.parse_args()
    for name in options.robots or ROBOTS:
        if name not in ROBOTS:
            parser.error(f"no meshes for {name!r}; known: {', '.join(ROBOTS)}")
        make(name, options.out / name / "meshes")


if __name__ == "__main__":
    main()
