"""Checks a file without running it: what it is, the names in it, and whether shapes fit.

`run` and `convert` use the same readers and names; shapes are checked by a worker that calls each case once on meta tensors.
"""

from __future__ import annotations

import errno
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.analyze import foreign
from steelyard.codec import parsing
from steelyard.codec.expectations import load_expectations
from steelyard.codec.policy import POLICY_KEYS, load_policy
from steelyard.engine import conduct, configs, opening
from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.crew import Crew
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Check, Fit
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.engine.selection import EXPERIMENT_FILES, Request
from steelyard.errors import SteelyardError, UsageError, parts_of
from steelyard.files import RESULTS, read_text, unreadable
from steelyard.model.units import number_of
from steelyard.store.runs import Store, read_run

PROGRAM = "command"
EXPERIMENT_KEY = re.compile(r'"(matrix|include)"\s*:')
PATIENCE = 120.0
"""Seconds to wait for a silent worker; loading a framework takes longest."""


@dataclass(frozen=True)
class ShapeCheck:
    """How many cases fit, those that do not with the reason, and how many could not be tried, by reason."""

    fit: int = 0
    wrong: tuple[Fit, ...] = ()
    unchecked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """The result for a file: its kind, how many cases would run, how many each rule drops, and all mistakes."""

    file: str
    kind: str = ""
    cases: int | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    shapes: ShapeCheck | None = None


def check_file(word: str, store: Store, files: Sequence[str] = (), *, shapes: bool = True) -> Checked:
    """Check one file according to its kind; mistakes are returned, not raised."""
    path, kind = registry.suites().get(word, Path(word)), ""
    try:
        if opened := opening.split(word):
            return _plan(Checked(word, opened[0]), word, store, files, shapes=shapes)
        kind = kind_of(path)
        if kind not in READERS:
            return _plan(Checked(word, kind), str(path), store, files, shapes=shapes)
        return replace(READERS[kind](path), file=word, kind=kind)
    except SteelyardError as error:
        return Checked(word, kind, mistakes=tuple(_lines(error)))


def kind_of(path: Path) -> str:
    """Return the kind of a file: by its suffix if that is specific, else by its content."""
    if path.name == "run.jsonl":
        return "run"
    if _is_folder(path):
        return "results" if foreign.holds_results(path) else "run"
    ending = path.suffix.lower()
    if ending == ".py":
        return "workloads"
    if found := configs.reader(path):
        return str(found.kind)
    if ending == ".toml":
        keys = set(parsing.load(path, "toml")[0])
        if "expect" in keys:
            return "expected failures"
        return "gate policy" if keys & POLICY_KEYS and not keys & {"matrix", "include"} else "experiment"
    if ending == ".json":
        return "experiment" if EXPERIMENT_KEY.search(read_text(path, RESULTS)) else "results"
    return "experiment" if ending in EXPERIMENT_FILES else "results"


def _is_folder(path: Path) -> bool:
    """Whether a word names a folder; a path that does not exist is left to the reader for its suffix, which gives the better message."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise unreadable(path, OSError(errno.EINVAL, str(error))) from None


def _run(path: Path) -> Checked:
    run = read_run(path.parent if path.name == "run.jsonl" else path)
    sealed = f"sealed ({run.seal.reason})" if run.seal else "not finished: 'steelyard run … --resume' continues it"
    return Checked("", notes=(f"{len(run.records)} records", f"{len(run.pairs)} pairs", sealed), mistakes=tuple(run.warnings))


def _results(path: Path) -> Checked:
    runs = foreign.read_any(path)
    tools = dict.fromkeys(str(record.effective.get("tool", "another tool")) for run in runs for record in run.records)
    return Checked("", notes=(f"from {', '.join(tools)}", f"{sum(len(run.records) for run in runs)} results in {len(runs)} runs"))


def _policy(path: Path) -> Checked:
    found = load_policy(path)
    hud = found.hud
    rules = len(hud.ratios) + (len(hud.windows.rules) if hud.windows else 0) + hud.status if hud else 0
    notes = (f"margins for {', '.join(found.metrics)}", f"{len(found.expected) + len(found.allowed)} known failures")
    return Checked("", notes=(*notes, *([number_of(rules, "HUD rule")] if rules else [])))


def _expected(path: Path) -> Checked:
    return Checked("", notes=(f"{len(load_expectations(path))} entries",))


READERS: Mapping[str, Callable[[Path], Checked]] = {
    "run": _run, "results": _results, "gate policy": _policy, "expected failures": _expected,
}  # fmt: skip


def _plan(found: Checked, selector: str, store: Store, files: Sequence[str], *, shapes: bool) -> Checked:
    """Return the result for files that `run` accepts: mistakes in names, and the number of cases."""
    ready = conduct.prepare(Request(selectors=(selector, *files)), store)
    fits = try_shapes(ready) if shapes else None
    wrong = [told(fit, ready) for fit in (fits.wrong if fits else ())]
    idle = tuple(f"fits no case: rule {rule}" for rule in ready.idle)
    counts = Counter(str(item.rule) for item in ready.dropped)
    mistakes = (*ready.experiment.mistakes, *wrong)
    return replace(found, cases=len(ready.jobs) - len(wrong), dropped=counts, notes=idle, mistakes=mistakes, shapes=fits)


def misfits(ready: Plan) -> tuple[ShapeCheck, dict[str, str]]:
    """Check the shapes of a plan; also returns a message for each case that does not fit, by the case's name in its file."""
    found = try_shapes(ready)
    labels = {job.case.id: job.label for job in ready.jobs}
    return found, {label: told(fit, ready) for fit in found.wrong for label in labels[fit.case].split() or [fit.case]}


def told(fit: Fit, ready: Plan) -> str:
    """Describe a case that cannot run: its place in the file, its name there or its id, and the framework's message."""
    job = next(job for job in ready.jobs if job.case.id == fit.case)
    name = job.label.replace("|", " ", 1) or fit.case
    return f"{job.origin}  {name}: {fit.wrong}" if job.origin else f"{name}: {fit.wrong}"


def _lines(error: SteelyardError) -> Iterator[str]:
    for part in parts_of(error):
        yield "; ".join(piece.replace("\n", " ").strip() for piece in str(part).split("\n  "))


def try_shapes(ready: Plan) -> ShapeCheck:
    """Build and call every case of a plan once without data, in workers at the places where they would run."""
    workloads, shaped = dict(registry.catalogue().workloads), [job for job in ready.jobs if job.case.workload != PROGRAM]
    rest: dict[Place, list[Job]] = {}
    for job in shaped:
        if not _usual(job, workloads):
            rest.setdefault(replace(job.place, threads=1, flags=()), []).append(job)
    fits = [fit for place, jobs in rest.items() for fit in _ask(place, jobs, ready)]
    unchecked = Counter(fit.unchecked for fit in fits if fit.unchecked)
    wrong = tuple(fit for fit in fits if fit.wrong)
    return ShapeCheck(len(shaped) - len(wrong) - unchecked.total(), wrong, dict(unchecked))


def _usual(job: Job, workloads: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a case is a built-in with its default values or one of its sizes, which are known to fit."""
    info = workloads.get(job.case.workload)
    if info is None or info["origin"] != registry.BUILT_IN:
        return False
    first = {key: values[0] for key, values in info["axes"].items()}
    return any({**first, **size} == dict(job.case.params) for size in ({}, *info["sizes"].values()))


def _ask(place: Place, jobs: Sequence[Job], ready: Plan) -> Iterator[Fit]:
    """Yield a worker's answers. A case that kills the worker stays unchecked, and a new worker gets the rest."""
    left = list(jobs)
    with Crew.assemble() as crew:
        while left:
            talk, lost = Conversation(start_fresh(place, crew.mark)), None
            talk.ask(Check(ready.sources_of(left[0]), tuple(job.case for job in left)), PATIENCE)
            try:
                for answer in talk.answers():
                    if isinstance(answer, Fit):
                        left.pop(0)
                        yield answer
                    elif isinstance(answer, Lost):
                        lost = answer
            finally:
                talk.worker.stop()
            if lost is None:
                break
            if lost.fault:
                raise UsageError(lost.fault.what, why=lost.fault.why)
            if left:
                reason = "trying it took too long" if lost.status == "timeout" else "the process that tried it ended"
                yield Fit(left.pop(0).case.id, unchecked=reason)
