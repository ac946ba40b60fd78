"""Nsight's tools around cases that really run on a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import run_json

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours


def record(tool: str, folder: Path) -> dict[str, Any]:
    words = ["op/matmul", "-a", "m=4096", "-a", "k=4096", "-a", "n=4096", "-a", "dtype=bf16", "-d", "cuda", "--budget", "quick"]
    found: dict[str, Any] = run_json(*words, f"--{tool}", cwd=folder)["records"][0]
    assert found["status"] == "ok" and {item["kind"] for item in found["attachments"]} == {tool}, found["effective"].get(tool)
    return found


@pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute is not installed")
def test_ncu_counts_the_kernels_of_one_call(tmp_path: Path) -> None:
    found = record("ncu", tmp_path)
    time, metrics = found["metrics"]["time"]["value"], found["metrics"]
    assert 0.3 * time < metrics["ncu_duration"]["value"] < 5 * time and metrics["ncu_dram_bytes"]["value"] > 0
    assert found["effective"]["ncu"]["kernels"] >= 1 and 0.3 < found["effective"]["ncu"]["tensor"] <= 1


@pytest.mark.skipif(shutil.which("nsys") is None, reason="Nsight Systems is not installed")
def test_nsys_splits_ten_calls_into_their_parts(tmp_path: Path) -> None:
    found = record("nsys", tmp_path)
    parts = {name: found["metrics"][f"nsys_{name}"]["value"] for name in ("call", "first_kernel", "kernels", "after_kernels", "wait")}
    assert found["effective"]["nsys"]["calls"] == 10 and 0 < parts["kernels"] < parts["call"]
    assert parts["first_kernel"] + parts["kernels"] + parts["after_kernels"] == pytest.approx(parts["call"], rel=0.2)
