"""Other tools' files become runs; what is wrong with a file is said, and nothing in it is believed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide, compare
from steelyard.analyze.foreign import read_file, readers
from steelyard.errors import StoreError
from steelyard.model.record import Record
from tests.analyze.foreign_samples import (
    TRITONBENCH,
    aggregate,
    check_read_or_refused,
    google_file,
    nvbench_file,
    nvbench_state,
    pyperf_file,
    pytest_file,
    repetition,
    samples_beside,
    summary,
    write,
)


def records(path: Path) -> dict[str, Record]:
    (run,) = read_file(path)
    return {record.id.partition(":")[2]: record for record in run.records}


def time(path: Path, name: str) -> tuple[float, float | None, float | None, int | None]:
    figure = records(path)[name].metrics["time"]
    return figure.value, figure.low, figure.high, figure.n


def test_pyperf_processes_are_runs(tmp_path: Path) -> None:
    path = pyperf_file(tmp_path / "p.json", {"a": [[1e-3, 2e-3], [3e-3, 5e-3]], "b": [[7e-3, 7e-3]]})
    first, second = read_file(path)
    assert [record.id for record in first.records] == ["foreign/pyperf:a", "foreign/pyperf:b"]
    assert [record.id for record in second.records] == ["foreign/pyperf:a"]
    assert [run.records[0].metrics["time"].value for run in (first, second)] == [pytest.approx(1.5e-3), pytest.approx(4e-3)]
    assert first.header.machine_key and first.header.machine_key == second.header.machine_key
    assert first.header.machine["packages"]["python"] == "3.11.7"


def test_pyperf_replicates_are_the_noise_of_a_comparison(tmp_path: Path) -> None:
    calm = [[1e-3 * factor] * 3 for factor in (1.0, 1.01, 0.99, 1.005, 0.995)]
    base = pyperf_file(tmp_path / "b.json", {"a": calm})
    head = pyperf_file(tmp_path / "h.json", {"a": [[2 * value for value in values] for values in calm]})
    found = compare(RunsSide("b", read_file(base)), RunsSide("h", read_file(head)))
    assert found.deltas[0].verdict == "slower" and found.deltas[0].ratio == pytest.approx(2)
    assert any("from 5 base and 5 head runs, and 10 % assumed between the sides" in note for note in found.notes)


def test_pyperf_memory_is_no_time(tmp_path: Path) -> None:
    path = pyperf_file(tmp_path / "m.json", {"a": [[1024, 2048]]}, unit="byte")
    figure = records(path)["a"].metrics["peak_memory"]
    assert (figure.value, figure.unit, figure.better) == (1536, "B", "lower")


def test_pytest_benchmark_uses_rounds_where_it_kept_them(tmp_path: Path) -> None:
    raw = pytest_file(tmp_path / "raw.json", data=[1e-3, 2e-3, 3e-3, 4e-3, 9e-3])
    assert time(raw, "tests/test_a.py::test_a") == (3e-3, None, None, 5)
    centre, low, high, n = time(pytest_file(tmp_path / "sum.json"), "tests/test_a.py::test_a")
    assert (centre, n) == (2e-3, 100) and low == pytest.approx(2e-3 - 1.57 * 2e-5) and high == pytest.approx(2e-3 + 1.57 * 2e-5)
    (run,) = read_file(raw)
    assert run.header.machine["git"]["commit"].startswith("abc123") and run.header.created.startswith("2026-01-02")


def test_hyperfine_has_the_median_of_its_runs_and_what_failed(tmp_path: Path) -> None:
    kept: dict[str, Any] = {
        "command": "sleep 0.1",
        "mean": 0.11,
        "stddev": 0.01,
        "median": 0.1,
        "min": 0.1,
        "max": 0.3,
        "times": [0.1, 0.2, 0.3],
        "exit_codes": [0] * 3,
    }
    bare = {"command": "bare", "mean": 2.0, "stddev": None, "median": 2.0, "min": 2.0, "max": 2.0}
    bad = {**kept, "command": "false", "exit_codes": [0, 1, None]}
    path = tmp_path / "h.json"
    path.write_text(json.dumps({"results": [kept, bare, bad]}))
    assert time(path, "sleep 0.1") == (0.2, None, None, 3)
    assert time(path, "bare")[0] == 2.0
    found = records(path)
    assert (found["false"].status, found["false"].reason) == ("failed", "2 of 3 runs ended with an exit code other than 0")


def test_google_benchmark_repetitions_units_and_errors(tmp_path: Path) -> None:
    items = [repetition("copy/64", index, value, "us", bytes_per_second=5e8) for index, value in enumerate((2.0, 4.0, 3.0))]
    items += [aggregate("copy/64", "mean", 99.0), repetition("bad", 0, 0.0, error_occurred=True, error_message="no \x1b[31mdevice")]
    items += [aggregate("kept", "median", 1.5, "ms"), aggregate("kept", "stddev", 0.1, "ms"), repetition("odd", 0, 5.0, "weeks")]
    path = google_file(tmp_path / "g.json", items)
    assert time(path, "copy/64") == (pytest.approx(3e-6), None, None, 3)
    found = records(path)
    assert found["copy/64"].metrics["bandwidth"].better == "higher"
    assert (found["bad"].status, found["bad"].reason) == ("failed", "no _[31mdevice")
    assert found["kept"].metrics["time"].value == pytest.approx(1.5e-3) and found["kept"].metrics["time"].high is not None
    assert found["odd"].status == "failed"


def test_nvbench_summaries_and_skipped_states(tmp_path: Path) -> None:
    skipped = {"name": "Device=0 n=2", "is_skipped": True, "skip_reason": "too large", "summaries": None}
    old = {"description": "n=3", "summaries": {"nv/cold/time/gpu/mean": {"values": [{"name": "value", "type": "float64", "value": 2e-6}]}}}
    path = nvbench_file(tmp_path / "n.json", [nvbench_state("Device=0 n=1", 1e-5), skipped, old])
    centre, low, high, n = time(path, "copy Device=0 n=1")
    assert (centre, n) == (1e-5, 100) and low == pytest.approx(1e-5 * (1 - 0.00196)) and high == pytest.approx(1e-5 * (1 + 0.00196))
    found = records(path)
    assert (found["copy Device=0 n=2"].status, found["copy Device=0 n=2"].reason) == ("skipped", "too large")
    assert found["copy n=3"].metrics["time"].value == 2e-6


def test_nvbench_samples_lie_beside_the_file_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    beside = samples_beside(path, [1e-6, 3e-6, 2e-6])
    nvbench_file(path, [nvbench_state("s", 9e-6, beside)])
    assert time(path, "copy s")[0] == pytest.approx(2e-6, rel=1e-6)
    (tmp_path / "secret.bin").write_bytes(b"\0\0\x80\x3f")
    for name in ("../secret.bin", str(tmp_path / "secret.bin"), "secret.bin", "n.json-bin/../secret.bin"):
        nvbench_file(path, [nvbench_state("s", 9e-6, summary("nv/json/bin:nv/cold/sample_times", filename=name, size=1))])
        assert time(path, "copy s")[0] == 9e-6
    (tmp_path / "n.json-bin" / "1.bin").symlink_to(tmp_path / "secret.bin")
    nvbench_file(path, [nvbench_state("s", 9e-6, summary("nv/json/bin:nv/cold/sample_times", filename="n.json-bin/1.bin", size=1))])
    assert time(path, "copy s")[0] == 9e-6


@pytest.mark.parametrize("wrapped", [False, True])
def test_tritonbench_metrics(tmp_path: Path, wrapped: bool) -> None:
    path = write(tmp_path / "t.json", {"name": "tritonbench", "environ": {}, "metrics": TRITONBENCH} if wrapped else TRITONBENCH)
    found = records(path)
    assert {name: record.status for name, record in found.items()} == {
        "softmax_fwd 256 naive_softmax": "ok", "softmax_fwd 256 triton_softmax": "ok", "softmax_fwd (4, 8)-x triton_softmax": "ok",
        "softmax_fwd 512 broken": "failed", "softmax_fwd 512 wrong": "wrong", "gemm": "failed",
    }  # fmt: skip
    assert found["softmax_fwd 256 naive_softmax"].metrics["time"].value == pytest.approx(24.1e-6)
    assert found["softmax_fwd 256 naive_softmax"].metrics["bandwidth"].value == pytest.approx(8.7e11)
    assert found["softmax_fwd (4, 8)-x triton_softmax"].metrics["time"].value == pytest.approx(41.2e-6)
    assert found["softmax_fwd 512 broken"].reason == "CUDA out of memory"


def test_tritonbench_rows(tmp_path: Path) -> None:
    rows = [{"x_val": 256, "eager-latency": [0.02, 0.03, 0.04], "compile-latency": 0.01}, {"x_val": "average", "eager-latency": 0.02}]
    path = write(tmp_path / "t.json", rows)
    assert time(path, "256 eager")[0] == pytest.approx(30e-6)
    assert set(records(path)) == {"256 eager", "256 compile"}


def test_names_are_clean_short_and_distinct(tmp_path: Path) -> None:
    names = ["a\x1b[2J", "a\x1b[2J", "a\u202eb", "x" * 5000, "x" * 4999, "plain", "plain"]
    path = google_file(tmp_path / "g.json", [{**repetition(name, 0, 1.0), "run_name": f"{name}"} for name in names[:6]])
    (run,) = read_file(path)
    ids = [record.id for record in run.records]
    assert len(set(ids)) == len(ids) == 5
    assert all(id.isprintable() and len(id) < 220 and id.startswith("foreign/google-benchmark:") for id in ids)
    assert ids[-1] == "foreign/google-benchmark:plain"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "not that of pyperf"),
        (b"[1, 2]", "not that of pyperf"),
        (b'{"version": "1.0", "benchmarks": [{"runs": 3}]}', ""),
        (b'{"benchmarks": [{"states": []}]}', "no results"),
    ],
)
def test_what_is_no_result_is_refused_with_the_reason(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    if not words:
        assert all(record.status == "failed" for run in read_file(path) for record in run.records)
        return
    with pytest.raises(StoreError, match=words):
        read_file(path)


def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(StoreError):
            read_file(path)


def test_nan_and_infinity_are_read_as_nothing(tmp_path: Path) -> None:
    text = json.dumps({"context": {}, "benchmarks": [repetition("a", 0, math.nan), repetition("a", 1, 5.0), repetition("b", 0, math.inf)]})
    (tmp_path / "x.json").write_text(text)
    assert time(tmp_path / "x.json", "a") == (pytest.approx(5e-9), None, None, 1)
    assert records(tmp_path / "x.json")["b"].status == "failed"


junk: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["1e999", "-1", "nan", 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
shapes = {
    "pyperf": ("version", "metadata", "runs", "values", "name", "unit", "warmups"),
    "pytest-benchmark": ("machine_info", "commit_info", "stats", "data", "median", "iqr", "rounds", "cpu", "fullname"),
    "google-benchmark": ("context", "real_time", "cpu_time", "time_unit", "run_name", "run_type", "error_occurred", "aggregate_name"),
    "nvbench": ("states", "summaries", "devices", "meta", "data", "tag", "value", "filename", "size", "is_skipped"),
    "hyperfine": ("results", "command", "mean", "median", "min", "max", "stddev", "times", "exit_codes", "parameters"),
    "tritonbench": (*tuple(TRITONBENCH)[:3], "metrics", "environ"),
    "param": ("run_options", "sys_info", "op_name", "id", "metric", "config", "forward", "measure.time", "steelyard"),
    "ptxla": ("model", "experiment", "metrics", "model_name", "total_time", "xla", "accelerator_model", "timestamp", "error"),
    "v3": ("metric", "benchmark_values", "extra_info", "benchmark", "model", "runners", "dependencies", "timestamp", "inputs"),
    "hf": ("model_name", "benchmark_scenarios", "scenario_name", "metadata", "measurements", "latency", "e2e_latency", "config", "unit"),
    "openxla": ("definition", "benchmark_name", "metrics", "framework_level", "compiler_level", "median_latency_ms", "error", "trigger"),
    "torchao": ("quantization", "sparsity", "m", "k", "n", "benchmark", "metric", "model", "extra_info", "benchmark_values", "speedup"),
}


@pytest.mark.parametrize("tool", list(dict(readers())))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_of_any_shape_is_read_or_refused(tmp_path: Path, tool: str, data: st.DataObject) -> None:
    keys = st.sampled_from([*shapes[tool], "benchmarks", "name"])
    value = st.deferred(
        lambda: junk | st.dictionaries(keys, junk, max_size=5) | st.lists(st.dictionaries(keys, junk, max_size=5), max_size=3)
    )
    content = data.draw(st.dictionaries(keys, value, max_size=6))
    content["benchmarks"] = data.draw(st.lists(st.dictionaries(keys, value, max_size=6), max_size=3) | junk)
    (tmp_path / "x.json").write_text(json.dumps(content))
    check_read_or_refused(tmp_path / "x.json")
