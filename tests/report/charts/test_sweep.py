from __future__ import annotations

from typing import Any

import pytest

from steelyard.report.charts import sweep as charts
from tests.report.charts.drawn import drawn


def document(xs: tuple[Any, ...] = (64, 128, 1024), kind: str = "number") -> dict[str, Any]:
    """Two variants over a parameter; the second is twice as fast, but wrong at the last value."""
    cases, lines = [], []
    for variant, factor in (("eager", 1.0), ("fused", 0.5)):
        points = []
        for at, x in enumerate(xs):
            seconds = 1e-5 * 8**at * factor
            status = "wrong" if variant == "fused" and at == len(xs) - 1 else "ok"
            case = {"id": f"op[n={x}]@{variant}", "status": status, "metrics": {"time": [seconds, seconds * 0.99, seconds * 1.01, 20]}}
            cases.append(case)
            points.append({"x": x, "case": case["id"], "ok": status == "ok"})
        lines.append({"name": f"torch/{variant}", "points": points})
    sweep = {
        "workload": "op",
        "axis": "n",
        "kind": kind,
        "metrics": ["time"],
        "fixed": "",
        "mode": "eval",
        "lines": lines,
        "baseline": "torch/eager",
    }
    return {"sweep": [sweep], "cases": cases, "metrics": {"time": {"unit": "s", "better": "lower", "label": "time per call"}}}


@pytest.mark.parametrize("chart", charts.LINES, ids=lambda chart: str(chart.name))
def test_every_kind_of_axis_draws_lines_captions_and_units(chart: charts.Chart) -> None:
    made = document(("f32", "bf16", "f16"), "name") if "names" in chart.name else document()
    rows = charts.sweep_rows(made, made["sweep"][0], "time")
    assert all(tuple(row) == chart.columns for row in rows)
    picture = drawn(chart, rows)
    assert picture.count(">torch/fused<") == 1, "one legend for colour and shape together"
    for text in ("time per call", ">n<", "\u202fµs"):
        assert text in picture, text


def test_axes_are_logarithmic_where_values_span_a_wide_range() -> None:
    def rows(*pairs: tuple[Any, float]) -> list[dict[str, Any]]:
        return [{"x": x, "value": value} for x, value in pairs]

    assert charts.fitting(rows((64, 1.0), (4096, 100.0)), "number") == ("log", "log")
    assert charts.fitting(rows((1, 1.0), (4, 1.2)), "number") == ("linear", "linear")
    assert charts.fitting(rows((0, 0.0), (4096, 100.0)), "number") == ("linear", "linear")
    assert charts.fitting(rows(("a", 1.0), ("b", 9.0)), "name") == ("names", "log")


def test_one_chart_alone_draws_a_sweep() -> None:
    made = document()
    found = [chart.name for chart in charts.LINES if chart.rows(made)]
    assert found == ["sweep-log-log"]
    assert charts.LINES[0].rows({**made, "sweep": None}) == []


def test_speedups_are_over_the_baseline_and_only_of_right_answers() -> None:
    rows = {(row["row"], row["column"]): row for row in charts.sweep_heat_rows(document())}
    fused = rows["torch/fused", "64"]
    assert fused["speedup"] == pytest.approx(2.0)
    assert fused["low"] == pytest.approx(2 * 0.99 / 1.01) and fused["high"] == pytest.approx(2 * 1.01 / 0.99)
    assert rows["torch/fused", "1024"]["speedup"] is None and rows["torch/fused", "1024"]["text"] == "✗ wrong"
    assert rows["torch/eager", "64"]["text"] == "baseline"
    assert "2.00x faster [1.96, 2.04]" in drawn(charts.SPEEDUPS, list(rows.values()))


def test_a_pair_that_was_weighed_side_by_side_is_believed_instead_of_two_times() -> None:
    made = document()
    ids = [f"op[n=64]@{variant}" for variant in ("eager", "fused")]
    cells = [[{"case": id, "status": "ok", "time": [1e-5, None, None, 1]} for id in ids]]
    against = {"torch/eager": {"speedups": [[[1, 1, 1, 1], [1.9, 1.89, 1.91, 1]]]}}
    made["matrix"] = {"columns": ["torch/eager", "torch/fused"], "cells": cells, "by_baseline": against}
    rows = {(row["row"], row["column"]): row for row in charts.sweep_heat_rows(made)}
    assert [rows["torch/fused", x]["measured"] for x in ("64", "128")] == ["side by side", "apart"]
    assert rows["torch/fused", "64"]["speedup"] == 1.9 and rows["torch/eager", "64"]["measured"] == ""


def test_a_line_that_lacks_a_value_keeps_its_columns() -> None:
    made = document()
    del made["sweep"][0]["lines"][1]["points"][0]
    rows = charts.sweep_heat_rows(made)
    assert {(row["column"], row["column_order"]) for row in rows} == {("64", 0), ("128", 1), ("1024", 2)}


def test_speedups_are_lines_over_the_parameter_beside_the_baseline_and_without_wrong_answers() -> None:
    made = document()
    (chart,) = [chart for chart in charts.OVER if chart.rows(made)]
    rows = chart.rows(made)
    assert chart.name == "sweep-speedup-log" and [(row["line"], row["x"]) for row in rows if row["line"] != row["over"]] == [
        ("torch/fused", 64),
        ("torch/fused", 128),
    ]
    assert {row["speedup"] for row in rows if row["line"] == row["over"]} == {1.0}, "each variant keeps the colour it has among the times"
    assert all(tuple(sorted(row)) == tuple(sorted(chart.columns)) for row in rows)
    assert "times as fast as torch/eager" in drawn(chart, rows)
    assert charts.OVER[0].rows(document(("f32", "bf16"), "name")) == []
