"""What a page says first is its finding, in words that the figures beside it do not belie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze.compare import Comparison, RunsSide
from steelyard.model.pair import Delta, Pair
from steelyard.model.record import Figure, Record
from steelyard.report.charts.compare import compare_scatter_rows
from steelyard.report.web.document import document
from steelyard.report.web.words import banner
from steelyard.store.runs import Header, Run, Seal
from tests.analyze.saved import case, delta, pair, record

NAMES = ("a", "b", "c")


def run(records: list[Record], *pairs: Pair, name: str = "k3f9", **header: Any) -> Run:
    known = {"machine_key": "m" * 12, "created": "2026-01-02T03:00:00Z", **header}
    return Run(Path(name), Header(id=name, **known), tuple(records), pairs, Seal("", len(records)))


def weighed(half: float = 0.01, **ratios: float) -> dict[str, Any]:
    """The page of a run that holds `compile` against `eager`, one pair for each name."""
    records = [
        record(case(name, variant), time) for name, ratio in ratios.items() for variant, time in (("eager", 1.0), ("compile", ratio))
    ]
    pairs = [pair(case(name), case(name, "compile"), ratio, half) for name, ratio in ratios.items()]
    return document([run(records, *pairs)])


@pytest.mark.parametrize(
    ("ratio", "half", "words"),
    [
        (0.5, 0.01, "On op/a, compile against eager: 2.00x faster [1.96, 2.04]."),
        (2.0, 0.01, "On op/a, compile against eager: 2.000x slower [1.990, 2.010]."),
        (1.0, 0.01, "On op/a, compile against eager: within 2 % [-1.0, 1.0]."),
        (1.015, 0.03, "On op/a, compile against eager: unclear [-2, 4]."),
    ],
)
def test_one_pair_is_told_as_one_would_say_it(ratio: float, half: float, words: str) -> None:
    assert weighed(half, a=ratio)["banner"]["sentences"] == [words]


def test_a_stack_slower_than_another_in_one_run_is_a_result_and_no_alarm() -> None:
    slower, both = weighed(a=1.5, b=1.5, c=1.5)["banner"], weighed(a=1.5, b=1.5, c=0.5)["banner"]
    assert (slower["tone"], both["tone"]) == ("none", "mixed")
    assert slower["sentences"][0].startswith("All 3 weighed cases are slower than eager") and slower["text"] == " ".join(
        slower["sentences"]
    )


def test_several_bases_are_told_apart_and_have_no_common_mean() -> None:
    """Faster than one base and slower than another is no mean of both."""
    variants = {"eager": 1.0, "compile": 0.5, "slow": 2.0}
    records = [record(case(name, variant), time) for name in NAMES for variant, time in variants.items()]
    pairs = [pair(case(name), case(name, "compile"), 0.5, 0.01) for name in NAMES]
    pairs += [pair(case(name, "compile"), case(name, "slow"), 4.0, 0.01) for name in NAMES]
    page = document([run(records, *pairs)])
    first, second = page["banner"]["sentences"][:2]
    assert first.startswith("All 3 weighed cases are faster than eager") and "2.00x faster [1.96, 2.04], geometric mean of 3" in first
    assert second.startswith("All 3 weighed cases are slower than compile") and "geometric mean of 3" in second
    assert page["comparison"]["means"] == {}
    assert [delta["effect"].rpartition(" vs ")[2] for delta in page["comparison"]["deltas"]] == ["eager"] * 3 + ["compile"] * 3


def test_the_same_against_another_run_is_an_alarm_and_a_wrong_answer_comes_before_it() -> None:
    base = run([record(case(name), 1.0) for name in NAMES], name="old")
    head = run([record(case("a"), 2.0), record(case("b"), 1.0), record(case("c"), "wrong")], created="2026-01-03T03:00:00Z")
    found = document([head], base=RunsSide("old", (base,)))["banner"]
    assert found["tone"] == "bad" and found["sentences"][0] == "1 wrong of 3 cases." and "slower than old" in found["sentences"][1]


ALONE, WIDE = {"paired": False}, {"half": 0.0195}


@pytest.mark.parametrize(
    ("found", "tone"),
    [
        ([(1.0, {})] * 3, "good"),
        ([(1.0, ALONE), (1.0, {}), (0.5, {})], "good"),
        ([(1.0, {})] + [(1.0095, {"half": 0.03})] * 39, "mixed"),
        ([(0.5, ALONE), (1.0, {})], "mixed"),
        ([(0.9635, WIDE), (1.0, {})], "mixed"),
        ([(1.5, {}), (1.0, {})], "bad"),
        ([(1.5, {}), (0.5, {})], "bad"),
        ([(1.5, ALONE), (1.0, {})], "mixed"),
        ([(1.0365, WIDE), (1.0, {})], "mixed"),
        ([(1.0095, {"half": 0.03})] * 3, "none"),
        ([], "none"),
    ],
)
def test_a_colour_is_for_what_is_settled_and_one_clear_case_does_not_speak_for_the_others(
    found: list[tuple[float, dict[str, Any]]], tone: str
) -> None:
    deltas = [delta(case(place), ratio, **{"half": 0.005, **how}) for place, (ratio, how) in enumerate(found)]
    assert banner({"ok": len(deltas)}, {}, Comparison("old", "new", deltas), None, {}).tone == tone


def test_a_pair_without_an_end_or_a_case_that_is_gone_is_not_green() -> None:
    same = delta(case("a"), 1.0, 0.005)
    for other in (Delta("b", "b", "time", None, None, None, 0.02, verdict, paired=True) for verdict in ("unclear", "missing")):
        assert banner({"ok": 2}, {}, Comparison("old", "new", [same, other]), None, {}).tone == "mixed"


def test_nothing_told_apart_is_said_with_how_much_could_have_been() -> None:
    wide = [replace(record(case(name), 1.0), metrics={"time": Figure(1.0, "s", "lower", 0.9, 1.1, 40)}) for name in NAMES]
    found = document([run(wide, created="2026-01-03T03:00:00Z")], base=RunsSide("old", (run(wide, name="old"),)))["banner"]
    assert found["tone"] == "none" and found["sentences"][0].startswith("No case changed by more than these runs can tell (typically ± ")
    assert "against old)" in found["sentences"][0]


def test_figures_of_cases_timed_alone_do_not_belie_the_change_of_their_pairs() -> None:
    records = [record(case("a"), 1.0), record(case("a", "compile"), 1.01), record(case("b"), 1.0), record(case("b", "compile"), 1.24)]
    pairs = [pair(case(name), case(name, "compile"), 1.24, 0.09) for name in ("a", "b")]
    found = document([run(records, *pairs)])
    assert [delta["reason"] for delta in found["comparison"]["deltas"]] == [
        "timed alone, head is 1.0 % slower; the verdict uses the interleaved pairs", "",
    ]  # fmt: skip
    assert {row["case"]: row["after"] for row in compare_scatter_rows(found)} == {case(name, "compile"): 1.24 for name in ("a", "b")}


def test_a_noisy_machine_is_warned_of_where_most_cases_suffered() -> None:
    records = [replace(record(case(name), 1.0), effective={"noise": grade}) for name, grade in zip(NAMES, "DDA", strict=True)]
    (warning,) = document([run(records)])["warnings"]
    assert (
        warning
        == "2 of 3 cases are noisy (grade D): the machine was not quiet; times are good to ± 0.1 %, smaller differences are unreliable"
    )
    assert document([run([*records, record(case("d"), 1.0)])])["warnings"] == []


def test_what_all_cases_share_is_said_once_and_few_workloads_name_the_page() -> None:
    both = document([run([record(case("a"), 1.0), record(case("a", "compile"), 1.0)])])
    assert both["common"] == ["op/a · n=64 · torch · eval · cpu · 1 thread"] and both["title"] == "op/a, eager and compile · 2026-01-02"
    assert document([run([record(case("a"), 1.0)])])["common"] == ["op/a · n=64 · torch/eager · eval · cpu · 1 thread"]
    many = document([run([record(case(name), 1.0) for name in "abcd"])])
    assert len(many["common"]) == 4 and many["common"][-1] == "…" and many["title"] == "op/a, op/b, op/c and 1 more · 2026-01-02"
    assert document([run([record(case("a"), 1.0)], experiment="nights")])["title"] == "nights: op/a · 2026-01-02"


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"a": (1.0, 2.0)}, "Fastest: torch/eager, in the only row that several stacks have."),
        ({"a": (1.0, 1.0)}, "No stack is clearly the fastest."),
        ({"a": (2.0, 1.0)}, "Fastest: torch/compile, in the only row that several stacks have, 2.0"),
        ({"a": (2.0, 1.0), "b": (2.0, 1.0)}, "Fastest: torch/compile in 2 of 2 rows; torch/compile is 2.0"),
        ({"a": (1.0, 1.0), "b": (1.0, 1.0)}, "No stack is clearly the fastest in any of 2 rows."),
    ],
)
def test_the_fastest_stack_is_named_with_the_rows_it_wins(times: dict[str, tuple[float, float]], said: str) -> None:
    records = [record(case(name, way), time) for name, both in times.items() for way, time in zip(("eager", "compile"), both, strict=True)]
    assert said in document([run(records)])["banner"]["text"]
