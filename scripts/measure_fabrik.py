"""Measure FABRIK: the cost of a link and cycle, long chains, a million solves, and a spider's frames.

    python scripts/measure_fabrik.py [--quick] [--pyfabrik PYTHON_WITH_PYFABRIK]

Prints four tables, on the machine as it is; processor time beside the clock's, since other work slows the clock.
`--quick` does a hundredth of the work. pyfabrik needs NumPy below 2, so it is asked in an environment of its own; see
scripts/compare_pyfabrik.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from ik_sim import fabrik

HERE = Path(__file__).parent
LEGS = 6


def cost_of_a_cycle(most: int) -> None:
    """Links from 3 to 100 000 with the same number of links placed: what a link costs must not grow."""
    print("One cycle places every link twice: nanoseconds a link and cycle, and how a straight chain settles")
    print(f"{'links':>8} {'ns a link':>10} {'miss after 20 cycles':>21} {'cycles to 1e-6':>15} {'ms':>9}")
    for n in (3, 10, 100, 1000, 10_000, 100_000):
        chain, target = fabrik.Skeleton.chain(np.full(n, 1 / n)), (0.3, 0.4)
        cycles = min(10_000, max(5, most // n))
        near = 0.9999 * np.array([np.cos(0.7), np.sin(0.7)])  # slow enough that no cycle is the last
        fixed = fabrik.Solver(tolerance=1e-15, max_cycles=cycles, bend=0.0)
        fixed.solve(chain, near)
        repeats, best = max(3, min(50, most // (n * cycles))), np.inf
        for _ in range(repeats):
            began = time.perf_counter()
            found = fixed.solve(chain, near)
            best = min(best, (time.perf_counter() - began) / (n * found.cycles))
        short = fabrik.Solver(max_cycles=20).solve(chain, target)
        began = time.perf_counter()
        done = fabrik.solve(chain, target)
        spent = 1e3 * (time.perf_counter() - began)
        assert done.converged, done
        print(f"{n:>8} {1e9 * best:>10.1f} {short.miss:>21.1e} {done.cycles:>15} {spent:>9.2f}")


def million(solves: int) -> None:
    """Random three-link arms within ±150°, each from its own start: free starts, as in the links study."""
    rng = np.random.default_rng(0)
    limit = np.radians(150)
    lengths, q = rng.uniform(0.1, 1.0, (solves, 3)), rng.uniform(-limit, limit, (2, solves, 3))
    heading = np.cumsum(q, axis=2)
    steps = lengths[..., None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    points = np.concatenate([np.zeros((2, solves, 1, 2)), np.cumsum(steps, axis=2)], axis=2)
    arm = fabrik.Skeleton.chain(np.ones(3), limits=np.full((3, 1), limit) * [-1.0, 1.0])
    print(f"\n{solves:,} solves of three links within ±150°, random lengths, starts and reachable targets, to 1e-6")
    print(f"{'threads':>8} {'seconds':>8} {'processor s':>12} {'µs a solve':>11} {'arrived':>9}")
    for title, solver in (
        ("passes alone, 100 cycles", fabrik.Solver(max_cycles=100, max_restarts=0, turns=0)),
        ("as it comes", fabrik.Solver()),
    ):
        solver.solve_batch(arm, points[0, :64, -1], points[1, :64], lengths=lengths[:64])
        for threads in sorted({1, os.cpu_count() or 1}):
            began, used = time.perf_counter(), time.process_time()
            found = solver.solve_batch(arm, points[0, :, -1], points[1], lengths=lengths, threads=threads)
            spent, used = time.perf_counter() - began, time.process_time() - used
            share = 100 * found.converged.mean()
            print(f"{threads:>8} {spent:>8.2f} {used:>12.2f} {1e6 * spent / solves:>11.2f} {share:>8.3f}%  {title}")


def spider(joints: str) -> fabrik.Skeleton:
    """Six legs of three links on a trunk."""
    points, parent, every = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.25)], [-1, 0], {}
    for k in range(LEGS):
        a = 2 * np.pi * (k + 0.5) / LEGS
        across = (-np.sin(a), np.cos(a), 0.0)
        for j, (r, z) in enumerate(((0.3, 0.3), (0.9, 0.75), (1.4, 0.0))):
            points.append((r * np.cos(a), r * np.sin(a), z))
            parent.append(1 if j == 0 else len(points) - 2)
            if joints == "cones":
                every[len(points) - 1] = fabrik.Cone(np.radians(35 if j == 0 else 60))
            elif joints == "a ball and two hinges":
                every[len(points) - 1] = fabrik.Cone(np.radians(35)) if j == 0 else fabrik.Hinge(across, -1, 1)
            elif joints == "three hinges":
                every[len(points) - 1] = fabrik.Hinge((0, 0, 1), -0.6, 0.6) if j == 0 else fabrik.Hinge(across, -1, 1)
    if joints == "three hinges":
        every[1] = fabrik.Hinge((0, 0, 1), 0, 0)  # and the trunk is rigid
    return fabrik.Skeleton.tree(points, parent, joints=every)


def frames(count: int) -> None:
    """A walk on the spot, each frame started from the one before, all feet solved at once."""
    print(f"\nA spider with six legs and 19 links walks {count} frames; 60 a second leave 16.7 ms a frame")
    print(
        f"{'legs of':<24} {'solved':>8} {'median ms':>10} {'99 % ms':>8} {'worst ms':>9} {'of processor: 99 %':>19} {'worst':>7}"
    )
    for joints in ("free joints", "cones", "a ball and two hinges", "three hinges"):
        rig, solver = spider(joints), fabrik.Solver(tolerance=1e-3)
        feet, points = rig.rest[list(rig.effectors)], np.array(rig.rest)
        solver.solve(rig, feet)
        spent, busy, solved = [], [], 0
        for frame in range(count):
            phase = 2 * np.pi * (frame / 30 + np.arange(LEGS) % 2 / 2)
            targets = feet + np.column_stack([0.18 * np.cos(phase), 0 * phase, 0.22 * np.maximum(0, np.sin(phase))])
            began, used = time.perf_counter(), time.thread_time()
            found = solver.solve(rig, targets, points)
            spent.append(1e3 * (time.perf_counter() - began))
            busy.append(1e3 * (time.thread_time() - used))
            points, solved = found.points, solved + found.converged
        median, late = np.percentile(spent, [50, 99])
        print(
            f"{joints:<24} {100 * solved / count:>7.1f}% {median:>10.3f} {late:>8.3f} {max(spent):>9.3f} "
            f"{np.percentile(busy, 99):>19.3f} {max(busy):>7.3f}"
        )


def methods(count: int) -> None:
    """FABRIK and the other methods on the same free chains, starts and targets."""
    print(f"\nEvery method on {count} targets within 95 % of the reach, random starts, at most 1000 steps, to 1e-6")
    print(f"{'links':>6} {'dimension':>10} {'method':<24} {'arrived':>8} {'median steps':>13} {'median µs':>10}")
    for links, d in ((3, 2), (10, 2), (10, 3), (100, 3)):
        chain, rng = fabrik.Skeleton.chain(np.full(links, 1 / links), base=(0.0,) * d), np.random.default_rng(0)
        starts, goals = rng.normal(size=(count, links + 1, d)), rng.normal(size=(count, d))
        starts[:, 0] = 0.0
        goals *= rng.uniform(0.1, 0.95, (count, 1)) / np.linalg.norm(goals, axis=1, keepdims=True)
        for name in ("fabrik", *fabrik.rivals.METHODS):
            solver = fabrik.Solver(max_cycles=1000) if name == "fabrik" else fabrik.rivals.Rival(name, max_cycles=1000)
            solver.solve(chain, goals[0], starts[0])
            spent, steps = [], []
            for start, goal in zip(starts, goals, strict=True):
                began = time.perf_counter()
                found = solver.solve(chain, goal, start)
                spent.append(1e6 * (time.perf_counter() - began))
                steps.append(found.cycles if found.converged else np.inf)
            arrived = 100 * np.isfinite(steps).mean()
            print(
                f"{links:>6} {d:>10} {name.replace('_', ' '):<24} {arrived:>7.1f}% {np.median(steps):>13.0f} "
                f"{np.median(spent):>10.1f}"
            )


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work")
    parser.add_argument("--pyfabrik", metavar="PYTHON", help="a Python that has pyfabrik 0.4: compare with it too")
    options = parser.parse_args()
    less = 100 if options.quick else 1
    cost_of_a_cycle(10_000_000 // less)
    million(1_000_000 // less)
    frames(600 // (10 if options.quick else 1))
    methods(20 if options.quick else 300)
    if options.pyfabrik:
        print()
        sys.stdout.flush()
        subprocess.run([sys.executable, HERE / "compare_pyfabrik.py", options.pyfabrik], check=True)


if __name__ == "__main__":
    main()
