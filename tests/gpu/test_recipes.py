"""Recipes that need a GPU: eight-bit products and 2:4 sparsity at Llama's shapes, with their accuracy and below their roofs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytest.importorskip("torchao", reason="the recipes are torchao's")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

LLAMA = ((16384, 8192, 1280), (16384, 1024, 8192))
KEPT = {"float8dq-tensor": 20, "float8dq-row": 21, "int8dq": 35, "int8wo": 38, "semi-sparse": 30}
"""Decibels kept on normal inputs; sparse ones against the pruned model."""
NEEDING = {"int4wo-128": 15, "block-sparse-64": 30}
"""Those whose kernels may be missing: unsupported with the reason, or as good as they should be."""
SPARSE = {"semi-sparse": 0.5, "block-sparse-64": 0.5}
TRAINING = {"float8-training-tensorwise": 14, "float8-training-rowwise": 14, "qat-int8dq-int4w-32": 7}


def run(folder: Path, names: str, sizes: tuple[int, int, int], *words: str) -> dict[str, Any]:
    shape = [word for key, size in zip("mkn", sizes, strict=True) for word in ("-a", f"{key}={size}")]
    told = ["run", "torchao/linear", "-V", names, "--vs", "eager", "-d", "cuda", *shape, "--budget", "100ms", *words, "--json"]
    found: dict[str, Any] = json.loads(steelyard(*told, cwd=folder, check=None).stdout)
    return found


@pytest.mark.parametrize("sizes", LLAMA)
def test_recipes_at_the_shapes_of_llama(tmp_path: Path, sizes: tuple[int, int, int]) -> None:
    found = run(tmp_path, ",".join(["eager", *KEPT, *NEEDING]), sizes)
    records: dict[str, dict[str, Any]] = {item["case"]["variant"]: item for item in found["records"]}
    for name, least in (KEPT | NEEDING).items():
        record = records[name]
        if name in NEEDING and record["status"] == "unsupported":
            assert record["reason"]
            continue
        assert record["status"] == "ok", (name, record["reason"])
        kept = record["metrics"].get("sqnr", {"value": float("inf")})["value"]
        assert kept > least, name
        assert record["verification"]["figures"]["floor"] <= kept, name
        if name in SPARSE:
            assert record["effective"]["zeros"] == pytest.approx(SPARSE[name], abs=0.01), name
            assert record["verification"]["against"] == "the pruned model in its plain layout"
            assert 0 < record["metrics"]["sqnr_pruning"]["value"] < 20, name
        else:
            assert 0 < record["metrics"]["roof"]["value"] < 1.1, name
        if name == "int4wo-128":
            assert record["effective"]["packing"] == "tile_packed_to_4d"
    assert records["float8dq-row"]["effective"]["arithmetic"] == "fp8e4m3"
    weighed = {pair["head"]["id"].rpartition("/")[2].partition(":")[0] for pair in found["pairs"]}
    assert set(KEPT) <= weighed


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
