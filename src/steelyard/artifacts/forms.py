"""What a program's file is by its first bytes, and by which version it was written: a wrong form is reported before a compiler reads it.

Text is read by the versions that print it so; MLIR's bytecode carries the name and version of what wrote it, and StableHLO's
versioned bytecode promises to be read by later versions, not by earlier ones.
"""

from __future__ import annotations

import re
from pathlib import Path

from steelyard import files

HEADER = b"ML\xefR\r"
"""How MLIR's bytecode begins; the name and version of what wrote it follow."""
_WRITER = re.compile(rb"StableHLO_v([\d.]+)|MLIR([\w.]+)")
BEGIN = 4096


def begin_of(path: Path) -> bytes:
    """A file's first bytes."""
    with files.open_plain(path) as file:
        return file.read(BEGIN)


def version_in(path: Path) -> str:
    """What wrote a file of bytecode, as its first bytes say; nothing for other files."""
    begin = begin_of(path)
    found = _WRITER.match(begin[len(HEADER) :]) if begin.startswith(HEADER) else None
    return "" if not found else f"StableHLO {found[1].decode()}" if found[1] else f"MLIR {found[2].decode()}"


def form_of(path: Path) -> str:
    """The form that a file has."""
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
    """Why StableHLO's versioned bytecode cannot be read by a library of version `own`; empty where it can, or where that is not known."""
    found = re.fullmatch(r"StableHLO ([\d.]+)", version_in(path))
    if not found or _numbers(found[1]) <= _numbers(own):
        return ""
    return f"it was written for StableHLO {found[1]}, and this library reads up to {own}: use a newer one, or export with an older one"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version))
