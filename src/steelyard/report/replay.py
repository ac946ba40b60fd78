"""What a replay shows: how much of the recording it covers, which operators take longest, and which differ between two arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.text import Text

from steelyard.model.pair import Delta, Pair, told_from_chance, weigh_part
from steelyard.model.parts import OPERATOR
from steelyard.model.record import Record
from steelyard.model.units import percent
from steelyard.model.units import plain as quantity
from steelyard.report.cells import clean, cut, delta_text, figure_text
from steelyard.report.columns import sound_pairs
from steelyard.report.page import Rows

REPLAY, OPERATORS, MEMORY = "replay", "replay_operators", "replay_memory"
FACTS = {REPLAY, OPERATORS, MEMORY, "replay_names", "recorded_time"}
"""The facts of a record that these sections show."""
MOST_OPERATORS, MOST_DIFFERING = 20, 5
LONGEST_NAME, LONGEST_SHAPES, LONGEST_TEXT = 34, 40, 61
"""The longest name, shapes and text of a row, so that it fits a terminal: a line that wraps would break the columns."""
STYLES = {"faster": "green", "slower": "red"}


def coverage_rows(effective: Mapping[str, Any]) -> Rows:
    """How much of the recording was replayed, and why the rest was not."""
    found = effective.get(REPLAY)
    if not isinstance(found, Mapping):
        return []
    shares = found.get("shares")
    known = shares.items() if isinstance(shares, Mapping) else ()
    told = ", ".join(f"{percent(share)} of {name}" for name, share in known if isinstance(share, (int, float)))
    recorded = effective.get("recorded_time")
    rows = [
        ("operators", f"{found.get('replayed')} of {found.get('operators')}"), ("shares", told),
        ("recorded", quantity(recorded, "s") if isinstance(recorded, float) else ""),
        ("opened", f"{found.get('opened')} operators, for tensors that other operators read" if found.get("opened") else ""),
        ("threads", str(found.get("threads", ""))), ("streams", str(found.get("streams", ""))),
        ("tensors", str(found.get("allocation", ""))),
    ]  # fmt: skip
    for row in found.get("skipped") or ():
        if isinstance(row, Mapping):
            rows.append(("skipped", clean(f"{row.get('count')} × {row.get('operator')}: {row.get('why')}")))
    for row in found.get("unlike_recorded") or ():
        if isinstance(row, Mapping):
            rows.append(("unlike", clean(f"node {row.get('node')}, {row.get('operator')}: {row.get('why')}")))
    return rows


def operator_rows(effective: Mapping[str, Any], most: int = MOST_OPERATORS) -> Rows:
    """The calls that take longest, with their shapes and, if known, their recorded times."""
    rows = effective.get(OPERATORS)
    known = [row for row in rows if isinstance(row, Mapping) and isinstance(row.get("time"), float)] if isinstance(rows, list) else []
    told = []
    beside = [_beside(row.get("recorded"), row["time"]) for row in known[:most]]
    wide = max(map(len, beside), default=0)
    for row, recorded in zip(known, beside, strict=False):
        text = f"{quantity(row['time'], 's'):>9}  {row.get('calls', 0)!s:>3} ×{recorded:<{wide}}  "
        text += cut(clean(str(row.get("shapes", ""))), max(8, LONGEST_TEXT - len(text)))
        told.append((cut(clean(str(row.get("operator", ""))), LONGEST_NAME), text))
    if len(known) > most:
        told.append(("", f"… and {len(known) - most} more, with --json"))
    return told


def _beside(recorded: Any, took: float) -> str:
    """A time as a multiple of the recorded one; empty if that is unknown."""
    return f"  {took / recorded:.2f}x of {quantity(recorded, 's')}" if isinstance(recorded, float) and recorded > 0 else ""


def memory_rows(effective: Mapping[str, Any], most: int = MOST_OPERATORS) -> Rows:
    """The operators that allocate most in one iteration, and, if known, the memory taken from the driver for them."""
    rows = effective.get(MEMORY)
    known = [row for row in rows if isinstance(row, Mapping) and isinstance(row.get("allocated"), int)] if isinstance(rows, list) else []
    told = []
    for row in known[:most]:
        reserved = f"  reserved {quantity(row['reserved'], 'B')}" if isinstance(row.get("reserved"), int) else ""
        shapes = cut(clean(str(row.get("shapes", ""))), LONGEST_SHAPES)
        text = f"{quantity(row['allocated'], 'B'):>9}  {row.get('calls')} ×{reserved}  {shapes}"
        told.append((cut(clean(str(row.get("operator", ""))), LONGEST_NAME), text))
    return told


def kind_rows(record: Record) -> Rows:
    """The time of each kind of operator in one iteration, with its interval, longest first."""
    kinds = sorted((item for item in record.metrics.items() if item[0].startswith(OPERATOR)), key=lambda item: -item[1].value)
    return [(name.removeprefix(OPERATOR), figure_text(figure)) for name, figure in kinds[:MOST_OPERATORS]]


def differing(pairs: Sequence[Pair]) -> list[tuple[Pair, list[Delta]]]:
    """For each pair of replays the operators that are slower or faster, where chance among so many operators is allowed for."""
    found = [(pair, [weigh_part(pair, name) for name in pair.parts if name.startswith(OPERATOR)]) for pair in pairs]
    known = [(pair, deltas) for pair, deltas in found if deltas]
    among = [_among(deltas) for _, deltas in known]
    return [(pair, [delta for delta in deltas if delta.verdict in STYLES]) for (pair, _), deltas in zip(known, among, strict=True)]


def _among(deltas: Sequence[Delta]) -> list[Delta]:
    """The verdicts on the operators of one pair, judged together to allow for chance, largest change first."""
    alike = told_from_chance([replace(delta, metric="time") for delta in deltas])
    back = [replace(now, metric=was.metric) for now, was in zip(alike, deltas, strict=True)]
    return sorted(back, key=lambda delta: -abs((delta.ratio or 1.0) - 1.0))


def operator_lines(records: Sequence[Record], pairs: Sequence[Pair], width: int) -> list[Text]:
    """Lines below a table: which operators of compared replays differ."""
    drawn: list[Text] = []
    for pair, deltas in differing(sound_pairs(pairs, records)):
        label = clean(pair.head.id.rpartition("@")[2])
        if not deltas:
            drawn.append(Text(cut(f"{label}: no operator differs clearly", width), "dim"))
        for delta in deltas[:MOST_DIFFERING]:
            part = pair.parts[delta.metric]
            both = f"  {figure_text(part.base)} → {figure_text(part.head)}" if part.base and part.head else ""
            words = f"{label}: {clean(delta.metric.removeprefix(OPERATOR))}  {delta_text(delta)}{both}"
            drawn.append(Text(cut(words, width), STYLES[delta.verdict]))
    return drawn
