"""The gate's verdict on a terminal: the answer in words, then what it rests on, worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from steelyard.analyze.compare import UNBOUNDED
from steelyard.analyze.gate import Finding, Judgement, Kind
from steelyard.model.units import measured, percent
from steelyard.report.cells import cells, clean, pad
from steelyard.report.page import wrap_spaced
from steelyard.report.wrap import wrap_text

GLYPHS: dict[str, str] = {
    "pass": "✓", "regression": "▼", "failed": "✗", "nothing comparable": "–", "inconclusive": "?", "missing": "–", "unclear": "?",
    "incomparable": "–", "new pass": "✓", "improvement": "▲",
}  # fmt: skip
HEADS: dict[Kind, str] = {
    "regression": "regressions",
    "failed": "failed",
    "missing": "missing",
    "unclear": "unclear",
    "incomparable": "not comparable",
    "new pass": "new passes",
    "improvement": "improvements",
}
LONGEST, LONGEST_ASIDE = 20, 8


def change_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """`+3.1 % ± 0.4`: how far head lies from base."""
    if ratio is None:
        return ""
    if not all(1 / UNBOUNDED < end < UNBOUNDED for end in (low, high) if end is not None):
        return f"{change_text(ratio, None, None)}, unbounded" if 1 / UNBOUNDED < ratio < UNBOUNDED else "unbounded"
    ends = [None if end is None else 100 * (end - 1) for end in (low, high)]
    number, half, _ = measured(100 * (ratio - 1), ends[0], ends[1], "")
    if not number.strip("-0."):
        number = number.lstrip("-")
    sign = "" if number.startswith("-") or not number.strip("0.") else "+"
    return f"{sign}{number} % ± {half}" if half else f"{sign}{number} %"


def figures_text(finding: Finding) -> str:
    """`10.02 µs → 10.34 µs`, each with no more digits than its own interval allows."""
    if not finding.was or not finding.now:
        return ""
    both = (measured(figure.value, figure.low, figure.high, clean(figure.unit)) for figure in (finding.was, finding.now))
    return " → ".join(f"{number} {unit}".strip() for number, _, unit in both)


def explanation(finding: Finding) -> str:
    """Why a finding is what it is, and why it does not count where it does not."""
    parts = [finding.reason, finding.excuse]
    if finding.kind == "regression" and not finding.paired and "not confirmed" not in finding.reason:
        parts.insert(0, "unpaired, not confirmed")
    return "; ".join(clean(part) for part in parts if part)


def summary(judgement: Judgement) -> Iterator[str]:
    """What else a reader wants to know: quiet changes, means."""
    quiet = {kind: len(judgement.of(kind)) for kind in ("same", "slower", "faster")}
    words = [f"{quiet['same']} same"] + [f"{quiet[kind]} {kind} within the margin" for kind in ("slower", "faster") if quiet[kind]]
    if any(quiet.values()):
        yield " · ".join(words)
    for metric, (mean, count) in judgement.means.items():
        yield f"{clean(metric)} in geometric mean {change_text(mean, None, None)} over {count} case{'' if count == 1 else 's'}"


def verdict_page(judgement: Judgement, *, width: int = 100) -> Text:
    """Banner, tables, notes; every line fits the width."""
    lines = [Text(line, _style(judgement)) for line in wrap_text(f"{GLYPHS[judgement.outcome]} {judgement.headline}", width)]
    sides = f"base {judgement.base} · head {judgement.head}" if judgement.base != judgement.head else f"run {judgement.head}, its pairs"
    lines += [Text(line, "dim") for line in wrap_text(clean(sides), width)]
    for kind, head in HEADS.items():
        if found := judgement.of(kind):
            lines += [Text(""), Text(f"{head} ({len(found)})", "bold"), *_table(found, width)]
    told = [*summary(judgement), *judgement.notes]
    lines += [Text("")] if told else []
    lines += [Text(line, "dim") for note in told for line in wrap_text(clean(note), width)]
    for line in lines:
        line.rstrip()
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _style(judgement: Judgement) -> str:
    """Red and green are for what is confirmed; a regression between runs made apart is not."""
    if judgement.outcome == "pass":
        return "bold" if judgement.of("unclear") else "bold green"
    sure = judgement.outcome == "failed" or any(item.paired for item in judgement.of("regression") if item.counts)
    return "bold red" if sure else "bold yellow"


def _table(found: Sequence[Finding], width: int) -> Iterator[Text]:
    """A line per finding, with its values on a line of their own where a name is too long; what is not shown is counted."""
    shown = found[: LONGEST if found[0].counts else LONGEST_ASIDE]
    several = {finding.metric for finding in found} != {"time"}
    rows = [(clean(finding.case), _change(finding, several), figures_text(finding)) for finding in shown]
    name, change, figures = (max(cells(row[place]) for row in rows) for place in range(3))
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
            yield from (Text(f"    {line}") for line in wrap_spaced(values, width - 4) if line.strip())
        yield from (Text(f"    {line}", "dim") for line in wrap_text(explanation(finding), width - 4) if line.strip())
    if len(found) > len(shown):
        yield Text(f"  … and {len(found) - len(shown)} more: --json has them all", "dim")


def _glyph(finding: Finding) -> str:
    return "·" if finding.excuse or (finding.kind in ("failed", "missing") and not finding.counts) else GLYPHS[finding.kind]


def _row_style(finding: Finding) -> str:
    if finding.kind == "failed":
        return "red" if finding.counts else ""
    if finding.kind == "regression" and finding.counts:
        return "red" if finding.paired else "yellow"
    return "green" if finding.kind == "improvement" and finding.paired else ""


def _change(finding: Finding, several: bool) -> str:
    change = change_text(finding.ratio, finding.low, finding.high)
    margin = f" (margin {percent(finding.margin)})" if change and finding.margin and finding.kind == "regression" else ""
    return f"{clean(finding.metric)} {change}{margin}".strip() if several and change else f"{change}{margin}"
