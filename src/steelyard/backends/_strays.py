"""Finds device work that a block leaves on streams its own stream does not wait for, which events on its stream do not see."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

LEAST, SHARE, WAITS = 5e-5, 0.05, 5
"""A device still worked after a block if waiting for it takes more than LEAST seconds, SHARE of the block's time, and WAITS times the
wait for an idle device."""
MOST_STRAYS = 3
"""How many such blocks of one loop in a row are more than chance."""
IDLE_WAITS = 5


class LeftOver:
    """Measures how long a device still works after a block, by a clock of the host; always 0 if the device cannot be waited for."""

    def __init__(self, api: Any, now: Callable[[], float]) -> None:
        self.wait: Callable[[], Any] | None = getattr(api, "synchronize", None)
        self.now = now
        self.idle = 0.0
        if self.wait is not None:
            self.wait()
            self.idle = statistics.median(self._waited(self.wait) for _ in range(IDLE_WAITS))

    def after(self, block: float) -> float:
        """Return the seconds of work left over by a block that took `block` seconds."""
        more = self._waited(self.wait) if self.wait is not None else 0.0
        return more if more > max(LEAST, SHARE * block, WAITS * self.idle) else 0.0

    def _waited(self, wait: Callable[[], Any]) -> float:
        before = self.now()
        wait()
        return self.now() - before
