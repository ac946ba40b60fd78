"""From raw blocks to a finding: pairs that are neighbours in time, one row per rebuild, discards by cause alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.measuring.paired import CPU, WALL, Rounds, find
from steelyard.measuring.sample import Sample
from steelyard.measuring.settling import needed_seconds
from steelyard.measuring.stats import time_figure


def quads(
    rows: list[list[float]],
    coin: list[bool],
    hit: list[list[int]] | None = None,
    calls: tuple[int, int] = (1, 1),
    group: list[int] | None = None,
    cpu: list[list[float]] | None = None,
) -> Rounds:
    """Rounds of two arms with the blocks given in order of time."""
    times = np.array(rows, float)
    hits = np.array(hit if hit else np.zeros_like(times), bool)
    numbers = np.array(group if group else [0] * len(rows), np.int32)
    arm = np.where(np.array(coin)[:, None], [0, 1, 1, 0], [1, 0, 0, 1]).astype(np.int32)
    return Rounds(times, np.array(cpu if cpu else np.zeros_like(times), float), hits, arm, numbers, calls)


def three(levels: np.ndarray, noise: float = 0.0, rounds: int = 6, seed: int = 0) -> Rounds:
    """Rounds of base, head and placebo; `levels` are log-times, one row for each rebuild."""
    rng = np.random.default_rng(seed)
    arm = np.stack([np.concatenate([order, order[::-1]]) for order in (rng.permutation(3) for _ in range(len(levels) * rounds))])
    group = np.repeat(np.arange(len(levels)), rounds)
    seconds = np.exp(levels[group[:, None], arm] + noise * rng.normal(size=arm.shape)) * 1e-4
    return Rounds(seconds, np.zeros_like(seconds), np.zeros_like(seconds, bool), arm.astype(np.int32), group.astype(np.int32), (1, 1, 1), 2)


class TestRatios:
    def test_the_sign_is_right_whichever_arm_came_first(self) -> None:
        found = quads([[1, 3, 3, 1], [3, 1, 1, 3]], [True, False])
        assert np.exp(found.ratios(0, 1, WALL)[0]).tolist() == [[pytest.approx(3), pytest.approx(3)]] * 2

    @given(st.lists(st.tuples(*[st.floats(1e-6, 1)] * 4, st.booleans()), min_size=1, max_size=9), st.integers(1, 99), st.integers(1, 99))
    def test_naming_the_arms_the_other_way_round_turns_the_ratio_over(self, rows: list[Any], few: int, many: int) -> None:
        times, coin = [list(row[:4]) for row in rows], [row[4] for row in rows]
        one, other = quads(times, coin, calls=(few, many)), quads(times, [not flip for flip in coin], calls=(many, few))
        assert one.ratios(0, 1, WALL)[0] == pytest.approx(-other.ratios(0, 1, WALL)[0], abs=1e-9)

    def test_the_pairs_of_a_quad_are_neighbours_in_time(self) -> None:
        """Base 1, 4 and head 2, 3 in order of time: a machine slowing down gives one ratio above and one below the truth."""
        assert np.exp(quads([[1, 2, 3, 4]], [True]).ratios(0, 1, WALL)[0]).tolist() == [[pytest.approx(2), pytest.approx(0.75)]]
        assert np.exp(quads([[1, 2, 3, 4]], [False]).ratios(0, 1, WALL)[0]).tolist() == [[pytest.approx(0.5), pytest.approx(4 / 3)]]

    def test_less_than_nothing_is_never_left(self) -> None:
        found = replace(quads([[1, 2, 2, 1], [2, 1, 1, 2]] * 4, [True, False] * 4), overhead=5.0)
        assert np.exp(found.ratios(0, 1, WALL)[0]) == pytest.approx(2)

    def test_a_rebuild_gives_one_row_that_adds_up_to_nothing(self) -> None:
        rows, between = three(np.log([[1.0, 1.2, 1.1], [1.0, 1.1, 0.9]])).rows(1, WALL)
        assert rows.sum(axis=1) == pytest.approx(0, abs=1e-12)
        assert rows[:, 0] == pytest.approx([math.log(1.2) - math.log(1.1) / 2, math.log(1.1) - math.log(0.9) / 2])
        assert between == pytest.approx(np.log([1.1, 0.9]))

    def test_one_head_of_several_is_weighed_with_the_blocks_of_base_and_placebo(self) -> None:
        arm = np.array([[0, 1, 2, 3, 3, 2, 1, 0], [2, 0, 3, 1, 1, 3, 0, 2]], np.int32)
        seconds = np.array([1.0, 2.0, 3.0, 1.0])[arm]
        whole = Rounds(seconds, seconds, np.zeros_like(arm, bool), arm, np.zeros(2, np.int32), (1, 1, 1, 1), 3)
        for head in (1, 2):
            fewer = whole.only(head)
            assert fewer.arm.shape == (2, 6)
            assert fewer.rows(head, WALL)[0] == pytest.approx(whole.rows(head, WALL)[0])


class TestDiscards:
    def test_a_pair_is_left_out_when_either_block_was_disturbed(self) -> None:
        rows = [[1, 2, 2, 1]] * 3 + [[9, 2, 2, 1], [1, 9, 2, 1], [1, 2, 9, 1], [1, 2, 2, 9]]
        hit = [[0, 0, 0, 0]] * 3 + [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
        ratios, clean = quads(rows, [True] * 7, hit).ratios(0, 1, WALL)
        assert clean.tolist() == [[True, True]] * 3 + [[False, True]] * 2 + [[True, False]] * 2
        assert np.exp(ratios[clean]).tolist() == [pytest.approx(2)] * 10

    def test_values_alone_are_never_a_reason(self) -> None:
        assert quads([[1, 1000, 2, 1], [1e-9, 2, 2, 1]], [True, False]).ratios(0, 1, WALL)[1].all()

    def test_shares_are_told_by_arm(self) -> None:
        found = quads([[1, 1, 1, 1]] * 4, [True, True, False, False], [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
        assert found.discarded((0, 1)) == [2 / 8, 2 / 8]
        assert quads([[1, 1, 1, 1]] * 2, [True, False], [[0, 1, 1, 0], [1, 0, 0, 1]]).discarded((0, 1)) == [0.0, 1.0]

    def test_a_rebuild_without_undisturbed_pairs_is_left_out(self) -> None:
        found = quads([[1, 2, 2, 1], [1, 8, 8, 1]], [True, True], [[0, 0, 0, 0], [1, 0, 0, 1]], group=[0, 1])
        assert found.centres(0, 1, WALL) == {0: pytest.approx(math.log(2))}

    def test_when_nearly_all_is_disturbed_everything_counts_and_that_is_said(self) -> None:
        found = find(quads([[1, 1.05, 1.05, 1]] * 12, [True] * 12, [[1, 1, 1, 1]] * 12, group=[*range(12)]))
        assert found.ratio.centre == pytest.approx(1.05)
        assert found.discarded == (1.0, 1.0)
        assert "all of them were used" in found.notes[0]

    def test_a_difference_that_dwarfs_what_was_lost_is_decided_and_that_is_said(self) -> None:
        marks = [[1, 1, 1, 1]] * 14 + [[0] * 4] * 10
        found = find(quads([[1, 1.5, 1.5, 1]] * 14 + [[1, 1.6, 1.6, 1]] * 10, [True] * 24, marks, group=[*range(24)]))
        assert found.discarded == (0.0, 0.0) and found.ratio.low > 1.1
        assert found.ratio.low < 1.52 and found.ratio.high >= 1.6
        assert "the difference stays with and without them" in found.notes[-1]

    def test_what_only_the_undisturbed_blocks_say_is_not_decided(self) -> None:
        rows = [[1, 1.0, 1.0, 1]] * 14 + [[1, 1.6, 1.6, 1]] * 10
        found = find(quads(rows, [True] * 24, [[1, 1, 1, 1]] * 14 + [[0] * 4] * 10, group=[*range(24)]))
        assert found.discarded[0] > 0.5

    @pytest.mark.parametrize("head", [0.7, 1.0, 1.4])
    def test_where_nothing_was_undisturbed_nothing_is_decided(self, head: float) -> None:
        found = find(quads([[1, head, head, 1]] * 12, [True] * 12, [[1, 1, 1, 1]] * 12, group=[*range(12)]))
        assert found.discarded == (1.0, 1.0)

    @pytest.mark.parametrize("head", [0.4, 13.0])
    def test_but_what_befell_both_arms_alike_makes_no_such_difference(self, head: float) -> None:
        """A GPU whose clock is forced down throughout still tells ten times slower from equal."""
        rows = [[1 + 0.01 * (number % 3), head, head, 1] for number in range(12)]
        found = find(quads(rows, [True] * 12, [[1, 1, 1, 1]] * 12, group=[*range(12)]))
        assert found.discarded == (0.0, 0.0)
        assert "does not come from that" in found.notes[-1]

    def test_an_arm_that_alone_was_disturbed_is_not_decided(self) -> None:
        rows = [[1 + 0.01 * (number % 3), 3, 3, 1] for number in range(12)]
        found = find(quads(rows, [True] * 12, [[0, 1, 1, 0]] * 12, group=[*range(12)]))
        assert max(found.discarded) == 1.0

    @pytest.mark.parametrize(("cpu", "decided"), [([1, 1.9, 1.9, 1], True), ([1, 1.0, 1.0, 1], False), ([1, 1.05, 1.05, 1], False)])
    def test_calls_too_long_to_be_undisturbed_are_decided_where_cpu_time_agrees(self, cpu: list[float], decided: bool) -> None:
        """In a call of half a second something always happens; that it takes twice as long is seen by either clock."""
        rows = [[1 + 0.01 * (number % 3), 2, 2, 1] for number in range(12)]
        found = find(quads(rows, [True] * 12, [[1, 1, 1, 1]] * 12, cpu=[cpu] * 12, group=[*range(12)]))
        assert (found.discarded == (0.0, 0.0)) is decided
        assert not decided or (1.8 < found.ratio.low < found.ratio.high < 2.1 and "CPU time" in found.notes[-1])

    def test_cpu_time_stands_in_where_most_pairs_were_disturbed_and_the_call_is_busy(self) -> None:
        busy = [[1, 2, 2, 1]] * 10
        rows = [[1, 2, 2, 1]] * 3 + [[5, 9, 7, 3]] * 7
        hit = [[0, 0, 0, 0]] * 3 + [[1, 1, 1, 1]] * 7
        calm = quads(rows, [True] * 10, hit, cpu=busy, group=[*range(10)])
        assert calm.clock([0, 1]) == CPU
        assert find(calm).ratio.centre == pytest.approx(2)
        idle = replace(calm, cpu=calm.cpu / 10)
        assert idle.clock([0, 1]) == WALL
        assert replace(calm, disturbed=np.zeros_like(calm.disturbed)).clock([0, 1]) == WALL


class TestFindings:
    def test_a_known_ratio_is_found_with_its_noise_floor(self) -> None:
        rng = np.random.default_rng(1)
        levels = rng.normal(0, 0.01, (40, 3)) + np.array([0, 0.05, 0])
        found = find(three(levels, 0.002))
        assert found.interval.low < 0.05 < found.interval.high
        assert found.interval.low > 0.03
        assert found.floor == pytest.approx(math.sqrt(2) * 0.01, rel=0.35)
        assert found.p < 1e-6

    def test_a_wider_noise_floor_widens_the_interval(self) -> None:
        levels = np.random.default_rng(2).normal(0, 0.001, (20, 3))
        loud = levels + np.random.default_rng(3).normal(0, 0.05, (20, 1)) * [-1, 0, 1]
        calm, wide = find(three(levels)), find(three(loud))
        assert wide.interval.high - wide.interval.low > 3 * (calm.interval.high - calm.interval.low)

    @pytest.mark.parametrize(("base", "head", "low", "high"), [
        (10e-9, 1e-6, True, False), (1e-6, 10e-9, False, True), (10e-9, 11e-9, False, False), (1e-6, 1.1e-6, True, True),
    ])  # fmt: skip
    def test_what_cannot_be_told_from_an_empty_call_is_shorter_by_any_factor(self, base: float, head: float, low: bool, high: bool) -> None:
        found = find(replace(three(np.log(np.array([[base, head, base]] * 12) * 1e4), noise=1e-3), overhead=9e-9, doubt=4e-9))
        assert (math.isfinite(found.interval.low), math.isfinite(found.interval.high)) == (low, high)
        assert (found.interval.low > 0) == (low and head > base)
        assert (found.interval.high < 0) == (high and head < base)

    @given(st.floats(1e-8, 1e-3), st.floats(0.5, 2.0), st.floats(0, 2e-9))
    def test_the_doubt_of_the_overhead_is_in_the_interval(self, base: float, ratio: float, doubt: float) -> None:
        rounds = replace(three(np.log(np.array([[base, base * ratio, base]] * 12) * 1e4)), overhead=4e-9)
        bare, doubted = find(rounds).interval, find(replace(rounds, doubt=doubt)).interval
        assert doubted.low <= bare.low and doubted.high >= bare.high
        for overhead in (4e-9 - doubt, 4e-9 + doubt):
            if min(base, base * ratio) > overhead:
                truth = math.log((base * ratio - overhead) / (base - overhead))
                assert doubted.low - 1e-6 <= truth <= doubted.high + 1e-6

    def test_one_rebuild_has_a_centre_but_no_bounds(self) -> None:
        found = find(quads([[1, 2, 2, 1]] * 9, [True] * 9)).ratio
        assert (found.centre, found.n) == (pytest.approx(2), 1)
        assert found.low < 1e-20
        assert found.high > 1e20


class TestTimes:
    @given(st.floats(1e-6, 1e-2), st.floats(0.5, 2), st.integers(6, 20), st.integers(1, 50))
    def test_each_arm_has_its_own_time_and_their_quotient_is_the_ratio(self, base: float, ratio: float, groups: int, calls: int) -> None:
        rows = [[base, base * ratio, base * ratio, base]] * (2 * groups)
        rounds = quads(rows, [True] * len(rows), calls=(calls, calls), group=[number // 2 for number in range(len(rows))])
        times = [rounds.time(number, WALL) for number in (0, 1)]
        assert [figure.value for figure in times] == pytest.approx([base / calls, base * ratio / calls])
        ends = [(figure.low, figure.high, figure.n) for figure in times]
        assert ends == [(pytest.approx(figure.value), pytest.approx(figure.value), groups) for figure in times]

    def test_disturbed_blocks_do_not_count_and_few_groups_have_no_interval(self) -> None:
        rounds = quads([[1, 2, 2, 9], [1, 2, 7, 1]], [True, True], hit=[[0, 0, 0, 1], [0, 0, 1, 0]], group=[0, 1])
        assert [(rounds.time(number, WALL).value, rounds.time(number, WALL).low) for number in (0, 1)] == [(1, None), (2, None)]

    @pytest.mark.parametrize("groups", [2, 8])
    def test_what_cannot_be_told_from_an_empty_call_is_less_than_so_much_as_in_a_record(self, groups: int) -> None:
        """The overhead is 30 ns to within 5 ns: 32 ns are 2 ns that may be none, and no floor of a tenth is invented."""
        times = [32e-9 + 1e-10 * number for number in range(groups)]
        rounds = replace(
            quads([[time, 200e-9, 200e-9, time] for time in times], [True] * groups, group=list(range(groups))), overhead=30e-9, doubt=5e-9
        )
        short, long = (rounds.time(number, WALL) for number in (0, 1))
        nothing = np.zeros(groups, bool)
        alone = Sample(np.asarray(times), nothing, 1, 30e-9, 0.0, 0, "", "", "blocks", doubt=5e-9)
        assert short == time_figure(alone.interval)
        assert (short.value, short.low) == (0, 0) and short.high is not None and 7e-9 < short.high < 9e-9
        assert long.value == pytest.approx(170e-9)
        assert (long.low, long.high) == ((None, None) if groups < 6 else (pytest.approx(165e-9), pytest.approx(175e-9)))


class TestNeeded:
    def test_nothing_more_is_needed_when_it_is_settled(self) -> None:
        same = find(three(np.random.default_rng(1).normal(0, 0.002, (40, 3))))
        assert needed_seconds(same.interval, 1.0) is None

    def test_twice_the_noise_needs_four_times_the_effort(self) -> None:
        levels = np.random.default_rng(6).normal(0, 0.06, (24, 3))
        one, two = (needed_seconds(find(three(factor * levels)).interval, 1.0) for factor in (1.0, 2.0))
        assert one is not None
        assert two is not None
        assert two + 1 > 3 * (one + 1)


def test_cpu_time_is_no_clock_where_one_arm_works_on_other_threads() -> None:
    """Its own thread waits: by thread time the slower arm would be the faster one."""
    rng = np.random.default_rng(3)
    seconds = np.tile([1.0, 2.0, 2.0, 1.0], (64, 1)) * rng.normal(1, 0.01, (64, 4))
    cpu = np.tile([1.0, 0.2, 0.2, 1.0], (64, 1)) * seconds / np.tile([1.0, 2.0, 2.0, 1.0], (64, 1))
    arm = np.tile(np.asarray([0, 1, 1, 0], np.int32), (64, 1))
    disturbed = rng.random((64, 4)) < 0.6
    rounds = Rounds(seconds, cpu, disturbed, arm, np.arange(64, dtype=np.int32) // 4, (1, 1))
    assert rounds.clock([0, 1]) == "wall"
    assert rounds.clock([0]) == "thread CPU"
