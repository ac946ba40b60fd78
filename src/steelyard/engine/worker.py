"""The worker: reads jobs as JSON lines, answers on a pipe of its own, and cannot be corrupted by what a framework prints.

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
from steelyard.engine.process import die_with_parent, keep_orphans, settle_allocator, volunteer_for_oom
from steelyard.errors import SteelyardError
from steelyard.model.case import Case

Send = Callable[[Answer], None]
Gate = Callable[[], None]
"""Passed before anything is timed."""
Hear = Callable[[], Step | None]
"""The next step of a job that goes step by step; None at its end."""
Cache = dict[Sources, registry.Loaded]


def main(argv: list[str]) -> None:
    """Entry point of a fresh interpreter."""
    die_with_parent()
    serve(sys.stdin.fileno(), int(argv[1]))


def serve(commands: int, events: int) -> None:
    """Answer jobs until told to quit or the conductor goes away."""
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
            answer(job, cache, send, lambda: wait_for_go(send, jobs), lambda: next_step(jobs))
    sys.stderr.flush()
    os._exit(0)


def wait_for_go(send: Send, jobs: IO[str]) -> None:
    """Before anything is timed the conductor finishes what it does beside us, such as seeing off the last worker."""
    send(Waiting())
    jobs.readline()


def next_step(jobs: IO[str]) -> Step | None:
    """What the conductor wants next of a job that goes step by step."""
    found = messages.decode(jobs.readline())
    return found if isinstance(found, Step) else None


def sender(pipe: IO[str]) -> Send:
    """Write one message per line, at once; a record goes with what follows it, which is never long in coming."""

    def send(message: Answer) -> None:
        pipe.write(messages.encode(message) + "\n")
        if not isinstance(message, RecordAnswer):
            pipe.flush()

    return send


def answer(job: Order | Answer | None, cache: Cache, send: Send, gate: Gate, hear: Hear = lambda: None) -> None:
    """Do one job; an error in the user's own files is an answer too."""
    try:
        perform(job, cache, send, gate, hear)
        send(Done())
    except Exception as error:
        send(explained(error))


def perform(job: Any, cache: Cache, send: Send, gate: Gate, hear: Hear = lambda: None) -> None:
    """Do one job of any kind; what it needs is imported here, since most workers do one kind alone."""
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
    """What a job ended with: a framework that is missing with how to get it, anything else with where it was raised."""
    if isinstance(error, SteelyardError):
        return Fault(error.what, error.why, error.do, error.where)
    if isinstance(error, ModuleNotFoundError) and (about := registry.backend_of(error.name or "")):
        return Fault(f"{error.name} is not installed here", do=about.remedy)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Fault(f"{type(error).__name__}: {error}", why=f"raised in {last.filename}:{last.lineno}")


def load(sources: Sources, cache: Cache, under: registry.Loaded | None = None) -> registry.Loaded:
    """Built-ins with the user's files and packages laid over them, once per worker; `under` is what lies there instead of built-ins."""
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
    """Cases one after another; those under a fixed protocol share what is set up for them. Says why another process should go on."""
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
    """What a case still holds, or that this can no longer be found out: then no other case should come here."""
    try:
        found: str = registry.load_backend(case.backend).unreturned()
    except ModuleNotFoundError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found


def prepare(job: Prepare) -> None:
    """Do ahead what the first case would wait for; what fails here fails again there, and is reported there."""
    from steelyard.engine.bench import forget_garbage, open_backend

    importlib.import_module("steelyard.engine.weigh")
    with contextlib.suppress(Exception):
        backend = open_backend(job.backend)
        if job.compiles:
            backend.import_compiler()
        if job.device != "cpu" and not backend.speaks:
            backend(job.device).sync()
        if job.triton:
            importlib.import_module("steelyard.backends._triton").wake(job.triton)
    forget_garbage(len(sys.modules))


def compare(job: Weigh, loaded: registry.Loaded, send: Send) -> None:
    """Variants of one point against their base, all at once; if that cannot be done, the reason is the answer."""
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
    """Progress goes out between blocks, as the sampler allows."""
    return lambda phase, fraction: send(Phase(phase, fraction))


if __name__ == "__main__":
    main(sys.argv)
