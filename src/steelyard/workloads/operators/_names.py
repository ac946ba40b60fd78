"""Looks operator names up in tables of allowed names, never by walking attributes.

The tables have operators that a user registered, under names that nothing else has, PARAM's own names, functions that torch itself
lists as overridable, modules of torch.nn, and aten schemas. Nothing in them reads files, loads libraries or runs code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import overrides

from steelyard.errors import UsageError, unknown
from steelyard.model.operators import Operator, PlainOperator
from steelyard.workloads.operators import _aten, _embedding
from steelyard.workloads.operators._builtin import Layer
from steelyard.workloads.operators._models import MODELS

SPACES = {
    "torch": torch, "torch.functional": torch.functional, "torch.nn.functional": torch.nn.functional, "torch.linalg": torch.linalg,
    "torch.fft": torch.fft, "torch.special": torch.special, "torch.Tensor": torch.Tensor,
}  # fmt: skip
METHOD = "torch.Tensor."
NOT_OPERATORS = {
    "__array__", "__array_wrap__", "__cuda_array_interface__", "__deepcopy__", "__dlpack__", "__dlpack_device__", "__format__",
    "__reduce_ex__", "__repr__", "__setstate__", "_clear_non_serializable_cached_data", "apply_", "backward", "const_data_ptr",
    "data_ptr", "map_", "map2_", "module_load", "numpy", "record_stream", "register_hook", "register_post_accumulate_grad_hook",
    "requires_grad_", "retain_grad", "set_", "share_memory_", "storage", "storage_type", "tolist", "type", "untyped_storage",
}  # fmt: skip
ALLOWED = "an operator is a torch function that can be overridden, a torch.nn module, an aten schema, or one that you registered"


def find(name: str, registered: Mapping[str, Operator]) -> Operator:
    """The operator of a name; a name that is not in the tables is refused, with the nearest name that is."""
    if name in registered:
        if name == _embedding.NAME or _own(name) is not None:
            raise UsageError(f"operator {name!r} is the framework's own", why="one of your files defines it too", do="rename yours")
        return registered[name]
    if name == _embedding.NAME:
        return Operator(name, _embedding.TableBatch, "Embedding bags of several tables in one call.", kind="fbgemm")
    found = _own(name)
    if found is None:
        what, do = _refusal(name, tuple(registered))
        raise UsageError(what, why=ALLOWED, do=do)
    return found


@functools.lru_cache(maxsize=256)
def _refusal(name: str, registered: tuple[str, ...]) -> tuple[str, str]:
    """The error for an unknown name; thousands of configs may share it, and looking for the nearest name takes time."""
    word = name.rpartition(".")[2]
    if name.startswith("torch.") and word in _aten.overloads():
        return f"no operator named {name!r}", f"write {_aten.PREFIX}{word}"
    listed = unknown("operator", name, _aten.near(name) if name.startswith(_aten.PREFIX) else near(registered))
    return listed.what, listed.do


@functools.lru_cache(maxsize=4096)
def _own(name: str) -> Operator | None:
    if name.startswith(_aten.PREFIX):
        try:
            base, overload = _aten.split(name)
        except UsageError:
            return None
        schemas = _aten.overloads()[base]
        known = [schemas[overload]] if overload is not None else list(schemas.values())
        return Operator(name, functools.partial(_aten.Aten, base, overload), kind="aten", in_place=all(map(_aten.writes, known)))
    if name in MODELS:
        return Operator(name, functools.partial(Layer, name, MODELS[name]), kind="model")
    if (function := functions().get(name)) is not None:
        return Operator(name, functools.partial(PlainOperator, function), kind="function", in_place=is_in_place(name))
    if (module := modules().get(name)) is not None:
        return Operator(name, functools.partial(Layer, name, module), kind="module")
    return None


def is_in_place(name: str) -> bool:
    """Whether a name means work in place by torch's convention: a trailing underscore, or an assignment operator of Python."""
    word = name.rpartition(".")[2]
    if word.startswith("__"):
        return word == "__setitem__" or (word.startswith("__i") and word.replace("__i", "__", 1) in dir(torch.Tensor))
    return word.endswith("_")


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """Every name of every function that torch lets others override, and `torch.NAME_` for methods that work in place."""
    listed: set[Any] = {function for part in overrides.get_overridable_functions().values() for function in part}
    listed &= set(overrides.get_testing_overrides())
    found: dict[str, Callable[..., Any]] = {}
    for prefix, space in SPACES.items():
        for word, value in ((word, getattr(space, word, None)) for word in dir(space)):
            if callable(value) and not isinstance(value, type) and word not in NOT_OPERATORS and value in listed:
                found[f"{prefix}.{word}"] = value
    methods = [name.removeprefix(METHOD) for name in found if name.startswith(METHOD)]
    in_place = {f"torch.{word}": found[METHOD + word] for word in methods if word.endswith("_") and not word.startswith("_")}
    return in_place | found


@functools.cache
def modules() -> dict[str, type]:
    """The modules of torch.nn itself, by the name that users write."""
    kinds = {word: value for word, value in vars(torch.nn).items() if isinstance(value, type) and issubclass(value, torch.nn.Module)}
    return {f"torch.nn.{word}": kind for word, kind in kinds.items() if kind.__module__.startswith("torch.nn.modules.")}


def near(registered: Iterable[str]) -> list[str]:
    """Names worth suggesting."""
    return [*registered, *MODELS, _embedding.NAME, *functions(), *modules()]
