"""The plots as PNG: draws the SVG of `plots` with Pillow, so that both show the same lines.

Only what `plots` writes is understood: its few elements, its classes, its light colours.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET  # only for drawings made here
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ik_sim.plots import STYLE

SCALE = 2
"""Pixels of the picture for one unit of the drawing."""
SMOOTH = 2
"""Pixels drawn for each one of the picture, along either side."""
_K = SCALE * SMOOTH
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_PATH = re.compile(r"([MLHVhaZ])([^MLHVhaZ]*)")
Colour = tuple[int, ...]


def png(drawing: str) -> bytes:
    """A drawing of `plots.svg` on white ground, twice its size in pixels."""
    root = ET.fromstring(re.sub(r' xmlns="[^"]*"', "", drawing, count=1))
    width, height = (int(float(v)) for v in root.get("viewBox", "").split()[2:])
    image = Image.new("RGB", (width * _K, height * _K), "white")
    clips = {c.get("id"): c[0] for c in root.iter("clipPath")}
    for element in root:
        if element.tag != "g":
            _draw(image, element)
            continue
        inside = image.copy()
        for child in element:
            _draw(inside, child)
        x, y, w, h = _box(clips[element.get("clip-path", "")[5:-1]])
        left, top, right, bottom = (round(_K * v) for v in (x, y, x + w, y + h))
        image.paste(inside.crop((left, top, right, bottom)), (left, top))
    file = io.BytesIO()
    small = image.reduce(SMOOTH).quantize(96, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    small.save(file, "PNG")
    return file.getvalue()


def _draw(image: Image.Image, element: ET.Element) -> None:
    classes = element.get("class", "").split()
    pen = ImageDraw.Draw(image, "RGBA")
    if element.tag == "text":
        _text(image, element, "title" in classes)
    elif element.tag == "rect":
        x, y, w, h = _box(element)
        corners = [_K * x, _K * y, _K * (x + w), _K * (y + h)]
        if "frame" in classes:
            pen.rectangle(corners, outline=_colour("ink", 0.45), width=_K)
        else:
            pen.rectangle(corners, fill=_colour("c2", 0.12) if "good" in classes else _colour("ink", 0.07))
    elif element.tag == "circle":
        x, y, r = (_K * float(element.get(key, "0")) for key in ("cx", "cy", "r"))
        pen.ellipse([x - r, y - r, x + r, y + r], fill=_colour(classes[-1]))
    elif element.tag == "path":
        _path(pen, element, classes)


def _path(pen: Any, element: ET.Element, classes: list[str]) -> None:
    strokes, dots = _strokes(element.get("d", ""))
    if "bars" in classes:
        for points in strokes:
            pen.polygon(points, fill=_colour(classes[-1]))
        return
    if "dots" in classes:
        for x, y, r in dots:
            pen.ellipse([x - r, y - r, x + r, y + r], fill=_colour(classes[-1]))
        return
    # Pale ink is mixed here: where pieces of a translucent line overlap, they would be darker.
    pale = {"grid": 0.13, "faint": 0.25}.get(classes[-1])
    ink = _colour("ink")
    colour = _colour(classes[-1]) if pale is None else tuple(round(255 + pale * (c - 255)) for c in ink[:3])
    width = max(1, round(_K * float(element.get("stroke-width", "1"))))
    dash = [_K * float(v) for v in element.get("stroke-dasharray", "").split()]
    for points in strokes:
        if len(points) == 2 and points[0] == points[1]:
            (x, y), r = points[0], 0.5 * width
            pen.ellipse([x - r, y - r, x + r, y + r], fill=colour)
            continue
        for piece in _dashes(points, dash) if dash else [_apart(points)]:
            pen.line(piece, fill=colour, width=width, joint="curve")


def _apart(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without points that are hardly a pixel from the one before: between such, wide lines are drawn frayed."""
    kept = points[:1]
    for x, y in points[1:]:
        if abs(x - kept[-1][0]) + abs(y - kept[-1][1]) > _K:
            kept.append((x, y))
    return [*(kept[:-1] if len(kept) > 1 else kept), points[-1]]


def _strokes(d: str) -> tuple[list[list[tuple[float, float]]], list[tuple[float, float, float]]]:
    """Lines of a path, and the dots among them as centre and radius, in pixels."""
    strokes: list[list[tuple[float, float]]] = []
    dots = []
    for letter, numbers in _PATH.findall(d):
        v = [_K * float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        if letter == "M":
            strokes.append([(v[0], v[1])])
        elif letter == "L":
            strokes[-1].append((v[0], v[1]))
        elif letter in "Hh":
            x, y = strokes[-1][-1]
            strokes[-1].append((v[0] if letter == "H" else x + v[0], y))
        elif letter == "V":
            strokes[-1].append((strokes[-1][-1][0], v[0]))
        elif letter == "a" and v[5] > 0.0:  # the first half of a dot, from its left end
            x, y = strokes[-1][-1]
            dots.append((x + v[0], y, v[0]))
    return strokes, dots


def _dashes(points: list[tuple[float, float]], dash: list[float]) -> list[list[tuple[float, float]]]:
    """The drawn pieces of a dashed line."""
    p = np.array(points)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(p, axis=0).T))])
    pattern = dash * (2 if len(dash) % 2 else 1)
    ends = np.concatenate([[0.0], np.cumsum(pattern)])
    starts = np.arange(0.0, along[-1], ends[-1])
    pieces = []
    for start in starts:
        for a, b in zip(ends[:-1:2], ends[1::2], strict=True):
            low, high = start + a, min(start + b, along[-1])
            if low >= high:
                continue
            at = np.concatenate([[low], along[(along > low) & (along < high)], [high]])
            xy = np.stack([np.interp(at, along, p[:, i]) for i in (0, 1)], axis=1)
            pieces.append([(float(x), float(y)) for x, y in xy])
    return pieces


def _text(image: Image.Image, element: ET.Element, title: bool) -> None:
    words = element.text or ""
    plain = words.translate(_RAISED)
    big, small = _font(12 if title else 11), _font(8)
    runs = [(c, small if c != w else big) for c, w in zip(plain, words, strict=True)]
    length = sum(font.getlength(c) for c, font in runs) if small in (f for _, f in runs) else big.getlength(words)
    turned = re.match(r"translate\(([-\d.]+) ([-\d.]+)\) rotate\(-90\)", element.get("transform", ""))
    x, y = (float(turned[i]) for i in (1, 2)) if turned else (float(element.get(key, "0")) for key in "xy")
    shift = {"start": 0.0, "middle": -0.5 * length, "end": -length}[element.get("text-anchor", "start")]
    colour = _colour("ink", float(element.get("opacity", "1")))
    if turned:
        high = round(16 * _K)
        strip = Image.new("L", (round(length) + 2 * _K, high), 0)
        ImageDraw.Draw(strip).text((_K, round(12 * _K)), words, font=big, fill=colour[3], anchor="ls")
        strip = strip.rotate(90, expand=True)
        # The text runs upwards from (x, y): its start is at the strip's lower end.
        place = (round(_K * x) - round(12 * _K), round(_K * y - shift - length) - _K)
        image.paste(Image.new("RGB", strip.size, colour[:3]), place, strip)
        return
    pen = ImageDraw.Draw(image, "RGBA")
    at, base = _K * x + shift, _K * y
    if all(font is big for _, font in runs):
        pen.text((at, base), words, font=big, fill=colour, anchor="ls", stroke_width=_K // 4 if title else 0)
        return
    for character, font in runs:
        pen.text((at, base - (4 * _K if font is small else 0)), character, font=font, fill=colour, anchor="ls")
        at += font.getlength(character)


def _box(rect: ET.Element) -> list[float]:
    return [float(rect.get(key, "0")) for key in ("x", "y", "width", "height")]


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size=size * _K)


@cache
def _colour(name: str, opacity: float = 1.0) -> Colour:
    """One of the drawings' colours on light ground, red to blue and how opaque it is."""
    key = r"[.]chart \{ color" if name == "ink" else f"--{name}"
    found = re.search(rf"{key}: #([0-9a-f]{{6}})", STYLE)
    assert found is not None, name
    return (*bytes.fromhex(found[1]), round(255 * opacity))
