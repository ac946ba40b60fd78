"""Inputs and outputs between processes: a tree of arrays and plain values as a description in JSON and bytes in shared memory.

Arrays are read by their address in memory, with functions of the framework that were saved before any candidate was loaded: only the
bytes in memory count, not what a candidate's own class or a patched method would return.
"""

from __future__ import annotations

import importlib
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 256
LARGEST, NO_RESERVE = 1 << 38, 0x4000
PLAIN = (str, int, float, bool, type(None))


class Unreadable(Exception):
    """A value that is neither an array with memory of its own nor plain data."""


@dataclass
class SharedMemory:
    """A file in memory that two processes map; `used` is where the next array goes."""

    path: str
    view: memoryview
    used: int = 0
    kept: list[memoryview] = field(default_factory=list)
    """Mappings that are locked: they stay although a larger one is used, as the device still counts their addresses as locked."""
    grows: bool = False
    """Whether the file is enlarged if it is too small; the other process maps it again when it reads beyond its end."""

    @classmethod
    def create(cls, path: Path, size: int) -> SharedMemory:
        """Make the file; the kernel provides memory only for the parts that are written."""
        with path.open("xb") as file:
            os.ftruncate(file.fileno(), max(size, mmap.PAGESIZE))
        return cls.open(str(path))

    @classmethod
    def open(cls, path: str, *, grows: bool = False) -> SharedMemory:
        """Map a file that another process made."""
        return cls(path, _mapped(path), grows=grows)

    @classmethod
    def locked(cls, path: str) -> SharedMemory:
        """Map a file and keep it in physical memory; a process does this once for every file."""
        if path not in _LOCKED:
            _LOCKED[path] = cls.open(path)
            _LOCKED[path].lock()
        return _LOCKED[path]

    @classmethod
    def private(cls) -> SharedMemory:
        """Return private memory, larger than any value needs, for finding out how much a value needs."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        return cls("", memoryview(mmap.mmap(-1, LARGEST, flags=flags)))

    def take(self, size: int) -> tuple[int, Any]:
        """Reserve this many bytes; return their start, and an array of them."""
        start = -(-self.used // ALIGNMENT) * ALIGNMENT
        if start + size > len(self.view) and self.grows:
            os.truncate(self.path, 2 * (start + size))
            self.view = _mapped(self.path)
        if start + size > len(self.view):
            raise Unreadable(f"{start + size} bytes of arrays do not fit into the {len(self.view)} that are shared")
        self.used = start + size
        return start, self.at(start, size)

    def at(self, start: int, size: int) -> Any:
        """Return some of its bytes as an array; a range outside of it is refused."""
        if self.path and start + size > len(self.view):
            self.view = _mapped(self.path)
        if start < 0 or size < 0 or start + size > len(self.view):
            raise Unreadable(f"bytes {start} to {start + size} are not in the shared memory")
        return np.frombuffer(self.view, np.uint8, size, start)

    def map_again(self) -> None:
        """Map the file anew: writing then takes as long in a process that has written here as in a new one."""
        self.view = _mapped(self.path)

    def touch(self, size: int) -> int:
        """Write to the first bytes, in each page of memory; return how many there are."""
        size = min(size, len(self.view))
        self.at(0, size)[:: mmap.PAGESIZE] = 0
        return size

    def lock(self) -> None:
        """Keep it in physical memory, if a framework's functions were saved: copies to a device are faster then.

        Always the whole of it, because a device cannot copy arrays that are locked in part.
        """
        if _TENSORS:
            self.kept.append(self.view)
            _TENSORS[0].lock(self.at(0, len(self.view)))


def _mapped(path: str) -> memoryview:
    with Path(path).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0))


def pack(value: Any, memory: SharedMemory) -> dict[str, Any]:
    """Write the arrays of a tree into shared memory; return the tree's description."""
    if isinstance(value, np.ndarray):
        return _array(memory, value)
    if isinstance(value, PLAIN):
        return {"value": value}
    if isinstance(value, Mapping):
        return {"keys": [str(key) for key in value], "items": [pack(item, memory) for item in value.values()]}
    if isinstance(value, (list, tuple)):
        return {"kind": "tuple" if isinstance(value, tuple) else "list", "items": [pack(item, memory) for item in value]}
    if _TENSORS and isinstance(value, _TENSORS[0].tensor_type):
        return _tensor(value, memory)
    if isinstance(value, np.generic):
        return {"value": value.item()}
    raise Unreadable(f"{type(value).__name__} is neither an array nor plain data")


def _tensor(value: Any, memory: SharedMemory) -> dict[str, Any]:
    """Write the bytes at a tensor's address; return its description, with the class if it is a subclass."""
    try:
        taken: list[int] = []

        def take(size: int) -> Any:
            start, room = memory.take(size)
            taken[:] = (start, size)
            return room

        dtype, shape, strides = _TENSORS[0].read(value, take)
    except Exception as error:
        raise Unreadable(str(error)) from error
    spec = _described("torch", dtype, shape, strides, *taken)
    return spec if type(value) in _TENSORS[0].plain_types else {**spec, "class": type(value).__name__}


def _array(memory: SharedMemory, value: Any) -> dict[str, Any]:
    data = np.ascontiguousarray(value).view(np.uint8).reshape(-1)
    start, room = memory.take(data.size)
    room[:] = data
    return _described("numpy", value.dtype.str, value.shape, (), start, int(data.size))


def _described(library: str, dtype: str, shape: Sequence[int], strides: Sequence[int], start: int, size: int) -> dict[str, Any]:
    return {"library": library, "dtype": dtype, "shape": list(shape), "strides": list(strides), "start": start, "bytes": size}


def unpack(spec: Mapping[str, Any], memory: SharedMemory, device: str = "cpu") -> Any:
    """Return the tree of a description, its arrays copied to memory of their own; tensors go to the device, and may still be on the way."""
    if "value" in spec:
        return spec["value"]
    if "keys" in spec:
        return {key: unpack(item, memory, device) for key, item in zip(spec["keys"], spec["items"], strict=True)}
    if "items" in spec:
        made = [unpack(item, memory, device) for item in spec["items"]]
        return tuple(made) if spec.get("kind") == "tuple" else made
    data = memory.at(spec["start"], spec["bytes"])
    if spec["library"] == "numpy":
        return data.copy().view(np.dtype(spec["dtype"])).reshape(spec["shape"])
    return _known_torch().made(data, spec["dtype"], spec["shape"], spec["strides"], device)


def arrays(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the descriptions of all arrays in a tree, in order."""
    if "items" in spec:
        return [found for item in spec["items"] for found in arrays(item)]
    return [spec] if "library" in spec else []


def size_of(spec: Mapping[str, Any]) -> int:
    """Return the total bytes of all arrays in a tree."""
    return sum(int(item["bytes"]) for item in arrays(spec))


_LOCKED: dict[str, SharedMemory] = {}
_TENSORS: list[Any] = []
"""Torch's functions, once they are saved."""


def lock_ahead(files: Sequence[str]) -> None:
    """Lock files in a process that waits for a candidate, which takes longer than mapping them."""
    prepare_tensors()
    for file in files:
        SharedMemory.locked(file)


def prepare_tensors() -> Any:
    """Save torch's functions now; called before any user's file is loaded."""
    if not _TENSORS:
        _TENSORS.append(importlib.import_module("steelyard.backends._torch_memory").Tensors())
    return _TENSORS[0]


def _known_torch() -> Any:
    if not _TENSORS:
        raise Unreadable("a tensor was sent to a process that has no torch")
    return _TENSORS[0]
