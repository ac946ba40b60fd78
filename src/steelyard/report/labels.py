"""HUD's labels as a table: every metric that has a rule, with its direction and its values, the worst case first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from steelyard.analyze.gate import Judged, Judgement
from steelyard.analyze.hud import CellLabel, HudCell
from steelyard.model.units import grouped
from steelyard.report.cells import clean, pad
from steelyard.report.page import wrap_spaced, wrapped

LABEL_GLYPHS = {"regression": "▼", "good": "▲", "neutral": "·", "warning": "!", "missing": "–"}
DIRECTIONS = {"up": "higher is better", "down": "lower is better", "": ""}
ORDER: tuple[CellLabel, ...] = ("regression", "warning", "missing", "good", "neutral")
MOST_LABELS = 60


def labelled(judgement: Judgement) -> list[Judged]:
    """The findings that have one of HUD's labels, by case, the worst case first; a status is listed once per case."""
    each: dict[tuple[str, str], Judged] = {}
    worst: dict[str, int] = {}
    for item in judgement.findings:
        if item.hud:
            each.setdefault((item.case, item.hud.name), item)
            worst[item.case] = min(worst.get(item.case, len(ORDER)), _rank(item))
    return sorted(each.values(), key=lambda item: (worst[item.case], item.case, _rank(item)))


def _rank(item: Judged) -> int:
    return ORDER.index(item.hud.label) if item.hud else len(ORDER)


def label_counts(found: Sequence[Judged]) -> str:
    """`2 regression, 4 neutral`."""
    counted = Counter(item.hud.label for item in found if item.hud)
    return ", ".join(f"{counted[label]} {label}" for label in ORDER if counted[label])


def values_text(cell: HudCell) -> str:
    """`0.303 → 0.403 ms` in the file's own unit; a side without a value has a status or `missing` instead."""
    old, new = cell.old, cell.new
    if isinstance(old, float) and isinstance(new, float):
        return clean(f"{_number(old)} → {_number(new)} {cell.unit}".strip())
    sides = (
        "missing" if side is None else side if isinstance(side, str) else f"{_number(side)} {cell.unit}".strip() for side in (old, new)
    )
    return clean(" → ".join(sides))


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else grouped(value, 0)


def label_lines(found: Sequence[Judged], width: int) -> Iterator[Text]:
    """The table: a line per metric below its case, and the reasons below each label that is not neutral."""
    shown = found[:MOST_LABELS]
    rows = {id(item): (item.hud.label, clean(item.hud.name), DIRECTIONS[item.hud.direction], values_text(item.hud))
            for item in shown if item.hud}  # fmt: skip
    widths = [max(cell_len(row[place]) for row in rows.values()) for place in range(4)]
    case = ""
    for item in shown:
        if item.case != case:
            case = item.case
            yield from wrapped(clean(case), width)
        label, *rest = rows[id(item)]
        line = "  ".join(pad(text, size) for text, size in zip(rest, widths[1:], strict=True)).rstrip()
        first, *more = wrap_spaced(line, width - 6 - widths[0])
        yield Text.assemble((f"  {LABEL_GLYPHS[label]} {pad(label, widths[0])}", label_style(item)), f"  {first}")
        yield from (Text(f"      {part}") for part in more)
        if label != "neutral" or item.excuse:
            yield from (line for words in reasons(item) for line in wrapped(words, width, "dim", "      "))
    if len(found) > len(shown):
        yield Text(f"  … and {label_counts(found[MOST_LABELS:])} more: --json has them all", "dim")


def reasons(item: Judged) -> list[str]:
    """Why a finding has its label, why it does not count, and how to measure it again."""
    why = "; ".join(clean(part) for part in (item.reason or (item.hud.reason if item.hud else ""), item.excuse) if part)
    return [words for words in (why, f"repeat: {clean(item.repeat)}" if item.counts and item.repeat else "") if words]


def label_style(item: Judged) -> str:
    """The colour of a label: red and green only if it was measured interleaved or, for red, is a status; others that count are yellow."""
    label = item.hud.label if item.hud else ""
    if label == "regression" and item.counts:
        return "red" if item.paired or (item.hud and isinstance(item.hud.new, str)) else "yellow"
    return "green" if label == "good" and item.paired else "yellow" if label == "warning" and not item.excuse else ""
