"""Arrays between processes: bytes by a tensor's own memory, files that are mapped again, locked and reused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.engine.referee.parcel import SharedMemory, Unreadable, pack, prepare_tensors, unpack
from steelyard.engine.referee.seats import OutputFile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def memory(tmp_path: Path) -> SharedMemory:
    """A file in memory with room for small arrays."""
    prepare_tensors()
    return SharedMemory.create(tmp_path / "shared", 1 << 16)


VALUES = {
    "plain": lambda: torch.arange(12.0).reshape(3, 4),
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).T,
    "every other": lambda: torch.arange(24.0)[::2],
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "half": lambda: torch.arange(6.0).to(torch.bfloat16),
    "true and false": lambda: torch.tensor([True, False, True]),
    "complex": lambda: torch.tensor([1 + 2j, 3 - 4j]),
    "conjugated": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "wide complex": lambda: torch.tensor([[1 + 2j], [3 - 4j]], dtype=torch.complex128).T,
    "empty": lambda: torch.empty(0, 3),
    "scalar": lambda: torch.tensor(4.5),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_arrives_as_it_was_sent(name: str, memory: SharedMemory) -> None:
    sent = VALUES[name]()
    got = unpack(pack(sent, memory), memory)
    assert got.dtype == sent.dtype and got.shape == sent.shape
    assert torch.equal(got, sent.resolve_conj().resolve_neg())


def test_a_tree_of_both_libraries_arrives(memory: SharedMemory) -> None:
    sent: Any = ({"x": torch.ones(2), "y": [np.arange(3), 5]}, "word", None)
    got = unpack(pack(sent, memory), memory)
    assert torch.equal(got[0]["x"], sent[0]["x"]) and np.array_equal(got[0]["y"][0], np.arange(3)) and got[0]["y"][1:] == [5]
    assert got[1:] == ("word", None)


def test_what_does_not_fit_is_refused(memory: SharedMemory) -> None:
    with pytest.raises(Unreadable, match="do not fit"):
        pack(torch.ones(1 << 16), memory)


def test_a_file_that_is_mapped_again_is_the_same_file(memory: SharedMemory) -> None:
    spec = pack(torch.arange(4.0), memory)
    memory.map_again()
    assert unpack(spec, memory).tolist() == [0, 1, 2, 3]
    assert SharedMemory.open(memory.path).touch(1 << 20) == 1 << 16


def test_locking_what_cannot_be_locked_is_no_error(memory: SharedMemory) -> None:
    """On a machine without a device there is nothing to lock it for."""
    assert SharedMemory.locked(memory.path) is SharedMemory.locked(memory.path)


@pytest.mark.parametrize("change", ["replaced", "linked elsewhere", "resized", "removed", "a link"])
def test_a_file_for_outputs_is_used_again_only_if_it_is_as_it_was(change: str, tmp_path: Path) -> None:
    file = tmp_path / "outputs"
    made = OutputFile.create(file, 1 << 16, 1 << 14)
    assert made.intact and made.ready == 1 << 14 and file.stat().st_blocks * 512 >= 1 << 14
    if change == "linked elsewhere":
        os.link(file, tmp_path / "other")
    elif change == "resized":
        os.truncate(file, 5)
    else:
        file.rename(tmp_path / "old")
        if change == "replaced":
            file.write_bytes(bytes(1 << 16))
        elif change == "a link":
            file.symlink_to(tmp_path / "old")
    assert not made.intact
