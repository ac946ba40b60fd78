"""The answer of a page in one or two sentences: what changed, what is broken, what is fastest, since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from steelyard.analyze.compare import Comparison
from steelyard.analyze.history import Change, History
from steelyard.analyze.matrix import Matrix
from steelyard.model.pair import Delta
from steelyard.model.record import BAD
from steelyard.report.cells import clean
from steelyard.report.columns import versus_head
from steelyard.report.history import commits_text, day
from steelyard.report.verdict import change_text
from steelyard.report.web.over_time import slower_since

Tone = Literal["good", "bad", "mixed", "none"]
RIGHT = "ok"
CHANGED = ("slower", "faster")
RELATIONS = {"slower": "slower than", "faster": "faster than", "same": "the same as", "unclear": "unclear against"}


def banner(
    counts: Mapping[str, int],
    labels: Mapping[str, str],
    comparison: Comparison | None,
    table: Matrix | None,
    series: Mapping[str, History],
) -> dict[str, str]:
    """The verdict in words, with its tone."""
    slower = slower_since(series)
    compared, since = list(_compared(comparison, labels)), list(_since(slower, labels))
    apart = comparison is not None and comparison.base != comparison.head
    told = [*compared, *since] if apart else [*since, *compared]
    told = [*(told or _statuses(counts)), *(_broken(counts) if told else ()), *_fastest(table)]
    whole = " ".join(f"{line[0].upper()}{line[1:]}" for line in told)
    return {"tone": _tone(counts, comparison, bool(slower)), "text": whole or "Nothing was measured."}


def _tone(counts: Mapping[str, int], comparison: Comparison | None, slower: bool) -> Tone:
    verdicts = Counter(delta.verdict for delta in comparison.deltas) if comparison else Counter[str]()
    if slower or any(counts.get(status) for status in BAD):
        return "bad"
    if verdicts["slower"]:
        return "mixed" if verdicts["faster"] else "bad"
    if verdicts["faster"] or verdicts["same"]:
        return "good"
    return "good" if counts.get(RIGHT) and not comparison else "none"


def _compared(comparison: Comparison | None, labels: Mapping[str, str]) -> Iterable[str]:
    """`3 of 40 cases look slower than k3f9 (worst: n=64 compile +12 % ± 1), 1 faster (…), 36 the same; …`."""
    if comparison is None or not comparison.comparable:
        return
    metric = comparison.comparable[0].metric
    known = [delta for delta in comparison.comparable if delta.metric == metric]
    inside = comparison.base == comparison.head
    than = clean(versus_head({delta.head: delta for delta in known}) if inside else comparison.base).removeprefix("vs ")
    loose = any(not delta.paired for delta in known if delta.verdict in CHANGED)
    parts: list[str] = []
    for word, relation in RELATIONS.items():
        found = [delta for delta in known if delta.verdict == word]
        if found:
            parts.append(
                (f"{_share(found, known, inside, loose)} {relation} {than}" if not parts else f"{len(found)} {word}") + _most(found, labels)
            )
    mean, n = comparison.means.get(metric, (None, 0))
    average = f"; in geometric mean {change_text(mean, None, None)} {clean(metric)}" if n > 1 else ""
    yield f"{', '.join(parts)}{' (unpaired, not confirmed)' if loose else ''}{average}."


def _share(found: Sequence[Delta], known: Sequence[Delta], inside: bool, loose: bool) -> str:
    total, count = len(known), len(found)
    noun = ("weighed case" if inside else "case") + ("" if total == 1 else "s")
    every = {1: f"the one {noun}", 2: f"both {noun}"}.get(total, f"all {total} {noun}")
    verb = (
        ("look" if loose and found[0].verdict in CHANGED else "are")
        if count != 1
        else "looks"
        if loose and found[0].verdict in CHANGED
        else "is"
    )
    return f"{every if count == total else f'{count} of {total} {noun}'} {verb}"


def _most(found: Sequence[Delta], labels: Mapping[str, str]) -> str:
    """The one that moved furthest."""
    word = found[0].verdict
    if word not in CHANGED:
        return ""
    most = (max if word == "slower" else min)(found, key=lambda delta: delta.ratio or 1.0)
    extreme = "" if len(found) == 1 else "worst: " if word == "slower" else "best: "
    return f" ({extreme}{labels.get(most.head) or clean(most.head)} {change_text(most.ratio, most.low, most.high)})"


def _since(slower: Sequence[tuple[str, Change]], labels: Mapping[str, str]) -> Iterable[str]:
    if not slower:
        return
    case, change = slower[0]
    name = labels.get(case) or clean(case)
    more = (
        f"; {len(slower) - 1} more series {'is' if len(slower) == 2 else 'are'} slower since then or another time"
        if len(slower) > 1
        else ""
    )
    by = change_text(change.ratio, change.low, change.high)
    yield f"Slower since {day(change.created)[:10]}: {name} {by} ({commits_text(change)}){more}."


def _broken(counts: Mapping[str, int]) -> Iterable[str]:
    bad: dict[str, int] = {status: counts[status] for status in BAD if counts.get(status)}
    if bad:
        total = sum(counts.values())
        yield f"Of {total} case{'' if total == 1 else 's'} {_counted(bad)}."


def _statuses(counts: Mapping[str, int]) -> Iterable[str]:
    total = sum(counts.values())
    if not total:
        return
    if counts.get(RIGHT) == total:
        every = {1: "The one case is", 2: "Both cases are"}.get(total, f"All {total} cases are")
        yield f"{every} ok."
        return
    yield f"{total} case{'' if total == 1 else 's'}: {_counted(counts)}."


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items() if count)


def _fastest(table: Matrix | None) -> Iterable[str]:
    """Which stack is the fastest in how many rows, and by how much over the baseline."""
    if table is None:
        return
    winners: Counter[str] = Counter()
    contested = 0
    for row in table.cells:
        times = [
            (cell.time[0], column) for cell, column in zip(row, table.columns, strict=True) if cell and cell.status == RIGHT and cell.time
        ]
        if len(times) > 1:
            contested += 1
            winners[min(times)[1]] += 1
    if not winners:
        return
    name, wins = winners.most_common(1)[0]
    mean = table.by_baseline[table.baseline].each[table.columns.index(name)]
    by = f", {mean.mean:.3g}× {clean(table.baseline)} in geometric mean over {mean.n}" if mean and name != table.baseline else ""
    rows = f"in {wins} of {contested} rows" if contested > 1 else "in the one row that several have"
    yield f"Fastest: {clean(name)} {rows}{by}."
