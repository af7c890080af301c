"""The command `ik-sim`: which command runs, and what becomes of its errors.

To add a command, write its class, as in `commands.py`, and name it in COMMANDS.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ik_sim.errors import IkSimError, UnknownNameError

COMMANDS = {
    "solve": ("ik_sim.commands:Solve", "Find the joints for one target, and say how near they come."),
    "track": ("ik_sim.commands:Track", "Run one task in physics and judge it."),
    "tune": ("ik_sim.commands_tune:Tune", "Run a task at many servo gains, and set its error against its effort."),
    "video": ("ik_sim.commands_pictures:Video", "Film a recorded run, or several side by side."),
    "validate": (
        "ik_sim.commands:Validate",
        "Run many tasks without a window and judge them all: the gate of a build.",
    ),
    "robots": ("ik_sim.commands:Robots", "List the robots, or one robot's joints with their limits."),
    "tasks": ("ik_sim.commands:Tasks", "List the tasks that come with ik_sim."),
    "bench": (
        "ik_sim.benchmark.command:Bench",
        "Run solvers and other libraries on the same targets, and judge them all alike.",
    ),
    "bench env": (
        "ik_sim.bench_env:BenchEnv",
        "Measure the Gymnasium environments: steps per second, beside other projects' where those are installed.",
    ),
    "cluster": (
        "ik_sim.benchmark.cluster:Cluster",
        "Start a Dask scheduler and workers on this machine, until Ctrl-C.",
    ),
    "study": (
        "ik_sim.studies.command:StudyCommand",
        "Run a study: rows that survive being killed, figures, and one page that explains them.",
    ),
    "view": ("ik_sim.commands_view:View", "Open the lab: drag a target in the browser and watch the solvers work."),
}
"""Where a command's class is, and what the overview says of it; here, so that the overview costs no import."""
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
    lines += ["", *(f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items())]
    return "\n".join([*lines, "", "`ik-sim COMMAND --help` explains a command; `ik-sim --version` prints the version."])


def command_class(name: str) -> type[Any]:
    """The dataclass of a command: its fields are the options, its `run` does it."""
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS)
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _parse(given: list[str]) -> Any:
    """The command that was asked for, as an object with its options in its fields."""
    words = 2 if " ".join(given[:2]) in COMMANDS else 1
    name, rest = " ".join(given[:words]), given[words:]
    command = command_class(name)
    import tyro

    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
    return tyro.cli(command, prog=f"ik-sim {name}", args=rest, config=config)


def _show_warning(message: Any, *rest: Any, **more: Any) -> None:
    print(f"ik-sim: warning: {message}", file=sys.stderr)
