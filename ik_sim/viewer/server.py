"""The lab's server: one viser server on the loopback address, and one :class:`~ik_sim.viewer.lab.Lab` for each tab."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import logging
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import viser

from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.viewer import state as lab_state
from ik_sim.viewer.lab import PAGES, Lab

_log = logging.getLogger("ik_sim")

KEPT = 600.0
"""How long the state of a tab that has gone is kept for its return [s]."""
RELOAD = 30.0
"""A page that is loaded anew within that time takes up the state of the tab that went last [s]."""


class _Viser(viser.ViserServer):
    """viser without the way out: its share button would open a tunnel to a server on the internet."""

    def request_share_url(self, verbose: bool = True) -> str | None:
        _log.warning("a tab asked for a tunnel to the internet; the lab opens none")
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def meaning_of(host: str) -> str:
    """What it means to listen on an address that others can reach."""
    return (
        f"the lab listens on {host}: whoever can reach this machine over the network can open it, without a password "
        "and unencrypted, and can make this machine compute; files named in the page are not read then, only robots "
        "that come with ik_sim or were named on the command line. --host 127.0.0.1 keeps it to this machine"
    )


class LabServer:
    """Serves the lab until it is closed.

    Args:
        host: address to listen on.
        port: 0 for any free one; where it is taken, the next free one.
        start: what a new tab shows, as :meth:`ik_sim.viewer.lab.Lab.state` describes it; a newcomer's view when left out.

    Raises:
        InvalidArgumentError: no such address or port.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 8080, start: Mapping[str, Any] | None = None) -> None:
        if not 0 <= port < 65536:
            raise InvalidArgumentError("port", f"must be 0 to 65535, not {port}")
        check_host(host)
        page = (start or {}).get("page", "spatial")
        if page not in PAGES:
            raise InvalidArgumentError("page", f"is {page!r}; there are {', '.join(PAGES)}")
        self.host = host
        self.local = is_loopback(host)
        self.start = dict(start or {})
        shown = self.start.get("state")
        robot = shown.get("robot") if isinstance(shown, Mapping) else None
        self._named = {robot} if isinstance(robot, str) else set()
        self.labs: dict[int, Lab] = {}
        """The tabs that are open, by viser's number of the client."""
        self._links: dict[int, str] = {}
        self._lock = threading.Lock()
        self._gone: list[tuple[float, str, Any, dict[str, Any]]] = []  # when, link, camera, state
        # A tab may go while its page is being drawn; what was on its way to it is nobody's loss.
        warnings.filterwarnings("ignore", message="Queued a .* on a closed connection")
        with _silence():
            self.viser = _Viser(host=host, port=port, verbose=False)
        self.viser.gui.configure_theme(show_logo=False, show_share_button=False)
        self.viser.on_client_connect(self._arrived)
        self.viser.on_client_disconnect(self._left)

    @property
    def address(self) -> str:
        """Where to point a browser on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.viser.get_port()}"

    def close(self) -> None:
        """End all tabs and the server."""
        with self._lock:
            labs, self.labs = list(self.labs.values()), {}
        for lab in labs:
            lab.close(timeout=1.0)
        with _silence():
            self.viser.stop()

    def __enter__(self) -> LabServer:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # --- tabs come and go ---

    def _arrived(self, client: viser.ClientHandle) -> None:
        link, stranger = self._request(client)
        if stranger:
            _log.warning("a page of %s asked for the lab and was refused", stranger)
            return
        trouble = ""
        start = self._taken_up(client, link)
        if start is None:
            start = self.start
            if link:
                try:
                    start = lab_state.from_link(link)
                except IkSimError as error:
                    trouble = str(error)
        lab = Lab(client, start, self.address, any_file=self.local, named=self._named)
        if trouble:
            lab.do(lambda: lab.say(trouble, "bad", {"error": "yes"}))
        with self._lock:
            self.labs[client.client_id], self._links[client.client_id] = lab, link

    def _left(self, client: viser.ClientHandle) -> None:
        with self._lock:
            lab, link = self.labs.pop(client.client_id, None), self._links.pop(client.client_id, "")
        if lab is None:
            return
        state = lab.close()
        if state:
            with self._lock:
                self._gone.append((time.monotonic(), link, _camera(client), state))

    def _taken_up(self, client: viser.ClientHandle, link: str) -> dict[str, Any] | None:
        """The state of the tab that this one continues, None for a new one.

        The same page after a broken connection has its camera where it was; a page loaded anew comes soon, and shows
        again what its link says if it has one.
        """
        now = time.monotonic()
        with self._lock:
            self._gone = [entry for entry in self._gone if now - entry[0] < KEPT][-100:]
            own = [entry for entry in self._gone if entry[1] == link]
            camera = _camera(client)
            same = [entry for entry in own if np.abs(entry[2] - camera).max() < 1e-6]
            late = [entry for entry in own if now - entry[0] < RELOAD and not link]
            for entry in reversed(same or late):
                self._gone.remove(entry)
                return entry[3]
        return None

    def _request(self, client: viser.ClientHandle) -> tuple[str, str]:
        """The link in a tab's request, and the web site whose page made it if it isn't the lab's own.

        viser shows requests to nobody; without this look inside, links open as new tabs do.
        """
        try:
            request = self.viser._websock_server._live_connections[client.client_id].request
            assert request is not None
            path, headers = urlsplit(request.path).path, request.headers
        except (AttributeError, KeyError):
            return "", ""
        origin, host = headers.get("Origin", ""), headers.get("Host", "")
        named = urlsplit(f"//{host}").hostname or ""
        if (origin and urlsplit(origin).netloc != host) or (self.local and not is_loopback(named)):
            return "", origin or host
        return path.strip("/"), ""


def check_host(host: str) -> None:
    """Refuse what is no address of this machine, before viser tries a thousand ports on it."""
    import socket

    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(address)
            return
    except OSError as error:
        raise InvalidArgumentError(
            "host", f"{host!r} is no address of this machine ({error.strerror or error})"
        ) from None


def _camera(client: viser.ClientHandle) -> Any:
    try:
        camera = client.camera
        return np.concatenate([camera.position, camera.wxyz, [camera.image_width, camera.image_height]])
    except Exception:
        return np.full(9, np.nan)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without viser's own banner: the command says what there is to say."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
