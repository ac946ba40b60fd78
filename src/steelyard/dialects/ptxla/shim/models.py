"""The models of every suite, built for one device: a module, its inputs, and what training it needs."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from steelyard.errors import NotApplicable, Unsupported, unknown

SEED = 1337
RATE = 0.01
DUMMY_WIDTHS, DUMMY_BATCH = (32, 512, 512, 32), 16
IMAGE_BATCH, TEXT_BATCH, TEXT_LENGTH = 8, 4, 128
WITH_GRADIENTS = ("maml",)
"""Models whose inference differentiates."""
DROPS = re.compile(r"drop(_?(out|path))?(_?(prob|probability|rate|p))?$|^layer_?drop$")
ALMOST_NEVER = 1e-30
"""A probability at which dropout draws its numbers, at the cost that it always has, and drops nothing."""


@dataclass(frozen=True)
class Spot:
    """Where a model lies: the kind of accelerator, whether XLA or JAX drives it, and the device by torch's name."""

    accelerator: str
    xla: bool
    where: Any
    jax: bool = False

    @classmethod
    def open(cls, accelerator: str, xla: bool) -> Spot:
        """Wake the device, or say why it cannot be had."""
        import torch

        if xla:
            return cls(accelerator, True, _load_xla()._device(accelerator))
        if accelerator == "cuda" and not torch.cuda.is_available():
            raise Unsupported("there is no CUDA device here", why=f"torch {torch.__version__} finds none", do="--accelerator=cpu")
        if accelerator == "tpu":
            raise Unsupported("a TPU needs XLA", do="--xla=PJRT")
        return cls(accelerator, False, torch.device(accelerator))

    def backend(self, threads: int) -> Any:
        """Our backend on this device, which builds our own workloads."""
        if self.xla:
            return _load_xla().BACKEND(self.accelerator, threads=threads)
        return importlib.import_module("steelyard.backends.torch").BACKEND(self.accelerator, threads=threads)


def _load_xla() -> Any:
    try:
        return importlib.import_module("steelyard.backends.torch_xla")
    except ModuleNotFoundError as error:
        raise Unsupported("torch_xla is not installed here", do="steelyard env create torch-xla") from error


@dataclass(frozen=True)
class Ask:
    """Which model, and how: all that a builder may look at."""

    suite: str
    name: str
    test: str
    batch_size: int | None = None
    size: str | None = None
    checkout: str | None = None
    half: bool = False
    cast: bool = False
    sgd: bool = False
    threads: int = 1
    loaded: Any = None
    verified: bool = False


@dataclass(frozen=True)
class Subject:
    """A model on its device with inputs to call it with; `loss` makes one number of what it answers."""

    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Any] = lambda output: mean_of(output)
    batch_size: int | None = None
    dtype: Any = None
    amp: Any = None
    optimizer: str = "adam"
    differentiates: bool = False


def sow(xla: bool) -> None:
    """The same numbers from every source that a model might draw from."""
    import numpy as np
    import torch

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    if xla:
        importlib.import_module("torch_xla").manual_seed(SEED)


def build(ask: Ask, spot: Spot) -> Subject:
    """The model of one suite, in the mode of its test, on its device; one that is verified drops nothing in training."""
    sow(spot.xla)
    made = {"dummy": dummy, "steelyard": own, "torchbench": torchbench, "timm": timm, "transformers": transformers}[ask.suite](ask, spot)
    made.module.train(ask.test == "train")
    if ask.verified and ask.test == "train":
        keep_all(made.module)
    return made


def keep_all(module: Any) -> None:
    """Make dropout drop nothing: every compiler draws other random numbers than eager, so no two answers could be compared.

    Probabilities stand in layers made for it, and as numbers with a telling name in others and in the configs of transformers; one
    that stands elsewhere is not found, and the answers then differ.
    """
    from torch.nn.modules.dropout import _DropoutNd

    for layer in module.modules():
        if (isinstance(layer, _DropoutNd) or type(layer).__name__ == "StochasticDepth") and 0 < layer.p < 1:
            layer.p = ALMOST_NEVER
        for holder in (layer, getattr(layer, "config", None)):
            for name, value in list(vars(holder).items()) if hasattr(holder, "__dict__") else ():
                if DROPS.search(name) and type(value) is float and 0 < value < 1:
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(holder, name, ALMOST_NEVER)


def dummy(ask: Ask, spot: Spot) -> Subject:
    """Three linear layers, so that every path can be tried without a download; it can be trained too."""
    import torch
    from torch import nn

    if ask.name != "dummy":
        raise unknown("model", ask.name, ["dummy"])
    first, *_, last = DUMMY_WIDTHS
    layers: list[Any] = []
    for features, out in pairwise(DUMMY_WIDTHS):
        layers += [nn.Linear(features, out), nn.ReLU()]
    module = nn.Sequential(*layers[:-1]).to(spot.where)
    sow(spot.xla)
    batch = ask.batch_size or DUMMY_BATCH
    inputs, target = torch.randn(batch, first), torch.randn(batch, last).to(spot.where)

    def loss(output: Any) -> Any:
        return nn.functional.mse_loss(output, target.to(output.dtype))

    return Subject(module, (inputs.to(spot.where),), loss=loss, batch_size=batch, optimizer=_optimizer(ask))


def own(ask: Ask, spot: Spot) -> Subject:
    """One of our own models, with the data and weights that `steelyard run` gives it."""
    workload = ask.loaded.workloads.get(f"model/{ask.name}")
    if workload is None:
        names = [name.removeprefix("model/") for name in ask.loaded.workloads if name.startswith("model/")]
        raise unknown("model", ask.name, names)
    if ask.test not in workload.modes:
        raise NotApplicable(f"{workload.name} has no mode {ask.test}; it has {', '.join(workload.modes)}")
    params = {axis: values[0] for axis, values in workload.axes.items()}
    if ask.size is not None:
        if ask.size not in workload.sizes:
            raise unknown(f"size of {workload.name}", ask.size, workload.sizes)
        params |= workload.sizes[ask.size]
    if ask.batch_size is not None and "batch" in params:
        params["batch"] = ask.batch_size
    be, body = spot.backend(ask.threads), workload.bodies["torch"]
    takes = body.__code__.co_varnames[: body.__code__.co_argcount]
    task = body(**params, be=be, **({"mode": ask.test} if "mode" in takes else {}))
    return Subject(task.fn, task.args, dict(task.kwargs), task.loss or mean_of, params.get("batch"), optimizer=_optimizer(ask))


def torchbench(ask: Ask, spot: Spot) -> Subject:
    """A model of a TorchBench checkout by its contract: `Model(test, device, batch_size)`, then `get_module()`.

    The checkout stays first on the path and the folder we are in, as models import and read more of it when they are called;
    the process is this config's alone.
    """
    root = str(Path(ask.checkout or "").resolve())
    if root not in sys.path:
        sys.path.insert(0, root)
    os.chdir(root)
    if not ask.name.isidentifier():
        raise unknown("model", ask.name, [])
    try:
        made = _benchmark(ask, spot)
    except ModuleNotFoundError as error:
        if (error.name or "torchbenchmark").startswith("torchbenchmark"):
            raise
        raise Unsupported(f"{ask.name} needs {error.name}, which is not installed here", do=f"pip install {error.name}") from error
    module, inputs = made.get_module()
    dtype, amp = _precision(ask, spot)
    module = _moved(module, spot.where, dtype)
    inputs = moved(inputs, spot.where, dtype)
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    return Subject(
        module, args, kwargs, batch_size=getattr(made, "batch_size", None), dtype=dtype, amp=amp, optimizer=_optimizer(ask),
        differentiates=any(word in ask.name for word in WITH_GRADIENTS),
    )  # fmt: skip


def _benchmark(ask: Ask, spot: Spot) -> Any:
    """TorchBench's own object for a model; one that forbids another batch size gets none."""
    found = importlib.import_module(f"torchbenchmark.models.{ask.name}")
    kind = getattr(found, "Model", None)
    if kind is None:
        raise Unsupported(f"torchbenchmark.models.{ask.name} has no Model")
    batch = ask.batch_size if getattr(kind, "ALLOW_CUSTOMIZE_BSIZE", True) else None
    sow(spot.xla)
    return kind(test=ask.test, device="cpu" if spot.xla else str(spot.where), batch_size=batch)


def timm(ask: Ask, spot: Spot) -> Subject:
    """An image model by its name in timm, with random weights."""
    import torch

    library = _installed("timm")
    if ask.name not in library.list_models():
        raise unknown("timm model", ask.name, library.list_models())
    module = library.create_model(ask.name, pretrained=False)
    dtype, amp = _precision(ask, spot)
    batch, shape = ask.batch_size or IMAGE_BATCH, module.default_cfg.get("input_size", (3, 224, 224))
    sow(spot.xla)
    images = moved(torch.randn(batch, *shape), spot.where, dtype)
    return Subject(_moved(module, spot.where, dtype), (images,), batch_size=batch, dtype=dtype, amp=amp, optimizer=_optimizer(ask))


def transformers(ask: Ask, spot: Spot) -> Subject:
    """A language model by the name of its class in transformers, from its default config with random weights."""
    import torch

    library = _installed("transformers")
    kind = getattr(library, ask.name, None)
    if kind is None or getattr(kind, "config_class", None) is None:
        raise Unsupported(f"transformers {library.__version__} has no model class {ask.name!r}")
    config = kind.config_class()
    module, batch = kind(config), ask.batch_size or TEXT_BATCH
    dtype, amp = _precision(ask, spot)
    sow(spot.xla)
    tokens = torch.randint(0, config.vocab_size, (batch, TEXT_LENGTH)).to(spot.where)
    words = {"input_ids": tokens} | ({"labels": tokens} if ask.test == "train" else {})
    return Subject(_moved(module, spot.where, dtype), (), words, batch_size=batch, dtype=dtype, amp=amp, optimizer=_optimizer(ask))


def _installed(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        raise Unsupported(f"{name} is not installed here", do=f"pip install {name}, or for XLA steelyard env create torch-xla {name}")
    return importlib.import_module(name)


def _optimizer(ask: Ask) -> str:
    return "sgd" if ask.sgd else "adam"


def _precision(ask: Ask, spot: Spot) -> tuple[Any, Any]:
    """The format inference is converted to, and the one that training casts to: half on CUDA, bf16 on a TPU, none on a CPU.

    Models that cannot be converted are cast in inference too.
    """
    import torch

    if ask.test == "eval" and not ask.cast:
        return (torch.float16 if ask.half else torch.bfloat16), None
    return None, {"cuda": torch.float16, "tpu": torch.bfloat16}.get(spot.accelerator)


def _moved(module: Any, where: Any, dtype: Any) -> Any:
    """A module elsewhere; parameters that several of its parts share stay shared, which moving to XLA alone would end."""
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
    """The same structure with its tensors elsewhere, and floating ones in another format where one is given."""
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


def leaves(value: Any, path: str = "out") -> dict[str, Any]:
    """The tensors of an answer by their place in it; what is no tensor and holds none is left out."""
    import torch

    if isinstance(value, torch.Tensor):
        return {path: value}
    if isinstance(value, Mapping):
        return {name: leaf for key, item in value.items() for name, leaf in leaves(item, f"{path}.{key}").items()}
    if isinstance(value, (list, tuple)):
        return {name: leaf for index, item in enumerate(value) for name, leaf in leaves(item, f"{path}[{index}]").items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: getattr(value, item.name) for item in fields(value)}
        return {name: leaf for key, item in parts.items() for name, leaf in leaves(item, f"{path}.{key}").items()}
    return {}


def mean_of(output: Any) -> Any:
    """One number of any answer: its own loss, or the mean of the means of its floating tensors."""
    loss = output.get("loss") if isinstance(output, Mapping) else None
    if loss is not None:
        return loss
    means = [item.float().mean() for item in leaves(output).values() if item.is_floating_point()]
    if not means:
        raise NotApplicable("the model answers nothing that could be trained on")
    return sum(means[1:], start=means[0]) / len(means)


def doubled(subject: Subject) -> Subject:
    """The same model and inputs in double precision; casting makes no sense there."""
    import copy

    import torch

    def widen(item: Any) -> Any:
        return item.double() if isinstance(item, torch.Tensor) and item.is_floating_point() else item

    module = copy.deepcopy(subject.module).double()
    args, kwargs = mapped(subject.args, widen), {key: mapped(item, widen) for key, item in subject.kwargs.items()}
    return Subject(module, args, kwargs, subject.loss, subject.batch_size, torch.float64, None, subject.optimizer, subject.differentiates)
