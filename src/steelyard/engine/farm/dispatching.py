"""Which station gets which group next: free stations, fitting groups, and where a part of the group was measured before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.engine.farm.attempts import AttemptLedger
from steelyard.engine.farm.fleet import Fleet, StationView
from steelyard.engine.farm.groups import JobGroup
from steelyard.engine.farm.placing import GroupNeeds, WaitingGroups
from steelyard.engine.farm.wire import AttemptMark

AHEAD = 2
"""Groups that a station has at once while many wait, so that it never waits for the network."""


class Dispatcher:
    """The waiting groups and the stations with room; without clock or network, so that a fleet can be simulated."""

    def __init__(
        self, groups: Sequence[JobGroup], ledger: AttemptLedger, fleet: Fleet, memory: int | None, envs: Mapping[str, str]
    ) -> None:
        self.ledger, self.fleet = ledger, fleet
        self.waiting = WaitingGroups()
        self._memory, self._envs = memory, envs
        self._hungry: set[str] = set()
        """Stations that may have room for a group."""
        for group in groups:
            self.queue(group.number)

    def feed(self, name: str) -> None:
        """Note that a station has room."""
        self._hungry.add(name)

    def queue(self, number: int, *, first: bool = False) -> None:
        """Add a waiting group, which may fit any station."""
        group = self.ledger.states[number].group
        self.waiting.add(number, GroupNeeds.of(group, self._memory, self._envs), first=first)
        self._hungry.update(view.name for view in self.fleet)

    def requeue(self, number: int, *, avoid: bool = False) -> None:
        """Put a station's group back among the waiting ones."""
        self.ledger.give_back(number, avoid=avoid)
        self.queue(number, first=True)

    def due(self) -> list[tuple[StationView, AttemptMark]]:
        """Begin an attempt for every station that has room, if a group fits it; return these attempts."""
        ahead = AHEAD if len(self.waiting) > len(self.fleet) else 1
        hungry, self._hungry = sorted(self._hungry), set()
        found: list[tuple[StationView, AttemptMark]] = []
        for name in hungry:
            view = self.fleet.get(name)
            while view and view.useful and len(self.ledger.of(name)) < ahead:
                number = self._next_for(view)
                if number is None:
                    break
                self.waiting.remove(number)
                found.append((view, self.ledger.begin(number, name)))
        return found

    def _next_for(self, view: StationView) -> int | None:
        return self.waiting.next_for(view.offer, lambda number: self._suits(number, view))

    def _suits(self, number: int, view: StationView) -> bool:
        """Whether a station may get a group: it did not fail at it, and is of the kind that measured part of it, if one such is left."""
        state = self.ledger.states[number]
        if view.name in state.avoid:
            return False
        if not state.machine or state.machine == view.offer.machine:
            return True
        return not any(other.offer.machine == state.machine for other in self.fleet.useful if other.name not in state.avoid)

    def take_back(self) -> list[tuple[StationView, AttemptMark]]:
        """If no group waits and a station is idle, take back a group that another station has but has not begun."""
        if len(self.waiting):
            return []
        idle = sum(not self.ledger.of(view.name) for view in self.fleet.useful)
        found: list[tuple[StationView, AttemptMark]] = []
        for view in self.fleet.useful if idle else ():
            for state in list(self.ledger.of(view.name))[1:]:
                if not state.begun and len(found) < idle:
                    found.append((view, AttemptMark(state.group.number, state.attempt)))
        for _, mark in found:
            self.requeue(mark.group)
        return found
