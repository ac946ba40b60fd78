"""The device that configs run on: how one call on it is timed, what memory it took, and how its cache is emptied."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.shim.marks import CLEAR_CACHE, Marks
from steelyard.errors import UsageError

MEBIBYTE = 1 << 20
FLUSH = 2


@dataclass(frozen=True)
class Station:
    """The device as the loops see it; `api` is torch.cuda or what stands for it, None where calls end when they return.

    `flush` overwrites the cache with a buffer of `own` bytes, which no config is charged for.
    """

    kind: str
    api: Any = None
    flush: Callable[[], None] | None = None
    clock: Callable[[], int] = time.perf_counter_ns
    own: int = 0

    @property
    def on_cuda(self) -> bool:
        """Whether there are events and a memory allocator to ask."""
        return self.kind == "cuda"

    def before(self) -> None:
        """Get ready for one call: the cache as it shall be found, the memory mark reset, nothing pending."""
        if self.flush:
            self.flush()
        if self.on_cuda:
            self.api.reset_peak_memory_stats()
        self.api.synchronize()

    def timed(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, Any]:
        """Nanoseconds of one call until its work is done, and what it returned."""
        clock, sync = self.clock, self.api.synchronize
        start = clock()
        out = fn(*args, **kwargs)
        sync()
        return clock() - start, out

    def peak(self) -> float:
        """The most memory held since `before`, in MiB; only CUDA is asked."""
        return float(self.api.max_memory_allocated() - self.own) / MEBIBYTE if self.on_cuda else 0

    def release(self) -> None:
        """Give memory that nothing holds any more back to the device, where the next config or a tool may want it."""
        if self.on_cuda:
            self.api.empty_cache()


def station(options: Options, marks: Marks) -> Station:
    """The station of a device that torch has and that is awake."""
    import torch

    where = torch.device(options.device)
    if where.type in ("cpu", "meta"):
        return Station(where.type)
    api = getattr(torch, where.type)
    if where.type != "cuda":
        return Station(where.type, api)
    if where.index is not None:
        torch.cuda.set_device(where)
    if options.cuda_l2_cache == "on" or options.exec_mode != "discrete":
        return Station("cuda", api)
    size = FLUSH * int(api.get_device_properties(where).L2_cache_size)
    if not size:
        raise UsageError("--cuda-l2-cache off cannot be had here: the device does not say how large its L2 cache is")
    return Station("cuda", api, _flush(size, where, marks), own=size)


def _flush(size: int, where: Any, marks: Marks) -> Callable[[], None]:
    """Write to so much memory that nothing else is left in the cache."""
    import torch

    buffer, label = torch.empty(size, dtype=torch.uint8, device=where), marks.range(CLEAR_CACHE)

    def flush() -> None:
        with label:
            buffer.fill_(1)

    return flush
