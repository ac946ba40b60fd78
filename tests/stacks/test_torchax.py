"""torchax for real: PyTorch's operators on JAX, beside plain PyTorch in one table, and the original's axis torch_xla2."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.drive import PROGRAM
from tests.stacks.test_torch_xla import measure, stack

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def with_torchax(apart: Path, built: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_ENVS", built("torchax"))


def test_models_are_one_verified_table_with_plain_torch(tmp_path: Path) -> None:
    words = ("model/mlp", "model/resnet50", "op/softmax", "-a", "size=small", "-B", "torch,torchax", "-V", "eager,jit", "--budget", "50ms")
    _, records = measure(tmp_path, *words)
    assert [stack(record) for record in records] == ["torch/eager", "torchax/eager", "torchax/jit"] * 3
    for record in records:
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), record["id"]
        assert record["verification"]["against"] == "numpy fp64"
    assert all({"jax", "torchax"} <= set(record["environment"]) for record in records if record["case"]["backend"] == "torchax")


def test_arms_are_weighed(tmp_path: Path) -> None:
    table, _ = measure(tmp_path, "op/softmax", "-a", "size=small", "-B", "torchax", "-V", "eager,jit", "--vs", "eager", "--budget", "50ms")
    assert "not weighed" not in table and "  base" in table


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("model/mlp", "--mode", "train"), "backend torchax has no mode train"),
        (("op/softmax", "-a", "dtype=fp64"), "JAX computes fp64 in half its width"),
        (("op/softmax", "-d", "tpu"), "has no tpu device here"),
        (("model/dlrm", "-V", "jit"), "cannot run this"),
    ],
)
def test_what_it_cannot_do_is_unsupported_with_the_reason(words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    _, records = measure(tmp_path, *words, "-a", "size=small", "-B", "torchax", check=5)
    for record in records:
        assert record["status"] == "unsupported" and reason in record["reason"]


def test_the_axis_torch_xla2_runs_and_is_verified(tmp_path: Path) -> None:
    words = ("--suite-name=steelyard", "--size=small", "-k", "^(mlp|dlrm)$", "--accelerator=cpu", "--repeat=3", "--verify", "--save-output")
    axes = ("--xla=None", "--dynamo=None", "--torch-xla2=extract_jax", "--torch-xla2=torch_export")
    done = subprocess.run([*PROGRAM, "as", "ptxla", "runner", *words, *axes], cwd=tmp_path, timeout=3000, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "output" / "results.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    told = {(row["model"]["model_name"], row["experiment"]["test"]): set[str]() for row in rows}
    for row in rows:
        told[row["model"]["model_name"], row["experiment"]["test"]].add(row["steelyard"]["status"])
        if row["steelyard"]["status"] == "ok":
            assert row["verification_code"] == "PASS" and row["verification_mean_rel_error"] < 1e-4
            assert row["steelyard"]["versions"]["torchax"] and Path(row["outputs_file"]).is_file()
    assert told.pop(("mlp", "eval")) == {"ok"}
    assert list(told.values()) == [{"unsupported"}] * 3
