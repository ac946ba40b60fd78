"""PyTorch/XLA: a matrix of models and stacks, and the reports that it is summed up in."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect("ptxla", "models by stacks as PyTorch/XLA's benchmarks have them", results="steelyard.dialects.ptxla.results")
