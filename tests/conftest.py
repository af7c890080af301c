"""What every test runs under: checked signatures, a cache of its own, and no silent skips in a full run.

**Checked signatures.** Each function and dataclass of ik_sim is imported under beartype, with jaxtyping's shapes bound
over a call's arguments and result, so an annotation cannot go stale. (jaxtyping's own import hook decorates kernels
from the inside, where numba would have to compile the wrapper; this one leaves compiled functions alone.) A checked
call costs tens of microseconds more: tests that measure time do so in a subprocess.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import hypothesis
import pytest
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import jaxtyped

COMPILED = {"kernel", "callback", "njit", "cfunc"}
"""Decorators whose functions become machine code: numba checks their types, and can't compile a wrapper."""

checked_by_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float, as for every type checker


def checked(thing: Any) -> Any:
    """The function, or the dataclass, with its annotations checked at each call.

    Misuse is answered in the function's own words where it has them: a call that breaks the annotations is repeated
    unchecked, and an `IkSimError` raised then counts. What is left are calls that nobody was ready for.
    """
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = checked(thing.__init__)
        return thing
    strict = jaxtyped(checked_by_beartype(thing), typechecker=None)

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return strict(*args, **kwargs)
        except BeartypeCallHintViolation as violation:
            from ik_sim.errors import IkSimError

            try:
                thing(*args, **kwargs)
            except IkSimError:
                raise
            except Exception as error:
                raise violation from error
            raise violation

    return call


class _CheckEverything(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if not any(_name(decorator) in COMPILED for decorator in node.decorator_list):
            node.decorator_list.append(self._decorator(node))  # innermost: below property, staticmethod, overload
        return node  # functions inside are left alone: they would be checked anew at each call of this one

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.decorator_list.insert(0, self._decorator(node))  # outermost: above dataclass
        self.generic_visit(node)
        return node

    @staticmethod
    def _decorator(node: ast.AST) -> ast.expr:
        return ast.copy_location(ast.Name("_checked_", ast.Load()), node)


def _name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        return _name(decorator.func)
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


class _CheckedLoader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:  # no bytecode from __pycache__: that is of the unchecked source
        path = self.get_filename(fullname)
        tree = _CheckEverything().visit(ast.parse(self.get_data(path), path))
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_checked_"] = checked
        super().exec_module(module)


class _CheckedFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "ik_sim":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _CheckedLoader(fullname, spec.loader.path)
        return spec


sys.meta_path.insert(0, _CheckedFinder())

# The first call of a function may compile kernels, so no single example has a deadline.
hypothesis.settings.register_profile("ik_sim", deadline=None, derandomize="CI" in os.environ, print_blob=True)
hypothesis.settings.load_profile("ik_sim")


def pytest_configure(config: pytest.Config) -> None:
    """Keep caches (compiled kernels, fonts, shaders) from the user's home, but from run to run."""
    cache = getattr(config, "cache", None)
    folder = cache.mkdir("home") if cache else Path(tempfile.mkdtemp(prefix="ik_sim_tests"))
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ["IK_SIM_CACHE"] = str(folder / "ik_sim")
    os.environ["MPLCONFIGDIR"] = str(folder / "matplotlib")


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NEEDS: dict[str, Callable[[], bool]] = {
    "browser": lambda: any(shutil.which(name) for name in BROWSERS),
    "display": lambda: bool(os.environ.get("DISPLAY") or shutil.which("Xvfb")),
    "rl": lambda: all(importlib.util.find_spec(name) for name in ("stable_baselines3", "moviepy")),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests whose tools are missing; under `scripts/test --all` they are to be there."""
    for marker, present in NEEDS.items():
        if item.get_closest_marker(marker) and not present():
            text = f"no {marker} here; scripts/test --all installs one"
            pytest.fail(text, pytrace=False) if "IK_SIM_TEST_ALL" in os.environ else pytest.skip(text)


@pytest.fixture
def fake_tab() -> Iterator[Callable[..., Any]]:
    """Opens tabs of the lab without a browser: `fake_tab(server.address)`; see tests/fake_tab.py."""
    spec = importlib.util.spec_from_file_location("fake_tab", Path(__file__).parent / "fake_tab.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tabs: list[Any] = []

    def open_tab(*args: Any, **kwargs: Any) -> Any:
        tabs.append(module.FakeTab(*args, **kwargs))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.close()


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    """Name of an X display, such as ":1": a virtual one where Xvfb is installed, else the user's own."""
    if not shutil.which("Xvfb"):
        yield os.environ["DISPLAY"]
        return
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"]
    with subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL) as server:
        os.close(write)
        with os.fdopen(read) as pipe:
            number = pipe.readline().strip()
        try:
            yield f":{number}"
        finally:
            server.terminate()
