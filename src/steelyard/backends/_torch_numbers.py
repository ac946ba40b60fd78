"""Random arrays made on a device by torch, with the bits that numpy makes on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from steelyard.backends import _numbers
from steelyard.backends._numbers import Stream

CHUNK = 2**24
"""Words made at a time: many enough that a device and not the launching of its work takes the time, few enough that what is needed
beside them is half a gigabyte."""

Make = Callable[[torch.Tensor], torch.Tensor]


def normals(stream: Stream, shape: Sequence[int], device: Any, *, wide: bool = False) -> torch.Tensor:
    """Normal numbers in float32, or in float64."""
    table = _table(device, wide)

    def make(words: torch.Tensor) -> torch.Tensor:
        return _numbers.normals(words.view(torch.int32), table, lambda whole: whole.to(table.dtype))

    return _filled(stream, shape, device, table.dtype, 2, make)


def between(stream: Stream, low: float, high: float, shape: Sequence[int], device: Any, dtype: torch.dtype) -> torch.Tensor:
    """Uniform numbers in [low, high), in any format."""
    return _filled(stream, shape, device, dtype, 1, lambda words: _numbers.between((words >> 11 & (2**53 - 1)).double(), low, high))


def whole(stream: Stream, low: int, high: int, shape: Sequence[int], device: Any, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers in [low, high), in any format."""
    return _filled(stream, shape, device, dtype, 1, lambda words: _numbers.whole(words, low, high))


def words(stream: Stream, begin: int, count: int, device: Any) -> torch.Tensor:
    """Some words of a stream, from one that begins a block of four."""
    blocks = torch.arange(begin // 4, -(-(begin + count) // 4), device=device)
    return torch.stack(_numbers.words(blocks, stream), dim=-1).reshape(-1)[:count]


@functools.cache
def sound(device: Any) -> bool:
    """Whether a device computes what the host does; one whose whole numbers do not wrap around is left to the host."""
    stream = (2**63 + 5, 2**64 - 3)
    try:
        host = _numbers.HostNumbers
        doubles, integers = torch.float64, torch.int64
        made = [normals(stream, (64,), device), between(stream, -0.3, 7.1, (64,), device, doubles)]
        made += [whole(stream, -3, 2**40, (64,), device, integers)]
        wanted = host(stream).normals(64), host(stream).between(-0.3, 7.1, 64), host(stream).whole(-3, 2**40, 64)
        return all(mine.cpu().numpy().tobytes() == theirs.tobytes() for mine, theirs in zip(made, wanted, strict=True))
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def _filled(stream: Stream, shape: Sequence[int], device: Any, dtype: torch.dtype, per_word: int, make: Make) -> torch.Tensor:
    count = math.prod(shape)
    found = torch.empty(count, dtype=dtype, device=device)
    for begin in range(0, count, CHUNK * per_word):
        part = found[begin : begin + CHUNK * per_word]
        drawn = make(words(stream, begin // per_word, -(-len(part) // per_word), device))
        part.copy_(drawn[: len(part)])
    return found.reshape(tuple(shape))


@functools.cache
def _table(device: Any, wide: bool) -> torch.Tensor:
    return torch.from_numpy(_numbers.quantiles()).to(device, torch.float64 if wide else torch.float32)
