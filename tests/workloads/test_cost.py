"""Declared flops and bytes are what torch counts and what the tensors weigh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from steelyard.backends.base import Backend  # noqa: E402
from steelyard.backends.numpy import Precise  # noqa: E402
from steelyard.backends.torch import FORMATS, Torch  # noqa: E402
from tests.workloads.tiny import OURS, POINT_IDS, POINTS, TINY, build, defaults  # noqa: E402

pytestmark = pytest.mark.torch

PRODUCTS = (
    "op/matmul",
    "op/bmm",
    "op/addmm",
    "op/linear",
    "op/conv2d",
    "op/sdpa",
    "layer/linear",
    "layer/mlp",
    "layer/attention",
    "layer/transformer_block",
    "layer/ln_linear",
    "layer/conv_block",
    "layer/moe",
)
PER_ELEMENT = {
    "op/softmax": 5,
    "op/layer_norm": 7,
    "op/rms_norm": 4,
    "op/silu_mul": 5,
    "op/triad": 2,
    "op/cross_entropy": 4,
    "op/copy": 0,
    "op/topk": 0,
    "op/sort": 0,
    "op/gather": 0,
    "op/embedding": 0,
}
LEAST_GPU_BYTES, MOST_GPU_BYTES = 100e6, 100e9
every_point = pytest.mark.parametrize(("name", "params"), POINTS, ids=POINT_IDS)


class Shapes(Torch):
    """Tensors with shapes and no data, to build the presets of a machine that is not here."""

    def module(self, make: Callable[[], Any], dtype: str) -> Any:
        with torch.device("meta"):
            return make().to(dtype=FORMATS[dtype]).eval()

    def _bare(self, shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=FORMATS[dtype], device="meta")

    def randn(self, *shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
        return self._bare(shape, dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "fp32") -> Any:
        return self._bare(shape, dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        return self._bare(shape, dtype)

    def full(self, *shape: int, value: float = 0.0, dtype: str = "fp32") -> Any:
        return self._bare(shape, dtype)


def counted(call: Callable[[], Any]) -> int:
    """What torch counts, with attention taken apart into its two products."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def weight(value: Any) -> int:
    """Bytes of all tensors in a value."""
    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size())
    return sum(weight(item) for item in value) if isinstance(value, (tuple, list)) else 0


@pytest.mark.parametrize(
    ("name", "params"),
    [point for point in POINTS if point[0] in PRODUCTS and not point[1].get("causal") and point[0] != "layer/moe"],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_products_have_the_flops_that_torch_counts(name: str, params: dict[str, Any]) -> None:
    task = build(name, params, Torch(seed=0))
    assert task.flops == counted(task) > 0


@pytest.mark.parametrize("name", ["op/sdpa", "layer/attention", "layer/transformer_block"])
def test_a_causal_mask_leaves_out_what_it_hides(name: str) -> None:
    params = TINY[name][""]
    full, causal = (build(name, {**params, "causal": causal}, Torch(seed=0)).flops for causal in (False, True))
    assert full is not None and causal is not None
    width = params.get("hidden") or params["heads"] * params["head_dim"]
    hidden = int(np.triu(np.ones((params["seq"], params["seq"])), k=1).sum())
    assert full - causal == 4 * params["batch"] * hidden * width


@pytest.mark.parametrize("params", TINY["layer/moe"].values(), ids=TINY["layer/moe"])
def test_a_mixture_declares_the_experts_chosen_and_computes_all(params: dict[str, Any]) -> None:
    task = build("layer/moe", params, Torch(seed=0))
    one = 2 * 3 * params["batch"] * params["seq"] * params["hidden"] * params["ffn"]
    assert counted(task) - task.flops == (params["experts"] - params["top_k"]) * one


@every_point
def test_other_flops_follow_from_the_shapes(name: str, params: dict[str, Any]) -> None:
    if name in PRODUCTS:
        return
    task = build(name, params, Torch(seed=0))
    first = task.args[0].numel()
    expected = {
        "op/gelu": {"none": 5, "tanh": 8}[params.get("approximate", "none")] * first,
        "op/sum": first - params.get("m", 0),
        "op/cumsum": first - params.get("m", 0),
        "op/scatter_add": params.get("m", 0) * params.get("k", 0),
        "op/embedding_bag": (params.get("length", 0) - 1) * params.get("bags", 0) * params.get("width", 0),
    }
    assert task.flops == expected.get(name, PER_ELEMENT.get(name, 0) * first)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@every_point
def test_bytes_are_those_of_the_tensors_touched(name: str, params: dict[str, Any], dtype: str) -> None:
    task = build(name, params, Torch(seed=0), dtype)
    made = weight(task())
    inputs = weight(task.args) + weight(tuple(task.kwargs.values()))
    if name in ("op/copy", "op/triad"):
        inputs -= made
    elif name == "op/gather":
        inputs = weight(task.args[1]) + made
    elif name in ("op/embedding", "op/embedding_bag"):
        index, table = task.args
        inputs = weight(index) + weight(table[index])
    elif name == "op/topk":
        made = weight(tuple(torch.topk(*task.args)))
    assert task.bytes == inputs + made


@every_point
def test_bodies_declare_the_same_whatever_they_compute_in(name: str, params: dict[str, Any]) -> None:
    one, other = build(name, params, Torch(seed=0), "bf16"), build(name, params, Precise(seed=0), "bf16")
    assert (one.flops, one.bytes, one.items) == (other.flops, other.bytes, other.items)
    assert one.items


@pytest.mark.parametrize("preset", ["small", "h200"])
@pytest.mark.parametrize("name", OURS)
def test_presets_build_and_fit(name: str, preset: str) -> None:
    item = OURS[name]
    assert set(item.sizes[preset]) <= set(item.axes)
    be: Backend = Shapes(seed=0) if preset == "h200" else Torch(seed=0)
    task = item.bodies["torch"](**{**defaults(item), **item.sizes[preset]}, be=be)
    held = weight(task.args) + weight(task())
    if preset == "h200":
        assert LEAST_GPU_BYTES <= held <= MOST_GPU_BYTES
        assert task.args[0].dtype in (torch.bfloat16, torch.int64) or name == "op/cumsum"
