"""The families in the named sizes of OpenXLA's comparative suite, which papers and trackers use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

T5_BATCHES, BERT_BATCHES = (1, 16, 24, 32, 48, 64, 512), (1, 16, 24, 32, 48, 64, 512, 1024, 1280)
RESNET_BATCHES, LENGTHS = (1, 8, 64, 128, 256, 2048), (8, 32, 64, 128, 256, 512)
SHORTER = ("fp16", "bf16")

NamedSizes = tuple[str, str, str, dict[str, Any], dict[str, Sequence[int]]]
"""Family, framework, name without its sizes, parameters, and the axes that its models differ in."""


def named_sizes() -> Iterator[NamedSizes]:
    """Yield all named sizes, in the order of that suite."""
    sd = {"model_name": "runwayml/stable-diffusion-v1-5", "seq_len": 64}
    large, bert = {"model_name": "t5-large", "seq_len": 512}, {"model_name": "bert-large-uncased", "seq_len": 384}
    resnet, gpt = {"model_name": "microsoft/resnet-50"}, {"model_name": "gpt2"}
    small, vit = {"model_name": "t5-small", "batch_size": 1, "seq_len": 128}, {"model_name": "google/vit-base-patch16-224"}
    for kind in ("fp32", *SHORTER):
        yield "T5", "jax", f"T5_LARGE_{kind.upper()}_JAX_512XI32", {**large, "data_type": kind}, {"batch_size": T5_BATCHES}
    yield "T5_4CG", "jax", "T5_4CG_LARGE_FP32_JAX_512XI32", large, {"batch_size": T5_BATCHES[:5]}
    yield "T5", "jax", "T5_SMALL_FP32_JAX_1X128XI32", small, {}
    yield "T5_4CG", "jax", "T5_4CG_SMALL_FP32_JAX_1X128XI32", small, {"gen_size": (16, 32, 64, 128, 256)}
    for kind in ("fp32", *SHORTER):
        yield "BERT", "jax", f"BERT_LARGE_{kind.upper()}_JAX_384XI32", {**bert, "data_type": kind}, {"batch_size": BERT_BATCHES}
    for kind in ("fp32", *SHORTER):
        given = {"model_name": "bert-base-uncased", "batch_size": 1, "data_type": kind}
        yield "BERT", "jax", f"BERT_BASE_{kind.upper()}_JAX_I32", given, {"seq_len": LENGTHS}
    for kind, number in (("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16")):
        name = f"RESNET50_{kind.upper()}_JAX_3X224X224X{number}"
        yield "RESNET", "jax", name, {**resnet, "data_type": kind}, {"batch_size": RESNET_BATCHES}
    yield "GPT2LMHEAD", "jax", "GPT2LMHEAD_FP32_JAX_512XI32", {**gpt, "seq_len": 512}, {"batch_size": (1, 64, 128)}
    yield "GPT2_PIPELINE", "jax", "GPT2LMHEAD_PIPELINE_JAX_1X4XI32", {**gpt, "batch_size": 1}, {}
    for kind in ("fp32", *SHORTER):
        yield "SD_PIPELINE", "jax", f"SD_PIPELINE_{kind.upper()}_JAX_64XI32", {**sd, "data_type": kind}, {"batch_size": (1, 8)}
    yield "VIT_CLASSIFICATION", "jax", "VIT_CLASSIFICATION_JAX_3X224X224XF32", {**vit, "batch_size": 1}, {}

    yield "EXAMPLE", "pytorch", "EXAMPLE_FP32_PT", {}, {"batch_size": (1, 16, 32)}
    for kind in ("fp32", "fp16"):
        yield "BERT", "pytorch", f"BERT_LARGE_{kind.upper()}_PT_384XI32", {**bert, "data_type": kind}, {"batch_size": BERT_BATCHES}
    for kind, number in (("fp32", "F32"), ("fp16", "F16")):
        given = {"model_name": "torchvision/resnet50", "data_type": kind}
        yield "RESNET", "pytorch", f"RESNET50_{kind.upper()}_PT_3X224X224X{number}", given, {"batch_size": RESNET_BATCHES}

    yield "T5", "tensorflow", "T5_LARGE_FP32_TF_512XI32", large, {"batch_size": T5_BATCHES}
    yield "BERT", "tensorflow", "BERT_LARGE_FP32_TF_384XI32", bert, {"batch_size": BERT_BATCHES}
    yield "RESNET", "tensorflow", "RESNET50_FP32_TF_224X224X3XF32", resnet, {"batch_size": RESNET_BATCHES}
    given = {"model_name": "efficientnetb7"}
    yield "EFFICIENTNET", "tensorflow", "EFFICIENTNETB7_FP32_TF_600X600X3XF32", given, {"batch_size": (1, 64, 128)}
    yield "GPT2_PIPELINE", "tensorflow", "GPT2LMHEAD_PIPELINE_TF_1X4XI32", {**gpt, "batch_size": 1}, {}
