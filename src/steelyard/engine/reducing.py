"""Makes a program smaller while its fault stays: the engine runs each smaller program in workers, like any other case."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.artifacts.cutting import CutProgram, read_program, smaller
from steelyard.engine import conduct
from steelyard.engine.run import NoWatch
from steelyard.errors import NothingMeasured, SteelyardError, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Settings
from steelyard.model.pair import weigh
from steelyard.store.runs import Run, Store
from steelyard.workloads.artifacts._files import described

WORKLOAD, PARAMETER = "artifact", "path"
SLOWER = "slower"
BRIEF = 80
CUTTABLE = ("stablehlo_mlir", "tosa_mlir", "linalg_mlir")


@dataclass(frozen=True)
class Symptom:
    """What is wrong with a case: its status, with the reason if it gave no answer, or that it is slower than its base."""

    kind: str
    words: str = ""

    def same(self, other: Symptom | None) -> bool:
        """Whether another case has the same symptom; how far off a wrong answer is and which values differ do not matter."""
        alike = self.kind in ("wrong", SLOWER) or (other is not None and _gist(self.words) == _gist(other.words))
        return other is not None and self.kind == other.kind and alike


def _gist(words: str) -> str:
    """A reason without what depends on the program: numbers and names of values."""
    return " ".join(re.sub(r"[%@#]?[\w.\-/]*\d[\w.\-/]*", "", words).split())[:BRIEF]


@dataclass(frozen=True)
class CutStep:
    """One smaller program that was tried, and whether it has the same symptom."""

    program: CutProgram
    kept: bool


Judge = Callable[[str], Symptom | None]


def reduce_program(program: CutProgram, judge: Judge, until: float, told: Callable[[CutStep], None] = lambda step: None) -> CutProgram:
    """The smallest program found in the time that has the symptom of the first; no text is judged twice."""
    found = judge(program.text())
    if found is None:
        raise NothingMeasured("there is nothing to reduce", why="the program as read has no fault", do="run the case again")
    tried = {program.text()}
    shrunk = True
    while shrunk and time.monotonic() < until:
        shrunk = False
        for candidate in _untried(program, tried):
            if time.monotonic() >= until:
                break
            kept = found.same(judge(candidate.text()))
            told(CutStep(candidate, kept))
            if kept:
                program, shrunk = candidate, True
                break
    return program


def _untried(program: CutProgram, tried: set[str]) -> Iterator[CutProgram]:
    for candidate in smaller(program):
        text = candidate.text()
        if candidate.size < program.size and candidate.outputs and text not in tried:
            tried.add(text)
            yield candidate


@dataclass(frozen=True)
class CutQuestion:
    """The test for a program: its case, and the backend whose answers are right, or the base that its time is compared with."""

    case: Case
    against: str
    settings: Settings

    def symptom(self, file: Path, scratch: Path) -> Symptom | None:
        """Measure a program in a file and return what is wrong with it; None if nothing is."""
        case = replace(self.case, params=tuple((dict(self.case.params) | {PARAMETER: str(file)}).items()))
        witness = [] if self.settings.vs else [replace(case, backend=self.against, flags=(), env="")]
        experiment = Experiment(include=(*witness, case), settings=self.settings)
        outcome = conduct.execute(conduct.from_experiment(experiment), Store(scratch), ["steelyard", "artifacts", "reduce"], _nobody)
        return _symptom(outcome.run, case, self.settings.vs)

    def judge(self, scratch: Path) -> Judge:
        """The same as a function of a program's text."""

        def judged(text: str) -> Symptom | None:
            with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as folder:
                file = Path(folder) / "program.mlir"
                file.write_text(text, encoding="utf-8")
                try:
                    return self.symptom(file, Path(folder) / "store")
                except SteelyardError:
                    return None

        return judged


def _nobody(writer: object) -> NoWatch:
    return NoWatch()


def _symptom(run: Run, case: Case, vs: str | None) -> Symptom | None:
    record = next((item for item in run.records if item.case["backend"] == case.backend and item.case["flags"] == dict(case.flags)), None)
    if record is None:
        return None
    if record.status != "ok":
        return Symptom(record.status, record.reason)
    slow = [weigh(pair) for pair in run.pairs if vs and pair.head.id == record.id]
    return next((Symptom(SLOWER, delta.effect) for delta in slow if delta.verdict == "slower" and delta.material), None)


def text_of(case: Case, store: Path) -> tuple[str, str]:
    """The text of a case's program and the name of its entry; StableHLO in another form is converted with XLA's reader."""
    value = dict(case.params).get(PARAMETER)
    if case.workload != WORKLOAD or not isinstance(value, dict) or "file" not in value:
        raise UsageError(f"{case} is not an exported program", do="name one: artifact:FILE, or the id of a case of one")
    found = described(Path(value["file"]))
    if found.form == "text" and found.kind in CUTTABLE:
        return found.path.read_text(encoding="utf-8"), found.entry
    if found.kind not in ("stablehlo_mlir", "xla_hlo_dump"):
        raise UsageError(f"a program of the kind {found.kind} cannot be cut", why="only MLIR text can be cut", do="export StableHLO")
    asked = replace(case, backend="xla", flags=(), env="")
    experiment = Experiment(include=(asked,), settings=Settings(dump_ir="stablehlo", verify=False, budget=1e-3))
    run = conduct.execute(conduct.from_experiment(experiment), Store(store), ["steelyard", "artifacts", "reduce"], _nobody).run
    kept = [run.path / item.path for record in run.records for item in record.attachments if item.kind == "graph"]
    if not kept:
        why = "; ".join(str(record.effective.get("dump_ir") or record.reason) for record in run.records)
        raise UsageError("the program could not be written as text", why=why, do="export it as StableHLO text")
    return kept[0].read_text(encoding="utf-8"), found.entry


def read_case(case: Case, scratch: Path) -> CutProgram:
    """The program of a case, ready to be cut."""
    return read_program(*text_of(case, scratch / "text"))
