"""The interface between a run and what provides machines: a launcher starts stations, reports their state, and ends them.

`--on NAME:WORDS` names one; others come by the entry point `steelyard.launchers`. A launcher does not know about cases.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from steelyard import registry
from steelyard.errors import UsageError, unknown

MODULE = "steelyard.engine.farm.station"
BUILT_IN: Mapping[str, str] = {name: f"steelyard.engine.farm.launchers.{name}:open_launcher" for name in ("local", "slurm", "ray", "ssh")}
LOOPBACK = "127.0.0.1"
StationPhase = Literal["waiting", "running", "gone"]
"""Waiting for a machine, started according to the scheduler, or ended."""


@dataclass(frozen=True)
class StationState:
    """A station's state according to its launcher; `reason` is why it waits or is gone, `where` is the host, if known."""

    name: str
    phase: StationPhase
    reason: str = ""
    where: str = ""


@dataclass(frozen=True)
class Invitation:
    """All that a station needs to join a run: the conductor's address, the secret that proves the invitation, and our code.

    `secret` is made for the run and travels only by the launcher's own channel: the standard input of the station, or a file that
    only the user can read; never in arguments or an environment. `certificate` is the conductor's (PEM), empty where it listens on
    loopback. `parcel` is a zip file with the `steelyard` package and its constraints, for hosts where it is not installed.
    """

    run: str
    host: str
    port: int
    secret: bytes = field(repr=False)
    certificate: str = ""
    parcel: Path | None = None

    def ticket(self, name: str, host: str = "", port: int = 0) -> bytes:
        """Return the line that a station reads; `host` and `port` replace the conductor's address, as at the far end of a tunnel."""
        words = {
            "name": name, "run": self.run, "host": host or self.host, "port": port or self.port, "secret": self.secret.hex(),
            "certificate": self.certificate,
        }  # fmt: skip
        return json.dumps(words).encode() + b"\n"

    def command(self, python: str, ticket: str = "-") -> list[str]:
        """Return the station's command line; `ticket` is a file with its ticket, which it removes once read, or - for standard input.

        A station that reads its ticket from standard input ends when that ends, so a launcher that is gone leaves nothing behind.
        """
        return [python, "-P", "-m", MODULE, ticket]


class Launcher(Protocol):
    """Places stations on machines.

    `count` is how many stations were asked for. `bind` is the address that the conductor must listen on for them: loopback, or one of
    its own network, which gets TLS. `shares_files` says that stations see our files under the same paths.
    """

    count: int
    bind: str
    shares_files: bool

    def start(self, count: int, invitation: Invitation) -> None:
        """Start this many more stations, each with a new name, and return at once; names of lost stations are not used again."""

    def states(self) -> Sequence[StationState]:
        """Return the state of every station ever started, without waiting: a launcher that must query a scheduler does so in a thread."""

    def drop(self, name: str) -> None:
        """Stop what may be left of a lost station, without waiting for it.

        A process that hangs would keep the locks of its host, and the next run there would wait forever.
        """

    def end(self) -> None:
        """Stop every station and leave nothing running; called once, also after an error, and may wait for it."""


def open_launcher(text: str) -> Launcher:
    """Return the launcher that `--on` names, with its options read and checked."""
    name, _, words = text.partition(":")
    known = _known()
    if name not in known:
        raise unknown("launcher", name, known, listing="--on local:2, ssh:HOST,HOST, slurm:PROFILE or ray:ADDRESS")
    try:
        return known[name]()(words)
    except ImportError as error:
        raise UsageError(f"launcher {name} cannot be loaded", why=str(error), do="install what it needs") from error


def _known() -> dict[str, Callable[[], Callable[[str], Launcher]]]:
    found: dict[str, Callable[[], Callable[[str], Launcher]]] = {name: partial(_built_in, place) for name, place in BUILT_IN.items()}
    return found | {name: point.load for name, point in registry.entry_points("launchers").items()}


def _built_in(place: str) -> Callable[[str], Launcher]:
    module, _, attribute = place.partition(":")
    found: Callable[[str], Launcher] = getattr(importlib.import_module(module), attribute)
    return found
