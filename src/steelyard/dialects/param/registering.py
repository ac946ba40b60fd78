"""PARAM's interfaces for users' own operators, iterators and data generators, and how these are made known.

What is registered is known to this process, and to a worker that loads the file whose classes they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from steelyard.dialects.param import expand, here
from steelyard.errors import UsageError
from steelyard.model.operators import DataGenerator, Operator, SpecIterator

if TYPE_CHECKING:
    from steelyard.registry import Loaded


class OperatorInterface:
    """What an operator has; `forward` is all that it must."""

    device: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Prepare what calls need."""

    def cleanup(self) -> None:
        """Release it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The call."""
        raise NotImplementedError


class CallableOp(OperatorInterface):
    """A function as an operator; the pass back is the usual one."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.func(*args, **kwargs)


class InPlaceOp(OperatorInterface):
    """A method of the first argument, by name, that overwrites it."""

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return getattr(args[0].detach(), self.func_name)(*args[1:], **kwargs)


class BuildableOp(OperatorInterface):
    """A module, or whatever else is made first and then called."""

    def __init__(self, constructor: Any) -> None:
        self.constructor = constructor
        self.func: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Create it on its device."""
        self.func = self.constructor(*args, **kwargs).to(self.device)

    def cleanup(self) -> None:
        """Release the weights."""
        self.func = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        if self.func is None:
            raise UsageError(f"{self.constructor} is built before it is called")
        return self.func(*args, **kwargs)


class ConfigIterator:
    """A way to get specs from an entry of a config: pairs of id and spec."""

    def __init__(self, configs: Mapping[str, Any], key: str, device: str) -> None:
        self.configs, self.key, self.device = configs, key, device

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        return self

    def __next__(self) -> tuple[Any, Mapping[str, Any]]:
        raise NotImplementedError


class DefaultConfigIterator(ConfigIterator):
    """Specs as they are, by their place."""

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        info = {"input_iterator": type(self).__name__, "input_data_generator": expand.DEFAULT_GENERATOR}
        sheet = expand.sheet({"specs": {**info, "config": [{"input": self.configs[self.key]}]}}, "here", device=self.device)
        if sheet.mistakes:
            raise here.mistaken(sheet.mistakes)
        return iter([(config.id.rpartition("|")[2], config.input) for config in sheet.configs])


class RangeConfigIterator(DefaultConfigIterator):
    """Every combination of what a spec's macros range over."""


class ArgumentGenerator:
    """A way to make arguments from a spec."""

    def get_data(self, config: Mapping[str, Any], device: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by place and by name."""
        raise NotImplementedError


class DefaultDataGenerator(ArgumentGenerator):
    """Ours, from the seed that `as param` has."""

    def __init__(self, cache: bool = False) -> None:
        self.cache = cache

    def get_data(self, config: Mapping[str, Any], device: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by place and by name."""
        from steelyard.workloads.operators._values import arguments

        args, kwargs, _ = arguments(config, device, 0)
        return args, kwargs


op_map: dict[str, Any] = {}
config_iterator_map: dict[str, Any] = {kind.__name__: kind for kind in (DefaultConfigIterator, RangeConfigIterator)}
data_generator_map: dict[str, Any] = {expand.DEFAULT_GENERATOR: DefaultDataGenerator}


def register_operator(name: str, operator_class: Any) -> None:
    """Make an operator known: a class, or one that is made already."""
    _register("operator", op_map, name, operator_class)
    _plant(operator_class, _operator(name))


def register_operators(op_dict: Mapping[str, Any]) -> None:
    """Several at once."""
    for name, made_of in op_dict.items():
        register_operator(name, made_of)


def register_config_iterator(name: str, iterator_class: Any) -> None:
    """Make a way to expand specs known."""
    _register("iterator", config_iterator_map, name, iterator_class)
    _plant(iterator_class, _iterator(name))


def register_data_generator(name: str, data_gen_class: Any) -> None:
    """Make a way to make arguments known."""
    _register("data generator", data_generator_map, name, data_gen_class)
    _plant(data_gen_class, _generator(name))


def _register(kind: str, table: dict[str, Any], name: str, made_of: Any) -> None:
    if name in table:
        raise ValueError(f"Duplicate {kind} registration name: {name}")
    table[name] = made_of


def _plant(made_of: Any, ours: Operator | SpecIterator | DataGenerator) -> None:
    """Leave it where a worker that loads the user's file looks for definitions: in the module of its class."""
    kind = made_of if isinstance(made_of, type) else type(made_of)
    if kind.__module__ != __name__ and (module := sys.modules.get(kind.__module__)):
        setattr(module, f"registered {ours.name}", ours)


def _operator(name: str) -> Operator:
    made_of = op_map[name]
    return Operator(name, made_of if isinstance(made_of, type) else lambda: made_of, in_place=isinstance(made_of, InPlaceOp))


def _iterator(name: str) -> SpecIterator:
    return SpecIterator(name, lambda entry, key, device: config_iterator_map[name](entry, key, device))


def _generator(name: str) -> DataGenerator:
    return DataGenerator(name, lambda spec, device: data_generator_map[name]().get_data(spec, device))


def registered() -> Loaded:
    """Everything registered in this process."""
    from steelyard.registry import Loaded

    usual = {"DefaultConfigIterator", "RangeConfigIterator", expand.DEFAULT_GENERATOR}
    return Loaded(
        operators={name: _operator(name) for name in op_map},
        iterators={name: _iterator(name) for name in config_iterator_map.keys() - usual},
        generators={name: _generator(name) for name in data_generator_map.keys() - usual},
    )
