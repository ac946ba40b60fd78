"""The data that bench files use: a scenario's config, its variants, and one timing."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

GREEDY: Mapping[str, Any] = {"do_sample": False, "top_p": 1.0, "temperature": 1.0}


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
        """The fields that differ from the defaults, without the number of measurements."""
        usual = asdict(ScenarioConfig("", ""))
        kept = {name: value for name, value in asdict(self).items() if name not in ("warmup_iterations", "measurement_iterations")}
        return {name: value for name, value in kept.items() if value != usual[name]}


@dataclass
class TimingResult:
    """The times that a bench reports for one generation."""

    time_to_first_token: float | None = None
    latency: float = 0.0
    tokens_per_second: float | None = None
    total_tokens_generated: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


def create_config_variants(base_config: ScenarioConfig, variant_configs: Mapping[str, Sequence[Any]]) -> list[ScenarioConfig]:
    """A config for every combination of some fields' values, in the order given, named by those values."""
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
