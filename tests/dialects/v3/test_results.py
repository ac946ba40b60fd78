"""Records of other writers as runs: which case, which figure, in which unit and direction; nothing in a file is trusted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.analyze.foreign import metric_names, named, read_any, read_file
from steelyard.errors import StoreError
from steelyard.model.case import Case
from steelyard.model.record import Record
from tests.analyze.foreign_samples import check_read_or_refused
from tests.dialects.v3.made import METADATA, row, write


def record(path: Path) -> Record:
    (run,) = read_file(path)
    (found,) = run.records
    return found


@pytest.mark.parametrize(
    ("metric", "extra", "name", "unit", "better", "value"),
    [
        ("latency", {"unit": "ms"}, "time", "s", "lower", 0.002),
        ("Quantized Fwd Time (ms)", {}, "time", "s", "lower", 0.002),
        ("mean_latency_ms", {}, "time", "s", "lower", 0.002),
        ("median_itl_ms", {}, "median_itl_ms", "s", "lower", 0.002),
        ("time", {}, "time_in_unknown_unit", "1", "lower", 2.0),
        ("execution_time", {}, "execution_time", "1", "lower", 2.0),
        ("Bfloat16 Fwd Time (ms)", {}, "bfloat16_fwd_time", "s", "lower", 0.002),
        ("Allocated Memory (MB)", {}, "allocated_memory", "B", "lower", 2e6),
        ("speedup(wrt bf16)", {}, "speedup_wrt_bf16", "1", "higher", 2.0),
        ("Fwd Speedup (x)", {}, "fwd_speedup", "1", "higher", 2.0),
        ("tflops", {"unit": "TFLOPs"}, "tflops", "FLOP/s", "higher", 2e12),
        ("memory_bandwidth", {"unit": "GB/s"}, "memory_bandwidth", "B/s", "higher", 2e9),
        ("accuracy", {}, "accuracy", "1", "higher", 2.0),
        ("tokens_per_second", {}, "tokens_per_second", "1", "higher", 2.0),
        ("frobnication", {}, "frobnication", "1", "none", 2.0),
        ("frobnication", {"unit": "ms"}, "frobnication", "s", "lower", 0.002),
        ("frobnication", {"unit": "furlongs"}, "frobnication", "furlongs", "none", 2.0),
        ("frobnication", {"direction": "higher"}, "frobnication", "1", "higher", 2.0),
    ],
)
def test_names_and_units_say_what_a_metric_is(
    metric: str, extra: dict[str, str], name: str, unit: str, better: str, value: float, tmp_path: Path
) -> None:
    found = record(write(tmp_path / "r.json", [row(metric, [2.0], extra=extra)]))
    ((known, figure),) = found.metrics.items()
    assert (known, figure.unit, figure.better, figure.value) == (name, unit, better, pytest.approx(value))
    assert figure.low is None and figure.n == 1


def test_several_values_have_a_median_and_an_interval(tmp_path: Path) -> None:
    figure = record(write(tmp_path / "r.json", [row(values=[1.0, 9.0, 2.0, 3.0, 4.0, 5.0, 6.0], extra={"unit": "s"})])).metrics["time"]
    assert (figure.value, figure.n) == (4.0, 7) and figure.low is not None and figure.low < 4 < (figure.high or 0)


def test_metrics_of_one_case_are_one_record_that_is_a_case(tmp_path: Path) -> None:
    rows = [row("latency", extra={"unit": "ms"}), row("speedup"), row("latency", dtype="bfloat16", extra={"unit": "ms"})]
    rows[0]["benchmark"]["extra_info"] |= {"use_compile": "true", "run_id": "77", "build_url": "x"}
    rows[1]["benchmark"]["extra_info"] |= {"use_compile": "true", "run_id": "78"}
    (run,) = read_file(write(tmp_path / "r.json", rows))
    assert [sorted(record.metrics) for record in run.records] == [["speedup", "time"], ["time"]]
    assert run.records[0].id == "foreign/v3/micro-benchmark_api/1024-1024-1024[recipe=int8wo,use_compile=true]@v3/eager:eval"
    assert run.records[1].id == "foreign/v3/micro-benchmark_api/1024-1024-1024[dtype=bf16]@v3/eager:eval"
    for found in run.records:
        assert Case.parse(found.id).plain() == found.case


@pytest.mark.parametrize(
    ("given_row", "status", "reason"),
    [
        (row(values=[]), "failed", "it has no value"),
        (row(values=[None]), "failed", "it has no value"),
        (row(values=[0.0]), "failed", "its latency is 0, which some writers use for a failed case"),
        (row("speedup", [0.0]), "failed", "its speedup is 0, which some writers use for a failed case"),
        (row(values=[], extra={"status": "oom", "reason": "17 GB"}), "oom", "17 GB"),
        (row(extra={"is_failure": "true"}), "failed", ""),
        (row(extra={"status": "fail_accuracy"}), "failed", "fail_accuracy"),
        (row(extra={"status": "pass"}), "ok", ""),
        (row(extra={"status": "whatever"}), "ok", ""),
        (row("graph_breaks", [0.0]), "ok", ""),
    ],
)
def test_what_has_no_value_is_no_zero(given_row: dict[str, Any], status: str, reason: str, tmp_path: Path) -> None:
    found = record(write(tmp_path / "r.json", given_row))
    assert (found.status, found.reason) == (status, reason)
    assert bool(found.metrics) is (status == "ok")


def test_jobs_and_machines_are_runs_oldest_first(tmp_path: Path) -> None:
    late = {**METADATA, "timestamp": METADATA["timestamp"] + 86400, "workflow_id": 9, "head_sha": "beef"}
    gpu = {**METADATA, "runners": [{"name": "cuda", "type": "H100"}]}
    runs = read_file(write(tmp_path / "r.json", [row(**late), row(**METADATA), row("speedup", **METADATA), row(**gpu)]))
    assert [len(run.records) for run in runs] == [1, 1, 1] and [run.id for run in runs] == ["r.json#1", "r.json#2", "r.json#3"]
    assert runs[-1].header.machine["git"] == {"commit": "beef", "branch": "refs/heads/main", "dirty": False}
    assert runs[0].header.created == "2025-07-10T00:03:45Z"
    assert len({run.header.machine_key for run in runs}) == 2


def test_records_without_a_job_are_told_apart_by_their_time(tmp_path: Path) -> None:
    runs = read_file(write(tmp_path / "r.json", [row(timestamp=200), row(timestamp=100), row("speedup", timestamp=100)]))
    assert [(run.header.created[-9:], len(run.records[0].metrics)) for run in runs] == [("00:01:40Z", 2), ("00:03:20Z", 1)]


def test_the_same_case_twice_in_a_job_is_told(tmp_path: Path) -> None:
    (run,) = read_file(write(tmp_path / "r.json", [row(values=[1.0]), row(values=[2.0]), row(values=[3.0])]))
    assert run.records[0].metrics["time"].value == 0.003
    assert run.warnings == ("r.json[1] and 1 more: the same case and metric again in one job; the last one counts",)


def test_bad_lines_are_warnings_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(f"{json.dumps(row())}\n{{oops\n", encoding="utf-8")
    (run,) = read_file(path)
    assert len(run.records) == 1 and run.warnings[0].startswith("r.json:2 was skipped: not JSON")


def test_a_folder_is_read_whole_and_what_is_in_it_beside_is_told(tmp_path: Path) -> None:
    late = {**METADATA, "timestamp": METADATA["timestamp"] + 86400, "workflow_id": 9}
    write(tmp_path / "a.json", [row(**late)])
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(row(**METADATA)).encode()))
    write(tmp_path / "config.json", {"not": "results"})
    runs = read_any(tmp_path)
    assert [run.id for run in runs] == ["b.json.gz", "a.json"]
    assert "config.json was skipped: not a file of results" in runs[-1].warnings[0]
    assert named(str(tmp_path)) == runs and named(f"{tmp_path}#1") == runs[:1]
    (tmp_path / "empty").mkdir()
    assert named(str(tmp_path / "empty")) is None
    write(tmp_path / "empty" / "config.json", {"not": "results"})
    with pytest.raises(StoreError, match="no results"):
        named(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("name", "better"),
    [("compile time", "lower"), ("p99 latency(ms)", "lower"), ("ttft_ms", "lower"), ("peak_mem", "lower"), ("qps", "higher"),
     ("latency speedup", "higher"), ("timeline", "none"), ("", "none")],
)  # fmt: skip
def test_direction_goes_by_whole_words(name: str, better: str) -> None:
    assert metric_names.direction(name) == better


NAMES = [*row(), *METADATA]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "extra_info", "case"]), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*NAMES, "runners", "inputs", "dependencies"]), JUNK), JUNK, JUNK)
def test_whatever_a_record_holds_is_read_or_refused(tmp_path: Path, parts: dict[str, Any], extra: Any, values: Any) -> None:
    base = row()
    base["metric"] |= {"extra_info": extra, "benchmark_values": values}
    (tmp_path / "r.json").write_text(json.dumps([{**base, **parts}, base]))
    check_read_or_refused(tmp_path / "r.json")
