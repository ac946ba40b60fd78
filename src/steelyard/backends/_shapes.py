"""PyTorch's meta device: tensors with a shape and a format but no data, so that a call can be tried at almost no cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steelyard.backends.torch import FORMATS, Torch
from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported, told
from steelyard.model.dtypes import canonical

BEYOND = (NotImplementedError, ImportError, Unsupported, NotApplicable, NotApplied)
"""Errors of a call on empty tensors that do not mean that the call is wrong."""
WORDS = ("meta", "data-dependent", "data dependent", "not implemented", "data pointer", "data_ptr", "numpy", "storage")
LONGEST = 200
META = torch.device("meta")


class EmptyTensors(Torch):
    """Torch on the meta device: arrays are empty tensors, and nothing is drawn, copied or computed."""

    def open(self) -> None:
        self.where = META

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        return torch.empty(np.shape(data), dtype=FORMATS[dtype], device=META)

    def randn(self, *shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
        return torch.empty(shape, dtype=FORMATS[canonical(dtype)], device=META)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "fp32") -> Any:
        return self.randn(*shape, dtype=dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        return self.randn(*shape, dtype=dtype)

    def full(self, *shape: int, value: float = 0.0, dtype: str = "fp32") -> Any:
        return self.randn(*shape, dtype=dtype)


def verdict(error: BaseException) -> tuple[str, str]:
    """Return why a case cannot run, and why that could not be checked; one of the two is empty."""
    text = told(error) if isinstance(error, SteelyardError) else (str(error).strip().splitlines() or [type(error).__name__])[0]
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    if isinstance(error, BEYOND):
        return "", text
    beyond = not isinstance(error, SteelyardError) and any(word in str(error).lower() for word in WORDS)
    return ("", text) if beyond else (text if isinstance(error, SteelyardError) else f"{type(error).__name__}: {text}", "")
