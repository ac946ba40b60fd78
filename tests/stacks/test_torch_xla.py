"""PyTorch/XLA for real: four stacks of three models in one table, though they live in two interpreters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import envs
from tests.engine.drive import PROGRAM

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]

STACKS = {"torch/eager", "torch/compile", "torch_xla/eager", "torch_xla/openxla"}
MODELS = ("model/mlp", "model/resnet50", "model/bert")

FALLBACK = """
from steelyard import Task, workload


@workload("mine/i0", axes={"n": [64]})
def i0(n, be):
    import torch

    return Task(lambda x: torch.special.i0(x) + 1, (be.randn(n),))
"""


@pytest.fixture(autouse=True)
def with_torch_xla(apart: Path, built: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_ENVS", built("torch-xla"))
    assert "torch-xla" in [env.name for env in envs.listing()]


def measure(folder: Path, *words: str, check: int = 0) -> tuple[str, list[dict[str, Any]]]:
    """One command: its table, and its records."""
    done = subprocess.run([*PROGRAM, "run", *words], cwd=folder, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    shown = subprocess.run([*PROGRAM, "show", "latest", "--json"], cwd=folder, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(shown.stdout)["records"]
    return done.stdout, found


def stack(record: dict[str, Any]) -> str:
    return f"{record['case']['backend']}/{record['case']['variant']}"


def test_four_stacks_of_three_models_in_eval_and_train_are_one_verified_table(tmp_path: Path) -> None:
    table, records = measure(tmp_path, "stacks", "--budget", "100ms", "--timeout", "900s")
    points = {(record["case"]["workload"], record["case"]["mode"], stack(record)) for record in records}
    assert points == {(model, mode, name) for model in MODELS for mode in ("eval", "train") for name in STACKS}
    assert len(records) == len(points)
    for record in records:
        found = record["verification"]
        exact = "numpy fp64" if record["case"]["mode"] == "eval" else "torch fp64"
        assert (record["status"], found["status"], found["against"]) == ("ok", "passed", exact), record["id"]
        if record["case"]["backend"] == "torch_xla":
            check_xla(record)
    for name in STACKS:
        assert len([line for line in table.splitlines() if name.split("/") == words_of(line)]) == 6
    torches = {record["environment"]["torch"] for record in records}
    assert len(torches) == 2 and any(version.startswith("2.9.") for version in torches)


def words_of(line: str) -> list[str]:
    """Backend and variant in a row of the table."""
    return [word for word in line.split() if word in ("torch", "torch_xla", "eager", "compile", "openxla")]


def check_xla(record: dict[str, Any]) -> None:
    """Tracing apart from executing, and nothing compiled while it was timed."""
    figures, counted = record["metrics"], record["effective"]["xla"]
    assert figures["trace_time"]["value"] > 0 and figures["execute_time"]["value"] > 0
    assert counted["timed"]["compiles"] == counted["split"]["compiles"] == 0
    assert counted["timed"]["executions"] >= record["effective"]["blocks"]
    assert counted["first_call"]["compiles"] >= 1 and counted["first_call"]["compile_time"] > 0
    assert record["environment"]["torch_xla"] == "2.9.0" and record["environment"]["pjrt"] == "CPU"


def test_forward_and_backward_alone_work_too_and_arms_are_weighed(tmp_path: Path) -> None:
    words = ("model/mlp", "-a", "size=small", "-B", "torch_xla", "-V", "eager,openxla", "--mode", "fwd,bwd", "--vs", "eager")
    table, records = measure(tmp_path, *words, "--budget", "100ms")
    assert {(record["status"], record["verification"]["status"]) for record in records} == {("ok", "passed")}
    assert "not weighed" not in table and "  base" in table


@pytest.mark.parametrize(("form", "sign"), [("hlo", "HloModule"), ("stablehlo", "stablehlo."), ("text", "xla::device_data")])
def test_graphs_are_kept_beside_the_timing(form: str, sign: str, tmp_path: Path) -> None:
    words = ("model/mlp", "-a", "size=small", "-B", "torch_xla", "-V", "eager,openxla", "--budget", "20ms")
    _, records = measure(tmp_path, *words, "--dump-ir", form)
    kept = list((tmp_path / ".steelyard" / "runs").glob("*/attachments/*graph-*"))
    for record in records:
        assert record["effective"]["dump_ir"]["form"] == form
        assert record["effective"]["dump_ir"]["graphs"] == len(record["attachments"]) >= 1
    assert len(kept) == sum(len(record["attachments"]) for record in records)
    assert all(sign in path.read_text() for path in kept)


def test_flags_belong_to_the_case_and_fallbacks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FALLBACK)
    dump = tmp_path / "dump"
    words = ("mine.py", "-B", "torch_xla", "--budget", "20ms", "--flag", f"XLA_FLAGS=--xla_dump_to={dump}")
    _, [record] = measure(tmp_path, *words)
    assert record["status"] == "ok" and "flag.XLA_FLAGS" in record["id"]
    assert any(dump.iterdir())
    assert record["effective"]["xla"]["first_call"]["fallbacks"] == {"aten::i0": 1}
    assert record["effective"]["xla"]["split"]["fallbacks"]["aten::i0"] == record["effective"]["xla"]["split"]["calls"]


@pytest.mark.parametrize(("device", "reason"), [("cuda", "no cuda device here"), ("tpu", "no tpu device here")])
def test_devices_that_are_not_there_are_unsupported_with_the_reason(device: str, reason: str, tmp_path: Path) -> None:
    _, [record] = measure(tmp_path, "op/sum", "-B", "torch_xla", "-d", device, check=5)
    assert record["status"] == "unsupported" and reason in record["reason"]


def test_variants_of_another_backend_are_unsupported_when_asked_for_alone(tmp_path: Path) -> None:
    _, [record] = measure(tmp_path, "op/sum", "-B", "torch_xla", "-V", "compile", check=5)
    assert record["status"] == "unsupported" and "variant compile works with torch" in record["reason"]
