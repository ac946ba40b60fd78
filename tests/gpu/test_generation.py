"""Generation on a GPU: a model of Llama 3's size against the roof, eager against compiled with its graphs counted, and faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytest.importorskip("transformers", reason="the models are those of transformers")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]
LONGEST = 560.0
"""Seconds: a model of this size takes most of two minutes to compile, the first time."""

EIGHT_BILLION = "generate/meta-llama/Meta-Llama-3-8B"
SIZES = ("-a", "prompt=512", "-a", "new=8", "-a", "dtype=bf16")
"""As long a prompt as shows reading it near the roof, and few tokens: compiling takes the time, not generating."""


def run(folder: Path, *words: str, check: int | None = None) -> dict[str, Any]:
    done = steelyard("run", *words, "-d", "cuda", "--json", cwd=folder, check=check, within=LONGEST)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("batch", [1, 32])
def test_eight_billion_weights_against_the_roof_eager_against_compiled(tmp_path: Path, batch: int) -> None:
    words = (EIGHT_BILLION, "-a", f"batch={batch}", *SIZES, "-V", "eager,compile", "--vs", "eager", "--budget", "500ms", "--settle", "0")
    found = run(tmp_path, *words, "--timeout", "280")
    records = {record["case"]["variant"]: record for record in found["records"]}
    for name, record in records.items():
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), (name, record["reason"])
        told = record["effective"]
        assert (told["weights"], told["dtype"], told["prompt"], told["attention"]) == ("seeded", "bf16", 512, "sdpa"), name
        for part in ("ttft_roof", "itl_roof"):
            assert 0 < record["metrics"][part]["value"] < 1.1, (name, part)
        assert record["metrics"]["peak_allocated"]["value"] > 16e9, "sixteen-bit weights alone take that much"
        if isinstance(told["telemetry"], dict):
            assert told["monitor"]["gpu0_memory"][2] > 16e9, name
    assert records["compile"]["effective"]["graphs"] >= 1 and records["compile"]["effective"]["cuda_graphs"] >= 1
    assert records["compile"]["effective"]["cache"] == "static"
    (pair,) = found["pairs"]
    assert {"ttft", "itl"} <= set(pair["parts"]) and pair["clock"] in ("wall", "cpu")
    assert any("built once" in note for note in pair["notes"])


def test_small_models_on_the_device_and_out_of_memory_at_one_batch(tmp_path: Path) -> None:
    found = run(tmp_path, "generate/llama", "-V", "eager,attention-eager,int8wo", "--vs", "eager", "--budget", "500ms")
    for record in found["records"]:
        assert record["status"] in ("ok", "unsupported"), record["reason"]
        assert record["status"] == "ok" or record["case"]["variant"] == "int8wo"
    much, little = run(tmp_path, "generate/llama", "-a", "batch=4000000,1", "--budget", "200ms")["records"]
    assert (much["status"], little["status"]) == ("oom", "ok"), (much["reason"], little["reason"])
