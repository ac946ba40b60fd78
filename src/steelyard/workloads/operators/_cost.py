"""The work of a call, found by running it once without data: the steps at the dispatcher of the meta device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from steelyard.backends._torch_modes import tensors

LOOKUPS = {"embedding", "index_select", "gather", "take", "index", "_unsafe_index"}
BAGS = {"_embedding_bag", "_embedding_bag_forward_only"}
UNREAD = {"zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye", "fill_", "zero_"}
UNREAD |= {"normal_", "uniform_", "random_", "exponential_", "geometric_", "cauchy_", "log_normal_"}
UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"}
"""These leave memory as it was: nothing is moved, and if nothing else runs, the answer is undefined."""
SCATTERED = {
    "diag", "diagonal_copy", "grid_sampler_2d", "grid_sampler_3d", "histc", "index_add", "index_add_", "index_copy", "index_copy_",
    "index_fill", "index_fill_", "index_put", "index_put_", "index_reduce", "index_reduce_", "masked_scatter", "masked_scatter_",
    "masked_select", "max_unpool2d", "max_unpool3d", "multinomial", "narrow_copy", "nonzero", "put", "put_", "scatter", "scatter_",
    "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "searchsorted", "bucketize", "select_copy", "select_scatter",
    "slice_copy", "slice_scatter", "trace", "_unsafe_index_put", "_index_put_impl_",
}  # fmt: skip
"""These touch a part of an argument that depends on the data or is hard to compute."""


@dataclass(frozen=True)
class Steps:
    """What one call ran: the kernels by name, its flops if counted, whether it drew numbers or wrote to its inputs, its output."""

    kernels: tuple[str, ...]
    flops: float
    random: bool
    writes: bool
    output: Any = field(repr=False)


class KernelNotes(TorchDispatchMode):
    """Records every kernel except views, which do no work."""

    def __init__(self, inputs: Iterable[Any]) -> None:
        super().__init__()
        self.kernels: list[str] = []
        self.flops, self.random, self.writes = 0.0, False, False
        self.inputs = {id(item) for item in inputs}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the first operator imports the compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        if makes(func):
            kwargs = {**kwargs, "device": torch.device("meta")}
        count = flop_registry.get(func._overloadpacket)
        if count is None and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        out = func(*args, **kwargs)
        if not func.is_view:
            self.kernels.append(func._schema.name.rpartition("::")[2])
        self.flops += float(count(*args, **kwargs, out_val=out)) if count is not None else 0.0
        self.random |= torch.Tag.nondeterministic_seeded in func.tags
        for place, argument in enumerate(func._schema.arguments if func._schema.is_mutable else ()):
            if argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out:
                written = args[place] if place < len(args) else kwargs.get(argument.name)
                self.writes |= any(id(item) in self.inputs for item in tensors(written))
        return out


@functools.cache
def makes(func: Any) -> bool:
    """Whether an operator makes a tensor without tensor arguments; it would have data even if the call's other tensors have none."""
    kinds = [str(argument.type) for argument in func._schema.arguments]
    return any(argument.name == "device" for argument in func._schema.arguments) and not any("Tensor" in kind for kind in kinds)


def steps(forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Steps:
    """Run a call on tensors without data; it raises what the call raises."""
    with torch.no_grad(), KernelNotes(tensors([args, kwargs])) as seen:
        output = forward(*args, **kwargs)
    undefined = bool(seen.kernels) and set(seen.kernels) <= UNWRITTEN
    return Steps(tuple(seen.kernels), seen.flops, seen.random or undefined, seen.writes, output)


def least_bytes(seen: Steps, args: Sequence[Any], kwargs: Mapping[str, Any], weights: Iterable[Any] = ()) -> float | None:
    """The least that a call must move: what it reads once and what it writes once; None if unknown.

    Views move nothing, so they have no bandwidth; a lookup reads as much as it returns.
    """
    ran, out = set(seen.kernels) - UNWRITTEN, sum(touched(item) for item in tensors(seen.output))
    if not ran or ran & SCATTERED:
        return None
    read = [item for name, value in kwargs.items() if name != "out" for item in tensors(value)] + tensors(list(args))
    indices = sum(touched(item) for item in read if not (item.is_floating_point() or item.is_complex()))
    if ran & (LOOKUPS | BAGS):
        return _looked_up(seen, read, list(weights), indices, out)
    if all(name in UNREAD or name.endswith("_like") for name in ran):
        return out
    return sum(touched(item) for item in read) + sum(touched(item) for item in weights) + out


def _looked_up(seen: Steps, read: Sequence[Any], weights: Sequence[Any], indices: float, out: float) -> float | None:
    tables = [item for item in (*read, *weights) if item.is_floating_point() or item.is_complex()]
    work = [name for name in seen.kernels if name not in UNREAD | UNWRITTEN]
    if len(work) != 1 or len(tables) != 1:
        return None
    if work[0] in LOOKUPS:
        return 2 * out + indices
    rows = next((item.numel() for item in read if not item.is_floating_point()), 0)
    return float(rows * tables[0].shape[-1] * tables[0].element_size()) + indices + out


def touched(item: Any) -> float:
    """Bytes of the elements of a tensor, those that repeat through a stride of 0 once."""
    sizes = (size for size, stride in zip(item.shape, item.stride(), strict=True) if stride or not size)
    return float(math.prod(sizes) * item.element_size()) if item.layout is torch.strided else float(item.values().nbytes)
