"""Where a case's time went, and what the next run is expected to take from that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import phases, waits
from steelyard.engine.phases import PhaseClock, with_phase
from steelyard.engine.plan import Plan, expand
from steelyard.machine.kept import VARIABLE
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import WEIGHED, Record
from tests.engine.drive import run_json
from tests.engine.planned import CATALOGUE

KEY = "0" * 12


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))


def record(case: Case, budget: float = 1.0, **wall: float) -> Record:
    return Record(case.id, case.plain(), "ok", requested={"budget": budget}, effective={"wall": wall})


def plan(*names: str, budget: float = 1.0, **words: Any) -> Plan:
    return expand(Experiment(matrix=(Matrix(names, **words),), settings=Settings(budget=budget)), CATALOGUE)


def test_phases_add_up_in_the_order_in_which_they_come() -> None:
    clock = PhaseClock()
    clock.add("reference", 0.25)
    clock.add("inputs", 0.5)
    clock.add("reference", 0.25)
    clock.add("compile", 1e-6)
    with clock.phase("measuring"):
        pass
    assert list(clock.told().items())[:2] == [("inputs", 0.5), ("reference", 0.5)] and "compile" not in clock.told()


def test_what_a_worker_does_not_see_is_added_by_who_does() -> None:
    case = Case("op/two", backend="numpy")
    found = with_phase(with_phase(record(case, inputs=0.5), "pairs", 2.0), "start", 1.0)
    assert list(found.effective["wall"].items()) == [("start", 1.0), ("inputs", 0.5), ("pairs", 2.0)]
    assert "wall" not in with_phase(Record(case.id, case.plain(), "ok"), "pairs", 2.0).effective


def test_what_is_known_of_a_kind_is_expected_again() -> None:
    job = plan("op/two").jobs[0]
    waits.learn(KEY, [record(job.case, start=2.0, inputs=3.0, measuring=1.5, beside=0.5)], {job.case.id: False})
    once = waits.estimate(plan("op/two"), KEY).about
    assert once == pytest.approx(0.3 + 2.0 + 3.0 + 2.0)
    longer = waits.estimate(plan("op/two", budget=3.0), KEY).about
    assert longer == pytest.approx(once + 2 * 2.0)


def test_other_cases_of_the_same_way_are_expected_to_be_alike() -> None:
    job = plan("op/two").jobs[0]
    before = waits.estimate(plan("op/one", axes={"n": (8,)}), KEY).about
    waits.learn(KEY, [record(job.case, inputs=30.0, measuring=1.0)], {job.case.id: False})
    after = waits.estimate(plan("op/one", axes={"n": (8,)}), KEY).about
    assert after > before + 25
    compiled = waits.estimate(plan("op/one", axes={"n": (8,)}, variant=("slow-start",)), KEY).about
    assert compiled < 25


def test_new_figures_count_and_old_ones_are_not_forgotten_at_once() -> None:
    job = plan("op/two").jobs[0]
    for seconds in (1.0, 9.0):
        waits.learn(KEY, [record(job.case, inputs=seconds, measuring=1.0)], {job.case.id: False})
    assert waits.known(KEY, "cpu", 1).kinds["op/two@numpy/eager"]["inputs"] == pytest.approx(5.0)


def test_comparisons_that_were_made_together_are_expected_once_and_what_is_built_again_does_not_grow_with_the_budget() -> None:
    def weighed(budget: float) -> float:
        settings = Settings(budget=budget, vs="numpy/eager")
        ready = expand(Experiment(matrix=(Matrix(("op/two",), variant=("eager", "slow-start")),), settings=settings), CATALOGUE)
        return waits.estimate(ready, KEY).about

    base, head = plan("op/two", variant=("eager", "slow-start")).jobs
    told = record(head.case, start=1.0, compile=20.0, measuring=1.0, pairs=2 * (20.0 + 1.5))
    told = replace(told, effective={**told.effective, WEIGHED: 2})
    waits.learn(KEY, [record(base.case, start=1.0, measuring=1.0), told], {base.case.id: False, head.case.id: True})
    assert waits.known(KEY, "cpu", 1).kinds["op/two@numpy/compiled"]["pairs"] == pytest.approx(1.5)
    assert weighed(3.0) - weighed(1.0) == pytest.approx(2 * (1.0 + 1.0 + 1.5), abs=1.0)
    assert weighed(1.0) == pytest.approx(2 * 20.0 + 1.0 + 1.0 + 1.5, abs=6.0)


def test_only_so_many_kinds_are_kept() -> None:
    cases = [Case(f"op/n{number}", backend="numpy") for number in range(waits.MOST_KINDS + 20)]
    waits.learn(KEY, [record(case, measuring=1.0) for case in cases], {case.id: False for case in cases})
    kinds = waits.known(KEY, "cpu", 1).kinds
    assert len(kinds) == waits.MOST_KINDS and "op/n0@numpy/eager" not in kinds


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1, "key": "000000000000", "kinds": {"a": {"b": -1}}, "once": {}}'])
def test_a_file_that_holds_nothing_of_use_is_no_hindrance(text: str) -> None:
    file = waits.SHELF.path(KEY, "cpu", 1)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert waits.estimate(plan("op/two"), KEY).about > 0


def test_a_run_says_where_its_time_went_and_the_next_is_foretold(tmp_path: Path) -> None:
    words = ["op/sum", "-B", "numpy", "--budget", "50ms"]
    found = run_json(*words, cwd=tmp_path)["records"][0]
    wall = found["effective"]["wall"]
    assert set(wall) <= set(phases.PHASES) and {"start", "inputs", "reference", "measuring"} <= wall.keys()
    assert sum(seconds for name, seconds in wall.items() if name not in ("start", "pairs")) <= found["wall_s"] * 1.01
    foretold = run_json(*words, "--dry-run", cwd=tmp_path)["estimate_s"]
    assert foretold < 20
