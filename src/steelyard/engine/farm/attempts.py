"""Which station has which group, the numbered attempts at each group, and which answers count.

A group is with one station at most. Only the answers of its last attempt count, and each only once; so every case is stored once, even
if the network or a returning station repeats answers. Plain state without clock or network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from steelyard.engine.farm.groups import JobGroup
from steelyard.engine.farm.wire import AttemptMark

MOST_DEATHS = 3
"""A group is not offered again after this many stations were lost while measuring it: it is then the likely cause."""


@dataclass
class GroupState:
    """A group, its last attempt, and the station that has it."""

    group: JobGroup
    attempt: int = 0
    holder: str = ""
    received: int = 0
    """The number of the attempt's last answer that was accepted."""
    begun: bool = False
    """Whether its station has begun a case of the attempt."""
    deaths: list[str] = field(default_factory=list)
    """Why stations were lost while measuring it."""
    troubles: list[str] = field(default_factory=list)
    """Why stations could not measure it."""
    avoid: set[str] = field(default_factory=set)
    """Stations that could not measure it."""
    machine: str = ""
    """The machine key of its cases that are stored already; its other cases should be measured on the same kind of machine."""
    last_holder: str = ""
    over: bool = False


class AttemptLedger:
    """The groups of a run, and which station has each."""

    def __init__(self, groups: Iterable[JobGroup], attempts: Mapping[int, int]) -> None:
        self.states = {group.number: GroupState(group, attempts.get(group.number, 0)) for group in groups}
        self._open = len(self.states)
        self.held: dict[str, list[int]] = {}
        """The groups that each station has, in the order in which they were offered."""

    @property
    def left(self) -> bool:
        """Whether any group is unfinished."""
        return self._open > 0

    def begin(self, number: int, station: str) -> AttemptMark:
        """Start the next attempt at a group, by a station."""
        state = self.states[number]
        assert not state.over and not state.holder, f"group {number} is with {state.holder or 'no station, and over'}"
        state.attempt, state.received, state.begun = state.attempt + 1, 0, False
        state.holder = state.last_holder = station
        self.held.setdefault(station, []).append(number)
        return AttemptMark(number, state.attempt)

    def counts(self, mark: AttemptMark, station: str) -> bool:
        """Whether this is the last attempt at its group, and this station has it."""
        state = self.states.get(mark.group)
        return state is not None and not state.over and state.holder == station and state.attempt == mark.attempt

    def take(self, mark: AttemptMark, number: int) -> bool:
        """Accept an answer of an attempt that counts, if it is new; return whether it is. ValueError if an answer before it is missing."""
        state = self.states[mark.group]
        if number <= state.received:
            return False
        if number != state.received + 1:
            raise ValueError(f"answer {number} came after {state.received}")
        state.received = number
        return True

    def finish(self, number: int) -> None:
        """Mark a group as finished."""
        self._let_go(self.states[number])
        self._open -= not self.states[number].over
        self.states[number].over = True

    def give_back(self, number: int, *, avoid: bool = False) -> None:
        """Make a group free again without counting a lost station; `avoid` means that its station cannot measure it."""
        state = self.states[number]
        if avoid:
            state.avoid.add(state.holder)
        self._let_go(state)

    def lose(self, station: str, reason: str) -> list[GroupState]:
        """Free and return the groups of a lost station; each group that it had begun counts one more lost station."""
        freed = list(self.of(station))
        for state in freed:
            if state.begun:
                state.deaths.append(reason)
            self._let_go(state)
        self.held.pop(station, None)
        return freed

    def of(self, station: str) -> Sequence[GroupState]:
        """Return the groups that a station has."""
        return [self.states[number] for number in self.held.get(station, ())]

    def stale(self, marks: Collection[AttemptMark], station: str) -> list[AttemptMark]:
        """Return the attempts of a station that no longer count."""
        return [mark for mark in marks if not self.counts(mark, station)]

    def _let_go(self, state: GroupState) -> None:
        if state.holder:
            self.held[state.holder].remove(state.group.number)
        state.holder = ""
