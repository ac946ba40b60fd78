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
from steelyard.measuring import rules
from steelyard.measuring.rules import sqnr
from steelyard.model.record import Verification

SIGNAL = np.random.default_rng(3).normal(size=(64, 32))


@dataclass
class Two:
    """What a candidate and the plain task answer, to normal inputs and to such with outliers."""

    got: Any
    want: Any = field(default_factory=lambda: SIGNAL)
    extreme: Any = None

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
    assert set(rules.metrics("sqnr", found)) == set(sqnr.FIGURES)


def test_less_than_the_floor_is_wrong_for_either_kind_of_input() -> None:
    good, bad = SIGNAL * 1.01, SIGNAL * 1.4
    assert judged(Two(good), floor=39.9).status == "passed" and judged(Two(good), floor=40.1).status == "failed"
    found = judged(Two(good, extreme=bad), floor=20)
    assert found.status == "failed" and "keeps 8.0 dB of the signal, at least 20 dB" in found.message
    assert found.figures["sqnr"] == pytest.approx(40) and found.figures["sqnr_outliers"] == pytest.approx(7.96, abs=0.01)


def test_the_same_bits_have_no_decibels_and_pass() -> None:
    found = judged(Two(SIGNAL), floor=100)
    assert found.status == "passed" and found.identical and "sqnr" not in found.figures and found.figures["max_error"] == 0


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (SIGNAL[:-1], SIGNAL, "shape"),
        (np.where(SIGNAL > 2, np.nan, SIGNAL), SIGNAL, "not finite"),
        (SIGNAL, np.zeros_like(SIGNAL), "nothing but zeros"),
    ],
)
def test_what_cannot_be_compared_is_said(got: Any, want: Any, message: str) -> None:
    found = judged(Two(got, want))
    assert found.status == "failed" and message in found.message
