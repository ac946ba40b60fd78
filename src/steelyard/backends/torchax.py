"""torchax, PyTorch's operators on JAX: once torch_xla2, an axis of PyTorch/XLA's own benchmarks."""

from __future__ import annotations

from importlib.metadata import version

import torchax

from steelyard.backends.torch import Torch
from steelyard.errors import Unsupported


class Torchax(Torch):
    """A name that parses; what it cannot do here is said in the record."""

    name = "torchax"
    speaks = "torch"
    install = "pip install torchax, beside a torch and a jax that it works with"

    def open(self) -> None:
        raise Unsupported(f"torchax {version(torchax.__name__)} is installed, and Steelyard cannot measure it yet", do="use torch_xla")


BACKEND = Torchax
