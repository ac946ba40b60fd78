"""Speedups over runs, as PyTorch/XLA's three reports ask for them."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.analyze.history import History, Point
from steelyard.analyze.stacks import parse
from steelyard.analyze.trends import Trends, trends
from tests.analyze.saved import case


def series(id: str, times: dict[int, float], key: str = "m") -> History:
    points = [Point(f"r{night}", 1, f"2026-01-{night:02}T03:00:00Z", time, time * 0.99, time * 1.01) for night, time in times.items()]
    return History(id, key, points)


def told(*known: History, baseline: str | None = None) -> Trends | None:
    return trends({item.case: item for item in known}, {item.case: parse(item.case) for item in known}, baseline=baseline)


def test_a_speedup_is_over_the_oldest_time_of_the_baseline() -> None:
    found = told(
        series(case("a"), {1: 1.0, 2: 0.8}), series(case("b"), {1: 4.0, 2: 4.0}),
        series(case("a", "compile"), {1: 0.5, 2: 0.25}), series(case("b", "compile"), {2: 1.0}),
    )  # fmt: skip
    assert found and (found.baseline, found.columns) == ("torch/eager", ["torch/eager", "torch/compile"])
    means = {(point.run, point.column): (round(point.mean, 9), point.n) for point in found.points}
    assert means == {
        ("r1", "torch/eager"): (1.0, 1), ("r2", "torch/eager"): (round(1.25**0.5, 9), 2),
        ("r1", "torch/compile"): (2.0, 1), ("r2", "torch/compile"): (4.0, 2),
    }  # fmt: skip


def test_means_of_a_run_are_over_the_rows_that_all_its_stacks_have() -> None:
    found = told(
        series(case("a"), {1: 1.0, 2: 1.0}), series(case("b"), {1: 1.0, 2: 0.25}), series(case("a", "compile"), {1: 0.5, 2: 0.5}),
        series(case("b", "fused"), {2: 0.5}),
    )  # fmt: skip
    means = {(point.run, point.column): (point.mean, point.n) for point in found.points} if found else {}
    assert means["r1", "torch/eager"] == (1.0, 1) and means["r1", "torch/compile"] == (2.0, 1)
    assert means["r2", "torch/eager"] == (2.0, 2) and means["r2", "torch/fused"] == (2.0, 1), "nothing is common, so each over its own"


def test_quantiles_are_those_of_the_rows_of_a_run() -> None:
    known = [series(case(number), {1: 1.0, 2: 1.0 / (1 + number)}) for number in range(10)]
    found = told(*known)
    assert found
    last = found.points[-1]
    assert [last.q10, last.q25, last.q50, last.q75, last.q90] == pytest.approx(np.quantile(np.arange(1, 11), [0.1, 0.25, 0.5, 0.75, 0.9]))


def test_latest_is_each_stacks_own_newest_run_from_the_slowest_row() -> None:
    found = told(
        series(case("a"), {1: 1.0, 2: 2.0}), series(case("b"), {1: 1.0, 2: 0.5}), series(case("a", "compile"), {1: 0.5}),
    )  # fmt: skip
    assert found
    rows = [(item.column, item.row, item.speedup) for item in found.latest]
    assert rows == [("torch/eager", "op/a", 0.5), ("torch/eager", "op/b", 2.0), ("torch/compile", "op/a", 2.0)]
    assert found.latest[0].low == pytest.approx(0.99 / 2.02) and found.latest[0].high == pytest.approx(1.01 / 1.98)


def test_the_baseline_can_be_chosen_and_rows_without_it_are_left_out() -> None:
    known = [series(case("a", "compile"), {1: 1.0, 2: 1.0}), series(case("a"), {1: 2.0, 2: 2.0}), series(case("b"), {1: 9.0, 2: 9.0})]
    found = told(*known, baseline="compile")
    assert found and found.baseline == "torch/compile"
    assert {(point.column, point.mean, point.n) for point in found.points} == {("torch/compile", 1.0, 1), ("torch/eager", 0.5, 1)}


def test_series_of_other_machines_and_single_runs_say_nothing() -> None:
    old = series(case("b"), {1: 1.0, 2: 1.0}, "elsewhere")
    found = told(series(case("a"), {3: 1.0, 4: 1.0}), old)
    assert found and {point.run for point in found.points} == {"r3", "r4"}
    assert told(series(case("a"), {1: 1.0})) is None and told() is None
