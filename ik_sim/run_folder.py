"""A run on disk: `run.json`, `samples.csv` (and Parquet), `verdict.json`, `junit.xml`, `report.html`, `plots/`.

A run folder appears whole or not at all: it is written beside its place under a hidden name and then renamed.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import re
import shutil
import tempfile
import xml.etree.ElementTree as ET  # only to build a file, never to parse one
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ik_sim.errors import FileFormatError, IkSimError
from ik_sim.tasks import Task
from ik_sim.tracking_log import TrackingLog
from ik_sim.verdict import Metric, Violation, dominant, split, summary

RUN_FILE, SAMPLES_FILE, VERDICT_FILE, JUNIT_FILE = "run.json", "samples.csv", "verdict.json", "junit.xml"
FORMAT = 1
"""Of the files in a run folder; goes up when an older reader would misread them."""
_TEXT = ("phase", "label", "status", "reason", "contact_link", "cause")
_FLAGS = ("clipped", "used_slsqp")
_COUNTS = ("iterations", "evaluations", "restarts")


@contextlib.contextmanager
def new_run_folder(place: Path) -> Iterator[Path]:
    """A folder to write a run into; at the end of the block it stands at `place`, after an error it is gone.

    Raises:
        IkSimError: `place` is taken by something that is not a run, which is never overwritten, or can't be written.
    """
    place = Path(os.path.abspath(place))
    if place.exists() and not (place / RUN_FILE).is_file() and not (place.is_dir() and not any(place.iterdir())):
        raise IkSimError(f"{place} exists and is not a run folder; name another place with --out")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(place)
        partial = Path(tempfile.mkdtemp(prefix=f".{place.name}.partial-{os.getpid()}-", dir=place.parent))
    except OSError as error:
        raise IkSimError(f"can't write a run folder at {place}: {error.strerror or error}") from None
    try:
        partial.chmod(0o755)  # mkdtemp is for secrets; a run is to be read
        yield partial
        old = None
        if place.exists():
            old = partial.with_name(partial.name + ".old")
            place.rename(old)
        partial.rename(place)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _remove_leftovers(place: Path) -> None:
    """Drop what killed runs left beside the place."""
    for folder in place.parent.glob(f".{place.name}.partial-*"):
        pid = re.match(rf"\.{re.escape(place.name)}\.partial-(\d+)-", folder.name)
        if pid is not None and not _alive(int(pid[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def save_log(folder: Path, log: TrackingLog) -> None:
    """Write `run.json` and the samples: as CSV, which restores every bit, and as Parquet where pyarrow is installed.

    Behind the log's own columns stand those that follow from them: the error's split into its causes.
    """
    head = {"format": FORMAT, "joint_names": list(log.joint_names), **log.provenance}
    (folder / RUN_FILE).write_text(json_text(head), encoding="utf-8")
    columns = {name: _plain(values) for name, values in (log.columns() | _causes(log)).items()}
    with open(folder / SAMPLES_FILE, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    with contextlib.suppress(ImportError):
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, folder / SAMPLES_FILE.replace(".csv", ".parquet"), compression="zstd")


def load_log(folder: str | os.PathLike[str]) -> TrackingLog:
    """The log of a run folder, equal to the one that was saved.

    Raises:
        FileFormatError: not a run folder, or a damaged one.
    """
    place = Path(folder)
    try:
        head = json.loads((place / RUN_FILE).read_text(encoding="utf-8"))
        with open(place / SAMPLES_FILE, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError as error:
        raise FileFormatError(place, f"is not a run folder: {Path(error.filename).name} is missing") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(place, f"can't be read as a run folder: {error}") from None
    if head.get("format") != FORMAT:
        raise FileFormatError(place / RUN_FILE, f"has format {head.get('format')!r}; this version reads {FORMAT}")
    names = head.pop("joint_names")
    head.pop("format")
    try:
        columns = {
            name: _typed(name, values) for name, values in zip(rows[0], zip(*rows[1:], strict=True), strict=True)
        }
        return TrackingLog.from_columns(columns, names, head)
    except (KeyError, ValueError, IndexError) as error:
        raise FileFormatError(place / SAMPLES_FILE, f"is damaged: {error}") from None


def _causes(log: TrackingLog) -> dict[str, Any]:
    """The largest part of each tick's position error, and all parts: `by_torque_position_m` and so on."""
    parts = {
        f"by_{name}_{kind}_{unit}": values
        for kind, unit in (("position", "m"), ("rotation", "rad"))
        for name, values in split(log, kind).items()
    }
    return {"cause": dominant(log), **parts}


def _plain(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _typed(name: str, values: Sequence[str]) -> Any:
    if name in _TEXT:
        return values
    if name in _FLAGS:
        return np.array([value == "True" for value in values])
    if name in _COUNTS:
        return np.array([int(value) for value in values])
    return np.array([float(value) for value in values])


def verdict(log: TrackingLog, task: Task, figures: Sequence[Metric], violations: Sequence[Violation]) -> dict[str, Any]:
    """What `verdict.json` and `--json` say, in plain values."""
    return {
        "task": task.name,
        "robot": log.provenance["robot"]["name"],
        "solver": log.provenance["solver"],
        "passed": not violations,
        "metrics": [{**asdict(m), "passed": m.passed} for m in figures],
        "violations": [asdict(v) for v in violations],
        "summary": summary(log),
    }


def json_text(value: Any) -> str:
    """JSON that any reader takes: what is not a finite number becomes null."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def junit(suites: Sequence[tuple[dict[str, Any], float]], errors: Sequence[tuple[str, str]] = ()) -> bytes:
    """JUnit XML of finished runs: one suite a task, one case a judged figure.

    Args:
        suites: verdicts, each with the seconds it took.
        errors: names of tasks that could not be run, and why.
    """
    root = ET.Element("testsuites", name="ik-sim")
    total = failed = 0
    for result, seconds in suites:
        cases = [m for m in result["metrics"] if m["limit"] is not None]
        messages = {v["metric"]: v["message"] for v in result["violations"]}
        names = [m["name"] for m in cases] + [name for name in messages if all(m["name"] != name for m in cases)]
        suite = ET.SubElement(
            root, "testsuite", name=result["task"], tests=str(len(names)), failures=str(len(messages)), errors="0",
            skipped="0", time=f"{seconds:.3f}",
        )  # fmt: skip
        properties = ET.SubElement(suite, "properties")
        for key in ("robot", "solver"):
            ET.SubElement(properties, "property", name=key, value=_xml_text(str(result[key])))
        for i, name in enumerate(names):
            case = ET.SubElement(
                suite, "testcase", classname=f"ik_sim.{result['task']}", name=name,
                time=f"{seconds if i == 0 else 0.0:.3f}",
            )  # fmt: skip
            if name in messages:
                failure = ET.SubElement(case, "failure", message=_xml_text(messages[name]), type="tolerance")
                failure.text = _xml_text(messages[name])
        total, failed = total + len(names), failed + len(messages)
    for name, message in errors:
        suite = ET.SubElement(root, "testsuite", name=name, tests="1", failures="0", errors="1", skipped="0", time="0")
        case = ET.SubElement(suite, "testcase", classname=f"ik_sim.{name}", name="run", time="0")
        ET.SubElement(case, "error", message=_xml_text(message), type="IkSimError").text = _xml_text(message)
    root.set("tests", str(total + len(errors)))
    root.set("failures", str(failed))
    root.set("errors", str(len(errors)))
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _xml_text(text: str) -> str:
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
