"""OpenXLA's result files as runs: the original's summaries, our raw latencies, errors, both levels."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze.foreign import read_file
from steelyard.cli.main import main
from steelyard.dialects.openxla import config
from steelyard.errors import USAGE
from steelyard.model.record import Record
from tests.docs.fences import ROOT, fences

NAME = "models/BERT_LARGE_FP32_JAX_384XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


def entry(name: str = NAME, level: str = "framework_level", steelyard: Any = None, **metrics: Any) -> dict[str, Any]:
    told = {"benchmark_name": name, "framework": "ModelFrameworkType.JAX", "compiler": "xla", "device": "c2-standard-60", "tags": []}
    return {"definition": told, "metrics": {level: metrics}, **({"steelyard": steelyard} if steelyard else {})}


def records(folder: Path, *items: dict[str, Any]) -> list[Record]:
    file = folder / "r.json"
    environment = {"python_environment": [{"name": "jax", "version": "0.4.25"}]}
    file.write_text(json.dumps({"trigger": {"timestamp": "1690405293"}, "execution_environment": environment, "benchmarks": list(items)}))
    [run] = read_file(file)
    assert run.header.created.startswith("2023-07-26")
    assert run.header.machine["packages"] == {"jax": "0.4.25"}
    assert run.header.machine["cpu"]["model"] == "c2-standard-60"
    return list(run.records)


def test_a_summary_of_the_original_has_an_interval(tmp_path: Path) -> None:
    [found] = records(tmp_path, entry(median_latency_ms=50.0, stddev_latency_ms=10.0, benchmark_iterations=100, compile_time_ms=400.0))
    time = found.metrics["time"]
    assert (time.value, time.low, time.high, time.n) == (pytest.approx(0.05), pytest.approx(0.04804), pytest.approx(0.05196), 100)
    assert found.metrics["compile_time"].value == pytest.approx(0.4)
    assert found.id == "foreign/openxla/BERT_LARGE_FP32_JAX_384XI32_BATCH1@jax/xla:eval"


def test_our_own_latencies_are_used_whole(tmp_path: Path) -> None:
    ours = {
        "status": "wrong",
        "reason": "output 0: NaN",
        "latencies_ms": [1.0] * 20,
        "verification": {"status": "failed", "message": "NaN"},
    }
    [found] = records(tmp_path, entry(median_latency_ms=50.0, error="wrong: output 0: NaN", steelyard=ours))
    assert (found.status, found.reason, found.metrics["time"].value) == ("wrong", "output 0: NaN", 0.001)
    assert found.verification
    assert found.verification.status == "failed"


def test_errors_levels_and_doubles(tmp_path: Path) -> None:
    iree = entry(level="compiler_level", median_latency_ms=3.0, system_memory_vmhwm_mb=12.0)
    iree["definition"] |= {"task_topology_cpu_ids": "0,1", "num_threads": 2}
    slow, odd = entry(name="models/A/inputs/I", error="timeout"), entry(name="not a name", mean_latency_ms=2.0)
    found = records(tmp_path, iree, entry(error="boom"), entry(median_latency_ms=1.0), entry(error="again"), slow, odd)
    statuses = [(record.status, record.reason) for record in found]
    assert statuses == [("ok", ""), ("ok", ""), ("timeout", "timeout"), ("ok", "")]
    assert "threads=2" in found[0].id and "flag.cpus=" in found[0].id and "flag.level=compiler_level" in found[0].id
    assert found[0].metrics["host_peak_memory"].value == pytest.approx(12e6)
    assert "input=I" in found[2].id


def test_two_files_are_compared(tmp_path: Path, capsys: Any) -> None:
    for name, time in (("a.json", 50.0), ("b.json", 500.0)):
        item = entry(median_latency_ms=time, stddev_latency_ms=0.1, benchmark_iterations=100)
        (tmp_path / name).write_text(json.dumps({"benchmarks": [item]}))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "slower" in capsys.readouterr().out


def test_run_measures_again_what_the_suite_has_and_never_imports_what_a_file_names(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"benchmarks": [entry(name="models/X/inputs/Y", median_latency_ms=1.0)]}))
    assert main(["run", str(file)]) == USAGE
    assert "not in the suite: 'models/X/inputs/Y'" in capsys.readouterr().err
    file.write_text(json.dumps({"benchmarks": [entry(median_latency_ms=1.0, steelyard={"status": "ok", "preset": "tiny"})]}))
    experiment = config.read(file)
    [row] = experiment.rows
    [case] = row.cases
    assert (case.workload, case.variant) == ("openxla/BERT_LARGE_FP32_JAX_384XI32_BATCH1", "jit")
    assert dict(case.params)["parameters"]["preset"] == "tiny"


def test_the_how_to_s_lines_for_a_database_take_files_of_both_levels_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [lines] = [block.text for block in fences(ROOT / "docs" / "howto" / "coming-from-openxla.md") if "sqlite3" in block.text]
    bound = entry(level="compiler_level", median_latency_ms=3.0)
    bound["definition"] |= {"num_threads": 4}
    records(tmp_path, entry(median_latency_ms=50.0, steelyard={"status": "ok"}), bound, entry(level="compiler_level", error="crashed"))
    (tmp_path / "r.json").rename("results.json")
    for _ in range(2):
        exec(lines, {})
    with contextlib.closing(sqlite3.connect("results.sqlite")) as base:
        found = base.execute("select name, level, threads, status, median_ms from latency order by level, threads").fetchall()
    compiled = [(NAME, "compiler", 0, None, None), (NAME, "compiler", 4, None, 3.0)]
    assert found == [*compiled, (NAME, "framework", 0, "ok", 50.0)]
