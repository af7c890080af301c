"""Solvers and peers on the same targets, under one judge, with their tails and their false claims.

`Plan` says what to run, `run` runs it (resuming where it stopped), `summarise` counts, `compare` is the gate.
"""

from __future__ import annotations

from ik_sim.benchmark.contestants import Contestant, open_contestant
from ik_sim.benchmark.gate import compare
from ik_sim.benchmark.plan import Plan
from ik_sim.benchmark.statistics import ratios, summarise, wilson
from ik_sim.benchmark.sweep import run
from ik_sim.benchmark.targets import SEEDS, TARGETS, queries

__all__ = [
    "SEEDS", "TARGETS", "Contestant", "Plan", "compare", "open_contestant", "queries", "ratios", "run", "summarise", "wilson",
]  # fmt: skip
