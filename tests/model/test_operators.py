"""Operators, iterators and generators are defined by decorating, and what cannot work is refused where it is written."""

from __future__ import annotations

from typing import Any

import pytest

import steelyard
from steelyard.errors import UsageError
from steelyard.model.operators import DataGenerator, Operator, SpecIterator, generator, iterator, operator


def test_a_class_is_an_operator_with_a_fresh_instance_for_each_config() -> None:
    @operator("my.scale", in_place=True)
    class Scale:
        """Multiplies.

        By a factor.
        """

        def forward(self, x: float) -> float:
            return 2 * x

    assert isinstance(Scale, Operator)
    assert (Scale.name, Scale.doc, Scale.in_place, Scale.kind) == ("my.scale", "Multiplies.", True, "user")
    one, other = Scale.make(), Scale.make()
    assert one is not other and one.forward(3) == 6


def test_a_function_is_the_forward_pass_alone() -> None:
    @operator("my.double")
    def double(x: int) -> int:
        """Twice as much."""
        return 2 * x

    made = double.make()
    assert (made.forward(4), double.doc) == (8, "Twice as much.")
    assert not hasattr(made, "build")
    made.device = "cuda:0"
    assert double.make().device == "cpu"


def test_iterators_and_generators_keep_their_function() -> None:
    @iterator("Twice")
    def twice(entry: Any, key: str, device: str) -> Any:
        """Each spec two times."""
        for place, spec in enumerate(entry[key]):
            yield f"{place}_0", spec
            yield f"{place}_1", spec

    @generator("Ones")
    def ones(spec: Any, device: str) -> tuple[list[Any], dict[str, Any]]:
        return [1] * len(spec["args"]), {}

    assert isinstance(twice, SpecIterator) and isinstance(ones, DataGenerator)
    assert [name for name, _ in twice.expand({"input": [{}, {}]}, "input", "cpu")] == ["0_0", "0_1", "1_0", "1_1"]
    assert ones.make({"args": [{}, {}]}, "cpu") == ([1, 1], {})
    assert (twice.doc, ones.doc) == ("Each spec two times.", "")


@pytest.mark.parametrize("name", ["", 3, None, "a\x1b[31mb"])
@pytest.mark.parametrize("decorate", [operator, iterator, generator])
def test_a_name_is_text_that_can_be_shown(decorate: Any, name: Any) -> None:
    with pytest.raises(UsageError, match="must be text"):
        decorate(name)


def test_a_class_without_forward_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Empty has no forward\(\)"):

        @operator("my.empty")
        class Empty:
            pass


def test_what_cannot_be_called_is_refused() -> None:
    for decorate in (operator, iterator, generator):
        with pytest.raises(UsageError, match="cannot be called"):
            decorate("my.thing")(3)  # type: ignore[operator]


def test_the_decorators_are_where_users_look_for_them() -> None:
    assert (steelyard.operator, steelyard.iterator, steelyard.generator) == (operator, iterator, generator)
