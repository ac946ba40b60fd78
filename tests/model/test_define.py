"""What `@workload` refuses, so that nothing is measured under another name than its own."""

from __future__ import annotations

import math
from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.model.define import Workload, workload
from steelyard.model.task import Task


def define(**options: Any) -> Workload:
    def body(n: Any, be: Any) -> Task:
        """Something."""
        return Task()

    made: Workload = workload("my/x", **{"axes": {"n": [1]}, **options})(body)
    return made


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, object(), range(3), {1, 2}, [math.nan], {"a": object()}, {1: 2}, b"x"])
def test_a_value_that_no_id_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="axis 'n' cannot have the value"):
        define(axes={"n": [value]})
    with pytest.raises(UsageError, match="axis 'n' cannot have the value"):
        define(sizes={"big": {"n": value}})


@pytest.mark.parametrize("value", [None, True, 3, 10**30, 1.5, "text", [1, [2]], {"a": [None]}])
def test_plain_values_are_kept(value: Any) -> None:
    assert define(axes={"n": [value]}).describe()["axes"] == {"n": [value]}


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="cannot have the value"):
        define(axes={"n": [endless]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": "nope"}, "modes are a list of words, not 'nope'"),
        ({"modes": ["evla"]}, "did you mean eval"),
        ({"tags": "smoke"}, "tags are a list of words"),
        ({"tags": [1]}, "tags are a list of words"),
        ({"axes": ["n"]}, "axes are a dictionary"),
        ({"axes": {"n": []}}, "axis 'n' has no values"),
        ({"axes": {"n": [1], "dtype": [4]}}, "a dtype is a name"),
        ({"axes": {"n": [1], "dtype": ["bf17"]}}, "did you mean bf16"),
        ({"sizes": {"big": 3}}, "size 'big' are a dictionary"),
    ],
)
def test_a_wrong_form_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        define(**options)


def test_a_forgotten_name_is_told() -> None:
    with pytest.raises(UsageError, match="name is text"):
        workload(define)  # type: ignore[arg-type]
