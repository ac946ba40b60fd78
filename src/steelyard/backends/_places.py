"""Frameworks whose arrays cannot be changed: what stands in the place of one is remembered here, and calls get that instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Places:
    """What stands in the place of arrays, by identity; the arrays are kept, so that no other gets their number."""

    instead: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def now(self, value: Any) -> Any:
        """What stands for an array; itself where nothing does."""
        found = self.instead.get(id(value))
        return value if found is None else found[1]

    def put(self, value: Any, other: Any) -> None:
        """From now on."""
        self.instead[id(value)] = (value, other)

    def all(self, value: Any) -> Any:
        """The same for a whole structure of plain containers."""
        if isinstance(value, Mapping):
            return {key: self.all(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self.all, value))
        return self.now(value)
