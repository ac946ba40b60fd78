"""Both arms of a pair: the same bins for both, and an interval that narrows from rebuild to rebuild."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.report.charts.arms import CHARTS, MOST_CASES, overlay_rows
from steelyard.report.web.document import document
from steelyard.store.runs import Store
from tests.browser import made
from tests.report.charts.drawn import drawn

OVERLAY, REBUILDS = CHARTS


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return document([made.grid(Store(Path(tmp_path_factory.mktemp("grid"))))])


def test_the_rows_are_made_once_and_a_picture_draws_those_of_one_case(page: dict[str, Any]) -> None:
    weighed = [delta["case"] for delta in page["comparison"]["deltas"] if delta["ratio"]]
    assert set(page["rows"]["case-overlay"]["case"]) == set(page["rows"]["case-rebuilds"]["case"]) == set(weighed)
    rows = OVERLAY.rows(page, case=weighed[1])
    assert {row["case"] for row in rows} == {weighed[1]} and {row["side"] for row in rows} == {"base", "head"}
    for side in ("base", "head"):
        assert sum(row["share"] for row in rows if row["side"] == side) == pytest.approx(1, abs=1e-4)
    assert "share of samples" in drawn(OVERLAY, rows)
    assert OVERLAY.rows(page)[0]["case"] == weighed[0] and OVERLAY.rows({"rows": {}}) == []


def test_the_interval_narrows_and_the_last_one_stands_beside_the_verdict(page: dict[str, Any]) -> None:
    delta = next(delta for delta in page["comparison"]["deltas"] if delta["ratio"])
    rows = REBUILDS.rows(page, case=delta["case"])
    assert [row["rebuild"] for row in rows] == list(range(1, 9)) and rows[1]["low"] is None
    widths = [row["high"] - row["low"] for row in rows[2:]]
    assert widths[-1] < widths[0] / 2 and rows[-1]["low"] < delta["ratio"] < rows[-1]["high"]
    assert {(row["final_low"], row["final_high"]) for row in rows} == {(delta["low"], delta["high"])}
    assert "no change" in drawn(REBUILDS, [{**row, "mean": 1.0} for row in rows]) or "faster" in drawn(REBUILDS, rows)


def test_a_page_of_very_many_cases_keeps_no_pictures_of_single_pairs(page: dict[str, Any]) -> None:
    assert overlay_rows({**page, "cases": page["cases"] * MOST_CASES}) == []
