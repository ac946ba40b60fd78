"""A plan through the real conductor (supervise, nursery, fsynced store), with a stopwatch on every case."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from typing import Any

from steelyard import registry
from steelyard.engine import conduct, plan
from steelyard.engine.plan import Plan
from steelyard.engine.run import NoWatch
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import Record
from steelyard.store.runs import Run, Store

SMALLEST = 16


@dataclass(frozen=True)
class Lap:
    """One case: seconds from its start to its record on disk, in the worker's own account, and in timed blocks.

    Warm-up and samples are timed blocks. Calibration is not recorded, so it counts as outside them.
    """

    wall: float
    worker: float
    timed: float


@dataclass
class Stopwatch(NoWatch):
    """Looks on as a terminal would, and notes when each case began and was saved; waiting for a lock comes before that."""

    began: list[float] = field(default_factory=list)
    saved: list[float] = field(default_factory=list)

    def started(self, case_id: str) -> None:
        self.began.append(time.perf_counter())

    def finished(self, record: Record) -> None:
        self.saved.append(time.perf_counter())

    def waiting(self, text: str) -> None:
        print(f"waiting for {text}", file=sys.stderr)


def tiny_cases(number: int, **settings: Any) -> Plan:
    """That many cases of one tiny eager operator on the CPU."""
    matrix = Matrix(("op/gelu",), axes={"n": tuple(range(SMALLEST, SMALLEST + number))})
    return plan.expand(Experiment("benchmark", matrix=(matrix,), settings=Settings(**settings)), registry.catalogue())


def without_nursery(ready: Plan) -> Plan:
    """The same cases, each in an interpreter of its own."""
    return replace(ready, jobs=tuple(replace(job, fresh=True) for job in ready.jobs))


def laps(ready: Plan) -> list[Lap]:
    """Measure a plan into a store that is thrown away; a case that did not succeed ends the benchmark."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        found = conduct.execute(ready, Store.find(None, folder), ["benchmark"], lambda writer: watch).run
        for record in found.records:
            if record.status != "ok":
                raise SystemExit(f"{record.id}: {record.status}, {record.reason}")
        return [
            Lap(saved - began, record.wall_s, _timed(found, record))
            for began, saved, record in zip(watch.began, watch.saved, found.records, strict=True)
        ]


def _timed(found: Run, record: Record) -> float:
    blocks = next(series for series in record.samples if series.name == "block_time")
    return float(found.array(blocks).sum()) + float(record.effective["warmup_time"])
