"""Write the output file while a run is measured: a line per config, in order, with batches under ncu and nsys in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.dialects.param import batch, lines
from steelyard.dialects.param.expand import Config, Mistake, Sheet
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.lines import Line, Recorded
from steelyard.dialects.param.reading import printable
from steelyard.dialects.param.watching import ConfigWatch
from steelyard.engine.messages import Found
from steelyard.engine.plan import Job
from steelyard.engine.sinks import RowQueue, Sink
from steelyard.errors import SteelyardError, UsageError
from steelyard.model.protocol import Traces
from steelyard.model.record import Arrays, Record
from steelyard.store.rowfile import RowFile

MEBIBYTE = 1 << 20
MILLISECONDS = {"ns": 1e6, "ms": 1.0}
LONGEST_REASON, LONGEST_ERROR = 600, 2000


class Mistaken(SteelyardError):
    """There are mistakes in the config, and they stop the run."""


@dataclass
class Writing(Sink):
    """Takes what the engine measures of some configs, and writes it as PARAM does."""

    options: Options
    watch: ConfigWatch
    sheet: Sheet
    configs: Sequence[Config]
    place: lines.OutputPlace | None = None
    recorded: Recorded | None = None
    strict: bool = False
    entries: Sequence[tuple[str, str]] = ()
    mistakes: list[Mistake] = field(default_factory=list)
    refused_lines: list[Line] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    batch_failed: bool = False
    refusals: int = 0
    """How many of the configs cannot run, as the check without data found."""
    _output: RowFile | None = None
    _workers: int = 0
    _wrong: dict[tuple[str, str], list[Config]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_id = {config.full_id: config for config in self.configs}
        self._rows: RowQueue[Line] = RowQueue(self._by_id)
        self._queue = batch.Queue(self.options, entries=self.entries, echo=self.watch.said) if self.options.batches else None
        self.paused = self.options.batches
        self.whole = self.options.profile or self.options.et

    def opened(self, run: Path) -> None:
        """Read the continued file again: another run may have written to it in the meantime."""
        if self.place and self.options.append and self.place.file.exists():
            self.recorded = lines.read(self.place.file)

    def held(self, job: Job) -> bool:
        held = [id for id in job.label.split() if self._held(self._by_id[id])]
        for id in held:
            self._drop(id)
        return len(held) == len(job.label.split())

    def _held(self, config: Config) -> bool:
        line = self.recorded and self.recorded.holds(config.op, config.id, config.build, config.input, self.options)
        if line:
            self.statuses.append(lines.status(line))
        return bool(line)

    def _drop(self, id: str) -> None:
        self._by_id.pop(id)
        for line in self._rows.drop(id):
            self._write(line)

    def refused(self, job: Job, reason: str) -> None:
        """Collect a refusal; it is reported once for all configs of one place in the file."""
        for id in job.label.split():
            config = self._by_id.get(id)
            if config is None:
                continue
            self._wrong.setdefault((config.path, printable(reason, LONGEST_REASON)), []).append(config)
            self._drop(id)

    def checked(self) -> None:
        for (path, what), (first, *more) in self._wrong.items():
            id = f"{first.id} and {len(more)} more" if more else first.id
            self.mistaken(Mistake(self.sheet.source, path, printable(first.op), id, what))
            self.refusals += 1 + len(more)
            self.refused_lines += [lines.refused(item.op, item.id, item.build, item.input, what) for item in (first, *more)]
        if self.mistakes and (self.strict or self.options.fail_fast):
            raise Mistaken("there are mistakes in the config")

    def mistaken(self, mistake: Mistake) -> None:
        """Keep and report a mistake."""
        self.mistakes.append(mistake)
        self.watch.mistake(mistake)

    def traces(self) -> Traces | None:
        if not self.whole or not self.place:
            return None
        asked, self._workers = self.options, self._workers + 1
        stem = self.place.stem if self._workers == 1 else f"{self.place.stem}_{self._workers}"
        counters = tuple(asked.cupti_profiler_metrics.split(",")) if asked.cupti_profiler else ()
        return Traces(stem, asked.profile, asked.et, counters, asked.cupti_profiler_measure_per_kernel)

    def begun(self, environment: Mapping[str, Any]) -> None:
        """Take the facts of the first worker; later ones send the same and are ignored."""
        if why := environment.get("unusable"):
            raise UsageError(f"torch cannot use the device {self.options.device!r}", why=str(why))
        if self._output is None:
            self.open(lines.machine(environment))
            self.watch.begun(len(self._by_id))

    def open(self, machine: Mapping[str, Any]) -> None:
        """Start the file, or continue it."""
        if self.place:
            self._output = RowFile(self.place.file, self.recorded.whole if self.recorded else 0)
            self._output.write(lines.header(self.options, machine, datetime.now()))
            for line in self.refused_lines:
                self._output.write(line)
            self.files.append(("benchmark_file", str(self.place.file)))

    def started(self, job: Job) -> None:
        self.watch.started(job.label.split()[0])

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        for id in job.label.split():
            if config := self._by_id.get(id):
                for line in self._rows.put(id, line_of(config, self.options, record, arrays)):
                    self._take_line(self._by_id[lines.full_id(line)], line)

    def _take_line(self, config: Config, line: Line) -> None:
        """Write a line; a batch that is due runs before it, while the worker waits."""
        if self._queue and self._queue.due(config):
            self.flush()
        self._write(line)
        if self._queue:
            self._queue.add(config, line)

    def _write(self, line: Line) -> None:
        if self._output:
            self._output.write(line)
        self.statuses.append(lines.status(line))
        self.watch.finished(line)

    def flush(self) -> None:
        """Run the batch that waits for ncu or nsys."""
        for line in self._queue.flush() if self._queue else ():
            if self._output:
                self._output.write(line)
            if lines.status(line) == "failed":
                self.batch_failed = True
                self.watch.warning(str(line["steelyard"].get("error", "a batch failed")))

    def printed(self, text: str) -> None:
        for line in text.splitlines():
            self.watch.printed(printable(line, LONGEST_REASON))

    def found(self, found: Found) -> None:
        self.files += [(key, path) for key, path in found.files]

    def dry(self, config: Config, reason: str) -> None:
        """Write the line of a config that is expanded and not run."""
        self._write(lines.record(config.op, config.id, config.build, config.input, {}, status="skipped", reason=reason))

    def finish(self) -> None:
        """Write the last lines, which say that the run was completed; traces are the very last, as tools expect."""
        if self.place and self._output is None and self.recorded and not self.recorded.finished:
            self._output = RowFile(self.place.file, self.recorded.whole)
        if self._output:
            self._output.write(lines.finish(datetime.now()))
            for key in lines.TRACE_KEYS:
                for name, path in self.files:
                    if name == key:
                        self._output.write({key: path})

    def close(self) -> None:
        """Close the output file."""
        if self._output:
            self._output.close()


def line_of(config: Config, options: Options, record: Record, arrays: Arrays) -> Line:
    """Return one config's line: PARAM's lists, then our own facts."""
    ours: dict[str, Any] = {"status": record.status}
    if record.effective:
        ours["seed"] = options.seed if config.seed is None else config.seed
    if record.reason:
        ours["error"] = " ".join(record.reason[:LONGEST_ERROR].split())
    ours |= {name: record.effective[name] for name in ("drawn", "not_applicable") if record.effective.get(name)}
    if record.status == "ok":
        ours["statistics"] = {
            part: {"median": figure.value, "low": figure.low, "high": figure.high, "n": figure.n, "unit": "s"}
            for part, name in (("forward", "time"), ("backward", "backward_time"))
            if (figure := record.metrics.get(name))
        }
    metric = metric_of(arrays) if record.status in ("ok", "not_applicable") and "protocol" in record.effective else {}
    return lines.record(config.op, config.id, config.build, config.input, metric, **ours)


def metric_of(arrays: Arrays) -> dict[str, dict[str, list[float]]]:
    """Return times in milliseconds and memory in MiB, a list for every phase of every pass that was measured."""
    passes = ["forward", *(["backward"] if any(name.startswith("backward.") for name in arrays) else [])]
    found: dict[str, dict[str, list[float]]] = {}
    for name in passes:
        found[name] = {}
        for phase in ("warmup", "measure"):
            found[name][f"{phase}.time"] = _values(arrays, f"{name}.{phase}.time")
            found[name][f"{phase}.gpu.memory"] = _values(arrays, f"{name}.{phase}.memory")
    return found


def _values(arrays: Arrays, name: str) -> list[float]:
    if name not in arrays:
        return []
    unit, dtype, data = arrays[name]
    return [value / (MEBIBYTE if unit == "B" else MILLISECONDS[unit]) if value else 0 for value in np.frombuffer(data, dtype).tolist()]
