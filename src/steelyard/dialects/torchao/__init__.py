"""TorchAO: quantization and sparsity recipes on layers of many shapes, each against its baseline."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect(
    "torchao",
    "TorchAO's micro-benchmarks of recipes (benchmark_runner, ci_microbenchmark_runner).",
    config="steelyard.dialects.torchao.config",
    results="steelyard.dialects.torchao.results",
    command="steelyard.dialects.torchao.command:command",
)
