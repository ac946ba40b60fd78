"""Greedy tokens against the plain task's: equal, explained by a near tie, or wrong, and where they part."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from steelyard.backends.base import Leaf
from steelyard.measuring import rules
from steelyard.measuring.rules import tokens

WANT = np.array([[1, 2, 3, 4], [5, 6, 7, 0]])


class Told:
    """Answers that a test made up."""

    def __init__(self, got: Any, own: Any = None, plain: Any = None, dtype: str = "fp32") -> None:
        self.got, self.logits = np.asarray(got), None if own is None else (np.asarray(own, float), np.asarray(plain, float))
        self.dtype, self.asked = dtype, -1

    def candidate(self, calls: int) -> dict[str, Leaf]:
        return {"out.tokens": Leaf("out.tokens", "int64", self.got)}

    def eager(self, calls: int) -> dict[str, Leaf]:
        return {"out.tokens": Leaf("out.tokens", "int64", WANT)}

    def scored(self, answer: Any) -> tuple[Leaf, Leaf] | None:
        self.asked = answer.shape[1]
        return None if self.logits is None else (Leaf("out", self.dtype, self.logits[0]), Leaf("out", self.dtype, self.logits[1]))


def judge(told: Told, **options: Any) -> Any:
    return tokens.judge(cast(rules.Answers, told), **options)


def other(row: int, place: int, token: int) -> np.ndarray[Any, Any]:
    made = WANT.copy()
    made[row, place] = token
    return made


def plain_logits() -> np.ndarray[Any, Any]:
    made = np.random.default_rng(0).normal(size=(2, 8))
    made[0, 3], made[0, 2] = 5.0, 4.9999
    return made


def test_equal_tokens_pass_and_nothing_else_is_asked() -> None:
    told = Told(WANT)
    found = judge(told)
    assert (found.status, found.identical, found.figures, told.asked) == ("passed", True, {"equal_tokens": 1.0}, -1)


def test_another_token_is_wrong_where_nothing_says_why() -> None:
    found = judge(Told(other(0, 2, 2)))
    assert found.status == "failed" and "88% of the tokens" in found.message and "number 3" in found.message
    assert found.figures == {"equal_tokens": 0.875, "first_difference": 2.0}


def test_a_near_tie_is_rounding() -> None:
    logits = plain_logits()
    told = Told(other(0, 2, 2), logits + 1e-4 * np.array([[0, 0, 1, 0, 0, 0, 0, 0]] * 2), logits)
    found = judge(told)
    assert found.status == "passed" and "which is rounding" in found.message and told.asked == 2
    assert found.figures["logit_sqnr"] > 60


def test_logits_that_are_off_are_wrong() -> None:
    logits = plain_logits()
    found = judge(Told(other(0, 2, 2), logits * 1.2, logits))
    assert found.status == "failed" and "off by" in found.message


def test_close_logits_and_still_a_token_far_behind_is_wrong() -> None:
    logits = plain_logits()
    found = judge(Told(other(0, 2, 0), logits + 1e-5, logits))
    assert found.status == "failed" and "of their spread behind" in found.message


@pytest.mark.parametrize(("noise", "floor", "status"), [(0.05, 5.0, "passed"), (3.0, 5.0, "failed"), (0.3, 20.0, "failed")])
def test_a_lossy_variant_is_held_to_decibels(noise: float, floor: float, status: str) -> None:
    logits = plain_logits()
    own = logits + noise * np.random.default_rng(1).normal(size=logits.shape)
    found = judge(Told(other(0, 2, 0), own, logits), lossy=True, floor=floor)
    assert found.status == status and f"at least {floor:g} dB" in found.message


def test_other_shapes_are_wrong() -> None:
    found = judge(Told(WANT[:, :3]))
    assert found.status == "failed" and "shape" in found.message
