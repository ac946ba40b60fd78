"""The tests behind a verdict, with scipy as oracle and simulated nulls that are neither normal nor symmetric."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from steelyard.measuring.evidence import (
    Spread,
    Wager,
    pooled_spread,
    shifted,
    strongest,
    sure_interval,
    swap_interval,
    swap_p_value,
    t_interval,
    t_p_value,
)
from steelyard.model.pair import ALPHA, benjamini_hochberg

Draw = Callable[[np.random.Generator, int], np.ndarray]
values = st.lists(st.floats(-1, 1, allow_subnormal=False).map(lambda x: round(x, 6)), min_size=3, max_size=12)

NULLS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=(n, 3)),
    "two levels": lambda rng, n: 1.0 * (rng.random((n, 3)) < 0.2) + 0.05 * rng.normal(size=(n, 3)),
    "heavy tails": lambda rng, n: rng.standard_t(2, (n, 3)),
    "skewed": lambda rng, n: np.exp(rng.normal(size=(n, 3))),
}


def rows(levels: np.ndarray) -> np.ndarray:
    """Each arm against the mean of the two others."""
    return (3 * levels - levels.sum(axis=1, keepdims=True)) / 2


def rows_of(ratios: Any) -> np.ndarray:
    """Two arms against each other."""
    return np.stack([np.asarray(ratios, float), -np.asarray(ratios, float)], axis=1)


class TestStudent:
    @given(values)
    def test_the_interval_is_scipys(self, found: list[float]) -> None:
        x = np.asarray(found)
        mine = t_interval(x, alpha=0.005)
        if x.std(ddof=1) > 1e-9:
            low, high = stats.t.interval(0.995, len(x) - 1, x.mean(), x.std(ddof=1) / math.sqrt(len(x)))
            assert (mine.low, mine.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
            assert t_p_value(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue, rel=1e-5, abs=1e-12)

    @given(values, st.floats(0, 2), st.floats(1, 30))
    def test_other_noise_widens_and_never_narrows_the_spread(self, found: list[float], sd: float, freedom: float) -> None:
        x = np.asarray(found)
        spread = pooled_spread(x, [Spread(sd, freedom)])
        assert spread.sd >= x.std(ddof=1) - 1e-12
        wider = spread.sd > x.std(ddof=1) + 1e-12
        assert spread.freedom == pytest.approx(len(x) - 1 + (freedom if wider else 0)) or abs(spread.sd - x.std(ddof=1)) < 1e-9

    def test_a_tiny_chance_is_not_rounded_to_none(self) -> None:
        x = np.random.default_rng(0).normal(1.0, 0.05, 30)
        assert 0 < t_p_value(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue, rel=1e-3)


class TestRandomisation:
    @hypothesis_settings(max_examples=30, deadline=None)
    @given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 4)), min_size=4, max_size=10))
    def test_two_arms_give_scipys_exact_sign_flips(self, found: list[float]) -> None:
        x = np.asarray(found)
        exact = stats.permutation_test((x,), lambda y, axis: np.abs(y.sum(axis=axis)), permutation_type="samples", vectorized=True)
        expected = np.mean(np.abs(exact.null_distribution) >= abs(x.sum()) * (1 - 1e-9))
        assert swap_p_value(rows_of(x)) == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize("null", NULLS)
    def test_its_level_holds_whatever_the_noise_looks_like(self, null: str) -> None:
        rng = np.random.default_rng(5)
        wrong = sum(swap_p_value(rows(NULLS[null](rng, 14))) <= 0.05 for _ in range(600))
        assert stats.binomtest(wrong, 600, 0.05, "greater").pvalue > 1e-3

    def test_the_interval_is_what_the_test_does_not_exclude(self) -> None:
        found = rows(np.random.default_rng(3).normal(size=(20, 3)) + np.array([0.5, 0, 0]))
        interval = swap_interval(found, 0.05)
        assert interval is not None
        for shift, inside in ((interval.low - 0.01, False), (interval.low + 0.01, True), (interval.high + 0.01, False)):
            assert (swap_p_value(shifted(found, shift)) > 0.05) is inside

    def test_few_rebuilds_can_exclude_nothing(self) -> None:
        assert swap_interval(rows_of([1.0] * 8)) is None
        assert swap_interval(rows_of([1.0] * 9)) is not None

    def test_a_difference_that_changed_its_mind_leaves_nothing_sure(self) -> None:
        found = sure_interval(rows_of([*np.linspace(1.0, 1.01, 40), *np.linspace(-1.01, -1.0, 41)]), 0.05)
        assert found.low < -1
        assert found.high > 1

    def test_a_difference_that_grew_less_is_still_known_to_be_there(self) -> None:
        """Evidence of the beginning excludes the later middle; what was never excluded lies above it, and far from zero."""
        rng = np.random.default_rng(1)
        values = np.concatenate([rng.normal(0.075, 0.02, 20), rng.normal(0.045, 0.02, 57)])
        found = sure_interval(rows_of(values))
        assert strongest(rows_of(values), [float(np.median(values))])[0] >= 2 / ALPHA
        assert 0.03 < found.low == found.centre < found.high < 0.1


class TestWealth:
    @pytest.mark.parametrize("null", NULLS)
    def test_peeking_after_every_rebuild_is_paid_for(self, null: str) -> None:
        rng = np.random.default_rng(11)
        ever = sum(strongest(rows(NULLS[null](rng, 40)))[0] >= 20 for _ in range(400))
        assert stats.binomtest(ever, 400, 1 / 20, "greater").pvalue > 1e-3

    def test_every_bet_is_fair_when_any_arm_could_be_the_head(self) -> None:
        """One bet of each kind, averaged over which arm is the head: exactly nothing won."""
        rng = np.random.default_rng(2)
        for row in rows(NULLS["skewed"](rng, 50)):
            won = []
            for turn in range(3):
                wager = Wager()
                wager.add(np.roll(row, turn))
                won.append(float(np.exp(wager._logs)[:, 0] @ np.repeat([0.25, 0.15, 0.1], 2)))
            assert np.mean(won) == pytest.approx(1.0, abs=1e-9)

    def test_a_clear_difference_is_certain_after_ten_rebuilds(self) -> None:
        found = rows(np.random.default_rng(0).normal(0, 0.001, (10, 3)) + np.array([0.05, 0, 0]))
        assert strongest(found)[0] >= 2 / ALPHA
        assert strongest(found[:7])[0] < 2 / ALPHA

    @pytest.mark.parametrize(("effect", "null"), [(0.0, "normal"), (1.0, "normal"), (-3.0, "heavy tails"), (0.5, "two levels")])
    def test_the_sure_interval_holds_the_truth_and_agrees_with_the_evidence(self, effect: float, null: str) -> None:
        rng = np.random.default_rng(8)
        held = 0
        for _ in range(40):
            found = rows(NULLS[null](rng, 24) + np.array([effect, 0, 0]))
            interval = sure_interval(found, 0.05)
            held += interval.low <= effect <= interval.high
            if interval.low > 1e-6 or interval.high < -1e-6:
                assert strongest(found)[0] >= 20 * 0.999
        assert stats.binomtest(40 - held, 40, 0.05, "greater").pvalue > 1e-3

    def test_the_wager_of_many_shifts_is_the_wager_of_each(self) -> None:
        found = rows(np.random.default_rng(4).normal(size=(15, 3)))
        both = strongest(found, (0.0, 0.7))
        assert both == pytest.approx([strongest(found)[0], strongest(shifted(found, 0.7))[0]])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from([0.01, 0.05, 0.2]))
def test_false_discoveries_are_held_as_scipy_holds_them(found: list[float], alpha: float) -> None:
    adjusted = stats.false_discovery_control(found)
    for kept, bound in zip(benjamini_hochberg(found, alpha), adjusted, strict=True):
        assert kept == (bound <= alpha) or abs(bound - alpha) < 1e-9
