"""The original's import names: its definitions, its models and its lists are ours, and a user's own file goes before them."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.dialects.openxla import catalogue, definitions, names, suite, templates
from steelyard.errors import Unsupported, UsageError
from steelyard.model.addresses import OFFLINE
from steelyard.workloads.models import inference
from tests.artifacts.serving import serving


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


def test_machines_have_the_originals_names_in_its_modules() -> None:
    held = importlib.import_module("openxla.benchmark.devices")
    assert list(definitions.DEVICES) == held.ALL_DEVICE_NAMES
    gcp = importlib.import_module("openxla.benchmark.devices.gcp_devices")
    assert gcp.ALL_DEVICES == [gcp.GCP_A2_HIGHGPU_1G, gcp.GCP_C2_STANDARD_16, gcp.GCP_C2_STANDARD_60]
    assert (gcp.GCP_A2_HIGHGPU_1G.accelerator_model, gcp.GCP_A2_HIGHGPU_1G.accelerator_architecture) == ("nvidia-a100", "ampere")
    host = importlib.import_module("openxla.benchmark.devices.host_devices")
    assert host.ALL_DEVICES == [host.HOST_GPU, host.HOST_CPU]
    mobile = importlib.import_module("openxla.benchmark.devices.mobile_devices")
    assert mobile.ALL_DEVICES == [mobile.MOBILE_PIXEL_6_PRO, mobile.MOBILE_PIXEL_8_PRO]


def test_models_in_many_sizes_have_the_originals_names() -> None:
    """As the document names them: a model by its size, and a case of each."""
    models = importlib.import_module("openxla.benchmark.comparative_suite.pt.model_definitions")
    cases = importlib.import_module("openxla.benchmark.comparative_suite.pt.benchmark_definitions")
    assert [*models.EXAMPLE_FP32_PT_BATCHES] == [*cases.EXAMPLE_FP32_PT_CASES] == [1, 16, 32]
    assert cases.EXAMPLE_FP32_PT_CASES[16].model is models.EXAMPLE_FP32_PT_BATCHES[16] is models.EXAMPLE_FP32_PT_BATCH16
    jax = importlib.import_module("openxla.benchmark.comparative_suite.jax.benchmark_definitions")
    assert [*jax.BERT_BASE_BF16_JAX_I32_INPUT_SEQUENCE_CASES] == [8, 32, 64, 128, 256, 512]
    assert [*jax.T5_4CG_SMALL_FP32_JAX_1X128XI32_GENS] == [*jax.T5_4CG_SMALL_FP32_JAX_1X128XI32_GEN_CASES] == [16, 32, 64, 128, 256]
    assert jax.VIT_CLASSIFICATION_JAX_3X224X224XF32_CASE.model.name == "VIT_CLASSIFICATION_JAX_3X224X224XF32"


def test_what_models_of_theirs_are_helped_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (5, 7), (250, 0, 0)).save(tmp_path / "red.png")
    utils = importlib.import_module("openxla.benchmark.models.utils")
    with serving(tmp_path) as site:
        made = utils.download_and_read_img(f"{site.url}/red.png", width=20, height=10)
        assert made.size == (20, 10) and made.getpixel((3, 3)) == (250, 0, 0)
        with pytest.raises(Unsupported, match="cannot be downloaded"):
            utils.download_and_read_img(f"{site.url}/blue.png")
        monkeypatch.setenv(OFFLINE, "1")
        with pytest.raises(Unsupported, match="--no-download is set"):
            utils.download_and_read_img(f"{site.url}/red.png")
    with pytest.raises(UsageError, match="not an http address"):
        utils.download_and_read_img("file:///etc/passwd")


@pytest.mark.torch
def test_a_definition_becomes_its_model() -> None:
    models = importlib.import_module("openxla.benchmark.comparative_suite.pt.model_definitions")
    small = dataclasses.replace(models.EXAMPLE_FP32_PT_BATCH1, model_parameters={"batch_size": 2, "preset": "tiny", "framework": "pytorch"})
    made = importlib.import_module("openxla.benchmark.models.utils").create_model_obj(small)
    assert made.preprocess(made.generate_default_inputs()).shape[0] == 2


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
    assert counts == {"pt": 33, "jax": 106, "tf": 26, "tflite": 28}
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
