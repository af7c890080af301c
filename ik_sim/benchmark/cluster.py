"""`ik-sim cluster`: a Dask scheduler and workers on this machine, for `ik-sim bench --scheduler`."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

from ik_sim.errors import IkSimError, InvalidArgumentError, MissingDependencyError


@dataclass(frozen=True)
class Cluster:
    """Start a Dask scheduler and workers on this machine, until Ctrl-C.

    For a benchmark on several machines: start it on one of them with --host and its address there, and on each other
    one `dask worker tcp://ADDRESS:PORT --nthreads 1 --nworkers N`. Dask has no passwords by default: keep it inside your
    own network. The same on one machine by Dask's own commands:

    dask scheduler --host 127.0.0.1 --port 8786 &

    dask worker tcp://127.0.0.1:8786 --nworkers 2 --nthreads 1 &

    ik-sim bench --scheduler tcp://127.0.0.1:8786
    """

    workers: int = 2
    """Worker processes here, of one thread each; one that dies is started again."""
    host: str = "127.0.0.1"
    """Address to listen at."""
    port: int = 8786
    """Port of the scheduler; 0: any that is free."""

    def run(self) -> int:
        """Do it."""
        if self.workers < 1:
            raise InvalidArgumentError("workers", f"must be 1 or more, not {self.workers}")
        try:
            from distributed import LocalCluster  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingDependencyError(
                "dask[distributed]", "ik-sim cluster", "pip install 'ik_sim[cluster]'"
            ) from None
        try:
            cluster = LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                host=self.host,
                scheduler_port=self.port,
                dashboard_address=None,  # pyright: ignore[reportArgumentType]  # None: no dashboard
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise IkSimError(f"can't start a scheduler at {self.host}:{self.port}: {error}") from None
        with cluster:
            address = cluster.scheduler_address
            print(f"ik-sim bench --scheduler {address}", flush=True)
            print(f"ik-sim: {self.workers} workers of one thread wait at {address}; Ctrl-C ends them", file=sys.stderr)
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                print("ik-sim: ending", file=sys.stderr)
        return 0
