"""Charts drawn without a browser, so that a spec that Vega-Lite does not understand fails here."""

from __future__ import annotations

import copy
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
