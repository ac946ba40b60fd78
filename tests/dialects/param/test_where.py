"""Filters: what they say about a combination, what they refuse to read, and that they run nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.param.where import Unanswerable, condition
from steelyard.errors import UsageError

SPEC: dict[str, Any] = {
    "args": [
        {"type": "tensor", "dtype": "float", "shape": [16, 24]},
        {"type": "tensor", "dtype": "bfloat16", "shape": [24, 7]},
        {"type": "genericlist", "value": [{"type": "int", "value": 3}]},
    ],
    "kwargs": {"alpha": {"type": "float", "value": 0.5}, "flag": {"type": "bool", "value": True}, "len": {"type": "int", "value": 9}},
}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("args[0].shape[1] == args[1].shape[0]", True),
        ("args[0].shape[0] % 8 == 0", True),
        ("args[1].shape[1] % 8 == 0", False),
        ("args[0].shape[0] * args[0].shape[1] <= 384", True),
        ("args[0].shape[0]*args[0].shape[1]<384", False),
        ("8 <= args[0].shape[0] < 16", False),
        ("1 + 2 * 3 == 7 and (1 + 2) * 3 == 9", True),
        ("7 // 2 == 3 and 7 / 2 == 3.5 and 7 - 2 - 1 == 4", True),
        ("-3 + 5 == 2 and - -2 == 2", True),
        ("args[0].dtype == 'float' or args[0].dtype == 'double'", True),
        ('args[0].dtype == args[1].dtype or args[1].dtype != "bfloat16"', False),
        ("not args[0].dtype == args[1].dtype", True),
        ("not not kwargs.flag.value", True),
        ("kwargs.flag.value == true", True),
        ("kwargs['alpha'].value >= 5e-1", True),
        ("kwargs.len.value == 9", True),
        ("len(args[0].shape) == 2 and len(args[0].dtype) == 5", True),
        ("args[2].value[0].value == 3", True),
        ("args[0].shape == args[1].shape", False),
        ("true", True),
        ("(" * 60 + "1 == 1" + ")" * 60, True),
        ("null == 0", False),
        ("false and args[9].shape[0] == 1", False),
    ],
)
def test_a_condition_is_answered(text: str, answer: bool) -> None:
    assert condition(text).holds(SPEC) is answer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("args[3].shape[0] == 1", "args[3] does not exist"),
        ("args[0].shape[2] == 1", "args[0].shape[2] does not exist"),
        ("kwargs.beta.value == 1", "kwargs.beta does not exist"),
        ("args[0].shape.first == 1", "args[0].shape.first does not exist"),
        ("args[0].shape[0]", "it gives a number, not true or false"),
        ("args[0].dtype < 3", "a text and a number cannot be ordered"),
        ("args[0].dtype + 1 == 2", "a text is not a number"),
        ("kwargs.flag.value + 1 == 2", "true or false is not a number"),
        ("args[0].shape[0] % 0 == 0", "the numbers in it cannot be divided, or are too large"),
        ("1 / 0 == 0", "the numbers in it cannot be divided, or are too large"),
        ("len(3) == 1", "a number has no length"),
        ("args[0].shape[0] and true", "a number is not true or false"),
    ],
)
def test_a_condition_without_an_answer_says_why(text: str, reason: str) -> None:
    with pytest.raises(Unanswerable) as caught:
        condition(text).holds(SPEC)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not a condition"),
        ("args[0].shape[0] ==", "is not a condition"),
        ("args[0].shape[0] = 3", "is not a condition"),
        ("(1 == 1", "is not a condition"),
        ("1 == \x001", "is not a condition"),
        ("args[-1].shape == 1", "'args[-1].shape' cannot be part of a condition"),
        ("args[1.5] == 1", "'args[1.5]' cannot be part of a condition"),
        ("args[True] == 1", "'args[True]' cannot be part of a condition"),
        ("args[0:1] == 1", "'args[0:1]' cannot be part of a condition"),
        ("other[0] == 1", "'other[0]' cannot be part of a condition"),
        ("open('x')", "\"open('x')\" cannot be part of a condition"),
        ("len(args, kwargs) == 1", "'len(args, kwargs)' cannot be part of a condition"),
        ("__import__('os').system('true')", "\"__import__('os').system('true')\" cannot be part of a condition"),
        ("2 ** 9999 == 1", "'2 ** 9999' cannot be part of a condition"),
        ("1j == 1", "'1j' cannot be part of a condition"),
        ("args is kwargs", "'args is kwargs' cannot be part of a condition"),
        ("[x for x in args] == 1", "'[x for x in args]' cannot be part of a condition"),
        ("(x := 1) == 1", "'x := 1' cannot be part of a condition"),
        ("f'{args}' == 'x'", "\"f'{args}'\" cannot be part of a condition"),
        ("(lambda: 1)() == 1", "'(lambda: 1)()' cannot be part of a condition"),
        ("not " * 60 + "true", "a condition is nested too deeply"),
        ("-" * 900 + "1 == 1", "a condition is nested too deeply"),
        ("1 == 1" + " " * 1000, "a condition is longer than 1000 characters"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        condition(text)
    assert caught.value.what == what


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        condition(text).holds(SPEC)
    except (UsageError, Unanswerable) as error:
        assert str(error)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 99), st.sampled_from(["+", "-", "*", "//", "%"]))
def test_arithmetic_agrees_with_python(first: int, second: int, third: int, sign: str) -> None:
    """The two sides are written out here, so that nothing has to be run from text."""
    apply = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}[sign]
    assert condition(
        f"{first} + {second} {sign} {third} == {first + apply(second, third) if sign not in '+-' else apply(first + second, third)}"
    ).holds({})
