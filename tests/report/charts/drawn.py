"""Charts drawn without a browser, so that a spec that Vega-Lite does not understand fails here."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from steelyard.report.charts import Chart

WIDTH = 700


def drawn(chart: Chart, rows: list[dict[str, Any]], config: dict[str, Any] | None = None) -> str:
    """The chart as SVG."""
    vl_convert = pytest.importorskip("vl_convert")
    spec = copy.deepcopy(chart.spec)
    spec |= {"width": WIDTH, "datasets": {"rows": rows}}
    return str(vl_convert.vegalite_to_svg(spec, vl_version="5.21", config=config))


def fields(spec: Any) -> set[str]:
    """The columns that encodings of a spec name."""
    return set(_fields(spec))


def _fields(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _fields(item)
    elif isinstance(part, dict):
        for name, value in part.items():
            yield from ([value["field"]] if name in _CHANNELS and isinstance(value, dict) and "field" in value else [])
            yield from _fields(value)


_CHANNELS = {"x", "x2", "y", "y2", "color", "shape", "text"}
