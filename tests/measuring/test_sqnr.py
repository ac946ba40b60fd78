"""SQNR and its companions, against their definitions; what cannot be compared is said."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends.base import Leaf
from steelyard.errors import Unsupported
from steelyard.measuring import rules
from steelyard.measuring.rules import sqnr
from steelyard.model.record import Verification
from steelyard.model.task import Standard

SIGNAL = np.random.default_rng(3).normal(size=(64, 32))


@dataclass
class Two:
    """What a candidate and the plain task answer, to normal inputs and to such with outliers."""

    got: Any
    want: Any = field(default_factory=lambda: SIGNAL)
    extreme: Any = None
    standard: Standard | None = None
    mode: str = "eval"
    pruned: Any = None

    def standards(self, inputs: int) -> Iterator[tuple[dict[str, Leaf], dict[str, Leaf]]]:
        for _ in range(inputs):
            yield {"out": Leaf("out", "fp64", np.asarray(self.pruned, float))}, {"out": Leaf("out", "fp64", SIGNAL)}

    def beside(self, inputs: int, *, outliers: bool) -> Iterator[tuple[dict[str, Leaf], dict[str, Leaf]]]:
        got = self.extreme if outliers and self.extreme is not None else self.got
        for _ in range(inputs):
            yield {"out": Leaf("out", "fp64", np.asarray(got, float))}, {"out": Leaf("out", "fp64", np.asarray(self.want, float))}


def judged(answers: Two, **options: Any) -> Verification:
    return sqnr.judge(answers, **options)  # type: ignore[arg-type]


@given(st.floats(1e-6, 0.5))
def test_the_figures_are_those_of_the_definition(share: float) -> None:
    found = judged(Two(SIGNAL * (1 + share)), floor=0)
    assert found.status == "passed"
    assert found.figures["sqnr"] == pytest.approx(-20 * math.log10(share), abs=1e-6) == found.figures["sqnr_outliers"]
    assert found.figures["cosine"] == pytest.approx(1)
    rms = math.sqrt(float((SIGNAL**2).mean()))
    assert found.figures["max_error"] == pytest.approx(share * np.abs(SIGNAL).max() / rms)
    assert found.figures["mean_error"] == pytest.approx(share * np.abs(SIGNAL).mean() / rms)
    assert set(rules.metrics("sqnr", found)) == set(sqnr.FIGURES) - {"sqnr_pruning"}


def test_less_than_the_floor_is_wrong_for_either_kind_of_input() -> None:
    good, bad = SIGNAL * 1.01, SIGNAL * 1.4
    assert judged(Two(good), floor=39.9).status == "passed" and judged(Two(good), floor=40.1).status == "failed"
    found = judged(Two(good, extreme=bad), floor=20)
    assert found.status == "failed" and "keeps 8.0 dB of the signal, at least 20 dB" in found.message
    assert found.figures["sqnr"] == pytest.approx(40) and found.figures["sqnr_outliers"] == pytest.approx(7.96, abs=0.01)


def test_the_floor_of_the_variant_holds_unless_the_user_gives_one_and_the_record_says_which() -> None:
    off = SIGNAL * 1.25
    for standard, floor, status, held in (
        (None, None, "passed", 5), (Standard(30), None, "failed", 30), (Standard(30), 10, "passed", 10), (Standard(10), 30, "failed", 30),
    ):  # fmt: skip
        found = judged(Two(off, standard=standard), **({} if floor is None else {"floor": floor}))
        assert (found.status, found.figures["floor"]) == (status, held)
        assert found.checks == [f"SQNR on 2 normal inputs and 2 with outliers, at least {held} dB"]


def test_what_pruning_costs_is_told_and_not_judged() -> None:
    standard = Standard(30, "the pruned model", lambda task: task, "sqnr_pruning")
    found = judged(Two(SIGNAL * 1.001, standard=standard, pruned=SIGNAL * 0.5))
    assert (found.status, found.against) == ("passed", "the pruned model")
    assert found.figures["sqnr_pruning"] == pytest.approx(6.02, abs=0.01) and found.figures["sqnr"] == pytest.approx(60)
    assert rules.metrics("sqnr", found)["sqnr_pruning"].unit == "dB"


def test_gradients_are_called_so() -> None:
    assert judged(Two(SIGNAL * 1.01, mode="train")).checks[0].startswith("SQNR of gradients")


@pytest.mark.parametrize("want", [np.where(SIGNAL > 2, np.inf, SIGNAL), np.zeros_like(SIGNAL)])
def test_where_the_plain_task_says_nothing_no_accuracy_is_told(want: Any) -> None:
    with pytest.raises(Unsupported, match="accuracy cannot be measured"):
        judged(Two(want, want))


@pytest.mark.parametrize(("text", "floor"), [("", None), ("sqnr", None), ("sqnr[floor=7]", 7), ("ptxla[tolerance=0.1]", None)])
def test_what_a_user_asks_for_is_read_from_the_rule(text: str, floor: float | None) -> None:
    assert rules.asked(text, sqnr.RULE, "floor") == floor


def test_the_same_bits_have_no_decibels_and_pass() -> None:
    found = judged(Two(SIGNAL), floor=100)
    assert found.status == "passed" and found.identical and "sqnr" not in found.figures and found.figures["max_error"] == 0


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (SIGNAL[:-1], SIGNAL, "shape"),
        (np.where(SIGNAL > 2, np.nan, SIGNAL), SIGNAL, "not finite"),
        (SIGNAL, np.zeros_like(SIGNAL), "only zeros"),
    ],
)
def test_what_cannot_be_compared_is_said(got: Any, want: Any, message: str) -> None:
    found = judged(Two(got, want))
    assert found.status == "failed" and message in found.message
