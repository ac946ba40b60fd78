"""Statistics against scipy where it has the answer, and against simulated truth where it has not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import signal, special, stats

from steelyard.measuring.stats import (
    Interval,
    f_tail,
    incomplete_beta,
    mean_interval,
    median_interval,
    net_interval,
    noise_grade,
    order_ranks,
    quantile_interval,
    t_cdf,
    t_quantile,
    time_figure,
    trend,
)
from steelyard.model.record import FEWEST
from steelyard.model.units import with_error

Draw = Callable[[np.random.Generator, int], np.ndarray[Any, np.dtype[np.float64]]]
SEEDS = 400

degrees = st.integers(1, 60).map(float) | st.floats(1, 5000)
shares = st.floats(1e-5, 1 - 1e-5)


@given(st.floats(0, 1), st.floats(0.1, 3000), st.floats(0.1, 3000))
def test_the_incomplete_beta_function_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert incomplete_beta(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-8, abs=1e-12)


@given(st.floats(0, 1e6), st.floats(1, 100), st.floats(1, 100))
def test_the_tail_of_the_f_distribution_is_that_of_scipy(ratio: float, over: float, under: float) -> None:
    assert f_tail(ratio, over, under) == pytest.approx(stats.f.sf(ratio, over, under), rel=1e-7, abs=1e-12)


@given(st.floats(-80, 80), degrees)
def test_the_t_distribution_is_that_of_scipy(t: float, df: float) -> None:
    assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-8, abs=1e-13)


@given(shares, degrees)
def test_t_quantiles_are_those_of_scipy(p: float, df: float) -> None:
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("p", "df"), [(0, 3), (1, 3), (-0.1, 3), (math.nan, 3), (0.5, 0), (0.9, -1)])
def test_there_is_no_t_quantile_without_a_distribution(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(p, df)


@given(st.integers(1, 1500), st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.9, 0.99]), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_are_the_narrowest_that_the_binomial_allows(n: int, quantile: float, confidence: float) -> None:
    tail, below = (1 - confidence) / 2, stats.binom(n, quantile).cdf
    ranks = order_ranks(n, quantile, confidence)
    if ranks is None:
        assert below(0) > tail - 1e-9 or below(n - 1) < 1 - tail + 1e-9
        return
    low, high = ranks
    assert 0 <= low <= high < n
    assert below(low) <= tail + 1e-9 < below(low + 1) + 2e-9
    assert below(high) >= 1 - tail - 1e-9 > below(high - 1) - 2e-9


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_interval_of_a_mean_is_the_t_interval_of_scipy(values: list[float], confidence: float) -> None:
    assume(np.std(values) > 1e-6)
    found = mean_interval(values, confidence)
    low, high = stats.t.interval(confidence, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (found.centre, found.low, found.high) == pytest.approx((np.mean(values), low, high), rel=1e-7, abs=1e-6)
    assert found.n == len(values)


def test_one_value_has_a_mean_but_no_bounds() -> None:
    assert mean_interval([3.0], 0.99) == Interval(3.0, -math.inf, math.inf, 1)
    assert math.isnan(mean_interval([], 0.99).centre)


@given(st.lists(st.integers(0, 12), min_size=3, max_size=30))
def test_the_trend_is_kendalls_score_with_its_correction(values: list[int]) -> None:
    found = trend([float(value) for value in values])
    pairs = [np.sign(values[j] - values[i]) for i in range(len(values)) for j in range(i + 1, len(values))]
    score = int(sum(pairs))
    if score == 0:
        assert found == 0.0
        return
    p = stats.kendalltau(range(len(values)), values, method="asymptotic").pvalue
    deviation = abs(score) / stats.norm.isf(p / 2)
    assert found == pytest.approx(math.copysign((abs(score) - 1) / deviation, score), rel=1e-6)


def test_the_trend_of_too_few_or_equal_values_is_none() -> None:
    assert trend([1.0, 2.0]) == trend([5.0] * 20) == 0.0
    assert trend(list(range(20))) == -trend(list(range(20, 0, -1))) > 5


def lognormal(rng: np.random.Generator, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.exp(rng.standard_normal(n))


def autocorrelated(rho: float) -> Draw:
    """AR(1) noise around the same median, skewed as block times are."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        noise = signal.lfilter([math.sqrt(1 - rho * rho)], [1, -rho], rng.standard_normal(n + 200))[200:]
        return np.asarray(np.exp(noise))

    return draw


def plain_interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> Interval:
    """What asv and others report: order statistics as if the values were independent."""
    ranks = order_ranks(len(values))
    assert ranks is not None
    ordered = np.sort(values)
    return Interval(float(np.median(values)), float(ordered[ranks[0]]), float(ordered[ranks[1]]), len(values))


def coverage(interval: Callable[[Any], Interval], draw: Draw, n: int, truth: float = 1.0) -> float:
    found = (interval(draw(np.random.default_rng([seed, n]), n)) for seed in range(SEEDS))
    return sum(item.low <= truth <= item.high for item in found) / SEEDS


@pytest.mark.parametrize("n", [8, 31, 32, 100, 500])
def test_the_interval_of_a_median_covers_it_for_independent_values(n: int) -> None:
    assert coverage(median_interval, lognormal, n) >= 0.93


@pytest.mark.parametrize(
    ("rho", "n", "reached"), [(0.5, 100, 0.92), (0.8, 100, 0.82), (0.8, 500, 0.91), (0.9, 500, 0.87), (0.95, 2000, 0.88)]
)
def test_the_interval_of_a_median_sees_that_neighbours_resemble_each_other(rho: float, n: int, reached: float) -> None:
    """Nominal 95 %: from about ten correlation times per batch on it holds; below that it is short of it, never as short as peers."""
    ours, plain = coverage(median_interval, autocorrelated(rho), n), coverage(plain_interval, autocorrelated(rho), n)
    assert ours >= reached
    assert 1 - ours < 0.5 * (1 - plain)


def test_more_values_give_a_narrower_interval() -> None:
    widths = []
    for n in (64, 256, 1024, 4096):
        found = [median_interval(autocorrelated(0.5)(np.random.default_rng([seed, n]), n)) for seed in range(60)]
        widths.append(np.mean([item.high - item.low for item in found]))
    assert all(later < 0.65 * earlier for earlier, later in itertools.pairwise(widths))


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=150))
def test_an_interval_holds_its_median_and_follows_the_unit(values: list[float]) -> None:
    found, scaled = median_interval(np.asarray(values)), median_interval(np.asarray(values) * 1024)
    assert found.low <= found.centre == float(np.median(values)) <= found.high
    assert found.n == len(values)
    assert (scaled.low, scaled.centre, scaled.high) == pytest.approx((found.low * 1024, found.centre * 1024, found.high * 1024))
    assert found.relative == pytest.approx(scaled.relative)


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=2 * FEWEST))
def test_too_few_values_have_no_interval_and_are_never_shown_with_one(values: list[float]) -> None:
    figure = time_figure(median_interval(np.asarray(values)))
    few = len(values) < FEWEST
    assert (figure.low is None, figure.high is None, bool(figure.caveat)) == (few, few, few)
    assert few == ("±" not in (text := with_error(figure.value, figure.low, figure.high, "s")) and "to" not in text)


def test_the_least_count_is_what_order_statistics_need() -> None:
    assert next(n for n in range(1, 20) if order_ranks(n) is not None) == FEWEST


@given(st.lists(st.floats(-1e-8, 1e-6), min_size=1, max_size=40), st.floats(1e-12, 1e-8))
def test_a_net_time_is_never_negative_and_one_that_may_be_nothing_is_no_divisor(values: list[float], doubt: float) -> None:
    found, bare = net_interval(np.asarray(values), doubt), median_interval(np.asarray(values))
    figure = time_figure(found)
    assert figure.value >= 0 and (figure.low is None or figure.low >= 0)
    assert found.high - found.low >= doubt
    if bare.centre <= doubt:
        assert (figure.value, figure.low) == (0.0, 0.0)
        assert figure.high is not None and figure.high >= max(doubt, abs(bare.centre))
        assert with_error(figure.value, figure.low, figure.high, "s").startswith("< ")
    if figure.value:
        assert figure.value == bare.centre and (figure.low is None or figure.low > 0)


def test_a_long_time_on_a_busy_machine_is_not_told_as_nothing() -> None:
    values = np.full(25, 1.5e-3)
    values[20:] = 4e-2
    assert median_interval(values).low < 0, "batches of such values are too far apart for their number"
    figure = time_figure(net_interval(values, 5e-8))
    assert figure.value == 1.5e-3 and figure.low == pytest.approx(1.5e-3, rel=1e-3) and figure.high is not None and figure.high > 0.02


def test_no_values_have_no_median() -> None:
    assert math.isnan(median_interval(np.array([])).centre)
    assert Interval(0.0, -1.0, 1.0, 9).relative == math.inf
    assert Interval(-10.0, -11.0, -9.5, 9).relative == pytest.approx(0.1)


def test_a_slow_drift_widens_the_interval() -> None:
    noise = np.random.default_rng(0).standard_normal(400)
    drift = np.linspace(-3, 3, 400)
    shuffled = np.random.default_rng(1).permutation(noise + drift)
    held, mixed = median_interval(noise + drift), median_interval(shuffled)
    assert held.high - held.low > 2 * (mixed.high - mixed.low)


@pytest.mark.parametrize(("quantile", "fewest"), [(0.5, 20), (0.9, 100), (0.99, 1000), (0.999, 10000), (0.1, 100)])
def test_a_tail_needs_ten_values_beyond_it(quantile: float, fewest: int) -> None:
    assert quantile_interval(np.arange(fewest - 1.0), quantile) is None
    found = quantile_interval(np.arange(float(fewest)), quantile)
    assert found is not None
    assert found.low < found.centre < found.high
    assert found.n == fewest


@pytest.mark.parametrize(("quantile", "n"), [(0.9, 150), (0.99, 1000)])
def test_the_interval_of_a_tail_covers_it(quantile: float, n: int) -> None:
    def interval(values: Any) -> Interval:
        found = quantile_interval(values, quantile)
        assert found is not None
        return found

    assert coverage(interval, lognormal, n, truth=math.exp(stats.norm.ppf(quantile))) >= 0.93


@pytest.mark.parametrize(
    ("spread", "discarded", "grade"),
    [
        (0.009, 0.0, "A"), (0.011, 0.0, "B"), (0.029, 0.0, "B"), (0.031, 0.0, "C"), (0.09, 0.0, "C"), (0.11, 0.0, "D"),
        (0.0, 0.02, "A"), (0.0, 0.03, "B"), (0.0, 0.11, "C"), (0.0, 0.31, "D"), (0.02, 0.2, "C"),
    ],
)  # fmt: skip
def test_the_grade_is_the_worse_of_spread_and_discards(spread: float, discarded: float, grade: str) -> None:
    values = np.concatenate([np.full(15, 1 - spread / 2), np.full(10, 1.0), np.full(15, 1 + spread / 2)])
    assert noise_grade(values, discarded) == grade


def test_no_grade_without_values_and_the_worst_for_nonsense() -> None:
    assert noise_grade(np.ones(3), 0.0) == "?"
    assert noise_grade(np.zeros(30), 0.0) == "D"
