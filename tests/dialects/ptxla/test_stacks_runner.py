"""`as ptxla runner` with PyTorch/XLA for real: its four stacks in one file of rows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.drive import PROGRAM

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]
GIVEN = os.environ.get("STEELYARD_ENVS")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of environments that holds torch-xla: the one we were given if it does, else one that is built here."""
    if GIVEN and (Path(GIVEN) / "torch-xla" / "steelyard-env.json").is_file():
        return GIVEN
    folder = str(tmp_path_factory.mktemp("envs"))
    subprocess.run([*PROGRAM, "env", "create", "torch-xla"], env=os.environ | {"STEELYARD_ENVS": folder}, check=True, timeout=3000)
    return folder


def test_four_stacks_are_measured_and_verified(tmp_path: Path, home: str) -> None:
    words = ("--suite-name=steelyard", "--size=small", "-k", "^mlp$", "--accelerator=cpu", "--repeat=5", "--verify")
    done = subprocess.run(
        [*PROGRAM, "as", "ptxla", "runner", *words, "--xla=None", "--xla=PJRT", "--dump-hlo"], cwd=tmp_path, timeout=3000, check=False,
        capture_output=True, text=True, env=os.environ | {"STEELYARD_ENVS": home},
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
