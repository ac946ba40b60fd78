"""Tolerances for layers and models: in a short format every product adds a rounding error, and the largest error of many outputs is high.

Measured against double precision with the weights drawn here, the error of bf16 is 0.5 % of the output for a layer and 1 to 2 % for a
model of 24 layers; the largest of a thousand million outputs is six times that. Errors in fp16 are eight times smaller.
"""

from __future__ import annotations

from steelyard.model.dtypes import canonical

LAYER = {"fp16": (1e-2, 6e-3), "bf16": (3e-2, 5e-2)}
MODEL = {"fp16": (1e-2, 3e-2), "bf16": (3e-2, 1.5e-1)}


def layer_tolerance(dtype: str) -> tuple[float, float] | None:
    """Relative and absolute tolerance of a few products in a row; None means the format's own."""
    return LAYER.get(canonical(dtype))


def model_tolerance(dtype: str) -> tuple[float, float] | None:
    """Relative and absolute tolerance of a deep model; None means the format's own."""
    return MODEL.get(canonical(dtype))
