"""Work grows with the number of cases and not with its square: counted in calls, which no busy machine changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Figure, Record
from steelyard.store import runs
from steelyard.store.runs import Header, Store

SIZES = (40, 80, 160)
LINEAR = 2.4
"""From one step to the next twice as many cases are added: twice the calls where work is linear, four times where it is not."""


def measured(number: int, factor: float) -> Record:
    case = Case("op/a", (("n", number // 2),), variant="compile" if number % 2 else "eager")
    seconds = factor * 1e-3 * (1 + number % 7)
    figures = {"time": Figure(seconds, "s", "lower", seconds * 0.99, seconds * 1.01, 100), "bandwidth": Figure(1e9, "B/s", "higher")}
    return Record(case.id, case.plain(), "ok", metrics=figures, effective={"noise": "A"})


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A store for each size with a base and a head, whose records are weighed in pairs too."""
    found = {size: tmp_path_factory.mktemp("store") for size in SIZES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.os, "fsync", lambda fd: None)
        for size, folder in found.items():
            for id, factor in (("base", 1.0), ("head", 1.2)):
                with Store(folder).create(Header(id=id, machine_key="k")) as writer:
                    records = [writer.append(measured(number, factor)) for number in range(size)]
                    for base, head in zip(records[::2], records[1::2], strict=True):
                        writer.append_pair(Pair(Arm(base.id), Arm(head.id), 0.9, 0.89, 0.91, 0.99, 8, 64, 1, (16, 16)))
                    writer.seal()
    return found


def calls(words: list[str]) -> int:
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        assert main(words) != 1
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "words",
    [
        ["show", "head"],
        ["show", "head/3", "--history"],
        ["compare", "base", "head"],
        ["compare", "head"],
        ["gate", "base", "head", "--no-summary"],
        ["gate", "head", "--no-summary"],
        ["report", "base", "head", "-o", "x.md"],
        ["report", "head", "-o", "x.csv"],
    ],
    ids=" ".join,
)
def test_twice_the_cases_are_twice_the_work(
    words: list[str], stores: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main([*words, "--store", str(stores[SIZES[0]])])
    few, more, many = (calls([*words, "--store", str(stores[size])]) for size in SIZES)
    assert many - more <= LINEAR * (more - few), (few, more, many)
