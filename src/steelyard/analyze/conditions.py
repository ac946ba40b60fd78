"""Under which conditions times were taken: how many threads, and how busy the machine was. Wherever a time is shown, so are these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steelyard.model.record import Record
from steelyard.store.runs import Run

OTHER_LOAD = "other_load"
"""The name under which a record keeps how many CPUs other work had while it was timed."""
OWN_THREADS = "the program's own threads"
BUSY = 0.5
"""CPUs of other work, or of load, between two sides that a reader must hear of."""
_COMMAND, _ASKED = "command", "OMP_NUM_THREADS"


def threads_of(record: Record) -> int | None:
    """How many threads we gave a case; None for a program that chose for itself, and where another tool measured."""
    case, had = record.case, record.effective.get("threads")
    threads = had if type(had) is int else case.get("threads", 1)
    if "tool" in record.effective or type(threads) is not int:
        return None
    if case.get("workload") == _COMMAND and threads == 1:
        asked = str((case.get("flags") or {}).get(_ASKED, ""))
        return int(asked) if asked.isdecimal() and len(asked) < 6 else None
    return threads


def threads_text(records: Iterable[Record]) -> str:
    """`1 thread`, `1 and 4 threads`, `the program's own threads`."""
    known = [(threads_of(record), "tool" in record.effective) for record in records]
    counts = sorted({count for count, _ in known if count is not None})
    own = any(count is None and not foreign for count, foreign in known)
    words = [" and ".join(map(str, counts)) + (" thread" if counts == [1] else " threads")] if counts else []
    return ", ".join([*words, *([OWN_THREADS] if own else [])])


def load_at_start(machine: Mapping[str, Any]) -> float | None:
    """The load average of the minute before the run."""
    found = machine.get("load")
    return _number(found[0]) if isinstance(found, (list, tuple)) and found else None


def other_load(record: Record) -> float | None:
    """CPUs that other work kept busy while a record was timed."""
    return _number(record.effective.get(OTHER_LOAD))


def load_words(machine: Mapping[str, Any], records: Iterable[Record]) -> list[str]:
    """`load 0.31 at start`, `other programs kept 0.1 to 1.8 CPUs busy while measuring`."""
    start, others = load_at_start(machine), [load for record in records if (load := other_load(record)) is not None]
    words = [f"load {start:.2f} at start"] if start is not None else []
    return words + ([f"other programs kept {_span(others)} busy while measuring"] if others else [])


def conditions(machine: Mapping[str, Any], records: Sequence[Record]) -> list[str]:
    """Threads and load of a run, each in a few words."""
    return [word for word in (threads_text(records), *load_words(machine, records)) if word]


def differing(base: Sequence[Run], head: Sequence[Run], shared: Iterable[str]) -> list[str]:
    """What two sides were measured under, where it is not alike: one plain sentence."""
    cases = set(shared)
    sides = [_side(runs, cases) for runs in (base, head)]
    apart = [
        before is not None and after is not None and abs(after - before) >= BUSY
        for before, after in zip(*(side[1:] for side in sides), strict=True)
    ]
    if sides[0][0] == sides[1][0] and not any(apart):
        return []
    told = [", ".join(_told(side, sides[0][0] != sides[1][0])) or "unknown" for side in sides]
    return [f"measured under different conditions: base with {told[0]}; head with {told[1]}"]


def _side(runs: Sequence[Run], cases: set[str]) -> tuple[str, float | None, float | None]:
    records = [record for run in runs for record in run.records if record.id in cases and "time" in record.metrics]
    starts = [load for run in runs if (load := load_at_start(run.header.machine)) is not None]
    others = [load for record in records if (load := other_load(record)) is not None]
    return threads_text(records), max(starts, default=None), max(others, default=None)


def _told(side: tuple[str, float | None, float | None], threads: bool) -> list[str]:
    words = [side[0]] if threads and side[0] else []
    words += [f"load {side[1]:.2f} at start"] if side[1] is not None else []
    return words + ([f"up to {_cpus(side[2])} busy with other programs"] if side[2] is not None else [])


def _span(loads: Sequence[float]) -> str:
    low, high = f"{min(loads):.1f}", f"{max(loads):.1f}"
    return _cpus(max(loads)) if low == high else f"{low} to {_cpus(max(loads))}"


def _cpus(load: float) -> str:
    text = f"{load:.1f}"
    return f"{text} CPU{'' if text == '1.0' else 's'}"


def _number(value: Any) -> float | None:
    """A file may hold anything here."""
    fine = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < 1e6
    return float(value) if fine else None
