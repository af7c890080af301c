"""Target sets and seeds. Target i of a set has a random generator of its own: the same whatever is run around it."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float  # pyright: ignore[reportMissingImports]

from ik_sim.benchmark.plan import PATH_POINTS
from ik_sim.chain import CENTRE, REACH, Chain
from ik_sim.errors import FileFormatError, IkSimError, InvalidArgumentError
from ik_sim.se3 import check_pose, quat_xyzw_to_matrix, transform

SEEDS = ("zero", "random", "near")
NEAR = 0.1
"""Standard deviation of a near seed from the joints that made the target [rad or m]."""


@dataclass(frozen=True, eq=False)
class Queries:
    """A stretch of a target set with its seeds."""

    T: Float[np.ndarray, "k 4 4"]
    """Wanted tool poses in the base."""
    q_seeds: Float[np.ndarray, "k n"]
    """Where each solve starts; of a path only the first counts."""
    reachable: Bool[np.ndarray, "k"]
    """False where no joints at all reach the target."""
    sigma: Float[np.ndarray, "k"]
    """Smallest singular value of the Jacobian at the joints that made the target, with lengths divided by the reach;
    0 in a singular posture, NaN where these joints aren't known."""
    follow: bool
    """Each solve starts from the last answer."""


def queries(name: str, robot: str, chain: Chain, first: int, last: int, seed: int, seed_kind: str) -> Queries:
    """Targets `first` to `last` of a set, with seeds.

    Args:
        name: a key of TARGETS, or the path of a file.
        robot: its name; it enters the random numbers.
        chain: the arm.
        first: index of the first target.
        last: index after the last.
        seed: of the random numbers.
        seed_kind: one of SEEDS.
    """
    rows = [_seeded(seed, robot, name, i) for i in range(first, last)]
    if is_file(name):
        T = read_targets(name)[first:last]
        q_true = np.full((len(T), chain.n), np.nan)
        reachable = np.ones(len(T), dtype=bool)
        rows = rows[: len(T)]
    elif name == "paths":
        q_true = np.concatenate([_path(chain, _seeded(seed, robot, name, i)) for i in range(first, last, PATH_POINTS)])
        T, reachable = chain.fk_batch(q_true), np.ones(len(q_true), dtype=bool)
    else:
        drawn = [TARGETS[name](chain, rng, i) for i, rng in zip(range(first, last), rows, strict=True)]
        q_true = np.array([q for q, _ in drawn])
        T = chain.fk_batch(q_true)
        reachable = np.array([far is None for _, far in drawn])
        for i, (_, far) in enumerate(drawn):
            if far is not None:
                T[i, :3, 3] = far
    if seed_kind == "zero":
        seeds = np.tile(chain.clip(np.zeros(chain.n)), (len(T), 1))
    elif seed_kind == "random":
        seeds = np.array([chain.random_q(_seeded(seed, robot, name, i, 1)) for i in range(first, first + len(T))])
    else:
        if np.isnan(q_true).any():
            raise IkSimError(
                f"near seeds need the joints behind each target, which {name} doesn't hold; take zero or random"
            )
        steps = [_seeded(seed, robot, name, i, 1).normal(0.0, NEAR, chain.n) for i in range(first, last)]
        seeds = np.array([chain.clip(q + step) for q, step in zip(q_true, steps, strict=True)])
    if name == "paths":  # the arm starts where the path starts
        seeds[::PATH_POINTS] = q_true[::PATH_POINTS]
    sigma = np.array([np.nan if np.isnan(q).any() else smallest_singular_value(chain, q) for q in q_true])
    return Queries(T, seeds, reachable, np.where(reachable, sigma, np.nan), name == "paths")


def _seeded(seed: int, robot: str, name: str, i: int, what: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(robot.encode()), zlib.crc32(name.encode()), i, what])


def smallest_singular_value(chain: Chain, q: Float[np.ndarray, "n"]) -> float:
    """Of the Jacobian with its linear rows divided by the arm's reach; dimensionless."""
    J = chain.jacobian(q)
    J[:3] /= max(float(chain.packed[REACH]), 1e-9)
    return float(np.linalg.svd(J, compute_uv=False)[-1])


Drawn = tuple[Float[np.ndarray, "n"], "Float[np.ndarray, '3'] | None"]


def _uniform(chain: Chain, rng: np.random.Generator, i: int) -> Drawn:
    return chain.random_q(rng), None


def _edge(chain: Chain, rng: np.random.Generator, i: int) -> Drawn:
    """One joint or more between a millionth and a hundredth of its range from a limit."""
    q = chain.random_q(rng)
    edges = rng.random(chain.n) < 0.4
    edges[rng.integers(chain.n)] = True
    width = np.where(np.isfinite(chain.upper - chain.lower), chain.upper - chain.lower, 2 * np.pi)
    gap = width * 10.0 ** rng.uniform(-6.0, -2.0, chain.n)
    high = np.where(np.isfinite(chain.upper), chain.upper, np.pi) - gap
    low = np.where(np.isfinite(chain.lower), chain.lower, -np.pi) + gap
    return np.where(edges, np.where(rng.random(chain.n) < 0.5, low, high), q), None


def _singular(chain: Chain, rng: np.random.Generator, i: int) -> Drawn:
    """The singular posture along one inner joint, then away from it by 1e-8 to 1e-2 of a turn of that joint."""
    q = chain.random_q(rng)
    best, grid = (np.inf, q), 48
    for j in rng.permutation(np.arange(1, max(chain.n - 1, 2)))[:2]:
        low, high = max(chain.lower[j], -np.pi), min(chain.upper[j], np.pi)
        p = q.copy()

        def sigma(value: float, p: Float[np.ndarray, "n"] = p, j: int = int(j)) -> float:
            p[j] = value
            return smallest_singular_value(chain, p)

        values = np.linspace(low, high, grid)
        k = int(np.argmin([sigma(v) for v in values]))
        a, b = values[max(k - 1, 0)], values[min(k + 1, grid - 1)]
        for _ in range(40):  # golden section
            c, d = b - 0.6180339887498949 * (b - a), a + 0.6180339887498949 * (b - a)
            a, b = (a, d) if sigma(c) < sigma(d) else (c, b)
        least = sigma(0.5 * (a + b))
        if least < best[0]:
            away = np.pi * 10.0 ** rng.uniform(-8.0, -2.0) * rng.choice([-1.0, 1.0])
            p[j] = np.clip(0.5 * (a + b) + away, chain.lower[j], chain.upper[j])
            best = (least, p)
    return best[1], None


def _unreachable(chain: Chain, rng: np.random.Generator, i: int) -> Drawn:
    """Every other target beyond the reach, by 0.1 % to 50 %."""
    q = chain.random_q(rng)
    if i % 2 == 0:
        return q, None
    direction = rng.normal(size=3)
    centre, reach = chain.packed[CENTRE : CENTRE + 3], float(chain.packed[REACH])
    return q, centre + direction / np.linalg.norm(direction) * reach * (1.0 + 10.0 ** rng.uniform(-3.0, np.log10(0.5)))


def _path(chain: Chain, rng: np.random.Generator) -> Float[np.ndarray, "k n"]:
    """A straight line in joint space between two random configurations."""
    a, b = chain.random_q(rng, within=0.7), chain.random_q(rng)
    return a + (b - a) * np.linspace(0.0, 1.0, PATH_POINTS)[:, None]


TARGETS: dict[str, Callable[[Chain, np.random.Generator, int], Drawn]] = {
    "uniform": _uniform,
    "edge": _edge,
    "singular": _singular,
    "unreachable": _unreachable,
    "paths": _uniform,  # drawn a path at a time, see `queries`
}
"""uniform: joints uniform inside the limits; edge: joints near their limits; singular: near singular postures;
unreachable: every other target beyond the reach; paths: lines in joint space, each solve from the last answer."""


def is_file(name: str) -> bool:
    """Whether a target set is a file."""
    return name.endswith((".npy", ".csv"))


@lru_cache(maxsize=4)
def read_targets(path: str) -> Float[np.ndarray, "k 4 4"]:
    """Poses of a file: an .npy array (k, 4, 4), or a .csv with the columns x, y, z [m], qx, qy, qz, qw.

    Raises:
        FileFormatError: the file can't be read, or a pose in it is none; the message names the row.
    """
    try:
        if path.endswith(".npy"):
            array = np.load(path, allow_pickle=False)
            if array.ndim != 3 or array.shape[1:] != (4, 4):
                raise FileFormatError(path, f"has shape {array.shape}; poses are (k, 4, 4)")
            poses = list(array)
        else:
            with open(path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            wanted = ("x", "y", "z", "qx", "qy", "qz", "qw")
            if not rows or any(name not in rows[0] for name in wanted):
                raise FileFormatError(path, f"must have rows under the columns {', '.join(wanted)}")
            values = [[float(row[name]) for name in wanted] for row in rows]
            poses = [transform(quat_xyzw_to_matrix(np.array(v[3:])), np.array(v[:3])) for v in values]
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(path, f"can't be read as targets: {error}") from None
    try:
        return np.array([check_pose(np.array(T), f"target {i}") for i, T in enumerate(poses)])
    except InvalidArgumentError as error:
        raise FileFormatError(Path(path), str(error)) from None
