"""The times of a ruling as other systems write them."""

from __future__ import annotations

from steelyard.model.judging import Ruling
from steelyard.model.record import Figure

TIME, REFERENCE_TIME = "time", "reference_time"
"""Figures of a ruling without a pair."""


def times(ruling: Ruling) -> tuple[Figure | None, Figure | None]:
    """Seconds of one call: of the candidate and of the reference."""
    if ruling.pair:
        return ruling.pair.head.time, ruling.pair.base.time
    return ruling.figures.get(TIME), ruling.figures.get(REFERENCE_TIME)


def speedup(ruling: Ruling) -> float | None:
    """The reference's time divided by the candidate's."""
    if ruling.delta and ruling.delta.ratio:
        return 1 / ruling.delta.ratio
    mine, other = times(ruling)
    return other.value / mine.value if mine and other and mine.value > 0 else None


def seated(ruling: Ruling) -> bool:
    """Whether the candidate could be loaded: by the ruling's facts, or else by its status."""
    told = ruling.facts.get("seated")
    return told if isinstance(told, bool) else ruling.status in ("ok", "wrong")


def said(ruling: Ruling) -> str:
    """Why a candidate was not accepted, in one line."""
    voids = [f"{trick.kind}: {trick.words}" for trick in ruling.tricks if trick.voids]
    message = ruling.verification.message if ruling.verification else ""
    return "; ".join(part for part in (ruling.reason, message if message != ruling.reason else "", *voids) if part)
