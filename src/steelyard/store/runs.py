"""Runs on disk: one folder each, one line per result, written at once, so that a kill at any moment loses at most the running case.

Files are synced to disk at most ten times a second, so only a power failure can lose more: the results since the last sync.

.steelyard/runs/20260102T030405-k3f9/run.jsonl       {"header": …} then {"record": …} and {"pair": …}, then {"seal": …}
                                     samples.bin     raw samples, see `samples`
                                     attachments/    traces, logs, profiles
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import re
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steelyard import codec
from steelyard.codec.shapes import MachineShape, check_shape, within_reach
from steelyard.errors import StoreError, UsageError
from steelyard.files import LINE, RESULTS, check_values, expanded, limit, read_whole, too_large
from steelyard.model.pair import Pair
from steelyard.model.record import SCHEMA, Arrays, Attachment, Record, Series, altered
from steelyard.store import proof, samples, seals, sources
from steelyard.store.disk import locked, open_to_write, sync_folder, trouble, write_whole
from steelyard.store.moments import FUTURE, ahead, stamped
from steelyard.store.moments import moment as moment
from steelyard.store.moments import now as now
from steelyard.store.paths import inside
from steelyard.store.seals import UNSEALED, Loss, Seal

if TYPE_CHECKING:
    import numpy as np

Kept = TypeVar("Kept", Record, Pair)
FOLDER = ".steelyard"
VARIABLE = "STEELYARD_STORE"
SYNC_EVERY = 0.1
ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
NAMED = re.compile(r"(\d{8}T\d{6})-([a-z0-9]+)")
_ID = re.compile(r"[A-Za-z0-9_.-]{0,64}")


@dataclass(frozen=True)
class Header:
    """What all results of a run share; the store sets `id`, and `created` if it is empty. `env` is the requested environment's name.

    `farm` is the value of `--on`, if other machines measured: then each record has its own machine key. If the cases were taken from a
    recorded step, `weights` are its calls by case id, and `recorded` is how long that step took.
    """

    id: str = ""
    created: str = ""
    version: str = ""
    command: list[str] = field(default_factory=list)
    experiment: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    cases: list[str] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    env: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    machine_key: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    recorded: float | None = None
    parent: str | None = None
    farm: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True)
class RunInfo:
    """The summary of a run for a list; a run that cannot be read is listed too, with the reason."""

    id: str
    created: str
    path: Path
    sealed: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    experiment: str = ""
    fingerprint: str = ""
    machine_key: str = ""
    warning: str = ""
    readable: bool = True
    command: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """A run read whole; `path` is its folder, `size` how many bytes of its file are valid, `loss` what is missing according to its seal."""

    path: Path
    header: Header
    records: tuple[Record, ...] = ()
    pairs: tuple[Pair, ...] = ()
    seal: Seal | None = None
    warnings: tuple[str, ...] = ()
    size: int = 0
    loss: Loss = UNSEALED

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def proven(self) -> bool:
        """Whether this user wrote the run to its end, and no line was changed since."""
        return self.seal is not None and not self.loss.changed and proof.holds(self.seal.digest, self.seal.proof)

    def array(self, series: Series) -> np.ndarray[Any, Any]:
        """The raw samples of one series."""
        return samples.read(self.path / "samples.bin", series)

    def attachment(self, item: Attachment) -> Path:
        """The path of an attached file; a path that leads out of the run is refused."""
        return inside(self.path, item.path, "attachment")


def read_run(folder: Path) -> Run:
    """Read every valid line of a run; an incomplete last line and damaged lines are warnings, a missing header is an error."""
    file = folder / "run.jsonl"
    try:
        return _parse(folder, read_whole(file, RESULTS))
    except OSError as error:
        raise trouble("read the run", file, error) from error


def _parse(folder: Path, data: bytes) -> Run:
    file = folder / "run.jsonl"
    lines = data.split(b"\n")
    found: dict[str, list[Any]] = {"header": [], "record": [], "pair": [], "seal": []}
    warnings: list[str] = []
    size = data.rfind(b"\n") + 1
    start, sealed_at, most = 0, (0, 0), limit(LINE)
    for number, line in enumerate(lines, 1):
        here, start = start, start + len(line) + 1
        if not line.strip():
            continue
        torn = number == len(lines)
        try:
            name, value = read_line(line, most)
        except StoreError as error:
            if number == 1:
                raise StoreError("the run has no readable header", why=error.why or error.what, do=error.do, where=f"{file}:1") from None
            cut = "is cut off: the run was interrupted there, or is still being written"
            what = cut if torn else f"was skipped: {' '.join(str(error).split())}"
            warnings.append(f"{file}:{number} {what}")
            continue
        found[name].append(value)
        sealed_at = (here, start) if name == "seal" else sealed_at
        size = len(data) if torn else size
    if not found["header"]:
        raise StoreError("the run has no readable header", why="the file is empty or begins with something else", where=f"{file}:1")
    records, pairs, loss = tuple(found["record"]), tuple(found["pair"]), UNSEALED
    seal = found["seal"][-1] if found["seal"] else None
    warnings[:0] = [f"{file}: {line}" for line in sources.mixed(found["header"][0].sources, records)]
    if seal:
        loss = seals.compare(seal, len(records), len(pairs), data[: sealed_at[0]], data[sealed_at[1] :])
        warnings[:0] = [f"{file}: {line}" for line in seals.told(seal, loss)]
    return Run(folder, found["header"][0], records, pairs, seal, tuple(warnings), size, loss)


_KINDS: dict[str, type] = {"header": Header, "record": Record, "pair": Pair, "seal": Seal}


def read_line(line: bytes, most: int) -> tuple[str, Any]:
    if len(line) > most:
        raise too_large("the line", len(line), most)
    check_values(line, most, "the line")
    try:
        whole = msgspec.json.decode(line, type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError("not a line of a run", why=str(error)) from None
    name = next(iter(whole), "")
    if len(whole) != 1 or name not in _KINDS:
        raise StoreError("not a line of a run", why=f"expected one of {', '.join(_KINDS)}")
    value: Any = codec.decode(_KINDS[name], whole[name], checked=within_reach(line))
    if isinstance(value, Header):
        if not _ID.fullmatch(value.id):
            raise StoreError("not a readable header", why=f"no run has the id {value.id[:40]!a}")
        check_shape("header", value.machine, MachineShape)
    return name, value


class RunWriter:
    """The only writer of a run: locked while open, one durable line per result.

    `own` means that this user wrote every line, so that the seal may have a proof; for a resumed run the caller must set it.
    """

    def __init__(self, fd: int, run: Run, held: bytes = b"") -> None:
        self.path, self.header = run.path, run.header
        self._lines_file, self._samples_file = run.path / "run.jsonl", run.path / "samples.bin"
        self.done = {record.id: record for record in run.records}
        self.pairs = list(run.pairs)
        self.warnings = list(run.warnings)
        self._counts: Counter[str] = Counter(record.status for record in run.records)
        self._fd, self._end, self._digest = fd, run.size, hashlib.sha256(held)
        self._samples: int | None = None
        self._samples_end = 0
        self._sealed = False
        self._synced, self._unsynced = -math.inf, False
        self.own = not held

    @property
    def id(self) -> str:
        return self.header.id

    def begin(self) -> None:
        """Write the header, and sync it and the folder to disk before anything is measured."""
        self._write("header", self.header)
        sync_folder(self.path)
        sync_folder(self.path.parent)

    def append(self, record: Record, arrays: Arrays | None = None) -> Record:
        """Write one result."""
        record = self._add("record", record, arrays)
        self.done[record.id] = record
        self._counts[record.status] += 1
        return record

    def append_pair(self, pair: Pair, arrays: Arrays | None = None) -> Pair:
        """Write one comparison."""
        pair = self._add("pair", pair, arrays)
        self.pairs.append(pair)
        return pair

    def _add(self, name: str, item: Kept, arrays: Arrays | None) -> Kept:
        """Write the samples first and then the line, so that a line never refers to missing samples."""
        sync = self._sync_is_due()
        kept, end = self._keep(arrays or {}, sync)
        item = altered(item, samples=kept) if arrays else item
        self._write(name, item, sync=sync)
        self._samples_end = end
        return item

    def attach(self, kind: str, name: str, data: bytes) -> Attachment:
        """Keep a file beside the results, under a name that cannot lead out of the folder."""
        folder = inside(self.path, "attachments", "the folder of attachments")
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("._-") or "file"
        stem, suffix = Path(plain).stem[:60], Path(plain).suffix[:20]
        try:
            folder.mkdir(exist_ok=True)
            for number in range(1, 10000):
                path = folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
                with contextlib.suppress(FileExistsError):
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                    break
            else:
                raise StoreError(f"too many attachments named {plain!r}", why=str(folder))
        except OSError as error:
            raise trouble("keep the attachment", folder, error) from error
        try:
            write_whole(fd, data, 0, path)
        except StoreError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        return Attachment(kind, f"attachments/{path.name}", hashlib.sha256(data).hexdigest())

    def seal(self, reason: str = "complete") -> Seal:
        """Close the run for good; nothing can be added afterwards."""
        digest = self._digest.hexdigest()
        seal = Seal(
            now(), self._counts.total(), dict(self._counts), len(self.pairs), reason, self._end, digest,
            proof.sign(digest) if self.own else "",
        )  # fmt: skip
        self._write("seal", seal)
        self._sealed = True
        return seal

    def sync(self) -> None:
        """Wait for the disk, so that everything written so far survives a power failure."""
        if self._unsynced:
            for fd in (self._samples, self._fd):
                if fd is not None and fd >= 0:
                    try:
                        os.fsync(fd)
                    except OSError as error:
                        raise trouble("write results", self.path, error) from error
            self._synced, self._unsynced = time.monotonic(), False

    def close(self) -> None:
        """Release the lock; an unsealed run can be resumed."""
        for fd in (self._samples, self._fd):
            if fd is not None and fd >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(fd)
                os.close(fd)
        self._fd, self._samples = -1, None

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync_is_due(self) -> bool:
        """Whether to wait for the disk now: not for each of thousands of cases, since a written line survives this process."""
        now = time.monotonic()
        if now - self._synced < SYNC_EVERY:
            return False
        self._synced = now
        return True

    def _write(self, name: str, value: Any, *, sync: bool = True) -> None:
        if self._sealed or self._fd < 0:
            raise StoreError(f"run {self.id} is {'sealed' if self._sealed else 'closed'}", do="start a new run")
        line = b'{"%s":%s}\n' % (name.encode(), codec.encode(value))
        if sync and self._unsynced and self._samples is not None:
            os.fsync(self._samples)
        self._end = write_whole(self._fd, line, self._end, self._lines_file, sync=sync)
        self._unsynced = not sync
        self._digest.update(line)

    def _keep(self, arrays: Arrays, sync: bool) -> tuple[list[Series], int]:
        if not arrays or self._sealed or self._fd < 0:
            return [], self._samples_end
        if self._samples is None:
            self._samples = open_to_write(inside(self.path, "samples.bin", "the file of raw samples"), "write samples")
            self._samples_end = os.fstat(self._samples).st_size
        series, data = samples.pack(arrays, self._samples_end)
        return series, write_whole(self._samples, data, self._samples_end, self._samples_file, sync=sync)


class Store:
    """A `.steelyard` folder: makes runs, finds them, reads them."""

    shortest_id = 4

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    @classmethod
    def find(cls, start: Path | None = None, explicit: str | None = None) -> Store:
        """The named store, else the one in STEELYARD_STORE, else the nearest in this folder or above, else a new one here."""
        if named := explicit or os.environ.get(VARIABLE):
            if "://" in named:
                from steelyard.store.shared import SharedStore

                return SharedStore.at(named)
            return cls(expanded(named, "the store").absolute())
        here = (start or Path.cwd()).absolute()
        nearest = next((folder / FOLDER for folder in (here, *here.parents) if (folder / FOLDER).is_dir()), None)
        return cls(nearest or here / FOLDER)

    @property
    def folder(self) -> Path:
        return self.root / "runs"

    @property
    def place(self) -> str:
        """The location of its runs, for messages."""
        return str(self.root)

    def create(self, header: Header) -> RunWriter:
        """Begin a run: a folder of its own, locked, with the header on the disk."""
        created = header.created or now()
        stamp = datetime.fromisoformat(created).astimezone(UTC).strftime("%Y%m%dT%H%M%S")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                id = self._free_id(header.id)
                folder = self.folder / f"{stamp}-{id}"
                folder.mkdir()
                fd = os.open(folder / "run.jsonl", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise trouble("create the run", self.root, error) from error
        late = [path.name for path in self.held() if (named := NAMED.fullmatch(path.name)) and ahead(stamped(named[1]))]
        told = [f"run {name.rpartition('-')[2]} {FUTURE}" for name in late[-1:]]
        writer = RunWriter(fd, Run(folder, replace(header, id=id, created=created), warnings=tuple(told)))
        try:
            writer.begin()
        except StoreError:
            writer.close()
            with contextlib.suppress(OSError):
                (folder / "run.jsonl").unlink()
                folder.rmdir()
            raise
        return writer

    def resume(self, fingerprint: str | None = None, ref: str | None = None) -> RunWriter | None:
        """Continue an unsealed run: the one named, or the newest with this fingerprint that no process is writing."""
        if ref is not None:
            from steelyard.store.refs import locate

            return _reopen(locate(self, ref), fingerprint)
        for info in self.runs():
            if info.readable and not info.sealed and fingerprint in (None, info.fingerprint):
                with contextlib.suppress(StoreError, UsageError):
                    return _reopen(info.path, fingerprint)
        return None

    def folders(self) -> list[Path]:
        """The folders of all runs in name order, which is the order of their times."""
        return self.held()

    def at_hand(self, folder: Path) -> Path:
        """The folder of a listed run, with all of its files in it."""
        return folder

    def settle(self) -> None:
        """Called when a run has ended; a shared store sends it."""

    def held(self) -> list[Path]:
        """The run folders on this disk, in name order."""
        try:
            return sorted(path for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise trouble("read the store", self.root, error) from error

    def runs(self) -> list[RunInfo]:
        """All runs, newest first, and those dated in the future last, since a wrong clock would otherwise keep its run the latest.

        A run that cannot be read does not make the list fail.
        """
        from steelyard.store.listing import info_of, newest_first

        return newest_first(info_of(folder) for folder in self.held())

    def open(self, ref: str | Path | RunInfo) -> Run:
        """Read one run, by reference, by folder or from the list."""
        if isinstance(ref, str):
            from steelyard.store.refs import locate

            return read_run(locate(self, ref))
        return read_run(self.at_hand(ref.path) if isinstance(ref, RunInfo) else ref)

    def _free_id(self, wanted: str) -> str:
        taken = {path.name.rpartition("-")[2] for path in self.held()}
        if wanted and (wanted in taken or not re.fullmatch(r"[a-z0-9]{4,12}", wanted)):
            raise StoreError(f"run id {wanted!r} is taken or not an id", do="leave the id empty to get a new one")
        length = self.shortest_id
        while not wanted or wanted in taken:
            tries = (("".join(secrets.choice(ALPHABET) for _ in range(length))) for _ in range(8))
            wanted = next((id for id in tries if id not in taken), "")
            length += 1
        return wanted


def _reopen(folder: Path, fingerprint: str | None) -> RunWriter:
    file = folder / "run.jsonl"
    fd = open_to_write(file, "resume the run", create=0)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"run {folder.name} is being written by another process", do="wait for it, or start a new run") from None
        data = read_whole(file, RESULTS)
        run = _parse(folder, data)
        if run.seal:
            raise UsageError(f"run {run.id} is sealed", why=f"it ended at {run.seal.time}", do="measure again in a new run")
        if fingerprint is not None and run.header.fingerprint != fingerprint:
            why = "its cases, settings, code or machine differ from those of this command"
            raise UsageError(f"run {run.id} is another experiment", why=why, do="repeat its own command, or start a new run")
        beside = inside(folder, "samples.bin", "the file of raw samples")
        kept = beside.stat().st_size if beside.exists() else 0
        if samples.extent(chain(*(item.samples for item in run.records), *(item.samples for item in run.pairs))) > kept:
            raise StoreError(f"run {run.id} cannot be continued", why="samples.bin is shorter than its records say", do="start a new run")
        if run.size == len(data) and not data.endswith(b"\n"):
            run, data = replace(run, size=write_whole(fd, b"\n", len(data), file)), data + b"\n"
        os.ftruncate(fd, run.size)
        return RunWriter(fd, run, data[: run.size])
    except OSError as error:
        os.close(fd)
        raise trouble("resume the run", file, error) from error
    except BaseException:
        os.close(fd)
        raise
