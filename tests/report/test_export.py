"""Tables and summaries for other programs: complete, with units, within limits, and harmless whatever the names are."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide, compare
from steelyard.errors import UsageError
from steelyard.report.export import (
    arrow,
    cases_csv,
    cases_table,
    document_json,
    figures_csv,
    figures_table,
    markdown_report,
    parquet,
    require_arrow,
    table,
)
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
    assert (first["against"], first["time verdict"]) == (case(0), "slower")
    assert 1.9 < float(first["time ratio low"]) < float(first["time ratio"]) < float(first["time ratio high"]) < 2.1


def test_the_long_table_has_a_row_per_figure(two: dict[str, Any]) -> None:
    found = rows(figures_csv(two))
    assert len(found) == 9 and {(row["metric"], row["unit"], row["better"]) for row in found} == {("time", "s", "lower")}


def test_files_of_columns_hold_the_same_table_with_types(two: dict[str, Any], tmp_path: Path) -> None:
    """DuckDB reads the Parquet file and pandas the Arrow file: neither knows who wrote it."""
    import duckdb
    import pandas

    (tmp_path / "cases.parquet").write_bytes(parquet(cases_table(two)))
    (tmp_path / "figures.arrow").write_bytes(arrow(figures_table(two)))
    heads, wanted = cases_table(two)
    found = duckdb.sql(f"select * from '{tmp_path / 'cases.parquet'}'")
    types = dict(zip(found.columns, map(str, found.types), strict=True))
    assert list(found.columns) == list(heads)
    assert [types[name] for name in ("case", "number", "time (s)", "time n", "param n", "time ratio", "time verdict")] == [
        "VARCHAR", "BIGINT", "DOUBLE", "BIGINT", "BIGINT", "DOUBLE", "VARCHAR",
    ]  # fmt: skip
    times = heads.index("time (s)")
    assert [row[times] for row in found.fetchall()] == [row[times] for row in wanted]
    figures = pandas.read_feather(tmp_path / "figures.arrow")
    assert list(figures["value"]) == [row[heads_of(two).index("value")] for row in figures_table(two)[1]]
    assert set(figures["metric"]) == {"time"}


def heads_of(document: dict[str, Any]) -> list[str]:
    return list(figures_table(document)[0])


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        ([1, None, 2], "int64", [1, None, 2]),
        ([1, 0.5, None], "double", [1.0, 0.5, None]),
        ([2**70, 1], "double", [float(2**70), 1.0]),
        ([True, None], "bool", [True, None]),
        ([True, 1], "string", ["true", "1"]),
        ([[1, 2], "a\x1b[31m"], "string", ["[1, 2]", "a"]),
        ([None, None], "string", [None, None]),
    ],
)
def test_a_column_has_the_one_type_that_all_its_cells_fit(cells: list[Any], kind: str, values: list[Any]) -> None:
    import pyarrow.parquet

    read = pyarrow.parquet.read_table(io.BytesIO(parquet((["param x"], [[cell] for cell in cells]))))
    assert (str(read.schema.field(0).type), read[0].to_pylist()) == (kind, values)


def test_columns_of_hostile_names_are_written(tmp_path: Path) -> None:
    import pyarrow.parquet

    read = pyarrow.parquet.read_table(io.BytesIO(parquet(cases_table(document([hostile.run()])))))
    assert read.num_rows > 0


def test_without_the_library_it_is_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="cannot write Parquet or Arrow") as caught:
        require_arrow()
    assert "steelyard[arrow]" in caught.value.do


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
    assert "Unpaired: ratios of measurements made at different times" in text and "geometric mean of the 1 that all have" in text
    assert "†" not in text, "where all are unpaired one sentence is enough"


def test_what_neither_side_can_do_is_not_comparable_in_a_summary() -> None:
    sides = [run(name, [record(case(0), 1e-3), record(case(1), 1e-3, status="unsupported")], place) for place, name in enumerate("bh")]
    text = markdown_report(document([sides[1]], base=RunsSide("b", (sides[0],))))
    assert "**– Not comparable (1)**" in text and "Failed" not in text
