"""A case over all saved runs: its series on one machine, where its level changed, and which commits lie at each change."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import NormalDist, median

import numpy as np

from steelyard.analyze.change_points import FEWEST, change_points
from steelyard.analyze.conditions import Conditions, seen
from steelyard.analyze.machines import MadeOn
from steelyard.analyze.provenance import RunHead, commit_in, head_of
from steelyard.analyze.steady import steady
from steelyard.errors import StoreError, UsageError
from steelyard.measuring.stats import Floats, Interval
from steelyard.model.record import Record, machine_of
from steelyard.model.units import LONGEST_TIME
from steelyard.store.index import Entry, Index, entries_of
from steelyard.store.runs import Run, Store, moment, read_run

MOST_POINTS = 500
MOST_READ = 20
"""The number of newest runs whose conditions are reported; each one needs a file of the store to be read."""
CONFIDENCE = 0.95
"""Of a change's interval; other effects have 99 %, for which the smallest new level, three points among ten, has too few points."""
DIGITS = 9
DAY = 86400.0
EVER = (-math.inf, math.inf)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class Point:
    """One run's result: median time with its interval, and the commit it was made at (`dirty`: with uncommitted changes)."""

    run: str
    number: int
    created: str
    time: float
    low: float | None = None
    high: float | None = None
    commit: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class Change:
    """A new level from point `index` on: medians before and after, their ratio with its interval, and what else changed.

    Levels of too few points have no interval.

    `last` is the last commit known at the old level and `first` the first at the new one; `others` are versions and sources
    that differ between the two runs next to the change.
    """

    index: int
    run: str
    created: str
    before: float
    after: float
    ratio: float
    low: float | None
    high: float | None
    p: float
    last: str = ""
    first: str = ""
    dirty: bool = False
    others: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Apart:
    """Runs of the same case on another machine, which are not comparable with this series."""

    machine_key: str
    points: int
    created: str


@dataclass(frozen=True)
class History:
    """A case over time; `broken` counts records that are not ok, `searched` the newest points that were searched for changes.

    `conditions` are those of the newest points; `histories` leaves them out.
    """

    case: str
    machine_key: str
    points: list[Point] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)
    broken: int = 0
    searched: int = 0
    conditions: Conditions | None = None


def history(store: Store, case: str, machine_key: str | None = None) -> History:
    """The series of a case on one machine, by default that of its newest run."""
    with Index(store) as index:
        index.refresh()
        entries = index.series(case)
    if not entries:
        raise UsageError(f"no record of {case}", do=f"measure it: steelyard run '{case}'")
    source = _Source(store)
    found = _series(case, entries, source, machine_key)
    return replace(found, conditions=_conditions(found.points[-MOST_READ:], entries, source))


def _conditions(points: Sequence[Point], entries: Sequence[Entry], source: _Source) -> Conditions | None:
    """The conditions of the newest points; runs whose file is missing or broken are left out."""
    wanted = {(point.run, point.number) for point in points}
    machines, records = [], []
    for entry in entries:
        if (entry.run, entry.number) in wanted:
            with suppress(StoreError, IndexError):
                records.append(source.record(entry))
                machines.append(source.head(entry).machine)
    return seen(machines, records) if records else None


def histories(
    store: Store,
    cases: Collection[str] | None = None,
    machine_key: str | None = None,
    since: str | None = None,
    until: str | None = None,
    *,
    imported: Sequence[Run] = (),
    everywhere: bool = False,
) -> dict[str, History]:
    """The series of many cases, or of all that were ever measured, with every run's header read once.

    `since` and `until` are dates or times; if `until` is a date, that whole day is included. A case without a record in between has no
    series. `imported` runs are not in the store and are merged by time; a copy of a saved run is not counted twice.
    `everywhere` gives a series for every machine, under `CASE on MACHINE` except for the machine of the newest record.
    """
    with Index(store) as index:
        index.refresh()
        known = index.every_series(cases)
    source = _Source(store, imported)
    for case, found in _entries_of(imported).items():
        if cases is None or case in cases:
            held = {_mark(entry) for entry in known.get(case, ())}
            fresh = [entry for entry in found if _mark(entry) not in held]
            known[case] = sorted([*known.get(case, ()), *fresh], key=lambda entry: moment(entry.created))
    return _every(known, source, machine_key, _moments(since, until), everywhere)


def _mark(entry: Entry) -> tuple[int, str]:
    """A key that is the same for an entry of a saved run and its copy in an exported file."""
    return int(moment(entry.created)), "" if entry.time is None else f"{entry.time:.9g}"


def histories_of(runs: Sequence[Run]) -> dict[str, History]:
    """The series in the given runs, native or another tool's; cases whose runs were all made at one time are left out."""
    known = {case: sorted(found, key=lambda entry: moment(entry.created)) for case, found in _entries_of(runs).items()}
    apart = {case: found for case, found in known.items() if len({moment(entry.created) for entry in found}) > 1}
    return _every(apart, _Source(None, runs), None, EVER, everywhere=False)


def _every(
    known: Mapping[str, Sequence[Entry]], source: _Source, machine_key: str | None, window: tuple[float, float], everywhere: bool
) -> dict[str, History]:
    made: dict[str, History] = {}
    for case, entries in known.items():
        found = entries if window == EVER else [entry for entry in entries if window[0] <= moment(entry.created) <= window[1]]
        if not found:
            continue
        made[case] = _series(case, found, source, machine_key)
        for other in [item for item in made[case].apart if item.machine_key != made[case].machine_key] if everywhere else ():
            made[f"{case} on {other.machine_key or 'an unknown machine'}"] = _series(case, found, source, other.machine_key)
    return made


def _entries_of(runs: Sequence[Run]) -> dict[str, list[Entry]]:
    """The given runs' entries by case, like those of an index; their folder is a number, which no folder in a store is."""
    known: dict[str, list[Entry]] = {}
    for place, run in enumerate(runs):
        for entry in entries_of(run, f"{place}/"):
            known.setdefault(entry.case_id, []).append(entry)
    return known


class _Source:
    """Reads what an index entry lacks; headers are read once, and so are the few runs whose records are needed."""

    def __init__(self, store: Store | None, runs: Sequence[Run] = ()) -> None:
        self.store = store
        self._heads = {f"{place}/": RunHead(run.header.machine_key, run.header.machine, run.header.farm) for place, run in enumerate(runs)}
        self._records = {f"{place}/": run.records for place, run in enumerate(runs)}

    def head(self, entry: Entry) -> RunHead:
        if entry.folder not in self._heads:
            self._heads[entry.folder] = head_of(self.store.folder / entry.folder) if self.store else RunHead()
        return self._heads[entry.folder]

    def machine(self, entry: Entry) -> str:
        """The key of the machine that an entry was made on."""
        head = self.head(entry)
        return machine_of(self.record(entry), head.machine_key) if head.farm else head.machine_key

    def speeds(self, entry: Entry) -> MadeOn:
        """The kind of machine that an entry was made on; its speeds are known only for runs of a farm."""
        head = self.head(entry)
        return MadeOn.of(self.record(entry), head.machine_key) if head.farm else MadeOn(head.machine_key)

    def record(self, entry: Entry) -> Record:
        if entry.folder not in self._records and self.store:
            self._records[entry.folder] = read_run(self.store.folder / entry.folder).records
        return self._records[entry.folder][entry.number - 1]


def _series(case: str, entries: Sequence[Entry], source: _Source, machine_key: str | None) -> History:
    key = source.machine(entries[-1]) if machine_key is None else machine_key
    sound = list({entry.folder: entry for entry in entries if _sound(entry)}.values())
    of_key = [entry for entry in sound if source.machine(entry) == key]
    here = [entry for entry in of_key if not source.speeds(of_key[-1]).apart(source.speeds(entry))]
    points = [_point(entry, source.head(entry)) for entry in here]
    broken = sum(not _sound(entry) and source.machine(entry) == key for entry in entries)
    searched = points[-MOST_POINTS:]
    changes = find_changes(searched, len(points) - len(searched)) if len(searched) >= FEWEST else []
    told = [_explained(change, here, source) for change in changes]
    return History(case, key, points, told, _apart(sound, source, here), broken, len(searched))


def _moments(since: str | None, until: str | None) -> tuple[float, float]:
    ends = []
    for text, missing, more in ((since, -math.inf, 0.0), (until, math.inf, DAY)):
        found = moment(text) if text else 0.0
        if text and not found:
            raise UsageError(f"not a date: {text!r}", do="write it like 2026-01-31 or 2026-01-31T03:00:00Z")
        ends.append(missing if not text else found + (more if len(text) <= len("2026-01-31") else 0.0))
    return ends[0], ends[1]


def _sound(entry: Entry) -> bool:
    return entry.status == "ok" and entry.time is not None and 0 < entry.time < LONGEST_TIME


def _point(entry: Entry, head: RunHead) -> Point:
    assert entry.time is not None
    commit, dirty = commit_in(head.machine)
    commit, dirty = (commit, dirty) if _COMMIT.fullmatch(commit) else ("", False)
    return Point(entry.run, entry.number, entry.created, entry.time, entry.low, entry.high, commit, dirty)


def _apart(entries: Sequence[Entry], source: _Source, here: Sequence[Entry]) -> list[Apart]:
    """The runs that are not in the series, by machine key; the series' own key is among them if it also names another kind of machine."""
    taken, others = {id(entry) for entry in here}, dict[str, list[Entry]]()
    for entry in entries:
        if id(entry) not in taken:
            others.setdefault(source.machine(entry), []).append(entry)
    return [Apart(other, len(found), found[-1].created) for other, found in others.items()]


def find_changes(points: Sequence[Point], skipped: int = 0) -> list[Change]:
    """Changes of level in a series of points; `skipped` older points were left out but count in the index."""
    logs = np.array([round(math.log(point.time), DIGITS) for point in points], np.float64)
    splits = steady(logs.tolist(), change_points(logs.tolist()))
    edges = [0, *(split.index for split in splits), len(points)]
    found = []
    for split, start, stop in zip(splits, edges, edges[2:], strict=False):
        old, new = points[start : split.index], points[split.index : stop]
        moved = shift(logs[start : split.index], logs[split.index : stop])
        low, high = (math.exp(end) if math.isfinite(end) else None for end in (moved.low, moved.high))
        before, after = (median(point.time for point in side) for side in (old, new))
        last = next((point for point in reversed(old) if point.commit), None)
        first = next((point for point in new if point.commit), None)
        found.append(
            Change(
                skipped + split.index, new[0].run, new[0].created, before, after, math.exp(moved.centre), low, high, split.p,
                last=last.commit if last else "", first=first.commit if first else "",
                dirty=any(point.dirty for point in (last, first) if point),
            )
        )  # fmt: skip
    return found


def shift(before: Floats, after: Floats, confidence: float = CONFIDENCE) -> Interval:
    """The distance between two levels: the median of all differences, with the interval of the rank-sum test.

    Neither outliers nor the shape of the noise matter (Hodges and Lehmann). With too few values for that confidence the interval
    is infinite.
    """
    differences = np.sort((after[:, None] - before).ravel())
    pairs, n = len(differences), len(before) + len(after)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rank = math.floor(pairs / 2 - z * math.sqrt(pairs * (n + 1) / 12)) - 1
    low, high = (float(differences[rank]), float(differences[pairs - 1 - rank])) if rank >= 0 else (-math.inf, math.inf)
    return Interval(float(np.median(differences)), low, high, n)


def _explained(change: Change, entries: Sequence[Entry], source: _Source) -> Change:
    """The change, with the other differences between the runs before and after it."""
    try:
        old, new = (source.record(entries[index]) for index in (change.index - 1, change.index))
    except (StoreError, IndexError):
        return change
    return replace(change, others=list(differences(old, new)))


def differences(old: Record, new: Record) -> Iterable[str]:
    """Differences between two records of a case besides the time: sources and versions, one phrase each."""
    for part in ("workload", "variant"):
        if old.source.get(part) != new.source.get(part):
            yield f"source of the {part}"
    for name in dict.fromkeys((*old.environment, *new.environment)):
        was, now = old.environment.get(name), new.environment.get(name)
        if was != now and all(value is None or isinstance(value, (str, int, float)) for value in (was, now)):
            yield f"{name} {'none' if was is None else was} → {'none' if now is None else now}"
