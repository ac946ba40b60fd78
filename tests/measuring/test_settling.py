"""A budget that is spent settles nothing: measuring goes on where it decides, and looking again costs no more error than is allowed."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from steelyard.measuring import schedule
from steelyard.measuring.evidence import t_interval
from steelyard.measuring.paired import bounds
from steelyard.measuring.sample import Tell
from steelyard.measuring.schedule import Weighing, weigh_arms
from steelyard.measuring.settling import FARTHEST, Looks, goes_on, needed_seconds, settled
from steelyard.measuring.stats import Interval, t_quantile
from steelyard.model.experiment import Settings
from steelyard.model.pair import ALPHA, Delta, judge
from steelyard.model.task import Task
from tests.measuring.virtual import Machine

EDGE = math.log1p(0.02)
ends = st.floats(-0.2, 0.2)


def interval(low: float, high: float, n: int = 8) -> Interval:
    return Interval((low + high) / 2, min(low, high), max(low, high), n)


class TestRule:
    @given(ends, ends, st.floats(0.001, 0.1))
    def test_settled_is_what_a_verdict_calls_same_or_material(self, one: float, other: float, margin: float) -> None:
        found = interval(one, other)
        low, high = math.exp(found.low), math.exp(found.high)
        if all(abs(abs(end) - math.log1p(margin)) > 1e-9 for end in (found.low, found.high)):
            delta = Delta("a", "b", "time", 1.0, low, high, margin, judge(low, high, margin), paired=True)
            assert settled(found, margin) == (delta.verdict == "same" or delta.material)

    @given(ends, ends, st.floats(0.01, 100), st.floats(0, 100))
    def test_measuring_goes_on_wherever_a_certain_direction_has_no_certain_size(
        self, one: float, other: float, spent: float, left: float
    ) -> None:
        found = interval(one, other)
        certain = found.low > 0 or found.high < 0
        if settled(found, 0.02) or left == 0:
            assert not goes_on(found, 0.02, spent, left)
        elif certain:
            assert goes_on(found, 0.02, spent, left)

    def test_where_nothing_is_certain_it_goes_on_if_that_can_help(self) -> None:
        assert goes_on(interval(-0.015, 0.025), 0.02, 1.0, 4.0)
        assert not goes_on(interval(-0.5, 0.51), 0.02, 1.0, 4.0)
        assert not goes_on(Interval(0.0, -math.inf, math.inf, 1), 0.02, 1.0, 4.0)

    def test_the_interval_of_the_review_is_not_settled(self) -> None:
        assert not settled(interval(math.log(1.017), math.log(1.056)), 0.02)

    @given(ends, ends, st.integers(3, 200), st.floats(0.01, 100))
    def test_what_is_needed_is_about_the_margin(self, one: float, other: float, n: int, spent: float) -> None:
        found = interval(one, other, n)
        needed = needed_seconds(found, spent)
        assert needed is None if settled(found, 0.02) else needed is None or 0 < needed <= FARTHEST * spent
        if needed is not None:
            narrower = (found.high - found.low) / 2 / math.sqrt(needed / spent + 1)
            factor = t_quantile(1 - ALPHA / 4, 60.0) / t_quantile(1 - ALPHA / 4, n - 1.0)
            centre = found.centre
            assert settled(Interval(centre, centre - 0.999 * factor * narrower, centre + 0.999 * factor * narrower, n), 0.02)


class TestError:
    @given(st.floats(0, 100))
    def test_all_looks_together_spend_what_one_may(self, extension: float) -> None:
        looks = Looks(extension)
        assert sum(map(looks.share, range(len(looks.at)))) == pytest.approx(1.0)
        assert looks.at[0] == 1.0
        assert looks.at[-1] == pytest.approx(1 + extension)
        assert list(looks.at) == sorted(looks.at)

    def test_looking_again_and_again_at_equal_arms_is_wrong_no_more_often_than_looking_once_may_be(self) -> None:
        """20 000 comparisons of equal code, each looked at until it seems to differ: the fixed intervals have half of the error."""
        looks, wrong = Looks(4.0), np.zeros(20_000, bool)
        values = np.random.default_rng(1).normal(size=(len(wrong), 40))
        for look, at in enumerate(looks.at):
            n = round(8 * at)
            half = t_quantile(1 - looks.share(look) * ALPHA / 4, n - 1.0) * values[:, :n].std(axis=1, ddof=1) / math.sqrt(n)
            wrong |= np.abs(values[:, :n].mean(axis=1)) > half
        assert 0.002 < wrong.mean() < ALPHA / 2

    @hypothesis_settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**31), st.integers(14, 30), st.sampled_from([1.0, 0.75, 1 / 12]))
    def test_the_interval_of_a_look_is_that_of_its_share(self, seed: int, n: int, share: float) -> None:
        ratios = np.random.default_rng(seed).normal(0.01, 0.02, n)
        rows = np.stack([ratios, -ratios], axis=1)
        whole, part = bounds(rows)[0], bounds(rows, share=share)[0]
        assert part.low <= whole.low + 1e-12
        assert part.high >= whole.high - 1e-12
        assert part.high - part.low <= 2 * (t_interval(rows[:, 0], (), share * ALPHA / 2).high - rows[:, 0].mean()) * 1.5 + 1e-12


def weighed(
    ratio: float,
    noise: float,
    seed: int,
    tell: Tell = lambda *_: None,
    patience: float = math.inf,
    settle: float = 4.0,
    fails_at: float = math.inf,
) -> Weighing:
    """A comparison on a virtual machine where every rebuild lies elsewhere by so much; building fails from some moment on."""
    machine, rng, built = Machine(), random.Random(seed), iter(range(10**9))

    def build(cost: float) -> Task:
        if next(built) >= fails_at:
            raise MemoryError("no room for another model")
        return machine.task(cost * math.exp(rng.gauss(0, noise)))

    builds, settings = [partial(build, 100_000), partial(build, 100_000 * ratio)], Settings(budget=0.1, settle=settle)
    return weigh_arms(builds, machine.timer, settings, seed, tell, placebo=builds[0], patience=patience)


class TestInOneProcess:
    def test_what_goes_wrong_later_costs_nothing_of_what_was_found(self) -> None:
        short, long = weighed(1.04, 0.02, 1, settle=0), weighed(1.04, 0.02, 1)
        assert long.looks > 1 and not long.broken
        groups = len({each.group for each in short.taken})
        for more in (0, 1, 2):
            broken = weighed(1.04, 0.02, 1, fails_at=3 * groups + more)
            assert (broken.stop, broken.looks, broken.spent) == ("budget", 1, short.spent)
            assert broken.broken == "MemoryError: no room for another model"
            assert broken.taken == short.taken
            assert settled(broken.finding().interval, 0.02) == settled(short.finding().interval, 0.02)

    def test_what_goes_wrong_before_anything_was_found_is_raised(self) -> None:
        with pytest.raises(MemoryError):
            weighed(1.04, 0.02, 1, fails_at=9)

    def test_a_planted_4_percent_is_settled_where_the_budget_alone_leaves_it_open(self) -> None:
        open_, ended = 0, []
        for seed in range(4):
            short, long = weighed(1.04, 0.02, seed, settle=0), weighed(1.04, 0.02, seed)
            open_ += not settled(short.finding().interval, 0.02)
            assert short.looks == 1
            if long.looks > 1:
                ended.append(long.stop)
                assert settled(long.finding().interval, 0.02)
                assert long.spent > short.spent
        assert open_ >= 2
        assert len(ended) >= open_
        assert set(ended) == {"settled", "evidence"}

    def test_what_lies_on_the_margin_ends_with_the_budget_for_it(self) -> None:
        doing = weighed(1.02, 0.01, 3)
        assert (doing.stop, doing.looks) == ("budget", 4)
        assert 0.4 < doing.spent < 0.6
        assert not settled(doing.finding().interval, 0.02)

    @pytest.mark.parametrize("ratio", [1.0, 1.01, 1.03, 1.05])
    def test_evidence_ends_a_measurement_only_when_it_is_settled(self, ratio: float) -> None:
        for seed in range(4):
            doing = weighed(ratio, 0.004, seed)
            if doing.stop == "evidence":
                assert settled(doing.finding().interval, 0.02)

    def test_going_on_never_costs_what_is_there_already(self) -> None:
        doing = weighed(1.02, 0.01, 3, patience=1e-9)
        assert (doing.stop, doing.looks) == ("timeout", 1)

    def test_it_says_that_it_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "throttled", lambda tell: tell)
        said: list[tuple[str, float | None]] = []
        weighed(1.02, 0.01, 3, lambda *phase: said.append(phase))
        names = list(dict.fromkeys(name for name, _ in said))
        assert names == ["weighing", "still measuring, not settled yet"]
        assert all(fraction is not None and 0 <= fraction <= 1 for _, fraction in said)
