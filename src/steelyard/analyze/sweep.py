"""Figures over an axis: which parameters were varied, and each stack's line over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steelyard.analyze.stacks import PlacedRecord, Words, pick, stacks, words
from steelyard.codec.reading import is_number
from steelyard.errors import UsageError
from steelyard.model.case import ENV
from steelyard.model.values import is_file_value, value_text

FIELDS = ("threads", "ranks")
FEWEST = 2


@dataclass(frozen=True)
class SweepPoint:
    """One value of the axis and the case that was measured there."""

    x: Any
    case: str
    ok: bool


@dataclass(frozen=True)
class StackLine:
    """One stack's points, in the order of the axis."""

    name: str
    points: list[SweepPoint]


@dataclass(frozen=True)
class Sweep:
    """One workload over one of its parameters, all others fixed.

    `kind` is whether the axis is a scale or a list of names; numbers too large for a scale, such as huge integers, are names.
    """

    workload: str
    axis: str
    kind: Literal["number", "name"]
    metrics: list[str]
    fixed: str
    mode: str
    lines: list[StackLine]
    baseline: str | None


@dataclass(frozen=True)
class _Place:
    seen: PlacedRecord
    values: dict[str, Any]
    texts: dict[str, str]
    stack: str


def sweeps(seen: Sequence[PlacedRecord], *, baseline: str | None = None, most: int = 30_000, told: Words = words) -> list[Sweep]:
    """Every axis that varies while all else is fixed, numbers first, the longest first; at most `most` points in total."""
    cases = {item.record.id: item.record.case for item in seen}
    said = {id: told(case) for id, case in cases.items()}
    names = stacks(cases, said)
    groups: dict[tuple[str, str], list[_Place]] = {}
    for item in seen:
        case = item.record.case
        values = {str(key): value for key, value in (case.get("params") or {}).items()} | {key: case.get(key, 1) for key in FIELDS}
        place = _Place(item, values, {key: value_text(value) for key, value in values.items()}, names[item.record.id])
        groups.setdefault((str(case.get("workload", "")), str(case.get("mode", ""))), []).append(place)
    found = [made for (workload, mode), places in groups.items() for made in _of_group(workload, mode, places, said, baseline)]
    found.sort(key=lambda made: (made.kind == "name", -max(len(line.points) for line in made.lines)))
    kept, count = list[Sweep](), 0
    for made in found:
        count += sum(len(line.points) for line in made.lines)
        if count <= most:
            kept.append(made)
    return kept


def _of_group(
    workload: str, mode: str, places: Sequence[_Place], said: Mapping[str, Mapping[str, str]], baseline: str | None
) -> list[Sweep]:
    texts: dict[str, set[str]] = {}
    for place in places:
        for key, text in place.texts.items():
            texts.setdefault(key, set()).add(text)
    found = []
    files = {key for place in places for key, value in place.values.items() if is_file_value(value)}
    for axis in (key for key, seen in texts.items() if len(seen) >= FEWEST and key not in files):
        held: dict[tuple[tuple[str, str], ...], list[_Place]] = {}
        for place in places:
            if axis in place.values:
                rest = tuple(sorted((key, text) for key, text in place.texts.items() if key != axis))
                held.setdefault(rest, []).append(place)
        found += [_sweep(workload, mode, axis, members, said, baseline) for members in held.values()]
    return [made for made in found if made]


def _sweep(
    workload: str, mode: str, axis: str, members: Sequence[_Place], said: Mapping[str, Mapping[str, str]], baseline: str | None
) -> Sweep | None:
    lines: dict[str, list[_Place]] = {}
    for place in members:
        lines.setdefault(place.stack, []).append(place)
    if max(len({place.texts[axis] for place in line}) for line in lines.values()) < FEWEST:
        return None
    numbers = all(is_number(place.values[axis]) for place in members)
    order = _order(axis, members, numbers)
    drawn = []
    for name, line in lines.items():
        spots = [
            SweepPoint(place.values[axis] if numbers else place.texts[axis], place.seen.record.id, place.seen.record.status == "ok")
            for place in sorted(line, key=lambda place: order[place.texts[axis]])
        ]
        drawn.append(StackLine(name, spots))
    metrics = list(dict.fromkeys(name for place in members for name in place.seen.record.metrics))
    counts = {line.name: sum(point.ok for point in line.points) for line in drawn}
    return Sweep(
        workload, axis, "number" if numbers else "name", sorted(metrics, key=lambda name: name != "time"),
        _fixed(said[members[0].seen.record.id], axis), mode, drawn, _base(list(lines), counts, baseline),
    )  # fmt: skip


def _base(names: list[str], counts: Mapping[str, int], asked: str | None) -> str | None:
    """The baseline line; None if there is only one line."""
    if len(names) < FEWEST:
        return None
    try:
        return pick(names, counts, asked)
    except UsageError:
        return None


def _order(axis: str, members: Sequence[_Place], numbers: bool) -> dict[str, float]:
    """The order of the axis: numbers by size, names as they were first seen."""
    if numbers:
        return {place.texts[axis]: float(place.values[axis]) for place in members}
    return {text: float(index) for index, text in enumerate(dict.fromkeys(place.texts[axis] for place in members))}


def _fixed(said: Mapping[str, str], axis: str) -> str:
    """The other parameters as text, without defaults."""
    usual = {"threads": "threads=1", "ranks": "ranks=1"}
    return " ".join(
        text for key, text in said.items()
        if key != axis and key not in ("mode", "device", ENV) and not key.startswith("flag.") and usual.get(key) != text
    )  # fmt: skip
