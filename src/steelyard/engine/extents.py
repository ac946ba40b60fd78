"""Where answers are in memory: in their own, in that of an input, or in the same place at every call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Extent = tuple[str, int, int]
AGAIN = "the same at every call: an answer is valid until the next call"


def extents(value: Any) -> Iterator[Extent]:
    """Yield the device and the address range of each array in a result."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from extents(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from extents(item)
    elif isinstance(value, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(value)
        if value.nbytes:
            yield "cpu", int(low), int(high)
    elif callable(getattr(value, "untyped_storage", None)):
        try:
            memory = value.untyped_storage()
            begin = int(memory.data_ptr())
        except (RuntimeError, NotImplementedError, ValueError):
            return
        if begin and memory.nbytes():
            yield str(value.device), begin, begin + int(memory.nbytes())


def overlap(one: list[Extent], other: list[Extent]) -> bool:
    """Whether two results share a byte."""
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in one for b in other)


def shared_memory(first: list[Extent], second: list[Extent], given: Mapping[str, Any]) -> str:
    """Describe the memory that a second answer shares with an input or with the first, which is still held; empty if it shares none."""
    if within := [path for path, item in given.items() if overlap(second, list(extents(item)))]:
        return f"that of {', '.join(within)}"
    return AGAIN if overlap(first, second) else ""
