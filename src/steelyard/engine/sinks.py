"""Where results go beside the store: another system's own file, a notebook, nowhere.

The store is the first to get every record; a sink gets it next, with its raw series, as soon as it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from steelyard.engine.messages import Found
from steelyard.engine.plan import Job
from steelyard.model.pair import Pair
from steelyard.model.protocol import Traces
from steelyard.model.record import Arrays, Record

T = TypeVar("T")


class Sink:
    """What a run tells whoever writes its results down; this one writes nothing.

    `paused` asks that nothing is measured between two cases, when `take` may use the device itself; `whole` that one worker gets
    all cases at once, as for a trace of the whole run; `yielding` that others may have the machine between two cases.
    """

    paused = False
    whole = False
    yielding = False

    def opened(self, run: Path) -> None:
        """The machine is ours now: whoever measured before has written all that they will. `run` is where the run is kept."""

    def released(self) -> None:
        """All workers are gone, and others may have the machine in a moment."""

    def held(self, job: Job) -> bool:
        """Whether a job need not be measured, because what is continued has it."""
        return False

    def refused(self, job: Job, reason: str) -> None:
        """A case cannot run, as a look at it without data says."""

    def checked(self) -> None:
        """All cases were looked at, and those that cannot run were refused."""

    def traces(self) -> Traces | None:
        """The traces that the next worker takes of all it measures."""
        return None

    def begun(self, environment: Mapping[str, Any]) -> None:
        """A worker is about to measure; what it runs on, as its framework knows it."""

    def started(self, job: Job) -> None:
        """A case begins."""

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        """A case is measured, or is known not to be."""

    def weighed(self, pair: Pair) -> None:
        """A comparison is made."""

    def lost(self, reason: str) -> None:
        """A worker that had answered for its last case did not come to its end."""

    def printed(self, text: str) -> None:
        """What a worker that is gone had printed: users' own words, a framework's warnings."""

    def found(self, found: Found) -> None:
        """What was made beside the cases, such as traces of a whole worker."""


class RowQueue(Generic[T]):
    """Rows in the order in which a file has them, whatever the order in which their results come."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._waiting: list[str] = list(keys)
        self._ready: dict[str, T] = {}
        self._next = 0

    def put(self, key: str, row: T) -> Iterator[T]:
        """Every row that is due now."""
        self._ready[key] = row
        return self._due()

    def drop(self, key: str) -> Iterator[T]:
        """The same where a row will not come."""
        self._waiting = [other for number, other in enumerate(self._waiting) if other != key or number < self._next]
        return self._due()

    def _due(self) -> Iterator[T]:
        while self._next < len(self._waiting) and self._waiting[self._next] in self._ready:
            self._next += 1
            yield self._ready.pop(self._waiting[self._next - 1])
