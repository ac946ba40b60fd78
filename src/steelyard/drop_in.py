"""Functions that other tools made customary, with their arguments and meaning, by our way of measuring."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from steelyard.errors import UsageError, unknown
from steelyard.model.task import Task

MODES = ("mean", "median", "min", "max", "all")
PROBES = 5
LEAST_KERNEL = 5e-7

Take = Callable[[int], list[float]]


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Any = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> float | list[float]:
    """Milliseconds of a call, with the arguments of `triton.testing.do_bench`; it needs neither Triton nor a GPU.

    `warmup` and `rep` are milliseconds spent, all that surrounds a call included. Tensors in `grad_to_none` lose their
    gradient before each call. `quantiles` gives a list instead (a number if it names one), `return_mode` chooses among
    mean, median, min, max and all.

    On a CUDA device each call is timed alone by events, the L2 cache overwritten before it and the stream held back while
    it is launched, so neither is in the figure. What never reaches a device is timed by the host's clock.
    """
    from steelyard.measuring.sample import quiet_collector

    if return_mode not in MODES:
        raise unknown("return_mode", return_mode, MODES)
    if quantiles is not None and not all(0 <= share <= 1 for share in quantiles):
        raise UsageError(f"quantiles lie between 0 and 1: {list(quantiles)}")
    task = Task(fn, prepare=_clearing(grad_to_none))
    task()
    with quiet_collector():
        times = spend(_on_device(task) or _on_host(task), warmup * 1e-3, rep * 1e-3)
    return summarise([1e3 * seconds for seconds in times], quantiles, return_mode)


def spend(take: Take, warmup: float, rep: float, now: Callable[[], float] = time.perf_counter) -> list[float]:
    """As many calls as fill the asked seconds, from what a few of them take with all that surrounds them; at least one."""
    start = now()
    take(PROBES)
    each = max((now() - start) / PROBES, 1e-9)
    take(max(1, int(warmup / each)))
    return take(max(1, int(rep / each)))


def summarise(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> float | list[float]:
    """What was asked for, of all times."""
    import numpy as np

    if quantiles is not None:
        found = [float(value) for value in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return list(times) if return_mode == "all" else float(getattr(np, return_mode)(times))


def _clearing(tensors: Any) -> Callable[[], None] | None:
    if tensors is None:
        return None
    cleared: Iterable[Any] = (tensors,) if hasattr(tensors, "grad") else tuple(tensors)

    def clear() -> None:
        for tensor in cleared:
            tensor.grad = None

    return clear


def _on_host(task: Task) -> Take:
    from steelyard.measuring.clock import HostTimer

    loop = HostTimer().bind(task)
    return lambda count: [loop(1) * 1e-9 for _ in range(count)]


def _on_device(task: Task) -> Take | None:
    """Single calls with a cold cache; None where no CUDA device is in use or the call gives it nothing to do.

    The timer is imported by name because it brings torch along, which nothing that imports Steelyard may need.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    events = importlib.import_module("steelyard.backends._device")
    timer = events.EventTimer(*events.open_api("cuda"), None)
    loop, idle = timer.bind(task), timer.bind(Task(lambda: None))
    if min(loop(1) for _ in range(PROBES)) - min(idle(1) for _ in range(2 * PROBES)) < LEAST_KERNEL * 1e9:
        return None
    return lambda count: events.cold_times(task, timer, count) or [loop(1) * 1e-9 for _ in range(count)]
