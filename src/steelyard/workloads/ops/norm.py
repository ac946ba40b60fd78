"""Row normalisations: two or three passes over a row that a good kernel combines into one."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, operator, trainable
from steelyard.workloads.ops.spaces import Space, in_numpy
from steelyard.workloads.ops.triton_kernels import by_triton

EPS = 1e-5


def soften(x: Array, axis: int) -> Array:
    """Softmax in numpy."""
    return in_numpy().softmax(x, axis)


def rescale(x: Array, shape: tuple[int, ...], gain: Array, eps: float) -> Array:
    """Root-mean-square norm over the last axis in numpy; `shape` is there to take the same arguments as torch."""
    return in_numpy().rms_norm(x, gain, eps)


def centred(space: Space) -> Callable[..., Array]:
    """Layer norm with torch's arguments."""
    return lambda x, shape, gain, bias, eps: space.layer_norm(x, gain, bias, eps)


def rescaled(space: Space) -> Callable[..., Array]:
    """Root-mean-square norm with torch's arguments."""
    return lambda x, shape, gain, eps: space.rms_norm(x, gain, eps)


@operator(
    "op/softmax",
    axes={"m": [256], "n": [256, 1024], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    backend=EVERYWHERE,
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def softmax(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Row softmax; memory bound on a GPU, bound by the exponential on a CPU."""
    x = be.randn(m, n, dtype=dtype)
    fn = form(be, lambda torch: torch.softmax, shared=lambda space: space.softmax)
    return Task(fn, (x, -1), flops=5.0 * m * n, bytes=size(dtype, m * n, m * n), items=m)


@trainable(
    "op/layer_norm",
    axes={"m": [256], "n": [512], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    backend=EVERYWHERE,
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def layer_norm(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Layer normalisation of rows with gain and bias; memory bound."""
    fn = form(be, lambda torch: torch.nn.functional.layer_norm, shared=centred)
    x = be.randn(m, n, dtype=dtype)
    gain = be.uniform(n, low=0.5, high=1.5, dtype=dtype)
    bias = be.randn(n, dtype=dtype)
    moved = size(dtype, m * n, n, n, m * n)
    return Task(fn, (x, (n,), gain, bias, EPS), flops=7.0 * m * n, bytes=moved, items=m, parameters=(gain, bias))


@trainable(
    "op/rms_norm",
    axes={"m": [256], "n": [512], "dtype": ["fp32"]},
    tags=["op", "memory"],
    backend=EVERYWHERE,
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def rms_norm(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Root-mean-square normalisation of rows with gain; memory bound."""
    fn = form(be, lambda torch: torch.nn.functional.rms_norm, shared=rescaled)
    x = be.randn(m, n, dtype=dtype)
    gain = be.uniform(n, low=0.5, high=1.5, dtype=dtype)
    return Task(fn, (x, (n,), gain, EPS), flops=4.0 * m * n, bytes=size(dtype, m * n, n, m * n), items=m, parameters=(gain,))


@softmax.variant("triton", backends=["torch"], fresh=True)
def _(task: Task, be: Backend) -> Task:
    """Softmax by a Triton kernel that keeps the row in registers."""
    return by_triton(task, be, "softmax")


@rms_norm.variant("triton", backends=["torch"], fresh=True)
def _(task: Task, be: Backend) -> Task:
    """Root-mean-square norm by a Triton kernel that keeps the row in registers."""
    return by_triton(task, be, "rms_norm")
