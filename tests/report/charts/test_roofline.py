from __future__ import annotations

from typing import Any

import pytest

from steelyard.report.charts.roofline import CHARTS, COLUMNS, roof_rows, roofline_rows
from tests.report.charts.drawn import drawn

MEASURED = {"machine": 0, "device": "cuda", "dtype": "bf16", "compute": 9e14, "bandwidth": 4e12, "source": "measured"}
DATASHEET = {**MEASURED, "compute": 9.89e14, "bandwidth": 4.8e12, "source": "datasheet"}
OTHER_TYPE = {**MEASURED, "dtype": "f32", "compute": 6e13}


def document(*roofs: dict[str, Any]) -> dict[str, Any]:
    def case(name: str, intensity: float, bound: str) -> dict[str, Any]:
        roof = {"intensity": intensity, "achieved": 1e12 * intensity, "bound": bound, "share": 0.25, "dtype": "bf16"}
        time = [1e-3, 0.5e-3, 2e-3, 9]
        return {
            "id": name,
            "workload": "op",
            "label": name,
            "backend": "torch",
            "variant": "eager",
            "metrics": {"time": time},
            "roof": roof,
        }

    cases = [case("small", 0.5, "memory"), case("large", 500.0, "compute"), {**case("none", 1.0, "memory"), "roof": None}]
    return {"cases": cases, "roofline": {"roofs": list(roofs), "points": ["small", "large", "none", "gone"]}}


def test_a_roof_rises_to_its_ridge_and_stays_level_beyond_all_points() -> None:
    corners = [(row["intensity"], row["achieved"]) for row in roof_rows([MEASURED], [0.5, 500.0]) if row["kind"] == "roof"]
    (left, low), (ridge, top), (right, end) = corners
    assert left < 0.5 and right > 500 and ridge == pytest.approx(225)
    assert low == pytest.approx(4e12 * left) and top == end == 9e14


@pytest.mark.parametrize("missing", ["compute", "bandwidth"])
def test_half_a_roof_is_a_straight_line(missing: str) -> None:
    rows = roof_rows([{**MEASURED, missing: None}], [1.0])
    assert [row["kind"] for row in rows] == ["roof", "roof", "slope" if missing == "compute" else "peak"]
    assert roof_rows([{**MEASURED, "compute": None, "bandwidth": None}], [1.0]) == []


def test_points_have_the_interval_of_their_time_and_only_their_own_roofs() -> None:
    rows = roofline_rows(document(MEASURED, DATASHEET, OTHER_TYPE))
    points = [row for row in rows if row["kind"] == "point"]
    assert [row["case"] for row in points] == ["small", "large"]
    assert (points[0]["low"], points[0]["high"]) == (pytest.approx(0.25e12), pytest.approx(1e12))
    assert {row["roof"] for row in rows if row["kind"] == "roof"} == {"cuda bf16 measured", "cuda bf16 datasheet"}
    assert all(tuple(row) == COLUMNS for row in rows)
    assert roofline_rows({"roofline": None, "cases": []}) == []


def test_a_name_that_two_roofs_share_stands_once() -> None:
    labels = [row["label"] for row in roof_rows([MEASURED, OTHER_TYPE], [1.0]) if row["kind"] == "slope"]
    assert labels == ["4.00 TB/s measured"]


def test_a_roof_of_two_sources_is_dashed_and_names_each_where_it_counts() -> None:
    rows = roof_rows([{**MEASURED, "source": "datasheet compute, measured memory"}], [1.0])
    told = {row["kind"]: (row["source"], row["label"]) for row in rows if row["kind"] != "roof"}
    assert told == {"peak": ("datasheet", "bf16 900 TFLOP/s datasheet"), "slope": ("measured", "4.00 TB/s measured")}
    assert {row["source"] for row in rows if row["kind"] == "roof"} == {"datasheet"}


def test_two_roofs_of_one_name_are_two_lines() -> None:
    rows = roof_rows([MEASURED, {**MEASURED, "compute": 1e14}], [1.0])
    corners = {row["roof"]: row["achieved"] for row in rows if row["kind"] == "roof"}
    assert corners == {"cuda bf16 measured": 9e14, "cuda bf16 measured (2)": 1e14}


def test_the_picture_tells_measured_roofs_from_datasheets() -> None:
    picture = drawn(CHARTS[0], roofline_rows(document(MEASURED, DATASHEET)))
    for text in ("bf16 900 TFLOP/s measured", "bf16 989 TFLOP/s datasheet", "stroke-dasharray", "torch/eager", "bound by", "FLOP per byte"):
        assert text in picture, text
