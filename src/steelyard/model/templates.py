"""Templates: values with placeholders for sizes, and all combinations of several axes of sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any


@dataclass(frozen=True)
class TemplateFunc:
    """A placeholder for a value that is not text: the function computes it from the values of the axes."""

    func: Callable[..., Any]


@dataclass(frozen=True)
class Axis:
    """A size in which models differ: its suffix in names, and its tag."""

    key: str
    suffix: str
    tag: str

    def name(self, name: str) -> Template:
        """A template of a model's name followed by its size."""
        return Template(f"{name}{self.suffix}${{{self.key}}}")

    @property
    def tagged(self) -> Template:
        """A template of the tag of a size."""
        return Template(f"{self.tag}-${{{self.key}}}")

    @property
    def value(self) -> TemplateFunc:
        """The size itself as a number, for use among other values."""
        return TemplateFunc(lambda **sizes: sizes[self.key])


def fill(value: Any, name: str | None = None, **sizes: Any) -> Any:
    """A value with every template in it filled, also inside lists and tables; a value of any other type is an error.

    A function gets only the sizes, text also the model's name if that is known.
    """
    if isinstance(value, TemplateFunc):
        return value.func(**sizes)
    if isinstance(value, Template):
        return value.substitute(sizes if name is None else {**sizes, "name": name})
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [fill(item, name, **sizes) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, name, **sizes) for key, item in value.items()}
    raise ValueError(f"a template cannot hold {value!r:.80}, which is a {type(value).__name__}: use text, numbers, lists and tables")


def points(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of axes; the last axis varies fastest."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))
