"""Models by stacks: cells, speedups over any baseline with the interval they deserve, common means, pass rates."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.matrix import MOST_BASELINES, StackTable, matrix, wins
from steelyard.analyze.stacks import grid, newest, parse, pick, stacks
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import REFERENCE
from steelyard.store.runs import Header, Run
from tests.analyze.saved import pair, record


def point(model: str, variant: str = "eager", backend: str = "torch", mode: str = "eval", **more: Any) -> str:
    return Case(f"model/{model}", (("batch", 8),), backend, variant, mode, **more).id


def run(answers: dict[str, float | str], *pairs: Pair, name: str = "a", **header: Any) -> Run:
    return Run(Path(name), Header(id=name, **header), tuple(record(id, answer) for id, answer in answers.items()), pairs)


def table(*runs: Run, **options: Any) -> StackTable:
    found = matrix(newest(runs), runs, **options)
    assert found is not None
    return found


def test_rows_are_what_is_computed_and_columns_the_stack() -> None:
    found = table(run({point("a"): 1.0, point("a", "compile"): 0.5, point("b"): 2.0, point("b", "eager", "jax", "train"): 3.0}))
    assert found.columns == ["torch/eager", "torch/compile", "jax/eager"]
    assert [(row.name, row.workload, row.params, row.mode) for row in found.rows] == [
        ("model/a", "model/a", "batch=8", "eval"),
        ("model/b eval", "model/b", "batch=8", "eval"),
        ("model/b train", "model/b", "batch=8", "train"),
    ]
    assert [[cell and cell.case for cell in row] for row in found.cells] == [
        [point("a"), point("a", "compile"), None],
        [point("b"), None, None],
        [None, None, point("b", "eager", "jax", "train")],
    ]


def test_a_backend_that_only_shows_what_is_right_is_named_as_a_reference() -> None:
    slow = point("a", "eager", "interpreter")
    known = run({point("a"): 1.0, slow: 900.0})
    assert table(known).references == []
    records = [replace(each, effective={REFERENCE: True}) if each.id == slow else each for each in known.records]
    assert table(replace(known, records=tuple(records))).references == ["interpreter/eager"]


def test_a_speedup_is_the_baseline_over_the_own_time_at_the_worst_of_both_intervals() -> None:
    found = table(run({point("a"): 1.0, point("a", "compile"): 0.5}))
    ratio, low, high, paired = found.by_baseline["torch/eager"].speedups[0][1] or (0, 0, 0, 1)
    assert (ratio, paired) == (2.0, 0)
    assert (low, high) == (pytest.approx(0.999 / 0.5005), pytest.approx(1.001 / 0.4995))
    assert found.by_baseline["torch/compile"].speedups[0][0] == (0.5, pytest.approx(0.4995 / 1.001), pytest.approx(0.5005 / 0.999), 0)


def test_what_was_weighed_together_has_the_interval_of_the_pair_in_both_directions() -> None:
    weighed = pair(point("a"), point("a", "compile"), 0.6, 0.01)
    found = table(run({point("a"): 1.0, point("a", "compile"): 0.5}, weighed))
    assert found.by_baseline["torch/eager"].speedups[0][1] == (1 / 0.6, pytest.approx(1 / 0.61), pytest.approx(1 / 0.59), 1)
    assert found.by_baseline["torch/compile"].speedups[0][0] == (0.6, 0.59, 0.61, 1)


def test_a_pair_counts_only_for_the_records_of_its_own_run() -> None:
    weighed = pair(point("a"), point("a", "compile"), 0.6, 0.01)
    old = run({point("a"): 1.0, point("a", "compile"): 0.6}, weighed)
    new = run({point("a", "compile"): 0.25}, name="b")
    assert table(old, new).by_baseline["torch/eager"].speedups[0][1][0::3] == (4.0, 0)  # type: ignore[index]


def test_a_pair_without_bounds_is_not_used() -> None:
    weighed = Pair(Arm(point("a")), Arm(point("a", "compile")), 0.6, 0.0, math.inf, 0.99, 2, 2, 1, (1, 1))
    assert table(run({point("a"): 1.0, point("a", "compile"): 0.5}, weighed)).by_baseline["torch/eager"].speedups[0][1][3] == 0  # type: ignore[index]


def test_means_are_over_the_rows_that_every_working_column_has() -> None:
    answers: dict[str, float | str] = {}
    for model, fast in (("a", 0.5), ("b", 0.25), ("c", 0.01)):
        answers |= {point(model): 1.0, point(model, "compile"): fast, point(model, "eager", "jax"): 2.0, point(model, "broken"): "failed"}
    answers[point("c", "eager", "jax")] = "oom"
    held = table(run(answers)).by_baseline["torch/eager"]
    assert [mean and (round(mean.mean, 6), mean.n) for mean in held.means] == [(1.0, 2), (round(8**0.5, 6), 2), (0.5, 2), None]
    each = held.each[1]
    assert each and each.n == 3 and each.mean == pytest.approx((2 * 4 * 100) ** (1 / 3))


def test_only_ok_enters_a_speedup_and_pass_rates_count_everything() -> None:
    answers: dict[str, float | str] = {point(name): 1.0 for name in "abcdef"}
    statuses = ("wrong", "crashed", "unsupported", "timeout", "not_applied")
    answers |= {point(name, "compile"): status for name, status in zip("abcde", statuses, strict=True)}
    answers[point("f", "compile")] = 0.5
    found = table(run(answers))
    assert [row[1] is None for row in found.by_baseline["torch/eager"].speedups] == [True] * 5 + [False]
    rates = found.pass_rates[1]
    assert (rates.ok, rates.wrong, rates.failed, rates.unsupported, rates.total) == (1, 1, 2, 2, 6)


def test_the_baseline_is_the_one_asked_for_else_what_was_weighed_against_else_eager() -> None:
    answers: dict[str, float | str] = {point("a", "compile"): 0.5, point("a"): 1.0, point("a", "eager", "jax"): 1.0}
    assert table(run(answers)).baseline == "torch/eager"
    assert table(run(answers, settings={"vs": "compile"})).baseline == "torch/compile"
    assert table(run(answers), baseline="jax").baseline == "jax/eager"
    assert table(run(answers), baseline="jax/eager").by_baseline["jax/eager"].speedups[0][0] is not None
    with pytest.raises(UsageError, match="no column named 'jaxx'"):
        table(run(answers), baseline="jaxx")


def test_a_baseline_needs_no_more_than_backend_and_variant() -> None:
    columns = ("torch/eager env=old", "torch/eager env=here", "torch/compile:cpu env=old")
    counts = dict.fromkeys(columns, 1)
    assert [pick(columns, counts, asked) for asked in ("torch/eager", "torch/compile")] == ["torch/eager env=here", columns[2]]


def test_at_most_eight_columns_serve_as_baseline_the_most_complete_ones() -> None:
    answers: dict[str, float | str] = {point("a", f"v{number}"): 1.0 for number in range(12)}
    answers |= {point("b", f"v{number}"): 1.0 for number in range(4, 12)} | {point("a"): 1.0}
    found = table(run(answers))
    assert len(found.by_baseline) == MOST_BASELINES and found.baseline in found.by_baseline
    assert set(found.by_baseline) - {"torch/eager"} <= {f"torch/v{number}" for number in range(4, 12)}


def test_devices_environments_and_flags_are_named_only_where_there_are_several() -> None:
    cases = {id: parse(id) for id in (point("a"), point("a", device="cuda"), point("a", device="cuda", flags=(("XLA_FLAGS", "--x"),)))}
    assert list(stacks(cases).values()) == ["torch/eager:cpu", "torch/eager:cuda", "torch/eager:cuda XLA_FLAGS=--x"]
    homes = {id: parse(id) for id in (point("a"), point("a", env="old"))}
    assert list(stacks(homes).values()) == ["torch/eager env=here", "torch/eager env=old"]
    assert len(grid(homes).rows) == 1
    assert list(stacks({point("a"): parse(point("a"))}).values()) == ["torch/eager"]


def test_one_stack_alone_makes_no_matrix() -> None:
    runs = [run({point("a"): 1.0, point("b"): 2.0})]
    assert matrix(newest(runs), runs) is None
    assert matrix([], []) is None


def test_another_tools_case_is_a_row_of_its_name() -> None:
    assert grid({"foreign/pyperf:x y": {"workload": "foreign/pyperf:x y", "backend": "pyperf"}}).columns == ("pyperf/eager",)
    assert parse("no id of ours") == {"workload": "no id of ours"}


seconds = st.floats(1e-9, 1e3)


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from(["eager", "compile", "x"])), st.one_of(seconds, st.just("oom"))))
def test_every_case_has_one_cell_and_speedups_multiply(answers: dict[tuple[str, str], float | str]) -> None:
    runs = [run({point(model, variant): answer for (model, variant), answer in answers.items()})]
    found = matrix(newest(runs), runs)
    if found is None:
        return
    assert sorted(cell.case for row in found.cells for cell in row if cell) == sorted(item.id for item in runs[0].records)
    for base, held in found.by_baseline.items():
        column = found.columns.index(base)
        for other, beside in found.by_baseline.items():
            for row, back in zip(held.speedups, beside.speedups, strict=True):
                there, again = row[found.columns.index(other)], back[column]
                assert (there is None) == (again is None)
                assert there is None or again is None or there[0] * again[0] == pytest.approx(1.0)


def test_only_a_stack_that_can_be_told_from_the_next_wins_a_row() -> None:
    answers = {point("a"): 1.0, point("a", "compile"): 0.5, point("b"): 1.0, point("b", "compile"): 0.9999, point("c"): 1.0}
    found = wins(table(run(answers)))
    assert (found.by_column, found.close, found.rows) == ({"torch/compile": 1}, 1, 2)
    broken = wins(table(run({point("a"): 1.0, point("a", "compile"): 0.5, point("a", "fast"): "wrong"})))
    assert broken.by_column == {"torch/compile": 1}


def test_a_pair_tells_apart_what_two_times_cannot() -> None:
    answers = {point("a"): 1.0, point("a", "compile"): 0.9999}
    sure, open_ = (pair(point("a"), point("a", "compile"), 0.9999, half) for half in (0.00005, 0.01))
    assert wins(table(run(answers, sure))).by_column == {"torch/compile": 1}
    assert wins(table(run(answers, open_))).close == 1
