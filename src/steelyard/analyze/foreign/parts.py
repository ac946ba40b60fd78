"""What the readers of other tools' files share: checked numbers, clean names, and results as runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from steelyard.errors import StoreError
from steelyard.model.record import FEWEST, STATUSES, Figure, Record, Status, Verification
from steelyard.store.runs import Header, Run
from steelyard.store.seals import Seal

LONGEST_NAME = 160
LONGEST_REASON = 500
MOST_RESULTS = 100_000
MOST_PROCESSES = 1000
LONGEST_TIME = 1e7
NORMAL_95 = 1.96
NOTCH = 1.57


@dataclass(frozen=True)
class ForeignResult:
    """One benchmark of a file; `processes` has its figures by process, or one entry if the tool does not list processes.

    `case` describes what was measured as one of our cases, if the tool says enough; by default only the name is known.
    """

    name: str
    processes: Sequence[Mapping[str, Figure]] = ()
    status: Status = "ok"
    reason: str = ""
    case: Mapping[str, Any] | None = None
    verification: Verification | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about noise on the machine, under the keys of our own records."""


@dataclass(frozen=True)
class ForeignSource:
    """A file's results, and what it says about their origin; `facts` are the facts about the machine that a heading shows."""

    results: Sequence[ForeignResult]
    created: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    dirty: bool = False
    versions: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    branch: str = ""
    key: str = ""
    """Our key of the machine, if the file has it; else it is made from `machine`."""


def as_runs(tool: str, path: Path, source: ForeignSource) -> tuple[Run, ...]:
    """One run per process; the first also has the cases that failed, later ones only what they measured."""
    if len(source.results) > MOST_RESULTS:
        raise StoreError(f"{str(path)!r} holds {len(source.results)} results", why=f"at most {MOST_RESULTS} are read")
    count = min(MOST_PROCESSES, max(1, *(len(result.processes) for result in source.results)))
    named = list(zip(_distinct(tool, source.results), source.results, strict=True))
    return tuple(_run(tool, path, source, named, number, count) for number in range(count))


def _run(tool: str, path: Path, source: ForeignSource, named: Sequence[tuple[str, ForeignResult]], number: int, count: int) -> Run:
    records = []
    for id, result in named:
        if number >= (len(result.processes) if result.status == "ok" else 1):
            continue
        figures = dict(result.processes[number]) if number < len(result.processes) else {}
        case = result.case or {"workload": id, "params": {}, "backend": tool, "variant": "eager", "mode": "eval", "device": "cpu"}
        why = text(result.reason, LONGEST_REASON)
        made = Record(
            id, dict(case), result.status, why, figures, effective={"tool": tool, **result.conditions}, verification=result.verification
        )
        records.append(made)
    known = source.commit or source.branch
    git = {"git": {"commit": source.commit, "branch": source.branch or None, "dirty": source.dirty}} if known else {}
    versions = {name: text(version) for name, version in source.versions.items() if isinstance(version, str)}
    header = Header(
        id=text(path.name) if count == 1 else f"{text(path.name)}#{number + 1}",
        created=source.created,
        experiment=tool,
        machine={**source.facts, **git, "packages": versions},
        machine_key=text(source.key) or machine_key(source.machine),
    )
    seal = Seal(source.created, len(records), dict(Counter(record.status for record in records)), reason=f"read from {tool}")
    return Run(path, header, tuple(records), seal=seal, warnings=tuple(source.warnings) if number == 0 else ())


def machine_key(facts: Mapping[str, Any]) -> str:
    """A machine key from what a tool reports about its machine, so that results of two kinds of machine are not compared; empty if it
    reports nothing."""
    told = {name: value for name, value in facts.items() if isinstance(value, (str, int, float)) and value}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12] if told else ""


def _distinct(tool: str, results: Sequence[ForeignResult]) -> list[str]:
    """Ids from names: `foreign/pyperf:name`, cleaned and cut, with a digest if that changed the name, and a number if two are the same.

    A result with one of our cases keeps its name, which is the id of that case.
    """
    seen: dict[str, int] = {}
    made = []
    for result in results:
        name = result.name
        if result.case:
            made.append(name)
            continue
        plain = text(name, LONGEST_NAME)
        if plain != name:
            plain = f"{plain}#{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
        seen[plain] = seen.get(plain, 0) + 1
        made.append(f"foreign/{tool}:{plain}" + (f"#{seen[plain]}" if seen[plain] > 1 else ""))
    return made


def text(value: object, longest: int = LONGEST_NAME) -> str:
    """One line of printable text, cut if it is too long."""
    plain = "".join(char if char.isprintable() else "_" for char in (value if isinstance(value, str) else str(value))[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def number(value: Any) -> float | None:
    """A finite number, given as a number or as text, which some tools write; else None."""
    if isinstance(value, str) and len(value) <= 64:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: Any, unit: float = 1.0) -> float | None:
    """A plausible time in seconds, above zero and below LONGEST_TIME; else None."""
    found = number(value)
    return found * unit if found is not None and 0 < found * unit < LONGEST_TIME else None


def table(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """The JSON objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def json_lines(content: bytes) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object per line; other lines, such as one cut off by a kill, are skipped."""
    found = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return rows(found)


def status_of(value: Any) -> Status:
    """The value if it is one of our statuses, else `failed`."""
    return next((status for status in STATUSES if status == value), "failed")


def word(value: Any, fallback: str = "") -> str:
    """The value if it is a string, else `fallback`."""
    return value if isinstance(value, str) else fallback


def time_of(values: Iterable[Any], unit: float = 1.0) -> Figure | None:
    """The median of raw values with its interval; too few values get no interval and do not need numpy."""
    known = [found for value in values if (found := seconds(value, unit)) is not None]
    if len(known) < FEWEST:
        return Figure(median(known), "s", "lower", n=len(known)) if known else None
    import numpy as np

    from steelyard.measuring.stats import median_interval, time_figure

    return time_figure(median_interval(np.array(known, float)))


def time_around(centre: float | None, half: float | None, n: int | None) -> Figure | None:
    """A time from a summary: its centre, half the width of its interval, and its number of samples."""
    if centre is None:
        return None
    known = half is not None and math.isfinite(half) and 0 <= half < centre
    low, high = (centre - half, centre + half) if known and half is not None else (None, None)
    return Figure(centre, "s", "lower", low, high, n)


def count(value: Any) -> int | None:
    """A number of samples, or None if the value is not one."""
    found = number(value)
    return int(found) if found is not None and 1 <= found < 1e15 else None
