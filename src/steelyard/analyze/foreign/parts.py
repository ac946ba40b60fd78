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
    """One benchmark of a file; `processes` has its figures by process, one entry where the tool does not tell them apart.

    `case` is what was measured as a case of ours, if the tool says enough; by default there is only the name.
    """

    name: str
    processes: Sequence[Mapping[str, Figure]] = ()
    status: Status = "ok"
    reason: str = ""
    case: Mapping[str, Any] | None = None
    verification: Verification | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about noise on the machine, under the names that our own records have."""


@dataclass(frozen=True)
class ForeignSource:
    """A file's results, and what it says about where they come from; `facts` are those of the machine that a heading shows."""

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
    """The machine's key, where the file carries one of ours; else it is made of what `machine` tells."""


def as_runs(tool: str, path: Path, source: ForeignSource) -> tuple[Run, ...]:
    """A run per process; the first holds what failed, the others only what they measured."""
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
    """A machine key from what a tool reports of its machine, so that results of two kinds of machine are not compared; empty if it reports
    nothing."""
    told = {name: value for name, value in facts.items() if isinstance(value, (str, int, float)) and value}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12] if told else ""


def _distinct(tool: str, results: Sequence[ForeignResult]) -> list[str]:
    """Ids from names: `foreign/pyperf:name`, cleaned, cut, and told apart by digest or number where that made two alike.

    What has a case of ours is named by its id already.
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
    """One line of printable text, cut where it is too long."""
    plain = "".join(char if char.isprintable() else "_" for char in (value if isinstance(value, str) else str(value))[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def number(value: Any) -> float | None:
    """A finite number, as such or as text, which some tools write."""
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
    """A plausible time: above zero, below months."""
    found = number(value)
    return found * unit if found is not None and 0 < found * unit < LONGEST_TIME else None


def table(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one where something else stands."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """The JSON objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def json_lines(content: bytes) -> list[dict[str, Any]]:
    """The objects of a file that has one on each line; other lines, such as one cut by a kill, are skipped."""
    found = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return rows(found)


def status_of(value: Any) -> Status:
    """One of our statuses, or `failed` where it is none of them."""
    return next((status for status in STATUSES if status == value), "failed")


def word(value: Any, fallback: str = "") -> str:
    """A string, or nothing where something else stands."""
    return value if isinstance(value, str) else fallback


def time_of(values: Iterable[Any], unit: float = 1.0) -> Figure | None:
    """The median of raw values with its interval; too few have no interval and do not need numpy."""
    known = [found for value in values if (found := seconds(value, unit)) is not None]
    if len(known) < FEWEST:
        return Figure(median(known), "s", "lower", n=len(known)) if known else None
    import numpy as np

    from steelyard.measuring.stats import median_interval, time_figure

    return time_figure(median_interval(np.array(known, float)))


def time_around(centre: float | None, half: float | None, n: int | None) -> Figure | None:
    """A time for which only a summary is known."""
    if centre is None:
        return None
    known = half is not None and math.isfinite(half) and 0 <= half < centre
    low, high = (centre - half, centre + half) if known and half is not None else (None, None)
    return Figure(centre, "s", "lower", low, high, n)


def count(value: Any) -> int | None:
    """A number of samples."""
    found = number(value)
    return int(found) if found is not None and 1 <= found < 1e15 else None
