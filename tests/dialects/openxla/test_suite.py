"""The suite has the original's models by name and number, each with a case of its own; its definitions import no framework."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from steelyard.dialects.openxla import catalogue, suite
from steelyard.dialects.openxla.definitions import ModelFrameworkType
from steelyard.dialects.openxla.lint import findings
from steelyard.workloads.models.families import FAMILIES

F = ModelFrameworkType
COUNTS = {F.JAX: 106, F.PYTORCH: 33, F.TF_V2: 26, F.TFLITE: 28}
"""How many models the original has."""
LEFT_OUT = 4
"""Cases that the original dropped for want of memory."""
FRAMEWORKS = ("torch", "jax", "tensorflow", "numpy", "transformers")
NAMES = {
    "T5_LARGE_BF16_JAX_512XI32_BATCH512": {"batch_size": 512, "data_type": "bf16", "model_name": "t5-large", "seq_len": 512},
    "T5_SMALL_FP32_JAX_1X128XI32": {"batch_size": 1, "model_name": "t5-small", "seq_len": 128},
    "T5_4CG_SMALL_FP32_JAX_1X128XI32_GEN256": {"max_new_tokens": 256, "seq_len": 128},
    "BERT_LARGE_FP16_JAX_384XI32_BATCH1280": {"batch_size": 1280, "data_type": "fp16", "seq_len": 384},
    "BERT_BASE_FP32_JAX_I32_SEQLEN8": {"seq_len": 8, "model_name": "bert-base-uncased"},
    "RESNET50_BF16_JAX_3X224X224XBF16_BATCH2048": {"batch_size": 2048, "data_type": "bf16"},
    "GPT2LMHEAD_FP32_JAX_512XI32_BATCH64": {"batch_size": 64},
    "GPT2LMHEAD_PIPELINE_JAX_1X4XI32": {"batch_size": 1, "framework": "jax"},
    "SD_PIPELINE_FP16_JAX_64XI32_BATCH8": {"batch_size": 8, "data_type": "fp16"},
    "VIT_CLASSIFICATION_JAX_3X224X224XF32": {"data_type": "fp32", "framework": "jax"},
    "EXAMPLE_FP32_PT_BATCH32": {"batch_size": 32, "framework": "pytorch"},
    "RESNET50_FP16_PT_3X224X224XF16_BATCH2048": {"model_name": "torchvision/resnet50"},
    "T5_LARGE_FP32_TF_512XI32_BATCH24": {"framework": "tensorflow"},
    "EFFICIENTNETB7_FP32_TF_600X600X3XF32_BATCH128": {"model_name": "efficientnetb7"},
    "GPT2LMHEAD_PIPELINE_TF_1X4XI32": {"framework": "tensorflow"},
    "BERT_BASE_DYN_QUANT_TFLITE_I32_SEQLEN512": {"data_type": "dyn-quant", "model": "BERT_BASE_FP32_JAX_I32_SEQLEN512"},
    "VIT_CLASSIFICATION_INT8_TFLITE_3X224X224XINT8": {"artifact": "tflite_int8"},
}


def test_there_are_as_many_models_as_in_the_original() -> None:
    found = Counter(model.model_impl.framework_type for model in suite.ALL_MODELS)
    print({kind.name: count for kind, count in found.items()})
    assert found == COUNTS and len({model.name for model in suite.ALL_MODELS}) == 193


@pytest.mark.parametrize("name", NAMES)
def test_a_model_by_its_name_has_the_original_sizes(name: str) -> None:
    (model,) = (item for item in suite.ALL_MODELS if item.name == name)
    assert NAMES[name].items() <= model.model_parameters.items()


def test_every_model_has_one_case_of_its_own_and_nothing_is_wrong_with_it() -> None:
    assert [case.name for case in suite.ALL_BENCHMARKS] == [f"models/{m.name}/inputs/INPUT_DATA_MODEL_DEFAULT" for m in suite.ALL_MODELS]
    assert all(case.model.name in case.name for case in suite.ALL_BENCHMARKS)
    assert findings(catalogue.of_suite()) == []


def test_tolerances_are_the_original_ones() -> None:
    found = {case.model.name: case.verify_parameters["absolute_tolerance"] for case in suite.ALL_BENCHMARKS}
    assert {value for name, value in found.items() if name.startswith("EXAMPLE")} == {0.1}
    assert {value for name, value in found.items() if "TFLITE" in name and ("DYN_QUANT" in name or "INT8" in name)} == {2.0}
    rest = {value for name, value in found.items() if not name.startswith("EXAMPLE") and "DYN_QUANT" not in name and "INT8" not in name}
    assert rest == {0.5} and {case.verify_parameters["relative_tolerance"] for case in suite.ALL_BENCHMARKS} == {0}


def test_what_cannot_run_is_expected_with_its_reason() -> None:
    kinds = {case.name: case.model.model_impl.framework_type for case in suite.ALL_BENCHMARKS}
    assert Counter(kinds[name] for name in suite.EXPECTED) == {F.TFLITE: 28, F.PYTORCH: LEFT_OUT} and all(suite.EXPECTED.values())
    large = {name for name in suite.EXPECTED if kinds[name] is F.PYTORCH}
    assert {name.partition("BATCH")[2].partition("/")[0] for name in large} == {"512", "1024", "1280", "2048"}
    assert all("FP16" in name for name in large)
    tiny = [case for case in catalogue.of_suite("tiny").cases if case.name in large]
    assert [suite.expected(case) for case in tiny] == [""] * LEFT_OUT


def test_every_module_takes_the_parameters_of_its_models() -> None:
    for model in catalogue.of_suite("tiny").models:
        if model.model_impl.framework_type is not F.TFLITE:
            made = importlib.import_module(model.model_impl.module_path or "").create_model
            inspect.signature(made).bind(**model.model_parameters)


def test_the_page_of_families_names_every_one() -> None:
    lines = (Path(__file__).parents[3] / "docs" / "reference" / "model-families.md").read_text(encoding="utf-8").splitlines()
    for family in FAMILIES:
        (line,) = (item for item in lines if item.startswith(f"| {family.name} |"))
        assert f"`{family.module}`" in line and family.framework in line and all(f"`{name}`" in line for name in family.models)


def test_reading_the_suite_imports_no_framework() -> None:
    code = f"import sys, steelyard.dialects.openxla.suite as s; print(len(s.ALL_MODELS), [m for m in {FRAMEWORKS!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[0] == "193 []"
