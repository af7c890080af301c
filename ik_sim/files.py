"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ik_sim.errors import IkSimError


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; `-` is standard output.

    Raises:
        IkSimError: the file can't be written.
    """
    from ik_sim.run_folder import json_text

    text = json_text(value)
    if str(path) == "-":
        print(text, end="")
    else:
        write_file(path, text.encode())


def write_file(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it, so that no reader meets half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise IkSimError(f"can't write {path}: {error.strerror or error}") from None
