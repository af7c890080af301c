"""The one decorator that compiles kernels and keeps their cache true.

A kernel is a plain function on plain arrays and numbers; `@kernel` turns it into machine code at its first call and
keeps the result on disk. numba names a cached function by the file it stands in, so after an edit of a *callee* in
another file it would serve the old caller. Here the cache folder itself is named by everything that can change the
result: all source files of this package, the files of the kernels that a user's own kernel calls, the versions of
numba and Python, and the processor. An edit anywhere leads to a fresh folder.

The folder lies in `$IK_SIM_CACHE`, else `$XDG_CACHE_HOME/ik_sim`, else `~/.cache/ik_sim`. Where none can be written,
kernels are compiled anew in every process and one line says so.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import llvmlite.binding
import numba
from numba.core import event

_PACKAGE = Path(__file__).parent
_KEPT_FOLDERS = 6  # older caches of edited sources are dropped beyond this many


F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` with numba: without the interpreter lock, division as in IEEE 754, cached on disk.

    Works on functions of this package and on a user's own. Arguments may be numbers, arrays and other kernels' results;
    module-level constants are frozen at compile time.
    """
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    _sources[dispatcher] = _source_files(function)
    folder = _cache_folder(_sources[dispatcher])
    if folder is not None:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder)  # read while the cache is attached, and put back at once
        try:
            dispatcher.enable_caching()
        except RuntimeError:  # no file behind the function (typed at a prompt): nothing to cache by
            pass
        finally:
            numba.config.CACHE_DIR = before
    return dispatcher  # type: ignore[return-value]


def callback(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that C code calls by its address (`.address`), with numba's `cfunc`.

    An exception can't cross the C frames above it: the function returns a value and never raises.
    """

    def compile_it(function: Callable[..., Any]) -> Any:
        folder = _cache_folder(_source_files(function))
        before = numba.config.CACHE_DIR
        if folder is not None:
            numba.config.CACHE_DIR = str(folder)
        try:
            return numba.cfunc(signature, nopython=True, cache=folder is not None)(function)
        finally:
            numba.config.CACHE_DIR = before

    return compile_it


_sources: dict[Any, frozenset[str]] = {}


def _source_files(function: Callable[..., Any]) -> frozenset[str]:
    """Files outside this package whose text decides what `function` compiles to: its own and its callees'."""
    files = {function.__code__.co_filename}
    for name in function.__code__.co_names:
        callee = function.__globals__.get(name)
        files |= _sources.get(callee, frozenset()) if isinstance(callee, numba.core.dispatcher.Dispatcher) else set()
    for cell in function.__closure__ or ():
        callee = cell.cell_contents
        files |= _sources.get(callee, frozenset()) if isinstance(callee, numba.core.dispatcher.Dispatcher) else set()
    return frozenset(f for f in files if not Path(f).is_relative_to(_PACKAGE))


@cache
def _package_digest() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_bytes()
        if b"kernel" in text or b"callback" in text:
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + text)
    machine = (numba.__version__, llvmlite.__version__, platform.python_version(), platform.machine())
    cpu = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    digest.update(repr((machine, cpu)).encode())
    return digest.digest()


@cache
def _cache_folder(outside: frozenset[str]) -> Path | None:
    digest = hashlib.sha256(_package_digest())
    for file in sorted(outside):
        digest.update(Path(file).read_bytes() if Path(file).is_file() else file.encode())
    root = cache_root()
    folder = root / digest.hexdigest()[:20]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _say_once(f"ik_sim: no kernel cache ({error.strerror}: {root}); kernels are compiled anew in each process. "
                  "Set IK_SIM_CACHE to a folder that can be written.")  # fmt: skip
        return None
    _drop_old_folders(root, keep=folder)
    return folder


def cache_root() -> Path:
    """The folder that holds kernel caches, whether or not it exists yet."""
    if explicit := os.environ.get("IK_SIM_CACHE"):
        return Path(explicit).expanduser() / "kernels"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ik_sim" / "kernels"


def _drop_old_folders(root: Path, keep: Path) -> None:
    """Remove caches of sources long edited; one that another process may use is at least a day old before it goes."""
    try:
        os.utime(keep)
        aged = sorted((f for f in root.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
        for folder in aged[_KEPT_FOLDERS:]:
            if time.time() - folder.stat().st_mtime > 86400:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # a cache that can't be tidied is still a cache


@cache
def _say_once(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr)


class _Progress(event.Listener):
    """Says on stderr what the first call in a fresh installation is busy with."""

    def __init__(self) -> None:
        self.started = self.depth = 0
        self.shown = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function not in _known_functions and not any(d.py_func is function for d in _sources):
            return
        _known_functions.add(function)
        if not self.shown:
            self.shown = True
            place = "" if _cache_folder(frozenset()) is None else " (kept for next time)"
            _say_once(f"ik_sim: compiling numerical kernels for this machine{place} ...")
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"\r\x1b[K  {function.__module__}.{function.__name__}", end="", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        if self.shown and sys.stderr is not None and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


_known_functions: set[Any] = set()
event.register("numba:compile", _Progress())
