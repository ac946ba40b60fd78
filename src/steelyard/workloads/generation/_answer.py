"""The answer to one request: its tokens and their times."""

from __future__ import annotations

from typing import Any

from steelyard.errors import UsageError
from steelyard.measuring.requests import Stamps
from steelyard.model.task import Reading


class GeneratedTokens(dict[str, Any]):
    """The new tokens of every row under `tokens`, and their times in `stamps`."""

    def __init__(self, tokens: Any, stamps: Stamps) -> None:
        super().__init__(tokens=tokens)
        self.stamps = stamps


def check_sizes(batch: int, prompt: int, new: int) -> None:
    """Check that a request has at least one row, one token to read and one to write."""
    for name, value in (("batch", batch), ("prompt", prompt), ("new", new)):
        if value < 1:
            raise UsageError(f"{name} is {value}", do=f"give at least 1, such as -a {name}=1")


def reading_of(new: int) -> Any:
    """Return a function that reads the times from an answer with `new` new tokens."""

    def read(answer: GeneratedTokens) -> Reading:
        return answer.stamps.reading(new)

    return read
