"""Rows as PyTorch/XLA's runner stores them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

V100, A6000, A100 = "One of Tesla V100-SXM2-16GB, ...", "One of Quadro P1000, NVIDIA RTX A6000, ", "NVIDIA A100-SXM4-40GB"
EAGER, INDUCTOR, LAZY, OPENXLA = (None, None), ("inductor", None), (None, "PJRT"), ("openxla", "PJRT")
FIRST, SECOND = 1699680738.7234068, 1699767138
DAYS = ("2023-11-11 05:32:18.723407", "2023-11-12 05:32:18")


def stored(
    model: str,
    stack: tuple[str | None, str | None],
    times: Any,
    *,
    batch: Any = 1,
    when: Any = FIRST,
    test: str = "eval",
    device: Any = V100,
    **more: Any,
) -> dict[str, Any]:
    """A row; `times` is the list of total times, or the whole table of metrics."""
    dynamo, xla = stack
    return {
        "model": {"suite_name": "torchbench", "model_name": model},
        "experiment": {
            "accelerator": "cuda", "accelerator_model": device, "xla": xla, "xla_flags": None, "dynamo": dynamo, "torch_xla2": None,
            "keep_model_data_on_cuda": False, "test": test, "batch_size": batch, "enable_functionalization": False,
        },
        "repeat": 4, "iterations_per_run": 1,
        "metrics": times if isinstance(times, dict) else {"total_time": times, "per_iter_time": times},
        "timestamp": when, "verification_code": "VERIFIER_SKIPPED", **more,
    }  # fmt: skip


def write(path: Path, rows: Iterable[dict[str, Any] | str]) -> Path:
    """A line per row; text stands as it is."""
    path.write_text("".join(row if isinstance(row, str) else f"{json.dumps(row)}\n" for row in rows))
    return path


def steady(*times: float) -> list[float]:
    """Three repeats that warm up, then those that count."""
    return [9.0, 9.0, 9.0, *times]
