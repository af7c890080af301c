"""The process in which one peer runs. Started by path, `python worker.py FOLDER_OF_IK_SIM PORT`; see host.py.

It connects back, then answers messages, each a JSON object: open, fk, chunk. JSON keeps every bit of a float and,
unlike a pickle, doesn't care which NumPy either side has.
"""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from multiprocessing.connection import Client
from typing import Any

WARM, WARM_NS = 5, 5_000_000


def _load_package(folder: str) -> None:
    """Make `ik_sim` importable from its folder without putting the packages beside it on the path."""
    spec = importlib.util.spec_from_file_location(
        "ik_sim", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ik_sim"] = module
    spec.loader.exec_module(module)


def run_chunk(solve: Any, targets: Any, seeds: Any, follow: bool, lower: Any, upper: Any, warm: bool) -> dict[str, Any]:
    """Solve one query after the other and time each call alone; the first few are done once before, untimed.

    Other solvers ran meanwhile on this core, and a user's loop finds its code and data in the caches: so up to WARM
    calls, or WARM_NS, come before.

    Args:
        solve: (T, q_seed) -> (joints or None, claimed, iterations).
        targets: (k, 4, 4).
        seeds: (k, n); with `follow` only the first counts, and every later solve starts from the last answer.
        follow: along a path.
        lower: limits, into which an answer is clipped before it seeds the next query.
        upper: the other limits.
        warm: make the untimed calls.
    """
    import numpy as np

    clock = time.perf_counter_ns
    answers, times, claims, counts = [], [], [], []
    if warm:
        start = clock()
        for i in range(min(WARM, len(targets))):
            solve(targets[i].copy(), seeds[0 if follow else i])
            if clock() - start > WARM_NS:
                break
    collecting = gc.isenabled()
    gc.disable()
    try:
        q_seed = seeds[0]
        for i in range(len(targets)):
            if not follow:
                q_seed = seeds[i]
            T = targets[i].copy()
            start = clock()
            q, claimed, iterations = solve(T, q_seed)
            times.append(clock() - start)
            answers.append(None if q is None else [float(x) for x in q])
            claims.append(bool(claimed))
            counts.append(None if iterations is None else int(iterations))
            if follow and q is not None and np.isfinite(q).all():
                q_seed = np.clip(np.array(q, dtype=float), lower, upper)
    finally:
        if collecting:
            gc.enable()
    return {"q": answers, "time_ns": times, "claimed": claims, "iterations": counts}


def serve(connection: Any) -> None:
    """Answer until the other side hangs up."""
    import numpy as np

    from ik_sim.peers import adapter
    from ik_sim.peers.peer import Arm

    peer: Any = None
    arm: Any = None
    while True:
        try:
            message = json.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            if message["do"] == "open":
                cls = adapter(message["adapter"])
                arm = Arm(**message["arm"])
                refusal = cls.refuses(arm)
                reply: dict[str, Any] = {"refused": refusal}
                if not refusal:
                    start = time.perf_counter_ns()
                    peer = cls(arm, **message["settings"])
                    reply["build_ms"] = 1e-6 * (time.perf_counter_ns() - start)
                    reply["versions"] = {r: _version(r) for r in cls.requirements}
            elif message["do"] == "fk":
                reply = {"T": [np.asarray(peer.fk(np.array(q))).tolist() for q in message["q"]]}
            else:
                T, seeds = np.array(message["T"]), np.array(message["seeds"])
                reply = run_chunk(peer.solve, T, seeds, message["follow"], arm.lower, arm.upper, message["warm"])
        except Exception as error:  # whatever a peer raises is an answer about that peer
            reply = {"error": f"{type(error).__name__}: {error}"}
        connection.send_bytes(json.dumps(reply).encode())


def _version(requirement: str) -> str:
    try:
        return importlib.metadata.version(requirement.partition("[")[0])
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
    _load_package(sys.argv[1])
    connection = Client(("127.0.0.1", int(sys.argv[2])), authkey=bytes.fromhex(sys.stdin.readline().strip()))
    serve(connection)
