"""Weighing arms on simulated machines: the true ratio is known, and so is everything that hides it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from steelyard.measuring.effort import FEWEST_REBUILDS
from steelyard.measuring.paired import Finding, find
from steelyard.measuring.schedule import Weighing, weigh_arms
from steelyard.model.experiment import Settings
from steelyard.model.task import Reading, Task
from tests.measuring.virtual import Machine, costly_clock, noisy_clock

SHORT = Settings(budget=0.05)
SEEDS = 60

Weather = Callable[[float], float]


def weigh(machine: Machine, base: float, head: float, settings: Settings = SHORT, seed: int = 0) -> Weighing:
    """Two arms and the placebo, each of a known cost."""
    builds = [partial(machine.task, base), partial(machine.task, head)]
    return weigh_arms(builds, machine.timer, settings, seed, placebo=builds[0])


def found(doing: Weighing) -> Finding:
    return find(doing.rounds(), peeked=doing.stop == "evidence")


def groups(doing: Weighing) -> list[int]:
    """The rebuild of each round."""
    return [each.group for each in doing.taken]


class TestRatios:
    @hypothesis_settings(max_examples=30, deadline=None)
    @given(st.integers(100, 2_000_000), st.integers(100, 2_000_000), st.integers(0, 2**31))
    def test_a_known_ratio_is_recovered_exactly(self, base: int, head: int, seed: int) -> None:
        ratio = found(weigh(Machine(), base, head, seed=seed)).ratio
        assert (ratio.centre, ratio.low, ratio.high) == pytest.approx((head / base,) * 3, rel=1e-4)

    @pytest.mark.parametrize("ratio", [1.0, 2.0])
    def test_the_cost_of_the_loop_does_not_dilute_the_ratio(self, ratio: float) -> None:
        machine = Machine()
        builds = [lambda: machine.task(30_000), lambda: machine.task(30_000 * ratio)]
        doing = weigh_arms(builds, costly_clock(machine, 5_000), SHORT, 1)
        assert doing.overhead > 0
        assert found(doing).ratio.centre == pytest.approx(ratio, rel=0.04)

    def test_noise_in_the_cost_of_the_loop_is_no_difference_between_the_arms(self) -> None:
        """It is weighed once for each arm; taken off separately, its noise would be the same in every rebuild and look sure."""
        wrong = 0
        for seed in range(8):
            machine, rng = Machine(), random.Random(seed)
            doing = weigh_arms([lambda: machine.task(300)] * 2, noisy_clock(machine, rng), SHORT, seed)  # noqa: B023
            interval = found(doing).interval
            assert doing.overhead > 0
            wrong += not interval.low <= 0 <= interval.high
        assert wrong <= 1

    @pytest.mark.parametrize(("base", "head", "calls"), [(66_000, 67_000, (1, 1)), (1_000, 1_900, (53, 53)), (1_000, 40_000, (100, 2))])
    def test_arms_of_about_the_same_speed_have_blocks_of_the_same_calls(self, base: int, head: int, calls: tuple[int, int]) -> None:
        assert weigh(Machine(), base, head).calls[:2] == calls

    def test_a_device_that_is_slow_at_first_makes_no_arm_look_slower(self) -> None:
        """Its clock climbs while the first arm's blocks are sized; equal arms must have equal blocks all the same."""
        machine = Machine()
        doing = weigh_arms([partial(machine.task, lambda done: 30_000 if done < 60 else 5_000)] * 2, machine.timer, SHORT, 1)
        assert doing.calls[0] == doing.calls[1]

    def test_several_heads_share_the_blocks_of_the_base(self) -> None:
        machine = Machine()
        builds = [partial(machine.task, cost) for cost in (100_000, 150_000, 80_000)]
        rounds = weigh_arms(builds, machine.timer, SHORT, 3, placebo=builds[0]).rounds()
        assert rounds.arm.shape[1] == 8
        assert all(sorted(row) == [0, 0, 1, 1, 2, 2, 3, 3] for row in rounds.arm.tolist())
        assert (rounds.arm == rounds.arm[:, ::-1]).all()
        assert [find(rounds, head).ratio.centre for head in (1, 2)] == pytest.approx([1.5, 0.8])

    def test_blocks_preempted_on_a_machine_do_not_move_the_ratio(self) -> None:
        machine, rng = Machine(), random.Random(0)

        def build(cost: int) -> Callable[[], Task]:
            def fn() -> None:
                machine.spend(cost)
                if rng.random() < 0.1:
                    machine.spend(4_000_000)
                    machine.preempt()

            return lambda: Task(fn)

        doing = weigh_arms([build(100_000), build(110_000)], machine.timer, Settings(budget=0.3), 3)
        rounds = doing.rounds()
        assert rounds.disturbed.tolist() == (rounds.seconds > 1e-3).tolist()
        assert found(doing).ratio.centre == pytest.approx(1.1, rel=1e-9)


def noted(machine: Machine) -> tuple[list[int], list[Callable[[], Task]]]:
    """Two equal arms, and the list of which was built when."""
    built: list[int] = []

    def build(arm: int) -> Task:
        built.append(arm)
        return machine.task(100_000)

    return built, [partial(build, 0), partial(build, 1)]


class TestSchedule:
    def test_equal_seeds_draw_equal_orders(self) -> None:
        def drawn(seed: int) -> tuple[list[int], list[tuple[int, ...]]]:
            machine = Machine()
            built, tasks = noted(machine)
            return built, [each.order for each in weigh_arms(tasks, machine.timer, SHORT, seed).taken]

        assert drawn(4) == drawn(4)
        assert drawn(4) != drawn(5)

    def test_every_order_is_drawn(self) -> None:
        machine, firsts, builds = Machine(), [], []
        for seed in range(20):
            built, tasks = noted(machine)
            firsts += [each.order[0] for each in weigh_arms(tasks, machine.timer, SHORT, seed).taken]
            builds += built[::2]
        assert 0.4 < np.mean(firsts) < 0.6
        assert 0.35 < np.mean(builds) < 0.65

    def test_arms_are_built_anew_and_cleaned_up_each_time(self) -> None:
        machine = Machine()
        alive: set[int] = set()
        most = []

        def build() -> Task:
            mark = len(most)
            alive.add(mark)
            most.append(len(alive))
            return Task(machine.task(100_000).fn, cleanup=lambda: alive.remove(mark))

        doing = weigh_arms([build, build], machine.timer, SHORT, 0, placebo=build)
        assert len(most) == 3 * len(set(groups(doing)))
        assert (max(most), alive) == (3, set())

    def test_code_is_built_anew_too(self) -> None:
        """The interpreter tunes a function's bytecode in place; arms that share it would share what it learned."""
        machine, seen = Machine(), []

        def fn() -> None:
            machine.spend(100_000)

        timer = machine.timer
        bind = timer.bind
        timer.bind = lambda task: (seen.append(task.fn.__code__), bind(task))[1]
        doing = weigh_arms([lambda: Task(fn)] * 2, timer, SHORT, 0)
        assert len({id(code) for code in seen if code.co_name == "fn"}) == 2 * len(set(groups(doing)))

    @pytest.mark.parametrize("budget", [0.05, 0.3])
    def test_the_budget_is_kept_when_nothing_is_certain(self, budget: float) -> None:
        machine, rng = Machine(), random.Random(1)
        builds = [lambda: machine.task(lambda _: 100_000 * math.exp(rng.gauss(0, 0.5)))] * 2
        doing = weigh_arms(builds, machine.timer, Settings(budget=budget, settle=0), 0)
        assert doing.stop == "budget"
        assert 0.8 * budget < doing.spent <= 1.3 * budget

    def test_the_first_call_after_a_change_of_arm_is_not_timed(self) -> None:
        machine, last = Machine(), [""]

        def build(name: str) -> Task:
            def fn() -> None:
                machine.spend(50_000 if last[0] == name else 80_000)
                last[0] = name

            return Task(fn)

        doing = weigh_arms([partial(build, "base"), partial(build, "head")], machine.timer, SHORT, 0)
        assert set(doing.rounds().seconds.ravel()) == {1e-4}

    def test_slow_arms_are_seen_a_few_times(self) -> None:
        doing = weigh(Machine(), 2e9, 3e9, Settings(budget=1.0))
        assert len(groups(doing)) == len(set(groups(doing))) == 4
        assert found(doing).ratio.centre == pytest.approx(1.5)

    def test_every_round_of_tasks_that_time_themselves_is_a_rebuild(self) -> None:
        builds = [lambda: Task(measure=lambda: Reading(0.01)), lambda: Task(measure=lambda: Reading(0.02))]
        doing = weigh_arms(builds, Machine().timer, Settings(budget=1.0), 0)
        assert groups(doing) == list(range(len(groups(doing))))
        assert found(doing).ratio.centre == pytest.approx(2)

    def test_the_first_request_of_a_model_that_was_moved_is_not_timed_and_slow_ones_do_not_go_on_for_multiples(self) -> None:
        """It fills caches, and records graphs of the device again: here it takes ten times as long as the others."""
        machine, taken = Machine(), dict[int, list[float]]()

        def build(arm: int, seconds: float) -> Task:
            calls = iter(range(1000))

            def request() -> float:
                took = seconds * (10 if next(calls) == 0 else 1)
                machine.spend(took * 1e9)
                taken.setdefault(arm, []).append(took)
                return took

            return Task(request, reading=Reading, heavy=True)

        doing = weigh_arms([partial(build, 0, 2.0), partial(build, 1, 2.2)], machine.timer, Settings(budget=1.0), 0)
        assert set(np.round(doing.rounds().seconds.ravel(), 6)) == {2.0, 2.2} and 20.0 in taken[0]
        assert len(groups(doing)) == 6 and doing.stop == "budget"
        assert found(doing).ratio.centre == pytest.approx(1.1)


class TestStopping:
    def test_a_clear_difference_ends_the_measurement_early(self) -> None:
        doing = weigh(Machine(), 100_000, 105_000, Settings(budget=5.0))
        assert (doing.stop, len(set(groups(doing)))) == ("evidence", pytest.approx(10, abs=3))
        assert doing.spent < 0.15
        assert found(doing).interval.low > 0

    def test_equal_arms_end_when_that_is_certain(self) -> None:
        machine, rng = Machine(), random.Random(1)
        builds = [lambda: machine.task(lambda _: 100_000 * math.exp(rng.gauss(0, 0.002)))] * 2
        doing = weigh_arms(builds, machine.timer, Settings(budget=1.0), 0, placebo=builds[0])
        assert doing.stop == "evidence"
        assert 0.2 < doing.spent < 0.5
        interval = found(doing).interval
        assert -0.02 < interval.low < 0 < interval.high < 0.02

    def test_a_larger_suite_asks_for_more_evidence(self) -> None:
        spent = []
        for suite in (1, 1000):
            machine = Machine()
            builds = [lambda: machine.task(100_000), lambda: machine.task(110_000)]  # noqa: B023
            spent.append(len(set(groups(weigh_arms(builds, machine.timer, Settings(budget=5.0), 0, suite=suite)))))
        assert spent[0] < spent[1] < 3 * spent[0]

    def test_where_a_rebuild_is_dear_it_gets_more_rounds(self) -> None:
        def rounds(building: float) -> float:
            machine, rng = Machine(), random.Random(2)

            def build() -> Task:
                machine.spend(building)
                placed = 100_000 * math.exp(rng.gauss(0, 0.005))
                return machine.task(lambda _: placed * math.exp(rng.gauss(0, 0.02)))

            doing = weigh_arms([build, build], machine.timer, Settings(budget=1.0, margin=1e-6), 0)
            return len(groups(doing)) / len(set(groups(doing)))

        assert rounds(5e6) > 1.2 * rounds(1e4)
        assert FEWEST_REBUILDS == 8


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


def heavy_tailed(rng: random.Random) -> Weather:
    """Every twentieth call hits something that costs it half as much again, and no counter sees it."""
    return lambda now: 1.5 if rng.random() < 0.05 else 1.0


def everything(rng: random.Random) -> Weather:
    parts = [drift(rng), steps(rng), autocorrelated(rng)]
    return lambda now: math.prod(part(now) for part in parts)


class TestErrorRates:
    """Arms are built separately: each build lands somewhere else in memory and is really faster or slower by half a percent."""

    def weigh(self, seed: int, weather: Callable[[random.Random], Weather], ratio: float) -> Weighing:
        rng, machine = random.Random(seed), Machine()
        factor = weather(rng)

        def build(cost: float) -> Callable[[], Task]:
            def made() -> Task:
                placed = cost * (math.exp(rng.gauss(0, 0.005)) + (0.05 if rng.random() < 0.1 else 0.0))
                return machine.task(lambda _: placed * factor(machine.world.clock * 1e-9) * math.exp(rng.gauss(0, 0.004)))

            return made

        return weigh_arms([build(100_000), build(100_000 * ratio)], machine.timer, SHORT, seed, placebo=build(100_000))

    @pytest.mark.parametrize(
        "weather",
        [drift, everything, *(pytest.param(weather, marks=pytest.mark.deep) for weather in (steps, autocorrelated, heavy_tailed))],
    )
    def test_equal_arms_are_found_equal(self, weather: Callable[[random.Random], Weather]) -> None:
        intervals = [found(self.weigh(seed, weather, 1.0)).interval for seed in range(SEEDS)]
        assert sum(item.low <= 0 <= item.high for item in intervals) >= 0.97 * SEEDS
        assert abs(np.mean([item.centre for item in intervals])) < 3.3 * 0.0075 / math.sqrt(SEEDS)

    @pytest.mark.parametrize("ratio", [1.06, 0.9, 1.5])
    def test_a_true_difference_is_covered_and_seen(self, ratio: float) -> None:
        intervals = [found(self.weigh(seed, everything, ratio)).interval for seed in range(SEEDS // 2)]
        assert sum(item.low <= math.log(ratio) <= item.high for item in intervals) >= 0.95 * len(intervals)
        assert sum((item.low > 0) if ratio > 1 else (item.high < 0) for item in intervals) >= 0.9 * len(intervals)

    def test_without_rebuilds_placement_is_taken_for_a_difference(self) -> None:
        """The reason for rebuilding: pooled pairs of one build each are sure of the wrong thing."""
        wrong = 0
        for seed in range(60):
            rounds = self.weigh(seed, drift, 1.0).rounds()
            ratios = rounds.ratios(0, 1, "wall")[0][rounds.group < 3].ravel()
            wrong += abs(ratios.mean()) > 2.58 * ratios.std(ddof=1) / math.sqrt(len(ratios))
        assert wrong > 0.2 * 60
