"""The checks after timing on device tensors: kept answers and overwritten inputs are found, buffers for results are not blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

OWN = """
from dataclasses import replace

import torch

from steelyard import Task, workload


@workload("my/soft", axes={"n": [256], "dtype": ["fp32"]}, modes=["eval", "fwd", "bwd"])
def soft(n, dtype, be):
    return Task(torch.softmax, (be.randn(n, n, dtype=dtype), -1))


@soft.variant("kept")
def kept(task):
    known = {}

    def fn(x, dim):
        if x.data_ptr() not in known:
            known[x.data_ptr()] = task.fn(x, dim)
        return known[x.data_ptr()]

    return replace(task, fn=fn)


@soft.variant("sorts")
def sorts(task):
    def fn(x, dim):
        y = task.fn(x, dim)
        x.copy_(x.sort().values)
        return y

    return replace(task, fn=fn)


@soft.variant("same")
def same(task):
    return replace(task, fn=lambda x, dim: task.fn(x, dim))


@soft.variant("buffer")
def buffer(task, be):
    def fn(x, dim, out):
        return torch.softmax(x, dim, out=out)

    return replace(task, fn=fn, kwargs={"out": torch.zeros_like(task.args[0])})
"""


def measured(folder: Path, *words: str, check: int = 0) -> dict[str, dict[str, Any]]:
    """Records by variant and mode."""
    told = steelyard("run", *words, "-d", "cuda", "--budget", "20ms", "--json", cwd=folder, check=check).stdout
    return {f"{item['case']['variant']}:{item['case']['mode']}": item for item in json.loads(told)["records"]}


def test_what_turns_wrong_while_it_is_timed_is_found(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    found = measured(tmp_path, "own.py", "-V", "eager,kept,sorts,same,buffer", check=3)
    assert {name: item["status"] for name, item in found.items()} == {
        "eager:eval": "ok", "kept:eval": "wrong", "sorts:eval": "wrong", "same:eval": "ok", "buffer:eval": "ok",
    }  # fmt: skip
    assert "does not follow args[0]" in found["kept:eval"]["reason"]
    assert found["sorts:eval"]["reason"].startswith("args[0] was changed")
    assert found["same:eval"]["verification"]["identical"]
    assert found["buffer:eval"]["verification"]["checks"][-1] == "answer after timing, other values in args[0]"


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_what_is_right_stays_so_in_every_mode(tmp_path: Path, dtype: str) -> None:
    words = ["layer/linear", "layer/conv_block", "model/mlp", "op/softmax", "-a", "size=small", "-a", f"dtype={dtype}"]
    found = json.loads(
        steelyard(
            "run", *words, "--mode", "eval,fwd,bwd,train", "-d", "cuda", "--budget", "20ms", "--json", cwd=tmp_path, check=None
        ).stdout
    )
    assert {item["status"] for item in found["records"]} <= {"ok", "not_applicable"}
    checks = [check for item in found["records"] if item["status"] == "ok" for check in item["verification"]["checks"]]
    assert any("other values" in check for check in checks)


def test_pairs_of_the_compiled_and_the_captured_are_weighed(tmp_path: Path) -> None:
    words = [
        "op/softmax",
        "-a",
        "size=small",
        "-V",
        "eager,compile,cuda_graph",
        "--vs",
        "eager",
        "-d",
        "cuda",
        "--budget",
        "50ms",
        "--json",
    ]
    found = json.loads(steelyard("run", *words, cwd=tmp_path).stdout)
    assert [item["status"] for item in found["records"]] == ["ok"] * 3
    assert len(found["pairs"]) == 2
