"""Where results go besides the store: another system's file, a notebook, or nowhere.

The store is the first to get every record; a sink gets it next, with its raw series, as soon as it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from steelyard.engine.messages import Found, Unweighed
from steelyard.engine.plan import Job
from steelyard.model.experiment import ResultRow
from steelyard.model.pair import Pair
from steelyard.model.protocol import Traces
from steelyard.model.record import Arrays, Record, in_seconds, numbers
from steelyard.store.listfile import ListFile
from steelyard.store.rowfile import RowFile, read_rows

T = TypeVar("T")


class Sink:
    """The interface for writing results elsewhere; this base class writes nothing.

    `paused` requests that nothing is measured between two cases, when `take` may use the device itself; `whole` that one worker gets
    all cases at once, as for a trace of the whole run; `yielding` that other runs may use the machine between two cases; `replayed`
    that it first gets the existing results of a continued run.
    """

    paused = False
    whole = False
    yielding = False
    replayed = False

    def planned(self, rows: Sequence[ResultRow]) -> None:
        """Called with the rows of the run as they are measured: names in canonical spelling, parameters in full."""

    def opened(self, run: Path) -> None:
        """Called when the machine's locks are held: earlier runs have finished writing. `run` is where the run is kept."""

    def released(self) -> None:
        """Called when all workers have ended, before other runs may use the machine."""

    def held(self, job: Job) -> bool:
        """Whether a job need not be measured, because the continued file has it."""
        return False

    def held_pair(self, job: Job) -> bool:
        """Whether a listed pair, the case and the base of a job, need not be compared for the same reason."""
        return False

    def refused(self, job: Job, reason: str) -> None:
        """Called for a case that cannot run, as the check without data found."""

    def checked(self) -> None:
        """Called when all cases were checked, and those that cannot run were refused."""

    def traces(self) -> Traces | None:
        """The traces that the next worker takes of all that it measures."""
        return None

    def begun(self, environment: Mapping[str, Any]) -> None:
        """Called before a worker measures, with what it runs on according to its framework."""

    def again(self) -> None:
        """Called when a user's script starts again from its beginning, because its worker was lost."""

    def started(self, job: Job) -> None:
        """Called when a case begins."""

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        """Called when a case is measured, or known to fail."""

    def weighed(self, pair: Pair) -> None:
        """Called when a comparison is made."""

    def unweighed(self, job: Job, reason: str) -> None:
        """Called if a listed pair, the case and the base of a job, will not be compared."""

    def lost(self, reason: str) -> None:
        """Called if a worker failed after the answer for its last case."""

    def printed(self, text: str) -> None:
        """Called with the output of a worker that has ended: users' own lines, a framework's warnings."""

    def found(self, found: Found) -> None:
        """Called with files made besides the cases, such as traces of a whole worker."""


class RepeatedLines:
    """Finds which lines of a script are new if it is run again after a crash and prints earlier lines again."""

    def __init__(self) -> None:
        self._told, self._before, self._place = list[Any](), list[Any](), 0

    def again(self) -> None:
        """The script starts again: the next lines may repeat earlier ones, in the same order."""
        self._before, self._place = [*self._told], 0

    def new(self, line: Any) -> bool:
        """Whether a line is new."""
        if line in self._before[self._place :]:
            self._place = self._before.index(line, self._place) + 1
            return False
        self._told.append(line)
        return True


class RowQueue(Generic[T]):
    """Gives rows in the order of a file, whatever the order of their results."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._waiting: list[str] = list(keys)
        self._ready: dict[str, T] = {}
        self._dropped: set[str] = set()
        self._next = 0

    def put(self, key: str, row: T) -> Iterator[T]:
        """Add a row; return every row that is due now."""
        self._ready[key] = row
        return self._due()

    def drop(self, key: str) -> Iterator[T]:
        """The same if a row will not come."""
        self._dropped.add(key)
        return self._due()

    def _due(self) -> Iterator[T]:
        while self._next < len(self._waiting):
            key = self._waiting[self._next]
            if key not in self._ready and key not in self._dropped:
                break
            self._next += 1
            if key not in self._dropped:
                yield self._ready.pop(key)


@dataclass(frozen=True)
class MeasuredCase:
    """A case of a row: its record and its raw series."""

    record: Record
    arrays: Arrays

    def seconds(self, name: str) -> list[float]:
        """The times of a series in the order in which they were taken, such as `forward.measure.time`; empty if there is none."""
        return in_seconds(self.arrays, name)

    def sizes(self, name: str) -> list[int]:
        """The sizes of a series in the order in which they were taken, such as `forward.measure.memory`; empty if there is none."""
        return [int(value) for value in numbers(self.arrays, name)]


class RowSink(Sink):
    """Writes a file of JSON lines, one for each row, in the order of the rows; a dialect defines a line, and may use another kind of file.

    If the file is continued, the rows that it has are not measured again.
    """

    replayed = True

    def __init__(self, rows: Sequence[ResultRow], path: Path, *, append: bool = False) -> None:
        self.rows, self.path, self.append = {row.key: row for row in rows}, path, append
        self.held_rows: dict[str, Mapping[str, Any]] = {}
        self.written: dict[str, Mapping[str, Any]] = {}
        self._queue: RowQueue[tuple[str, Mapping[str, Any]]] = RowQueue(self.rows)
        self._open = dict(self.rows)
        self._naming = _by_case(rows)
        self._cases: dict[str, MeasuredCase] = {}
        self._pairs: dict[tuple[str, str], Pair | Unweighed] = {}
        self._file: RowFile | ListFile | None = None

    def planned(self, rows: Sequence[ResultRow]) -> None:
        settled = {row.key: row for row in rows}
        self.rows = {key: settled.get(key, row) for key, row in self.rows.items()}
        self._open = {key: self.rows[key] for key in self._open}
        self._naming = _by_case(self.rows.values())

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Mapping[str, Any]:
        """The line of a row, from its cases and pairs in the row's order, whatever their results."""
        raise NotImplementedError

    def key_of(self, line: Mapping[str, Any]) -> str:
        """The key of the row in a line of a continued file; empty if the line is not a row, or the row is to be measured again."""
        raise NotImplementedError

    def header(self) -> Mapping[str, Any] | None:
        """The first line of a new file, if it has one."""
        return None

    def open_file(self, keep: int) -> RowFile | ListFile:
        """The file that rows are written to; the first `keep` bytes of a continued one stay."""
        return RowFile(self.path, keep)

    def complete(self) -> bool:
        """Whether a continued file has every row already, so that nothing is left to do."""
        self._read()
        return len(self.held_rows) == len(self.rows)

    def _read(self) -> int:
        """Read the rows of a continued file; return the length of its complete lines."""
        lines, whole = read_rows(self.path) if self.append else ([], 0)
        found = {self.key_of(line): line for line in lines}
        self.held_rows = {key: line for key, line in found.items() if key in self.rows}
        return whole

    def opened(self, run: Path) -> None:
        whole = self._read()
        for key in self.held_rows:
            self._open.pop(key, None)
            self._queue.drop(key)
        self._file = self.open_file(whole)
        if not whole and (header := self.header()) is not None:
            self._file.write(header)

    def held(self, job: Job) -> bool:
        return job.case.id in self._naming and not self._open_rows(job.case.id)

    def held_pair(self, job: Job) -> bool:
        return not any((job.case, job.vs) in row.pairs for row in self._open_rows(job.case.id))

    def _open_rows(self, id: str) -> list[ResultRow]:
        """The rows still to be written that name a case."""
        return [row for row in self._naming.get(id, ()) if row.key in self._open]

    def refused(self, job: Job, reason: str) -> None:
        self.take(job, Record(job.case.id, job.case.plain(), "failed", reason), {})

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        self._cases[job.case.id] = MeasuredCase(record, arrays)
        self._write_rows(job.case.id)

    def weighed(self, pair: Pair) -> None:
        self._pairs[pair.head.id, pair.base.id] = pair
        self._write_rows(pair.head.id)

    def unweighed(self, job: Job, reason: str) -> None:
        assert job.vs is not None
        self._pairs[job.case.id, job.vs.id] = Unweighed(reason)
        self._write_rows(job.case.id)

    def _write_rows(self, id: str) -> None:
        """Make the lines of rows with this case that are now complete, and write those whose turn it is."""
        for row in self._open_rows(id):
            cases = [self._cases[case.id] for case in row.cases if case.id in self._cases]
            pairs = [self._pairs[head.id, base.id] for head, base in row.pairs if (head.id, base.id) in self._pairs]
            if len(cases) < len(row.cases) or len(pairs) < len(row.pairs):
                continue
            line = self.row(row.key, cases, pairs)
            self._open.pop(row.key)
            for key, due in self._queue.put(row.key, (row.key, line)):
                self.written[key] = due
                if self._file:
                    self._file.write(due)
            for case in row.cases:
                if not self._open_rows(case.id):
                    self._cases.pop(case.id, None)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def _by_case(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """The rows that name a case, by its id."""
    found: dict[str, list[ResultRow]] = {}
    for row in rows:
        for case in dict.fromkeys((*row.cases, *chain.from_iterable(row.pairs))):
            found.setdefault(case.id, []).append(row)
    return found
