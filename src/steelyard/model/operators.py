"""What a configuration file can name besides workloads: operators, spec iterators and data generators, as plain data.

As with workloads, the decorators return an object bound to the decorated name and the registry finds it there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.define import summary_of

Spec = Mapping[str, Any]
Expand = Callable[[Mapping[str, Any], str, str], Iterable[tuple[Any, Spec]]]
Generate = Callable[[Spec, str], tuple[list[Any], dict[str, Any]]]


class PlainOperator:
    """An operator that is only called: its function as `forward`, and the device that the caller sets."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward, self.device = forward, "cpu"


@dataclass(frozen=True)
class Operator:
    """A name and how to make an instance of it, one for each config.

    An instance has `forward(*args, **kwargs)` and, where it needs them, `build(*args, **kwargs)`, `backward()`,
    `create_grad()` and `cleanup()`; its `device` is set before anything is called. `in_place` says that `forward`
    overwrites an argument. `kind` is `user` for a registered operator, else the part of the framework that the name is from.
    """

    name: str
    make: Callable[[], Any]
    doc: str = ""
    in_place: bool = False
    kind: str = "user"


@dataclass(frozen=True)
class SpecIterator:
    """A way to get specs from a config entry: `expand(entry, "build" or "input", device)` gives pairs of id and spec."""

    name: str
    expand: Expand
    doc: str = ""


@dataclass(frozen=True)
class DataGenerator:
    """A way to make arguments from a spec: `make(spec, device)` gives a list and a dictionary."""

    name: str
    make: Generate
    doc: str = ""


def operator(name: str, *, in_place: bool = False) -> Callable[[Any], Operator]:
    """Define an operator: a class with `forward`, made without arguments, or a function, which is then the forward pass."""
    _check_name("operator", name)

    def define(made_of: Any) -> Operator:
        if not isinstance(made_of, type):
            return Operator(name, functools.partial(PlainOperator, _callable("operator", name, made_of)), summary_of(made_of), in_place)
        if not callable(getattr(made_of, "forward", None)):
            raise UsageError(f"operator {name!r}: class {made_of.__name__} has no forward()", do="define forward(self, *args, **kwargs)")
        return Operator(name, made_of, summary_of(made_of), in_place)

    return define


def iterator(name: str) -> Callable[[Expand], SpecIterator]:
    """Define how specs are expanded: `@iterator("Mine") def _(entry, key, device): yield "0", {"args": […]}`."""
    _check_name("iterator", name)
    return lambda expand: SpecIterator(name, _callable("iterator", name, expand), summary_of(expand))


def generator(name: str) -> Callable[[Generate], DataGenerator]:
    """Define how arguments are made: `@generator("Mine") def _(spec, device): return [tensor], {}`."""
    _check_name("generator", name)
    return lambda make: DataGenerator(name, _callable("generator", name, make), summary_of(make))


def _check_name(kind: str, name: Any) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"the name of the {kind} must be text, not {name!r}", do=f'write @{kind}("my.name")')


def _callable(kind: str, name: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise UsageError(f"{kind} {name!r} decorates {value!r}, which cannot be called", do="decorate a function")
    made: Callable[..., Any] = value
    return made
