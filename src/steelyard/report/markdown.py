"""The gate's verdict for a CI summary: within the host's limits, the worst findings first, each with the command that repeats it.

Names and reasons come from files and frameworks. Each of them is in a code span or a fenced block that it cannot
close, so nothing in it is ever read as Markdown or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from steelyard.analyze.conditions import side_lines
from steelyard.analyze.gate import Judged, Judgement
from steelyard.model.effects import margin_text
from steelyard.report.cells import clean, cut
from steelyard.report.labels import DIRECTIONS, LABEL_GLYPHS, MOST_LABELS, label_counts, labelled, values_text
from steelyard.report.verdict import GLYPHS, HEADS, explanation, figures_text, summary

MOST_BYTES = 60_000
MOST_ROWS = 10
LONGEST_NAME, LONGEST_REASON, LONGEST_COMMAND = 160, 240, 1200
SIGNS = {"pass": "✅", "regression": "🔻", "failed": "❌", "nothing comparable": "⚠️", "inconclusive": "❔"}
_LOOKALIKES = str.maketrans({"`": "'", "|": "¦", "\\": "∖"})


def markdown(judgement: Judgement, *, most: int = MOST_BYTES) -> str:
    """The whole summary; sections beyond the size limit are left out, with a note."""
    made: list[str] = []
    size = 200
    for block in _blocks(judgement):
        size += len(block.encode()) + 2
        if size > most:
            made.append("… cut here to stay within the limits of a summary; `verdict.json` has everything.")
            break
        made.append(block)
    return "\n\n".join(made) + "\n"


def code(text: str, longest: int = LONGEST_NAME) -> str:
    """Text from outside as a code span; the few characters that could end the span or a table cell become look-alikes."""
    plain = cut(clean(text), longest).translate(_LOOKALIKES).strip()
    return f"`{plain}`" if plain else ""


def fenced(lines: Sequence[str]) -> str:
    """Commands in a fenced block, with a fence longer than any run of backticks in them."""
    plain = [clean(line) for line in lines]
    fence = "`" * (1 + max(2, *(len(run) for line in plain for run in re.findall("`+", line) or [""])))
    return "\n".join([f"{fence}sh", *plain, fence])


def _blocks(judgement: Judgement) -> Iterator[str]:
    sides = f"base {code(judgement.base)}, head {code(judgement.head)}"
    yield f"## {SIGNS[judgement.outcome]} Steelyard: {judgement.headline}"
    yield sides if judgement.base != judgement.head else f"run {code(judgement.head)}, judged by its pairs"
    if under := side_lines(judgement.conditions):
        yield "\n".join(f"- {line}" for line in under)
    if suite := judgement.suite:
        yield f"{suite.case}: {suite.effect}; {code(suite.reason, LONGEST_REASON)}"
    if labels := labelled(judgement):
        yield f"### HUD's labels: {label_counts(labels)}"
        yield _labels(labels[:MOST_LABELS])
        if len(labels) > MOST_LABELS:
            yield f"… and {label_counts(labels[MOST_LABELS:])} more."
    for kind, head in HEADS.items():
        found = [finding for finding in judgement.of(kind) if not finding.ruled]
        if not found:
            continue
        yield f"### {GLYPHS[kind]} {head[0].upper()}{head[1:]} ({len(found)})"
        yield _table(found[:MOST_ROWS])
        if len(found) > MOST_ROWS:
            yield f"… and {len(found) - MOST_ROWS} more."
        commands = [finding.repeat for finding in found[:MOST_ROWS] if finding.counts and 0 < len(finding.repeat) <= LONGEST_COMMAND]
        if commands:
            yield f"Measure {'it' if len(commands) == 1 else 'them'} again:"
            yield fenced(commands)
    told = [*summary(judgement), *judgement.notes]
    if told:
        yield "\n".join(f"- {code(line, LONGEST_REASON)}" for line in told[: 3 * MOST_ROWS])


def _table(found: Sequence[Judged]) -> str:
    rows = [
        (
            code(finding.case),
            code(finding.metric) if finding.ratio is not None else "",
            finding.effect,
            margin_text(finding.margin) if finding.margin and finding.ratio is not None else "",
            code(figures_text(finding)),
            code(explanation(finding), LONGEST_REASON),
        )
        for finding in found
    ]
    return "\n".join(table_lines(("case", "figure", "change", "margin", "from → to", "why"), rows))


def _labels(found: Sequence[Judged]) -> str:
    rows = [
        (
            f"{LABEL_GLYPHS[cell.label]} {cell.label}", code(finding.case), code(cell.name), DIRECTIONS[cell.direction],
            code(values_text(cell)), code("; ".join(filter(None, (finding.reason or cell.reason, finding.excuse))), LONGEST_REASON),
        )
        for finding in found if (cell := finding.hud)
    ]  # fmt: skip
    return "\n".join(table_lines(("label", "case", "metric", "direction", "base → head", "why"), rows))


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table without empty columns."""
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    lines = [[heads[place] for place in kept], ["---"] * len(kept), *([row[place] for place in kept] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
