"""Timing on a device is right on a made-up one, whose clock, queue, throttling and energy are known exactly."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.errors import Unsupported
from steelyard.machine import nvidia, telemetry
from steelyard.machine.telemetry import Log, MeterReading
from steelyard.measuring.sample import sample
from steelyard.model.experiment import Settings
from steelyard.model.task import Reading, Task

pytest.importorskip("torch")
from steelyard.backends import _device
from steelyard.backends._device import EventTimer, GraphTimer, PairTimer
from steelyard.backends.torch import Torch
from tests.backends.virtual import EVENT, KERNEL, LAUNCH, MISS, WATTS, Device, Meter

HEAT = 0x20
SHORT = replace(Settings(), budget=0.05)


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def flushed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = SimpleNamespace(fill_=lambda value: setattr(device, "cold", True))
    monkeypatch.setattr(_device, "torch", SimpleNamespace(empty=lambda *args, **kwargs: buffer, uint8=None))


def test_host_time_is_of_the_sampled_blocks_alone(device: Device) -> None:
    timer, calls = device.timer(), 0

    def call() -> None:
        nonlocal calls
        calls += 1
        device.now += 1e-3 if calls <= 600 else 0.0
        device.launch(KERNEL)

    taken = sample(Task(call), timer, replace(SHORT, runs=30, warmup=0.04))
    assert calls > 600 + 30 * taken.calls
    assert len(timer.tally.host) == len(taken.seconds) == 30
    assert timer.tally.host == pytest.approx([LAUNCH] * 30)
    assert timer.report(KERNEL)["host_time"] == pytest.approx(LAUNCH)


def test_a_held_stream_hides_the_launches(device: Device) -> None:
    timer = device.timer()
    taken = sample(device.task(1e-6), timer, replace(SHORT, runs=10))
    assert taken.interval.centre == pytest.approx(1e-6, rel=0.01)
    assert timer.report(1e-6) == {
        "timer": "events, stream held back", "host_time": pytest.approx(LAUNCH), "host_late": 0.0, "eager_bound_by": "host",
    }  # fmt: skip


def test_without_a_hold_the_device_waits_and_the_record_says_so(device: Device) -> None:
    timer = device.timer(api=device.without("_sleep"))
    taken = sample(device.task(1e-6), timer, replace(SHORT, runs=10))
    told = timer.report(1e-6)
    assert taken.interval.centre > 4e-6
    assert told["timer"] == "events" and told["host_late"] == 1.0


def test_work_on_a_stream_that_nobody_waits_for_is_timed_too(device: Device) -> None:
    timer = device.timer()
    taken = sample(Task(lambda: device.stray(1e-3)), timer, replace(SHORT, runs=10))
    assert taken.interval.centre == pytest.approx(1e-3, rel=0.02)
    assert timer.method == timer.report(1e-3)["timer"] == _device.WAITED


def test_the_first_blocks_with_stray_work_are_not_too_short_either(device: Device) -> None:
    loop = device.timer().bind(Task(lambda: device.stray(1e-3)))
    assert [loop(4) * 1e-9 for _ in range(6)] == pytest.approx([4e-3] * 6, rel=0.02)


def test_stray_work_of_one_loop_has_all_of_them_waited_for(device: Device) -> None:
    timer = device.timer()
    plain, astray = timer.bind(device.task(1e-3)), timer.bind(Task(lambda: device.stray(1e-3)))
    for _ in range(3):
        plain(1)
        astray(1)
    assert timer.waits and timer.method == _device.WAITED
    assert plain(4) * 1e-9 == pytest.approx(4e-3, rel=0.02) and astray(4) * 1e-9 == pytest.approx(4e-3, rel=0.02)


def test_now_and_then_is_counted_and_changes_no_clock(device: Device) -> None:
    timer, calls = device.timer(), iter(range(100))

    def call() -> None:
        device.launch(KERNEL)
        if next(calls) % 3 == 0:
            device.stray(1e-3)

    loop = timer.bind(Task(call))
    took = [loop(1) * 1e-9 for _ in range(9)]
    assert all(seconds > 9e-4 for seconds in took[::3])
    assert all(seconds < 9e-5 for number, seconds in enumerate(took) if number % 3)
    assert not timer.waits


def test_a_device_that_is_slow_to_wait_for_is_not_taken_for_busy(device: Device) -> None:
    device.waiting = 2e-4
    timer = device.timer()
    taken = sample(device.task(1e-6), timer, replace(SHORT, runs=10))
    assert taken.interval.centre == pytest.approx(1e-6, rel=0.01) and not timer.waits


def test_a_device_without_a_wait_for_all_of_it_is_timed_by_events(device: Device) -> None:
    timer = device.timer(api=device.without("synchronize"))
    assert timer.bind(device.task(1e-3))(4) * 1e-9 == pytest.approx(4e-3, rel=0.01) and not timer.waits


def test_a_replayed_graph_launches_once_for_all_its_calls(device: Device) -> None:
    timer = device.timer(kind=GraphTimer)
    taken = sample(device.task(1e-6), timer, replace(SHORT, runs=10))
    assert taken.calls > 10 and taken.interval.centre == pytest.approx(1e-6, rel=0.01)
    told = timer.report(1e-6)
    assert told["timer"] == "graph replay" and told["host_time"] == pytest.approx(LAUNCH / taken.calls)


def test_a_prepared_task_is_not_called_replayed(device: Device) -> None:
    timer, prepared = device.timer(kind=GraphTimer), []
    sample(device.task(prepare=lambda: prepared.append(1)), timer, replace(SHORT, runs=10))
    told = timer.report(KERNEL)
    assert prepared and told["timer"] == "events, stream held back" and told["host_time"] == pytest.approx(LAUNCH)


def test_results_do_not_pile_up_in_a_graph(device: Device) -> None:
    """Calls that keep their outputs would write to as many places as there are calls, which eager ones do not."""
    alive, most = 0, 0

    class Result:
        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def call() -> Result:
        device.launch(KERNEL)
        return Result()

    device.timer(kind=GraphTimer).bind(Task(call))(50)
    assert most == 1


class TestPairs:
    def refused(self, device: Device) -> Task:
        """Work that cannot be captured."""

        def call() -> None:
            if device.recording is not None:
                raise RuntimeError("operation not permitted when stream is capturing")
            device.launch(KERNEL)

        return Task(call)

    def timer(self, device: Device, *arms: Task, api: Any = None) -> PairTimer:
        timer = PairTimer(api or device.api, "cpu", None, arms)
        timer.now = lambda: device.now
        return timer

    def test_the_method_is_what_is_done_with_all_arms(self, device: Device) -> None:
        fine, prepared = device.task(), device.task(prepare=lambda: None)
        for arms, api, method, rounds in (
            ((fine, fine), None, "graph replay", 6),
            ((fine, self.refused(device)), None, "events, stream held back", 8),
            ((fine, prepared), None, "events, stream held back", 8),
            ((fine, fine), device.without("_sleep", "CUDAGraph"), "events", 8),
        ):
            timer = self.timer(device, *arms, api=api)
            loop = timer.bind(fine)
            timer.disturbances()
            loop(4)
            assert (timer.method, timer.tally.method, timer.rounds) == (method, method, rounds)

    def test_replaying_can_be_given_up_for_the_other_arm(self, device: Device) -> None:
        timer = self.timer(device, device.task())
        timer.use_events()
        loop = timer.bind(device.task())
        timer.disturbances()
        assert loop(4) == pytest.approx((4 * KERNEL + EVENT) * 1e9, rel=0.01)
        assert (timer.method, timer.tally.method) == ("events, stream held back",) * 2

    @pytest.mark.parametrize("replayed", [True, False])
    def test_a_block_in_which_the_host_was_late_is_disturbed_if_it_counts(self, device: Device, replayed: bool) -> None:
        timer = self.timer(device, device.task())
        if not replayed:
            timer.use_events()
        delay = 0.0

        def call() -> None:
            device.launch(KERNEL)
            device.now += delay

        loop = timer.bind(Task(call))
        graph = device.api.CUDAGraph.replay

        def replay(self: Any) -> None:
            graph(self)
            device.now += delay

        device.api.CUDAGraph.replay = replay
        loop(4)
        hits = []
        for block in range(6):
            delay = 0.1 if block in (2, 3) else 0.0
            loop(4)
            delay = 0.1 if block == 4 else 0.0
            before = timer.disturbances()
            loop(4)
            hits.append(timer.disturbances() > before)
        assert hits == [False] * 4 + [True, False]

    def test_a_stream_that_cannot_be_held_is_always_behind_and_that_is_no_disturbance(self, device: Device) -> None:
        timer = self.timer(device, device.task(), api=device.without("_sleep", "CUDAGraph"))
        loop = timer.bind(device.task())
        before = timer.disturbances()
        loop(4)
        assert timer.tally.late == 1 and timer.disturbances() == before == 0

    def test_tasks_that_time_themselves_have_no_pair_timer_and_are_asked(self, device: Device) -> None:
        be = Torch()
        be.api, be.where = device.api, "cpu"
        own = Task(measure=lambda: Reading(0.25))
        assert isinstance(be.pair_timer([device.task()]), PairTimer)
        timer = be.pair_timer([device.task(), own])
        assert not isinstance(timer, PairTimer)
        assert timer.bind(own)(2) == 500_000_000


def test_every_block_taken_while_throttled_is_disturbed(device: Device) -> None:
    meter = Meter(device)
    timer = device.timer(meter)
    loop, hits = timer.bind(device.task(1e-3)), []
    for block in range(60):
        meter.now_slowed = HEAT if 20 <= block < 40 else 0
        before = timer.disturbances()
        loop(1)
        hits.append(timer.disturbances() > before)
    late = math.ceil(_device.CLOCK_EVERY / 1e-3)
    assert meter.asked < 10
    assert not any(hits[:20]) and all(hits[20 + late : 40]) and not any(hits[40 + late :])


def test_a_power_cap_is_no_disturbance(device: Device) -> None:
    meter = Meter(device)
    meter.now_slowed = 0x4
    timer = device.timer(meter)
    assert timer.disturbances() == timer.disturbances() == 0 and meter.asked == 1


def test_the_clock_is_steady_once_it_stops_climbing(device: Device) -> None:
    clocks = iter([1.0e9, 1.4e9, 1.7e9, 1.7e9, 1.7e9, 1.7e9])
    timer, said = device.timer(Meter(device, lambda: next(clocks))), []
    for _ in range(6):
        said.append(timer.steady())
        assert timer.steady() == said[-1]
        device.now += 0.02
    assert said == [False] * 5 + [True]


def test_a_clock_that_cannot_be_read_is_steady(device: Device) -> None:
    assert device.timer(Meter(device, lambda: math.nan)).steady()
    assert device.timer().steady()


@pytest.mark.usefixtures("flushed")
def test_the_cold_time_is_net_of_an_empty_call(device: Device) -> None:
    timer = device.timer()
    assert _device.cold_times(device.task(), timer, 3) == pytest.approx([KERNEL + MISS + EVENT] * 3, abs=2e-9)
    assert _device.net_cold_times(device.task(), timer, 3) == pytest.approx([KERNEL + MISS] * 3, abs=2e-9)


@pytest.mark.usefixtures("flushed")
def test_beside_the_time_stand_host_cold_replay_and_energy(device: Device) -> None:
    timer, task = device.timer(Meter(device)), device.task(flops=6e3)
    taken = sample(task, timer, SHORT)
    figures, facts = _device.beside(task, timer, taken.interval.centre, replace(SHORT, budget=4.0))
    assert figures["host_time"].value == pytest.approx(LAUNCH) and figures["host_time"].n == len(taken.seconds)
    assert figures["time_cold"].value == pytest.approx(KERNEL + MISS, abs=2e-9)
    assert figures["graph_time"].value == pytest.approx(KERNEL, rel=0.01)
    assert figures["power"].value == pytest.approx(WATTS, rel=0.02)
    assert figures["energy"].value == pytest.approx(WATTS * KERNEL, rel=0.02)
    assert figures["efficiency"].value == pytest.approx(6e3 / figures["energy"].value)
    assert facts["eager_bound_by"] == "device" and "energy" not in facts


@pytest.mark.usefixtures("flushed")
def test_energy_of_a_prepared_task_includes_the_preparation_and_says_so(device: Device) -> None:
    restore = 5e-6
    timer, task = device.timer(Meter(device)), device.task(prepare=lambda: device.launch(restore), flops=6e3)
    taken = sample(task, timer, replace(SHORT, runs=10))
    assert taken.interval.centre == pytest.approx(KERNEL, rel=0.01)
    figures, facts = _device.beside(task, timer, taken.interval.centre, replace(SHORT, budget=4.0))
    assert facts["energy"] == "includes the preparation before each call"
    assert figures["energy"].value == pytest.approx(WATTS * (KERNEL + restore), rel=0.02)
    assert figures["efficiency"].value == pytest.approx(6e3 / figures["energy"].value)
    assert "graph_time" not in figures and "time_cold" in figures


@pytest.mark.usefixtures("flushed")
def test_energy_takes_no_longer_than_a_small_budget_allows(device: Device) -> None:
    timer, task = device.timer(Meter(device)), device.task(flops=6e3)
    taken = sample(task, timer, SHORT)
    figures, facts = _device.beside(task, timer, taken.interval.centre, SHORT)
    assert "energy" not in figures and facts["energy"].startswith("none: ") and "1 s" in facts["energy"]


def test_the_device_works_on_while_its_energy_is_read(device: Device) -> None:
    """A counter that takes a millisecond to answer must not leave gaps that dilute the power."""
    meter = Meter(device)

    def read_slowly() -> float:
        device.now += 1e-3
        return Meter.energy(meter)

    slow = SimpleNamespace(energy=read_slowly)
    found = _device.energy_per_call(device.task(), device.timer(slow), 0.5, KERNEL)
    assert found == (pytest.approx(WATTS * KERNEL, rel=0.02), pytest.approx(WATTS, rel=0.02))


@pytest.mark.parametrize(("host", "kernel"), [(0.0, 1e-6), (8e-3, 1e-6), (0.0, 5e-3), (8e-3, 0.0), (0.0, 0.0)])
def test_work_given_to_the_device_is_told_from_the_host_s(device: Device, host: float, kernel: float) -> None:
    def call() -> None:
        device.now += host
        if kernel:
            device.launch(kernel)

    assert _device.work_given(Task(call), device.timer(), host + kernel + LAUNCH) == pytest.approx(kernel, abs=1e-9)


def test_a_counter_that_never_moves_gives_no_energy(device: Device) -> None:
    meter = SimpleNamespace(energy=lambda: 1.0)
    assert _device.energy_per_call(device.task(), device.timer(meter), 0.1, KERNEL) is None


def test_what_a_device_lacks_is_left_out_or_said(device: Device) -> None:
    bare = device.timer(api=device.without("get_device_properties", "CUDAGraph", "_sleep"))
    taken = sample(device.task(), bare, replace(SHORT, runs=10))
    figures, facts = _device.beside(device.task(), bare, taken.interval.centre, SHORT)
    assert set(figures) == {"host_time"} and facts["graph_time"] == "this device has no graphs to capture work in"
    assert facts["telemetry"] == "none: this device cannot be read through NVML"
    assert "telemetry" not in _device.beside(device.task(), bare, taken.interval.centre, replace(SHORT, telemetry=False))[1]


def test_a_device_without_timed_events_is_unsupported_with_the_reason(device: Device) -> None:
    class Untimed(device.api.Event):  # type: ignore[name-defined,misc]
        def elapsed_time(self, end: Any) -> float:
            raise NotImplementedError("built without SYCL")

    class Plain:
        def __init__(self, enable_timing: bool) -> None: ...

    class Narrow:
        pass

    for api, why in (
        (SimpleNamespace(), "no Event"),
        (SimpleNamespace(Event=Plain), "no record, query, synchronize, elapsed_time"),
        (SimpleNamespace(Event=Narrow), "record no times"),
        (SimpleNamespace(Event=Untimed), "built without SYCL"),
    ):
        with pytest.raises(Unsupported) as caught:
            EventTimer(api, "cpu", None)
        assert why in caught.value.why


def test_work_that_cannot_be_captured_is_unsupported(device: Device) -> None:
    def refuse() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    with pytest.raises(Unsupported) as caught:
        _device.capture(device.api, refuse)
    assert caught.value.do == "operation not permitted when stream is capturing"


@pytest.mark.parametrize("kind", ["abacus", "nn"])
def test_a_device_kind_torch_does_not_know_is_unsupported(kind: str) -> None:
    with pytest.raises(Unsupported, match="has no device kind"):
        _device.open_api(kind)


def test_a_device_module_without_an_index_is_opened_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    api = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setattr(torch, "xpu", api)
    assert _device.open_api("xpu") == (api, torch.device("xpu"))


def test_peaks_a_device_does_not_count_are_left_out() -> None:
    be = Torch()
    be.api = SimpleNamespace(memory_stats=lambda: {"allocated_bytes.all.peak": 12})
    be.start_memory()
    assert be.peak_memory() == {"peak_allocated": 12.0}
    be.api = SimpleNamespace()
    assert be.peak_memory() == {}


@pytest.mark.parametrize("used", [True, False])
def test_a_case_inherits_no_cache_of_the_device_and_wakes_none(monkeypatch: pytest.MonkeyPatch, used: bool) -> None:
    import torch

    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    Torch.reset()
    assert emptied == [True] * used


def test_readings_become_series_of_equal_length() -> None:
    rows = [MeterReading(10.0 + at, 1e9 + at, 2e9, 300.0 + at, 40.0, 1.0, 5.0, 0) for at in (0.0, 0.25, 0.5)]
    read = {name: (unit, struct.unpack("<3d", data)) for name, (unit, _, data) in Log(rows).arrays().items()}
    assert read == {
        "telemetry_time": ("s", (0.0, 0.25, 0.5)),
        "telemetry_sm_clock": ("Hz", (1e9, 1e9 + 0.25, 1e9 + 0.5)),
        "telemetry_power": ("W", (300.0, 300.25, 300.5)),
    }
    assert Log().arrays() == {} and nvidia.SLOWED is telemetry.SLOWED
