"""A case under a fixed protocol: built, called a fixed number of times, and verified only afterwards, since the first call may be cold."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard import registry
from steelyard.engine.answers import RuleCheck
from steelyard.engine.bench import Bench, prepare_bench
from steelyard.engine.messages import Answer, Found, Measure, Ready, RecordAnswer, Retire, Started, parts_of
from steelyard.engine.modules import user_modules
from steelyard.engine.ranks import Ranks
from steelyard.engine.reference import reason
from steelyard.engine.scrutiny import Scrutiny
from steelyard.errors import NotApplicable, Unsupported, told
from steelyard.machine import binding
from steelyard.machine.load import watch_others
from steelyard.measuring import parts
from steelyard.measuring.calm import calm
from steelyard.measuring.figures import derive
from steelyard.measuring.fixed import NO_GRADIENT, Labels, NoLabels, PassSeries, Renew, Sampled, Stopwatch, take
from steelyard.measuring.sample import Tell
from steelyard.measuring.stats import median_interval, noise_grade, time_figure
from steelyard.model.experiment import Settings
from steelyard.model.protocol import Fixed
from steelyard.model.record import Arrays, Figure, Record, Status, altered
from steelyard.model.task import Reading, Task, clean_up, first_time, observed, recorded

if TYPE_CHECKING:
    from steelyard.engine.weigh import Notes

SECONDS = {"ns": 1e-9, "ms": 1e-3}
Taker = Callable[[Task, Fixed, Stopwatch, Labels, str], Sampled]


def measure_all(
    job: Measure,
    loaded: registry.Loaded,
    send: Callable[[Answer], None],
    gate: Callable[[], None],
    takers: Callable[[int], Taker] = lambda position: take,
) -> None:
    """Measure the cases of a job in one process, whose facts are sent once; `takers` returns for a case's index how its calls are taken.

    If a failed case leaves the device unusable, the job ends; the other cases are for another process.
    """
    from steelyard.engine.weigh import CaseWeighing

    before: Record | None = None
    settings, fixed, files = job.settings, job.settings.fixed, dict[str, str]()
    assert fixed is not None
    with contextlib.ExitStack() as stack:
        try:
            be = prepare_bench(job.cases[0], loaded, settings).open()
            stack.enter_context(calm())
            stack.enter_context(be.traced(job.traces, files))
            stack.enter_context(be.labels(traced=fixed.traced).range(f"[{fixed.ranges}|{be.device}]"))
            send(Ready(be.facts()))
        except Unsupported as error:
            send(Ready({"unusable": told(error)}))
            be = None
        for number, (case, label, settings) in enumerate(parts_of(job)):
            if job.paused or number == 0:
                gate()
            send(Started(case.id))
            with be.as_it_was() if be else contextlib.nullcontext():
                record, arrays = CaseWeighing(case, loaded, settings, sources=job.sources, label=label, taker=takers(number)).record()
            same = before is not None and (before.environment, before.source) == (record.environment, record.source)
            before = record
            send(RecordAnswer(altered(record, environment={}, source={}) if same else record, arrays, user_modules(), same))
            gc.collect(0)
            if record.status == "failed" and be and not be.recovers(record.reason):
                send(Retire("this process can no longer use the device"))
                break
    if files:
        send(Found(files=tuple(files.items())))


def time_fixed(
    bench: Bench, crew: Ranks, tell: Tell, gate: Callable[[], None], notes: Notes, name: str, taker: Taker = take
) -> tuple[Status, str]:  # fmt: skip
    """Build, take the calls, then verify; `name` is the case's name in labels, and `taker` is for a user's own way to run it."""
    fixed = bench.settings.fixed
    assert fixed is not None
    tell("build", None)
    crew.tell("build")
    be, task = bench.build()
    crew.gather()
    notes.environment = be.versions()
    notes.effective.update(task.effective)
    try:
        readings: list[Reading] = []
        with first_time(task):
            crew.tell("ready")
            ready = bench.ready(be, task)
            crew.gather()
            ready = recorded(crew.lead(be, ready, bench.settings), readings)
        check(ready, fixed)
        labels = be.labels(traced=fixed.traced) if fixed.ranges else NoLabels()
        watch = be.stopwatch(flush=labels.range(f"[{fixed.ranges}|clear_cache]") if fixed.flush else None)
        checked = RuleCheck.of(bench, be, task) if not crew.peers else None
        gate()
        tell("measure", None)
        with first_time(task), ready.scope() if ready.scope else contextlib.nullcontext(), _looking_on(bench.settings, notes):
            if fixed.grouped:
                taken = take(be.unwaited(ready), fixed, watch, labels, name, _renewing(be, ready, fixed))
            else:
                taken = taker(ready, fixed, watch, labels, name)
        if ready.inspect:
            notes.effective.update(ready.inspect())
        status = _note(taken, bench, be, notes)
        counted = readings[-fixed.repeats :] if fixed.repeats else []
        notes.metrics.update(parts.extras(counted) | parts.figures(counted, ready.amounts))
        notes.arrays.update(parts.arrays(counted))
        notes.effective.update(crew.facts())
        crew.find_out(ready, notes)
        if checked:
            tell("verify", None)
            notes.verification, figures = checked.verdict()
            notes.metrics.update(figures)
    finally:
        clean_up([task])
    if (figure := notes.metrics.get("time")) and (ready.flops or ready.bytes or ready.items):
        derived = {item.name: derive(item, figure, ready) for item in bench.loaded.metrics.values()}
        notes.metrics.update({name: found for name, found in derived.items() if found})
    if status[0] == "ok" and checked and notes.verification and notes.verification.status == "failed":
        return "wrong", reason(notes.verification)
    return _verified(bench, crew, tell, notes) if status[0] == "ok" and bench.settings.scrutinised else status


@contextlib.contextmanager
def _looking_on(settings: Settings, notes: Notes) -> Iterator[None]:
    """Note the load of other processes meanwhile, unless telemetry is off."""
    if not settings.telemetry:
        yield
        return
    with watch_others() as others:
        yield
    if others.cpus is not None:
        notes.effective["other_load"] = round(others.cpus, 2)


def _renewing(be: Any, task: Task, fixed: Fixed) -> Renew | None:
    """Return a function that makes new inputs for each call; None if all calls use the same."""
    if fixed.inputs == "same":
        return None
    fresh = functools.partial(be.renewed, random=fixed.inputs == "random")
    return lambda: (fresh(task.args), fresh(dict(task.kwargs)))


def check(task: Task, fixed: Fixed) -> None:
    """Refuse tasks that a fixed protocol cannot time correctly."""
    if task.times_itself and (fixed.grouped or fixed.clock != "discrete"):
        raise NotApplicable("a task that times itself gives one time per run", do="use the discrete clock with one call per repeat")
    if task.prepare and fixed.clock not in ("discrete", "fastest"):
        raise NotApplicable(f"something is prepared before each call, so calls cannot be {fixed.clock}", do="use the discrete clock")


def _note(taken: Sampled, bench: Bench, be: Any, notes: Notes) -> tuple[Status, str]:
    """Note figures, raw series, and what was requested but is not available."""
    fixed = bench.settings.fixed
    assert fixed is not None
    notes.arrays.update(all_arrays(taken))
    measured = taken.phases["measure"]
    times = seconds_of(measured.forward) / fixed.calls
    if fixed.cold and len(times):
        notes.metrics["first_call_time"], times = Figure(float(times[0]), "s", "lower", n=1), times[1:]
    if len(times):
        notes.metrics["time"] = time_figure(median_interval(times))
        if bench.settings.telemetry:
            notes.effective["noise"] = noise_grade(times, 0.0)
    if fixed.grouped:
        notes.effective |= {"calls_per_repeat": fixed.calls, "repeats": measured.counts}
    if measured.backward.time and taken.backward:
        notes.metrics["backward_time"] = time_figure(median_interval(seconds_of(measured.backward)))
    notes.effective |= {"protocol": "fixed", "threads": be.threads, "device": be.device, **binding.told()}
    if fixed.backward and not taken.backward:
        notes.effective["not_applicable"] = {"backward": NO_GRADIENT}
    if fixed.repeats and not measured.forward.time:
        return "not_applicable", f"calls cannot be timed {fixed.clock} on {be.device}"
    return "ok", ""


def seconds_of(series: PassSeries) -> np.ndarray[Any, Any]:
    """Return a series' times in seconds."""
    return np.asarray(series.time, float) * SECONDS[series.unit]


def all_arrays(taken: Sampled) -> Arrays:
    """Return every series, by pass and phase."""
    found: Arrays = {}
    for phase, passes in taken.phases.items():
        for name, series in (("forward", passes.forward), ("backward", passes.backward)):
            if name == "forward" or taken.backward:
                found.update(arrays_of(f"{name}.{phase}", series))
    return found


def arrays_of(name: str, series: PassSeries) -> Arrays:
    """Return a series as it is stored: times in the unit of their clock, so that nothing is rounded."""
    found: Arrays = {}
    if series.time:
        found[f"{name}.time"] = (series.unit, "<f8", np.asarray(series.time, "<f8").tobytes())
    if series.host:
        found[f"{name}.host"] = (series.unit, "<f8", np.asarray(series.host, "<f8").tobytes())
    if series.memory:
        found[f"{name}.memory"] = ("B", "<i8", np.asarray(series.memory, "<i8").tobytes())
    return found


def _verified(bench: Bench, crew: Ranks, tell: Tell, notes: Notes) -> tuple[Status, str]:
    """Verify the answer of a task built anew, without randomness; the timed one may have changed its inputs on purpose."""
    bench = replace(bench, settings=replace(bench.settings, fixed=None))
    crew.tell("build")
    be, built = bench.build()
    crew.gather()
    seen = Scrutiny(bench, be, built)
    if not seen.wanted:
        clean_up([built])
        return "ok", ""
    tell("verify", None)
    try:
        crew.tell("check")
        task = bench.ready(be, built)
        output = observed(task)
        be.sync()
        own = crew.agree(seen.first(task, output))
    finally:
        clean_up([built])
    if own and (notes.verification is None or own.status == "failed"):
        notes.verification = own
    elif own and notes.verification:
        notes.verification = replace(notes.verification, checks=[*own.checks, *notes.verification.checks])
    if notes.verification and notes.verification.status == "failed":
        return "wrong", reason(notes.verification)
    return "ok", ""
