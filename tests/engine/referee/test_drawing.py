"""Inputs that several processes draw: they are the examiner's, nobody else's, and where they cannot be, the examiner draws alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import steelyard
from steelyard.engine.referee import court, examining, room
from steelyard.engine.referee.drawing import FEWEST, MOST, Drawers, content, count, shares
from steelyard.engine.referee.examiner import Examiner
from steelyard.engine.referee.examining import Desk
from steelyard.engine.referee.judging import problems
from steelyard.engine.referee.options import JudgeOptions
from steelyard.engine.referee.parcel import SharedMemory
from steelyard.engine.referee.trial import SERIAL
from steelyard.model.judging import Ruling

SEEDED = """
import numpy as np

def reference(x):
    return np.sort(x)

def inputs(seed):
    return (np.random.default_rng(seed).standard_normal(1000),)
"""
COUNTED = SEEDED.replace("def inputs(seed):", "CALLS = []\n\ndef inputs(seed):\n    CALLS.append(seed)").replace(
    "rng(seed)", "rng(len(CALLS))"
)
"""Its inputs go by how often it was asked, which differs between processes."""
HONEST = "import numpy as np\n\ndef candidate(x):\n    return np.sort(x, kind='stable')\n"
SCRIBBLES = """
import mmap
from pathlib import Path

import numpy as np

HELD = []

def candidate(x):
    if not HELD:
        # inputs-* are there only where several processes draw; without one this raises, and the candidate fails
        for file in sorted(Path.cwd().parent.glob("inputs-*")):
            with file.open("r+b") as opened:
                HELD.append(np.frombuffer(mmap.mmap(opened.fileno(), 0), np.uint8))
        HELD[0]
    for each in HELD:
        each[:] = 0
    return np.sort(x)
"""
REPLACES = """
import os
from pathlib import Path

import numpy as np

DONE = []

def candidate(x):
    if not DONE:
        for file in sorted(Path.cwd().parent.glob("inputs-*")):
            size = file.stat().st_size
            file.unlink()
            file.write_bytes(bytes(size))
            DONE.append(file)
        DONE[0]
    return np.sort(x)
"""

TAKES_NAMES = """
import os
from pathlib import Path

import numpy as np

COURT = Path.cwd().parent

def candidate(x):
    for number in range(40):
        (COURT / f"stand-{number}").mkdir(exist_ok=True)
    for name in os.listdir("/proc"):
        if name.isdigit():
            (COURT / f"inputs-{name}").touch()
            (COURT / f"triton-{name}").mkdir(exist_ok=True)
    return np.sort(x)
"""
"""Takes names that might be those of files and folders of the candidates to come."""
REMOVES = """
import os
import shutil
from pathlib import Path

import numpy as np

COURT = Path.cwd().parent

def candidate(x):
    os.chdir("/")
    if COURT.is_dir():
        shutil.rmtree(COURT)
        COURT.touch()
    return np.sort(x)
"""


def written(folder: Path, reference: str, *candidates: str) -> tuple[str, list[str]]:
    """A reference and its candidates as files."""
    (folder / "reference.py").write_text(reference)
    files = [folder / f"candidate_{number}.py" for number in range(len(candidates))]
    for file, text in zip(files, candidates, strict=True):
        file.write_text(text)
    return str(folder / "reference.py"), [str(file) for file in files]


def right(found: list[Ruling]) -> list[bool]:
    """Whether each was heard to its end and gave right answers; how fast so small a problem is nobody can say on a busy machine."""
    return [ruling.verification is not None and ruling.verification.status == "passed" for ruling in found]


@pytest.mark.parametrize("reference", [pytest.param(SEEDED, id="seeded", marks=pytest.mark.deep), pytest.param(COUNTED, id="by its calls")])
def test_answers_to_inputs_of_several_processes_are_right(reference: str, tmp_path: Path) -> None:
    problem, named = written(tmp_path, reference, *[HONEST] * 3)
    found = list(steelyard.judge_all(problem, named, budget=0.02))
    assert right(found) == [True] * 3


def test_inputs_that_another_process_drew_cannot_be_written_over(tmp_path: Path) -> None:
    problem, named = written(tmp_path, SEEDED, HONEST, SCRIBBLES, HONEST)
    found = list(steelyard.judge_all(problem, named, budget=0.02))
    assert [right([found[0]]), right([found[2]])] == [[True], [True]], [ruling.reason for ruling in found]
    assert "overwritten" in found[1].reason


@pytest.mark.parametrize("name", ["inputs-*", *(pytest.param(name, marks=pytest.mark.deep) for name in ("inputs", "provisions"))])
def test_files_put_in_place_of_the_judge_s_reach_nobody_else(name: str, tmp_path: Path) -> None:
    problem, named = written(tmp_path, SEEDED, HONEST, REPLACES.replace("inputs-*", name), HONEST)
    found = list(steelyard.judge_all(problem, named, budget=0.02))
    assert right(found) == [True, False, True], [ruling.reason for ruling in found]
    assert [trick.kind for trick in found[1].tricks] == ["sabotage"]


@pytest.mark.deep
def test_names_of_the_judge_s_files_cannot_be_taken(tmp_path: Path) -> None:
    problem, named = written(tmp_path, SEEDED, TAKES_NAMES, HONEST, HONEST)
    found = list(steelyard.judge_all(problem, named, budget=0.02))
    assert right(found) == [True] * 3, [ruling.reason for ruling in found]


@pytest.mark.deep
def test_whoever_removes_the_judge_s_folder_is_named_and_the_next_ones_are_judged(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").glob("steelyard-court-*"))
    problem, named = written(tmp_path, SEEDED, HONEST, REMOVES, HONEST, REMOVES, HONEST)
    found = list(steelyard.judge_all(problem, named, budget=0.02))
    assert right(found) == [True, False, True, False, True], [ruling.reason for ruling in found]
    assert not set(Path("/dev/shm").glob(f"steelyard-court-{os.getpid()}-*")) - before


def test_single_draws_that_several_processes_prepared_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is drawn in advance by one of them, and can be seen only when it is its turn."""
    monkeypatch.setattr(court, "count", lambda cpus, device: FEWEST)
    prepared: list[int] = []
    prepare = Drawers.prepare

    def noted(self: Drawers, numbers: Sequence[int]) -> None:
        prepare(self, numbers)
        prepared.extend(self.prepared)

    monkeypatch.setattr(Drawers, "prepare", noted)
    problem, named = written(tmp_path, SEEDED, *[HONEST] * 3)
    found = list(steelyard.judge_all(problem, named, budget=0.02))
    assert right(found) == [True] * 3, [ruling.reason for ruling in found]
    assert len(set(prepared)) >= 2 * SERIAL


def test_prepared_inputs_are_those_that_would_be_drawn(tmp_path: Path) -> None:
    problem, _ = written(tmp_path, SEEDED)
    desks = [Desk(lambda: Examiner(problems(problem, (), JudgeOptions())[0], "cpu", 1), b"a secret") for _ in range(2)]
    memories = [SharedMemory.create(tmp_path / str(number), 1 << 20) for number in range(2)]
    for desk, memory in zip(desks, memories, strict=True):
        desk.begin_drawing()
        desk.memory = memory
    desks[0].do({"do": "prepare", "numbers": [3, 4]})
    assert memories[0].used == 0
    drawn = [desk.do({"do": "draw", "numbers": [4], "wide": ""})["slots"] for desk in desks]
    assert content(drawn[0], memories[0]) == content(drawn[1], memories[1])


def test_each_has_a_share() -> None:
    assert shares([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4, 5]]
    assert shares([1, 2], 3) == [[], [1], [2]]
    assert [count(cpus, "cpu") for cpus in (1, 2, 64)] == [1, 1, MOST]
    assert [count(cpus, "cuda") for cpus in (2, 16)] == [1, MOST]


def test_slow_inputs_are_drawn_in_parallel_for_a_single_candidate_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = Drawers.start

    def noted(self: Drawers, number: int, torch: bool) -> None:
        started.append(number)
        start(self, number, torch)

    monkeypatch.setattr(Drawers, "start", noted)
    monkeypatch.setattr(court, "count", lambda cpus, device: FEWEST)
    problem, named = written(tmp_path, SEEDED, HONEST)
    assert right([steelyard.judge(problem, named[0], budget=0.02)]) == [True]
    assert not started
    monkeypatch.setattr(court, "WORTH_STARTING", 0.0)
    assert right([steelyard.judge(problem, named[0], budget=0.02)]) == [True]
    assert started == [FEWEST]


def test_only_some_bytes_of_earlier_inputs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "KEPT_BYTES", 3 * 8000)
    problem, _ = written(tmp_path, SEEDED)
    desk = Desk(lambda: Examiner(problems(problem, (), JudgeOptions())[0], "cpu", 1), b"a secret")
    desk.open()
    assert desk.keeps == 3
    desk.memory = SharedMemory.create(tmp_path / "inputs", 1 << 20)
    first = content(desk.draw([1], ""), desk.memory)
    desk.draw(range(10, 20), "")
    assert len(desk.handed) == 10
    desk.draw([2], "")
    assert len(desk.handed) == 3
    assert content(desk.draw([1], ""), desk.memory) == first


def test_the_memory_there_is_limits_what_is_shared_and_how_many_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < room.room_for_calls(None, tmp_path) <= room.MOST_SHARED
    assert room.room_for_calls(1 << 20, tmp_path) == (1 << 20) // room.SHARE
    monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 16))
    assert room.room_for_calls(1 << 20, tmp_path) == (1 << 16) // room.SHARE
    monkeypatch.setattr(room, "memory", lambda: {"available": 1 << 30})
    assert [room.room_for_drawers(size) for size in (1 << 30, 1 << 26, 0)] == [0, 2, (1 << 30) // room.SHARE]
