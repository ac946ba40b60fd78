"""The collecting loop: fresh interpreters one after the other, each with a few dozen drawn comparisons, until the time is up.

Every comparison is on disk before the next one ends, so it can be killed at any moment and goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.powercurve import results
from benchmarks.powercurve.cells import FREE, HOGS, MATCHED, ONE, SEQUENTIAL, Cell, draw_batch
from benchmarks.powercurve.results import Outcome
from benchmarks.sheet import alone

from steelyard.engine.process import die_with_parent
from steelyard.errors import SteelyardError
from steelyard.machine import facts

ROOT = Path(__file__).parents[2]
HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10_000_000):\n        pass\n"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MOST_EMPTY = 3


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """Busy loops beside the measurement; they end with this, or by themselves when whoever started them is gone."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.DEVNULL))
        yield
    finally:
        for hog in started:
            hog.kill()
        for hog in started:
            hog.wait()


def side_by_side(count: int, words: Sequence[str]) -> None:
    """The same command so many times at once, each on a core of its own, as far apart as the cores allow; all write to one file."""
    cores = sorted(os.sched_getaffinity(0))
    if count > len(cores):
        raise SystemExit(f"{count} at once need as many cores, and there are {len(cores)}")
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            core = cores[number * len(cores) // count]
            command = [sys.executable, "-m", "benchmarks.powercurve", *words, "--core", str(core)]
            started.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL))
        if failed := [process.returncode for process in started if process.wait()]:
            raise SystemExit(f"{len(failed)} of {count} ended with an error; what went wrong is said above")
    finally:
        for process in started:
            process.kill()
            process.wait()


def collect(
    wanted: Mapping[Cell, int], env: str, seconds: float, folder: Path, rng: random.Random, now: Callable[[], float] = time.time,
    *, ruled: bool = True,
) -> Counter[Cell]:  # fmt: skip
    """Gather comparisons for so long, those first that lack most; what was gathered now. Others may write to the same file meanwhile."""
    end, machine = now() + seconds, facts.key(facts.collect(ROOT))
    gathered: Counter[Cell] = Counter()
    empty, beside = 0, len(os.sched_getaffinity(0)) if env == HOGS else 0
    while now() < end:
        have = Counter(outcome.cell for outcome in results.read(folder, {cell.kind for cell in wanted}, machine=machine))
        batch, before = draw_batch(wanted, have, rng), gathered.total()
        with alone("power curve"), hogs(beside):
            for outcome in interpreted(batch, end, ruled=ruled):
                results.append(folder, machine, outcome)
                gathered[outcome.cell] += 1
                print(_progress(gathered.total(), outcome), file=sys.stderr)
        empty = empty + 1 if gathered.total() == before else 0
        if empty == MOST_EMPTY:
            raise SystemExit("nothing was gathered three times in a row; what went wrong is said above")
    return gathered


def interpreted(batch: Sequence[Cell], end: float, *, ruled: bool = True) -> Iterator[Outcome]:
    """The outcomes of one fresh interpreter as they come; it ends with this process, and when the time is up."""
    command = [sys.executable, "-m", "benchmarks.powercurve", "serve"]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as orders:
            json.dump({"end": end, "ruled": ruled, "cells": [dataclasses.asdict(cell) for cell in batch]}, orders)
        for line in process.stdout:
            outcome = Outcome.from_line(line)
            if outcome is not None:
                yield outcome
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def serve(orders: IO[str], answers: IO[str]) -> None:
    """What the fresh interpreter does: one comparison after the other, an answer line for each."""
    die_with_parent()
    order, process, rng = json.load(orders), uuid.uuid4().hex[:8], random.Random()
    batch = [Cell(**cell) for cell in order["cells"]]
    with comparer(batch, rng, ruled=order["ruled"]) as compare:
        for cell in batch:
            if time.time() >= order["end"]:
                break
            start, busy = time.perf_counter(), busy_seconds()
            try:
                outcome = compare(cell)
            except (SteelyardError, results.NotMeasured) as error:
                print(f"{cell}: {error}", file=sys.stderr)
                continue
            beside = (busy_seconds() - busy - (outcome.cpu or 0.0)) / (time.perf_counter() - start)
            done = dataclasses.replace(outcome, process=process, at=round(time.time()), load=os.getloadavg()[0], others=max(0.0, beside))
            print(done.line(), file=answers, flush=True)


def busy_seconds() -> float:
    """CPU time that everything on this machine has taken so far; on the one core alone that this process is bound to, if it is."""
    cores = os.sched_getaffinity(0)
    name = f"cpu{min(cores)} " if len(cores) == 1 else "cpu "
    words = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(name)).split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (int(word) for word in words[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def comparer(batch: Sequence[Cell], rng: random.Random, *, ruled: bool = True) -> Iterator[Any]:
    """What compares the cells of one interpreter."""
    from benchmarks.powercurve import arms, ops, peers

    ops.settle()
    purse = arms.Purse()
    kinds = {cell.kind for cell in batch}
    with arms.Couples(batch[0].kind) if kinds & {MATCHED, FREE} else contextlib.nullcontext() as couples:

        def compare(cell: Cell) -> Outcome:
            if couples is not None:
                return couples.weigh(cell, purse, rng)
            if cell.kind == ONE:
                return arms.one_process(cell, purse, rng, ruled=ruled)
            return arms.sequential(cell, rng) if cell.kind == SEQUENTIAL else peers.run(cell)

        yield compare


def _progress(count: int, outcome: Outcome) -> str:
    said = "" if outcome.estimate is None else f" {100 * outcome.estimate:+.2f} %"
    found = outcome.verdict or ("" if outcome.flag is None else f"flag {outcome.flag:+d}")
    what = f"{outcome.kind} {outcome.op} {outcome.env} {outcome.budget:g} s, {outcome.percent:g} % slower"
    return f"{count:5}  {what}:{said} {found} {outcome.stop}".rstrip()
