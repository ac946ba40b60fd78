"""Tiny, deliberately uneven parameters for every operator, layer and model, and the ways in which the tests build and call them."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.backends.base import Backend
from steelyard.model.define import Workload
from steelyard.model.task import Task
from steelyard.registry import built_ins

FOUND = built_ins().workloads
NARROW = {name: FOUND[name] for name in ("op/int_matmul", "op/scaled_matmul")}
"""Products of one number format alone, which have tests of their own."""
OURS = {name: item for name, item in FOUND.items() if name.startswith(("op/", "layer/")) and name not in NARROW}
MODELS = {name: item for name, item in FOUND.items() if name.startswith("model/")}

TINY: dict[str, dict[str, dict[str, Any]]] = {
    "op/matmul": {"": {"m": 5, "n": 7, "k": 11}},
    "op/bmm": {"": {"batch": 3, "m": 5, "n": 7, "k": 11}},
    "op/addmm": {"": {"m": 5, "n": 7, "k": 11}},
    "op/linear": {"": {"tokens": 5, "features": 11, "out": 7}},
    "op/conv2d": {
        "": {"batch": 2, "channels": 4, "filters": 6, "side": 9, "kernel": 3, "stride": 1, "groups": 1},
        "grouped": {"batch": 1, "channels": 4, "filters": 6, "side": 9, "kernel": 5, "stride": 2, "groups": 2},
        "pointwise": {"batch": 2, "channels": 3, "filters": 5, "side": 6, "kernel": 1, "stride": 1, "groups": 1},
    },
    "op/softmax": {"": {"m": 5, "n": 37}},
    "op/layer_norm": {"": {"m": 5, "n": 37}},
    "op/rms_norm": {"": {"m": 5, "n": 37}},
    "op/gelu": {"": {"n": 301, "approximate": "none"}, "tanh": {"n": 301, "approximate": "tanh"}},
    "op/silu_mul": {"": {"m": 5, "n": 37}},
    "op/copy": {"": {"n": 301}},
    "op/triad": {"": {"n": 301}},
    "op/sum": {"": {"m": 5, "n": 37}},
    "op/cumsum": {"": {"m": 5, "n": 37}},
    "op/topk": {"": {"m": 5, "n": 37, "k": 4}, "all": {"m": 2, "n": 6, "k": 6}},
    "op/sort": {"": {"m": 5, "n": 137}},
    "op/gather": {"": {"m": 5, "n": 7, "k": 11}},
    "op/scatter_add": {"": {"m": 5, "n": 7, "k": 11}},
    "op/embedding": {"": {"rows": 13, "width": 6, "tokens": 17}},
    "op/embedding_bag": {"": {"rows": 13, "width": 6, "bags": 5, "length": 3}},
    "op/sdpa": {
        "": {"batch": 2, "heads": 4, "kv_heads": 4, "seq": 9, "head_dim": 8, "causal": False},
        "causal": {"batch": 2, "heads": 4, "kv_heads": 4, "seq": 9, "head_dim": 8, "causal": True},
        "grouped": {"batch": 2, "heads": 4, "kv_heads": 2, "seq": 9, "head_dim": 8, "causal": False},
        "grouped causal": {"batch": 1, "heads": 6, "kv_heads": 2, "seq": 9, "head_dim": 8, "causal": True},
    },
    "op/cross_entropy": {"": {"tokens": 7, "vocab": 29}},
    "layer/linear": {"": {"batch": 2, "seq": 5, "hidden": 12, "out": 7}},
    "layer/mlp": {
        "": {"batch": 2, "seq": 5, "hidden": 12, "ffn": 20, "gated": True},
        "plain": {"batch": 2, "seq": 5, "hidden": 12, "ffn": 20, "gated": False},
    },
    "layer/attention": {
        "": {"batch": 2, "seq": 5, "hidden": 16, "heads": 4, "kv_heads": 4, "causal": False},
        "grouped causal": {"batch": 2, "seq": 5, "hidden": 16, "heads": 4, "kv_heads": 2, "causal": True},
    },
    "layer/transformer_block": {
        "": {"batch": 2, "seq": 5, "hidden": 16, "ffn": 20, "heads": 4, "kv_heads": 4, "causal": False},
        "grouped causal": {"batch": 2, "seq": 5, "hidden": 16, "ffn": 20, "heads": 4, "kv_heads": 2, "causal": True},
    },
    "layer/ln_linear": {"": {"batch": 2, "seq": 5, "hidden": 12, "out": 7}},
    "layer/conv_block": {"": {"batch": 2, "channels": 5, "side": 7}},
    "layer/moe": {
        "": {"batch": 2, "seq": 5, "hidden": 8, "ffn": 24, "experts": 5, "top_k": 2},
        "all": {"batch": 1, "seq": 3, "hidden": 8, "ffn": 24, "experts": 2, "top_k": 2},
    },
}

TINY_MODELS: dict[str, dict[str, Any]] = {
    "model/mlp": {"batch": 5, "features": 12, "hidden": 20, "depth": 2, "classes": 7},
    "model/resnet50": {"batch": 2, "image": 37, "width": 2, "classes": 7},
    "model/bert": {"batch": 2, "seq": 5, "layers": 2, "hidden": 16, "heads": 4, "ffn": 20, "vocab": 29, "classes": 3},
    "model/gpt": {"batch": 2, "seq": 5, "layers": 2, "hidden": 16, "heads": 4, "ffn": 20, "vocab": 29},
    "model/llama": {"batch": 2, "seq": 5, "layers": 2, "hidden": 16, "heads": 4, "kv_heads": 2, "ffn": 20, "vocab": 29},
    "model/vit": {"batch": 2, "image": 12, "patch": 4, "layers": 2, "hidden": 16, "heads": 4, "ffn": 20, "classes": 7},
    "model/dlrm": {"batch": 5, "numbers": 3, "tables": 4, "rows": 13, "length": 2, "width": 6, "hidden": 16},
}

POINTS = [(name, params) for name, shapes in TINY.items() for params in shapes.values()]
POINT_IDS = [f"{name} {shape}".strip() for name, shapes in TINY.items() for shape in shapes]


def build(name: str, params: dict[str, Any], be: Backend, dtype: str = "fp32") -> Task:
    """The task of one workload on one backend; the reference shares the numpy body."""
    return FOUND[name].bodies[be.name](**params, dtype=dtype, be=be)


def results(task: Task, be: Backend) -> list[np.ndarray[Any, Any]]:
    """Outputs of one call as copies, so that a later call into the same buffer does not rewrite them."""
    return [np.array(leaf.data) for leaf in be.outputs(task())]


def arrays(task: Task, be: Backend) -> list[np.ndarray[Any, Any]]:
    """Input arrays as copies, in order."""
    return [np.array(leaf.data) for item in (*task.args, *task.kwargs.values()) for leaf in be.outputs(item) if be.leaf(item) is not None]


def defaults(item: Workload) -> dict[str, Any]:
    """The first value of every axis."""
    return {axis: values[0] for axis, values in item.axes.items()}
