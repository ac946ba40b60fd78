"""A model of any source on one device: a module, its inputs and its loss, seeded so that two builds are equal."""

from __future__ import annotations

import contextlib
import importlib
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.dtypes import canonical
from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import model_tolerance
from steelyard.workloads.models.resnet import FIRST_GAIN, deep_gradient_share

MODES = ("eval", "fwd", "bwd", "train")
TAGS = ("model", "library")
SEED, SEEDS = 1337, 2**32
DROPS = re.compile(r"drop(_?(out|path))?(_?(prob|probability|rate|p))?$|^layer_?drop$")
ALMOST_NEVER = 1e-30
"""A probability at which dropout draws its numbers, at its usual cost, and drops nothing."""


@dataclass(frozen=True)
class ModelDevice:
    """Where a model is built: the kind of accelerator, whether XLA drives it, and the device by torch's name."""

    accelerator: str
    xla: bool
    where: Any


@dataclass(frozen=True)
class ModelRequest:
    """Which model to build, and how. `dtype` is the format that everything is converted to."""

    name: str
    test: str = "eval"
    batch_size: int | None = None
    seq: int | None = None
    dtype: str = "fp32"
    seed: int = SEED

    @property
    def format(self) -> Any:
        """The format by torch's name."""
        return importlib.import_module("steelyard.backends.torch").FORMATS[canonical(self.dtype)]


@dataclass(frozen=True)
class Subject:
    """A model on its device with inputs to call it with; `loss` makes one number of its output."""

    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Any] = lambda output: mean_of(output)
    batch_size: int | None = None
    differentiates: bool = False
    items: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


Builder = Callable[[ModelRequest, ModelDevice], Subject]


def sow(xla: bool, seed: int = SEED) -> None:
    """Seed every generator that a model might draw from."""
    import numpy as np
    import torch

    seed %= SEEDS
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if xla:
        importlib.import_module("torch_xla").manual_seed(seed)


def as_task(builder: Builder, ask: ModelRequest, be: Any, mode: str) -> Task:
    """A library's model as a workload: seeded weights of its own kind, drawn on the host, so that every device has the same.

    Gains that begin at 0 are raised a little; otherwise no answer would depend on the branch before them.
    """
    ask, xla = replace(ask, test="eval" if mode == "eval" else "train", seed=be.seed), be.name == "torch_xla"
    with be.building() as where:
        sow(xla, ask.seed)
        made = builder(ask, ModelDevice(be.device, xla, where))
        made.module.train(ask.test == "train")
    if where != be.where:
        args, kwargs = moved((made.args, dict(made.kwargs)), be.where)
        made = replace(made, module=placed(made.module, be.where, None), args=args, kwargs=kwargs)
    weights = tuple(made.module.parameters())
    for name, item in made.module.named_parameters():
        if item.ndim == 1 and name.endswith(("weight", "gamma")) and not item.is_meta and not item.any():
            item.data.fill_(FIRST_GAIN)
    return Task(
        made.module,
        made.args,
        made.kwargs,
        items=made.items or made.batch_size,
        parameters=() if made.differentiates else weights,
        loss=made.loss,
        tolerance=model_tolerance(ask.dtype),
        norm_tolerance=deep_gradient_share(ask.dtype, mode),
        chance=Dropout(made.module) if ask.test == "train" else None,
        effective={"weights": "seeded", "model": type(made.module).__name__, "batch_size": made.batch_size, **made.facts},
    )


@dataclass(frozen=True)
class Dropout:
    """The dropout of a module. Every compiler draws other random numbers than eager, so answers are compared without dropout.

    Probabilities are in dropout layers, and in numbers with a typical name in other layers and in configs of transformers; one
    elsewhere is not found, and the answers then differ.
    """

    module: Any

    def stop(self, *, drawing: bool) -> None:
        """Switch dropout off; with `drawing` the random numbers are still drawn, so that their cost stays."""
        for holder, name, _ in self._places():
            self._set(holder, name, ALMOST_NEVER if drawing else 0.0)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Switch dropout off within the context."""
        before = list(self._places())
        self.stop(drawing=False)
        try:
            yield
        finally:
            for place in before:
                self._set(*place)

    def _places(self) -> Iterator[tuple[Any, str, Any]]:
        """Every probability of dropout: the object that has it, its name there, and its value."""
        from torch.nn.modules.dropout import _DropoutNd

        for layer in self.module.modules():
            if (isinstance(layer, _DropoutNd) or type(layer).__name__ == "StochasticDepth") and 0 < layer.p < 1:
                yield layer, "p", layer.p
            for holder in (layer, getattr(layer, "config", None)):
                for name, value in list(vars(holder).items()) if hasattr(holder, "__dict__") else ():
                    if DROPS.search(name) and type(value) is float and 0 < value < 1:
                        yield holder, name, value

    @staticmethod
    def _set(holder: Any, name: str, value: Any) -> None:
        with contextlib.suppress(AttributeError, TypeError):
            setattr(holder, name, value)


def installed(name: str) -> Any:
    """Import a library; the error says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (None, name):
            raise Unsupported(f"{name} needs {error.name}, which is not installed here", do=f"pip install {error.name}") from error
        do = f"pip install {name}, or for XLA steelyard env create torch-xla {name}"
        raise Unsupported(f"{name} is not installed here", do=do) from error


def placed(module: Any, where: Any, dtype: Any) -> Any:
    """A module moved to a device; parameters that its parts share stay shared, which `to` alone would undo on XLA."""
    shared: dict[int, list[tuple[Any, str]]] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            shared.setdefault(id(parameter), []).append((part, name))
    made = module.to(where) if dtype is None else module.to(where, dtype)
    for (first, own), *others in shared.values():
        for part, name in others:
            part._parameters[name] = first._parameters[own]
    return made


def moved(value: Any, where: Any, dtype: Any = None) -> Any:
    """The same structure with its tensors on a device, floating ones in another format if one is given."""
    import torch

    def move(item: Any) -> Any:
        return item.to(where, dtype if dtype is not None and item.is_floating_point() else None)

    return mapped(value, lambda item: move(item) if isinstance(item, torch.Tensor) else item)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with every leaf changed."""
    if isinstance(value, Mapping) and type(value) is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped(item, change) for item in value)
    return change(value)


def mean_of(output: Any) -> Any:
    """One number from any output: its own loss, or the mean of the means of its floating tensors."""
    from steelyard.backends._torch_passes import leaves

    loss = output.get("loss") if isinstance(output, Mapping) else None
    if loss is not None:
        return loss
    means = [item.float().mean() for item in leaves(output).values() if item.is_floating_point()]
    if not means:
        raise NotApplicable("the model returns no floating-point tensor to train on")
    return sum(means[1:], start=means[0]) / len(means)
