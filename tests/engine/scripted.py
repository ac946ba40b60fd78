"""Workers that measure nothing: they say what a test has them say, through the engine's own crew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from steelyard.engine.conversation import Lost
from steelyard.engine.crew import Crew
from steelyard.engine.messages import Answer, Check, Done, Fit, Found, Measure, Ready, RecordAnswer, Retire, Started
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.record import Figure, Record


@dataclass
class Script:
    """`lost_at` is the label of the case that a worker does not survive, `retires_after` that of one that breaks its device."""

    lost_at: str = ""
    retires_after: str = ""
    lost_between: bool = False
    jobs: list[list[str]] = field(default_factory=list)
    """The labels of each job that a worker got."""
    dismissed: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Script:
        """Have every crew use it."""
        monkeypatch.setattr(Crew, "engage", lambda crew, job, plan: self._engage(crew))
        monkeypatch.setattr(Crew, "converse", lambda crew, talk, job, patience, ahead=None: self.say(job))
        monkeypatch.setattr(Crew, "dismiss", lambda crew: self._dismiss(crew))
        monkeypatch.setattr(Crew, "abandon", lambda crew: self._dismiss(crew))
        return self

    def _engage(self, crew: Crew) -> Any:
        crew.talk = SimpleNamespace(phase="measuring", struck=lambda: "")  # type: ignore[assignment]
        return crew.talk

    def _dismiss(self, crew: Crew) -> None:
        self.dismissed, crew.talk = self.dismissed + 1, None

    def say(self, job: Any) -> Iterator[Answer | Lost]:
        """All that a worker says about a job."""
        if isinstance(job, Check):
            yield from (Fit(case.id) for case in job.cases)
            yield Done()
            return
        assert isinstance(job, Measure)
        self.jobs.append(list(job.labels))
        yield Ready({})
        for case, label in zip(job.cases, job.labels, strict=True):
            yield Started(case.id)
            if label == self.lost_at:
                yield Lost("oom", "no memory")
                return
            yield answer(case, job.settings, label)
            if label == self.retires_after:
                yield from (Retire("broken"), Found(files=(("trace_file", "t.json"),)), Done())
                return
        if self.lost_between:
            yield Lost("crashed", "gone")
            return
        yield Done()


def answer(case: Case, settings: Settings, label: str = "") -> RecordAnswer:
    """One call of a millisecond."""
    record = Record(
        case.id, case.plain(), "ok", metrics={"time": Figure(1e-3, "s", "lower", n=1)}, requested=settings.plain(),
        effective={"label": label, "protocol": "fixed"},
    )  # fmt: skip
    return RecordAnswer(record, {"forward.measure.time": ("ns", "<f8", np.asarray([1e6]).tobytes())}, {})
