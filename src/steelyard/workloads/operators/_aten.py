"""Operators by their aten schema: the overload is named, or chosen once by the given arguments."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steelyard.errors import UsageError, unknown

PREFIX = "aten::"
OUT_OF_REACH = ("Storage", "Stream", "__torch__")
NAMES_OF_FILES = ("filename", "path", "file")
NOT_OPERATORS = ("_print", "set_data", "record_stream")
SHOWN = 6
CODED = {"ScalarType": torch.dtype, "Layout": torch.layout, "MemoryFormat": torch.memory_format}
CLASSES: dict[str, tuple[type, ...]] = {
    "Tensor": (torch.Tensor,), "int": (int,), "float": (float, int), "bool": (bool,), "number": (int, float, complex),
    "str": (str,), "Device": (torch.device,), "Generator": (torch.Generator,), **{name: (kind, int) for name, kind in CODED.items()},
}  # fmt: skip
"""The Python types that each type of a schema takes; a format may also be its number, as in traces."""


@functools.cache
def overloads() -> dict[str, dict[str, Any]]:
    """The schemas of every aten operator that uses only tensors and numbers, by name and overload.

    Only operators of the dispatcher are listed, not those that TorchScript adds, such as saving to a file.
    """
    found: dict[str, dict[str, Any]] = {}
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        name, _, overload = full.removeprefix(PREFIX).partition(".")
        if full.startswith(PREFIX) and name not in NOT_OPERATORS:
            schema = torch._C._get_schema(PREFIX + name, overload)
            words = [str(argument.type) for argument in schema.arguments]
            named = any(argument.name in NAMES_OF_FILES for argument in schema.arguments)
            if not named and not any(far in word for word in words for far in OUT_OF_REACH):
                found.setdefault(name, {})[overload] = schema
    return found


def split(name: str) -> tuple[str, str | None]:
    """Operator and overload of `aten::name[.overload]`; None if the arguments decide."""
    base, _, overload = name.removeprefix(PREFIX).partition(".")
    plain = "" if overload == "default" else overload
    if plain not in overloads().get(base, {}) and (overload or base not in overloads()):
        raise unknown("operator", name, near(name))
    return base, plain if overload else None


def near(name: str) -> list[str]:
    """Names worth suggesting: overloads of the same operator, or all operators."""
    base = name.removeprefix(PREFIX).partition(".")[0]
    return _full_names(base) if base in overloads() else [PREFIX + each for each in overloads()]


def _full_names(base: str) -> list[str]:
    return [f"{PREFIX}{base}.{overload or 'default'}" for overload in overloads()[base]]


def writes(schema: Any) -> bool:
    """Whether an argument that is also read is overwritten; buffers only for the output do not count."""
    return any(item.alias_info is not None and item.alias_info.is_write and not item.is_out for item in schema.arguments)


class Aten:
    """An aten operator; `choose` finds the overload and the form of a call."""

    def __init__(self, base: str, overload: str | None) -> None:
        self.base, self.overload, self.device = base, overload, "cpu"

    def build(self, described: Any = None) -> None:
        """Use PARAM's name of an overload, its schema as text; older files list types, which the arguments have anyway."""
        if not isinstance(described, str):
            return
        try:
            schema = torch._C.parse_schema(described)
        except RuntimeError as error:
            raise UsageError(f"not an operator schema: {described!r}", why=str(error).strip().splitlines()[0]) from error
        if schema.name.removeprefix(PREFIX) != self.base:
            raise UsageError(f"the schema is for {schema.name}, not for {PREFIX}{self.base}")
        known = overloads()[self.base]
        if schema.overload_name in known:
            self.overload = schema.overload_name
        elif schema.overload_name:
            raise unknown("operator", f"{schema.name}.{schema.overload_name}", _full_names(self.base))

    def choose(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        """The overload and the arguments as it takes them: keyword-only arguments may have been given by position."""
        schema = self.schema(args, kwargs)
        places = [argument for argument in schema.arguments if not argument.kwarg_only]
        named = {argument.name: value for argument, value in zip(schema.arguments[len(places) :], args[len(places) :], strict=False)}
        if len(args) > len(schema.arguments) or set(named) & set(kwargs):
            raise UsageError(f"{PREFIX}{self.base} gets more arguments than it takes: {schema}")
        function = getattr(getattr(torch.ops.aten, self.base), schema.overload_name or "default")
        return function, list(args[: len(places)]), {**named, **kwargs}

    def schema(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The schema to call: the named one, or the one that takes these arguments and leaves least to its defaults."""
        known = overloads()[self.base]
        if self.overload is not None:
            return known[self.overload]
        if len(known) == 1:
            return next(iter(known.values()))
        fitting = [each for each in signatures(self.base) if each.takes(args, kwargs)]
        if not fitting:
            shown = "; ".join(map(str, signatures(self.base)[:SHOWN]))
            raise UsageError(f"no overload of {PREFIX}{self.base} takes these arguments", why=f"there are {shown}")
        return known[min(fitting, key=lambda each: (each.guesses(args, kwargs), len(each.types), len(each.overload))).overload]


@functools.cache
def signatures(base: str) -> tuple[Signature, ...]:
    """What each overload takes, in a form that is quick to compare."""
    return tuple(Signature.of(schema) for schema in overloads()[base].values())


@dataclass(frozen=True)
class Signature:
    """The arguments of one overload: types by name, in order, how many may be given by position, and which have no default."""

    overload: str
    types: Mapping[str, str]
    places: int
    required: frozenset[str]

    @classmethod
    def of(cls, schema: Any) -> Signature:
        """Read a schema; buffers for the output are given only by name."""
        types = {item.name: str(item.real_type) for item in schema.arguments}
        required = frozenset(item.name for item in schema.arguments if not item.has_default_value())
        return cls(schema.overload_name, types, sum(not item.is_out for item in schema.arguments), required)

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name."""
        return {**dict(zip(self.types, args, strict=False)), **kwargs}

    def takes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether these arguments fit, each of a type that is allowed, and none is missing."""
        if len(args) > self.places or not set(kwargs) <= set(list(self.types)[len(args) :]):
            return False
        given = self.given(args, kwargs)
        return self.required <= set(given) and all(is_of(self.types[name], value) for name, value in given.items())

    def guesses(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """How many integers would be taken for the code of a format, which is seldom intended."""
        return sum(
            type(value) is int and any(word in self.types[name] for word in CODED) for name, value in self.given(args, kwargs).items()
        )

    def __str__(self) -> str:
        return f"{self.overload or 'default'}({', '.join(f'{kind} {name}' for name, kind in self.types.items())})"


def is_of(kind: str, value: Any) -> bool:
    """Whether a value is of a type as schemas write it."""
    if kind.startswith("Optional["):
        return value is None or is_of(kind[9:-1], value)
    if kind.startswith("List["):
        inner = kind[5:-1]
        return all(is_of(inner, item) for item in value) if isinstance(value, (list, tuple)) else inner == "int" and is_of(inner, value)
    return isinstance(value, CLASSES.get(kind, ())) and (kind in ("bool", "number") or not isinstance(value, bool))
