"""The page of a workload: what it computes, what can be set, and a first command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from steelyard.model.values import value_text
from steelyard.report.cells import COMMAND
from steelyard.report.page import Page


def workload_detail(info: Mapping[str, Any], variants: Iterable[str] = (), *, file: str = "", width: int = 100) -> Text:
    """Everything a description says; for a workload from a user's file, also which file."""
    name, axes = str(info["name"]), info.get("axes", {})
    page = Page(width)
    page.title(name, file or str(info.get("origin", "")))
    page.text("", str(info.get("doc", "")))
    page.rows("axes", [(key, " ".join(value_text(value) for value in values)) for key, values in axes.items()])
    sizes = info.get("sizes", {}).items()
    page.rows("sizes", [(size, " ".join(f"{key}={value_text(value)}" for key, value in values.items())) for size, values in sizes])
    own = list(info.get("variants", {}))
    known = ["eager", *own, *(other for other in variants if other not in own)]
    listed = {"backends": info.get("backends", ()), "modes": info.get("modes", ()), "variants": known, "tags": info.get("tags", ())}
    page.rows("ways to run", [(key, ", ".join(names)) for key, names in listed.items()])
    page.text("example", example(f"{shlex.quote(file)} {name}" if file else name, axes, own))
    return page.drawn()


def definitions_detail(file: str, found: Mapping[str, Mapping[str, Mapping[str, Any]]], *, width: int = 100) -> Text:
    """What else a file defines that any workload can use: names by kind, each with its purpose."""
    page = Page(width)
    page.title("for every workload", file)
    for kind, items in found.items():
        page.rows(kind, [(name, str(info.get("doc", ""))) for name, info in items.items()])
    return page.drawn()


def example(name: str, axes: Mapping[str, Sequence[Any]], variants: Sequence[str]) -> str:
    """A command that does something: one axis changed, one variant compared."""
    if name == COMMAND:
        return "steelyard run -- PROGRAM ARGUMENT…"
    whole = [(key, values[0]) for key, values in axes.items() if values and isinstance(values[0], int) and not isinstance(values[0], bool)]
    changed = f" -a {whole[0][0]}={2 * whole[0][1]}" if whole else ""
    return f"steelyard run {name}{changed}" + (f" -V eager,{variants[0]} --vs eager" if variants else "")
