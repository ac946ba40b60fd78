"""A station's ticket: read once, from its standard input or a file that only its user can read, and never from anywhere else."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import UsageError

LONGEST = 64 << 10


@dataclass(frozen=True, repr=False)
class Ticket:
    """The conductor's address, the station's name, and the secret that proves its invitation."""

    name: str
    run: str
    host: str
    port: int
    secret: bytes
    certificate: str = ""


def read_ticket(source: str) -> Ticket:
    """Read the ticket from a file, which is removed, or for `-` from the first line of standard input."""
    try:
        words = json.loads(_first_line(sys.stdin.fileno()) if source == "-" else _taken(Path(source)))
        found = Ticket(
            str(words["name"]), str(words["run"]), str(words["host"]), int(words["port"]), bytes.fromhex(words["secret"]),
            str(words.get("certificate", "")),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise UsageError("the ticket cannot be read", why=str(why), do="stations are started by steelyard run --on …") from None
    if len(found.secret) < 32:
        raise UsageError("the secret in the ticket is too short", do="stations are started by steelyard run --on …")
    return found


def _first_line(fd: int) -> bytes:
    """Read byte by byte, so that nothing beyond the line is taken from the input."""
    found = bytearray()
    while len(found) < LONGEST and (byte := os.read(fd, 1)):
        if byte == b"\n":
            break
        found += byte
    return bytes(found)


def _taken(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(file.fileno())
        data = file.read(LONGEST)
    with contextlib.suppress(OSError):
        path.unlink()
    if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077 or about.st_uid != os.getuid():
        raise UsageError(f"other users could read the ticket {path}", why="it holds the secret of the run", do="chmod 600, as its owner")
    return data
