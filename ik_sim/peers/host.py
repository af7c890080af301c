"""Start a peer in its own process, talk to it, and survive its crash; fill the environments of peers that clash."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from ik_sim.errors import IkSimError
from ik_sim.peers import PEERS, peer_class

START_SECONDS = 60.0
"""Longest that a peer may take to come up; Robotics Toolbox imports for seconds on a busy machine."""
QUIET_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Set to 1 for every peer: one core each, as our solvers have."""


class PeerCrashed(IkSimError):
    """The peer's process ended while it worked."""


def environments_folder() -> Path:
    """Where `--install-peers` puts its environments."""
    cache = os.environ.get("IK_SIM_PEERS") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ik_sim", "peers"
    )
    return Path(cache)


def find_python(name: str) -> str | None:
    """The Python that can import this peer: ours, or that of its environment; None where it isn't installed."""
    cls: Any = peer_class(name)
    if importlib.util.find_spec(cls.package) is not None:
        return sys.executable
    python = _python_of(environments_folder() / cls.environment)
    if not python.is_file():
        return None
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({cls.package!r}) is None)"
    return str(python) if subprocess.run([str(python), "-I", "-c", probe], check=False).returncode == 0 else None


def _python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install(names: list[str], say: Any = print) -> list[str]:
    """Make the environments of these peers and install their packages; returns what could not be installed, with why.

    uv does it in seconds where it is on the path or in this environment; else venv and pip.
    """
    failures = []
    uv = shutil.which("uv") or _beside_python("uv")
    groups: dict[str, list[str]] = {}
    for name in names:
        if find_python(name) is None:
            groups.setdefault(peer_class(name).environment, []).append(name)  # type: ignore[attr-defined]
    for environment, members in groups.items():
        folder = environments_folder() / environment
        python = _python_of(folder)
        if not python.is_file():
            folder.parent.mkdir(parents=True, exist_ok=True)
            make = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
            subprocess.run([*make, str(folder)], check=True)
        get = (
            [uv, "pip", "install", "-q", "--python", str(python)] if uv else [str(python), "-m", "pip", "install", "-q"]
        )
        for name in members:  # one by one: a package without a wheel here must not take the others with it
            wanted = peer_class(name).requirements  # type: ignore[attr-defined]
            say(f"{name}: installing {', '.join(wanted)} into {folder}")
            done = subprocess.run([*get, *wanted], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                failures.append(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}")
    return failures


def _beside_python(tool: str) -> str | None:
    path = Path(sys.executable).with_name(tool)
    return str(path) if path.is_file() else None


class PeerProcess:
    """One peer, set up for one arm, in its own process."""

    def __init__(
        self,
        name: str,
        variant: str,
        arm: dict[str, Any],
        urdf: str,
        python: str | None = None,
        budget: dict[str, Any] | None = None,
    ) -> None:
        """Start it.

        Args:
            name: a key of PEERS.
            variant: a key of the class's `variants`.
            arm: what :class:`ik_sim.peers.peer.Arm` takes, without the path.
            urdf: the arm as URDF text.
            python: the interpreter; found when left out.
            budget: what :meth:`ik_sim.peers.peer.Peer.within` takes.

        Raises:
            IkSimError: the peer isn't installed, didn't come up, or its own words about the arm.
        """
        cls: Any = peer_class(name)
        self.name, self.variant = name, variant
        self.python = python or find_python(name) or ""
        if not self.python:
            raise IkSimError(f"peer {name!r} is not installed ({' '.join(cls.requirements)})")
        self._folder = tempfile.TemporaryDirectory(prefix=f"ik_sim_{name}_")
        urdf_path = os.path.join(self._folder.name, f"{arm['name']}.urdf")
        Path(urdf_path).write_text(urdf, encoding="utf-8")
        self.settings, self.lacking = cls.within(variant, budget or {})
        self._open = {
            "do": "open",
            "adapter": PEERS[name],
            "settings": self.settings,
            "arm": {**arm, "urdf_path": urdf_path},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self.facts = self._start()

    def _start(self) -> dict[str, Any]:
        key = secrets.token_bytes(32)
        listener = Listener(("127.0.0.1", 0), authkey=key)
        listener._listener._socket.settimeout(0.2)  # type: ignore[attr-defined]  # accept in steps, to see an early end
        port = listener.address[1]
        environment = {**os.environ, **dict.fromkeys(QUIET_THREADS, "1"), "IK_SIM_PEERS": str(environments_folder())}
        environment.pop("PYTHONPATH", None)
        package = str(Path(__file__).parents[1])
        log_path = os.path.join(self._folder.name, "stderr")
        with open(log_path, "wb") as log:
            self._process = subprocess.Popen(
                [self.python, str(Path(__file__).with_name("worker.py")), package, str(port)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=environment, cwd=self._folder.name,
            )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(key.hex().encode() + b"\n")
        self._process.stdin.flush()
        waited = 0.0
        while True:
            try:
                self._connection = listener.accept()
                break
            except TimeoutError:
                waited += 0.2
                if self._process.poll() is not None or waited > START_SECONDS:
                    listener.close()
                    self.close()
                    tail = Path(log_path).read_text(errors="replace").strip().splitlines()[-1:]
                    raise PeerCrashed(f"peer {self.name!r} did not start: {' '.join(tail) or 'no answer'}") from None
        listener.close()
        facts = self.ask(self._open)
        if facts.get("refused"):
            self.close()
            raise IkSimError(f"peer {self.name!r} can't take {self._open['arm']['name']}: {facts['refused']}")
        return facts

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and wait for its answer.

        Raises:
            PeerCrashed: the process ended.
            IkSimError: what the peer raised.
        """
        assert self._connection is not None
        try:
            self._connection.send_bytes(json.dumps(message).encode())
            reply = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            code = self._process.wait(5) if self._process else None
            raise PeerCrashed(f"peer {self.name!r} ended with code {code}") from None
        if "error" in reply:
            raise IkSimError(f"peer {self.name!r}: {reply['error']}")
        return reply

    def fk(self, q: np.ndarray) -> np.ndarray:
        """The peer's forward kinematics for (k, n) joints, (k, 4, 4)."""
        return np.array(self.ask({"do": "fk", "q": q.tolist()})["T"])

    def chunk(self, T: np.ndarray, seeds: np.ndarray, follow: bool, warm: bool = True) -> dict[str, Any]:
        """Solve a chunk of queries, see :func:`ik_sim.peers.worker.run_chunk`.

        A peer that crashes or raises on a query is started again; that query gets no answer and the word why.
        """
        message = {"do": "chunk", "follow": follow, "warm": warm}
        try:
            return self.ask({**message, "T": T.tolist(), "seeds": seeds.tolist()})
        except IkSimError as error:
            self._revive(error)
        whole: dict[str, Any] = {"q": [], "time_ns": [], "claimed": [], "iterations": [], "failed": []}
        q_seed = seeds[0]
        for i in range(len(T)):
            q_seed = q_seed if follow else seeds[i]
            try:
                part = self.ask({**message, "warm": False, "T": [T[i].tolist()], "seeds": [q_seed.tolist()]})
                part["failed"] = [""]
            except IkSimError as error:
                self._revive(error)
                word = "crashed" if isinstance(error, PeerCrashed) else "raised"
                part = {"q": [None], "time_ns": [None], "claimed": [False], "iterations": [None], "failed": [word]}
            for key, values in whole.items():
                values += part[key]
            if follow and part["q"][0] is not None and np.isfinite(part["q"][0]).all():
                q_seed = np.clip(part["q"][0], self._open["arm"]["lower"], self._open["arm"]["upper"])
        return whole

    def _revive(self, error: IkSimError) -> None:
        if isinstance(error, PeerCrashed):
            self._end()
            self._start()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the process and drop its files."""
        self._end()
        self._folder.cleanup()

    def __enter__(self) -> PeerProcess:
        """Itself."""
        return self

    def __exit__(self, *rest: Any) -> None:
        """Close."""
        self.close()
