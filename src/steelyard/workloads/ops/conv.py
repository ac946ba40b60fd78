"""Convolutions."""

from __future__ import annotations

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, divides, size
from steelyard.workloads.ops.forms import Backend, form, trainable


def correlate(x: Array, weight: Array, bias: Array, stride: int, padding: int, dilation: int, groups: int) -> Array:
    """Two-dimensional convolution as every image patch times every filter, in numpy."""
    import numpy as np

    batch, channels = x.shape[:2]
    filters, _, height, width = weight.shape
    reach = (dilation * (height - 1) + 1, dilation * (width - 1) + 1)
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    patches = patches[:, :, ::stride, ::stride, ::dilation, ::dilation]
    patches = patches.reshape(batch, groups, channels // groups, *patches.shape[2:])
    grouped = weight.reshape(groups, filters // groups, channels // groups, height, width)
    out = np.einsum("bgcyxhw,gfchw->bgfyx", patches, grouped, optimize=True)
    return out.reshape(batch, filters, *out.shape[3:]) + bias[:, None, None]


@trainable(
    "op/conv2d",
    axes={
        "batch": [1], "channels": [32], "filters": [32], "side": [28], "kernel": [3], "stride": [1], "groups": [1], "dtype": ["fp32"],
    },
    tags=["op", "compute", "smoke"],
    sizes={
        "small": {"channels": 8, "filters": 8, "side": 14},
        "h200": {"batch": 256, "channels": 256, "filters": 256, "side": 56, "dtype": "bf16"},
    },
)  # fmt: skip
def conv2d(batch: int, channels: int, filters: int, side: int, kernel: int, stride: int, groups: int, dtype: str, be: Backend) -> Task:
    """Convolution of square images, padded by half the kernel; compute bound, memory bound when depthwise or 1x1."""
    share = divides("groups", groups, "channels", channels)
    divides("groups", groups, "filters", filters)
    padding = kernel // 2
    edge = (side + 2 * padding - kernel) // stride + 1
    fan_in = share * kernel * kernel
    x = be.randn(batch, channels, side, side, dtype=dtype)
    weight = be.randn(filters, share, kernel, kernel, dtype=dtype, scale=fan_in**-0.5)
    bias = be.randn(filters, dtype=dtype)
    made = batch * filters * edge * edge
    moved = size(dtype, batch * channels * side * side, filters * fan_in, filters, made)
    fn, args = form(be, lambda torch: torch.nn.functional.conv2d, lambda np: correlate), (x, weight, bias, stride, padding, 1, groups)
    return Task(fn, args, flops=2.0 * made * fan_in, bytes=moved, items=batch, parameters=(weight, bias))
