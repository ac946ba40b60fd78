"""Charts as plain Vega-Lite specs: drawn by the page in a browser, and as PNG or SVG without one, from the same words.

A spec names its data `rows` and leaves it empty; whoever draws it puts the rows in. Field names are fixed here, so that no
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
    """One way of drawing: what it shows, one sentence on how to read it, the spec, the columns its rows have, and how a document
    gives them."""

    name: str
    title: str
    reading: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: Callable[..., Rows]
