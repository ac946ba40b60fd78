"""The parts of a run on a farm, and its timeouts."""

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
    """The timeouts of a farm in seconds: `beat` between signs of life, `silence` until a connection is cut, `grace` for a station to come
    back, and `fit` for a group to wait for a fitting machine once all requested stations are there."""

    beat: float = 3.0
    silence: float = 15.0
    grace: float = 15.0
    fit: float = 60.0

    @classmethod
    def usual(cls) -> FarmTerms:
        """Return the usual timeouts, or those for the given patience: how long to wait for a silent or disconnected station."""
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
    """What a conductor works on: the plan, where its results are stored, and who watches the progress."""

    plan: Plan
    writer: RunWriter
    watch: RunWatch
    sink: Sink
    journal: Journal
    welcome: Welcome
    goods: bytes = b""
    """The archive of users' files, if hosts do not share ours."""
    stop: Callable[[Record], bool] = lambda record: False
    stopped: bool = False

    def warn(self, text: str) -> None:
        """Print a warning, and keep it with the run."""
        self.watch.note(text)
        self.writer.warnings.append(text)
