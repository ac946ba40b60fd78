"""Arrays come back as they were: by name, in the format that the manifest says, and no others."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.artifacts import arrays
from steelyard.errors import StoreError, Unsupported, UsageError
from steelyard.model.dtypes import SIZES
from tests.artifacts.made import small


@pytest.mark.parametrize("dtype", [*arrays.NUMPY, *arrays.BITS])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_every_format_comes_back_bit_by_bit(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    code = np.dtype(arrays.NUMPY.get(dtype) or arrays.BITS[dtype][0])
    data = (rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else rng.integers(0, 100, shape)).astype(code)
    (item,) = arrays.save(tmp_path / "a.tgz", "a.tgz", [("x", dtype, data)])
    assert item.shape == shape and SIZES[dtype] == code.itemsize
    (found,) = arrays.load(tmp_path, [item], as_bits=True)
    assert found.dtype == code and found.shape == shape and found.tobytes() == data.tobytes()


def test_they_are_found_by_name_and_not_by_their_order(tmp_path: Path) -> None:
    made = [(f"input_{number}", "int32", np.asarray([number], np.int32)) for number in range(12)]
    items = arrays.save(tmp_path / "a.tgz", "a.tgz", made)
    assert [int(data[0]) for data in arrays.load(tmp_path, items[::-1])] == list(range(12))[::-1]


def test_bf16_is_looked_at_as_bf16_where_that_exists(tmp_path: Path) -> None:
    held = small(tmp_path)
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        with pytest.raises(Unsupported, match="arrays of bf16 need ml_dtypes"):
            arrays.load(tmp_path, held.inputs)
        return
    found = arrays.load(tmp_path, held.inputs)[1]
    assert found.dtype == ml_dtypes.bfloat16 and found.astype(np.float32).tolist() == [1.0, -2.0]


def test_bits_in_the_form_that_others_write_them_are_read_too(tmp_path: Path) -> None:
    import hashlib

    item = small(tmp_path).inputs[1]
    buffer = io.BytesIO()
    np.save(buffer, np.asarray([0x3F80, 0xC000], np.uint16).view("V2"), allow_pickle=False)
    with tarfile.open(tmp_path / "inputs_npy.tgz", "w:gz") as archive:
        arrays.add(archive, "input_1.npy", buffer.getvalue())
    item = replace(item, sha256=hashlib.sha256(buffer.getvalue()).hexdigest())
    assert arrays.load(tmp_path, [item], as_bits=True)[0].tolist() == [0x3F80, 0xC000]


def test_an_array_that_is_not_the_one_meant_is_refused(tmp_path: Path) -> None:
    item = small(tmp_path).inputs[0]
    for changed, told in (
        ({"sha256": "0" * 64}, "input_0.npy is not the file that its manifest lists"),
        ({"shape": (3,)}, r"has float32 of shape \[2\]"),
        ({"dtype": "int32"}, "its manifest says int32"),
        ({"member": "input_9.npy"}, "has no input_9.npy"),
    ):
        with pytest.raises(StoreError, match=told):
            arrays.load(tmp_path, [replace(item, **changed)])


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    item = small(tmp_path).inputs[0]
    path = tmp_path / "inputs_npy.tgz"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(StoreError, match="damaged or cut off"):
        arrays.load(tmp_path, [item])
    path.unlink()
    with pytest.raises(UsageError, match="no such file"):
        arrays.load(tmp_path, [item])


def test_an_archive_cannot_fill_the_memory(tmp_path: Path) -> None:
    """A member that unpacks to far more than its shape says is not read to its end."""
    item = small(tmp_path).inputs[0]
    with tarfile.open(tmp_path / "inputs_npy.tgz", "w:gz") as archive:
        arrays.add(archive, item.member, bytes(2**24))
    read: list[int] = []

    class Counted(tarfile.ExFileObject):
        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            read.append(size)
            return super().read(size)

    before, tarfile.TarFile.fileobject = tarfile.TarFile.fileobject, Counted  # type: ignore[attr-defined]
    try:
        with pytest.raises(StoreError, match="is not the file"):
            arrays.load(tmp_path, [item])
    finally:
        tarfile.TarFile.fileobject = before  # type: ignore[attr-defined]
    assert 0 < max(read) < 2**17


@pytest.mark.parametrize("data", [np.asarray(["a"]), np.asarray([None]), np.zeros(2, "M8[s]")])
def test_what_has_no_name_here_is_refused(data: Any) -> None:
    with pytest.raises(Unsupported, match="cannot be stored"):
        arrays.dtype_of(data)


def test_floats_are_not_taken_for_bits() -> None:
    with pytest.raises(ValueError, match="does not contain the bits of bf16"):
        arrays.bits("bf16", np.zeros(2, np.float16))
    with pytest.raises(UsageError, match="no dtype that can be stored named 'int3'"):
        arrays.bits("int3", np.zeros(2))
