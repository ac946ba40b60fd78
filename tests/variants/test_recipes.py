"""Recipes: named as TorchAO names them, checked to have changed something and nothing else, with their accuracy beside the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from steelyard import register_model, register_recipe
from steelyard.engine.pairs import weigh_heads
from steelyard.engine.weigh import weigh_case
from steelyard.errors import Unsupported, UsageError
from steelyard.measuring.roofline import compute_format
from steelyard.model.case import Case
from steelyard.model.define import Variant, Workload
from steelyard.model.experiment import Settings
from steelyard.model.record import Record
from steelyard.registry import built_ins
from steelyard.torchao_bench import create_model_and_input_data, string_to_config

pytest.importorskip("torchao", reason="the recipes are torchao's")
pytestmark = pytest.mark.filterwarnings("default")  # torchao warns of its own imports

SETTINGS = Settings(budget=0.002, telemetry=False)
SIZES = (("m", 32), ("k", 256), ("n", 128), ("dtype", "bf16"))


def weighed(variant: str, *own: Variant | Workload, workload: str = "torchao/linear", sizes: Any = SIZES, **settings: Any) -> Record:
    loaded = built_ins()
    for item in own:
        (loaded.variants if isinstance(item, Variant) else loaded.workloads)[item.name] = item  # type: ignore[assignment]
    how = Settings(budget=0.002, telemetry=False, **settings)
    return weigh_case(Case(workload, sizes, "torch", variant), loaded, how, lambda phase, fraction: None)[0]


def changing(name: str, change: Callable[[torch.nn.Linear], None]) -> Variant:
    """A recipe of one's own that does something to every linear layer."""

    def build() -> Any:
        def through(model: Any) -> None:
            for layer in model.modules():
                if isinstance(layer, torch.nn.Linear):
                    change(layer)

        return through

    made: Variant = register_recipe(name, build)
    return made


@pytest.mark.parametrize(
    ("variant", "least", "smaller", "floor"),
    [
        ("int8wo", 40, 1.9, 30), ("int8dq", 37, 1.9, 20), ("int4wo-32", 20, 3.1, 14), ("float8wo", 30, 1.9, 24),
        ("intxwo-8-32", 40, 1.7, 30), ("nf4", 19, 3.5, 14),
    ],
)  # fmt: skip
def test_a_recipe_keeps_what_its_format_can_and_says_how_much(variant: str, least: float, smaller: float, floor: float) -> None:
    record = weighed(variant)
    assert (record.status, record.reason) == ("ok", "")
    assert least < record.metrics["sqnr"].value < least + 12 and record.metrics["cosine"].value > 0.98
    assert 0 < record.metrics["mean_error"].value < record.metrics["max_error"].value
    assert record.effective["bytes_before"] / record.metrics["model_bytes"].value > smaller
    assert record.verification and record.verification.figures["floor"] == floor
    assert record.verification.checks[-1] == f"SQNR on 2 normal inputs and 2 with outliers, at least {floor} dB"
    assert sum(record.effective["changed"].values()) == 1
    assert compute_format(replace(record, case=Case("torchao/linear", SIZES).plain())) == ("int8" if variant == "int8dq" else "bf16")


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("float8dq-row", "works on cuda"), ("semi-sparse", "works on cuda"), ("marlin", "torchao has no marlin any more"),
        ("uintx-4-64", "gemlite"), ("gemlitewo-8", "pip install gemlite"), ("int4wo-256", "32, 64 or 128"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_here_says_what_it_needs(variant: str, words: str) -> None:
    record = weighed(variant)
    assert record.status == "unsupported" and words in record.reason


def test_a_recipe_that_changes_nothing_is_not_applied() -> None:
    record = weighed("idle", changing("idle", lambda layer: None))
    assert record.status == "not_applied" and "was not changed" in record.reason


def test_a_group_that_does_not_divide_the_width_is_not_applied() -> None:
    record = weighed("intxwo-4-100")
    assert record.status == "not_applied" and "a group of 100 does not divide K = 256" in record.reason


def test_a_group_that_divides_some_layers_alone_is_not_applied_either() -> None:
    @register_model("uneven")
    def _uneven(m: int, k: int, n: int, dtype: Any, device: Any) -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(k, 96, bias=False), torch.nn.Linear(96, n, bias=False))
        return model.to(device, dtype), torch.randn(m, k, dtype=dtype, device=device)

    record = weighed("intxwo-4-64", _uneven, workload="torchao/uneven")
    assert record.status == "not_applied" and "K = 96: 1 of 2 linear layers would stay" in record.reason


def test_defaults_are_those_that_were_registered() -> None:
    def build(bits: int) -> Any:
        return lambda model: [layer.weight.data.mul_(1 + 2.0**-bits) for layer in model.modules() if isinstance(layer, torch.nn.Linear)][:0]

    made = register_recipe("nudged", build, params={"bits": 5})
    assert 28 < weighed("nudged", made).metrics["sqnr"].value < 32
    assert weighed("nudged-8", made).metrics["sqnr"].value > 40
    with pytest.raises(UsageError, match="bits of recipe open has no default"):
        register_recipe("open", build)


def test_two_recipes_in_a_chain_say_what_cannot_be_done() -> None:
    record = weighed("int8wo+int4wo-32")
    assert record.status in ("unsupported", "not_applied"), record.reason


def test_a_floor_of_ones_own_keeps_our_own_checks() -> None:
    record = weighed("int8wo", rule="sqnr[floor=30]")
    assert record.status == "ok" and record.verification and "inputs unchanged" in record.verification.checks


def test_a_model_of_tokens_is_held_to_its_own_inputs() -> None:
    sizes = (("batch", 1), ("seq", 8), ("layers", 1), ("hidden", 32), ("heads", 4), ("kv_heads", 2), ("ffn", 64), ("vocab", 64))
    record = weighed("int8wo", workload="model/llama", sizes=(*sizes, ("dtype", "fp32")))
    assert record.status == "ok" and record.verification
    assert record.verification.checks[-1].startswith("SQNR on the task's own inputs, ") and "sqnr_outliers" not in record.metrics


def test_a_wrong_scale_is_wrong() -> None:
    record = weighed("twice", changing("twice", lambda layer: layer.weight.data.mul_(2)))
    assert record.status == "wrong"


def test_less_than_the_floor_that_is_asked_for_is_wrong() -> None:
    record = weighed("int4wo-32", rule="sqnr[floor=30]")
    assert record.status == "wrong" and "at least 30 dB are required" in record.reason
    assert weighed("int4wo-32", rule="sqnr[floor=15]").status == "ok"


def test_a_change_of_the_baseline_itself_is_a_failure() -> None:
    kept: list[torch.nn.Linear] = []

    @register_model("kept")
    def _kept(m: int, k: int, n: int, dtype: Any, device: Any) -> Any:
        kept.append(torch.nn.Linear(k, n, bias=False).to(device, dtype))
        return kept[-1], torch.randn(m, k, dtype=dtype, device=device)

    spoils = changing("spoils", lambda layer: kept[-1].weight.data.mul_(3))
    record = weighed("spoils", spoils, _kept, workload="torchao/kept")
    assert record.status == "failed" and "changed the model that it was given" in record.reason


def test_a_workload_without_linear_layers_is_not_for_recipes() -> None:
    record = weighed("int8wo", workload="op/softmax", sizes=(("m", 8), ("n", 8), ("dtype", "fp32")))
    assert record.status == "not_applicable" and "linear layers of a model" in record.reason


def test_a_comparison_moves_quantized_weights_as_they_are() -> None:
    """A clone of some of them is plain numbers; a copy of that would be weighed in their place."""
    from steelyard.backends._torch_moves import copy_tensor

    loaded, head = built_ins(), Case("torchao/linear", SIZES, "torch", "codebook")
    [(pair, _)] = weigh_heads(head.against("eager"), [head], loaded, SETTINGS, lambda phase, fraction: None)
    assert pair.ratio > 2, "it takes some ten times as long"
    from torchao.quantization import quantize_

    for name in ("int8wo", "int4wo-32", "nf4", "codebook"):
        model = torch.nn.Linear(256, 128, bias=False).bfloat16()
        quantize_(model, string_to_config(name, device="cpu"))
        copied = copy_tensor(model.weight, {})
        assert type(copied) is type(model.weight) is not torch.nn.Parameter
        x = torch.randn(4, 256).bfloat16()
        assert torch.equal(torch.nn.functional.linear(x, copied), torch.nn.functional.linear(x, model.weight))


@pytest.mark.parametrize("model", ["linear", "ln_linear", "ln_linear_silu", "transformer_block"])
def test_models_and_inputs_for_scripts(model: str) -> None:
    module, x = create_model_and_input_data(model, 4, 64, 32, torch.float32, device="cpu")
    again, _ = create_model_and_input_data(model, 4, 64, 32, "float32", device="cpu")
    assert x.dtype == torch.float32 and torch.isfinite(module(x)).all()
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), again.parameters(), strict=True))


def test_configs_for_scripts() -> None:
    assert string_to_config("baseline", None) is None and string_to_config(None) is None
    assert type(string_to_config("int8wo", None, device="cpu")).__name__ == "Int8WeightOnlyConfig"
    assert string_to_config("int4wo-64", device="cpu").group_size == 64
    with pytest.raises(UsageError, match="did you mean int4wo"):
        string_to_config("int4w")
    with pytest.raises(Unsupported, match="any more"):
        string_to_config("fp6", device="cpu")
    with pytest.raises(UsageError, match="sparsity"):
        string_to_config(None, "dense")
