"""A store that a team shares: runs are at an address that fsspec supports (s3, gs, another folder), with a local copy of those used here.

    PLACE/runs/20260102T030405-k3f9ab-0c1d2e3f4a5b/run.jsonl, samples.bin, attachments/…
    PLACE/seals/20260102T030405-k3f9ab-0c1d2e3f4a5b.json    which files, with hashes, and what a list shows; written last

A run exists there once it has a seal object, which is created once and never changed. A run's name ends with a digest of its content, so
two writers use the same name only for the same content. A run that could not be sent stays here and is sent later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from steelyard import codec
from steelyard.artifacts.remote import READ_ONLY, RemotePlace
from steelyard.errors import StoreError, UsageError
from steelyard.files import CONFIG, RESULTS, limit, read_whole, sha256, too_large
from steelyard.store.disk import locked, trouble
from steelyard.store.listing import info_of, newest_first
from steelyard.store.runs import NAMED, Header, RunInfo, RunWriter, Store
from steelyard.terminal import warn

VARIABLE = "STEELYARD_SPOOL"
SENT = ".sent"
"""The file in a run's folder with the run's name in the shared store; a run without this file was never sent."""
BATCH = 64
OBJECTS = frozenset(("s3", "gs", "abfs", "az"))
TRIES, ATTEMPTS = 2, "AWS_MAX_ATTEMPTS"
NO_BUCKET = "NoSuchBucket"
"""S3's error for a bucket that does not exist; for a folder without objects it reports no such error."""
PATIENCE, SLOWEST = 60.0, 100_000
"""Time limit of a write, after which the store counts as unreachable: seconds, and bytes per second added for its size."""
_NAME = re.compile(r"(\d{8}T\d{6}-[a-z0-9]{4,20})-([0-9a-f]{12})")
_FILES = re.compile(r"run\.jsonl|samples\.bin|attachments/[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class SentFile:
    """One file of a run in the shared store."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class SealObject:
    """The seal object of a run: its files, and what a list shows about it."""

    files: dict[str, SentFile]
    id: str
    created: str
    counts: dict[str, int] = field(default_factory=dict)
    experiment: str = ""
    fingerprint: str = ""
    machine_key: str = ""
    command: list[str] = field(default_factory=list)
    schema: int = 1

    @property
    def digest(self) -> str:
        """The digest of the files, with which the run's name ends."""
        lines = [f"{path} {file.sha256} {file.bytes}\n" for path, file in sorted(self.files.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


class SharedStore(Store):
    """A shared store: runs are made in a local folder of this user and sent when they are sealed; other runs are fetched when needed."""

    shortest_id = 6

    def __init__(self, url: str, root: Path) -> None:
        super().__init__(root)
        self.url = url
        self._seals: dict[str, SealObject] | None = None

    @property
    def place(self) -> str:
        return self.url

    @classmethod
    def at(cls, url: str) -> SharedStore:
        """The store at an address, with its folder on this disk."""
        plain = url if re.fullmatch(r"\w+:/*", url) else url.rstrip("/")
        home = (
            os.environ.get(VARIABLE) or Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "steelyard" / "stores"
        )
        words = re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-")[-40:]
        return cls(plain, Path(home) / f"{words}-{hashlib.sha256(plain.encode()).hexdigest()[:12]}")

    def create(self, header: Header) -> RunWriter:
        """Begin a run that can be sent when it ends: an address that cannot be written to is refused before anything is measured."""
        place = _reached(self.url)
        if self.url.partition(":")[0] in READ_ONLY:
            raise UsageError(
                f"cannot send runs to {self.url}", why="http addresses are read-only", do="give a folder, or an s3 or gs address"
            )
        if not place.path.strip("/"):
            raise UsageError(
                f"the address {self.url} is incomplete", why="it has no bucket or folder", do="write it like s3://our-team/steelyard"
            )
        return super().create(header)

    def runs(self) -> list[RunInfo]:
        """All runs, including those that are only in the shared store."""
        here = {path.name for path in self.held()}
        away = [self._info(name, seal) for name, seal in self.sealed().items()]
        return newest_first([*(info_of(path) for path in self.held()), *(info for info in away if info.path.name not in here)])

    def folders(self) -> list[Path]:
        """The folders of all runs, with every run.jsonl fetched; samples and attachments are fetched when a run is opened."""
        here, most = {path.name for path in self.held()}, limit(RESULTS)
        away = {name: seal.files["run.jsonl"].bytes for name, seal in self.sealed().items() if self._folder(name).name not in here}
        if large := [name for name, size in away.items() if size > most]:
            more = f", and so are {len(large) - 1} more" if large[1:] else ""
            warn(f"{large[0]} at {self.url} is too large to read and is skipped{more}")
        self._fetch_lines([name for name, size in away.items() if size <= most])
        return self.held()

    def at_hand(self, folder: Path) -> Path:
        """The folder of a run, with all of its files fetched."""
        for name, seal in self.sealed().items():
            if folder.name.startswith(name.rpartition("-")[0]) and self._folder(name) == folder:
                self._fetch(name, seal, folder)
        return folder

    def settle(self) -> None:
        """Send waiting runs; if that fails they keep waiting, and the results are safe here."""
        try:
            self.send()
        except StoreError as error:
            count = sum(1 for _ in self.waiting())
            runs = "1 run is" if count == 1 else f"{count} runs are"
            why = " ".join((error.why or error.what).split())
            warn(
                f"{runs} kept here and not yet sent to {self.url} ({why}); they go with the next run, or: steelyard sync --store {self.url}"
            )

    def waiting(self) -> Iterator[Path]:
        """The runs that ended here and were not sent yet."""
        for folder in self.held():
            if not (folder / SENT).exists() and info_of(folder).sealed:
                yield folder

    def send(self) -> list[str]:
        """Send every waiting run and return their ids. Only one process sends at a time; a second one then finds nothing to send."""
        self._prepare()
        with locked(self.root / "seals"):
            return [self._send(folder) for folder in list(self.waiting())]

    def sealed(self) -> dict[str, SealObject]:
        """The runs in the shared store by name, listed only once; without a network, those that were fetched before."""
        if self._seals is None:
            self._prepare()
            try:
                self._learn()
            except StoreError as error:
                if not any((self.root / "seals").glob("*.json")) and not self.held():
                    raise
                warn(f"{self.url} cannot be reached, so only runs fetched before are listed: {' '.join((error.why or error.what).split())}")
            self._seals = dict(self._known())
        return self._seals

    def _send(self, folder: Path) -> str:
        info, place = info_of(folder), _reached(self.url)
        files = {name: _hashed(folder / name) for name in _names(folder)}
        seal = SealObject(files, info.id, info.created, info.counts, info.experiment, info.fingerprint, info.machine_key, info.command)
        name = f"{folder.name}-{seal.digest}"
        with _reaching(f"cannot send run {info.id} to {self.url}"):
            for path, file in files.items():
                target = place.below(f"runs/{name}/{path}")
                _prepared(place, target)
                place.system.put_file(str(folder / path), target, **_within(place, file.bytes))
                place.system.invalidate_cache()
                if (size := int(place.system.size(target) or 0)) != file.bytes:
                    raise StoreError(f"{target} was not sent whole", why=f"it has {size} bytes there, not {file.bytes}")
            self._seal(place, f"seals/{name}.json", codec.encode(seal) + b"\n")
        _put(self.root / "seals" / f"{name}.json", codec.encode(seal))
        _put(folder / SENT, name.encode())
        return info.id

    def _seal(self, place: RemotePlace, path: str, content: bytes) -> None:
        """Create the seal object; an existing one has the same content, since its name has the digest, unless its writer was
        interrupted."""
        _prepared(place, place.below(path))
        try:
            place.system.pipe_file(place.below(path), content, mode="create", **_within(place, len(content)))
        except FileExistsError:
            if place.whole(path, CONFIG) != content:
                place.system.pipe_file(place.below(path), content, **_within(place, len(content)))

    def _learn(self) -> None:
        """Fetch the new seal objects; an unreadable one is skipped, since it may not be complete yet."""
        place = _reached(self.url)
        with _reaching(f"cannot read {self.url}"):
            place.system.invalidate_cache()
            try:
                listed = place.system.ls(place.below("seals"), detail=True)
            except FileNotFoundError as error:
                if NO_BUCKET in str(error.__cause__):
                    raise StoreError(
                        f"cannot read {self.url}", why="there is no such bucket", do="check the address, or create it"
                    ) from None
                listed = []
            small = [item["name"] for item in listed if (item.get("size") or 0) <= limit(CONFIG)]
            new = [path for path in small if not (self.root / "seals" / Path(path).name).exists() and _NAME.fullmatch(Path(path).stem)]
            for start in range(0, len(new), BATCH):
                found = place.system.cat(new[start : start + BATCH], on_error="omit")
                found = found if isinstance(found, dict) else {new[start]: found}
                for path, content in found.items():
                    with contextlib.suppress(StoreError):
                        _parse(Path(path).stem, content)
                        _put(self.root / "seals" / Path(path).name, content)

    def _known(self) -> Iterator[tuple[str, SealObject]]:
        for path in sorted((self.root / "seals").glob("*.json")):
            with contextlib.suppress(StoreError, OSError):
                yield path.stem, _parse(path.stem, read_whole(path, CONFIG))

    def _folder(self, name: str) -> Path:
        """The local folder of a run in the shared store; a second run of the same second and id has its digest appended to the name."""
        found = _NAME.fullmatch(name)
        assert found is not None
        plain = self.folder / found[1]
        with contextlib.suppress(OSError):
            if (plain / SENT).read_bytes() == name.encode():
                return plain
        return self.folder / f"{found[1]}{found[2]}" if plain.exists() else plain

    def _info(self, name: str, seal: SealObject) -> RunInfo:
        shown = (seal.counts, seal.experiment, seal.fingerprint, seal.machine_key)
        return RunInfo(seal.id, seal.created, self._folder(name), True, *shown, command=seal.command)

    def _fetch_lines(self, names: list[str]) -> None:
        place, seals = _reached(self.url) if names else None, self.sealed()
        for start in range(0, len(names) if place else 0, BATCH):
            assert place is not None
            wanted = {place.below(f"runs/{name}/run.jsonl"): name for name in names[start : start + BATCH]}
            with _reaching(f"cannot fetch runs from {self.url}"):
                found = place.system.cat(list(wanted))
            for path, content in (found if isinstance(found, dict) else {next(iter(wanted)): found}).items():
                name = wanted[path]
                self._keep(name, {"run.jsonl": content}, seals[name])

    def _fetch(self, name: str, seal: SealObject, folder: Path) -> None:
        missing = [path for path in seal.files if not (folder / path).exists()]
        place = _reached(self.url)
        for path in sorted(missing, key="run.jsonl".__ne__):
            if path == "run.jsonl" and seal.files[path].bytes > limit(RESULTS):
                raise too_large(f"{self.url}/runs/{name}/{path}", seal.files[path].bytes, limit(RESULTS))
            with _reaching(f"cannot fetch run {seal.id} from {self.url}"):
                content = bytes(place.system.cat_file(place.below(f"runs/{name}/{path}")))
            self._keep(name, {path: content}, seal)

    def _keep(self, name: str, contents: dict[str, bytes], seal: SealObject) -> None:
        """Save fetched files of a run, after checking them against the hashes in the seal object."""
        for path, content in contents.items():
            expected = seal.files[path]
            if (len(content), hashlib.sha256(content).hexdigest()) != (expected.bytes, expected.sha256):
                why = "its content does not have the hash in its seal"
                raise StoreError(f"{self.url}/runs/{name}/{path} is damaged or was changed", why=why, do="ask those who can write there")
            folder = self._folder(name)
            try:
                if path == "run.jsonl":
                    with tempfile.TemporaryDirectory(dir=self.folder, prefix=".new-") as scratch:
                        made = Path(scratch) / "run"
                        made.mkdir()
                        _put(made / SENT, name.encode())
                        _put(made / path, content)
                        with contextlib.suppress(FileExistsError):
                            made.rename(folder)
                else:
                    (folder / path).parent.mkdir(exist_ok=True)
                    _put(folder / path, content)
            except OSError as error:
                raise trouble("keep a fetched run", folder, error, option=f"{VARIABLE}=DIR instead of") from error

    def _prepare(self) -> None:
        try:
            (self.root / "seals").mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise trouble("keep runs of the shared store", self.root, error, option=f"{VARIABLE}=DIR instead of") from error


def _reached(url: str) -> RemotePlace:
    """Connect to the shared store, with only a few retries, since runs that cannot be sent now are sent later."""
    place = RemotePlace.at(url)
    if hasattr(place.system, "config_kwargs") and hasattr(place.system, "retries"):
        place.system.retries = TRIES
        if ATTEMPTS not in os.environ:
            place.system.config_kwargs.setdefault("retries", {"total_max_attempts": TRIES})
    return place


def _within(place: RemotePlace, size: int) -> dict[str, float]:
    """Options with the time limit for writing so many bytes: S3's client would wait forever for a server that does not respond."""
    from fsspec.asyn import AsyncFileSystem

    return {"timeout": PATIENCE + size / SLOWEST} if isinstance(place.system, AsyncFileSystem) else {}


def _prepared(place: RemotePlace, target: str) -> None:
    """Create the folder of a file, except in object stores, which have none: it would cost requests and may need rights."""
    spoken = place.system.protocol
    if not OBJECTS & {*((spoken,) if isinstance(spoken, str) else spoken)}:
        place.system.makedirs(target.rpartition("/")[0], exist_ok=True)


@contextlib.contextmanager
def _reaching(what: str) -> Iterator[None]:
    """Turn any failure of the shared store into a StoreError; each of fsspec's file systems has its own exceptions."""
    try:
        yield
    except (StoreError, KeyboardInterrupt):
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise StoreError(what, why=why, do="check the address, the rights and the network") from error


def _parse(name: str, content: bytes) -> SealObject:
    """Check a seal object: only plain names, which cannot lead out of a folder, and the digest in its name."""
    try:
        seal = msgspec.json.decode(content, type=SealObject)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(f"{name} is not a seal of a run", why=str(error)) from None
    plain = all(_FILES.fullmatch(path) and _DIGEST.fullmatch(file.sha256) and file.bytes >= 0 for path, file in seal.files.items())
    found = _NAME.fullmatch(name)
    if not plain or not found or "run.jsonl" not in seal.files or found[2] != seal.digest or not NAMED.fullmatch(found[1]):
        raise StoreError(f"{name} is not a seal of a run", why="its files or its name are not as Steelyard writes them")
    return seal


def _names(folder: Path) -> list[str]:
    """The names of a run's files to send."""
    attached = [f"attachments/{path.name}" for path in sorted((folder / "attachments").glob("*"))]
    found = ["run.jsonl", "samples.bin", *attached]
    return [name for name in found if _FILES.fullmatch(name) and (folder / name).is_file() and not (folder / name).is_symlink()]


def _hashed(path: Path) -> SentFile:
    try:
        return SentFile(sha256(path), path.stat().st_size)
    except OSError as error:
        raise trouble("read the run", path, error) from error


def _put(path: Path, content: bytes) -> None:
    """Write a small file atomically."""
    fresh = path.with_name(f".{path.name[:100]}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)
