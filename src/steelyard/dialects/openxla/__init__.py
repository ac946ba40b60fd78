"""OpenXLA's comparative benchmark suite: its models in JAX, PyTorch and TensorFlow, and users' own models."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect(
    "openxla",
    "OpenXLA's comparative benchmarks of models in JAX, PyTorch and TensorFlow.",
    config="steelyard.dialects.openxla.config",
    results="steelyard.dialects.openxla.results",
    command="steelyard.dialects.openxla.command:command",
    names="steelyard.dialects.openxla.names",
)
