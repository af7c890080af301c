"""The regression gate: an old summary against a new one, strict where the numbers are exact and patient where they aren't.

Success counts on the same targets repeat but for rounding on another machine: a drop counts when the two counts can't
come from one success rate (two-sided test at 1 %) . Times are compared as ratios to the reference, whose own changes
therefore don't show: a solver regressed when the whole interval of its ratio lies above the old one and the ratio of
medians grew by more than the slack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ik_sim.errors import IkSimError

KEY = ("robot", "targets", "seed_kind", "solver")


@dataclass(frozen=True)
class Change:
    """One figure that changed beyond noise."""

    what: str
    """success, false claims or time ratio."""
    where: str
    old: float
    new: float
    worse: bool

    @property
    def message(self) -> str:
        """One line."""
        word = "regression" if self.worse else "improvement"
        return f"{word}: {self.where}: {self.what} {self.old:.4g} -> {self.new:.4g}"


def compare(old: dict[str, Any], new: dict[str, Any], slack: float = 0.25) -> list[Change]:
    """What changed from one summary to the other.

    Args:
        old: the content of an earlier `summary.json`.
        new: of this one.
        slack: by how much a ratio of median times may grow, beyond its interval, before it counts.

    Raises:
        IkSimError: nothing to compare: no common entry, another reference, another tolerance.
    """
    for name in ("position", "rotation", "max_iterations", "max_restarts", "max_seconds"):
        if old["plan"].get(name) != new["plan"].get(name):
            raise IkSimError(
                f"baseline: was run with {name} = {old['plan'].get(name)}, this run with {new['plan'].get(name)}"
            )
    if old["reference"] != new["reference"]:
        raise IkSimError(f"baseline: its reference is {old['reference']!r}, this run's {new['reference']!r}")
    before = {tuple(entry[k] for k in KEY): entry for entry in old["entries"]}
    after = {tuple(entry[k] for k in KEY): entry for entry in new["entries"]}
    common = [key for key in after if key in before]
    if not common:
        raise IkSimError("baseline: has no robot, target set, seed and solver in common with this run")
    lost = [key for key in before if key not in after and key[0] in new["plan"]["robots"]]
    if lost:
        raise IkSimError(f"baseline: has {'; '.join(' '.join(key) for key in lost)}, which this run doesn't")
    changes = []
    for key in common:
        a, b, where = before[key], after[key], " ".join(key)
        if a["n"] and b["n"] and different(a["successes"], a["n"], b["successes"], b["n"]):
            changes.append(Change("success", where, a["success"], b["success"], b["success"] < a["success"]))
        a_false, b_false = a["false_claims"] / max(a["n"], 1), b["false_claims"] / max(b["n"], 1)
        if different(
            a["false_claims"], max(a["n"], a["false_claims"], 1), b["false_claims"], max(b["n"], b["false_claims"], 1)
        ):
            changes.append(Change("false claims", where, a_false, b_false, b_false > a_false))
        r, s = a.get("ratio"), b.get("ratio")
        if r and s and key[3] != new["reference"]:
            if s["median_low"] > r["median_high"] and s["median"] > (1 + slack) * r["median"]:
                changes.append(Change("time ratio", where, r["median"], s["median"], True))
            elif s["median_high"] < r["median_low"] and (1 + slack) * s["median"] < r["median"]:
                changes.append(Change("time ratio", where, r["median"], s["median"], False))
    return changes


def different(a: int, n: int, b: int, m: int, level: float = 0.01) -> bool:
    """Whether a of n and b of m can't come from one rate: Fisher's exact test, two-sided."""
    total, good = n + m, a + b
    if good in (0, total):
        return False

    def chance(k: int) -> float:
        return math.exp(_choose(n, k) + _choose(m, good - k) - _choose(total, good))

    seen = chance(a) * (1 + 1e-9)
    low, high = max(0, good - m), min(n, good)
    p = sum(c for c in map(chance, range(low, high + 1)) if c <= seen)
    return p < level


def _choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
