from __future__ import annotations

from typing import Any

import pytest

from steelyard.report.charts import Chart
from steelyard.report.charts import case as charts
from tests.report.charts.drawn import drawn

ID = "op/x[n=1]@torch/eager:eval"


def case(**changes: Any) -> dict[str, Any]:
    samples = {
        "unit": "s", "count": 8, "index": None, "time": [1e-5, 1.01e-5, 1.02e-5, 1e-5, 1.01e-5, 9e-5, 1.02e-5, 1.03e-5],
        "discarded": [0, 0, 0, 0, 0, 1, 0, 0], "throttled": [0, 0, 0, 0, 0, 0, 0, 1],
        "clock": {"unit": "Hz", "index": [0, 4], "values": [1.98e9, 1.4e9]},
    }  # fmt: skip
    metrics = {"time": [1.01e-5, 1e-5, 1.02e-5, 7], "build_time": [0.5, None, None, 1], "first_call_time": [0.02, None, None, 1]}
    made = {"id": ID, "status": "ok", "metrics": metrics, "effective": {"warmup_time": 0.1}, "samples": samples}
    return made | changes


def rows_of(chart: Chart, document: dict[str, Any]) -> list[dict[str, Any]]:
    return list(chart.rows(document))


def test_a_sample_far_off_is_drawn_at_the_edge_and_keeps_its_value() -> None:
    rows = [row for row in charts.case_samples_rows({"cases": [case()]}) if row["time"]]
    far = rows[5]
    assert (far["time"], far["state"], far["text"]) == (9e-5, "discarded", "90.00 µs")
    assert far["drawn"] == max(row["time"] for row in rows if row["state"] != "discarded")
    assert rows[7]["state"] == "throttled"


def test_disturbed_samples_count_where_too_few_were_undisturbed() -> None:
    """Else one undisturbed sample would set the scale, and all others would stand at its edge."""
    noisy = case()
    noisy["samples"] |= {"discarded": [0, 1, 1, 1, 1, 1, 1, 1], "kept": True}
    rows = [row for row in charts.case_samples_rows({"cases": [noisy]}) if row["time"]]
    assert [row["state"] for row in rows] == ["kept", *["discarded"] * 7] and all(row["counts"] for row in rows)
    assert [row["time"] for row in rows if row["drawn"] == row["time"]] == [row["time"] for row in rows if row["time"] < 5e-5]
    assert len(charts.case_cumulative_rows({"cases": [noisy]})) == 8
    noisy["samples"] |= {"kept": False}
    assert [row["counts"] for row in charts.case_samples_rows({"cases": [noisy]}) if row["time"]] == [True, *[False] * 7]


def test_order_is_that_of_measuring_even_where_samples_were_thinned() -> None:
    thinned = case()
    thinned["samples"] |= {"index": [0, 10, 20, 30, 40, 50, 60, 70], "count": 80}
    assert [row["order"] for row in charts.case_samples_rows({"cases": [thinned]}) if row["time"]] == [0, 10, 20, 30, 40, 50, 60, 70]


def test_clocks_are_drawn_only_where_they_were_read() -> None:
    without = case()
    without["samples"] |= {"clock": None}
    assert charts.case_clocks_rows({"cases": [without]}) == []
    read = [(row["order"], row["clock_text"]) for row in charts.case_clocks_rows({"cases": [case()]}) if row["clock"]]
    assert read == [(0, "1.98 GHz"), (4, "1.40 GHz")]


def test_the_distribution_is_of_what_counts() -> None:
    counted = [row["time"] for row in charts.case_cumulative_rows({"cases": [case()]})]
    assert counted == [1e-5, 1.01e-5, 1.02e-5, 1e-5, 1.01e-5, 1.02e-5, 1.03e-5]
    bins = charts.case_distribution_rows({"cases": [case()]})
    assert sum(row["number"] for row in bins) == 7 and sum(row["share"] for row in bins) == pytest.approx(1)
    assert (bins[0]["least"], bins[-1]["most"]) == (1e-5, pytest.approx(1.03e-5))


def test_a_slow_tail_is_counted_at_the_edge_and_not_left_out() -> None:
    slow = case()
    slow["samples"] |= {"time": [*slow["samples"]["time"][:6], 1.0e-5, 1.03e-5], "discarded": None}
    rows = charts.case_cumulative_rows({"cases": [slow]})
    edge = max(row["drawn"] for row in rows)
    assert len(rows) == 8 and [row["drawn"] for row in rows if row["time"] == 9e-5] == [edge] and edge < 9e-5
    bins = charts.case_distribution_rows({"cases": [slow]})
    assert sum(row["number"] for row in bins) == 8 and bins[-1]["number"] == 1


def test_phases_come_in_the_order_of_a_run_and_unknown_ones_are_left_out() -> None:
    assert [row["phase"] for row in charts.case_phases_rows({"cases": [case()]})] == ["build", "first call", "warm-up", "steady, one call"]
    odd = case(effective={"warmup_time": "long"}, metrics={})
    assert charts.case_phases_rows({"cases": [odd]}) == []


def test_a_case_is_chosen_by_its_id() -> None:
    other = case(id="other", samples=None)
    document = {"cases": [other, case()]}
    assert charts.case_samples_rows(document)[0]["case"] == ID
    assert charts.case_samples_rows(document, "other") == charts.case_samples_rows({"cases": []}) == []
    assert charts.case_phases_rows(document, "other")[0]["case"] == "other"


@pytest.mark.parametrize("times", [[1e-5], [1e-5, 1e-5, 1e-5], [0.0, 0.0]])
def test_equal_samples_have_a_scale_too(times: list[float]) -> None:
    low, high = charts.scale_ends(times)
    assert low <= min(times) and high >= max(times)


@pytest.mark.parametrize("chart", charts.CHARTS, ids=lambda chart: chart.name)
def test_a_chart_draws_its_rows(chart: Chart) -> None:
    rows = rows_of(chart, {"cases": [case()]})
    assert rows and all(sorted(row) == sorted(chart.columns) for row in rows)
    assert drawn(chart, rows).count("<path") > 4
