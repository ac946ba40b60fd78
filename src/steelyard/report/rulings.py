"""Rulings of the referee in words: one candidate in full, many in a table, and both as Markdown.

The first line is the result. Names and errors come from candidates, so control characters are removed from all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from steelyard.model.judging import TRICKS, Ruling, Trick
from steelyard.model.record import Figure, Verification
from steelyard.model.units import number_of, percent
from steelyard.report.cells import VERDICT_GLYPHS, clean, cut, delta_text, figure_text, glyph, pad, shortened
from steelyard.report.export import table
from steelyard.report.markdown import LONGEST_REASON, code, table_lines
from steelyard.report.page import Page, joined, wrapped

OF_THE_PROBLEM = ("weak", "trivial")
CONFIDENCE = "times with 95 %, effect with 99 % intervals"
LEAST_NAME, LEAST_WHY = 12, 16
MOST_KERNELS = 12


def headline(ruling: Ruling) -> str:
    """`candidate: correct, 1.42x faster [1.38, 1.46]`, or what is wrong with it."""
    return f"{clean(ruling.candidate)}: {answer(ruling)}"


def answer(ruling: Ruling) -> str:
    """The result without the candidate's name: `correct, 1.42x faster [1.38, 1.46]`, or what is wrong with it."""
    if ruling.correct:
        return f"correct, {clean(ruling.delta.effect)}" if ruling.delta else "correct, not timed"
    why = reason(ruling)
    return f"{ruling.status.replace('_', ' ')}: {why}" if why else ruling.status.replace("_", " ")


def reason(ruling: Ruling) -> str:
    """Why a candidate is not correct, with the kind of trick if one makes it wrong."""
    words = clean(shortened(ruling.reason or (ruling.verification.message if ruling.verification else "")))
    kinds = [trick.kind for trick in ruling.tricks if trick.voids and (trick.words == ruling.reason or not ruling.reason)]
    return ": ".join(part for part in (kinds[0] if kinds else "", words) if part)


def ruling_page(ruling: Ruling, *, width: int = 100) -> Text:
    """One candidate in full."""
    page = Page(width)
    page.lines += wrapped(f"{glyph(ruling.status)} {headline(ruling)}", width, f"bold {_colour(ruling)}".strip())
    page.rows("time of a call", [*_times(ruling), ("", CONFIDENCE if _has_times(ruling) else "")])
    page.rows("what was found", [(trick.kind, _trick_words(trick)) for trick in _own(ruling)])
    page.rows("the problem", [(trick.kind, _trick_words(trick)) for trick in _of_problem(ruling)])
    page.rows("how it was checked", list(_checks(ruling)))
    page.rows("kernels", list(_kernels(ruling)))
    return page.drawn()


def _colour(ruling: Ruling) -> str:
    """Red if a candidate is not correct, green if it is faster by more than the margin."""
    if not ruling.correct:
        return "red"
    return "green" if ruling.delta and ruling.delta.verdict == "faster" and ruling.delta.material else ""


def _times(ruling: Ruling) -> Iterator[tuple[str, str]]:
    for name, figure in (("candidate", time_of(ruling)), ("reference", time_of(ruling, reference=True))):
        yield name, figure_text(figure) if figure else ""
    if ruling.roof is not None:
        yield "roof", f"{percent(ruling.roof)} of what the device's memory allows"
    if ruling.delta and ruling.delta.reason and ruling.correct:
        yield "note", clean(ruling.delta.reason)


def time_of(ruling: Ruling, *, reference: bool = False) -> Figure | None:
    """The time of a call, of the candidate or of the reference beside it."""
    if ruling.pair:
        return ruling.pair.base.time if reference else ruling.pair.head.time
    return ruling.figures.get("reference_time" if reference else "time")


def _has_times(ruling: Ruling) -> bool:
    return time_of(ruling) is not None


def _own(ruling: Ruling) -> list[Trick]:
    return [trick for trick in ruling.tricks if trick.voids or trick.kind not in OF_THE_PROBLEM]


def _of_problem(ruling: Ruling) -> list[Trick]:
    return [trick for trick in ruling.tricks if not trick.voids and trick.kind in OF_THE_PROBLEM]


def _trick_words(trick: Trick) -> str:
    """The evidence, after the meaning of the finding's kind if that adds something; findings that do not make the candidate wrong are
    marked."""
    meaning = TRICKS.get(trick.kind, "")
    words = [clean(trick.words)] if not meaning or trick.words == meaning else [f"{meaning}: {clean(trick.words)}"]
    if not trick.voids and trick.kind not in OF_THE_PROBLEM:
        words.append("(note only, does not make it wrong)")
    return " ".join(words)


def _checks(ruling: Ruling) -> Iterator[tuple[str, str]]:
    facts = ruling.facts
    if isinstance(checked := facts.get("answers_checked"), int):
        draws = facts.get("draws")
        fresh = f", each for its own inputs ({draws} drawn in all)" if isinstance(draws, int) else ""
        yield "answers", f"{checked} checked{fresh}"
    if isinstance(blocks := facts.get("blocks"), int):
        audited, calls = facts.get("blocks_audited", 0), facts.get("calls_timed", 0)
        pairs = facts.get("process_pairs", 1)
        where = f" in {number_of(pairs, 'pair')} of processes" if isinstance(pairs, int) else ""
        yield "timed", f"{number_of(int(calls), 'call')} in {number_of(blocks, 'block')}{where}; outputs checked in {audited}"
    if ruling.verification:
        yield "against", clean(ruling.verification.against)
        yield "error", error_words(ruling.verification)
    if ruling.pair:
        yield "pair", " · ".join(ruling.pair.facts)
    for name in ("device", "hardware", "weights", "threads"):
        if facts.get(name) not in (None, "", 1):
            yield name, clean(facts[name])


def error_words(found: Verification) -> str:
    """`largest 1.2e-06 of the answer's spread; the reference's own is 1.5e-06, on average 0.8 times that`."""
    if found.identical:
        return "none: the answers are bit-identical to the reference's"
    figures = found.figures
    if "error" not in figures:
        return ""
    words = f"largest {figures['error']:.2g} of the answer's spread"
    own = f"; the reference's own is {figures['own_error']:.2g}" if "own_error" in figures else ""
    times = f", on average {figures['times_own']:.2g} times that" if figures.get("times_own") and figures.get("own_error") else ""
    return words + own + times


def _kernels(ruling: Ruling) -> Iterator[tuple[str, str]]:
    listed = ruling.facts.get("kernels")
    counts = sorted(listed.items(), key=lambda item: -item[1]) if isinstance(listed, Mapping) else []
    for name, count in counts[:MOST_KERNELS]:
        yield f"{count} ×", clean(name)
    if len(counts) > MOST_KERNELS:
        yield "", f"and {len(counts) - MOST_KERNELS} more"


def ruling_table(rulings: Sequence[Ruling], *, width: int = 100) -> Text:
    """Many candidates: a line for each below its problem, and the totals."""
    lines: list[Text] = []
    by_problem: dict[str, list[Ruling]] = {}
    for ruling in rulings:
        by_problem.setdefault(ruling.problem, []).append(ruling)
    for problem, found in by_problem.items():
        lines += [*wrapped(clean(problem), width, "bold"), *_problem_notes(found, width), *_rows(found, width), Text("")]
    return joined([*lines, *wrapped(summary(rulings), width), *wrapped(CONFIDENCE, width, "dim")])


def _problem_notes(found: Sequence[Ruling], width: int) -> Iterator[Text]:
    """Weaknesses of a problem, listed once for all of its candidates."""
    told = dict.fromkeys(f"{trick.kind}: {clean(trick.words)}" for ruling in found for trick in _of_problem(ruling))
    for words in told:
        yield from wrapped(words, width, "yellow", "  ")


def _rows(found: Sequence[Ruling], width: int) -> Iterator[Text]:
    names = [clean(ruling.candidate) for ruling in found]
    times = [figure_text(time) if (time := time_of(ruling)) and ruling.correct else "" for ruling in found]
    effects = [_effect(ruling) for ruling in found]
    time_width, effect_width = (max(map(cell_len, column)) for column in (times, effects))
    name = max(LEAST_NAME, min(max(map(cell_len, names)), width - time_width - effect_width - LEAST_WHY))
    for ruling, label, took, said in zip(found, names, times, effects, strict=True):
        start = f"{glyph(ruling.status)} {pad(cut(label, name), name)}"
        if ruling.correct:
            notes = ", ".join(dict.fromkeys(trick.kind for trick in _own(ruling)))
            rest = f"  {pad(said, effect_width)}  {pad(took, time_width, '>')}  {notes}"
        else:
            rest = f"  {answer(ruling)}"
        yield Text(cut(f"{start}{rest}".rstrip(), width), _colour(ruling))


def _effect(ruling: Ruling) -> str:
    return delta_text(ruling.delta) if ruling.correct and ruling.delta else VERDICT_GLYPHS["missing"] if ruling.correct else ""


def summary(rulings: Sequence[Ruling]) -> str:
    """`12 judged: 8 correct (3 faster), 3 wrong, 1 timeout`."""
    counts = Counter(ruling.status for ruling in rulings)
    faster = sum(bool(ruling.correct and ruling.delta and ruling.delta.verdict == "faster") for ruling in rulings)
    right = counts.pop("ok", 0)
    words = [f"{right} correct" + (f" ({faster} faster)" if right else "")] if right or not counts else []
    words += [f"{count} {status.replace('_', ' ')}" for status, count in counts.most_common()]
    kinds = Counter(trick.kind for ruling in rulings for trick in ruling.tricks if trick.voids)
    seen = f" · tricks: {', '.join(f'{kind} {count}' for kind, count in kinds.most_common())}" if kinds else ""
    return f"{len(rulings)} judged: {', '.join(words)}{seen}"


def row(ruling: Ruling, *, width: int = 100) -> Text:
    """One candidate in one line, to print as soon as it is judged."""
    notes = ", ".join(dict.fromkeys(trick.kind for trick in _own(ruling) if not trick.voids)) if ruling.correct else ""
    return Text(cut(f"{glyph(ruling.status)} {headline(ruling)}{f' ({notes})' if notes else ''}", width), _colour(ruling))


def rulings_csv(rulings: Sequence[Ruling]) -> str:
    """A line for each candidate, for spreadsheets; times in seconds."""
    heads = (
        "problem", "candidate", "status", "correct", "reason", "time_ratio", "low", "high", "verdict", "time_s", "reference_time_s", "roof",
        "tricks",
    )  # fmt: skip
    rows = []
    for ruling in rulings:
        delta, mine, other = ruling.delta, time_of(ruling), time_of(ruling, reference=True)
        numbers = (delta.ratio, delta.low, delta.high) if delta else (None, None, None)
        rows.append((
            ruling.problem, ruling.candidate, ruling.status, ruling.correct, reason(ruling), *map(_finite, numbers),
            delta.verdict if delta else "", _finite(mine.value if mine else None), _finite(other.value if other else None),
            _finite(ruling.roof), " ".join(trick.kind for trick in ruling.tricks),
        ))  # fmt: skip
    return table(heads, rows)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def rulings_markdown(rulings: Sequence[Ruling]) -> str:
    """The rulings for a CI summary: the result and a table with the findings, in code spans that no text in them can close."""
    title = code(headline(rulings[0]), LONGEST_REASON) if len(rulings) == 1 else summary(rulings)
    sign = "✅" if rulings and all(ruling.correct for ruling in rulings) else "❌"
    rows = [
        (
            glyph(ruling.status), code(ruling.candidate), code(ruling.problem),
            clean(ruling.delta.effect) if ruling.correct and ruling.delta else code(answer(ruling), LONGEST_REASON),
            code(figure_text(mine)) if (mine := time_of(ruling)) else "",
            code(figure_text(other)) if (other := time_of(ruling, reference=True)) else "",
            percent(ruling.roof) if ruling.roof is not None else "",
            code("; ".join(f"{trick.kind}: {trick.words}" for trick in ruling.tricks), LONGEST_REASON),
        )
        for ruling in rulings
    ]  # fmt: skip
    heads = ("", "candidate", "problem", "ruling", "candidate's time", "reference's time", "roof", "found")
    return (
        "\n".join([f"## {sign} Steelyard: {title}", "", *table_lines(heads, rows), "", f"{CONFIDENCE[0].upper()}{CONFIDENCE[1:]}."]) + "\n"
    )
