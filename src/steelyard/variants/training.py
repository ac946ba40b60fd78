"""TorchAO's recipes for training, for the modes train and bwd: products in float8, and quantization-aware training. They replace linear
layers, and their gradients are compared with those of the plain step.
"""

from __future__ import annotations

from typing import Any

from steelyard.errors import Unsupported
from steelyard.model.words import Word
from steelyard.variants.recipe import GROUP, recipe

TRAINING = ("train", "bwd")
SCALES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
GROUPS = Word(GROUP, values=(32, 64, 128, 256))


@recipe("float8-training", floor=14, words=(Word("scales", values=SCALES),), modes=TRAINING, arithmetic="fp8e4m3")
def float8_training(be: Any, scales: str = "tensorwise") -> Any:
    """Products of a training step in float8, forward and backward, with dynamic scales; weights keep their format."""
    import torch
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    if be.device == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability() < (8, 9):
        raise Unsupported("float8-training needs a GPU of compute capability 8.9 or newer")
    config = Float8LinearConfig.from_recipe_name(scales)
    return lambda model: convert_to_float8_training(model, config=config)


@recipe("qat-int8dq-int4w", floor=7, words=(GROUPS,), modes=TRAINING)
def qat_int8dq_int4w(group: int = 32) -> Any:
    """Training that rounds activations to int8 and weights to int4 by groups in every pass, in the model's own format."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.qat import QATConfig

    return QATConfig(Int8DynamicActivationIntxWeightConfig(torch.int4, weight_granularity=PerGroup(group)), step="prepare")


@recipe("qat-intxwo", floor=7, words=(Word("bits", least=4, most=8), GROUPS), modes=TRAINING)
def qat_intxwo(bits: int = 4, group: int = 32) -> Any:
    """Training that rounds weights to few bits by groups in every pass, in the model's own format."""
    import torch
    from torchao.quantization import IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.qat import QATConfig

    return QATConfig(IntxWeightOnlyConfig(getattr(torch, f"int{bits}"), granularity=PerGroup(group)), step="prepare")
