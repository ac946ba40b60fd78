"""do_bench keeps the meaning of Triton's: milliseconds, quantiles, modes, gradients; with neither Triton nor a GPU."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steelyard
from steelyard import drop_in
from steelyard.drop_in import PROBES, spend, summarise
from steelyard.errors import UsageError
from tests.backends.virtual import EVENT, KERNEL, MISS, Device

QUICK = {"warmup": 0, "rep": 1}
TIMES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)


@given(TIMES, st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_quantiles_give_a_list_in_the_order_asked(times: list[float], shares: list[float]) -> None:
    found = summarise(times, shares, "mean")
    assert found == [pytest.approx(np.quantile(times, share)) for share in shares]


@given(TIMES)
def test_each_mode_is_the_statistic_it_names(times: list[float]) -> None:
    assert summarise(times, None, "all") == times
    assert summarise(times, None, "min") == min(times)
    assert summarise(times, None, "max") == max(times)
    assert summarise(times, None, "mean") == pytest.approx(sum(times) / len(times))
    assert summarise(times, None, "median") == pytest.approx(np.median(times))
    assert summarise(times, [0.5], "mean") == pytest.approx(np.median(times))


def test_calls_fill_the_time_asked_for() -> None:
    clock, taken = [0.0], []

    def take(count: int) -> list[float]:
        taken.append(count)
        clock[0] += 0.5 * count
        return [0.5] * count

    assert spend(take, warmup=10.0, rep=20.0, now=lambda: clock[0]) == [0.5] * 40
    assert taken == [PROBES, 20, 40]


@pytest.mark.parametrize(("warmup", "rep"), [(0.0, 0.0), (0.1, 0.1)])
def test_a_call_longer_than_the_time_is_made_once(warmup: float, rep: float) -> None:
    clock = [0.0]

    def take(count: int) -> list[float]:
        clock[0] += count
        return [1.0] * count

    assert spend(take, warmup, rep, now=lambda: clock[0]) == [1.0]


def test_every_call_is_reported_in_milliseconds() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        end = time.perf_counter() + 2e-4
        while time.perf_counter() < end:
            pass

    start = time.perf_counter()
    times = steelyard.do_bench(work, warmup=0, rep=5, return_mode="all")
    wall = time.perf_counter() - start
    assert isinstance(times, list)
    assert 1 <= len(times) < calls
    assert all(milliseconds >= 0.2 for milliseconds in times)
    assert sum(times) <= 1e3 * wall


def test_gradients_are_gone_before_each_call() -> None:
    weight, bias = SimpleNamespace(grad=1.0), SimpleNamespace(grad=1.0)
    seen = []

    def backward() -> None:
        seen.append((weight.grad, bias.grad))
        weight.grad = bias.grad = 1.0

    steelyard.do_bench(backward, grad_to_none=[weight, bias], **QUICK)
    assert set(seen) == {(None, None)}
    seen.clear()
    steelyard.do_bench(backward, grad_to_none=weight, **QUICK)
    assert set(seen) == {(None, 1.0)}


def test_wrong_words_are_told_before_anything_runs() -> None:
    def never() -> None:
        raise AssertionError("called")

    with pytest.raises(UsageError, match=r"return_mode named 'meen'[\s\S]*mean"):
        steelyard.do_bench(never, return_mode="meen")
    with pytest.raises(UsageError, match="between 0 and 1"):
        steelyard.do_bench(never, quantiles=[0.5, 20])


def test_an_error_in_the_function_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        steelyard.do_bench(lambda: 1 / 0)


def test_what_waits_for_a_device_is_called_around_each_call_and_its_time_counts() -> None:
    queue: list[float] = []

    def wait() -> None:
        end = time.perf_counter() + sum(queue)
        queue.clear()
        while time.perf_counter() < end:
            pass

    def launch() -> None:
        assert not queue, "the work of the last call was not waited for"
        queue.append(5e-4)

    shortest = steelyard.do_bench(launch, sync_fn=wait, return_mode="min", **QUICK)
    assert isinstance(shortest, float)
    assert shortest > 0.4


def test_the_cache_of_a_named_device_is_overwritten_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overwriting so much takes longer than the time to spend, so only one call can follow the probes and the warm-up."""
    monkeypatch.setattr(drop_in, "FLUSHED_BYTES", 1 << 26)
    weight = SimpleNamespace(grad=1.0)
    seen = []
    times = steelyard.do_bench(
        lambda: seen.append(weight.grad), grad_to_none=weight, device="cpu", fast_flush=False, return_mode="all", **QUICK
    )
    assert isinstance(times, list)
    assert len(times) == 1
    assert set(seen) == {None}


def test_a_device_that_only_torch_knows_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match="the device 'xla:0' needs torch"):
        steelyard.do_bench(list, device="xla:0", **QUICK)


def test_it_needs_no_framework() -> None:
    program = "import sys; sys.modules['torch'] = sys.modules['triton'] = None; import steelyard; print(steelyard.do_bench(list, 0, 1))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 0


@pytest.mark.torch
class TestOnADevice:
    def test_a_kernel_is_timed_alone_with_a_cold_cache(self, device: Device) -> None:
        times = steelyard.do_bench(lambda: device.launch(KERNEL), return_mode="all", **QUICK)
        assert times == pytest.approx([1e3 * (KERNEL + MISS + EVENT)] * len(times), rel=1e-3)

    def test_whatever_waits_for_it_events_time_a_kernel(self, device: Device) -> None:
        waited = []

        def wait() -> None:
            waited.append(device.now)
            device.now += 1e-3
            device.synchronize()

        times = steelyard.do_bench(lambda: device.launch(KERNEL), sync_fn=wait, return_mode="all", **QUICK)
        assert waited
        assert times == pytest.approx([1e3 * (KERNEL + MISS + EVENT)] * len(times), rel=1e-3)

    @pytest.mark.parametrize("seconds", [1e-4, 0.05])
    def test_a_call_that_gives_it_nothing_is_timed_on_the_host(self, device: Device, seconds: float) -> None:
        """Also one that takes longer than the stream can be held back."""

        def call() -> None:
            device.now += seconds

        assert steelyard.do_bench(call, return_mode="median", **QUICK) == pytest.approx(1e3 * seconds, rel=1e-6)

    def test_a_long_kernel_is_waited_for(self, device: Device) -> None:
        assert steelyard.do_bench(lambda: device.launch(0.05), return_mode="median", **QUICK) == pytest.approx(50, rel=1e-3)
