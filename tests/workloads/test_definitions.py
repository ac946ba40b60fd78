"""Workloads can be listed with no framework, describe themselves, and the suite that comes with them names only what exists."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from steelyard.codec import load_experiment
from steelyard.registry import suites
from tests.workloads.tiny import MODELS, NARROW, OURS

EVERY = {**OURS, **MODELS, **NARROW}
FORMATS = {"op/int_matmul": "int8", "op/scaled_matmul": "fp8e4m3"}
TORCH_ALONE = {*MODELS, "op/scaled_matmul"}
EVERYWHERE = {
    "op/matmul", "op/bmm", "op/linear", "op/softmax", "op/layer_norm", "op/rms_norm", "op/gelu", "op/sdpa", "layer/linear",
    "layer/ln_linear", "layer/attention", "layer/mlp", "layer/transformer_block", "model/bert", "model/gpt", "model/resnet50",
    "model/mlp", "model/vit",
}  # fmt: skip
LISTING = """
import importlib, pathlib, sys
import steelyard.workloads as rooms
for room in ("ops", "layers", "models"):
    for file in sorted(pathlib.Path(rooms.__path__[0], room).glob("[!_]*.py")):
        importlib.import_module(f"steelyard.workloads.{room}.{file.stem}")
print(*sorted({"torch", "numpy", "jax", "tensorflow"} & set(sys.modules)))
"""


def test_importing_every_module_imports_no_framework_and_no_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", EVERY)
def test_a_workload_describes_itself(name: str) -> None:
    item = EVERY[name]
    assert item.doc.endswith(".") and "bound" in item.doc
    assert item.tags[0] == name.partition("/")[0] and set(item.tags[1:]) & {"memory", "compute", "latency"}
    assert item.axes["dtype"] == (FORMATS.get(name, "fp32"),)
    frameworks = {"torch", "numpy", "jax", "tensorflow"} if name in EVERYWHERE else {"torch"} if name in TORCH_ALONE else {"torch", "numpy"}
    assert set(item.bodies) == frameworks
    assert set(item.sizes) == {"small", "h200"}
    assert all(set(preset) <= set(item.axes) for preset in item.sizes.values())


@pytest.mark.parametrize("name", EVERY)
def test_the_default_run_is_one_case(name: str) -> None:
    cases = list(itertools.product(*EVERY[name].axes.values()))
    assert len(cases) == (2 if name == "op/softmax" else 1)


def test_quickstart_names_only_what_exists_and_compares_each_compiled_case_with_its_twin() -> None:
    experiment = load_experiment(Path(suites()["quickstart"]))
    cases: Counter[tuple[str, str, str]] = Counter()
    for matrix in experiment.matrix:
        for workload, backend, variant in itertools.product(matrix.workload, matrix.backend, matrix.variant or ("eager",)):
            item = OURS[workload]
            assert backend in item.bodies and set(matrix.axes) <= set(item.axes)
            points = itertools.product(*(matrix.axes.get(axis, values) for axis, values in item.axes.items()))
            cases[workload, backend, variant] += len(list(points))
    compiled = [(workload, backend) for workload, backend, variant in cases if variant == "compile"]
    assert 2 <= len(compiled) <= 3 and all((*pair, "eager") in cases for pair in compiled)
    assert set(cases.values()) == {1} and 10 <= len(cases) <= 14
    assert {backend for _, backend, _ in cases} == {"torch", "numpy"}
