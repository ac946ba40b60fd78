"""The backward pass from what a call returned, timed separately from the call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from steelyard.backends._torch_modes import tensors
from steelyard.model.task import MOST_PENDING, Backward, Step
from steelyard.workloads.operators._task import recorded, without_derivative


def backward_of(operator: Any) -> Backward:
    """The backward pass of an operator: a user's own, which runs right after its forward pass, else the usual one."""
    gradient = Gradient(operator)
    return Backward(gradient.step, gradient.clear, 1 if gradient.own else MOST_PENDING, gradient.again)


class Gradient:
    """The usual backward pass: from a gradient of ones, over a fresh graph each time.

    A user's operator may define its own pass: `backward()`, and `create_grad()`, which prepares it.
    """

    def __init__(self, operator: Any = None) -> None:
        self.own: Step | None = getattr(operator, "backward", None)
        self.create: Step | None = getattr(operator, "create_grad", None)
        self.seeds: list[Any] = []
        self.shape: Any = None
        self.leaves: list[Any] | None = None
        self.nowhere = False

    def step(self, out: Any) -> Step | None:
        """Returns the backward pass for an output; preparations are done here, untimed."""
        if self.shape is not None and isinstance(out, torch.Tensor) and out.shape == self.shape and not out.is_leaf:
            return partial(out.backward, self.seeds[0])
        roots = roots_of(out)
        if self.leaves is None:
            self.look_back(roots)
        if self.own is not None:
            if self.create is not None:
                self.create()
            return self.own
        if self.nowhere:
            return None
        if [seed.shape for seed in self.seeds] != [root.shape for root in roots]:
            self.seeds = [torch.ones_like(root) for root in roots]
            self.shape = self.seeds[0].shape if len(roots) == 1 else None
        if len(roots) == 1:
            return partial(roots[0].backward, self.seeds[0])
        return partial(torch.autograd.backward, roots, self.seeds)

    def again(self, out: Any) -> Step:
        """The pass in a form that can run again over the same graph, for a capture that is replayed; nothing needs clearing after it."""
        step = self.step(out)
        if self.own is not None and step is not None:
            return step
        return partial(torch.autograd.grad, roots_of(out), self.leaves or (), self.seeds, retain_graph=True, allow_unused=True)

    def look_back(self, roots: Sequence[Any]) -> None:
        """Find out once which tensors get a gradient (inputs, weights, whatever the graph reaches), and whether there is a pass."""
        self.leaves = [leaf for step in recorded(roots) if (leaf := getattr(step, "variable", None)) is not None]
        self.nowhere = bool(without_derivative(roots))

    def clear(self) -> None:
        """Drop the gradients of the pass, or the next one would add to them."""
        for leaf in self.leaves or ():
            leaf.grad = None


def roots_of(out: Any) -> list[Any]:
    """The tensors of an output, which may be nested, that have a recorded graph."""
    return [item for item in tensors(out) if not item.is_leaf]
