"""PyTorch/XLA: a matrix of models and stacks, and the reports that summarize it."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect(
    "ptxla",
    "PyTorch/XLA's benchmarks: runner, analyze, aggregate, microbench.",
    results="steelyard.dialects.ptxla.results",
    command="steelyard.dialects.ptxla.command:ptxla",
)
