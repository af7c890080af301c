"""A tab's state as plain data: for a preset file, for a link, and for a tab that comes back.

What is read here may come from anybody, so it is bounded, and every page checks each value it takes from it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ik_sim.errors import InvalidArgumentError

LARGEST = 200_000
"""Bytes of JSON that a link or a file may hold."""
FORMAT = "ik_sim lab 1"


def to_json(state: Mapping[str, Any]) -> str:
    """The state as the text of a preset file."""
    return json.dumps({"format": FORMAT, **state}, indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_json(text: str | bytes, name: str = "preset") -> dict[str, Any]:
    """Read what :func:`to_json` wrote.

    Raises:
        InvalidArgumentError: not such a file; the message says what was found.
    """
    if len(text) > LARGEST:
        raise InvalidArgumentError(name, f"holds {len(text)} bytes; a state of the lab has at most {LARGEST}")
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(name, f"is not JSON ({error})") from None
    if not isinstance(state, dict) or state.pop("format", None) != FORMAT:
        raise InvalidArgumentError(name, f'is not a state of the lab: "format": "{FORMAT}" is missing')
    return state


def read_preset(path: Path) -> dict[str, Any]:
    """The state in a preset file.

    Raises:
        InvalidArgumentError: no such file, or not a preset.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(str(path), f"can't be read: {error.strerror or error}") from None
    return from_json(content, str(path))


def to_link(state: Mapping[str, Any]) -> str:
    """The state in letters that a web address may hold."""
    packed = zlib.compress(json.dumps(state, separators=(",", ":"), sort_keys=True, allow_nan=False).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def from_link(text: str) -> dict[str, Any]:
    """Read what :func:`to_link` wrote.

    Raises:
        InvalidArgumentError: damaged, or larger than a state can be.
    """
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(packed, LARGEST)
        if not unpacker.eof:
            raise InvalidArgumentError("link", "is cut off, or holds more than a state of the lab can")
        state = json.loads(content)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError("link", "is damaged: it must be copied whole") from None
    if not isinstance(state, dict):
        raise InvalidArgumentError("link", "doesn't hold a state of the lab")
    return state


# --- reading single values, for pages ---


def number(state: Mapping[str, Any], key: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """A number of the state, moved into [low, high]; the default where it is missing or no number."""
    value = state.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        value = default
    return float(min(max(value, low), high))


def numbers(state: Mapping[str, Any], key: str, default: Any, count: int | None = None) -> list[float]:
    """A list of finite numbers of the state; the default where it is missing, no such list, or of another length."""
    value = state.get(key)
    if isinstance(value, list) and (count is None or len(value) == count):
        if all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in value):
            return [float(x) for x in value]
    return [float(x) for x in default]


def choice(state: Mapping[str, Any], key: str, options: Any, default: str) -> str:
    """One of the options; the default where the state holds none of them."""
    value = state.get(key)
    return value if isinstance(value, str) and value in options else default


def flag(state: Mapping[str, Any], key: str, default: bool) -> bool:
    """True or false; the default where the state holds neither."""
    value = state.get(key)
    return value if isinstance(value, bool) else default
