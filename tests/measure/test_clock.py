"""The timed loop: what is in it, and the kernel's word on what disturbed it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from steelyard.measure.clock import HostTimer, empty
from steelyard.model.task import Reading, Task


class Ticks:
    """A clock that goes on by one at every reading."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self) -> int:
        self.read += 1
        return self.read


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, "a"), {}), ((), {"k": 2}), ((1,), {"k": 2})])
@pytest.mark.parametrize("n", [0, 1, 17])
def test_the_clock_is_read_twice_around_n_calls(args: tuple[object, ...], kwargs: dict[str, object], n: int) -> None:
    seen: list[object] = []
    clock = Ticks()
    took = HostTimer(clock).bind(Task(lambda *a, **k: seen.append((a, k)), args, kwargs))(n)
    assert seen == [(args, kwargs)] * n
    assert (took, clock.read) == (1, 2)


def test_a_prepared_call_is_timed_by_itself() -> None:
    clock = Ticks()
    done: list[int] = []
    task = Task(lambda: done.append(clock.read), prepare=lambda: done.append(clock.read))
    assert HostTimer(clock).bind(task)(3) == 3
    assert done == [0, 1, 2, 3, 4, 5]


def test_a_reading_is_taken_for_every_call() -> None:
    assert HostTimer(Ticks()).bind(Task(measure=lambda: Reading(1.5e-6)))(4) == 6_000


def test_a_scope_is_left_even_when_the_call_fails() -> None:
    state: list[str] = []

    @contextmanager
    def scope() -> Iterator[None]:
        state.append("in")
        try:
            yield
        finally:
            state.append("out")

    def fail() -> None:
        raise ValueError("told to")

    with pytest.raises(ValueError, match="told to"):
        HostTimer().bind(Task(fail, scope=scope))(2)
    assert state == ["in", "out"]


@pytest.mark.parametrize("prepare", [None, lambda: None])
@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"k": 2})])
def test_the_empty_call_has_the_same_shape(args: tuple[object, ...], kwargs: dict[str, object], prepare: object) -> None:
    task = Task(print, args, kwargs, prepare=prepare, flops=1.0)  # type: ignore[arg-type]
    nothing = empty(task)
    assert (nothing.args, nothing.kwargs, nothing.prepare is None) == (args, kwargs, prepare is None)
    assert nothing() is None
    timer = HostTimer()
    assert timer.bind(nothing).__code__ is timer.bind(task).__code__  # type: ignore[attr-defined]


def test_disturbances_are_the_kernels_count_of_involuntary_switches() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    found = HostTimer(threads=2).disturbances()
    assert before <= found <= resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    assert 0 <= HostTimer().disturbances() <= found + 1000
