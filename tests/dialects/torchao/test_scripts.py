"""The original's two functions as scripts call them: with its own arguments, and with recipes and models that a script registers."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard import register_model, register_recipe
from steelyard.errors import Unsupported, UsageError
from steelyard.torchao_bench import create_model_and_input_data, string_to_config

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHARED = """
from steelyard import register_model, register_recipe

register_recipe("{name}", lambda bits=3: ("theirs", bits), params={{"bits": 5}})
"""


@register_recipe("script_recipe", params={"bits": 8})
def script_recipe(be: Any, bits: int = 8, high_precision_dtype: Any = None) -> Any:
    """A recipe that asks for what the original hands to each."""
    return bits, high_precision_dtype, be.device


@register_model("script_model")
def script_model(m: int, k: int, n: int, dtype: Any, device: Any) -> Any:
    """The guide's own model."""
    layers = (torch.nn.Linear(k, 16, bias=False), torch.nn.ReLU(), torch.nn.Linear(16, n, bias=False))
    return torch.nn.Sequential(*layers).to(device, dtype), torch.randn(m, k, device=device, dtype=dtype)


def test_they_take_the_originals_arguments() -> None:
    asked = list(inspect.signature(string_to_config).parameters.values())
    assert [item.name for item in asked[:2]] == ["quantization", "sparsity"] and asked[-1].kind is asked[-1].VAR_KEYWORD
    words = ["model_type", "m", "k", "n", "high_precision_dtype", "device", "activation"]
    assert list(inspect.signature(create_model_and_input_data).parameters) == words


def test_recipes_that_a_script_registers_are_found_with_their_words_and_options() -> None:
    assert string_to_config("script_recipe", None, device="cpu") == (8, None, "cpu")
    given = string_to_config("script_recipe-4", None, high_precision_dtype=torch.float16, device="cpu")
    assert given == (4, torch.float16, "cpu")
    assert string_to_config("script_recipe", None, bits=2, device="cpu")[0] == 2
    with pytest.raises(UsageError, match="no recipe named 'script_recipes'"):
        string_to_config("script_recipes")
    with pytest.raises(UsageError, match="no option of recipe script_recipe named 'bit'"):
        string_to_config("script_recipe", bit=3)
    with pytest.raises(UsageError, match="no recipe named 'compile'"):
        string_to_config("compile")


def test_a_recipe_of_another_module_or_an_installed_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shared_recipe", "packed_recipe"):
        (tmp_path / f"{name}_module.py").write_text(SHARED.format(name=name))
    importlib.import_module("shared_recipe_module")
    assert string_to_config("shared_recipe-6") == ("theirs", 6)
    point = importlib.metadata.EntryPoint("packed_recipe", "packed_recipe_module", "steelyard.variants")
    monkeypatch.setattr("steelyard.registry.entry_points", lambda kind: {"packed_recipe": point} if kind == "variants" else {})
    assert string_to_config("packed_recipe") == ("theirs", 5)
    for name in ("shared_recipe", "packed_recipe"):
        del sys.modules[f"{name}_module"]


def test_the_originals_own_call_works_for_every_recipe() -> None:
    pytest.importorskip("torchao")
    assert type(string_to_config("int8wo", None, high_precision_dtype=torch.bfloat16)).__name__ == "Int8WeightOnlyConfig"
    assert string_to_config("baseline", None, high_precision_dtype=torch.bfloat16) is None


def test_models_of_a_script_and_any_workload_are_built_with_their_inputs() -> None:
    model, x = create_model_and_input_data("script_model", 2, 8, 4, high_precision_dtype=torch.float32, device="cpu")
    assert model(x).shape == (2, 4) and x.dtype == torch.float32
    again, _ = create_model_and_input_data("script_model", 2, 8, 4, torch.float32, "cpu")
    assert torch.equal(model[0].weight, again[0].weight)
    model, x = create_model_and_input_data("model/gpt", 2, 8, 4, torch.float32, "cpu", "relu")
    assert isinstance(model, torch.nn.Module)
    with pytest.raises(UsageError, match="no model named 'script_modle'"):
        create_model_and_input_data("script_modle", 1, 1, 1)
    with pytest.raises(UsageError, match="no activation"):
        create_model_and_input_data("ln_linear", 2, 8, 4, torch.float32, "cpu", "rellu")


def test_a_device_that_is_not_here_is_told_with_what_to_do() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(Unsupported, match=r"(?s)no cuda device here.*-d cpu measures on the CPU"):
        create_model_and_input_data("linear", 2, 8, 4, torch.float32, "cuda")
