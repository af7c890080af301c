"""`ik-sim view`: the lab, in the browser."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class View:
    """Open the lab: drag a target in the browser and watch the solvers work.

    It is served to this machine only, until Ctrl-C. A preset file that the lab saved, or a link to a state, brings
    that state back.
    """

    host: str = "127.0.0.1"
    """Address to listen on; any other than this one opens the lab to the network."""
    port: int = 8080
    """Port to listen on; where it is taken, the next free one. 0 for any."""
    page: Literal["spatial", "planar"] = "spatial"
    """What to begin with."""
    robot: str = "ur5"
    """Name of a robot (see `ik-sim robots`), or the path of a URDF, for the arm in space."""
    preset: Path | None = None
    """A file that the lab saved; it brings its own page and robot."""
    dark: bool = False
    """Light on dark."""
    open: bool = False
    """Also open it in the browser."""
    quiet: bool = False
    """Print nothing but the address, warnings and errors."""

    def run(self) -> int:
        """Serve until Ctrl-C."""
        from ik_sim.errors import MissingDependencyError

        try:
            from ik_sim.viewer.server import LabServer, is_loopback, meaning_of
        except ModuleNotFoundError as error:
            if error.name != "viser":
                raise
            raise MissingDependencyError("viser", "the lab", 'pip install "ik_sim[viewer]"') from None
        start = self._start()
        if not is_loopback(self.host):
            print(f"ik-sim: warning: {meaning_of(self.host)}", file=sys.stderr)
        with LabServer(self.host, self.port, start) as server:
            print(f"the lab is open at {server.address}", flush=True)
            if not self.quiet:
                print("Ctrl-C ends it", file=sys.stderr, flush=True)
            if self.open:
                import webbrowser

                webbrowser.open(server.address)
            try:
                while True:
                    time.sleep(3600.0)
            except KeyboardInterrupt:
                if not self.quiet:
                    print("\nthe lab is closed", file=sys.stderr)
        return 0

    def _start(self) -> dict[str, Any]:
        if self.preset is not None:
            from ik_sim.viewer.state import read_preset

            start = read_preset(self.preset)
            return {**start, "dark": start.get("dark", False) or self.dark}
        start: dict[str, Any] = {"page": self.page, "dark": self.dark}
        if self.robot != "ur5" and self.page == "spatial":
            from ik_sim.robots import load_robot

            load_robot(self.robot)  # a slip of the pen shows here, not in the page
            start["state"] = {"robot": self.robot}
        return start
