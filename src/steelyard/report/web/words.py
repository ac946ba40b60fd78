"""The answer of a page in one or two sentences: what changed, what is broken, what is fastest, since when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from steelyard.analyze.compare import Comparison, Mean, base_kinds, mean_ratios
from steelyard.analyze.history import Change, History
from steelyard.analyze.matrix import StackTable, wins
from steelyard.codec.policy import Excuse
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.effects import COMPARABLE, NOT_CONFIRMED, change, speedup
from steelyard.model.pair import Delta
from steelyard.model.parts import NAMES, WEIGHED
from steelyard.model.record import BAD, NOT_WEIGHED
from steelyard.model.units import number_of
from steelyard.report.cells import clean, shortened
from steelyard.report.columns import versus_head
from steelyard.report.history import commits_text, day
from steelyard.report.web.over_time import slower_since
from steelyard.report.web.schema import ReportBanner, Tone

RIGHT = "ok"
MOST_WINNERS, MOST_BESIDE = 3, 2
CHANGED = ("slower", "faster")
RELATIONS = {"slower": "slower than", "faster": "faster than", "same": "the same as", "unclear": "unclear against"}


def banner(
    counts: Mapping[str, int],
    labels: Mapping[str, str],
    comparison: Comparison | None,
    table: StackTable | None,
    series: Mapping[str, History],
    absent: int = 0,
    known: Sequence[Excuse] = (),
) -> ReportBanner:
    """The verdict in words, with its tone; a page with `absent` planned cases is never green.

    Broken cases come first, because a wrong answer matters more than any speed, then changes.
    """
    slower = slower_since(series, known)
    beside, since = list(_beside(comparison, labels)), list(_since(slower, labels))
    compared = beside or [*_compared(comparison, labels), *_parts_compared(comparison)]
    asked = comparison is not None and not _inside(comparison) and any(delta.verdict in CHANGED for delta in comparison.comparable)
    told = [*compared, *since] if asked else [*since, *compared]
    broken = _broken(counts) if told else ()
    fastest = () if beside and table and len(table.rows) <= MOST_BESIDE else [_once(line, compared) for line in _fastest(table)]
    told = [*broken, *(told or _statuses(counts)), *_missing(comparison), *_unmade(comparison), *_absent(counts, absent), *fastest]
    said = [f"{line[0].upper()}{line[1:]}" for line in told] or ["Nothing was measured."]
    tone = _tone(counts, comparison, bool(slower))
    return ReportBanner("mixed" if absent and tone == "good" else tone, " ".join(said), said)


def _inside(comparison: Comparison) -> bool:
    """Whether stacks are compared within one run; a slower stack is then a result and not an alarm."""
    return comparison.base == comparison.head


def _tone(counts: Mapping[str, int], comparison: Comparison | None, slower: bool) -> Tone:
    """Red if a case is broken or certainly slower, green if all cases are settled and good; one clear case is not enough."""
    if slower or any(counts.get(status) for status in BAD):
        return "bad"
    if comparison is None:
        return "good" if counts.get(RIGHT) else "none"
    judged = [delta for delta in comparison.deltas if delta.verdict in COMPARABLE]
    verdicts = Counter(delta.verdict for delta in judged)
    if verdicts["slower"] and _inside(comparison):
        return "mixed" if verdicts["faster"] else "none"
    if any(delta.verdict == "slower" and _sure(delta) for delta in judged):
        return "bad"
    if verdicts["unclear"] == len(judged):
        return "none"
    well = all(_sure(delta) and delta.verdict != "slower" for delta in judged)
    return "good" if well and all(delta.verdict not in ("missing", "failed") for delta in comparison.deltas) else "mixed"


def _sure(delta: Delta) -> bool:
    """Whether a verdict may have a colour: its size is settled, and a change was measured interleaved."""
    return delta.settled and (delta.paired or delta.verdict == "same")


def _compared(comparison: Comparison | None, labels: Mapping[str, str]) -> Iterable[str]:
    """`3 of 40 cases look slower than k3f9 (worst: n=64 compile 12 % slower [11, 13]), 1 faster (…), 36 the same; …`."""
    if comparison is None or not comparison.comparable:
        return
    metric = comparison.comparable[0].metric
    known = [delta for delta in comparison.comparable if delta.metric == metric]
    inside = _inside(comparison)
    if inside and len(base_kinds(known)) > 1:
        for group in _by_base(known):
            yield from _compared(replace(comparison, deltas=group, means=mean_ratios(group)), labels)
        return
    than = clean(versus_head({delta.head: delta for delta in known}) if inside else comparison.base).removeprefix("vs ")
    whole = all(delta.ratio is not None for delta in comparison.deltas if delta.metric == metric)
    kind = "weighed case" if inside else "case" if whole else "comparable case"
    loose = any(not delta.paired for delta in known if delta.verdict in CHANGED)
    parts: list[str] = []
    for word, relation in RELATIONS.items():
        found = [delta for delta in known if delta.verdict == word]
        if found:
            parts.append(
                (f"{_share(found, known, kind, loose)} {relation} {than}" if not parts else f"{len(found)} {word}") + _most(found, labels)
            )
    mean = comparison.means.get(metric)
    average = f"; {_mean(mean, metric)}" if mean and mean.n > 1 else ""
    if all(delta.verdict == "unclear" for delta in known):
        moved = f"differs from {than}" if inside else "changed"
        yield f"no case {moved} by more than these runs can tell{_reach(known, than, inside)}{average}."
        return
    yield f"{', '.join(parts)}{f' ({NOT_CONFIRMED})' if loose else ''}{average}."


def _mean(mean: Mean, metric: str) -> str:
    """`34 % slower [27, 41], geometric mean of 24`."""
    return mean.words(metric)


def _parts_compared(comparison: Comparison | None) -> Iterable[str]:
    """`TTFT: 6 within the margin; ITL: 6 faster, 1.31x faster [1.29, 1.33], geometric mean of 6.`, if parts of requests were compared."""
    told = []
    for part in WEIGHED:
        known = [delta for delta in comparison.comparable if delta.metric == part] if comparison else []
        counts = Counter("within the margin" if delta.verdict == "same" else delta.verdict for delta in known)
        mean = comparison.means.get(part) if comparison else None
        average = f", {_mean(mean, part)}" if mean and mean.n > 1 else ""
        told += [f"{NAMES[part]}: {_counted(counts)}{average}"] if known else []
    if told:
        yield f"{'; '.join(told)}."


def _by_base(known: Sequence[Delta]) -> Iterable[list[Delta]]:
    """Deltas of one kind of base at a time, in order."""
    groups: dict[str, list[Delta]] = {}
    for delta in known:
        groups.setdefault("".join(base_kinds([delta])), []).append(delta)
    return groups.values()


def _reach(known: Sequence[Delta], than: str, inside: bool) -> str:
    """`(typically ± 3 %, against k3f9)`."""
    halves = [(delta.high - delta.low) / 2 / delta.ratio for delta in known if delta.ratio and delta.low and delta.high]
    halves = [half for half in halves if math.isfinite(half)]
    usual = f"typically ± {100 * median(halves):.2g} %" if halves else ""
    return f" ({', '.join(filter(None, (usual, '' if inside else f'against {than}')))})" if usual or not inside else ""


def _beside(comparison: Comparison | None, labels: Mapping[str, str]) -> Iterable[str]:
    """`On op/softmax n=1024, compile against eager: 1.62x faster [1.60, 1.64].`, if a run compares its stacks in one or two cases."""
    known = comparison.comparable if comparison and _inside(comparison) else []
    parts = [delta for delta in known if delta.metric in WEIGHED]
    found = [_faster(delta, labels, parts) for delta in known if delta.metric not in WEIGHED]
    if found and len(found) <= MOST_BESIDE and all(found):
        yield f"{'; '.join(found)}."


def _faster(delta: Delta, labels: Mapping[str, str], parts: Sequence[Delta] = ()) -> str:
    """Which of two stacks is faster; empty if they differ in something else than the stack."""
    try:
        base, head = Case.parse(delta.base), Case.parse(delta.head)
    except UsageError:
        return ""
    one, other = (
        (head.variant, base.variant) if head.backend == base.backend else (f"{case.backend}/{case.variant}" for case in (head, base))
    )
    if one == other or not delta.ratio or not delta.low or not delta.high:
        return ""
    label = labels.get(delta.head, "").removesuffix(head.variant).removesuffix(f"{head.backend}/").strip()
    where = label if label.startswith(head.workload) else f"{head.workload} {label}".strip()
    own = [f", {NAMES[part.metric]} {part.effect}" for part in parts if (part.base, part.head) == (delta.base, delta.head)]
    return clean(f"on {where}, {one} against {other}: {delta.effect}{''.join(own)}")


def _share(found: Sequence[Delta], known: Sequence[Delta], kind: str, loose: bool) -> str:
    total, count = len(known), len(found)
    noun = kind + ("" if total == 1 else "s")
    every = {1: f"the one {noun}", 2: f"both {noun}"}.get(total, f"all {total} {noun}")
    one, many = ("looks", "look") if loose and found[0].verdict in CHANGED else ("is", "are")
    return f"{every if count == total else f'{count} of {total} {noun}'} {one if count == 1 else many}"


def _most(found: Sequence[Delta], labels: Mapping[str, str]) -> str:
    """The delta with the largest effect."""
    word = found[0].verdict
    if word not in CHANGED:
        return ""
    most = (max if word == "slower" else min)(found, key=lambda delta: delta.ratio or 1.0)
    extreme = "" if len(found) == 1 else "worst: " if word == "slower" else "best: "
    return f" ({extreme}{labels.get(most.head) or clean(most.head)} {most.effect.removesuffix(f', {NOT_CONFIRMED}')})"


def _since(slower: Sequence[tuple[str, Change]], labels: Mapping[str, str]) -> Iterable[str]:
    if not slower:
        return
    case, since = slower[0]
    name = labels.get(case) or clean(case)
    more = (
        f"; {len(slower) - 1} more series {'is' if len(slower) == 2 else 'are'} slower, since then or since another date"
        if len(slower) > 1
        else ""
    )
    by = change(since.ratio, since.low, since.high)
    yield f"Slower since {day(since.created)[:10]}: {name} {by} ({commits_text(since)}){more}."


def _broken(counts: Mapping[str, int]) -> Iterable[str]:
    bad: dict[str, int] = {status: counts[status] for status in BAD if counts.get(status)}
    if bad:
        yield f"{_counted(bad)} of {number_of(sum(counts.values()), 'case')}."


def _missing(comparison: Comparison | None) -> Iterable[str]:
    if comparison and (lost := {delta.base for delta in comparison.deltas if delta.verdict == "missing"}):
        yield f"{len(lost)} case{' of the base is' if len(lost) == 1 else 's of the base are'} missing."


def _unmade(comparison: Comparison | None) -> Iterable[str]:
    """Comparisons that were asked for and not made, with the reason of the first."""
    lost = [delta.reason for delta in comparison.deltas if delta.reason.startswith(NOT_WEIGHED)] if comparison else []
    if lost:
        words = "comparison was" if len(lost) == 1 else "comparisons were"
        yield f"{len(lost)} {words} not made ({shortened(clean(lost[0].removeprefix(NOT_WEIGHED)))})."


def _absent(counts: Mapping[str, int], absent: int) -> Iterable[str]:
    if absent:
        yield f"{absent} of {sum(counts.values()) + absent} planned cases {'was' if absent == 1 else 'were'} not measured."


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


def _once(line: str, before: Iterable[str]) -> str:
    """A sentence, without its last part if an earlier sentence has the same figures."""
    first, sign, rest = line.partition("; ")
    figures = rest[rest.find(" is ") + 4 : rest.find("]") + 1]
    return f"{first}." if sign and figures and any(figures in other for other in before) else line


def _fastest(table: StackTable | None) -> Iterable[str]:
    """Which stacks are the fastest in how many rows, and by how much the first of them over the baseline."""
    found = wins(table) if table else None
    if table is None or found is None or not found.rows:
        return
    if not found.by_column:
        yield f"no stack is clearly the fastest in any of {found.rows} rows." if found.rows > 1 else "no stack is clearly the fastest."
        return
    close = f" ({found.close} too close to call)" if found.close else ""
    first = next(iter(found.by_column))
    mean = table.by_baseline[table.baseline].each[table.columns.index(first)] if first != table.baseline else None
    if mean and mean.low and mean.high and mean.low <= 1 <= mean.high:
        mean = None
    speed = f"{speedup(mean.mean, mean.low, mean.high)} than {clean(table.baseline)}" if mean else ""
    most = list(found.by_column.items())[:MOST_WINNERS]
    if found.rows == 1:
        yield f"Fastest: {clean(first)}, in the only row that several stacks have{f', {speed}' if mean else ''}."
        return
    by = f"; {clean(first)} is {speed}, geometric mean of {mean.n}" if mean else ""
    names = ", ".join(f"{clean(name)} in {count}" for name, count in most)
    yield f"Fastest: {names} of {found.rows} rows{close}{by}."
