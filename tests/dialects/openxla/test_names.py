"""The original's import names: its definitions, its models and its lists are ours, and a user's own file goes before them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.dialects.openxla import catalogue, definitions, names, suite, templates
from steelyard.workloads.models import inference


@pytest.fixture(autouse=True)
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With the names in place, and without a trace afterwards."""
    before = list(sys.meta_path)
    monkeypatch.syspath_prepend(tmp_path)
    names.serve()
    yield tmp_path
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "openxla"]:
        del sys.modules[name]


def test_definitions_templates_and_interfaces_are_ours() -> None:
    assert importlib.import_module("openxla.benchmark.def_types").Model is definitions.Model
    assert importlib.import_module("openxla.benchmark.testdata").INPUT_DATA_MODEL_DEFAULT is definitions.INPUT_DATA_MODEL_DEFAULT
    assert importlib.import_module("openxla.benchmark.comparative_suite.utils").ModelTemplate is templates.ModelTemplate
    assert importlib.import_module("openxla.benchmark.models.model_interfaces").InferenceModel is inference.InferenceModel
    assert importlib.import_module("openxla.benchmark.models.jax.jax_model_interface").JaxInferenceModel is inference.FunctionalModel
    assert importlib.import_module("openxla.benchmark.models.utils").canonicalize_to_tuple(1) == (1,)
    assert importlib.import_module("openxla.benchmark.devices.gcp_devices").C2_STANDARD_60.name == "c2-standard-60"


@pytest.mark.torch
def test_the_documents_own_model_is_served_by_its_path() -> None:
    made = importlib.import_module("openxla.benchmark.models.pt.example.example_model").create_model(batch_size=2, preset="tiny")
    assert isinstance(made, inference.InferenceModel)
    assert made.forward(*inference.as_tuple(made.preprocess(made.generate_default_inputs()))).shape[0] == 2


def test_lists_are_those_of_the_suite_by_framework() -> None:
    counts = {
        short: len(importlib.import_module(f"openxla.benchmark.comparative_suite.{short}.model_definitions").ALL_MODELS)
        for short in names.FRAMEWORKS
    }
    assert counts == {"pt": 33, "jax": 106, "tf": 26}
    cases = importlib.import_module("openxla.benchmark.comparative_suite.tf.benchmark_definitions").ALL_BENCHMARKS
    assert {catalogue.tool_of(case) for case in cases} == {"tensorflow"}
    assert len(suite.ALL_MODELS) == 193


def test_a_file_of_the_users_goes_before_a_model_of_ours_and_others_are_theirs(served: Path) -> None:
    folder = served / "openxla" / "benchmark" / "models" / "pt"
    for name in ("example/example_model.py", "mine/mine.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(f"create_model = {name!r}.strip\n")
    for name in ("example.example_model", "mine.mine"):
        assert importlib.import_module(f"openxla.benchmark.models.pt.{name}").create_model() == f"{name.replace('.', '/')}.py"
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        importlib.import_module("openxla.benchmark.nothing")


def test_a_plain_object_with_the_methods_is_an_inference_model() -> None:
    methods = dict.fromkeys(inference.METHODS, lambda *args: args)
    assert isinstance(type("Plain", (), methods)(), inference.InferenceModel)
    assert not isinstance(object(), inference.InferenceModel)
    own = type("Own", (inference.InferenceModel,), {})()
    assert own.postprocess("x") == "x"
