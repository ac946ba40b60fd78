"""The basic block of a residual network: two convolutions, each normalised, added to their input.

In mode eval, norms use known statistics; in all other modes those of the batch, which also update the known ones.
"""

from __future__ import annotations

from steelyard.errors import NotApplicable
from steelyard.model.dtypes import canonical
from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import layer_tolerance
from steelyard.workloads.ops.conv import correlate
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import Backend, form, trainable
from steelyard.workloads.ops.norm import EPS

KERNEL = 3
GRADIENTS = {"fp64": 1e-6, "fp32": 2e-2, "fp16": 8e-2, "bf16": 2e-1}


def gradient_share(dtype: str, mode: str) -> float | None:
    """How far all gradients together may be off, as a share of their norm; None means the usual rule.

    If a ReLU's input is almost 0, rounding decides whether the gradient passes, and then a few elements are far off.
    After eight ReLUs correct code is off by 0.002 in fp32, 0.034 in fp16 and 0.094 in bf16.
    """
    return GRADIENTS.get(canonical(dtype)) if mode in ("bwd", "train") else None


def convolve_twice(
    x: Array, weight_1: Array, gain_1: Array, shift_1: Array, weight_2: Array, gain_2: Array, shift_2: Array,
    *, mean_1: Array, var_1: Array, mean_2: Array, var_2: Array, training: bool,
) -> Array:  # fmt: skip
    """The block in torch; weights are arguments so that the harness can move them."""
    import torch.nn.functional as F

    inner = F.conv2d(x, weight_1, padding=KERNEL // 2)
    inner = F.relu(F.batch_norm(inner, mean_1, var_1, gain_1, shift_1, training=training, eps=EPS))
    inner = F.conv2d(inner, weight_2, padding=KERNEL // 2)
    return F.relu(x + F.batch_norm(inner, mean_2, var_2, gain_2, shift_2, training=training, eps=EPS))


def convolve_twice_numpy(
    x: Array, weight_1: Array, gain_1: Array, shift_1: Array, weight_2: Array, gain_2: Array, shift_2: Array,
    *, mean_1: Array, var_1: Array, mean_2: Array, var_2: Array, training: bool,
) -> Array:  # fmt: skip
    """The block in numpy."""
    import numpy as np

    def step(x: Array, weight: Array, gain: Array, shift: Array, mean: Array, var: Array) -> Array:
        made = correlate(x, weight, np.zeros_like(mean), 1, KERNEL // 2, 1, 1)
        if training:
            mean, var = made.mean(axis=(0, 2, 3)), made.var(axis=(0, 2, 3))
        scale = gain / np.sqrt(var + EPS)
        return (made - mean[:, None, None]) * scale[:, None, None] + shift[:, None, None]

    inner = np.maximum(step(x, weight_1, gain_1, shift_1, mean_1, var_1), 0)
    return np.maximum(x + step(inner, weight_2, gain_2, shift_2, mean_2, var_2), 0)


@trainable(
    "layer/conv_block",
    axes={"batch": [1], "channels": [32], "side": [28], "dtype": ["fp32"]},
    tags=["layer", "compute"],
    sizes={"small": {"channels": 8, "side": 14}, "h200": {"batch": 256, "channels": 256, "side": 56, "dtype": "bf16"}},
)
def conv_block(batch: int, channels: int, side: int, dtype: str, be: Backend, mode: str = "eval") -> Task:
    """Residual block of two 3x3 convolutions with batch norm; compute bound, with memory-bound steps to fuse."""
    fan_in = channels * KERNEL * KERNEL
    pixels = batch * side * side
    if mode != "eval" and pixels == 1:
        raise NotApplicable("a single value per channel has no statistics", do="use a larger batch or side")
    x = be.randn(batch, channels, side, side, dtype=dtype)
    learnt: list[Array] = []
    known: dict[str, Array] = {"training": mode != "eval"}
    for number in (1, 2):
        weight = be.randn(channels, channels, KERNEL, KERNEL, dtype=dtype, scale=fan_in**-0.5)
        gain = be.uniform(channels, low=0.5, high=1.5, dtype=dtype)
        shift = be.randn(channels, dtype=dtype)
        known[f"mean_{number}"] = be.randn(channels, dtype=dtype)
        known[f"var_{number}"] = be.uniform(channels, low=0.5, high=1.5, dtype=dtype)
        learnt += [weight, gain, shift]
    moved = size(dtype, 2 * pixels * channels, 2 * channels * (fan_in + 4))
    return Task(
        form(be, lambda torch: convolve_twice, lambda np: convolve_twice_numpy),
        (x, *learnt),
        known,
        flops=4.0 * pixels * channels * fan_in,
        bytes=moved,
        items=batch,
        parameters=tuple(learnt),
        tolerance=layer_tolerance(dtype),
        norm_tolerance=gradient_share(dtype, mode),
    )
