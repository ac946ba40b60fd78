"""A prepared call as the loops run it: forward, the step back from its output, compiled or captured before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.shim.station import Station

MOST_PENDING = 1000
REHEARSALS = 3
Step = Callable[[], Any]


@dataclass
class Routine:
    """One config as it is called: forward, and where asked a step backward from what forward returned.

    `step` answers None when there is nothing to go back through. `pending` is how many forwards may wait for their backward.
    """

    forward: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    step: Callable[[Any], Step | None] | None = None
    clear: Step = lambda: None
    pending: int = MOST_PENDING

    def call(self) -> Any:
        """One forward call that is not timed by itself."""
        return self.forward(*self.args, **self.kwargs)

    def give_up_backward(self) -> None:
        """It was asked for and cannot be had; forward goes on alone."""
        self.step = None


class Gradient:
    """The default backward pass, as PARAM has it: from a gradient of ones, over a fresh graph each time."""

    def __init__(self, operator: Any = None) -> None:
        import torch

        self.tensor, self.ones, self.together = torch.Tensor, torch.ones_like, torch.autograd.backward
        self.own: Step | None = getattr(operator, "backward", None)
        self.create: Step | None = getattr(operator, "create_grad", None)
        self.seeds: list[Any] = []
        self.shape: Any = None
        self.leaves: list[Any] | None = None
        self.nowhere = False

    def step(self, out: Any) -> Step | None:
        """What to call to go back from an output; all that is not the pass itself is done here, before."""
        if self.shape is not None and isinstance(out, self.tensor) and out.shape == self.shape and not out.is_leaf:
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
            self.seeds = [self.ones(root) for root in roots]
            self.shape = self.seeds[0].shape if len(roots) == 1 else None
        if len(roots) == 1:
            return partial(roots[0].backward, self.seeds[0])
        return partial(self.together, roots, self.seeds)

    def look_back(self, roots: Sequence[Any]) -> None:
        """Find out, once, which tensors a pass gives a gradient to: inputs, weights, whatever the graph reaches; and if it can be made."""
        from steelyard.workloads.operators._task import recorded, without_derivative

        self.leaves = [leaf for step in recorded(roots) if (leaf := getattr(step, "variable", None)) is not None]
        self.nowhere = bool(without_derivative(roots))

    def clear(self) -> None:
        """Drop what the pass left, or the next one would add to it."""
        for leaf in self.leaves or ():
            leaf.grad = None


def roots_of(out: Any) -> list[Any]:
    """The parts of an output, which may be nested, that something was recorded for."""
    from steelyard.workloads.operators._cost import tensors

    return [item for item in tensors(out) if not item.is_leaf]


def routine(call: Any, options: Options, station: Station) -> Routine:
    """A prepared call in the form that was asked for: as it is, compiled, or captured; both are done before anything is timed."""
    gradient = Gradient(call.operator)
    made = Routine(call.forward, call.args, call.kwargs)
    if options.backward:
        made.step, made.clear = gradient.step, gradient.clear
        made.pending = 1 if gradient.own else MOST_PENDING
    if options.pt2_model:
        made.forward = _compiled(call.forward)
        rehearse(made, 1)
    return captured(made, gradient, station) if options.cuda_graph and station.on_cuda else made


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled for these shapes alone: what earlier configs taught the compiler must not decide how this one runs."""
    import torch

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(forward, dynamic=False)
    return made


def rehearse(routine: Routine, count: int) -> None:
    """Untimed calls, for what only the first ones do."""
    for _ in range(count):
        out = routine.call()
        if routine.step is not None:
            if step := routine.step(out):
                step()
                routine.clear()
            else:
                routine.give_up_backward()
        out = step = None


def captured(plain: Routine, gradient: Gradient, station: Station) -> Routine:
    """The same as CUDA graphs, one per pass, captured on a side stream whether or not there are warm-up calls."""
    import torch

    api = station.api
    side = api.Stream()
    side.wait_stream(api.current_stream())
    with api.stream(side):
        rehearse(plain, REHEARSALS)
    api.current_stream().wait_stream(side)
    ahead = api.CUDAGraph()
    with api.graph(ahead):
        out = plain.call()

    def forward() -> Any:
        ahead.replay()
        return out

    made = Routine(forward)
    if plain.step is not None:
        step, back = plain.step(out), api.CUDAGraph()
        with api.graph(back, pool=ahead.pool()):
            if gradient.own is not None and step is not None:
                step()
            else:
                torch.autograd.grad(roots_of(out), gradient.leaves or (), gradient.seeds, retain_graph=True, allow_unused=True)
        made.step, made.pending = lambda out: back.replay, plain.pending
    return made
