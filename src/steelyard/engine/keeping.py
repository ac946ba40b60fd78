"""The interface that supervision needs to store results: a run on this disk, or a station's connection to the run on another host."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from steelyard.model.pair import Pair
from steelyard.model.record import Arrays, Attachment, Record


class ResultKeeper(Protocol):
    """Stores records, pairs and files, and lists those that are stored."""

    path: Path
    done: dict[str, Record]
    pairs: list[Pair]

    def append(self, record: Record, arrays: Arrays | None = None) -> Record: ...
    def append_pair(self, pair: Pair, arrays: Arrays | None = None) -> Pair: ...
    def attach(self, kind: str, name: str, data: bytes) -> Attachment: ...
