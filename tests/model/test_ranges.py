"""Ranges: a first value, a last one and a step, in a table or in a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import UsageError
from steelyard.model import ranges
from steelyard.model.experiment import Matrix


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("256..2048:x2", (256, 512, 1024, 2048)),
        ("128..512:128", (128, 256, 384, 512)),
        ("1..10:4", (1, 5, 9)),
        ("3..100:x10", (3, 30)),
        ("7..7:1", (7,)),
        ("-2..2:2", (-2, 0, 2)),
        ("0.1..0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("1..3:x1.5", (1, 1.5, 2.25)),
        ("1e3..3e3:1e3", (1000.0, 2000.0, 3000.0)),
    ],
)
def test_a_word_is_its_values(text: str, values: tuple[float, ...]) -> None:
    assert ranges.written(text) == values


@pytest.mark.parametrize("text", ["256", "bf16", "a..b:1", "1..2", "../x", "1..2:", "1..2:y2", "[1..2:1]"])
def test_other_words_are_none(text: str) -> None:
    assert ranges.written(text) is None


@given(st.integers(-1000, 1000), st.integers(0, 2000), st.integers(1, 50))
def test_plus_steps_are_pythons_range(first: int, more: int, step: int) -> None:
    assert ranges.values(first, first + more, step) == tuple(range(first, first + more + 1, step))


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"from": 1, "to": 5, "step": 0}, "must grow"),
        ({"from": 1, "to": 5, "step": -1}, "must grow"),
        ({"from": 1, "to": 5, "step": "x1"}, "must grow"),
        ({"from": 0, "to": 5, "step": "x2"}, "must grow"),
        ({"from": 5, "to": 1, "step": 1}, "from 5 to 1 is empty"),
        ({"from": 1, "to": 10_001, "step": 1}, "more than 10000 values"),
        ({"from": 1, "to": 1e15, "step": "x1.000001"}, "more than 10000 values"),
        ({"from": 1, "to": 5}, "needs step"),
        ({"step": 5}, "needs from and to"),
        ({"from": 1, "to": 5, "step": 1, "stpe": 2}, "unknown key stpe"),
        ({"from": "a", "to": 5, "step": 1}, "'from' of a range must be a number"),
        ({"from": True, "to": 5, "step": 1}, "'from' of a range must be a number"),
        ({"from": 1, "to": float("inf"), "step": 1}, "'to' of a range must be a number"),
        ({"from": 1, "to": float("nan"), "step": 1}, "'to' of a range must be a number"),
        ({"from": 1, "to": 5, "step": "2"}, "'step' of a range must be a number"),
        ({"from": 1, "to": 5, "step": [1]}, "'step' of a range must be a number"),
    ],
)
def test_what_is_no_range_is_told(table: dict[str, Any], match: str) -> None:
    assert ranges.is_table(table)
    with pytest.raises(UsageError, match=match):
        ranges.from_table(table)


def test_the_most_values_are_allowed() -> None:
    assert len(ranges.values(1, ranges.MOST_VALUES, 1)) == ranges.MOST_VALUES


@pytest.mark.parametrize("value", [{}, {"from": 1, "dtype": "x"}, {"type": "tensor"}, [1, 2], "1..2:1", 5])
def test_other_values_are_none(value: Any) -> None:
    assert not ranges.is_table(value)


def test_axes_that_are_named_together_have_one_value_in_each_matrix() -> None:
    plain = Matrix(("op/a",), {"n": (1, 2)})
    assert plain.apart() == [plain]
    linked = Matrix(("op/a",), {"m,n": (1, 2), "dtype": ("fp32", "bf16")})
    assert [matrix.axes for matrix in linked.apart()] == [{"dtype": ("fp32", "bf16"), "m": (n,), "n": (n,)} for n in (1, 2)]
