"""The gate's verdict on a terminal: the answer in words, then the findings behind it, worst first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from steelyard import codec
from steelyard.analyze.conditions import side_lines
from steelyard.analyze.gate import OPEN, WORDS, Judged, Judgement, Kind
from steelyard.analyze.unpaired import UNCONFIRMED
from steelyard.model.effects import margin_text
from steelyard.model.pair import Delta
from steelyard.model.units import measured
from steelyard.report.cells import clean, pad
from steelyard.report.labels import label_counts, label_lines, labelled
from steelyard.report.page import joined, wrap_spaced, wrapped
from steelyard.report.wrap import wrap_facts, wrap_text

GLYPHS: dict[str, str] = {
    "pass": "✓", "regression": "▼", "failed": "✗", "nothing comparable": "–", "inconclusive": "?",
    "missing": "–", "not confirmed": "▼", "slower": "▼", "unclear": "?",
    "incomparable": "–", "new pass": "✓", "improvement": "▲",
}  # fmt: skip
HEADS: dict[Kind, str] = {
    "regression": "regressions",
    "failed": "failed",
    "missing": "missing",
    "not confirmed": WORDS["not confirmed"],
    "slower": WORDS["slower"],
    "unclear": "unclear",
    "incomparable": "not comparable",
    "new pass": "new passes",
    "improvement": "improvements",
}
LONGEST, LONGEST_ASIDE = 20, 8


def verdict_document(judgement: Judgement) -> dict[str, Any]:
    """The content of verdict.json: every finding with its effect in words; a ratio of times is named `time_ratio`."""
    found = json.loads(codec.encode(judgement))
    found["findings"] = [
        {**_named(plain), "effect": finding.effect} for plain, finding in zip(found["findings"], judgement.findings, strict=True)
    ]
    means = {
        metric: _named({"metric": metric, "ratio": mean.ratio, "low": mean.low, "high": mean.high, "cases": mean.n})
        for metric, mean in judgement.means.items()
    }
    if judgement.suite:
        found["suite"] = {**_named(found["suite"]), "effect": judgement.suite.effect}
    labels = Counter(finding.hud.label for finding in judgement.findings if finding.hud)
    return {"schema": found.pop("schema"), "headline": judgement.headline, **found, "means": means, "labels": dict(labels)}


def delta_document(delta: Delta) -> dict[str, Any]:
    """A delta as data, with the same names as in verdict.json."""
    return {**_named(json.loads(codec.encode(delta))), "effect": delta.effect}


def _named(plain: dict[str, Any]) -> dict[str, Any]:
    return {"time_ratio" if key == "ratio" and plain["metric"] == "time" else key: value for key, value in plain.items()}


def figures_text(finding: Judged) -> str:
    """`10.02 µs → 10.34 µs`, each with no more digits than its own interval allows."""
    if not finding.was or not finding.now:
        return ""
    both = (measured(figure.value, figure.low, figure.high, clean(figure.unit)) for figure in (finding.was, finding.now))
    return " → ".join(f"{number} {unit}".strip() for number, _, unit in both)


def explanation(finding: Judged) -> str:
    """The reason of a finding and, if it does not count, why."""
    parts = ["" if finding.reason == UNCONFIRMED else finding.reason, finding.excuse]
    return "; ".join(clean(part) for part in parts if part)


def summary(judgement: Judgement) -> Iterator[str]:
    """Further lines: changes within the margin, means."""
    same, faster = (sum(not finding.ruled for finding in judgement.of(kind)) for kind in ("same", "faster"))
    words = [f"{same} within the margin"] * bool(same) + [f"{faster} faster, size unclear"] * bool(faster)
    if words:
        yield " · ".join(words)
    for metric, mean in judgement.means.items():
        if mean.n > 1:
            yield f"{'' if metric == 'time' else f'{clean(metric)}: '}{mean.words(metric)}"


def verdict_page(judgement: Judgement, *, width: int = 100) -> Text:
    """Banner, tables, notes; every line fits the width."""
    lines = wrapped(f"{GLYPHS[judgement.outcome]} {judgement.headline}", width, _style(judgement))
    sides = f"base {judgement.base} · head {judgement.head}" if judgement.base != judgement.head else f"run {judgement.head}, its pairs"
    lines += wrapped(clean(sides), width, "dim")
    lines += [Text(line, "dim") for side in side_lines(judgement.conditions) for line in wrap_facts(side, width)]
    if suite := judgement.suite:
        lines += wrapped(f"{suite.case}: {suite.effect}; {clean(suite.reason)}", width)
    if labels := labelled(judgement):
        lines += [Text(""), Text(f"HUD's labels: {label_counts(labels)}", "bold"), *label_lines(labels, width)]
    for kind, head in HEADS.items():
        if found := [finding for finding in judgement.of(kind) if not finding.ruled]:
            lines += [Text(""), Text(f"{head} ({len(found)})", "bold"), *_table(found, width)]
    told = [*summary(judgement), *judgement.notes]
    lines += [Text("")] if told else []
    return joined([*lines, *(line for note in told for line in wrapped(clean(note), width, "dim"))])


def _style(judgement: Judgement) -> str:
    """Red and green are for confirmed results; a regression between separate runs is not confirmed."""
    if judgement.outcome == "pass":
        return "bold" if judgement.of(*OPEN) else "bold green"
    sure = judgement.outcome == "failed" or any(item.paired for item in judgement.of("regression") if item.counts)
    return "bold red" if sure else "bold yellow"


def _table(found: Sequence[Judged], width: int) -> Iterator[Text]:
    """A line per finding, with its values on a separate line if a name is too long; findings not shown are counted."""
    shown = found[: LONGEST if found[0].counts else LONGEST_ASIDE]
    several = {finding.metric for finding in found} != {"time"}
    rows = [(clean(finding.case), _change(finding, several), figures_text(finding)) for finding in shown]
    name, change, figures = (max(cell_len(row[place]) for row in rows) for place in range(3))
    wide = 2 + name + 2 + change + 2 + figures <= width
    for finding, row in zip(shown, rows, strict=True):
        glyph = (f"{_glyph(finding)} ", _row_style(finding))
        values = f"{pad(row[1], change)}  {row[2]}".rstrip()
        if wide:
            yield Text.assemble(glyph, f"{pad(row[0], name)}  {values}")
        else:
            first, *rest = wrap_text(row[0], width - 2)
            yield Text.assemble(glyph, first)
            yield from (Text(f"  {line}") for line in rest)
            yield from (Text(f"    {line}") for line in wrap_spaced(values, width - 4) if line)
        more = [explanation(finding), f"repeat: {clean(finding.repeat)}" if finding.counts and finding.repeat else ""]
        yield from (line for words in more if words for line in wrapped(words, width, "dim", "    "))
    if len(found) > len(shown):
        yield Text(f"  … and {len(found) - len(shown)} more: --json has them all", "dim")


def _glyph(finding: Judged) -> str:
    return "·" if finding.excuse or (finding.kind in ("failed", "missing") and not finding.counts) else GLYPHS[finding.kind]


def _row_style(finding: Judged) -> str:
    if finding.kind == "failed":
        return "red" if finding.counts else ""
    if finding.kind == "regression" and finding.counts:
        return "red" if finding.paired else "yellow"
    return "green" if finding.kind == "improvement" and finding.paired else ""


def _change(finding: Judged, several: bool) -> str:
    words = finding.effect
    margin = f" (margin {margin_text(finding.margin)})" if words and finding.margin and finding.verdict == "slower" else ""
    return f"{clean(finding.metric)} {words}{margin}".strip() if several and words else f"{words}{margin}"
