"""Write the rows and side files of a run while it is measured: one row for each config, in order, whatever its status."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.dialects.ptxla import matrix, native, rows
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.ledger import SKIP, Ledger, doubtful, outcome
from steelyard.dialects.ptxla.matrix import Model, RunnerPoint
from steelyard.dialects.ptxla.rows import Row
from steelyard.dialects.ptxla.torchbench import ModelPolicy
from steelyard.engine.plan import Job
from steelyard.engine.sinks import Sink
from steelyard.machine import cpu
from steelyard.machine.nvidia import gpus
from steelyard.model.record import Arrays, Record
from steelyard.version import __version__

UNTRIED = ("skipped", "unsupported", "not_applicable")
"""Statuses that are neither a failure nor a success."""
NOT_RUN, NOT_VERIFIED = "VERIFIER_DIDNT_RUN", "VERIFIER_SKIPPED"
UNVERIFIED = "the policy says that this model is too large or not deterministic"
TAIL = 2000
LARGEST_BATCH = 10**9
ROW_ORDER = (
    "accelerator", "accelerator_model", "xla", "xla_flags", "dynamo", "torch_xla2", "keep_model_data_on_cuda", "test", "batch_size",
    "enable_functionalization",
)  # fmt: skip
VERSIONS = ("python", "torch", "torch_xla", "jax", "torchax")
COUNTED = {
    "xla_CompileTime_time_s": "compile_time", "xla_CompileTime_number": "compiles", "xla_ExecuteTime_time_s": "execute_time",
    "xla_ExecuteTime_number": "executions",
}  # fmt: skip
"""The row's names for what XLA's runtime counts."""
NUMBERED = re.compile(r"\d+-[a-z]+-?(\d*)")


class RunnerWatch:
    """The interface for progress; this base class shows nothing."""

    def say(self, level: str, text: str) -> None:
        """Report a message at one of the original's log levels."""

    def printed(self, text: str) -> None:
        """Report what a measuring process printed."""

    def finished(self, row: Row, done: int, total: int) -> None:
        """Report that a row is written."""


@dataclass
class RunnerConfig:
    """One model with one experiment; `row` is its row if it needs no process."""

    number: int
    model: Model
    experiment: RunnerPoint
    mark: str
    reason: str = ""
    """Why the policy leaves it out; empty if it does not."""
    row: Row | None = None
    done: bool = False

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.model["model_name"])

    @property
    def group(self) -> tuple[str, str, str]:
        """The key of stacks that are compared: they need one batch size."""
        return self.name, self.experiment["test"], self.experiment["accelerator"]


@dataclass
class Files:
    """The side files of one config: `<folder>/[<repeat>/]<kind>-<basename>.<ext>`."""

    folder: Path
    basename: str
    written: dict[str, list[str]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def write(self, kind: str, data: bytes, name: str, repeat: int | None = None) -> str | None:
        """Write a file; `name` takes the place of `.<ext>`. A file that cannot be written is noted, and does not fail the row."""
        place = self.folder if repeat is None else self.folder / str(repeat)
        made = place / f"{kind}-{self.basename}{name}"
        try:
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(data)
        except OSError as error:
            self.lost.append(f"{made.name}: {error.strerror or error}")
            return None
        self.written.setdefault(kind, []).append(str(made))
        return str(made)

    def note_dumps(self) -> None:
        """Note the files that XLA wrote itself because of its variables."""
        for kind in ("hlo", "dump"):
            if found := sorted(map(str, self.folder.glob(f"{kind}-{self.basename}*"))):
                self.written[kind] = found


@dataclass
class RunnerSink(Sink):
    """Takes what the engine measures of some configs, and writes rows as the original does."""

    options: RunnerOptions
    watch: RunnerWatch
    configs: Sequence[RunnerConfig]
    ledger: Ledger
    policy: ModelPolicy
    statuses: list[str] = field(default_factory=list)
    surprises: dict[str, list[str]] = field(default_factory=dict)
    doubts: int = 0
    """How many configs have a verification without a result."""
    batches: dict[tuple[str, str, str], tuple[int, str]] = field(default_factory=dict)
    """The batch size that each comparison began with, and on which stack."""
    yielding = True
    _run: Path = Path()
    _said: str = ""
    _ended: str = ""
    _taken: tuple[Job, Record, Arrays] | None = None
    _torch: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_mark = {config.mark: config for config in self.configs}

    def opened(self, run: Path) -> None:
        self._run, self._said, self._ended, self._taken = run, "", "", None

    def held(self, job: Job) -> bool:
        marked = [self._by_mark[mark] for mark in job.label.split()]
        self.advance(marked[0])
        for config in marked:
            self._announce(config)
        left = [config for config in marked if not self._pass_over(config)]
        return not left

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        self._taken = (job, record, arrays)

    def lost(self, reason: str) -> None:
        self._ended = reason

    def printed(self, text: str) -> None:
        self._said = text

    def released(self) -> None:
        """Write the row once its process has ended, because the process may print until then."""
        if self.options.print_subprocess and self._said:
            self.watch.printed(self._said)
        if self._taken is not None:
            job, record, arrays = self._taken
            for mark in job.label.split():
                if not self._by_mark[mark].done:
                    self._write(self._by_mark[mark], self._measured(self._by_mark[mark], record, arrays))

    def advance(self, until: RunnerConfig | None = None) -> None:
        """Write the rows that need no process, up to a config or to the end."""
        for config in self.configs:
            if config is until:
                return
            if not config.done and (config.row is not None or self.answered(config)):
                self._announce(config)
                if not self._pass_over(config) and config.row is not None:
                    self._write(config, config.row)

    def answered(self, config: RunnerConfig) -> bool:
        """Whether a config has its row already."""
        known = self.ledger.known(config.model, config.experiment)
        return known is not None and not self._again(known, config.reason)

    def _announce(self, config: RunnerConfig) -> None:
        self.watch.say("info", f"Run with {matrix.line(config.model, config.experiment)}")

    def _pass_over(self, config: RunnerConfig) -> bool:
        """Whether a config has its row already; if so, its outcome is counted."""
        known = self.ledger.known(config.model, config.experiment)
        if known is None or self._again(known, config.reason):
            return False
        how = outcome(known)
        hint = "" if how in ("ok", "skipped") else "; --retry failed runs it again"
        self.watch.say("info", f"there is a row for it already ({how}){hint}")
        self._count(config, known)
        return True

    def _again(self, known: Row, reason: str) -> bool:
        """Whether to run a config again: it was not ok and --retry is set, or the reason of its skip no longer applies."""
        how = outcome(known)
        return not reason if how == "skipped" else how != "ok" and self.options.retry == "failed"

    def _count(self, config: RunnerConfig, row: Row) -> bool | None:
        """Count the outcome of a row; returns whether it was expected, or None if the policy does not say."""
        config.done, status = True, outcome(row)
        self.statuses.append(status)
        self.doubts += doubtful(row)
        if type(batch := row.experiment.get("batch_size")) is int and 1 <= batch <= LARGEST_BATCH and not row.error:
            self.batches.setdefault(config.group, (batch, stack_name(row.experiment)))
        if not self.policy.expected or status in UNTRIED:
            return None
        expected = self.policy.expects_failure(config.name, config.experiment)
        if expected == (status != "ok"):
            return True
        words = (config.name, config.experiment["accelerator"], config.experiment["test"], stack_name(config.experiment))
        self.surprises.setdefault("new passes" if expected else "new failures", []).append(" ".join(words).strip())
        return False

    def _write(self, config: RunnerConfig, row: Row) -> None:
        expected = self._count(config, row)
        if expected is not None:
            row.others["steelyard"]["expected"] = expected
        self.ledger.add(row)
        self.watch.finished(row, config.number, len(self.configs))

    def _measured(self, config: RunnerConfig, record: Record, arrays: Arrays) -> Row:
        files = Files(Path(self.options.output_dirname).resolve() / matrix.folder(config.model), self._basename(config))
        if record.status not in ("ok", "wrong"):
            return self._failed(config, record, files)
        checked, ours = record.verification, {"status": record.status, **self._conditions(config, record)}
        code = (checked.code if checked else "") or NOT_VERIFIED
        metrics = self._metrics(config, record, arrays, files)
        files.note_dumps()
        others: dict[str, Any] = {}
        for _, path in self._attached(record, "output"):
            others["outputs_file"] = files.write("output", path.read_bytes(), ".pt")
        if self.options.verify:
            found = checked.figures if checked else {}
            others["verification_mean_rel_error"] = found.get("mean_rel_error")
            told = {
                "code": code, **found, "why": checked.message if checked else UNVERIFIED, "against": checked.against if checked else "",
                "tolerance": checked.rtol if checked else None,
            }  # fmt: skip
            ours["verification"] = {key: value for key, value in told.items() if value not in (None, "")}
        if files.written:
            ours["files"] = files.written
        if files.lost:
            ours["not_kept"] = files.lost
            self.watch.say("warning", f"side files of {config.name} could not be kept: {'; '.join(files.lost[:3])}")
        if self._ended:
            ours["ended"] = self._ended
        return self.row(config, metrics, code, ours, others, record)

    def _basename(self, config: RunnerConfig) -> str:
        return matrix.basename(config.model, config.experiment)

    def _conditions(self, config: RunnerConfig, record: Record) -> dict[str, Any]:
        """Facts to repeat a row and to judge its reliability."""
        effective, dtype = record.effective, record.case["params"].get("dtype")
        versions = {name: record.environment[name] for name in VERSIONS if name in record.environment}
        fell: dict[str, int] = {}
        for repeat in effective.get("repeats", ()):
            for name, count in repeat.get("xla", {}).get("fallbacks", {}).items():
                fell[name] = fell.get(name, 0) + count
        library = record.case["workload"].startswith(native.LIBRARIES) and config.experiment["test"] == "eval"
        found = {
            "versions": versions, "fallbacks": fell, "dtype": native.LONG.get(dtype, dtype) if library and dtype != "fp32" else "",
            "threads": effective.get("threads"), "noise": effective.get("noise"), "other_load": effective.get("other_load"),
            "graph_breaks": effective.get("graph_breaks"), "case": record.id, "run": self._run.name,
            "amp": "off on a CPU" if self._casts_nothing(config, record) else "", "note": self._doubts_about(config, record),
        }  # fmt: skip
        return {key: value for key, value in found.items() if value not in (None, "", {}, [])}

    def _casts_nothing(self, config: RunnerConfig, record: Record) -> bool:
        """Whether training is not cast because it is on a CPU; on another device it would be cast to a short format."""
        library = str(record.case["workload"]).startswith(native.LIBRARIES)
        return library and config.experiment["test"] == "train" and config.experiment["accelerator"] == "cpu"

    def _doubts_about(self, config: RunnerConfig, record: Record) -> str:
        """Return why a row cannot be compared with other rows of its comparison: another torch, another batch size."""
        found, stack = [], stack_name(config.experiment)
        torch = record.environment.get("torch", "")
        first = self._torch.setdefault("first", torch)
        if torch and torch.partition("+")[0] != first.partition("+")[0]:
            found.append(f"torch {torch}, while other stacks of this run have {first}: --env runs all in one environment")
            if torch not in self._torch:
                self._torch[torch] = stack
                self.watch.say("warning", f"{stack} runs on {found[-1]}")
        batch, (known, by) = record.effective.get("batch_size"), self.batches.get(config.group, (None, ""))
        if None not in (batch, known) and batch != known:
            found.append(f"batch size {batch}, while {by} has {known}: they cannot be compared; --batch-size same uses one for all stacks")
            self.watch.say("warning", f"{config.name} on {stack}: {found[-1]}")
        return "; ".join(found)

    def _metrics(self, config: RunnerConfig, record: Record, arrays: Arrays, files: Files) -> dict[str, Any]:
        calls, options = self.options.iterations_per_run, self.options
        total = _seconds(arrays, "forward.measure.time")
        metrics: dict[str, Any] = {"total_time": total, "per_iter_time": [value / calls for value in total]}
        if config.experiment["xla"] and (host := _seconds(arrays, "forward.measure.host")):
            metrics |= {"trace_total_time": host, "trace_per_iter_time": [value / calls for value in host]}
        repeats = record.effective.get("repeats", [])
        if counted := [repeat["xla"] for repeat in repeats if "xla" in repeat]:
            metrics |= {name: [counts[key] for counts in counted] for name, key in COUNTED.items()}
        for number, repeat in enumerate(repeats):
            if options.collect_dynamo_counters:
                metrics.setdefault("dynamo_counters", []).append(repeat.get("dynamo", {}))
            if options.dump_dynamo_counters:
                files.write("dynamo-counters", f"{json.dumps(repeat.get('dynamo', {}))}\n".encode(), ".txt", number)
            if "xla" in repeat and repeat.get("report"):
                files.write("pytorch-xla-metrics", repeat["report"].encode(), ".txt", number)
        for number, path in self._attached(record, "runtime"):
            files.write("xplane", path.read_bytes(), f"/{path.name}", number)
        return metrics | (self._profiled(config, record, files) if options.profiles else {})

    def _profiled(self, config: RunnerConfig, record: Record, files: Files) -> dict[str, list[Any]]:
        """Return metrics from the profile of each repeat, and write the profiles as files."""
        options, found, calls = self.options, dict[str, list[Any]](), self.options.iterations_per_run
        xla = config.experiment["xla"] is not None
        fell = {name for repeat in record.effective.get("repeats", ()) for name in repeat.get("xla", {}).get("fallbacks", {})}
        for _, path in self._attached(record, "kernels", ".json"):
            kernels = json.loads(path.read_text(encoding="utf-8"))
            on_cpu, on_cuda = (sum(row["total"] for row in kernels if row["where"] == where) for where in ("cpu", "cuda"))
            figures: dict[str, Any] = {}
            if options.profile_cuda_cpu:
                figures |= {"total_cpu_time_s": on_cpu, "total_cuda_time_s": float(on_cuda)}
                figures |= {"per_iter_cpu_time_s": on_cpu / calls, "per_iter_cuda_time_s": on_cuda / calls}
            if options.profile_cuda_cpu_individual_ops:
                named = {row["name"]: row for row in kernels if row["name"].startswith("aten::") and (not xla or row["name"] in fell)}
                figures["xla_unlowered_ops" if xla else "inductor_ops"] = {name: _operator(row) for name, row in named.items()}
            for name, value in figures.items():
                found.setdefault(name, []).append(value)
        if options.dump_pytorch_profiles:
            for number, path in self._attached(record, "kernels", ".txt"):
                files.write("pytorch-profile", path.read_bytes(), ".txt", number)
            for number, path in self._attached(record, "trace"):
                files.write("trace", gzip.decompress(path.read_bytes()), ".json", number)
        return found

    def _attached(self, record: Record, kind: str, ending: str = "") -> Iterator[tuple[int, Path]]:
        """Yield the files of one kind that a record has, each with its repeat."""
        for item in record.attachments:
            path = self._run / item.path
            if item.kind == kind and path.name.endswith(ending):
                found = NUMBERED.match(path.name)
                yield int(found[1] or 0) if found else 0, path

    def _failed(self, config: RunnerConfig, record: Record, files: Files) -> Row:
        more: dict[str, Any] = {"trace": record.effective["traceback"]} if "traceback" in record.effective else {}
        if self._said and record.status not in UNTRIED:
            more["tail"] = self._said[-TAIL:]
            if log := files.write("log", self._said.encode("utf-8", "replace"), ".txt"):
                more["log"] = log
            else:
                self.watch.say("warning", f"the log of a process could not be kept: {files.lost[-1]}")
        return self.without_times(config, record.status, f"{record.status}: {record.reason}", **more, case=record.id, run=self._run.name)

    def without_times(self, config: RunnerConfig, status: str, error: str, **more: Any) -> Row:
        """Return the row of a config that did not run, or did not finish."""
        code = NOT_VERIFIED if error == SKIP else NOT_RUN
        return self.row(config, {"error": error}, code, {"status": status, **more})

    def row(
        self,
        config: RunnerConfig,
        metrics: Mapping[str, Any],
        code: str,
        ours: dict[str, Any],
        others: Mapping[str, Any] | None = None,
        record: Record | None = None,
    ) -> Row:
        """Return a row with the options and the results."""
        asked = self.options.batch_size if isinstance(self.options.batch_size, int) else None
        batch = record.effective.get("batch_size") or record.case["params"].get("batch") if record else None
        told = {**config.experiment, "accelerator_model": device_name(config.experiment, record), "batch_size": batch or asked}
        ours |= {"fingerprint": config.mark, "version": __version__}
        if self.options.size is not None:
            ours["size"] = self.options.size
        return Row(
            {"suite_name": self.options.suite_name, **config.model}, {key: told[key] for key in ROW_ORDER}, metrics,
            self.options.timestamp, self.options.repeat, self.options.iterations_per_run, code, {**(others or {}), "steelyard": ours},
        )  # fmt: skip


def _seconds(arrays: Arrays, name: str) -> list[float]:
    if name not in arrays:
        return []
    _, dtype, data = arrays[name]
    return [float(value) / 1e9 for value in np.frombuffer(data, dtype)]


def _operator(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "self_cpu_time_s": row["total"], "self_cuda_time_s": row.get("device", 0.0), "total_cpu_time_s": row.get("with_callees", 0.0),
        "total_cuda_time_s": row.get("device_with_callees", 0.0), "num_of_calls": row["calls"],
    }  # fmt: skip


def stack_name(experiment: Mapping[str, Any]) -> str:
    """Return the name in reports, or the axes themselves if it has none."""
    if experiment.get("torch_xla2"):
        return f"torch_xla2={experiment['torch_xla2']}"
    return rows.backend_name(experiment.get("dynamo"), experiment.get("xla")) or f"{experiment.get('xla')}+{experiment.get('dynamo')}"


def device_name(experiment: RunnerPoint, record: Record | None) -> str | None:
    """Return the device's own name; for one of several GPUs the names of all, as in the original."""
    if experiment["accelerator"] == "cpu":
        return cpu.model(cpu.cpuinfo(Path("/")))
    if experiment["accelerator"] == "cuda":
        names = [str(gpu["name"]) for gpu in gpus() if gpu.get("name")]
        return f"One of {', '.join(names)}" if len(names) > 1 else names[0] if names else None
    return str(record.environment.get("pjrt", "TPU")) if record else None
