"""The names in a program of MLIR's bytecode: dialects and operations are in its table of strings, whatever its weights hold.

Weights are any bytes: in a large program some of them look like a name, so only the table is searched.
"""

from __future__ import annotations

import re

MAGIC = b"ML\xefR"
STRINGS, ALIGNED = 0, 0x80


def names(content: bytes) -> frozenset[bytes]:
    """All strings of the table; of a file whose table cannot be found, everything that could be a name."""
    try:
        return frozenset(_table(content))
    except (IndexError, ValueError):
        return frozenset(re.findall(rb"(?<![\w.])([\w.]+)\0", content))


def _table(content: bytes) -> list[bytes]:
    _, place = _number(content, len(MAGIC))
    place = content.index(b"\0", place) + 1
    while place < len(content):
        section = content[place]
        length, place = _number(content, place + 1)
        if section & ALIGNED:
            alignment, place = _number(content, place)
            place += -place % max(1, alignment)
        if section & ~ALIGNED == STRINGS:
            return _strings(content[place : place + length])
        place += length
    raise ValueError("it has no table of strings")


def _strings(table: bytes) -> list[bytes]:
    """Their number, their lengths from the last to the first, and then the strings, each with a zero behind it."""
    count, place = _number(table, 0)
    lengths = []
    for _ in range(count):
        length, place = _number(table, place)
        lengths.append(length)
    found = []
    for length in reversed(lengths):
        if table[place + length - 1] != 0:
            raise ValueError("a string has no end")
        found.append(table[place : place + length - 1])
        place += length
    return found


def _number(content: bytes, place: int) -> tuple[int, int]:
    """A number and the place behind it; the zeros at the end of its first byte say how many bytes follow."""
    first = content[place]
    more = 8 if not first else (first & -first).bit_length() - 1
    if place + more >= len(content):
        raise IndexError("a number is cut off")
    whole = int.from_bytes(content[place : place + more + 1], "little")
    return (whole >> 8 if more == 8 else whole >> (more + 1)), place + more + 1
