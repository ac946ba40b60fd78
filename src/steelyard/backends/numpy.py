"""numpy on the CPU; also, in double precision, the neutral reference for every other backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from steelyard.backends._places import alter_array
from steelyard.backends.base import Backend, host_leaf
from steelyard.errors import Unsupported

ABOUT = {"package": "numpy", "stack": "numpy", "requires": ["numpy"], "pins": "base.txt", "forks": True}
FORMATS = {
    "fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "int64": np.int64, "int32": np.int32, "int16": np.int16,
    "int8": np.int8, "uint8": np.uint8, "bool": np.bool_, "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip


def to_bf16(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round to the nearest bfloat16 (ties to even), kept as float32, since numpy has no such format."""
    single = np.ascontiguousarray(data, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), np.float32(np.nan), rounded.view(np.float32)).reshape(np.shape(data))


class Numpy(Backend):
    """Plain numpy."""

    name = "numpy"
    install = "pip install numpy"

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        if dtype not in FORMATS:
            raise Unsupported(f"numpy has no {dtype}", do="choose another dtype or backend")
        return np.asarray(data, dtype=FORMATS[dtype])

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        return host_leaf(value)

    def alter(self, value: Any, change: Callable[[Any], Any]) -> bool:
        return alter_array(value, change)

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}


class Precise(Numpy):
    """The reference: inputs rounded to the format of the case, then computed in double precision."""

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        if dtype == "bf16":
            return to_bf16(data).astype(np.float64)
        if dtype.startswith("fp8"):
            raise Unsupported(f"no neutral reference for {dtype}")
        exact = super().array(data, dtype)
        return exact.astype(np.float64) if exact.dtype.kind == "f" else exact


BACKEND = Numpy
