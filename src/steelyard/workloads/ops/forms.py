"""Operators and layers are written once for torch and numpy: only the function that is timed belongs to a framework."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.model.define import workload

if TYPE_CHECKING:
    from steelyard.backends.base import Backend as Backend
else:
    Backend = Any
    """For annotations; the class itself would import numpy, and a listing imports no framework."""

operator = functools.partial(workload, backend=("torch", "numpy"), modes=("eval", "fwd", "bwd"))
"""A workload for both frameworks that has gradients."""
trainable = functools.partial(operator, modes=("eval", "fwd", "bwd", "train"))
"""The same with weights, which can be trained."""

Form = Callable[[Any], Callable[..., Any]]
"""Gives the function that is timed; its argument is the framework, imported no earlier than that."""


def form(be: Backend, torch: Form, numpy: Form) -> Callable[..., Any]:
    """The function of the framework that this backend runs."""
    name, make = ("numpy", numpy) if be.name == "numpy" else ("torch", torch)
    return make(importlib.import_module(name))
