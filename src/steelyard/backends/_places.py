"""Gives arrays other values: in place, or by replacing arrays that a framework cannot change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Places:
    """Replacements of arrays, by identity; the arrays are kept alive, so that no other object gets the same id."""

    instead: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def now(self, value: Any) -> Any:
        """Return the replacement of an array, or the array itself if it has none."""
        found = self.instead.get(id(value))
        return value if found is None else found[1]

    def put(self, value: Any, other: Any) -> None:
        """Replace an array from now on."""
        self.instead[id(value)] = (value, other)

    def all(self, value: Any) -> Any:
        """Return a structure of plain containers with every array replaced."""
        if isinstance(value, Mapping):
            return {key: self.all(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self.all, value))
        return self.now(value)


def alter_array(value: Any, change: Callable[[Any], Any]) -> bool:
    """Change a numpy array in place, and return whether that was possible; tasks of any framework may have numpy arrays."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable or value.dtype.kind not in "biufc":
        return False
    with np.errstate(all="ignore"):
        value[...] = change(value)
    return True
