"""Stations as child processes on this machine: `--on local`, or `local:4` for four of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.engine.farm.launchers import LOOPBACK, Invitation, StationState
from steelyard.errors import UsageError
from steelyard.model.units import parse_count

MOST = 64
FAREWELL = 10.0


@dataclass
class LocalStation:
    """A station on this machine: its process, whose standard input stays open as long as we run."""

    name: str
    process: subprocess.Popen[bytes]


class LocalLauncher:
    """Runs stations as child processes, in their own sessions so that a Ctrl-C reaches only the conductor."""

    bind = LOOPBACK
    shares_files = True

    def __init__(self, count: int) -> None:
        self.count = count
        self.stations: list[LocalStation] = []

    def start(self, count: int, invitation: Invitation) -> None:
        for _ in range(count):
            name = f"local-{len(self.stations) + 1}"
            process = subprocess.Popen(
                invitation.command(sys.executable), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
            self.stations.append(LocalStation(name, process))
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(invitation.ticket(name))
                process.stdin.flush()

    def states(self) -> Sequence[StationState]:
        return [self._state(station) for station in self.stations]

    def _state(self, station: LocalStation) -> StationState:
        code = station.process.poll()
        if code is None:
            return StationState(station.name, "running", where="this machine")
        reason = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return StationState(station.name, "gone", reason, "this machine")

    def drop(self, name: str) -> None:
        for station in self.stations:
            if station.name == name and station.process.poll() is None:
                os.killpg(station.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Close the stations' standard input, which ends them; kill those that do not end."""
        for station in self.stations:
            assert station.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                station.process.stdin.close()
        for station in self.stations:
            try:
                station.process.wait(FAREWELL)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(station.process.pid, signal.SIGKILL)
                station.process.wait()


def open_launcher(words: str) -> LocalLauncher:
    """Read `local` or `local:N`."""
    count = parse_count(words) if words else 1
    if count is None or count > MOST:
        raise UsageError(f"not a number of stations: {words[:40]!r}", do=f"write it like --on local:2, at most {MOST}")
    return LocalLauncher(count)
