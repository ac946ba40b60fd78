"""The compiler level: run exported programs with XLA, IREE and LiteRT, with the original's flags and keys, in the units that keys name."""

from __future__ import annotations

import ast
import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.artifacts import manifest, remote
from steelyard.dialects.openxla.catalogue import DefinitionSet, gathered
from steelyard.dialects.openxla.rows import MEGA, MILLI, Entry, SuiteSink, definition, summary
from steelyard.dialects.openxla.session import SuiteRun, ToolOptions
from steelyard.engine import conduct
from steelyard.engine.filters import expression
from steelyard.engine.run import WaitTold
from steelyard.engine.sinks import MeasuredCase
from steelyard.errors import SteelyardError, UsageError, told
from steelyard.machine.binding import CPUS
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow, Settings
from steelyard.model.record import Status

LEVEL, BENCHMARK = "compiler_level", "models/{}/inputs/INPUT_DATA_MODEL_DEFAULT"
BACKENDS = {"hlo": "xla", "iree": "iree", "tflite": "litert"}
KINDS = {"hlo": ("xla_hlo_dump", "stablehlo_mlir"), "iree": ("stablehlo_mlir", "linalg_mlir", "tosa_mlir"), "tflite": ("tflite_",)}
"""The kinds of programs that each tool can run; the first kind that a folder has is used."""
ANY = (1, "")
"""One thread on any CPU; not written to the results of `hlo`, whose original had no choice of threads."""
ITERATIONS = {"hlo": 10, "iree": 20, "tflite": 50}
BOUND = dict.fromkeys(BACKENDS, "their CPUs: \"{1: '0', 2: '0,1'}\"") | {"tflite": "taskset's mask in hex: \"{1: '1', 2: '3'}\""}


@dataclass(frozen=True)
class CompilerOptions(ToolOptions):
    """Options of a command line: artifacts are in `root`; `threads` are numbers of threads, each with its CPUs (empty for any)."""

    threads: tuple[tuple[int, str], ...] = (ANY,)


def parse_threads(text: str, tool: str = "iree") -> tuple[tuple[int, str], ...]:
    """Parse `{1: '0', 2: '0,1'}`: numbers of threads with ids of CPUs, or with a CPU mask for TFLite. The text is never executed."""
    try:
        found = ast.literal_eval(text) if len(text) < 10_000 else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    items = found.items() if isinstance(found, dict) else ()
    if not items or not all(type(key) is int and 0 < key < 10_000 and isinstance(value, str) for key, value in items):
        raise UsageError(f"not a thread configuration: {text[:80]!r}", do=f"write numbers of threads with {BOUND[tool]}")
    return tuple(items)


def binding(tool: str, cpus: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the flags that bind a case to CPUs, or why it cannot be bound; CPUs of a mask that this process may not use are ignored."""
    here = os.sched_getaffinity(0)
    try:
        asked = [cpu for cpu in here if int(cpus, 16) >> cpu & 1] if tool == "tflite" else [int(word) for word in cpus.split(",")]
    except ValueError:
        asked = []
    if cpus and not (asked and {*asked} <= here):
        return (), f"{cpus} names none of the CPUs {str(sorted(here))[1:-1]}: --thread_config of {tool} lists threads with {BOUND[tool]}"
    ids = ",".join(map(str, asked))
    return (() if not cpus else (("IREE_RUNTIME_FLAGS", f"--task_topology_cpu_ids={ids}"),) if tool == "iree" else ((CPUS, ids),)), ""


def kept_at(held: DefinitionSet, pattern: str) -> dict[str, str]:
    """Return the addresses of artifacts by model name, for benchmarks whose name matches a pattern."""
    models = [case.model for case in held.cases if expression(pattern).fullmatch(case.name)]
    return {model.name: model.artifacts_dir_url for model in models if model.artifacts_dir_url}


def programs_of(options: CompilerOptions, lost: dict[str, str]) -> list[tuple[str, Path]]:
    """Return the matching models, each with its program or else its folder; those whose manifest is unreadable are added to `lost`."""
    wanted, found = expression(options.names[0]), [(name, options.root / name) for name in lost]
    for place in sorted(path.parent for path in options.root.glob(f"*/{manifest.NAME}")):
        try:
            held = manifest.read(place)
            ranked = [item.file for kind in KINDS[options.tool] for item in held.programs if item.kind.startswith(kind)]
            name, program = held.name, place / ranked[0] if ranked else place
        except SteelyardError as error:
            name, program, why = place.name, place, told(error)
            lost |= {name: why} if wanted.fullmatch(BENCHMARK.format(name)) else {}
        found += [(name, program)] if wanted.fullmatch(BENCHMARK.format(name)) else []
    if not found:
        raise UsageError(f"no benchmark in {options.root} matches {options.names[0]}", do="make the programs with make-artifacts")
    return found


class CompilerSink(SuiteSink):
    """Writes an entry for every program and thread configuration."""

    def _entry(self, name: str, measured: MeasuredCase, variant: str) -> Entry:
        model, threads, cpus = json.loads(name)
        record, tool, benchmark = measured.record, self.options.tool, BENCHMARK.format(model)
        self.tell(f"{benchmark} {threads} threads", record)
        told = definition(benchmark, self.known.get(model), self.options) | {"compiler": "xla" if tool == "hlo" else tool}
        bound = {"taskset" if tool == "tflite" else "task_topology_cpu_ids": cpus}
        told |= {} if tool == "hlo" and (threads, cpus) == ANY else {"model_name": model, "num_threads": threads, **bound}
        figures = metrics(tool, measured, self.options.device) if measured.arrays else {}
        figures = figures if record.status == "ok" else {"error": f"{record.status}: {record.reason}", **figures}
        ours = {"status": record.status, "reason": record.reason, "id": record.id, "verification": record.verification}
        return {"definition": told, "metrics": {LEVEL: figures}, "steelyard": {**ours, "environment": record.environment}}


def metrics(tool: str, measured: MeasuredCase, device: str) -> Entry:
    """Return the metrics by the original's keys, with the statistic and the unit that each key names."""
    times = [value * MILLI for value in measured.seconds("block_time")]
    figures, held = measured.record.metrics, measured.record.effective.get("host_memory") or {}
    peak = figures["runtime_peak_memory"].value * MEGA if "runtime_peak_memory" in figures else None
    compiled = figures["compile_time"].value if "compile_time" in figures else None
    if tool == "hlo":
        gpu = {"compile_time_ms": None if compiled is None else compiled * MILLI, "device_memory_peak_mb": peak}
        more = gpu if "gpu" in device else {"compile_time_s": compiled}
        return summary(times, "latency_ms") | {"benchmark_iterations": len(times)} | more
    found: Entry = {f"system_memory_{name.lower()}_mb": held[name] * MEGA for name in ("VmHWM", "VmRSS", "RssFile") if name in held}
    found["command"] = f"steelyard run '{measured.record.id}'"
    if tool == "tflite":
        return {"mean_latency_ms": statistics.fmean(times), **found}
    checked = measured.record.verification
    right = checked.status == "passed" if checked and checked.status != "none" else None
    return {"median_latency_ms": statistics.median(times), "device_memory_peak_mb": peak, "accuracy": right, **found}


class CompilerRun(SuiteRun):
    """Runs every program with every thread configuration, each in its own process."""

    def run(self) -> int:
        options: Any = self.options
        held = gathered(options.definitions, place=options.place)
        for trouble in held.troubles:
            self.say(f"error: {trouble}")
        lost = remote.fetch_missing(kept_at(held, options.names[0]) if options.download else {}, options.root, self.say)
        rows, unable = list[ResultRow](), dict[str, tuple[Status, str]]()
        for model, program in programs_of(options, lost):
            for threads, cpus in options.threads:
                key, (flags, why) = json.dumps([model, threads, cpus]), binding(options.tool, cpus)
                case = Case("artifact", (("path", str(program)),), BACKENDS[options.tool], threads=threads, flags=flags)
                if model in lost:
                    unable[key] = "failed", lost[model]
                elif why or not program.is_file():
                    unable[key] = "unsupported", why or f"the folder has no program that {BACKENDS[options.tool]} runs"
                else:
                    rows.append(ResultRow(key, (case,)))
        sink = CompilerSink(options, rows, {case.model.name: case for case in held.cases}, self._tell)
        for key, (status, reason) in unable.items():
            sink.without(key, status, reason)
        if rows:
            settings = Settings(sampling="calls", runs=options.iterations, isolate="case", timeout=options.timeout)
            ready = conduct.from_experiment(Experiment(f"openxla {options.tool}", rows=tuple(rows), settings=settings), options.env)
            conduct.execute(ready, self.store, self.command, lambda writer: WaitTold(self.say), sink=sink)
        return self._judged(len(held.troubles))
