"""Read one array from a safetensors file: a header in JSON, and bytes; nothing in it is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.engine.referee.layouts._loading import torch_dtype
from steelyard.errors import UsageError

LARGEST_HEADER = 64 * files.MIB
DTYPES = {
    "F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8e4m3", "F8_E5M2": "fp8e5m2", "F8_E8M0": "fp8e8m0",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip


def read(path: Path, key: str) -> Any:
    """The tensor with this name, on the host."""
    import torch

    with files.open_named(path) as file:
        size = int.from_bytes(file.read(8), "little")
        whole = path.stat().st_size
        if not 2 <= size <= min(LARGEST_HEADER, whole):
            raise _broken(path, "its header is larger than the file")
        try:
            header = json.loads(file.read(size))
        except (ValueError, RecursionError):
            raise _broken(path, "its header is not JSON") from None
        if not isinstance(header, dict) or key not in header:
            names = ", ".join(sorted(map(str, header))[:8]) if isinstance(header, dict) else "nothing"
            raise UsageError(f"it has no array {key!r}", do=f"it has {names}", where=str(path))
        dtype, shape, (begin, end) = _entry(header[key], path)
        form = torch_dtype(dtype)
        if begin < 0 or end - begin != math.prod(shape) * form.itemsize or 8 + size + end > whole:
            raise _broken(path, f"{key} does not fit its shape")
        file.seek(8 + size + begin)
        content = bytearray(file.read(end - begin))
    return torch.frombuffer(content, dtype=form).reshape(shape) if content else torch.empty(shape, dtype=form)


def _entry(entry: Any, path: Path) -> tuple[str, Sequence[int], Sequence[int]]:
    try:
        dtype, shape, ends = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError):
        raise _broken(path, "an array in it lacks a known dtype, or its shape or data_offsets") from None
    whole = [*shape, *ends] if isinstance(shape, list) and isinstance(ends, list) and len(ends) == 2 else [None]
    if not all(type(number) is int and 0 <= number < 2**62 for number in whole):
        raise _broken(path, "a shape or an offset in it is not a number")
    return dtype, shape, ends


def _broken(path: Path, why: str) -> UsageError:
    return UsageError("not a safetensors file", why=why, where=str(path))
