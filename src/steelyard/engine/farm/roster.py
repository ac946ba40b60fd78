"""The stations that were requested: their states by the launcher, which may still join, and which are replaced by new ones."""

from __future__ import annotations

from collections.abc import Callable, Collection

from steelyard.engine.farm.launchers import Launcher, StationState

LATE = 1800.0
"""Seconds to wait for a running station to join; so long because it may build an environment first."""


class Roster:
    """The stations of one launcher by name, whether they have joined or not."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.states: dict[str, StationState] = {}
        self.ask: Callable[[], None] = lambda: None
        """Requests one more station; set by the owner of the invitations."""
        self._spare = 2 + 2 * launcher.count
        self._settled: set[str] = set()
        """Stations that are gone, and were replaced if a replacement was due."""
        self._running: dict[str, float] = {}

    def look(self, now: float) -> list[StationState]:
        """Query the launcher; return the states that are new or have changed."""
        states = {state.name: state for state in self.launcher.states()}
        changed = [state for name, state in states.items() if self.states.get(name) != state]
        self.states = states
        self._running = {state.name: self._running.get(state.name, now) for state in states.values() if state.phase == "running"}
        return changed

    def worked(self) -> None:
        """Note that work came back: stations that are lost from now on are replaced again."""
        self._spare = max(self._spare, 2 + self.launcher.count)

    def settled(self, name: str) -> bool:
        """Whether the end of a station was handled already."""
        return name in self._settled

    def follow(self, name: str) -> None:
        """Request a replacement for a lost station, once, and only a limited number while no station does any work."""
        if name not in self._settled and self._spare > 0:
            self._spare -= 1
            self.ask()
        self._settled.add(name)

    def coming(self, joined: Collection[str], now: float) -> list[StationState]:
        """Return the stations that may still join, with those that were requested since the last look at the launcher."""
        known = {state.name: state for state in self.launcher.states()} | self.states
        absent = [state for name, state in known.items() if state.phase != "gone" and name not in joined]
        return [state for state in absent if now - self._running.get(state.name, now) < LATE]

    def reasons(self) -> list[str]:
        """Return why stations did not join."""
        late = f"it is running, but did not join within {LATE / 60:.0f} minutes"
        return [state.reason or late for state in self.states.values() if state.reason or state.phase == "running"]
