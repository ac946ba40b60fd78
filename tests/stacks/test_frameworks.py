"""JAX and TensorFlow in their own environments: one table with torch, one reference, pairs across interpreters, and what they lack."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import envs
from tests.engine.drive import PROGRAM

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]

MODELS = ("model/bert", "model/resnet50", "model/gpt", "model/vit")
PARTS = ("op/matmul", "op/softmax", "op/layer_norm", "op/sdpa", "layer/mlp", "layer/transformer_block")
STACKS = {"torch": "eager", "jax": "jit", "tensorflow": "graph"}

PHILOX = """
import jax, ml_dtypes, numpy as np
from steelyard.backends import _jax_numbers, _numbers
from steelyard.backends.jax import in_double
for stream in ((5, 1), (2**63 + 5, 2**64 - 3)):
    for shape in ((7,), (1000, 33)):
        want = _numbers.HostNumbers(stream).normals(int(np.prod(shape))).reshape(shape) * np.float32(0.37)
        for dtype in (np.float32, ml_dtypes.bfloat16):
            with in_double(True):
                got = np.asarray(_jax_numbers.normals(stream, shape, 0.37, dtype))
            assert got.tobytes() == want.astype(dtype).tobytes(), (stream, shape, dtype)
"""

KEPT = """
import numpy as np, jax
from steelyard.backends import _jax_runtime as runtime
from steelyard.backends.jax import Jax

be = Jax("cpu")
def programs(call):
    before = runtime.COMPILATIONS.programs
    call()
    return runtime.COMPILATIONS.programs - before

def built(number):
    held = be.array(np.full(4, number), "fp32")
    return runtime.KeptProgram(lambda x: x * held)(held)

assert [programs(lambda: built(number)) for number in (1.0, 1.0, 2.0, 2.0)] == [1, 0, 1, 0]
assert [float(built(number)[0]) for number in (1.0, 2.0)] == [1.0, 4.0]
runtime.LESS_EFFORT["cpu"] = {"xla_no_such_option": 1}
assert float(built(3.0)[0]) == 9.0
"""
TRAINED = """
from steelyard import registry
from steelyard.backends._jax_runtime import COMPILATIONS
from steelyard.engine import weigh
from steelyard.model.case import Case, sorted_pairs
from steelyard.model.experiment import Settings

loaded = registry.built_ins()
axes = {name: values[0] for name, values in loaded.workloads["layer/mlp"].axes.items()} | {"seq": 4, "hidden": 8, "ffn": 16}
case = Case("layer/mlp", sorted_pairs(axes), "jax", "jit", mode="train")
record, _ = weigh.CaseWeighing(case, loaded, Settings(budget=0.01)).record()
assert (record.status, record.verification.against) == ("ok", "jax fp64"), record
assert "answer after timing" in record.verification.checks[-1], record.verification
assert COMPILATIONS.programs <= 4, COMPILATIONS.programs
"""

STALE = """
from dataclasses import replace

from steelyard import Task, workload


@workload("mine/double", axes={"n": [64]}, backend=["numpy", "jax", "tensorflow"])
def double(n, be):
    return Task(lambda x: x * 2.0, (be.randn(n),))


@double.variant("stale", backends=["jax", "tensorflow"])
def stale(task):
    held = []

    def fn(x):
        if not held:
            held.append(task.fn(x))
        return held[0]

    return replace(task, fn=fn)
"""


@pytest.fixture(autouse=True)
def with_both(apart: Path, built: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both environments in one folder, whether they were given or are built here."""
    homes = {built(stack) for stack in ("jax", "tensorflow")}
    assert len(homes) == 1, "give both environments in STEELYARD_ENVS, or neither"
    monkeypatch.setenv("STEELYARD_ENVS", homes.pop())


def measure(folder: Path, *words: str, check: int = 0) -> tuple[str, dict[str, Any]]:
    """One command: its table, and all that it found."""
    done = subprocess.run([*PROGRAM, "run", *words], cwd=folder, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    shown = subprocess.run([*PROGRAM, "show", "latest", "--json"], cwd=folder, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(shown.stdout)
    return done.stdout, found


def test_three_frameworks_are_one_table_with_one_reference(tmp_path: Path) -> None:
    table, found = measure(tmp_path, *MODELS, *PARTS, "-a", "size=small", "-B", ",".join(STACKS), "--budget", "20ms", "--timeout", "900s")
    records = found["records"]
    assert {(item["case"]["workload"], item["case"]["backend"], item["case"]["variant"]) for item in records} == {
        (name, backend, variant) for name in (*MODELS, *PARTS) for backend, variant in STACKS.items()
    }
    for record in records:
        seen = record["verification"]
        assert (record["status"], seen["status"], seen["against"]) == ("ok", "passed", "numpy fp64"), record["id"]
        if record["case"]["backend"] != "torch":
            assert "inputs unchanged" in seen["checks"] and any("other values" in check for check in seen["checks"]), record["id"]
            check_phases(record)
    assert len({record["environment"]["python"] for record in records}) >= 1 and "tensorflow" in table and "jax" in table


def check_phases(record: dict[str, Any]) -> None:
    """What went into the first call, what the compiler says of the program, and the kernel of the process."""
    figures, facts = record["metrics"], record["effective"]
    assert figures["tracing_time"]["value"] > 0 and figures["first_run_time"]["value"] > 0
    assert figures["first_call_time"]["value"] >= figures["tracing_time"]["value"]
    assert facts["host_memory"]["VmHWM"] >= facts["host_memory"]["VmRSS"] > facts["host_memory"]["RssFile"] > 0
    if record["case"]["backend"] == "jax":
        assert figures["lowering_time"]["value"] > 0 and figures["compiling_time"]["value"] > 0
        assert facts["xla"]["flops"] > 0 and facts["xla"]["bytes"] > 0 and facts["xla"]["memory"]["argument"] > 0
        assert figures["program_memory"]["value"] > 0
    else:
        assert facts["graph"]["operations"] > 1


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_every_way_of_running_has_the_same_reference(backend: str, tmp_path: Path) -> None:
    ways = {"jax": ["eager", "jit"], "tensorflow": ["eager", "graph", "jit"]}[backend]
    words = ("model/bert", "op/softmax", "-a", "size=small", "-a", "dtype=fp32,bf16", "-B", backend, "-V", ",".join(ways))
    _, found = measure(tmp_path, *words, "--budget", "20ms")
    assert len(found["records"]) == 4 * len(ways)
    for record in found["records"]:
        assert (record["status"], record["verification"]["against"]) == ("ok", "numpy fp64"), record["id"]


def test_jax_trains_and_its_gradients_are_those_of_double_precision(tmp_path: Path) -> None:
    names = (*MODELS, "layer/mlp")
    _, found = measure(tmp_path, *names, "-a", "size=small", "-B", "jax", "--mode", "train", "--budget", "20ms", "--timeout", "900s")
    assert [record["case"]["workload"] for record in found["records"]] == list(names)
    for record in found["records"]:
        assert (record["status"], record["verification"]["against"]) == ("ok", "jax fp64"), (record["id"], record["reason"])
        assert any(check.startswith("answer after timing") for check in record["verification"]["checks"])


def test_torch_is_weighed_against_jax_in_two_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    words = ("layer/mlp", "-a", "size=small", "-B", "torch,jax,tensorflow", "--vs", "torch/eager", "--budget", "50ms", "--runs", "2")
    table, found = measure(tmp_path, *words)
    assert [pair["head"]["id"].split("@")[1] for pair in found["pairs"]] == ["jax/jit:eval", "tensorflow/graph:eval"]
    for pair in found["pairs"]:
        assert pair["base"]["id"].endswith("@torch/eager:eval") and pair["layout"] == "free: two backends"
    assert "vs torch/eager" in table and "not weighed" not in table
    assert list((tmp_path / "tmp").glob("__autograph_generated_file*")) == [], "tf.function writes its Python there"


def test_ways_of_running_jax_are_weighed_in_one_process(tmp_path: Path) -> None:
    _, found = measure(tmp_path, "model/bert", "-a", "size=small", "-B", "jax", "--vs", "eager", "--budget", "50ms", "--runs", "2")
    [pair] = found["pairs"]
    assert pair["base"]["id"].endswith("@jax/eager:eval") and pair["head"]["id"].endswith("@jax/jit:eval")


def test_an_answer_kept_from_an_earlier_call_is_wrong_although_arrays_cannot_change(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STALE)
    _, found = measure(tmp_path, "mine.py", "-B", "jax,tensorflow", "-V", "eager,stale", "--budget", "20ms", check=3)
    status = {(record["case"]["backend"], record["case"]["variant"]): record for record in found["records"]}
    for backend in ("jax", "tensorflow"):
        assert status[backend, "eager"]["status"] == "ok", status[backend, "eager"]["reason"]
        assert status[backend, "stale"]["status"] == "wrong" and "old values" in status[backend, "stale"]["reason"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("op/matmul", "-B", "jax", "-a", "dtype=fp64"), "backend jax has no fp64"),
        (("op/matmul", "-B", "jax", "-d", "cuda"), "no cuda device here"),
        (("op/matmul", "-B", "tensorflow", "-d", "cuda"), "no cuda device here"),
        (("op/topk", "-B", "jax"), "op/topk has no implementation for backend jax"),
        (("op/matmul", "-B", "jax", "-V", "graph"), "variant graph works with tensorflow"),
    ],
)
def test_what_they_lack_is_unsupported_with_the_reason(words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    _, found = measure(tmp_path, *words, check=5)
    [record] = found["records"]
    assert record["status"] == "unsupported" and reason in record["reason"]


@pytest.mark.parametrize(("backend", "mode"), [("tensorflow", "train"), ("jax", "bwd")])
def test_modes_they_lack_are_not_applicable(backend: str, mode: str, tmp_path: Path) -> None:
    _, found = measure(tmp_path, "layer/mlp", "-a", "size=small", "-B", backend, "--mode", mode, check=5)
    assert [record["status"] for record in found["records"]] == ["not_applicable"]


@pytest.mark.parametrize("script", [PHILOX, KEPT, TRAINED], ids=["numbers have the bits of numpy", "a program is kept", "a step's too"])
def test_jax_by_itself(script: str, tmp_path: Path) -> None:
    place = envs.place("jax")
    done = subprocess.run(
        [str(place.python), "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(place.search_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
