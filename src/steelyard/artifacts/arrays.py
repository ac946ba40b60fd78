"""Inputs, outputs and weights in archives of .npy files, one member each, found by name and never by their order.

numpy has no bf16 and no fp8: those are stored as their bits, and the manifest's dtype says how to look at them.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import math
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steelyard import files
from steelyard.artifacts.manifest import ArtifactArray
from steelyard.errors import StoreError, Unsupported, unknown

Array = np.ndarray[Any, Any]
NUMPY: Mapping[str, str] = {
    "fp64": "<f8", "fp32": "<f4", "fp16": "<f2", "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1", "uint64": "<u8",
    "uint32": "<u4", "uint16": "<u2", "uint8": "|u1", "bool": "|b1", "complex64": "<c8", "complex128": "<c16",
}  # fmt: skip
"""By dtype, the format of numpy that stores it."""
BITS: Mapping[str, tuple[str, str]] = {
    "bf16": ("<u2", "bfloat16"), "fp8e4m3": ("|u1", "float8_e4m3fn"), "fp8e5m2": ("|u1", "float8_e5m2"),
    "fp8e4m3fnuz": ("|u1", "float8_e4m3fnuz"), "fp8e5m2fnuz": ("|u1", "float8_e5m2fnuz"), "fp8e8m0": ("|u1", "float8_e8m0fnu"),
}  # fmt: skip
"""By dtype that numpy lacks, the format in which its bits are stored, and its name in ml_dtypes."""
FORMATS = "formats.json"
HEADER = 65_536
"""More bytes than any .npy has before its data."""


def dtype_of(array: Array) -> str:
    """Steelyard's name for the dtype of an array, also for the formats that ml_dtypes adds."""
    name = array.dtype.name
    for ours, (_, theirs) in BITS.items():
        if name == theirs:
            return ours
    for ours, code in NUMPY.items():
        if array.dtype.newbyteorder("<") == np.dtype(code):
            return ours
    raise Unsupported(f"arrays of {name} cannot be stored", do=f"use one of: {', '.join((*NUMPY, *BITS))}")


def save(path: Path, file: str, arrays: Sequence[tuple[str, str, Array]]) -> tuple[ArtifactArray, ...]:
    """Write arrays (name, dtype, data) as one archive, and return where each is; the same arrays always give the same bytes.

    `file` is the archive's name in the manifest, `path` the file to write.
    """
    found: list[ArtifactArray] = []
    formats: dict[str, str] = {}
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        for number, (name, dtype, data) in enumerate(arrays):
            stored = bits(dtype, data)
            buffer = io.BytesIO()
            np.save(buffer, stored, allow_pickle=False)
            content, member = buffer.getvalue(), f"{name}.npy"
            add(archive, member, content)
            found.append(ArtifactArray(name, dtype, tuple(map(int, stored.shape)), file, member, hashlib.sha256(content).hexdigest()))
            if dtype in BITS:
                formats[str(number)] = BITS[dtype][1]
        if formats:
            add(archive, FORMATS, json.dumps(formats).encode())
    return tuple(found)


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file to an archive, without its time and owner."""
    item = tarfile.TarInfo(name)
    item.size = len(content)
    archive.addfile(item, io.BytesIO(content))


def bits(dtype: str, data: Array) -> Array:
    """An array in the format in which numpy can store it."""
    data = np.asarray(data)
    if dtype in NUMPY:
        return np.ascontiguousarray(data, np.dtype(NUMPY[dtype])).reshape(data.shape)
    if dtype not in BITS:
        raise unknown("dtype that can be stored", dtype, (*NUMPY, *BITS))
    code = np.dtype(BITS[dtype][0])
    if data.dtype.itemsize != code.itemsize or data.dtype.kind in "fib":
        raise ValueError(f"an array of {data.dtype} does not contain the bits of {dtype}")
    return np.ascontiguousarray(data).reshape(data.shape).view(code)


def widened(data: Array, dtype: str) -> Array:
    """Numbers that can be computed with, in double precision; empty if the format cannot be read here."""
    if dtype in NUMPY:
        return np.asarray(data).astype(np.complex128 if dtype.startswith("complex") else np.float64)
    stored = bits(dtype, data)
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    try:
        return viewed(stored, dtype).astype(np.float64)
    except Unsupported:
        return np.zeros(0)


def load(folder: Path, items: Sequence[ArtifactArray], *, as_bits: bool = False) -> list[Array]:
    """Arrays of a folder in the order of `items`, each checked by its hash, format and shape.

    Formats that numpy lacks need ml_dtypes, or come `as_bits`.
    """
    found: dict[tuple[str, str], Array] = {}
    for file in dict.fromkeys(item.file for item in items):
        wanted = {item.member: item for item in items if item.file == file}
        found |= {(file, member): array for member, array in _members(folder / file, wanted).items()}
    return [found[item.file, item.member] if as_bits else viewed(found[item.file, item.member], item.dtype) for item in items]


def viewed(data: Array, dtype: str) -> Array:
    """Stored bits as an array of their format."""
    if dtype in NUMPY:
        return data
    try:
        formats = importlib.import_module("ml_dtypes")
    except ModuleNotFoundError:
        raise Unsupported(f"arrays of {dtype} need ml_dtypes here", do="pip install ml_dtypes") from None
    return data.view(getattr(formats, BITS[dtype][1]))


def _members(path: Path, wanted: Mapping[str, ArtifactArray]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    try:
        with files.open_named(path) as raw, tarfile.open(fileobj=raw, mode="r|*") as archive:
            for item in archive:
                name = item.name.removeprefix("./")
                if name not in wanted or name in found or not item.isfile():
                    continue
                read = archive.extractfile(item)
                assert read is not None
                found[name] = _array(read.read(_most(wanted[name]) + 1), wanted[name], path)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise StoreError(f"cannot read {path}", why=str(error), do="fetch or make it again: it is damaged or cut off") from None
    if absent := [name for name in wanted if name not in found]:
        raise StoreError(f"{path} has no {absent[0]}", why="its manifest lists that array", do="fetch or make it again")
    return found


def _most(item: ArtifactArray) -> int:
    """Bytes that a member can have at most, so that an archive cannot fill the memory."""
    return HEADER + math.prod(item.shape) * _stored(item.dtype).itemsize


def _stored(dtype: str) -> np.dtype[Any]:
    if dtype not in NUMPY and dtype not in BITS:
        raise Unsupported(f"arrays of {dtype} cannot be read", do=f"use one of: {', '.join((*NUMPY, *BITS))}")
    return np.dtype(NUMPY.get(dtype) or BITS[dtype][0])


def _array(content: bytes, item: ArtifactArray, path: Path) -> Array:
    if (digest := hashlib.sha256(content).hexdigest()) != item.sha256:
        raise StoreError(f"{path}: {item.member} is not the file that its manifest lists", why=f"its sha256 is {digest}, not {item.sha256}")
    try:
        data: Array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise StoreError(f"{path}: {item.member} is not an array", why=str(error)[:200]) from None
    expected = _stored(item.dtype)
    if item.dtype in BITS and data.dtype.kind == "V" and data.dtype.itemsize == expected.itemsize:
        data = data.view(expected)
    if data.dtype.newbyteorder("<") != expected or data.shape != item.shape:
        said = f"its manifest says {item.dtype} of shape {list(item.shape)}"
        raise StoreError(f"{path}: {item.member} has {data.dtype} of shape {list(data.shape)}", why=said)
    return data.astype(expected, copy=False)
