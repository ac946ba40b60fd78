"""Sampling on a virtual clock: every figure is known beforehand, so every rule can be held to it exactly."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from steelyard.measuring import sample as sampling
from steelyard.measuring.clock import HostTimer
from steelyard.measuring.figures import derive, figures
from steelyard.measuring.metrics import bandwidth, compute, item_rate
from steelyard.measuring.sample import EVENT_GAP, MOST, SEEN, WINDOW, Sample, calibrate, precise, quiet_collector, sample
from steelyard.model.define import metric
from steelyard.model.experiment import Settings
from steelyard.model.record import Figure
from steelyard.model.task import Reading, Task
from tests.measuring.virtual import Machine, costly_clock

QUICK = Settings(budget=0.3)


def taken(seconds: list[float], preempted: list[bool] | None = None, sampling: str = "blocks") -> Sample:
    return Sample(np.array(seconds), np.array(preempted or [False] * len(seconds)), 1, 0.0, 0.0, 0, "flat", "runs", sampling)


@pytest.fixture
def every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real time that passes fast enough for every event to go out."""
    seconds = itertools.count()
    monkeypatch.setattr(sampling, "clocks", SimpleNamespace(monotonic=lambda: float(next(seconds))))


class TestCalibration:
    @given(st.integers(1, 3_000_000))
    def test_a_block_lasts_as_long_as_it_should_or_is_one_call(self, nanoseconds: int) -> None:
        calls = calibrate(lambda n: n * nanoseconds, HostTimer())
        assert 50_000 <= calls * nanoseconds <= 150_000 or (calls == 1 and nanoseconds > 150_000)

    @given(st.integers(1, 140_000), st.integers(0, 7))
    def test_the_fastest_probe_decides(self, nanoseconds: int, calm: int) -> None:
        probes = itertools.count()

        def mostly_preempted(n: int) -> int:
            return n * nanoseconds + (0 if next(probes) % 8 == calm else 5_000_000)

        assert calibrate(mostly_preempted, HostTimer()) == calibrate(lambda n: n * nanoseconds, HostTimer())

    @pytest.mark.parametrize("nanoseconds", [20, 1_000, 90_000])
    def test_a_slow_first_call_does_not_decide(self, nanoseconds: int) -> None:
        first = itertools.chain([30_000_000_000], itertools.repeat(0))
        assert calibrate(lambda n: n * nanoseconds + next(first), HostTimer()) == calibrate(lambda n: n * nanoseconds, HostTimer())

    def test_long_calls_are_not_probed_more_than_they_need(self) -> None:
        probed: list[int] = []

        def loop(n: int) -> int:
            probed.append(n)
            return n * 1_000_000_000

        assert calibrate(loop, HostTimer()) == 1
        assert probed == [1, 1, 1]

    def test_sampling_uses_the_calibrated_block(self) -> None:
        machine = Machine()
        found = sample(machine.task(2_000), machine.timer, QUICK)
        assert found.calls == 50
        assert found.seconds.tolist() == [1e-4] * len(found.seconds)


class TestOverhead:
    @pytest.mark.parametrize("nanoseconds", [400, 3_000, 70_000, 5_000_000])
    @pytest.mark.parametrize("shape", ["bare", "args", "kwargs", "prepare"])
    def test_the_cost_of_the_clock_is_subtracted_exactly(self, nanoseconds: int, shape: str) -> None:
        machine = Machine()

        def fn(*args: int, **kwargs: int) -> None:
            assert (args, kwargs) == {"args": ((1, 2), {}), "kwargs": ((), {"k": 3})}.get(shape, ((), {}))
            machine.spend(nanoseconds)

        task = Task(
            fn,
            (1, 2) if shape == "args" else (),
            {"k": 3} if shape == "kwargs" else {},
            prepare=gc.isenabled if shape == "prepare" else None,
        )
        found = sample(task, costly_clock(machine), QUICK)
        assert found.overhead > 0
        assert found.per_call == pytest.approx(nanoseconds * 1e-9, rel=1e-9)
        assert (found.interval.low, found.interval.high) == pytest.approx((nanoseconds * 1e-9,) * 2, rel=1e-9)

    def test_precision_is_that_of_the_net_time(self) -> None:
        took = np.random.default_rng(0).normal(10_000, 300, 300).astype(int).tolist()
        hit = [False] * len(took)
        assert precise(took, hit, 100, 0.0, 0.01)
        assert not precise(took, hit, 100, 95e-9, 0.01)
        assert precise(took, hit, 100, 95e-9, 0.2)


class TestWarmUp:
    @hypothesis_settings(max_examples=25)
    @given(st.integers(200, 6_000), st.floats(1.5, 20), st.sampled_from([500, 4_000, 90_000]))
    def test_it_ends_flat_and_not_before_the_decay_is_over(self, calls: int, height: float, nanoseconds: int) -> None:
        machine = Machine()
        task = machine.task(lambda done: nanoseconds * (1 + (height - 1) * max(0.0, 1 - done / calls)))
        found = sample(task, machine.timer, Settings(budget=100.0, runs=20))
        assert found.warmup_end == "flat"
        assert found.warmup_blocks >= WINDOW
        assert machine.calls - found.calls * len(found.seconds) >= calls
        assert found.per_call == pytest.approx(nanoseconds * 1e-9, rel=1e-6)

    def test_a_flat_task_is_warm_after_one_window(self) -> None:
        machine = Machine()
        found = sample(machine.task(1_000), machine.timer, QUICK)
        assert (found.warmup_end, found.warmup_blocks, found.warmup_seconds) == ("flat", WINDOW, pytest.approx(WINDOW * 1e-4))

    def test_a_clock_that_still_climbs_is_waited_for(self) -> None:
        machine = Machine()
        asked = itertools.count(1)
        machine.timer.steady = lambda: next(asked) > 4  # type: ignore[method-assign]
        found = sample(machine.task(1_000), machine.timer, QUICK)
        assert (found.warmup_end, found.warmup_blocks) == ("flat", WINDOW + 4 * WINDOW // 2)

    def test_it_takes_no_more_than_a_quarter_of_the_budget(self) -> None:
        machine = Machine()
        found = sample(machine.task(lambda done: 1e5 * 0.9999**done), machine.timer, Settings(budget=0.4))
        assert found.warmup_end == "time"
        assert 0.1 <= found.warmup_seconds < 0.1 + 2e-4

    @pytest.mark.parametrize("asked", [0.0, 0.01, 0.5])
    def test_a_time_asked_for_is_kept(self, asked: float) -> None:
        machine = Machine()
        found = sample(machine.task(1_000), machine.timer, Settings(budget=0.3, warmup=asked))
        assert found.warmup_end == "time"
        assert asked <= found.warmup_seconds <= asked + 1.01e-4


class TestStopping:
    def test_by_precision(self) -> None:
        machine = Machine()
        found = sample(machine.task(1_000), machine.timer, Settings(budget=0.01))
        assert (found.stop, len(found.seconds)) == ("precision", 32)

    def test_by_precision_only_after_a_share_of_the_budget(self) -> None:
        machine = Machine()
        found = sample(machine.task(1_000), machine.timer, Settings(budget=0.5))
        assert (found.stop, len(found.seconds)) == ("precision", SEEN * 0.5 / 1e-4)

    @pytest.mark.parametrize("precision", [0.1, 0.03, 0.01])
    def test_by_precision_only_when_it_is_reached(self, precision: float) -> None:
        machine, rng = Machine(), np.random.default_rng(1)
        found = sample(machine.task(lambda _: 1e5 * rng.lognormal(0, 0.1)), machine.timer, Settings(budget=1.0, precision=precision))
        assert found.stop == "precision"
        assert found.interval.relative <= precision

    def test_by_budget(self) -> None:
        machine, rng = Machine(), np.random.default_rng(1)
        found = sample(machine.task(lambda _: 1e5 * rng.lognormal(0, 0.5)), machine.timer, Settings(budget=0.05, precision=1e-6))
        assert found.stop == "budget"
        assert sum(found.seconds[:-1]) < 0.05 <= sum(found.seconds)

    @pytest.mark.parametrize(("nanoseconds", "blocks"), [(140_000_000, 6), (160_000_000, 3), (9_000_000_000, 3)])
    def test_by_budget_with_a_fewest_for_long_calls(self, nanoseconds: int, blocks: int) -> None:
        machine = Machine()
        found = sample(machine.task(nanoseconds), machine.timer, QUICK)
        assert (found.stop, len(found.seconds), found.calls) == ("budget", blocks, 1)

    @pytest.mark.parametrize("runs", [1, 7, 500])
    @pytest.mark.parametrize("how", ["blocks", "calls"])
    def test_by_runs(self, runs: int, how: str) -> None:
        machine = Machine()
        found = sample(
            machine.task(1_000), machine.timer, Settings(budget=0.0001, runs=runs, sampling="calls" if how == "calls" else "blocks")
        )
        assert (found.stop, len(found.seconds), found.sampling) == ("runs", runs, how)

    def test_by_the_largest_number_of_blocks(self) -> None:
        machine = Machine()
        found = sample(machine.task(1), machine.timer, Settings(budget=1.0, sampling="calls"))
        assert (found.stop, len(found.seconds)) == ("blocks", MOST)


class TestDiscards:
    def test_only_preempted_blocks_are_left_out(self, every_event: None) -> None:
        """The values of the others count however odd they are, and a switch between blocks is nobody's fault."""
        machine = Machine()
        script = itertools.cycle(["", "odd", "preempted", "", ""])

        def fn() -> None:
            event = next(script)
            machine.spend({"": 200_000, "odd": 900_000, "preempted": 4_000_000}[event])
            if event == "preempted":
                machine.preempt()

        found = sample(
            Task(fn, repeatable=False), machine.timer, Settings(budget=0.0, runs=50), tell=lambda phase, fraction: machine.preempt()
        )
        assert found.preempted.tolist() == (found.seconds > 3e-3).tolist()
        assert found.discarded == found.preempted.mean() > 0.1
        assert sorted(set(found.per_call.round(9))) == [2e-4, 9e-4]
        assert len(found.per_call) == 50 - found.preempted.sum()

    def test_all_are_kept_when_too_few_would_remain(self) -> None:
        mostly = taken([1.0] * 9 + [5.0] * 11, [False] * 9 + [True] * 11)
        assert len(mostly.per_call) == 20
        assert mostly.discarded == 0.55
        assert mostly.noise == "D"
        few = taken([1.0] * 5 + [5.0], [False] * 5 + [True])
        assert len(few.per_call) == 6
        half = taken([1.0] * 10 + [5.0] * 10, [False] * 10 + [True] * 10)
        assert half.per_call.tolist() == [1.0] * 10


class TestWhatIsTimed:
    def test_prepare_runs_untimed_before_each_call(self) -> None:
        machine = Machine()
        done: list[str] = []

        def prepare() -> None:
            done.append("prepare")
            machine.spend(7_000_000)

        def fn() -> None:
            done.append("call")
            machine.spend(1_500)

        found = sample(Task(fn, prepare=prepare), machine.timer, Settings(budget=0.0, runs=40))
        assert found.calls == 1
        assert found.per_call.tolist() == [pytest.approx(1.5e-6)] * 40
        assert done == ["prepare", "call"] * (len(done) // 2)

    def test_a_scope_is_entered_untimed_around_every_block(self) -> None:
        machine = Machine()
        done: list[str] = []

        @contextmanager
        def scope() -> Iterator[None]:
            done.append("in")
            machine.spend(9_000_000)
            yield
            done.append("out")
            machine.spend(9_000_000)

        def fn() -> None:
            done.append("call")
            machine.spend(20_000)

        found = sample(Task(fn, scope=scope), machine.timer, Settings(budget=0.0, runs=9))
        assert found.calls == 5
        assert found.per_call.tolist() == [pytest.approx(2e-5)] * 9
        assert done[-9 * 7 :] == ["in", *["call"] * 5, "out"] * 9

    def test_a_task_that_cannot_be_repeated_gets_one_call_per_block(self) -> None:
        machine = Machine()
        found = sample(Task(machine.task(100).fn, repeatable=False), machine.timer, QUICK)
        assert found.calls == 1
        assert {calls for calls, _ in machine.blocks} == {1}

    def test_a_task_that_times_itself_is_believed(self) -> None:
        machine = Machine()
        readings = itertools.cycle([0.25, 0.5, 0.75])
        found = sample(Task(measure=lambda: Reading(next(readings))), machine.timer, Settings(runs=6))
        assert (found.calls, found.overhead) == (1, 0.0)
        assert sorted(found.per_call) == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75]

    def test_a_task_without_a_function_is_no_task(self) -> None:
        with pytest.raises(TypeError, match="fn or measure"):
            sample(Task(), Machine().timer, QUICK)

    def test_the_garbage_collector_rests_and_wakes_again(self) -> None:
        machine = Machine()
        seen: set[bool] = set()
        task = machine.task(lambda _: 1_000 if seen.add(gc.isenabled()) is None else 0)
        sample(task, machine.timer, QUICK)
        assert (seen, gc.isenabled()) == ({False}, True)
        with pytest.raises(ValueError, match="told"), quiet_collector():
            raise ValueError("told")
        assert gc.isenabled()
        gc.disable()
        with quiet_collector():
            pass
        assert not gc.isenabled()
        gc.enable()


class TestEvents:
    def test_at_most_four_a_second_and_never_during_a_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = itertools.count()
        monkeypatch.setattr(sampling, "clocks", SimpleNamespace(monotonic=lambda: 0.03 * next(clock)))
        machine = Machine()
        told: list[tuple[str, float | None, float]] = []

        def tell(phase: str, fraction: float | None) -> None:
            assert not machine.in_block
            told.append((phase, fraction, 0.03 * next(clock)))

        rng = np.random.default_rng(0)
        sample(machine.task(lambda _: 1e5 * rng.lognormal(0, 0.3)), machine.timer, Settings(budget=0.1, precision=1e-6), tell)
        times = [at for _, _, at in told]
        assert len(times) > 20
        assert min(np.diff(times)) >= EVENT_GAP
        assert {phase for phase, _, _ in told} == {"warm-up", "sampling"}
        shares = [share for _, share, _ in told if share is not None]
        assert shares == sorted(shares)
        assert 0 < shares[0] < shares[-1] <= 1


class TestFigures:
    @pytest.mark.parametrize(
        ("n", "tails"), [(19, set()), (20, {"time_p50"}), (100, {"time_p50", "time_p90"}), (1000, {"time_p50", "time_p90", "time_p99"})]
    )
    def test_tails_are_told_only_where_there_are_enough_calls(self, n: int, tails: set[str]) -> None:
        machine, rng = Machine(), np.random.default_rng(0)
        task = machine.task(lambda _: 1e5 * rng.lognormal(0, 0.3))
        found = figures(sample(task, machine.timer, Settings(sampling="calls", runs=n)), task, ())
        assert {name for name in found if name.startswith("time_p")} == tails
        if "time_p99" in tails:
            assert 1e-4 < found["time_p90"].value < found["time_p99"].value
            assert found["time_p99"].value == pytest.approx(1e-4 * np.exp(2.326 * 0.3), rel=0.1)

    def test_blocks_have_no_tails(self) -> None:
        task = Task()
        assert {"time_p50", "time_p90", "time_p99"}.isdisjoint(figures(taken([1.0] * 5000), task, ()))

    def test_tails_count_preempted_calls_and_the_median_does_not(self) -> None:
        found = figures(taken([1.0] * 880 + [9.0] * 120, [False] * 880 + [True] * 120, "calls"), Task(), ())
        assert found["time"].value == found["time_q10"].value == found["time_p50"].value == 1.0
        assert found["time_p90"].value == 9.0
        assert (found["discarded"].value, found["discarded"].n, found["time"].n) == (0.12, 1000, 880)

    def test_rates_follow_from_time_with_its_interval_turned_round(self) -> None:
        task = Task(flops=6.0, bytes=12.0, items=3.0)
        found = figures(taken([1.0, 2.0, 3.0] * 3), task, (compute, bandwidth, item_rate))
        time = found["time"]
        assert (time.value, time.low, time.high, time.n) == (2.0, 1.0, 3.0, 9)
        assert found["compute"] == Figure(3.0, "FLOP/s", "higher", 2.0, 6.0, 9)
        assert found["bandwidth"] == Figure(6.0, "B/s", "higher", 4.0, 12.0, 9)
        assert found["item_rate"].unit == "item/s"

    def test_what_is_not_declared_gives_no_rate(self) -> None:
        assert {"compute", "bandwidth", "item_rate"}.isdisjoint(figures(taken([1.0] * 9), Task(), (compute, bandwidth, item_rate)))

    def test_a_metric_of_ones_own_keeps_its_direction(self) -> None:
        @metric("cost", unit="s", better="lower")
        def cost(seconds: float, task: Task) -> float:
            return seconds * 2

        assert derive(cost, Figure(2.0, "s", "lower", 1.0, 3.0, 9), Task()) == Figure(4.0, "s", "lower", 2.0, 6.0, 9)
        assert derive(cost, Figure(2.0, "s", "lower"), Task()) == Figure(4.0, "s", "lower")
        assert derive(cost, Figure(-1e-9, "s", "lower", -2e-9, 1e-9, 9), Task()) is None
        assert derive(cost, Figure(1e-9, "s", "lower", -1e-9, 2e-9, 9), Task()) == Figure(2e-9, "s", "lower", n=9)
