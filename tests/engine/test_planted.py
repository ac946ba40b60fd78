"""Faults planted in a user's file, found through the real command line: a wrong answer is `wrong`, a change of nothing `not_applied`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import run_json

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PLANTED = '''
"""A small model with an honest variant and two broken ones, a function that no compiler may touch, and a product that grows."""

import copy
from dataclasses import replace

from steelyard import Task, workload


@workload("planted/model", axes={"n": [16], "dtype": ["fp32"]})
def model(n, dtype, be):
    """A layer norm and a square linear layer on inputs so small that epsilon counts."""
    import torch

    made = be.module(lambda: torch.nn.Sequential(torch.nn.LayerNorm(n), torch.nn.Linear(n, n)), dtype)
    return Task(made, (be.randn(8, n, dtype=dtype, scale=0.01),), parameters=tuple(made.parameters()))


@model.variant("by_hand")
def by_hand(task, eps=1e-5, turned=False):
    """The same in separate steps."""
    import torch

    norm, linear = copy.deepcopy(task.fn)
    weight = linear.weight.T if turned else linear.weight

    def fn(x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
        return torch.nn.functional.linear(scaled * norm.weight + norm.bias, weight, linear.bias)

    return replace(task, fn=fn)


@workload("planted/kept_eager", axes={"n": [16]})
def kept_eager(n, be):
    """A function whose work is hidden from the compiler."""
    import torch

    work = torch._dynamo.disable(lambda x: torch.relu(x) + 1)
    return Task(lambda x: work(x), (be.randn(n),))


@workload("planted/growing", axes={"n": [16], "scale": [1e3], "dtype": ["fp32"]})
def growing(n, scale, dtype, be):
    """A product whose sums are beyond what fp16 can hold at scale 1e3, and well within at 1."""
    import torch

    return Task(torch.matmul, (be.randn(n, n, dtype=dtype, scale=scale), be.randn(n, n, dtype=dtype, scale=scale)))
'''


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "planted.py"
    path.write_text(PLANTED, encoding="utf-8")
    return str(path)


def weighed(file: str, workload: str, variants: str, *words: str, check: int) -> dict[str, dict[str, Any]]:
    found = run_json(file, workload, "-V", variants, "--budget", "20ms", *words, cwd=Path(file).parent, check=check)
    return {record["case"]["variant"]: record for record in found["records"]}


def test_a_wrong_epsilon_and_a_transposed_weight_are_wrong_and_the_honest_variant_is_not(file: str) -> None:
    honest, epsilon, turned = "by_hand", "by_hand[eps=1e-06]", "by_hand[turned=true]"
    found = weighed(file, "planted/model", f"eager,{honest},{epsilon},{turned}", check=3)
    assert {name: record["status"] for name, record in found.items()} == {"eager": "ok", honest: "ok", epsilon: "wrong", turned: "wrong"}
    assert found[honest]["verification"]["status"] == "passed" and found[honest]["reason"] == ""
    for name in (epsilon, turned):
        assert "not the answer of torch eager" in found[name]["reason"] and "values differ beyond rtol" in found[name]["reason"]
        assert found[name]["metrics"]["time"]["value"] > 0


def test_a_compiler_that_falls_back_to_eager_is_not_applied(file: str) -> None:
    found = weighed(file, "planted/kept_eager", "eager,compile[backend=aot_eager]", check=0)
    assert found["eager"]["status"] == "ok"
    fallen = found["compile[backend=aot_eager]"]
    assert fallen["status"] == "not_applied" and "compiled no graph" in fallen["reason"]
    assert "time" not in fallen["metrics"]


@pytest.mark.parametrize(("scale", "status", "code"), [("1", "ok", 0), ("1e3", "wrong", 3)])
def test_overflow_in_half_precision_is_named(file: str, scale: str, status: str, code: int) -> None:
    half = "autocast[dtype=fp16]"
    found = weighed(file, "planted/growing", f"eager,{half}", "-a", f"scale={scale}", check=code)
    assert (found["eager"]["status"], found[half]["status"]) == ("ok", status)
    if status == "wrong":
        assert "values are infinite" in found[half]["reason"]
        assert "the reference has none there" in found[half]["verification"]["message"]


def test_autocast_of_what_it_does_not_touch_is_not_applied(file: str) -> None:
    found = weighed(file, "op/softmax", "eager,autocast", "-a", "m=8", "-a", "n=32", "-a", "dtype=fp32", check=0)
    assert found["eager"]["status"] == "ok"
    assert found["autocast"]["status"] == "not_applied" and "autocast" in found["autocast"]["reason"]
