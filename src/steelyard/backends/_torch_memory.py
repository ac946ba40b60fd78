"""Reads tensors by their memory, with torch's functions as they were before a user's file was loaded.

The referee counts only the bytes in memory, not what a candidate's own class or a patched method would return.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

WORDS = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<i8"}
"""Integer types by the width of an element: values are moved as bytes, whatever their format."""


class NoMemory(Exception):
    """Raised for a tensor that has no memory of its own."""


class Tensors:
    """Torch's functions as they were before a candidate was loaded, which read and make tensors by their memory."""

    def __init__(self) -> None:
        base = torch._C.TensorBase
        self.tensor_type = base
        self.plain_types = (torch.Tensor, torch.nn.Parameter)
        self.of_base = {name: getattr(base, name) for name in ("data_ptr", "size", "stride", "is_conj", "is_neg", "element_size")}
        self.fields = {name: getattr(base, name).__get__ for name in ("dtype", "device", "layout")}
        self.functions = {name: getattr(torch, name) for name in ("empty", "empty_strided", "from_numpy", "as_tensor")}
        self.copy, self.as_type, self.detach = base.copy_, base.view, base.detach
        self.plainly = torch._C.DisableTorchFunctionSubclass
        self.names = {str(item).removeprefix("torch."): item for item in vars(torch).values() if isinstance(item, torch.dtype)}
        self.wait = torch._C._cuda_synchronize if hasattr(torch._C, "_cuda_synchronize") else lambda: None

    def read(self, tensor: Any, take: Callable[[int], Any]) -> tuple[str, list[int], list[int]]:
        """Write a tensor's values as contiguous bytes to the memory that `take` returns for so many; return format, shape and strides."""
        with self.plainly():
            try:
                dtype, device = self.fields["dtype"](tensor), self.fields["device"](tensor)
                shape, strides = list(self.of_base["size"](tensor)), list(self.of_base["stride"](tensor))
                width, address = self.of_base["element_size"](tensor), self.of_base["data_ptr"](tensor)
                flipped = self.of_base["is_conj"](tensor), self.of_base["is_neg"](tensor)
            except RuntimeError as error:
                raise NoMemory(f"{type(tensor).__name__} has no memory of its own: {str(error).splitlines()[0]}") from None
        count = int(np.prod(shape, dtype=np.int64))
        if count and not address:
            raise NoMemory(f"{type(tensor).__name__} has no memory of its own")
        room = take(count * width)
        if count:
            self._copy_out(room, device, address, shape, strides, width)
            _flip(room, width, *flipped)
        return str(dtype).removeprefix("torch."), shape, strides

    def lock(self, data: Any) -> None:
        """Keep an array's bytes in physical memory, from which a device copies several times as fast; if that fails, copies are slow.

        The device's library would report the failure again at the next launch, so a launch is made here.
        """
        with contextlib.suppress(RuntimeError, AttributeError, AssertionError):
            if int(torch.cuda.cudart().cudaHostRegister(data.ctypes.data, data.size, 0)):
                torch.zeros(1, device="cuda")

    def use_threads(self, count: int) -> None:
        """Set how many threads an operation may use."""
        torch.set_num_threads(count)

    def overwrite(self, tensor: Any, noise: Any) -> None:
        """Put other values into a tensor's own memory."""
        with self.plainly(), torch.no_grad():
            self.copy(self.detach(tensor), noise)

    def noise(self, tensor: Any, values: Any) -> Any:
        """Return values as a tensor with the format and device of another tensor."""
        return self.functions["from_numpy"](values).to(dtype=self.fields["dtype"](tensor), device=self.fields["device"](tensor))

    def kernels(self, call: Callable[[], Any], device: str) -> dict[str, int]:
        """Return how often a call launches each kernel of a device, or each operator of the host, by name."""
        from torch import profiler

        kinds = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.CUDA] if device != "cpu" else [])]
        with profiler.profile(activities=kinds) as found:
            call()
        counts: dict[str, int] = {}
        for event in found.events():
            if str(event.device_type).endswith("CUDA" if device != "cpu" else "CPU"):
                counts[str(event.name)] = counts.get(str(event.name), 0) + 1
        return counts

    def _copy_out(self, room: Any, device: Any, address: int, shape: Sequence[int], strides: Sequence[int], width: int) -> None:
        """Copy the values at an address to an array of bytes."""
        word = WORDS[width]
        wide = 2 if width == 16 else 1
        shape, strides = [*shape, *([2] if wide == 2 else [])], [*(wide * step for step in strides), *([1] if wide == 2 else [])]
        item = np.dtype(word).itemsize
        if device.type == "cpu":
            extent = item * (1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)))
            flat = np.frombuffer(memoryview((ctypes.c_uint8 * extent).from_address(address)), np.uint8)
            seen = np.lib.stride_tricks.as_strided(flat[:item].view(word), shape, [item * step for step in strides])
            np.copyto(room.view(word).reshape(shape), seen)
            return
        there = self.functions["as_tensor"](_OnDevice(address, shape, [item * step for step in strides], word), device=device)
        here = self.as_type(self.functions["from_numpy"](room), self.fields["dtype"](there))
        self.copy(here.reshape(shape), there)

    def made(self, data: Any, name: str, shape: Sequence[int], strides: Sequence[int], device: str) -> Any:
        """Return a new tensor made from bytes, with the original order of dimensions in memory.

        On a device the bytes must stay as they are until `wait` returns if they are locked in memory.
        """
        dtype = self.names[name]
        made = self.functions["empty_strided"](shape, _dense(shape, strides), dtype=dtype, device=device)
        if data.size:
            host = self.as_type(self.functions["from_numpy"](data), dtype)
            self.copy(made, host.reshape(shape), True)
        return made


def _dense(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return strides in the same order of dimensions but without gaps, so that a view of a larger array becomes an array of its own."""
    order = sorted(range(len(shape)), key=lambda place: (strides[place], shape[place]))
    found, step = [0] * len(shape), 1
    for place in order:
        found[place], step = step, step * max(shape[place], 1)
    return found


def _flip(room: Any, width: int, conjugate: bool, negative: bool) -> None:
    """Apply the conjugation and negation to an array of bytes that torch only notes on the tensor."""
    if conjugate:
        room.view({8: "<f4", 16: "<f8"}[width])[1::2] *= -1
    if negative:
        values = room.view({2: "<f2", 4: "<f4", 8: "<f8", 16: "<f8"}[width])
        np.negative(values, out=values)


@dataclass(frozen=True)
class _OnDevice:
    """Device memory described by `__cuda_array_interface__`, through which frameworks share arrays."""

    address: int
    shape: Sequence[int]
    steps: Sequence[int]
    word: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = {"shape": tuple(self.shape), "strides": tuple(self.steps), "typestr": self.word}
        return {**found, "data": (self.address, False), "version": 3}
