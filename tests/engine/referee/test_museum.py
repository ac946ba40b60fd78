"""The museum: no cheat wins and each is met with its own words; no honest look-alike is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steelyard
from steelyard.model.judging import Ruling
from tests.engine.referee.exhibits import HARMLESS, Exhibit, exhibits

pytestmark = pytest.mark.torch

CHEATS, HONEST, UNCAUGHT = exhibits("cheats"), exhibits("honest"), exhibits("uncaught")
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "referee.md"
RARE = "rare_replay"
"""The one that is caught by chance."""
QUICK = {
    "stale_half_rows", "replay_by_shape", "lazy_subclass", "later_thread", "coarse_bf16", "works_in_place",
    "same_as_the_reference", "cached_weights", "parameter",
}  # fmt: skip
"""One of each family for every commit; the others are deep, and so is what only timing decides."""
WITHIN = 60.0
TIMED = {"amortised", "outside", "sabotage"}
"""What the judge says by its clock alone, and of nobody where most blocks were cut into."""


def shown(hall: list[Exhibit]) -> list[Any]:
    """The exhibits of a hall as parameters of a test."""
    return [pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.deep) for each in hall]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to judge in, since some candidates write beside themselves; what they leave in shared memory is removed."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for left in Path("/dev/shm").glob("steelyard-museum-*"):
        left.unlink()


def judged(exhibit: Exhibit, room: Path, **options: Any) -> Ruling:
    """What the referee says of a copy of the exhibit and its problem."""
    for folder in ("problems", "candidates"):
        (room / folder).mkdir()
    problem = shutil.copy(exhibit.problem, room / "problems")
    candidate = shutil.copy(exhibit.file, room / "candidates")
    return steelyard.judge(str(problem), str(candidate), **options)


def said(ruling: Ruling) -> str:
    """The whole ruling in words, for a test that fails."""
    tricks = "".join(f"\n  {trick.kind}: {trick.words}" for trick in ruling.tricks)
    return f"{ruling.candidate}: {ruling.status} {ruling.reason}\n  {ruling.delta}{tricks}"


def seen(ruling: Ruling) -> set[str]:
    """Kinds of tricks that were seen, and how it ended."""
    return {ruling.status, *(trick.kind for trick in ruling.tricks)}


def hold_cheat(exhibit: Exhibit, ruling: Ruling) -> None:
    """It does not win, and what it does is named; not so one that gains nothing, and what only times show on a machine too busy to time."""
    won = ruling.correct and ruling.delta is not None and ruling.delta.verdict == "faster"
    assert not won, f"{exhibit.does}\n{said(ruling)}"
    busy = exhibit.expect & TIMED and ruling.delta is not None and ruling.delta.disturbed
    named = HARMLESS in exhibit.expect or seen(ruling) & exhibit.expect
    assert named or busy, f"{exhibit.does}\nexpected {set(exhibit.expect)}\n{said(ruling)}"
    if not ruling.correct:
        assert ruling.reason, said(ruling)


def hold_honest(exhibit: Exhibit, ruling: Ruling) -> None:
    """It is right, and nothing is said against it; what is told of its speed needs a machine that is not too busy to time it."""
    assert ruling.status == "ok", f"{exhibit.does}\n{said(ruling)}"
    assert exhibit.told <= seen(ruling) or (ruling.delta is not None and ruling.delta.disturbed), said(ruling)
    assert not [trick for trick in ruling.tricks if trick.voids], said(ruling)


@pytest.mark.parametrize("exhibit", shown(CHEATS))
def test_a_cheat_does_not_win(exhibit: Exhibit, room: Path) -> None:
    hold_cheat(exhibit, judged(exhibit, room, timeout=WITHIN))


@pytest.mark.parametrize("exhibit", shown(HONEST))
def test_an_honest_one_is_not_refused(exhibit: Exhibit, room: Path) -> None:
    hold_honest(exhibit, judged(exhibit, room, timeout=WITHIN))


@pytest.mark.deep
@pytest.mark.parametrize("exhibit", [pytest.param(each, id=each.name) for each in UNCAUGHT])
def test_what_is_not_caught_gains_nothing(exhibit: Exhibit, room: Path) -> None:
    """One that is caught after all belongs among the cheats, and off the page."""
    ruling = judged(exhibit, room, timeout=WITHIN)
    assert ruling.delta is None or ruling.delta.verdict != "faster", said(ruling)
    if exhibit.name == RARE:
        assert ruling.correct or "replay" in seen(ruling), said(ruling)
    else:
        assert ruling.correct and seen(ruling) <= {"ok", "fallback"}, said(ruling)


def test_the_page_names_what_is_not_caught() -> None:
    """Every candidate that passes, and every one that is not looked for as it gains nothing, is on the page; no other one is."""
    section = PAGE.read_text(encoding="utf-8").partition("## What it cannot catch\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", section)) & {each.name for each in (*CHEATS, *HONEST, *UNCAUGHT)}
    assert named == {each.name for each in UNCAUGHT} | {each.name for each in CHEATS if each.expect == {HARMLESS}}
    table = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert sorted(table) == [each.name for each in UNCAUGHT]


def test_the_museum_is_complete() -> None:
    assert len(CHEATS) >= 40 and len(HONEST) >= 15
    expected = Counter(kind for each in CHEATS for kind in each.expect)
    kinds = {
        "stale", "replay", "amortised", "outside", "hidden", "unfinished", "lazy", "forged", "changed-inputs", "aliased", "flags",
        "precision", "trivial", "sabotage", "fallback", "narrow", "left-behind", "kept-output", "wrong", "failed",
    }  # fmt: skip
    assert kinds <= set(expected), kinds - set(expected)
    assert {each.name for each in (*CHEATS, *HONEST)} >= QUICK
    for each in (*CHEATS, *HONEST, *UNCAUGHT):
        assert each.problem.is_file() and each.does.endswith("."), each.name


@pytest.mark.deep
def test_exhibits_do_what_they_say(tmp_path: Path) -> None:
    """Called plainly, each gives at first what its label says; those that replay are wrong later, and honest ones never are."""
    root = Path(__file__).parents[3]
    words = [sys.executable, "-m", "tests.engine.referee.walk", str(tmp_path)]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=280, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {(line["hall"], line["name"]): line for line in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(CHEATS) + len(HONEST)
    for each in CHEATS:
        line = found["cheats", each.name]
        assert each.first in ("any", line["first"]), line
        assert each.expect != {"replay"} or line["wrong"], line
    for each in HONEST:
        assert found["honest", each.name] == {"hall": "honest", "name": each.name, "first": "right", "wrong": 0}
