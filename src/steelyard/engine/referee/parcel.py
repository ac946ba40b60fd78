"""Inputs and outputs between processes: a tree of arrays and plain values as a description in JSON and bytes in shared memory.

Arrays are read by their address in memory, by functions of the framework that were taken before any candidate was loaded: what a
candidate's own class or a patched method would answer does not count, only the bytes that are there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 256
PLAIN = (str, int, float, bool, type(None))
WORDS = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<i8"}
"""Integers as wide as an element: bytes are moved, whatever they mean."""


class Unreadable(Exception):
    """A value that is neither an array with memory of its own nor plain data."""


@dataclass
class SharedMemory:
    """A file in memory that two processes map; `used` is where the next array goes."""

    path: str
    view: memoryview
    used: int = 0

    @classmethod
    def create(cls, path: Path, size: int) -> SharedMemory:
        """Make it; the kernel gives memory to the parts that are written to."""
        with path.open("xb") as file:
            os.ftruncate(file.fileno(), max(size, mmap.PAGESIZE))
        return cls.open(str(path))

    @classmethod
    def open(cls, path: str) -> SharedMemory:
        """Map what another process made."""
        with Path(path).open("r+b") as file:
            return cls(path, memoryview(mmap.mmap(file.fileno(), 0)))

    def take(self, size: int) -> tuple[int, Any]:
        """Room for so many bytes, as an array of them."""
        start = -(-self.used // ALIGNMENT) * ALIGNMENT
        if start + size > len(self.view):
            raise Unreadable(f"{start + size} bytes of arrays do not fit into the {len(self.view)} that are shared")
        self.used = start + size
        return start, self.at(start, size)

    def at(self, start: int, size: int) -> Any:
        """Some of its bytes, as an array; what lies outside is refused."""
        if start < 0 or size < 0 or start + size > len(self.view):
            raise Unreadable(f"bytes {start} to {start + size} are not in the shared memory")
        return np.frombuffer(self.view, np.uint8, size, start)


def pack(value: Any, memory: SharedMemory) -> dict[str, Any]:
    """Write the arrays of a tree into shared memory, and say what lies where."""
    if isinstance(value, np.ndarray):
        return _array(memory, np.ascontiguousarray(value).view(np.uint8).reshape(-1), "numpy", value.dtype.str, value.shape, ())
    if isinstance(value, PLAIN):
        return {"value": value}
    if isinstance(value, Mapping):
        return {"keys": [str(key) for key in value], "items": [pack(item, memory) for item in value.values()]}
    if isinstance(value, (list, tuple)):
        return {"kind": "tuple" if isinstance(value, tuple) else "list", "items": [pack(item, memory) for item in value]}
    if (torch := _torch()) is not None and isinstance(value, torch.tensor_type):
        return torch.pack(value, memory)
    if isinstance(value, np.generic):
        return {"value": value.item()}
    raise Unreadable(f"{type(value).__name__} is neither an array nor plain data")


def _array(memory: SharedMemory, data: Any, library: str, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> dict[str, Any]:
    start, room = memory.take(data.size)
    room[:] = data
    return {"library": library, "dtype": dtype, "shape": list(shape), "strides": list(strides), "start": start, "bytes": int(data.size)}


def unpack(spec: Mapping[str, Any], memory: SharedMemory, device: str = "cpu") -> Any:
    """The tree again, its arrays copied to memory of their own; tensors go to the device."""
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
    return _known_torch().unpack(spec, data, device)


def arrays(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The descriptions of all arrays in a tree, in order."""
    if "items" in spec:
        return [found for item in spec["items"] for found in arrays(item)]
    return [spec] if "library" in spec else []


def size_of(spec: Mapping[str, Any]) -> int:
    """Bytes of all arrays in a tree."""
    return sum(int(item["bytes"]) for item in arrays(spec))


class Tensors:
    """Torch's functions as they were before a candidate was loaded, and tensors by their memory."""

    def __init__(self) -> None:
        import torch

        base = torch._C.TensorBase
        self.torch, self.tensor_type = torch, base
        self.plain_types = (torch.Tensor, torch.nn.Parameter)
        self.of_base = {name: getattr(base, name) for name in ("data_ptr", "size", "stride", "is_conj", "is_neg", "element_size")}
        self.fields = {name: getattr(base, name).__get__ for name in ("dtype", "device", "layout")}
        self.functions = {name: getattr(torch, name) for name in ("empty", "empty_strided", "from_numpy", "as_tensor")}
        self.copy, self.as_type, self.set_to = base.copy_, base.view, base.set_
        self.plainly = torch._C.DisableTorchFunctionSubclass
        self.names = {str(item).removeprefix("torch."): item for item in vars(torch).values() if isinstance(item, torch.dtype)}
        self.wait = torch._C._cuda_synchronize if hasattr(torch._C, "_cuda_synchronize") else lambda: None

    def pack(self, tensor: Any, memory: SharedMemory) -> dict[str, Any]:
        """The bytes that lie at a tensor's address, and what they mean; a class of its own is told."""
        data, found = self.raw(tensor)
        spec = _array(memory, data, "torch", *found)
        if type(tensor) not in self.plain_types:
            spec["class"] = type(tensor).__name__
        return spec

    def raw(self, tensor: Any) -> tuple[Any, tuple[str, list[int], list[int]]]:
        """A tensor's values as contiguous bytes on the host, with its format, shape and strides."""
        with self.plainly():
            try:
                dtype, device = self.fields["dtype"](tensor), self.fields["device"](tensor)
                shape, strides = list(self.of_base["size"](tensor)), list(self.of_base["stride"](tensor))
                width, address = self.of_base["element_size"](tensor), self.of_base["data_ptr"](tensor)
                flipped = self.of_base["is_conj"](tensor), self.of_base["is_neg"](tensor)
            except RuntimeError as error:
                raise Unreadable(f"{type(tensor).__name__} has no memory of its own: {str(error).splitlines()[0]}") from None
        count = int(np.prod(shape, dtype=np.int64))
        if count and not address:
            raise Unreadable(f"{type(tensor).__name__} has no memory of its own")
        if not count:
            return np.empty(0, np.uint8), (str(dtype).removeprefix("torch."), shape, strides)
        values = self._values(device, address, shape, strides, width)
        if any(flipped):
            values = _flipped(values, width, *flipped)
        return values.reshape(-1).view(np.uint8), (str(dtype).removeprefix("torch."), shape, strides)

    def _values(self, device: Any, address: int, shape: Sequence[int], strides: Sequence[int], width: int) -> Any:
        word = WORDS[width]
        wide = 2 if width == 16 else 1
        shape, strides = [*shape, *([2] if wide == 2 else [])], [*(wide * step for step in strides), *([1] if wide == 2 else [])]
        item = np.dtype(word).itemsize
        if device.type == "cpu":
            extent = item * (1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)))
            flat = np.frombuffer(memoryview((ctypes.c_uint8 * extent).from_address(address)), np.uint8)
            seen = np.lib.stride_tricks.as_strided(flat[:item].view(word), shape, [item * step for step in strides])
            return np.ascontiguousarray(seen)
        there = self.functions["as_tensor"](_OnDevice(address, shape, [item * step for step in strides], word), device=device)
        here = self.functions["empty"](shape, dtype=self.fields["dtype"](there))
        self.copy(here, there)
        return here.numpy()

    def unpack(self, spec: Mapping[str, Any], data: Any, device: str) -> Any:
        """A tensor of its own from described bytes, laid out as it was."""
        dtype, shape, strides = self.names[spec["dtype"]], spec["shape"], spec["strides"]
        made = self.functions["empty_strided"](shape, _dense(shape, strides), dtype=dtype, device=device)
        if data.size:
            host = self.as_type(self.functions["from_numpy"](data), dtype)
            self.copy(made, host.reshape(shape))
        return made


def _dense(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Strides in the same order of dimensions and without gaps: a view of something larger becomes an array of its own."""
    order = sorted(range(len(shape)), key=lambda place: (strides[place], shape[place]))
    found, step = [0] * len(shape), 1
    for place in order:
        found[place], step = step, step * max(shape[place], 1)
    return found


def _flipped(values: Any, width: int, conjugate: bool, negative: bool) -> Any:
    """Values whose sign torch changes when it looks at them."""
    if conjugate:
        parts = values.view({8: "<f4", 16: "<f8"}[width]).copy()
        parts.reshape(-1)[1::2] *= -1
        values = parts.view(values.dtype)
    if negative:
        values = (-values.view({2: "<f2", 4: "<f4", 8: "<f8", 16: "<f8"}[width])).view(values.dtype)
    return values


@dataclass(frozen=True)
class _OnDevice:
    """Memory of a device, in the words by which frameworks hand it to each other."""

    address: int
    shape: Sequence[int]
    steps: Sequence[int]
    word: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = {"shape": tuple(self.shape), "strides": tuple(self.steps), "typestr": self.word}
        return {**found, "data": (self.address, False), "version": 3}


_TENSORS: list[Tensors] = []


def prepare_tensors() -> Tensors:
    """Take torch's functions now; called before any user's file is loaded."""
    if not _TENSORS:
        _TENSORS.append(Tensors())
    return _TENSORS[0]


def _torch() -> Tensors | None:
    return _TENSORS[0] if _TENSORS else None


def _known_torch() -> Tensors:
    if not _TENSORS:
        raise Unreadable("a tensor was sent to a process that has no torch")
    return _TENSORS[0]
