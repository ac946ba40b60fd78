"""Work that a block leaves to a device on streams which the block's own does not wait for: events on that one stream never see it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

LEAST, SHARE, WAITS = 5e-5, 0.05, 5
"""A device goes on after a block if waiting for all of it takes more than so many seconds, this share of the block, and so many times what
waiting for an idle one takes."""
MOST_STRAYS = 3
"""This many such blocks of one loop in a row are not chance."""
IDLE_WAITS = 5


class LeftOver:
    """How long a device still works after a block has ended, by a clock of the host's; nothing where one cannot wait for all of it."""

    def __init__(self, api: Any, now: Callable[[], float]) -> None:
        self.wait: Callable[[], Any] | None = getattr(api, "synchronize", None)
        self.now = now
        self.idle = 0.0
        if self.wait is not None:
            self.wait()
            self.idle = statistics.median(self._waited(self.wait) for _ in range(IDLE_WAITS))

    def after(self, block: float) -> float:
        """Seconds that a block of so many seconds left over."""
        more = self._waited(self.wait) if self.wait is not None else 0.0
        return more if more > max(LEAST, SHARE * block, WAITS * self.idle) else 0.0

    def _waited(self, wait: Callable[[], Any]) -> float:
        before = self.now()
        wait()
        return self.now() - before
