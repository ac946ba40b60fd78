"""Kinds of machines: hosts with one description whose calibrations differ by more than their noise are different kinds.

A kind is known by the machine's key, with a number behind it for every further kind: `d1c3b4565dc5`, `d1c3b4565dc5.2`. What the kinds of a
key are is kept, so that a host has the same kind tomorrow, and results of different kinds are never taken for results of one.
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
"""A host is set aside if its figures spread by more than this and so many times as much as its kind's, or if its work waited so much for
a CPU."""
MOST_KINDS = 50
THROTTLES = frozenset(name for bit, name in SLOWED.items() if bit & HARMFUL)
"""Reasons for lowered GPU clocks that count as disturbance; the normal power cap does not."""
_KEY = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class HostSpeed:
    """A calibration in two numbers for each kind of work: its median, and how far the rounds lie apart, as a share of it."""

    medians: Mapping[str, float]
    spread: float
    waited: float

    @property
    def quiet(self) -> bool:
        """Whether nothing disturbed it, so that it can be told from other kinds."""
        return self.waited <= WAITING and self.spread <= QUIET

    @classmethod
    def of(cls, found: Calibrated) -> HostSpeed:
        """From the rounds; what is no sound figure raises ValueError."""
        rounds = {name: tuple(map(float, values)) for name, values in found.seconds.items()}
        if not rounds or not all(values and all(is_amount(value) and value > 0 for value in values) for values in rounds.values()):
            raise ValueError("a calibration without figures")
        if not found.waited or not all(is_amount(share) for share in found.waited):
            raise ValueError("a calibration without the share that it waited")
        spread = max((max(values) - min(values)) / statistics.median(values) for values in rounds.values())
        return cls({name: statistics.median(values) for name, values in rounds.items()}, spread, statistics.median(found.waited))


def unfit(speed: HostSpeed, others: Sequence[HostSpeed]) -> str:
    """Why a host should not measure, compared with others of its kind: its noise, or what else has its CPUs; nothing where it may."""
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
    """A kind by its name, in what it differs from the first one of its key, and how fast hosts of it are, as its records tell."""

    name: str
    differing: str = ""
    speed: Mapping[str, float] = field(default_factory=dict)


class MachineKinds:
    """The kinds of machines that were met before, a file for each key in the user's cache; where that cannot be written, for this run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unkept: dict[str, list[dict[str, float]]] = {}

    @classmethod
    def kept(cls) -> MachineKinds:
        """Those of this user."""
        chosen = os.environ.get("STEELYARD_CACHE")
        cache = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard"
        return cls(cache / "kinds")

    def of(self, key: str, speed: HostSpeed) -> MachineKind:
        """The kind of a host; a new one is kept, unless the host was too noisy to stand for others."""
        if not _KEY.fullmatch(key):
            return MachineKind(key, "", told(speed.medians, speed.spread))
        with self._alone():
            return self._of(key, speed)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Another run may meet a new kind at the same time, and must not give it the same number."""
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
    """A kind's speed as records tell it."""
    return {**medians, SPREAD: spread}


def _numbered(key: str, number: int) -> str:
    return key if number == 0 else f"{key}.{number + 1}"


def disturbed(recent: Sequence[float], elsewhere: Sequence[float], least: float = 0.5, count: int = 3) -> str:
    """Why a host that was quiet when it joined should measure no more: the CPUs that other work had beside each of its last records, and
    beside those of other hosts."""
    if len(recent) < count or min(recent[-count:]) < least:
        return ""
    usual = statistics.median(elsewhere) if elsewhere else 0.0
    now = statistics.median(recent[-count:])
    return f"other programs kept {now:.1f} CPUs busy beside its last {count} cases" if now > LOUDER * usual else ""


def throttled(recent: Sequence[Sequence[str]], count: int = 3) -> str:
    """Why a host whose GPU's clocks were forced down beside each of its last records should measure no more until it has cooled."""
    last = recent[-count:]
    if len(last) < count or not all(last):
        return ""
    return f"its GPU was slowed down beside its last {count} cases: {', '.join(sorted({reason for reasons in last for reason in reasons}))}"
