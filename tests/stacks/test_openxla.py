"""OpenXLA's tools in JAX and TensorFlow: tiny models of the suite and one of the user's own, compiled, verified, with each tool's keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.errors import NOTHING, PASS

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]

NAMES = {
    "jax": "models/(BERT_LARGE_FP16_JAX_384XI32_BATCH1|VIT_CLASSIFICATION_JAX_3X224X224XF32)/.+",
    "tensorflow": "models/BERT_LARGE_FP32_TF_384XI32_BATCH1/.+",
}
OWN_KEYS = {"jax": {"input_data_transfer_ms", "output_data_transfer_ms"}, "tensorflow": {"device_memory_peak_mb"}}
MODEL = """\
import numpy as np
import jax.numpy as jnp


class Sums:
    def __init__(self, batch_size):
        self.batch_size = batch_size

    def generate_default_inputs(self):
        return 12

    def preprocess(self, count):
        return tuple(np.full((self.batch_size,), number, np.float32) for number in range(count))

    def forward(self, *args):
        assert len(args) == 12
        return jnp.stack(args), args[3] > 2


def create_model(batch_size):
    return Sums(batch_size)
"""
DEFINITIONS = """\
from openxla.benchmark import def_types, testdata

IMPL = def_types.ModelImplementation(name="SUMS", tags=[], framework_type=def_types.ModelFrameworkType.JAX, module_path="sums")
MODEL = def_types.Model(name="SUMS_JAX_BATCH2", tags=["batch-2"], model_impl=IMPL, model_parameters={"batch_size": 2})
ALL_MODELS = [MODEL]
ALL_BENCHMARKS = [def_types.BenchmarkCase.build(model=MODEL, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]
"""
DENSE = """\
import numpy as np


class Dense:
    def __init__(self, dtype, form):
        self.weight, self.form = np.full((4, 4), 0.5, np.float32), form
        if form == "jax":
            import jax.numpy as jnp
            self.weight = jnp.asarray(self.weight, {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[dtype])
        else:
            import tensorflow as tf
            self.weight = tf.Variable(tf.cast(self.weight, {"fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}[dtype]))

    def generate_default_inputs(self):
        return np.ones((2, 4), np.float32)

    def preprocess(self, rows):
        return rows

    def forward(self, rows):
        if self.form == "jax":
            return (rows.astype(self.weight.dtype) @ self.weight).astype("float32")
        import tensorflow as tf
        return tf.cast(tf.cast(rows, self.weight.dtype) @ self.weight, tf.float32)


def create_model(data_type, form, heeds):
    return Dense(data_type if heeds else "fp32", form)
"""
DENSE_DEFINITIONS = """\
from openxla.benchmark import def_types as d, testdata

KINDS = {"jax": d.ModelFrameworkType.JAX, "tensorflow": d.ModelFrameworkType.TF_V2}
IMPLS = {form: d.ModelImplementation(name="DENSE", tags=[], framework_type=kind, module_path="dense") for form, kind in KINDS.items()}
ALL_MODELS = [
    d.Model(name=f"DENSE_{dtype.upper()}_{heeds}".upper(), tags=[], model_impl=impl,
            model_parameters={"data_type": dtype, "form": form, "heeds": heeds})
    for form, impl in IMPLS.items() for dtype in ("fp32", "fp16", "bf16") for heeds in (True, False)
]
ALL_BENCHMARKS = [d.BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT) for model in ALL_MODELS]
"""


@pytest.fixture
def home(built: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A working folder where the environment of a stack is found."""

    def open_at(stack: str) -> Path:
        monkeypatch.setenv("STEELYARD_ENVS", built(stack))
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return open_at


@pytest.mark.parametrize("tool", NAMES)
def test_models_of_the_suite_are_compiled_and_right(tool: str, home: Callable[[str], Path]) -> None:
    home(tool)
    words = ["-name", NAMES[tool], "-device", "host-cpu", "-o", "r.json", "--preset", "tiny", "-w", "2", "-iter", "3", "--strict-exit"]
    assert main(["as", "openxla", tool, *words]) == PASS
    for item in json.loads(Path("r.json").read_text())["benchmarks"]:
        found = item["metrics"]["framework_level"]
        assert OWN_KEYS[tool] <= set(found)
        assert found["compile_time_ms"] > 0
        assert item["steelyard"]["verification"]["status"] == "passed"
        assert item["definition"]["data_type"] in {dtype for dtype, _ in item["steelyard"]["effective"]["outputs"]}


def test_a_users_model_in_jax_keeps_the_order_of_twelve_arguments(home: Callable[[str], Path]) -> None:
    folder = home("jax")
    (folder / "suite").mkdir()
    (folder / "suite" / "sums.py").write_text(MODEL)
    (folder / "suite" / "my_definitions.py").write_text(DEFINITIONS)
    words = ["-name", "models/SUMS.+", "-device", "host-cpu", "-o", "r.json", "--definitions", "suite", "-w", "1", "-iter", "2"]
    assert main(["as", "openxla", "jax", *words, "--strict-exit"]) == PASS
    [item] = json.loads(Path("r.json").read_text())["benchmarks"]
    assert item["steelyard"]["effective"]["outputs"] == [["fp32", [12, 2]], ["bool", [2]]]
    assert item["definition"]["data_type"] is None


@pytest.mark.parametrize("tool", NAMES)
def test_a_model_that_ignores_its_data_type_is_not_measured_under_that_name(tool: str, home: Callable[[str], Path]) -> None:
    folder = home(tool)
    (folder / "suite").mkdir()
    (folder / "suite" / "dense.py").write_text(DENSE)
    (folder / "suite" / "my_definitions.py").write_text(DENSE_DEFINITIONS)
    words = ["-name", "models/DENSE.+", "-device", "host-cpu", "-o", "r.json", "--definitions", "suite", "-w", "1", "-iter", "2"]
    assert main(["as", "openxla", tool, *words, "--run-in-process"]) == PASS
    found = {item["definition"]["benchmark_name"].split("/")[1]: item for item in json.loads(Path("r.json").read_text())["benchmarks"]}
    ignored = {"DENSE_FP16_FALSE", "DENSE_BF16_FALSE"}
    assert {name: item["steelyard"]["status"] for name, item in found.items()} == {
        f"DENSE_{dtype}_{heeds}": "not_applied" if f"DENSE_{dtype}_{heeds}" in ignored else "ok"
        for dtype in ("FP32", "FP16", "BF16")
        for heeds in ("TRUE", "FALSE")
    }
    for name in ignored:
        assert "its weights and products are fp32" in found[name]["metrics"]["framework_level"]["error"]


def test_a_framework_that_is_not_here_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-name", NAMES["tensorflow"], "-device", "host-cpu", "-o", "r.json", "--strict-exit"]
    assert main(["as", "openxla", "tensorflow", *words]) == NOTHING
    [item] = json.loads(Path("r.json").read_text())["benchmarks"]
    assert "steelyard env create tensorflow" in item["steelyard"]["reason"]
