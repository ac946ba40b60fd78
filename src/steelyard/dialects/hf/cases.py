"""The case of a scenario: its workload, parameters and variants, for configs of both versions of benchmark_v2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.dialects.devices import has_device
from steelyard.errors import NotApplicable, unknown
from steelyard.model.case import Case

MOCK = "mock"
KERNELS = {"math": "math", "flash_attention": "flash", "efficient_attention": "efficient", "cudnn_attention": "cudnn"}
"""Attention kernels by the original's names for them."""
VARIANTS = ("eager", "compiled", "kernelized")
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
PRESETS = ("tiny",)


def device_here(asked: str) -> str:
    """The kind of device that a scenario runs on: the CPU if there is no GPU; the record says so."""
    kind = asked.partition(":")[0]
    return kind if kind != "cuda" or has_device("cuda") else "cpu"


def steps(
    *, compiled: bool, mode: str | None, kernelized: bool, continuous: bool = False, kernel: str | None = None, fullgraph: bool = False
) -> str:  # fmt: skip
    """The variants of a config, in the order in which they are applied."""
    if mode not in MODES:
        raise unknown("compile mode", str(mode), [each for each in MODES if each])
    if kernel is not None and kernel not in KERNELS:
        raise unknown("SDPA backend", str(kernel), KERNELS)
    found = ["kernelize"] if kernelized else []
    options = [*(["fullgraph=true"] if fullgraph else []), *([f"mode={mode}"] if mode else [])]
    found += [f"compile[{','.join(options)}]" if options else "compile"] if compiled else []
    found += [f"sdpa[kernel={KERNELS[kernel]}]"] if kernel else []
    return "+".join([*found, *(["continuous"] if continuous else [])]) or "eager"


def generating(
    model: str, variant: str, params: Mapping[str, Any], *, device: str = "cpu", threads: int = 1, preset: str | None = None
) -> Case:
    """The case of requests to a model of transformers: a hub id, an architecture, or a folder on this machine."""
    if preset is not None and preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    more = {"scale": "tiny"} if preset else {}
    if (Path(model).expanduser() / "config.json").is_file():
        model, more = "local", {"folder": str(Path(model).expanduser())}
    given = {name: value for name, value in {**params, **more}.items() if value is not None}
    return Case(f"generate/{model}", tuple(given.items()), "torch", variant, device=device_here(device), threads=threads)


def of_scenario(config: Any, *, threads: int = 1, preset: str | None = None) -> Case:
    """The case that a config of the first version means for the built-in benches."""
    if config.variant not in VARIANTS:
        raise unknown("variant", str(config.variant), VARIANTS)
    if not config.use_cache:
        raise NotApplicable("generation without a cache is not measured", do="leave use_cache as it is")
    mode, eager = config.compile_mode, config.variant == "eager"
    kernelized = config.variant == "kernelized"
    if eager and mode is not None:
        raise NotApplicable("eager has no compile_mode", do="leave it out, or use the variant compiled")
    if kernelized and mode not in (None, "max-autotune"):
        raise NotApplicable("kernelized allows only compile_mode max-autotune or none")
    if config.model_id.startswith(MOCK):
        params = {"batch": config.batch_size, "new": config.num_tokens_to_generate, "prompt": config.sequence_length, "scatter": 1.0}
        name = {"eager": "eager", "compiled": "compile", "kernelized": "kernelize"}[config.variant]
        return Case("generate/mock", tuple((key, value) for key, value in params.items() if value is not None), "fake", name)
    variant = steps(compiled=not eager and (not kernelized or bool(mode)), mode=mode, kernelized=kernelized, kernel=config.sdpa_backend)
    params = {
        "batch": config.batch_size, "prompt": config.sequence_length, "new": config.num_tokens_to_generate,
        "dtype": config.torch_dtype, "attention": config.attn_implementation,
    }  # fmt: skip
    return generating(config.model_id, variant, params, device=config.device, threads=threads, preset=preset)
