"""What one request answers: its tokens, with the times at which they came."""

from __future__ import annotations

from typing import Any

from steelyard.measuring.requests import Stamps
from steelyard.model.task import Reading


class GeneratedTokens(dict[str, Any]):
    """The new tokens of every row under `tokens`, and when they came."""

    def __init__(self, tokens: Any, stamps: Stamps) -> None:
        super().__init__(tokens=tokens)
        self.stamps = stamps


def reading_of(new: int) -> Any:
    """Reads the times off an answer that should have so many new tokens."""

    def read(answer: GeneratedTokens) -> Reading:
        return answer.stamps.reading(new)

    return read
