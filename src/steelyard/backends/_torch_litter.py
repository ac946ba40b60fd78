"""Fills the memory that torch hands out next for results with random numbers; reads tensors by their memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steelyard.backends._litter import Sketch, litter_host, pattern

MOST_BLOCKS = 64
SPARED = 4
"""At most 1/SPARED of a device's free memory is filled, besides what its allocator already holds."""


def litter_cpu(answer: Sequence[Sketch], formats: Mapping[str, torch.dtype]) -> None:
    """Fill torch's host memory, which comes from the same allocator as numpy's."""

    def written(drawn: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
        return torch.from_numpy(drawn).to(formats[dtype]).view(torch.uint8).numpy() if dtype in formats else drawn.view(np.uint8)

    def width(like: Sketch) -> int:
        return int(formats[like.dtype].itemsize if like.dtype in formats else like.some.dtype.itemsize)

    litter_host(answer, written, width)


def litter_device(answer: Sequence[Sketch], api: Any, where: torch.device, formats: Mapping[str, torch.dtype]) -> None:
    """Fill every free block that the caching allocator could use for such a tensor: blocks are taken until it requests more memory.

    Blocks of one size are handed out from the lowest address on, so all free ones are taken before any is released; and before numbers are
    drawn, which would take the beginning of one whose rest would stay as it is.
    """
    rng, reserved = np.random.default_rng(), getattr(api, "memory_reserved", None)
    for like in sorted(answer, key=lambda item: -item.count):
        if not like.count or like.dtype not in formats:
            continue
        dtype = formats[like.dtype]
        size, held = like.count * dtype.itemsize, list[torch.Tensor]()
        with contextlib.suppress(RuntimeError):
            before = reserved(where) if reserved else 0
            while len(held) < MOST_BLOCKS and size <= _room(api):
                held.append(torch.empty(like.count, dtype=dtype, device=where))
                if reserved and reserved(where) > before:
                    break
        with contextlib.suppress(RuntimeError):
            drawn = torch.from_numpy(pattern(rng, like.some)).to(where).to(dtype)
            for block in held:
                _fill(block, drawn)
            del drawn
        while held:
            held.pop()
    api.synchronize()


def _room(api: Any) -> float:
    """Return how many bytes may be taken: what the allocator holds free, and a part of the device's free memory."""
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
    """Return a tensor's memory as a plain tensor, without its own methods: a subclass could compute values only when they are read.

    A subclass that declares itself as made of other tensors, such as a quantized one, is read by its own methods.
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
