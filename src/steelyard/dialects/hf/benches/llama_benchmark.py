"""The built-in llama bench: any model of transformers, eager, compiled and with other kernels; each request yields all its times."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from framework import BenchmarkConfig, BenchmarkRunner, RequestBenchmark, create_config_variants  # type: ignore[import-not-found]

MODEL = "meta-llama/Llama-2-7b-hf"
MODES = (None, "default", "reduce-overhead", "max-autotune")


def create_llama_configs(
    model_id: str, warmup_iterations: int, measurement_iterations: int, num_tokens_to_generate: int, variants: Sequence[str]
) -> list[BenchmarkConfig]:
    """The configs of every variant with each compile mode that fits it."""
    base = BenchmarkConfig(
        "llama_benchmark", model_id, warmup_iterations=warmup_iterations, measurement_iterations=measurement_iterations,
        num_tokens_to_generate=num_tokens_to_generate,
    )  # fmt: skip
    fitting = {"eager": (None,), "compiled": MODES, "kernelized": (None, "max-autotune")}
    found = create_config_variants(base, {"variant": variants, "compile_mode": MODES})
    return [config for config in found if config.compile_mode in fitting.get(config.variant, MODES)]


def run_llama_benchmark(
    logger: logging.Logger,
    output_dir: str = "benchmark_results",
    model_id: str = MODEL,
    warmup_iterations: int = 3,
    measurement_iterations: int = 5,
    num_tokens_to_generate: int = 100,
    preset: str | None = None,
    variants: Sequence[str] = ("eager", "compiled", "kernelized"),
) -> str:
    """Measure all configs, write their file and return its path."""
    configs = create_llama_configs(model_id, warmup_iterations, measurement_iterations, num_tokens_to_generate, variants)
    logger.info("Running LLaMA benchmark with %d configurations", len(configs))
    runner = BenchmarkRunner(logger, output_dir)
    return str(runner.save_results(model_id.rpartition("/")[2], runner.run_benchmark(RequestBenchmark(logger, preset), configs)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s - %(asctime)s] %(message)s")
    run_llama_benchmark(
        logging.getLogger("llama_benchmark"), model_id="gpt2", warmup_iterations=1, measurement_iterations=2, num_tokens_to_generate=10,
        preset="tiny", variants=("eager",),
    )  # fmt: skip
