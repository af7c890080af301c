"""What every study shares: presets, chunks of rows that survive being killed, figures in three forms, one page.

A study is a frozen dataclass: the object *is* its settings. Its work is cut into chunks, each a function of the
settings and its own number alone; a chunk's rows are written beside and renamed, so a study that was killed goes on
with the first chunk that is missing, and ends with the same rows as one that was not.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from jaxtyping import Float

from ik_sim.errors import IkSimError, InvalidArgumentError, MissingDependencyError, UnknownNameError

SETTINGS_FILE, ROWS_FOLDER, PAGE_FILE, SUMMARY_FILE = "study.json", "rows", "report.html", "summary.json"

# Okabe & Ito 2008, "Color Universal Design"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)


@dataclass(frozen=True, eq=False)
class Picture:
    """One figure of a study."""

    name: str
    """Of its files."""
    caption: str
    """What is seen, in a sentence or two."""
    draw: Callable[[Any], None] | None = None
    """Draws it on a matplotlib figure."""
    size: tuple[float, float] = (7.5, 4.2)
    """Inches."""
    interactive: Callable[[], Any] | None = None
    """Makes the plotly figure, where turning and zooming shows more."""
    file: str | None = None
    """A picture or film that the study has written itself, such as a GIF."""


@dataclass(frozen=True, eq=False)
class Section:
    """A heading of the page with its text (paragraphs, in HTML), pictures and a table."""

    title: str
    text: Sequence[str]
    pictures: Sequence[Picture] = ()
    table: Sequence[Sequence[Any]] = field(default=())
    """The first row is the head."""
    folded: bool = False
    """The table is shown when somebody asks for it."""


@dataclass(frozen=True)
class Study:
    """Base of the studies. A subclass says how many chunks there are, what a chunk's rows are, and what they mean."""

    name: ClassVar[str]
    title: ClassVar[str]
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    seed: int = 0
    """Of everything random in it."""

    # --- to be written by a study ---

    def columns(self) -> tuple[str, ...]:
        """Names of the rows' columns, with units."""
        raise NotImplementedError

    def chunk_count(self) -> int:
        """How many pieces the work is cut into."""
        raise NotImplementedError

    def chunk(self, number: int, folder: Path) -> Float[np.ndarray, "k c"]:
        """The rows of one piece, a function of the settings and the number only (films go to the folder)."""
        raise NotImplementedError

    def evaluate(self, rows: Float[np.ndarray, "k c"], folder: Path) -> tuple[dict[str, Any], list[Section]]:
        """What the rows say: figures for machines, and the sections of the page."""
        raise NotImplementedError

    # --- the rest is the same for all ---

    @classmethod
    def with_preset(cls, preset: str | None = None, **settings: Any) -> Any:
        """The study with a preset's settings, and `settings` over them; values may be text as a command line has it."""
        if preset is not None and preset not in cls.presets:
            raise UnknownNameError(f"preset of {cls.name}", preset, cls.presets)
        known = {f.name: f for f in dataclasses.fields(cls)}
        chosen = dict(cls.presets.get(preset or "", {}))
        for key, value in settings.items():
            if key not in known:
                raise UnknownNameError(f"setting of {cls.name}", key, known)
            chosen[key] = _as_type(f"{cls.name}.{key}", value, known[key].default)
        return cls(**chosen)

    def rng(self, number: int) -> np.random.Generator:
        """The random numbers of one chunk, whatever ran before it."""
        return np.random.default_rng([self.seed, number])

    def settings(self) -> dict[str, Any]:
        """The study as it is written into its folder."""
        return {"study": self.name, "settings": json.loads(json.dumps(dataclasses.asdict(self)))}

    def run(
        self,
        folder: Path,
        *,
        restart: bool = False,
        on_chunk: Callable[[int, int], None] | None = None,
        stop_after: int | None = None,
    ) -> dict[str, Any]:
        """Do what is missing in the folder, then write figures and page; returns the summary.

        Args:
            folder: of the study; rows that an earlier run left there are kept.
            restart: throw earlier rows away.
            on_chunk: called with the chunks done and their number.
            stop_after: give up after so many chunks of this run, as a killed one would; the page is not written.

        Raises:
            IkSimError: the folder holds another study, or this one with other settings.
        """
        rows_folder = self._open(folder, restart)
        count, done_now = self.chunk_count(), 0
        for number in range(count):
            place = rows_folder / f"{number:06d}.npy"
            if not place.is_file():
                if stop_after is not None and done_now >= stop_after:
                    return {}
                rows = np.ascontiguousarray(self.chunk(number, folder), dtype=np.float64)
                buffer = io.BytesIO()
                np.save(buffer, rows)
                write(place, buffer.getvalue())
                done_now += 1
            if on_chunk is not None:
                on_chunk(number + 1, count)
        rows = np.concatenate([np.load(rows_folder / f"{number:06d}.npy") for number in range(count)])
        return self.report(rows, folder)

    def report(self, rows: Float[np.ndarray, "k c"], folder: Path) -> dict[str, Any]:
        """Write tables, figures and page from the rows."""
        export(folder / "rows", self.columns(), rows)
        shutil.rmtree(folder / "figures", ignore_errors=True)  # of an earlier report, which may have had others
        summary, sections = self.evaluate(rows, folder)
        summary = {"study": self.name, **self.settings()["settings"], "rows": len(rows), "results": summary}
        write(folder / SUMMARY_FILE, (json.dumps(summary, indent=2, default=float) + "\n").encode())
        write(folder / PAGE_FILE, page(self, sections, folder).encode())
        return summary

    def _open(self, folder: Path, restart: bool) -> Path:
        rows_folder, settings_file = folder / ROWS_FOLDER, folder / SETTINGS_FILE
        try:
            if settings_file.is_file():
                before = json.loads(settings_file.read_text(encoding="utf-8"))
                if before.get("study") != self.name:
                    raise IkSimError(f"{folder} holds the study {before.get('study')!r}; choose another folder")
                if restart:
                    shutil.rmtree(rows_folder, ignore_errors=True)
                elif before != self.settings():
                    other = [
                        k for k, v in self.settings()["settings"].items() if before.get("settings", {}).get(k) != v
                    ]
                    raise IkSimError(
                        f"{folder} holds rows of other settings ({', '.join(other)}); choose another folder, "
                        "or throw them away with --restart"
                    )
            rows_folder.mkdir(parents=True, exist_ok=True)
            write(settings_file, (json.dumps(self.settings(), indent=2) + "\n").encode())
        except OSError as error:
            raise IkSimError(f"can't write {folder}: {error.strerror or error}") from None
        return rows_folder


def write(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it, so that no reader meets half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


def export(stem: Path, columns: Sequence[str], rows: Float[np.ndarray, "k c"], most_csv: int = 200_000) -> None:
    """Rows as NPZ, one array a column; as CSV too where they are not too many to be read that way."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: rows[:, i] for i, name in enumerate(columns)})  # type: ignore[arg-type]
    write(stem.with_suffix(".npz"), buffer.getvalue())
    if len(rows) <= most_csv:
        lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows.tolist())]
        write(stem.with_suffix(".csv"), ("\n".join(lines) + "\n").encode())


def progress(title: str, quiet: bool) -> Any:
    """A callback (done, of) that shows a bar on stderr after a second, and a function that ends it."""
    if quiet or not sys.stderr.isatty():
        return None, lambda: None
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    state: dict[str, Any] = {}

    def on_chunk(done: int, of: int) -> None:
        if not state:
            bar.start()
            state["task"] = bar.add_task(title, total=of)
        bar.update(state["task"], completed=done)

    return on_chunk, lambda: bar.stop() if state else None


# --- figures ---


def render(picture: Picture, folder: Path) -> str:
    """Write a picture's SVG and PNG into `figures/` and return the SVG's text.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    assert picture.draw is not None
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "figures", "pip install ik_sim[reports]") from None
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"ik_sim {picture.name}"}):  # ids apart within one page
        figure = Figure(figsize=picture.size, layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        picture.draw(figure)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", metadata={"Software": None})
    (folder / "figures").mkdir(exist_ok=True)
    write(folder / "figures" / f"{picture.name}.svg", svg.getvalue().encode())
    write(folder / "figures" / f"{picture.name}.png", png.getvalue())
    return svg.getvalue()


def plain_log(axis: Any) -> None:
    """Make a logarithmic axis count 1, 2, 5, 10 in plain numbers, over one decade or many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
}


def page(study: Study, sections: Sequence[Section], folder: Path) -> str:
    """The page: text, figures and tables in one file that needs no network."""
    body, library_is_in, notes = [], False, set()
    for section in sections:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        body += [f"<p>{text}</p>" for text in section.text]
        for picture in section.pictures:
            inside = ""
            if picture.file is not None:
                inside = _film(folder / picture.file)
            elif picture.draw is not None:
                try:
                    svg = render(picture, folder)
                    inside = svg[svg.index("<svg") :]
                except MissingDependencyError as error:
                    notes.add(str(error))
            if picture.interactive is not None:
                made = _interactive(picture, folder, not library_is_in)
                if made is None:
                    notes.add(str(MissingDependencyError("plotly", "turning figures", "pip install ik_sim[reports]")))
                else:
                    library_is_in = True
                    inside += made
            body.append(f"<figure>{inside}<figcaption>{html.escape(picture.caption)}</figcaption></figure>")
        if section.table:
            head, *rest = section.table
            rows = "".join("<tr>" + "".join(f"<td>{_cell(x)}</td>" for x in row) + "</tr>" for row in rest)
            heads = "".join(f"<th>{html.escape(str(x))}</th>" for x in head)
            table = f'<div class="wide"><table><tr>{heads}</tr>{rows}</table></div>'
            if section.folded:
                table = f"<details><summary>{len(rest)} rows</summary>{table}</details>"
            body.append(table)
    body += [f'<p class="soft">{html.escape(note)}</p>' for note in sorted(notes)]
    settings = html.escape(json.dumps(study.settings(), indent=2))
    return _PAGE.format(title=html.escape(study.title), body="\n".join(body), settings=settings)


def number(value: float) -> str:
    """A figure as people read it."""
    return f"{value:.4g}"


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else html.escape(str(value))


def _film(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    if path.suffix == ".mp4":
        return f'<video controls loop muted src="data:video/mp4;base64,{data}"></video>'
    return f'<img alt="{html.escape(path.stem)}" src="data:image/{path.suffix[1:]};base64,{data}">'


def _interactive(picture: Picture, folder: Path, with_library: bool) -> str | None:
    try:
        import plotly.io
    except ImportError:
        return None
    assert picture.interactive is not None
    figure = picture.interactive()
    figure.update_layout(template="plotly_white", margin={"l": 0, "r": 0, "t": 30, "b": 0}, height=520)
    (folder / "figures").mkdir(exist_ok=True)
    alone = plotly.io.to_html(figure, include_plotlyjs=cast(Any, "directory"), div_id=picture.name)
    write(folder / "figures" / f"{picture.name}.html", alone.encode())
    library = folder / "figures" / "plotly.min.js"
    if not library.is_file():
        from plotly.offline import get_plotlyjs

        write(library, get_plotlyjs().encode())
    return plotly.io.to_html(figure, full_html=False, include_plotlyjs=with_library, div_id=f"page-{picture.name}")


def _as_type(name: str, value: Any, default: Any) -> Any:
    """The value as the setting's default has it; text is read as a command line gives it."""
    if isinstance(value, str) and not isinstance(default, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise InvalidArgumentError(name, f"can't read {value!r}; an example is {json.dumps(default)}") from None
    if isinstance(default, bool) or isinstance(value, bool):
        fits = isinstance(default, bool) and isinstance(value, bool)
    elif isinstance(default, int):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        fits = isinstance(value, int)
    elif isinstance(default, float):
        fits = isinstance(value, int | float)
        value = float(value) if fits else value
    elif isinstance(default, tuple):
        fits = isinstance(value, list | tuple)
        value = tuple(value) if fits else value
    else:
        fits = isinstance(value, str)
    if not fits:
        raise InvalidArgumentError(name, f"is {value!r}; an example is {json.dumps(default)}")
    return value


def chunks_of(total: int, size: int) -> Iterator[tuple[int, int]]:
    """First and behind-last of every piece."""
    return ((first, min(first + size, total)) for first in range(0, total, size))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #5c6670; --line: #d5dae0; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ground: #14181d; --ink: #e8ebee; --soft: #a0aab4;
  --line: #363d45; }} }}
body {{ background: var(--ground); color: var(--ink); font: 16px/1.6 system-ui, sans-serif; max-width: 54rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; }} h2 {{ font-size: 1.2rem; margin: 2.5rem 0 .5rem; }}
.soft, figcaption {{ color: var(--soft); font-size: .9rem; }}
figcaption {{ color: #5c6670; padding: .4rem .2rem 0; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }}
figure {{ margin: 1.2rem 0; padding: .6rem; background: #ffffff; border: 1px solid var(--line); border-radius: 6px; }}
figure svg, figure img, figure video {{ width: 100%; height: auto; display: block; }}
pre {{ overflow-x: auto; font-size: 12px; border: 1px solid var(--line); padding: .6rem; border-radius: 6px; }}
@media print {{ figure, table {{ break-inside: avoid; }} }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
<h2>To run it again</h2>
<details><summary>settings</summary><pre>{settings}</pre></details>
</body>
</html>
"""
