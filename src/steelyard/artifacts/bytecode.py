"""The names of dialects and operations in a program of MLIR's bytecode, read from its table of strings.

Only the table is searched: in a large program some bytes of the weights look like a name.
"""

from __future__ import annotations

import re

MAGIC = b"ML\xefR"
STRINGS, ALIGNED = 0, 0x80


def names(content: bytes) -> frozenset[bytes]:
    """All strings of the table; if a file's table cannot be found, everything in it that could be a name."""
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
    raise ValueError("there is no table of strings")


def _strings(table: bytes) -> list[bytes]:
    """The strings of a table: it has their count, their lengths from the last to the first, then the strings, each ended by a zero."""
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
    """A number and the place after it; the number of zeros at the end of its first byte is how many bytes follow."""
    first = content[place]
    more = 8 if not first else (first & -first).bit_length() - 1
    if place + more >= len(content):
        raise IndexError("a number is cut off")
    whole = int.from_bytes(content[place : place + more + 1], "little")
    return (whole >> 8 if more == 8 else whole >> (more + 1)), place + more + 1
