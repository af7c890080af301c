"""A spider on six legs walks in place: every frame one solve of the whole tree, started from the frame before.

    python scripts/05_fabrik_spider.py [--frames 120] [--out spider.gif]

Prints how long a frame's solve takes; 60 frames a second leave 16.7 ms.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from ik_sim import fabrik

LEGS = 6


def spider() -> fabrik.Skeleton:
    points, parent, joints = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.25)], [-1, 0], {}  # a short trunk: the legs share it
    for k in range(LEGS):
        a = 2 * np.pi * (k + 0.5) / LEGS
        for j, (r, z) in enumerate(((0.3, 0.3), (0.9, 0.75), (1.4, 0.0))):
            points.append((r * np.cos(a), r * np.sin(a), z))
            parent.append(1 if j == 0 else len(points) - 2)
            joints[len(points) - 1] = fabrik.Cone(np.radians(35 if j == 0 else 60))
    return fabrik.Skeleton.tree(points, parent, joints=joints)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--out", default="spider.gif")
    options = parser.parse_args()
    rig, solver = spider(), fabrik.Solver(tolerance=1e-3, max_cycles=200, max_restarts=0)
    feet, points = rig.rest[list(rig.effectors)], np.array(rig.rest)
    solver.solve(rig, feet)  # the first call compiles
    poses, spent, missed = [], [], 0.0
    for frame in range(options.frames):
        phase = 2 * np.pi * (frame / 30 + np.arange(LEGS) % 2 / 2)
        targets = feet + np.column_stack([0.18 * np.cos(phase), 0 * phase, 0.22 * np.maximum(0, np.sin(phase))])
        began = time.perf_counter()
        found = solver.solve(rig, targets, points)
        spent.append(1000 * (time.perf_counter() - began))
        points, missed = found.points, max(missed, found.miss)
        poses.append((points, targets))
    print(
        f"{LEGS} legs, {len(rig.parent) - 1} links, {options.frames} frames: median {np.median(spent):.3f} ms, "
        f"99th percentile {np.percentile(spent, 99):.3f} ms a frame; largest miss {missed:.2g}"
    )
    if options.out:
        film(rig, poses, options.out)
        print(options.out)


def film(rig: fabrik.Skeleton, poses: list[tuple[np.ndarray, np.ndarray]], out: str) -> None:
    import imageio.v3 as iio
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    images = []
    for points, targets in poses[::2]:
        figure = Figure(figsize=(6, 4.5), dpi=80)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), projection="3d")
        for i in range(1, len(points)):
            axes.plot(*points[[rig.parent[i], i]].T, "-", color="#0072b2", linewidth=4, solid_capstyle="round")
        axes.scatter(*points[1:].T, color="black", s=14, depthshade=False)
        axes.scatter(*targets.T, color="#d55e00", marker="x", s=40, depthshade=False)
        axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), zlim=(0, 1.3))
        axes.set_box_aspect((2, 2, 1))
        axes.view_init(28, -60)
        canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    iio.imwrite(out, np.stack(images), duration=1000 / 30, loop=0)


if __name__ == "__main__":
    main()
