"""What each execution mode times: with real gradients on the host, and on a made-up device whose clock is known exactly."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.shim.execute import Ranges, Seat, Taken, discrete, execute, loop_of
from steelyard.dialects.param.shim.marks import Marks
from steelyard.dialects.param.shim.routine import REHEARSALS, Routine, routine
from steelyard.dialects.param.shim.station import MEBIBYTE, Station

pytestmark = pytest.mark.torch
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

    def station(self, flush: Callable[[], None] | None = None, own: int = 0) -> Station:
        return Station("cuda", self, flush, lambda: self.now, own)

    def routine(self, size: int = MEBIBYTE) -> Routine:
        """Forward takes memory, which its backward gives back."""

        def forward() -> None:
            self.forwards += 1
            self.take(size)
            self.work(FORWARD)

        def back() -> None:
            self.work(BACKWARD)
            self.held -= size

        return Routine(forward, step=lambda out: back)


def call(forward: Callable[..., Any], *args: Any, operator: Any = None) -> Any:
    return SimpleNamespace(forward=forward, args=list(args), kwargs={}, operator=operator)


def seat(**options: Any) -> Seat:
    return Seat("op", "0|0|0", Options(**options), Station("cpu"))


class TestHost:
    def test_lists_are_named_and_counted_as_the_original_does(self) -> None:
        import torch

        found = execute(call(torch.neg, torch.ones(2, requires_grad=True)), seat(warmup=2, iteration=3, backward=True))
        assert list(found) == ["forward", "backward"]
        for one in found.values():
            assert {name: len(values) for name, values in one.items()} == {
                "warmup.time": 2, "warmup.gpu.memory": 2, "measure.time": 3, "measure.gpu.memory": 3,
            }  # fmt: skip
            assert one["measure.gpu.memory"] == [0, 0, 0] and min(one["measure.time"]) > 0

    @pytest.mark.parametrize("mode", ["continuous", "continuous_events"])
    def test_continuous_modes_have_times_and_no_memory(self, mode: str) -> None:
        import torch

        found = execute(call(torch.neg, torch.ones(2)), seat(warmup=0, iteration=3, exec_mode=mode))
        assert [len(values) for values in found["forward"].values()] == [0, 0, 3, 0]

    def test_gradients_never_add_up(self) -> None:
        import torch

        weight, x = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
        made = routine(call(torch.mm, x, weight), Options(backward=True), Station("cpu"))
        seen, clear = [], made.clear

        def look() -> None:
            seen.append((x.grad[0, 0].item(), weight.grad[0, 0].item()))  # type: ignore[index]
            clear()

        made.clear = look
        discrete(made, Station("cpu"), 5, Ranges())
        assert seen == [(4.0, 4.0)] * 5
        assert x.grad is None and weight.grad is None

    def test_weights_that_are_no_arguments_are_cleared_too(self) -> None:
        import torch

        layer = torch.nn.Linear(3, 2)
        execute(call(layer, torch.ones(1, 3)), seat(backward=True))
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
            execute(call(forward, torch.ones(2, requires_grad=True)), seat(warmup=1, iteration=3, backward=backward))
        assert len(before) == 8

    def test_a_backward_that_is_none_is_absent_and_forward_stays(self) -> None:
        import torch

        learns = torch.ones(2, requires_grad=True)
        unwritten = (lambda x: torch.heaviside(x, x), learns)
        for forward, x in ((torch.argmax, learns), (torch.neg, torch.ones(2)), (lambda x: x, torch.ones(2)), unwritten):
            found = execute(call(forward, x), seat(iteration=2, backward=True))
            assert list(found) == ["forward"] and len(found["forward"]["measure.time"]) == 2

    def test_every_differentiable_part_of_an_output_goes_back(self) -> None:
        import torch

        x, seen = torch.ones(3, requires_grad=True), []
        made = routine(call(lambda x: {"a": [x * 2, torch.argmax(x)], "b": x * 3}, x), Options(backward=True), Station("cpu"))
        clear = made.clear
        made.clear = lambda: (seen.append(x.grad[0].item()), clear())  # type: ignore[index, func-returns-value, assignment]
        discrete(made, Station("cpu"), 1, Ranges())
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
        found = execute(call(own.forward, operator=own), seat(warmup=0, iteration=2, backward=True))
        assert order == ["forward", "create", "backward"] * 2 and len(found["backward"]["measure.time"]) == 2

    def test_other_devices_have_no_continuous_mode(self) -> None:
        assert loop_of("continuous", Station("meta"))(Routine(print), Station("meta"), 3, Ranges()) == Taken()


class TestDevice:
    def test_discrete_waits_for_the_work_of_each_call(self) -> None:
        chip = Chip()
        found = discrete(chip.routine(), chip.station(), 3, Ranges())
        assert found.forward == [(LAUNCH + FORWARD) / 1e6] * 3
        assert found.backward == [(LAUNCH + BACKWARD) / 1e6] * 3
        assert found.forward_memory == [1.0] * 3

    def test_a_flush_comes_before_every_call_and_is_not_timed(self) -> None:
        chip, flushes = Chip(), []

        def flush() -> None:
            flushes.append(chip.forwards)
            chip.work(FLUSH)

        chip.take(64 * MEBIBYTE)
        found = discrete(chip.routine(), chip.station(flush, 64 * MEBIBYTE), 2, Ranges())
        assert flushes == [0, 1, 1, 2] and found.forward_memory == found.backward_memory == [1.0, 1.0]
        assert found.forward == [(LAUNCH + FORWARD) / 1e6] * 2 and found.backward == [(LAUNCH + BACKWARD) / 1e6] * 2

    def test_continuous_is_one_number_and_backward_is_its_own(self) -> None:
        chip = Chip()
        found = loop_of("continuous", chip.station())(chip.routine(), chip.station(), 10, Ranges())
        assert found.forward == [pytest.approx((LAUNCH + 10 * FORWARD) / 10 / 1e6)]
        assert found.backward == [pytest.approx((LAUNCH + 10 * BACKWARD) / 10 / 1e6)]
        assert chip.forwards == 21

    def test_continuous_memory_is_that_of_one_call_though_many_wait(self) -> None:
        """Beside it lies what the ten forwards before took, since nothing frees it."""
        chip = Chip()
        found = loop_of("continuous", chip.station())(chip.routine(), chip.station(), 10, Ranges())
        assert (found.forward_memory, found.backward_memory) == ([10.0], [11.0])
        assert chip.highest == 20 * MEBIBYTE

    def test_continuous_holds_no_more_forwards_than_memory_allows(self) -> None:
        """Nothing frees what the ten forwards before take, so as much is taken off first."""
        chip = Chip(memory=64 * MEBIBYTE)
        most: list[int] = []
        routine = chip.routine(8 * MEBIBYTE)
        routine.forward, forward = (lambda: (forward(), most.append(chip.held))), routine.forward
        chip.take(-10 * 8 * MEBIBYTE)
        found = loop_of("continuous", chip.station())(routine, chip.station(), 10, Ranges())
        assert chip.forwards == 21
        assert max(most[10:]) <= 48 * MEBIBYTE
        assert found.backward[0] >= BACKWARD / 1e6

    def test_an_own_backward_follows_its_forward_at_once(self) -> None:
        chip, order = Chip(), []
        routine = Routine(lambda: order.append("f"), step=lambda out: lambda: order.append("b"), pending=1)
        loop_of("continuous", chip.station())(routine, chip.station(), 3, Ranges())
        assert "".join(order) == "fff" + "fb" * 4

    def test_events_give_a_number_per_call_with_one_wait_a_pass(self) -> None:
        chip = Chip()
        found = loop_of("continuous_events", chip.station())(chip.routine(), chip.station(), 4, Ranges())
        assert found.forward == [pytest.approx((FORWARD + LAUNCH) / 1e6)] + [pytest.approx(FORWARD / 1e6)] * 3
        assert found.backward == [pytest.approx(BACKWARD / 1e6)] * 4
        assert chip.syncs == 4 and len(found.forward_memory) == len(found.backward_memory) == 1

    @pytest.mark.parametrize("mode", ["discrete", "continuous", "continuous_events"])
    def test_no_backward_anywhere_where_there_is_none(self, mode: str) -> None:
        chip = Chip()
        routine = replace(chip.routine(), step=lambda out: None)
        found = loop_of(mode, chip.station())(routine, chip.station(), 3, Ranges())
        assert found.forward and found.backward == [] and routine.step is None

    @pytest.mark.parametrize("backward", [False, True])
    def test_a_graph_is_captured_without_warm_up_and_then_only_replayed(self, backward: bool) -> None:
        import torch

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
        chip = Chip()
        vars(chip).update(parts, graph=lambda made, pool=None: nullcontext(pools.append(pool)))

        def forward(x: Any) -> Any:
            calls.append(x)
            return x * 2

        x = torch.ones(2, requires_grad=True)
        asked = Options(device="cuda", cuda_graph=True, warmup=0, iteration=4, backward=backward)
        found = execute(call(forward, x), Seat("op", "0|0|0", asked, chip.station()))
        assert len(calls) == REHEARSALS + 1 and x.grad is None
        assert [graph.replays for graph in graphs] == [4] * (1 + backward)
        assert pools == [None, "shared"][: 1 + backward]
        assert [len(one["measure.time"]) for one in found.values()] == [4] * (1 + backward)

    def test_warm_up_takes_the_same_path(self) -> None:
        chip = Chip()
        made = Seat("op", "0|0|0", Options(device="cuda", warmup=2, iteration=1, exec_mode="continuous"), chip.station())
        found = execute(call(lambda: chip.work(FORWARD)), made)
        assert found["forward"]["warmup.time"] == [pytest.approx((2 * FORWARD + LAUNCH) / 2 / 1e6)]
        assert [len(values) for values in found["forward"].values()] == [1, 1, 1, 1]


class TestLabels:
    def test_they_are_those_of_the_original_and_surround_every_call(self) -> None:
        seen: list[str] = []

        class Written(Marks):
            def range(self, label: str) -> Any:
                return Entered(label, seen)

            profiler_range = tool_range = range

        made = replace(seat(warmup=1, iteration=2, backward=True), marks=Written())
        import torch

        execute(call(torch.neg, torch.ones(1, requires_grad=True)), made)
        one = "[param|op|0|0|0|measure|"
        assert seen == [
            "[param|op|0|0|0]", "[param|warmup]", "[param|op|0|0|0|warmup|forward_backward]", "[param|op|0|0|0|warmup|forward]",
            "[param|op|0|0|0|warmup|backward]", "[param|measure]", f"{one}forward_backward]", *[f"{one}forward]", f"{one}backward]"] * 2,
        ]  # fmt: skip

    def test_nobody_looks_so_nothing_is_made(self) -> None:
        assert isinstance(Marks().range("a"), nullcontext)
        assert Marks.where("cpu", False) == Marks()


class Entered:
    """A range that writes down when it is entered."""

    def __init__(self, label: str, seen: list[str]) -> None:
        self.label, self.seen = label, seen

    def __enter__(self) -> None:
        self.seen.append(self.label)

    def __exit__(self, *error: object) -> None:
        pass
