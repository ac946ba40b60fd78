"""An operator or layer is written once for torch and numpy: only the function that is timed belongs to a framework."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steelyard.backends.base import Backend

BOTH = ("torch", "numpy")

Form = Callable[[Any], Callable[..., Any]]
"""Gives the function that is timed; its argument is the framework, which a listing of workloads never imports."""


def form(be: Backend, torch: Form, numpy: Form) -> Callable[..., Any]:
    """The function of the framework that this backend runs."""
    name, make = ("numpy", numpy) if be.name == "numpy" else ("torch", torch)
    return make(importlib.import_module(name))
