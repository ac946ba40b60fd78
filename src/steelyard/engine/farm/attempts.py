"""Who has what: the groups of a run, the numbered attempts at each, and which answer counts.

A group is with one station at most. Only the attempt with the last number counts, and of that only what was not there yet; so even if a
network or a returning station repeats answers, every case is kept once. Plain state without clock or network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from steelyard.engine.farm.groups import JobGroup
from steelyard.engine.farm.wire import AttemptMark

MOST_DEATHS = 3
"""A group at which this many stations were lost is not offered again."""


@dataclass
class GroupState:
    """A group, its last attempt, and who has that."""

    group: JobGroup
    attempt: int = 0
    holder: str = ""
    received: int = 0
    """The number of the attempt's last answer that was taken."""
    begun: bool = False
    """Whether its station has said that it began a case of the attempt."""
    deaths: list[str] = field(default_factory=list)
    """How the stations that were lost at it ended."""
    troubles: list[str] = field(default_factory=list)
    """Why stations could not do it."""
    avoid: set[str] = field(default_factory=set)
    """Stations that could not do it."""
    machine: str = ""
    """The machine key of those of its cases that are kept already, which the others should share."""
    last_holder: str = ""
    over: bool = False


class AttemptLedger:
    """The groups of a run that still have something to do."""

    def __init__(self, groups: Iterable[JobGroup], attempts: Mapping[int, int]) -> None:
        self.states = {group.number: GroupState(group, attempts.get(group.number, 0)) for group in groups}
        self._open = len(self.states)
        self.held: dict[str, list[int]] = {}
        """The groups that each station has, in the order in which they were offered."""

    @property
    def left(self) -> bool:
        """Whether anything is to be done."""
        return self._open > 0

    def begin(self, number: int, station: str) -> AttemptMark:
        """The next attempt at a group, by a station."""
        state = self.states[number]
        assert not state.over and not state.holder, f"group {number} is with {state.holder or 'no station, and over'}"
        state.attempt, state.received, state.begun = state.attempt + 1, 0, False
        state.holder = state.last_holder = station
        self.held.setdefault(station, []).append(number)
        return AttemptMark(number, state.attempt)

    def counts(self, mark: AttemptMark, station: str) -> bool:
        """Whether an attempt is the one that counts, and this station has it."""
        state = self.states.get(mark.group)
        return state is not None and not state.over and state.holder == station and state.attempt == mark.attempt

    def take(self, mark: AttemptMark, number: int) -> bool:
        """Whether an answer of an attempt that counts is a new one; it is then taken, and none may be missing before it."""
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
        """Make a group free again without counting a failure; `avoid` says that its station cannot do it."""
        state = self.states[number]
        if avoid:
            state.avoid.add(state.holder)
        self._let_go(state)

    def lose(self, station: str, reason: str) -> list[GroupState]:
        """A station is lost: its groups are free again, and those that it had begun count one death more."""
        freed = list(self.of(station))
        for state in freed:
            if state.begun:
                state.deaths.append(reason)
            self._let_go(state)
        self.held.pop(station, None)
        return freed

    def of(self, station: str) -> Sequence[GroupState]:
        """What a station has."""
        return [self.states[number] for number in self.held.get(station, ())]

    def stale(self, marks: Collection[AttemptMark], station: str) -> list[AttemptMark]:
        """The attempts of a station that no longer count."""
        return [mark for mark in marks if not self.counts(mark, station)]

    def _let_go(self, state: GroupState) -> None:
        if state.holder:
            self.held[state.holder].remove(state.group.number)
        state.holder = ""
