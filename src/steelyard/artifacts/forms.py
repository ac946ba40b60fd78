"""A program's form and the version that wrote it, from its first bytes: a wrong form is reported before a compiler reads it.

Text can be read only by versions that print it the same way. MLIR's bytecode has the name and version of its writer, and later versions
(not earlier ones) can read StableHLO's versioned bytecode.
"""

from __future__ import annotations

import re
from pathlib import Path

from steelyard import files

HEADER = b"ML\xefR\r"
"""How MLIR's bytecode begins; the name and version of its writer follow."""
_WRITER = re.compile(rb"StableHLO_v([\d.]+)|MLIR([\w.]+)")
BEGIN = 4096


def begin_of(path: Path) -> bytes:
    """A file's first bytes."""
    with files.open_plain(path) as file:
        return file.read(BEGIN)


def version_in(path: Path) -> str:
    """Name and version of what wrote a file of bytecode, from its first bytes; empty for other files."""
    begin = begin_of(path)
    found = _WRITER.match(begin[len(HEADER) :]) if begin.startswith(HEADER) else None
    return "" if not found else f"StableHLO {found[1].decode()}" if found[1] else f"MLIR {found[2].decode()}"


def form_of(path: Path) -> str:
    """The form of a file, from its first bytes."""
    begin = begin_of(path)
    if begin.startswith(HEADER):
        return "vhlo" if begin.startswith(b"StableHLO_v", len(HEADER)) else "bytecode"
    if begin[4:8] == b"TFL3":
        return "flatbuffer"
    if begin.startswith((b"\x1f\x8b", b"PK\x03\x04")):
        return "archive"
    try:
        text = begin.decode()
    except UnicodeDecodeError as error:
        text = begin[: error.start].decode() if error.start > len(begin) - 4 else "\0"
    return "protobuf" if "\0" in text or not begin else "text"


def mismatch(path: Path, form: str) -> str:
    """Why a file does not have its declared form; empty if it does."""
    found = form_of(path)
    if found == form or (form == "protobuf" and found == "text"):
        return ""
    return f"is declared as {form}, but is {found}" + (f" by {version}" if (version := version_in(path)) else "")


def too_new(path: Path, own: str) -> str:
    """Why a library of version `own` cannot read StableHLO's versioned bytecode; empty if it can, or if that is not known."""
    found = re.fullmatch(r"StableHLO ([\d.]+)", version_in(path))
    if not found or _numbers(found[1]) <= _numbers(own):
        return ""
    return f"it was written for StableHLO {found[1]}, and this library reads up to {own}: use a newer one, or export with an older one"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version))
