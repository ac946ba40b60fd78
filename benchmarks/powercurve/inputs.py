"""Comparisons of work on lists, dicts, strings, objects and modules, by all the ways that users have.

Each comparison is of equal code, or of code with 2 % of turns added. Where objects lie in memory differs between any two builds,
so whatever does not build them again between its blocks calls equal code slower.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.powercurve import held
from benchmarks.powercurve.score import Rate
from tabulate import tabulate

import steelyard
from steelyard.measuring.clock import HostTimer
from steelyard.measuring.sample import calibrate
from steelyard.model.pair import MARGIN, judge
from steelyard.model.task import Task

VS, COMPARE, PATH = "run --vs", "compare()", "run --vs-path"
DOORS = (VS, COMPARE, PATH)
SHARE, PROBE, PROBES = 0.02, 500, 60
EVERY = 4
REGRESSION = 4
MOST_FALSE = 2 / 400


@dataclass(frozen=True)
class Answer:
    """One comparison: what was asked, and the ratio that was found. `gate` is the exit code of the gate over the run that it was in."""

    door: str
    inputs: str
    slowed: bool
    ratio: float
    low: float
    high: float
    gate: int | None = None

    @property
    def direction(self) -> int:
        """+1 where the head is called slower, -1 faster, 0 where neither or where that is too little to matter."""
        return {"slower": 1, "faster": -1}.get(judge(self.low, self.high, MARGIN), 0)

    @property
    def seen(self) -> bool:
        """Whether something slower was found, of whatever size."""
        return self.low > 1


def collect(comparisons: int, budget: float, doors: tuple[str, ...] = DOORS, seed: int | None = None) -> Iterator[Answer]:
    """So many comparisons of equal code, door after door; every fourth time those of slowed code besides."""
    from benchmarks.powercurve.ops import settle

    rng, count, number = random.Random(seed), 0, 0
    settle()
    with tempfile.TemporaryDirectory(prefix="steelyard-inputs-") as folder:
        while count < comparisons:
            door, slowed = doors[number % len(doors)], number // len(doors) % EVERY == EVERY - 1
            turns = turns_of_all() if slowed else {}
            for answer in {VS: _vs, COMPARE: _compare, PATH: _path}[door](Path(folder) / str(number), turns, budget, rng):
                count += not answer.slowed
                yield answer
                if count == comparisons:
                    return
            number += 1


def turns_of_all() -> dict[str, int]:
    """Loop turns that make two percent of each kind of work, by neighbouring blocks with and without turns."""
    found, timer = {}, HostTimer()
    for kind, (draw, work) in held.INPUTS.items():
        args = draw(random.Random(0))
        plain, slow = (timer.bind(Task(held.slowed(work, turns), args)) for turns in (0, PROBE))
        calls = calibrate(plain, timer)
        blocks = [(plain(calls), slow(calls)) for _ in range(PROBES)]
        more = statistics.median(two - one for one, two in blocks) / PROBE
        found[kind] = max(1, round(SHARE * statistics.median(one for one, _ in blocks) / max(more, 1e-3)))
    return found


def write_file(path: Path, turns: Mapping[str, int], again: Mapping[str, int]) -> None:
    """The work as a user's file, with turns."""
    text = Path(held.__file__).read_text(encoding="utf-8")
    for name, numbers in (("TURNS", turns), ("AGAIN", again)):
        text = text.replace(f"{name}: dict[str, int] = {{}}", f"{name}: dict[str, int] = {dict(numbers)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _vs(folder: Path, turns: Mapping[str, int], budget: float, rng: random.Random) -> Iterator[Answer]:
    write_file(folder / "held.py", {}, turns)
    yield from _run(folder, VS, turns, ["-V", "eager,again", "--vs", "eager", "--budget", f"{budget}s"])


def _path(folder: Path, turns: Mapping[str, int], budget: float, rng: random.Random) -> Iterator[Answer]:
    write_file(folder / "base" / "held.py", {}, {})
    write_file(folder / "head" / "held.py", turns, {})
    yield from _run(folder / "head", PATH, turns, ["--vs-path", "../base", "--budget", f"{budget}s"])


def _run(folder: Path, door: str, turns: Mapping[str, int], words: list[str]) -> Iterator[Answer]:
    """One run over all kinds of inputs, and the gate over it."""
    told = _steelyard(folder, "run", "held.py", *words, "--json", "--store", "runs")
    gate = _steelyard(folder, "gate", "latest", "--store", "runs").returncode
    for pair in json.loads(told.stdout)["pairs"]:
        inputs = pair["head"]["id"].partition("inputs=")[2].partition("]")[0]
        yield Answer(door, inputs, bool(turns), pair["ratio"], pair["low"], pair["high"], gate)


def _steelyard(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "steelyard", *words], cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "CI": ""}
    )
    if done.returncode not in (0, REGRESSION):
        raise SystemExit(f"steelyard {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done


def _compare(folder: Path, turns: Mapping[str, int], budget: float, rng: random.Random) -> Iterator[Answer]:
    """Functions with inputs of their own, or both with the same, by a coin."""
    for kind, (draw, work) in held.INPUTS.items():
        base, head = (held.slowed(work, count) for count in (0, turns.get(kind, 0)))
        if rng.random() < 0.5:
            found = steelyard.compare(base, head, *draw(random.Random(0)), budget=budget)
        else:
            found = steelyard.compare(*(_holding(fn, draw(random.Random(0))) for fn in (base, head)), budget=budget)
        assert found.ratio is not None
        yield Answer(COMPARE, kind, bool(turns), found.ratio, found.low or 0.0, found.high or float("inf"))


def _holding(fn: Any, inputs: tuple[Any, ...]) -> Any:
    return lambda: fn(*inputs)


def table(answers: list[Answer]) -> str:
    """Per door and kind: how often equal code was called slower or faster, how often two percent were seen, and how far ratios scatter."""
    rows = []
    for door in DOORS:
        for kind in (*held.INPUTS, ""):
            mine = [answer for answer in answers if answer.door == door and kind in ("", answer.inputs)]
            equal, slow = ([answer for answer in mine if answer.slowed is slowed] for slowed in (False, True))
            if mine:
                spread = 100 * statistics.pstdev(answer.ratio for answer in equal) if equal else 0.0
                wrong, seen = Rate.among(answer.direction != 0 for answer in equal), Rate.among(answer.seen for answer in slow)
                rows.append([door, kind or "all", f"{wrong.count} of {wrong.of}", f"{spread:.2f} %", f"{seen.count} of {seen.of}"])
    return tabulate(rows, ["door", "inputs", "equal code told apart", "SD", "2 % seen"], disable_numparse=True)


def goals(answers: list[Answer]) -> list[str]:
    """What has to hold, and whether it does."""
    equal = [answer for answer in answers if not answer.slowed]
    wrong = sum(answer.direction != 0 for answer in equal)
    failed = sum(answer.gate == REGRESSION for answer in equal)
    said = [(f"equal code told apart in {wrong} of {len(equal)}, at most {MOST_FALSE:.1%}", wrong <= MOST_FALSE * len(equal))]
    said += [(f"equal code that fails the gate: {failed}, none", failed == 0)]
    return [f"goal: {text} {'reached' if reached else 'missed'}" for text, reached in said]


def run(comparisons: int, budget: float, doors: tuple[str, ...], seed: int | None, keep: Path | None) -> None:
    """Gather, print as they come, then the table and the goals."""
    answers, began = [], time.perf_counter()
    for answer in collect(comparisons, budget, doors, seed):
        answers.append(answer)
        slow = "2 % slower" if answer.slowed else "equal"
        found = f"{100 * (answer.ratio - 1):+.2f} % [{100 * (answer.low - 1):.2f}, {100 * (answer.high - 1):.2f}]"
        print(f"{len(answers):5}  {answer.door} {answer.inputs}, {slow}: {found}", file=sys.stderr)
        if keep:
            with keep.open("a", encoding="utf-8") as lines:
                print(json.dumps(asdict(answer)), file=lines)
    print(f"{len(answers)} comparisons in {time.perf_counter() - began:.0f} s\n\n{table(answers)}\n")
    print("\n".join(goals(answers)))
