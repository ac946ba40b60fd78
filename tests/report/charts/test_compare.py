from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from steelyard.report.charts.compare import CHARTS, FOREST_PLOT, compare_forest_rows, compare_scatter_rows, left_out
from tests.report.charts.drawn import drawn

EVIL = "op/x[n=1]@torch/<script>alert(1)</script>:eval"


def delta(case: str, ratio: float | None, *, half: float = 0.01, verdict: str = "slower", metric: str = "time") -> dict[str, Any]:
    known = ratio is not None
    low, high = (ratio - half, ratio + half) if ratio else (None, None)
    return {
        "case": case, "base": case, "metric": metric, "ratio": ratio, "low": low, "high": high,
        "margin": 0.02, "verdict": verdict, "effect": f"{ratio} as written by model/effects.py", "paired": False, "reason": "", "p": 0.001,
        "before": [1e-5, 0.99e-5, 1.01e-5, 40] if known else None, "after": [1e-5 * ratio, None, None, None] if ratio else None,
    }  # fmt: skip


def document(*deltas: dict[str, Any]) -> dict[str, Any]:
    cases = [{"id": item["case"], "workload": "op/x", "label": f"n={at % 2}"} for at, item in enumerate(deltas)]
    metrics = {"time": {"unit": "s", "better": "lower", "label": "time per call"}}
    return {"cases": cases, "metrics": metrics, "comparison": {"deltas": list(deltas)}}


def test_rows_come_by_effect_in_either_direction_and_without_those_that_have_no_ratio() -> None:
    silent, other = delta("none", None, verdict="failed"), delta("third", 1.4, metric="memory")
    made = document(delta("small", 1.03), delta("half", 0.5, verdict="faster"), silent, other)
    rows = compare_forest_rows(made)
    assert [row["case"] for row in rows] == ["half", "small"]
    assert [row["case"] for row in compare_forest_rows(made, most=1)] == ["half"]
    assert (rows[1]["margin_low"], rows[1]["margin_high"]) == (pytest.approx(1 / 1.02), 1.02)


def test_the_caption_says_what_the_marks_do() -> None:
    """A bar that reaches into the margin has a direction and no settled size: its mark is hollow, and the caption says so."""
    marks = [layer for layer in FOREST_PLOT.spec["layer"] if layer["mark"]["type"] == "point"]
    assert [layer["mark"]["filled"] for layer in marks] == [True, False]
    assert "hollow" in FOREST_PLOT.reading and "anything else" not in FOREST_PLOT.reading
    made = document(delta("clear", 1.2), delta("open", 1.025))
    assert all(row["low"] > 1 for row in compare_forest_rows(made)) and compare_forest_rows(made)[1]["low"] < 1.02


def test_labels_are_short_unless_two_would_read_the_same() -> None:
    made = document(delta("a", 1.1), delta("b", 1.2), delta("c", 1.3))
    assert {row["case"]: row["label"] for row in compare_forest_rows(made)} == {"a": "a", "b": "n=1", "c": "c"}


def test_what_all_labels_end_with_is_known_so_that_a_phone_can_leave_it_out() -> None:
    def tail(*labels: str) -> str:
        made = document(*(delta(str(at), 1.1 + at) for at in range(len(labels))))
        made["cases"] = [{**case, "label": label} for case, label in zip(made["cases"], labels, strict=True)]
        (found,) = {row["tail"] for row in compare_forest_rows(made)}
        return str(found)

    assert tail("bert eval torch/compile", "bert train torch/compile") == " torch/compile"
    assert tail("a x y", "b x y") == " x y"
    assert tail("x y", "x z") == tail("a x y") == tail("x", "a x") == ""
    assert tail("n x", "x x") == " x"


def test_a_value_that_a_logarithmic_axis_cannot_hold_is_no_dot() -> None:
    bad = delta("zero", 1.5)
    bad["before"] = [0.0, None, None, None]
    made = document(bad, delta("fine", 1.1), delta("failed", None, verdict="failed"))
    assert [row["case"] for row in compare_scatter_rows(made)] == ["fine"]
    assert left_out(made, compare_scatter_rows(made)) == "not drawn: 1 without a ratio, 1 without a time on both sides"
    assert left_out(document(delta("fine", 1.1)), compare_scatter_rows(document(delta("fine", 1.1)))) == ""


def test_a_case_whose_times_alone_belie_its_pairs_stands_where_the_pairs_put_it() -> None:
    odd = delta("odd", 1.1) | {"paired": True}
    odd["after"] = [3e-5, None, None, None]
    (row,) = compare_scatter_rows(document(odd))
    assert row["after"] == pytest.approx(row["before"] * 1.1)


def test_a_report_without_comparison_has_no_rows() -> None:
    empty = {**document(), "comparison": None}
    assert compare_forest_rows(empty) == compare_scatter_rows(empty) == []


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_chart_draws_its_rows_and_keeps_their_names_as_text(chart: Any) -> None:
    made = document(delta(EVIL, 1.2), delta("op/x[n=2]@torch/eager:eval", 0.9, verdict="faster"), delta("same", 1.0, verdict="same"))
    rows = chart.rows(made)
    assert all(tuple(sorted(row)) == tuple(sorted(chart.columns)) for row in rows)
    before = copy.deepcopy(chart.spec)
    picture = drawn(chart, rows)
    assert picture.count("<path") >= len(rows) and "<script" not in picture
    assert chart.spec == before


def test_interval_and_margin_are_both_drawn() -> None:
    text = json.dumps(FOREST_PLOT.spec)
    assert all(name in text for name in ("margin_low", "margin_high", "low", "high"))
