"""The monitor of a run: one for all its cases, in the process that waits for workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from steelyard import registry
from steelyard.engine.plan import Job
from steelyard.machine.monitor import Monitor, visible_gpus
from steelyard.model.experiment import Settings
from steelyard.model.record import MONITOR, Record


@dataclass(frozen=True)
class RunMonitor:
    """Adds the monitor's readings to records; without a monitor it adds nothing."""

    monitor: Monitor | None = None

    def begin(self) -> None:
        """Count readings from now on: the run has the machine to itself."""
        if self.monitor and self.monitor.begun:
            self.monitor.taken()
        elif self.monitor:
            self.monitor.start()

    def noted(self, record: Record) -> Record:
        """Return the record with the readings since the one before it; a case that ends before a reading is taken gets none."""
        seen = self.monitor.taken() if self.monitor else {}
        return replace(record, effective={**record.effective, MONITOR: seen}) if seen else record


@contextmanager
def monitored(jobs: Sequence[Job], settings: Settings) -> Iterator[RunMonitor]:
    """Monitor the machine while these jobs run; not if all use a virtual clock, and not with `--no-telemetry`."""
    if not settings.telemetry or all(registry.about_backend(job.case.backend).virtual for job in jobs):
        yield RunMonitor()
        return
    monitor = Monitor(gpus=visible_gpus(sorted(_devices(jobs))))
    try:
        yield RunMonitor(monitor)
    finally:
        monitor.stop()


def _devices(jobs: Sequence[Job]) -> set[int]:
    """Return the GPUs that jobs use, by the frameworks' numbers: one for each rank."""
    own = [(str(job.place.device_index or 0), job.case.ranks) for job in jobs if job.case.device == "cuda"]
    return {int(first) + rank for first, ranks in own if first.isdecimal() for rank in range(ranks)}
