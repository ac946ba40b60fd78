"""torchax, PyTorch's operators on JAX; formerly torch_xla2, which is an option of PyTorch/XLA's own benchmarks.

It runs workloads' torch implementations, one XLA program per operator; the variant jit makes one program of the whole call.
JAX computes gradients there, and PyTorch's autograd does not see them, so the backend is for inference.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import torchax
from torchax.tensor import OperatorNotFound

from steelyard import clocks
from steelyard.backends._jax_runtime import WaitedTimer
from steelyard.backends._torch_fixed import TorchStopwatch
from steelyard.backends._torch_passes import leaves
from steelyard.backends.torch import TorchElsewhere
from steelyard.errors import NotApplicable, Unsupported, told
from steelyard.measuring.clock import Timer
from steelyard.measuring.fixed import Range, Stopwatch
from steelyard.model.dtypes import canonical
from steelyard.model.task import Task, nested

ABOUT = {
    "package": "torchax", "stack": "torchax", "requires": ["numpy", "torch", "jax", "torchax"], "pins": "torchax.txt",
    "why": "torchax needs a torch and a jax that it works with", "flags": "XLA_FLAGS",
    "variables": {"XLA_FLAGS": "", "PJRT_NPROC": "{threads}", "NPROC": "{threads}", "JAX_PLATFORMS": "{device}"},
}  # fmt: skip
KINDS = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}
"""JAX's names for our kinds of devices."""
TOO_WIDE = ("fp64", "complex128")
BEYOND = (OperatorNotFound, jax.errors.JAXTypeError, jax.errors.JAXIndexError)
"""Errors of operators that torchax lacks, and of those that need a number where XLA has a shape."""
HERE, THERE = torch.device("cpu"), torch.device("jax")


class Runtime:
    """The process's switch that sends PyTorch's calls to JAX.

    It is on while a task is built and while it is called, and off while plain PyTorch computes the reference.
    """

    def __init__(self) -> None:
        self.on = False

    def switch(self, on: bool) -> None:
        """Turn the switch on or off."""
        if on != self.on:
            (torchax.enable_globally if on else torchax.disable_globally)()
        self.on = on

    @contextmanager
    def inside(self, on: bool = True) -> Iterator[None]:
        """Turn the switch on or off inside the block."""
        before = self.on
        self.switch(on)
        try:
            yield
        finally:
            self.switch(before)

    def outside(self) -> AbstractContextManager[None]:
        """Turn the switch off inside the block."""
        return self.inside(False)


RUNTIME = Runtime()


@dataclass(frozen=True)
class Tried:
    """A function that raises Unsupported where torchax cannot run it; its call ends when the work is handed over."""

    started: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.started(*args, **kwargs)
        except BEYOND as error:
            raise Unsupported(f"torchax {version('torchax')} cannot run this", why=told(error).split(". ")[0][:300]) from error


class Waited(Tried):
    """A function whose call ends when its results are computed."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        wait_for(made)
        return made


def wait_for(made: Any) -> None:
    """Wait until everything in an answer is computed."""
    jax.block_until_ready([item.jax() for item in leaves(made).values() if hasattr(item, "jax")])


def _as_torch(item: Any) -> Any:
    """Return a tensor of torchax as a plain PyTorch tensor; anything else unchanged."""
    return item.torch() if hasattr(item, "jax") else item


class WaitedStopwatch(TorchStopwatch):
    """A stopwatch for calls that are handed over when they return, and done when their results are computed."""

    asynchronous = True

    def timed(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        start = clocks.perf_counter_ns()
        out = fn(*args, **(kwargs or {}))
        wait_for(out)
        return clocks.perf_counter_ns() - start, out

    def finish(self, out: Any) -> None:
        wait_for(out)

    def await_inputs(self, inputs: Any) -> None:
        wait_for(inputs)


class Torchax(TorchElsewhere):
    """PyTorch's operators on JAX; eager is one XLA program per operator."""

    name = "torchax"
    install = "steelyard env create torchax"

    def open(self) -> None:
        self.take_threads()
        try:
            self.spot = jax.devices(KINDS.get(self.device, self.device))[0]
        except (RuntimeError, AssertionError) as error:
            raise Unsupported(f"JAX {jax.__version__} has no {self.device} device here", why=" ".join(str(error).split())[:300]) from error
        self.where = THERE
        RUNTIME.switch(True)

    def timer(self) -> Timer:
        return WaitedTimer(self.threads)

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        return WaitedStopwatch()

    def unwaited(self, task: Task) -> Task:
        return replace(task, fn=Tried(task.fn.started)) if isinstance(task.fn, Waited) else task

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        if canonical(dtype) in TOO_WIDE:
            raise Unsupported(f"JAX computes {dtype} in half its width by default", do="use backend torch")
        return super().array(data, dtype)

    def module(self, make: Callable[[], Any], dtype: str) -> Any:
        """Return a module whose weights are drawn on the CPU, where PyTorch can change them in place, and then moved."""
        self.where = HERE
        try:
            made = super().module(make, dtype)
        finally:
            self.where = THERE
        return made.to(THERE)

    def in_mode(self, task: Task, mode: str) -> Task:
        if mode != "eval":
            why = "gradients of what JAX computes come from jax.grad, and PyTorch's autograd sees none"
            raise Unsupported(f"backend torchax has no mode {mode}", why=why, do="--mode eval")
        made = super().in_mode(task, mode)
        RUNTIME.switch(False)
        if made.fn is None:
            return made
        return replace(made, fn=Waited(made.fn), scope=nested(made.scope, RUNTIME.inside))

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        return super().leaf(value.torch() if hasattr(value, "jax") else value)

    def save(self, value: Any, path: Path) -> None:
        super().save({place: _as_torch(item) for place, item in leaves(value).items()}, path)

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        with RUNTIME.inside():
            return super().copy(value, buffers)

    def alter(self, value: Any, change: Callable[[Any], Any]) -> bool:
        if not hasattr(value, "jax"):
            return super().alter(value, change)
        with RUNTIME.inside():
            value.copy_(change(value))
        return True

    def relocate(self, task: Task, rng: random.Random, *, whole: bool = True) -> Task:
        with RUNTIME.inside():
            return super().relocate(task, rng, whole=whole)

    def movable(self, task: Task) -> bool:
        with RUNTIME.inside():
            return super().movable(task)

    @classmethod
    def reset(cls) -> None:
        RUNTIME.switch(False)
        super().reset()

    def jitted(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a whole call as one XLA program; tensors and weights are its inputs, and everything else is a constant."""
        env = torchax.default_env()
        leaves, shape = jax.tree_util.tree_flatten((args, dict(kwargs)))
        places = [place for place, item in enumerate(leaves) if isinstance(item, torch.Tensor)]
        module = fn if isinstance(fn, torch.nn.Module) else None
        weights = env.t2j_iso({**dict(module.named_buffers()), **dict(module.named_parameters())}) if module is not None else {}

        def pure(weights: Any, arrays: Any) -> Any:
            filled = {**dict(enumerate(leaves)), **dict(zip(places, env.j2t_iso(arrays), strict=True))}
            args, kwargs = jax.tree_util.tree_unflatten(shape, list(filled.values()))
            if module is None:
                return env.t2j_iso(fn(*args, **kwargs))
            return env.t2j_iso(torch.func.functional_call(module, env.j2t_iso(weights), args, kwargs, tie_weights=False))

        compiled = jax.jit(pure)

        def call(*args: Any, **kwargs: Any) -> Any:
            given = jax.tree_util.tree_leaves((args, kwargs))
            return env.j2t_iso(compiled(weights, [given[place].jax() for place in places]))

        return call

    def exported(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return one XLA program of the graph that torch.export makes of a module, which it gets as plain PyTorch."""
        from torchax.export import exported_program_to_jax

        if not isinstance(fn, torch.nn.Module):
            raise NotApplicable("torch.export takes modules, and this is a function")
        env = torchax.default_env()
        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with RUNTIME.outside():
                plain, words = jax.tree_util.tree_map(_as_torch, (args, dict(kwargs)))
                weights, program = exported_program_to_jax(torch.export.export(fn._apply(_as_torch), plain, words, strict=False))
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)
        weights, compiled = jax.device_put(weights, self.spot), jax.jit(program)

        def call(*args: Any, **kwargs: Any) -> Any:
            found = compiled(weights, env.t2j_iso((args, kwargs)))
            return env.j2t_iso(found[0] if len(found) == 1 else tuple(found))

        return call

    @contextmanager
    def building(self) -> Iterator[Any]:
        """Build models on the CPU, where PyTorch can change their weights in place."""
        with RUNTIME.outside():
            yield HERE

    def versions(self) -> dict[str, str]:
        own = {"torchax": version("torchax"), "jax": jax.__version__, "jaxlib": version("jaxlib"), "device": str(self.spot.device_kind)}
        return {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version(), **own}


BACKEND = Torchax
