"""Charts as plain Vega-Lite specs: drawn by the page in a browser, and as PNG or SVG without one, from the same spec.

A spec names its data `rows` and leaves it empty; the rows are put in when it is drawn. Field names are fixed here, so that no
name from a result file is ever part of a spec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROWS = "rows"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """A kind of chart: its title, one sentence on how to read it, its spec, the columns of its rows, and the function that makes the rows
    from a document.

    With `build` the rows of all cases are made once, together with the document, which keeps them; the page and a picture filter them.
    """

    name: str
    title: str
    reading: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: Callable[..., Rows]
    build: Callable[[dict[str, Any]], Rows] | None = None


def columns_of(names: tuple[str, ...], rows: Rows) -> dict[str, list[Any]]:
    """Rows as a table of columns, as a document keeps them."""
    return {name: [row[name] for row in rows] for name in names}


def kept_rows(name: str, document: dict[str, Any], case: str | None = None) -> Rows:
    """The rows that a document keeps for one case of a chart: the given case, or the first."""
    table = document.get("rows", {}).get(name) or {}
    chosen = case if case is not None else next(iter(table.get("case", ())), None)
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True) if values[0] == chosen]
