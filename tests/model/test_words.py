"""Options behind a variant's name are read strictly, and by one grammar wherever a name is looked up."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.model.words import Word, find_named, in_full, prefixes, read_words, spelling

WORDS = (Word("group", values=(32, 64, 128)), Word("hqq", on="hqq"))
BITS = (Word("bits", least=1, most=8), Word("group"), Word("asymmetric", switch=True))


@pytest.mark.parametrize(
    ("rest", "words", "options"),
    [
        ("", WORDS, {}),
        ("-64", WORDS, {"group": 64}),
        ("-64-hqq", WORDS, {"group": 64, "hqq": True}),
        ("-4-32-false", BITS, {"bits": 4, "group": 32, "asymmetric": False}),
        ("-4-32-0", BITS, {"bits": 4, "group": 32, "asymmetric": False}),
        ("-4--1-true", BITS, {"bits": 4, "group": -1, "asymmetric": True}),
        ("-8", BITS, {"bits": 8}),
    ],
)
def test_words_are_read_in_order(rest: str, words: tuple[Word, ...], options: dict[str, Any]) -> None:
    assert read_words("x", rest, words) == options
    assert read_words("x", rest, [Word.of(word.describe()) for word in words]) == options


@pytest.mark.parametrize(
    ("rest", "words", "message"),
    [
        ("-5", WORDS, "no group of x named '5'"),
        ("-64-hq", WORDS, "more options than variant x takes"),
        ("-64-hqq-1", WORDS, "more options than variant x takes"),
        ("-9", BITS, "bits of x is 9"),
        ("-four", BITS, "whole number"),
        ("-4-32-maybe", BITS, "no asymmetric of x named 'maybe'"),
        ("-", BITS, "whole number"),
        ("-4-", BITS, "whole number"),
    ],
)
def test_anything_else_is_an_error(rest: str, words: tuple[Word, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_words("x", rest, words)


def test_the_longest_name_counts_and_only_those_with_words_take_any() -> None:
    table = {"semi": {"words": [WORDS[0].describe()]}, "semi-sparse": {"words": []}, "plain": {}}
    assert find_named("semi-sparse", table) == (table["semi-sparse"], {})
    assert find_named("semi-32", table) == (table["semi"], {"group": 32})
    assert find_named("plain-32", table) is None and find_named("other", table) is None


def test_a_name_is_shown_with_what_may_stand_behind_it() -> None:
    assert spelling("int4wo", WORDS) == "int4wo[-32|64|128][-hqq]"
    assert spelling("intx", BITS) == "intx[-bits 1..8][-group][-true|false]"


@pytest.mark.parametrize(
    ("word", "good", "bad"), [(WORDS[0], 64, 65), (WORDS[1], True, "hqq"), (BITS[0], 8, 9), (BITS[0], 1, "x"), (BITS[2], False, 0)]
)
def test_options_in_brackets_are_held_to_the_same(word: Word, good: Any, bad: Any) -> None:
    word.check(good, "x")
    with pytest.raises(UsageError):
        word.check(bad, "x")


@pytest.mark.parametrize(
    ("rest", "words", "defaults", "name"),
    [
        ("", WORDS, {"group": 128, "hqq": False}, "x-128"),
        ("-0032", WORDS, {"group": 128, "hqq": False}, "x-32"),
        ("-128-HQQ", WORDS, {"group": 128, "hqq": False}, "x-128-hqq"),
        ("", BITS, {"bits": 4, "group": 32, "asymmetric": False}, "x-4-32-false"),
        ("-04-32-1", BITS, {"bits": 4, "group": 32, "asymmetric": False}, "x-4-32-true"),
        ("-4--1", BITS, {"bits": 4, "group": 32, "asymmetric": False}, "x-4--1-false"),
        ("-4--1", (BITS[0], Word("group", zero_below=True)), {"bits": 4, "group": 32}, "x-4-0"),
    ],
)
def test_one_meaning_has_one_spelling_which_means_the_same(rest: str, words: tuple[Word, ...], defaults: dict[str, Any], name: str) -> None:
    options = {**defaults, **read_words("x", rest, words)}
    assert in_full("x", words, options) == (name, {})
    assert {**defaults, **read_words("x", name[1:], words)} == options


def test_what_cannot_be_written_behind_a_name_stays_an_option() -> None:
    words = (Word("bits"), Word("group"), Word("last"))
    assert in_full("x", words, {"bits": 4, "group": None, "last": 3, "other": 1.5}) == ("x-4", {"group": None, "last": 3, "other": 1.5})


def test_every_beginning_of_a_name_is_tried_the_longest_first() -> None:
    assert list(prefixes("a-b-1")) == [("a-b-1", ""), ("a-b", "-1"), ("a", "-b-1")]
