"""Rulings of the referee in words: one candidate in full, or a line for each of many."""

from __future__ import annotations

from collections.abc import Iterator

from steelyard.model.judging import Ruling
from steelyard.model.units import percent, with_error

MOST_WORDS = 240


def headline(ruling: Ruling) -> str:
    """The answer first: right or not, and how its time compares."""
    if ruling.correct:
        effect = ruling.delta.effect if ruling.delta is not None else "not timed"
        return f"✓ {ruling.candidate}: correct, {effect}"
    first = next((trick for trick in ruling.tricks if trick.voids), None)
    what = f"{ruling.status} ({first.kind})" if first is not None and ruling.status == "wrong" else ruling.status
    return f"✗ {ruling.candidate}: {what}: {_short(ruling.reason)}"


def lines(ruling: Ruling) -> Iterator[str]:
    """Everything that a reader wants to know of one ruling, the headline first."""
    yield headline(ruling)
    for name, words in (("reference_time", "reference"), ("time", "candidate")):
        if (figure := ruling.figures.get(name)) is not None:
            yield f"    {words:10} {with_error(figure.value, figure.low, figure.high, figure.unit)} a call"
    if ruling.roof is not None:
        yield f"    {percent(ruling.roof)} of what the device's memory allows"
    for trick in ruling.tricks:
        yield f"    {'✗' if trick.voids else '·'} {trick.kind}: {_short(trick.words)}"
    if facts := checked(ruling):
        yield f"    {facts}"


def checked(ruling: Ruling) -> str:
    """What the ruling rests on."""
    facts = ruling.facts
    if "answers_checked" not in facts:
        return ""
    words = [f"{facts['answers_checked']} answers checked", f"{facts.get('calls_timed', 0)} calls timed"]
    words += [f"{facts['blocks_audited']} of {facts['blocks']} blocks audited"] if facts.get("blocks") else []
    found = ruling.verification
    if found is not None and found.identical:
        words.append("bit-identical to the reference")
    elif found is not None and found.figures.get("times_own"):
        words.append(f"error {found.figures['times_own']:.2g} times the reference's own")
    return " · ".join(words)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MOST_WORDS else f"{flat[: MOST_WORDS - 1]}…"
