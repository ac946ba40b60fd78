"""Options of another tool's command line: a table of flags, and their values as plain data, the form in which a worker gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from steelyard.errors import UsageError, unknown

Kind = Literal["switch", "text", "count", "integer", "seconds", "choice", "texts", "integers", "choices"]
"""Types of options: a count is not negative; plural kinds may be repeated."""


@dataclass(frozen=True)
class Flag:
    """One option of the command line; its default is that of the field it sets, unless it is required.

    `bare` is the value of an option that is given without one; None means that a value is required.
    """

    names: tuple[str, ...]
    key: str
    kind: Kind
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    bare: str | None = None
    required: bool = False


class PlainOptions:
    """Base of dataclasses of options: conversion to and from plain data."""

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON, for the worker and the header."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """Return options from what `plain` returned, or from keyword arguments; an unknown name is an error."""
        known = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        for name in data:
            if name not in known:
                raise unknown("option", name, known)
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


def check_count(name: str, value: Any, least: int, most: int) -> None:
    """Raise an error that names the flag if a number is out of bounds, whether it came from the command line or from a call."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"--{name.replace('_', '-')} must be a whole number from {least} to {most}, not {value!r}")
