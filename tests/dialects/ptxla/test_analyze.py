"""The analyzer's table and database, on rows whose figures are worked out by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.dialects.ptxla.analyze import COLUMNS, Order, analyze, extend
from steelyard.dialects.ptxla.rows import RowTally
from steelyard.errors import UsageError
from tests.dialects.ptxla.stored import FIRST, INDUCTOR, OPENXLA, V100, stored, write

TIMES = [15.0, 2.0, 4.0, 3.0]
XLA = {"total_time": TIMES, "per_iter_time": TIMES, "trace_per_iter_time": [9.0, 1.0], "single_value": [7]}


def run(folder: Path, tally: RowTally | None = None, **words: Any) -> list[dict[str, str]]:
    order = Order(folder, **{"database": folder / "base" / "db.csv", "timestamp": 5.0, **words})
    with analyze(order, tally or RowTally()).file.open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_of_each_metric(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [stored("m", OPENXLA, XLA, batch=16)])
    (row,) = run(tmp_path)
    assert list(row)[: len(COLUMNS)] == list(COLUMNS)
    assert list(row)[len(COLUMNS) :] == [
        "min_total_time", "max_total_time", "mean_total_time", "std_total_time", "min_per_iter_time", "max_per_iter_time",
        "mean_per_iter_time", "std_per_iter_time", "min_trace_per_iter_time", "median_trace_per_iter_time", "max_trace_per_iter_time",
        "mean_trace_per_iter_time", "std_trace_per_iter_time", "min_single_value", "median_single_value", "max_single_value",
    ]  # fmt: skip
    assert row["median_total_time"] == "3.5" and row["min_total_time"] == "2.0" and row["max_total_time"] == "15.0"
    assert float(row["mean_total_time"]) == np.mean(TIMES[1:]) and float(row["std_total_time"]) == pytest.approx(np.std(TIMES[1:]))
    assert row["xla_compile_time"] == row["dynamo_compile_time"] == "11.5"
    assert row["xla_median_trace_per_iter_time"] == "" and row["median_trace_per_iter_time"] == "5.0"
    assert (row["timestamp"], row["batch_size"], row["xla_flags"], row["keep_model_data_on_cuda"]) == (str(FIRST), "16", "", "False")


def test_what_has_no_meaning_is_minus_one(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [stored("m", INDUCTOR, XLA), stored("m", (None, None), TIMES, when=None)])
    first, second = run(tmp_path)
    assert {first[f"{word}_trace_per_iter_time"] for word in ("min", "median", "max", "mean", "std")} == {"-1"}
    assert (first["xla_compile_time"], first["dynamo_compile_time"]) == ("-1", "11.5")
    assert (second["xla_compile_time"], second["dynamo_compile_time"], second["timestamp"]) == ("-1", "-1", "5.0")


@pytest.mark.parametrize(("hide", "shown"), [(False, 'bad,\n"news"'), (True, "")])
def test_errors_have_a_message_and_no_figures(tmp_path: Path, hide: bool, shown: str) -> None:
    write(tmp_path / "r.jsonl", [stored("m", OPENXLA, {"error": 'bad,\n"news"'})])
    (row,) = run(tmp_path, hide_errors=hide)
    assert row["error_message"] == shown
    assert row["median_total_time"] == row["xla_compile_time"] == ""


def test_tables_nulls_and_text_among_the_metrics_are_no_crash(tmp_path: Path) -> None:
    counters = [{"stats": {"calls": 3, "breaks": 1}, "why": {"loop": 1}}, {"stats": {"calls": 5}}]
    odd = {"total_time": [3.0, None, 1.0], "dynamo_counters": counters, "note": "text", "gone": None, "big": [10**400, 1e999], "empty": []}
    write(tmp_path / "r.jsonl", [stored("m", OPENXLA, odd), stored("n", OPENXLA, {})])
    tally = RowTally()
    first, second = run(tmp_path, tally)
    assert (first["max_dynamo_counters.stats.calls"], first["min_dynamo_counters.stats.breaks"]) == ("5.0", "0.0")
    assert (first["median_total_time"], first["mean_total_time"]) == ("2.0", "1.0")
    assert second["xla_compile_time"] == "" and "nan" not in (tmp_path / "metric_report.csv").read_text().lower()
    assert set(tally.counts) == {
        "incomplete: a value of total_time is null or not a number; the other values count", "ignored: note is text",
        "incomplete: a value of gone is null or not a number; the other values count",
        "incomplete: a value of big is null or not a number; the other values count",
    }  # fmt: skip


def test_the_jsonl_form(tmp_path: Path) -> None:
    rows = [stored("m", OPENXLA, {"total_time": TIMES}, batch=None), stored("m", INDUCTOR, {"error": "boom"}, batch=2)]
    write(tmp_path / "r.jsonl", rows)
    order = Order(tmp_path, tmp_path / "db.csv", "jsonl", 5.0)
    first, second = (json.loads(line) for line in analyze(order, RowTally()).file.read_text().splitlines())
    assert first["dimensions"] == {
        "suite_name": "torchbench", "model_name": "m", "accelerator": "cuda", "accelerator_model": V100, "xla": "PJRT",
        "dynamo": "openxla", "torch_xla2": "None", "keep_model_data_on_cuda": "False", "test": "eval", "outputs_file": "None",
        "run_status": "success",
    }  # fmt: skip
    assert first["metrics"]["timestamp"] == int(FIRST) and first["metrics"]["batch_size"] == -1
    assert first["metrics"]["median_total_time"] == 3.5 and "error_message" not in first
    assert second["dimensions"]["run_status"] == "failure" and second["error_message"] == "boom"
    assert second["metrics"] == {
        "timestamp": int(FIRST), "batch_size": 2, "repeat": 4, "iterations_per_run": 1, "median_total_time": -1,
        "median_per_iter_time": -1, "xla_median_trace_per_iter_time": -1, "xla_compile_time": -1, "dynamo_compile_time": -1,
    }  # fmt: skip
    again = analyze(order, RowTally())
    assert (again.rows, again.files) == (2, 1), "its own report is no input"
    assert not (tmp_path / "db.csv").exists()


def test_the_database_grows_by_column_name(tmp_path: Path) -> None:
    base = tmp_path / "base" / "db.csv"
    write(tmp_path / "r.jsonl", [stored("m", OPENXLA, {"total_time": TIMES})])
    run(tmp_path)
    run(tmp_path)
    assert base.read_text().count("timestamp,") == 1 and len(base.read_text().splitlines()) == 3
    base.write_text(base.read_text().rstrip("\n"))
    write(tmp_path / "r.jsonl", [stored("n", OPENXLA, {"other": [4.0], "total_time": TIMES})])
    run(tmp_path)
    with base.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model_name"] for row in rows] == ["m", "m", "n"]
    assert [row["max_total_time"] for row in rows] == ["15.0"] * 3
    assert [row["min_other"] for row in rows] == ["", "", "4.0"]


def test_a_row_is_appended_to_a_database_that_ends_in_the_middle_of_a_line(tmp_path: Path) -> None:
    base = tmp_path / "db.csv"
    base.write_text("timestamp,model_name\n1,a")
    extend(base, [{"timestamp": 2, "model_name": "b"}])
    with base.open(newline="") as file:
        assert [row["model_name"] for row in csv.DictReader(file)] == ["a", "b"]


def test_what_is_no_database_is_left_alone(tmp_path: Path) -> None:
    base = tmp_path / "notes.csv"
    for content in (b"a,b\n1,2\n", b"\xff\xfe\x00"):
        base.write_bytes(content)
        with pytest.raises(UsageError, match="not a database"):
            extend(base, [{"timestamp": 1, "model_name": "m"}])
        assert base.read_bytes() == content


@pytest.mark.parametrize("make", [False, True])
def test_a_folder_without_results_is_said(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "output"
    if make:
        folder.mkdir()
    with pytest.raises(UsageError, match="no results" if make else "there is no folder"):
        run(folder)


def test_a_report_that_cannot_be_written_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [stored("m", OPENXLA, TIMES)])
    (tmp_path / "metric_report.csv").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metric_report.csv", "r.jsonl"]
