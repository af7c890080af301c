"""A benchmark on disk: `bench.json`, `parts/` while it runs, then `rows.csv` (and Parquet), `summary.json`, `report.html`.

Each finished task is one file in `parts/`, renamed into place when whole, with the plan's fingerprint and a checksum in
its first line. A killed benchmark goes on from what is there; a damaged or foreign file is refused by name.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ik_sim.benchmark.measure import COLUMNS
from ik_sim.benchmark.plan import FORMAT, Plan
from ik_sim.errors import FileFormatError, IkSimError

TEXT = ("robot", "solver", "targets", "seed_kind", "status", "q")
FLAGS = ("reachable", "success", "claimed", "false_claim")
_HEAD = "# ik_sim bench part"


def write(path: Path, content: bytes) -> None:
    """Write beside its place, then rename: no reader meets half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise IkSimError(f"can't write {path}: {error.strerror or error}") from None


def csv_bytes(rows: Iterable[dict[str, Any]], head: bool) -> bytes:
    """Rows in the order of COLUMNS; what isn't there stays empty, flags are 0 and 1."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if head:
        writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in COLUMNS])
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, bool):
        return int(value)
    return repr(float(value)) if isinstance(value, float | np.floating) else value


def part_bytes(plan: Plan, key: str, facts: dict[str, Any], count: int, rows: bytes) -> bytes:
    """One finished task as its file has it, from its facts and its `count` rows as CSV."""
    body = ("# " + json.dumps(facts) + "\n").encode() + rows
    return f"{_HEAD} {FORMAT} {plan.fingerprint} {key} {count} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def read_part(path: Path, plan: Plan) -> tuple[dict[str, Any], list[list[str]]]:
    """Facts and rows of a finished task.

    Raises:
        FileFormatError: it is of another plan or version, or damaged; the message says which.
    """
    advice = "move it away, or name another place with --out"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileFormatError(path, f"can't be read: {error.strerror}; {advice}") from None
    head, _, body = content.partition(b"\n")
    words = head.decode(errors="replace").split()
    if not head.startswith(_HEAD.encode()) or len(words) != 9:
        raise FileFormatError(path, f"is not a part of a benchmark; {advice}")
    version, fingerprint, key, count, digest = words[4:]
    if version != str(FORMAT) or fingerprint != plan.fingerprint or key != path.stem:
        raise FileFormatError(path, f"belongs to another benchmark (plan {fingerprint}, task {key}); {advice}")
    if hashlib.sha256(body).hexdigest() != digest:
        raise FileFormatError(path, f"is damaged: its checksum doesn't hold; {advice}")
    facts, _, rest = body.partition(b"\n")
    rows = list(csv.reader(io.StringIO(rest.decode())))
    if len(rows) != int(count):
        raise FileFormatError(path, f"holds {len(rows)} rows of {count}; {advice}")
    return json.loads(facts[2:]), rows


def finished(folder: Path, plan: Plan, keys: set[str]) -> dict[str, dict[str, Any]]:
    """Facts of the finished tasks; what killed writers left is removed, anything else that is no part is refused."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            path.unlink()
            continue
        if path.suffix != ".csv" or path.stem not in keys:
            raise FileFormatError(path, "is no part of this benchmark; move it away, or name another place with --out")
        found[path.stem] = read_part(path, plan)[0]
    return found


class Rows:
    """All rows as columns."""

    def __init__(self, columns: dict[str, Any]) -> None:
        """Take them as they are."""
        self.columns = columns

    def __getitem__(self, name: str) -> Any:
        """One column."""
        return self.columns[name]

    def __len__(self) -> int:
        """How many."""
        return len(self.columns["robot"])

    def where(self, mask: Any) -> Rows:
        """Those that a mask names."""
        return Rows({name: values[mask] for name, values in self.columns.items()})

    def groups(self, *names: str) -> Iterator[tuple[tuple[str, ...], Rows]]:
        """Apart by text columns, in the order of first appearance."""
        seen: dict[tuple[str, ...], list[int]] = {}
        for i, key in enumerate(zip(*(self.columns[n] for n in names), strict=True)):
            seen.setdefault(key, []).append(i)
        for key, places in seen.items():
            yield key, self.where(np.array(places))


def columns_of(rows: list[list[str]]) -> Rows:
    """Typed columns from the text of a CSV."""
    table = list(zip(*rows, strict=True)) if rows else [[] for _ in COLUMNS]
    found: dict[str, Any] = {}
    for name, values in zip(COLUMNS, table, strict=True):
        if name in TEXT:
            found[name] = np.array(values, dtype=object)
        elif name in FLAGS:
            found[name] = np.array([value == "1" for value in values], dtype=bool)
        else:
            found[name] = np.array([float(value) if value else np.nan for value in values], dtype=float)
    return Rows(found)


def assemble(out: Path, plan: Plan, keys: list[str]) -> Rows:
    """`rows.csv` and, where pyarrow is installed, `rows.parquet` from the parts, in the plan's order."""
    rows = [row for key in keys for row in read_part(out / "parts" / f"{key}.csv", plan)[1]]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    write(out / "rows.csv", text.getvalue().encode())
    columns = columns_of(rows)
    with contextlib.suppress(ImportError):
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]

        partial = out / f".rows.parquet.{os.getpid()}"
        table = pyarrow.table({name: pyarrow.array(values.tolist()) for name, values in columns.columns.items()})
        pyarrow.parquet.write_table(table, partial, compression="zstd")
        partial.replace(out / "rows.parquet")
    return columns


def read_rows(path: Path) -> Rows:
    """The rows of a finished benchmark.

    Raises:
        FileFormatError: not such a file.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except OSError as error:
        raise FileFormatError(path, f"can't be read: {error.strerror}") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise FileFormatError(path, "is not the rows of a benchmark")
    return columns_of(rows[1:])
