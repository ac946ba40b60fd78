"""Atomic writes and locks for all files of a store."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from steelyard.errors import StoreError


def trouble(doing: str, path: Path, error: OSError, option: str = "--store") -> StoreError:
    """The error for every failed write; `option` is the option that names another place."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    do = f"{'free space there' if full else 'check the folder'}, or name another place with {option} DIR; what was saved before is intact"
    return StoreError(f"cannot {doing}", why=f"{error.strerror or error}: {path}", do=do)


def open_to_write(path: Path, doing: str, create: int = os.O_CREAT, option: str = "--store") -> int:
    """A descriptor of a plain file of ours; a link or a pipe in its place is refused."""
    try:
        return os.open(path, os.O_RDWR | create | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise trouble(doing, path, error, option) from error


def write_whole(fd: int, data: bytes, at: int, path: Path, *, sync: bool = True) -> int:
    """Append bytes at `at` (with `sync`, wait for the disk) or leave the file as it was; returns the new end.

    Anything beyond `at` is left from a failed write and is removed first.
    """
    try:
        if os.fstat(fd).st_size != at:
            os.ftruncate(fd, at)
        rest = memoryview(data)
        while rest:
            rest = rest[os.pwrite(fd, rest, at + len(data) - len(rest)) :]
        if sync:
            os.fsync(fd)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, at)
        raise trouble("write results", path, error) from error
    return at + len(data)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context in which this process holds a folder's lock, to read and change something in one step."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
