"""Arrays with other values: written where they lie, or, where a framework's arrays cannot be changed, put in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


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


def alter_array(value: Any, change: Callable[[Any], Any]) -> bool:
    """Write changed values into one of numpy's arrays, which tasks of any framework may have."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable or value.dtype.kind not in "biufc":
        return False
    with np.errstate(all="ignore"):
        value[...] = change(value)
    return True
