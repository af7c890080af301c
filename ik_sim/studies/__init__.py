"""Experiments that a person would publish: each a `Study` with presets, a seed, rows that survive, and one page.

One file a study, one line in `_HOME`; a study is loaded when its name is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from ik_sim.errors import UnknownNameError

_HOME = {
    "paper": "ik_sim.studies.paper:Paper",
    "links": "ik_sim.studies.links:Links",
    "workspace": "ik_sim.studies.workspace:Workspace",
    "design": "ik_sim.studies.design:Design",
    "motion": "ik_sim.studies.motion:Motion",
}


def study_names() -> tuple[str, ...]:
    """Names of all studies."""
    return tuple(_HOME)


def load_study(name: str, preset: str | None = None, **settings: Any) -> Any:
    """The study of that name, with a preset's settings and `settings` over them.

    Raises:
        UnknownNameError: no such study, preset or setting; the message lists what there is.
    """
    if name not in _HOME:
        raise UnknownNameError("study", name, _HOME)
    module, _, kind = _HOME[name].partition(":")
    return getattr(importlib.import_module(module), kind).with_preset(preset, **settings)
