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
    """Adds to records what was seen of the machine; without a monitor, nothing."""

    monitor: Monitor | None = None

    def begin(self) -> None:
        """The run has the machine for itself: what is seen counts from now on."""
        if self.monitor and self.monitor.begun:
            self.monitor.taken()
        elif self.monitor:
            self.monitor.start()

    def noted(self, record: Record) -> Record:
        """The record with what was seen since the one before; a case that is over before a reading was taken gets none."""
        seen = self.monitor.taken() if self.monitor else {}
        return replace(record, effective={**record.effective, MONITOR: seen}) if seen else record


@contextmanager
def monitored(jobs: Sequence[Job], settings: Settings) -> Iterator[RunMonitor]:
    """Watch the machine while these jobs are done; a virtual clock needs no machine, and `--no-telemetry` wants none of this."""
    if not settings.telemetry or all(registry.about_backend(job.case.backend).virtual for job in jobs):
        yield RunMonitor()
        return
    monitor = Monitor(gpus=visible_gpus(sorted(_devices(jobs))))
    try:
        yield RunMonitor(monitor)
    finally:
        monitor.stop()


def _devices(jobs: Sequence[Job]) -> set[int]:
    """The GPUs that jobs use, by the numbers that frameworks have for them: one for each rank."""
    own = [(str(job.place.device_index or 0), job.case.ranks) for job in jobs if job.case.device == "cuda"]
    return {int(first) + rank for first, ranks in own if first.isdecimal() for rank in range(ranks)}
