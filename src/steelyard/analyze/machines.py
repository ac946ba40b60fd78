"""Whether two records may be held against each other by the machines that they were made on.

On a farm each record says which kind of machine made it: its key, and how fast hosts of that kind are. The number behind a key is given by
the user's own cache, so two users, or one with a lost cache, may give one number to different kinds; the speeds show that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steelyard.model.record import HOST, Record, machine_of
from steelyard.model.units import is_amount, percent

SPEED, SPREAD = "speed", "spread"
"""What a record's host has of its kind: seconds of fixed work by name, and how far the rounds lay apart, as a share."""
ALIKE = 0.08
"""Two hosts whose medians lie this close are of one kind, however quiet they are."""
NOISES = 4.0
"""And else if they differ by less than so many times their spread."""


@dataclass(frozen=True)
class MadeOn:
    """The kind of machine that a record was made on; speeds are empty where none was calibrated."""

    key: str
    speed: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    @classmethod
    def of(cls, record: Record, key: str) -> MadeOn:
        """From a record, and the key of its run; a speed that is no sound figure says nothing."""
        host = record.effective.get(HOST)
        told = host.get(SPEED) if isinstance(host, Mapping) else None
        known = {str(name): float(value) for name, value in told.items() if is_amount(value)} if isinstance(told, Mapping) else {}
        speed = {name: value for name, value in known.items() if value > 0 and name != SPREAD}
        return cls(machine_of(record, key), speed, known.get(SPREAD, 0.0))

    def apart(self, other: MadeOn) -> str:
        """In what this machine and another one of its key differ; nothing where they are alike, or nothing is known."""
        return differs(self.speed, other.speed, max(self.spread, other.spread))

    def like(self, other: MadeOn) -> bool:
        """Whether times made on both may be compared."""
        return self.key == other.key and not self.apart(other)


def differs(one: Mapping[str, float], other: Mapping[str, float], spread: float) -> str:
    """In what two hosts differ by more than their noise, with how much; nothing where they do not."""
    for name in sorted(one.keys() & other.keys()):
        apart = one[name] / other[name] - 1
        if abs(apart) > max(ALIKE, NOISES * spread):
            return f"{name} takes {percent(abs(apart))} {'more' if apart > 0 else 'less'}"
    return ""


def unlike(machines: Iterable[MadeOn]) -> str:
    """In what the first of some machines of one key differs from another one of them; nothing where all are alike."""
    found = list(machines)
    return next((words for other in found[1:] if (words := other.apart(found[0]))), "")
