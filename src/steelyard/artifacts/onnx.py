"""Find the other files in which a program of ONNX has its weights, without the onnx package.

A protobuf consists of numbered fields; only those that lead to a tensor are followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steelyard.errors import Unsupported, UsageError

BELOW: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"}, "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"}, "function": {7: "node", 11: "attribute"}, "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"}, "sparse": {1: "tensor", 2: "tensor"},
}  # fmt: skip
"""By kind of message, the fields that contain other messages, and their kinds."""
EXTERNAL_DATA, DATA_LOCATION, ENTRY_VALUE = 13, 14, 2
VARINT, FIXED_8, BYTES, FIXED_4 = 0, 1, 2, 5
LENGTHS = {FIXED_8: 8, FIXED_4: 4}


def refuse_other_files(data: bytes) -> None:
    """Raise for a program whose weights are in other files: ONNX Runtime would read them from its working folder."""
    try:
        found = sorted(set(_external(memoryview(data))))
    except (IndexError, ValueError) as error:
        raise UsageError("the ONNX program is damaged", why=str(error), do="fetch or make it again") from None
    if found:
        why = "a program must contain its weights, so that it cannot read any other file"
        raise Unsupported(f"its weights are in other files: {', '.join(found)[:200]}", why=why, do="export it with its weights inside")


def _external(data: memoryview) -> Iterator[str]:
    waiting = [("model", data)]
    while waiting:
        kind, message = waiting.pop()
        for field, value in _fields(message):
            if kind == "tensor" and field == DATA_LOCATION and value == 1:
                yield "without a name"
            if isinstance(value, int):
                continue
            if kind == "tensor" and field == EXTERNAL_DATA:
                yield from (bytes(text).decode("utf-8", "replace") for number, text in _fields(value)
                            if number == ENTRY_VALUE and not isinstance(text, int))  # fmt: skip
            elif below := BELOW.get(kind, {}).get(field):
                waiting.append((below, value))


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        field, wire = key >> 3, key & 7
        if wire == VARINT:
            value, place = _number(message, place)
            yield field, value
            continue
        if wire != BYTES and wire not in LENGTHS:
            raise ValueError(f"a field has wire type {wire}")
        length, place = _number(message, place) if wire == BYTES else (LENGTHS[wire], place)
        if place + length > len(message):
            raise IndexError("a field is cut off")
        yield field, message[place : place + length] if wire == BYTES else 0
        place += length


def _number(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[place]
        value, place, shift = value | (byte & 0x7F) << shift, place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise ValueError("a number is too long")
