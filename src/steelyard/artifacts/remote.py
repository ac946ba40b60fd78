"""Publish and fetch folders of artifacts where fsspec can: another folder, http(s), s3, gs; hashes are checked at both ends.

The manifest of a folder is published last, so that a folder is never read before all its files are there. Fetched files are kept by their
content: a second fetch transfers only the manifest, and one that was cut continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.artifacts import manifest, unpacking
from steelyard.artifacts.forms import mismatch
from steelyard.artifacts.manifest import ArtifactFile, ArtifactSet
from steelyard.errors import SteelyardError, StoreError, UsageError, told

CACHE = "STEELYARD_ARTIFACTS"
INDEX = "index.json"
LONGEST_NAME = 200
PIECE = 8 * 2**20
TRIES = 5
DIGEST = "#sha256="
READ_ONLY = ("http", "https")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class RemotePlace:
    """A folder at a URL, with the fsspec file system that reads and writes there."""

    url: str
    system: Any = field(repr=False)
    path: str = ""

    @classmethod
    def at(cls, url: str) -> RemotePlace:
        """The place at a URL or a path; if a library for it is missing, the error says how to install it."""
        try:
            import fsspec
        except ModuleNotFoundError:
            raise UsageError("sending and fetching needs fsspec", do="pip install 'steelyard[remote]'") from None
        plain = url.rstrip("/") if not re.fullmatch(r"\w+:/*|/+", url) else url
        try:
            system, path = fsspec.core.url_to_fs(plain)
        except ImportError as error:
            scheme = url.partition(":")[0]
            extra = "gcsfs" if scheme in ("gs", "gcs") else "'steelyard[remote]'"
            raise UsageError(f"addresses of {scheme} need another package", why=str(error), do=f"pip install {extra}") from None
        except ValueError as error:
            raise UsageError(f"not an address: {url!r:.200}", why=str(error), do="use a folder, or an http, s3 or gs address") from None
        system.use_listings_cache = False
        return cls(plain, system, path)

    def below(self, name: str) -> str:
        """The address of a file in this folder."""
        return f"{self.path}/{name}"

    def whole(self, name: str, most: int = files.SHEET) -> bytes | None:
        """The content of a small file; None if there is none."""
        try:
            with self.system.open(self.below(name), "rb") as file:
                content = bytes(file.read(most + 1))
        except FileNotFoundError as error:
            if (cause := _other_cause(error)) is not None:
                raise _unreachable(f"{self.url}/{name}", cause) from error
            return None
        except Exception as error:  # each of fsspec's systems has its own exceptions
            raise _unreachable(f"{self.url}/{name}", error) from error
        if len(content) > most:
            raise files.too_large(f"{self.url}/{name}", len(content), most)
        return content


def _other_cause(error: BaseException) -> BaseException | None:
    """Why a file was not found, if it is not simply absent: over http, fsspec reports any failure so, also a dead server."""
    cause = error.__cause__ or error.__context__
    while isinstance(cause, FileNotFoundError):
        cause = cause.__cause__ or cause.__context__
    return cause if isinstance(cause, Exception) and getattr(cause, "status", 0) not in (404, 410) else None


def _unreachable(address: str, error: BaseException) -> StoreError:
    why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return StoreError(f"cannot read {address}", why=why, do="check the address and the network")


def cache() -> Path:
    """The folder in which fetched files are kept by their content."""
    chosen = os.environ.get(CACHE)
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard" / "artifacts"


def publish(folders: list[Path], url: str, tell: Tell) -> list[str]:
    """Copy folders of artifacts below a URL, files first, then manifests, then the index of all; return their addresses.

    Files that the manifest there already lists are not sent again.
    """
    if url.partition(":")[0] in READ_ONLY:
        raise UsageError(f"nothing can be written to {url}", why="http is only for reading here", do="use a folder, or an s3 or gs address")
    held = {path: manifest.read(path) for path in folders}
    for path, found in held.items():
        if troubles := manifest.check(path, found):
            raise StoreError(f"{path} is not published", why=troubles[0], do="make it again: steelyard artifacts make … --again")
    place = RemotePlace.at(url)
    try:
        for path, found in held.items():
            _send(path, found, place, tell)
        _send_index({found.name: manifest.hashed(path / manifest.NAME)[1] for path, found in held.items()}, place)
    except (StoreError, UsageError, KeyboardInterrupt):
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise StoreError(f"cannot write to {url}", why=why, do="run the same command again to go on") from error
    return [f"{place.url}/{found.name}" for found in held.values()]


def _send(path: Path, held: ArtifactSet, place: RemotePlace, tell: Tell) -> None:
    before = _known(place, held.name)
    place.system.makedirs(place.below(held.name), exist_ok=True)
    for item in held.files:
        target = place.below(f"{held.name}/{item.path}")
        if before.get(item.path) == item.sha256 and _size(place, target) == item.bytes:
            continue
        tell(f"{held.name}/{item.path}")
        place.system.put_file(str(path / item.path), target)
        if (size := _size(place, target)) != item.bytes:
            raise StoreError(f"{target} has {size} bytes, not {item.bytes}", why="not all was sent", do="run the same command again")
    place.system.put_file(str(path / manifest.NAME), place.below(f"{held.name}/{manifest.NAME}"))


def _size(place: RemotePlace, target: str) -> int:
    place.system.invalidate_cache()
    try:
        return int(place.system.size(target) or 0)
    except FileNotFoundError:
        return -1


def _known(place: RemotePlace, name: str) -> dict[str, str]:
    """The hashes of what was published under a name before."""
    content = place.whole(f"{name}/{manifest.NAME}")
    try:
        found = manifest.parse(content.decode(), name) if content else None
    except (UsageError, UnicodeDecodeError):
        return {}
    return {item.path: item.sha256 for item in found.files} if found else {}


def _send_index(added: dict[str, str], place: RemotePlace) -> None:
    """Update the list of all that is published at a place, because not every server can list its files."""
    content = place.whole(INDEX)
    known = _index(content, f"{place.url}/{INDEX}") if content else {}
    text = json.dumps({"schema": 1, "artifacts": known | added}, indent=1, sort_keys=True) + "\n"
    with place.system.open(place.below(INDEX), "wb") as file:
        file.write(text.encode())


def _index(content: bytes, where: str) -> dict[str, str]:
    try:
        data = json.loads(content)
        entries = data["artifacts"]
        if data["schema"] != 1 or not all(manifest.PLAIN_NAME.fullmatch(name) and "/" not in name for name in entries):
            raise ValueError("a name in it is not a plain name, or a newer Steelyard wrote it")
        if not all(manifest.DIGEST.fullmatch(digest) for digest in entries.values()):
            raise ValueError("a hash in it is not a sha256")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"cannot read {where}", why=f"it is not an index of artifacts: {error}"[:300]) from None
    return dict(entries)


def fetch(url: str, out: Path, tell: Tell, only: str = "") -> list[Path]:
    """Fetch folders of artifacts from a URL into `out` and check them: one model, all that an index names, or an archive of them.

    A URL may end with #sha256=…, the hash of the manifest or of the archive. `only` names the one wanted of several folders.
    """
    address, _, digest = url.partition(DIGEST)
    if digest and not manifest.DIGEST.fullmatch(digest):
        raise UsageError(f"the hash in {url!r:.200} is not a sha256", do=f"write it like {address}{DIGEST}<64 hex digits>")
    if address.endswith(unpacking.ENDINGS):
        return _fetch_archive(address, digest, out, tell, only)
    place = RemotePlace.at(address)
    if (content := place.whole(manifest.NAME)) is not None:
        return [_fetch_folder(place, content, digest, out, tell, only)]
    if (content := place.whole(INDEX)) is None:
        raise UsageError(f"no artifacts at {address}", why=f"there is neither {manifest.NAME} nor {INDEX}", do="check the address")
    entries = {name: expected for name, expected in _index(content, f"{address}/{INDEX}").items() if only in ("", name)}
    if only and not entries:
        raise _another(address, only)
    return [
        _fetch_folder(below, below.whole(manifest.NAME), expected, out, tell)
        for name, expected in entries.items()
        for below in [RemotePlace(f"{place.url}/{name}", place.system, place.below(name))]
    ]


def fetch_missing(urls: Mapping[str, str], out: Path, tell: Tell) -> dict[str, str]:
    """Fetch each folder that is not in `out` yet, by its name and URL; return by name why a folder could not be fetched."""
    troubles = {}
    for name, url in urls.items():
        try:
            if not manifest.PLAIN_NAME.fullmatch(name) or "/" in name or len(name) > LONGEST_NAME:
                raise UsageError(f"{name!r:.80} is not a valid folder name")
            if not (out / name / manifest.NAME).exists():
                fetch(url, out, tell, name)
        except SteelyardError as error:
            troubles[name] = told(error)
    return troubles


def _another(address: str, only: str) -> StoreError:
    return StoreError(f"{address} has no artifacts of {only}", why="it has other artifacts", do="check the address")


def fetch_program(url: str, out: Path, tell: Tell) -> Path:
    """Fetch one program: with its folder if a manifest is beside it, else only the program, by the hash at the end of its address."""
    address, _, digest = url.partition(DIGEST)
    parent, _, name = address.rpartition("/")
    place = RemotePlace.at(parent)
    if (content := place.whole(manifest.NAME)) is not None:
        folder = _fetch_folder(place, content, "", out, tell)
        known = {item.path: item.sha256 for item in manifest.read(folder).files}
        if name not in known:
            raise UsageError(f"no program {address}", why=f"{manifest.NAME} beside it does not list it", do=f"name the folder: {parent}")
        if digest and known[name] != digest:
            raise StoreError(f"{address} is not the expected file", why=f"its sha256 is {known[name]}, not {digest}")
        return folder / name
    if not manifest.DIGEST.fullmatch(digest):
        why = f"no {manifest.NAME} beside it lists its hash"
        raise UsageError(f"{address} has no hash", why=why, do=f"write it like {address}{DIGEST}<64 hex digits>")
    kept = blob(place, place.below(name), _sized(place, name, digest), tell)
    target = out / name
    out.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    _linked(kept, target)
    return target


def _sized(place: RemotePlace, name: str, digest: str) -> ArtifactFile:
    """The entry of a file that no manifest lists, with its size at that place."""
    try:
        return ArtifactFile(name, digest, int(place.system.size(place.below(name)) or 0))
    except Exception as error:
        raise _unreachable(f"{place.url}/{name}", _other_cause(error) or error) from error


def _fetch_folder(place: RemotePlace, content: bytes | None, digest: str, out: Path, tell: Tell, only: str = "") -> Path:
    where = f"{place.url}/{manifest.NAME}"
    if content is None:
        raise StoreError(f"there is no {where}", why=f"{INDEX} names it", do="publish it again")
    if digest and (found := hashlib.sha256(content).hexdigest()) != digest:
        raise StoreError(f"{where} is not the expected file", why=f"its sha256 is {found}, not {digest}")
    try:
        held = manifest.parse(content.decode(), where)
    except UnicodeDecodeError:
        raise UsageError("not a text file", where=where) from None
    if only not in ("", held.name):
        raise _another(place.url, only)
    kept = {item.path: blob(place, place.below(item.path), item, tell) for item in held.files}
    for program in held.programs:
        if trouble := mismatch(kept[program.file], program.form):
            raise StoreError(f"{place.url}: {program.file} {trouble}", why="its manifest says so", do="publish it again")
    return _assembled(held, content, kept, out)


def _assembled(held: ArtifactSet, content: bytes, kept: dict[str, Path], out: Path) -> Path:
    """Make the folder of `held` in `out` from cached files, completely or not at all."""
    folder = out / held.name
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=f".{held.name}.") as scratch:
            made = Path(scratch) / "made"
            for name, path in kept.items():
                target = made / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _linked(path, target)
            made.mkdir(exist_ok=True)
            (made / manifest.NAME).write_bytes(content)
            if folder.exists():
                if not (folder / manifest.NAME).exists():
                    raise UsageError(f"{folder} is in the way", why=f"it has no {manifest.NAME}", do="move it away, or name another folder")
                folder.rename(Path(scratch) / "before")
            made.rename(folder)
    except OSError as error:
        raise StoreError(f"cannot write {folder}", why=error.strerror or str(error), do="name another folder with -o") from error
    return folder


def _linked(path: Path, target: Path) -> None:
    """Hard-link a file to a second place; copy it if that is not possible."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def blob(place: RemotePlace, address: str, item: ArtifactFile, tell: Tell) -> Path:
    """A file by its content: from the cache, or fetched into it; a partial download is continued."""
    folder = cache() / "blobs"
    kept, part = folder / item.sha256, folder / f"{item.sha256}.part"
    if kept.is_file() and not manifest.trouble_of(folder, ArtifactFile(item.sha256, item.sha256, item.bytes)):
        return kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept.unlink(missing_ok=True)
        if part.exists() and part.stat().st_size > item.bytes:
            part.unlink()
        tell(f"{item.path}{' (continued)' if part.exists() else ''}")
        _download(place.system, address, item, part)
        digest = manifest.hashed(part)[1]
        if digest != item.sha256:
            part.unlink()
            why = f"its sha256 is {digest}, not {item.sha256}"
            raise StoreError(f"{place.url}: {item.path} is not the expected file", why=why, do="publish it again")
        part.chmod(0o444)
        part.replace(kept)
    except OSError as error:
        raise _unwritable(part, error) from error
    return kept


def _download(system: Any, address: str, item: ArtifactFile, part: Path) -> None:
    """Download the rest of a file; from the beginning if the server does not support ranges."""
    trouble = ""
    for _ in range(TRIES):
        try:
            for piece in _pieces(system, address, item, part):
                _append(part, piece)
        except FileNotFoundError:
            raise StoreError(f"there is no {address}", why="its manifest names it", do="publish it again") from None
        except StoreError:
            raise
        except Exception as error:  # each of fsspec's systems has its own exceptions
            trouble = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if part.exists() and part.stat().st_size >= item.bytes:
            return
    have = part.stat().st_size if part.exists() else 0
    why = f"{have} of {item.bytes} bytes arrived{f'; {trouble}' if trouble else ''}"
    raise StoreError(f"the download of {address} was cut", why=why, do="run the same command again: it continues from there")


def _append(part: Path, piece: bytes) -> None:
    """Write received data to disk; a full disk is not retried like a network error."""
    try:
        with part.open("ab") as file:
            file.write(piece)
    except OSError as error:
        raise _unwritable(part, error) from error


def _unwritable(part: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write {part}", why=error.strerror or str(error), do=f"free space there, or set {CACHE} to another folder")


def _pieces(system: Any, address: str, item: ArtifactFile, part: Path) -> Iterator[bytes]:
    have = part.stat().st_size if part.exists() else 0
    info = system.info(address)
    size = info.get("size")
    if size is not None and int(size) != item.bytes:
        raise StoreError(f"{address} has {size} bytes, not {item.bytes}", why="its manifest says so", do="publish it again")
    if item.bytes == 0:
        part.touch()
        return
    if info.get("partial", True) and size is not None:
        for begin in range(have, item.bytes, PIECE):
            end = min(begin + PIECE, item.bytes)
            piece = system.cat_file(address, start=begin, end=end)
            if len(piece) > end - begin:
                raise StoreError(f"{address} does not support ranges although its server says so")
            yield piece
            if len(piece) < end - begin:
                return
        return
    part.unlink(missing_ok=True)
    left = item.bytes
    with system.open(address, "rb", block_size=0) as file:
        while left > 0 and (piece := file.read(min(PIECE, left + 1))):
            left -= len(piece)
            if left < 0:
                raise StoreError(f"{address} has more than {item.bytes} bytes", why="its manifest says so")
            yield piece


def _fetch_archive(address: str, digest: str, out: Path, tell: Tell, only: str = "") -> list[Path]:
    """Fetch an archive of folders of artifacts; its hash must be given, because nothing else is known of it before it is unpacked."""
    if not digest:
        raise UsageError(
            f"{address} has no hash", why="an archive is fetched by its hash", do=f"write it like {address}{DIGEST}<64 hex digits>"
        )
    parent, _, name = address.rpartition("/")
    place = RemotePlace.at(parent or ".")
    kept = blob(place, place.below(name), _sized(place, name, digest), tell)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".unpacked.") as scratch:
        unpacking.unpack(kept, Path(scratch))
        found = sorted(path.parent for path in Path(scratch).rglob(manifest.NAME))
        if not found:
            raise StoreError(f"{address} has no artifacts", why=f"there is no {manifest.NAME} in it")
        made = []
        for folder in found:
            held = manifest.read(folder)
            if only not in ("", held.name):
                continue
            if troubles := manifest.check(folder, held):
                raise StoreError(f"{address}: {held.name} is damaged", why=troubles[0])
            made.append(
                _assembled(held, (folder / manifest.NAME).read_bytes(), {item.path: folder / item.path for item in held.files}, out)
            )
    if not made:
        raise _another(address, only)
    return made
