"""What a farm's run is made of, and how long it waits for whom."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from steelyard.engine.farm.journal import Journal
from steelyard.engine.farm.wire import Welcome
from steelyard.engine.plan import Plan
from steelyard.engine.run import RunWatch
from steelyard.engine.sinks import Sink
from steelyard.errors import UsageError
from steelyard.model.record import Record
from steelyard.model.units import parse_seconds
from steelyard.store.runs import RunWriter

PATIENCE, LEAST_PATIENCE = "STEELYARD_FARM_PATIENCE", 0.5


@dataclass(frozen=True)
class FarmTerms:
    """How long a farm waits: a beat of each side, the silence after which a connection is cut, the time in which a station may come
    back, and how long a group waits for a machine that fits it when all that were asked for are there."""

    beat: float = 3.0
    silence: float = 15.0
    grace: float = 15.0
    fit: float = 60.0

    @classmethod
    def usual(cls) -> FarmTerms:
        """The usual ones, or those of a patience that was given: how long a silent station, or one that is away, is waited for."""
        text = os.environ.get(PATIENCE, "").strip()
        if not text:
            return cls()
        try:
            patience = parse_seconds(text)
        except UsageError as error:
            raise UsageError(f"{PATIENCE}: {error.what}", do=error.do or "write it like 60s") from None
        if patience < LEAST_PATIENCE:
            raise UsageError(f"{PATIENCE} is {text}", do=f"give at least {LEAST_PATIENCE} s")
        return cls(patience / 5, patience, patience, 4 * patience)


@dataclass
class FarmRun:
    """What a conductor works on: the plan, where its results are kept, and who looks on."""

    plan: Plan
    writer: RunWriter
    watch: RunWatch
    sink: Sink
    journal: Journal
    welcome: Welcome
    goods: bytes = b""
    """The archive of users' files, where hosts do not share ours."""
    stop: Callable[[Record], bool] = lambda record: False
    stopped: bool = False

    def warn(self, text: str) -> None:
        """A line that stays: on the terminal, and with the warnings of the run."""
        self.watch.note(text)
        self.writer.warnings.append(text)
