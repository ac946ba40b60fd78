"""Judging as on a device, tried on the CPU: interpreters that wait, files that are used again, stands that are seen off later."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import steelyard
from steelyard.engine.referee import court, judging, seats
from steelyard.engine.referee.charges import by_time
from steelyard.engine.referee.court import Court
from steelyard.engine.referee.drawing import FEWEST, Drawers
from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.options import BUDGETS, JudgeOptions
from steelyard.engine.referee.partner import Partner
from steelyard.engine.referee.ruling import UNCONFIRMED, rule
from steelyard.engine.referee.seats import OutputFile
from steelyard.engine.referee.trial import Hearing
from steelyard.model.judging import Contract, Problem, Submission
from tests.engine.referee.test_drawing import HONEST, SEEDED, right, written

WRONG = "import numpy as np\n\ndef candidate(x):\n    return -x\n"
TRITON = "# written as for triton\n" + HONEST
CUTS_IDLE_FILES = """
from pathlib import Path

import numpy as np

def candidate(x):
    for file in Path.cwd().parent.glob("outputs-*"):
        if file.stat().st_size and file.name not in OWN:
            with file.open("r+b") as opened:
                opened.truncate(4096)
    return np.sort(x)

OWN = {Path(line.split()[-1]).name for line in open("/proc/self/maps") if "outputs-" in line}
"""
WORKS_WHILE_ROUSED = """
import gc

import numpy as np

from steelyard.engine.referee.stand import Stand

AHEAD = []

def wait(self):
    AHEAD[:] = [candidate(*args) for args in self.landed]
    return {}

def call(self):
    self.held.extend(AHEAD or [candidate(*args) for args in self.landed])
    AHEAD.clear()
    return {}

Stand.wait, Stand.call = wait, call

def candidate(x):
    return np.sort(x, kind="stable")
"""
REMOVES_INPUTS = """
from pathlib import Path

import numpy as np

# written as for triton
def candidate(x):
    (Path.cwd().parent / "inputs").unlink(missing_ok=True)
    return np.sort(x)
"""


@pytest.fixture(autouse=True)
def on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The judge does as on a device; nothing is left of it."""
    monkeypatch.setattr(Court, "on_device", True)
    monkeypatch.setattr(judging, "PAIRS", {})
    yield
    assert not list(Path("/dev/shm").glob(f"steelyard-court-{os.getpid()}-*"))


def judged(folder: Path, *candidates: str) -> list[Any]:
    """The rulings on these candidates, in one batch."""
    problem, named = written(folder, SEEDED, *candidates)
    return list(steelyard.judge_all(problem, named, budget=0.02))


def test_stands_of_wrong_candidates_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    unseat = Court.unseat

    def noted(self: Court, partner: Any, *, wait: bool = True) -> list[int]:
        left = unseat(self, partner, wait=wait)
        seen.append((len(self.leaving), len(list(self.folder.glob("outputs-*")))))
        return left

    monkeypatch.setattr(Court, "unseat", noted)
    assert right(judged(tmp_path, *[WRONG] * 4)) == [False] * 4
    assert max(leaving for leaving, _ in seen) == 1
    assert max(files for _, files in seen) <= 3


def test_work_while_the_judge_makes_sure_that_a_candidate_is_awake_is_noticed(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, WORKS_WHILE_ROUSED)
    assert [trick.kind for trick in found.tricks if trick.voids] == ["outside"], (found.reason, found.delta)


def test_an_interpreter_that_was_lost_while_it_waited_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ready = Court.make_ready

    def lost(self: Court, count: int) -> None:
        make_ready(self, count)
        for spare in self.spares:
            os.kill(spare.talk.worker.pid, signal.SIGKILL)

    monkeypatch.setattr(Court, "make_ready", lost)
    assert right(judged(tmp_path, HONEST, HONEST)) == [True] * 2


def test_interpreters_that_wait_do_not_outlast_their_folder(tmp_path: Path) -> None:
    found = judged(tmp_path, TRITON, REMOVES_INPUTS, TRITON)
    assert right(found) == [True, False, True], [ruling.reason for ruling in found]
    assert [trick.kind for trick in found[1].tricks] == ["sabotage"]


def test_who_cuts_files_for_later_outputs_is_named_and_the_next_one_is_right(tmp_path: Path) -> None:
    found = judged(tmp_path, HONEST, CUTS_IDLE_FILES, HONEST)
    assert right([found[0], found[2]]) == [True] * 2, [ruling.reason for ruling in found]
    assert [trick.kind for trick in found[1].tricks] == ["sabotage"]


def test_memory_for_outputs_is_provided_only_where_there_is_ample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats.os, "statvfs", lambda path: SimpleNamespace(f_bavail=8, f_frsize=4096))
    assert OutputFile.create(tmp_path / "many", 1 << 16, 1 << 14).ready == 0
    assert OutputFile.create(tmp_path / "few", 1 << 16, 1 << 12).ready == 1 << 12


def test_every_answer_is_waited_for_before_a_failed_one_is_read() -> None:
    """An answer that stays in a pipe would be taken for the next one."""
    waited: list[int] = []

    def hand(number: int) -> Callable[..., Any]:
        def read() -> None:
            if number == 1:
                raise RuntimeError("out of memory")

        def wait() -> Callable[[], None]:
            waited.append(number)
            return read

        return lambda do, **words: wait

    partners: Any = [SimpleNamespace(hand=hand(number)) for number in range(FEWEST)]
    drawers = Drawers(lambda: None, {"device": "cpu"}, Path(), 4, 8, 1.0, partners=partners)  # type: ignore[arg-type,return-value]
    with pytest.raises(RuntimeError, match="out of memory"):
        drawers.prepare(range(8))
    assert waited == list(range(FEWEST))


@pytest.mark.parametrize(("before", "after", "single"), [(100e-6, 80e-6, 300e-6), (10e-6, 0.6e-6, 100e-6)])
def test_a_gain_of_blocks_alone_is_never_faster(before: float, after: float, single: float) -> None:
    rng, seen = random.Random(5), Evidence()
    for number in range(12):
        for half, arm in enumerate((0, 1, 1, 0)):
            took = 64 * (before, after)[arm] * rng.gauss(1, 0.005)
            seen.blocks.append(Block(0, number, half // 2, arm, 64, 1e-3, took, None, took, 0.0))
    seen.serial = [(rng.gauss(single, 1e-7), rng.gauss(single, 1e-7)) for _ in range(40)]
    seen.checked = [{"status": "passed"}]
    problem = Problem("plain", "reference.py", contract=Contract())
    opening = SimpleNamespace(tricks=(), least_bytes=0.0, device_name="")
    bench: Any = SimpleNamespace(options=JudgeOptions(device="cuda"), opening=opening, problem=problem, drawn=1)
    found = rule(bench, Submission("plain", "candidate.py"), seen)
    assert found.status == "ok" and found.delta is not None
    assert (found.delta.verdict, found.delta.reason) == ("unclear", UNCONFIRMED)


def test_slow_copies_of_long_blocks_are_no_finding() -> None:
    """Which blocks are shown is drawn for each arm: those of the candidate may have more calls."""
    rng = random.Random(7)
    blocks = [
        Block(0, number, 0, arm, calls := rng.randint(10, 12) if arm else rng.randint(2, 4), calls * 10e-3 * rng.gauss(1, 0.05), 1e-3,
              calls * 20e-3 * rng.gauss(1, 0.05), 0.0, 0.0, shown=calls)
        for number in range(12) for arm in (0, 1)
    ]  # fmt: skip
    assert by_time(blocks) == []
    late = [replace(block, show=2 * block.show) if block.arm and block.show else block for block in blocks]
    assert [trick.kind for trick in by_time(late)] == ["outside"]


@pytest.mark.parametrize(("budget", "rounds"), [("quick", 6), ("normal", 6), ("thorough", 40)])
def test_a_larger_budget_buys_more_rounds_on_a_device(budget: str, rounds: int) -> None:
    options = JudgeOptions(device="cuda", budget=BUDGETS[budget])
    seen: Any = SimpleNamespace(overhead=4e-5, serial=[(2e-4, 1e-4)] * 10, empty=[])
    made: list[int] = []
    trial: Any = SimpleNamespace(
        court=SimpleNamespace(
            options=options, on_device=True, numbers=lambda count: list(range(count)), draw=lambda numbers: [{}] * len(numbers),
            opening=SimpleNamespace(calls=8),
        ),
        seen=seen, rng=random.Random(3), _block_calls=lambda: 8, _turn=lambda base, arm: contextlib.nullcontext(),
        _block=lambda base, place, *rest, audit: made.append(place[1]), _empty=lambda base: 4e-5, _warm_up=lambda base, most, budget: None,
    )  # fmt: skip
    Hearing.in_blocks(trial, trial, 0, options.budget)
    assert len(set(made)) == rounds


@pytest.mark.parametrize("cpus", [2, 4])
def test_processes_stay_awake_for_each_other_where_there_are_cpus_enough(
    cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(court, "affinity", lambda: list(range(cpus)))
    found: list[float] = []
    seat = Court.seat

    def noted(self: Court, submission: Submission | None) -> Any:
        partner, facts = seat(self, submission)
        found.append(partner.talk.awake)
        return partner, facts

    monkeypatch.setattr(Court, "seat", noted)
    assert right(judged(tmp_path, HONEST)) == [True]
    assert set(found) == {court.AWAKE[0] if cpus >= court.FEWEST_CPUS else 0.0}


def test_nothing_loads_while_a_step_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[list[int], str]] = []
    monkeypatch.setattr(court, "send", lambda pids, number: sent.append((pids, number.name)))
    talks = [SimpleNamespace(worker=SimpleNamespace(pid=pid), deadline=deadline) for pid, deadline in ((3, None), (4, 5.0))]
    bench: Any = SimpleNamespace(spares=[SimpleNamespace(talk=talks[0])], drawers=SimpleNamespace(talks=talks[1:]), on_device=True)
    steps: list[str] = []

    def step(do: str) -> tuple[dict[str, Any], float]:
        steps.append(do)
        if do == "fails":
            raise RuntimeError("lost")
        return {}, 2.0

    partner: Any = SimpleNamespace(step=step)
    assert Court.timed(bench, partner, "call") == (2.0, 2.0) and steps == ["wait", "call"]
    with pytest.raises(RuntimeError):
        Court.timed(bench, partner, "fails")
    assert sent == [([3, 4], "SIGSTOP"), ([3, 4], "SIGCONT")] * 2
    assert talks[0].deadline is None and talks[1].deadline is not None and talks[1].deadline > 5.0


def test_a_partner_that_has_ended_is_not_killed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process id may belong to another process by now."""
    killed: list[int] = []
    monkeypatch.setattr("steelyard.engine.referee.partner.end_tree", lambda pid, itself: killed.append(pid))
    for gone in (True, False):
        talk: Any = SimpleNamespace(worker=SimpleNamespace(pid=2**22 + 5, gone=gone))
        Partner(talk, 1.0).kill()
    assert killed == [2**22 + 5]
