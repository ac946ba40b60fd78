"""Small files of other tools: pyperf's by its own API, the others after their documentation and writers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyperf

from steelyard.analyze.foreign import read_file
from steelyard.errors import StoreError


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def check_read_or_refused(path: Path) -> None:
    """Whatever stands where in a file, the answer is runs whose figures are sound, or an error that says why."""
    try:
        runs = read_file(path)
    except StoreError:
        return
    for record in (record for run in runs for record in run.records):
        assert record.id.isprintable() and record.reason.isprintable()
        assert record.status != "ok" or record.metrics
        assert all(math.isfinite(figure.value) for figure in record.metrics.values())


def pyperf_file(path: Path, times: Mapping[str, Sequence[Sequence[float]]], unit: str = "second") -> Path:
    """One process per list of values, and one that only calibrated."""
    made = []
    for name, processes in times.items():
        about = {"name": name, "unit": unit, "cpu_model_name": "Some CPU", "python_version": "3.11.7", "date": "2026-01-02 03:04:05"}
        runs = [pyperf.Run([], warmups=[(1, 0.1), (2, 0.1)], metadata={**about, "calibrate_loops": 2}, collect_metadata=False)]
        runs += [pyperf.Run(list(values), warmups=[(1, 0.1)], metadata=about, collect_metadata=False) for values in processes]
        made.append(pyperf.Benchmark(runs))
    pyperf.BenchmarkSuite(made).dump(str(path), replace=True)
    return path


def pytest_file(path: Path, *, data: Sequence[float] | None = None, median: float = 2e-3, rounds: int = 100) -> Path:
    stats = {
        "min": 1.9e-3, "max": 3e-3, "mean": 2.05e-3, "stddev": 1e-4, "rounds": rounds, "median": median, "iqr": 2e-4, "q1": 1.9e-3,
        "q3": 2.1e-3, "iqr_outliers": 0, "stddev_outliers": 2, "outliers": "2;0", "ld15iqr": 1.9e-3, "hd15iqr": 3e-3, "ops": 490.0,
        "total": 0.2, "iterations": 1, **({"data": list(data)} if data is not None else {}),
    }  # fmt: skip
    return write(
        path,
        {
            "machine_info": {"node": "ci-7", "machine": "x86_64", "python_version": "3.11.7", "cpu": {"brand_raw": "Some CPU", "count": 8}},
            "commit_info": {"id": "abc123" * 6 + "abcd", "time": "2026-01-02T00:00:00Z", "dirty": False, "branch": "main"},
            "benchmarks": [{"group": None, "name": "test_a", "fullname": "tests/test_a.py::test_a", "params": None, "stats": stats}],
            "datetime": "2026-01-02T03:04:05.000000",
            "version": "5.1.0",
        },
    )  # fmt: skip


def repetition(name: str, index: int, real: float, unit: str = "ns", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "family_index": 0, "per_family_instance_index": 0, "run_name": name, "run_type": "iteration", "repetitions": 3,
        "repetition_index": index, "threads": 1, "iterations": 7150, "real_time": real, "cpu_time": real * 0.9, "time_unit": unit, **more,
    }  # fmt: skip


def aggregate(name: str, kind: str, real: float, unit: str = "ns", repetitions: int = 3) -> dict[str, Any]:
    return {
        "name": f"{name}_{kind}", "run_name": name, "run_type": "aggregate", "repetitions": repetitions, "threads": 1,
        "aggregate_name": kind, "aggregate_unit": "time", "iterations": 3, "real_time": real, "cpu_time": real, "time_unit": unit,
    }  # fmt: skip


def google_file(path: Path, benchmarks: Sequence[Mapping[str, Any]]) -> Path:
    context = {
        "date": "2026-01-02T03:04:05+00:00", "host_name": "ci", "executable": "./bench", "num_cpus": 8, "mhz_per_cpu": 3294,
        "library_version": "v1.9.4", "library_build_type": "release", "json_schema_version": 1,
    }  # fmt: skip
    return write(path, {"context": context, "benchmarks": list(benchmarks)})


def summary(tag: str, **values: Any) -> dict[str, Any]:
    """nvbench writes numbers as text."""
    kinds = {str: "string", int: "int64", float: "float64"}
    return {
        "tag": tag,
        "name": tag,
        "data": [{"name": key, "type": kinds[type(value)], "value": str(value)} for key, value in values.items()],
    }


def nvbench_file(path: Path, states: Sequence[Mapping[str, Any]]) -> Path:
    return write(
        path,
        {
            "meta": {"argv": [], "version": {"json": {"string": "1.2.0"}, "nvbench": {"string": "v0.1.0"}}},
            "devices": [{"id": 0, "name": "NVIDIA H200", "sm_version": 900}],
            "benchmarks": [{"name": "copy", "index": 0, "devices": [0], "axes": [], "states": list(states)}],
        },
    )  # fmt: skip


def nvbench_state(name: str, mean: float, *more: Mapping[str, Any], n: int = 100) -> dict[str, Any]:
    found = [
        summary("nv/cold/sample_size", value=n),
        summary("nv/cold/time/gpu/mean", value=mean),
        summary("nv/cold/time/gpu/stdev/relative", value=0.01),
    ]
    return {"name": name, "device": 0, "axis_values": [], "summaries": [*found, *more], "is_skipped": False}


def samples_beside(path: Path, values: Sequence[float]) -> Mapping[str, Any]:
    folder = path.parent / f"{path.name}-bin"
    folder.mkdir()
    (folder / "0.bin").write_bytes(struct.pack(f"<{len(values)}f", *values))
    return summary("nv/json/bin:nv/cold/sample_times", filename=f"{path.name}-bin/0.bin", size=len(values))


TRITONBENCH = {
    "tritonbench_softmax_fwd[x_256-naive_softmax]_latency": "0.0241",
    "tritonbench_softmax_fwd[x_256-naive_softmax]_gbps": 870.0,
    "tritonbench_softmax_fwd[x_256-triton_softmax]_latency": 0.0112,
    "tritonbench_softmax_fwd[x_256-triton_softmax]_speedup": 2.15,
    "tritonbench_softmax_fwd[x_256-triton_softmax]_accuracy": 1.0,
    "tritonbench_softmax_fwd[x_(4, 8)-x-triton_softmax]_latency": "0.0412 (±3.10%)",
    "tritonbench_softmax_fwd[x_512-broken]_latency": "CUDA out of memory",
    "tritonbench_softmax_fwd[x_512-wrong]_latency": 0.02,
    "tritonbench_softmax_fwd[x_512-wrong]_accuracy": 0.0,
    "tritonbench_softmax_fwd[x_average-triton_softmax]_latency": 0.0112,
    "tritonbench_softmax_fwd[triton_softmax]-latency-avg": 0.0112,
    "tritonbench_gemm-pass": 0,
    "tritonbench_softmax-pass": 1,
}
