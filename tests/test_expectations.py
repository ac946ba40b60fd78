"""A list of expected failures: read whole, and whatever differs from it is news."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.analyze.foreseen import Foreseen, covered, hold
from steelyard.codec.expectations import Expectation, load_expectations
from steelyard.codec.policy import Excuse
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Rule
from steelyard.model.record import Record, Status

LIST = """
[[expect]]
workload = "op/conv*"
variant = "compile"
axes = {dtype = "float16"}
status = "wrong"
reason = "issue 7"

[[expect]]
case = "op/scan[n=2]@*"
status = "failed"
"""


def load(folder: Path, text: str) -> tuple[Expectation, ...]:
    (folder / "known.toml").write_text(text, encoding="utf-8")
    return load_expectations(folder / "known.toml")


def record(id: str, status: Status) -> Record:
    return Record(id, Case.parse(id).plain(), status)


def names(found: Foreseen) -> tuple[list[str], list[str], list[str]]:
    failures, passes, expected = (
        [remark.case.split("@")[0] for remark in part] for part in (found.new_failures, found.new_passes, found.expected)
    )
    return failures, passes, expected


def test_a_list_is_read_with_the_keys_of_a_rule(tmp_path: Path) -> None:
    conv, scan = load(tmp_path, LIST)
    assert (conv.rule, conv.excuse) == (
        Rule({"workload": "op/conv*", "variant": "compile", "axes.dtype": "fp16"}, "issue 7"),
        Excuse("", "wrong", "issue 7"),
    )
    assert (scan.rule.match, scan.excuse) == ({}, Excuse("op/scan[n=2]@*", "failed"))
    assert conv.fits(Case.parse("op/conv2d[dtype=fp16]@torch/compile:eval"))
    assert not conv.fits(Case.parse("op/conv2d[dtype=fp32]@torch/compile:eval"))
    assert scan.fits(Case.parse("op/scan[n=2]@torch/eager:eval")) and not scan.fits(Case.parse("op/scan[n=3]@torch/eager:eval"))


def test_the_list_of_a_gate_serves_as_well(tmp_path: Path) -> None:
    found = load(tmp_path, 'missing = "warn"\n[expected]\n"op/a*" = "oom"\n"op/b*" = "slower"\n')
    assert [item.excuse for item in found] == [Excuse("op/a*", "oom")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expect: missing"),
        ('[[expect]]\nworkload = "op/a"', "expect[0]: status is missing: one of wrong"),
        ('[[expect]]\nworkload = "op/a"\nstatus = "ok"', "known.toml:3  expect[0].status: expected one of"),
        ('[[expect]]\nstatus = "oom"', "expect[0]: has no key of a case"),
        ('[[expect]]\nwrkload = "op/a"\nstatus = "oom"', "did you mean workload"),
        ('[[expect]]\ncase = "a\\u001bb"\nstatus = "oom"', "text without control characters"),
        ("expect = 3", "expected a table, not 3"),
        ("[[expect", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_by_its_place(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert told in str(caught.value) and "known.toml" in str(caught.value)


def test_new_failures_new_passes_and_what_was_expected(tmp_path: Path) -> None:
    known = load(
        tmp_path, '[[expect]]\nworkload = "op/a*"\nstatus = "oom"\nreason = "small GPU"\n[[expect]]\nworkload = "op/z"\nstatus = "failed"'
    )
    outcomes: dict[str, Status] = {"a1": "oom", "a2": "crashed", "a3": "ok", "a4": "unsupported", "b1": "ok", "b2": "wrong"}
    records = [record(f"op/{name}@torch/eager:eval", status) for name, status in outcomes.items()]
    found = hold(records, known)
    assert names(found) == (["op/a2", "op/b2"], ["op/a3"], ["op/a1"])
    assert str(found.new_failures[0]) == "op/a2@torch/eager:eval crashed, expected oom (small GPU)"
    assert [line.endswith("expect[1]: workload=op/z") for line in found.unused] == [True]
    assert hold(records, known, [Case("op/z")]).unused == ()
    assert names(hold(records, ())) == (["op/a1", "op/a2", "op/b2"], [], [])
    assert [covered(item, known) for item in records] == [True, False, False, False, False, False]


def test_failed_means_any_way_of_failing(tmp_path: Path) -> None:
    known = load(tmp_path, LIST)
    statuses: tuple[Status, ...] = ("failed", "crashed", "timeout", "oom", "wrong")
    assert all(covered(record("op/scan[n=2]@torch/eager:eval", status), known) for status in statuses)
    assert not covered(record("op/scan[n=2]@torch/eager:eval", "unsupported"), known)
