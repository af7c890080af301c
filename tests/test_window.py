"""The window: what it shows, and that people can steer it. Keys and clicks are real X events, sent by another process."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageGrab

from ik_sim.cli import MISUSE, main
from ik_sim.errors import DisplayError
from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation

PATIENCE = 90.0
"""Seconds until something that should happen counts as not happening: machines that draw by themselves are slow."""
WATCH = """
import sys
sys.path.insert(0, sys.argv[1])
from ik_sim.errors import IkSimError
from ik_sim.tasks import load_task
from ik_sim.window import watch
task = load_task("planar3_line", {"path.duration": float(sys.argv[2]), "settle": 0.1, "hold": 0.1, "control.position_gain": 0.5})
try:
    log = watch(task, stay=True, on_sample=lambda s: print(f"{s.time:.3f}", flush=True))
    control = log.provenance["control"], log.provenance["task"]["control"]
    print("log", len(log), *(c["position_gain"] for c in control), flush=True)
except IkSimError as error:
    print(error, flush=True)
"""


class _Event(ctypes.Structure):
    """XKeyEvent, XButtonEvent and XMotionEvent, which agree but for names."""

    _fields_ = (
        ("type", ctypes.c_int), ("serial", ctypes.c_ulong), ("send_event", ctypes.c_int), ("display", ctypes.c_void_p),
        ("window", ctypes.c_ulong), ("root", ctypes.c_ulong), ("subwindow", ctypes.c_ulong), ("time", ctypes.c_ulong),
        ("x", ctypes.c_int), ("y", ctypes.c_int), ("x_root", ctypes.c_int), ("y_root", ctypes.c_int),
        ("state", ctypes.c_uint), ("detail", ctypes.c_uint), ("same_screen", ctypes.c_int), ("rest", ctypes.c_long * 24),
    )  # fmt: skip


class Hand:
    """Presses keys and buttons in the one window of a display."""

    def __init__(self, name: str) -> None:
        self.x11 = ctypes.CDLL(ctypes.util.find_library("X11"))
        for function in ("XOpenDisplay", "XDefaultRootWindow", "XKeysymToKeycode"):
            getattr(self.x11, function).restype = ctypes.c_ulong
        self.display = ctypes.c_void_p(self.x11.XOpenDisplay(name.encode()))
        self.root = ctypes.c_ulong(self.x11.XDefaultRootWindow(self.display))

    def close(self) -> None:
        self.x11.XCloseDisplay(self.display)

    def window(self) -> int:
        some, count, children = ctypes.c_ulong(), ctypes.c_uint(), ctypes.POINTER(ctypes.c_ulong)()
        self.x11.XQueryTree(self.display, self.root, *(ctypes.byref(v) for v in (some, some, children, count)))
        return int(children[count.value - 1]) if count.value else 0

    def send(self, kind: int, mask: int, **fields: int) -> None:
        window = self.window()
        if not window:  # on its way out, after it was asked to end
            return
        event = _Event(type=kind, display=self.display, window=window, root=self.root, same_screen=1, **fields)
        self.x11.XSendEvent(self.display, ctypes.c_ulong(window), 1, ctypes.c_long(mask), ctypes.byref(event))
        self.x11.XSync(self.display, 0)
        time.sleep(0.15)

    def key(self, letter: str) -> None:
        code = int(self.x11.XKeysymToKeycode(self.display, ctypes.c_ulong(ord(letter))))
        self.send(2, 1, detail=code)  # KeyPress
        self.send(3, 2, detail=code)  # KeyRelease

    def click(self, x: int, y: int) -> None:
        self.send(6, 64, x=x, y=y)  # MotionNotify
        self.send(4, 4, x=x, y=y, detail=1)  # ButtonPress
        self.send(5, 8, x=x, y=y, detail=1, state=256)  # ButtonRelease


class Watched:
    """A run in a window, seen from outside."""

    def __init__(self, process: subprocess.Popen[str], hand: Hand, display: str) -> None:
        self.process, self.hand, self.display = process, hand, display
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def next(self, within: float = PATIENCE) -> str:
        return self.lines.get(timeout=within)

    def until(self, wanted: str) -> None:
        while self.next() != wanted:
            pass

    def silent(self, seconds: float) -> bool:
        try:
            self.next(seconds)
        except queue.Empty:
            return True
        return False

    def ask(self, action: Callable[[], None], happened: Callable[[], bool]) -> None:
        """Do something until it has happened: a window that is busy drawing may miss a key or a click."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            action()
            if happened():
                return
        pytest.fail("nothing happens")

    def comes(self, wanted: str, within: float = 8.0) -> bool:
        """Whether a line that starts so comes soon."""
        end = time.monotonic() + within
        while (rest := end - time.monotonic()) > 0.0:
            try:
                if self.next(rest).startswith(wanted):
                    return True
            except queue.Empty:
                break
        return False

    def pauses(self) -> bool:
        return any(self.silent(1.5) for _ in range(60))

    def screen(self) -> np.ndarray:
        return np.asarray(ImageGrab.grab(xdisplay=self.display).convert("RGB")).astype(int)


@contextmanager
def watched(display: str, program: str = WATCH, seconds: float = 1.5) -> Iterator[Watched]:
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1]), str(seconds)]
    environment = {**os.environ, "DISPLAY": display}
    hand = Hand(display)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, stdin=subprocess.DEVNULL
    ) as process:
        try:
            yield Watched(process, hand, display)
        finally:
            process.kill()
            hand.close()


def near(picture: np.ndarray, colour: tuple[int, int, int], off: int = 40) -> int:
    return int((np.abs(picture - colour).max(axis=-1) < off).sum())


@pytest.mark.display
def test_a_run_is_shown_paused_run_again_and_ended(display):
    with watched(display, seconds=12.0) as run:
        run.until("4.000")
        run.ask(lambda: run.hand.click(1140, 172), run.pauses)
        picture = run.screen()[30:640, 260:1020]  # between the panels
        assert near(picture, (212, 69, 0)) > 50, "no trace"
        assert near(picture, (0, 115, 179)) > 50, "no target path"
        assert near(picture, (28, 31, 36)) > 100, "no words"
        run.ask(lambda: run.hand.key(" "), lambda: not run.silent(5.0))  # goes on
        run.ask(lambda: run.hand.key("r"), lambda: run.comes("0.050"))  # from its start
        # A run that was ended before it had come to its end is no run.
        text = "the window was closed before the run had ended; nothing was judged"
        run.ask(lambda: run.hand.click(1140, 216), lambda: run.comes(text))
        assert run.process.wait(PATIENCE) == 0


@pytest.mark.display
def test_a_moved_gain_starts_the_run_anew_with_that_gain(display):
    with watched(display) as run:
        run.until("0.200")
        run.hand.click(1215, 150)  # on the gain's slider, towards 1
        run.until("0.050")
        run.until("1.700")
        assert run.silent(1.0)  # comes to its end and stays
        assert run.process.poll() is None
        run.hand.key("q")
        while not (line := run.next()).startswith("log 34 "):
            run.hand.key("q")
        gain, told = (float(word) for word in line.split()[2:])
        assert gain == told
        assert 0.6 < gain <= 1.0


@pytest.mark.display
def test_the_command_shows_the_run_and_judges_it(display, tmp_path):
    root = str(Path(__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {root!r}); from ik_sim.cli import main; sys.exit(main())"
    overrides = [
        f"--set={text}" for text in ("path.duration=0.5", "settle=0.1", "hold=0.1", "tolerance.joint_step=0.2")
    ]
    command = [
        sys.executable,
        "-c",
        program,
        "track",
        "planar3_line",
        *overrides,
        "--gui",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(
        command, env={**os.environ, "DISPLAY": display}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=2 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS  planar3_line")
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.display
def test_a_second_window_in_a_process_is_refused_also_after_the_first(display):
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from ik_sim.errors import IkSimError
from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation
robot = load_robot("planar3")
def second():
    try: Simulation(robot, gui=True)
    except IkSimError as error: print(error, flush=True)
with Simulation(robot, gui=True) as first:
    second()
    first.move(robot.q_home, 3)
second()
with Simulation(robot) as other: print(other.gui, flush=True)
"""
    with watched(display, program) as run:
        text = "this process has opened a window already, and PyBullet can't open two; start another process"
        run.until(text)
        assert [run.next(), run.next()] == [text, "False"]


def test_without_a_display_one_line_names_the_browser(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["track", "planar3_line", "--gui"]) == MISUSE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no window possible: DISPLAY is not set" in said
    assert "watch in a browser with `ik-sim view`" in said
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DisplayError, match="no window possible"):  # and the process lives on
        Simulation(load_robot("planar3"), gui=True)
