"""One browser tab of the lab: its page, its state, its status line, and the one thread that does all its work.

Whatever happens in a tab (a drag, a click, a slider, a tick of the clock) is done in the tab's own thread, one thing
after the other, so a page needs no locks. Events that come under one key replace each other: of sixty target moves a
second only the newest that hasn't been looked at is solved for. An error is said in the status line and logged; the tab
and the server go on.
"""

from __future__ import annotations

import html
import importlib
import io
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import viser

from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError
from ik_sim.viewer import state as lab_state

_log = logging.getLogger("ik_sim")

TICK = 1.0 / 30.0
"""How often a page's `tick` is called [s], when there is nothing else to do."""
_CHOSEN = ("value", "position", "wxyz")
COLOURS = {"ok": "#2f9e44", "busy": "#e8890c", "bad": "#e03131", "info": "#4c78a8"}
"""Of the status line: reached, solving, unreachable or failed, and anything else."""


class Preset(NamedTuple):
    """A state that teaches one thing."""

    lesson: str
    """What there is to see, in a sentence or two."""
    state: Mapping[str, Any]


class Page(Protocol):
    """What a page of the lab is. All of it runs in the tab's thread, so it is never entered twice at a time.

    It adds its controls to `client.gui` and its things to `client.scene`, listens to them through `lab.listen`, and
    takes nothing from `state` unchecked: that may come from a stranger's file or link.
    """

    presets: ClassVar[dict[str, Preset]]
    """By title, in the order in which they are offered; the first one is what a newcomer sees."""

    def __init__(self, client: viser.ClientHandle, lab: Lab, state: dict[str, Any]) -> None: ...

    def close(self) -> None:
        """Remove everything the page has added, and stop what it has started."""
        ...

    def state(self) -> dict[str, Any]:
        """JSON-able; a page built with it shows the same."""
        ...

    def tick(self, now: float) -> None:
        """Called about thirty times a second with a clock that only runs forward [s]; for animations."""
        ...


PAGES = {"spatial": "Arm in space", "planar": "Arm in the plane"}
"""The pages by name, with their titles."""
_CLASSES = {"spatial": "ik_sim.viewer.spatial_page:SpatialPage", "planar": "ik_sim.viewer.planar_page:PlanarPage"}


def page_class(name: str) -> Any:
    """The page of that name, imported when it is first asked for."""
    if name not in PAGES:
        raise UnknownNameError("page", name, PAGES)
    module, _, attribute = _CLASSES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(eq=False)
class _Work:
    """What waits to be done in a tab, in order of arrival; a newer entry of the same key takes the older one's place."""

    waiting: OrderedDict[Any, Callable[[], None]] = field(default_factory=OrderedDict)
    arrived: threading.Condition = field(default_factory=threading.Condition)
    count: int = 0
    dropped: int = 0
    ended: bool = False

    def put(self, act: Callable[[], None], key: Any) -> None:
        with self.arrived:
            if self.ended:
                return
            self.count += 1
            key = self.count if key is None else key
            self.dropped += key in self.waiting
            self.waiting[key] = act
            self.arrived.notify()

    def take(self, timeout: float) -> Callable[[], None] | None:
        with self.arrived:
            if not self.waiting and not self.ended:
                self.arrived.wait(timeout)
            return self.waiting.popitem(last=False)[1] if self.waiting else None


class Lab:
    """One tab.

    Args:
        client: the tab, as viser sees it.
        start: `{"page": name, "dark": bool, "state": {...}}`, each of them optional.
        address: where the lab is open, such as http://127.0.0.1:8080, for links.
        any_file: whether a person at the page may name files on this machine.
        named: files that may be opened in any case: those of the command line.
    """

    def __init__(
        self,
        client: viser.ClientHandle,
        start: Mapping[str, Any],
        address: str = "",
        any_file: bool = True,
        named: Collection[str] = (),
    ) -> None:
        self.client = client
        self.address = address
        self.any_file = any_file
        self._named_files = frozenset(named)
        self.dark = lab_state.flag(start, "dark", False)
        self.page_name = lab_state.choice(start, "page", PAGES, "spatial")
        self.page: Page | None = None
        self.status_text = ""
        """What the status line says, without its markup."""
        self._shown = ""
        self._home: dict[str, Any] = {}
        self._work = _Work()
        self._page_number = 0
        self._closing = False
        given = start.get("state")
        self._work.put(lambda: self._build(dict(given) if isinstance(given, Mapping) else None), None)
        self._thread = threading.Thread(target=self._run, name=f"lab {client.client_id}", daemon=True)
        self._thread.start()

    # --- for pages ---

    def do(self, act: Callable[[], None], key: Any = None) -> None:
        """Do something in the tab's thread, soon; with a key it takes the place of what waits under that key."""
        self._work.put(act, key)

    def listen(self, register: Callable[[Any], Any], act: Callable[[Any], None], key: Any = None) -> None:
        """Have `act(event)` done when a person moves, clicks or types: `lab.listen(slider.on_update, self._slid)`.

        `register` is one of viser's `on_update`, `on_click`, `on_upload`, `on_trigger`, `on_drag`. Changes that the
        page itself makes to a control don't count as events. With a key only the newest event is acted on; without
        one, the newest of this listener for values, and each one for clicks.
        """
        name = getattr(register, "__name__", "")
        slot = key if key is not None else object() if name == "on_update" else None
        page = self._page_number  # 0 for the frame around pages, which stays

        async def arrived(event: Any) -> None:
            if getattr(event, "client_id", 0) is None:
                return
            control = getattr(event, "target", None)
            # What was chosen counts, even if the page has set the control to something else by the time it gets there.
            chosen = {key: getattr(control, key) for key in _CHOSEN if name == "on_update" and hasattr(control, key)}

            def work() -> None:
                if page and page != self._page_number:  # its page has gone
                    return
                for key, value in chosen.items():
                    if not np.array_equal(getattr(control, key), value):
                        setattr(control, key, value)
                act(event)

            self._work.put(work, slot)

        register(arrived)

    def say(self, text: str, kind: str = "info", data: Mapping[str, Any] | None = None) -> None:
        """Show `text` in the status line in the colour of COLOURS[kind]; `data` goes into its data attributes."""
        self.status_text = text
        attributes = "".join(
            f' data-{name}="{html.escape(repr(v) if isinstance(v, float) else str(v))}"'
            for name, v in (data or {}).items()
        )
        shown = (
            f'<div id="lab-status" role="status" aria-live="polite" data-kind="{kind}"{attributes} '
            f'style="margin:0.4em 0.75em 0.5em;padding:0.4em 0.6em;border-left:4px solid {COLOURS[kind]};'
            f'font-size:0.85em;line-height:1.35;white-space:pre-line">{html.escape(text)}</div>'
        )
        if shown != self._shown:
            self._shown = shown
            self._status.content = shown

    def may_read(self, file: str) -> bool:
        """Whether this tab may open that file of this machine."""
        return self.any_file or file in self._named_files

    @property
    def newest_wins(self) -> int:
        """How many events were overtaken by a newer one of their key before anybody looked at them."""
        return self._work.dropped

    def open(self, page: str, state: Mapping[str, Any] | None = None) -> None:
        """Show a page in that state, or as a newcomer sees it; a state that can't be shown leaves the page as it is."""
        cls = page_class(page)
        home = state is None
        wanted = dict(self._first(cls) if state is None else state)
        before = (self.page_name, self.page.state()) if self.page is not None else None
        self._drop_page()
        try:
            self._enter(page, wanted)
        except Exception as error:
            self._drop_page()
            if before is not None:
                self._enter(*before)
            elif not home:
                self._enter(page, dict(self._first(cls)))
            reason = error

            def tell() -> None:  # after what the page does first, which would overwrite it
                raise reason

            self.do(tell)

    def state(self) -> dict[str, Any]:
        """The whole tab as plain data."""
        shown = self.page.state() if self.page is not None else {}
        return {"page": self.page_name, "dark": self.dark, "state": shown}

    # --- life ---

    def close(self, timeout: float = 5.0) -> dict[str, Any]:
        """End the tab's thread and return the state it had."""
        last: dict[str, Any] = {}

        def end() -> None:
            last.update(self.state())
            self._closing = True
            self._drop_page()

        self._work.put(end, None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        with self._work.arrived:
            self._work.ended = self._closing = True
            self._work.waiting.clear()
            self._work.arrived.notify()
        return last

    def settle(self, timeout: float = 30.0) -> None:
        """Wait until everything asked for so far is done."""
        done = threading.Event()
        self._work.put(done.set, None)
        if not done.wait(timeout):
            raise TimeoutError(f"the tab was still busy after {timeout} s")

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closing:
            act = self._work.take(max(0.0, due - time.monotonic()))
            if act is not None:
                self._guarded(act)
            now = time.monotonic()
            if now >= due and not self._closing:
                due = now + TICK
                if self.page is not None:
                    page = self.page
                    self._guarded(lambda page=page, now=now: page.tick(now))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except IkSimError as error:
            self._tell(str(error))
        except Exception as error:
            if not self._closing:
                _log.exception("the lab goes on after an error in tab %s", self.client.client_id)
                self._tell(
                    f"{type(error).__name__}: {error} (an error of the lab; it is in the log, and the lab goes on)"
                )

    def _tell(self, text: str) -> None:
        try:
            self.say(text, "bad", {"error": "yes"})
        except Exception:  # the tab itself has gone
            _log.debug("tab %s: %s", self.client.client_id, text)

    # --- the frame around a page ---

    def _build(self, given: dict[str, Any] | None) -> None:
        gui = self.client.gui
        self._theme()
        self._status = gui.add_html("", order=-40)
        self.say("loading", "busy")
        self._pages = gui.add_dropdown("Page", list(PAGES.values()), initial_value=PAGES[self.page_name], order=-30)
        self.listen(self._pages.on_update, lambda _: self.open(self._named(self._pages.value)))
        self._presets = gui.add_dropdown("Preset", ["-"], order=-20, hint="Each shows one thing. Key: P, shift+P")
        self.listen(self._presets.on_update, lambda _: self._preset(self._presets.value))
        self._lesson = gui.add_markdown("", order=-10)
        with gui.add_folder("Share, save, film", order=1e9, expand_by_default=False):
            reset = gui.add_button("Reset", hint="Back to the preset's start. Key: R")
            self.listen(reset.on_click, lambda _: self._reset())
            link = gui.add_button("Link to this state", hint="Key: Y")
            self.listen(link.on_click, lambda _: self._link())
            self._link_text = gui.add_text("Link", "", visible=False)
            save = gui.add_button("Save as preset file")
            self.listen(save.on_click, lambda _: self._save())
            load = gui.add_upload_button("Load preset file", mime_type="application/json")
            self.listen(load.on_upload, lambda event: self._load(event.target.value.content))
            shot = gui.add_button("Screenshot (PNG)", hint="Key: C")
            self.listen(shot.on_click, lambda _: self._film(1))
            film = gui.add_button("Film 4 seconds (GIF)", hint="Key: F")
            self.listen(film.on_click, lambda _: self._film(40))
            self._dark = gui.add_checkbox("Dark", self.dark)
            self.listen(self._dark.on_update, lambda _: self._darken(self._dark.value))
        for label, key, modifier, act in (
            ("Reset", "R", None, self._reset),
            ("Next preset", "P", None, lambda: self._step_preset(1)),
            ("Previous preset", "P", "shift", lambda: self._step_preset(-1)),
            ("Link to this state", "Y", None, self._link),
            ("Screenshot", "C", None, lambda: self._film(1)),
            ("Film", "F", None, lambda: self._film(40)),
            ("Light or dark", "T", None, lambda: self._darken(not self.dark)),
            ("Other page", "G", None, self._other_page),
        ):
            command: Any = gui.add_command(label, hotkey=key, modifier=modifier)  # type: ignore[arg-type]
            self.listen(command.on_trigger, lambda _, act=act: act())
        self.open(self.page_name, given)

    def _theme(self) -> None:
        self.client.gui.configure_theme(
            dark_mode=self.dark,
            control_width="large",
            show_logo=False,
            show_share_button=False,
            brand_color=(45, 105, 175),
        )

    @staticmethod
    def _named(title: str) -> str:
        return next(name for name, shown in PAGES.items() if shown == title)

    @staticmethod
    def _first(page: Any) -> Mapping[str, Any]:
        return next(iter(page.presets.values())).state if page.presets else {}

    def _enter(self, page: str, state: dict[str, Any]) -> None:
        cls = page_class(page)
        self.page_name = page
        self._pages.value = PAGES[page]
        titles = ["-", *cls.presets]
        self._presets.options = titles
        title = next((t for t, preset in cls.presets.items() if dict(preset.state) == state), "-")
        self._presets.value = title
        self._lesson.content = cls.presets[title].lesson if title in cls.presets else ""
        self._home = state
        self._page_number += 1
        with self.client.atomic():
            self.page = cls(self.client, self, dict(state))

    def _drop_page(self) -> None:
        page, self.page = self.page, None
        if page is not None:
            try:
                with self.client.atomic():
                    page.close()
            except Exception:
                _log.exception("a page of tab %s did not close", self.client.client_id)

    def _preset(self, title: str) -> None:
        presets = page_class(self.page_name).presets
        if title in presets:
            self.open(self.page_name, presets[title].state)

    def _step_preset(self, step: int) -> None:
        titles = list(page_class(self.page_name).presets)
        if titles:
            here = titles.index(self._presets.value) if self._presets.value in titles else -1 if step > 0 else 0
            self._preset(titles[(here + step) % len(titles)])

    def _other_page(self) -> None:
        names = list(PAGES)
        self.open(names[(names.index(self.page_name) + 1) % len(names)])

    def _reset(self) -> None:
        self.open(self.page_name, self._home)

    def _darken(self, dark: bool) -> None:
        self.dark = dark
        self._dark.value = dark
        self._theme()
        home = self._home
        self.open(self.page_name, self.page.state() if self.page is not None else None)
        self._home = home

    # --- share, save, film ---

    def link(self) -> str:
        """An address that opens the lab as this tab shows it, as long as the lab runs there."""
        socket = self.address.replace("http", "ws", 1)
        return f"{self.address}/?websocket={socket}/{lab_state.to_link(self.state())}"

    def _link(self) -> None:
        self._link_text.value = self.link()
        self._link_text.visible = True
        self.client.add_notification(
            "A link to this state",
            f"{self._link_text.value}\n(also in the panel under “Share, save, film”, to be copied)",
            auto_close_seconds=20.0,
        )

    def _save(self) -> None:
        content = lab_state.to_json(self.state()).encode()
        self.client.send_file_download("ik_sim_lab.json", content, save_immediately=True)

    def _load(self, content: bytes) -> None:
        read = lab_state.from_json(content)
        page, state = read.get("page"), read.get("state")
        if page not in PAGES or not isinstance(state, dict):
            raise InvalidArgumentError("preset", f"names no page of the lab; there are {', '.join(PAGES)}")
        self.open(page, state)

    def _film(self, frames: int) -> None:
        threading.Thread(target=self._filming, args=(frames,), name="lab camera", daemon=True).start()

    def _filming(self, frames: int) -> None:
        """Take pictures of what the tab shows, by the tab itself, and send them there as a file."""
        try:
            camera = self.client.camera
            shrink = 1.0 if frames == 1 else min(1.0, 640 / max(1, camera.image_width))
            size = (max(2, round(camera.image_height * shrink)), max(2, round(camera.image_width * shrink)))
            taken, times = [], []
            start = time.monotonic()
            for i in range(frames):
                time.sleep(max(0.0, start + 0.1 * i - time.monotonic()))
                taken.append(self.client.get_render(*size, transport_format="png", timeout=20.0))
                times.append(time.monotonic())
                if times[-1] - start > 30.0:
                    break
            content = encode(taken, np.diff(times).mean() if len(times) > 1 else 0.0, self.dark)
            name = "ik_sim_lab.png" if frames == 1 else "ik_sim_lab.gif"
            self.client.send_file_download(name, content, save_immediately=True)
        except Exception as error:
            text = f"no picture: {error}"
            self.do(lambda: self.say(text, "bad"))


def encode(frames: list[Any], seconds: float, dark: bool) -> bytes:
    """Frames (h, w, 4) on the page's background as a PNG, or several as a GIF with `seconds` from one to the next."""
    from PIL import Image

    ground = Image.new("RGBA", frames[0].shape[1::-1], (26, 27, 30, 255) if dark else (255, 255, 255, 255))
    pictures = [Image.alpha_composite(ground, Image.fromarray(frame, "RGBA")).convert("RGB") for frame in frames]
    out = io.BytesIO()
    if len(pictures) == 1:
        pictures[0].save(out, "PNG")
    else:
        few = [picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=128) for picture in pictures]
        few[0].save(out, "GIF", save_all=True, append_images=few[1:], duration=max(20, round(1000 * seconds)), loop=0)
    return out.getvalue()
