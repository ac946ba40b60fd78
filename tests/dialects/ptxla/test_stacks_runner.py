"""`as ptxla runner` with PyTorch/XLA for real: its four stacks in one file of rows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.drive import PROGRAM

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]


def test_four_stacks_are_measured_and_verified(tmp_path: Path, built: Callable[[str], str]) -> None:
    words = ("--suite-name=steelyard", "--size=small", "-k", "^mlp$", "--accelerator=cpu", "--repeat=5", "--verify")
    done = subprocess.run(
        [*PROGRAM, "as", "ptxla", "runner", *words, "--xla=None", "--xla=PJRT", "--dump-hlo"], cwd=tmp_path, timeout=3000, check=False,
        capture_output=True, text=True, env=os.environ | {"STEELYARD_ENVS": built("torch-xla")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "output" / "results.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    for row in rows:
        assert row["verification_code"] == "PASS", row
        assert len(row["metrics"]["total_time"]) == 5
        if row["experiment"]["xla"] is not None:
            metrics = row["metrics"]
            assert metrics["xla_CompileTime_number"][0] >= 1 and metrics["xla_CompileTime_number"][-1] == 0
            assert min(metrics["xla_ExecuteTime_number"]) >= 1
            assert all(0 < trace <= total for trace, total in zip(metrics["trace_total_time"], metrics["total_time"], strict=True))
            assert all(list(Path(folder).glob("*before_optimizations.txt")) for folder in row["steelyard"]["files"]["hlo"])
