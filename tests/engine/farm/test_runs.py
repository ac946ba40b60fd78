"""`steelyard run --on local:2` from start to end: the same cases and statuses as here, whoever is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine.farm.journal import JournalEvent, read_journal
from tests.engine.drive import processes_below, start, steelyard

CASES = 8
WORDS = ["fake/work", "-a", f"seconds=[{','.join(f'{n}e-6' for n in range(1, CASES + 1))}]"]
FARM = ["--on", "local:2"]


def folder_of(cwd: Path) -> Path:
    """The folder of the one run there is."""
    [found] = (cwd / ".steelyard" / "runs").iterdir()
    return found


def lines_of(cwd: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder_of(cwd) / "run.jsonl").read_text().splitlines()]


def records_of(cwd: Path) -> list[dict[str, Any]]:
    return [line["record"] for line in lines_of(cwd) if "record" in line]


def events_of(cwd: Path) -> list[JournalEvent]:
    return list(read_journal(folder_of(cwd)))


def check_whole(cwd: Path, count: int = CASES) -> None:
    """Every case once, all of them ok, the run sealed, and nobody left."""
    found = records_of(cwd)
    assert len(found) == len({record["id"] for record in found}) == count
    assert {record["status"] for record in found} == {"ok"}
    assert "seal" in lines_of(cwd)[-1]
    assert processes_below(cwd) == []


def test_a_comparison_on_a_station_says_what_it_says_here(tmp_path: Path) -> None:
    words = ["fake/work", "-a", "seconds=[1e-3,2e-3]", "-V", "eager,half", "--vs", "eager"]
    here, away = tmp_path / "here", tmp_path / "away"
    for folder, more in ((here, []), (away, ["--on", "local"])):
        folder.mkdir()
        steelyard("run", *words, *more, cwd=folder)
    mine, theirs = ({record["id"]: record for record in records_of(folder)} for folder in (here, away))
    assert mine.keys() == theirs.keys()
    for id, record in theirs.items():
        assert (record["status"], record["requested"]) == (mine[id]["status"], mine[id]["requested"])
        assert record["metrics"]["time"]["value"] == pytest.approx(mine[id]["metrics"]["time"]["value"])
        assert record["effective"]["host"]["attempt"] >= 1
    pairs = [[line["pair"] for line in lines_of(folder) if "pair" in line] for folder in (here, away)]
    assert sorted(pair["head"]["id"] for pair in pairs[0]) == sorted(pair["head"]["id"] for pair in pairs[1])
    assert [round(pair["ratio"], 6) for pair in pairs[1]] == [0.5] * 2
    check_whole(away, 4)


OWN = """
import os, sys
from steelyard import Task, workload

@workload("own/dies", axes={"how": ["not", "loudly"]}, backend="fake")
def dies(how, be):
    x = be.randn(16, dtype="fp32")

    def fn():
        if how == "loudly":
            print("famous last words", file=sys.stderr, flush=True)
            os._exit(3)
        be.spend(1e-3)
        return x

    return Task(fn)
"""


@pytest.mark.farm
def test_a_users_case_that_crashes_its_worker_is_crashed_there_too_and_its_words_are_kept(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    steelyard("run", "own.py", "--on", "local", cwd=tmp_path, check=3)
    found = {record["case"]["params"]["how"]: record for record in records_of(tmp_path)}
    assert (found["not"]["status"], found["loudly"]["status"]) == ("ok", "crashed")
    [log] = found["loudly"]["attachments"]
    assert "famous last words" in (folder_of(tmp_path) / log["path"]).read_text()


Victim = Callable[[subprocess.Popen[str], list[JournalEvent]], list[int]]


def stations(process: subprocess.Popen[str], events: list[JournalEvent]) -> list[int]:
    lost = {event.text("station") for event in events if event.kind == "lost"}
    return [event.number("pid") for event in events if event.kind == "joined" and event.text("station") not in lost]


def workers(process: subprocess.Popen[str], events: list[JournalEvent]) -> list[int]:
    from steelyard.machine.processes import tree

    return [pid for station in stations(process, events) for pid in tree(station) if pid != station]


def conductor(process: subprocess.Popen[str], events: list[JournalEvent]) -> list[int]:
    return [process.pid]


def kill_during(victim: Victim, seed: int, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill one of them after some cases, and go on where it was the conductor."""
    monkeypatch.setenv("STEELYARD_FARM_PATIENCE", "2s")
    rng = random.Random(seed)
    farm = ["--on", "local"] if victim is conductor else FARM
    process = start("run", *WORDS, *farm, cwd=cwd)
    assert process.stderr is not None
    after = rng.randrange(1, CASES - 1)
    for line in process.stderr:
        if line.startswith(f"[{after}/"):
            break
    if pids := victim(process, events_of(cwd)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    if victim is conductor:
        assert process.returncode == -signal.SIGKILL
        steelyard("run", *WORDS, *farm, "--resume", cwd=cwd)
    elif victim is stations:
        assert process.returncode == 0, err
    numbers = [(event.number("group"), event.number("attempt")) for event in events_of(cwd) if event.kind == "begun"]
    assert len(numbers) == len(set(numbers))
    found = records_of(cwd)
    assert len(found) == len({record["id"] for record in found}) == CASES
    assert "seal" in lines_of(cwd)[-1] and processes_below(cwd) == []
    assert all(record["status"] == "ok" or (victim is workers and record["status"] == "crashed") for record in found), err


def test_a_killed_station_loses_nothing_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_during(stations, 1, tmp_path, monkeypatch)


@pytest.mark.farm
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("victim", [stations, workers, conductor], ids=lambda victim: victim.__name__)
def test_kills_at_random_moments(victim: Victim, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_during(victim, 100 + seed, tmp_path, monkeypatch)


@pytest.mark.farm
def test_nights_on_a_farm_are_held_against_each_other(tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text('name = "n"\n[[matrix]]\nworkload = "fake/work"\naxes.seconds = [0.001, 0.002]\n')
    for _ in range(2):
        done = steelyard("nightly", "n.toml", "--keep", "nights", *FARM, cwd=tmp_path)
    assert "night of" in done.stdout and "no good night" not in done.stdout
    assert processes_below(tmp_path) == []
