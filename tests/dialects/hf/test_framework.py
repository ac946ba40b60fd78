"""The names that bench files import as `framework`: the README's snippets as they stand, and every class by itself."""

from __future__ import annotations

import inspect
import logging
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard import hf
from steelyard.dialects.hf.scenarios import ScenarioConfig
from steelyard.machine import telemetry
from steelyard.machine.telemetry import MeterReading

VARIANTS = """
from framework import BenchmarkConfig, create_config_variants

base_config = BenchmarkConfig(
    name="my_benchmark",
    model_id="my-model",
    warmup_iterations=3,
    measurement_iterations=5
)

configs = create_config_variants(base_config, {
    "variant": ["eager", "compiled", "kernelized"],
    "compile_mode": [None, "default", "max-autotune"],
    "batch_size": [1, 2, 4]
})
"""
CUSTOM = """
from framework import TimingResult, flush_memory
import time

def custom_measurement():
    flush_memory()  # Clear GPU cache

    start_time = time.perf_counter()
    # ... your code ...
    end_time = time.perf_counter()

    return TimingResult(
        latency=end_time - start_time,
        tokens_per_second=tokens_generated / (end_time - start_time)
    )
"""
MONITOR = """
from framework import GPUMonitor

monitor = GPUMonitor(sample_interval=0.05)  # 50ms sampling
monitor.start()
# ... run benchmark ...
metrics = monitor.stop()
"""
YOURS = """
from framework import ModelBenchmark, BenchmarkConfig, TimingResult
import logging

class YourModelBenchmark(ModelBenchmark):
    def __init__(self, logger: logging.Logger):
        super().__init__(logger)
        # Initialize your benchmark

    def setup_model(self, config: BenchmarkConfig) -> None:
        # Setup model based on configuration
        # Handle eager/compiled/kernelized variants
        pass

    def cleanup_model(self) -> None:
        # Cleanup resources
        pass

    def measure_time_to_first_token(self, config: BenchmarkConfig) -> float:
        # Measure time to first token
        return 0.0

    def measure_latency(self, config: BenchmarkConfig) -> TimingResult:
        # Measure full generation latency
        return TimingResult(latency=0.0, tokens_per_second=0.0)

def run_your_model_benchmark(logger, output_dir="benchmark_results", **kwargs):
    \"\"\"Entry point function for your benchmark.\"\"\"
    from framework import BenchmarkRunner, create_config_variants

    benchmark = YourModelBenchmark(logger)
    runner = BenchmarkRunner(logger, output_dir)

    # Create configurations
    configs = create_config_variants(base_config, variants)

    # Run and save results
    results = runner.run_benchmark(benchmark, configs)
    return runner.save_results("your_model", results)
"""
MODES = {
    'config.variant = "eager"': ("eager", None),
    'config.variant = "compiled"\nconfig.compile_mode = "max-autotune"  # or "default", "reduce-overhead"': ("compiled", "max-autotune"),
    'config.variant = "kernelized"\nconfig.compile_mode = "max-autotune"': ("kernelized", "max-autotune"),
}
LOG = logging.getLogger("bench")


@pytest.fixture(autouse=True)
def _served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("framework", "benchmark_framework"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    hf.put_in_place()
    monkeypatch.chdir(tmp_path)


def snippet(text: str, **known: Any) -> dict[str, Any]:
    """Run as a file of that text would."""
    names: dict[str, Any] = {"__name__": "snippet", **known}
    exec(compile(text, "snippet.py", "exec"), names)
    return names


def test_the_snippets_of_the_readme_run_as_they_stand() -> None:
    configs = snippet(VARIANTS)["configs"]
    assert len(configs) == 27 and configs[1].name == "my_benchmark_variant=eager_compile_mode=None_batch_size=2"
    [config] = configs[:1]
    for words, meant in MODES.items():
        snippet(words, config=config)
        assert (config.variant, config.compile_mode) == meant
    timing = snippet(CUSTOM, tokens_generated=7)["custom_measurement"]()
    assert timing.latency > 0 and timing.tokens_per_second == pytest.approx(7 / timing.latency)
    assert snippet(MONITOR)["metrics"]["gpu_monitoring_status"] in ("disabled", "success")


def test_the_bench_of_the_readme_runs_as_it_stands_once_its_configs_are_given() -> None:
    base = ScenarioConfig("base", "my-model", warmup_iterations=1, measurement_iterations=2)
    names = snippet(YOURS, base_config=base, variants={"variant": ["eager", "compiled"]})
    path = Path(names["run_your_model_benchmark"](LOG, "out", enable_mock=False))
    assert path.parent == Path("out/your_model") and path.name.startswith("your_model_benchmark_")
    assert path.read_text().count('"status": "ok"') == 2


def test_a_config_has_the_originals_fields_and_defaults() -> None:
    assert asdict(ScenarioConfig("a", "b")) == {
        "name": "a", "model_id": "b", "variant": "eager", "warmup_iterations": 3, "measurement_iterations": 10,
        "num_tokens_to_generate": 100, "device": "cuda", "torch_dtype": "float16", "compile_mode": None, "compile_options": {},
        "use_cache": True, "batch_size": 1, "sequence_length": None, "attn_implementation": "sdpa", "sdpa_backend": None,
        "custom_params": {}, "generation_config": {"do_sample": False, "top_p": 1.0, "temperature": 1.0},
    }  # fmt: skip
    assert ScenarioConfig("a", "b", generation_config={"do_sample": True}).generation_config == {"do_sample": True}


def test_variants_are_copies_of_their_own_and_a_misspelt_field_is_told() -> None:
    base = ScenarioConfig("a", "b", compile_options={"x": []})
    first, second = hf.create_config_variants(base, {"batch_size": [1, 2]})
    first.compile_options["x"].append(1)
    assert second.compile_options == base.compile_options == {"x": []}
    with pytest.raises(AttributeError, match="batchsize"):
        hf.create_config_variants(base, {"batchsize": [1]})


def test_statistics_are_those_of_numpy() -> None:
    values = list(np.random.default_rng(3).lognormal(size=37))
    found = hf.BenchmarkStatistics.from_measurements("latency", values, "seconds")
    for share in (25, 75, 90, 95, 99):
        assert getattr(found, f"p{share}") == pytest.approx(np.percentile(values, share))
    assert (found.mean, found.median, found.std) == pytest.approx((np.mean(values), np.median(values), np.std(values)))
    assert (found.min, found.max, found.unit, found.measurements) == (min(values), max(values), "seconds", values)
    assert found.plain()["too_few_values_for"] == ["p99"]
    assert hf.BenchmarkStatistics.from_measurements("x", [2.0]).p99 == 2.0
    assert math.isnan(hf.BenchmarkStatistics.from_measurements("x", [1.0, math.nan]).std)
    with pytest.raises(ValueError, match="empty"):
        hf.BenchmarkStatistics.from_measurements("latency", [])


class Late(hf.ModelBenchmark):
    """Imports PyTorch where its model is set up, and says what it is told to say."""

    first: Any = 0.1

    def setup_model(self, config: ScenarioConfig) -> None:
        import torch  # noqa: F401

    def cleanup_model(self) -> None: ...

    def measure_time_to_first_token(self, config: ScenarioConfig) -> float:
        return float(self.first)

    def measure_latency(self, config: ScenarioConfig) -> hf.TimingResult:
        return hf.TimingResult(latency=0.5, tokens_per_second=2.0)


@pytest.mark.deep
def test_a_bench_that_imports_torch_late_is_on_torch_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(hf, "torch_here", lambda: None)
    config = ScenarioConfig("late", "m", warmup_iterations=0, measurement_iterations=1)
    found = hf.BenchmarkRunner(LOG).run_benchmark(Late(LOG), [config])["late"]
    assert (found["status"], found["case"].rpartition("@")[2]) == ("ok", "torch/eager:eval")
    assert not hf._uses_torch(hf.ModelBenchmark)


@pytest.mark.parametrize("first", [math.nan, math.inf, -1.0])
def test_times_that_cannot_be_are_no_measurement(first: float) -> None:
    bench = Late(LOG)
    bench.first = first
    config = ScenarioConfig("late", "m", warmup_iterations=0, measurement_iterations=1)
    found = hf.BenchmarkRunner(LOG).run_benchmark(bench, [config])["late"]
    assert found["status"] == "failed" and "time to first token of" in found["reason"] and not found["measurements"]


def test_a_bench_that_lacks_a_method_cannot_be_made() -> None:
    class Half(hf.ModelBenchmark):
        def setup_model(self, config: ScenarioConfig) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Half(LOG)  # type: ignore[abstract]


class FakeMeter:
    """A GPU that answers with a row of a list each time, then with its last."""

    def __init__(self, rows: list[float]) -> None:
        self.rows = rows

    def row(self) -> MeterReading:
        share = self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]
        return MeterReading(0.0, 1.0, 1.0, 1.0, 1.0, share, share * 4 * 2**30, 0)


@pytest.mark.parametrize("rows", [[0.5], [math.nan]])
def test_a_monitor_reads_the_gpu_in_percent_and_megabytes(
    rows: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry.Meter, "open", classmethod(lambda cls, uuid: FakeMeter(list(rows))))
    monitor = hf.GPUMonitor(sample_interval=0.0, logger=LOG)
    monitor.start()
    while len(monitor._log.rows) < 6:
        pass
    found = monitor.stop()
    if rows == [0.5]:
        assert found["gpu_utilization_mean"] == found["gpu_utilization_max"] == 50 and found["gpu_memory_used_min"] == 2048
        assert found["sample_count"] >= 6 and found["gpu_monitoring_status"] == "success" and not caplog.records
    else:
        assert found == {"gpu_monitoring_status": "failed", "gpu_monitoring_reason": "no_samples_collected"}
        assert len(caplog.records) == 1 and "in a row" in caplog.text


def test_tools_work_without_torch_and_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.nn.attention", None)
    hf.flush_memory()
    assert hf.get_sdpa_backend("math") is None and hf.get_available_sdpa_backends() == [] and hf.get_git_commit_id() == "unknown"
    with hf.SDPAContext("math", LOG), hf.SDPAContext(None):
        pass
    found = hf.get_hardware_info()
    assert found.cpu_count >= 1 and found.memory_total > 100 and found.python_version.count(".") == 2


def test_attention_has_the_kernel_that_is_asked_for_inside_the_context(caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    assert hf.get_sdpa_backend("math") == torch.nn.attention.SDPBackend.MATH and {"math"} <= {*hf.get_available_sdpa_backends()}
    before = torch.backends.cuda.flash_sdp_enabled()
    with hf.SDPAContext("math", LOG):
        assert not torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled() == before
    hf.SDPAContext("nonesuch", LOG)
    assert "nonesuch is not known here" in caplog.text


def test_every_name_of_the_framework_is_served() -> None:
    import framework  # type: ignore[import-not-found]

    for name in ("BenchmarkConfig", "ModelBenchmark", "TimingResult", "BenchmarkRunner", "create_config_variants", "GPUMonitor",
                 "flush_memory", "BenchmarkStatistics", "SDPAContext", "get_hardware_info", "get_git_commit_id", "get_sdpa_backend",
                 "get_available_sdpa_backends"):  # fmt: skip
        assert hasattr(framework, name)
    assert [*inspect.signature(framework.BenchmarkRunner.run_benchmark).parameters] == [
        "self",
        "benchmark",
        "configs",
        "collect_gpu_metrics",
    ]
    assert inspect.signature(framework.BenchmarkRunner).parameters["output_dir"].default == "benchmark_results"
