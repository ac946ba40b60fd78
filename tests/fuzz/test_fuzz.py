"""A moment of fuzzing for every parser, and proof that the driver sees what it is there to see."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from steelyard.errors import SteelyardError, UsageError
from tests.fuzz import drive, mutate
from tests.fuzz.drive import content, fuzz
from tests.fuzz.targets import TARGETS, Target

FEW = 15


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_ends_in_a_bug_of_ours(target: Target) -> None:
    tally = fuzz(target, FEW, seed=1)
    assert (tally.inputs, tally.broken) == (FEW, {})
    assert tally.accepted + tally.refused == FEW


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_an_input_depends_on_its_seed_and_number_alone(target: Target) -> None:
    first = [content(target, 1, number) for number in range(8)]
    assert [content(target, 1, number) for number in reversed(range(8))] == first[::-1]
    assert len({*first, *(content(target, 2, number) for number in range(8))}) > 8


def planted(read: Callable[[bytes], Any]) -> Target:
    """A parser that goes wrong for some input, and reads its seed."""
    return Target("planted", "x.json", lambda: [{"a": 1}], mutate.as_json, lambda path: read(path.read_bytes()))


def only_seed(then: Callable[[], Any]) -> Target:
    return planted(lambda raw: None if raw == b'{"a": 1}' else then())


def hoard() -> bytes:
    return bytearray(2 * drive.ROOM)


def bug() -> None:
    raise SteelyardError("our own fault")


def loop() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("then", "told"),
    [
        (lambda: {}["x"], "KeyError"),
        (hoard, "MemoryError"),
        (bug, "its exit code is 1"),
        (loop, "took longer than"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process died of it: signal 9"),
        (lambda: os._exit(3), "the process ended"),
    ],
    ids=["exception", "memory", "bug", "endless", "signal", "exit"],
)
def test_what_goes_wrong_is_seen_and_saved(then: Callable[[], Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "SECONDS", 0.02)
    tally = fuzz(only_seed(then), 3, seed=1, save=tmp_path / "kept")
    assert tally.inputs == 3 and tally.broken and all(told in why for why in tally.broken.values())
    for number in tally.broken:
        assert (tmp_path / "kept" / f"planted-1-{number}.json").read_bytes() == content(only_seed(then), 1, number)


def test_what_is_refused_is_no_failure() -> None:
    def refuse() -> None:
        raise UsageError("no")

    tally = fuzz(only_seed(refuse), 5, seed=1)
    assert (tally.broken, tally.inputs) == ({}, 5) and tally.refused > 0


def test_a_seed_that_is_not_accepted_stops_it() -> None:
    with pytest.raises(ZeroDivisionError):
        fuzz(planted(lambda raw: 1 / 0), 1, seed=1)


def test_the_forms_are_those_that_the_parsers_read() -> None:
    from steelyard.codec.parsing import parse

    data = {"a": {"b": [1, 2.5, "x"], "c": True}, "d e": "\\"}
    for form, write in (("toml", mutate.as_toml), ("yaml", mutate.as_yaml), ("json", mutate.as_json)):
        for number in range(6):
            assert parse(write(Random(number), data).decode(), "f", form) == data
