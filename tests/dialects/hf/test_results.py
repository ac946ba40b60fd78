"""benchmark_v2's own result files, of all its versions, as show, compare, gate and report read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze import foreign
from steelyard.cli.main import main
from steelyard.errors import PASS, StoreError
from steelyard.model.record import Record

HARDWARE = {"gpu_name": "NVIDIA A100", "gpu_memory_total": 40960, "cpu_count": 64, "torch_version": "2.8.0", "python_version": "3.11.2"}


def statistics(values: list[float]) -> dict[str, Any]:
    return {"name": "x", "measurements": values, "mean": sum(values) / len(values), "median": sorted(values)[len(values) // 2], "unit": "s"}


def seed(*names: str, factor: float = 1.0, ending: str = "") -> dict[str, Any]:
    """A file of the first version, or of its successor, whose names end in a unit."""
    values = [factor * (2.4 + 0.01 * (number % 5)) for number in range(20)]
    measured = {f"latency{ending}": values, f"time_to_first_token{ending}": [0.15 * factor] * 20, "tokens_per_second": [80.0 / factor] * 20}
    if ending:
        measured[f"time_per_output_token{ending}"] = [0.02 * factor] * 20
    scenario = {"metadata": {"timestamp": "2025-08-18T10:00:00", "commit_id": "abc123", "branch": "main", "hardware_info": HARDWARE,
                             "config": {"variant": "eager", "model_id": "org/llama"}},
                "measurements": {name: statistics(found) for name, found in measured.items()}}  # fmt: skip
    return {"model_name": "llama_2_7b", "benchmark_scenarios": [{"scenario_name": name, **scenario} for name in names]}


def head() -> dict[str, Any]:
    good = {"e2e_latency": [1.0, 1.1, 1.2], "time_to_first_token": [0.1] * 3, "inter_token_latency": [0.01] * 3, "gpu_metrics": None}
    bad = {name: [] for name in good}
    return {
        hash: {"metadata": {"model_id": "org/llama", "timestamp": "2026-01-02T03:04:05", "commit_id": "d56c", "success": success,
                            "hardware_info": {"gpu_name": "H200", "gpu_memory_total_gb": 139.0}},
               "measurements": measured, "config": {"name": name}}
        for hash, name, success, measured in (("a" * 64, "w3_i10-sdpa", True, good), ("b" * 64, "w3_i10-flex", False, bad))
    }  # fmt: skip


def read(tmp_path: Path, data: Any, name: str = "x.json") -> dict[str, Record]:
    (tmp_path / name).write_text(data if isinstance(data, str) else json.dumps(data))
    [run] = foreign.read_file(tmp_path / name)
    return {record.id: record for record in run.records}


@pytest.mark.parametrize("ending", ["", "_seconds"])
def test_files_of_the_first_version_and_of_its_successor(tmp_path: Path, ending: str) -> None:
    found = read(tmp_path, seed("eager_variant", "compiled", ending=ending))
    record = found["foreign/hf:org/llama eager_variant"]
    assert record.metrics["time"].value == pytest.approx(2.42) and record.metrics["time"].n == 20 and record.metrics["time"].low is not None
    assert record.metrics["ttft"].value == 0.15 and record.metrics["item_rate"].value == 80.0 and ("tpot" in record.metrics) == bool(ending)
    [run] = foreign.read_file(tmp_path / "x.json")
    assert run.header.machine["git"]["commit"] == "abc123" and run.header.machine["packages"]["torch"] == "2.8.0" and len(found) == 2


def test_files_of_the_later_version_and_rows_of_a_dataset(tmp_path: Path) -> None:
    found = read(tmp_path, head())
    assert [record.status for record in found.values()] == ["ok", "failed"]
    assert found["foreign/hf:org/llama w3_i10-sdpa"].metrics["itl"].value == 0.01
    lines = "".join(json.dumps({"benchmark_config_hash": hash, **row}) + "\n" for hash, row in head().items())
    assert read(tmp_path, lines, "x.jsonl") == found


def test_a_scenario_of_the_readme_with_summaries_alone_has_its_median(tmp_path: Path) -> None:
    made = seed("a")
    made["benchmark_scenarios"][0]["measurements"] = {
        "latency": {"mean": 2.45, "median": 2.43, "std": 0.12}, "time_to_first_token": {"mean": 0.15}, "tokens_per_second": {"mean": 87.3},
    }  # fmt: skip
    [record] = read(tmp_path, made).values()
    assert {name: figure.value for name, figure in record.metrics.items()} == {"time": 2.43, "ttft": 0.15, "item_rate": 87.3}


def test_two_files_are_compared_and_a_slower_one_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, factor in (("base.json", 1.0), ("head.json", 4.0)):
        (tmp_path / name).write_text(json.dumps(seed("eager", "compiled", factor=factor)))
    both = [str(tmp_path / name) for name in ("base.json", "head.json")]
    assert main(["compare", *both]) == PASS
    out = capsys.readouterr().out
    assert "\ntime\n" in out and "\nttft\n" in out and out.count("slower") >= 4
    main(["gate", *both])
    assert "slower" in capsys.readouterr().out.splitlines()[0] and main(["show", both[0]]) == PASS
    assert main(["report", both[0], "-o", str(tmp_path / "x.html")]) == PASS


def test_a_summary_is_no_file_of_times_and_says_which_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="a summary has no times"):
        read(tmp_path, {"run_metadata": {}, "benchmark_results": {}})


def test_a_file_of_the_later_version_is_a_result_whatever_its_config_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "head.json"
    file.write_text(json.dumps({hash: {**row, "config": [1, 2]} for hash, row in head().items()}))
    assert main(["check", str(file)]) == PASS
    assert "results · from hf" in capsys.readouterr().out
