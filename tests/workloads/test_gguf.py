"""GGUF files: every format that is read, against numbers packed here by hand; a file cut or altered is refused, never misread."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.errors import SteelyardError, Unsupported, UsageError
from steelyard.workloads.models._gguf import GGUFFile

NUMBERS = np.arange(64, dtype=np.float32).reshape(2, 32) / 4 - 3


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def q8(values: Any) -> bytes:
    """A scale of a quarter, and each number as a multiple of it."""
    return b"".join(struct.pack("<e", 0.25) + (block * 4).astype(np.int8).tobytes() for block in values.reshape(-1, 32))


def q4(levels: Any) -> bytes:
    """A scale of a half and an offset of -3; the first half of a block is in the lower bits."""
    return b"".join(
        struct.pack("<ee", 0.5, -3.0) + (block[:16] | block[16:] << 4).astype(np.uint8).tobytes() for block in levels.reshape(-1, 32)
    )


LEVELS = np.arange(64, dtype=np.uint8).reshape(2, 32) % 16
PARTS = {
    "plain": (0, NUMBERS.tobytes()),
    "half": (1, NUMBERS.astype(np.float16).tobytes()),
    "bytes": (8, q8(NUMBERS)),
    "nibbles": (3, q4(LEVELS)),
    "strange": (30, b"\0" * 64),
}


def made(path: Path) -> Path:
    facts = [("general.name", 8, text("tiny")), ("layers", 4, struct.pack("<I", 3))]
    facts.append(("names", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(PARTS), len(facts))
    head += b"".join(text(name) + struct.pack("<I", kind) + value for name, kind, value in facts)
    place, body = 0, b""
    for name, (form, data) in PARTS.items():
        head += text(name) + struct.pack("<I", 2) + struct.pack("<QQ", 32, 2) + struct.pack("<IQ", form, place)
        body += data + b"\0" * (-len(data) % 32)
        place = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


def test_every_format_is_read(tmp_path: Path) -> None:
    held = GGUFFile(made(tmp_path / "x.gguf"))
    assert held.facts == {"general.name": "tiny", "layers": 3, "names": ["a", "b"]}
    for name in ("plain", "half", "bytes"):
        assert np.array_equal(held.read(name), NUMBERS), name
    assert np.array_equal(held.read("nibbles"), LEVELS * 0.5 - 3)
    with pytest.raises(Unsupported, match="format 30"):
        held.read("strange")
    with pytest.raises(UsageError, match="no tensor"):
        held.read("other")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_that_was_cut_or_altered_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(made(tmp_path / "x.gguf").read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "y.gguf").write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        held = GGUFFile(tmp_path / "y.gguf")
        for name in held.tensors:
            held.read(name)
    except SteelyardError:
        pass
