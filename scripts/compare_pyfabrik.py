"""FABRIK of ik_sim beside pyfabrik 0.4, on the same chains, in the same run.

pyfabrik needs NumPy below 2, so it runs in an environment of its own, made like this:

    python -m venv /tmp/pyfabrik && /tmp/pyfabrik/bin/pip install "numpy<2" pyfabrik==0.4
    python scripts/compare_pyfabrik.py /tmp/pyfabrik/bin/python

Prints times on a 10-link chain and a table of cases: what each answers, and whether it is right.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from ik_sim import fabrik

ADAPTER = r"""
import json, sys, time, signal, warnings
warnings.filterwarnings("ignore")
from vectormath import Vector2, Vector3
from pyfabrik import Fabrik2D, Fabrik3D

class Spent(Exception):
    pass

def spend(*_):
    raise Spent()

signal.signal(signal.SIGALRM, spend)
for line in sys.stdin:
    case = json.loads(line)
    V, F = (Vector2, Fabrik2D) if len(case["target"]) == 2 else (Vector3, Fabrik3D)
    answer = {}
    try:
        signal.setitimer(signal.ITIMER_REAL, 3.0)
        began = time.perf_counter()
        f = F([V(*p) for p in case["points"]], case["tolerance"])
        answer["cycles"] = f.move_to(V(*case["target"]))
        answer["seconds"] = time.perf_counter() - began
        answer["points"] = [[float(x) for x in p] for p in f.joints]
    except Spent:
        answer["error"] = "no end within 3 s"
    except Exception as error:
        answer["error"] = type(error).__name__ + ": " + str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(answer), flush=True)
"""


class Peer:
    def __init__(self, python: str) -> None:
        command = [python, "-c", ADAPTER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def solve(self, points: Any, target: Any, tolerance: float = 1e-6) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        case = {"points": np.asarray(points).tolist(), "target": list(map(float, target)), "tolerance": tolerance}
        print(json.dumps(case), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def speed(peer: Peer, chains: int = 40, links: int = 10) -> None:
    rng = np.random.default_rng(0)
    arm, solver, ours, theirs, cycles = fabrik.Skeleton.chain(np.full(links, 0.1)), fabrik.Solver(), [], [], []
    for _ in range(chains):
        start, goal = arm.pose(rng.uniform(-1, 1, links)), arm.pose(rng.uniform(-1, 1, links))[-1]
        found, other, mine, its = solver.solve(arm, goal, start), peer.solve(start, goal), [], []
        for _ in range(5):  # in turn, and the best of each: what else the machine does slows both
            other = peer.solve(start, goal)
            its.append(other["seconds"])
            began = time.perf_counter()
            for _ in range(20):
                found = solver.solve(arm, goal, start)
            mine.append((time.perf_counter() - began) / 20)
        ours.append(min(mine))
        theirs.append(min(its))
        cycles.append((found.cycles, other["cycles"]))
    mine, its, ratios = 1e6 * np.mean(ours), 1e6 * np.mean(theirs), np.array(theirs) / ours
    same = sum(a == b for a, b in cycles)
    print(f"{links} links, {chains} random targets, tolerance 1e-6, mean over chains of the best call of five:")
    print(f"  ik_sim {mine:8.1f} µs    pyfabrik {its:10.1f} µs    ratio {its / mine:.0f}")
    print(f"  ratio by chain: median {np.median(ratios):.0f}, smallest {ratios.min():.0f}, largest {ratios.max():.0f}")
    print(f"  the same number of cycles on {same} of {chains} chains\n")


def cases(peer: Peer) -> None:
    straight = [[0, 0], [1, 0], [2, 0], [3, 0]]
    bent = [[0, 0], [1, 0], [1.8, 0.6], [2.6, 1.2]]
    rows = [
        ("reachable", bent, (1.0, 1.5), {}),
        ("straight, target on its line", straight, (1.2, 0.0), {}),
        ("straight, target behind", straight, (-1.5, 0.0), {}),
        ("beyond reach", bent, (4.0, 1.0), {}),
        ("inside the longest link", [[0, 0], [2, 0], [2.5, 0], [2.5, 0.5]], (0.4, 0.3), {}),
        ("root not at the origin", [[5, 5], [6, 5], [6.8, 5.6], [7.6, 6.2]], (6.0, 6.5), {}),
        ("a link of length zero", [[0, 0], [1, 0], [1, 0], [1.8, 0.6]], (0.7, 0.9), {}),
        ("target NaN", bent, (float("nan"), 1.0), {}),
        ("elbows bend to the right only", bent, (0.8, 1.9), {"limits": np.radians([(-180, 180)] + 2 * [(-90, 0)])}),
        ("elbows within ±45°, too tight", bent, (0.8, 1.9), {"limits": np.radians([(-180, 180)] + 2 * [(-45, 45)])}),
    ]
    print(f"{'case':<30} {'ik_sim':<46} pyfabrik")
    for title, points, target, more in rows:
        p = np.asarray(points, dtype=float)
        lengths = np.linalg.norm(np.diff(p, axis=0), axis=1)
        arm = fabrik.Skeleton.chain(lengths, base=p[0], **more)
        try:
            found = fabrik.solve(arm, target, p)
            mine = f"{found.status}, miss {found.miss:.2g}, {found.cycles} cycles"
        except ValueError as error:
            mine = f"refused: {error}"[:44]
        other = peer.solve(p, target)
        if "error" in other:
            its = other["error"]
        else:
            q = np.array(other["points"])
            its = f"{other['cycles']} cycles, miss {np.linalg.norm(q[-1] - target):.2g}"
            if more:
                a = np.diff(np.unwrap(np.arctan2(*np.diff(q, axis=0).T[::-1])))
                its += f", joints at {np.degrees(a).round().astype(int).tolist()}°: limits unknown to it"
        print(f"{title:<30} {mine:<46} {its}")
    print(f"{'two limbs on a trunk':<30} {'converged in 12 cycles':<46} not offered: one chain only")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    other = Peer(sys.argv[1])
    speed(other)
    cases(other)
