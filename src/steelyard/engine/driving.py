"""Users' code that calls the runner itself: each call is measured like a planned case, in a worker or in the user's own process."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from steelyard import registry
from steelyard.engine.messages import Answer, Drive, Found, Measure, Phase, RecordAnswer, Sources, Started
from steelyard.errors import SteelyardError, unknown
from steelyard.model.case import Case
from steelyard.model.define import Body, Workload
from steelyard.model.experiment import Settings
from steelyard.model.record import Arrays, Record, Status, in_seconds

NO_SOURCES = Sources()
BETWEEN = "the script's own code"
"""The phase of a worker between two cases."""


@dataclass(frozen=True)
class DrivenResult:
    """What a runner's call gives back: values by name, and raw times in seconds by series; `reason` says why there are none.

    `effective` is what was actually done, as in the record.
    """

    status: Status
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, list[float]] = field(default_factory=dict)
    effective: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the result as plain data for JSON, for a worker that runs the script again."""
        return asdict(self)


def result_of(record: Record, arrays: Arrays) -> DrivenResult:
    """Return the result of a case that user code gets."""
    series = {name: in_seconds(arrays, name) for name, (unit, _, _) in arrays.items() if unit in ("s", "ms", "ns")}
    figures = {name: figure.value for name, figure in record.metrics.items()}
    return DrivenResult(record.status, record.reason, figures, series, dict(record.effective))


@dataclass
class Runner:
    """Measures the cases that a user's code requests; a case with a known result is not measured again."""

    settings: Settings
    loaded: registry.Loaded
    sources: Sources = NO_SOURCES
    send: Callable[[Answer], None] = lambda answer: None
    gate: Callable[[], None] = lambda: None
    held: dict[str, DrivenResult] = field(default_factory=dict)

    def measure(self, case: Case, build: Body | None = None, settings: Settings | None = None) -> DrivenResult:
        """Measure a case now; `build` makes its task if its workload is not registered, and gets `be` and its parameters."""
        from steelyard.engine.worker import measure

        if build is not None:
            axes = {name: (value,) for name, value in case.params}
            self.loaded.workloads[case.workload] = Workload(case.workload, axes, modes=(case.mode,), bodies={case.backend: build})
        case = self.settled(case)
        if case.id not in self.held:
            answers: list[RecordAnswer] = []
            asked = Measure(self.sources, settings or self.settings, (case,))
            measure(asked, self.loaded, lambda answer: self._heard(answer, asked, answers), self.gate)
            self.held[case.id] = result_of(answers[-1].record, answers[-1].arrays)
        return self.held[case.id]

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Send the conductor's sink facts about the script itself, such as a line of its log; ignored if there is no sink."""
        self.send(Found(facts=facts))

    def settled(self, case: Case) -> Case:
        """Return the case with defaults for omitted parameters, as in a plan."""
        found = self.loaded.workloads.get(case.workload)
        if found is None:
            raise unknown("workload", case.workload, self.loaded.workloads, listing="steelyard list")
        return replace(case, params=tuple({**{name: values[0] for name, values in found.axes.items()}, **dict(case.params)}.items()))

    def _heard(self, answer: Answer, asked: Measure, answers: list[RecordAnswer]) -> None:
        """Pass an answer on; the conductor did not plan the case, so the answer includes the case and its settings."""
        (case,) = asked.cases
        if isinstance(answer, RecordAnswer):
            answer = replace(answer, record=replace(answer.record, case=case.plain(), requested=asked.settings.plain()))
        self.send(Started(case.id, case) if isinstance(answer, Started) else answer)
        if isinstance(answer, RecordAnswer):
            answers.append(answer)
            self.send(Phase(BETWEEN))


_DRIVEN: ContextVar[Runner | None] = ContextVar("driven", default=None)


def runner(settings: Settings | None = None) -> Runner:
    """Return the runner for a shim: the conductor's if there is one, else one that measures in this process and keeps nothing."""
    return _DRIVEN.get() or Runner(settings or Settings(), registry.built_ins())


def drive(job: Drive, loaded: registry.Loaded, send: Callable[[Answer], None], gate: Callable[[], None]) -> None:
    """Run the file to its end, with the shim in place: as Python would, or as the shim's `run_file(file, words)` does, if it has one."""
    held = {id: DrivenResult(**plain) for id, plain in job.held.items()}
    token = _DRIVEN.set(Runner(job.settings, loaded, job.sources, send, gate, held))
    try:
        with arguments(job.file, job.argv):
            shim = importlib.import_module(job.shim)
            shim.put_in_place()
            send(Phase(BETWEEN))
            if hasattr(shim, "run_file"):
                shim.run_file(job.file, job.argv)
            else:
                runpy.run_path(job.file, run_name="__main__")
    except SystemExit as ending:
        if ending.code not in (None, 0):
            raise SteelyardError(f"the script ended with {ending.code!r:.200}", where=job.file) from None
    finally:
        _DRIVEN.reset(token)


@contextmanager
def arguments(file: str, argv: tuple[str, ...]) -> Iterator[None]:
    """Set the command line that a script sees."""
    before, sys.argv = sys.argv, [file, *argv]
    try:
        yield
    finally:
        sys.argv = before
