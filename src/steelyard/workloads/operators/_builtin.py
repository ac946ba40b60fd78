"""Operators that are built before they are called: modules and whole networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from steelyard.errors import UsageError


class Layer:
    """A torch module, made by `build` on the device; in training mode, as PARAM leaves it."""

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name, self.make, self.device = name, make, "cpu"
        self.module: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Make the module where it will run."""
        with torch.device(self.device):
            self.module = self.make(*args, **kwargs).to(self.device)

    def filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The module with its weights; lazy modules get them from a first call."""
        if self.module is None:
            do = 'add a build list; "build": [] builds it without arguments'
            raise UsageError(f"{self.name} must be built before it is called", do=do)
        if isinstance(self.module, LazyModuleMixin):
            with torch.no_grad():
                self.module(*args, **kwargs)
        return self.module

    def cleanup(self) -> None:
        """Release the weights."""
        self.module = None
