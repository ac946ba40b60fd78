"""Marks: what a tool writes of a range leads back to the case and the pass, and to no other."""

from __future__ import annotations

import pytest

from steelyard.measuring.marks import PARTS, mark, measured, pattern


@pytest.mark.parametrize("part", PARTS)
def test_a_mark_is_found_among_labels_that_hold_one_in_an_operators_name(part: str) -> None:
    cell = f"[param|{mark('param', 9, 'forward')}|0|0|1|measure|forward]:none"
    assert pattern("param").search(f'"<default domain>:{cell}"') is None
    found = pattern("param").search(f'"<default domain>:{cell}" "<default domain>:{mark("param", 12, part)}:none"')
    assert found is not None and found.groups() == ("12", part)


def test_marks_of_another_word_are_not_ours() -> None:
    assert pattern("steelyard").search(mark("param", 0, "forward")) is None
    assert not set(measured("steelyard")) & set("/@[]+*,:\\\"'$")
