"""Variants that change where and how data lies or is tracked, not what is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steelyard.errors import NotApplied
from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import arrays, body_of


@variant("channels_last", backends=["torch"])
def channels_last(task: Task, be: Any) -> Task:
    """Images and convolution weights with channels innermost in memory."""
    import torch

    fn = body_of(task)
    images = [item for item in arrays([task.args, task.kwargs, task.parameters]) if item.ndim == 4]
    if not images:
        raise NotApplied("no input has four dimensions, so there is no layout to change")

    def turned(value: Any) -> Any:
        return value.contiguous(memory_format=torch.channels_last) if isinstance(value, torch.Tensor) and value.ndim == 4 else value

    if isinstance(fn, torch.nn.Module):
        fn = fn.to(memory_format=torch.channels_last)
    args = tuple(turned(item) for item in task.args)
    moved = {id(old): new for old, new in zip(task.args, args, strict=True)}
    parameters = tuple(moved.get(id(item), item) for item in task.parameters)
    return replace(task, fn=fn, args=args, kwargs={key: turned(item) for key, item in task.kwargs.items()}, parameters=parameters)


@variant("inference_mode", backends=["torch"])
def inference_mode(task: Task, be: Any) -> Task:
    """No autograd bookkeeping at all."""
    import torch

    return replace(task, fn=torch.inference_mode()(body_of(task)), effective={**task.effective, "inference_mode": True})
