"""Whether two records may be compared, judged by the machines that they were made on.

On a farm each record says which kind of machine made it: its key, and how fast hosts of that kind are. The number in a key comes from the
user's own cache, so two users, or one who lost the cache, may give the same number to different kinds; their speeds show that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steelyard.model.record import HOST, Record, machine_of
from steelyard.model.units import is_amount, percent

SPEED, SPREAD = "speed", "spread"
"""Keys of the calibration in a record's host: seconds of fixed work by name, and among them the relative spread of its rounds."""
ALIKE = 0.08
"""Hosts whose medians differ by no more than this share are of one kind, however quiet they are."""
NOISES = 4.0
"""Noisy hosts are of one kind if their medians differ by no more than this many times their spread."""


@dataclass(frozen=True)
class MadeOn:
    """The kind of machine that a record was made on; `speed` is empty if it was not calibrated."""

    key: str
    speed: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    @classmethod
    def of(cls, record: Record, key: str) -> MadeOn:
        """Read it from a record and the key of its run; invalid speeds are ignored."""
        host = record.effective.get(HOST)
        told = host.get(SPEED) if isinstance(host, Mapping) else None
        known = {str(name): float(value) for name, value in told.items() if is_amount(value)} if isinstance(told, Mapping) else {}
        speed = {name: value for name, value in known.items() if value > 0 and name != SPREAD}
        return cls(machine_of(record, key), speed, known.get(SPREAD, 0.0))

    def apart(self, other: MadeOn) -> str:
        """How this machine differs from another with the same key, in words; empty if they are alike or not calibrated."""
        return differs(self.speed, other.speed, max(self.spread, other.spread))

    def like(self, other: MadeOn) -> bool:
        """Whether times made on both may be compared."""
        return self.key == other.key and not self.apart(other)


def differs(one: Mapping[str, float], other: Mapping[str, float], spread: float) -> str:
    """What differs between two hosts by more than their noise, and how much; empty if nothing does."""
    for name in sorted(one.keys() & other.keys()):
        apart = one[name] / other[name] - 1
        if abs(apart) > max(ALIKE, NOISES * spread):
            return f"{name} takes {percent(abs(apart))} {'more' if apart > 0 else 'less'}"
    return ""


def unlike(machines: Iterable[MadeOn]) -> str:
    """How another of these machines, which have one key, differs from the first; empty if all are alike."""
    found = list(machines)
    return next((words for other in found[1:] if (words := other.apart(found[0]))), "")
