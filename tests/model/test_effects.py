"""An effect reads as one engineer would say it: size, direction, interval, and what is not sure."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.model.effects import beyond, change, effect, speedup, within
from steelyard.model.pair import Delta, judge

RATIOS = st.floats(1e-5, 1e5)
MARGINS = st.floats(0.001, 0.5)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.04, 1.031, 1.049, "4.0 % slower [3.1, 4.9]"),
        (0.969, 0.960, 0.978, "3.1 % faster [2.2, 4.0]"),
        (1 / 2.3, 1 / 2.39, 1 / 2.21, "2.30x faster [2.21, 2.39]"),
        (1.5, 1.45, 1.55, "1.50x slower [1.45, 1.55]"),
        (1.49, 1.44, 1.54, "49 % slower [44, 54]"),
        (1.002, 0.996, 1.009, "within 2 % [-0.4, 0.9]"),
        (1.015, 1.013, 1.017, "within 2 % [1.30, 1.70]"),
        (1.036, 1.017, 1.056, "slower, size unclear [1.7, 5.6]"),
        (0.966, 0.944, 0.99, "faster, size unclear [1.0, 5.6]"),
        (1.01, 0.989, 1.03, "unclear [-1.1, 3.0]"),
        (1.0, 0.9, 1.1, "unclear [-10, 10]"),
        (36000.0, 35000.0, 37000.0, "36000x slower [35000, 37000]"),
        (1.1, 1e-22, 5e21, "unclear, interval unbounded"),
        (1.1, 1.0, math.inf, "unclear, interval unbounded"),
    ],
)
def test_an_effect_says_size_direction_and_interval(ratio: float, low: float, high: float, text: str) -> None:
    assert effect(ratio, low, high, judge(low, high, 0.02), margin=0.02) == text


def test_what_is_not_measured_interleaved_says_so_and_what_has_no_ratio_says_its_verdict() -> None:
    assert effect(1.04, 1.031, 1.049, "slower", margin=0.02, paired=False) == "4.0 % slower [3.1, 4.9], not confirmed"
    assert effect(1.002, 0.996, 1.009, "same", margin=0.02, paired=False) == "within 2 % [-0.4, 0.9]"
    assert effect(None, None, None, "incomparable", margin=0.02) == "not comparable"
    assert effect(None, None, None, "missing", margin=0.02) == "missing"


@given(st.sampled_from(("failed", "missing", "incomparable")), st.floats(0.1, 10), st.floats(0.1, 10), st.booleans())
def test_what_was_not_compared_has_no_interval_whatever_was_measured(verdict: str, low: float, high: float, paired: bool) -> None:
    words = effect((low * high) ** 0.5, low, high, verdict, margin=0.02, paired=paired)
    assert words == effect(None, None, None, verdict, margin=0.02) == effect(1e9, 1e8, 1e10, verdict, margin=0.02)


def test_what_is_not_a_time_is_more_or_less_whatever_is_better() -> None:
    assert effect(1.04, 1.031, 1.049, "slower", margin=0.02, metric="peak_memory") == "4.0 % more [3.1, 4.9]"
    assert effect(0.9, 0.89, 0.91, "slower", margin=0.02, metric="bandwidth") == "10.0 % less [9.0, 11.0]"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.031, "3.1 % slower"),
        (0.969, "3.1 % faster"),
        (1.25, "25 % slower"),
        (2.0, "2.00x slower"),
        (0.01, "100x faster"),
        (1.0, "no change"),
    ],
)
def test_a_size_without_an_interval_has_few_digits(ratio: float, text: str) -> None:
    assert change(ratio) == text


def test_a_speedup_is_the_change_of_time_that_it_is() -> None:
    assert speedup(2.3, 2.21, 2.39) == "2.30x faster [2.21, 2.39]"
    assert speedup(0.5) == "2.00x slower" and speedup(5e-324) == "unbounded"
    assert speedup(1.01, 0.98, 1.04) == change(1 / 1.01, 1 / 1.04, 1 / 0.98) == "unclear [-3.8, 2.0]"


@given(RATIOS, RATIOS, RATIOS, MARGINS)
def test_words_and_verdict_never_contradict_each_other(one: float, two: float, three: float, margin: float) -> None:
    low, ratio, high = sorted((one, two, three))
    verdict = judge(low, high, margin)
    text = effect(ratio, low, high, verdict, margin=margin)
    found = Delta("a", "b", "time", ratio, low, high, margin, verdict, paired=True)
    assert text.startswith("within ") is within(low, high, margin) is (verdict == "same")
    assert ("unclear" in text) is (not found.settled)
    assert found.settled is (within(low, high, margin) or beyond(low, high, margin))
    if found.material:
        assert f" {verdict} [" in text and ("faster" in text) is (high < 1)


@given(RATIOS, RATIOS, RATIOS)
def test_the_brackets_hold_the_interval_in_order(one: float, two: float, three: float) -> None:
    low, ratio, high = sorted((one, two, three))
    found = re.search(r"\[(-?[\d.]+), (-?[\d.]+)\]$", effect(ratio, low, high, judge(low, high, 0.02), margin=0.02))
    assert found and float(found[1]) <= float(found[2]) and "-0]" not in found[0]
