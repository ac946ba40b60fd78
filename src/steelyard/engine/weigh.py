"""Measures one case inside the worker: build, first call, verify, warm up, sample, and report what happened."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from steelyard import clocks, registry
from steelyard.engine import ranks
from steelyard.engine.answers import RuleCheck
from steelyard.engine.bench import Bench, prepare_bench
from steelyard.engine.fixed import Taker, time_fixed
from steelyard.engine.messages import Sources
from steelyard.engine.modules import imported_since
from steelyard.engine.pace import BUSY, spare_time
from steelyard.engine.phases import BESIDE, COMPILE, FIRST, IMPORTS, INPUTS, MEASURING, REFERENCE, START, WALL, WARM_UP, PhaseClock
from steelyard.engine.ranks import Ranks
from steelyard.engine.reference import reason
from steelyard.engine.scrutiny import Scrutiny
from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported, WrongAnswer, out_of_memory, spoken
from steelyard.machine import binding
from steelyard.machine.load import watch_others
from steelyard.machine.telemetry import watch
from steelyard.measuring import parts
from steelyard.measuring.figures import figures as figures_of
from steelyard.measuring.fixed import take
from steelyard.measuring.metrics import check_amounts
from steelyard.measuring.sample import Sample, Tell, sample
from steelyard.measuring.stats import time_figure
from steelyard.model.case import Case
from steelyard.model.define import fingerprint
from steelyard.model.experiment import Settings
from steelyard.model.record import Arrays, Figure, Record, Status, Verification
from steelyard.model.task import Reading, Task, clean_up, first_time, observed, recorded

NO_SOURCES = Sources()


@dataclass
class Notes:
    """What is known so far, which is reported however the case ends."""

    metrics: dict[str, Figure] = field(default_factory=dict)
    effective: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    verification: Verification | None = None
    arrays: Arrays = field(default_factory=dict)


@dataclass
class CaseWeighing:
    """One case while it is measured, with all that is needed for it.

    `gate` is called before timing begins; `sources` are for further ranks; `label` is the case's name in a file; `taker` times the
    calls of a fixed protocol.
    """

    case: Case
    loaded: registry.Loaded
    settings: Settings
    tell: Tell = lambda phase, fraction: None
    gate: Callable[[], None] = lambda: None
    sources: Sources = NO_SOURCES
    label: str = ""
    taker: Taker = take
    notes: Notes = field(default_factory=Notes)
    clock: PhaseClock = field(default_factory=PhaseClock)
    spoils: str = ""
    """Why its process should measure nothing more: a module it imported changed settings that are restored and not set again."""

    def record(self) -> tuple[Record, Arrays]:
        """Measure the case and report it whatever happens, unless the process dies.

        The record is sent without its case and requested settings, which the conductor knows.
        """
        notes, started, clock = self.notes, datetime.now(UTC), clocks.perf_counter()
        if self.label:
            notes.effective["label"] = self.label
        status, reason = attempt(self._measure, notes)
        if self.settings.fixed is None and (spent := self.clock.told()):
            notes.effective[WALL] = spent
        record = Record(
            id=self.case.id, case={}, status=status, reason=reason, metrics=notes.metrics,
            effective=notes.effective, verification=notes.verification, environment=notes.environment, source=notes.source,
            started=started.isoformat(timespec="milliseconds"), wall_s=round(clocks.perf_counter() - clock, 6),
        )  # fmt: skip
        return record, notes.arrays

    def _measure(self) -> tuple[Status, str]:
        notes = self.notes
        with self.clock.phase(START):
            bench = prepare_bench(self.case, self.loaded, self.settings)
        notes.source = {
            "workload": fingerprint(bench.own_body),
            "variant": fingerprint(*(v.apply for v, _ in bench.chain)),
        }
        if self.settings.fixed is not None:
            if bench.compiles:
                bench.backend.reset()
            with ranks.assemble([self.case], self.settings, self.sources, bench.backend.leave) as crew:
                seated = replace(bench, seat=crew.seat)
                return time_fixed(seated, crew, self.tell, self.gate, notes, self.label or self.case.id, self.taker)
        self.tell("imports", None)
        with self.clock.phase(IMPORTS):
            bench.backend.reset()
            bench.backend.import_mode(bench.case.mode)
            if bench.compiles:
                bench.backend.import_compiler()
            bench.import_needs()
        self.tell("build", None)
        with (
            bench.backend.wholly_as_it_was() as changed,
            ranks.assemble([self.case], self.settings, self.sources, bench.backend.leave) as crew,
        ):
            return self._build_and_time(replace(bench, seat=crew.seat), crew, changed)

    def _build_and_time(self, bench: Bench, crew: Ranks, changed: Callable[[], list[str]]) -> tuple[Status, str]:
        notes, known = self.notes, set(sys.modules)
        crew.tell("build")
        with self.clock.phase(INPUTS):
            be, task = bench.build()
            check_amounts(task)
            crew.gather()
        at_first = changed()
        if (new := imported_since(known, registry.frameworks())) and (left := at_first):
            self.spoils = f"it imported {new[0]}, and left {left[0]}"
        notes.metrics["build_time"] = Figure(self.clock.spent[INPUTS], "s", "lower", n=1)
        notes.environment = be.versions()
        notes.effective.update(task.effective)
        if any(variant.rule for variant, _ in bench.chain):
            notes.metrics["model_bytes"] = Figure(float(be.model_bytes(task)), "B", "lower", n=1)
        try:
            return self._time(bench, be, task, crew)
        finally:
            clean_up([task])
            if left := [each for each in changed() if each not in at_first]:
                notes.effective["left_changed"] = f"{', '.join(left)}; put back after the case"

    def _time(self, bench: Bench, be: Any, task: Task, crew: Ranks) -> tuple[Status, str]:
        notes, tell = self.notes, self.tell
        readings: list[Reading] = []
        tell("first call", None)
        with self.clock.phase(REFERENCE):
            seen, check = Scrutiny(bench, be, task), RuleCheck.of(bench, be, task)
        if be.device != "cpu":
            be.release_memory()
            be.start_memory()
        first = COMPILE if bench.compiles else FIRST
        with self.clock.phase(first), first_time(task):
            crew.tell("check")
            task = bench.ready(be, task)
            output = observed(task) if task.fn is not None else task.measure() if task.measure else None
            be.sync()
        notes.metrics["first_call_time"] = Figure(self.clock.spent[first], "s", "lower", n=1)
        if be.device != "cpu":
            notes.metrics.update({name: Figure(value, "B", "lower", n=1) for name, value in be.peak_memory().items()})
        if task.figures:
            notes.metrics.update(task.figures(output))
        if task.inspect:
            notes.effective.update(task.inspect())
        if seen.wanted:
            tell("verify", None)
        with self.clock.phase(REFERENCE):
            notes.verification = crew.agree(seen.first(task, output))
        del output
        timer, task = crew.timer(be), recorded(crew.lead(be, task, bench.settings), readings)
        with self.clock.phase(START):
            self.gate()
        with be.observe() if bench.settings.telemetry else watch(None) as log, watch_others() as others:
            before = clocks.perf_counter()
            threads = spare_time()
            taken = sample(task, timer, bench.settings, tell, seen.glance if seen.wanted and not crew.peers else None)
            busy = spare_time() - threads
            self.clock.add(WARM_UP, taken.warmup_seconds)
            span = clocks.perf_counter() - before
            self.clock.add(MEASURING, span - taken.warmup_seconds)
        if others.cpus is not None and bench.case.ranks == 1:
            notes.effective["other_load"] = round(others.cpus, 2)
        if bench.case.threads == 1 and be.device == "cpu" and busy / span >= BUSY and not task.own_threads:
            notes.effective["threads_beside"] = f"its other threads kept {busy / span:.1f} CPUs busy, although the case has one thread"
        notes.metrics.update(figures_of(taken, task, self.loaded.metrics.values()))
        with self.clock.phase(BESIDE):
            notes.metrics.update(_phases(task, be, bench.settings, tell))
            figures, facts = be.beside(task, timer, taken.interval.centre, bench.settings)
        if task.inspect:
            task.inspect()
        notes.metrics.update(figures)
        notes.effective.update(facts | ({"telemetry": log.summary()} if log.rows else {}))
        counted = readings[-len(taken.seconds) :]
        notes.metrics.update(parts.extras(counted) | parts.figures(counted, task.amounts))
        notes.effective.update(_effective(taken, be) | crew.facts())
        notes.arrays = {
            "block_time": ("s", "<f8", taken.seconds.astype("<f8").tobytes()),
            "preempted": ("1", "|u1", taken.preempted.astype("|u1").tobytes()),
        }
        notes.arrays.update(log.arrays() | parts.arrays(counted))
        crew.find_out(task, notes)
        if seen.wanted or check:
            tell("verify", None)
        with self.clock.phase(REFERENCE):
            notes.verification = recheck(seen, crew) if seen.wanted or not check else None
            notes.effective.update(seen.facts)
            if check:
                notes.verification, figures = check.verdict(notes.verification)
                notes.metrics.update(figures)
        if notes.verification and notes.verification.status == "failed":
            return "wrong", reason(notes.verification)
        return "ok", ""


def weigh_case(
    case: Case, loaded: registry.Loaded, settings: Settings, tell: Tell = lambda phase, fraction: None, label: str = "", taker: Taker = take
) -> tuple[Record, Arrays]:
    """Measure one case in a process that is not a worker, and return its whole record."""
    record, arrays = CaseWeighing(case, loaded, settings, tell, label=label, taker=taker).record()
    return replace(record, case=case.plain(), requested=settings.plain()), arrays


def attempt(work: Callable[[], tuple[Status, str]], notes: Notes) -> tuple[Status, str]:
    """Do the work; an exception becomes a status with its reason."""
    try:
        return work()
    except Unsupported as error:
        return "unsupported", _line(error)
    except WrongAnswer as error:
        return "wrong", _line(error)
    except NotApplicable as error:
        return "not_applicable", _line(error)
    except NotApplied as error:
        return "not_applied", _line(error)
    except (Exception, SystemExit) as error:
        if isinstance(error, SteelyardError):
            return "failed", _line(error)
        if out_of_memory(error):
            return "oom", spoken(error)
        notes.effective["traceback"] = "".join(traceback.format_exception(error)[-12:])[-4000:]
        return "failed", spoken(error)


def _line(error: SteelyardError) -> str:
    return "; ".join(part for part in (error.what, error.why, error.do) if part)


def recheck(seen: Scrutiny, crew: Ranks, task: Task | None = None) -> Verification | None:
    """Check after timing, which ranks do together; `task` is for one whose first answer was not checked."""
    if not crew.peers:
        return seen.again(task)
    crew.tell("recheck")
    return crew.agree(seen.repeat())


def _phases(task: Task, be: Any, settings: Settings, tell: Tell) -> dict[str, Figure]:
    """Time the parts of a task separately, each with a share of the budget."""
    found = {}
    for name, part in task.phases.items():
        tell(name, None)
        taken = sample(replace(part, scope=task.scope), be.timer(), replace(settings, budget=settings.budget / 4), tell)
        found[f"{name}_time"] = time_figure(taken.interval)
    return found


def _effective(taken: Sample, be: Any) -> dict[str, Any]:
    return {
        "sampling": taken.sampling, "calls_per_block": taken.calls, "blocks": len(taken.seconds), "stopped_by": taken.stop,
        "warmup": taken.warmup_end, "warmup_blocks": taken.warmup_blocks, "warmup_time": round(taken.warmup_seconds, 9),
        "noise": taken.noise, "kept_preempted": bool(taken.usable.all() and taken.preempted.any()),
        "threads": None if be.name == "command" and be.threads == 1 else be.threads, "device": be.device,
        "garbage_collector": "off while timing", **binding.told(),
    }  # fmt: skip
