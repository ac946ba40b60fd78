"""The tables of a store as sorted Parquet files, so that a query over years of runs does not read every run again.

The run files are the truth and this is a cache of the user's own: it may be deleted at any moment, and is made again if it is damaged or
of another version. It is not kept in the store, which may come from someone else. New runs become a new part; small parts are merged
into larger ones, so that there are only few. A run that changed or was deleted is left out when its part is read, until that part is
merged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from steelyard import codec
from steelyard.errors import StoreError
from steelyard.files import RESULTS, read_whole
from steelyard.store import tables
from steelyard.store.disk import locked, trouble
from steelyard.store.runs import Store, read_run

VARIABLE = "STEELYARD_CACHE"
GROWTH = 4
"""A part is merged with the smaller parts after it if it is at most this many times as large as they are together."""
ROW_GROUP = 30_720
LONGEST_ROW = 64 << 20
Stamp = tuple[int, int]


@dataclass(frozen=True)
class SnapshotPart:
    """Some runs as a Parquet file per table: number of records, the runs by folder with size and time of their files, and the void ones."""

    token: str
    records: int
    runs: dict[str, Stamp]
    void: tuple[str, ...] = ()


class Snapshot:
    """The Parquet files of one store; `refresh` brings them up to date."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = _caches() / "tables" / hashlib.sha256(str(store.root).encode()).hexdigest()[:24]
        self.parts: tuple[SnapshotPart, ...] = ()
        self.unreadable: tuple[str, ...] = ()

    def refresh(self, base: Any) -> int:
        """Add new and changed runs, with a DuckDB connection that may write files; returns how many runs were read."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                return self._refresh(base)
        except OSError as error:
            raise trouble("make tables of the runs", self.folder, error, option=f"{VARIABLE}=DIR instead of") from error

    def files(self, table: str) -> list[str]:
        """The files that hold rows of a table."""
        return [str(self._file(table, part)) for part in self.parts]

    def selection(self, table: str) -> str:
        """SQL for all valid rows of a table; every name in it is one of ours or quoted."""
        names = ", ".join(column.name for column in tables.TABLES[table])
        chosen = [self._selection(table, names, part) for part in self.parts]
        empty = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in tables.TABLES[table])
        return " UNION ALL ".join(chosen) or f"SELECT {empty} WHERE false"

    def _selection(self, table: str, names: str, part: SnapshotPart) -> str:
        void = f" WHERE folder NOT IN ({', '.join(map(_quoted, part.void))})" if part.void else ""
        return f"SELECT {names} FROM read_parquet({_quoted(self._file(table, part))}){void}"

    def _refresh(self, base: Any) -> int:
        held = self._load()
        found = dict(_stamps(self.store))
        parts, known = [], set[str]()
        for part in held:
            good = {name for name, stamp in part.runs.items() if name not in part.void and found.get(name) == stamp}
            known |= good
            if good:
                parts.append(replace(part, void=tuple(sorted(set(part.runs) - good))))
        fresh = {name: stamp for name, stamp in found.items() if name not in known}
        parts += self._take(base, fresh) if fresh else []
        parts = self._merged(base, parts)
        if tuple(parts) != held:
            self._save(parts)
            self._sweep(parts)
        self.parts = tuple(parts)
        return len(fresh)

    def _take(self, base: Any, fresh: dict[str, Stamp]) -> list[SnapshotPart]:
        """Make a part of the new runs; a run that cannot be read has no rows, and is not tried again until it changes."""
        part, unreadable = SnapshotPart(secrets.token_hex(8), 0, fresh), []
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="new-") as scratch, contextlib.ExitStack() as files:
            lines: dict[str, IO[bytes]] = {
                name: files.enter_context((Path(scratch) / f"{name}.jsonl").open("wb")) for name in tables.TABLES
            }
            for name in fresh:
                try:
                    run = read_run(self.store.folder / name)
                except StoreError as error:
                    unreadable.append(f"{name}: {' '.join(str(error).split())}")
                    continue
                for table, row in tables.rows(run):
                    lines[table].write(codec.encode(row) + b"\n")
                part = replace(part, records=part.records + len(run.records))
            for table, file in lines.items():
                file.flush()
                options = f"format='newline_delimited', columns={tables.schema(table)}, maximum_object_size={LONGEST_ROW}"
                self._write(base, table, part, f"SELECT * FROM read_json({_quoted(file.name)}, {options})")
        self.unreadable = tuple(unreadable)
        return [part]

    def _merged(self, base: Any, parts: Sequence[SnapshotPart]) -> list[SnapshotPart]:
        """Merge small parts until each is more than GROWTH times those after it: their number grows with the logarithm of the rows."""
        ordered = sorted(parts, key=lambda part: part.records, reverse=True)
        first, after = len(ordered), 0
        for place in range(len(ordered) - 1, -1, -1):
            if place < len(ordered) - 1 and ordered[place].records <= GROWTH * max(after, 1):
                first = place
            after += ordered[place].records
        small = ordered[first:]
        if len(small) < 2:
            return ordered
        runs = {name: stamp for part in small for name, stamp in part.runs.items() if name not in part.void}
        made = SnapshotPart(secrets.token_hex(8), sum(part.records for part in small), runs)
        within = Snapshot(self.store)
        within.parts = tuple(small)
        for table in tables.TABLES:
            self._write(base, table, made, within.selection(table))
        return [*ordered[:first], made]

    def _write(self, base: Any, table: str, part: SnapshotPart, selection: str) -> None:
        target = _quoted(self._file(table, part))
        form = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
        base.execute(f"COPY (SELECT * FROM ({selection}) ORDER BY {tables.ORDER[table]}) TO {target} ({form})")

    def _file(self, table: str, part: SnapshotPart) -> Path:
        return self.folder / f"{table}-{part.token}.parquet"

    def _load(self) -> tuple[SnapshotPart, ...]:
        """The existing parts; none if their list is invalid or a file is missing."""
        try:
            data = json.loads(read_whole(self.folder / "parts.json", RESULTS))
            parts = msgspec.convert(data["parts"], tuple[SnapshotPart, ...])
            sound = data["version"] == tables.VERSION and data["store"] == str(self.store.root)
            sound = sound and all(len(part.token) == 16 and part.token.isalnum() for part in parts)
            sound = sound and all(self._file(table, part).is_file() for part in parts for table in tables.TABLES)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, StoreError):
            return ()
        return parts if sound else ()

    def _save(self, parts: Sequence[SnapshotPart]) -> None:
        data = {"version": tables.VERSION, "store": str(self.store.root), "parts": [asdict(part) for part in parts]}
        fresh = self.folder / f"parts.{os.getpid()}.new"
        fresh.write_text(json.dumps(data) + "\n", encoding="utf-8")
        fresh.replace(self.folder / "parts.json")

    def _sweep(self, parts: Sequence[SnapshotPart]) -> None:
        """Remove the files of merged parts; a reader that has one open keeps it."""
        kept = {self._file(table, part).name for table in tables.TABLES for part in parts}
        for path in self.folder.glob("*.parquet"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the list of parts, so that the next refresh makes all of them again."""
        with contextlib.suppress(OSError):
            (self.folder / "parts.json").unlink(missing_ok=True)


def _stamps(store: Store) -> Iterator[tuple[str, Stamp]]:
    for folder in store.folders():
        with contextlib.suppress(OSError):
            stat = (folder / "run.jsonl").stat()
            yield folder.name, (stat.st_size, stat.st_mtime_ns)


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _caches() -> Path:
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard"
