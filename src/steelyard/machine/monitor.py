"""Monitors the machine during a whole run: how busy the CPUs are, the memory of its processes, and its GPUs.

One sampler runs from beginning to end, in the process that only waits for workers, never in one that is measured; its own cost is
measured and reported with every figure. `telemetry` reads clocks, power and heat while something is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard import clocks
from steelyard.machine.cpu import ROOT
from steelyard.machine.load import busy_seconds
from steelyard.machine.processes import resident, tree
from steelyard.machine.telemetry import Meter, Sampler

EVERY = 0.5
CPU, MEMORY = "cpu", "rss"
READINGS, COST = "readings", "cost"
MANY_FAILURES = 5
"""Failed readings in a row after which there is a warning."""


@dataclass(frozen=True)
class GpuReading:
    """How busy a GPU is, from 0 to 1, and the bytes of its memory that all processes use."""

    utilisation: float
    memory: float


@dataclass(frozen=True)
class MonitorReading:
    """One reading: the share of all CPUs that was busy since the last one, the processes' resident bytes, and each GPU by its name."""

    at: float
    cpu: float | None
    rss: int
    gpus: Mapping[str, GpuReading] = field(default_factory=dict)


def visible_gpus(indices: Iterable[int] | None = None, words: str | None = None) -> dict[str, Meter]:
    """The GPUs that frameworks call 0, 1, … as `gpu0`, …; all without `indices`; CUDA_VISIBLE_DEVICES is obeyed."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES") if words is None else words
    listed = [word.strip() for word in said.split(",") if word.strip()] if said is not None else None
    found: dict[str, Meter] = {}
    for index in range(len(listed) if listed is not None else 64) if indices is None else indices:
        name = listed[index] if listed is not None and index < len(listed) else str(index)
        meter = Meter.open(None, int(name)) if name.isdecimal() else Meter.open(name)
        if meter is None:
            break
        found[f"gpu{index}"] = meter
    return found


class Monitor:
    """Reads this machine's load regularly between `start` and `stop`; `root` is the process whose descendants are measured."""

    def __init__(
        self, every: float = EVERY, gpus: Mapping[str, Meter] | None = None, root: int | None = None, proc: Path = ROOT,
        now: Callable[[], float] = clocks.monotonic,
    ) -> None:  # fmt: skip
        self.rows: list[MonitorReading] = []
        self.every, self.gpus, self.begun = every, gpus or {}, False
        self._root, self._proc, self._now = root or os.getpid(), proc, now
        self._busy: tuple[float, float] | None = None
        self._sampler = Sampler(self.look, every, "steelyard-monitor")
        self._told, self._told_cost, self._told_at = 0, 0.0, now()

    def start(self) -> None:
        """Start, with a reading at once."""
        self._told_at, self.begun = self._now(), True
        self._sampler.start()

    def stop(self) -> dict[str, Any]:
        """Stop, and return what was read since the last `taken`."""
        if self.begun:
            self._sampler.stop()
        return self.taken()

    @property
    def cost(self) -> float:
        """CPU seconds that readings have taken so far."""
        return self._sampler.cost

    @property
    def failing(self) -> bool:
        """Whether the last readings all failed."""
        return self._sampler.failed_in_a_row >= MANY_FAILURES

    def look(self) -> None:
        """Take one reading."""
        busy, at, share = busy_seconds(self._proc), self._now(), None
        if busy is not None and self._busy is not None and at > self._busy[1]:
            share = min(1.0, max(0.0, (busy - self._busy[0]) / (at - self._busy[1]) / (os.cpu_count() or 1)))
        self._busy = (busy, at) if busy is not None else None
        gpus = {name: GpuReading(meter.utilisation(), meter.memory_used()) for name, meter in self.gpus.items()}
        self.rows.append(MonitorReading(at, share, resident(tree(self._root)), gpus))

    def taken(self) -> dict[str, Any]:
        """The readings since the last call: lowest, mean and highest of each quantity, and the share of a core that reading took."""
        rows, cost, now = self.rows[self._told :], self.cost, self._now()
        span, spent = now - self._told_at, cost - self._told_cost
        if not rows:
            return {}
        self._told, self._told_cost, self._told_at = len(self.rows), cost, now
        return summary(rows) | {COST: round(spent / max(span, self.every), 6)}


def summary(rows: Sequence[MonitorReading]) -> dict[str, Any]:
    """Lowest, mean and highest of each quantity that could be read, and the number of readings; memory only while a process is there."""
    series: dict[str, list[float]] = {
        CPU: [row.cpu for row in rows if row.cpu is not None], MEMORY: [float(row.rss) for row in rows if row.rss],
    }  # fmt: skip
    for name in dict.fromkeys(name for row in rows for name in row.gpus):
        own = [row.gpus[name] for row in rows if name in row.gpus]
        series[f"{name}_utilisation"] = [reading.utilisation for reading in own]
        series[f"{name}_memory"] = [reading.memory for reading in own]
    known = {name: [value for value in values if value == value] for name, values in series.items()}
    return {name: spread(values) for name, values in known.items() if values} | {READINGS: len(rows)}


def spread(values: Sequence[float]) -> list[float]:
    """Lowest, mean and highest."""
    return [round(value, 6) for value in (min(values), sum(values) / len(values), max(values))]


def over_all(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the summaries of several parts of a run, each weighted by its number of readings."""
    known = [part for part in parts if isinstance(part.get(READINGS), int) and part[READINGS] > 0]
    readings = sum(part[READINGS] for part in known)
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in known for name, value in part.items() if isinstance(value, list) and len(value) == 3):
        own = [(part[name], part[READINGS]) for part in known if name in part]
        weight = sum(count for _, count in own)
        mean = sum(values[1] * count for values, count in own) / weight
        found[name] = [min(values[0] for values, _ in own), mean, max(values[2] for values, _ in own)]
    if not found:
        return {}
    costs = [(part[COST], part[READINGS]) for part in known if isinstance(part.get(COST), (int, float))]
    cost = sum(value * count for value, count in costs) / max(1, sum(count for _, count in costs))
    return found | {READINGS: readings, COST: cost}
