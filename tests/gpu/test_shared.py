"""Cases on a GPU share a worker: what one leaves behind reaches no other, and a fault costs its case alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

OWN = """
import contextlib
import os
from dataclasses import replace

import torch

from steelyard import Task, variant, workload

KEPT = []


def product(x, y):
    return x @ y


def task_of(fn, n, be):
    x, y = be.randn(n, n), be.randn(n, n)
    return Task(fn, (x, y), reference=lambda: x.double() @ y.double(), tolerance=(0.1, 1.0), any_dtype=True, effective={"pid": os.getpid()})


@workload("my/product", axes={"n": [1024]})
def fp32(n, be):
    return task_of(torch.matmul, n, be)


@workload("my/compiled", axes={"n": [1024]})
def compiled(n, be):
    return task_of(torch.compile(product), n, be)


@workload("my/indexed", axes={"n": [1024]})
def indexed(n, be):
    index = be.integers(0, n, n)
    return Task(lambda x, at: x[at], (be.randn(n), index), effective={"pid": os.getpid()})


def again(task):
    return replace(task, fn=lambda *args: task.fn(*args))


@variant("tf32_left")
def tf32_left(task):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("medium")
    return again(task)


@variant("autocast_left")
def autocast_left(task):
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    return again(task)


@variant("memory_left")
def memory_left(task):
    KEPT.append(torch.zeros(3 * 2**28, dtype=torch.uint8, device="cuda"))
    return again(task)


@variant("compiler_left")
def compiler_left(task):
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.recompile_limit = 1
    torch._inductor.config.force_disable_caches = True
    known = torch.compile(product, dynamic=False)
    for n in (8, 16, 24):
        with contextlib.suppress(Exception):
            known(*(torch.zeros(n, n, device="cuda") for _ in "xy"))
    return again(task)


@variant("outside")
def outside(task):
    x, y = task.args
    return again(task) if y.is_floating_point() else replace(task, args=(x, y + 10**6))
"""


def measured(folder: Path, *words: str, check: int | None = 0) -> dict[str, dict[str, Any]]:
    """Records by workload and variant."""
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    command = ["run", "own.py", *words, "-d", "cuda", "--budget", "20ms", "--json"]
    told = json.loads(steelyard(*command, cwd=folder, check=check).stdout)
    return {f"{item['case']['workload']}/{item['case']['variant']}": item for item in told["records"]}


def test_what_a_variant_leaves_behind_does_not_reach_the_next(tmp_path: Path) -> None:
    alone = measured(tmp_path, "my/product", "my/compiled", "-V", "eager", "--isolate", "case")
    left = ["tf32_left", "autocast_left", "memory_left", "compiler_left"]
    shared = measured(tmp_path, "my/product", "my/compiled", "-V", ",".join([*left, "eager"]), "--isolate", "shared")
    assert {item["status"] for item in shared.values()} == {"ok"}, {name: item["reason"] for name, item in shared.items()}
    errors = {name: item["verification"]["max_rel"] for name, item in shared.items()}
    assert errors["my/product/tf32_left"] > 3 * errors["my/product/eager"], "the variant's own setting holds for itself"
    for name, item in alone.items():
        assert errors[name] == item["verification"]["max_rel"], name
        assert shared[name]["metrics"]["peak_allocated"]["value"] == item["metrics"]["peak_allocated"]["value"], name


def test_cases_share_a_worker_until_memory_is_kept(tmp_path: Path) -> None:
    found = measured(tmp_path, "my/product", "my/indexed", "-V", "eager,tf32_left")
    assert len({item["effective"]["pid"] for item in found.values()}) == 1
    found = measured(tmp_path, "my/product", "my/indexed", "-V", "memory_left,eager")
    assert len({item["effective"]["pid"] for item in found.values()}) > 1


def test_a_fault_costs_its_case_alone(tmp_path: Path) -> None:
    found = measured(tmp_path, "my/product", "my/indexed", "my/compiled", "-V", "eager,outside", check=None)
    statuses = {name: item["status"] for name, item in found.items()}
    assert statuses.pop("my/indexed/outside") in ("failed", "crashed")
    assert set(statuses.values()) == {"ok"} and len(statuses) == 5, statuses
