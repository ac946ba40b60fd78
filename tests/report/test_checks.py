"""What was not verified, or agrees in every bit with the plain task, is seen wherever results are shown."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.model.record import STATUSES, Record, Verification
from steelyard.report.cells import check_mark, check_words
from steelyard.report.detail import record_detail
from steelyard.report.export import cases_csv, markdown_report
from steelyard.report.text import run_table
from steelyard.report.web.document import document
from tests.analyze import made as analysed
from tests.report.made import HEADER, figures, record, run_of

NONE = Verification("none", "", "no reference: the workload has none", checks=["inputs unchanged"])
PASSED = Verification("passed", "torch fp64", "", 0.0, 0.0, 1e-4, 1e-5, checks=["first answer", "answer after timing"])
SAME = Verification("passed", "torch eager", "", 0.0, 0.0, 1e-4, 1e-5, identical=True, checks=["first answer"])


def made(variant: str = "eager", verification: Verification | None = PASSED, **more: Any) -> Record:
    return record(f"op/a[n=8]@torch/{variant}:eval", figures(1e-5, 1e-8), verification=verification, **more)


ROWS = [made(), made("compile", SAME), made("plain", NONE), made("other", NONE), made("off", None, requested={"verify": False})]


def test_a_table_marks_them_and_says_what_the_marks_mean() -> None:
    lines = run_table(HEADER, ROWS, []).plain.splitlines()
    assert [next((mark for mark in "○=" if f" {mark} " in line), "") for line in lines[3:8]] == ["", "=", "○", "○", "○"]
    assert "○ 2 not verified: no reference: the workload has none" in lines
    assert "○ 1 not verified: verification was switched off" in lines
    assert "= 1 bit-identical to torch eager, which may mean that it is the same code" in lines
    assert lines[-1].startswith("5 ok")


def test_where_all_is_verified_there_is_no_mark() -> None:
    text = run_table(HEADER, ROWS[:1], []).plain
    assert not set("○=") & set(text.replace("n=8", ""))


def test_many_reasons_are_counted() -> None:
    rows = [made(f"v{number}", replace(NONE, message=f"reason {number}")) for number in range(9)]
    assert "○ 6 not verified for other reasons" in run_table(HEADER, rows, []).plain


def test_the_page_of_a_record_says_what_was_checked() -> None:
    def page(item: Record) -> str:
        return " ".join(record_detail(item, run_of(ROWS)).plain.split())

    assert "checked first answer; answer after timing" in page(ROWS[0])
    assert "bit-identical: nothing was lost, or both are the same code" in page(ROWS[1])
    assert "not verified: no reference: the workload has none checked inputs unchanged" in page(ROWS[2])


def test_tables_summaries_and_pages_have_it_in_words() -> None:
    records = [
        replace(analysed.record(analysed.case(number), 1e-3), verification=found) for number, found in enumerate([PASSED, SAME, NONE])
    ]
    whole = document([analysed.run("one", records)])
    words = ["", "bit-identical to torch eager", "not verified: no reference: the workload has none"]
    assert [case["check"] for case in whole["cases"]] == words
    rows = list(csv.DictReader(io.StringIO(cases_csv(whole))))
    assert [(row["check"], row["verification"]) for row in rows] == list(zip(words, ["passed", "passed", "none"], strict=True))
    text = markdown_report(whole)
    assert "3 ok, 1 not verified" in text
    assert all(f"| {word} |" in text for word in words if word)


@given(st.sampled_from(STATUSES), st.sampled_from([None, NONE, PASSED, SAME, replace(PASSED, identical=True)]))
def test_only_what_is_ok_is_marked(status: Any, verification: Verification | None) -> None:
    item = replace(made(verification=verification), status=status)
    assert bool(check_mark(item)) == bool(check_words(item)) == (status == "ok" and verification in (NONE, SAME))


@pytest.mark.parametrize("requested", [{}, {"verify": True}])
def test_what_has_no_answer_is_not_marked(requested: dict[str, Any]) -> None:
    """A program, or another tool's result, was never to be verified."""
    assert check_mark(made(verification=None, requested=requested)) == ""
