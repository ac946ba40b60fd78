"""Every chart, on whichever page: what it draws is what its rows bring, and a reader is told how to read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from steelyard.report.charts import Chart, accuracy, arms, case, compare, generation, history, matrix, roofline, sweep

CHARTS = [chart for page in (accuracy, arms, case, compare, generation, history, matrix, roofline, sweep) for chart in page.CHARTS]
_NAMED = (re.compile(r"\bdatum\.(\w+)"), re.compile(r"data\('rows'\)\[0\]\.(\w+)"))


def used(spec: Any) -> set[str]:
    """The columns of the rows in encodings, tooltips, sort orders and expressions; not what the spec makes for itself."""
    parts = list(_parts(spec))
    tables = [part for part in parts if isinstance(part, dict)]
    named = {found for part in parts if isinstance(part, str) for pattern in _NAMED for found in pattern.findall(part)}
    named |= {table["field"] for table in tables if "field" in table}
    return named - {table["as"] for table in tables if "as" in table} - {"value"}


def _parts(part: Any) -> Iterator[Any]:
    yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _parts(inner)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: str(chart.name))
def test_every_column_a_chart_uses_is_one_it_names(chart: Chart) -> None:
    assert used(chart.spec) and used(chart.spec) <= set(chart.columns)
    assert chart.title and chart.reading.endswith(".")
