"""Verdicts on the parts of requests (such as time to first token) and on compilers, in a few lines below the table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from steelyard.model.pair import ALPHA, Delta, Pair, told_from_chance, weigh, weigh_part
from steelyard.model.parts import NAMES, WEIGHED
from steelyard.model.record import Record, unweighed
from steelyard.model.units import percent
from steelyard.report.cells import clean, cut, delta_text, pad
from steelyard.report.columns import base_name, sound_pairs, versus_head
from steelyard.report.page import wrapped
from steelyard.report.tree import group

STYLES = {"faster": "green", "slower": "red"}
GAP = "  "
LONGEST_LABEL = 32
LONGEST_NAME = max(len(NAMES[name]) for name in WEIGHED)
MOST_ROWS = 12


def weighed_parts(pairs: Sequence[Pair]) -> list[list[Delta]]:
    """The verdicts of each pair that has parts, first the one on the whole; the verdicts of all pairs are judged together."""
    known = [
        [weigh(pair), *(weigh_part(pair, name) for name in WEIGHED if name in pair.parts)]
        for pair in pairs
        if set(WEIGHED) & set(pair.parts)
    ]
    told = iter(told_from_chance([delta for found in known for delta in found]))
    return [[next(told) for _ in found] for found in known]


def part_lines(run: str, records: Sequence[Record], pairs: Sequence[Pair], width: int, *, whole: bool) -> list[Text]:
    """The verdicts on the parts of each comparison of requests, and on the `whole` if no column shows that."""
    found = weighed_parts(sound_pairs(pairs, records))
    if not found:
        return []
    labels, several = _labels(records), len({base_name(deltas[0]) for deltas in found}) > 1
    names = [labels.get(deltas[0].head, "") + (base_name(deltas[0]) if several else "") for deltas in found]
    head = cut(f"{versus_head({deltas[0].head: deltas[0] for deltas in found})}, {percent(1 - ALPHA)}", width)
    rows = [(cut(name, LONGEST_LABEL), deltas if whole else deltas[1:]) for name, deltas in zip(names, found, strict=True)]
    drawn = _drawn(head, rows[:MOST_ROWS], width)
    lost = [(labels.get(id, ""), why) for id, why in unweighed(records).items()]
    drawn += [Text(cut(f"{GAP}{name}{GAP}✗ not weighed: {clean(str(why))}", width), "red") for name, why in lost[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        drawn.append(Text(cut(f"{GAP}… and {len(rows) - MOST_ROWS} more: steelyard compare {run}", width), "dim"))
    return drawn


def _drawn(head: str, rows: Sequence[tuple[str, Sequence[Delta]]], width: int) -> list[Text]:
    """A column for each part; if that is too wide, labels have their own lines, and if it still is, so has every verdict."""
    metrics = list(dict.fromkeys(delta.metric for _, deltas in rows for delta in deltas))
    told = {metric: [delta_text(delta) for _, deltas in rows for delta in deltas if delta.metric == metric] for metric in metrics}
    wide = [max(map(cell_len, (NAMES[metric], *texts))) for metric, texts in told.items()]
    label = max(cell_len(GAP + name) for name, _ in rows)
    needed = sum(len(GAP) + each for each in wide)
    if len(GAP) + needed > width:
        return [Text(head, "dim"), *(line for name, deltas in rows for line in _apart(name, deltas, label, width))]
    inline = max(label, cell_len(head)) + needed <= width
    first = max(label, cell_len(head)) if inline else len(GAP)
    heads = "".join(GAP + pad(NAMES[metric], each) for metric, each in zip(metrics, wide, strict=True))
    drawn = [Text(f"{pad(head, first)}{heads}", "dim")] if inline else [Text(head, "dim"), Text(pad("", first) + heads, "dim")]
    for name, deltas in rows:
        drawn += [] if inline else [Text(GAP + name)]
        made, by_name = Text(pad(GAP + name if inline else "", first)), {delta.metric: delta for delta in deltas}
        for metric, each in zip(metrics, wide, strict=True):
            delta = by_name.get(metric)
            made.append(GAP).append(pad(delta_text(delta) if delta else "", each), STYLES.get(delta.verdict, "") if delta else "")
        drawn.append(made)
    return drawn


def _apart(name: str, deltas: Sequence[Delta], label: int, width: int) -> list[Text]:
    """A line for every verdict, with the name before the first, or above it if there is not room for both."""
    told = [(f"{pad(NAMES[delta.metric], LONGEST_NAME)} {delta_text(delta)}", STYLES.get(delta.verdict, "")) for delta in deltas]
    if label + len(GAP) + max(cell_len(words) for words, _ in told) > width:
        drawn = [Text(cut(GAP + name, width))]
        return [*drawn, *(line for words, style in told for line in wrapped(words, width, style, 2 * GAP))]
    stems = [GAP + name, *[""] * len(told)]
    return [Text.assemble(pad(stem, label) + GAP, told_one) for stem, told_one in zip(stems, told, strict=False)]


def _labels(records: Sequence[Record]) -> dict[str, str]:
    """What distinguishes each record from the other records, as in the tree of the table."""
    groups = group(records)
    return {
        records[leaf.index].id: clean(" ".join(filter(None, (item.workload if len(groups) > 1 else "", point.label, leaf.label))))
        for item in groups
        for point in item.points
        for leaf in point.leaves
    }
