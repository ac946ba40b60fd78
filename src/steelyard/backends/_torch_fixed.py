"""PyTorch's part in timing a fixed number of calls: the device's stopwatch, and ranges for traces and tools."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steelyard import clocks
from steelyard.errors import Unsupported
from steelyard.machine.nvidia import gpus
from steelyard.measuring.fixed import NO_RANGE, Range, Stopwatch

FLUSH = 2
LASTING = (
    "device-side assert", "illegal memory access", "unspecified launch failure", "misaligned address", "illegal instruction",
    "invalid program counter", "hardware stack error", "the launch timed out", "uncorrectable ECC error",
)  # fmt: skip
"""Driver messages of errors that a process cannot recover from: any later call to the device may fail, hang or abort."""


class TorchStopwatch(Stopwatch):
    """A stopwatch that also reports what torch.compile counted: graphs, breaks and their reasons."""

    _before: Mapping[str, Mapping[str, int]] = {}

    def count_anew(self) -> None:
        self._before = dynamo_counters()

    def counts(self) -> dict[str, Any]:
        return {"dynamo": _since(dynamo_counters(), self._before)}


def dynamo_counters() -> dict[str, dict[str, int]]:
    """Return torch.compile's counters so far; empty if it is not in use."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return {str(key): {str(name): int(count) for name, count in group.items()} for key, group in dynamo.counters.items()} if dynamo else {}


def _since(now: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return what was added between two readings of the counters."""
    grown = {key: {name: count - before.get(key, {}).get(name, 0) for name, count in group.items()} for key, group in now.items()}
    return {key: added for key, group in grown.items() if (added := {name: count for name, count in group.items() if count})}


class MetaStopwatch(TorchStopwatch):
    """A stopwatch for the meta device, where nothing runs and calls cannot be timed back to back."""

    continuous = False


class DeviceStopwatch(TorchStopwatch):
    """A stopwatch for a device behind torch's interface; only CUDA has events for its queue and memory statistics.

    `flush` overwrites the cache with a buffer of `own` bytes, which are not counted in any call's peak memory.
    """

    asynchronous = True

    def __init__(
        self,
        api: Any,
        *,
        cuda: bool,
        flush: Callable[[], None] | None = None,
        own: int = 0,
        clock: Callable[[], int] = clocks.perf_counter_ns,
    ) -> None:
        self.api, self.events, self.flush, self.own, self.clock = api, cuda, flush, own, clock

    def cool(self) -> None:
        if self.flush:
            self.flush()

    def before(self) -> None:
        self.cool()
        if self.events:
            self.api.reset_peak_memory_stats()
        self.api.synchronize()

    def timed(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        clock, sync, kwargs = self.clock, self.api.synchronize, kwargs or {}
        start = clock()
        out = fn(*args, **kwargs)
        sync()
        return clock() - start, out

    def peak(self) -> int:
        return int(self.api.max_memory_allocated()) - self.own if self.events else 0

    def sync(self) -> None:
        self.api.synchronize()

    def held(self) -> int:
        return int(self.api.memory_allocated())

    def free(self) -> int:
        return int(self.api.mem_get_info()[0] + self.api.memory_reserved() - self.api.memory_allocated())

    def event_pairs(self, count: int) -> Sequence[tuple[Any, Any]]:
        return [(self.api.Event(enable_timing=True), self.api.Event(enable_timing=True)) for _ in range(count)]


def stopwatch(api: Any, where: torch.device, flush: Range | None) -> Stopwatch:
    """Return the stopwatch of an initialized device; with `flush` the cache is flushed before each call, inside that range."""
    if api is None:
        return MetaStopwatch() if where.type == "meta" else TorchStopwatch()
    if where.type != "cuda" or flush is None:
        return DeviceStopwatch(api, cuda=where.type == "cuda")
    size = FLUSH * int(api.get_device_properties(where).L2_cache_size)
    if not size:
        raise Unsupported("the cache cannot be flushed here: the device does not report the size of its L2 cache")
    buffer = torch.empty(size, dtype=torch.uint8, device=where)

    def overwrite() -> None:
        with flush:
            buffer.fill_(1)

    return DeviceStopwatch(api, cuda=True, flush=overwrite, own=size)


class _Both:
    """A range in both the profiler and NVTX; it can be entered many times, but not nested."""

    def __init__(self, profiled: Range, label: str) -> None:
        self.profiled, self.label = profiled, label

    def __enter__(self) -> None:
        self.profiled.__enter__()
        self.handle = torch.cuda.nvtx.range_start(self.label)

    def __exit__(self, *error: Any) -> None:
        torch.cuda.nvtx.range_end(self.handle)
        self.profiled.__exit__(*error)


@dataclass(frozen=True)
class TorchLabels:
    """Ranges in a trace if one is taken, and in NVTX on a CUDA device, for external tools."""

    profiled: bool = False
    nvtx: bool = False

    @classmethod
    def where(cls, device: str, profiled: bool) -> TorchLabels:
        """Return the labels for a device; NVTX ranges only on CUDA, and only where NVTX works."""
        return cls(profiled, device.startswith("cuda") and _has_nvtx())

    def range(self, label: str) -> Range:
        """Return a range of this name, which can be entered many times."""
        profiled = self.profiler_range(label)
        return _Both(profiled, label) if self.nvtx else profiled

    def profiler_range(self, label: str) -> Range:
        """Return a range that only traces show: in NVTX a range around ranges of the same name would count them twice."""
        made: Range = torch.autograd.profiler.record_function(label) if self.profiled else NO_RANGE
        return made

    def tool_range(self, label: str) -> Range:
        """Return a range that only external tools see."""
        return TorchLabels(False, self.nvtx).range(label)


def _has_nvtx() -> bool:
    try:
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("steelyard"))
    except RuntimeError:
        return False
    return True


def recovers(api: Any, reason: str) -> bool:
    """Release memory and return whether the device still works; after an error in LASTING, return False without a call that may hang."""
    if any(words in reason for words in LASTING):
        return False
    gc.collect()
    if api is None:
        return True
    try:
        api.synchronize()
        if hasattr(api, "empty_cache"):
            api.empty_cache()
    except Exception:
        return False
    return True


def facts() -> dict[str, Any]:
    """Return how this torch was built, and the properties of the NVIDIA or AMD device that it sees."""
    found: dict[str, Any] = {
        "torch": torch.__version__, "debug": bool(torch.version.debug), "build": torch.__config__.show(),
        "cuda_available": torch.cuda.is_available(),
    }  # fmt: skip
    return found | (_cuda() if found["cuda_available"] else {})


def _cuda() -> dict[str, Any]:
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    known = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    plain = {name: value if isinstance(value, (int, float, str, bool)) else str(value) for name, value in known.items()}
    return {
        "cuda": torch.version.cuda, "driver": next((gpu.get("driver") for gpu in gpus()), None),
        "gencode": torch.cuda.get_gencode_flags(), "device_id": index, "device_name": torch.cuda.get_device_name(), "properties": plain,
        "cudnn": torch.backends.cudnn.version(), "cudnn_enabled": torch.backends.cudnn.enabled,
    }  # fmt: skip
