"""Compares a seal with the lines before it, so that lost lines are noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Seal:
    """The last line of a run that ended by itself: nothing is missing and nothing will follow.

    `size` and `digest` are of all bytes before this line, `proof` is made with the user's key; a seal by an older Steelyard has none
    of them.
    """

    time: str
    records: int
    counts: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    reason: str = ""
    size: int = 0
    digest: str = ""
    proof: str = ""


@dataclass(frozen=True)
class Loss:
    """How many records and pairs a sealed file has lost; `changed` is set if its lines are not those that were sealed."""

    records: int = 0
    pairs: int = 0
    changed: bool = False


UNSEALED = Loss()


def compare(seal: Seal, records: int, pairs: int, before: bytes, after: bytes) -> Loss:
    """Compare a seal with the lines that were read, the bytes before it and those after it."""
    changed = bool(after.strip()) or bool(seal.digest and hashlib.sha256(before).hexdigest() != seal.digest)
    return Loss(max(0, seal.records - records), max(0, seal.pairs - pairs), changed or (records, pairs) != (seal.records, seal.pairs))


def told(seal: Seal, loss: Loss) -> Iterator[str]:
    """Sentences on what is missing or was changed."""
    for name, lost, once in (("record", loss.records, seal.records), ("comparison", loss.pairs, seal.pairs)):
        if lost:
            plural, verb = ("" if once == 1 else "s"), ("is" if lost == 1 else "are")
            yield f"{lost} of {once} {name}{plural} {verb} missing from this file: it was cut, edited or damaged after the run ended"
    if loss.changed and not (loss.records or loss.pairs):
        yield "the file was changed after the run ended: its lines are not those that were sealed"
