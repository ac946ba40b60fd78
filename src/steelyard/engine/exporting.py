"""Folders of exported programs: each case is exported in its own processes, in the environments that have its exporters.

A folder is written completely or not at all. Programs that exist already and match their manifest are not made again. A program that cannot
be made here is reported with the remedy; the other programs are still made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from steelyard import files
from steelyard.artifacts import manifest
from steelyard.artifacts.manifest import ArtifactArray, ArtifactProgram, ArtifactSet, MissingProgram, Producer, Tolerance
from steelyard.engine import envs
from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Export, Exported, Sources
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan, at_home
from steelyard.engine.process import end_orphans
from steelyard.errors import FAILED, NOTHING, SteelyardError, UsageError, exit_code
from steelyard.exporters import ways
from steelyard.exporters.ways import ExportWay
from steelyard.model.case import Case
from steelyard.model.units import plain as quantity

ARRAYS = "arrays"
PATIENCE = 3600.0
"""Time limit in seconds for making one program."""


@dataclass(frozen=True)
class ExportTarget:
    """A case whose programs are wanted, and the name of its folder."""

    name: str
    job: Job
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportOutcome:
    """The outcome of a case: `made` or `kept` with the contents of its folder, or why there is no folder."""

    name: str
    status: Literal["made", "kept", "failed", "unsupported"]
    folder: Path
    held: ArtifactSet | None = None
    reason: str = ""

    @property
    def failures(self) -> list[MissingProgram]:
        """Programs whose exporter is installed and failed."""
        return [item for item in self.held.missing if item.status == "failed"] if self.held else []


def targets_of(ready: Plan, only: Sequence[str] = ()) -> list[ExportTarget]:
    """Return the cases of a plan as targets, named by workload, framework and a digest of the id; an error for one without exporters."""
    found = []
    for job in ready.jobs:
        if not ways.chosen(job.case.backend):
            names = sorted({way.framework for way in ways.WAYS})
            raise UsageError(f"no exporter supports models of backend {job.case.backend}", do=f"choose another with -B: {', '.join(names)}")
        found.append(ExportTarget(folder_name(job.case), job, tuple(only)))
    return found


def folder_name(case: Case) -> str:
    """Return a folder name that says what is in it and differs for every case."""
    digest = hashlib.sha256(case.id.encode()).hexdigest()[:8]
    plain = "".join(sign if sign.isalnum() or sign in "_-" else "_" for sign in case.workload)
    return f"{plain}_{case.backend}_{digest}"


def make(
    targets: Sequence[ExportTarget],
    ready: Plan,
    out: Path,
    tell: Callable[[str, str], None],
    patience: float = PATIENCE,
    again: bool = False,
) -> Iterator[ExportOutcome]:
    """Make each target's folder below `out`, one after another; `tell` is called with the program that is being made."""
    for target in targets:
        ways.check_kinds(target.only)
    for target in targets:
        folder = out / target.name
        held = None if again else _kept(folder, target)
        wanted = _wanted(target, held)
        if held and not wanted:
            yield ExportOutcome(target.name, "kept", folder, held)
            continue
        _refuse_strangers(folder)
        try:
            out.mkdir(parents=True, exist_ok=True)
            with _scratch(out, target.name) as scratch:
                making = FolderMaking(target, ready, scratch, held, patience, tell)
                found = making.make(wanted)
                if found.held is not None:
                    _put(scratch, folder)
                    found = replace(found, folder=folder)
        except OSError as error:
            raise UsageError(f"cannot write to {out}", why=error.strerror or str(error), do="name another folder with -o") from error
        yield found


def _kept(folder: Path, target: ExportTarget) -> ArtifactSet | None:
    """Return what a folder already has of a target, if its files match the manifest."""
    with contextlib.suppress(SteelyardError):
        held = manifest.read(folder)
        if held.producer.source == target.job.case.id and not manifest.check(folder, held):
            return held
    return None


def _wanted(target: ExportTarget, held: ArtifactSet | None) -> list[ExportWay]:
    """Return the programs to make: all requested ones, without existing ones and those that failed before and would fail again."""
    asked = ways.chosen(target.job.case.backend, target.only)
    if held is None:
        return asked
    there = {f"{item.kind}:{item.form}" for item in held.programs}
    there |= {f"{item.kind}:{item.form}" for item in held.missing if not item.do}
    there |= {way.key for way in asked if way.key not in there and _place_of(way, target.job) is None}
    return [way for way in asked if way.key not in there]


def _refuse_strangers(folder: Path) -> None:
    """Refuse to replace a folder that Steelyard did not make."""
    if folder.exists() and not (folder / manifest.NAME).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is in the way",
            why=f"it has no {manifest.NAME}, so Steelyard did not make it",
            do="move it, or name another folder with -o",
        )


@contextlib.contextmanager
def _scratch(out: Path, name: str) -> Iterator[Path]:
    """A temporary folder beside the final one; removed afterwards, with those left by dead processes."""
    for left in out.glob(f".{name}.*.part"):
        with contextlib.suppress(ValueError, OSError):
            if not Path(f"/proc/{int(left.name.split('.')[-2])}").exists():
                shutil.rmtree(left, ignore_errors=True)
    scratch = out / f".{name}.{os.getpid()}.part"
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _put(scratch: Path, folder: Path) -> None:
    """Put a finished folder in its place, and remove the one before it."""
    before = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(before)
    scratch.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def _place_of(way: ExportWay, job: Job) -> Place | None:
    """Return where a program can be made: where the case runs if that has all it needs, or in an environment that does; else None."""
    place = envs.place_with([ways.PACKAGES[name] for name in way.needs], way.needs, job.place)
    return None if place is None else at_home(job.case, place)


@dataclass
class FolderMaking:
    """One folder while it is made, with one worker for each environment that it needs, and another for each one lost."""

    target: ExportTarget
    ready: Plan
    folder: Path
    held: ArtifactSet | None
    patience: float
    tell: Callable[[str, str], None]
    words: dict[str, Any] = field(default_factory=dict)
    programs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    missing: dict[str, MissingProgram] = field(default_factory=dict)

    def make(self, wanted: Sequence[ExportWay]) -> ExportOutcome:
        """Make the arrays first, then the programs of the model, then those that are made from other programs' files."""
        self._take_over()
        whole = [way for way in ways.sources_of(wanted) if way in wanted or way.key not in self.programs]
        places: dict[str, Place] = {}
        for way in whole:
            if place := _place_of(way, self.target.job):
                places[way.key] = place
            else:
                do = f"steelyard env create {way.stack}"
                told = "are not installed together" if len(way.needs) > 1 else "is not installed here"
                self._lacks(way, "unsupported", f"{' and '.join(way.needs)} {told}", do)
        able = [way for way in whole if way.key in places]
        home = self.target.job.place
        trouble = self._ask(home, [way for way in able if not way.source and places[way.key] == home], first=True)
        if trouble:
            return trouble
        for place in dict.fromkeys(places[way.key] for way in able if not way.source and places[way.key] != home):
            self._ask(place, [way for way in able if not way.source and places[way.key] == place])
        for place in dict.fromkeys(places[way.key] for way in able if way.source):
            self._ask(place, [way for way in able if way.source and places[way.key] == place])
        return self._finished(wanted)

    def _take_over(self) -> None:
        """Start from the contents of an existing valid folder."""
        if self.held is None:
            return
        for item in self.held.files:
            os.link(self.folder.parent / self.target.name / item.path, self.folder / item.path)
        self.words = {
            "inputs": self.held.inputs, "outputs": self.held.outputs, "tolerance": self.held.tolerance,
            "versions": self.held.producer.versions, "weights": self.held.producer.weights, "largest": self._largest(self.held),
        }  # fmt: skip
        self.programs = {f"{item.kind}:{item.form}": {"kept": item} for item in self.held.programs}
        self.missing = {f"{item.kind}:{item.form}": item for item in self.held.missing}

    def _largest(self, held: ArtifactSet) -> float:
        """Return the largest number in the recorded outputs; tolerances of quantised programs are shares of it."""
        import numpy as np

        from steelyard.artifacts import arrays

        data = arrays.load(self.folder, held.outputs, as_bits=True)
        return max(
            (float(np.abs(arrays.widened(part, item.dtype)).max(initial=0)) for part, item in zip(data, held.outputs, strict=True)),
            default=0.0,
        )

    def _lacks(self, way: ExportWay, status: str, reason: str, do: str = "") -> None:
        self.missing[way.key] = MissingProgram(way.kind, way.form, reason, do, status)

    def _ask(self, place: Place, wanted: Sequence[ExportWay], *, first: bool = False) -> ExportOutcome | None:
        """Have programs made at a place; a lost worker loses its current program, and another worker continues after that."""
        left, arrays = list(wanted), first and self.held is None
        while left or arrays:
            lost = self._converse(place, left, arrays)
            if lost is None:
                return None
            if arrays and "inputs" not in self.words:
                status: Literal["failed", "unsupported"] = "unsupported" if lost.fault and _unsupported(lost) else "failed"
                return ExportOutcome(self.target.name, status, self.folder, reason=lost.reason)
            if not left:
                return None
            arrays = False
            self._lacks(left[0], "failed", lost.reason, files.no_room(self.folder))
            with contextlib.suppress(OSError):
                (self.folder / left[0].file).unlink()
            left = left[1:] if lost.fault is None else []
        return None

    def _converse(self, place: Place, left: list[ExportWay], arrays: bool) -> Lost | None:
        """Run one worker; the programs that it has made are removed from `left`."""
        mark = uuid.uuid4().hex
        job, only_files = self.target.job, bool(left) and all(way.source for way in left)
        sources = Sources() if only_files else self.ready.sources_of(job)
        programs = tuple(way.word for way in left)
        asked = Export(sources, self.ready.settings, job.case, str(self.folder), programs, arrays, float(self.words.get("largest", 0.0)))
        self.tell(self.target.name, left[0].key if left else ARRAYS)
        talk = Conversation(start_fresh(place, mark), subject="the exporter")
        try:
            talk.ask(asked, self.patience)
            for answer in talk.answers():
                if isinstance(answer, Lost):
                    return answer
                if isinstance(answer, Exported):
                    if trouble := self._take(answer, left, arrays):
                        return trouble
                    if answer.program != ARRAYS and left:
                        self.tell(self.target.name, left[0].key)
            return None
        finally:
            talk.worker.stop()
            end_orphans(mark, ())
            for left_behind in self.folder.glob(f"{ways.SCRATCH}*"):
                shutil.rmtree(left_behind, ignore_errors=True)

    def _take(self, answer: Exported, left: list[ExportWay], arrays: bool) -> Lost | None:
        if answer.program == ARRAYS:
            return self._take_arrays(answer, left, arrays)
        way = left.pop(0)
        if answer.status == "ok":
            self.programs[way.key] = answer.words
            self.missing.pop(way.key, None)
        else:
            self._lacks(way, answer.status, str(answer.words.get("reason", "")), str(answer.words.get("do", "")))
        return None

    def _take_arrays(self, answer: Exported, left: list[ExportWay], arrays: bool) -> Lost | None:
        """Take inputs and outputs from the first worker; every later worker must have the same inputs."""
        said = {**answer.words, "inputs": _arrays(answer.words["inputs"]), "outputs": _arrays(answer.words["outputs"])}
        if arrays:
            self.words = said | {"tolerance": Tolerance(**said["tolerance"])}
            return None
        mine = [(item.dtype, item.shape, item.sha256) for item in self.words["inputs"]]
        if mine == [(item.dtype, item.shape, item.sha256) for item in said["inputs"]]:
            return None
        reason = "the case has different inputs in this exporter's environment, so its program would be of another model"
        for way in left:
            self._lacks(way, "failed", reason)
        left.clear()
        return Lost("failed", reason)

    def _finished(self, wanted: Sequence[ExportWay]) -> ExportOutcome:
        """Write the manifest of the programs that exist; files that were only needed to make them are removed."""
        asked = {way.key for way in wanted} | ({f"{item.kind}:{item.form}" for item in self.held.programs} if self.held else set())
        framework, own = self.target.job.case.backend, {way.key: way for way in wanted}
        made = []
        for way in ways.chosen(framework):
            if way.key in self.programs and way.key in asked:
                made.append(self._program(own.get(way.key, way)))
            elif way.key in self.programs:
                (self.folder / way.file).unlink()
        missing = [item for key, item in self.missing.items() if key not in self.programs and key in asked | _listed(self.held)]
        missing += [item for item in self._without_way() if item not in missing]
        used = dict.fromkeys([item.file for item in (*self.words["inputs"], *self.words["outputs"])] + [item.file for item in made])
        producer = Producer(framework, self.target.job.case.id, _texts(self.words["versions"]), str(self.words["weights"]))
        found = ArtifactSet(
            self.target.name, producer, self.words["inputs"], self.words["outputs"], programs=tuple(made), missing=tuple(missing),
            tolerance=self.words["tolerance"], files=tuple(manifest.entry(self.folder, name) for name in used),
        )  # fmt: skip
        manifest.write(self.folder, found)
        return ExportOutcome(self.target.name, "made", self.folder, found)

    def _without_way(self) -> Iterator[MissingProgram]:
        """Yield the requested kinds that no exporter makes from this framework's models."""
        framework, only = self.target.job.case.backend, self.target.only
        for kind in manifest.KINDS:
            if not any(way.kind == kind and way.framework == framework for way in ways.WAYS) and (not only or kind in only):
                form = next((way.form for way in ways.WAYS if way.kind == kind), "archive")
                yield MissingProgram(kind, form, ways.no_way(framework, kind))

    def _program(self, way: ExportWay) -> ArtifactProgram:
        words = self.programs[way.key]
        if kept := words.get("kept"):
            found: ArtifactProgram = kept
            return found
        order = self._order(way.source) if words.get("as_source") else words
        own = words.get("tolerance")
        return ArtifactProgram(
            way.kind, way.form, way.file, str(words.get("entry", "main")), tuple(order.get("arguments", ())),
            tuple(order.get("results", ()) or self._order(way.source).get("results", ())), str(words.get("wrote", "")),
            Tolerance(max(own["atol"], self.words["tolerance"].atol), own["rtol"]) if own else None,
        )  # fmt: skip

    def _order(self, key: str) -> Mapping[str, Any]:
        """Return the order of arguments and results that a program was made with."""
        words = self.programs.get(key, {})
        kept = words.get("kept")
        return {"arguments": kept.arguments, "results": kept.results} if kept else words


def code_of(outcomes: Sequence[ExportOutcome]) -> int:
    """Return the exit code: not 0 if nothing was made or an exporter failed; an exporter that is not installed is only reported."""
    made = any(item.held and item.held.programs for item in outcomes)
    failed = any(item.status == "failed" or item.failures for item in outcomes)
    return exit_code([*([FAILED] if failed else []), *([] if made else [NOTHING])])


def told_outcome(outcome: ExportOutcome) -> list[str]:
    """Return a line for a folder, and one for each of its programs."""
    if outcome.held is None:
        return [f"{outcome.name}  {outcome.status}: {'; '.join(map(str.strip, outcome.reason.splitlines()))[:500]}"]
    return [f"{outcome.name}  {outcome.status}  {outcome.folder}", *told_programs(outcome.held)]


def told_programs(held: ArtifactSet) -> list[str]:
    """Return lines for programs with their sizes, and for missing ones with the reason."""
    lines = [f"  {item.kind:28} {item.form:10} {quantity(held.file_of(item.file).bytes, 'B'):>10}  {item.file}" for item in held.programs]
    for gone in held.missing:
        do = f"; {gone.do}" if gone.do else ""
        lines.append(f"  {gone.kind:28} {gone.form:10} {gone.status}: {' '.join(gone.reason.split())[:300]}{do}")
    return lines


def _listed(held: ArtifactSet | None) -> set[str]:
    return {f"{item.kind}:{item.form}" for item in held.missing} if held else set()


def _arrays(items: Sequence[Mapping[str, Any]]) -> tuple[ArtifactArray, ...]:
    return tuple(ArtifactArray(**{**item, "shape": tuple(item["shape"])}) for item in items)


def _texts(versions: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in versions.items()}


def _unsupported(lost: Lost) -> bool:
    """Whether a fault is about what is installed and not about the case."""
    return lost.fault is not None and bool(lost.fault.do) and "not installed" in lost.fault.what
