"""torch_xla2, now torchax: a model of PyTorch's as one function of JAX's, made in either of the two ways of the original's axis."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from steelyard.dialects.ptxla.shim import verify
from steelyard.dialects.ptxla.shim.perform import ModelCall, RuntimeClock
from steelyard.errors import Unsupported, told
from steelyard.workloads.models.subject import ModelDevice, Subject, mapped, sow

KINDS = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}
"""What JAX calls our kinds of devices."""
LONGEST_REASON = 300


def open_spot(accelerator: str) -> ModelDevice:
    """PyTorch's side of it is on the CPU, where the model is built; JAX's device must be there all the same."""
    torch = importlib.import_module("torch")
    _device(accelerator)
    return ModelDevice(accelerator, False, torch.device("cpu"), jax=True)


def begin(subject: Subject, spot: ModelDevice, test: str, how: str) -> ModelCall:
    """A model that is called as inference; what JAX computes has no gradients that PyTorch knows."""
    if test != "eval":
        why = "gradients of what JAX computes come from jax.grad, and PyTorch's autograd sees none"
        raise Unsupported("torch_xla2 is for inference here", why=why, do="--test=eval")
    way = Jaxed.open(how, subject, spot.accelerator)
    return JaxAct(subject, spot, test, way, None, JaxClock(spot, way), {}, way)


@dataclass
class Jaxed:
    """A model that takes and gives JAX's arrays; a call ends when it is handed over, and `wait` when its answer is there."""

    compiled: Callable[..., Any]
    weights: Any
    device: Any
    jax: Any
    last: Any = None

    @classmethod
    def open(cls, how: str, subject: Subject, accelerator: str) -> Jaxed:
        """`extract_jax` runs the module itself on JAX's arrays, `torch_export` the graph that torch.export makes of it."""
        jax, device = _load("jax"), _device(accelerator)
        try:
            weights, fn = _load("torchax").extract_jax(subject.module) if how == "extract_jax" else _exported(subject)
        except Unsupported:
            raise
        except Exception as error:
            raise _beyond(error) from error
        return cls(jax.jit(fn), jax.device_put(weights, device), device, jax)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self.last = self.compiled(self.weights, args, kwargs)
        except (self.jax.errors.JAXTypeError, self.jax.errors.JAXIndexError, _load("torchax.tensor").OperatorNotFound) as error:
            raise _beyond(error) from error
        return self.last

    def wait(self) -> None:
        """Until the last answer is there."""
        self.jax.block_until_ready(self.last)

    def feed(self, value: Any) -> Any:
        """The same structure with PyTorch's tensors on JAX's device."""
        torch, mappings = importlib.import_module("torch"), _load("torchax.ops.mappings")

        def moved(item: Any) -> Any:
            return self.jax.device_put(mappings.t2j(item), self.device) if isinstance(item, torch.Tensor) else item

        return mapped(value, moved)

    def read(self, value: Any) -> Any:
        """The same structure with JAX's arrays as PyTorch's tensors."""
        mappings = _load("torchax.ops.mappings")
        return self.jax.tree_util.tree_map(lambda item: mappings.j2t(item) if isinstance(item, self.jax.Array) else item, value)


@dataclass(frozen=True)
class JaxClock(RuntimeClock):
    """JAX: a call ends when it was handed over, and all is done when its answer is there."""

    way: Jaxed

    def wait(self) -> None:
        self.way.wait()


@dataclass
class JaxAct(ModelCall):
    """Inference on JAX's arrays; what goes in and what comes out is moved outside of the timed call."""

    way: Jaxed

    def inputs(self, randomise: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().inputs(randomise)
        return self.way.feed(args), self.way.feed(kwargs)

    def answered(self, output: tuple[Any, Any]) -> tuple[Any, Any]:
        return self.way.read(output[0]), output[1]

    def answer(self, iterations: int = 1) -> verify.Answer:
        sow(False)
        for _ in range(iterations):
            output = self(*self.inputs())
        self.clock.wait()
        return verify.answer(self.answered(output)[0])


def _exported(subject: Subject) -> tuple[Any, Callable[..., Any]]:
    torch, export = importlib.import_module("torch"), _load("torchax.export")
    with torch.no_grad():
        made = torch.export.export(subject.module, subject.args, dict(subject.kwargs), strict=False)
    weights, fn = export.exported_program_to_jax(made)

    def call(weights: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        found = fn(weights, (args, dict(kwargs)))
        return found[0] if len(found) == 1 else tuple(found)

    return weights, call


def _device(accelerator: str) -> Any:
    jax = _load("jax")
    _load("torchax")
    try:
        return jax.devices(KINDS[accelerator])[0]
    except (RuntimeError, AssertionError) as error:
        raise Unsupported(f"JAX {jax.__version__} has no {accelerator} device here", why=told(error, LONGEST_REASON)) from error


def _beyond(error: Exception) -> Unsupported:
    """An operator that torchax lacks, or one that needs a number where XLA has a shape."""
    return Unsupported(f"torchax {metadata.version('torchax')} cannot run this model", why=told(error, LONGEST_REASON))


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"{error.name} is not installed here, and torch_xla2 became torchax", do="steelyard env create torchax"
        ) from error
