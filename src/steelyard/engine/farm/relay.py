"""A station's side of a group: records, notes and missing comparisons go to the conductor, numbered."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from steelyard import codec
from steelyard.engine.farm import frames
from steelyard.engine.farm.wire import (
    PIECE,
    AttachmentPiece,
    AttemptMark,
    CaseBegun,
    FarmMessage,
    GroupAnswer,
    GroupDone,
    Offer,
    StationWord,
    read_pair,
    read_record,
)
from steelyard.engine.plan import Job
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import Sink
from steelyard.model.pair import Pair
from steelyard.model.record import Arrays, Attachment, Record, altered

QUIET = 0.5
"""Fewest seconds between two reports of the same phase, so that progress is not most of the traffic."""
ROOM = 1 << 20
"""Bytes reserved in an answer's frame for everything but its line and its samples."""


class Outlet(Protocol):
    """Where a station sends messages: `answer` keeps one until the conductor has stored it, `tell` loses it if there is no connection."""

    def answer(self, mark: AttemptMark, number: int, message: FarmMessage) -> None: ...
    def tell(self, message: FarmMessage) -> None: ...


class RelayKeeper:
    """Sends the results of one offer to the conductor instead of storing them; the offer has the results that the run already had."""

    def __init__(self, offer: Offer, outlet: Outlet, folder: Path) -> None:
        self.mark, self.path, self._outlet = offer.mark, folder, outlet
        self.done = {record.id: record for record in map(read_record, offer.held)}
        self.pairs = [read_pair(line) for line in offer.held_pairs]
        self.number = 0
        self._files = 0

    def append(self, record: Record, arrays: Arrays | None = None) -> Record:
        """Send a record; one that is too large for a frame is replaced by a failure of its case."""
        line, sent = codec.encode(record), arrays or {}
        if (size := len(line) + sum(len(data) for _, _, data in sent.values())) > frames.LARGEST - ROOM:
            reason = f"its record has {size} bytes, and at most {frames.LARGEST - ROOM} can be sent"
            record, sent = altered(record, status="failed", reason=reason, metrics={}, effective={}, verification=None, attachments=[]), {}
            line = codec.encode(record)
        self._answer(GroupAnswer(self.mark, self.number + 1, "record", line, sent))
        self.done[record.id] = record
        return record

    def append_pair(self, pair: Pair, arrays: Arrays | None = None) -> Pair:
        """Send a comparison, without its raw blocks if they are too large."""
        line, sent = codec.encode(pair), arrays or {}
        sent = sent if len(line) + sum(len(data) for _, _, data in sent.values()) <= frames.LARGEST - ROOM else {}
        self._answer(GroupAnswer(self.mark, self.number + 1, "pair", line, sent))
        self.pairs.append(pair)
        return pair

    def attach(self, kind: str, name: str, data: bytes) -> Attachment:
        """Send a file in pieces; the conductor stores it under a name of its own."""
        self._files += 1
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("._-")[-60:] or "file"
        path = f"attachments/{self._files}-{plain}"
        for begin in range(0, len(data) or 1, PIECE):
            self._outlet.answer(self.mark, self.number + 1, AttachmentPiece(self.mark, self.number + 1, path, data[begin : begin + PIECE]))
        return Attachment(kind, path, hashlib.sha256(data).hexdigest())

    def unweighed(self, case: str, base: str, reason: str) -> None:
        """Send why a listed pair has no comparison."""
        self._answer(GroupAnswer(self.mark, self.number + 1, "unweighed", case=case, base=base, reason=reason))

    def close(self, trouble: str = "") -> None:
        """Send the end of this attempt; `trouble` is why it could not be measured."""
        self.number += 1
        self._outlet.answer(self.mark, self.number, GroupDone(self.mark, self.number, trouble))

    def _answer(self, answer: GroupAnswer) -> None:
        self._outlet.answer(self.mark, answer.number, answer)
        self.number = answer.number


class RelayWatch(NoWatch):
    """Reports a station's current step to the conductor, at a limited rate."""

    def __init__(self, mark: AttemptMark, outlet: Outlet, clock: Callable[[], float] = time.monotonic) -> None:
        self._mark, self._outlet, self._clock = mark, outlet, clock
        self._told, self._phase = 0.0, ""

    def started(self, case_id: str) -> None:
        self._outlet.tell(CaseBegun(self._mark, case_id))

    def phase(self, name: str, fraction: float | None) -> None:
        if name != self._phase or self._clock() - self._told >= QUIET:
            self._phase, self._told = name, self._clock()
            self._outlet.tell(StationWord(self._mark, "phase", name, fraction))

    def waiting(self, text: str) -> None:
        self._outlet.tell(StationWord(self._mark, "waiting", text))

    def note(self, text: str) -> None:
        self._outlet.tell(StationWord(self._mark, "note", text))


class RelaySink(Sink):
    """Sends on listed pairs that were not compared, which have no line of their own in a run."""

    def __init__(self, keeper: RelayKeeper) -> None:
        self._keeper = keeper

    def unweighed(self, job: Job, reason: str) -> None:
        assert job.vs is not None
        self._keeper.unweighed(job.case.id, job.vs.id, reason)
