"""What each clock of a fixed protocol times: with real gradients on the host, and on a made-up device whose clock is known exactly."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.measuring.fixed import NO_RANGE, PROBES, NoLabels, Ranges, Sampled, Stopwatch, Taken, counted, discrete, loop_of, take
from steelyard.model.protocol import Fixed
from steelyard.model.task import Backward, Task

pytestmark = pytest.mark.torch
MEBIBYTE = 1 << 20
LAUNCH, FORWARD, BACKWARD, FLUSH = 1_000, 20_000, 50_000, 700_000
"""Nanoseconds: of the host for any call, and of the device for each kind of work."""


class Chip:
    """One stream with a virtual clock and an allocator, behind the part of torch.cuda that is used."""

    def __init__(self, memory: int = 1 << 40) -> None:
        self.now = self.free = 0
        self.memory, self.held, self.highest = memory, 0, 0
        self.syncs = self.forwards = 0
        chip = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = chip.free = max(chip.now, chip.free)

            def elapsed_time(self, end: Any) -> float:
                return (end.at - self.at) / 1e6

        self.Event = Event

    def work(self, nanoseconds: int) -> None:
        self.now += LAUNCH
        self.free = max(self.now, self.free) + nanoseconds

    def take(self, size: int) -> None:
        self.held += size
        self.highest = max(self.highest, self.held)

    def synchronize(self) -> None:
        self.syncs += 1
        self.now = max(self.now, self.free)

    def reset_peak_memory_stats(self) -> None:
        self.highest = self.held

    def max_memory_allocated(self) -> int:
        return self.highest

    def memory_allocated(self) -> int:
        return self.held

    def memory_reserved(self) -> int:
        return self.held

    def mem_get_info(self) -> tuple[int, int]:
        return self.memory - self.held, self.memory

    def stopwatch(self, flush: Callable[[], None] | None = None, own: int = 0) -> Stopwatch:
        from steelyard.backends._torch_fixed import DeviceStopwatch

        return DeviceStopwatch(self, cuda=True, flush=flush, own=own, clock=lambda: self.now)

    def task(self, size: int = MEBIBYTE) -> Task:
        """Forward takes memory, which its backward gives back."""

        def forward() -> None:
            self.forwards += 1
            self.take(size)
            self.work(FORWARD)

        def back() -> None:
            self.work(BACKWARD)
            self.held -= size

        return Task(forward, back=Backward(lambda out: back))


def call(forward: Callable[..., Any], *args: Any, operator: Any = None) -> Task:
    from steelyard.workloads.operators._gradient import backward_of

    return Task(forward, args, back=backward_of(operator))


def run(task: Task, **words: Any) -> Sampled:
    return take(task, Fixed(**{"warmup": 1, "repeats": 1, "ranges": "param", **words}), Stopwatch(), None, "op|0|0|0")


def lengths(found: Sampled) -> list[int]:
    """Of times and memory, warm-up first."""
    return [len(values) for taken in found.phases.values() for values in (taken.forward.time, taken.forward.memory)]


class TestHost:
    def test_every_call_of_every_pass_has_a_time_and_a_memory(self) -> None:
        import torch

        found = run(call(torch.neg, torch.ones(2, requires_grad=True)), warmup=2, repeats=3, backward=True)
        assert found.backward and list(found.phases) == ["warmup", "measure"]
        for count, taken in zip((2, 3), found.phases.values(), strict=True):
            for series in (taken.forward, taken.backward):
                assert len(series.time) == count and min(series.time) > 0 and series.memory == [0] * count and series.unit == "ns"

    @pytest.mark.parametrize("clock", ["continuous", "events"])
    def test_without_a_queue_all_clocks_give_single_times_and_no_memory(self, clock: str) -> None:
        import torch

        assert lengths(run(call(torch.neg, torch.ones(2)), warmup=0, repeats=3, clock=clock)) == [0, 0, 3, 0]

    def test_gradients_never_add_up(self) -> None:
        import torch

        weight, x = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
        task, seen = call(torch.mm, x, weight), []
        assert task.back is not None
        clear = task.back.clear

        def look() -> None:
            seen.append((x.grad[0, 0].item(), weight.grad[0, 0].item()))  # type: ignore[index]
            clear()

        discrete(task, replace(task.back, clear=look), Stopwatch(), 5, Ranges())
        assert seen == [(4.0, 4.0)] * 5
        assert x.grad is None and weight.grad is None

    def test_weights_that_are_no_arguments_are_cleared_too(self) -> None:
        import torch

        layer = torch.nn.Linear(3, 2)
        run(call(layer, torch.ones(1, 3)), backward=True)
        assert [weight.grad for weight in layer.parameters()] == [None, None]

    def test_an_output_is_gone_before_the_next_call(self) -> None:
        import torch

        before: list[weakref.ref[Any]] = []

        def forward(x: Any) -> Any:
            assert [item() for item in before] == [None] * len(before)
            out = x * 2
            before.append(weakref.ref(out))
            return out

        for backward in (False, True):
            run(call(forward, torch.ones(2, requires_grad=True)), repeats=3, backward=backward)
        assert len(before) == 8

    def test_a_backward_that_is_none_is_said_and_forward_stays(self) -> None:
        import torch

        learns = torch.ones(2, requires_grad=True)
        unwritten = (lambda x: torch.heaviside(x, x), learns)
        for forward, x in ((torch.argmax, learns), (torch.neg, torch.ones(2)), (lambda x: x, torch.ones(2)), unwritten):
            found = run(call(forward, x), repeats=2, backward=True)
            assert not found.backward and len(found.phases["measure"].forward.time) == 2

    def test_every_differentiable_part_of_an_output_goes_back(self) -> None:
        import torch

        x, seen = torch.ones(3, requires_grad=True), []
        task = call(lambda x: {"a": [x * 2, torch.argmax(x)], "b": x * 3}, x)
        assert task.back is not None
        discrete(task, replace(task.back, clear=lambda: seen.append(x.grad[0].item())), Stopwatch(), 1, Ranges())  # type: ignore[index]
        assert seen == [5.0]

    def test_an_operators_own_backward_is_used(self) -> None:
        order: list[str] = []

        class Own:
            def forward(self) -> int:
                order.append("forward")
                return 1

            def create_grad(self) -> None:
                order.append("create")

            def backward(self) -> None:
                order.append("backward")

        own = Own()
        found = run(call(own.forward, operator=own), warmup=0, repeats=2, backward=True)
        assert order == ["forward", "create", "backward"] * 2 and len(found.phases["measure"].backward.time) == 2

    def test_what_is_prepared_before_each_call_is_not_timed(self) -> None:
        order: list[str] = []
        run(Task(lambda: order.append("call"), prepare=lambda: order.append("prepare")), warmup=1, repeats=2, rehearse=1)
        assert order == ["prepare", "call"] * 4

    def test_rehearsals_are_kept_nowhere_and_without_them_the_first_call_is_timed(self) -> None:
        calls: list[int] = []
        found = run(Task(lambda: calls.append(1)), warmup=0, repeats=2, rehearse=3)
        assert len(calls) == 5 and lengths(found) == [0, 0, 2, 2]
        calls.clear()
        assert lengths(run(Task(lambda: calls.append(1)), warmup=0, repeats=1)) == [0, 0, 1, 1] and len(calls) == 1

    def test_seconds_to_spend_are_as_many_calls_as_fill_them(self) -> None:
        now, probes = [0.0], []

        def probe(count: int) -> None:
            probes.append(count)
            now[0] += 0.5 * count

        found = counted(Fixed(warmup=3, repeats=4, warmup_time=10.0, repeat_time=0.1), probe, lambda: now[0])
        assert (found.warmup, found.repeats, probes) == (20, 1, [PROBES])
        assert counted(Fixed(3, 4), probe) == Fixed(3, 4)
        assert len(run(Task(lambda: None), warmup=0, repeat_time=0.0).phases["measure"].forward.time) == 1

    def test_other_devices_have_no_continuous_clock(self) -> None:
        from steelyard.backends._torch_fixed import DeviceStopwatch, MetaStopwatch

        for watch in (MetaStopwatch(), DeviceStopwatch(None, cuda=False)):
            for clock in ("continuous", "events"):
                assert loop_of(clock, watch)(Task(print), None, watch, 3, Ranges()) == Taken()


class TestDevice:
    def test_discrete_waits_for_the_work_of_each_call(self) -> None:
        chip = Chip()
        found = loop("discrete", chip, 3)
        assert found.forward.time == [LAUNCH + FORWARD] * 3
        assert found.backward.time == [LAUNCH + BACKWARD] * 3
        assert found.forward.memory == [MEBIBYTE] * 3

    def test_a_flush_comes_before_every_call_and_is_not_timed(self) -> None:
        chip, flushes = Chip(), []

        def flush() -> None:
            flushes.append(chip.forwards)
            chip.work(FLUSH)

        chip.take(64 * MEBIBYTE)
        found = loop("discrete", chip, 2, watch=chip.stopwatch(flush, 64 * MEBIBYTE))
        assert flushes == [0, 1, 1, 2] and found.forward.memory == found.backward.memory == [MEBIBYTE] * 2
        assert found.forward.time == [LAUNCH + FORWARD] * 2 and found.backward.time == [LAUNCH + BACKWARD] * 2

    def test_continuous_is_one_number_and_backward_is_its_own(self) -> None:
        chip = Chip()
        found = loop("continuous", chip, 10)
        assert found.forward.time == [pytest.approx((LAUNCH + 10 * FORWARD) / 10)]
        assert found.backward.time == [pytest.approx((LAUNCH + 10 * BACKWARD) / 10)]
        assert chip.forwards == 21

    def test_continuous_memory_is_that_of_one_call_though_many_wait(self) -> None:
        """Beside it lies what the ten forwards before took, since nothing frees it."""
        chip = Chip()
        found = loop("continuous", chip, 10)
        assert (found.forward.memory, found.backward.memory) == ([10 * MEBIBYTE], [11 * MEBIBYTE])
        assert chip.highest == 20 * MEBIBYTE

    def test_continuous_holds_no_more_forwards_than_memory_allows(self) -> None:
        """Nothing frees what the ten forwards before take, so as much is taken off first."""
        chip = Chip(memory=64 * MEBIBYTE)
        most: list[int] = []
        task = chip.task(8 * MEBIBYTE)
        forward = task.fn
        assert forward is not None
        chip.take(-10 * 8 * MEBIBYTE)
        found = loop("continuous", chip, 10, replace(task, fn=lambda: (forward(), most.append(chip.held))))
        assert chip.forwards == 21
        assert max(most[10:]) <= 48 * MEBIBYTE
        assert found.backward.time[0] >= BACKWARD

    def test_an_own_backward_follows_its_forward_at_once(self) -> None:
        chip, order = Chip(), []
        back = Backward(lambda out: lambda: order.append("b"), pending=1)
        loop("continuous", chip, 3, Task(lambda: order.append("f"), back=back))
        assert "".join(order) == "fff" + "fb" * 4

    def test_events_give_a_number_per_call_with_one_wait_a_pass(self) -> None:
        chip = Chip()
        found = loop("events", chip, 4)
        assert found.forward.time == [pytest.approx((FORWARD + LAUNCH) / 1e6)] + [pytest.approx(FORWARD / 1e6)] * 3
        assert found.backward.time == [pytest.approx(BACKWARD / 1e6)] * 4 and found.forward.unit == found.backward.unit == "ms"
        assert chip.syncs == 4 and len(found.forward.memory) == len(found.backward.memory) == 1

    def test_marks_come_after_a_flush_on_the_queue(self) -> None:
        chip, flushes = Chip(), []

        def flush() -> None:
            flushes.append(chip.forwards)
            chip.work(FLUSH)

        found = loop("events", chip, 3, replace(chip.task(), back=None), watch=chip.stopwatch(flush, 0))
        assert flushes == [0, 0, 1, 2]
        assert found.forward.time == [pytest.approx(FORWARD / 1e6)] * 3

    @pytest.mark.parametrize("clock", ["discrete", "continuous", "events"])
    def test_no_backward_anywhere_where_there_is_none(self, clock: str) -> None:
        chip = Chip()
        found = loop(clock, chip, 3, replace(chip.task(), back=Backward(lambda out: None)))
        assert found.forward.time and not found.backward.time and found.no_gradient

    @pytest.mark.parametrize("backward", [False, True])
    def test_a_graph_is_captured_without_warm_up_and_then_only_replayed(self, backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        from steelyard.variants.capture import REHEARSALS, cuda_graph

        graphs, calls, pools = [], [], []

        class Graph:
            def __init__(self) -> None:
                self.replays = 0
                graphs.append(self)

            def replay(self) -> None:
                self.replays += 1

            def pool(self) -> str:
                return "shared"

        stream = SimpleNamespace(wait_stream=lambda other: None)
        parts = {"Stream": lambda: stream, "stream": nullcontext, "current_stream": lambda: stream, "CUDAGraph": Graph}
        for name, part in {**parts, "graph": lambda made, pool=None, stream=None: nullcontext(pools.append(pool))}.items():
            monkeypatch.setattr(torch.cuda, name, part)

        def forward(x: Any) -> Any:
            calls.append(x)
            return x * 2

        x = torch.ones(2, requires_grad=True)
        plain = call(forward, x)
        task = cuda_graph(plain if backward else replace(plain, back=None), SimpleNamespace(device="cuda"), {})
        found = run(task, warmup=0, repeats=4, backward=backward)
        assert len(calls) == 3 + REHEARSALS * backward and x.grad is None
        assert [graph.replays for graph in graphs] == [4] * (1 + backward)
        assert pools == [None, "shared"][: 1 + backward]
        assert found.backward == backward and len(found.phases["measure"].forward.time) == 4

    def test_warm_up_takes_the_same_path(self) -> None:
        chip = Chip()
        found = take(Task(lambda: chip.work(FORWARD)), Fixed(2, 1, "continuous"), chip.stopwatch())
        assert found.phases["warmup"].forward.time == [pytest.approx((2 * FORWARD + LAUNCH) / 2)]
        assert lengths(found) == [1, 1, 1, 1]


def loop(clock: str, chip: Chip, count: int, task: Task | None = None, watch: Stopwatch | None = None) -> Taken:
    task, watch = task or chip.task(), watch or chip.stopwatch()
    return loop_of(clock, watch)(task, task.back, watch, count, Ranges())


class TestLabels:
    def test_they_surround_every_call(self) -> None:
        import torch

        seen: list[str] = []

        class Written(NoLabels):
            def range(self, label: str) -> Any:
                return Entered(label, seen)

            profiler_range = tool_range = range

        asked = Fixed(1, 2, backward=True, ranges="param")
        take(call(torch.neg, torch.ones(1, requires_grad=True)), asked, Stopwatch(), Written(), "op|0|0|0")
        one = "[param|op|0|0|0|measure|"
        assert seen == [
            "[param|op|0|0|0]", "[param|warmup]", "[param|op|0|0|0|warmup|forward_backward]", "[param|op|0|0|0|warmup|forward]",
            "[param|op|0|0|0|warmup|backward]", "[param|measure]", f"{one}forward_backward]", *[f"{one}forward]", f"{one}backward]"] * 2,
        ]  # fmt: skip

    def test_where_nothing_shows_them_none_are_made(self) -> None:
        from steelyard.backends._torch_fixed import TorchLabels

        assert TorchLabels().range("a") is NO_RANGE and TorchLabels.where("cpu", False) == TorchLabels()
        assert NoLabels().range("a") is NoLabels().tool_range("a") is NoLabels().profiler_range("a") is NO_RANGE


class Entered:
    """A range that writes down when it is entered."""

    def __init__(self, label: str, seen: list[str]) -> None:
        self.label, self.seen = label, seen

    def __enter__(self) -> None:
        self.seen.append(self.label)

    def __exit__(self, *error: object) -> None:
        pass
