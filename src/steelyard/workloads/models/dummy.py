"""Three linear layers: PyTorch/XLA's dummy, so that every path can be tried without a download."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.models.subject import MODES, TAGS, ModelDevice, ModelRequest, Subject, as_task, placed, sow

WIDTHS, BATCH = (32, 512, 512, 32), 16


@workload("dummy/linear", axes={"batch": [BATCH], "dtype": ["fp32"]}, tags=TAGS, modes=MODES)
def linear(batch: int, dtype: str, be: Any, mode: str = "eval") -> Task:
    """Three linear layers of 512 with ReLU between them, trained on random targets; PyTorch/XLA's dummy model."""
    return as_task(layers, ModelRequest("linear", batch_size=batch, dtype=dtype), be, mode)


def layers(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """The model, its inputs, and a loss against its own targets."""
    import torch
    from torch import nn

    parts = [layer for features, out in pairwise(WIDTHS) for layer in (nn.Linear(features, out), nn.ReLU())]
    module, batch = placed(nn.Sequential(*parts[:-1]), spot.where, ask.format), ask.batch_size or BATCH
    sow(spot.xla, ask.seed)
    inputs, target = torch.randn(batch, WIDTHS[0]), torch.randn(batch, WIDTHS[-1])
    target = target.to(spot.where)

    def loss(output: Any) -> Any:
        return nn.functional.mse_loss(output, target.to(output.device, output.dtype))

    return Subject(module, (inputs.to(spot.where, ask.format),), loss=loss, batch_size=batch)
