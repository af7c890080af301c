"""The command `ik-sim`: which command runs, and what becomes of its errors.

To add a command, write its class in `commands.py` and name it in COMMANDS.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ik_sim.errors import IkSimError, UnknownNameError

COMMANDS = {
    "solve": "Find the joints for one target, and say how near they come.",
    "track": "Run one task in physics and judge it.",
    "validate": "Run many tasks without a window and judge them all: the gate of a build.",
    "robots": "List the robots, or one robot's joints with their limits.",
    "tasks": "List the tasks that come with ik_sim.",
    "bench": "Run solvers and other libraries on the same targets, and judge them all alike.",
    "study": "Run an experiment: link lengths, reach maps, designs, films.",
}
"""What the overview says of each command, in its order; here, so that it costs no import."""
PASS, MISUSE, INTERRUPTED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(_overview())
        return PASS if given else MISUSE
    if given[0] in ("-V", "--version"):
        from ik_sim import __version__

        print(f"ik-sim {__version__}")
        return PASS
    logging.basicConfig(format="ik-sim: %(levelname)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.addLevelName(logging.WARNING, "warning")
    warnings.showwarning = _show_warning
    try:
        return _parse(given).run()
    except SystemExit as end:  # help, or a command line that does not parse
        return end.code if isinstance(end.code, int) else MISUSE
    except IkSimError as error:
        print(f"ik-sim: error: {' '.join(str(error).split())}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        print("ik-sim: interrupted; nothing half-written is left", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return PASS


def _overview() -> str:
    lines = ["usage: ik-sim COMMAND ...", "", "Track tasks with simulated arms, and judge the solvers that drive them."]
    lines += ["", *(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())]
    return "\n".join([*lines, "", "`ik-sim COMMAND --help` explains a command; `ik-sim --version` prints the version."])


def _parse(given: list[str]) -> Any:
    """The command that was asked for, as an object with its options in its fields."""
    name, *rest = given
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS)
    import tyro

    from ik_sim import commands

    if name == "study":
        from ik_sim.studies.command import StudyCommand

        return tyro.cli(StudyCommand, prog="ik-sim study", args=rest, config=(tyro.conf.FlagCreatePairsOff,))
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
    if name == "bench":
        from ik_sim.benchmark.command import Bench

        return tyro.cli(Bench, prog="ik-sim bench", args=rest, config=config)
    return tyro.cli(getattr(commands, name.capitalize()), prog=f"ik-sim {name}", args=rest, config=config)


def _show_warning(message: Any, *rest: Any, **more: Any) -> None:
    print(f"ik-sim: warning: {message}", file=sys.stderr)
