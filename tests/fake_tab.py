"""A browser tab without a browser: it speaks viser's protocol over a real connection and remembers what it was shown."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import viser
import zstandard
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

CAMERA = {
    "wxyz": (0.0, 1.0, 0.0, 0.0), "position": (0.0, 0.0, 3.0), "fov": 1.0, "near": 0.01, "far": 100.0,
    "image_height": 720, "image_width": 1280, "look_at": (0.0, 0.0, 0.0), "up_direction": (0.0, 1.0, 0.0),
}  # fmt: skip


class FakeTab:
    """Connects like a browser. Controls are found by their label, things in the scene by their name."""

    def __init__(self, address: str, link: str = "", camera: dict[str, Any] | None = None, **headers: str) -> None:
        self.gui: dict[str, dict[str, Any]] = {}
        """Every control that is there, by viser's id: its kind, its properties and its value."""
        self.scene: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        """What was sent for download."""
        self.commands: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._arrived = threading.Condition()
        self._socket = connect(
            address.replace("http", "ws", 1) + "/" + link,
            subprotocols=[Subprotocol(f"viser-v{viser.__version__}")],
            compression=None, max_size=None, origin=headers.get("origin"),  # type: ignore[arg-type]
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send("ViewerCameraMessage", **{**CAMERA, **(camera or {})})

    # --- what a person does ---

    def set(self, label: str, value: Any) -> None:
        """Type, slide, tick or choose."""
        uuid = self.wait(lambda: self._id(label))
        self.gui[uuid]["value"] = value
        self.send("GuiUpdateMessage", uuid=uuid, updates={"value": value})

    def click(self, label: str) -> None:
        """Press a button."""
        self.set(label, True)

    def drag(self, name: str, position: Any, wxyz: Any = (1.0, 0.0, 0.0, 0.0)) -> None:
        """Move a gizmo."""
        self.send(
            "TransformControlsUpdateMessage", name=name, position=[float(x) for x in position],
            wxyz=[float(x) for x in wxyz], owner=self.wait(lambda: self.scene[name])["owner"],
        )  # fmt: skip

    def hit(self, name: str) -> None:
        """Click a thing in the scene."""
        self.send(
            "SceneNodeClickMessage", name=name, instance_index=None, ray_origin=(0.0, 0.0, 3.0), modifier=None,
            ray_direction=(0.0, 0.0, -1.0), screen_pos=(0.5, 0.5), owner=self.wait(lambda: self.scene[name])["owner"],
        )  # fmt: skip

    def key(self, command: str) -> None:
        """Press the key of a command."""
        self.send(
            "CommandTriggerMessage",
            uuid=self.wait(lambda: next(i for i, name in self.commands.items() if name == command)),
        )

    def close(self) -> None:
        """Close the tab."""
        self._socket.close()
        self._reader.join(5.0)

    # --- what a person sees ---

    def value(self, label: str) -> Any:
        """What a control shows."""
        return self.gui[self._id(label)]["value"]

    def prop(self, label: str, name: str) -> Any:
        """A property of a control, such as options or visible."""
        return self.gui[self._id(label)]["props"][name]

    @property
    def labels(self) -> list[str]:
        """Labels of all controls."""
        return [entry["props"].get("label", "") for entry in self.gui.values()]

    @property
    def text(self) -> str:
        """All that is written in the panel as HTML and Markdown."""
        return "\n".join(str(e["props"].get("content", e["props"].get("_markdown", ""))) for e in self.gui.values())

    @property
    def status(self) -> dict[str, str]:
        """The data attributes of the status line, and its text."""
        found = re.search(r'<div id="lab-status"(.*?)>(.*?)</div>', self.text, re.S)
        if not found:
            return {}
        return {**dict(re.findall(r'data-([\w-]+)="(.*?)"', found[1])), "text": html.unescape(found[2])}

    def wait(self, what: Callable[[], Any], timeout: float = 120.0) -> Any:
        """Wait until `what()` is true, and return it; long enough for a solver to be compiled on a busy machine.

        Raises:
            AssertionError: it didn't become true.
        """
        end = time.monotonic() + timeout
        with self._arrived:
            while True:
                try:
                    if found := what():
                        return found
                except (KeyError, StopIteration):
                    pass
                left = end - time.monotonic()
                assert left > 0.0, f"waited {timeout} s in vain; the status line says: {self.status}"
                self._arrived.wait(min(left, 0.5))

    # --- the wire ---

    def send(self, kind: str, **fields: Any) -> None:
        """A message as the browser would send it."""
        self._socket.send(msgspec.msgpack.encode({"type": kind, **fields}))

    def _id(self, label: str) -> str:
        return next(i for i, entry in self.gui.items() if entry["props"].get("label") == label)

    def _read(self) -> None:
        try:
            for raw in self._socket:
                assert isinstance(raw, bytes)
                size = int.from_bytes(raw[8:16], "little")
                window = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(raw[16 : 16 + size]))
                start, buffers = 16 + size, []
                for length in window["binaryBufferLengths"]:
                    start += -start % 8
                    buffers.append(raw[start : start + length])
                    start += length
                with self._arrived:
                    for message in window["messages"]:
                        self._take(message, buffers)
                    self._arrived.notify_all()
        except ConnectionClosed:
            pass

    def _take(self, m: dict[str, Any], buffers: list[bytes]) -> None:
        kind = m["type"]
        if kind == "GuiUpdateMessage":
            entry = self.gui.get(m["uuid"])
            if entry is not None:
                if "value" in m["updates"]:
                    entry["value"] = m["updates"]["value"]
                entry["props"].update(m["updates"])
        elif kind == "GuiRemoveMessage":
            self.gui.pop(m["uuid"], None)
        elif kind == "ResetGuiMessage":
            self.gui.clear()
        elif kind == "RegisterCommandMessage":
            self.commands[m["uuid"]] = m["props"]["label"]
        elif kind == "RemoveCommandMessage":
            self.commands.pop(m["uuid"], None)
        elif kind.startswith("Gui") and "props" in m:
            self.gui[m["uuid"]] = {"kind": kind, "props": dict(m["props"]), "value": m.get("value")}
        elif kind == "FileTransferStartDownload":
            self._names[m["transfer_uuid"]] = m["filename"]
            self.files[m["filename"]] = b""
        elif kind == "FileTransferPart":
            content = m["content"]
            if isinstance(content, dict):
                content = buffers[content["__binary_index"]]
            self.files[self._names[m["transfer_uuid"]]] += bytes(content)
        elif kind == "RemoveSceneNodeMessage":
            self.scene = {n: v for n, v in self.scene.items() if n != m["name"] and not n.startswith(m["name"] + "/")}
        elif kind == "ResetSceneMessage":
            self.scene.clear()
        elif kind in ("SetPositionMessage", "SetOrientationMessage", "SetSceneNodeVisibilityMessage"):
            node = self.scene.get(m["name"])
            if node is not None:
                node.update({k: v for k, v in m.items() if k in ("position", "wxyz", "visible")})
        elif kind == "SceneNodeUpdateMessage":
            if m["name"] in self.scene:
                self.scene[m["name"]]["props"].update(m["updates"])
        elif "name" in m and "props" in m:
            self.scene[m["name"]] = {"kind": kind, "owner": m.get("owner", ""), "props": dict(m["props"])}
