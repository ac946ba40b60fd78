"""Row normalisations: two or three passes over a row that a good kernel makes into one."""

from __future__ import annotations

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import Backend, form, operator, trainable
from steelyard.workloads.ops.triton_kernels import by_triton

EPS = 1e-5


def soften(x: Array, axis: int) -> Array:
    """Softmax in numpy, shifted by the maximum so that it cannot overflow."""
    import numpy as np

    raised = np.exp(x - x.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


def centre(x: Array, shape: tuple[int, ...], gain: Array, bias: Array, eps: float) -> Array:
    """Layer norm over the last axis in numpy; `shape` is there to take the same arguments as torch."""
    import numpy as np

    apart = x - x.mean(axis=-1, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(axis=-1, keepdims=True) + eps) * gain + bias


def rescale(x: Array, shape: tuple[int, ...], gain: Array, eps: float) -> Array:
    """Root-mean-square norm over the last axis in numpy; `shape` is there to take the same arguments as torch."""
    import numpy as np

    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain


@operator(
    "op/softmax",
    axes={"m": [256], "n": [256, 1024], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def softmax(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Row softmax; memory bound on a GPU, bound by the exponential on a CPU."""
    x = be.randn(m, n, dtype=dtype)
    fn = form(be, lambda torch: torch.softmax, lambda np: soften)
    return Task(fn, (x, -1), flops=5.0 * m * n, bytes=size(dtype, m * n, m * n), items=m)


@trainable(
    "op/layer_norm",
    axes={"m": [256], "n": [512], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def layer_norm(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Layer normalisation of rows with gain and bias; memory bound."""
    fn = form(be, lambda torch: torch.nn.functional.layer_norm, lambda np: centre)
    x = be.randn(m, n, dtype=dtype)
    gain = be.uniform(n, low=0.5, high=1.5, dtype=dtype)
    bias = be.randn(n, dtype=dtype)
    moved = size(dtype, m * n, n, n, m * n)
    return Task(fn, (x, (n,), gain, bias, EPS), flops=7.0 * m * n, bytes=moved, items=m, parameters=(gain, bias))


@trainable(
    "op/rms_norm",
    axes={"m": [256], "n": [512], "dtype": ["fp32"]},
    tags=["op", "memory"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def rms_norm(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Root-mean-square normalisation of rows with gain; memory bound."""
    fn = form(be, lambda torch: torch.nn.functional.rms_norm, lambda np: rescale)
    x = be.randn(m, n, dtype=dtype)
    gain = be.uniform(n, low=0.5, high=1.5, dtype=dtype)
    return Task(fn, (x, (n,), gain, EPS), flops=4.0 * m * n, bytes=size(dtype, m * n, n, m * n), items=m, parameters=(gain,))


@softmax.variant("triton", backends=["torch"], fresh=True)
def _(task: Task, be: Backend) -> Task:
    """Softmax by a Triton kernel that holds the row in registers."""
    return by_triton(task, be, "softmax")


@rms_norm.variant("triton", backends=["torch"], fresh=True)
def _(task: Task, be: Backend) -> Task:
    """Root-mean-square norm by a Triton kernel that holds the row in registers."""
    return by_triton(task, be, "rms_norm")
