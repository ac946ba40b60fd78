"""Our replacement for benchmark_v2's framework, which bench files import as `framework`: its scenarios are measured as our cases.

from steelyard.hf import BenchmarkRunner, ModelBenchmark, ScenarioConfig
"""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import importlib.metadata
import importlib.util
import logging
import math
import os
import platform
import statistics
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from steelyard.dialects.hf import cases, files
from steelyard.dialects.hf.scenarios import ScenarioConfig, TimingResult
from steelyard.dialects.hf.scenarios import create_config_variants as create_config_variants
from steelyard.engine import driving
from steelyard.engine.modules import imports_of
from steelyard.errors import NotApplied, SteelyardError, status_of, told
from steelyard.machine import facts, nvidia, telemetry
from steelyard.measuring.requests import of_each
from steelyard.model.case import Case
from steelyard.model.protocol import Fixed
from steelyard.model.task import Reading, Task
from steelyard.model.units import plain as quantity

MB = 2**20
MOST_FAILURES = 5
"""Failed readings in a row after which a monitor logs a warning."""
Scenarios = dict[str, dict[str, Any]]
PERCENTILES = (25, 75, 90, 95, 99)
SUPPORT = {"p90": 10, "p95": 20, "p99": 100}
"""The least number of values for which a percentile differs from the largest value."""


@dataclass
class BenchmarkStatistics:
    """The values of several iterations, with common statistics."""

    name: str
    measurements: list[float]
    mean: float
    median: float
    std: float
    min: float
    max: float
    p25: float
    p75: float
    p90: float
    p95: float
    p99: float
    unit: str = "seconds"

    @classmethod
    def from_measurements(cls, name: str, measurements: Sequence[float], unit: str = "seconds") -> BenchmarkStatistics:
        """The statistics of some values, with the population's standard deviation and interpolated percentiles."""
        if not measurements:
            raise ValueError("Cannot create statistics from empty measurements")
        values = [float(value) for value in measurements]
        shares, mean = {f"p{share}": percentile(values, share) for share in PERCENTILES}, statistics.fmean(values)
        spread = math.sqrt(statistics.fmean((value - mean) ** 2 for value in values))
        return cls(name, values, mean, statistics.median(values), spread, min(values), max(values), **shares, unit=unit)

    def plain(self) -> dict[str, Any]:
        """The statistics as the result file has them; percentiles with too few values are marked."""
        weak = [name for name, least in SUPPORT.items() if len(self.measurements) < least]
        return asdict(self) | ({"too_few_values_for": weak} if weak else {})


def percentile(values: Sequence[float], share: float) -> float:
    """A percentile of some values, interpolated linearly between the two nearest."""
    ordered, place = sorted(values), (len(values) - 1) * share / 100
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


@dataclass
class HardwareInfo:
    """The hardware and versions that a scenario ran on; memory in MB."""

    gpu_name: str
    gpu_memory_total: int
    cpu_count: int
    memory_total: int
    python_version: str
    torch_version: str | None = None
    cuda_version: str | None = None


def torch_here() -> Any:
    """PyTorch, if it is imported already; it is never imported here."""
    return sys.modules.get("torch")


def flush_memory() -> None:
    """Collect garbage, and release a GPU's unused memory."""
    gc.collect()
    torch = torch_here()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()


def get_sdpa_backend(backend_name: str | None) -> Any:
    """PyTorch's own constant for an attention kernel; None without PyTorch, or for an unknown name."""
    with suppress(ImportError, AttributeError):
        known = importlib.import_module("torch.nn.attention").SDPBackend
        return getattr(known, backend_name.upper(), None) if backend_name and backend_name.lower() in cases.KERNELS else None
    return None


def get_available_sdpa_backends() -> list[str]:
    """The attention kernels that can run here; without a GPU, PyTorch has only two."""
    names = list(cases.KERNELS) if cases.device_here("cuda") == "cuda" else ["math", "flash_attention"]
    return [name for name in names if get_sdpa_backend(name) is not None]


class SDPAContext:
    """Context in which attention uses one kernel; if that kernel is unknown, a warning is logged and nothing is changed."""

    def __init__(self, backend_name: str | None, logger: logging.Logger | None = None) -> None:
        self.backend_name, self.logger = backend_name, logger or logging.getLogger(__name__)
        self.backend, self._stack = get_sdpa_backend(backend_name), ExitStack()
        if backend_name and self.backend is None:
            self.logger.warning("SDPA backend %s is not known here, so the default is used", backend_name)

    def __enter__(self) -> SDPAContext:
        if self.backend is not None:
            self._stack.enter_context(importlib.import_module("torch.nn.attention").sdpa_kernel(self.backend))
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


class GPUMonitor:
    """Reads the first GPU's utilisation (percent) and memory (MB) every `sample_interval` seconds between `start` and `stop`."""

    def __init__(self, sample_interval: float = 0.1, logger: logging.Logger | None = None) -> None:
        self.sample_interval, self.logger = sample_interval, logger or logging.getLogger(__name__)
        self.meter = telemetry.Meter.open(None)
        self.gpu_available = self.meter is not None
        self._stack, self._log = ExitStack(), telemetry.Log()

    def start(self) -> None:
        """Start reading; a second call without `stop` has no effect."""
        if self.meter is not None and not self._log.rows:
            self._log = self._stack.enter_context(telemetry.watch(self.meter, self.sample_interval))

    def stop(self) -> dict[str, Any]:
        """Stop reading, and return mean, maximum and minimum of the readings, or the reason why there are none."""
        self._stack.close()
        rows, self._log = self._log.rows, telemetry.Log()
        if not self.gpu_available:
            return {"gpu_monitoring_status": "disabled", "gpu_monitoring_reason": "no_gpus_available"}
        known = [row for row in rows if row.utilisation == row.utilisation and row.memory_used == row.memory_used]
        if _longest_gap(rows) >= MOST_FAILURES:
            self.logger.warning("GPU monitoring: %d readings in a row failed", _longest_gap(rows))
        if not known:
            return {"gpu_monitoring_status": "failed", "gpu_monitoring_reason": "no_samples_collected"}
        found: dict[str, Any] = {}
        read = {"gpu_utilization": [100 * row.utilisation for row in known], "gpu_memory_used": [row.memory_used / MB for row in known]}
        for name, values in read.items():
            found |= {f"{name}_mean": statistics.fmean(values), f"{name}_max": max(values), f"{name}_min": min(values)}
        return {**found, "sample_count": len(known), "gpu_monitoring_status": "success"}


def _longest_gap(rows: Sequence[telemetry.MeterReading]) -> int:
    longest = now = 0
    for row in rows:
        now = now + 1 if row.utilisation != row.utilisation else 0
        longest = max(longest, now)
    return longest


@functools.cache
def get_hardware_info() -> HardwareInfo:
    """The hardware and versions of this machine, without importing PyTorch."""
    gpu = next(iter(nvidia.gpus()), {})
    torch, version = torch_here(), None
    cuda = torch.version.cuda if torch is not None else None
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("torch")
    return HardwareInfo(
        str(gpu.get("name") or "unknown"), int((gpu.get("memory") or 0) / MB), os.cpu_count() or 0,
        int((facts.memory().get("total") or 0) / MB), platform.python_version(), version, cuda,
    )  # fmt: skip


@functools.cache
def _git(folder: Path) -> Mapping[str, Any]:
    return facts.git(folder) or {}


def get_git_commit_id() -> str:
    """The commit of the working folder."""
    return _git(Path.cwd()).get("commit") or "unknown"


class ModelBenchmark(ABC):
    """The base class of a bench: sets a model up, times it, and releases it."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.model: Any = None
        self.tokenizer: Any = None
        self.device: Any = None

    @abstractmethod
    def setup_model(self, config: ScenarioConfig) -> None:
        """Set the model up for a scenario."""

    @abstractmethod
    def cleanup_model(self) -> None:
        """Release what `setup_model` allocated."""

    @abstractmethod
    def measure_time_to_first_token(self, config: ScenarioConfig) -> float:
        """Measure the seconds to the first token."""

    @abstractmethod
    def measure_latency(self, config: ScenarioConfig) -> TimingResult:
        """Time one whole generation."""

    def prepare_inputs(self, config: ScenarioConfig) -> Any:
        """A hook for benches; not called here."""
        return None


@dataclass
class RequestBenchmark:
    """Our own bench: a scenario is a case of `generate/…`, and one request gives all its times."""

    logger: logging.Logger
    preset: str | None = None

    def case(self, config: ScenarioConfig) -> Case:
        """The case of a scenario."""
        return cases.of_scenario(config, threads=_threads(), preset=self.preset)


def _settings(config: ScenarioConfig, **words: Any) -> Any:
    fixed = Fixed(config.warmup_iterations, config.measurement_iterations)
    return replace(driving.runner().settings, fixed=fixed, **words)


@dataclass
class ScenarioTask:
    """A user's bench in one scenario: each iteration is timed by the bench itself, after memory was flushed."""

    benchmark: ModelBenchmark
    config: ScenarioConfig
    monitor: GPUMonitor | None
    calls: int = 0
    failures: int = 0
    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def build(self) -> Task:
        """Set the model up; if that fails, release what was allocated."""
        self.asked = asdict(self.config)
        try:
            self.benchmark.setup_model(self.config)
        except BaseException:
            self.clean()
            raise
        untold = "a bench returns only times, no outputs to check"
        return Task(measure=self.iteration, cleanup=self.clean, inspect=self.inspect, repeatable=False, unverified=untold)

    def iteration(self) -> Reading:
        """Run one iteration; a failing warm-up is only logged."""
        warm, self.calls = self.calls < self.config.warmup_iterations, self.calls + 1
        if not warm and not self.latencies and self.monitor:
            self.monitor.start()
        try:
            flush_memory()
            first = self.benchmark.measure_time_to_first_token(self.config)
            timing = self.benchmark.measure_latency(self.config)
            first = timing.time_to_first_token if first is None else first
            latency = _sound(timing.latency, "measure_latency reported a latency")
            first = first if first is None else _sound(first, "the bench reported a time to first token")
            rate = timing.tokens_per_second
            rate = rate if rate is None else _sound(rate, "the bench reported tokens per second")
        except Exception as error:
            if not warm:
                raise
            self.failures += 1
            self.benchmark.logger.warning("warm-up %d of %s failed: %s", self.calls, self.config.name, told(error, 300))
            return Reading(0.0)
        if warm:
            return Reading(latency)
        self.latencies.append(latency)
        self.firsts += [] if first is None else [first]
        self.rates += [] if rate is None else [rate]
        return Reading(latency, parts={} if first is None else {"ttft": first * 1e9})

    def inspect(self) -> dict[str, Any]:
        """The values that the bench reported, and what it changed in the config."""
        metrics = self.monitor.stop() if self.monitor else {}
        now = asdict(self.config)
        if now["variant"] != self.asked["variant"]:
            raise NotApplied(f"the bench fell back from {self.asked['variant']} to {now['variant']}")
        changed = {name: value for name, value in now.items() if value != self.asked[name]}
        return {
            "latency": self.latencies, "time_to_first_token": self.firsts, "tokens_per_second": self.rates, "gpu_metrics": metrics,
            **({"config_changed": files.plain(changed)} if changed else {}),
            **({"warmup_failures": self.failures} if self.failures else {}),
        }  # fmt: skip

    def clean(self) -> None:
        """Release the model; an error there does not lose the measurements."""
        if self.monitor:
            self.monitor.stop()
        try:
            self.benchmark.cleanup_model()
        except Exception as error:
            self.benchmark.logger.warning("cleanup_model of %s failed: %s", self.config.name, told(error, 300))


def _sound(value: Any, what: str) -> float:
    found = float(value)
    if not 0 <= found < math.inf:
        raise ValueError(f"{what} of {found}")
    return found


Benchmark = ModelBenchmark | RequestBenchmark


@functools.cache
def _asked() -> Counter[str]:
    """How often this process measured each case: a bench may repeat a case with other code, which must be measured again."""
    return Counter()


class BenchmarkRunner:
    """Replaces the original's runner: measures scenarios one after another, and writes their result file."""

    def __init__(self, logger: logging.Logger, output_dir: str = "benchmark_results") -> None:
        self.logger, self.output_dir = logger, str(output_dir)
        Path(self.output_dir).mkdir(parents=True, exist_ok=True)

    def run_benchmark(
        self, benchmark: Benchmark, configs: Sequence[ScenarioConfig], collect_gpu_metrics: bool = True
    ) -> Scenarios:  # fmt: skip
        """Measure every config, and return the results by name; a failed one has status and reason instead of measurements."""
        found: Scenarios = {}
        for config in configs:
            self.logger.info("Running benchmark for config: %s", config.name)
            result = self._scenario(benchmark, config, GPUMonitor(logger=self.logger) if collect_gpu_metrics else None)
            if result["status"] == "ok":
                self.logger.info("%s: %s", config.name, _told(result["measurements"]))
            else:
                self.logger.error("%s: %s: %s", config.name, result["status"], result["reason"])
            found[config.name] = result
        return found

    def _scenario(self, benchmark: Benchmark, config: ScenarioConfig, monitor: GPUMonitor | None) -> dict[str, Any]:
        known, asked = _git(Path.cwd()), copy.deepcopy(config)
        metadata = {
            "timestamp": datetime.now(UTC).isoformat(), "commit_id": get_git_commit_id(), "repository": _repository(Path.cwd()),
            "branch": known.get("branch") or "unknown", "hardware_info": asdict(get_hardware_info()), "config": files.plain(asdict(asked)),
        }  # fmt: skip
        try:
            case, result = self._measured(benchmark, asked, monitor)
        except SteelyardError as error:
            case, result = "", driving.DrivenResult(status_of(error), told(error, 500))  # type: ignore[arg-type]
        known, effective = result.effective, {k: v for k, v in result.effective.items() if k not in ("gpu_metrics", *files.UNITS)}
        values = {name: list(known[name]) for name in files.UNITS if known.get(name)}
        if not values and result.series:
            found = of_each(result.series, config.num_tokens_to_generate)
            tokens = config.batch_size * config.num_tokens_to_generate
            rates = [tokens / each for each in found["time"] if each > 0]
            values = dict(zip(files.UNITS, (*found.values(), rates), strict=True))
        measured = result.status in ("ok", "wrong")
        statistics_of = {
            name: BenchmarkStatistics.from_measurements(name, list(values[name]), unit)
            for name, unit in files.UNITS.items() if measured and values.get(name)
        }  # fmt: skip
        mock = {"mock_benchmark": True} if known.get("mock_benchmark") else {}
        return {
            "scenario_name": config.name, "status": result.status, "reason": result.reason, "case": case,
            "metadata": {**metadata, "effective": effective, **mock}, "measurements": statistics_of,
            "gpu_metrics": known.get("gpu_metrics") or {},
        }  # fmt: skip

    def _measured(self, benchmark: Benchmark, config: ScenarioConfig, monitor: GPUMonitor | None) -> tuple[str, driving.DrivenResult]:
        runner = driving.runner()
        if isinstance(benchmark, RequestBenchmark):
            case = runner.settled(benchmark.case(config))
            _asked()[case.id] += 1
            if monitor and case.device != "cpu":
                monitor.start()
            found = runner.measure(case, settings=_settings(config))
            watched = monitor.stop() if monitor else {}
            return case.id, replace(found, effective={"gpu_metrics": watched, **found.effective})
        kind = type(benchmark)
        backend = "torch" if _uses_torch(kind) else "numpy"
        params = tuple(files.plain(config.told()).items())
        place = f"hf/{_stem_of(kind)}/{kind.__name__}"
        device = cases.device_here(config.device) if backend == "torch" else "cpu"
        case = _again(Case(place, params, backend, device=device, threads=_threads()))
        doing = ScenarioTask(benchmark, config, monitor)

        def build(be: Any, **params: Any) -> Task:
            return doing.build()

        return case.id, runner.measure(case, build, _settings(config, verify=False))

    def save_results(self, model_name: str, results: Mapping[str, Mapping[str, Any]]) -> str:
        """Write the file of a model's results, and return its path."""
        return str(files.save_results(Path(self.output_dir), model_name, results))


def _uses_torch(kind: type) -> bool:
    """Whether a bench uses PyTorch: it is imported already, or the bench's file imports it anywhere, such as in `setup_model`."""
    if torch_here() is not None:
        return True
    own = {getattr(sys.modules.get(each.__module__), "__file__", None) for each in kind.__mro__} - {None, __file__}
    return importlib.util.find_spec("torch") is not None and any(imports_of(file) & {"torch", "transformers"} for file in own)


def _again(case: Case) -> Case:
    """The case; for a repetition, the case with a different id."""
    _asked()[case.id] += 1
    count = _asked()[case.id]
    return replace(case, params=(*case.params, ("again", count))) if count > 1 else case


def _told(measurements: Mapping[str, Any]) -> str:
    """The medians in a few words."""
    known = {name: (found.median, found.unit) for name, found in measurements.items()}
    words = [f"{name} {quantity(value, 's') if unit == 'seconds' else f'{value:.4g} {unit}'}" for name, (value, unit) in known.items()]
    return ", ".join(words) or "nothing was measured"


def _repository(folder: Path) -> str:
    """The name of the checkout that a folder is in."""
    return next((place.name for place in (folder, *folder.parents) if (place / ".git").exists()), "unknown")


def _stem_of(kind: type) -> str:
    """The name of the bench file of a class, with only characters that a case's name may have."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    name = Path(file).stem if file else kind.__module__
    return "".join(char if char.isalnum() or char in "_.-" else "_" for char in name) or "bench"


def _threads() -> int:
    """How many threads this process was started with (OMP_NUM_THREADS)."""
    given = os.environ.get("OMP_NUM_THREADS", "1")
    return max(1, int(given)) if given.isdecimal() else 1


NAMES = (
    "BenchmarkRunner", "BenchmarkStatistics", "GPUMonitor", "HardwareInfo", "ModelBenchmark", "RequestBenchmark", "SDPAContext",
    "TimingResult", "create_config_variants", "flush_memory", "get_available_sdpa_backends", "get_git_commit_id", "get_hardware_info",
    "get_sdpa_backend",
)  # fmt: skip


def put_in_place() -> None:
    """Make `import framework` (and its later name) load this module in this process."""
    for name in ("framework", "benchmark_framework"):
        module = ModuleType(name, __doc__)
        vars(module).update({each: globals()[each] for each in NAMES} | {"BenchmarkConfig": ScenarioConfig})
        sys.modules[name] = module


def run_file(file: str, words: Sequence[str]) -> None:
    """Run a bench file as the original's runner does; the conductor gets its log and its outcome."""
    from steelyard.dialects.hf import benching

    benching.run(Path(file), words, driving.runner(), _asked())
