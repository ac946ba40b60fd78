"""What a run is worth in the end: rows for what a rule skipped, and an exit code that knows what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.codec.expectations import Expectation
from steelyard.codec.policy import Excuse
from steelyard.engine.conduct import judge
from steelyard.errors import FAILED, NOTHING, PASS
from steelyard.model.case import Case
from steelyard.model.experiment import Rule
from steelyard.model.record import Figure, Record, Status
from steelyard.store.runs import Header, Run
from tests.engine.drive import run_json, steelyard

DENYING = """
[[matrix]]
workload = "fake/work"
axes = {fault = ["none", "segfault"]}
[[deny]]
axes = {fault = "segfault"}
reason = "the driver dies"
"""
EXPECTED = (Expectation(Rule({"workload": "bad/*"}), Excuse("", "failed", "known")),)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ({"good/a": "ok", "bad/a": "crashed"}, PASS),
        ({"good/a": "ok", "bad/a": "ok"}, PASS),
        ({"good/a": "oom", "bad/a": "crashed"}, FAILED),
        ({"good/a": "ok", "good/b": "skipped"}, PASS),
        ({"good/a": "skipped", "good/b": "unsupported"}, NOTHING),
        ({"bad/a": "crashed", "bad/b": "oom"}, NOTHING),
        ({"bad/a": "wrong"}, PASS),
        ({}, NOTHING),
    ],
)  # fmt: skip
def test_an_expected_failure_is_neither_a_failure_nor_a_measurement(outcomes: dict[str, Status], code: int) -> None:
    timed = {"time": Figure(1.0, "s")}
    records = [
        Record(Case(name).id, Case(name).plain(), status, metrics=timed if status in ("ok", "wrong") else {})
        for name, status in outcomes.items()
    ]
    assert judge(Run(Path(), Header(), tuple(records)), expectations=EXPECTED) == code


def test_what_a_rule_denies_is_a_row_with_the_rule_and_its_reason(tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(DENYING)
    told = steelyard("run", "exp.toml", "--dry-run", cwd=tmp_path)
    assert "fault=segfault" not in told.stdout
    assert "by axes.fault=segfault: the driver dies" in told.stderr and "1 skipped by rule" in told.stderr
    found = run_json("exp.toml", cwd=tmp_path)
    assert [(record["status"], record["case"]["params"]["fault"]) for record in found["records"]] == [
        ("skipped", "segfault"),
        ("ok", "none"),
    ]
    assert found["records"][0]["reason"] == "the driver dies (denied: axes.fault=segfault)"
    assert "1 skipped" in steelyard("show", cwd=tmp_path).stdout


def test_all_skipped_is_nothing_measured_and_still_recorded(tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(DENYING)
    found = run_json("exp.toml", "-x", ".*none.*", cwd=tmp_path, check=5)
    assert [record["status"] for record in found["records"]] == ["skipped"]


def test_news_are_told_and_only_they_decide(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[[expect]]\ncase = "fake/*fault=raise*"\nstatus = "failed"\nreason = "issue 7"\n')
    words = ["fake/work", "--expect", "known.toml", "-a"]
    both = steelyard("run", *words, "fault=none,raise", cwd=tmp_path)
    assert "expected: fake/work" in both.stdout and "failed (issue 7)" in both.stdout and "new" not in both.stdout
    worse = run_json(*words, "fault=none,raise,segfault", cwd=tmp_path, check=3)
    assert [item["status"] for item in worse["expectations"]["new_failures"]] == ["crashed"]
    (tmp_path / "known.toml").write_text('[[expect]]\nworkload = "fake/work"\nstatus = "oom"\n')
    better = steelyard("run", *words, "fault=none", cwd=tmp_path)
    assert "new pass: fake/work" in better.stdout and "ok, expected oom" in better.stdout


def test_fail_fast_goes_on_after_a_failure_that_was_expected(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[[expect]]\ncase = "*fault=raise*"\nstatus = "failed"\n')
    words = ["fake/work", "-a", "fault=raise,wrong,none", "--fail-fast", "--expect", "known.toml"]
    found = run_json(*words, cwd=tmp_path, check=3)
    assert [record["status"] for record in found["records"]] == ["failed", "wrong"]
