"""Operators and layers are written once for all frameworks: only the function that is timed differs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.model.define import workload
from steelyard.workloads.ops.spaces import SPACES, Space, space_of

if TYPE_CHECKING:
    from steelyard.backends.base import Backend as Backend
else:
    Backend = Any
    """For annotations; importing the class would import numpy, and a listing imports no framework."""

operator = functools.partial(workload, backend=("torch", "numpy"), modes=("eval", "fwd", "bwd"))
"""A workload for both frameworks that has gradients."""
trainable = functools.partial(operator, modes=("eval", "fwd", "bwd", "train"))
"""The same with weights, which can be trained."""
EVERYWHERE = ("torch", "numpy", "jax", "tensorflow")

Form = Callable[[Any], Callable[..., Any]]
"""Returns the function that is timed; its argument is the framework, which is imported only then."""
Shared = Callable[[Space], Callable[..., Any]]
"""Returns the function that is timed for every framework but torch."""


def form(be: Backend, torch: Form, numpy: Form | None = None, shared: Shared | None = None) -> Callable[..., Any]:
    """The function in this backend's framework; `shared` is used for frameworks other than torch that have no separate function."""
    if be.name == "numpy" and numpy is not None:
        return numpy(importlib.import_module("numpy"))
    if be.name in SPACES and shared is not None:
        return shared(space_of(be.name))
    return torch(importlib.import_module("torch"))
