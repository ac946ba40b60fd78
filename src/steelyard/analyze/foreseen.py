"""A run compared with its expected failures: new failures and new passes are both reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.codec import case_of
from steelyard.codec.expectations import Expectation
from steelyard.errors import StoreError, UsageError
from steelyard.model.case import Case
from steelyard.model.record import BAD, Record


@dataclass(frozen=True)
class Remark:
    """One case: how it ended, what was expected, and why."""

    case: str
    status: str
    expected: str = ""
    reason: str = ""

    def __str__(self) -> str:
        because = f" ({self.reason})" if self.reason else ""
        if self.status == self.expected:
            return f"{self.case} {self.status}{because}"
        return f"{self.case} {self.status}" + (f", expected {self.expected}{because}" if self.expected else "")


@dataclass(frozen=True)
class Foreseen:
    """Unexpected failures, expected ones that passed, failures as expected, and entries that fit no case."""

    new_failures: tuple[Remark, ...] = ()
    new_passes: tuple[Remark, ...] = ()
    expected: tuple[Remark, ...] = ()
    unused: tuple[str, ...] = ()


def hold(records: Sequence[Record], expectations: Sequence[Expectation], elsewhere: Sequence[Case] = ()) -> Foreseen:
    """Sort the outcomes of a run by whether they were expected; if several entries fit a case, one that covers its outcome is enough.

    `elsewhere` are cases that were left out of the run: entries for them are not reported as fitting no case.
    """
    failures: list[Remark] = []
    passes: list[Remark] = []
    expected: list[Remark] = []
    used: set[int] = set()
    for record in records:
        fitting = {place: item for place, item in enumerate(expectations) if _fits(item, record)}
        used |= set(fitting)
        covering = [item for item in fitting.values() if item.excuse.covers(record.status)]
        if record.status in BAD:
            (expected if covering else failures).append(_remark(record, covering or list(fitting.values())))
        elif record.status == "ok" and fitting:
            passes.append(_remark(record, list(fitting.values())))
    idle = [item for place, item in enumerate(expectations) if place not in used]
    unused = [f"{item.where}: {item}" for item in idle if not any(item.fits(case) for case in elsewhere)]
    return Foreseen(tuple(failures), tuple(passes), tuple(expected), tuple(unused))


def covered(record: Record, expectations: Sequence[Expectation]) -> bool:
    """Whether a failure with this status was expected."""
    return any(item.excuse.covers(record.status) and _fits(item, record) for item in expectations)


def _fits(item: Expectation, record: Record) -> bool:
    try:
        return item.fits(case_of(record))
    except (StoreError, UsageError):
        return False


def _remark(record: Record, items: Sequence[Expectation]) -> Remark:
    outcomes = dict.fromkeys(item.excuse.outcome for item in items)
    reasons = dict.fromkeys(item.excuse.reason for item in items if item.excuse.reason)
    return Remark(record.id, record.status, " or ".join(outcomes), "; ".join(reasons))
