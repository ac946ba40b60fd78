"""All cases together say what none says alone, with an error rate that holds, and never more than runs made apart can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide, compare, own_pairs
from steelyard.analyze.noise import Spread
from steelyard.analyze.suite import Suite, apart, retold, together
from steelyard.model.pair import Delta, Pair
from tests.analyze.made import case, record, run, side
from tests.analyze.saved import delta, pair
from tests.analyze.test_past import learned, tables

QUIET = Spread(0.01, 6.0)


def told(ratios: Sequence[float], common: Spread | None = None, *, alternating: bool = False) -> Suite:
    found = apart({str(place): math.log(ratio) for place, ratio in enumerate(ratios)}, 0.02, common=common, alternating=alternating)
    assert found is not None
    return found


TEN = [1.10 + 0.01 * math.sin(3 * number) for number in range(20)]


def test_ten_percent_in_all_of_twenty_is_said_plainly_and_without_earlier_runs_it_may_be_the_machine() -> None:
    found = told(TEN)
    assert found.delta.ratio == pytest.approx(1.1, abs=0.005) and 1.08 < found.low < 1.1 < found.high < 1.12
    assert (found.cases, found.along, found.machine, found.delta.settled, found.delta.verdict) == (20, 20, True, False, "unclear")
    assert "looks the same" in found.reason and "--confirm" in found.do and "in turns" in found.do


def test_earlier_runs_or_runs_in_turns_settle_it() -> None:
    known = told(TEN, QUIET)
    assert known.delta.settled and known.delta.verdict == "slower" and known.machine and "usually" in known.reason and known.do
    turns = told(TEN, QUIET, alternating=True)
    assert turns.delta.settled and not turns.machine and turns.do == ""
    calm = told([1 + 0.004 * math.sin(3 * number) for number in range(20)], Spread(0.003, 6.0))
    assert calm.delta.settled and calm.delta.verdict == "same" and calm.do == "" and "differ no more than runs usually do" in calm.reason


def test_a_few_cases_that_changed_much_are_no_common_shift() -> None:
    found = told([2.0, 3.0, 0.5, *([1.0] * 17)], QUIET)
    assert found.delta.ratio == pytest.approx(1.0) and found.delta.direction == 0


def test_a_comparison_of_runs_has_it_and_what_was_measured_again_takes_its_place() -> None:
    base, head = [[1e-3] * 20, [1.1e-3 * (1 + 0.003 * math.sin(number)) for number in range(20)]]
    sides = side("b", base), side("h", head, first=1)
    found = compare(*sides).suite
    assert found is not None and not found.delta.paired and found.machine and found.delta.verdict == "unclear"

    def again(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        return [pair(item.head, item.head, 1.1, 0.01) for item in deltas], {}

    settled = compare(*sides, confirm=again).suite
    assert settled is not None and settled.delta.paired and settled.delta.settled and not settled.machine and settled.cases == 20
    assert compare(side("b", base[:2]), side("h", head[:2], first=1)).suite is None


def test_twelve_nights_decide_what_two_runs_cannot() -> None:
    rng = np.random.default_rng(2)
    *nights, base, head = tables(rng, 14, 20, 0.005, 0.005)
    past = learned(nights)
    slow = RunsSide("h", side("h", [1.1 * value for value in head], first=1).runs, past)
    found = compare(side("b", base), slow).suite
    assert found is not None and found.delta.settled and found.delta.verdict == "slower" and found.machine


@pytest.mark.parametrize("nights", [0, 12])
def test_equal_runs_are_hardly_ever_called_changed_together(nights: int) -> None:
    rng, alarmed = np.random.default_rng(4), 0
    for _ in range(100):
        *earlier, base, head = tables(rng, nights + 2, 20, 0.02, 0.01)
        whole = RunsSide("h", side("h", head, first=1).runs, learned(earlier) if earlier else None)
        suite = compare(side("b", base), whole).suite
        alarmed += suite is not None and suite.delta.direction != 0
    assert alarmed <= 4


def test_pairs_of_one_change_have_a_common_ratio_and_pairs_of_several_have_none() -> None:
    ids = [(case(number), case(number, how)) for number in range(6) for how in ("compile", "int8")]
    records = [record(id) for id in {id for both in ids for id in both}]
    pairs = tuple(pair(base, head, 1.05, 0.02) for base, head in ids)
    mixed, compiled = (own_pairs(RunsSide("k", (replace(run("k", records), pairs=some),))).suite for some in (pairs, pairs[::2]))
    assert mixed is None
    assert compiled is not None and compiled.delta.paired and compiled.delta.direction == 1 and compiled.cases == 6


def test_what_was_measured_again_in_part_leaves_the_statement_of_all() -> None:
    before = told(TEN)
    some = [delta(case(number), 1.1, 0.01, paired=number < 5) for number in range(20)]
    assert retold(before, some) is before
    assert together(some[:2]) is None


def test_when_most_were_measured_again_the_suite_is_told_from_those() -> None:
    some = [delta(case(number), 1.1 if number < 2 else 1.0, 0.01, paired=number >= 2) for number in range(20)]
    found = retold(told(TEN, QUIET), some)
    assert found is not None and found.delta.paired and found.cases == 18 and found.delta.verdict == "same"
    assert "except in 2 more cases" in found.words


@given(
    st.lists(st.tuples(st.sampled_from(["same", "faster", "slower", "unclear", "left"]), st.floats(0.9, 1.1)), min_size=3, max_size=20),
    st.sampled_from([0.9, 1.0, 1.1]),
)
def test_no_statement_outlives_its_suspects(answers: list[tuple[str, float]], moved: float) -> None:
    """What was measured again and cleared takes the statement of runs made apart with it."""
    before = told([moved] * 20, QUIET)
    deltas = [
        replace(delta(case(number), ratio, 0.01, paired=word != "left"), verdict="unclear" if word == "left" else word)
        for number, (word, ratio) in enumerate(answers)
    ]
    found = retold(before, deltas)
    again = [item.verdict for item in deltas if item.paired]
    if found is before and again and before.delta.verdict in ("slower", "faster"):
        assert sum(verdict not in ("unclear", before.delta.verdict) for verdict in again) < len(again) / 2
    assert found is None or found is before or found.delta.paired
    if len(again) >= 3 and len(again) > len(deltas) / 2:
        assert found is not None and found.delta.paired


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=30), st.booleans(), st.one_of(st.none(), st.floats(1e-6, 1.0)))
def test_any_ratios_give_an_interval_around_their_middle(logs: list[float], alternating: bool, sd: float | None) -> None:
    common = None if sd is None else Spread(sd, 4.0)
    found = apart(dict(zip(map(str, range(len(logs))), logs, strict=True)), 0.02, common=common, alternating=alternating)
    assert found is not None and found.delta.ratio is not None and found.delta.low is not None and found.delta.high is not None
    assert found.delta.low <= found.low <= found.delta.ratio <= found.high <= found.delta.high
    assert 0 <= found.along <= found.cases == len(logs) and found.delta.settled is (found.delta.verdict == "same" or found.delta.material)
