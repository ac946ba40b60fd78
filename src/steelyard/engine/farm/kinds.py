"""Kinds of machines: hosts with one description whose calibrations differ by more than their noise are different kinds.

A kind is named by the machine's key, with a number for every further kind: `d1c3b4565dc5`, `d1c3b4565dc5.2`. The kinds of each key are
stored, so that a host has the same kind tomorrow, and results of different kinds are never mixed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steelyard.analyze.machines import SPREAD, differs
from steelyard.engine.farm.wire import Calibrated
from steelyard.machine.telemetry import HARMFUL, SLOWED
from steelyard.model.units import is_amount, percent
from steelyard.store.disk import locked

QUIET, LOUDER, WAITING = 0.05, 4.0, 0.05
"""A host is set aside if its figures spread by more than QUIET and LOUDER times as much as its kind's, or if its work waited for a CPU
for more than the share WAITING and LOUDER times as much as its kind's."""
MOST_KINDS = 50
THROTTLES = frozenset(name for bit, name in SLOWED.items() if bit & HARMFUL)
"""Reasons for lowered GPU clocks that count as disturbance; the normal power cap does not."""
_KEY = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class HostSpeed:
    """A calibration: median seconds of each kind of work, the largest spread of rounds relative to their median, and the share waited."""

    medians: Mapping[str, float]
    spread: float
    waited: float

    @property
    def quiet(self) -> bool:
        """Whether it was undisturbed, so that it can represent a kind."""
        return self.waited <= WAITING and self.spread <= QUIET

    @classmethod
    def of(cls, found: Calibrated) -> HostSpeed:
        """Summarize the rounds of a calibration; ValueError if its figures are invalid."""
        rounds = {name: tuple(map(float, values)) for name, values in found.seconds.items()}
        if not rounds or not all(values and all(is_amount(value) and value > 0 for value in values) for values in rounds.values()):
            raise ValueError("a calibration without figures")
        if not found.waited or not all(is_amount(share) for share in found.waited):
            raise ValueError("a calibration without the share that it waited")
        spread = max((max(values) - min(values)) / statistics.median(values) for values in rounds.values())
        return cls({name: statistics.median(values) for name, values in rounds.items()}, spread, statistics.median(found.waited))


def unfit(speed: HostSpeed, others: Sequence[HostSpeed]) -> str:
    """Return why a host should not measure, compared with others of its kind: its noise, or other programs on its CPUs; empty if it may."""
    usual_wait = statistics.median([other.waited for other in others]) if others else 0.0
    if speed.waited > WAITING and speed.waited > LOUDER * usual_wait:
        return f"other programs had its CPU for {percent(speed.waited)} of a calibration"
    usual = statistics.median([other.spread for other in others]) if others else 0.0
    if speed.spread > QUIET and speed.spread > LOUDER * usual:
        beside = f", and those of its kind {percent(usual)}" if others else ""
        return f"its speed changes by {percent(speed.spread)} within a second{beside}"
    return ""


@dataclass(frozen=True)
class MachineKind:
    """A kind of machine: its name, how it differs from the first kind of its key, and the speed that its records note."""

    name: str
    differing: str = ""
    speed: Mapping[str, float] = field(default_factory=dict)


class MachineKinds:
    """The known kinds of machines, one file per key in the user's cache; kept only for this run if that cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unkept: dict[str, list[dict[str, float]]] = {}

    @classmethod
    def kept(cls) -> MachineKinds:
        """Return the kinds in this user's cache."""
        chosen = os.environ.get("STEELYARD_CACHE")
        cache = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard"
        return cls(cache / "kinds")

    def of(self, key: str, speed: HostSpeed) -> MachineKind:
        """Return the kind of a host; a new one is stored, unless the host was too noisy to represent others."""
        if not _KEY.fullmatch(key):
            return MachineKind(key, "", told(speed.medians, speed.spread))
        with self._alone():
            return self._of(key, speed)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder: another run may find a new kind at the same time, and must not give it the same number."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(self._folder))
            yield

    def _of(self, key: str, speed: HostSpeed) -> MachineKind:
        known = self._read(key)
        differing = differs(speed.medians, known[0], speed.spread) if known else ""
        for number, medians in enumerate(known):
            if not differs(speed.medians, medians, speed.spread):
                return MachineKind(_numbered(key, number), differing if number else "", medians)
        kind = told(speed.medians, speed.spread)
        if len(known) < MOST_KINDS and speed.quiet:
            self._write(key, [*known, kind])
        return MachineKind(_numbered(key, len(known)), differing, kind)

    def _read(self, key: str) -> list[dict[str, float]]:
        if key in self._unkept:
            return self._unkept[key]
        try:
            found = json.loads((self._folder / f"{key}.json").read_bytes())
            return [{str(name): float(value) for name, value in item.items() if is_amount(value) and value > 0} for item in found]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return []

    def _write(self, key: str, kinds: list[dict[str, float]]) -> None:
        try:
            with tempfile.NamedTemporaryFile("w", dir=self._folder, suffix=".new", delete=False, encoding="utf-8") as file:
                json.dump(kinds, file)
            Path(file.name).replace(self._folder / f"{key}.json")
        except OSError:
            self._unkept[key] = kinds


def told(medians: Mapping[str, float], spread: float) -> dict[str, float]:
    """Return a kind's speed in the form of the records."""
    return {**medians, SPREAD: spread}


def _numbered(key: str, number: int) -> str:
    return key if number == 0 else f"{key}.{number + 1}"


def disturbed(recent: Sequence[float], elsewhere: Sequence[float], least: float = 0.5, count: int = 3) -> str:
    """Return why a host that was quiet when it joined should stop measuring: other programs used its CPUs during each of its last records,
    more than on other hosts."""
    if len(recent) < count or min(recent[-count:]) < least:
        return ""
    usual = statistics.median(elsewhere) if elsewhere else 0.0
    now = statistics.median(recent[-count:])
    return f"other programs kept {now:.1f} CPUs busy beside its last {count} cases" if now > LOUDER * usual else ""


def throttled(recent: Sequence[Sequence[str]], count: int = 3) -> str:
    """Return why a host should stop measuring until it has cooled: its GPU's clocks were forced down during each of its last records."""
    last = recent[-count:]
    if len(last) < count or not all(last):
        return ""
    return f"its GPU was slowed down beside its last {count} cases: {', '.join(sorted({reason for reasons in last for reason in reasons}))}"
