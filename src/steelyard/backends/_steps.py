"""Tolerances, learning rate and cost of a training step, the same for every framework that can train."""

from __future__ import annotations

RATE = 1e-4
STEP_TOLERANCE, GRADIENT_TOLERANCE = (1e-3, 5e-3), (1e-3, 1e-3)
GRADIENT_NORM = {"fp16": 0.0125, "bf16": 0.1}
KINKED_NORM = {"fp16": 0.2, "bf16": 0.4}
COST = {"fwd": 1.0, "bwd": 2.0, "train": 3.0}
"""Cost of each mode in forward passes: a backward pass costs two."""
