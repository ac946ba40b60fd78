"""Records as a CI job writes them, and runs made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.model.case import Case
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, Run

Said = Callable[..., tuple[str, str]]
"""Types a command; gives stdout and stderr."""

METADATA: dict[str, Any] = {
    "timestamp": 1752105825, "schema_version": "v3", "name": "bench-cpu", "repo": "pytorch/ao", "head_branch": "refs/heads/main",
    "head_sha": "64c1ce36e0", "workflow_id": 1, "run_attempt": 1, "job_id": 2,
}  # fmt: skip


def row(metric: str = "latency", values: Sequence[Any] = (1.25,), **more: Any) -> dict[str, Any]:
    """A record of another writer."""
    extra = {**({"unit": "ms"} if metric == "latency" else {}), **more.pop("extra", {})}
    return {
        "benchmark": {
            "name": "micro-benchmark api", "mode": "inference", "dtype": more.pop("dtype", "int8wo"), "extra_info": {"device": "cpu"},
        },
        "model": {"name": more.pop("model", "1024-1024-1024"), "type": "micro-benchmark custom layer", "origins": ["torchao"]},
        "metric": {"name": metric, "benchmark_values": list(values), "target_value": 0.0, "extra_info": extra},
        **more,
    }  # fmt: skip


def full() -> dict[str, Any]:
    """A record with every column."""
    runner = {
        "name": "cpu", "type": "Xeon_2c", "cpu_info": "x86_64", "cpu_count": 2, "mem_info": "24 GB", "avail_mem_in_gb": 23,
        "gpu_info": "", "gpu_count": 0, "gpu_mem_info": "", "avail_gpu_mem_in_gb": 0, "extra_info": {"hostname": "h"},
    }  # fmt: skip
    return {
        **METADATA, "servicelab_experiment_id": 0, "servicelab_trial_id": 0, "runners": [runner],
        "benchmark": {"name": "micro-benchmark api", "mode": "inference", "dtype": "int8wo", "extra_info": {"use_compile": "true"}},
        "model": {"name": "m", "type": "t", "backend": "inductor", "origins": ["torchao"], "extra_info": {"a": "b"}},
        "inputs": {"x": {"dtype": "bfloat16", "extra_info": {"shape": "1024x1024"}}},
        "dependencies": {"torch": {"repo": "pytorch/pytorch", "branch": "main", "sha": "1", "version": "2.13.0", "extra_info": {}}},
        "metric": {"name": "speedup(wrt bf16)", "benchmark_values": [1.25], "target_value": 0.0, "extra_info": {"unit": "x"}},
        "_meta": {"bucket": "b", "key": "k"},
    }  # fmt: skip


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def run(records: Mapping[str, Mapping[str, Figure] | str], *pairs: Any, created: str = "2026-01-02T03:04:05Z", **machine: Any) -> Run:
    """A run of cases with these figures, or with this status."""
    made = [
        Record(id, Case.parse(id).plain(), "ok", metrics=dict(given))
        if not isinstance(given, str)
        else Record(id, Case.parse(id).plain(), given, "told to")  # type: ignore[arg-type]
        for id, given in records.items()
    ]
    header = Header(id="k3f9", created=created, machine={"cpu": {"model": "EPYC", "cpus": 2}, **machine}, machine_key="m" * 12)
    return Run(Path("k3f9"), header, tuple(made), tuple(pairs))


def results(folder: Path, file: str = "results.json", time: float = 1.0, **more: Any) -> Path:
    """A file of three latencies."""
    rows = [row("latency", [time * (1 + number)], model=f"{number}", extra={"unit": "ms"}, **more) for number in range(3)]
    return write(folder / file, rows)
