"""Finds, copies and computes with arrays of numpy or PyTorch in nested answers, on any device.

Nothing here imports a framework: if a process has never loaded PyTorch, none of its values is a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

NAMES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
EIGHT = "fp8"
PLAIN = (bool, int, float, complex)

Array = Any


@dataclass(frozen=True)
class Piece:
    """One array of an answer with its path; `dtype` is its framework's name of its format, without the name of the framework."""

    path: str
    dtype: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.array.shape)

    @property
    def space(self) -> Any:
        """The framework whose functions work on the array."""
        return space_of(self.array)

    @property
    def floating(self) -> bool:
        """Whether the array holds floating-point or complex numbers."""
        return is_floating(self.array)


def space_of(value: Any) -> Any:
    """Return the framework whose functions work on an array, numpy or torch; None for a value that is not an array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy or a tensor of torch."""
    return space_of(value) is not None


def is_floating(value: Any) -> bool:
    """Whether an array holds floating-point or complex numbers."""
    space = space_of(value)
    if space is None:
        return False
    return value.dtype.kind in "fc" if space is np else bool(value.is_floating_point() or value.is_complex())


def format_of(array: Array) -> str:
    """Return the name of an array's format, such as `float32`."""
    return str(array.dtype).removeprefix("torch.")


def precision_of(array: Array) -> str:
    """Return which of our precisions an array is stored in; empty for integers."""
    if not is_floating(array):
        return ""
    name = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}.get(format_of(array), format_of(array))
    return EIGHT if name.startswith("float8") else NAMES.get(name, "fp32")


def pieces(value: Any, path: str = "out") -> list[Piece]:
    """Return the arrays of an answer, in order; plain numbers count as arrays of one element."""
    if (space := space_of(value)) is not None:
        array = np.asarray(value) if space is np else value.detach().resolve_conj().resolve_neg()
        return [Piece(path, format_of(array), array)]
    if isinstance(value, PLAIN):
        return [Piece(path, type(value).__name__, np.asarray(value))]
    return [piece for key, item in _items(value) for piece in pieces(item, f"{path}{key}")]


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f".{key}", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def mapped(value: Any, change: Callable[[Array], Any]) -> Any:
    """Return the same structure with its arrays changed, and everything else unchanged."""
    if is_array(value):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    return value


def arrays_of(value: Any) -> list[Array]:
    """Return the arrays in a nested value, in order."""
    if is_array(value):
        return [value]
    return [array for _, item in _items(value) for array in arrays_of(item)]


def copied(array: Array) -> Array:
    """Return a copy of an array at another address."""
    return np.array(array) if space_of(array) is np else array.detach().clone()


def widened(array: Array) -> Array:
    """Return an array in double precision."""
    if space_of(array) is np:
        return np.asarray(array, np.complex128 if np.asarray(array).dtype.kind == "c" else np.float64)
    torch = space_of(array)
    return array.detach().to(torch.complex128 if array.is_complex() else torch.float64)


def as_format(array: Array, like: Array) -> Array:
    """Return the values of an array in the format and on the device of another one."""
    if space_of(like) is np:
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(like.dtype)
    if space_of(array) is np:
        array = space_of(like).from_numpy(np.asarray(array))
    return array.to(like.device, like.dtype)


class Draws:
    """Random arrays on the devices of other arrays, from a seed: the same seed gives the same arrays on the same device."""

    def __init__(self, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)
        self._seed, self._torch = seed, {}  # type: int, dict[Any, Any]

    def uniform(self, like: Array) -> Array:
        """Return numbers in [0, 1) in single precision, in the shape and on the device of an array."""
        space = space_of(like)
        if space is np:
            return self._numbers.random(np.shape(like), dtype=np.float32)
        source = self._torch.setdefault(like.device, None) or space.Generator(device=like.device).manual_seed(self._seed)
        self._torch[like.device] = source
        return space.rand(tuple(like.shape), generator=source, device=like.device, dtype=space.float32)

    def order(self, count: int, like: Array) -> Array:
        """Return the integers below `count` in a drawn order, to index an array with."""
        order = self._numbers.permutation(count)
        return order if space_of(like) is np else space_of(like).from_numpy(order).to(like.device)

    def whole(self, below: int) -> int:
        """Return one integer from 0 to `below`, which is excluded."""
        return int(self._numbers.integers(below))
