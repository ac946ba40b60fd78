"""The rule of tolerances: what OpenXLA's own let through or fell over, each told by the number of the output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steelyard.backends.base import Leaf
from steelyard.measuring import rules
from steelyard.measuring.rules import allclose
from steelyard.model.record import Verification

NAMES = {np.dtype(np.float32): "fp32", np.dtype(np.float16): "fp16", np.dtype(bool): "bool", np.dtype(np.uint8): "uint8"}


class Answered:
    """Two answers, each a list of arrays."""

    mode, device, rate, standard = "eval", "cpu", None, None

    def __init__(self, got: list[Any], want: list[Any]) -> None:
        self.got, self.want = got, want

    def candidate(self, calls: int) -> dict[str, Leaf]:
        return leaves(self.got)

    def eager(self, calls: int) -> dict[str, Leaf]:
        return leaves(self.want)


def leaves(arrays: list[Any]) -> dict[str, Leaf]:
    made = [np.asarray(item) for item in arrays]
    return {f"out[{place}]": Leaf(f"out[{place}]", NAMES.get(item.dtype, str(item.dtype)), item) for place, item in enumerate(made)}


def judged(got: list[Any], want: list[Any], **options: float) -> Verification:
    return allclose.judge(Answered(got, want), **options)  # type: ignore[arg-type]


ONES = np.ones((3, 4), np.float32)
WRONG = [
    ("count", [ONES], [ONES, ONES], "1 outputs instead of 2"),
    ("one value for twelve", [np.ones((1,), np.float32)], [ONES], "output 0: shape (1,) instead of (3, 4)"),
    ("format", [ONES.astype(np.float16)], [ONES], "output 0: format fp16 instead of fp32"),
    ("NaN", [ONES, ONES * np.nan], [ONES, ONES], "output 1: NaN, 12 in it and in the expected output"),
    ("bool", [np.array([True, False])], [np.array([True, True])], "output 0: 1 of 2 values are off, by up to 1"),
    ("unsigned", [np.array([0], np.uint8)], [np.array([1], np.uint8)], "by up to 1, absolute"),
    ("large whole numbers", [np.array([2**60 + 1])], [np.array([2**60])], "1 of 1 values are off, by up to 1"),
    ("infinite", [ONES], [ONES * np.inf], "12 of 12 values are off, by up to inf"),
    (
        "too far",
        [ONES, ONES + 0.75],
        [ONES, ONES],
        "output 1: 12 of 12 values are off, by up to 0.75, absolute tolerance 0, relative tolerance 0",
    ),
]


@pytest.mark.parametrize(("got", "want", "told"), [item[1:] for item in WRONG], ids=[item[0] for item in WRONG])
def test_what_is_wrong_is_told_by_output_and_difference(got: list[Any], want: list[Any], told: str) -> None:
    found = judged(got, want)
    assert found.status == "failed"
    assert told in found.message


def test_tolerances_are_absolute_and_relative() -> None:
    near = [ONES * 100.5]
    assert judged(near, [ONES * 100], atol=0.6).status == "passed"
    assert judged(near, [ONES * 100], atol=0.4).status == "failed"
    assert judged(near, [ONES * 100], rtol=0.01).status == "passed"
    assert judged(near, [ONES * 100], rtol=0.001).status == "failed"
    assert judged([np.array([200], np.uint8)], [np.array([201], np.uint8)], atol=1).status == "passed"


def test_equal_answers_pass_and_say_so() -> None:
    found = judged([ONES * np.inf, np.array([True])], [ONES * np.inf, np.array([True])])
    assert (found.status, found.identical) == ("passed", True)
    assert judged([], []).status == "none"


def test_its_options_are_checked_before_anything_runs() -> None:
    rules.check("allclose[atol=0.5,rtol=0]")
    with pytest.raises(rules.UsageError, match="tol"):
        rules.check("allclose[tol=0.5]")
