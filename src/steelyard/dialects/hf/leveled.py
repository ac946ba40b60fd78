"""One run of `as hf v2`: a case for each config, rows written to the later version's file as cases end, statistics, traces, exit code."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steelyard.dialects.commands import make_folder
from steelyard.dialects.devices import has_device
from steelyard.dialects.hf import cases, files, levels
from steelyard.dialects.hf.levels import LevelConfig
from steelyard.engine import conduct, envs
from steelyard.engine.run import WaitTold
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.errors import PASS, UsageError
from steelyard.machine import facts, nvidia
from steelyard.measuring.requests import of_each
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow, Settings
from steelyard.model.protocol import Fixed
from steelyard.model.record import MONITOR, Record
from steelyard.model.units import plain as quantity
from steelyard.store.runs import RunWriter, Store
from steelyard.terminal import save

SHOWN = {"e2e_latency": "E2E latency", "time_to_first_token": "Time to first token", "inter_token_latency": "Inter-token latency"}
FLASH = "flash_attn"
FEWEST_FOR_P95 = 20


@dataclass(frozen=True)
class LevelOptions:
    """The options of a run."""

    model: str
    configs: Sequence[LevelConfig]
    output_dir: Path = Path("benchmark_results")
    branch: str = ""
    commit: str = ""
    message: str = ""
    profiled: int = 0
    dataset: str = ""
    env: str = ""
    threads: int = 1
    preset: str | None = None
    settings: Settings = field(default_factory=Settings)
    resume: bool = False
    strict_exit: bool = False


@dataclass(frozen=True)
class PlannedConfig:
    """A config as it is run, the config requested, what was changed, and its case or the reason why it has none."""

    config: LevelConfig
    asked: LevelConfig
    notes: tuple[str, ...] = ()
    case: Case | None = None
    trouble: str = ""


def planned(options: LevelOptions) -> dict[str, PlannedConfig]:
    """The configs as they are run, by hash, each once."""
    flash = has_flash(options.env)
    found: dict[str, PlannedConfig] = {}
    for asked in options.configs:
        config, notes = levels.valid(asked, flash=flash)
        trouble = levels.NO_TENSOR_PARALLEL if config.tp_plan else ""
        if options.model == cases.MOCK and config.continuous_batching:
            trouble = "the mock has no continuous batching"
        case = None if trouble else config.case(options.model, threads=options.threads, preset=options.preset)
        found.setdefault(config.hash, PlannedConfig(config, asked, tuple(notes), case, trouble))
    return found


def has_flash(env: str) -> bool:
    """Whether FlashAttention 2 can be used where the cases run."""
    if not has_device("cuda"):
        return False
    return bool(envs.find(env).version(FLASH.replace("_", "-"))) if env else find_spec(FLASH) is not None


class LevelSink(RowSink):
    """Writes the later version's file again after each config, and rows in a dataset's form if one is named."""

    def __init__(self, configs: Mapping[str, PlannedConfig], made: LevelRun, path: Path) -> None:
        rows = [ResultRow(hash, (each.case,)) for hash, each in configs.items() if each.case]
        super().__init__(rows, path.parent.parent / "full_results" / f"{path.stem.partition('_benchmark_')[2]}.jsonl")
        self.configs, self.made, self.results = configs, made, path
        self.file: dict[str, Any] = {}
        self.statuses: list[str] = []
        make_folder(path.parent)
        for hash, each in configs.items():
            if each.trouble:
                self.keep(hash, Record("", {}, "unsupported", each.trouble), {})

    def opened(self, run: Path) -> None:
        if self.made.options.dataset:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            super().opened(run)

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Any]) -> Mapping[str, Any]:
        [found] = cases
        kept = self.keep(key, found.record, {name: found.seconds(name) for name in found.arrays if name.startswith("request_")})
        return {"benchmark_config_hash": key, **{name: kept[name] for name in ("config", "measurements", "metadata")}}

    def keep(self, key: str, record: Record, series: Mapping[str, list[float]]) -> dict[str, Any]:
        """Add a config to the file and return its row."""
        self.file[key] = row(self.configs[key], record, series, self.made.metadata)
        self.statuses.append(record.status)
        save(self.results, json.dumps(files.plain(self.file), indent=4) + "\n")
        self.made.show(self.configs[key].config, self.file[key])
        return dict(self.file[key])


def row(each: PlannedConfig, record: Record, series: Mapping[str, list[float]], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A config's part of the file: the original's keys, with our own facts in `metadata`."""
    config, measured = each.config, record.status in ("ok", "wrong")
    found = of_each(series, config.num_tokens_to_generate) if measured else {}
    hardware = {**metadata["hardware_info"], "torch_version": record.environment.get("torch")}
    ours: dict[str, Any] = {"success": record.status == "ok", "status": record.status, "reason": record.reason, "case": record.id}
    ours |= {"effective": dict(record.effective)}
    if each.asked != config:
        ours |= {"requested": each.asked.plain(), "changed": list(each.notes)}
    watched = record.effective.get(MONITOR, {}) if config.gpu_monitoring else {}
    seen = {name: value for name, value in watched.items() if name.startswith("gpu")}
    shape = f"({config.batch_size}, {config.num_tokens_to_generate})"
    return {
        "metadata": {**metadata, "timestamp": datetime.now(UTC).isoformat(), "hardware_info": hardware, **ours},
        "measurements": {
            "e2e_latency": found.get("time", []), "time_to_first_token": found.get("ttft", []),
            "inter_token_latency": found.get("tpot", []),
            "shape_and_decoded_outputs": [shape] * len(found.get("time", [])), "gpu_metrics": [seen] if seen else None,
            "timestamps": None,
        },
        "config": config.plain(),
    }  # fmt: skip


@dataclass
class LevelRun:
    """A run in progress."""

    options: LevelOptions
    say: Callable[[str], None]
    tell: Callable[[str], None]
    store: Store
    command: Sequence[str] = ()
    sink: LevelSink | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def run(self) -> int:
        """Measure all configs, then record traces if requested; return the exit code."""
        options, configs = self.options, planned(self.options)
        left_out = len(options.configs) - len(configs)
        self.tell(f"{len(configs)} configs of {options.model}" + (f", {left_out} duplicates left out" if left_out else ""))
        git, gpu = facts.git(Path.cwd()) or {}, next(iter(nvidia.gpus()), {})
        self.metadata = {
            "model_id": options.model, "timestamp": "", "branch_name": options.branch or git.get("branch") or "",
            "commit_id": options.commit or git.get("commit") or "", "commit_message": options.message,
            "hardware_info": {
                "gpu_name": gpu.get("name"), "gpu_memory_total_gb": round((gpu.get("memory") or 0) / 2**30, 2) or None,
                "python_version": platform.python_version(), "torch_version": None,
            },
        }  # fmt: skip
        name = options.model.rstrip("/").rpartition("/")[2]
        path = files.free(options.output_dir / name / f"{name}_benchmark_{datetime.now().strftime(files.STAMP)}.json")
        sink = self.sink = LevelSink(configs, self, path)
        first = options.configs[0]
        fixed = Fixed(first.warmup_iterations, first.measurement_iterations)
        with closing(sink):
            rows, settings = tuple(sink.rows.values()), replace(options.settings, fixed=fixed)
            self._execute(Experiment(f"hf v2 {name}", rows=rows, settings=settings), sink) if rows else None
        if options.profiled:
            self._profile([each for hash, each in configs.items() if sink.file.get(hash, {}).get("metadata", {}).get("success")])
        return self._code()

    def _execute(self, experiment: Experiment, sink: LevelSink | None = None) -> conduct.RunOutcome:
        ready, resume = conduct.from_experiment(experiment, self.options.env), "" if self.options.resume and sink else None
        return conduct.execute(ready, self.store, self.command, self._watched, resume=resume, sink=sink)

    def _watched(self, writer: RunWriter) -> WaitTold:
        for text in writer.warnings:
            self.tell(f"warning: {text}")
        return WaitTold(self.tell)

    def show(self, config: LevelConfig, row: Mapping[str, Any]) -> None:
        """Print a config's statistics, or its status."""
        self.say(config.name(compact=False))
        for note in row["metadata"].get("changed", ()):
            self.say(f"  note: {note}")
        if row["metadata"]["status"] != "ok":
            self.say(f"  {row['metadata']['status']}: {row['metadata']['reason']}")
        measured = row["measurements"]
        for key, name in SHOWN.items():
            if measured[key]:
                self.say(f"  {name:<20} {spread_of(measured[key], lambda value: quantity(value, 's'))}")
        if measured["e2e_latency"]:
            tokens = config.batch_size * config.num_tokens_to_generate
            rates = [tokens / value for value in measured["e2e_latency"] if value > 0]
            self.say(f"  {'Throughput':<20} {spread_of(rates, lambda value: f'{value:.4g} tok/s')}")

    def _profile(self, configs: Sequence[PlannedConfig]) -> None:
        """Make a trace of a short request for each config, after the timing and in a separate run."""
        folder = self.options.output_dir.with_name(f"{self.options.output_dir.name}_profiles")
        short = {each.config.name(): replace(each.config, num_tokens_to_generate=self.options.profiled) for each in configs}
        given = self.options
        asked = {name: config.case(given.model, threads=given.threads, preset=given.preset) for name, config in short.items()}
        if not asked:
            return
        settings = replace(self.options.settings, runs=1, warmup=0.0, verify=False, telemetry=False, profile=True)
        done = self._execute(Experiment(f"hf v2 traces {self.options.model}", include=tuple(asked.values()), settings=settings))
        traces = {record.id: kept for record in done.run.records for kept in record.attachments if kept.kind == "trace"}
        for job, name in zip(done.ready.jobs, asked, strict=False):
            if job.case.id in traces:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{name}.json.gz").write_bytes(done.run.attachment(traces[job.case.id]).read_bytes())
                self.tell(f"trace: {folder / name}.json.gz")

    def _code(self) -> int:
        """The exit code: the original's (0 unless nothing was measured), or ours."""
        statuses = set(self.sink.statuses) if self.sink else set()
        if not self.options.strict_exit:
            return PASS if statuses & {"ok", "wrong"} else 1
        return conduct.code_of(statuses)


def spread_of(values: Sequence[float], words: Callable[[float], str]) -> str:
    """Text with mean, deviation, minimum, median, maximum, and the 95th percentile if there are enough values."""
    told = {
        "avg": statistics.fmean(values), "std": statistics.pstdev(values), "min": min(values), "med": statistics.median(values),
        "max": max(values),
    }  # fmt: skip
    enough = len(values) >= FEWEST_FOR_P95
    last = words(statistics.quantiles(values, n=20, method="inclusive")[-1]) if enough else f"- ({len(values)} values)"
    return "  ".join([*(f"{name} {words(value)}" for name, value in told.items()), f"p95 {last}"])


def check_sizes(sizes: Mapping[str, Sequence[int]]) -> None:
    """Raise unless all three lists are given and all numbers of tokens are at least 2."""
    for name, values in sizes.items():
        if not values:
            raise UsageError(
                f"--{name} is missing", why="batch size, sequence length and tokens are all needed", do="add it: -b 1 -s 128 -n 64"
            )
    if any(value < 2 for value in sizes["num-tokens-to-generate"]):
        raise UsageError("--num-tokens-to-generate is less than 2", why="one token has no time between tokens")
