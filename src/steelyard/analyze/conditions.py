"""The conditions under which times were measured: threads, load and noise of the machine. Reports show them wherever they show a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steelyard.model.record import Record
from steelyard.model.units import is_amount
from steelyard.store.runs import Run

OTHER_LOAD = "other_load"
"""The key in a record for how many CPUs other programs used while it was timed."""
OWN_THREADS = "the program's own threads"
BUSY = 0.5
"""A note is printed if two sides differ by at least this many CPUs, in load or in what other programs used."""
GRADES = ("A", "B", "C", "D", "?")
UNKNOWN = "conditions unknown"
_COMMAND, _ASKED = "command", "OMP_NUM_THREADS"
_MOST_THREADS = 10**6


@dataclass(frozen=True)
class Conditions:
    """The conditions of one or several runs; `text` has them in one line.

    `threads` are the thread counts of the cases, `load_at_start` and `other_load` the minimum and the maximum, in CPUs, and
    `noise` counts the records of each grade.
    """

    text: str = UNKNOWN
    threads: list[int] = field(default_factory=list)
    load_at_start: list[float] = field(default_factory=list)
    other_load: list[float] = field(default_factory=list)
    noise: dict[str, int] = field(default_factory=dict)


def seen(machines: Iterable[Mapping[str, Any]], records: Sequence[Record]) -> Conditions:
    """The conditions of runs on these machines, as far as the records have them."""
    starts, others = _loads(machines, records)
    threads = sorted({count for record in records if (count := threads_of(record)) is not None and 0 < count < _MOST_THREADS})
    grades = Counter(str(record.effective.get("noise")) for record in records)
    noise = {grade: grades[grade] for grade in GRADES if grades[grade]}
    words = [threads_text(records), *_load_words(starts, others), noise_text(noise)]
    return Conditions(" · ".join(filter(None, words)) or UNKNOWN, threads, _ends(starts), _ends(others), noise)


def noise_text(noise: Mapping[str, int]) -> str:
    """`noise A`, or `noise A (38), C (2)` if the records have different grades."""
    return f"noise {', '.join(f'{grade} ({count})' if len(noise) > 1 else grade for grade, count in noise.items())}" if noise else ""


def of_sides(base: Sequence[Run], head: Sequence[Run], bases: Iterable[str], heads: Iterable[str]) -> dict[str, Conditions]:
    """The conditions of both sides, from the cases that were compared; a side without any is left out."""
    found: dict[str, Conditions] = {}
    for name, runs, cases in (("base", base, set(bases)), ("head", head, set(heads))):
        if cases:
            found[name] = seen([run.header.machine for run in runs], _timed(runs, cases))
    return found


def side_lines(found: Mapping[str, Conditions]) -> list[str]:
    """One line per side, or one for both if they are the same: `base with 1 thread · load 0.31 at start · … · noise A`."""
    texts = {name: side.text for name, side in found.items()}
    if len(texts) > 1 and len(set(texts.values())) == 1:
        texts = {"both": texts["base"]}
    return [f"{name} with {text}" for name, text in texts.items()]


def threads_of(record: Record) -> int | None:
    """The number of threads a case was given; None for a program that chooses the number itself, and for other tools' results."""
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
    """CPUs that other programs kept busy while a record was timed."""
    return _number(record.effective.get(OTHER_LOAD))


def load_words(machine: Mapping[str, Any], records: Iterable[Record]) -> list[str]:
    """`load 0.31 at start`, `other programs kept 0.1 to 1.8 CPUs busy while measuring`."""
    return _load_words(*_loads([machine], records))


def _loads(machines: Iterable[Mapping[str, Any]], records: Iterable[Record]) -> tuple[list[float], list[float]]:
    """The known loads: at the start of each run, and of other programs during each record."""
    starts, others = map(load_at_start, machines), map(other_load, records)
    return [load for load in starts if load is not None], [load for load in others if load is not None]


def _load_words(starts: Sequence[float], others: Sequence[float]) -> list[str]:
    ends = list(dict.fromkeys(f"{load:.2f}" for load in _ends(starts)))
    words = [f"load {' to '.join(ends)} at start"] if ends else []
    if others:
        low, high = f"{min(others):.1f}", f"{max(others):.1f}"
        span = _cpus(max(others)) if low == high else f"{low} to {_cpus(max(others))}"
        words.append(f"other programs kept {span} busy while measuring")
    return words


def conditions(machine: Mapping[str, Any], records: Sequence[Record]) -> list[str]:
    """Threads and load of a run, each in a few words."""
    return [word for word in (threads_text(records), *load_words(machine, records)) if word]


def differing(base: Sequence[Run], head: Sequence[Run], shared: Iterable[str]) -> list[str]:
    """A sentence on differences between the conditions of two sides; empty if they are alike."""
    cases = set(shared)
    sides = [_side(runs, cases) for runs in (base, head)]
    apart = [
        before is not None and after is not None and abs(after - before) >= BUSY
        for before, after in zip(*(side[1:] for side in sides), strict=True)
    ]
    ways = _protocols(base, head, cases)
    if sides[0][0] == sides[1][0] and not any(apart):
        return ways
    told = [", ".join(_told(side, sides[0][0] != sides[1][0])) or "unknown" for side in sides]
    return [f"measured under different conditions: base with {told[0]}; head with {told[1]}", *ways]


def _protocols(base: Sequence[Run], head: Sequence[Run], cases: set[str]) -> list[str]:
    """A sentence if one side took a fixed number of calls and the other sampled until precise enough."""
    ways = [" and ".join(sorted({_protocol(record) for record in _timed(runs, cases)})) for runs in (base, head)]
    return [f"timed in different ways: base by {ways[0]}; head by {ways[1]}"] if all(ways) and ways[0] != ways[1] else []


def _protocol(record: Record) -> str:
    asked = record.requested.get("fixed")
    if record.effective.get("protocol") != "fixed" or not isinstance(asked, dict):
        return "blocks of calls until precise enough"
    return f"{asked.get('warmup', 0)} warm-ups and {asked.get('repeats', 1)} {asked.get('clock', 'discrete')} calls"


def _side(runs: Sequence[Run], cases: set[str]) -> tuple[str, float | None, float | None]:
    records = _timed(runs, cases)
    starts, others = _loads((run.header.machine for run in runs), records)
    return threads_text(records), max(starts, default=None), max(others, default=None)


def _timed(runs: Sequence[Run], cases: set[str]) -> list[Record]:
    return [record for run in runs for record in run.records if record.id in cases and "time" in record.metrics]


def _ends(loads: Sequence[float]) -> list[float]:
    return [min(loads), max(loads)] if loads else []


def _told(side: tuple[str, float | None, float | None], threads: bool) -> list[str]:
    words = [side[0]] if threads and side[0] else []
    words += [f"load {side[1]:.2f} at start"] if side[1] is not None else []
    return words + ([f"up to {_cpus(side[2])} busy with other programs"] if side[2] is not None else [])


def _cpus(load: float) -> str:
    text = f"{load:.1f}"
    return f"{text} CPU{'' if text == '1.0' else 's'}"


def _number(value: Any) -> float | None:
    """A number from a file, or None if the value is something else."""
    return float(value) if isinstance(value, (int, float)) and is_amount(value) and value < 1e6 else None
