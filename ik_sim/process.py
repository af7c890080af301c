"""What C libraries do to the process around them: print past Python's back, and end it where a window can't open."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import sys
import tempfile
from collections.abc import Iterator

from ik_sim.errors import DisplayError


@contextlib.contextmanager
def display_held() -> Iterator[None]:
    """Try the display as PyBullet's window will, where a failure can still be caught, and stay connected for the block.

    A virtual display starts anew whenever its last client leaves, and would refuse a window that opens just then.

    Raises:
        DisplayError: there is none, it doesn't answer, or it can't draw OpenGL.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    advice = "run without --gui, or watch in a browser with `ik-sim view`"
    name = os.environ.get("DISPLAY", "")
    if not name:
        raise DisplayError(f"no window possible: DISPLAY is not set; {advice}")
    libraries = [ctypes.util.find_library(library) for library in ("X11", "GL")]
    if None in libraries:
        raise DisplayError(f"no window possible: the libraries libX11 and libGL are not installed; {advice}")
    x11, gl = (ctypes.CDLL(library) for library in libraries)
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XOpenDisplay.argtypes = [ctypes.c_char_p]
    x11.XCloseDisplay.argtypes = [ctypes.c_void_p]
    gl.glXQueryExtension.argtypes = [ctypes.c_void_p] * 3
    display = x11.XOpenDisplay(None)
    if not display:
        raise DisplayError(f"no window possible: the display {name!r} does not answer; {advice}")
    try:
        numbers = (ctypes.c_int(), ctypes.c_int())
        if not gl.glXQueryExtension(display, *(ctypes.byref(number) for number in numbers)):
            raise DisplayError(f"no window possible: the display {name!r} can't draw OpenGL; {advice}")
        yield
    finally:
        x11.XCloseDisplay(display)


@contextlib.contextmanager
def quiet(also_stderr: bool = False) -> Iterator[list[str]]:
    """Turn file descriptor 1 away, where C code prints; afterwards the list holds what was said."""
    said: list[str] = []
    saved: dict[int, int] = {}
    with tempfile.TemporaryFile() as sink:
        # A service without a terminal may lack a descriptor: then there is nothing to turn away.
        with contextlib.suppress(OSError, ValueError):
            for stream, number in ((sys.stdout, 1), (sys.stderr, 2)) if also_stderr else ((sys.stdout, 1),):
                if stream is not None:
                    stream.flush()
                saved[number] = os.dup(number)
                os.dup2(sink.fileno(), number)
        try:
            yield said
        finally:
            _flush_c()
            for number, copy in saved.items():
                os.dup2(copy, number)
                os.close(copy)
            sink.seek(0)
            said += sink.read().decode(errors="replace").splitlines()


def _flush_c() -> None:
    """Let C write out what it has buffered, before the descriptor is turned back."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
