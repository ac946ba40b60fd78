"""Recipes that need a GPU: eight-bit products and 2:4 sparsity at Llama's shapes, with their accuracy and below their roofs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytest.importorskip("torchao", reason="the recipes are torchao's")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

KEPT = {"float8dq-tensor": 20, "float8dq-row": 21, "int8dq": 35, "int8wo": 38, "semi-sparse": 30, "int4wo-128": 15, "block-sparse-64": 30}
"""Decibels kept on normal inputs; sparse ones against the pruned model."""
LLAMA = {(16384, 8192, 1280): tuple(KEPT), (16384, 1024, 8192): ("float8dq-row", "int8dq", "semi-sparse")}
NEEDING = ("int4wo-128", "block-sparse-64")
"""Those whose kernels may be missing: unsupported with the reason, or as good as they should be."""
SPARSE = ("semi-sparse", "block-sparse-64")
ARITHMETIC = {"float8dq-tensor": "fp8e4m3", "float8dq-row": "fp8e4m3", "int8dq": "int8"}
TRAINING = {"float8-training-tensorwise": 14, "float8-training-rowwise": 14, "qat-int8dq-int4w-32": 7}


def run(folder: Path, names: str, sizes: tuple[int, int, int], *words: str) -> dict[str, Any]:
    shape = [word for key, size in zip("mkn", sizes, strict=True) for word in ("-a", f"{key}={size}")]
    brief = ("--budget", "50ms", "--settle", "0")
    told = ["run", "torchao/linear", "-V", names, "--vs", "eager", "-d", "cuda", *shape, *brief, *words, "--json"]
    found: dict[str, Any] = json.loads(steelyard(*told, cwd=folder, check=None).stdout)
    return found


def troubles(name: str, record: dict[str, Any]) -> Iterator[str]:
    """All that is not as it should be, so that one look at a borrowed machine shows all of it."""
    if record["status"] == "unsupported" and name in NEEDING:
        return
    if record["status"] != "ok":
        yield f"{name} is {record['status']}: {record['reason']}"
        return
    metrics, effective, verification = record["metrics"], record["effective"], record["verification"]
    kept = metrics.get("sqnr", {"value": float("inf")})["value"]
    if not max(KEPT[name], verification["figures"]["floor"]) <= kept:
        yield f"{name} keeps {kept} dB"
    if not 0 < metrics.get("roof", {"value": 0})["value"] < 1.1 or "predicted_time" not in metrics:
        yield f"{name} reaches {metrics.get('roof')} of its roof, predicted {metrics.get('predicted_time')}"
    if effective.get("arithmetic") != ARITHMETIC.get(name):
        yield f"{name} computes in {effective.get('arithmetic')}"
    if name == "int4wo-128" and effective["packing"] != "tile_packed_to_4d":
        yield f"{name} is packed as {effective['packing']}"
    if name in SPARSE:
        if abs(effective["zeros"] - 0.5) > 0.01 or verification["against"] != "the pruned model in its plain layout":
            yield f"{name} has {effective['zeros']} zeros, and is held to {verification['against']}"
        if not 0 < metrics["sqnr_pruning"]["value"] < 20:
            yield f"{name} keeps {metrics['sqnr_pruning']} of the whole model"


@pytest.mark.parametrize("sizes", LLAMA)
def test_recipes_at_the_shapes_of_llama(tmp_path: Path, sizes: tuple[int, int, int]) -> None:
    found = run(tmp_path, ",".join(["eager", *LLAMA[sizes]]), sizes)
    records: dict[str, dict[str, Any]] = {item["case"]["variant"]: item for item in found["records"]}
    assert not [trouble for name in LLAMA[sizes] for trouble in troubles(name, records[name])]
    weighed = {pair["head"]["id"].rpartition("/")[2].partition(":")[0] for pair in found["pairs"]}
    assert weighed == {name for name in LLAMA[sizes] if records[name]["status"] == "ok"}


def test_recipes_for_training(tmp_path: Path) -> None:
    found = run(tmp_path, ",".join(["eager", *TRAINING]), (4096, 4096, 4096), "--mode", "train")
    records = {item["case"]["variant"]: item for item in found["records"]}
    for name, floor in TRAINING.items():
        record = records[name]
        if record["status"] == "unsupported":
            assert "8.9" in record["reason"] and name.startswith("float8"), record["reason"]
            continue
        assert record["status"] == "ok", (name, record["reason"])
        assert record["metrics"]["sqnr"]["value"] > floor and record["verification"]["figures"]["floor"] == floor
        assert record["effective"]["changed"]
