"""Times as they are stored, and as numbers to sort by."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime

PATIENCE_S = 60.0
"""The accepted difference between the clocks of two machines."""
FUTURE = "is dated in the future, so it does not count as the latest: check the clock"


def now() -> str:
    """The current time as ISO UTC, the only form in which times are stored."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def ahead(created: str) -> bool:
    """Whether a time is in the future: a clock was wrong when it was written, or is wrong now."""
    return moment(created) > time.time() + PATIENCE_S


def stamped(stamp: str) -> str:
    """The time in a run folder's name, as ISO; empty if it is not a time."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(stamp, "%Y%m%dT%H%M%S").replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
    return ""


def moment(created: str) -> float:
    """A stored time as a number to sort by; zero for one that cannot be read."""
    with contextlib.suppress(ValueError, OverflowError):
        when = datetime.fromisoformat(created)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return 0.0


def utc(created: str) -> str | None:
    """A stored time as UTC without a time zone, for a database; None for one that cannot be read."""
    with contextlib.suppress(ValueError, OverflowError):
        when = datetime.fromisoformat(created)
        return (when.astimezone(UTC) if when.tzinfo else when).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    return None
