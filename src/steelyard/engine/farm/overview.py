"""The progress of a run on a farm, from its journal: stations, what each is at, what was kept, how fast, and how long it may take yet."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from steelyard.engine.farm.journal import JournalEvent
from steelyard.store.moments import moment

LATELY = 60.0
"""Seconds that the rate is taken over."""


@dataclass
class StationStanding:
    """A station as the list shows it."""

    name: str
    host: str
    machine: str
    done: int = 0
    groups: int = 0
    working: bool = False
    """Whether it has begun a case of what it has."""
    case: str = ""
    waits: str = ""
    """What it waits for before it can measure, such as another run that has the machine."""
    aside: str = ""
    """Why it was set aside; it ends what it had begun, and stays set aside while it does."""
    lost: str = ""

    @property
    def state(self) -> str:
        """Lost, set aside, waiting, at work or idle."""
        return "lost" if self.lost else "set aside" if self.aside else "waiting" if self.waits else "at work" if self.working else "idle"

    @property
    def reason(self) -> str:
        """Why it is so, or the case that it is at."""
        return self.lost or self.aside or self.waits or self.case

    def plain(self) -> dict[str, object]:
        """For JSON."""
        names = ("name", "host", "machine", "state", "reason", "done", "groups")
        return {name: getattr(self, name) for name in names}


@dataclass
class FarmOverview:
    """All of it at one moment."""

    on: str = ""
    began: float = 0.0
    cases: int = 0
    kept: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    stations: dict[str, StationStanding] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    dropped: int = 0
    closed: str = ""
    conductor: tuple[str, int] = ("", 0)
    """The host and the process that the run is conducted by."""
    _times: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[JournalEvent]) -> FarmOverview:
        """Play a journal from its beginning; a conductor that went on begins its count anew."""
        found = cls()
        for event in events:
            found.take(event)
        return found

    def take(self, event: JournalEvent) -> None:
        """Take in one more line of the journal."""
        name = event.text("station")
        station = self.stations.get(name)
        if event.kind == "opened":
            self.on, self.began, self.closed = event.text("on"), moment(event.time), ""
            self.cases, self.kept, self.stations, self._times = max(event.number("cases"), 0), 0, {}, []
            self.statuses, self.conductor = {}, (event.text("host"), event.number("pid"))
        elif event.kind == "joined":
            self.stations[name] = StationStanding(name, event.text("host"), event.text("machine"))
        elif event.kind == "kept":
            self.kept += 1
            self._times.append(moment(event.time))
            status = event.text("status")
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if station:
                station.done, station.case, station.waits = station.done + 1, "", ""
        elif event.kind == "refused":
            self.refused.append(f"{name or event.text('peer')}: {event.text('reason')}")
        elif event.kind == "dropped":
            self.dropped += 1
        elif event.kind == "closed":
            self.closed = event.text("reason") or "closed"
        elif station:
            self._change(station, event)

    def _change(self, station: StationStanding, event: JournalEvent) -> None:
        if event.kind == "case":
            station.working, station.case, station.waits = True, event.text("case"), ""
        elif event.kind == "waits":
            station.waits = event.text("reason")
        elif event.kind == "begun":
            station.groups += 1
        elif event.kind in ("done", "undone"):
            station.groups = max(0, station.groups - 1)
            if not station.groups:
                station.working, station.case, station.waits = False, "", ""
        elif event.kind == "kind":
            station.machine, station.waits = event.text("machine"), ""
        elif event.kind == "aside":
            station.aside = event.text("reason")
        elif event.kind == "back":
            station.aside = ""
        elif event.kind == "lost":
            station.lost, station.groups = event.text("reason"), 0

    @property
    def over(self) -> str:
        """Why nothing more will come, if so: it says so itself, or its conductor was killed, which can be seen on the same host alone."""
        host, pid = self.conductor
        if self.closed or host != socket.gethostname() or pid < 1:
            return self.closed
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return "its conductor has ended; continue: the same command with --resume"
        except OSError:
            return ""
        return ""

    def rate(self, now: float) -> float:
        """Cases a second, lately; over the whole time where that is shorter."""
        if self.over and self._times:
            now = self._times[-1]
        since = max(self.began, now - LATELY)
        count = sum(time >= since for time in self._times)
        return count / (now - since) if now > since and count else 0.0

    def left(self, now: float) -> float | None:
        """Seconds until the last case at this rate; unknown where nothing came lately."""
        rate = self.rate(now)
        return (self.cases - self.kept) / rate if rate else None


def told(event: JournalEvent) -> str:
    """An event as a line."""
    words = event.words
    texts = {
        "opened": "{cases} cases in {groups} groups on {on}",
        "joined": "{station} joined from {host}, machine {machine}",
        "kind": "{station} is of kind {machine}",
        "waits": "{station} is {reason}",
        "begun": "group {group}, attempt {attempt}: to {station}",
        "case": "{station} begins {case}",
        "kept": "{case}: {status}, by {station}",
        "done": "group {group}, attempt {attempt}: done by {station}",
        "undone": "group {group}, attempt {attempt}: {station} could not measure it: {reason}",
        "lost": "{station} is lost: {reason}",
        "gone": "{station} did not join: {reason}",
        "aside": "{station} ({host}) is set aside: {reason}",
        "back": "{station} measures anyway because {reason}",
        "refused": "{station}{peer} was refused: {reason}",
        "dropped": "late answers of {station} to attempt {attempt} at group {group} were dropped",
        "closed": "the run is over: {reason}",
    }
    known = {name: str(words.get(name, "")) for name in ("on", "cases", "groups", "station", "host", "machine", "group", "attempt", "case")}
    known |= {name: str(words.get(name, "")) for name in ("status", "reason", "peer")}
    if event.kind == "refused" and known["station"]:
        known["peer"] = ""
    return f"{event.time[:19]}  " + texts.get(event.kind, event.kind).format_map(known)
