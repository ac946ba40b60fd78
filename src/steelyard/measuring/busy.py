"""How long a device works during a call, from a profiler's trace: the time of its kernels, and the time in which none runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.model.record import Figure

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
"""The categories of events in PyTorch's traces that occupy a device; ranges that a program marks there are not among them."""
Span = tuple[float, float]


@dataclass(frozen=True)
class DeviceWork:
    """A device's work in some calls: the sum of its kernels' seconds, and the seconds in which at least one of them ran."""

    kernels: float
    busy: float


def work_in(trace: Path) -> DeviceWork | None:
    """Return the work in a trace that the profiler pass has written; None if nothing ran on a device."""
    with gzip.open(trace, "rt", encoding="utf-8") if trace.suffix == ".gz" else trace.open(encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file).get("traceEvents", [])
    spans = [(float(item["ts"]), float(item["ts"]) + float(item["dur"])) for item in events if item.get("cat") in WORK and "dur" in item]
    return DeviceWork(sum(end - start for start, end in spans) * 1e-6, covered(spans) * 1e-6) if spans else None


def covered(spans: Iterable[Span]) -> float:
    """Return how much of the time at least one span covers: kernels of several streams run at once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def figures(work: DeviceWork, calls: int, wall: float) -> dict[str, Figure]:
    """Return the kernel time of one call, and the share of a call's time without any kernel; `wall` is a call's time without a profiler."""
    gap = max(0.0, 1 - work.busy / calls / wall) if wall > 0 else 0.0
    return {"kernel_time": Figure(work.kernels / calls, "s", "lower", n=calls), "gap": Figure(gap, "1", "lower", n=calls)}
