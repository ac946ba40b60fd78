"""Read from a .tflite file the operators that are not TFLite's own, and its signature.

A flatbuffer consists of tables that point at each other; the few that are needed are read here, so that planning needs no library for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from steelyard.artifacts.signature import ProgramSignature, TensorType
from steelyard.errors import Unsupported, UsageError

CUSTOM = 32
TYPES = {
    0: "fp32", 1: "fp16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 8: "complex64", 9: "int8", 10: "fp64",
    11: "complex128", 12: "uint64", 15: "uint32", 16: "uint16", 18: "bf16",
}  # fmt: skip
KNOWN = ("TFLite_Detection_PostProcess",)
"""Operators beside TFLite's own that only compute."""


@dataclass(frozen=True)
class FlatTable:
    """A table of a flatbuffer, at offset `at`."""

    data: bytes
    at: int

    def field(self, number: int) -> int:
        """The offset of a field; 0 if the table lacks it."""
        places = self.at - self._signed(self.at)
        size = self._short(places)
        offset = 4 + 2 * number
        found = self._short(places + offset) if offset < size else 0
        return self.at + found if found else 0

    def number(self, field: int, code: str = "<i", usual: int = 0) -> int:
        """The number in a field; `usual` if the table lacks it."""
        place = self.field(field)
        return int(struct.unpack_from(code, self.data, place)[0]) if place else usual

    def tables(self, field: int) -> list[FlatTable]:
        """The tables that a field lists."""
        return [FlatTable(self.data, place + self._unsigned(place)) for place in self._places(field)]

    def numbers(self, field: int) -> list[int]:
        """The whole numbers that a field lists."""
        return [self._signed(place) for place in self._places(field)]

    def text(self, field: int) -> str:
        """The text in a field."""
        place = self.field(field)
        if not place:
            return ""
        start = place + self._unsigned(place)
        return self.data[start + 4 : start + 4 + self._unsigned(start)].decode("utf-8", "replace")

    def _places(self, field: int) -> list[int]:
        place = self.field(field)
        if not place:
            return []
        start = place + self._unsigned(place)
        count = self._unsigned(start)
        if start + 4 + 4 * count > len(self.data):
            raise struct.error("a list is longer than the file")
        return [start + 4 + 4 * number for number in range(count)]

    def _signed(self, place: int) -> int:
        return int(struct.unpack_from("<i", self.data, place)[0])

    def _unsigned(self, place: int) -> int:
        return int(struct.unpack_from("<I", self.data, place)[0])

    def _short(self, place: int) -> int:
        return int(struct.unpack_from("<H", self.data, place)[0])


def _model(data: bytes) -> FlatTable:
    if data[4:8] != b"TFL3":
        raise UsageError("not a TFLite program", why="it does not begin like one", do="fetch or make it again")
    return FlatTable(data, int(struct.unpack_from("<I", data, 0)[0]))


def _damaged(error: Exception) -> UsageError:
    return UsageError("the TFLite program is damaged", why=str(error), do="fetch or make it again")


def custom_operators(data: bytes) -> list[str]:
    """The names of operators that are not TFLite's own and may do more than compute."""
    try:
        codes = _model(data).tables(1)
        named = [code.text(1) or "without a name" for code in codes if max(code.number(0, "<b"), code.number(3)) == CUSTOM]
    except (struct.error, IndexError) as error:
        raise _damaged(error) from None
    return [name for name in dict.fromkeys(named) if name not in KNOWN]


def signature(data: bytes) -> ProgramSignature:
    """The signature of the first graph."""
    try:
        graph = _model(data).tables(2)[0]
        tensors = graph.tables(0)
        sides = [tuple(_type(tensors[number]) for number in graph.numbers(field)) for field in (1, 2)]
    except (struct.error, IndexError) as error:
        raise _damaged(error) from None
    return ProgramSignature(*sides)


def _type(tensor: FlatTable) -> TensorType:
    code = tensor.number(1, "<b")
    if code not in TYPES:
        raise Unsupported(f"a TFLite tensor has type number {code}", why="numpy has no array of that type")
    return TensorType(TYPES[code], tuple(tensor.numbers(0)))
