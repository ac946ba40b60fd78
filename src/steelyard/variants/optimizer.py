"""Which optimizer a training step uses: part of what is measured, so the plain step used for verification has it too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import UsageError
from steelyard.model.define import variant
from steelyard.model.task import Task

Kind = Literal["sgd", "adam", "adamw"]
CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


@variant("optimizer", backends=["torch", "torch_xla"], asked=True)
def optimizer(task: Task, be: Any, kind: Kind = "adam", rate: float = 0.01) -> Task:
    """Training with another optimizer than the default, plain gradient descent at a tiny rate."""
    import torch

    if not isinstance(rate, (int, float)) or not 0 <= rate < 1e6:
        raise UsageError(f"the rate of an optimizer must be a number from 0 to below 1e6, not {rate!r:.60}")

    def made(parameters: Any) -> Any:
        return getattr(torch.optim, CLASSES[kind])(parameters, lr=rate)

    return replace(task, optimizer=made, effective={**task.effective, "optimizer": kind, "rate": rate})
