"""`ik-sim study NAME`: run one of the studies, or go on with one that was stopped."""

from __future__ import annotations

import json as jsonlib
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from ik_sim.errors import InvalidArgumentError


@dataclass(frozen=True)
class StudyCommand:
    """Run a study: rows that survive being killed, figures, and one page that explains them.

    links: do a chain's length ratios matter to FABRIK? workspace: what can an arm reach? design: which lengths are
    best? paper: the source's cases, table and tracking tasks again. motion: films of joints and of FABRIK's passes.
    Started again on its folder, a study goes on where it stopped.
    """

    study: tyro.conf.Positional[str] = ""
    """Name of a study; all are listed when left out."""
    preset: str | None = None
    """A named set of settings, listed with the studies."""
    quick: bool = False
    """Short for --preset quick, in the studies that have one."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """key=value: change a setting, such as trials=1000 or robot=my_arm.urdf."""
    seed: int | None = None
    """Of everything random."""
    out: Path | None = None
    """The study's folder; runs/study_NAME, with the preset's name behind it, when left out."""
    restart: bool = False
    """Throw away the rows of an earlier run in that folder."""
    json: Path | None = None
    """Also write the summary to this file; - writes it to standard output."""
    quiet: bool = False
    """Print nothing but errors."""

    def run(self) -> int:
        """Do it."""
        from ik_sim.studies import load_study, study_names
        from ik_sim.studies.study import PAGE_FILE, progress, write

        if not self.study:
            for name in study_names():
                kind = type(load_study(name))
                presets = ", ".join(kind.presets)
                print(f"{name:<10} {kind.title}{f'  (presets: {presets})' if presets else ''}")
            return 0
        settings: dict[str, object] = {}
        for text in self.set:
            key, equals, value = text.partition("=")
            if not equals:
                raise InvalidArgumentError("set", f"{text!r} must be key=value")
            settings[key.strip()] = value.strip()
        if self.seed is not None:
            settings["seed"] = self.seed
        preset = "quick" if self.quick else self.preset
        study = load_study(self.study, preset, **settings)
        ending = f"_{preset}" if preset else ""
        out = self.out or Path("runs") / f"study_{self.study}{ending}"
        on_chunk, end = progress(f"study {self.study}", self.quiet)
        try:
            summary = study.run(out, restart=self.restart, on_chunk=on_chunk)
        except KeyboardInterrupt:
            print(f"ik-sim: stopped; the rows so far are in {out}, the same command goes on", file=sys.stderr)
            return 130
        finally:
            end()
        text = jsonlib.dumps(summary, indent=2, default=float) + "\n"
        if self.json is not None and str(self.json) != "-":
            self.json.parent.mkdir(parents=True, exist_ok=True)
            write(self.json, text.encode())
        if str(self.json) == "-":
            print(text, end="")
        elif not self.quiet:
            for key, value in summary["results"].items():
                if isinstance(value, list | dict):  # too much for a terminal; it is in summary.json
                    continue
                print(f"  {key:<44} {f'{value:.6g}' if isinstance(value, float) else value}")
            print(f"\n  page: {out / PAGE_FILE}    rows: {out / 'rows.npz'}")
        return 0
