"""What a bench file says and gets as plain data: a scenario's config, its variants, one timing, and statistics of several."""

from __future__ import annotations

import copy
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

GREEDY: Mapping[str, Any] = {"do_sample": False, "top_p": 1.0, "temperature": 1.0}
PERCENTILES = (25, 75, 90, 95, 99)
SUPPORT = {"p90": 10, "p95": 20, "p99": 100}
"""How many values it takes for a percentile to be more than the largest value by another name."""


@dataclass
class ScenarioConfig:
    """`BenchmarkConfig` of the original: one scenario, with its fields and defaults."""

    name: str
    model_id: str
    variant: str = "eager"
    warmup_iterations: int = 3
    measurement_iterations: int = 10
    num_tokens_to_generate: int = 100
    device: str = "cuda"
    torch_dtype: str = "float16"
    compile_mode: str | None = None
    compile_options: dict[str, Any] = field(default_factory=dict)
    use_cache: bool = True
    batch_size: int = 1
    sequence_length: int | None = None
    generation_config: dict[str, Any] = field(default_factory=dict)
    attn_implementation: str = "sdpa"
    sdpa_backend: str | None = None
    custom_params: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generation_config = self.generation_config or dict(GREEDY)

    def told(self) -> dict[str, Any]:
        """What was asked for beyond the defaults; how often it is measured is no part of what it is."""
        usual = asdict(ScenarioConfig("", ""))
        kept = {name: value for name, value in asdict(self).items() if name not in ("warmup_iterations", "measurement_iterations")}
        return {name: value for name, value in kept.items() if value != usual[name]}


@dataclass
class TimingResult:
    """What a bench reports of one generation."""

    time_to_first_token: float | None = None
    latency: float = 0.0
    tokens_per_second: float | None = None
    total_tokens_generated: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class BenchmarkStatistics:
    """The values of several iterations, and what is usually asked of them."""

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
        """Of some values; the standard deviation is that of the values themselves, and percentiles lie between two of them."""
        if not measurements:
            raise ValueError("Cannot create statistics from empty measurements")
        values = [float(value) for value in measurements]
        shares = {f"p{share}": percentile(values, share) for share in PERCENTILES}
        return cls(
            name, values, statistics.fmean(values), statistics.median(values), statistics.pstdev(values), min(values), max(values),
            **shares, unit=unit,
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """As the result file has it; percentiles that so few values cannot support are named."""
        weak = [name for name, least in SUPPORT.items() if len(self.measurements) < least]
        return asdict(self) | ({"too_few_values_for": weak} if weak else {})


def percentile(values: Sequence[float], share: float) -> float:
    """By the line between the two nearest values."""
    ordered, place = sorted(values), (len(values) - 1) * share / 100
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


@dataclass
class HardwareInfo:
    """What a scenario ran on; memory in MB."""

    gpu_name: str
    gpu_memory_total: int
    cpu_count: int
    memory_total: int
    python_version: str
    torch_version: str | None = None
    cuda_version: str | None = None


def create_config_variants(base_config: ScenarioConfig, variant_configs: Mapping[str, Sequence[Any]]) -> list[ScenarioConfig]:
    """Every combination of some fields' values, in the order given, each a config of its own named by them."""
    known = {item.name for item in fields(base_config)}
    for name in variant_configs:
        if name not in known:
            raise AttributeError(f"BenchmarkConfig has no field {name!r} (known: {', '.join(sorted(known))})")
    found = []
    for values in itertools.product(*variant_configs.values()):
        config = copy.deepcopy(base_config)
        for name, value in zip(variant_configs, values, strict=True):
            setattr(config, name, copy.deepcopy(value))
        config.name = "_".join([base_config.name, *(f"{name}={value}" for name, value in zip(variant_configs, values, strict=True))])
        found.append(config)
    return found
