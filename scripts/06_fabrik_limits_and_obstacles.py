"""One planar chain in six situations: free, limited, around a disc, in line, out of reach. Prints what came of each.

Run it as:

    python scripts/06_fabrik_limits_and_obstacles.py
"""

from __future__ import annotations

import numpy as np

from ik_sim import fabrik


def main() -> None:
    free = fabrik.Skeleton.chain([0.6] * 5)
    limited = fabrik.Skeleton.chain([0.6] * 5, limits=np.radians([(-180, 180)] + [(-50, 50)] * 4))
    disc = fabrik.Sphere((1.2, 0.35), 0.4)
    for title, arm, target, obstacles in (
        ("free", free, (2.1, 0.9), []),
        ("joints within ±50°", limited, (2.1, 0.9), []),
        ("around a disc", free, (2.1, 0.9), [disc]),
        ("in line with its target", free, (1.5, 0.0), []),
        ("out of reach", free, (4.0, 1.0), []),
        ("into the disc", free, (1.2, 0.4), [disc]),
    ):
        found = fabrik.solve(arm, target, obstacles=obstacles)
        print(f"{title:<24} {found.status:<13} {found.cycles:4d} cycles  {found.reason}")


if __name__ == "__main__":
    main()
