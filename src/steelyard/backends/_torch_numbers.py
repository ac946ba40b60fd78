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
"""How many words are made at a time: enough that launching work does not dominate, few enough that temporary memory is half a
gigabyte."""

KERNEL = f"""
template <typename T> T philox_word(T index, T key0, T key1) {{
    unsigned long long a = (unsigned long long)index / 4 + 1, b = 0, c = 0, d = 0, k = key0, l = key1;
    for (int round = 0; round < {_numbers.ROUNDS}; ++round) {{
        unsigned long long upper = __umul64hi({_numbers.FACTORS[0]}ULL, a), lower = {_numbers.FACTORS[0]}ULL * a;
        a = __umul64hi({_numbers.FACTORS[1]}ULL, c) ^ b ^ k;
        b = {_numbers.FACTORS[1]}ULL * c;
        c = upper ^ d ^ l;
        d = lower;
        k += {_numbers.STEPS[0]}ULL;
        l += {_numbers.STEPS[1]}ULL;
    }}
    int lane = index & 3;
    return (T)(lane == 0 ? a : lane == 1 ? b : lane == 2 ? c : d);
}}
"""

Make = Callable[[torch.Tensor], torch.Tensor]


def normals(stream: Stream, shape: Sequence[int], device: Any, *, wide: bool = False) -> torch.Tensor:
    """Return normal numbers in float32, or in float64 if `wide`."""
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
    """Return some words of a stream; `begin` must be the start of a block of four."""
    if (fused := _fused(device)) is not None:
        return fused(torch.arange(begin, begin + count, device=device), **_keys(stream))
    return composed(stream, begin, count, device)


def composed(stream: Stream, begin: int, count: int, device: Any) -> torch.Tensor:
    """Return the same words by about a hundred operations of torch, on any device."""
    blocks = torch.arange(begin // 4, -(-(begin + count) // 4), device=device)
    return torch.stack(_numbers.words(blocks, stream), dim=-1).reshape(-1)[:count]


@functools.cache
def _fused(device: Any) -> Callable[..., torch.Tensor] | None:
    """Return one kernel that computes the words ten times as fast; None if it cannot be compiled or computes something else."""
    if torch.device(device).type != "cuda":
        return None
    stream = (2**63 + 5, 2**64 - 3)
    try:
        made: Callable[..., torch.Tensor] = torch.cuda.jiterator._create_jit_fn(KERNEL, key0=0, key1=0)
        drawn = made(torch.arange(4096, 4196, device=device), **_keys(stream))
        return made if torch.equal(drawn, composed(stream, 4096, 100, device)) else None
    except Exception:
        return None


def _keys(stream: Stream) -> dict[str, int]:
    return {f"key{place}": _numbers.signed(part) for place, part in enumerate(stream)}


@functools.cache
def sound(device: Any) -> bool:
    """Whether a device computes the same numbers as the host; if not, as where integers do not wrap around, the host draws them."""
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


def _table(device: Any, wide: bool) -> torch.Tensor:
    """Return the quantiles on the device, copied for each array: a copy that stayed there would count in every case's peak memory."""
    return torch.from_numpy(_numbers.quantiles()).to(device, torch.float64 if wide else torch.float32)
