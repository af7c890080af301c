"""What a planar bench looks like at one moment: a plain description that any renderer can draw, and an SVG renderer.

:func:`frame` makes one panel for each method that is shown; a panel holds lines, circles, arrows, dots, labels and areas
in the bench's own coordinates. Things are named by their role, not by a colour: `COLOURS` has a set for light ground and
one for dark. :func:`read_outs` are the numbers beside the picture.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal
from xml.sax.saxutils import escape

import numpy as np
from jaxtyping import Float

from ik_sim.viewer.planar import METHODS, PlanarLab, jacobian_columns

COLOURS: dict[str, dict[str, str]] = {
    "light": {
        "ground": "#ffffff", "ink": "#1b1f24", "faint": "#b8bec6", "reach": "#7d8792", "region": "#4c78a8",
        "solving": "#e8890c", "reached": "#2f9e44", "unreachable": "#e03131", "ghost": "#a0a8b2",
        "construction": "#7048e8", "target": "#c2255c", "column": "#1971c2", "error": "#c2255c", "limit": "#4c78a8",
        "other": "#868e96", "trace": "#9c59c9",
    },
    "dark": {
        "ground": "#1a1b1e", "ink": "#e8ebee", "faint": "#4a5058", "reach": "#8d97a2", "region": "#74a7dd",
        "solving": "#ffa94d", "reached": "#51cf66", "unreachable": "#ff6b6b", "ghost": "#6b737d",
        "construction": "#b197fc", "target": "#f783ac", "column": "#4dabf7", "error": "#f783ac", "limit": "#74a7dd",
        "other": "#adb5bd", "trace": "#c79be8",
    },
}  # fmt: skip
"""By ground and role."""
STATUS_ROLES = {
    "solving": "solving", "reached": "reached", "unreachable": "unreachable", "stalled": "unreachable",
    "unsupported": "other", "failed": "unreachable",
}  # fmt: skip
"""The role in which an arm is drawn, by the status of its method."""
STATUS_WORDS = {
    "solving": "solving", "reached": "reached", "unreachable": "unreachable", "stalled": "stalled",
    "unsupported": "not for this model", "failed": "failed",
}  # fmt: skip
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
COLUMN_SCALE = 0.35
"""Length at which a column of the Jacobian is drawn."""


@dataclass(frozen=True, eq=False)
class Line:
    """A polyline; its width counts in thousandths of the panel's width."""

    points: Float[np.ndarray, "k 2"]
    role: str
    width: float = 3.0
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Circle:
    """A circle."""

    centre: tuple[float, float]
    radius: float
    role: str
    width: float = 2.0
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Arrow:
    """An arrow."""

    start: tuple[float, float]
    end: tuple[float, float]
    role: str
    width: float = 4.0


@dataclass(frozen=True, eq=False)
class Dot:
    """A disc; its radius counts in thousandths of the panel's width."""

    centre: tuple[float, float]
    role: str
    radius: float = 9.0
    hollow: bool = False


@dataclass(frozen=True, eq=False)
class Label:
    """A text beside a point, away from it by `offset` thousandths of the panel's width."""

    at: tuple[float, float]
    text: str
    role: str = "ink"
    offset: tuple[float, float] = (12.0, 12.0)


@dataclass(frozen=True, eq=False)
class Area:
    """Sectors of rings about a centre: inner and outer radius, first and last angle [rad]."""

    centre: tuple[float, float]
    sectors: Float[np.ndarray, "k 4"]
    role: str
    opacity: float = 0.16


Item = Line | Circle | Arrow | Dot | Label | Area


@dataclass(frozen=True, eq=False)
class Panel:
    """What one method does, in the bench's coordinates; `offset` moves it to its place in the frame."""

    method: str
    title: str
    role: str
    """Colour of the title: the method's status."""
    offset: tuple[float, float]
    items: tuple[Item, ...]

    def of(self, kind: type, role: str | None = None) -> list[Any]:
        """The items of a kind (and role)."""
        return [item for item in self.items if isinstance(item, kind) and (role is None or item.role == role)]


@dataclass(frozen=True, eq=False)
class Frame:
    """All panels, each `width` wide and high about its offset."""

    panels: tuple[Panel, ...]
    width: float

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Least x and y, largest x and y."""
        offsets, half = np.array([panel.offset for panel in self.panels]), 0.5 * self.width
        (x0, y0), (x1, y1) = offsets.min(axis=0) - half, offsets.max(axis=0) + half
        return float(x0), float(y0), float(x1), float(y1)

    def locate(self, x: float, y: float) -> tuple[float, float]:
        """A point of the frame in the bench's coordinates: relative to the panel that it is nearest to."""
        offset = min((panel.offset for panel in self.panels), key=lambda o: max(abs(o[0] - x), abs(o[1] - y)))
        return x - offset[0], y - offset[1]


def best_columns(count: int, wide: float, high: float) -> int:
    """In how many columns so many square panels are drawn largest on a ground of that shape."""
    return max(range(1, count + 1), key=lambda columns: min(wide / columns, high / math.ceil(count / columns)))


def frame(lab: PlanarLab, width: float | None = None, columns: int | None = None) -> Frame:
    """Describe the bench as it stands, in panels of that width and so many columns of them.

    When left out, panels are as wide as reach and targets ask for, and columns make a square or a row of three.
    """
    shown = lab.bench.shown
    if width is None:
        farthest = float(np.abs(lab.targets - lab.skeleton.rest[0]).max())
        width = 2.0 * max(1.12 * lab.size, min(1.08 * farthest, 2.0 * lab.size))
    if columns is None:
        columns = math.ceil(math.sqrt(len(shown))) if len(shown) != 3 else 3
    rows = math.ceil(len(shown) / columns)
    panels = []
    for k, method in enumerate(shown):
        x, y = k % columns - 0.5 * (columns - 1), 0.5 * (rows - 1) - k // columns
        status = lab.status(method)
        title = METHODS[method] if len(shown) > 1 else ""
        if title:
            title += f": {STATUS_WORDS[status]}"
        items = _items(lab, method, STATUS_ROLES[status], width)
        panels.append(Panel(method, title, STATUS_ROLES[status], (x * width * 1.02, y * width * 1.06), tuple(items)))
    return Frame(tuple(panels), width)


def _xy(point: Any) -> tuple[float, float]:
    return float(point[0]), float(point[1])


def _items(lab: PlanarLab, method: str, role: str, width: float) -> list[Item]:
    items: list[Item] = []
    s, root = lab.skeleton, _xy(lab.skeleton.rest[0])
    many = len(lab.bench.shown) > 1
    region = lab.region
    if region is not None:
        grid, turns = region
        sectors = grid.sectors()
        for turn in turns:
            items.append(Area(root, sectors + np.array([0.0, 0.0, turn, turn]), "region"))
    for inner, outer in sorted({lab.reach(k) for k in range(len(lab.targets))}):
        items.append(Circle(root, outer, "reach"))
        if inner > 0:
            items.append(Circle(root, inner, "reach", dashed=True))
    if len(lab.trace) > 1:
        items.append(Line(lab.trace, "trace", 4.0))
    run = lab.run(method)
    points, pose, phase = lab.points(method), lab.pose(method), lab.phase(method)
    row = lab.cursor[method]
    if not run.supported:
        items += _skeleton_lines(lab, points, "ghost", 6.0)
        items.append(Label((root[0], root[1] - 0.3 * width), run.ended.split(";")[0], "other", (0.0, 0.0)))
        return items + _targets(lab, root)
    if lab.limited and lab.bench.model == "single":
        items += _limit_wedges(lab, pose, width)
    if row > 0 and phase != "backward":
        items += [Line(line.points, "faint", 3.0) for line in _skeleton_lines(lab, lab.start, "faint", 3.0)]
    before = run.points[row - 1] if row else points
    if phase in ("backward", "forward") and row:
        items += _passes(lab, phase, before, points, width)
    elif method == "ccd":
        if row:
            items += _sweep(lab, before, points)
    elif method == "closed_form":
        for k, (other, wrong) in enumerate(run.other):
            items.append(Line(other, "unreachable" if wrong else "other", 5.0, dashed=True))
            items += [Dot(_xy(p), "other", 6.0, hollow=True) for p in other[1:]]
            text = f"other elbow{': breaks a limit' if wrong else ''}" if phase == "answer" else f"elbow {k + 1}"
            items.append(Label(_xy(other[1]), text, "unreachable" if wrong else "other"))
    if method not in ("fabrik", "ccd", "closed_form") and lab.bench.model == "single":
        items += _columns(lab, pose, many)
    items += _skeleton_lines(lab, points, role, 11.0)
    items += [Dot(_xy(p), "ink", 9.0 if i else 13.0) for i, p in enumerate(points)]
    for effector in s.effectors:
        items.append(Dot(_xy(points[effector]), role, 11.0))
    if not many and len(points) <= 9:
        prime = {"backward": "′", "forward": "″"}.get(phase, "")
        for i, p in enumerate(points):
            items.append(Label(_xy(p), f"p{i}".translate(_SUBSCRIPT) + prime, "ink", (-18.0, -30.0)))
    return items + _targets(lab, root)


def _skeleton_lines(lab: PlanarLab, points: Any, role: str, width: float, dashed: bool = False) -> list[Line]:
    parent = lab.skeleton.parent
    if lab.skeleton.is_chain:
        return [Line(np.array(points), role, width, dashed)]
    return [Line(np.array([points[parent[i]], points[i]]), role, width, dashed) for i in range(1, len(points))]


def _targets(lab: PlanarLab, root: tuple[float, float]) -> list[Item]:
    items: list[Item] = []
    goals = lab.goals
    for k, target in enumerate(lab.targets):
        text = "target" if len(goals) == 1 else f"target {k + 1}"
        if lab.beyond(k):
            items.append(Line(np.array([goals[k], target]), "unreachable", 3.0, dashed=True))
            items += _cross(target, "unreachable", 0.02 * lab.size)
            items.append(Dot(_xy(goals[k]), "target", 10.0, hollow=True))
            items.append(Label(_xy(target), f"{text}: unreachable, clamped", "unreachable"))
        elif lab.outside_limits(k):
            items += _cross(target, "unreachable", 0.02 * lab.size)
            items.append(Label(_xy(target), f"{text}: outside the limits' region", "unreachable"))
        else:
            items += _cross(target, "target", 0.035 * lab.size)
            items.append(Dot(_xy(target), "target", 12.0, hollow=True))
            items.append(Label(_xy(target), text, "target"))
    return items


def _cross(at: Any, role: str, arm: float) -> list[Item]:
    x, y = _xy(at)
    return [
        Line(np.array([[x - arm, y - arm], [x + arm, y + arm]]), role, 4.0),
        Line(np.array([[x - arm, y + arm], [x + arm, y - arm]]), role, 4.0),
    ]


def _passes(lab: PlanarLab, phase: str, before: Any, points: Any, width: float) -> list[Item]:
    """The textbook's lines: each point is pulled along the line to where it was, to the length of its link."""
    items: list[Item] = [*_skeleton_lines(lab, before, "ghost", 4.0, dashed=True)]
    items += [Dot(_xy(p), "ghost", 6.0) for p in before]
    s = lab.skeleton
    for i in range(1, len(points)):
        m = int(s.parent[i])
        placed, drawn, old = (i, m, before[m]) if phase == "backward" else (m, i, before[i])
        items.append(Line(np.array([points[placed], old]), "construction", 2.5, dashed=True))
        if s.length[i] > 0:
            towards = float(np.arctan2(*(points[drawn] - points[placed])[::-1]))
            angles = towards + np.linspace(-0.35, 0.35, 15)
            arc = points[placed] + s.length[i] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            items.append(Line(arc, "construction", 2.0))
        if phase == "backward" and int((s.parent == m).sum()) > 1 and np.linalg.norm(old - points[i]) > 0:
            # Where limbs meet, each proposes a place; the sub-base becomes their weighted mean.
            place = points[i] + s.length[i] * (old - points[i]) / np.linalg.norm(old - points[i])
            items.append(Dot(_xy(place), "construction", 7.0, hollow=True))
    return items


def _sweep(lab: PlanarLab, before: Any, points: Any) -> list[Item]:
    """The tip's way as one joint after the other turns, the last joint first."""
    items: list[Item] = [*_skeleton_lines(lab, before, "ghost", 4.0, dashed=True)]
    turned = lab.skeleton.angles(points)[1:] - lab.skeleton.angles(before)[1:]
    turned = (turned + math.pi) % (2 * math.pi) - math.pi
    tip, goal = np.array(before[-1]), lab.goals[0]
    for i in range(len(points) - 2, -1, -1):
        arm = tip - before[i]
        radius, first = float(np.linalg.norm(arm)), float(np.arctan2(arm[1], arm[0]))
        angles = first + np.linspace(0.0, float(turned[i]), max(2, int(abs(turned[i]) / 0.1) + 2))
        path = before[i] + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        items.append(Line(path, "construction", 2.5))
        items.append(Line(np.array([before[i], goal]), "construction", 1.5, dashed=True))
        tip = path[-1]
        items.append(Dot(_xy(tip), "construction", 5.0))
    return items


def _columns(lab: PlanarLab, pose: Any, many: bool) -> list[Item]:
    """The columns of J at the tip, and the error that they are to make up."""
    items: list[Item] = []
    tip = pose[-1]
    for i, column in enumerate(jacobian_columns(pose).T):
        items.append(Line(np.array([pose[i], tip]), "faint", 1.5, dashed=True))
        if np.linalg.norm(column) > 1e-9 * lab.size:
            end = tip + COLUMN_SCALE * column
            items.append(Arrow(_xy(tip), _xy(end), "column"))
            if not many:
                items.append(Label(_xy(end), f"J{i + 1}".translate(_SUBSCRIPT), "column", (8.0, 8.0)))
    goal = lab.goals[0]
    if np.linalg.norm(goal - tip) > 0.02 * lab.size:
        items.append(Arrow(_xy(tip), _xy(goal), "error", 3.0))
        if not many:
            items.append(Label(_xy(0.5 * (tip + goal)), "e", "error", (8.0, 8.0)))
    return items


def _limit_wedges(lab: PlanarLab, pose: Any, width: float) -> list[Item]:
    """At each joint the arc in which its link may stand."""
    items: list[Item] = []
    heading = 0.0
    for i in range(len(pose) - 1):
        limit = lab.bench.limit(i)
        if limit is not None:
            radius = 0.045 * width
            angles = heading + np.linspace(limit[0], limit[1], 33)
            arc = pose[i] + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            items.append(Line(np.vstack([pose[i], arc, pose[i]]), "limit", 2.0))
        link = pose[i + 1] - pose[i]
        if np.linalg.norm(link) > 0:
            heading = float(np.arctan2(link[1], link[0]))
    return items


# --- the numbers beside the picture ---


@dataclass(frozen=True)
class ReadOut:
    """A block of numbers under its title, in text of fixed width."""

    title: str
    text: str


def matrix_text(name: str, matrix: Any, digits: int = 3) -> str:
    """A matrix with its name, in brackets, for text of fixed width."""
    M = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
    cells = [[_number(x, digits) for x in row] for row in M]
    wide = max(len(cell) for row in cells for cell in row)
    middle, lines = (len(M) - 1) // 2, []
    for i, row in enumerate(cells):
        left, right = (
            ("[", "]") if len(M) == 1 else ("⎡", "⎤") if i == 0 else ("⎣", "⎦") if i == len(M) - 1 else ("⎢", "⎥")
        )
        head = f"{name} = " if i == middle else " " * (len(name) + 3)
        lines.append(head + left + " ".join(cell.rjust(wide) for cell in row) + right)
    return "\n".join(lines)


def _number(x: float, digits: int) -> str:
    if abs(x) < 0.5 * 10.0**-digits:
        return "0"
    if abs(x) >= 1e4:
        return f"{x:.2e}"
    return f"{x:.{digits}f}"


def read_outs(lab: PlanarLab) -> list[ReadOut]:
    """Joints, Jacobian, the damped matrix and the product of frames, for the chosen method's pose."""
    angles = lab.angles()
    joints = "\n".join(
        f"θ{i + 1}".translate(_SUBSCRIPT) + f" = {math.degrees(a):8.2f}°{_limit_text(lab, i)}"
        for i, a in enumerate(angles)
    )
    out = [ReadOut("Joint angles", joints)]
    if lab.bench.model != "single":
        return out
    J, sigma = lab.jacobian(), lab.singular_values()
    text = matrix_text("J", J)
    text += f"\nσ = {sigma[0]:.4g}, {sigma[1]:.4g}"
    asked = lab.joint_step()
    if asked is not None:
        text += "\n" + matrix_text("Δθ", asked) + f"\nlargest turn asked for: {math.degrees(np.abs(asked).max()):.4g}°"
    out.append(ReadOut("Jacobian", text))
    e = lab.goals[0] - lab.pose()[-1]
    text = (
        matrix_text("J Jᵀ + λ²I", lab.damped())
        + f"\nλ = {lab.bench.damping:g}, det = {np.linalg.det(lab.damped()):.4g}"
    )
    text += "\n" + matrix_text("e", e) + "\n" + matrix_text("Jᵀe", J.T @ e)
    out.append(ReadOut("J Jᵀ + λ²I", text))
    product, blocks = np.eye(4), []
    for i, A in enumerate(lab.factors(), start=1):
        product = product @ A
        blocks.append(matrix_text(f"A{i}".translate(_SUBSCRIPT), A))
    names = "".join(f"A{i}".translate(_SUBSCRIPT) for i in range(1, len(blocks) + 1))
    blocks.append(matrix_text("T", product))
    out.append(ReadOut(f"Product along the chain: T = {names}", "\n".join(blocks)))
    return out


def _limit_text(lab: PlanarLab, i: int) -> str:
    limit = lab.bench.limit(i) if lab.bench.model == "single" else None
    return "" if limit is None else f"  in [{math.degrees(limit[0]):.0f}°, {math.degrees(limit[1]):.0f}°]"


# --- a renderer ---


def arrow_outline(item: Arrow, unit: float) -> tuple[Float[np.ndarray, "2 2"], Float[np.ndarray, "3 2"]]:
    """Shaft and head of an arrow, for a panel whose thousandth is `unit` wide."""
    start, end = np.array(item.start), np.array(item.end)
    way = end - start
    length = float(np.linalg.norm(way))
    along = way / length if length > 0 else np.array([1.0, 0.0])
    across = np.array([-along[1], along[0]])
    head = min(22.0 * unit, 0.6 * length)
    neck = end - head * along
    return np.array([start, neck]), np.array([end, neck + 0.4 * head * across, neck - 0.4 * head * across])


def dashes(points: Float[np.ndarray, "k 2"], dash: float, gap: float) -> list[Float[np.ndarray, "2 2"]]:
    """A polyline cut into dashes."""
    pieces, phase = [], 0.0
    for a, b in itertools.pairwise(points):
        length = float(np.linalg.norm(b - a))
        at = -phase
        while at < length:
            first, last = max(at, 0.0), min(at + dash, length)
            if last > first:
                pieces.append(np.array([a + (b - a) * (first / length), a + (b - a) * (last / length)]))
            at += dash + gap
        phase = (phase + length) % (dash + gap)
    return pieces


def svg(picture: Frame, ground: Literal["light", "dark"] = "light", width: int = 720) -> str:
    """The frame as an SVG drawing, `width` pixels wide."""
    x0, y0, x1, y1 = picture.bounds
    scale = width / (x1 - x0)
    height = round((y1 - y0) * scale)
    unit = 1e-3 * picture.width * scale
    colours = COLOURS[ground]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="{colours["ground"]}"/>',
    ]
    for panel in picture.panels:

        def at(point: Any, panel: Panel = panel) -> tuple[float, float]:
            return (point[0] + panel.offset[0] - x0) * scale, (y1 - point[1] - panel.offset[1]) * scale

        half = 0.5 * picture.width
        if panel.title:
            x, y = at((-half, half))
            out.append(
                f'<text class="title" x="{x + 10:.1f}" y="{y + 18:.1f}" font-size="14" font-weight="600" '
                f'fill="{colours[panel.role]}">{escape(panel.title)}</text>'
            )
        for item in panel.items:
            out.append(_svg_item(item, at, scale, unit, colours))
    return "\n".join([*out, "</svg>"]) + "\n"


def _svg_item(item: Item, at: Any, scale: float, unit: float, colours: dict[str, str]) -> str:
    colour = colours[item.role]
    mark = f'class="{item.role}"'
    if isinstance(item, Line):
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in map(at, item.points))
        dash = f' stroke-dasharray="{10 * unit:.2f} {8 * unit:.2f}"' if item.dashed else ""
        return (
            f'<polyline {mark} points="{points}" fill="none" stroke="{colour}" stroke-width="{item.width * unit:.2f}" '
            f'stroke-linejoin="round" stroke-linecap="round"{dash}/>'
        )
    if isinstance(item, Circle):
        x, y = at(item.centre)
        dash = f' stroke-dasharray="{10 * unit:.2f} {8 * unit:.2f}"' if item.dashed else ""
        return (
            f'<circle {mark} cx="{x:.2f}" cy="{y:.2f}" r="{item.radius * scale:.2f}" fill="none" stroke="{colour}" '
            f'stroke-width="{item.width * unit:.2f}"{dash}/>'
        )
    if isinstance(item, Arrow):
        shaft, head = arrow_outline(item, unit / scale)
        (ax, ay), (bx, by) = map(at, shaft)
        corners = " ".join(f"{x:.2f},{y:.2f}" for x, y in map(at, head))
        return (
            f'<g {mark}><line x1="{ax:.2f}" y1="{ay:.2f}" x2="{bx:.2f}" y2="{by:.2f}" stroke="{colour}" '
            f'stroke-width="{item.width * unit:.2f}"/><polygon points="{corners}" fill="{colour}"/></g>'
        )
    if isinstance(item, Dot):
        x, y = at(item.centre)
        fill = (
            f'fill="none" stroke="{colour}" stroke-width="{3 * unit:.2f}"' if item.hollow else f'fill="{colour}"'
        )  # fmt: skip
        return f'<circle {mark} cx="{x:.2f}" cy="{y:.2f}" r="{item.radius * unit:.2f}" {fill}/>'
    if isinstance(item, Label):
        x, y = at(item.at)
        x, y = x + item.offset[0] * unit, y - item.offset[1] * unit
        anchor = ' text-anchor="middle"' if item.offset == (0.0, 0.0) else ""
        size = max(9.0, 22 * unit)
        return (
            f'<text {mark} x="{x:.2f}" y="{y:.2f}" font-size="{size:.1f}"{anchor} fill="{colour}">'
            f"{escape(item.text)}</text>"
        )
    (cx, cy), parts = at(item.centre), []
    for inner, outer, first, last in item.sectors:
        if last - first >= 2 * math.pi - 1e-9:  # an arc to its own start is none
            middle = 0.5 * (first + last)
            pieces = [(first, middle), (middle, last)]
        else:
            pieces = [(first, last)]
        for a, b in pieces:
            r0, r1, large = inner * scale, outer * scale, int(b - a > math.pi)
            (ca, sa), (cb, sb) = (math.cos(a), -math.sin(a)), (math.cos(b), -math.sin(b))
            parts.append(
                f"M{cx + r0 * ca:.2f} {cy + r0 * sa:.2f}L{cx + r1 * ca:.2f} {cy + r1 * sa:.2f}"
                f"A{r1:.2f} {r1:.2f} 0 {large} 0 {cx + r1 * cb:.2f} {cy + r1 * sb:.2f}"
                f"L{cx + r0 * cb:.2f} {cy + r0 * sb:.2f}A{r0:.2f} {r0:.2f} 0 {large} 1 {cx + r0 * ca:.2f} {cy + r0 * sa:.2f}Z"
            )
    return f'<path {mark} d="{"".join(parts)}" fill="{colour}" fill-opacity="{item.opacity}"/>'
