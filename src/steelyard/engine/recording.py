"""Execution traces of a case or of a user's script, on the worker's side."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steelyard import clocks, registry
from steelyard.engine.bench import open_backend, prepare_bench
from steelyard.engine.driving import arguments
from steelyard.engine.passes import call
from steelyard.errors import SteelyardError, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.task import clean_up

WARM_CALLS, LEAST_CALLS, MOST_CALLS, TIMED = 3, 11, 1001, 0.5
"""Calls of a case before it is recorded: untimed ones, then at least, at most, and for how many seconds timed ones."""
Say = Callable[[Mapping[str, Any]], None]


def perform(words: Mapping[str, Any], loaded: registry.Loaded, say: Say, gate: Callable[[], None]) -> None:
    """Record a case or a script; the answer names the files."""
    say(_case(words, loaded) if "case" in words else _script(words))


def _case(words: Mapping[str, Any], loaded: registry.Loaded) -> dict[str, Any]:
    """Record one call of a case, after calls that warm it up and measure its time, and then a profile of another call of the same work.

    The profile is taken without the recorder, whose overhead per operator is larger than small operators, and
    twice, because the profiler's first step includes its start.
    """
    case = Case.from_plain(words["case"])
    bench = prepare_bench(case, loaded, Settings(verify=False))
    recorder = bench.backend.recorder()
    target: Path = recorder.place(Path(words["output"]))
    profile: Path | None = recorder.beside(target, "profile") if words["profile"] else None
    be, task = bench.build()
    ready = bench.ready(be, task)

    def called() -> float:
        start = clocks.perf_counter()
        call(ready)
        be.sync()
        return clocks.perf_counter() - start

    try:
        for _ in range(WARM_CALLS):
            called()
        times = [called()]
        while len(times) < LEAST_CALLS or (sum(times) < TIMED and len(times) < MOST_CALLS):
            times.append(called())
        times.sort()
        with recorder.recording(str(target), device=case.device, resources=words["resources"]) as labels:
            labels.step()
            called()
        if profile is not None:
            for _ in range(2):
                with recorder.profiled(profile, case.device):
                    called()
    finally:
        clean_up([task])
    step = times[len(times) // 2]
    recorder.note(target, {"case": case.id, "steps": 1, "step_seconds": step, "step_calls": len(times)})
    return {"trace": str(target), "step_seconds": step, "profile": str(profile) if profile else None}


def _script(words: Mapping[str, Any]) -> dict[str, Any]:
    """Record a whole script, or the requested training steps in it, counted by calls of an optimizer."""
    recorder = open_backend("torch").recorder()
    target: Path = recorder.place(Path(words["output"]))
    file, steps = str(words["script"]), words.get("steps") or (0, 0)
    notes = {"script": Path(file).name, "arguments": list(words["argv"])}

    def recorded() -> Any:
        return recorder.capture(words["output"], profile=bool(words["profile"]), resources=bool(words["resources"]), notes=notes)

    count = [0]
    try:
        with arguments(file, tuple(words["argv"])), recorder.training_steps(recorded, *steps, count) if steps[1] else recorded():
            sys.path.insert(0, str(Path(file).resolve().parent))
            runpy.run_path(file, run_name="__main__")
    except SystemExit as ending:
        if ending.code not in (None, 0):
            raise SteelyardError(f"the script ended with {ending.code!r:.200}", where=file) from None
    if count[0] < steps[1]:
        raise UsageError(
            f"the script made {count[0]} steps",
            why=f"steps {steps[0]} to {steps[1] - 1} were requested, counted by calls of an optimizer",
            do="name earlier steps, or leave out --steps to record all of it",
        )
    return {"trace": str(target), "profile": str(recorder.beside(target, "profile")) if words["profile"] else None}
