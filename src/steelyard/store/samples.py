"""Raw samples beside a run.

`samples.bin` is plain little-endian arrays end to end; each Record has the positions of its own. Nothing in it
is needed to read a run, so if it is lost, the figures remain.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import StoreError
from steelyard.files import open_plain
from steelyard.model.record import Arrays, Series
from steelyard.store.disk import trouble
from steelyard.store.paths import inside

if TYPE_CHECKING:
    import numpy as np


SIZES: dict[str, int] = {"<f8": 8, "<f4": 4, "<i8": 8, "<i4": 4, "<i2": 2, "|i1": 1, "<u8": 8, "<u4": 4, "<u2": 2, "|u1": 1}


def pack(arrays: Arrays, at: int) -> tuple[list[Series], bytes]:
    """Arrays laid end to end from an offset: the position of each one, and the bytes."""
    found, parts = [], []
    for name, (unit, dtype, data) in arrays.items():
        size = SIZES.get(dtype)
        if size is None:
            raise StoreError(f"samples {name!r} cannot be kept as {dtype!r}", do=f"use one of {', '.join(SIZES)}")
        if len(data) % size:
            raise StoreError(f"samples {name!r} have {len(data)} bytes, which is not a whole number of {dtype} values")
        found.append(Series(name, unit, dtype, len(data) // size, at))
        parts.append(data)
        at += len(data)
    return found, b"".join(parts)


def extent(series: Iterable[Series]) -> int:
    """The size that samples.bin must have to hold all of these."""
    return max((item.offset + item.count * SIZES.get(item.dtype, 0) for item in series), default=0)


def read(path: Path, series: Series) -> np.ndarray[Any, Any]:
    """One array of raw samples; a samples.bin that is too short is an error, never padded."""
    import numpy as np

    size = SIZES.get(series.dtype)
    if size is None or series.count < 0 or series.offset < 0:
        raise StoreError(
            f"the description of samples {series.name!r} is wrong", why=f"{series.count} x {series.dtype!r} at {series.offset}"
        )
    try:
        with open_plain(inside(path.parent, path.name, "the file of raw samples")) as file:
            held = os.fstat(file.fileno()).st_size
            if series.offset + size * series.count > held:
                why = f"{path} has {held} bytes, and {series.name!r} ends at {series.offset + size * series.count}"
                raise StoreError(
                    "the raw samples are cut short", why=why, do="the figures in the record are still good; copy samples.bin again"
                )
            file.seek(series.offset)
            return np.frombuffer(file.read(size * series.count), dtype=series.dtype).copy()
    except FileNotFoundError:
        raise StoreError("the raw samples are missing", why=f"no file {path}", do="copy samples.bin together with run.jsonl") from None
    except OSError as error:
        raise trouble("read samples", path, error) from error


def read_all(folder: Path, series: Iterable[Series]) -> dict[str, tuple[str, str, bytes]]:
    """All arrays of a record or a pair of a run, as `pack` takes them; empty if one of them cannot be read."""
    with contextlib.suppress(StoreError):
        return {item.name: (item.unit, item.dtype, read(folder / "samples.bin", item).tobytes()) for item in series}
    return {}
