"""Who was asked for: what a launcher says of its stations, which of them are still to come, and which are followed by a fresh one."""

from __future__ import annotations

from collections.abc import Callable, Collection

from steelyard.engine.farm.launchers import Launcher, StationState

LATE = 1800.0
"""Seconds after which a station that is said to run, and that has not joined, is waited for no more; it may build an environment first."""


class Roster:
    """The stations of one launcher by name, whether they have joined or not."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.states: dict[str, StationState] = {}
        self.ask: Callable[[], None] = lambda: None
        """Asks for one more station; set by the owner of the invitations."""
        self._spare = 2 + 2 * launcher.count
        self._settled: set[str] = set()
        """Stations that are gone and were followed by another one, if any."""
        self._running: dict[str, float] = {}

    def look(self, now: float) -> list[StationState]:
        """Ask the launcher; what it says of stations for the first time, or differently than before."""
        states = {state.name: state for state in self.launcher.states()}
        changed = [state for name, state in states.items() if self.states.get(name) != state]
        self.states = states
        self._running = {state.name: self._running.get(state.name, now) for state in states.values() if state.phase == "running"}
        return changed

    def worked(self) -> None:
        """Work came back: those that are lost from here on are followed again."""
        self._spare = max(self._spare, 2 + self.launcher.count)

    def settled(self, name: str) -> bool:
        """Whether the end of a station was seen already."""
        return name in self._settled

    def follow(self, name: str) -> None:
        """After a lost station ask for a new one, once for each, and not endlessly if none does any work."""
        if name not in self._settled and self._spare > 0:
            self._spare -= 1
            self.ask()
        self._settled.add(name)

    def coming(self, joined: Collection[str], now: float) -> list[StationState]:
        """Those that may still join."""
        absent = [state for name, state in self.states.items() if state.phase != "gone" and name not in joined]
        return [state for state in absent if now - self._running.get(state.name, now) < LATE]

    def reasons(self) -> list[str]:
        """Messages about stations that did not come."""
        late = f"it runs, and has not joined in {LATE / 60:.0f} minutes"
        return [state.reason or late for state in self.states.values() if state.reason or state.phase == "running"]
