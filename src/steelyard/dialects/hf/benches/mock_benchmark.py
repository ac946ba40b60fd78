"""The built-in mock bench: no model and no framework; times by a known formula on a virtual clock, the same for the same seed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from framework import BenchmarkConfig, BenchmarkRunner, RequestBenchmark, create_config_variants  # type: ignore[import-not-found]


def run_mock_benchmark(
    logger: logging.Logger,
    output_dir: str = "benchmark_results",
    warmup_iterations: int = 1,
    measurement_iterations: int = 2,
    num_tokens_to_generate: int = 20,
    enable_mock: bool = False,
    variants: Sequence[str] = ("eager", "compiled", "kernelized"),
) -> str | None:
    """Measure the mock and return its file's path; without `enable_mock` do nothing and return None."""
    if not enable_mock:
        logger.info("Mock benchmark is skipped by default. Use --enable-mock to run it.")
        return None
    base = BenchmarkConfig(
        "mock_benchmark", "mock-model-v1", warmup_iterations=warmup_iterations, measurement_iterations=measurement_iterations,
        num_tokens_to_generate=num_tokens_to_generate, device="cpu", torch_dtype="float32", custom_params={"mock_benchmark": True},
    )  # fmt: skip
    configs = create_config_variants(base, {"variant": variants, "batch_size": [1, 2]})
    logger.info("Running mock benchmark with %d configurations", len(configs))
    runner = BenchmarkRunner(logger, output_dir)
    return str(runner.save_results("mock_model", runner.run_benchmark(RequestBenchmark(logger), configs, collect_gpu_metrics=False)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s - %(asctime)s] %(message)s")
    run_mock_benchmark(logging.getLogger("mock_benchmark"), enable_mock=True, num_tokens_to_generate=10)
