"""The lab: a local page in which solvers are watched at work (`ik-sim view`, extra `viewer`).

`server.py` serves it, `lab.py` is one browser tab, and each page is a module of its own.
"""

from __future__ import annotations
