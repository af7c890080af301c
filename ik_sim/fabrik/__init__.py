"""FABRIK on points: chains and trees in the plane and in space, and nothing else of ik_sim needed.

```python
from ik_sim import fabrik

arm = fabrik.Skeleton.chain([3, 3, 3])
solution = fabrik.solve(arm, (3, 4))
solution.points, solution.status, solution.miss, solution.cycles, solution.reason
```

`Solver` holds the settings and solves singly, in batches, or with a trace of every pass. `fabrik.rivals` runs other
methods on the same skeletons. docs/fabrik.md has the whole story.
"""

from __future__ import annotations

from ik_sim.fabrik import rivals
from ik_sim.fabrik.skeleton import Arc, Box, Cone, Hinge, Skeleton, Sphere
from ik_sim.fabrik.solver import BatchSolution, Solution, Solver, Status, Trace, solve

__all__ = [
    "Arc", "BatchSolution", "Box", "Cone", "Hinge", "Skeleton", "Solution", "Solver", "Sphere", "Status", "Trace",
    "rivals", "solve",
]  # fmt: skip
