"""Many equal arms in physics, a control period at a time, shared out among processes.

Each arm is a :class:`~ik_sim.simulation.Simulation` of its own whose PyBullet step is a whole control period, cut by
PyBullet into sub-steps: the same motion as that many steps one by one, at a fraction of the calls. (A motor's torque limit
times the whole step bounds the impulse of each sub-step, so the limits are divided by their number.)

PyBullet holds the interpreter's lock while it steps, so threads gain nothing: `workers` are processes, this one among
them. The others are plain subprocesses, whatever the program around them is made of: they import this module, nothing of
the program's, and live on the far side of two pipes. What a step needs to say is a few hundred bytes; shared memory would
save none of the waking up, which is what a step among processes costs. Arms don't meet, so where one is stepped changes no
bit of it.

A worker ends when its input does: on `close`, with this object, with the interpreter, and when this process is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ik_sim.control import ControlSettings
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.robots import Robot
from ik_sim.simulation import Simulation

ARMS_PER_WORKER = 4
"""Fewer are stepped sooner than another process is woken up."""
PATIENCE = 5.0
"""Seconds that a worker has to end by itself."""


@dataclass(frozen=True, eq=False)
class Spec:
    """What the arms have in common."""

    robot: Robot
    control: ControlSettings
    period: float
    """Of a step [s]."""
    substeps: int
    """Physics steps in a period."""
    torque: bool = False
    """Whether motors are told torques, not speeds."""

    def open(self) -> Simulation:
        """An arm, at home."""
        control = replace(
            self.control, physics_rate=1.0 / self.period, substeps=1,
            torque_scale=self.control.torque_scale / self.substeps,
        )  # fmt: skip
        return Simulation(self.robot, control, bullet_substeps=self.substeps, bare=True)


class Fleet:
    """`count` arms, opened at their first reset, and anew after a fork.

    Args:
        spec: what they have in common.
        count: how many.
        workers: processes that step them, this one among them. When left out: the processors that this process may use,
            but :data:`ARMS_PER_WORKER` arms for each at least, and in a process that is itself one of many (a daemon, as
            `AsyncVectorEnv` starts them) none besides it.
    """

    def __init__(self, spec: Spec, count: int, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InvalidArgumentError("workers", f"must be 1 or more, not {workers}")
        self._spec, self._count, self._wanted = spec, count, workers
        self._payloads: list[float | None] = [None] * count
        self._opened = np.zeros(count, dtype=bool)
        self._set_up()

    def _set_up(self) -> None:
        self._process = os.getpid()
        self.workers = min(self._wanted or default_workers(self._count), self._count)
        """Processes that step the arms, this one among them."""
        ends = [0, *np.cumsum([len(part) for part in np.array_split(np.arange(self._count), self.workers)]).tolist()]
        self._shares = [range(first, last) for first, last in itertools.pairwise(ends)]
        """Arms of this process, then of each of the others."""
        self._mine = _Share(self._spec)
        self._others: list[_Worker] = []

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the other processes, once they have been started."""
        return tuple(worker.pid for worker in self._others)

    def reset(self, rows: Sequence[int], q: Float[np.ndarray, "k n"], payloads: Sequence[float | None]) -> None:
        """Put these arms at `q` (a row each of these), at rest, with those masses at their tools [kg]."""
        self._forget_after_fork()
        self._place(rows, q, None, payloads)

    def step(
        self,
        rows: Sequence[int],
        q: Float[np.ndarray, "m n"],
        velocity: Float[np.ndarray, "m n"],
        drive: Float[np.ndarray, "m n"],
    ) -> None:
        """Let the arms `rows` run for a period; their rows of `q` and `velocity` are updated in place.

        `drive` holds speeds for the motors [rad/s], or torques.

        Raises:
            IkSimError: a worker failed, or is gone.
        """
        if os.getpid() != self._process:
            self._restore_after_fork(q, velocity)
        parts = self._shares if len(rows) == self._count else [_within(rows, share) for share in self._shares]
        messages = [
            b"S" + np.array(part, dtype=np.int32).tobytes() + drive[part].tobytes() if part else b""
            for part in parts[1:]
        ]  # fmt: skip
        mine, answers = self._share_out(messages, lambda: self._mine.step(parts[0], drive[parts[0]]))
        for part, states in zip(parts, (mine, *(np.frombuffer(answer) for answer in answers)), strict=True):
            states = states.reshape(len(part), q.shape[1], 2)
            q[part] = states[:, :, 0]
            velocity[part] = states[:, :, 1]

    def processor_time(self) -> float:
        """Of this process and the others, since they began [s]."""
        if os.getpid() != self._process:
            return time.process_time()
        _, answers = self._share_out([b"T"] * len(self._others), lambda: None)
        return time.process_time() + sum(float(np.frombuffer(answer)[0]) for answer in answers)

    def close(self) -> None:
        """End arms and workers; a second call does nothing, and a reset opens them again."""
        self._forget_after_fork()
        self._mine.close()
        for worker in self._others:
            worker.close()
        self._others = []
        self._opened[:] = False

    # --- inside ---

    def _place(
        self,
        rows: Sequence[int],
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"] | None,
        payloads: Sequence[float | None],
    ) -> None:
        if not self._others and self.workers > 1:
            self._others = [_Worker(self._spec) for _ in self._shares[1:]]
        where = {row: k for k, row in enumerate(rows)}
        jobs = []
        for share in self._shares:
            part = _within(rows, share)
            at = [where[row] for row in part]
            moving = None if velocity is None else velocity[at]
            jobs.append((part, q[at], moving, [payloads[k] for k in at]))
        self._share_out(
            [b"P" + pickle.dumps(job) if job[0] else b"" for job in jobs[1:]], lambda: self._mine.place(*jobs[0])
        )
        for row, payload in zip(rows, payloads, strict=True):
            self._payloads[row] = payload
        self._opened[list(rows)] = True

    def _share_out(self, messages: list[bytes], own: Callable[[], Any]) -> tuple[Any, list[bytes]]:
        """Send a message to each worker (an empty one is not sent), do this process's part, collect the answers."""
        asked = []
        try:
            for worker, message in zip(self._others, messages, strict=True):
                if message:
                    worker.ask(message)
                asked.append(bool(message))
            mine = own()
        finally:  # whatever happens here, no answer may be left over for the next question
            answers = [worker.answer() if wait else b"" for worker, wait in zip(self._others, asked, strict=False)]
        for answer in answers:
            if isinstance(answer, IkSimError):
                raise answer
        return mine, answers  # type: ignore[return-value]

    def _forget_after_fork(self) -> None:
        """Leave the parent's clients and workers alone; this process opens its own."""
        if os.getpid() != self._process:
            self._mine.forget()
            self._opened[:] = False
            self._set_up()

    def _restore_after_fork(self, q: Float[np.ndarray, "m n"], velocity: Float[np.ndarray, "m n"]) -> None:
        rows = np.flatnonzero(self._opened).tolist()
        self._forget_after_fork()
        self._place(rows, q[rows], velocity[rows], [self._payloads[row] for row in rows])


def default_workers(count: int) -> int:
    """How many processes step so many arms, unless somebody says."""
    if multiprocessing.current_process().daemon or not sys.executable:
        return 1
    return max(1, min(usable_cores(), count // ARMS_PER_WORKER))


def usable_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _within(rows: Sequence[int], share: range) -> list[int]:
    return [row for row in rows if row in share]


class _Share:
    """Arms of one process, by their numbers."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._arms: dict[int, Simulation] = {}

    def place(
        self,
        rows: Sequence[int],
        q: Float[np.ndarray, "k n"],
        velocity: Float[np.ndarray, "k n"] | None,
        payloads: Sequence[float | None],
    ) -> None:
        """Put arms at `q`, at rest or moving on."""
        for k, row in enumerate(rows):
            arm = self._arms.get(row)
            if arm is None:
                arm = self._arms[row] = self._spec.open()
            payload = payloads[k]
            if payload is not None:
                arm.set_payload(payload)
            arm.reset(q[k])
            if self._spec.torque:
                arm.release()
            if velocity is not None:
                arm.place(q[k], velocity[k])

    def step(self, rows: Sequence[int], drive: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "s"]:
        """Let arms run for a period; joint values and speeds, in pairs, one arm after the other."""
        numbers: list[float] = []
        torque, arms = self._spec.torque, self._arms
        for row, wanted in zip(rows, drive, strict=True):
            for state in arms[row].step_motors(wanted, torque):
                numbers += state[:2]
        return np.array(numbers)

    def close(self) -> None:
        """End them."""
        for arm in self._arms.values():
            arm.close()
        self._arms.clear()

    def forget(self) -> None:
        """Leave them to the process that opened them."""
        for arm in self._arms.values():
            arm.abandon()
        self._arms.clear()


# --- another process ---

_alive: weakref.WeakSet[_Worker] = weakref.WeakSet()


class _Worker:
    """A process with arms of its own, which does what it is asked."""

    def __init__(self, spec: Spec) -> None:
        # Not through multiprocessing: that would run the program's main file again, or fork its threads.
        code = (
            f"import sys; sys.path[:] = {[str(folder) for folder in sys.path]}; from ik_sim.fleet import work; work()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._into, self._out_of = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.pid = self._process.pid
        self._waiting = False
        self.close = weakref.finalize(self, _end, self._process, os.getpid())
        _alive.add(self)
        with contextlib.suppress(OSError):  # what became of it shows when it is first asked
            _send(self._into, pickle.dumps(spec))

    def ask(self, message: bytes) -> None:
        """Send a message, to be answered."""
        if self._waiting:
            raise IkSimError("a physics worker was interrupted at work; make the environment anew")
        self._waiting = True
        with contextlib.suppress(BrokenPipeError):  # the answer says so
            _send(self._into, message)

    def answer(self) -> bytes | IkSimError:
        """What came of it."""
        try:
            found = _receive(self._out_of)
        except EOFError:
            self._waiting = False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
            return IkSimError(
                f"a physics worker is gone ({_how(self._process.returncode)}); make the environment anew, "
                "with workers=1 if it happens again"
            )
        self._waiting = False
        return found[1:] if found[:1] == b"=" else IkSimError(f"in a physics worker: {found[1:].decode()}")


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _leave_to_parent() -> None:
    """In a forked process: workers belong to the parent, and would outlive it if their pipes stayed open here."""
    for worker in list(_alive):
        process = worker._process
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
        process.returncode = 0  # no child of this process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _send(to: int, message: bytes) -> None:
    rest = memoryview(len(message).to_bytes(4, "little") + message)
    while rest:
        rest = rest[os.write(to, rest) :]


def _receive(source: int) -> bytes:
    return _read(source, int.from_bytes(_read(source, 4), "little"))


def _read(source: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = os.read(source, size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def work() -> None:
    """What a worker does until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; this one ends with it
    replies = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # PyBullet prints
    logging.getLogger("ik_sim").setLevel(logging.ERROR)  # warnings of the robot's file are given once, over there
    with contextlib.suppress(EOFError, BrokenPipeError):
        spec: Spec = pickle.loads(_receive(0))
        share, n = _Share(spec), spec.robot.chain.n
        while True:
            message = _receive(0)
            try:
                if message[:1] == b"S":
                    count = (len(message) - 1) // (4 + 8 * n)
                    rows = np.frombuffer(message, np.int32, count, 1).tolist()
                    drive = np.frombuffer(message, np.float64, count * n, 1 + 4 * count).reshape(count, n)
                    answer = b"=" + share.step(rows, drive).tobytes()
                elif message == b"T":
                    answer = b"=" + np.float64(time.process_time()).tobytes()
                else:
                    share.place(*pickle.loads(message[1:]))
                    answer = b"="
            except Exception as error:
                answer = b"!" + f"{type(error).__name__}: {error}".encode()
            _send(replies, answer)
