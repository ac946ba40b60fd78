"""Options of another tool's command line as plain data, which is how a worker gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from steelyard.errors import unknown


class Plain:
    """For a dataclass of options: to and from what JSON knows."""

    def plain(self) -> dict[str, Any]:
        """As JSON knows it, for the worker and the header."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """What `plain` gave, or the words of a call; a name that is none is an error."""
        known = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        for name in data:
            if name not in known:
                raise unknown("option", name, known)
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})
