"""Measuring one case inside the worker: build, first call, verify, warm up, sample, and report what happened."""

from __future__ import annotations

import functools
import gc
import random
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np

from steelyard import registry
from steelyard.backends.base import ALONE, Seat
from steelyard.engine import ranks
from steelyard.engine.ranks import Crew
from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported, unknown
from steelyard.measuring import schedule, verify
from steelyard.measuring.figures import figures as figures_of
from steelyard.measuring.sample import Sample, Tell, sample
from steelyard.model.case import IDENTITY, Case
from steelyard.model.define import Variant, Workload, fingerprint
from steelyard.model.experiment import Settings
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Arrays, Figure, Record, Status, Verification
from steelyard.model.task import Reading, Task

NO_SOURCES: Mapping[str, Any] = MappingProxyType({})
TELLING = ("fn", "args", "kwargs", "scope", "prepare", "measure", "parameters")
REFERENCE_FLOPS, REFERENCE_BYTES, UPCAST_FLOPS = 5e9, 5e8, 5e12


@dataclass
class Notes:
    """What is known so far; whatever ends the case, this much is reported."""

    metrics: dict[str, Figure] = field(default_factory=dict)
    effective: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    verification: Verification | None = None
    arrays: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """One case with everything that builds it; every `build` gives a fresh task."""

    case: Case
    workload: Workload
    chain: tuple[tuple[Variant, Mapping[str, Any]], ...]
    backend: Any
    settings: Settings
    seat: Seat = ALONE

    def open(self) -> Any:
        """A fresh backend instance, so that equal seeds give equal data."""
        if self.case.ranks != self.seat.size:
            raise Unsupported(f"a case of {self.case.ranks} ranks cannot be looked at in one process alone")
        return self.backend(self.case.device, seed=self.settings.seed, threads=self.case.threads, seat=self.seat)

    def base(self, be: Any = None) -> tuple[Any, Task]:
        """The workload's own task, without variants."""
        be = be or self.open()
        return be, self.body(self.case.backend, be)

    def body(self, backend: str, be: Any) -> Task:
        """Call the workload's body for one backend."""
        body = self.workload.bodies[backend]
        wants_mode = {"mode": self.case.mode} if "mode" in body.__code__.co_varnames[: body.__code__.co_argcount] else {}
        return _task(body(**dict(self.case.params), be=be, **wants_mode), f"workload {self.workload.name}")

    def build(self, be: Any = None) -> tuple[Any, Task]:
        """The task under all its variants, in written order."""
        be, task = self.base(be)
        for variant, options in self.chain:
            before, task = task, _task(variant(task, be, options), f"variant {variant.name}")
            if all(getattr(before, name) is getattr(task, name) for name in TELLING):
                raise NotApplied(f"variant {variant.name} changed nothing of the task")
        return be, task

    def ready(self, be: Any, task: Task) -> Task:
        """The task as the case's mode runs it; compilers may do their work here, so it counts as part of the first call."""
        made: Task = be.in_mode(task, self.case.mode)
        return made

    def rebuilder(self, be: Any, task: Task, rng: random.Random) -> Callable[[], Task]:
        """How a comparison gets fresh buffers: build again, or move the inputs where building is costly."""
        if any(variant.sticky for variant, _ in self.chain):
            return lambda: self.ready(be, be.relocate(task, rng))
        return lambda: self.ready(*self.build())


def _task(made: Any, maker: str) -> Task:
    if not isinstance(made, Task):
        raise SteelyardError(f"{maker} returned {type(made).__name__}, not a Task", do="return Task(fn, args, …), or replace(task, …)")
    return made


def prepare_bench(case: Case, loaded: registry.Loaded, settings: Settings) -> Bench:
    """Find the pieces a case names; what cannot be had here is Unsupported with the remedy."""
    workload = loaded.workloads.get(case.workload)
    if workload is None:
        raise unknown("workload", case.workload, loaded.workloads, listing="steelyard list")
    backend = open_backend(case.backend)
    if case.backend not in workload.bodies:
        raise Unsupported(
            f"{workload.name} has no implementation for backend {case.backend}", do=f"it has one for {', '.join(workload.bodies)}"
        )
    if case.mode not in workload.modes:
        raise NotApplicable(f"{workload.name} has no mode {case.mode}; it has {', '.join(workload.modes)}")
    chain = []
    for step in case.chain:
        variant = workload.variants.get(step.name) or loaded.variants.get(step.name)
        if variant is None:
            raise unknown("variant", step.name, [*workload.variants, *loaded.variants, IDENTITY])
        if variant.backends and case.backend not in variant.backends:
            raise Unsupported(f"variant {variant.name} works with {', '.join(variant.backends)}, not with backend {case.backend}")
        chain.append((variant, dict(step.options)))
    return Bench(case, workload, tuple(chain), backend, settings)


def open_backend(name: str) -> Any:
    """Load a backend; a framework that is not installed is a fact about this environment, not a crash."""
    try:
        backend = registry.load_backend(name)
        forget_garbage()
        return backend
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("steelyard"):
            raise
        missing = error.name or str(error)
        raise Unsupported(
            f"backend {name} needs {missing}, which is not installed here",
            do=f"pip install 'steelyard[{name}]', or steelyard env create {name}",
        ) from error


@functools.cache
def forget_garbage() -> None:
    """Put what the framework's import left out of the collector's sight: a collection before each case costs 70 ms otherwise."""
    gc.collect()
    gc.freeze()


def weigh_case(
    case: Case,
    loaded: registry.Loaded,
    settings: Settings,
    tell: Tell,
    gate: Callable[[], None] = lambda: None,
    sources: Mapping[str, Any] = NO_SOURCES,
) -> tuple[Record, Arrays]:
    """Measure one case and report it whatever happens, short of the process dying.

    `gate` is passed before timing begins; `sources` are the files and packages that further ranks load.
    """
    notes, started, clock = Notes(), datetime.now(UTC), time.perf_counter()
    status, reason = attempt(lambda: _measure(case, loaded, settings, tell, gate, notes, sources), notes)
    record = Record(
        id=case.id, case=case.plain(), status=status, reason=reason, metrics=notes.metrics, requested=requested(settings),
        effective=notes.effective, verification=notes.verification, environment=notes.environment, source=notes.source,
        started=started.isoformat(timespec="milliseconds"), wall_s=round(time.perf_counter() - clock, 6),
    )  # fmt: skip
    return record, notes.arrays


def requested(settings: Settings) -> dict[str, Any]:
    """The settings that shape a measurement, as asked for."""
    return {key: value for key, value in asdict(settings).items() if value is not None}


def attempt(work: Callable[[], tuple[Status, str]], notes: Notes) -> tuple[Status, str]:
    """Whatever the work raises becomes a status with its reason."""
    try:
        return work()
    except Unsupported as error:
        return "unsupported", _line(error)
    except NotApplicable as error:
        return "not_applicable", _line(error)
    except NotApplied as error:
        return "not_applied", _line(error)
    except (Exception, SystemExit) as error:
        if out_of_memory(error):
            return "oom", f"{type(error).__name__}: {error}"
        if isinstance(error, SteelyardError):
            return "failed", _line(error)
        notes.effective["traceback"] = "".join(traceback.format_exception(error)[-12:])[-4000:]
        return "failed", f"{type(error).__name__}: {error}"


def out_of_memory(error: BaseException) -> bool:
    """Frameworks spell it differently; users need one word."""
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate memory" in str(error)


def _line(error: SteelyardError) -> str:
    return "; ".join(part for part in (error.what, error.why, error.do) if part)


def _measure(
    case: Case,
    loaded: registry.Loaded,
    settings: Settings,
    tell: Tell,
    gate: Callable[[], None],
    notes: Notes,
    sources: Mapping[str, Any],
) -> tuple[Status, str]:
    bench = prepare_bench(case, loaded, settings)
    notes.source = {
        "workload": fingerprint(bench.workload.bodies[case.backend]),
        "variant": fingerprint(*(v.apply for v, _ in bench.chain)),
    }
    tell("build", None)
    bench.backend.reset()
    with ranks.assemble([case], settings, sources, bench.backend.leave) as crew:
        return _build_and_time(replace(bench, seat=crew.seat), crew, tell, gate, notes, loaded)


def _build_and_time(
    bench: Bench, crew: Crew, tell: Tell, gate: Callable[[], None], notes: Notes, loaded: registry.Loaded
) -> tuple[Status, str]:
    start = time.perf_counter()
    crew.tell("build")
    be, task = bench.build()
    crew.gather()
    notes.metrics["build_time"] = Figure(time.perf_counter() - start, "s", "lower", n=1)
    notes.environment = be.versions()
    notes.effective.update(task.effective)
    try:
        return _time(bench, be, task, crew, tell, gate, notes, loaded)
    finally:
        _clean_up([task])


def _time(
    bench: Bench, be: Any, task: Task, crew: Crew, tell: Tell, gate: Callable[[], None], notes: Notes, loaded: registry.Loaded
) -> tuple[Status, str]:
    readings: list[Reading] = []
    tell("first call", None)
    if be.device != "cpu":
        be.start_memory()
    start = time.perf_counter()
    crew.tell("check")
    task = bench.ready(be, task)
    output = _observed(task) if task.fn is not None else task.measure() if task.measure else None
    be.sync()
    notes.metrics["first_call_time"] = Figure(time.perf_counter() - start, "s", "lower", n=1)
    if be.device != "cpu":
        notes.metrics.update({name: Figure(value, "B", "lower", n=1) for name, value in be.peak_memory().items()})
    if task.inspect:
        notes.effective.update(task.inspect())
    if bench.settings.verify and task.fn is not None:
        tell("verify", None)
        notes.verification = check(bench, be, task, output)
    notes.verification = crew.agree(notes.verification)
    del output
    timer, task = crew.timer(be), _recorded(crew.lead(be, task, bench.settings), readings)
    gate()
    with be.observe() as log:
        taken = sample(task, timer, bench.settings, tell)
    notes.metrics.update(figures_of(taken, task, loaded.metrics.values()))
    notes.metrics.update(_phases(task, be, bench.settings, tell))
    figures, facts = be.beside(task, timer, taken.interval.centre, bench.settings)
    if task.inspect:
        task.inspect()
    notes.metrics.update(figures)
    notes.effective.update(facts | ({"telemetry": log.summary()} if log.rows else {}))
    notes.metrics.update(_extras(readings[-len(taken.seconds) :]))
    notes.effective.update(_effective(taken, be) | crew.facts())
    notes.arrays = {
        "block_time": ("s", "<f8", taken.seconds.astype("<f8").tobytes()),
        "preempted": ("1", "|u1", taken.preempted.astype("|u1").tobytes()),
    }
    notes.arrays.update(log.arrays())
    if notes.verification and notes.verification.status == "failed":
        return "wrong", f"not the answer of {notes.verification.against}: {notes.verification.message}"
    return "ok", ""


def _recorded(task: Task, readings: list[Reading]) -> Task:
    measure = task.measure
    if measure is None:
        return task

    def record() -> Reading:
        readings.append(measure())
        return readings[-1]

    return replace(task, measure=record)


def _phases(task: Task, be: Any, settings: Settings, tell: Tell) -> dict[str, Figure]:
    """The parts of a task timed on their own, each with a share of the budget."""
    found = {}
    for name, part in task.phases.items():
        tell(name, None)
        taken = sample(replace(part, scope=task.scope), be.timer(), replace(settings, budget=settings.budget / 4), tell)
        interval = taken.interval
        found[f"{name}_time"] = Figure(interval.centre, "s", "lower", interval.low, interval.high, interval.n)
    return found


def _extras(readings: list[Reading]) -> dict[str, Figure]:
    units = {"peak_memory": "B"}
    names = {name for reading in readings for name in reading.extras}
    return {
        name: Figure(
            float(np.median([reading.extras[name] for reading in readings if name in reading.extras])),
            units.get(name, "s"),
            "lower",
            n=len(readings),
        )
        for name in sorted(names)
    }


def _effective(taken: Sample, be: Any) -> dict[str, Any]:
    return {
        "sampling": taken.sampling, "calls_per_block": taken.calls, "blocks": len(taken.seconds), "stopped_by": taken.stop,
        "warmup": taken.warmup_end, "warmup_blocks": taken.warmup_blocks, "warmup_time": round(taken.warmup_seconds, 9),
        "noise": taken.noise, "kept_preempted": bool(taken.usable.all() and taken.preempted.any()),
        "threads": be.threads, "device": be.device, "garbage_collector": "off while timing",
    }  # fmt: skip


def check(bench: Bench, be: Any, task: Task, output: Any) -> Verification:
    """Compare the first output with the best reference there is, and say which that was."""
    try:
        want, against, same = reference(bench, be, task)
    except Exception as error:
        if not (isinstance(error, (Unsupported, NotImplementedError)) or out_of_memory(error)):
            raise
        return Verification("none", "", f"no reference could be computed: {type(error).__name__}: {str(error).splitlines()[0]}")
    if want is None:
        return Verification("none", "", against)
    asked = (bench.settings.rtol, bench.settings.atol)
    return verify.compare(be.outputs(output), want, against, asked=asked, own=task.tolerance, same_dtype=same, norm=task.norm_tolerance)


def reference(bench: Bench, be: Any, task: Task) -> tuple[Any, str, bool]:
    """The answer to compare with, where it comes from, and whether formats must agree.

    A variant is held against the plain task; the plain task against its own reference, an independent numpy form in
    double precision, or, where data is too large or was drawn on the device, itself in double precision.
    """
    if bench.chain:
        return _answer(bench, *bench.base(), mode=True), f"{bench.case.backend} {IDENTITY}", not task.any_dtype
    if task.reference:
        return be.outputs(task.reference()), "the workload's reference", False
    small = (task.flops or 0) <= REFERENCE_FLOPS and (task.bytes or 0) <= REFERENCE_BYTES
    if "numpy" in bench.workload.bodies and bench.case.mode in ("eval", "fwd") and be.neutral and small:
        from steelyard.backends.numpy import Precise

        exact = Precise(seed=bench.settings.seed)
        return _answer(bench, exact, bench.body("numpy", exact), mode=False), "numpy fp64", False
    other, plain = bench.base()
    wide = other.upcast(plain) if (task.flops or 0) <= UPCAST_FLOPS else None
    if wide is None:
        return None, "no reference: the workload has none, and no double-precision form small enough to compute", False
    return _answer(bench, other, wide, mode=True), f"{bench.case.backend} fp64", False


def _answer(bench: Bench, be: Any, task: Task, *, mode: bool) -> Any:
    """The outputs of a task that is built for its answer alone; numpy knows no modes and needs none for a forward pass."""
    try:
        return be.outputs(_observed(bench.ready(be, task)) if mode else task())
    finally:
        _clean_up([task])


def _observed(task: Task) -> Any:
    """One call in the form that is compared."""
    if task.observe is None:
        return task()
    if task.scope is None:
        return task.observe()
    with task.scope():
        return task.observe()


def _clean_up(tasks: Iterable[Task]) -> None:
    for task in tasks:
        if task.cleanup:
            task.cleanup()


def weigh_pair(
    base: Case, head: Case, loaded: registry.Loaded, settings: Settings, tell: Tell, sources: Mapping[str, Any] = NO_SOURCES
) -> tuple[Pair, Arrays]:
    """Two variants of one point in this process, interleaved and rebuilt; both have been verified before."""
    rng = random.Random(f"{settings.seed} {base.id} {head.id}")
    benches = [prepare_bench(case, loaded, settings) for case in (base, head)]
    with ranks.assemble((base, head), settings, sources, benches[0].backend.leave) as crew:
        quads = _weigh_arms([replace(bench, seat=crew.seat) for bench in benches], crew, settings, rng, tell)
    interval = quads.interval()
    arms = [
        Arm(bench.case.id, source=fingerprint(bench.workload.bodies[bench.case.backend], *(v.apply for v, _ in bench.chain)))
        for bench in benches
    ]
    pair = Pair(
        base=arms[0], head=arms[1], ratio=interval.centre, low=interval.low, high=interval.high, confidence=schedule.CONFIDENCE,
        rebuilds=interval.n, quads=len(quads.coin), coin_seed=quads.seed, calls=quads.calls, centres=quads.centres(),
        discarded=quads.discarded(),
    )  # fmt: skip
    arrays: Arrays = {
        "quad_time": ("s", "<f8", quads.seconds.astype("<f8").tobytes()),
        "quad_preempted": ("1", "|u1", quads.preempted.astype("|u1").tobytes()),
        "quad_coin": ("1", "|u1", quads.coin.astype("|u1").tobytes()),
        "quad_rebuild": ("1", "<i4", quads.rebuild.astype("<i4").tobytes()),
    }
    return pair, arrays


def _weigh_arms(benches: Sequence[Bench], crew: Crew, settings: Settings, rng: random.Random, tell: Tell) -> schedule.Quads:
    built: list[tuple[Any, Task]] = []
    try:
        for arm, bench in enumerate(benches):
            crew.tell("build", arm)
            built.append(bench.build())
            crew.gather()
        compiles = benches[0].case.ranks == 1 and any(task.inspect for _, task in built)
        for bench, (be, task) in zip(benches, built, strict=True) if compiles else ():
            _observed(bench.ready(be, task))
        before = built[0][0].graphs()
        base, head = (
            crew.rebuilt(be, bench.rebuilder(be, task, rng), settings, arm)
            for arm, (bench, (be, task)) in enumerate(zip(benches, built, strict=True))
        )
        quads = schedule.weigh_arms((base, head), crew.timer(built[0][0]), settings, rng.randrange(2**31), tell)
        if built[0][0].graphs() != before:
            raise SteelyardError("something was compiled while the arms were weighed", why="the comparison is void")
        return quads
    finally:
        _clean_up(task for _, task in built)
