"""A runner whose workers measure nothing: they answer as a test has them answer, through the engine's own supervision."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from steelyard.dialects.ptxla import runner
from steelyard.dialects.ptxla.flags import RunnerOptions, settle
from steelyard.engine.conversation import Lost
from steelyard.engine.crew import Crew
from steelyard.engine.messages import Answer, Done, Measure, Order, Pass, Ready, RecordAnswer, Started
from steelyard.engine.place import Place
from steelyard.engine.plan import Job
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.record import Record, Status, Verification
from steelyard.store.runs import Store

SECONDS = (2.0, 1.0)
Reply = Callable[[Case], RecordAnswer | Lost | list[Answer | Lost]]


def times(*seconds: float) -> tuple[str, str, bytes]:
    return ("ns", "<f8", (np.asarray(seconds) * 1e9).tobytes())


def measured(case: Case, code: str = "", host: tuple[float, ...] = (), **words: Any) -> RecordAnswer:
    """What a worker answers that timed two repeats; `code` is what verification said."""
    effective = {"threads": case.threads, "noise": "A", "other_load": 0.25, "batch_size": dict(case.params).get("batch")}
    checked = None
    if code:
        status: Any = {"PASS": "passed", "FAIL": "failed"}.get(code, "none")
        figures = {"mean_rel_error": 0.5} if code in ("PASS", "FAIL") else {}
        checked = Verification(status, "eager", "" if code == "PASS" else "far off", rtol=0.01, code=code, figures=figures)
    record = Record(
        case.id, case.plain(), "wrong" if code == "FAIL" else "ok", verification=checked, environment={"torch": "0", "numpy": "1"},
        effective={**effective, **words.pop("effective", {})}, **words,
    )  # fmt: skip
    arrays = {"forward.measure.time": times(*SECONDS)} | ({"forward.measure.host": times(*host)} if host else {})
    return RecordAnswer(record, arrays, {})


def untimed(status: Status, reason: str, **effective: Any) -> Callable[[Case], RecordAnswer]:
    """A worker that says why there is no time."""
    return lambda case: RecordAnswer(Record(case.id, case.plain(), status, reason, effective=effective), {}, {})


def lost(status: Status) -> Callable[[Case], Lost]:
    """A worker that does not survive."""
    return lambda case: Lost(status, "gone")


@dataclass
class Stage:
    """Workers that say what a test has them say, and all that they were asked for."""

    reply: Reply = measured
    cases: list[Case] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    starting: Callable[[Job], None] = lambda job: None
    passing: Callable[[Pass], list[Answer | Lost]] = lambda order: [Done()]
    stderr: str = "\x1b]0;owned\x07last words"

    @property
    def places(self) -> list[Place]:
        """Where each worker was started."""
        return [job.place for job in self.jobs]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Stage:
        """Have every crew use it."""
        monkeypatch.setattr(Crew, "engage", lambda crew, job, plan: self._engage(crew, job))
        monkeypatch.setattr(Crew, "converse", lambda crew, talk, order, patience, ahead=None: self._say(crew, order))
        monkeypatch.setattr(Crew, "dismiss", lambda crew: self._gone(crew))
        return self

    def _engage(self, crew: Crew, job: Job) -> Any:
        self.starting(job)
        if crew.talk is None:
            self.jobs.append(job)
        crew.talk = SimpleNamespace(phase="measuring", struck=lambda: "")  # type: ignore[assignment]
        return crew.talk

    def _gone(self, crew: Crew) -> None:
        if crew.talk is not None:
            crew.talk = None
            crew.heard(self.stderr)

    def _say(self, crew: Crew, order: Order) -> Iterator[Answer | Lost]:
        if isinstance(order, Pass):
            self.passes.append(order.name)
            yield from self.passing(order)
            return
        assert isinstance(order, Measure)
        self.settings.append(order.settings)
        yield Ready({})
        for number, case in enumerate(order.cases):
            self.cases.append(case)
            self.rules.append(order.rules[number] if order.rules else "")
            yield Started(case.id)
            answers = self.reply(case)
            for answer in answers if isinstance(answers, list) else [answers]:
                if isinstance(answer, Lost):
                    self._gone(crew)
                yield answer
        yield Done()


class Heard(runner.RunnerWatch):
    """Remembers the log."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.prints: list[str] = []
        self.counted: list[tuple[int, int]] = []
        self.code = -1

    def say(self, level: str, text: str) -> None:
        self.lines.append(f"{level}: {text}")

    def printed(self, text: str) -> None:
        self.prints.append(text)

    def finished(self, row: Any, done: int, total: int) -> None:
        self.counted.append((done, total))


def perform(folder: Path, store: Store | None = None, **words: Any) -> tuple[runner.MatrixRun, Heard]:
    """One whole run into a folder, of the dummy on a CPU with plain PyTorch unless said otherwise."""
    usual = {
        "suite_name": "dummy", "accelerator": ("cpu",), "xla": ("None",), "dynamo": ("None",), "test": ("eval",), "repeat": 2,
        "output_dirname": str(folder / "out"), "timestamp": 7.5,
    }  # fmt: skip
    heard = Heard()
    made = runner.begin(settle(RunnerOptions(**(usual | words))), heard, store)
    heard.code = made.run()
    return made, heard


def rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "out" / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def batch(case: Case) -> Any:
    """The batch size that a case was asked with."""
    return dict(case.params).get("batch")


def other(case: Case, **words: Any) -> RecordAnswer:
    """An answer whose record has other words."""
    found = measured(case)
    return replace(found, record=replace(found.record, **words))
