"""Raw samples of a page, in the order they were taken, thinned without losing a spike or a dip."""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from steelyard.errors import StoreError
from steelyard.files import open_plain
from steelyard.measuring.stats import Floats
from steelyard.model.record import Record, Series
from steelyard.report.web.plain import rounded
from steelyard.report.web.schema import ClockSeries, SampleEntry
from steelyard.store.paths import inside
from steelyard.store.runs import Run
from steelyard.store.samples import SIZES, extent

FEWEST = 8
DIGITS = 5
MOST_CALLS = 2**63
SIDECAR = "samples.bin"
Places = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class Sidecar:
    """The raw samples of one run; `size` is None if the file is missing."""

    run: Run
    size: int | None = None

    @classmethod
    def of(cls, run: Run) -> Sidecar:
        """Find the file of raw samples once; runs of other tools have none."""
        try:
            return cls(run, inside(run.path, SIDECAR, "the file of raw samples").stat().st_size)
        except (OSError, StoreError):
            return cls(run)

    def troubles(self) -> Iterator[str]:
        """A sentence on what is wrong with the file, and for how many cases."""
        kept = [record.samples for record in self.run.records if record.samples]
        lost = len(kept) if self.size is None else sum(extent(series) > self.size for series in kept)
        if lost:
            what = "missing" if self.size is None else "cut short"
            yield f"{SIDECAR} is {what}: the raw samples of {lost} case{'' if lost == 1 else 's'} are lost, the figures are still good"

    @functools.cached_property
    def _bytes(self) -> mmap.mmap | None:
        """The file, mapped once for all series."""
        try:
            with open_plain(inside(self.run.path, SIDECAR, "the file of raw samples")) as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else None
        except (OSError, ValueError, StoreError):
            return None

    def array(self, record: Record, name: str) -> Floats | None:
        """One series of a record; None if it was not stored or cannot be read."""
        series = next((item for item in record.samples if item.name == name), None)
        data = self._bytes if series and series.dtype in SIZES and series.count >= 0 and series.offset >= 0 else None
        if series is None or data is None or extent([series]) > len(data):
            return None
        return np.frombuffer(data, series.dtype, series.count, series.offset).astype(np.float64)


SERIES = {"block_time": "calls_per_block", "forward.measure.time": "calls_per_repeat"}
"""The series that a case's chart shows (blocks, or the repeats of a fixed protocol), and where the calls in each value are counted."""
SECONDS = {"s": 1.0, "ms": 1e-3, "ns": 1e-9}


def shown_series(record: Record) -> Series | None:
    """The times that a record kept, by block or by repeat."""
    return next((item for item in record.samples if item.name in SERIES and item.unit in SECONDS), None)


def count_of(record: Record) -> int:
    """How many of these times a record says it has."""
    series = shown_series(record)
    return max(0, series.count) if series else 0


def level(counts: Sequence[int], total: int) -> int:
    """The most that each of several series may keep so that all together keep at most `total`; the short ones stay whole."""
    rest, left = total, sorted(count for count in counts if count)
    for place, count in enumerate(left):
        share = rest // (len(left) - place)
        if count > share:
            return share if share >= FEWEST else 0
        rest -= count
    return max(left, default=0)


def thin(values: Floats, most: int) -> Places:
    """Indices to keep, in order: the first, the last, and the minimum and maximum of each stretch between them."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    finite = np.isfinite(values)
    sound = np.where(finite, values, np.median(values[finite]) if finite.any() else 0.0)
    edges = np.linspace(1, count - 1, max(1, (most - 2) // 2) + 1).astype(int)
    kept = {0, count - 1}
    for start, stop in pairwise(edges.tolist()):
        stretch = sound[start:stop]
        kept |= {start + int(stretch.argmin()), start + int(stretch.argmax())} if len(stretch) else set()
    return np.array(sorted(kept), np.intp)


def sample_entry(record: Record, sidecar: Sidecar, most: int) -> SampleEntry | None:
    """The samples of a record as net time per call, with disturbances and the device's clock; plain JSON."""
    if most <= 0 or not record.samples:
        return None
    series = shown_series(record)
    blocks = sidecar.array(record, series.name) if series else None
    if series is None or blocks is None or not len(blocks):
        return None
    blocks = blocks * SECONDS[series.unit]
    places = thin(blocks, most)
    places = places[np.isfinite(blocks[places])]
    if not len(places):
        return None
    calls, overhead = record.effective.get(SERIES[series.name]), record.metrics.get("overhead")
    per_block = float(calls) if isinstance(calls, int) and 0 < calls < MOST_CALLS else 1.0
    times = (blocks / per_block - (overhead.value if overhead and math.isfinite(overhead.value) else 0.0))[places]
    flags = sidecar.array(record, "preempted")
    hit = [int(flag != 0) for flag in flags[places]] if flags is not None and len(flags) == len(blocks) and flags.any() else None
    return SampleEntry(
        unit="s",
        count=len(blocks),
        index=None if len(places) == len(blocks) else places.tolist(),
        time=[_short(value) for value in times.tolist()],
        discarded=hit,
        kept=bool(record.effective.get("kept_preempted")),
        clock=_clock(record, sidecar, blocks, max(FEWEST, most // 2)),
        throttled=hit if record.case.get("device", "cpu") != "cpu" else None,
    )


def _short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _clock(record: Record, sidecar: Sidecar, blocks: Floats, most: int) -> ClockSeries | None:
    """The device's clock on the axis of the blocks.

    The clock was read in a thread from before the warm-up to the end, so the blocks are spread over the time after the warm-up
    in proportion to their lengths.
    """
    at, clock = sidecar.array(record, "telemetry_time"), sidecar.array(record, "telemetry_sm_clock")
    if at is None or clock is None or len(at) != len(clock) or not len(at):
        return None
    lengths = np.where(np.isfinite(blocks) & (blocks > 0), blocks, 0.0)
    spent, end = float(lengths.sum()), float(at[-1])
    warm = record.effective.get("warmup_time")
    begin = max(0.0, min(float(warm) if isinstance(warm, (int, float)) else 0.0, end - spent))
    if not spent > 0 or not end > begin:
        return None
    during = at >= begin
    ends = np.cumsum(lengths) * ((end - begin) / spent)
    index = np.minimum(np.searchsorted(ends, at[during] - begin), len(blocks) - 1)
    values = clock[during]
    kept = thin(values, most)
    return ClockSeries("Hz", index[kept].tolist(), [rounded(value) for value in values[kept].tolist()]) if len(kept) else None
