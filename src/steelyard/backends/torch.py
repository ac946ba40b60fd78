"""PyTorch, eager and compiled."""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
import torch

from steelyard.backends.base import Backend
from steelyard.errors import Unsupported

FORMATS = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2, "int64": torch.int64, "int32": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
    "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip
NAMES = {kind: name for name, kind in FORMATS.items()}


class Torch(Backend):
    """PyTorch on the CPU."""

    name = "torch"
    install = "pip install 'steelyard[torch]'"

    def open(self) -> None:
        if self.device != "cpu":
            raise Unsupported(f"backend torch measures on the CPU for now, not on {self.device!r}", do="leave out -d, or use -d cpu")
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        return torch.from_numpy(np.ascontiguousarray(data)).to(self.device, FORMATS[dtype])

    def dtype(self, name: str) -> torch.dtype:
        """The torch format of one of our names."""
        return FORMATS[name]

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        if not isinstance(value, torch.Tensor):
            return None
        host = value.detach().to("cpu")
        plain = host if host.dtype not in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2) else host.float()
        return NAMES.get(value.dtype, str(value.dtype)), plain.resolve_conj().numpy()

    def copy(self, value: Any) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    @classmethod
    def reset(cls) -> None:
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}


BACKEND = Torch
