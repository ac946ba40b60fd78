"""A comparison on the terminal: one row per case, then what could not be compared, the mean, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from steelyard.analyze.compare import Comparison
from steelyard.analyze.conditions import side_lines
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.effects import NOT_CONFIRMED
from steelyard.model.pair import ALPHA, Delta, Verdict
from steelyard.model.record import Figure, Record
from steelyard.model.units import percent
from steelyard.report.cells import VERDICT_GLYPHS, aligned, clean, cut, delta_text, pad, parts_of
from steelyard.report.columns import Column, taken, versus_head
from steelyard.report.page import joined, wrap_spaced, wrapped
from steelyard.report.tree import group, lines
from steelyard.report.wrap import wrap_facts, wrap_text, wrap_words

GAP = "  "
LEAST_LABEL = 18
MOST_NAMED = 40
STYLES: dict[Verdict, str] = {"slower": "red", "faster": "green"}
WITHIN, SIZE_UNCLEAR = "within the margin", ", size unclear"
SILENT: tuple[Verdict, ...] = ("failed", "missing", "incomparable")
LEGEND = f"{NOT_CONFIRMED}: it looks slower (▼) or faster (▲) between runs made apart; --confirm measures both interleaved"


def comparison_table(found: Comparison, *, width: int = 100) -> Text:
    """Draw a comparison within a width."""
    drawn = [*_top(found, width)]
    metrics = list(dict.fromkeys(delta.metric for delta in found.deltas))
    for metric in metrics:
        rows = [delta for delta in found.deltas if delta.metric == metric and delta.ratio is not None]
        if len(metrics) > 1 and rows:
            drawn.append(Text(clean(metric), "bold"))
        drawn += _body(rows, found.figures.get(metric, {}), width) if rows else []
    drawn += [*_not_compared(found, width), *_bottom(found, metrics, width), *_notes(found, width)]
    return joined(drawn)


def counted(deltas: Sequence[Delta]) -> list[str]:
    """How many deltas have each verdict: `2 slower`, `1 slower, size unclear`, `3 slower, not confirmed`, `36 within the margin`."""
    names = Counter(_counted_as(delta) for delta in deltas)
    order = [f"{word}{more}" for word in STYLES for more in ("", SIZE_UNCLEAR, f", {NOT_CONFIRMED}")]
    return [f"{names[word]} {word}" for word in (*order, WITHIN, "unclear", *SILENT) if names[word]]


def _counted_as(delta: Delta) -> str:
    if delta.verdict not in STYLES:
        return WITHIN if delta.verdict == "same" else delta.verdict
    return f"{delta.verdict}{f', {NOT_CONFIRMED}' if _suspect(delta) else '' if delta.settled else SIZE_UNCLEAR}"


def _suspect(delta: Delta) -> bool:
    return not delta.paired and delta.verdict in STYLES


def _style(delta: Delta) -> str:
    return "yellow" if _suspect(delta) else STYLES.get(delta.verdict, "")


def _top(found: Comparison, width: int) -> list[Text]:
    names = clean(found.head) if found.base == found.head else f"base {clean(found.base)} · head {clean(found.head)}"
    count = len({(delta.base, delta.head) for delta in found.deltas})
    under = [part for line in side_lines(found.conditions) for part in wrap_facts(line, width)]
    first = wrap_words(f"{names} · {count} case{'' if count == 1 else 's'}", width)
    return [*(Text(part, "bold") for part in first), *(Text(part, "dim") for part in under)]


def _body(rows: Sequence[Delta], figures: Mapping[str, tuple[Figure | None, Figure | None]], width: int) -> list[Text]:
    both = [figures.get(delta.head, (None, None)) for delta in rows]
    versus = versus_head({delta.head: delta for delta in rows}) if any(delta.base != delta.head for delta in rows) else ""
    table = [
        Column("base ± 95 %", aligned([parts_of(base) for base, _ in both]), rank=2),
        Column("head ± 95 %", aligned([parts_of(head) for _, head in both]), rank=1),
        Column(f"{versus or 'vs base'}, {percent(1 - ALPHA)}", [delta_text(delta) for delta in rows], "<"),
    ]
    groups = group([_row_record(delta) for delta in rows])
    least = min(LEAST_LABEL, max(cell_len(line.label) for line in lines(groups, width) if line.index is not None))
    fewer = ([column for column in table if column.rank <= most and not (column.empty and column.rank)] for most in (2, 1, 0))
    kept = next((shown for shown in fewer if width - taken(shown, GAP) >= least), [])
    tree = lines(groups, max(least, width - taken(kept, GAP)))
    label = max((cell_len(line.label) for line in tree if line.index is not None), default=0)
    drawn = [Text(pad("", label) + "".join(GAP + column.padded() for column in kept), "dim")] if kept else []
    for line in tree:
        if line.index is None:
            drawn += [Text(part, "" if line.indent else "bold") for part in wrap_spaced(line.label, width)]
            continue
        made, style = Text(pad(cut(line.label, label), label)), _style(rows[line.index])
        for column in kept:
            made.append(GAP).append(column.padded(line.index), style if column is table[-1] else "")
        drawn.append(made)
        if not kept:
            drawn += wrapped(delta_text(rows[line.index]), width, style, "    ")
    return drawn


def _row_record(delta: Delta) -> Record:
    """A case as a record that the tree can group; an id that is not one of ours is its own workload."""
    try:
        return Record(delta.head, Case.parse(delta.head).plain(), "ok")
    except UsageError:
        return Record(delta.head, {"workload": delta.head}, "ok")


def _not_compared(found: Comparison, width: int) -> list[Text]:
    """Lines for every case without a ratio, by reason, so that none is dropped silently."""
    groups: dict[tuple[str, str], list[str]] = {}
    for delta in found.deltas:
        if delta.ratio is None:
            words = f"{VERDICT_GLYPHS[delta.verdict]} {delta.verdict}"
            groups.setdefault((words, clean(delta.reason)), []).append(clean(delta.head))
    if found.new:
        groups["+ new", "not in base"] = [clean(id) for id in found.new]
    drawn: list[Text] = []
    for (words, reason), ids in groups.items():
        named = list(dict.fromkeys(ids))
        drawn += wrapped(f"{words}: {len(named)}" + (f", {reason}" if reason else ""), width)
        drawn += [line for id in named[:MOST_NAMED] for line in wrapped(id, width, "dim", "    ")]
        if len(named) > MOST_NAMED:
            drawn.append(Text(f"    and {len(named) - MOST_NAMED} more, all in --json", "dim"))
    return drawn


def _bottom(found: Comparison, metrics: Sequence[str], width: int) -> list[Text]:
    shown = [delta for delta in found.deltas if not metrics or delta.metric == metrics[0]]
    words = [*counted(shown), *([f"{len(found.new)} new"] if found.new else [])] or ["nothing compared"]
    for metric, mean in found.means.items():
        words += [f"{'' if metric == 'time' else f'{clean(metric)}: '}{mean.words(metric)}"] if mean.n > 1 else []
    return [Text(part) for part in wrap_words(" · ".join(words), width)]


def _notes(found: Comparison, width: int) -> list[Text]:
    told = [clean(note) for note in (*([found.suite.words] if found.suite else []), *found.notes)]
    if any(_suspect(delta) for delta in found.deltas):
        told.append(LEGEND)
    reasons = Counter(
        clean(delta.reason) for delta in found.deltas if delta.ratio is not None and delta.verdict == "unclear" and delta.reason
    )
    told += [f"{count} unclear: {reason}" for reason, count in reasons.items()]
    drawn = []
    for note in told:
        first, *rest = wrap_text(note, width - 2)
        drawn += [Text(f"· {first}", "dim"), *(Text(f"  {part}", "dim") for part in rest)]
    return drawn
