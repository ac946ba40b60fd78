"""One run of a tool: choose cases, have the engine measure each, and write each result as it arrives."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from steelyard import registry
from steelyard.dialects.openxla import catalogue
from steelyard.dialects.openxla.catalogue import DefinitionSet
from steelyard.dialects.openxla.definitions import DEVICES, BenchmarkCase, DeviceSpec
from steelyard.dialects.openxla.rows import SuiteSink
from steelyard.dialects.openxla.suite import EXPECTED
from steelyard.engine import conduct, envs, plan
from steelyard.engine.place import Place
from steelyard.engine.run import WaitTold
from steelyard.errors import PASS, UsageError, told, unknown
from steelyard.model import addresses
from steelyard.model.case import Case, sorted_pairs
from steelyard.model.experiment import Experiment, ResultRow, Settings
from steelyard.model.protocol import Fixed
from steelyard.model.record import Record, Status
from steelyard.store.runs import Store

BACKENDS = {"jax": "jax", "pytorch": "torch", "tensorflow": "tensorflow", "tflite": "jax"}
"""The framework that builds a tool's models; TFLite's are exported from JAX's."""
KINDS = {"cpu": "cpu", "gpu": "cuda"}
COMPILERS = {
    "jax": ("xla", "xla_cpu_next", "iree", "eager"), "pytorch": ("inductor", "eager"), "tensorflow": ("xla", "xla_cpu_next", "eager"),
}  # fmt: skip
"""The compilers that each tool offers, its default first; `eager`, which does not compile, is our addition."""
GONE = {
    "xla_cpu_next": "XLA no longer has a second CPU compiler: today's versions do not know the flag --xla_cpu_use_xla_runtime",
    "iree": "no PJRT plugin of IREE can be installed today; IREE runs exported programs",
}
AUTOTUNED = "compile[mode=max-autotune]"
TF32 = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"


@dataclass(frozen=True)
class ToolOptions:
    """Options of a command line; `names` are patterns: one for a tool, several for `benchmark-all`."""

    tool: str
    names: tuple[str, ...]
    device: str
    output: Path
    warmup: int = 5
    iterations: int = 100
    compiler: str = ""
    in_process: bool = False
    root: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / "openxla-benchmark")
    artifacts: bool = False
    download: bool = True
    verbose: bool = False
    definitions: tuple[Path, ...] = ()
    preset: str = ""
    env: str = ""
    timeout: float = 3600.0
    strict_exit: bool = False

    @property
    def spec(self) -> DeviceSpec:
        """The machine that --target-device names."""
        if self.device not in DEVICES:
            raise unknown("device", self.device, DEVICES)
        return DEVICES[self.device]

    def expected(self, name: str) -> str:
        """Return why a benchmark of the suite is not expected to be measured in full size; empty for all other benchmarks."""
        return "" if self.definitions or self.preset else EXPECTED.get(name, "")

    @property
    def settings(self) -> Settings:
        """How cases are measured: by default in a process each; calls are timed one by one, after at least one that compiles."""
        fixed = Fixed(max(1, self.warmup), self.iterations)
        return Settings(fixed=fixed, isolate="none" if self.in_process else "case", timeout=self.timeout)

    @property
    def place(self) -> Place:
        """The environment in which workers start."""
        return envs.place(self.env) if self.env else Place()


def _tolerance(benchmark: BenchmarkCase, key: str) -> float:
    value = benchmark.verify_parameters.get(key, 0.0)
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise UsageError(f"{benchmark.name}: {key} is {value!r:.80}", why="a tolerance in verify_parameters must be a number of at least 0")
    return float(value)


def case_of(benchmark: BenchmarkCase, options: ToolOptions) -> Case:
    """Return a benchmark as a case of ours, with its module, parameters, input and tolerances."""
    model = benchmark.model
    if not model.model_impl.module_path:
        raise UsageError(f"the implementation of {model.name} has no module_path", why="it names the module that has create_model")
    params = {
        "module": model.model_impl.module_path, "parameters": dict(model.model_parameters), "input": benchmark.input_data.source_url,
        "atol": _tolerance(benchmark, "absolute_tolerance"), "rtol": _tolerance(benchmark, "relative_tolerance"),
    }  # fmt: skip
    threads = len(os.sched_getaffinity(0))
    kind, variant = KINDS[options.spec.accelerator_type], variant_of(benchmark, options)
    fast = ((TF32, "1"),) if options.tool == "pytorch" and kind == "cuda" else ()
    return Case(f"openxla/{model.name}", sorted_pairs(params), BACKENDS[options.tool], variant, device=kind, threads=threads, flags=fast)


def variant_of(benchmark: BenchmarkCase, options: ToolOptions) -> str:
    """Return the variant that compiles the model; inductor autotunes only fp32, as in the original."""
    if options.compiler == "eager":
        return "eager"
    if options.tool == "pytorch":
        return AUTOTUNED if benchmark.model.model_parameters.get("data_type") == "fp32" else "compile"
    return "jit"


def refused(options: ToolOptions) -> str:
    """Return why nothing can be measured with these options; empty if it can."""
    if options.spec.host_type == "mobile":
        return f"{options.device} is a phone, and the frameworks' Python does not run there"
    return GONE.get(options.compiler, "")


@dataclass
class SuiteRun:
    """A run in progress; afterwards the caller reads its outcome."""

    options: ToolOptions
    say: Callable[[str], None]
    store: Store
    command: Sequence[str] = ()
    statuses: dict[str, Status] = field(default_factory=dict)

    def run(self) -> int:
        """Run everything and return the exit code: 0, as in the original, unless --strict-exit was given."""
        options = self.options
        held = catalogue.gathered(options.definitions, options.preset, options.place)
        for trouble in held.troubles:
            self.say(f"error: {trouble}")
        self._measure(catalogue.choose(held, options.tool, options.names))
        return self._judged(len(held.troubles))

    def _measure(self, chosen: DefinitionSet) -> None:
        options, why = self.options, refused(self.options)
        rows, unable = list[ResultRow](), {trouble.name: str(trouble) for trouble in chosen.troubles}
        for case in () if why else chosen.cases:
            try:
                rows.append(ResultRow(case.name, (case_of(case, options),)))
            except UsageError as error:
                unable[case.name] = told(error)
        sink = SuiteSink(options, rows, {case.name: case for case in chosen.cases}, self._tell)
        for name, trouble in unable.items():
            sink.without(name, "failed", trouble)
        for case in chosen.cases if why else ():
            sink.without(case.name, "unsupported", why)
        if not rows:
            return
        experiment = Experiment(f"openxla {options.tool}", rows=tuple(rows), settings=options.settings)
        ready = plan.expand(experiment, registry.catalogue(), place=replace(options.place, paths=chosen.paths))
        words = addresses.variables(options.root.resolve(), keep=options.artifacts, download=options.download)
        jobs = tuple(replace(job, place=replace(job.place, flags=(*job.place.flags, *words))) for job in ready.jobs)
        ready = replace(ready, jobs=jobs, env=options.env)
        conduct.execute(ready, self.store, self.command, lambda writer: WaitTold(self.say), sink=sink)

    def _tell(self, benchmark: str, record: Record) -> None:
        self.statuses[benchmark] = record.status
        place = f"[{len(self.statuses)}] {benchmark}"
        time, why = record.metrics.get("time"), self.options.expected(benchmark)
        end = "" if record.status == "ok" else f"{record.status}: {record.reason[:500]}{f' (expected: {why})' if why else ''}"
        self.say("  ".join(filter(None, [place, f"{time.value * 1e3:.4g} ms" if time else "", end])))

    def _judged(self, troubles: int) -> int:
        if not self.options.strict_exit:
            return PASS
        found = {status for name, status in self.statuses.items() if status == "ok" or not self.options.expected(name)}
        return conduct.code_of(found, failed=troubles > 0)
