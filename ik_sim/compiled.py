"""The one decorator that compiles kernels and keeps their cache true.

A kernel is a plain function on plain arrays and numbers; `@kernel` turns it into machine code at its first call and
keeps the result on disk. numba names a cached function by the file it stands in, so after an edit of a *callee* in
another file it would serve the old caller. Here the cache folder itself is named by everything that can change the
result: the kernel's file and all of this package that it imports, the files and constants that a user's own kernel
draws on, the versions of numba and Python, and the processor. An edit of any of them leads to a fresh folder.

The folder lies in `$IK_SIM_CACHE`, else `$XDG_CACHE_HOME/ik_sim`, else `~/.cache/ik_sim`. Where none can be written,
kernels are compiled anew in every process and one line says so.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar, overload

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba.core import event
from numba.core.dispatcher import Dispatcher

_PACKAGE = Path(__file__).parent
_config: Any = numba.config  # its settings are attributes that appear at run time
_KEPT_FOLDERS = 100  # one a source file; older caches of edited sources are dropped beyond this many


F = TypeVar("F", bound=Callable[..., Any])


@overload
def kernel(function: F) -> F: ...


@overload
def kernel(*, inlined: bool = False, fused: bool = False) -> Callable[[F], F]: ...


def kernel(function: Any = None, *, inlined: bool = False, fused: bool = False) -> Any:
    """Compile `function` with numba: without the interpreter lock, division as in IEEE 754, cached on disk.

    Works on functions of this package and on a user's own. Arguments may be numbers, arrays and other kernels' results;
    module-level constants are frozen at compile time.

    Args:
        function: what stands below a bare `@kernel`.
        inlined: always becomes part of its callers, however long it is: loops around it can then be vectorised.
        fused: a product and the sum it goes into may be rounded once instead of twice, where the processor can.
    """
    if function is None:
        return partial(kernel, inlined=inlined, fused=fused)
    options = {"forceinline": inlined, "fastmath": {"contract"} if fused else False}
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    _outside[dispatcher] = _drawn_from_outside(function)
    folder = _cache_folder(_outside[dispatcher], _own_file(function))
    if folder is not None:
        before = _config.CACHE_DIR
        _config.CACHE_DIR = str(folder)  # read while the cache is attached, and put back at once
        try:
            dispatcher.enable_caching()
        except RuntimeError:  # no file behind the function (typed at a prompt): nothing to cache by
            pass
        finally:
            _config.CACHE_DIR = before
    return dispatcher  # type: ignore[return-value]


def callback(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that C code calls by its address (`.address`), with numba's `cfunc`.

    An exception can't cross the C frames above it: the function returns a value and never raises.
    """

    def compile_it(function: Callable[..., Any]) -> Any:
        folder = _cache_folder(_drawn_from_outside(function), _own_file(function))
        before = _config.CACHE_DIR
        if folder is not None:
            _config.CACHE_DIR = str(folder)
        try:
            return numba.cfunc(signature, cache=folder is not None)(function)
        finally:
            _config.CACHE_DIR = before

    return compile_it


class Pointer(numba.types.WrapperAddressProtocol):
    """A compiled kernel to hand to another kernel, as a plain function pointer typed by its signature.

    A kernel handed over as it is has a type of its own in each process, so whatever calls it would be compiled anew,
    with all that it calls, each time a program starts.
    """

    def __init__(self, dispatcher: Any, signature: Any) -> None:
        """Point to the version of the kernel that was compiled for `signature`."""
        result = dispatcher.overloads[signature.args]
        self._address = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
        self._signature = signature
        self._dispatcher = dispatcher  # the address is good for as long as its kernel lives

    def __wrapper_address__(self) -> int:
        """Where the machine code begins."""
        return self._address

    def signature(self) -> Any:
        """What it takes and returns."""
        return self._signature


_Drawn = frozenset[tuple[str, bytes]]
"""Names of files and constants with a digest of what they held when a kernel was defined."""
_outside: dict[Any, _Drawn] = {}


def _drawn_from_outside(function: Callable[..., Any], seen: frozenset[Any] = frozenset()) -> _Drawn:
    """What decides, outside this package, what `function` compiles to: its file, its callees', frozen constants."""
    code = function.__code__
    if code in seen or Path(code.co_filename).is_relative_to(_PACKAGE):
        return frozenset()
    drawn = {_file(code.co_filename)}
    names = _names(code)
    values = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    values += [(name, cell.cell_contents) for name, cell in cells]
    for _, module in [pair for pair in values if isinstance(pair[1], ModuleType)]:
        values += [(name, getattr(module, name)) for name in names if hasattr(module, name)]
    for name, value in values:
        if isinstance(value, Dispatcher):
            drawn |= _outside.get(value) or _drawn_from_outside(value.py_func, seen | {code})
        elif isinstance(value, bool | int | float | complex | str | bytes | tuple | np.generic):
            drawn.add((name, hashlib.sha256(repr(value).encode()).digest()))
        elif isinstance(value, np.ndarray):
            drawn.add((name, hashlib.sha256(repr((value.dtype, value.shape)).encode() + value.tobytes()).digest()))
    return frozenset(drawn)


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def _file(name: str) -> tuple[str, bytes]:
    try:
        return name, hashlib.sha256(Path(name).read_bytes()).digest()
    except OSError:  # typed at a prompt
        return name, b""


_HAS_KERNEL = re.compile(rb"^\s*@(kernel|callback)\b", re.MULTILINE)
_IMPORT = re.compile(
    rb"^(?:from|import) +(ik_sim[\w.]*)(?: +import +(?:\(([^)]*)\)|([\w ,]*)))?", re.MULTILINE
)  # names in brackets may go over several lines


def _own_file(function: Callable[..., Any]) -> Path | None:
    """The file of this package that holds the function; None for a user's own."""
    path = Path(function.__code__.co_filename)
    return path if path.is_relative_to(_PACKAGE) else None


@cache
def _package_texts() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))}


@cache
def _package_digest(start: Path | None) -> bytes:
    """Of one file and every file of this package that it imports; for a user's kernels of all files with kernels."""
    texts = _package_texts()
    modules = {".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts).encode(): path for path in texts}
    used: set[Path] = set()
    ahead = [path for path, text in texts.items() if _HAS_KERNEL.search(text)] if start is None else [start]
    while ahead:
        path = ahead.pop()
        if path in used:
            continue
        used.add(path)
        for module, bracketed, listed in _IMPORT.findall(texts[path]):
            wanted = [module, *(module + b"." + name for name in re.findall(rb"\w+", bracketed + listed))]
            ahead += [modules[name] for name in wanted if name in modules]
    digest = hashlib.sha256()
    for path in sorted(used):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + texts[path])
    machine = (numba.__version__, llvmlite.__version__, platform.python_version(), platform.machine())
    cpu = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    digest.update(repr((machine, cpu)).encode())
    return digest.digest()


@cache
def _cache_folder(outside: _Drawn, start: Path | None = None) -> Path | None:
    digest = hashlib.sha256(_package_digest(start))
    for name, held in sorted(outside):
        digest.update(name.encode() + b"\0" + held)
    root = cache_root()
    folder = root / digest.hexdigest()[:20]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _say_once(
            f"ik_sim: no kernel cache ({error.strerror}: {root}); kernels are compiled anew in each process. "
            "Set IK_SIM_CACHE to a folder that can be written."
        )
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
        self.shown = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function not in _known_functions and not any(d.py_func is function for d in _outside):
            return
        _known_functions.add(function)
        if not self.shown:
            self.shown = True
            place = "" if _cache_folder(frozenset(), None) is None else " (kept for next time)"
            _say_once(f"ik_sim: compiling numerical kernels for this machine{place} ...")
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"\r\x1b[K  {function.__module__}.{function.__name__}", end="", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        if self.shown and sys.stderr is not None and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


_known_functions: set[Any] = set()
event.register("numba:compile", _Progress())
