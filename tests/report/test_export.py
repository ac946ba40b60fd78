"""Tables and summaries for other programs: complete, with units, within limits, and harmless whatever the names are."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide, compare
from steelyard.report.export import cases_csv, document_json, figures_csv, markdown_report, table
from steelyard.report.summary import prose
from steelyard.report.web.document import document
from tests.analyze.made import case, record, run
from tests.report import hostile

LIMIT_OF_A_COMMENT = 65_536


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def two() -> dict[str, Any]:
    """Ten cases of two runs, one of them slower in the second and one gone."""
    base = run("base", [record(case(number), 1e-3) for number in range(10)])
    head = run("head", [record(case(number), 2e-3 if number == 0 else 1e-3) for number in range(9)], hour=5)
    sides = RunsSide("base", (base,)), RunsSide("head", (head,))
    return document([head], base=sides[0], comparison=compare(*sides))


def test_a_table_has_a_row_per_case_and_units_in_its_head(two: dict[str, Any]) -> None:
    found = rows(cases_csv(two))
    assert len(found) == 9
    first = next(row for row in found if row["case"] == case(0))
    assert float(first["time (s)"]) == 2e-3 and float(first["time low (s)"]) < 2e-3 < float(first["time high (s)"])
    assert first["time n"] == "30" and first["param n"] == "0" and first["run"] == "head" and first["status"] == "ok"
    assert first["measure again"].startswith("steelyard run ")


def test_the_long_table_has_a_row_per_figure(two: dict[str, Any]) -> None:
    found = rows(figures_csv(two))
    assert len(found) == 9 and {(row["metric"], row["unit"], row["better"]) for row in found} == {("time", "s", "lower")}


@pytest.mark.parametrize("make", [cases_csv, figures_csv])
def test_no_cell_is_a_formula_and_none_steers_a_terminal(make: Any) -> None:
    text = make(document([hostile.run()]))
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert any(cell.startswith("'=cmd") for cell in cells) and any("<script>" in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", text)


def test_numbers_stay_numbers_and_what_is_absent_is_empty() -> None:
    made = table(["a", "b"], [[-1.5e-9, None], [True, {"x": [1]}], ["-1", "'"]])
    assert list(csv.reader(io.StringIO(made))) == [["a", "b"], ["-1.5e-09", ""], ["true", '{"x": [1]}'], ["'-1", "'"]]


def test_json_is_the_whole_document(two: dict[str, Any]) -> None:
    text = document_json(two)
    assert json.loads(text) == two and text.isascii()


def test_a_summary_says_what_changed_by_how_much_and_how_it_was_measured(two: dict[str, Any]) -> None:
    text = markdown_report(two)
    assert text.startswith("## ") and "`head` against `base`" in text
    slower = next(line for line in text.splitlines() if line.startswith("|") and case(0) in line)
    assert "2.00x slower [" in slower and "→" in slower
    assert "Missing (1)" in text and f"`{case(9)}`" in text
    assert all(f"`{case(number)}`" in text for number in range(9))


@pytest.mark.parametrize("most", [2_000, 20_000, 60_000])
def test_a_summary_keeps_within_its_limit_and_counts_what_it_leaves_out(most: int) -> None:
    many = document([run("many", [record(case(number), 1e-3) for number in range(2000)])])
    text = markdown_report(many, most)
    assert len(text.encode()) <= most and len(text) <= LIMIT_OF_A_COMMENT
    shown = text.count("@torch/eager:eval` | ✓ ok")
    left = re.search(r"… and (\d+) more\.", text)
    assert left and shown and shown + int(left[1]) == 2000


def test_nothing_in_a_summary_acts() -> None:
    text = markdown_report(document([hostile.run()], title=hostile.WORDS[6]))
    outside = re.sub(r"(`{3,})sh\n.*?\n\1", "", text, flags=re.DOTALL)
    outside = re.sub(r"`[^`\n]*`", "", outside)
    outside = re.sub(r"\\.", "", outside)
    assert "<script" not in outside and "<img" not in outside and "](" not in outside
    assert not re.search(r"(^|\W)@\w|#\d|https?://|www\.", outside)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


@given(st.text(max_size=60))
def test_a_sentence_has_no_live_markup(text: str) -> None:
    made = re.sub(r"\\.", "", prose(text))
    assert not set(made) & set("<>`*_[]|~$\n\r") and "://" not in made


def test_a_summary_marks_the_ratios_of_what_was_measured_apart() -> None:
    variants = [record(id, seconds) for id, seconds in ((case(0), 1e-3), (case(0).replace("/eager", "/compile"), 5e-4))]
    text = markdown_report(document([run("k3f9", variants)]))
    assert "Unpaired: ratios of measurements made at different times" in text and "geometric mean, n = 1 that all have" in text
    assert "†" not in text, "where all are unpaired one sentence is enough"


def test_what_neither_side_can_do_is_not_comparable_in_a_summary() -> None:
    sides = [run(name, [record(case(0), 1e-3), record(case(1), 1e-3, status="unsupported")], place) for place, name in enumerate("bh")]
    text = markdown_report(document([sides[1]], base=RunsSide("b", (sides[0],))))
    assert "**– Not comparable (1)**" in text and "Failed" not in text
