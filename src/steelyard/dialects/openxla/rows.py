"""The original's result file: its keys, one entry for each benchmark, added to what a file holds already and never half written."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.dialects.openxla.catalogue import expected
from steelyard.dialects.openxla.definitions import BenchmarkCase
from steelyard.engine import envs
from steelyard.engine.plan import Job
from steelyard.engine.sinks import Sink
from steelyard.errors import UsageError
from steelyard.files import RESULTS, read_whole
from steelyard.model.experiment import ResultRow
from steelyard.model.record import Arrays, Record, Status, in_seconds
from steelyard.terminal import plain, save

if TYPE_CHECKING:
    from steelyard.dialects.openxla.session import ToolOptions

Entry = dict[str, Any]
Hand = Callable[[str, Record, Entry], None]
LEVEL = "framework_level"
MILLI, MEGA = 1e3, 1e-6


class ResultFile:
    """A JSON file of benchmarks; what it held stays, and every entry is there once it is added."""

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, _held(path)
        self._seen: set[str] = set()
        self.content.setdefault("trigger", {"timestamp": str(int(datetime.now(UTC).timestamp()))})
        self.content.setdefault("benchmarks", [])

    def add(self, row: Entry) -> None:
        """One entry more."""
        self.content["benchmarks"].append(row)
        save(self.path, json.dumps(plain(self.content), indent=2) + "\n")

    def ran_in(self, python: str) -> None:
        """The packages of an environment that something ran in, once, beside those of others."""
        if python in self._seen:
            return
        self._seen.add(python)
        packages = envs.contents(python) or {item.name: item.version for item in metadata.distributions() if item.name}
        known = self.content.setdefault("execution_environment", {}).setdefault("python_environment", [])
        held = {(item.get("name"), item.get("version")) for item in known if isinstance(item, dict)}
        known += [{"name": name, "version": version} for name, version in sorted(packages.items()) if (name, version) not in held]


def _held(path: Path) -> dict[str, Any]:
    """What a file has that is to be added to; another kind of file is not touched."""
    if not path.exists():
        return {}
    try:
        found = json.loads(read_whole(path, RESULTS) or b"{}") if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot add to {path}", why=f"it is no JSON: {error}", do="name another file with -o") from None
    if not isinstance(found, dict) or not isinstance(found.get("benchmarks", []), list):
        raise UsageError(f"cannot add to {path}", why="it is no result file of this tool", do="name another file with -o")
    return found


class SuiteSink(Sink):
    """Makes an entry of every benchmark that is measured; several may be one case."""

    def __init__(self, options: ToolOptions, file: ResultFile, known: Mapping[str, BenchmarkCase], hand: Hand) -> None:
        self.options, self.file, self.known, self.hand = options, file, known, hand
        self.names: dict[str, list[str]] = {}

    def planned(self, rows: Sequence[ResultRow]) -> None:
        for row in rows:
            for case in row.cases:
                self.names.setdefault(case.id, []).append(row.key)

    def refused(self, job: Job, reason: str) -> None:
        self.take(job, Record(job.case.id, job.case.plain(), "failed", reason), {})

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        self.file.ran_in(job.place.python)
        for name in self.names.get(job.case.id, ()):
            self.hand(name, record, self._entry(name, record, arrays, job.case.variant))

    def without(self, name: str, status: Status, reason: str) -> None:
        """An entry for what needs no process."""
        self.hand(name, record := Record("", {}, status, reason), self._entry(name, record, {}, ""))

    def _entry(self, name: str, record: Record, arrays: Arrays, variant: str) -> Entry:
        figures = level(record, arrays, self.options, variant) if arrays else {}
        if record.status != "ok":
            figures = {"error": f"{record.status}: {record.reason}", **figures}
        ours = {
            "status": record.status, "reason": record.reason, "id": record.id, "started": record.started, "preset": self.options.preset,
            "latencies_ms": [value * MILLI for value in in_seconds(arrays, "forward.measure.time")],
            "expected": expected(name), "verification": record.verification, "environment": record.environment,
            "effective": {key: value for key, value in record.effective.items() if key not in ("traceback", "label")},
        }  # fmt: skip
        return {"definition": definition(name, self.known.get(name), self.options), "metrics": {LEVEL: figures}, "steelyard": ours}


def definition(name: str, case: BenchmarkCase | None, options: ToolOptions) -> Entry:
    """What was measured, by the original's keys; what a model does not say is null."""
    given = case.model.model_parameters if case else {}
    return {
        "benchmark_name": name,
        "framework": str(case.model.model_impl.framework_type) if case else None,
        "data_type": given.get("data_type"),
        "batch_size": given.get("batch_size"),
        "compiler": options.compiler,
        "device": options.device,
        "tags": [*case.model.model_impl.tags, *case.model.tags] if case else [],
    }


def level(record: Record, arrays: Arrays, options: ToolOptions, variant: str) -> Entry:
    """The metrics of the original, in milliseconds; of one value there is no deviation, and of no warm-up nothing but the compile time."""
    first = [value * MILLI for value in in_seconds(arrays, "forward.warmup.time")]
    times = [value * MILLI for value in in_seconds(arrays, "forward.measure.time")]
    warm = first if options.warmup else []
    found = _summary(warm, "warmup_latency_ms") | {"warmup_iterations": len(warm)}
    found |= _summary(times, "latency_ms") | {"benchmark_iterations": len(times)}
    if options.tool == "tensorflow":
        peaks = _peaks(arrays)
        compile_time = max(first) - statistics.median(times) if first and times else None
        return found | {"compile_time_ms": compile_time, "device_memory_peak_mb": max(peaks) * MEGA if any(peaks) else None}
    found["compile_time_ms"] = first[0] if first else None
    if options.tool == "pytorch":
        return found | {"autotuning_enabled": "max-autotune" in variant}
    moved = {"input": record.effective.get("spent", {}).get("input_transfer_time"), "output": record.effective.get("output_transfer_time")}
    return found | {f"{key}_data_transfer_ms": None if value is None else value * MILLI for key, value in moved.items()}


def _summary(values: Sequence[float], name: str) -> Entry:
    ways: dict[str, Callable[[Sequence[float]], float]] = {
        "min": min, "max": max, "mean": statistics.fmean, "median": statistics.median, "stddev": statistics.stdev,
    }  # fmt: skip
    return {f"{way}_{name}": of(values) if len(values) > (way == "stddev") else None for way, of in ways.items()}


def _peaks(arrays: Arrays) -> list[int]:
    _, _, data = arrays.get("forward.measure.memory", ("B", "<i8", b""))
    return list(memoryview(data).cast("q")) if data else []
