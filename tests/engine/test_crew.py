"""Several cases in one job: every answer for the case it is about, and the rest for the next worker whatever becomes of the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import conduct
from steelyard.engine.conversation import Lost
from steelyard.engine.crew import Crew, Unstarted
from steelyard.engine.messages import Done, Found, RecordAnswer, Started
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import RowQueue, Sink
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.protocol import Fixed
from steelyard.model.record import Record
from steelyard.store.runs import RunWriter, Store
from tests.engine.scripted import Script, answer

SIZES = (8, 16, 32)
SETTINGS = Settings(fixed=Fixed(1, 2), isolate="none", verify=False)


class Listed(Sink):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begun(self, environment: Any) -> None:
        self.told.append("begun")

    def take(self, job: Any, record: Record, arrays: Any) -> None:
        self.told.append((job.label, record.status, sorted(arrays)))


def run(tmp_path: Path, settings: Settings = SETTINGS, **words: Any) -> tuple[list[str], Listed]:
    def watching(writer: RunWriter) -> NoWatch:
        return NoWatch()

    matrices = tuple(Matrix(("op/sum",), {"n": (n,)}, ("numpy",), label=f"n{n}") for n in SIZES)
    ready = conduct.from_experiment(Experiment("x", matrix=matrices, settings=settings))
    sink = Listed()
    done = conduct.execute(ready, Store(tmp_path / "s"), ["x"], watching, sink=sink, **words)
    return [record.status for record in done.run.records], sink


def test_what_is_measured_reaches_the_store_and_the_sink_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script().install(monkeypatch)
    statuses, sink = run(tmp_path)
    assert statuses == ["ok"] * 3 and script.jobs == [["n8", "n16", "n32"]]
    assert sink.told == ["begun", *((f"n{n}", "ok", ["forward.measure.time"]) for n in SIZES)]


def test_a_lost_worker_costs_the_case_it_was_at_and_the_rest_goes_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(lost_at="n16").install(monkeypatch)
    statuses, sink = run(tmp_path)
    assert statuses == ["ok", "oom", "ok"] and script.jobs == [["n8", "n16", "n32"], ["n32"]]
    assert sink.told[2] == ("n16", "oom", [])


def test_a_worker_that_should_get_no_more_gets_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(retires_after="n8").install(monkeypatch)
    assert run(tmp_path)[0] == ["ok"] * 3 and script.jobs[1:] == [["n16", "n32"]] and script.dismissed


def test_what_a_retired_worker_still_tells_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, found = Script(retires_after="n8").install(monkeypatch), list[Any]()
    monkeypatch.setattr(Listed, "found", lambda sink, told: found.append(told), raising=False)
    assert run(tmp_path)[0] == ["ok"] * 3 and len(script.jobs) == 2
    assert found == [Found(files=(("trace_file", "t.json"),))]


def test_where_no_worker_starts_every_case_says_so_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def engage(crew: Crew, job: Any, plan: Any) -> Any:
        raise Unstarted("no worker could be started")

    monkeypatch.setattr(Crew, "engage", engage)
    statuses, sink = run(tmp_path)
    assert statuses == ["crashed"] * 3 and [label for label, *_ in sink.told] == ["n8", "n16", "n32"]


def test_a_worker_that_is_lost_after_its_work_has_lost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Script(lost_between=True).install(monkeypatch)
    assert run(tmp_path)[0] == ["ok"] * 3


def test_the_first_failure_can_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Script(lost_at="n16").install(monkeypatch)
    assert run(tmp_path, fail_fast=True)[0] == ["ok", "oom"]


@pytest.mark.parametrize("said", [[], [Done()], [Started("x")], ["other"], ["other", Done()]])
def test_a_worker_without_a_fitting_answer_costs_a_case_and_never_goes_on_for_ever(
    said: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script().install(monkeypatch)
    other = answer(Case("op/sum"), SETTINGS)
    monkeypatch.setattr(Crew, "converse", lambda *_, **__: iter([other if word == "other" else word for word in said]))
    statuses, _ = run(tmp_path)
    assert statuses == ["crashed"] * 3


def test_rows_are_written_in_their_turn() -> None:
    queue: RowQueue[str] = RowQueue("abcd")
    assert list(queue.put("c", "C")) == [] and list(queue.put("a", "A")) == ["A"]
    assert list(queue.drop("b")) == ["C"] and list(queue.put("d", "D")) == ["D"]


def test_an_answer_is_a_record_or_a_loss() -> None:
    assert isinstance(answer(Case("op/sum"), SETTINGS), RecordAnswer) and str(Lost("oom", "no memory")) == "oom: no memory"
