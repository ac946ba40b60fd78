"""The roofline: the highest rate of a device at a task's intensity, how much of it was reached, and what limits the task.

A task does `flops` operations on `bytes` of data. No device computes faster than its peak rate, or gets data faster than
its memory delivers, so the attainable rate is `min(peak, intensity * bandwidth)`; the two meet at the ridge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from steelyard.model.parts import TOLD
from steelyard.model.record import Figure, Record

Bound = Literal["compute", "memory", "launch"]

METRIC, PREDICTED = "roof", "predicted_time"
"""The share of the roof, and the seconds that the roof allows at best: `max(flops / peak, bytes / bandwidth)`, the share of the time."""
TINY = 0.1
"""Below this share of the roof the device is idle most of the time, so a slow host is the limit."""


@dataclass(frozen=True)
class Roof:
    """The peaks of one device for one number format; `compute` is None if that format's peak is unknown.

    `source` is where the peaks are from, measured or a datasheet; `compute_source` is that of `compute` if it differs.
    """

    compute: float | None
    bandwidth: float
    source: str
    compute_source: str = ""

    @property
    def ridge(self) -> float | None:
        """Operations per byte above which arithmetic, not memory, is the limit."""
        return None if self.compute is None else self.compute / self.bandwidth

    def attainable(self, intensity: float) -> float | None:
        """The highest rate in FLOP/s for a task of this many operations per byte."""
        return None if self.compute is None else min(self.compute, intensity * self.bandwidth)

    @property
    def sources(self) -> str:
        """The sources of both peaks, in words."""
        return told_source(self.source if self.compute is None else self.compute_source or self.source, self.source)

    def source_for(self, metrics: Mapping[str, Figure]) -> str:
        """The sources of the peaks that apply to a case with these figures."""
        compute, memory = sources_of(self.sources)
        return told_source(compute if "compute" in metrics else memory, memory if "bandwidth" in metrics else compute)


def told_source(compute: str, memory: str) -> str:
    """One word if both peaks of a roof have the same source, else the source of each: `datasheet compute, measured memory`."""
    return compute if compute == memory else f"{compute} compute, {memory} memory"


def sources_of(told: str) -> tuple[str, str]:
    """The sources of compute and of memory, as `told_source` wrote them."""
    found = re.fullmatch(r"(\w+) compute, (\w+) memory", told)
    return (found[1], found[2]) if found else (told, told)


def with_roof(record: Record, roof: Roof) -> Record:
    """The record with its share of the roof, the time that the roof predicts, and its bound; unchanged if it failed or
    does not say what it moves."""
    share = share_of(record.metrics, roof) if record.status == "ok" else None
    if share is None:
        return record
    figures, facts = {METRIC: share, **_shares_of_parts(record.metrics, roof)}, {"roof_source": roof.source_for(record.metrics)}
    if time := record.metrics.get("time"):
        figures[PREDICTED] = Figure(share.value * time.value, "s")
    held = bound_of(record, roof, share.value)
    if held is not None:
        facts["bound"] = held
    return replace(record, metrics={**record.metrics, **figures}, effective={**record.effective, **facts})


def _shares_of_parts(metrics: Mapping[str, Figure], roof: Roof) -> dict[str, Figure]:
    """The shares of the roof that prefill and decoding reach; these are on different sides of its ridge."""
    found = {}
    for part in TOLD:
        own = {kind: metrics[name] for kind in ("compute", "bandwidth") if (name := f"{part}_{kind}") in metrics}
        if own and (share := share_of(own, roof)):
            found[f"{part}_{METRIC}"] = share
    return found


def share_of(metrics: Mapping[str, Figure], roof: Roof) -> Figure | None:
    """Reached rate divided by attainable rate, with the interval of the time; the peaks count as exact."""
    computed, moved = metrics.get("compute"), metrics.get("bandwidth")
    intensity = computed.value / moved.value if computed and moved else math.inf
    top, reached = (roof.attainable(intensity), computed) if computed else (roof.bandwidth, moved)
    if reached is None or not top:
        return None
    low, high = (None if end is None else end / top for end in (reached.low, reached.high))
    return Figure(reached.value / top, "1", "higher", low, high, reached.n)


def bound_of(record: Record, roof: Roof, share: float) -> Bound | None:
    """What limits the task: the host that launches it, memory, or arithmetic; None if its bytes are not declared."""
    if launch_bound(record, share):
        return "launch"
    computed, moved = record.metrics.get("compute"), record.metrics.get("bandwidth")
    if moved is None:
        return None
    if computed is None:
        return "memory"
    return "compute" if roof.ridge is not None and computed.value / moved.value >= roof.ridge else "memory"


def launch_bound(record: Record, share: float) -> bool:
    """Whether an accelerator waits for its host: queueing a call takes longer than running it."""
    if record.case.get("device", "cpu") == "cpu":
        return False
    host, time = record.metrics.get("host_time"), record.metrics.get("time")
    slower = host is not None and time is not None and host.value > time.value
    return slower or (share < TINY and record.effective.get("eager_bound_by") == "host")


def compute_format(record: Record) -> str | None:
    """The number format whose arithmetic the case uses: its dtype, unless a variant computes in another."""
    cast = record.effective.get("arithmetic") or record.effective.get("autocast")
    dtype = cast if isinstance(cast, str) else (record.case.get("params") or {}).get("dtype")
    if not isinstance(dtype, str):
        return None
    return "tf32" if dtype == "fp32" and record.effective.get("tf32") is True else dtype
