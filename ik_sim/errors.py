"""What went wrong, said so that the reader knows what would be right.

Misuse raises one of these; a numerical outcome never does (it is a :class:`~ik_sim.solvers.Status`).
Every error keeps the values it speaks of as attributes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike


class IkSimError(ValueError):
    """Base of everything ik_sim raises on purpose; a `ValueError`, so ordinary handlers catch it too."""


class InvalidArgumentError(IkSimError):
    """An argument has the wrong shape, holds NaN, or is out of its range."""

    def __init__(self, argument: str, message: str) -> None:
        """Name the argument and say what would be right."""
        super().__init__(f"{argument}: {message}")
        self.argument = argument


class UnknownNameError(IkSimError):
    """A name that nothing carries."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """List what is known and the nearest of them."""
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        near = difflib.get_close_matches(name, self.known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        super().__init__(f"no {kind} {name!r}{hint}; known: {', '.join(self.known) or 'none'}")


class FileFormatError(IkSimError):
    """A file that can't be used as it is."""

    def __init__(self, path: str | PathLike[str], message: str) -> None:
        """Name the file and say what is wrong in it."""
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class UrdfError(FileFormatError):
    """A robot description that can't be used as it is."""


class RobotError(FileFormatError):
    """A `robot.toml` that can't be used as it is."""


class TaskError(FileFormatError):
    """A task file that can't be used as it is."""


class MissingDependencyError(IkSimError):
    """A feature needs a package that isn't installed."""

    def __init__(self, package: str, feature: str, install: str) -> None:
        """Say which feature needs which package and the command that brings it."""
        super().__init__(f"{feature} needs {package}, which is not installed; get it with: {install}")
        self.package, self.feature, self.install = package, feature, install


class DisplayError(IkSimError):
    """A window was asked for where there is no display."""
