"""The result table of a run on the terminal, the same for `run` and `show`.

Every line fits the width. Columns that do not fit are dropped, the least important first, and long parameters move to lines of their own; a
reason that is cut is printed in full below.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from steelyard.analyze.conditions import load_words
from steelyard.analyze.prediction import predict
from steelyard.model.pair import Delta, Pair
from steelyard.model.parts import generates
from steelyard.model.record import BAD, HOST, NOT_WEIGHED, STATUSES, Record, unweighed
from steelyard.model.units import number_of, percent, with_error
from steelyard.model.units import plain as quantity
from steelyard.report.cells import (
    IDENTICAL,
    UNVERIFIED,
    clean,
    cut,
    identical_to,
    lines_of,
    pad,
    reason,
    shortened,
    status_words,
    unverified,
)
from steelyard.report.columns import Column, asked_columns, columns, own_bases, pairs_by_head, taken, told_below
from steelyard.report.heading import heading
from steelyard.report.monitor import run_line
from steelyard.report.page import joined
from steelyard.report.replay import operator_lines
from steelyard.report.requests import part_lines
from steelyard.report.tree import Group, TreeLine, group, lines
from steelyard.report.wrap import wrap_text, wrap_words
from steelyard.store.runs import Header

GAPS = ("   ", "  ")
LONGEST_NOTE = 12
MOST_READ = 4000
LEAST_LABEL = 8
LEAST_NUMBERED = 60
"""Below this many columns rows are not numbered: names and times need the room."""
MOST_REASONS = 3
STYLES: dict[str, str] = {"faster": "green", "slower": "red", **dict.fromkeys(BAD, "red")}


def run_table(header: Header, records: Sequence[Record], pairs: Sequence[Pair], *, width: int = 100, ref: str = "") -> Text:
    """Draw a run: machine, figures by workload, reasons, and what to look at next.

    `ref` is the run's name on a command line if that is not its id: for a run from another tool's file.
    """
    records = _as_planned(header, records)
    deltas, bases = pairs_by_head(pairs, records)
    unmade = list(unweighed(records).values())
    drawn = [*_top(header, records, width), *(Text(part) for part in wrap_words(own_bases(pairs), width) if part)]
    if records:
        found = columns(records, deltas, bases, below=told_below(pairs, records), asked=asked_columns(records))
        body, missed, kept = _body(records, deltas, found, width)
        parts = part_lines(ref or header.id, records, pairs, width, whole=not any(map(_is_versus, kept)))
        unmade = [] if parts else unmade
        parts += operator_lines(records, pairs, width)
        drawn += [*body, *_caveats(records, width), *parts, *_monitor(records, width), *_notes(ref or header.id, records, missed, width)]
    drawn += [Text(part) for part in wrap_words(_step(header, records), width) if part]
    saved = f"saved {header.id}" if not ref else f"read from {ref}"
    return joined([*drawn, *_legend(records, deltas.values(), unmade, width), *_bottom(ref or header.id, saved, records, deltas, width)])


def _as_planned(header: Header, records: Sequence[Record]) -> Sequence[Record]:
    """Records of several hosts, in the order in which the cases were planned."""
    if not any(HOST in record.effective for record in records):
        return records
    places = {id: place for place, id in enumerate(header.cases)}
    return sorted(records, key=lambda record: places.get(record.id, len(places)))


def _step(header: Header, records: Sequence[Record]) -> str:
    """A line with the predicted time of the step that the cases were taken from; empty if there was none."""
    found = predict(records, header.weights, header.recorded) if header.weights else None
    if found is None:
        return ""
    words = f"step: {with_error(found.seconds, found.low, found.high, 's')} (95 %) predicted from {number_of(round(found.calls), 'call')}"
    missing = f", {number_of(round(found.missing), 'call')} without a time" if found.missing else ""
    recorded = ""
    if found.recorded:
        side = "less" if found.seconds < found.recorded else "more"
        recorded = f" · {percent(abs(found.seconds / found.recorded - 1))} {side} than the recorded {quantity(found.recorded, 's')}"
    return f"{words}{missing}{recorded}"


def _top(header: Header, records: Sequence[Record], width: int) -> list[Text]:
    left = heading(header, records)
    right = f"{len(records)} case{'' if len(records) == 1 else 's'} · run {header.id}"
    load = [Text(part, "dim") for part in wrap_words(" · ".join(load_words(header.machine, records)), width) if part]
    if cell_len(left) + 2 + len(right) <= width:
        return [Text(f"{left}{pad(right, width - cell_len(left), '>')}", "bold"), *load]
    return [*(Text(part, "bold") for part in wrap_words(left, width)), Text(pad(right, width, ">"), "bold"), *load]


def _body(
    records: Sequence[Record], deltas: Mapping[str, Delta], found: list[Column], width: int
) -> tuple[list[Text], list[int], list[Column]]:
    """The table itself, the records whose reason was cut, and the columns that fit.

    If there are several records, a row begins with the record's number, which `show` needs.
    """
    digits = len(str(len(records))) if len(records) > 1 and width >= LEAST_NUMBERED else 0
    lead = digits + 2 if digits else 0
    tree, kept, gap = _fit(group(records), found, width - lead)
    room = width - lead - taken(kept, gap)
    label = max(0, min(room, max((cell_len(line.label) for line in tree if line.index is not None), default=0)))
    heads = "".join(gap + column.padded() for column in kept)
    sign = pad("#" if digits else "", digits, ">") + pad("", lead - digits + label)
    body = [] if all(column.empty for column in kept) else [Text(sign + heads, "dim")]
    missed: list[int] = []
    for line in tree:
        if line.index is None:
            body += _spread(line, width, lead if line.indent else 0)
            continue
        number = pad(str(line.index + 1), digits, ">") + "  " if digits else ""
        record, name = records[line.index], number + pad(cut(line.label, label), label) + gap
        if record.status == "ok":
            body.append(_row(name, deltas.get(record.id), kept, gap, line.index))
            continue
        row, whole = _broken_row(name, record, kept[0], gap, line.index, width)
        body.append(row)
        if not whole:
            missed.append(line.index)
    return body, missed, kept


def _is_versus(column: Column) -> bool:
    return column.head.startswith("vs ")


def _fit(groups: Sequence[Group], found: list[Column], width: int) -> tuple[list[TreeLine], list[Column], str]:
    """As many columns as fit beside nearly all labels; a few long labels get lines of their own, and all do before speedups are dropped."""
    ranks = sorted({column.rank for column in found}, reverse=True)
    steps = [[column for column in found if column.rank <= rank] for rank in ranks]
    fewest = len(lines(groups, width))
    rows = sum(len(point.leaves) for item in groups for point in item.points)
    for moved, least_rank in ((0, 2), (max(1, rows // 4), 1), (2 * rows, 1), (rows // 2, 0), (2 * rows, 0)):
        for step, rank in zip(steps, ranks, strict=True):
            for gap in GAPS:
                room = width - taken(step, gap)
                if rank < min(least_rank, ranks[0]) or room < LEAST_LABEL:
                    continue
                if len(tree := lines(groups, room)) - fewest <= moved:
                    return tree, step, gap
    return lines(groups, width - taken(found[:1], GAPS[-1])), found[:1], GAPS[-1]


def _spread(line: TreeLine, width: int, lead: int = 0) -> list[Text]:
    """A title over the whole width, continued on further lines if it is longer; `lead` is the width of the numbers before the tree."""
    style = "bold" if not line.indent else ""
    indent, label = " " * lead + (line.indent or "  "), " " * lead + line.label
    if cell_len(label) <= width:
        return [Text(label, style)]
    first, *rest = wrap_text(line.label, width - len(indent))
    first = " " * lead + first
    return [Text(first, style), *(Text(indent + part, style) for part in rest)]


def _row(name: str, delta: Delta | None, kept: Sequence[Column], gap: str, index: int) -> Text:
    style = STYLES.get(delta.verdict, "") if delta else ""
    if not style:
        return Text(name + gap.join(column.padded(index) for column in kept))
    made = Text(name)
    for column in kept:
        made.append(column.padded(index), style if _is_versus(column) else "").append(gap)
    return made


def _broken_row(name: str, record: Record, time: Column, gap: str, index: int, width: int) -> tuple[Text, bool]:
    """A row with a status in place of numbers; a wrong answer keeps its timings beside the status."""
    words, why = status_words(record), lines_of(shortened(reason(record), MOST_READ))
    made = Text(name)
    if time.cells[index] and cell_len(name) + time.width + len(gap) + cell_len(words) <= width:
        made.append(time.padded(index) + gap)
    made.append(cut(words, width - cell_len(made.plain)), STYLES.get(record.status, "yellow"))
    room = width - cell_len(made.plain) - 2
    said = clean(why[0]) if why else ""
    if said and room >= LEAST_LABEL:
        made.append(f"  {cut(said, room)}")
    return made, len(why) <= 1 and cell_len(said) <= max(room, 0)


def _monitor(records: Sequence[Record], width: int) -> list[Text]:
    """A line on load and memory during text generation."""
    told = run_line(records) if any(generates(record.metrics) for record in records) else ""
    return [Text(part, "dim") for part in wrap_words(told, width) if part]


def _caveats(records: Sequence[Record], width: int) -> list[Text]:
    """Lines that say why times above have no ±, each reason once."""
    known = [figure.caveat for record in records if record.status == "ok" and (figure := record.metrics.get("time"))]
    return [Text(part, "dim") for words in dict.fromkeys(filter(None, known)) for part in wrap_words(f"no ±: {words}", width)]


def _notes(run: str, records: Sequence[Record], missed: Sequence[int], width: int) -> list[Text]:
    """Reasons too long for a row, each printed once even if several records share it."""
    shared: dict[tuple[str, str], list[int]] = {}
    for index in missed:
        shared.setdefault((records[index].status, reason(records[index])), []).append(index)
    made: list[Text] = []
    for (status, why), members in shared.items():
        names = " ".join(f"{run}/{index + 1}" for index in members[:8]) + (f" and {len(members) - 8} more" if len(members) > 8 else "")
        words, style = cut(status_words(records[members[0]]), width), STYLES.get(status, "yellow")
        made += [Text(""), Text.assemble((words, style), cut(f"  {names}", max(0, width - 16)))]
        told = [part for line in lines_of(shortened(why, MOST_READ)) for part in wrap_text(line, width - 2)]
        made += [Text(f"  {line}") for line in told[:LONGEST_NOTE]]
        if len(told) > LONGEST_NOTE:
            more = "many" if len(why) > MOST_READ else len(told) - LONGEST_NOTE
            made.append(Text(cut(f"  … {more} more lines: steelyard show {run}/{members[0] + 1}", width), "dim"))
    return [*made, Text("")] if made else []


def _legend(records: Sequence[Record], deltas: Iterable[Delta], unmade: Iterable[str], width: int) -> list[Text]:
    """What the marks of the table mean, and how many records have them and why."""
    doubts = Counter(delta.reason for delta in deltas if delta.verdict == "unclear" and delta.reason)
    reasons = Counter(why for record in records if (why := unverified(record)))
    same = Counter(what for record in records if (what := identical_to(record)))
    told = [f"{UNVERIFIED} {count} not verified: {why}" for why, count in reasons.most_common(MOST_REASONS)]
    if (left := sum(reasons.values()) - sum(count for _, count in reasons.most_common(MOST_REASONS))) > 0:
        told.append(f"{UNVERIFIED} {left} not verified for other reasons")
    told += [f"✗ {count} {NOT_WEIGHED}{clean(why)}" for why, count in Counter(unmade).most_common(MOST_REASONS)]
    told += [f"? {count} unclear: {why}" for why, count in doubts.most_common(MOST_REASONS)]
    told += [f"{IDENTICAL} {count} bit-identical to {what}, which may mean that it is the same code" for what, count in same.items()]
    return [Text(cut(shortened(line), width), "dim") for line in told]


def _bottom(run: str, saved: str, records: Sequence[Record], deltas: Mapping[str, Delta], width: int) -> list[Text]:
    counts = Counter(record.status for record in records)
    words = [
        (f"{counts[status]} {status.replace('_', ' ')}", STYLES.get(status, "" if status == "ok" else "yellow"))
        for status in STATUSES
        if counts[status]
    ]
    made = [Text()]
    for word, style in (*(words or [("nothing measured", "yellow")]), (saved, "")):
        if made[-1].plain and cell_len(made[-1].plain) + 3 + len(word) > width:
            made.append(Text())
        made[-1].append(" · " if made[-1].plain else "").append(word, style)
    if records:
        place, why = _worth_showing(records, deltas)
        hint = f"next: steelyard show {run}/{place + 1}"
        hint += f" ({why})" if why and len(hint) + 3 + len(why) <= width else ""
        if cell_len(made[-1].plain) + 4 + len(hint) > width:
            return [*made, Text(hint, "dim")]
        made[-1].append("    ").append(hint, "dim")
    return made


def _worth_showing(records: Sequence[Record], deltas: Mapping[str, Delta]) -> tuple[int, str]:
    """The record that the hint names, and why: a bad one, else the largest change, else the first."""
    bad = [index for index, record in enumerate(records) if record.status in BAD]
    if bad:
        status = records[bad[0]].status
        return bad[0], status if len(bad) == 1 else f"the first that is not right, {status}"
    changed = [index for index, record in enumerate(records) if record.id in deltas and deltas[record.id].verdict in ("faster", "slower")]
    furthest = max(changed, key=lambda index: abs(math.log(deltas[records[index].id].ratio or 1)), default=None)
    if furthest is None:
        return 0, "the first row in full" if len(records) > 1 else ""
    return furthest, "the largest change" if len(changed) > 1 else "the only change"
