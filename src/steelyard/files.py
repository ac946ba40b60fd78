"""Opens files that a user names or can replace: only plain files up to a size limit; the error for any other file gives the reason.

Reading a pipe may never end and reading an endless file takes all memory, so only this module opens such files. The limits are defined
here, and STEELYARD_MAX_FILE raises or lowers all of them at once.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from steelyard.errors import StoreError, UsageError, did_you_mean
from steelyard.model.units import parse_bytes
from steelyard.model.units import plain as in_units

VARIABLE = "STEELYARD_MAX_FILE"
MIB = 2**20
CONFIG = 4 * MIB
"""Limit for files that people write: experiments, policies, expected failures. Their parsers are slow."""
SHEET = 32 * MIB
"""Limit for files written by programs to be run: the configs of other tools."""
RESULTS = 256 * MIB
"""Limit for results: runs, and the results of other tools."""
LINE = 64 * MIB
"""Limit for one line of a file that is read line by line."""
SCARCE = 16 * MIB
"""Free disk space in bytes below which a failure may be due to a full disk."""
BYTES_PER_VALUE = 16
"""Bytes of a file's size limit per JSON value allowed: JSON with more values takes hundreds of times its size in memory."""
MOST_NAMES = 5000


_hashes: dict[tuple[str, int, int, int], str] = {}
"""Hashes of files by path, size, time and inode: a large file is hashed for every case in it."""


class TooLarge(StoreError):
    """A file, or a line of one, is over its size limit; the message says how to raise it."""


def limit(usual: int) -> int:
    """The size limit in bytes: STEELYARD_MAX_FILE if it is set, else `usual`."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return usual
    try:
        return max(1, parse_bytes(text))
    except UsageError as error:
        raise UsageError(f"{VARIABLE}={text!r} is not a size", do=error.do or f"write it like {VARIABLE}=2GiB") from None


def no_room(folder: Path) -> str:
    """Advice for a failure if the disk of a folder is nearly full, which may be the cause; empty if it is not."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f"{folder.parent} has only {in_units(free, 'B')} left: make room, and run the same command again" if free < SCARCE else ""


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file to read; anything else is refused, because reading a pipe or a device may never end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(mode) else "it is a pipe or a device, not a file")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_whole(path: Path, usual: int) -> bytes:
    """All bytes of a file that is no larger than its limit; the caller handles an OSError."""
    most = limit(usual)
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise too_large(str(path), size, most)
        content = file.read(most + 1)
    if len(content) > most:
        raise too_large(str(path), len(content), most)
    return content


def too_large(what: str, size: int, most: int) -> TooLarge:
    """The error for anything beyond its limit."""
    return TooLarge(
        f"{what} is too large", why=f"it has {_size(size)}, and at most {_size(most)} are read",
        do=f"if it is meant to be that large, set {VARIABLE}={-(-size // MIB)}MiB",
    )  # fmt: skip


def _size(count: int) -> str:
    if count < MIB:
        return f"{count} bytes"
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / MIB:.0f} MiB"


def check_values(content: bytes, largest: int, where: str) -> None:
    """Refuse JSON whose values are so many and so small that they take hundreds of times its size in memory; `largest` is its limit."""
    most = largest // BYTES_PER_VALUE
    if len(content) > most and (held := sum(map(content.count, (b",", b"[", b"{")))) > most:
        raise TooLarge(
            f"{where} holds too many values", why=f"about {held}, and at most {most} are read",
            do=f"if it is meant to hold them, set {VARIABLE}={-(-held * BYTES_PER_VALUE // MIB)}MiB",
        )  # fmt: skip


def open_named(path: Path, do: str = "name a file") -> BinaryIO:
    """Open a file that a user named; the error gives the reason and the most similar name."""
    try:
        return open_plain(path)
    except OSError as error:
        raise unreadable(path, error, do) from None


def unreadable(path: Path, error: OSError, do: str = "name a file") -> UsageError:
    """The error for a file that a user named and that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return UsageError(f"no such file: {str(path)!r}", do=did_you_mean(path.name, _names(path.parent)))
    wrong_kind = error.errno == errno.EINVAL
    return UsageError(f"cannot read {str(path)!r}", why=error.strerror or str(error), do=do if wrong_kind else "")


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as items:
        return [item.name for item, _ in zip(items, range(MOST_NAMES), strict=False)]
    return []


def read_text(path: Path, usual: int = CONFIG) -> str:
    """The text of a file that a user named; an error gives the reason if it cannot be read."""
    try:
        text = read_whole(path, usual).decode("utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError("not a text file", why="it is not UTF-8, or holds zero bytes", where=str(path))
    return text


def lines(file: BinaryIO, where: str) -> Iterator[bytes]:
    """The lines of a file, each with its line break; a line over the limit is refused before it fills the memory."""
    most = limit(LINE)
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise too_large(f"line {number} of {where}", len(line), most)
        yield line


def first_line(path: Path) -> bytes:
    """The first line of a file, up to the longest line allowed; the caller handles an OSError."""
    with open_plain(path) as file:
        return file.readline(limit(LINE))


def existing(text: str) -> Path | None:
    """The file or folder that a text names; None if there is none, or no file could have that name."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def expanded(text: str | Path, what: str) -> Path:
    """A path that a user typed, with `~` expanded; `what` is its purpose, for the error if there is no such user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = Path(text).parts[0]
        raise UsageError(f"cannot find {what} {str(text)!r}", why=f"there is no home folder for {user}", do="write the path out") from None


def real(path: Path) -> Path:
    """A path with its links resolved; a circular link is left as it is, and cannot be opened."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def unpacked(content: bytes, usual: int, where: str) -> bytes:
    """The content of a file, decompressed if it is gzip, no larger than its limit."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    import gzip
    import io
    import zlib

    most = limit(usual)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"cannot unpack {where!r}", why=str(error), do="the gzip file is damaged or cut off: copy it again") from None
    if len(found) > most:
        raise too_large(f"{where} unpacked", len(found), most)
    return found


def sha256(path: Path) -> str:
    """The hash of a file that a user named, whatever its size; it is read again only if it has changed."""
    with open_named(path) as file:
        facts = os.fstat(file.fileno())
        key = (str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)
        if key not in _hashes:
            digest = hashlib.sha256()
            while block := file.read(MIB):
                digest.update(block)
            _hashes[key] = digest.hexdigest()
    return _hashes[key]


def sha256_of(paths: Sequence[Path]) -> str:
    """The hash of a file, or of several files by content and order; their names do not count."""
    own = [sha256(path) for path in paths]
    return own[0] if len(own) == 1 else hashlib.sha256("\n".join(own).encode()).hexdigest()
