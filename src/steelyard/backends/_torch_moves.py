"""Tensors at other addresses, for comparisons that rebuild their arms."""

from __future__ import annotations

import types
from typing import Any

import torch

from steelyard.model.task import Task

MEMORY = ("cpu", "cuda", "xpu")
"""Devices whose tensors are views of memory that can be copied as a whole."""
CODE = ("torch._dynamo", "torch._inductor", "torch.jit", "triton")


def copy_tensor(value: torch.Tensor, buffers: dict[Any, Any]) -> torch.Tensor:
    """Return a copy with the same layout and gradient settings; tensors that share memory share one copy of it."""
    bare = value.detach()
    made = _view_of_copy(bare, buffers) if _is_view_of_memory(bare) else _copied_whole(bare, buffers)
    if isinstance(value, torch.nn.Parameter):
        made = torch.nn.Parameter(made, value.requires_grad)
    elif value.requires_grad:
        made.requires_grad_()
    if value.is_leaf and value.grad is not None:
        made.grad = copy_tensor(value.grad, buffers)
    return made


def _copied_whole(bare: torch.Tensor, buffers: dict[Any, Any]) -> torch.Tensor:
    """Return a copy of a tensor that is more than a view of memory; one made of other tensors, such as a quantized one, is made of copies.

    Its own `clone` may return something else: some return plain numbers.
    """
    if not hasattr(bare, "__tensor_flatten__"):
        return bare.clone()
    names, context = bare.__tensor_flatten__()
    parts = {name: copy_tensor(getattr(bare, name), buffers) for name in names}
    made: torch.Tensor = type(bare).__tensor_unflatten__(parts, context, bare.size(), bare.stride())
    return made


def _is_view_of_memory(bare: torch.Tensor) -> bool:
    strided = type(bare) is torch.Tensor and bare.layout == torch.strided and bare.device.type in MEMORY
    return strided and not (bare.is_quantized or bare.is_conj() or bare.is_neg() or bare.is_inference())


def _view_of_copy(bare: torch.Tensor, buffers: dict[Any, Any]) -> torch.Tensor:
    memory = bare.untyped_storage()
    place = memory.data_ptr() or id(bare), memory.nbytes(), bare.device
    if place not in buffers:
        buffers[place] = memory.clone()
    with torch.no_grad():
        return torch.empty(0, dtype=bare.dtype, device=bare.device).set_(buffers[place], bare.storage_offset(), bare.shape, bare.stride())


def move_in_place(task: Task) -> None:
    """Move the weights of a function that cannot be copied to new memory."""
    buffers = task.fn.buffers() if isinstance(task.fn, torch.nn.Module) else ()
    for held in (*(item for item in task.parameters if isinstance(item, torch.nn.Parameter)), *buffers):
        held.data = copy_tensor(held.data, {})


def is_compiled(value: Any) -> bool:
    """Whether a compiler of torch or Triton made a value, whose copy would be compiled again."""
    if isinstance(value, types.FunctionType):
        return "_torchdynamo_orig_callable" in vars(value)
    return type(value).__module__.startswith(CODE)
