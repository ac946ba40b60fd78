"""The worker: reads jobs as JSON lines and answers on a separate pipe, which output of a framework cannot corrupt.

`python -m steelyard.engine.worker EVENTS_FD` runs in the backend's interpreter with this package, numpy and the framework.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any

from steelyard import registry
from steelyard.engine import messages
from steelyard.engine.messages import (
    Alternate,
    Answer,
    Check,
    Converse,
    Describe,
    Described,
    Done,
    Drive,
    Expand,
    Expanded,
    Export,
    Fault,
    Measure,
    Order,
    PairAnswer,
    Pass,
    Phase,
    Prepare,
    Quit,
    RecordAnswer,
    Retire,
    Sources,
    Started,
    Step,
    Stepped,
    Unweighed,
    Waiting,
    Weigh,
)
from steelyard.engine.modules import user_modules
from steelyard.engine.process import die_with_parent, keep_orphans, settle_allocator, stay_awake, volunteer_for_oom
from steelyard.errors import SteelyardError
from steelyard.model.case import Case

Send = Callable[[Answer], None]
Gate = Callable[[], None]
"""Called before anything is timed."""
Hear = Callable[[float], Step | None]
"""The next step of a job that goes step by step; None at its end. It is waited for without sleeping for so many seconds."""
Cache = dict[Sources, registry.Loaded]


def main(argv: list[str]) -> None:
    """Entry point of a fresh interpreter."""
    die_with_parent()
    serve(sys.stdin.fileno(), int(argv[1]))


def serve(commands: int, events: int) -> None:
    """Answer jobs until a `Quit`, or until the conductor ends."""
    keep_orphans()
    volunteer_for_oom()
    settle_allocator()
    os.set_inheritable(events, False)
    jobs = os.fdopen(os.dup(commands), "r", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    with os.fdopen(events, "w", encoding="utf-8") as pipe:
        send = sender(pipe)
        cache: Cache = {}
        for line in jobs:
            job = messages.decode(line)
            if isinstance(job, Quit):
                break
            answer(job, cache, send, lambda: wait_for_go(send, jobs), lambda awake: next_step(jobs, awake))
    sys.stderr.flush()
    os._exit(0)


def wait_for_go(send: Send, jobs: IO[str]) -> None:
    """Wait, before anything is timed, until the conductor has finished what it does meanwhile, such as ending the last worker."""
    send(Waiting())
    jobs.readline()


def next_step(jobs: IO[str], awake: float) -> Step | None:
    """The next step of a job that goes step by step; None at its end. It is waited for without sleeping for so many seconds."""
    stay_awake([jobs.fileno()], awake)
    found = messages.decode(jobs.readline())
    return found if isinstance(found, Step) else None


def sender(pipe: IO[str]) -> Send:
    """Write one message per line, at once; a record is flushed with the next message, which follows soon."""

    def send(message: Answer) -> None:
        pipe.write(messages.encode(message) + "\n")
        if not isinstance(message, RecordAnswer):
            pipe.flush()

    return send


def answer(job: Order | Answer | None, cache: Cache, send: Send, gate: Gate, hear: Hear = lambda awake: None) -> None:
    """Do one job; an error, also in the user's own files, is sent as an answer."""
    try:
        perform(job, cache, send, gate, hear)
        send(Done())
    except Exception as error:
        send(explained(error))


def perform(job: Any, cache: Cache, send: Send, gate: Gate, hear: Hear = lambda awake: None) -> None:
    """Do one job of any kind; what it needs is imported here, because most workers do only one kind."""
    if isinstance(job, Describe):
        loaded = load(job.sources, cache, registry.Loaded())
        send(Described({**loaded.describe(), "modules": user_modules()}))
        return
    if isinstance(job, Prepare):
        prepare(job)
        return
    if isinstance(job, Converse):
        importlib.import_module(job.module).perform(job.words, lambda words: send(Stepped(words)), hear)
        return
    loaded = load(job.sources, cache)
    if isinstance(job, Measure):
        spoilt = measure(job, loaded, send, gate)
        if job.settings.fixed is None and (why := spoilt or left_over(job.cases[-1])):
            send(Retire(why))
        else:
            importlib.import_module("steelyard.engine.bench").forget_garbage(len(sys.modules))
    elif isinstance(job, Weigh):
        compare(job, loaded, send)
    elif isinstance(job, Check):
        shapes = importlib.import_module("steelyard.engine.shapes")
        fits = shapes.perform(job.cases, loaded)
        for fit in shapes.noteworthy(fits) if job.brief else fits:
            send(fit)
    elif isinstance(job, Alternate):
        importlib.import_module("steelyard.engine.arm").perform(job, loaded, send, gate)
    elif isinstance(job, Pass):
        send(importlib.import_module("steelyard.engine.passes").perform(job, loaded, send))
    elif isinstance(job, Export):
        importlib.import_module("steelyard.engine.exports").perform(job, loaded, send)
    elif isinstance(job, Drive):
        importlib.import_module("steelyard.engine.driving").drive(job, loaded, send, gate)
    elif isinstance(job, Expand):
        importlib.import_module(job.module).perform(job.words, loaded, lambda words: send(Expanded(words)), gate)


def explained(error: Exception) -> Fault:
    """The answer for a failed job: a missing framework with how to install it, other errors with where they were raised."""
    if isinstance(error, SteelyardError):
        return Fault(error.what, error.why, error.do, error.where)
    if isinstance(error, ModuleNotFoundError) and (about := registry.backend_of(error.name or "")):
        return Fault(f"{error.name} is not installed here", do=about.remedy)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Fault(f"{type(error).__name__}: {error}", why=f"raised in {last.filename}:{last.lineno}")


def load(sources: Sources, cache: Cache, under: registry.Loaded | None = None) -> registry.Loaded:
    """Load the user's files and packages on top of the built-ins, once per worker; `under` replaces the built-ins."""
    registry.look_first(sources.paths)
    if sources not in cache:
        found = registry.built_ins() if under is None else under
        for kind, name in sources.entries:
            found.add(registry.load_entry(kind, name))
        for path in sources.files:
            found.add(registry.load_file(path))
        gc.freeze()
        cache[sources] = found
    return cache[sources]


def measure(job: Measure, loaded: registry.Loaded, send: Send, gate: Gate) -> str:
    """Measure cases one after another; those under a fixed protocol share their setup. Return why another process should continue."""
    from steelyard.engine import fixed, weigh

    if job.settings.fixed is not None:
        fixed.measure_all(job, loaded, send, gate)
        return ""
    spoilt = ""
    for case, label, settings in messages.parts_of(job):
        send(Started(case.id))
        doing = weigh.CaseWeighing(case, loaded, settings, teller(send), gate, job.sources, label)
        record, arrays = doing.record()
        send(RecordAnswer(record, arrays, user_modules()))
        spoilt = spoilt or doing.spoils
    return spoilt


def left_over(case: Case) -> str:
    """What a case has not released, or why that is unknown; if not empty, no other case should run here."""
    try:
        found: str = registry.load_backend(case.backend).unreturned()
    except ModuleNotFoundError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found


def prepare(job: Prepare) -> None:
    """Do in advance what the first case would wait for; what fails here fails again there, and is reported there."""
    from steelyard.engine.bench import forget_garbage, open_backend

    for name in job.modules or ("steelyard.engine.weigh",):
        importlib.import_module(name)
    with contextlib.suppress(Exception):
        backend = open_backend(job.backend)
        if job.compiles:
            backend.import_compiler()
        if job.device != "cpu" and not backend.speaks:
            backend(job.device).sync()
        if job.triton:
            importlib.import_module("steelyard.backends._triton").wake(job.triton)
        if job.locks:
            importlib.import_module("steelyard.engine.referee.parcel").lock_ahead(job.locks)
    forget_garbage(len(sys.modules))


def compare(job: Weigh, loaded: registry.Loaded, send: Send) -> None:
    """Compare variants of one point with their base, all together; if that fails, send the reason."""
    from steelyard.engine import pairs

    try:
        for pair, rounds in pairs.weigh_heads(
            job.base, job.heads, loaded, job.settings, teller(send), job.sources, job.suite, job.settings.timeout
        ):
            send(PairAnswer(pair, rounds))
    except Exception as error:
        send(Unweighed(f"{type(error).__name__}: {error}"))
    if job.base.device != "cpu":
        registry.load_backend(job.base.backend).reset()


def teller(send: Send) -> Callable[[str, float | None], None]:
    """The function that sends progress, which the sampler calls between blocks."""
    return lambda phase, fraction: send(Phase(phase, fraction))


if __name__ == "__main__":
    main(sys.argv)
