"""Where the wall time of a case goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from steelyard import clocks
from steelyard.model.record import Record

WALL = "wall"
"""Key of the seconds that each phase took, in a record."""
START, IMPORTS, INPUTS, COMPILE, FIRST, REFERENCE = "start", "imports", "inputs", "compile", "first call", "reference"
WARM_UP, MEASURING, BESIDE, PAIRS = "warm-up", "measuring", "beside", "pairs"
PHASES = (START, IMPORTS, INPUTS, COMPILE, FIRST, REFERENCE, WARM_UP, MEASURING, BESIDE, PAIRS)


@dataclass
class PhaseClock:
    """The seconds of each phase of one case."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase, which may occur several times."""
        before = clocks.perf_counter()
        try:
            yield
        finally:
            self.add(name, clocks.perf_counter() - before)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.spent[name] = self.spent.get(name, 0.0) + seconds

    def told(self) -> dict[str, float]:
        """Return the seconds of each phase, in the order of phases, without those that took no time."""
        return {name: round(self.spent[name], 4) for name in PHASES if self.spent.get(name, 0.0) >= 5e-5}


def with_phase(record: Record, name: str, seconds: float) -> Record:
    """Return the record with the seconds of a phase that its worker cannot measure."""
    known = record.effective.get(WALL)
    if not isinstance(known, Mapping) or seconds < 5e-5:
        return record
    found = {**known, name: round(float(known.get(name, 0.0)) + seconds, 4)}
    ordered = {phase: found[phase] for phase in PHASES if phase in found}
    return replace(record, effective={**record.effective, WALL: ordered})
