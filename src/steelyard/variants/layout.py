"""Variants that change the memory layout or autograd tracking of tensors, not what is computed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from steelyard.errors import NotApplied
from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.watch import watch
from steelyard.variants.wrap import arrays, body_of

IMAGE_WORK = re.compile(r"convolution|conv_|conv\d|pool\d|upsample|(batch|group|instance)_norm|grid_sampler|pixel_(un)?shuffle")


@variant("channels_last", backends=["torch"])
def channels_last(task: Task, be: Any) -> Task:
    """Images and convolution weights with channels innermost in memory."""
    import torch

    fn = body_of(task)
    own = list(fn.parameters()) if isinstance(fn, torch.nn.Module) else []
    images = [item for item in arrays([task.args, task.kwargs, task.parameters, own]) if item.ndim == 4]
    if not images:
        raise NotApplied("no input has four dimensions, so there is no layout to change")
    if all(item.is_contiguous(memory_format=torch.channels_last) for item in images):
        raise NotApplied("every input and weight has its channels innermost already")
    plain = watch(task, be)

    def turned(value: Any) -> Any:
        return value.contiguous(memory_format=torch.channels_last) if isinstance(value, torch.Tensor) and value.ndim == 4 else value

    if isinstance(fn, torch.nn.Module):
        fn = fn.to(memory_format=torch.channels_last)
    args = tuple(turned(item) for item in task.args)
    moved = {id(old): new for old, new in zip(task.args, args, strict=True)}
    parameters = tuple(moved.get(id(item), item) for item in task.parameters)
    kwargs = {key: turned(item) for key, item in task.kwargs.items()}
    made = replace(task, fn=fn, args=args, kwargs=kwargs, parameters=parameters, effective={**task.effective, "channels_last": True})
    seen = watch(made, be)
    turned_images = [step for step in seen.beyond(plain) if IMAGE_WORK.search(step.op) and any(form.channels_last for form in step.takes)]
    if not (plain.error or seen.error or turned_images):
        raise NotApplied("no convolution, pooling or other image operation gets an input in the changed layout")
    return made


@variant("inference_mode", backends=["torch"])
def inference_mode(task: Task, be: Any) -> Task:
    """No autograd bookkeeping at all."""
    import torch

    return replace(task, fn=torch.inference_mode()(body_of(task)), effective={**task.effective, "inference_mode": True})
