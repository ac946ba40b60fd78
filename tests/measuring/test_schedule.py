"""Weighing two arms on simulated machines: the true ratio is known, and so is everything that hides it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from steelyard.measuring.schedule import CONFIDENCE, FEWEST_QUADS, REBUILDS, Quads, weigh_arms
from steelyard.model.experiment import Settings
from steelyard.model.task import Reading, Task
from tests.measuring.virtual import Machine, costly_clock, noisy_clock

SHORT = Settings(budget=0.02)
SEEDS = 240

Weather = Callable[[float], float]


def arms(machine: Machine, base: float, head: float) -> tuple[Callable[[], Task], Callable[[], Task]]:
    return lambda: machine.task(base), lambda: machine.task(head)


def quads(rows: list[list[float]], coin: list[bool], hit: list[list[int]] | None = None, calls: tuple[int, int] = (1, 1)) -> Quads:
    """One rebuild with the blocks given in time order."""
    hits = np.array(hit if hit else np.zeros_like(np.array(rows)), bool)
    return Quads(np.array(rows, float), hits, np.array(coin), np.zeros(len(rows), np.int32), calls, 0)


class TestRatios:
    @hypothesis_settings(max_examples=40)
    @given(st.integers(100, 2_000_000), st.integers(100, 2_000_000), st.integers(0, 2**31))
    def test_a_known_ratio_is_recovered_exactly(self, base: int, head: int, seed: int) -> None:
        machine = Machine()
        found = weigh_arms(arms(machine, base, head), machine.timer, SHORT, seed).interval()
        assert (found.centre, found.low, found.high) == pytest.approx((head / base,) * 3, rel=1e-9)
        assert found.n == REBUILDS

    @pytest.mark.parametrize("ratio", [1.0, 2.0])
    def test_the_cost_of_the_loop_does_not_dilute_the_ratio(self, ratio: float) -> None:
        machine = Machine()
        found = weigh_arms(arms(machine, 30_000, 30_000 * ratio), costly_clock(machine, 5_000), SHORT, 1)
        assert found.overhead > 0
        assert found.interval().centre == pytest.approx(ratio, rel=0.04)
        assert replace(found, overhead=0.0).interval().centre == pytest.approx(ratio, rel=0.2)

    def test_noise_in_the_cost_of_the_loop_is_no_difference_between_the_arms(self) -> None:
        """It is weighed once for each arm; taken off separately, its noise would be the same in every rebuild and look sure."""
        for seed in range(20):
            machine, rng = Machine(), random.Random(seed)
            found = weigh_arms(arms(machine, 300, 300), noisy_clock(machine, rng), SHORT, seed)
            assert found.overhead > 0
            assert found.interval().low <= 1 <= found.interval().high

    def test_less_than_nothing_is_never_left(self) -> None:
        found = replace(quads([[1, 2, 2, 1], [2, 1, 1, 2]] * 4, [True, False] * 4), overhead=5.0)
        assert found.interval().centre == pytest.approx(2)

    def test_each_arm_has_blocks_of_its_own_size(self) -> None:
        machine = Machine()
        found = weigh_arms(arms(machine, 1_000, 40_000), machine.timer, SHORT, 1)
        assert found.calls == (100, 2)
        base = np.where(found.coin[:, None], found.seconds[:, [0, 3]], found.seconds[:, [1, 2]])
        head = np.where(found.coin[:, None], found.seconds[:, [1, 2]], found.seconds[:, [0, 3]])
        assert set(base.ravel()) == {1e-4}
        assert set(head.ravel()) == {8e-5}

    @pytest.mark.parametrize(("base", "head", "calls"), [(66_000, 67_000, (1, 1)), (1_000, 1_900, (53, 53)), (1_000, 2_200, (100, 45))])
    def test_arms_of_about_the_same_speed_have_blocks_of_the_same_calls(self, base: int, head: int, calls: tuple[int, int]) -> None:
        machine = Machine()
        assert weigh_arms(arms(machine, base, head), machine.timer, SHORT, 1).calls == calls

    def test_the_sign_is_right_whichever_arm_came_first(self) -> None:
        found = quads([[1, 3, 3, 1], [3, 1, 1, 3]], [True, False])
        assert np.exp(found.log_ratios()[0]).tolist() == [[pytest.approx(3), pytest.approx(3)]] * 2

    @given(st.lists(st.tuples(*[st.floats(1e-6, 1)] * 4, st.booleans()), min_size=1, max_size=9), st.integers(1, 99), st.integers(1, 99))
    def test_naming_the_arms_the_other_way_round_turns_the_ratio_over(self, rows: list[Any], few: int, many: int) -> None:
        times, coin = [list(row[:4]) for row in rows], [row[4] for row in rows]
        one, other = quads(times, coin, calls=(few, many)), quads(times, [not flip for flip in coin], calls=(many, few))
        assert one.log_ratios()[0] == pytest.approx(-other.log_ratios()[0], abs=1e-9)
        assert one.interval().centre == pytest.approx(1 / other.interval().centre, rel=1e-9)

    def test_the_pairs_of_a_quad_are_neighbours_in_time(self) -> None:
        """Base 1, 4 and head 2, 3 in time order: a machine slowing down gives one ratio above and one below the truth."""
        assert np.exp(quads([[1, 2, 3, 4]], [True]).log_ratios()[0]).tolist() == [[pytest.approx(2), pytest.approx(0.75)]]
        assert np.exp(quads([[1, 2, 3, 4]], [False]).log_ratios()[0]).tolist() == [[pytest.approx(0.5), pytest.approx(4 / 3)]]

    def test_one_rebuild_has_a_centre_but_no_bounds(self) -> None:
        found = quads([[1, 2, 2, 1]] * 9, [True] * 9).interval()
        assert (found.centre, found.low, found.n) == (pytest.approx(2), 0.0, 1)
        assert found.high > 1e20


class TestDiscards:
    def test_a_pair_is_left_out_when_either_block_was_preempted(self) -> None:
        rows = [[1, 2, 2, 1]] * 3 + [[9, 2, 2, 1], [1, 9, 2, 1], [1, 2, 9, 1], [1, 2, 2, 9]]
        hit = [[0, 0, 0, 0]] * 3 + [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
        found = quads(rows, [True] * 7, hit)
        ratios, clean = found.log_ratios()
        assert clean.tolist() == [[True, True]] * 3 + [[False, True]] * 2 + [[True, False]] * 2
        assert np.exp(ratios[clean]).tolist() == [pytest.approx(2)] * 10

    def test_values_alone_are_never_a_reason(self) -> None:
        _, clean = quads([[1, 1000, 2, 1], [1e-9, 2, 2, 1]], [True, False]).log_ratios()
        assert clean.all()

    def test_shares_are_told_by_arm(self) -> None:
        found = quads([[1, 1, 1, 1]] * 4, [True, True, False, False], [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
        assert found.discarded() == {"base": 2 / 8, "head": 2 / 8}
        only_head = quads([[1, 1, 1, 1]] * 2, [True, False], [[0, 1, 1, 0], [1, 0, 0, 1]])
        assert only_head.discarded() == {"base": 0.0, "head": 1.0}

    def test_a_rebuild_without_enough_clean_pairs_keeps_them_all(self) -> None:
        found = quads([[1, 2, 2, 1], [1, 8, 8, 1], [1, 8, 8, 1]], [True] * 3, [[0, 0, 0, 0], [1, 0, 0, 1], [1, 0, 0, 1]])
        assert found.centres() == [pytest.approx(math.log(8))]

    def test_blocks_preempted_on_a_machine_do_not_move_the_ratio(self) -> None:
        machine, rng = Machine(), random.Random(0)

        def build(cost: int) -> Callable[[], Task]:
            def fn() -> None:
                machine.spend(cost)
                if rng.random() < 0.2:
                    machine.spend(4_000_000)
                    machine.preempt()

            return lambda: Task(fn)

        found = weigh_arms((build(100_000), build(110_000)), machine.timer, Settings(budget=0.1), 3)
        assert found.preempted.tolist() == (found.seconds > 1e-3).tolist()
        assert 0.1 < found.discarded()["base"] < 0.3
        assert (found.interval().low, found.interval().high) == pytest.approx((1.1, 1.1), rel=1e-9)


def noted(machine: Machine) -> tuple[list[int], tuple[Callable[[], Task], Callable[[], Task]]]:
    """Two equal arms, and the list of which was built when."""
    built: list[int] = []

    def build(arm: int) -> Task:
        built.append(arm)
        return machine.task(100_000)

    return built, (partial(build, 0), partial(build, 1))


class TestSchedule:
    def test_coin_flips_and_building_order_come_from_the_recorded_seed(self) -> None:
        for seed in range(20):
            machine = Machine()
            built, tasks = noted(machine)
            found = weigh_arms(tasks, machine.timer, SHORT, seed)
            rng, flips, order = random.Random(found.seed), [], []
            for number in range(REBUILDS):
                order += rng.sample((0, 1), 2)
                flips += [rng.random() < 0.5 for _ in range(int((found.rebuild == number).sum()))]
            assert found.seed == seed
            assert found.coin.tolist() == flips
            assert built == order

    def test_every_order_is_drawn(self) -> None:
        machine = Machine()
        coins, firsts = [], []
        for seed in range(40):
            built, tasks = noted(machine)
            coins.append(weigh_arms(tasks, machine.timer, SHORT, seed).coin.mean())
            firsts.append(np.mean(built[::2]))
        assert 0.45 < np.mean(coins) < 0.55
        assert 0.35 < np.mean(firsts) < 0.65

    def test_both_arms_are_built_anew_and_cleaned_up_each_time(self) -> None:
        machine = Machine()
        alive: set[int] = set()
        most = []

        def build() -> Task:
            mark = len(most)
            alive.add(mark)
            most.append(len(alive))
            return Task(machine.task(100_000).fn, cleanup=lambda: alive.remove(mark))

        found = weigh_arms((build, build), machine.timer, SHORT, 0)
        assert len(most) == 2 * REBUILDS
        assert (max(most), alive) == (2, set())
        assert np.unique(found.rebuild).tolist() == list(range(REBUILDS))

    @pytest.mark.parametrize("budget", [0.05, 0.3])
    def test_the_budget_is_filled(self, budget: float) -> None:
        machine = Machine()
        found = weigh_arms(arms(machine, 1_000, 1_000), machine.timer, Settings(budget=budget), 0)
        assert 0.8 * budget < found.seconds.sum() <= budget

    def test_slow_arms_get_one_quad_in_each_rebuild(self) -> None:
        machine = Machine()
        found = weigh_arms(arms(machine, 2e9, 3e9), machine.timer, Settings(budget=1.0), 0)
        assert len(found.coin) == REBUILDS
        assert found.interval().centre == pytest.approx(1.5)

    def test_medium_arms_get_the_fewest_quads_that_make_a_median(self) -> None:
        machine = Machine()
        found = weigh_arms(arms(machine, 20e6, 20e6), machine.timer, Settings(budget=1.0), 0)
        assert len(found.coin) == REBUILDS * FEWEST_QUADS

    def test_every_quad_of_tasks_that_time_themselves_is_a_rebuild(self) -> None:
        machine = Machine()
        found = weigh_arms(
            (lambda: Task(measure=lambda: Reading(0.01)), lambda: Task(measure=lambda: Reading(0.02))), machine.timer, Settings(), 0
        )
        assert found.rebuild.tolist() == list(range(16))
        assert found.interval().centre == pytest.approx(2)

    def test_progress_ends_at_the_whole(self) -> None:
        machine = Machine()
        told: list[float | None] = []
        weigh_arms(arms(machine, 1e9, 1e9), machine.timer, SHORT, 0, lambda phase, fraction: told.append(fraction))
        assert told[0] == 1 / REBUILDS


def drift(rng: random.Random) -> Weather:
    """A machine that warms up by a fifth over the measurement."""
    return lambda now: 1 + 0.2 * now / 0.03


def steps(rng: random.Random) -> Weather:
    """A neighbour that comes and goes, each time costing a third."""
    edges = sorted(rng.uniform(0, 0.05) for _ in range(9))
    return lambda now: 1.3 if sum(now > edge for edge in edges) % 2 else 1.0


def autocorrelated(rng: random.Random) -> Weather:
    """Noise of 5 % with a correlation time of about a millisecond."""
    state, last = 0.0, 0.0

    def factor(now: float) -> float:
        nonlocal state, last
        keep = math.exp(-(now - last) / 1e-3)
        state, last = keep * state + math.sqrt(1 - keep * keep) * rng.gauss(0, 0.05), now
        return math.exp(state)

    return factor


def everything(rng: random.Random) -> Weather:
    parts = [drift(rng), steps(rng), autocorrelated(rng)]
    return lambda now: math.prod(part(now) for part in parts)


class TestErrorRates:
    """Arms are built separately: each build lands somewhere else in memory and is really faster or slower by half a percent."""

    def weigh(self, seed: int, weather: Callable[[random.Random], Weather], ratio: float) -> Quads:
        rng, machine = random.Random(seed), Machine()
        factor = weather(rng)

        def build(cost: float) -> Callable[[], Task]:
            def made() -> Task:
                placed = cost * math.exp(rng.gauss(0, 0.005))
                return machine.task(lambda _: placed * factor(machine.world.clock * 1e-9) * math.exp(rng.gauss(0, 0.004)))

            return made

        return weigh_arms((build(100_000), build(100_000 * ratio)), machine.timer, SHORT, seed)

    @pytest.mark.parametrize("weather", [drift, steps, autocorrelated, everything])
    def test_equal_arms_are_found_equal(self, weather: Callable[[random.Random], Weather]) -> None:
        found = [self.weigh(seed, weather, 1.0).interval() for seed in range(SEEDS)]
        assert CONFIDENCE == 0.99
        assert sum(item.low <= 1 <= item.high for item in found) >= 0.97 * SEEDS
        assert abs(np.mean([math.log(item.centre) for item in found])) < 0.001

    @pytest.mark.parametrize("ratio", [1.03, 0.9, 1.5])
    def test_a_true_difference_is_covered_and_seen(self, ratio: float) -> None:
        found = [self.weigh(seed, everything, ratio).interval() for seed in range(SEEDS // 2)]
        assert sum(item.low <= ratio <= item.high for item in found) >= 0.97 * len(found)
        assert sum((item.low > 1) if ratio > 1 else (item.high < 1) for item in found) >= 0.9 * len(found)
        assert np.mean([math.log(item.centre) for item in found]) == pytest.approx(math.log(ratio), abs=0.001)

    def test_without_rebuilds_placement_is_taken_for_a_difference(self) -> None:
        """The reason for rebuilding: pooled quads of one build each are sure of the wrong thing."""
        wrong = 0
        for seed in range(60):
            found = self.weigh(seed, steps, 1.0)
            first = found.rebuild == 0
            ratios = found.log_ratios()[0][first].ravel()
            spread = 2.58 * ratios.std(ddof=1) / math.sqrt(len(ratios))
            wrong += abs(ratios.mean()) > spread
        assert wrong > 0.2 * 60
