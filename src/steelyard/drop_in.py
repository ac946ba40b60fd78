"""Drop-in replacements for functions of other tools, with their arguments and meaning, measured our way."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from steelyard import clocks
from steelyard.errors import UsageError, unknown
from steelyard.measuring.clock import HostTimer, Timer
from steelyard.measuring.fixed import PROBES, counted
from steelyard.model.protocol import Fixed
from steelyard.model.task import Task

MODES = ("mean", "median", "min", "max", "all")
LEAST_KERNEL = 5e-7
LONG_CALL = 1e-2
FLUSHED_BYTES = 256_000_000
WAITING = "host, device synchronised"

Take = Callable[[int], list[float]]


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Any = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    *,
    fast_flush: bool = True,
    device: Any = None,
    sync_fn: Callable[[], Any] | None = None,
) -> float | list[float]:
    """Milliseconds of a call, with the arguments of `triton.testing.do_bench`; it needs neither Triton nor a GPU.

    `warmup` and `rep` are milliseconds spent, all that surrounds a call included. Tensors in `grad_to_none` lose their
    gradient before each call. `quantiles` gives a list instead (a number if it names one), `return_mode` chooses among
    mean, median, min, max and all.

    On a CUDA device each call is timed alone by events, the L2 cache overwritten before it and the stream held back while
    it is launched, so neither is in the figure. What never reaches a device, and what takes so long that neither matters,
    is timed by the host's clock.

    `device` names the device whose cache is overwritten where events do not see the work: `cpu`, or one of torch's.
    `sync_fn` is what waits for the device then, if that is not torch.cuda's own; waiting for an idle device is taken off.
    `fast_flush` is known from older versions and changes nothing: the cache is never overwritten within the timed window.
    """
    check_words(quantiles, return_mode)
    return summarise(call_times(fn, warmup, rep, grad_to_none, device, sync_fn)[0], quantiles, return_mode)


def check_words(quantiles: Sequence[float] | None, return_mode: str) -> None:
    """Check the arguments before anything runs."""
    if return_mode not in MODES:
        raise unknown("return_mode", return_mode, MODES)
    if quantiles is not None and not all(0 <= share <= 1 for share in quantiles):
        raise UsageError(f"quantiles lie between 0 and 1: {list(quantiles)}")


def call_times(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Any = None,
    device: Any = None,
    sync_fn: Callable[[], Any] | None = None,
    *,
    answered: bool = False,
) -> tuple[list[float], Any]:
    """Milliseconds of each single call that `do_bench` makes of its figure; with `answered`, also what one more call returns."""
    from steelyard.measuring.sample import quiet_collector

    task = Task(fn, prepare=_clearing(grad_to_none))
    with _standing_on(device):
        task()
        if sync_fn is not None:
            sync_fn()
        with quiet_collector():
            times = spend(_taker(task, device, sync_fn), warmup * 1e-3, rep * 1e-3)
        output = task() if answered else None
    return [1e3 * seconds for seconds in times], output


def spend(take: Take, warmup: float, rep: float, now: Callable[[], float] = clocks.perf_counter) -> list[float]:
    """The number of calls that fill the requested seconds."""
    counts = counted(Fixed(warmup_time=warmup, repeat_time=rep), take, now)
    take(counts.warmup)
    return take(counts.repeats)


def summarise(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> float | list[float]:
    """The requested statistic of all times."""
    import numpy as np

    if quantiles is not None:
        found = [float(value) for value in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return list(times) if return_mode == "all" else float(getattr(np, return_mode)(times))


@dataclass(frozen=True)
class WaitedCall:
    """A call that ends when a device has done its work, which threads of its runtime may do."""

    fn: Callable[[], Any]
    wait: Callable[[], Any]

    def __call__(self) -> Any:
        output = self.fn()
        self.wait()
        return output


def _clearing(tensors: Any) -> Callable[[], None] | None:
    if tensors is None:
        return None
    cleared: Iterable[Any] = (tensors,) if hasattr(tensors, "grad") else tuple(tensors)

    def clear() -> None:
        for tensor in cleared:
            tensor.grad = None

    return clear


@dataclass(frozen=True)
class CallTimer:
    """The clock for a call, and its name in a result."""

    name: str
    timer: Timer


def clock_for(task: Task, wait: Callable[[], Any] | None = None) -> CallTimer:
    """The clock that sees what a call does, which it may have to make a few times to find out.

    Events, where a CUDA device is in use and the call gives it work; the host's clock, waiting for the device, where the call
    is so long that its launch does not matter, or where the stream in use shows no work of it; else the host's clock as it is.
    `wait` is what waits for the device where torch.cuda cannot.
    """
    cuda = cuda_in_use(task)
    if cuda is None:
        return CallTimer("host", HostTimer()) if wait is None else CallTimer(WAITING, HostTimer(_synchronised(wait)))
    wait = wait or cuda.synchronize
    wait()
    start = clocks.perf_counter()
    task()
    wait()
    wall = clocks.perf_counter() - start
    if wall < LONG_CALL:
        events = _events()
        timer = events.EventTimer(*events.open_api("cuda"), None)
        if events.work_given(task, timer, wall) >= LEAST_KERNEL:
            return CallTimer(f"device {timer.method}", timer)
    return CallTimer(WAITING, HostTimer(_synchronised(wait)))


def cuda_in_use(call: Callable[[], Any]) -> Any:
    """torch.cuda, if this process has woken a device or a call wakes it; None otherwise, and nothing is imported to find out.

    The call is made only where it could: torch is there, was built for CUDA, and no device is awake yet.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if torch is None or cuda is None:
        return None
    if not cuda.is_initialized() and torch.version.cuda is not None and cuda.is_available():
        call()
    return cuda if cuda.is_initialized() else None


def _events() -> ModuleType:
    """Imported by name because it brings torch along, which nothing that imports Steelyard may need."""
    return importlib.import_module("steelyard.backends._device")


def _synchronised(wait: Callable[[], Any]) -> Callable[[], int]:
    def now() -> int:
        wait()
        return clocks.perf_counter_ns()

    return now


def _taker(task: Task, device: Any = None, wait: Callable[[], Any] | None = None) -> Take:
    """Single calls: with a cold cache where events time them, and without what waiting for an idle device costs."""
    clock = clock_for(task, wait)
    if clock.name.startswith("device"):
        loop = clock.timer.bind(task)
        return lambda count: _events().cold_times(task, clock.timer, count) or [loop(1) * 1e-9 for _ in range(count)]
    flush = _flusher(device)
    loop, idle = clock.timer.bind(replace(task, prepare=_both(task.prepare, flush)) if flush else task), 0.0
    if clock.name != "host":
        nothing = clock.timer.bind(Task(lambda: None))
        idle = min(nothing(1) for _ in range(2 * PROBES)) * 1e-9
    return lambda count: [max(0.0, loop(1) * 1e-9 - idle) for _ in range(count)]


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    if first is None:
        return second

    def one_after_the_other() -> None:
        first()
        second()

    return one_after_the_other


def _flusher(device: Any) -> Callable[[], None] | None:
    """What overwrites the cache of a device that was named; reading a number back makes sure that it has happened."""
    if device is None:
        return None
    if str(device) == "cpu":
        import numpy as np

        buffer = np.empty(FLUSHED_BYTES, np.uint8)
        return lambda: buffer.fill(1)
    held = _torch(device).empty(FLUSHED_BYTES // 4, dtype=_torch(device).int32, device=device)

    def flush() -> None:
        held.fill_(1)
        held[0].item()

    return flush


def _standing_on(device: Any) -> AbstractContextManager[Any]:
    """A CUDA device that is named is the current one meanwhile, so that events are recorded where the work is."""
    if device is None or not str(device).startswith("cuda"):
        return nullcontext()
    found: AbstractContextManager[Any] = _torch(device).cuda.device(device)
    return found


def _torch(device: Any) -> Any:
    """torch, for devices that only it knows."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise UsageError(f"only torch knows the device {str(device)!r}, and it is not installed here") from None
