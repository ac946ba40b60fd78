from __future__ import annotations

import random
from typing import Any

import pytest

from steelyard.report.charts import history as charts
from tests.report.charts.drawn import drawn

STEP, NIGHTS = 30, 60


def series(noisy: range = range(0), spread: float = 0.001) -> dict[str, Any]:
    """Sixty nights with a step of 3 % at the thirtieth; noisy ones scatter ten times as much."""
    rng = random.Random(7)
    points = []
    for night in range(NIGHTS):
        scatter = spread * (10 if night in noisy else 1)
        time = 1e-3 * (1.03 if night >= STEP else 1.0) * (1 + rng.uniform(-scatter, scatter))
        when = f"2026-{9 + night // 30:02d}-{night % 30 + 1:02d}T02:00:00Z"
        points.append([f"n{night}", 1, when, time, time * (1 - scatter), time * (1 + scatter), f"{night:040x}", False, None])
    change = {"index": STEP, "run": f"n{STEP}", "created": points[STEP][2], "before": 1e-3, "after": 1.03e-3, "ratio": 1.03, "low": 1.028,
              "high": 1.032, "p": 0.001, "last": "a" * 40, "first": "b" * 40, "dirty": False, "others": []}  # fmt: skip
    return {"case": "op@torch/eager:eval", "machine": 0, "points": points, "changes": [change], "broken": 0, "searched": NIGHTS}


def document(*found: dict[str, Any]) -> dict[str, Any]:
    quantiles = {"q10": 0.9, "q25": 1.1, "q50": 1.4, "q75": 1.6, "q90": 2.0}
    points = [
        {"run": f"n{night}", "created": f"2026-09-{night:02d}T02:00:00Z", "column": column, "mean": mean, "n": 6, **quantiles}
        for night in (1, 2, 3)
        for column, mean in (("eager", 1.0), ("jit", 1.4), ("xla", 1.5))
    ]
    latest = [{"column": "jit", "row": name, "speedup": value, "low": None, "high": None} for name, value in (("b", 1.5), ("a", 0.8))]
    trends = {"baseline": "eager", "columns": ["eager", "jit", "xla"], "points": points, "latest": latest}
    return {"history": {"series": list(found), "trends": trends}}


@pytest.mark.parametrize("chart", charts.CHARTS, ids=lambda chart: str(chart.name))
def test_rows_have_the_columns_of_their_chart_and_none_without_history(chart: charts.Chart) -> None:
    rows_of = chart.rows
    rows = rows_of(document(series()))
    assert rows and all(tuple(row) == chart.columns for row in rows)
    assert rows_of({"history": None}) == []
    assert "</svg>" in drawn(chart, rows)


def test_a_change_names_its_size_and_its_commits_and_parts_the_levels() -> None:
    rows = charts.series_rows(series())
    (change,) = [row for row in rows if row["kind"] == "change"]
    assert change["label"] == f"3.00 % slower [2.80, 3.20], {'a' * 9}..{'b' * 9}" and change["verdict"] == "slower"
    levels = [row["time"] for row in rows if row["kind"] == "level"]
    assert levels == [pytest.approx(1e-3, rel=0.002), pytest.approx(1.03e-3, rel=0.002)]
    picture = drawn(charts.CHARTS[0], rows)
    assert f"3.00 % slower [2.80, 3.20], {'a' * 9}..{'b' * 9}" in picture and "time per call" in picture


def test_a_noisy_period_is_marked_and_a_step_is_not_one() -> None:
    assert charts.noisy_stretches(series()["points"]) == []
    (stretch,) = charts.noisy_stretches(series(noisy=range(10, 20))["points"])
    assert stretch[0] in range(8, 12) and stretch[1] in range(18, 22)
    assert charts.noisy_stretches([]) == []


def test_the_series_that_changed_most_is_drawn_unless_another_is_asked_for() -> None:
    still = {**series(), "case": "still", "changes": []}
    made = document(still, series())
    assert {row["case"] for row in charts.history_series_rows(made)} == {"op@torch/eager:eval"}
    assert {row["case"] for row in charts.history_series_rows(made, "still")} == {"still"}


def test_a_run_that_lacks_many_models_is_no_trend() -> None:
    made = document()
    for point in made["history"]["trends"]["points"]:
        point["n"] = 3 if point["run"] == "n2" else 6
    rows = charts.history_speedup_rows(made)
    assert {row["run"] for row in rows if row["partial"]} == {"n2"} and len(rows) == 9
    assert {row["run"] for row in charts.history_quantiles_rows(made)} == {"n1", "n3"}
    assert "</svg>" in drawn(charts.CHARTS[2], rows)


def test_the_three_plots_show_the_baseline_beside_the_others_and_share_one_scale() -> None:
    made = document()
    spread = charts.history_quantiles_rows(made, "xla")
    assert [row["column"] for row in spread] == ["xla"] * 3
    ((least, most),) = {(row["least"], row["most"]) for row in spread}
    assert 0.8 < least < 0.9 and 2.0 < most < 2.2
    assert {row["column"] for row in charts.history_speedup_rows(made)} == {"eager", "jit", "xla"}
    assert [(row["rank"], row["row"]) for row in charts.history_latest_rows(made)] == [(1, "a"), (2, "b")]
    picture = drawn(charts.CHARTS[2], charts.history_speedup_rows(made))
    assert picture.count(">jit<") == 1 and "geometric mean over the oldest eager" in picture
    alone = {**made["history"]["trends"], "columns": ["eager"]}
    assert not charts.history_speedup_rows({"history": {"series": [], "trends": alone}})
