"""PARAM's interfaces for users' own operators, iterators and data generators, and the functions that register them.

A registration is known to this process, and to a worker that loads the file that defines the class.
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
    """The interface of an operator; only `forward` is required."""

    device: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Prepare what calls need."""

    def cleanup(self) -> None:
        """Release what `build` prepared."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator."""
        raise NotImplementedError


class CallableOp(OperatorInterface):
    """A function as an operator, with the usual backward pass."""

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
    """A module, or another object that is created first and then called."""

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
            raise UsageError(f"{self.constructor} is called before it was built")
        return self.func(*args, **kwargs)


class ConfigIterator:
    """The interface of an iterator: yields pairs of id and spec from an entry of a config."""

    def __init__(self, configs: Mapping[str, Any], key: str, device: str) -> None:
        self.configs, self.key, self.device = configs, key, device

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        return self

    def __next__(self) -> tuple[Any, Mapping[str, Any]]:
        raise NotImplementedError


class DefaultConfigIterator(ConfigIterator):
    """Yields specs unchanged, with their position as id."""

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        info = {"input_iterator": type(self).__name__, "input_data_generator": expand.DEFAULT_GENERATOR}
        sheet = expand.sheet({"specs": {**info, "config": [{"input": self.configs[self.key]}]}}, "here", device=self.device)
        if sheet.mistakes:
            raise here.mistaken(sheet.mistakes)
        return iter([(config.id.rpartition("|")[2], config.input) for config in sheet.configs])


class RangeConfigIterator(DefaultConfigIterator):
    """Yields every combination of the values of a spec's macros."""


class ArgumentGenerator:
    """The interface of a data generator: makes arguments from a spec."""

    def get_data(self, config: Mapping[str, Any], device: str) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments."""
        raise NotImplementedError


class DefaultDataGenerator(ArgumentGenerator):
    """Our data generator, with the default seed of `as param`."""

    def __init__(self, cache: bool = False) -> None:
        self.cache = cache

    def get_data(self, config: Mapping[str, Any], device: str) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments."""
        from steelyard.workloads.operators._values import arguments

        args, kwargs, _ = arguments(config, device, 0)
        return args, kwargs


op_map: dict[str, Any] = {}
config_iterator_map: dict[str, Any] = {kind.__name__: kind for kind in (DefaultConfigIterator, RangeConfigIterator)}
data_generator_map: dict[str, Any] = {expand.DEFAULT_GENERATOR: DefaultDataGenerator}


def register_operator(name: str, operator_class: Any) -> None:
    """Register an operator: a class or an object."""
    _register("operator", op_map, name, operator_class)
    _plant(operator_class, _operator(name))


def register_operators(op_dict: Mapping[str, Any]) -> None:
    """Register several operators."""
    for name, made_of in op_dict.items():
        register_operator(name, made_of)


def register_config_iterator(name: str, iterator_class: Any) -> None:
    """Register an iterator, which expands specs."""
    _register("iterator", config_iterator_map, name, iterator_class)
    _plant(iterator_class, _iterator(name))


def register_data_generator(name: str, data_gen_class: Any) -> None:
    """Register a data generator, which makes arguments."""
    _register("data generator", data_generator_map, name, data_gen_class)
    _plant(data_gen_class, _generator(name))


def _register(kind: str, table: dict[str, Any], name: str, made_of: Any) -> None:
    if name in table:
        raise ValueError(f"Duplicate {kind} registration name: {name}")
    table[name] = made_of


def _plant(made_of: Any, ours: Operator | SpecIterator | DataGenerator) -> None:
    """Store a definition in the module of its class, where a worker that loads the user's file looks for it."""
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
    """Return everything registered in this process."""
    from steelyard.registry import Loaded

    usual = {"DefaultConfigIterator", "RangeConfigIterator", expand.DEFAULT_GENERATOR}
    return Loaded(
        operators={name: _operator(name) for name in op_map},
        iterators={name: _iterator(name) for name in config_iterator_map.keys() - usual},
        generators={name: _generator(name) for name in data_generator_map.keys() - usual},
    )
