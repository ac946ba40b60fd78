"""What torch hands out next for results, filled with random numbers of their scale; and tensors as the bytes that they lie on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steelyard.backends._litter import Sketch, litter_host, pattern

MOST_BLOCKS = 64
SPARED = 4
"""At most this part of what is free on a device is filled, beside what its allocator holds already."""


def litter_cpu(answer: Sequence[Sketch], formats: Mapping[str, torch.dtype]) -> None:
    """Torch's host memory, which comes from where numpy's does."""

    def written(drawn: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
        return torch.from_numpy(drawn).to(formats[dtype]).view(torch.uint8).numpy() if dtype in formats else drawn.view(np.uint8)

    litter_host(answer, lambda size: torch.empty(size, dtype=torch.uint8).numpy(), written)


def litter_device(answer: Sequence[Sketch], api: Any, where: torch.device, formats: Mapping[str, torch.dtype]) -> None:
    """Every block that the caching allocator holds free for such a tensor: it is taken until the allocator has to ask for more.

    Blocks of one size are handed out from the lowest address on, so all that are free are taken before any comes back.
    """
    rng, reserved = np.random.default_rng(), getattr(api, "memory_reserved", None)
    for like in sorted(answer, key=lambda item: -item.count):
        if not like.count or like.dtype not in formats:
            continue
        drawn = torch.from_numpy(pattern(rng, like.some)).to(where).to(formats[like.dtype])
        size, held = like.count * drawn.element_size(), list[torch.Tensor]()
        with contextlib.suppress(RuntimeError):
            before = reserved(where) if reserved else 0
            while len(held) < MOST_BLOCKS and size <= _room(api):
                held.append(torch.empty(like.count, dtype=drawn.dtype, device=where))
                _fill(held[-1], drawn)
                if reserved and reserved(where) > before:
                    break
        while held:
            held.pop()
    api.synchronize()


def _room(api: Any) -> float:
    """Bytes that may be taken: of what the allocator holds free, and a part of what it could ask for."""
    try:
        stats = api.memory_stats()
        idle = stats["reserved_bytes.all.current"] - stats["allocated_bytes.all.current"]
        return float(idle + api.mem_get_info()[0] / SPARED)
    except (RuntimeError, AttributeError, KeyError):
        return 0.0


def _fill(block: torch.Tensor, drawn: torch.Tensor) -> None:
    whole = block.numel() // drawn.numel()
    if whole:
        block[: whole * drawn.numel()].view(whole, drawn.numel()).copy_(drawn.expand(whole, drawn.numel()))
    block[whole * drawn.numel() :].copy_(drawn[: block.numel() - whole * drawn.numel()])


def bare(value: torch.Tensor) -> torch.Tensor:
    """A tensor as what lies in its memory, by none of its own methods: a tensor that computes its values on access shows what it had.

    A kind that is made of other tensors says so, as quantized ones do, and is read by its own ways.
    """
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return torch.Tensor.detach(value)
    if hasattr(type(value), "__tensor_flatten__"):
        return value.detach()
    try:
        with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
            found = torch.Tensor.detach(value)
            found.untyped_storage().data_ptr()
    except RuntimeError:
        return value.detach()
    return found
