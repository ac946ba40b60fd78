"""The page's charts as PNG and SVG without a browser, from the same specs and the same figures.

vl-convert runs Vega in our process without access to the network: nothing outside the spec and its rows may be fetched.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from steelyard.errors import UsageError, unknown
from steelyard.report.cells import clean, cut, visible
from steelyard.report.charts import ROWS, Chart, Rows, accuracy, compare, sweep
from steelyard.report.charts.theme import theme as page_theme
from steelyard.report.wrap import wrap_text

Document = Mapping[str, Any]
Form = Literal["png", "svg"]

PAGES = ("compare", "matrix", "sweep", "history", "roofline", "generation", "case", "arms", "accuracy", "replay")
"""The order in which a chart is chosen if none is named."""
VEGA_LITE = "5.21"
WIDTH = 760
SCALE = 2.0
LINE = 110
FONT = "DejaVu Sans"
"""A font that has every character we use. If a font lacks one, as vl-convert's own does, the whole line is drawn in another font."""


def charts() -> dict[str, Chart]:
    """Every chart that can be drawn from a document."""
    modules = [importlib.import_module(f"steelyard.report.charts.{page}") for page in PAGES]
    return {chart.name: chart for module in modules for chart in module.CHARTS}


def picture(document: Document, form: Form, name: str | None = None, *, case: str | None = None, dark: bool = False) -> tuple[str, bytes]:
    """One chart of a document, by name or the first that has something to show, for one case if that is given; with the chart's name."""
    known = charts()
    if name is not None:
        check_name(name)
    if case is not None:
        _check_case(document, case)
        of_one = (chart for chart in known.values() if "case" in signature(chart.rows).parameters)
        known = {chart.name: replace(chart, rows=partial(chart.rows, case=case)) for chart in of_one}
        if name is not None and name not in known:
            raise UsageError(f"the plot {name} shows all cases", do=f"plots of one case: {', '.join(known)}")
    for chart in [known[name]] if name is not None else known.values():
        if rows := chart.rows(document):
            note, about = _left_out(chart, dict(document), rows), source(document)
            return chart.name, draw(chart, rows, form, dark=dark, note=note, about=about)
    filled = [chart.name for chart in known.values() if chart.rows(document)]
    what = f"the plot {name} has nothing to show" if name else "there is nothing to plot"
    raise UsageError(what, why="these runs have no figures for it", do=f"plots of these runs: {', '.join(filled)}" if filled else "")


def source(document: Document) -> str:
    """What was measured, in which run, against which base and on which machine; a page shows this around its charts."""
    compared, runs = document["comparison"], [run["id"] for run in document["runs"]]
    sides = f"base {compared['base']}, head {compared['head']}" if compared and not compared["paired"] else ""
    where = sides or (f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs" if runs else "")
    machines = [card["name"] for card in document["machines"]]
    words = [document["title"], where, machines[0] if len(machines) == 1 else f"{len(machines)} machines" if machines else ""]
    return " · ".join(clean(word) for word in words if word)


def _left_out(chart: Chart, document: dict[str, Any], rows: Rows) -> str:
    """A note on what a picture leaves out, if anything."""
    if chart.name.startswith("sweep-"):
        return sweep.left_out(document, rows)
    if chart.name == "compare-scatter":
        return compare.left_out(document, rows)
    return accuracy.left_out(document, rows) if chart.name == "compare-accuracy" else ""


def _check_case(document: Document, case: str) -> None:
    series = (document["history"] or {}).get("series", ())
    known = dict.fromkeys([*(item["id"] for item in document["cases"]), *(item["case"] for item in series)])
    if case not in known:
        raise unknown("case", case, known)


def check_name(name: str) -> None:
    """Raise an error that lists the known charts if none has this name."""
    known = charts()
    if name not in known:
        raise unknown("plot", name, known, listing=", ".join(known))


def draw(chart: Chart, rows: Sequence[Mapping[str, Any]], form: Form, *, dark: bool = False, note: str = "", about: str = "") -> bytes:
    """The bytes of a picture; `about` is below its title, and `note` below the sentence on how to read it."""
    require()
    import vl_convert

    if folder := font_folder():
        vl_convert.register_font_directory(folder)
    spec = {**chart.spec, "datasets": {ROWS: [harmless(row) for row in rows]}, "title": title(chart, rows, note, about)}
    spec.pop("padding", None)
    if spec.get("width") == "container":
        spec["width"] = WIDTH
    options: dict[str, Any] = {"vl_version": VEGA_LITE, "config": theme(dark), "allowed_base_urls": []}
    try:
        if form == "svg":
            return str(vl_convert.vegalite_to_svg(spec, **options)).encode()
        return bytes(vl_convert.vegalite_to_png(spec, scale=SCALE, **options))
    except ValueError as error:
        raise UsageError(f"cannot draw {chart.name}", why=" ".join(str(error).split())[:500]) from None


def harmless(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without control characters in its text, since vl-convert ends the whole process if there is one."""
    return {name: visible(value) if isinstance(value, str) else value for name, value in row.items()}


def require() -> None:
    """Raise an error that says what to install, before any other work is done for a picture."""
    try:
        importlib.import_module("vl_convert")
    except ImportError as error:
        gone = isinstance(error, ModuleNotFoundError) and error.name == "vl_convert"
        raise UsageError(
            "cannot draw a picture", why="vl-convert is not installed" if gone else f"vl-convert cannot be loaded: {clean(error)}",
            do="pip install 'steelyard[plots]', or -o report.html, which draws in the browser",
        ) from None  # fmt: skip


def title(chart: Chart, rows: Sequence[Mapping[str, Any]], note: str = "", about: str = "") -> dict[str, Any]:
    """The title of a picture: pictures are shown outside a page, so they say what they show, of which case, and how to read it."""
    cases = {row.get("case") for row in rows} - {None, ""}
    named = [cut(clean(cases.pop()), LINE)] if len(cases) == 1 else []
    return {
        "text": chart.title,
        "subtitle": [
            *(wrap_text(about, LINE) if about else []),
            *named,
            *wrap_text(chart.reading, LINE),
            *(wrap_text(note, LINE) if note else []),
        ],
        "anchor": "start",
        "offset": 24,
    }


def theme(dark: bool) -> dict[str, Any]:
    """The colours and fonts of the page; the text around a chart there is the subtitle here."""
    found = page_theme(dark)
    subtitle = {"subtitleColor": found["axis"]["labelColor"], "subtitleFontSize": found["axis"]["labelFontSize"], "subtitlePadding": 6}
    return {**found, "font": f"{FONT}, {found['font']}", "title": {**found["title"], **subtitle}, "padding": 12}


@functools.cache
def font_folder() -> str:
    """The folder of the font in matplotlib, which `steelyard[plots]` installs; empty if it is not there, so that the system's is used."""
    spec = importlib.util.find_spec("matplotlib")
    for place in spec.submodule_search_locations or () if spec else ():
        folder = Path(place) / "mpl-data" / "fonts" / "ttf"
        if (folder / "DejaVuSans.ttf").is_file():
            return str(folder)
    return ""
