"""A Triton kernel as a variant of a workload: held against eager for its answer, weighed against it for its speed.

steelyard run triton_softmax.py -d cuda -V eager,triton --vs eager
"""

from dataclasses import replace

from steelyard import Task, workload
from steelyard.errors import Unsupported


@workload("my/softmax", axes={"m": [1024], "n": [1000, 4096], "dtype": ["bf16"]})
def softmax(m, n, dtype, be):
    """Row softmax; memory bound, so bytes are declared."""
    import torch

    x = be.randn(m, n, dtype=dtype)
    return Task(torch.softmax, (x, -1), bytes=2 * x.nbytes)


@softmax.variant("triton", backends=["torch"], fresh=True)  # a compiler wants a fresh process
def _(task, be):
    """One program per row, which it reads once."""
    if be.device != "cuda":
        raise Unsupported("the kernel needs a GPU", do="add -d cuda")
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        raise Unsupported("triton is not installed here", do="pip install triton") from error
    import torch

    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * n
        column = tl.arange(0, BLOCK)
        value = tl.load(x + start + column, mask=column < n, other=float("-inf")).to(tl.float32)
        raised = tl.exp(value - tl.max(value, 0))
        tl.store(y + start + column, (raised / tl.sum(raised, 0)).to(y.dtype.element_ty), mask=column < n)

    def rows(x, dim):
        y = torch.empty_like(x)
        m, n = x.shape
        kernel[(m,)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
        return y

    return replace(task, fn=rows)
