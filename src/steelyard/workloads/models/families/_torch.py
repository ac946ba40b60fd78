"""Families in PyTorch: one of our modules with the seeded weights, with the interface that all families have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, Prepared, number_format, seeded


def torch_model(draft: Draft, inner: Any, call: Callable[..., Any] | None = None) -> Any:
    """A family in PyTorch: `inner` with its weights by name, called as it is or as `call(inner, *inputs)`."""
    import torch

    form = getattr(torch, number_format(draft.data_type))
    with torch.no_grad():
        for name, item in inner.state_dict().items():
            if item.is_floating_point():
                item.copy_(torch.from_numpy(seeded(name, tuple(item.shape), draft.gain)))

    class TorchModel(Prepared, torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.draft, self.inner = draft, inner.to(form)
            self.eval().requires_grad_(False)

        def forward(self, *inputs: Array) -> Any:
            return self.inner(*inputs) if call is None else call(self.inner, *inputs)

        def array(self, value: Array) -> Array:
            made = torch.from_numpy(value)
            return made.to(form) if made.is_floating_point() else made

    return TorchModel()
