"""The original's A/B comparisons on our engine: two cases each, timed as in the original and weighed against each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from steelyard import registry
from steelyard.dialects.ptxla.microbench import ARMS, ROLES, SHORTEST, SLOWER, Result
from steelyard.drop_in import summarise
from steelyard.engine import conduct, plan
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.engine.run import WaitTold
from steelyard.engine.sides import BaseSide
from steelyard.engine.sinks import Sink
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Settings
from steelyard.model.pair import Pair, weigh
from steelyard.model.protocol import Fixed
from steelyard.model.record import Arrays, Record
from steelyard.store.runs import Store

FUNCTION, OTHER = "call/function", "other"
SERIES = "forward.measure.time"
MILLISECONDS = {"ns": 1e-6, "ms": 1.0}
FILES = {"flame": "flame.txt", "trace": "trace.json", "kernels": "kernel.txt"}
"""What the original calls the files of a profile, by our kinds of attachments."""

Show = Callable[[Result | str], None]
"""Takes each result, or the reason why there is none."""


@dataclass(frozen=True)
class TwoSides:
    """The two cases of one comparison."""

    name: str
    base: Case
    test: Case

    @property
    def vs(self) -> str:
        """The base's name in a comparison."""
        return f"{self.base.backend}/{self.base.variant}"


@dataclass(frozen=True)
class Manner:
    """How the comparisons are made: seconds for each side and for the verdict, and where profiles of a slowdown go."""

    warmup: float = 0.025
    rep: float = 0.1
    return_mode: str = "min"
    weigh: bool = True
    verify: bool = True
    budget: float = 1.0
    timeout: float = 600.0
    profiles: Path | None = None


def of_functions(name: str, base: str, test: str, backend: str, device: str, threads: int) -> TwoSides:
    """Compare two functions, FILE.py:NAME each: the second is another implementation of the first, and must give the same answer."""
    params = (("fn", base), (OTHER, "" if base == test else test))
    case = Case(FUNCTION, params, backend, device=device, threads=threads)
    return TwoSides(name, case, case if base == test else replace(case, variant=OTHER))


@dataclass(frozen=True)
class Microbench:
    """Runs comparisons: how, and where all cases are measured and saved."""

    manner: Manner
    place: Place
    store: Store
    command: Sequence[str] = ()
    waiting: Callable[[str], None] = lambda text: None

    def run(self, comparisons: Sequence[TwoSides], show: Show) -> None:
        """Run the comparisons and show each as soon as all before it are shown; with profiles one by one."""

        def together(item: TwoSides) -> tuple[str, str, bool]:
            return item.name if self.manner.profiles else "", item.vs, item.base == item.test

        for _, group in groupby(comparisons, together):
            members, answers = tuple(group), list[Result | str]()
            sink = LineWriter(list(members), self.manner, answers.append if self.manner.profiles else show)
            self._execute(self._compared(members), sink)
            sink.finish()
            for answer in answers:
                slow = isinstance(answer, Result) and answer.testing_speedup < SLOWER
                show(self._profiled(answer, members[0]) if slow else answer)

    def _execute(self, ready: Plan, sink: Sink | None = None) -> conduct.RunOutcome:
        return conduct.execute(ready, self.store, self.command, lambda writer: WaitTold(self.waiting), sink=sink)

    def _compared(self, members: Sequence[TwoSides]) -> Plan:
        """Return the plan: each base precedes its test, but with two backends, which never share a worker, all bases come first.

        Two backends are checked against one reference, and a comparison ends with its budget: continuing would need new processes.
        """
        first, manner = members[0], self.manner
        apart = first.base.backend != first.test.backend
        cases = [item.base for item in members] if apart else []
        cases += [case for item in members for case in (item.base, item.test)]
        cuda = first.base.device == "cuda" and not apart and first.base.backend == "torch"
        fixed = Fixed(clock="events" if cuda else "discrete", flush=cuda, rehearse=1, warmup_time=manner.warmup, repeat_time=manner.rep)
        settings = Settings(fixed=fixed, budget=manner.budget, verify=manner.verify, timeout=manner.timeout)
        settings = replace(settings, settle=0.0, reference="fp64") if apart else settings
        same = first.base == first.test
        if manner.weigh and not same:
            settings = replace(settings, vs=first.vs)
        return self._plan(cases, settings, BaseSide(ARMS[0], self.place) if manner.weigh and same else None)

    def _plan(self, cases: Sequence[Case], settings: Settings, other: BaseSide | None = None) -> Plan:
        experiment = Experiment("microbench", include=tuple(cases), settings=settings)
        return plan.expand(experiment, registry.catalogue(), place=self.place, other=other)

    def _profiled(self, result: Any, item: TwoSides) -> Result:
        """Save the original's files for both sides of a slowdown, in the original's folders."""
        assert isinstance(result, Result) and self.manner.profiles is not None
        settings = Settings(runs=1, warmup=0.0, verify=False, telemetry=False, profile="stacks", timeout=self.manner.timeout)
        run = self._execute(self._plan([item.base, item.test], settings)).run
        records, folders = {record.id: record for record in run.records}, []
        for case, role in zip((item.base, item.test), ROLES, strict=True):
            record, folder = records[case.id], self.manner.profiles / result.test_name / role
            if not record.attachments:
                return replace(result, note=f"no profile: {record.effective.get('profile', record.reason)}")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                for kept in record.attachments:
                    shutil.copyfile(run.attachment(kept), folder / FILES[kept.kind])
            except OSError as error:
                raise UsageError(f"cannot save a profile in {folder}", why=error.strerror or str(error)) from error
            folders.append(str(folder))
        return replace(result, profiles=tuple(folders))


@dataclass
class LineWriter(Sink):
    """Makes the original's line from two records, and adds the verdict of their pair."""

    left: list[TwoSides]
    manner: Manner
    show: Show
    records: dict[str, tuple[Record, Arrays]] = field(default_factory=dict)
    pairs: dict[str, Pair] = field(default_factory=dict)

    def take(self, job: Job, record: Record, arrays: Arrays) -> None:
        """Take a record. A missing stack fails all comparisons, and so does an unusable function: its record fails without a
        traceback of its own."""
        if record.status == "unsupported":
            raise NothingMeasured(record.reason)
        if record.status == "failed" and job.case.workload == FUNCTION and "traceback" not in record.effective:
            raise UsageError(record.reason)
        self.records[record.id] = record, arrays
        self._settle()

    def weighed(self, pair: Pair) -> None:
        self.pairs[pair.head.id] = pair
        self._settle()

    def _settle(self) -> None:
        while self.left and (answer := self._answer(self.left[0])) is not None:
            self.left.pop(0)
            self.show(answer)

    def finish(self) -> None:
        """Report the comparisons that were not measured."""
        for item in self.left:
            self.show(f"{item.name}: it was not measured")

    def _answer(self, item: TwoSides) -> Result | str | None:
        """Return the outcome of a comparison; None while it may still be running."""
        held = [self.records[case.id] for case in (item.base, item.test) if case.id in self.records]
        if len(held) < 2:
            return None
        for record, _ in held:
            if record.status not in ("ok", "wrong"):
                kind = "" if record.status == "failed" else f"{record.status}: "
                return f"{item.name}: {kind}{record.reason}"
        base, test = (self._milliseconds(arrays) for _, arrays in held)
        result = Result(item.name, base / test, base, test)
        if wrong := next((record.reason for record, _ in held if record.status == "wrong"), ""):
            return replace(result, verdict="failed", said=f"the answers differ: {wrong}")
        return self._judged(result, item, held[1][0]) if self.manner.weigh else result

    def _judged(self, result: Result, item: TwoSides, record: Record) -> Result | None:
        pair, trouble = self.pairs.get(item.test.id), record.effective.get("unweighed")
        if pair is None:
            return replace(result, verdict="failed", said=f"no verdict: {trouble}") if trouble else None
        delta = replace(weigh(pair), base=ARMS[0], head=ARMS[1])
        return replace(result, verdict=delta.verdict, said="\n".join([str(delta), " · ".join(pair.facts), *pair.notes]), delta=delta)

    def _milliseconds(self, arrays: Arrays) -> float:
        """Return the figure of a side, from all its single calls."""
        unit, dtype, data = arrays[SERIES]
        found = summarise(list(np.frombuffer(data, dtype) * MILLISECONDS[unit]), None, self.manner.return_mode)
        assert isinstance(found, float)
        return max(found, SHORTEST)
