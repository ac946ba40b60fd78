"""Recipes for training: they put other layers in, are held to the gradients of the plain step, and have no meaning elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steelyard import register_recipe
from steelyard.engine.weigh import weigh_case
from steelyard.model.case import Case
from steelyard.model.define import Variant
from steelyard.model.experiment import Settings
from steelyard.model.record import Record
from steelyard.registry import built_ins
from tests.variants.test_recipes import SIZES

pytest.importorskip("torchao", reason="the recipes are torchao's")
pytestmark = pytest.mark.filterwarnings("default")


def trained(variant: str, *own: Variant, mode: str = "train", workload: str = "torchao/linear", sizes: Any = SIZES, **words: Any) -> Record:
    loaded = built_ins()
    loaded.variants.update({item.name: item for item in own})
    settings = Settings(budget=0.002, telemetry=False, **words)
    return weigh_case(Case(workload, sizes, "torch", variant, mode), loaded, settings, lambda phase, fraction: None)[0]


@pytest.mark.parametrize("mode", ["train", "bwd"])
@pytest.mark.parametrize(
    ("variant", "layer", "floor"),
    [
        ("float8-training-tensorwise", "Float8Linear", 14), ("float8-training-rowwise_with_gw_hp", "Float8Linear", 14),
        ("qat-int8dq-int4w-32", "FakeQuantizedLinear", 7), ("qat-intxwo-4-64", "FakeQuantizedLinear", 7),
    ],
)  # fmt: skip
def test_layers_are_changed_and_gradients_are_kept(variant: str, layer: str, floor: float, mode: str) -> None:
    record = trained(variant, mode=mode)
    assert (record.status, record.reason) == ("ok", "")
    assert record.effective["changed"] == {layer: 1} and record.verification
    assert record.verification.checks[-1] == f"SQNR of gradients on 2 normal inputs and 2 with outliers, at least {floor} dB"
    assert record.metrics["sqnr"].value > floor + 2
    assert mode == "bwd" or {"forward_time", "backward_time", "optimizer_time"} <= record.metrics.keys()


@pytest.mark.parametrize("variant", ["float8-training-rowwise", "qat-int8dq-int4w-32"])
def test_a_block_of_several_layers(variant: str) -> None:
    record = trained(variant, workload="torchao/transformer_block", sizes=(("m", 2), ("k", 128), ("n", 128), ("dtype", "bf16")))
    assert record.status == "ok" and sum(record.effective["changed"].values()) == 4


@pytest.mark.parametrize("mode", ["eval", "fwd", "call"])
def test_a_recipe_for_training_has_no_meaning_elsewhere(mode: str) -> None:
    sizes = (("batch", 2), ("dtype", "fp32"))
    record = trained("qat-int8dq-int4w-32", mode=mode, **({} if mode != "call" else {"workload": "dummy/linear", "sizes": sizes}))
    assert record.status == "not_applicable"
    assert mode == "call" or "qat-int8dq-int4w is for mode train and bwd, not for" in record.reason


@pytest.mark.parametrize("mode", ["train", "bwd", "fwd"])
def test_a_recipe_for_inference_is_not_trained(mode: str) -> None:
    record = trained("int8wo", mode=mode)
    assert record.status == "not_applicable" and f"int8wo is for mode eval and call, not for {mode}" in record.reason


def swapping(name: str, layer: type[torch.nn.Linear], **words: Any) -> Variant:
    """A recipe of one's own that puts another layer in the place of each linear one."""

    def build() -> Any:
        def change(model: Any) -> None:
            model.__class__ = layer

        return change

    made: Variant = register_recipe(name, build, modes=("train", "bwd"), **words)
    return made


class HalfBackward(torch.autograd.Function):  # type: ignore[misc]
    """The right answer, and a share of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 0.8


class LosesGradient(torch.nn.Linear):
    """Answers as it should, with gradients that are too short."""

    def forward(self, given: Any) -> Any:
        return HalfBackward.apply(super().forward(given))


class Honest(torch.nn.Linear):
    """The same layer by another name."""


@pytest.mark.parametrize("mode", ["train", "bwd"])
def test_a_gradient_that_is_too_short_is_wrong_however_right_the_answer(mode: str) -> None:
    assert trained("honest", swapping("honest", Honest, floor=20), mode=mode).status == "ok"
    record = trained("short", swapping("short", LosesGradient, floor=20), mode=mode)
    assert record.status == "wrong" and "keeps 14.0 dB of the signal, at least 20 dB" in record.reason


def test_a_group_that_divides_no_width_is_not_applied() -> None:
    record = trained("qat-int8dq-int4w-32", sizes=(("m", 8), ("k", 48), ("n", 32), ("dtype", "bf16")))
    assert record.status == "not_applied" and "does not divide K = 48" in record.reason


def test_torchao_layers_train_without_a_recipe_too() -> None:
    for mode in ("fwd", "bwd", "train"):
        assert trained("eager", mode=mode).status == "ok"
