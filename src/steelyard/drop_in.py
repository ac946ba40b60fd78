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
    """Time a call in milliseconds, with the arguments of `triton.testing.do_bench`; needs neither Triton nor a GPU.

    `warmup` and `rep` are the milliseconds to spend, including everything around the calls. Tensors in `grad_to_none` lose their
    gradient before each call. `return_mode` is mean, median, min, max or all; with `quantiles` those are returned instead, as a list
    (as a number if there is only one).

    On a CUDA device each call is timed separately, with events. Before each call the L2 cache is overwritten, and the stream is held
    back while the call is launched; neither is part of the time. Calls that use no device, and calls so long that cache and launch do
    not matter, are timed by the host's clock.

    `device` is the device whose cache is overwritten if events do not see the work: `cpu`, or a device of torch. `sync_fn` then waits
    for that device (default: torch.cuda's own function); the time of waiting for an idle device is subtracted. `fast_flush` is accepted
    because older versions had it, and has no effect: the cache is never overwritten within the timed window.
    """
    check_words(quantiles, return_mode)
    return summarise(call_times(fn, warmup, rep, grad_to_none, device, sync_fn)[0], quantiles, return_mode)


def check_words(quantiles: Sequence[float] | None, return_mode: str) -> None:
    """Check the arguments before anything runs."""
    if return_mode not in MODES:
        raise unknown("return_mode", return_mode, MODES)
    if quantiles is not None and not all(0 <= share <= 1 for share in quantiles):
        raise UsageError(f"quantiles must be between 0 and 1, not {list(quantiles)}")


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
    """Milliseconds of each timed call, which `do_bench` summarises; with `answered`, also the output of one more call."""
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
    """The times of as many calls as fill the requested seconds, after a warm-up."""
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
    """A call that returns only when the device has done its work; threads of its runtime may do that work."""

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
    """The clock that can time a call; it may make a few calls to find out.

    CUDA events if the call gives work to a CUDA device; the host's clock with a wait for the device if the call is so long that its
    launch does not matter, or if the current stream shows no work; otherwise the plain host clock. `wait` waits for the device if
    torch.cuda cannot.
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
    """torch.cuda if this process has initialised CUDA, or if `call` does; otherwise None. Imports nothing.

    The call is made only if it could initialise CUDA: torch is loaded and was built for CUDA, and CUDA is not initialised yet.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if torch is None or cuda is None:
        return None
    if not cuda.is_initialized() and torch.version.cuda is not None and cuda.is_available():
        call()
    return cuda if cuda.is_initialized() else None


def _events() -> ModuleType:
    """The module with CUDA events; imported by name because it imports torch, which `import steelyard` must not need."""
    return importlib.import_module("steelyard.backends._device")


def _synchronised(wait: Callable[[], Any]) -> Callable[[], int]:
    def now() -> int:
        wait()
        return clocks.perf_counter_ns()

    return now


def _taker(task: Task, device: Any = None, wait: Callable[[], Any] | None = None) -> Take:
    """A function that times single calls: with a cold cache if events time them, and less the cost of waiting for an idle device."""
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
    """A function that overwrites the cache of the named device; on torch devices it reads a number back, to wait until that is done."""
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
    """Context in which the named CUDA device is the current one, so that events are recorded on it."""
    if device is None or not str(device).startswith("cuda"):
        return nullcontext()
    found: AbstractContextManager[Any] = _torch(device).cuda.device(device)
    return found


def _torch(device: Any) -> Any:
    """Import torch, for devices that only torch supports."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise UsageError(f"the device {str(device)!r} needs torch, which is not installed here") from None
