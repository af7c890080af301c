"""Many arms among processes: what becomes of the processes, and what is said when one of them fails."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ik_sim import fleet
from ik_sim.control import ControlSettings
from ik_sim.errors import IkSimError
from ik_sim.fleet import Fleet, Spec, default_workers
from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation

SPEC = Spec(load_robot("planar2"), ControlSettings(), 1.0 / 30.0, 8)
HOLDS_A_FLEET = """
import sys
import numpy as np
from ik_sim.control import ControlSettings
from ik_sim.fleet import Fleet, Spec
from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation

# No `if __name__ == "__main__"`: a program need not know that there are processes.
fleet = Fleet(Spec(load_robot("planar2"), ControlSettings(), 1 / 30, 8), 4, workers=3)
fleet.reset(range(4), np.zeros((4, 2)), [None] * 4)
print(*fleet.pids, flush=True)
"""


def running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def end_of(pids: Sequence[int], seconds: float = 20.0) -> bool:
    """Wait for processes to end; false when they don't."""
    until = time.monotonic() + seconds
    while any(map(running, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def ready(count: int = 4, workers: int = 2) -> Fleet:
    """A fleet at zero."""
    found = Fleet(SPEC, count, workers)
    found.reset(range(count), np.zeros((count, 2)), [None] * count)
    return found


def stepped(arms: Fleet, count: int = 4) -> np.ndarray:
    """Joint values after a step of a fleet at zero."""
    q, velocity = np.zeros((count, 2)), np.zeros((count, 2))
    arms.step(range(count), q, velocity, np.linspace(-1.0, 1.0, 2 * count).reshape(count, 2))
    return q


def test_workers_end_with_close_and_with_their_fleet_and_leave_no_zombie():
    arms = ready(4, 3)
    pids = arms.pids
    assert len(pids) == 2
    assert all(map(running, pids))
    arms.close()
    arms.close()
    for pid in pids:  # not there at all any more: they have been waited for
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    arms = ready()
    (pid,) = arms.pids
    del arms
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_closed_fleet_opens_again_at_a_reset():
    arms = ready()
    first = stepped(arms)
    arms.close()
    assert arms.pids == ()
    arms.reset(range(4), np.zeros((4, 2)), [None] * 4)
    np.testing.assert_array_equal(stepped(arms), first)
    arms.close()


@pytest.mark.parametrize("ending", ["end of the program", "an error", "SIGTERM", "SIGKILL"])
def test_workers_end_with_the_program_however_it_ends(ending, tmp_path):
    last = {"end of the program": "", "an error": "raise RuntimeError('the program failed')"}.get(
        ending, "sys.stdin.read()"
    )
    program = tmp_path / "program.py"
    program.write_text(HOLDS_A_FLEET + last)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        if ending.startswith("SIG"):
            process.send_signal(getattr(signal, ending))
        _, said = process.communicate(timeout=60)
    assert end_of(pids)
    assert said.count("Traceback") == (ending == "an error"), said  # of the program, and of no worker


def test_workers_end_with_the_program_that_started_them_though_its_forked_child_lives_on(tmp_path):
    program = tmp_path / "program.py"
    # The child holds standard input, which is how the test ends it.
    program.write_text(
        HOLDS_A_FLEET + "import os\nif os.fork() == 0:\n    sys.stdin.read()\n    os._exit(0)\nos._exit(0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        process.wait(60)
        assert end_of(pids)
        process.communicate("")


def test_what_fails_in_a_worker_is_said_here_and_the_work_goes_on():
    arms = ready()
    with pytest.raises(IkSimError, match=r"in a physics worker: InvalidArgumentError: .*nan"):
        arms.reset([3], np.full((1, 2), np.nan), [None])
    with pytest.raises(IkSimError, match="payload"):
        arms.reset([0, 3], np.zeros((2, 2)), [1.0, 1.0])  # fails in both processes
    arms.reset(range(4), np.zeros((4, 2)), [None] * 4)
    fresh = ready(4, 1)
    np.testing.assert_array_equal(stepped(arms), stepped(fresh))
    arms.close()
    fresh.close()


def test_a_worker_that_is_gone_is_an_error_that_says_so_and_nobody_waits():
    arms = ready(6, 3)
    os.kill(arms.pids[0], signal.SIGKILL)
    for _ in range(2):
        begin = time.monotonic()
        with pytest.raises(
            IkSimError, match=r"a physics worker is gone \(ended by SIGKILL\); make the environment anew"
        ):
            stepped(arms, 6)
        assert time.monotonic() - begin < fleet.PATIENCE
    arms.close()
    assert arms.pids == ()


def test_workers_leave_an_interrupt_from_the_keyboard_to_the_program(monkeypatch):
    arms, fresh = ready(), ready(4, 1)
    os.kill(arms.pids[0], signal.SIGINT)  # a terminal sends it to all of them
    np.testing.assert_array_equal(stepped(arms), stepped(fresh))

    def interrupt(source: int) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fleet, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stepped(arms)
    with pytest.raises(IkSimError, match="interrupted"):  # an answer is under way that nobody would know
        stepped(arms)
    arms.close()
    fresh.close()


def test_there_are_as_many_workers_as_bring_something(monkeypatch):
    monkeypatch.setattr(fleet, "usable_cores", lambda: 4)
    assert [default_workers(count) for count in (1, 7, 8, 15, 16, 1000)] == [1, 1, 2, 3, 4, 4]
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert default_workers(16) == 1  # one of many already
    assert Fleet(SPEC, 2, workers=8).workers == 2


@pytest.mark.parametrize(("payload", "frames"), [(0.0, {"tool0"}), (1.0, set())])
def test_frames_that_weigh_nothing_are_left_out_and_the_arm_moves_as_with_them(payload, frames):
    robot = load_robot("ur5")
    spec = Spec(robot, ControlSettings(payload=payload), 1.0 / 30.0, 8)
    bare = spec.open()
    whole = Simulation(robot, bare.control, bullet_substeps=8)
    assert set(whole._links) - set(bare._links) == frames  # what carries a payload stays
    rng = np.random.default_rng(0)
    for _ in range(60):
        drive = rng.uniform(-1.0, 1.0, 6)
        a, b = ([state[0] for state in arm.step_motors(drive)] for arm in (bare, whole))
        # A milligram less at the tool; where a torque is at its limit, that shows in the sixth digit.
        np.testing.assert_allclose(a, b, atol=1e-6)
    bare.close()
    whole.close()
