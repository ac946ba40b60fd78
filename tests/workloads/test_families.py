"""Families in PyTorch at the smallest size: the interface, the formats, and answers that depend on what is asked."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
import pytest
import torch

from steelyard.errors import UsageError
from steelyard.workloads.models import bert, resnet
from steelyard.workloads.models.families import FAMILIES, _shared, mobilenet
from steelyard.workloads.models.inference import InferenceModel, as_tuple

OURS = [family for family in FAMILIES if family.framework == "pytorch"]
BESIDE = [("gpt2", "gpt2"), ("vit", "google/vit-base-patch16-224")]
"""Families that the original had in JAX alone, and that are here to compare them with."""
BUILT = [(family.module, family.models[0]) for family in OURS] + BESIDE
SIZES = {"mobilenet": 2_542_856, "resnet50": 25_557_032, "bert-base": 108_891_648, "bert-large": 334_092_288}
"""Weights of the published models; BERT's without its pooler, which is not asked for."""

TOKENS, BIAS = [1.2107486, -0.39463997, 0.22716491, 0.19203116], [0.02864224, 0.02446141]


@functools.cache
def made(module: str, name: str, **given: Any) -> Any:
    found = importlib.import_module(f"steelyard.workloads.models.families.{module}")
    return found.create_model(framework="pytorch", model_name=name, **{"preset": "tiny", "batch_size": 2, **given})


def answered(model: Any, raw: Any = None) -> torch.Tensor:
    raw = model.generate_default_inputs() if raw is None else raw
    answer: torch.Tensor = model.forward(*as_tuple(model.preprocess(raw)))
    return answer


@pytest.mark.parametrize(("module", "name"), BUILT)
def test_a_family_answers_through_the_interface(module: str, name: str) -> None:
    model = made(module, name)
    assert isinstance(model, InferenceModel)
    answer = answered(model)
    assert answer.shape[0] == 2 and bool(answer.isfinite().all()) and model.postprocess(answer) is answer
    assert torch.equal(answer[0], answer[1]), "a batch is one input, repeated"
    assert model.effective["preset"] == "tiny" and model.effective["batch_size"] == 2


@pytest.mark.parametrize(("module", "name"), BUILT)
def test_another_input_gets_another_answer(module: str, name: str) -> None:
    model = made(module, name)
    raw = model.generate_default_inputs()
    other = "two dogs at sea" if isinstance(raw, str) else np.asarray(raw)[::-1].copy()
    first, second = answered(model), answered(model, other)
    assert float((first - second).abs().max()) > 0.1 * float(first.std()), "verification would compare constants"


@pytest.mark.parametrize("data_type", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("module", "name"), BUILT)
def test_the_data_type_is_that_of_weights_inputs_and_answers(module: str, name: str, data_type: str) -> None:
    model = made(module, name, data_type=data_type)
    form = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[data_type]
    assert {item.dtype for item in model.parameters()} == {form}
    floating = {item.dtype for item in as_tuple(model.preprocess(model.generate_default_inputs())) if item.is_floating_point()}
    answer = answered(model)
    assert answer.dtype == form and floating <= {form}
    assert float((answer.float() - answered(made(module, name))).abs().max()) < 0.1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"data_type": "fp8"}, "no data type named 'fp8'"),
        ({"preset": "huge"}, "no preset named 'huge'"),
        ({"name": "bert-huge"}, "no model named 'bert-huge'"),
        ({"batch_size": 0}, "size 0 is less than 1"),
        ({"seq_len": 0}, "size 0 is less than 1"),
    ],
)
def test_what_is_not_there_is_told(words: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        made("bert", **{"name": "bert-base-uncased", **words})


def test_a_parameter_that_no_family_has_is_an_error_and_a_framework_that_it_is_not_written_in_too() -> None:
    with pytest.raises(TypeError, match="dtype"):
        made("mobilenet", "mobilenet_v3_small", dtype="fp16")
    with pytest.raises(UsageError, match="not available in 'jax'"):
        mobilenet.create_model(framework="jax")


def test_full_sizes_have_the_weights_of_the_published_models() -> None:
    with torch.device("meta"):
        networks = {
            "mobilenet": mobilenet.mobile_network(1.0, 1000),
            "resnet50": resnet.residual_network(64, 1000),
            "bert-base": bert.encoder(12, 768, 12, 3072, 30522, 512, 2),
            "bert-large": bert.encoder(24, 1024, 16, 4096, 30522, 512, 2),
        }
    for name in ("bert-base", "bert-large"):
        del networks[name].pool, networks[name].classify
    assert {name: sum(item.numel() for item in network.parameters()) for name, network in networks.items()} == SIZES


def test_two_models_of_one_name_have_the_same_weights() -> None:
    first, second = (made.__wrapped__("bert", "bert-base-uncased") for _ in range(2))
    assert first is not second and torch.equal(answered(first), answered(second))


def test_a_text_becomes_the_same_tokens_everywhere() -> None:
    assert _shared.tokens("A photo of a cat.", 1000, 8) == [*_shared.tokens("a photo of a cat .", 1000, None), 0]
    ids, mask = _shared.token_batch("a b", 50, 4, 2)
    assert ids.shape == (2, 4) and mask.tolist() == [[1, 1, 1, 0]] * 2 and ids[0, 2] == _shared.END
    assert _shared.words([[5, 0, 1, 7]]) == ["<5> <7>"]


def test_weights_are_these_numbers() -> None:
    """A change of them would make every result kept so far one of another model."""
    assert _shared.seeded("tokens.weight", (2, 4)).ravel()[:4].tolist() == pytest.approx(TOKENS, rel=1e-6)
    assert _shared.seeded("norm.bias", (2,)).tolist() == pytest.approx(BIAS, rel=1e-6)
