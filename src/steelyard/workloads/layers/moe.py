"""A mixture of experts: a router sends each token to a few of many gated MLPs, and no token is dropped.

Declared flops are those of the experts that a token is sent to, no matter what else an implementation computes.
"""

from __future__ import annotations

from dataclasses import replace

from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import layer_tolerance
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import Backend, form, trainable
from steelyard.workloads.ops.norm import soften
from steelyard.workloads.ops.pointwise import silu_of


def route(x: Array, w_router: Array, top_k: int) -> tuple[Array, Array]:
    """Shares and numbers of each token's experts; at least in single precision, so that formats agree on which are chosen."""
    import torch
    import torch.nn.functional as F

    wide = torch.promote_types(x.dtype, torch.float32)
    shares, chosen = F.linear(x.to(wide), w_router.to(wide)).softmax(-1).topk(top_k, dim=-1)
    return (shares / shares.sum(-1, keepdim=True)).to(x.dtype), chosen


def consult_all(x: Array, w_router: Array, w_up: Array, w_gate: Array, w_down: Array, top_k: int) -> Array:
    """The layer in torch as one wide MLP, in which the activations of experts that were not chosen are multiplied by zero."""
    import torch
    import torch.nn.functional as F

    tokens = x.flatten(0, -2)
    shares, chosen = route(tokens, w_router, top_k)
    mask = torch.zeros(len(tokens), len(w_up), dtype=x.dtype, device=x.device).scatter(1, chosen, shares)
    lively = F.silu(F.linear(tokens, w_gate.flatten(0, 1))) * F.linear(tokens, w_up.flatten(0, 1))
    kept = lively.unflatten(1, w_up.shape[:2]) * mask.unsqueeze(-1)
    return (kept.flatten(1) @ w_down.flatten(0, 1)).view(x.shape)


def consult_chosen(x: Array, w_router: Array, w_up: Array, w_gate: Array, w_down: Array, top_k: int) -> Array:
    """The layer in torch with tokens sorted by expert, so that each expert's product has only the rows sent to it."""
    import torch
    import torch.nn.functional as F

    tokens = x.flatten(0, -2)
    shares, chosen = route(tokens, w_router, top_k)
    sent = chosen.flatten()
    order = sent.argsort(stable=True)
    ends = (sent.unsqueeze(1) == torch.arange(len(w_up), device=x.device)).sum(0).cumsum(0).to(torch.int32)
    origin = order // top_k
    rows = tokens.index_select(0, origin)
    lively = F.silu(F.grouped_mm(rows, w_gate.mT, offs=ends)) * F.grouped_mm(rows, w_up.mT, offs=ends)
    made = F.grouped_mm(lively, w_down, offs=ends) * shares.flatten().index_select(0, order).unsqueeze(1)
    return torch.zeros_like(tokens).index_add(0, origin, made).view(x.shape)


def consult_numpy(x: Array, w_router: Array, w_up: Array, w_gate: Array, w_down: Array, top_k: int) -> Array:
    """The layer in numpy, expert by expert."""
    import numpy as np

    tokens = x.reshape(-1, x.shape[-1])
    shares = soften(tokens @ w_router.T, -1)
    least = np.sort(shares, axis=-1)[:, -top_k, None]
    shares = np.where(shares >= least, shares, 0)
    shares = shares / shares.sum(axis=-1, keepdims=True)
    out = np.zeros_like(tokens)
    for expert in range(len(w_up)):
        rows = np.flatnonzero(shares[:, expert])
        lively = silu_of(tokens[rows] @ w_gate[expert].T) * (tokens[rows] @ w_up[expert].T)
        out[rows] += lively @ w_down[expert] * shares[rows, expert, None]
    return out.reshape(x.shape)


@trainable(
    "layer/moe",
    axes={"batch": [1], "seq": [32], "hidden": [128], "ffn": [256], "experts": [8], "top_k": [2], "dtype": ["fp32"]},
    tags=["layer", "compute"],
    sizes={
        "small": {"seq": 8, "hidden": 32, "ffn": 64, "experts": 4},
        "h200": {"batch": 2, "seq": 4096, "hidden": 4096, "ffn": 14336, "dtype": "bf16"},
    },
)
def moe(batch: int, seq: int, hidden: int, ffn: int, experts: int, top_k: int, dtype: str, be: Backend) -> Task:
    """Mixture of SwiGLU experts, all computed and all but the chosen ones masked; compute bound, mostly by discarded work."""
    if not 1 <= top_k <= experts:
        raise NotApplicable(f"a token cannot choose top_k={top_k} of experts={experts}")
    fn = form(be, lambda torch: consult_all, lambda np: consult_numpy)
    tokens, one = batch * seq, 3 * hidden * ffn
    x = be.randn(batch, seq, hidden, dtype=dtype)
    w_router = be.randn(experts, hidden, dtype=dtype, scale=hidden**-0.5)
    w_up = be.randn(experts, ffn, hidden, dtype=dtype, scale=hidden**-0.5)
    w_gate = be.randn(experts, ffn, hidden, dtype=dtype, scale=hidden**-0.5)
    w_down = be.randn(experts, ffn, hidden, dtype=dtype, scale=ffn**-0.5)
    weights = (w_router, w_up, w_gate, w_down)
    flops = 2.0 * tokens * (experts * hidden + top_k * one)
    moved = size(dtype, 2 * tokens * hidden, experts * (hidden + one))
    return Task(fn, (x, *weights, top_k), flops=flops, bytes=moved, items=tokens, parameters=weights, tolerance=layer_tolerance(dtype))


@moe.variant("grouped", backends=["torch"])
def grouped(task: Task) -> Task:
    """Tokens sorted by expert and one grouped product per weight: only the chosen experts are computed."""
    import torch
    import torch.nn.functional as F

    if not hasattr(F, "grouped_mm"):
        raise Unsupported(f"torch {torch.__version__} has no grouped_mm", do="pip install --upgrade torch")
    if task.args[0].dtype == torch.float64:
        raise Unsupported("torch has no grouped product in fp64", do="choose another dtype")
    return replace(task, fn=consult_chosen)
