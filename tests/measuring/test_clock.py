"""The timed loop: what is in it, and the kernel's word on what disturbed it."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from steelyard.measuring.clock import HostTimer, empty
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


def python_function(*args: object, **kwargs: object) -> int:
    return 1


@pytest.mark.parametrize("prepare", [None, lambda: None])
@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"k": 2}), ((), {"argument": 1, "flag": 2})])
def test_a_python_function_is_weighed_against_an_empty_one_that_is_called_alike(args: Any, kwargs: Any, prepare: Any) -> None:
    task = Task(python_function, args, kwargs, prepare=prepare, flops=1.0)
    nothing = empty(task)
    assert (nothing.args, nothing.kwargs, nothing.prepare is None, nothing()) == (args, kwargs, prepare is None, None)
    assert nothing.fn is not None
    assert (nothing.fn.__code__.co_argcount, len(nothing.fn.__code__.co_code)) == (
        len(args) + len(kwargs),
        len((lambda: None).__code__.co_code),
    )
    timer = HostTimer(Ticks())
    assert timer.bind(nothing).__code__ == timer.bind(task).__code__


@pytest.mark.parametrize(("fn", "args"), [(len, ([],)), (sum, ([1],)), (divmod, (1, 2))])
def test_a_builtin_is_weighed_against_the_bare_loop(fn: Any, args: Any) -> None:
    """A Python function with arguments costs more than it does, so less than nothing would be left of it."""
    nothing = empty(Task(fn, args))
    assert (nothing.args, nothing.kwargs, nothing()) == ((), {}, None)
    entered: list[str] = []
    loop = HostTimer(Ticks()).bind(nothing)
    sys.setprofile(lambda frame, event, arg: entered.append(event) if frame.f_code.co_name == "_nothing" else None)
    loop(3)
    sys.setprofile(None)
    assert entered == ["call", "return"] * 3


def test_a_host_is_always_steady() -> None:
    assert HostTimer().steady()


def test_disturbances_are_the_kernels_count_of_involuntary_switches() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    found = HostTimer(threads=2).disturbances()
    assert before <= found <= resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    assert 0 <= HostTimer().disturbances() <= found + 1000


CLOCKS = """
import time

real = time.perf_counter_ns
time.perf_counter_ns = lambda: real() // 10
time.perf_counter = time.monotonic = time.process_time = lambda: real() * 1e-10
"""
ASKED = """
from steelyard import registry

real = registry.load_file("clocks.py").real
from steelyard import clocks, drop_in
from steelyard.measuring.clock import HostTimer

for now in (HostTimer().now, drop_in._synchronised(int), clocks.perf_counter_ns, lambda: clocks.perf_counter() * 1e9):
    before = real()
    assert before - 1000 <= now() <= real() + 1000
assert HostTimer().effort() >= 0
"""


def test_a_file_that_replaces_the_clocks_is_timed_by_those_of_before(tmp_path: Path) -> None:
    (tmp_path / "clocks.py").write_text(CLOCKS, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
