"""Estimates how long a run will take, from earlier runs on this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.engine.phases import BESIDE, COMPILE, FIRST, IMPORTS, INPUTS, MEASURING, PAIRS, PHASES, REFERENCE, START, WALL, WARM_UP
from steelyard.engine.plan import Job, Plan
from steelyard.errors import StoreError
from steelyard.machine import facts
from steelyard.machine.kept import Shelf, quantity
from steelyard.model.case import Case
from steelyard.model.record import WEIGHED, Record

BY_BUDGET = (WARM_UP, MEASURING, BESIDE, PAIRS)
"""Phases whose length depends on the budget."""
AGAIN = (INPUTS, COMPILE, FIRST)
"""Phases that a comparison repeats, whatever its budget."""
MOST_KINDS = 500
BRIEF = 0.05
"""Seconds below which a worker's start or a compiler's imports do not count: it ran already."""
BEFORE = 0.3
"""Seconds before the first worker is started."""
USUAL = {INPUTS: 0.05, REFERENCE: 0.05, WARM_UP: 0.2, MEASURING: 1.0, BESIDE: 0.1, PAIRS: 1.4}
USUAL_ONCE = {START: 3.0, IMPORTS: 3.0}
WEIGHT = 0.5
"""The weight of a new figure against the known one."""


@dataclass(frozen=True)
class Waits:
    """What earlier runs took on a device: seconds of each kind of case by name, the newest last, and what a worker does once, by backend.

    Phases that depend on the budget are per second of it.
    """

    kinds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    once: Mapping[str, float] = field(default_factory=dict)

    def of(self, case: Case, *, compiles: bool) -> Mapping[str, float]:
        """The phases of a case's kind, or medians of the kinds on the same backend that compile or do not, or usual ones."""
        if found := self.kinds.get(kind_of(case, compiles=compiles)):
            return {**USUAL, **found}
        end = _way(case.backend, compiles=compiles)
        alike = [known for name, known in self.kinds.items() if name.endswith(end)]
        names = {name for known in alike for name in known}
        middle = {name: statistics.median(known[name] for known in alike if name in known) for name in names}
        return USUAL | ({} if middle or not compiles else {COMPILE: 4.0}) | middle

    def worker(self, backend: str, phase: str) -> float:
        """Seconds that a worker takes once for its start, or for a compiler's imports."""
        return self.once.get(f"{backend} {phase}", USUAL_ONCE[phase] if backend != "numpy" else 0.2)


def kind_of(case: Case, *, compiles: bool) -> str:
    """The kind of a case: cases of one kind take about as long."""
    return case.workload + _way(case.backend, compiles=compiles)


def _way(backend: str, *, compiles: bool) -> str:
    return f"@{backend}/{'compiled' if compiles else 'eager'}"


def _decode(data: Mapping[str, Any]) -> Waits:
    kinds = {str(kind): {str(name): quantity(value, zero=True) for name, value in known.items()} for kind, known in data["kinds"].items()}
    return Waits(kinds, {str(name): quantity(value, zero=True) for name, value in data["once"].items()})


SHELF: Shelf[Waits] = Shelf("waits", 1, _decode)


def known(key: str, device: str, threads: int) -> Waits:
    """The waits of earlier runs on this machine."""
    return SHELF.load(key, device, threads)[0] or Waits()


def learn(key: str, records: Iterable[Record], compiled: Mapping[str, bool]) -> None:
    """Add the times of a run; `compiled` says for each case whether it compiles. Errors of saving are ignored."""
    places: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        known_well = record.status == "ok" and record.id in compiled and not record.requested.get("fixed")
        if known_well and isinstance(record.effective.get(WALL), Mapping) and record.requested.get("budget"):
            places.setdefault((record.case["device"], int(record.case["threads"])), []).append(record)
    for (device, threads), found in places.items():
        with contextlib.suppress(StoreError, OSError, RuntimeError):
            SHELF.save(_taken(known(key, device, threads), found, compiled), key, device, threads)


def _taken(before: Waits, records: Sequence[Record], compiled: Mapping[str, bool]) -> Waits:
    kinds, once = {kind: dict(figures) for kind, figures in before.kinds.items()}, dict(before.once)
    seen: dict[str, dict[str, list[float]]] = {}
    started: dict[str, list[float]] = {}
    for record in records:
        wall, budget, case = record.effective[WALL], float(record.requested["budget"]), Case.from_plain(record.case)
        figures = seen.setdefault(kind_of(case, compiles=compiled[record.id]), {})
        for name in PHASES:
            if name in USUAL_ONCE:
                started.setdefault(f"{case.backend} {name}", []).extend([float(wall[name])] if wall.get(name, 0.0) > BRIEF else [])
            elif name == PAIRS and name in wall:
                figures.setdefault(name, []).append(_weighing(wall, record) / budget)
            elif name != PAIRS:
                figures.setdefault(name, []).append(float(wall.get(name, 0.0)) / (budget if name in BY_BUDGET else 1.0))
    for kind, figures in seen.items():
        old = kinds.pop(kind, {})
        kinds[kind] = old | {name: _blend(old.get(name), statistics.median(values)) for name, values in figures.items()}
    for what, values in started.items():
        once |= {what: _blend(once.get(what), statistics.median(values))} if values else {}
    return Waits(dict(list(kinds.items())[-MOST_KINDS:]), once)


def _weighing(wall: Mapping[str, Any], record: Record) -> float:
    """Seconds of one comparison without what is built again for it: one record has the time of all that were made together."""
    together = record.effective.get(WEIGHED)
    each = float(wall[PAIRS]) / (together if isinstance(together, int) and together > 0 else 1)
    return max(0.0, each - sum(float(wall.get(name, 0.0)) for name in AGAIN))


def _blend(old: float | None, new: float) -> float:
    return round(new if old is None else (1 - WEIGHT) * old + WEIGHT * new, 4)


@dataclass(frozen=True)
class Estimate:
    """Seconds that a run will take: about, and at most if no comparison settles its margin early."""

    about: float
    longest: float


def estimate(plan: Plan, key: str = "") -> Estimate:
    """How long a plan takes, from earlier runs on this machine or usual times; `key` is the machine's, if known."""
    key = key or _machine_key()
    places = {(job.case.device, job.case.threads) for job in (*plan.jobs, *plan.pairs)}
    waits = {place: known(key, *place) for place in places}
    budget = plan.settings.budget
    about, workers = BEFORE, dict[Any, float]()
    for listed, job in [*((True, job) for job in plan.jobs), *((False, job) for job in plan.pairs)]:
        case, shown = job.case, waits[job.case.device, job.case.threads]
        figures = shown.of(case, compiles=job.compiles)
        spent = {name: figures.get(name, 0.0) * (budget if name in BY_BUDGET else 1.0) for name in PHASES}
        about += sum(seconds for name, seconds in spent.items() if name != PAIRS) * listed
        about += sum(spent[name] for name in (PAIRS, *AGAIN)) * (job.vs is not None)
        about += 4.0 * (2 if job.vs else 1) * (case.ranks > 1) + _beside(plan, job)
        start = (job.unit, job.place, START) if job.fresh else (case.backend, job.place, START)
        workers[start] = shown.worker(case.backend, START)
        if job.compiles:
            workers[job.unit, job.place, IMPORTS] = shown.worker(case.backend, IMPORTS)
    about += sum(workers.values())
    apart = _pool(plan) if any(job.side for job in (*plan.jobs, *plan.pairs)) else 0.0
    return Estimate(about + apart, about + apart + (1.4 * budget + apart) * plan.settings.settle * plan.comparisons)


def _pool(plan: Plan) -> float:
    """Rough seconds to start the pairs of processes of a comparison."""
    return 16 * (2.5 if any(job.case.backend == "torch" for job in plan.jobs) else 0.2) / (os.cpu_count() or 1)


def _beside(plan: Plan, job: Job) -> float:
    """Rough seconds of the passes of one job; each is a process, or costs the next case a new one."""
    asked, start = plan.settings, 4.0 if job.fresh else 0.1
    outside = (asked.ncu + asked.nsys) * (job.case.device == "cuda")
    passes = bool(asked.peak_memory or asked.memory_snapshot) + 1.5 * bool(asked.profile) + 5.0 * outside
    return start * passes + (16.0 * (asked.compile_time or 0) if job.compiles else 0.0)


@functools.cache
def _machine_key() -> str:
    return facts.key(facts.collect(Path.cwd()))
