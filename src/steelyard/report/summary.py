"""The report as Markdown for a job summary, a comment or a mail: within the host's limits, the most important parts first.

As in the gate's summary, names from outside are in code spans that they cannot close. In sentences every character with a meaning
in Markdown or HTML is escaped, and text that the host would make a link or a mention is split by a character without width.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from steelyard.analyze.compare import Mean
from steelyard.errors import UsageError
from steelyard.model import effects
from steelyard.model.case import Case
from steelyard.model.pair import MARGIN, judge
from steelyard.model.parts import NAMES, TOKENS, TOLD, WEIGHED, generates
from steelyard.model.units import with_error
from steelyard.report.cells import clean, cut, glyph
from steelyard.report.markdown import LONGEST_COMMAND, LONGEST_REASON, MOST_BYTES, code, fenced, table_lines

Document = Mapping[str, Any]
Row = tuple[str, ...]

SIGNS = {"good": "✅", "bad": "🔻", "mixed": "⚠️", "none": "⚖️"}
VERDICTS = {
    "slower": "▼ Slower", "faster": "▲ Faster", "failed": "✗ Failed", "missing": "– Missing", "unclear": "? Unclear",
    "incomparable": "– Not comparable",
}  # fmt: skip
MOST_CHANGED, MOST_CASES, MOST_MODELS, MOST_STACKS, MOST_WARNINGS, MOST_COMMANDS = 20, 300, 60, 8, 20, 3
UNPAIRED_MARK = "†"
UNPAIRED = "Unpaired: ratios of measurements made at different times, which drift can change."
ROOM = 600
"""Bytes reserved for the note on what was left out."""
_ACTING = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]|~$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"} | {char: f"{char}\u2060" for char in "@#"}
)
_ADDRESS = re.compile(r"(?i)(:/|www)(?=[/.])")


@dataclass(frozen=True)
class Table:
    """A table that shows as many rows as there is room for, at most `most`, and counts the rest."""

    heads: Row
    rows: Sequence[Row]
    most: int

    def text(self, room: int) -> str:
        """The table without empty columns; empty if not even one row fits."""
        lines = table_lines(self.heads, self.rows)
        ends = accumulate(len(line.encode()) + 1 for line in lines)
        shown = min(self.most, sum(end <= room for end in ends) - 2)
        more = f"\n\n… and {len(self.rows) - shown} more." if shown < len(self.rows) else ""
        return "\n".join(lines[: 2 + shown]) + more if shown > 0 else ""


def markdown_report(document: Document, most: int = MOST_BYTES) -> str:
    """The report as Markdown in at most so many bytes, with a note on what did not fit."""
    made: list[str] = []
    left = most - ROOM
    for block in _blocks(document):
        text = block.text(left - 100) if isinstance(block, Table) else block
        left -= len(text.encode()) + 2
        if left < 0 or not text:
            made.append("… cut here to stay within the limits of a summary; `steelyard report -o report.html` has everything.")
            break
        made.append(text)
    return "\n\n".join(made).encode("utf-8", "replace").decode("utf-8") + "\n"


def prose(text: object, longest: int = 1000) -> str:
    """A sentence that may contain names from outside, with markup, links and mentions disabled."""
    return _ADDRESS.sub("\\1\u2060", cut(clean(text), longest).translate(_ACTING))


def _blocks(document: Document) -> Iterator[str | Table]:
    banner = document["banner"]
    yield f"## {SIGNS.get(banner['tone'], SIGNS['none'])} {prose(document['title'] or 'Steelyard report', 200)}"
    yield prose(banner["text"])
    yield _facts(document)
    if warnings := document["warnings"]:
        more = [f"- … and {len(warnings) - MOST_WARNINGS} more"] if len(warnings) > MOST_WARNINGS else []
        yield "\n".join([f"- ⚠️ {prose(text, LONGEST_REASON)}" for text in warnings[:MOST_WARNINGS]] + more)
    for section in (_comparison, _changes, _matrix, _cases, _runs):
        yield from section(document)
    yield f"<sub>Steelyard {prose(document['version'], 40)}, {prose(document['made'], 40)}</sub>"


def _facts(document: Document) -> str:
    counts = Counter(case["status"] for case in document["cases"])
    words = [f"{number} {status.replace('_', ' ')}" for status, number in counts.items()]
    unverified = sum(case["check"].startswith("not verified") for case in document["cases"])
    words += [f"{unverified} not verified"] if unverified else []
    names = [code(machine["name"]) for machine in document["machines"][:3]]
    runs = [code(run["id"]) for run in document["runs"][-3:]]
    count = len(document["runs"])
    told = f"{count} runs, the newest {runs[-1]}" if count > 3 else f"run{'' if count == 1 else 's'} {', '.join(runs)}" if runs else ""
    under = [prose(word) for word in document["runs"][-1]["conditions"]] if count else []
    return " · ".join(part for part in [", ".join(words), told, *names, *under] if part)


def _comparison(document: Document) -> Iterator[str | Table]:
    found = document["comparison"]
    if not found:
        return
    inside = f"Pairs of run {code(found['head'])}" if found["paired"] else f"{code(found['head'])} against {code(found['base'])}"
    means = [_mean_words(name, Mean(*mean)) for name, mean in found["means"].items()]
    yield f"### {inside}"
    yield " · ".join([*_counted(found["deltas"]), *means]) or "nothing was compared"
    if any(delta["ratio"] and not delta["paired"] for delta in found["deltas"]):
        yield UNPAIRED
    units = {name: metric["unit"] for name, metric in document["metrics"].items()}
    for verdict, head in VERDICTS.items():
        chosen = sorted((delta for delta in found["deltas"] if delta["verdict"] == verdict), key=_effect, reverse=True)
        if chosen:
            yield f"**{head} ({len(chosen)})**"
            yield Table(
                ("case", "against", "figure", "change", "from → to", "why"), [_delta(delta, units) for delta in chosen], MOST_CHANGED
            )
    for word, ids in (("New", found["new"]), ("Missing", found["missing"])):
        if ids:
            yield f"**{word} ({len(ids)})**: {', '.join(code(id) for id in ids[:MOST_CHANGED])}{' …' if len(ids) > MOST_CHANGED else ''}"
    if found["bad"]:
        rows = [(code(item["case"]), _status(item["status"]), item["side"], code(item["reason"], LONGEST_REASON)) for item in found["bad"]]
        yield f"**Not ok ({len(rows)})**"
        yield Table(("case", "status", "side", "why"), rows, MOST_CHANGED)


def _counted(deltas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """`4 faster`, `2 unclear`; if more than the time is compared, by metric: `time: 6 faster`, `ttft: 6 within the margin`."""
    metrics = list(dict.fromkeys(delta["metric"] for delta in deltas))
    apart = not set(metrics).isdisjoint(WEIGHED)
    for metric in metrics if apart else [""]:
        counts = Counter(_kind(delta) for delta in deltas if metric in ("", delta["metric"]))
        words = [f"{number} {kind}" for kind, number in counts.items()]
        yield from [f"{prose(metric)}: {', '.join(words)}"] if apart else words


def _kind(delta: Mapping[str, Any]) -> str:
    """A verdict as the terminal counts it: cases that are slower by an unclear size are counted separately."""
    verdict: str = delta["verdict"]
    if verdict == "same":
        return "within the margin"
    if verdict not in ("slower", "faster"):
        return verdict
    effect: str = delta["effect"]
    return f"{verdict}{f', {effects.NOT_CONFIRMED}' if not delta['paired'] else ', size unclear' if ', size unclear' in effect else ''}"


def _mean_words(metric: str, mean: Mean) -> str:
    """`4.0 % slower [3.1, 4.9], geometric mean of 20`, as `compare` prints it."""
    return f"{'' if metric == 'time' else f'{prose(metric)}: '}{mean.words(metric)}"


def _effect(delta: Mapping[str, Any]) -> float:
    ratio = delta["ratio"]
    return abs(math.log(ratio)) if ratio and ratio > 0 else 0.0


def _delta(delta: Mapping[str, Any], units: Mapping[str, str]) -> Row:
    unit = units.get(delta["metric"], "s" if delta["metric"] == "time" else "")
    both = " → ".join(_measured(side, unit) for side in (delta["before"], delta["after"])) if delta["before"] and delta["after"] else ""
    against = "" if delta["base"] in ("", delta["case"]) else code(_other(delta["case"], delta["base"]), 300)
    metric = "" if delta["metric"] == "time" else code(delta["metric"])
    effect = delta["effect"] if delta["ratio"] else ""
    return code(delta["case"], 300), against, metric, effect, prose(both), code(delta["reason"], LONGEST_REASON)


def _other(case: str, base: str) -> str:
    """The base of a case: its id, or only backend and variant if nothing else differs."""
    try:
        own, other = Case.parse(case), Case.parse(base)
    except (UsageError, ValueError):
        return base
    return f"{other.backend}/{other.variant}" if replace(own, backend=other.backend, variant=other.variant) == other else base


def _changes(document: Document) -> Iterator[str | Table]:
    found = [(series, change) for series in (document["history"] or {}).get("series", ()) for change in series["changes"]]
    if not found:
        return
    found.sort(key=lambda item: str(item[1]["created"]), reverse=True)
    yield f"### Changes of level ({len(found)})"
    rows = [
        (
            code(series["case"]),
            f"{'▼' if change['ratio'] and change['ratio'] > 1 else '▲'} {effects.change(change['ratio'], change['low'], change['high'])}",
            prose(str(change["created"])[:10]),
            code(f"{change['last'][:10]}..{change['first'][:10]}") if change["last"] and change["first"] else "",
            code(", ".join(change["others"]), LONGEST_REASON),
        )
        for series, change in found
    ]
    yield Table(("case", "change", "since", "commits", "also changed"), rows, MOST_CHANGED)


def _matrix(document: Document) -> Iterator[str | Table]:
    found = document["matrix"]
    if not found or len(found["columns"]) < 2:
        return
    base = found["columns"].index(found["baseline"])
    others = [place for place in range(len(found["columns"])) if place != base]
    shown = sorted([base, *others][:MOST_STACKS])
    against = found["by_baseline"][found["baseline"]]
    yield f"### Against {code(found['baseline'])}"
    ratios = [row[place] for row in against["speedups"] for place in shown if place != base and row[place]]
    mark = UNPAIRED_MARK if any(ratio[3] for ratio in ratios) else ""
    if not all(ratio[3] for ratio in ratios):
        yield f"{mark} {UNPAIRED}".strip()
    margin = next((delta["margin"] for delta in (document["comparison"] or {"deltas": ()})["deltas"] if delta["margin"]), MARGIN)
    rows = [
        (code(row["name"]), *(_cell(cells[place], speedups[place] if place != base else None, mark, margin) for place in shown))
        for row, cells, speedups in zip(found["rows"], found["cells"], against["speedups"], strict=True)
    ]
    yield Table(("model", *(code(found["columns"][place]) for place in shown)), rows, MOST_MODELS)
    means = [against["means"][place] for place in shown]
    rates = [found["pass_rates"][place] for place in shown]
    n = next((mean["n"] for mean in means if mean), 0)
    totals = [
        (
            f"geometric mean of the {n} that all have",
            *(
                "" if mean is None or place == base else _ratio([mean["mean"], mean["low"], mean["high"]], margin)
                for place, mean in zip(shown, means, strict=True)
            ),
        ),
        ("ok", *(f"{rate['ok']} of {rate['total']}" if rate else "" for rate in rates)),
    ]
    yield Table(("", *(code(found["columns"][place]) for place in shown)), totals, len(totals))
    if len(shown) < len(found["columns"]):
        yield f"… and {len(found['columns']) - len(shown)} more stacks."


def _cell(cell: Mapping[str, Any] | None, speedup: Sequence[Any] | None, mark: str, margin: float) -> str:
    """A speedup, with a mark if it is unpaired and others are paired; the time of the baseline; or a status that is not ok."""
    if cell is None:
        return ""
    if cell["status"] != "ok":
        return _status(cell["status"])
    if not speedup or not speedup[0]:
        return _measured(cell["time"], "s")
    return _ratio(speedup, margin) + (f" {mark}" if mark and not speedup[3] else "")


def _ratio(speedup: Sequence[Any], margin: float) -> str:
    """A speedup as an effect in words, with the verdict by its interval."""
    if not speedup[0]:
        return ""
    if not speedup[1] or not speedup[2]:
        return effects.speedup(speedup[0])
    low, high = 1 / speedup[2], 1 / speedup[1]
    return effects.effect(1 / speedup[0], low, high, judge(low, high, margin), margin=margin)


def _cases(document: Document) -> Iterator[str | Table]:
    cases = document["cases"]
    if not cases:
        return
    yield f"### Cases ({len(cases)})"
    ordered = sorted(cases, key=lambda case: case["status"] == "ok")
    rows = [
        (
            code(case["id"], 300),
            _status(case["status"]),
            _measured(case["metrics"].get("time"), "s"),
            *(_measured(case["metrics"].get(part), "s") for part in TOLD),
            _measured(case["metrics"].get("item_rate"), TOKENS) if generates(case["metrics"]) else "",
            prose(case["noise"]),
            prose(case["check"], LONGEST_REASON),
            code(case["reason"] if case["status"] != "ok" else "", LONGEST_REASON),
        )
        for case in ordered
    ]
    parts = [f"{NAMES[part]}, 95 %" for part in TOLD]
    yield Table(("case", "status", "time per call, 95 %", *parts, "tokens per second", "noise", "check", "why"), rows, MOST_CASES)


def _runs(document: Document) -> Iterator[str]:
    commands = [run["command"] for run in reversed(document["runs"]) if run["command"] and len(run["command"]) <= LONGEST_COMMAND]
    if told := list(dict.fromkeys(commands))[:MOST_COMMANDS]:
        yield "Measured with:"
        yield fenced(told)


def _status(status: str) -> str:
    return f"{glyph(status)} {prose(status.replace('_', ' '))}"


def _measured(figure: Sequence[Any] | None, unit: str) -> str:
    return "" if not figure or figure[0] is None else with_error(figure[0], figure[1], figure[2], unit)
