"""Reads weights from a GGUF file of llama.cpp as plain numbers, with numpy only and with limits on what the file may contain."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.errors import Unsupported, UsageError

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
MOST_ITEMS, MOST_TEXT, MOST_AXES, MOST_DEEP = 1 << 22, 1 << 24, 4, 4
ALIGNMENT = "general.alignment"
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
BLOCK = 32
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class HeldTensor:
    """Where the numbers of one tensor are in the file, and in which format; the outermost axis of the shape is first."""

    shape: tuple[int, ...]
    form: int
    place: int


class GGUFFile:
    """A GGUF file: the model's metadata, and its tensors by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = np.memmap(path, np.uint8, "r")
        self._at = 0
        if bytes(self._take(4)) != MAGIC or self._number("I") not in VERSIONS:
            raise UsageError("not a GGUF file of version 2 or 3", where=str(path))
        tensors, facts = self._number("Q"), self._number("Q")
        self.facts: dict[str, Any] = {}
        for _ in range(self._within(facts)):
            name = self._text()
            self.facts[name] = self._value(self._number("I"))
        self.tensors: dict[str, HeldTensor] = {}
        for _ in range(self._within(tensors)):
            name, axes = self._text(), self._number("I")
            shape = tuple(self._number("Q") for _ in range(self._within(axes, MOST_AXES)))[::-1]
            self.tensors[name] = HeldTensor(shape, self._number("I"), self._number("Q"))
        aligned = int(self.facts.get(ALIGNMENT, BLOCK)) or BLOCK
        self._data = -(-self._at // aligned) * aligned

    def read(self, name: str) -> Floats:
        """The numbers of a tensor."""
        if name not in self.tensors:
            raise UsageError(f"there is no tensor {name!r:.80}", where=str(self.path))
        held = self.tensors[name]
        count = math.prod(held.shape)
        if held.form in (F32, F16):
            kind = np.dtype("<f4" if held.form == F32 else "<f2")
            found = self._slice(held.place, count * kind.itemsize).view(kind).astype(np.float32)
        elif held.form in (Q4_1, Q8_0):
            found = self._unpacked(held, count)
        else:
            raise Unsupported(f"{name} of {self.path.name} is in GGUF's format {held.form}", do="use a file in F32, F16, Q4_1 or Q8_0")
        return found.reshape(held.shape)

    def _unpacked(self, held: HeldTensor, count: int) -> Floats:
        """Blocks of 32 numbers: a scale and bytes, or a scale, an offset and half bytes, the lower halves first."""
        if count % BLOCK:
            raise UsageError("a packed tensor is not made of whole blocks", where=str(self.path))
        head, body = (2, BLOCK) if held.form == Q8_0 else (4, BLOCK // 2)
        blocks = self._slice(held.place, count // BLOCK * (head + body)).reshape(-1, head + body)
        scale = blocks[:, :head].copy().view("<f2").astype(np.float32)
        if held.form == Q8_0:
            return (blocks[:, head:].view(np.int8) * scale).reshape(-1)
        halves = np.concatenate([blocks[:, head:] & 15, blocks[:, head:] >> 4], axis=1)
        return (halves * scale[:, :1] + scale[:, 1:2]).reshape(-1)

    def _slice(self, place: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        start = self._data + place
        if start + size > len(self._bytes):
            raise UsageError("the file ends within a tensor", where=str(self.path))
        return np.asarray(self._bytes[start : start + size])

    def _take(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if self._at + size > len(self._bytes):
            raise UsageError("the file ends within its header", where=str(self.path))
        self._at += size
        return np.asarray(self._bytes[self._at - size : self._at])

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")).tobytes())[0]

    def _within(self, count: int, most: int = MOST_ITEMS) -> int:
        if count > most:
            raise UsageError(f"the file's header declares {count} items, and at most {most} are read", where=str(self.path))
        return count

    def _text(self) -> str:
        return self._take(self._within(self._number("Q"), MOST_TEXT)).tobytes().decode("utf-8", "replace")

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == TEXT:
            return self._text()
        if kind == ARRAY and depth < MOST_DEEP:
            of, count = self._number("I"), self._number("Q")
            return [self._value(of, depth + 1) for _ in range(self._within(count))]
        if kind not in SCALARS:
            raise UsageError(f"the file's header has a value of the unsupported type {kind}", where=str(self.path))
        return self._number(SCALARS[kind])
