"""JAX beside torch on a GPU, at the widths of BERT-base and GPT-2: verified, in one table, without taking the whole device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytest.importorskip("jax", reason="a jax with support for CUDA")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]  # a driver's warnings are not ours

LARGE = {
    "model/bert": {"batch": 8, "seq": 512, "layers": 4, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 30522},
    "model/gpt": {"batch": 4, "seq": 1024, "layers": 4, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50304},
}
"""A third of the layers: what takes time is compiling them, once as they are timed and once in double precision for the reference."""
LIMIT = 400.0
RESERVED = 40e9
"""Bytes: far less than three quarters of the device, which JAX would take at once unless told otherwise."""


def run(folder: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(steelyard("run", *words, "-d", "cuda", "--json", cwd=folder, check=None, within=LIMIT).stdout)
    return found


def selector(name: str) -> str:
    return f"{name}[{','.join(f'{key}={value}' for key, value in LARGE[name].items())},dtype=bf16]"


def test_bert_and_gpt_are_right_at_real_widths_in_both(tmp_path: Path) -> None:
    found = run(tmp_path, *map(selector, LARGE), "-B", "torch,jax", "--budget", "200ms", "--timeout", "90s")
    records = found["records"]
    assert [(item["case"]["workload"], item["case"]["backend"]) for item in records] == [
        (name, backend) for name in LARGE for backend in ("torch", "jax")
    ]
    for record in records:
        seen = record["verification"]
        assert (record["status"], seen["status"]) == ("ok", "passed"), (record["id"], record["reason"], seen)
        assert seen["against"] == f"{record['case']['backend']} fp64" and any("numpy fp64 at" in check for check in seen["checks"])
        if record["case"]["backend"] == "jax":
            assert record["metrics"]["program_memory"]["value"] > 0
            assert record["effective"]["device_memory"].get("pool_bytes", 0) < RESERVED
    for theirs, ours in zip(records[::2], records[1::2], strict=True):
        assert ours["metrics"]["compiling_time"]["value"] > 0
        assert 0.1 < ours["metrics"]["time"]["value"] / theirs["metrics"]["time"]["value"] < 10


def test_a_small_case_computes_what_numpy_does_and_fp32_may_round_to_tf32(tmp_path: Path) -> None:
    found = run(tmp_path, "model/bert", "op/matmul", "-a", "size=small", "-a", "dtype=fp32,bf16", "-B", "jax", "--budget", "50ms")
    for record in found["records"]:
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), (record["id"], record["reason"])


def test_numbers_made_on_the_device_have_the_bits_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import numpy as np

    from steelyard.backends import _jax_numbers, _numbers
    from steelyard.backends.jax import in_double

    with in_double(True):
        got = np.asarray(_jax_numbers.normals((7, 3), (1001, 513), 0.25, np.float32))
    assert got.tobytes() == (_numbers.HostNumbers((7, 3)).normals(1001 * 513).reshape(1001, 513) * np.float32(0.25)).tobytes()
