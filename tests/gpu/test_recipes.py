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
KEPT = {"float8dq-tensor": 22, "float8dq-row": 24, "int8dq": 35, "int8wo": 38, "semi-sparse": 6}
NEEDING = {"int4wo-128": 15}
"""Those whose kernels may be missing: unsupported with the reason, or as good as they should be."""


@pytest.mark.parametrize(("m", "k", "n"), LLAMA)
def test_recipes_at_the_shapes_of_llama(tmp_path: Path, m: int, k: int, n: int) -> None:
    names = ",".join(["eager", *KEPT, *NEEDING])
    sizes = ["-a", f"m={m}", "-a", f"k={k}", "-a", f"n={n}"]
    words = ["run", "torchao/linear", "-V", names, "--vs", "eager", "-d", "cuda", *sizes, "--budget", "100ms", "--json"]
    found = json.loads(steelyard(*words, cwd=tmp_path, check=None).stdout)
    records: dict[str, dict[str, Any]] = {item["case"]["variant"]: item for item in found["records"]}
    for name, least in (KEPT | NEEDING).items():
        record = records[name]
        if name in NEEDING and record["status"] == "unsupported":
            assert record["reason"]
            continue
        assert record["status"] == "ok", (name, record["reason"])
        assert record["metrics"]["sqnr"]["value"] > least, name
        if name != "semi-sparse":
            assert 0 < record["metrics"]["roof"]["value"] < 1.1, name
    assert records["float8dq-row"]["effective"]["arithmetic"] == "fp8e4m3"
    weighed = {pair["head"]["id"].rpartition("/")[2].partition(":")[0] for pair in found["pairs"]}
    assert set(KEPT) <= weighed
