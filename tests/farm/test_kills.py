"""Workers, nodes and the conductor are killed at random moments, ten times each: every case is there once, and nothing is left running."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.drive import PROGRAM
from tests.engine.farm.test_runs import events_of, lines_of, records_of
from tests.farm.places import FarmPlace, kill, nothing_left, workers

KILLS, CASES = 10, 60
MOMENT = 120.0
WORDS = ["op/copy", "-B", "numpy", "-a", f"n=[{','.join(str(1000 + n) for n in range(CASES))}]", "--budget", "60ms"]


class KilledRun:
    """A run that somebody harms: its process, and what it has written."""

    def __init__(self, place: FarmPlace, cwd: Path) -> None:
        self.place, self.cwd = place, cwd
        self.process = self._start()

    def _start(self, *more: str) -> subprocess.Popen[str]:
        quick = {"STEELYARD_FARM_PATIENCE": "3s"}
        with (self.cwd / "err.txt").open("a") as err:
            words = [*PROGRAM, "run", *WORDS, "--on", self.place.on(self.cwd), *more]
            return subprocess.Popen(words, cwd=self.cwd, stdout=err, stderr=err, text=True, env=self.place.environment | quick)

    @property
    def said(self) -> str:
        return (self.cwd / "err.txt").read_text()[-6000:]

    @property
    def complete(self) -> bool:
        """Whether the run on the disk has its end."""
        return "seal" in lines_of(self.cwd)[-1]

    def kept(self) -> int:
        """How many records are on the disk."""
        return sum(event.kind == "kept" for event in events_of(self.cwd)) if (self.cwd / ".steelyard" / "runs").is_dir() else 0

    def until(self, kept: int) -> bool:
        """Wait until so many records are there; whether the run still goes on."""
        deadline = time.monotonic() + MOMENT
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.kept() >= kept:
                return True
            time.sleep(0.05)
        assert self.process.poll() is not None, f"nothing came within {MOMENT:.0f} s\n{self.said}"
        return False

    def go_on(self) -> bool:
        """Kill the conductor, and have another go on; False if the run was complete by then, because another would measure it anew."""
        self.process.kill()
        self.process.wait()
        if self.complete:
            return False
        self.process = self._start("--resume")
        return True

    def check(self, *, crashes: bool) -> None:
        """To the end: every case once, in good order, and nobody left."""
        code = self.process.wait(300)
        assert code == 0 or (crashes and code == 3) or (code == -signal.SIGKILL and self.complete), self.said
        found = records_of(self.cwd)
        assert len(found) == len({record["id"] for record in found}) == CASES
        assert all(record["status"] == "ok" or (crashes and record["status"] == "crashed") for record in found), self.said
        numbers = [(event.number("group"), event.number("attempt")) for event in events_of(self.cwd) if event.kind == "begun"]
        assert len(numbers) == len(set(numbers))
        assert self.complete
        assert nothing_left(self.place.mark) == []


Harm = Callable[[KilledRun, random.Random], bool]


def worker(run: KilledRun, rng: random.Random) -> bool:
    return kill(workers(run.place.mark), rng)


def node(run: KilledRun, rng: random.Random) -> bool:
    run.place.lose_node(rng)
    return True


def conductor(run: KilledRun, rng: random.Random) -> bool:
    return run.go_on()


@pytest.mark.parametrize("harm", [worker, node, conductor], ids=lambda harm: harm.__name__)
def test_ten_kills_lose_nothing_and_double_nothing(harm: Harm, place: FarmPlace, tmp_path: Path) -> None:
    rng = random.Random(f"{place.name} {harm.__name__}")
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        folder = tmp_path / str(rounds)
        folder.mkdir()
        run, last = KilledRun(place, folder), 0
        while kills < KILLS and run.until(last + rng.randrange(1, 8)):
            time.sleep(rng.random() / 2)
            last = run.kept()
            kills += harm(run, rng)
        run.check(crashes=harm is worker)
    assert rounds < KILLS
