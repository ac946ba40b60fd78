"""Programs of ONNX that name other files."""

from __future__ import annotations

import contextlib

import pytest

from steelyard.artifacts.onnx import refuse_other_files
from steelyard.errors import SteelyardError, Unsupported, UsageError


def _number(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return _number(number << 3 | 2) + _number(len(value)) + value


def _tensor(location: bytes = b"") -> bytes:
    inside = _field(1, 2) + _field(2, 1) + _field(8, b"w")
    if not location:
        return inside + _field(9, bytes(8))
    return inside + _field(13, _field(1, b"location") + _field(2, location)) + _field(14, 1)


def _node(attribute: bytes) -> bytes:
    return _field(1, _field(2, b"y") + _field(4, b"Constant") + _field(5, _field(1, b"value") + attribute))


INITIALIZER = _field(7, _field(2, b"g") + _field(5, _tensor(b"../secret")))
IN_A_CONSTANT = _field(7, _node(_field(5, _tensor(b"/etc/passwd"))))
IN_AN_INNER_GRAPH = _field(7, _node(_field(6, _field(15, _field(1, _tensor(b"deep"))))))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (INITIALIZER, "../secret"), (IN_A_CONSTANT, "/etc/passwd"), (IN_AN_INNER_GRAPH, "deep"),
        (_field(7, _field(5, _field(14, 1))), "without a name"),
    ],
)  # fmt: skip
def test_a_program_that_names_other_files_is_refused(content: bytes, named: str) -> None:
    with pytest.raises(Unsupported, match="other files") as caught:
        refuse_other_files(_field(1, 8) + content)
    assert named in str(caught.value)


def test_a_program_with_its_weights_inside_is_taken() -> None:
    refuse_other_files(_field(1, 8) + _field(7, _node(_field(5, _tensor())) + _field(5, _tensor()) + _field(5, b"\x4d" + bytes(4))))


def test_a_damaged_program_is_an_error_and_nothing_else() -> None:
    for length in range(len(INITIALIZER)):
        for change in (INITIALIZER[:length], INITIALIZER[:length] + b"\xff" * 12):
            with contextlib.suppress(SteelyardError):
                refuse_other_files(change)
    with pytest.raises(UsageError, match="damaged"):
        refuse_other_files(b"\x3b\x01")
