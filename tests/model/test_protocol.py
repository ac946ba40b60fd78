"""A fixed protocol in words: what is written is read back, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import UsageError
from steelyard.model.protocol import Fixed, parse_fixed, written

WARM = {"warmup": st.integers(0, 99), "rehearse": st.integers(0, 3), "backward": st.booleans(), "flush": st.booleans()}
GROUPED = {
    "calls": st.integers(1, 9), "inputs": st.sampled_from(["same", "fresh", "random"]), "cold": st.booleans(),
    "counters": st.sampled_from(["none", "counts", "reports"]), "clock": st.sampled_from(["discrete", "fastest"]),
}  # fmt: skip
PLAIN = {**WARM, "clock": st.sampled_from(["discrete", "continuous", "events"])}


@given(st.integers(1, 10**6), st.one_of(st.fixed_dictionaries(PLAIN), st.fixed_dictionaries(GROUPED)))
def test_what_is_written_is_read_back(repeats: int, words: dict[str, Any]) -> None:
    fixed = Fixed(repeats=repeats, **words)
    assert parse_fixed(written(asdict(fixed))) == parse_fixed(written(fixed.plain())) == fixed


def test_what_has_no_words_is_not_written() -> None:
    assert written(asdict(Fixed(repeat_time=0.1))) == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"cold": True, "repeat_time": 0.1}, "a cold first repeat"), ({"calls": 2, "rehearse": 1}, "repeats of several calls"),
        ({"calls": 2, "repeat_time": 0.1}, "repeats of several calls"),
        ({"inputs": "fresh", "warmup_time": 0.1}, "repeats of several calls"),
    ],
)  # fmt: skip
def test_what_would_be_ignored_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Fixed(**words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "not a number of calls"), ("5+0", "not a number of calls"), ("1+2,", "not a number of calls"),
        ("1+2,x=1", "no word for calls"), ("1+2:often", "no clock named"), ("0+2,calls=many", "calls is many"),
        ("0+2,calls=0", "calls is 0"), ("0+2,cold=2", "cold is 2"), ("1+2,cold", "a cold first repeat"),
        ("0+2:events,calls=2", "by the clock discrete or fastest"), ("0+2,inputs=old", "no inputs named"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_fixed(text)
