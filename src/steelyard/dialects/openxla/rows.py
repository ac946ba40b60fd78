"""The original's result file: one entry for each benchmark is added to those in the file, which is never left half written."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steelyard.dialects.openxla.definitions import BenchmarkCase
from steelyard.engine import envs
from steelyard.engine.messages import Unweighed
from steelyard.engine.plan import Job
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.model.experiment import ResultRow
from steelyard.model.pair import Pair
from steelyard.model.record import Arrays, Record, Status
from steelyard.store.listfile import ListFile

if TYPE_CHECKING:
    from steelyard.dialects.openxla.session import ToolOptions

Entry = dict[str, Any]
LEVEL = "framework_level"
MILLI, MEGA = 1e3, 1e-6


class SuiteSink(RowSink):
    """Writes an entry for every benchmark, measured or not, with its outcome."""

    def __init__(
        self, options: ToolOptions, rows: Sequence[ResultRow], known: Mapping[str, BenchmarkCase], tell: Callable[[str, Record], None]
    ) -> None:
        super().__init__(rows, options.output)
        self.options, self.known, self.tell = options, known, tell
        self.file = ListFile(options.output, "benchmarks", {"trigger": {}, "execution_environment": {"python_environment": []}})
        self.file.content.setdefault("trigger", {"timestamp": str(int(datetime.now(UTC).timestamp()))})
        self.packages: list[Entry] = self.file.content.setdefault("execution_environment", {}).setdefault("python_environment", [])

    def open_file(self, keep: int) -> ListFile:
        return self.file

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        found = [{"name": name, "version": version} for name, version in sorted(envs.installed(job.place.python).items())]
        self.packages += [item for item in found if item not in self.packages]
        super().take(job, record, arrays)

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Entry:
        """Return the entry of a benchmark, which has one case."""
        [measured], [case] = cases, self.rows[key].cases
        return self._entry(key, measured, case.variant)

    def without(self, name: str, status: Status, reason: str) -> None:
        """Write the entry of a benchmark that cannot be measured."""
        self.file.write(self._entry(name, MeasuredCase(Record("", {}, status, reason), {}), ""))

    def _entry(self, name: str, measured: MeasuredCase, variant: str) -> Entry:
        record = measured.record
        self.tell(name, record)
        figures = level(measured, self.options, variant) if measured.arrays else {}
        if record.status != "ok":
            figures = {"error": f"{record.status}: {record.reason}", **figures}
        ours = {
            "status": record.status, "reason": record.reason, "id": record.id, "started": record.started, "preset": self.options.preset,
            "latencies_ms": [value * MILLI for value in measured.seconds("forward.measure.time")],
            "expected": self.options.expected(name), "verification": record.verification, "environment": record.environment,
            "effective": {key: value for key, value in record.effective.items() if key not in ("traceback", "label")},
        }  # fmt: skip
        return {"definition": definition(name, self.known.get(name), self.options), "metrics": {LEVEL: figures}, "steelyard": ours}


def definition(name: str, case: BenchmarkCase | None, options: ToolOptions) -> Entry:
    """Return the benchmark's description by the original's keys; unknown values are null."""
    given = case.model.model_parameters if case else {}
    about = {"benchmark_name": name, "framework": str(case.model.model_impl.framework_type) if case else None}
    sizes = {"data_type": given.get("data_type"), "batch_size": given.get("batch_size")}
    tags = [*case.model.model_impl.tags, *case.model.tags] if case else []
    return {**about, **sizes, "compiler": options.compiler, "device": options.device, "tags": tags}


def level(measured: MeasuredCase, options: ToolOptions, variant: str) -> Entry:
    """Return the original's metrics, in milliseconds; without requested warm-up, the first call only gives the compile time."""
    first = [value * MILLI for value in measured.seconds("forward.warmup.time")]
    times = [value * MILLI for value in measured.seconds("forward.measure.time")]
    warm = first if options.warmup else []
    found = summary(warm, "warmup_latency_ms") | {"warmup_iterations": len(warm)}
    found |= summary(times, "latency_ms") | {"benchmark_iterations": len(times)}
    if options.tool == "tensorflow":
        peaks = measured.sizes("forward.measure.memory")
        compile_time = max(first) - statistics.median(times) if first and times else None
        return found | {"compile_time_ms": compile_time, "device_memory_peak_mb": max(peaks) * MEGA if any(peaks) else None}
    found["compile_time_ms"] = first[0] if first else None
    if options.tool == "pytorch":
        return found | {"autotuning_enabled": "max-autotune" in variant}
    told = measured.record.effective
    moved = {"input": told.get("spent", {}).get("input_transfer_time"), "output": told.get("output_transfer_time")}
    return found | {f"{key}_data_transfer_ms": None if value is None else value * MILLI for key, value in moved.items()}


def summary(values: Sequence[float], name: str) -> Entry:
    """Return minimum, maximum, mean, median and deviation by the original's keys; those that need more values are None."""
    ways: dict[str, Callable[[Sequence[float]], float]] = {
        "min": min, "max": max, "mean": statistics.fmean, "median": statistics.median, "stddev": statistics.stdev,
    }  # fmt: skip
    return {f"{way}_{name}": of(values) if len(values) > (way == "stddev") else None for way, of in ways.items()}
