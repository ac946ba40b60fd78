"""An index of all records of a store, so that history does not read every file each time.

The run files are the truth and this is a cache: it is made by readers, may be deleted at any moment, and is
replaced when it is damaged, of another version, or has other tables than ours. If it cannot be written, it is kept in memory.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from steelyard.errors import StoreError
from steelyard.store.disk import locked
from steelyard.store.moments import PATIENCE_S
from steelyard.store.runs import Run, Store, moment, read_run

R = TypeVar("R")

VERSION = 2
_TIMEOUT = 30.0
_FEW = 200
_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE runs (folder TEXT PRIMARY KEY, size INTEGER, mtime INTEGER, machine_key TEXT) WITHOUT ROWID;
CREATE TABLE records (
    folder TEXT, number INTEGER, run TEXT, case_id TEXT, status TEXT, time REAL, low REAL, high REAL, created TEXT, moment REAL,
    PRIMARY KEY (folder, number)
) WITHOUT ROWID;
CREATE INDEX by_case ON records (case_id, moment);
PRAGMA user_version = {VERSION};
COMMIT;
"""
_SCHEMA = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name"
_LONGEST = 64 << 20
_COLUMNS = "folder, number, run, case_id, status, time, low, high, created"


@dataclass(frozen=True)
class Entry:
    """One record in the index: where it is, and its time in seconds."""

    folder: str
    number: int
    run: str
    case_id: str
    status: str
    time: float | None
    low: float | None
    high: float | None
    created: str


def _entry(row: tuple[Any, ...]) -> Entry:
    texts, number, times = (row[0], *row[2:5], row[8]), row[1], row[5:8]
    plain = all(isinstance(text, str) for text in texts) and "/" not in row[0] and row[0] not in ("", ".", "..")
    if not plain or not isinstance(number, int) or not all(time is None or isinstance(time, (int, float)) for time in times):
        raise sqlite3.DatabaseError("a row Steelyard never writes")
    return Entry(*row)


class Index:
    """Lookups by case over all runs of a store, as they were at the last `refresh`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = store.root / "index.sqlite"
        self._base: sqlite3.Connection | None = None
        self._fresh = 0

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._base is not None:
            self._base.close()
        self._base = None

    def refresh(self) -> int:
        """Bring the index up to date with the files; returns how many runs were read."""
        self._fresh = 0
        self._trying(self._update)
        return self._fresh

    def latest(self, case_id: str) -> Entry | None:
        """The newest record of a case, and one dated in the future only if there is no other."""
        order = "moment > ?, moment DESC, folder DESC, number DESC"
        return next(iter(self._entries(f"case_id = ? ORDER BY {order} LIMIT 1", case_id, time.time() + PATIENCE_S)), None)

    def series(self, case_id: str) -> list[Entry]:
        """Every record of a case, oldest first: its history."""
        return self._entries("case_id = ? ORDER BY moment, folder, number", case_id)

    def every_series(self, cases: Collection[str] | None = None) -> dict[str, list[Entry]]:
        """The history of many cases at once, or of all cases, each oldest first."""
        if cases is not None and len(cases) <= _FEW:
            return {case: found for case in cases if (found := self.series(case))}
        wanted, known = None if cases is None else set(cases), dict[str, list[Entry]]()
        for entry in self._entries("1 ORDER BY case_id, moment, folder, number"):
            if wanted is None or entry.case_id in wanted:
                known.setdefault(entry.case_id, []).append(entry)
        return known

    def machines(self) -> dict[str, str]:
        """The comparability key of the machine of each run, by its folder."""
        return dict(self._trying(lambda base: base.execute("SELECT folder, machine_key FROM runs").fetchall()))

    def find(self, prefix: str) -> list[str]:
        """Case ids that begin with a text."""
        query = "SELECT DISTINCT case_id FROM records WHERE substr(case_id, 1, ?) = ? ORDER BY case_id"
        return [row[0] for row in self._trying(lambda base: base.execute(query, (len(prefix), prefix)).fetchall())]

    def _entries(self, where: str, *values: Any) -> list[Entry]:
        query = f"SELECT {_COLUMNS} FROM records WHERE {where}"
        return self._trying(lambda base: [_entry(row) for row in base.execute(query, values).fetchall()])

    def _trying(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Call `work` with the index file; with a new file if that one is damaged; with an index in memory if files cannot be used."""
        try:
            self._base = self._base or self._open()
            return work(self._base)
        except (sqlite3.OperationalError, OSError):
            self.close()
        except sqlite3.DatabaseError:
            self.close()
            try:
                self._base = self._open(anew=True)
                return work(self._base)
            except (sqlite3.Error, OSError):
                self.close()
        self._base = self._filled(":memory:")
        return work(self._base)

    def _open(self, anew: bool = False) -> sqlite3.Connection:
        """Open the index file, or a new one if it is not ours or with `anew`; locked, so two readers never replace each other's."""
        with locked(self.store.root):
            if self.path.is_symlink() or self.path.is_fifo():
                self.path.unlink()
            base = _connect(str(self.path))
            try:
                if not anew and _ours(base):
                    return base
            except sqlite3.OperationalError:
                base.close()
                raise
            except sqlite3.DatabaseError:
                pass
            base.close()
            for end in ("", "-journal", "-wal", "-shm"):
                self.path.with_name(self.path.name + end).unlink(missing_ok=True)
            return self._filled(str(self.path))

    def _filled(self, place: str) -> sqlite3.Connection:
        base = _connect(place)
        try:
            base.executescript(_TABLES)
            self._update(base)
        except sqlite3.Error:
            base.close()
            raise
        return base

    def _update(self, base: sqlite3.Connection) -> None:
        known = {row[0]: (row[1], row[2]) for row in base.execute("SELECT folder, size, mtime FROM runs")}
        found = dict(self._sizes())
        changed = [folder for folder, size in found.items() if known.get(folder) != size]
        gone = [folder for folder in known if folder not in found]
        if not changed and not gone:
            return
        runs: list[tuple[Any, ...]] = []
        records: list[tuple[Any, ...]] = []
        for folder in changed:
            run = _read(self.store.folder / folder)
            runs.append((folder, *found[folder], run.header.machine_key if run else ""))
            records += [(*vars(entry).values(), moment(entry.created)) for entry in entries_of(run, folder)] if run else []
        base.execute("BEGIN IMMEDIATE")
        try:
            for table in ("runs", "records"):
                base.executemany(f"DELETE FROM {table} WHERE folder = ?", [(folder,) for folder in (*changed, *gone)])
            base.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", runs)
            base.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", records)
            base.execute("COMMIT")
        except sqlite3.Error:
            if base.in_transaction:
                base.execute("ROLLBACK")
            raise
        self._fresh += len(changed)

    def _sizes(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for folder in self.store.folders():
            with contextlib.suppress(OSError):
                stat = (folder / "run.jsonl").stat()
                yield folder.name, (stat.st_size, stat.st_mtime_ns)


def _connect(place: str) -> sqlite3.Connection:
    """A connection for an untrusted file: no functions from its schema, no value longer than any of ours."""
    base = sqlite3.connect(place, timeout=_TIMEOUT, isolation_level=None)
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    base.execute("PRAGMA trusted_schema = OFF")
    return base


def _ours(base: sqlite3.Connection) -> bool:
    """Whether a file has our tables and nothing else: a foreign view or trigger would run inside our queries."""
    if base.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        return False
    return base.execute(_SCHEMA).fetchmany(len(_made()) + 1) == _made()


@functools.cache
def _made() -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        base.executescript(_TABLES)
        return base.execute(_SCHEMA).fetchall()


def _read(folder: Path) -> Run | None:
    """The run in a folder; None if it cannot be read, and then it is not tried again until it changes."""
    with contextlib.suppress(StoreError):
        return read_run(folder)
    return None


def entries_of(run: Run, folder: str) -> Iterator[Entry]:
    """The records of a run as the index has them."""
    for number, record in enumerate(run.records, 1):
        figure = record.metrics.get("time")
        time, low, high = (figure.value, figure.low, figure.high) if figure else (None, None, None)
        yield Entry(folder, number, run.id, record.id, record.status, time, low, high, record.started or run.header.created)
