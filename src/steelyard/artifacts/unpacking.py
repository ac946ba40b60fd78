"""Unpack untrusted archives, so that nothing in them can leave their folder or fill the disk."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from steelyard import files
from steelyard.errors import StoreError

ENDINGS = (".tgz", ".tar.gz", ".tar", ".zip")
MOST_FILES = 100_000
LEAST_LIMIT, MOST_GROWTH = 2**28, 100
"""An archive may unpack to MOST_GROWTH times its size, or to 256 MiB if that is more: data does not compress better."""
PIECE = 2**20
UNIX_LINK, UNIX_KIND = 0o120000, 0o170000


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpack an archive into an existing folder and return the files' names; a refused archive leaves no files behind."""
    size = archive.stat().st_size
    budget = files.limit(max(LEAST_LIMIT, MOST_GROWTH * size))
    done: list[str] = []
    try:
        for name, length, content in _members(archive):
            target = folder.joinpath(*_safe(name, archive))
            if len(done) >= MOST_FILES:
                raise _refused(archive, f"it has more than {MOST_FILES} files")
            budget -= length
            if budget < 0:
                raise _refused(archive, f"it unpacks to more than {MOST_GROWTH} times its size", f"set {files.VARIABLE} if intended")
            if target.exists():
                raise _refused(archive, f"it has {name!r:.80} twice")
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(content, target, length, archive)
            done.append(str(target.relative_to(folder)))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError, RuntimeError, NotImplementedError) as error:
        _remove(folder)
        raise StoreError(f"cannot unpack {archive}", why=str(error), do="if it is damaged or cut off, fetch it again") from None
    except BaseException:
        _remove(folder)
        raise
    return done


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield plain files with the lengths that the archive declares; anything else is refused."""
    with files.open_named(archive) as raw:
        if zipfile.is_zipfile(raw):
            raw.seek(0)
            with zipfile.ZipFile(raw) as held:
                for info in held.infolist():
                    if (info.external_attr >> 16) & UNIX_KIND == UNIX_LINK:
                        raise _refused(archive, f"{info.filename!r:.80} in it is a link")
                    if not info.is_dir():
                        with held.open(info) as content:
                            yield info.filename, info.file_size, content
            return
        raw.seek(0)
        with tarfile.open(fileobj=raw, mode="r|*") as packed:
            for item in packed:
                if item.isdir():
                    _safe(item.name, archive)
                    continue
                if not item.isfile():
                    raise _refused(archive, f"{item.name!r:.80} in it is a link or a device")
                content_of: Any = packed.extractfile(item)
                yield item.name, item.size, content_of


def _safe(name: str, archive: Path) -> tuple[str, ...]:
    """The parts of a member's name; raise if they lead out of the folder."""
    path = PurePosixPath(name)
    parts = tuple(part for part in path.parts if part != ".")
    if path.is_absolute() or ".." in parts or "\\" in name or "\0" in name or ":" in name.partition("/")[0]:
        raise _refused(archive, f"{name!r:.80} in it leads out of its folder")
    if not parts and not name.strip("./"):
        return ()
    return parts


def _write(content: IO[bytes], target: Path, length: int, archive: Path) -> None:
    """Write a member's bytes, at most as many as the archive declared."""
    with target.open("xb") as file:
        while piece := content.read(PIECE):
            length -= len(piece)
            if length < 0:
                raise _refused(archive, f"{target.name!r:.80} in it is longer than the archive says")
            file.write(piece)
    if length:
        raise StoreError(f"cannot unpack {archive}", why=f"{target.name} is cut off", do="fetch it again")


def _refused(archive: Path, why: str, do: str = "do not use it") -> StoreError:
    return StoreError(f"{archive} is not unpacked", why=why, do=do)
