"""Our own comparisons as the library and the engine make them: in one process, and in lock-step pairs of processes."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.powercurve import ops, rules
from benchmarks.powercurve.cells import FREE, MATCHED, Cell
from benchmarks.powercurve.results import Outcome

from steelyard.engine import sides
from steelyard.engine.lockstep import weigh
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import Pool
from steelyard.measuring import schedule
from steelyard.measuring.clock import HostTimer, Timer
from steelyard.measuring.evidence import Wager
from steelyard.measuring.paired import Rounds
from steelyard.measuring.sample import calibrate, quiet_collector
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Settings
from steelyard.model.pair import ALPHA, MARGIN, MOST_DISCARDED, judge
from steelyard.model.task import Task

ROOT = Path(__file__).parents[2]
WORKLOAD = "powercurve/arm"
FIRST_RESERVE = 0.02
FORKS, PER_SECOND = 0.5, 1.5
LEAST_SHARE = 0.1
WARM_BLOCKS = 8
ARM_FILE = '''"""One arm of the power curve, for a worker of its own."""

import random

from benchmarks.powercurve import ops
from steelyard import workload


@workload("{workload}", axes={{"op": ["adds"]}})
def arm(op, be):
    """The op with this side's extra work."""
    return ops.arm_with(op, {extra}, random.Random())()
'''

Build = Callable[[], Task]


@dataclass
class Purse:
    """What to give a comparison so that it costs what was stated, everything counted; learned from what the last ones cost.

    The sum does not depend on what was found: those that stopped early and within their budget teach nothing.
    """

    given: dict[Any, float] = field(default_factory=dict)

    def ask(self, cell: Cell, first: float) -> float:
        """Seconds to give next."""
        return self.given.setdefault(self._key(cell), max(LEAST_SHARE * cell.budget, first))

    def learn(self, cell: Cell, cost: float, stop: str) -> None:
        """A quarter of what was over or under is corrected."""
        if stop == "evidence" and cost <= cell.budget:
            return
        wanted = self.given[self._key(cell)] + (cell.budget - cost) / 4
        self.given[self._key(cell)] = min(1.2 * cell.budget, max(LEAST_SHARE * cell.budget, wanted))

    def _key(self, cell: Cell) -> tuple[str, str, float]:
        return cell.kind, cell.op, cell.budget


def one_process(cell: Cell, purse: Purse, rng: random.Random, *, ruled: bool = True) -> Outcome:
    """Base, head and the base once more, interleaved and rebuilt in this process; `ruled`: others' rules look at the same blocks."""
    extra = ops.extra_of(cell.op, cell.percent)
    builds = [ops.arm_with(cell.op, size, rng) for size in (0, extra, 0)]
    wall, busy = time.perf_counter(), time.process_time()
    outcome, rounds = weighed(cell, builds, HostTimer(), purse.ask(cell, cell.budget - FIRST_RESERVE), rng)
    spent = time.process_time() - busy
    purse.learn(cell, spent, outcome.stop)
    took = time.perf_counter() - wall
    said = rules.apply_all(*blocks_of(rounds)) if ruled else {}
    return replace(outcome, extra=extra, cpu=spent, wall=took, called=called_after(rounds), rules=said)


def weighed(cell: Cell, builds: list[Build], timer: Timer, budget: float, rng: random.Random) -> tuple[Outcome, Rounds]:
    """One comparison by the library's own schedule and judgement, and its raw rounds."""
    doing = schedule.weigh_arms(builds[:2], timer, Settings(budget=budget, settle=0), rng.randrange(2**31), placebo=builds[2])
    rounds = doing.rounds()
    found = doing.finding()
    low, high, ratio = found.interval.low, found.interval.high, found.ratio
    usable = max(found.discarded) <= MOST_DISCARDED
    outcome = Outcome(
        cell.kind, cell.op, cell.env, cell.budget, cell.percent, flag=usable * ((low > 0) - (high < 0)),
        estimate=found.interval.centre, low=low,
        high=high, verdict=verdict_of(ratio.low, ratio.high, max(found.discarded)), stop=doing.stop, p=found.p,
        timed=float(rounds.seconds.sum()), rebuilds=len(rounds.groups), rounds=len(rounds.seconds),
        discarded=max(found.discarded), clock=found.clock, floor=found.floor,
    )  # fmt: skip
    return outcome, rounds


def verdict_of(low: float, high: float, lost: float) -> str:
    """As a Pair is judged: by margin and interval, unless too much was disturbed."""
    return "unclear" if lost > MOST_DISCARDED else judge(low, high, MARGIN)


def called_after(rounds: Rounds) -> float | None:
    """Seconds of blocks after which evidence that survives peeking excluded zero; nothing if it never did."""
    clock = rounds.clock([0, 1])
    rows, _ = rounds.rows(1, clock)
    groups = list(rounds.centres(0, 1, clock))
    wager = Wager()
    for number, row in zip(groups, rows, strict=False):
        wager.add(row)
        if wager.highest[0] >= 2 / ALPHA:
            return float(rounds.seconds[rounds.group <= number].sum())
    return None


def blocks_of(rounds: Rounds) -> tuple[rules.Floats, rules.Floats]:
    """Seconds per call of base and head in order of time."""
    base, head = (rounds.seconds[rounds.arm == arm] / rounds.calls[arm] for arm in (0, 1))
    return base, head


def sequential(cell: Cell, rng: random.Random) -> Outcome:
    """Blocks as the peers take them: the base until half of the CPU time is spent, then the head; each built once."""
    extra = ops.extra_of(cell.op, cell.percent)
    builds = [ops.arm_with(cell.op, size, rng) for size in (0, extra)]
    wall, busy = time.perf_counter(), time.process_time()
    with quiet_collector():
        base, head = (blocks_for(build, HostTimer(), cell.budget / 2) for build in builds)
    spent, took = time.process_time() - busy, time.perf_counter() - wall
    return Outcome(
        cell.kind, cell.op, cell.env, cell.budget, cell.percent, extra=extra, cpu=spent, wall=took, rules=rules.apply_all(base, head)
    )


def blocks_for(build: Build, timer: Timer, budget: float) -> rules.Floats:
    """Seconds per call of short blocks, one after the other, until so much CPU time is spent with everything."""
    end = time.process_time() + budget
    loop = timer.bind(build())
    calls = calibrate(loop, timer)
    for _ in range(WARM_BLOCKS):
        loop(calls)
    took = [loop(calls)]
    while time.process_time() < end or len(took) < rules.VALUES:
        took.append(loop(calls))
    return np.asarray(took, float) * 1e-9 / calls


class Couples:
    """Base and head in processes of their own, through the engine; the pool serves all comparisons of this interpreter."""

    def __init__(self, kind: str) -> None:
        self.layout = {MATCHED: sides.MATCHED, FREE: sides.FREE}[kind]
        self.place = Place(paths=(str(ROOT),))
        self.pool = Pool()
        self.folder = tempfile.TemporaryDirectory(prefix="steelyard-powercurve-")

    def __enter__(self) -> Couples:
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.close()
        self.folder.cleanup()

    def weigh(self, cell: Cell, purse: Purse, rng: random.Random) -> Outcome:
        """One comparison; starting the pool is nobody's cost, all that the pool does then is."""
        extra = ops.extra_of(cell.op, cell.percent)
        budget = purse.ask(cell, (cell.budget - FORKS) / PER_SECOND)
        job, plan = self._order(cell, extra, Settings(budget=budget, verify=False, seed=rng.randrange(2**31)))
        stable = self.pool.stable(job, plan.other, _silent)  # type: ignore[arg-type]
        wall, busy = time.perf_counter(), time.process_time() + cpu_seconds(stable.pids())
        pair, _ = weigh(self.pool, job, plan, _silent)
        spent = time.process_time() + cpu_seconds(stable.pids()) - busy
        purse.learn(cell, spent, pair.stopped_by)
        low, high, lost = pair.low, pair.high, max(pair.discarded.values())
        usable = lost <= MOST_DISCARDED
        logs = [float(np.log(end)) for end in (pair.ratio, low, high)]
        return Outcome(
            cell.kind, cell.op, cell.env, cell.budget, cell.percent, extra=extra, flag=usable * ((low > 1) - (high < 1)), estimate=logs[0],
            low=logs[1], high=logs[2], verdict=verdict_of(low, high, lost), stop=pair.stopped_by, p=pair.p, cpu=spent,
            wall=time.perf_counter() - wall, timed=pair.measured_s, rebuilds=pair.rebuilds, rounds=pair.quads, discarded=lost,
            clock=pair.clock, floor=pair.floor, note=pair.layout,
        )  # fmt: skip

    def _order(self, cell: Cell, extra: int, settings: Settings) -> tuple[Job, Plan]:
        base, head = (self._file(size) for size in (0, extra))
        case = Case(WORKLOAD, (("op", cell.op),), "torch")
        side = sides.BaseSide("base", self.place, (base,), self.layout)
        job = Job(case, case, self.place, WORKLOAD, fresh=False)
        return job, Plan(Experiment("power curve", settings=settings, files=(head,)), (job,), (), other=side)

    def _file(self, extra: int) -> str:
        path = Path(self.folder.name) / f"arm_{extra}.py"
        if not path.exists():
            path.write_text(ARM_FILE.format(workload=WORKLOAD, extra=extra))
        return str(path)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of processes and of all children that they have waited for, in the kernel's ticks."""
    total = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(word) for word in words[11:15])
    return total / os.sysconf("SC_CLK_TCK")


def _silent(phase: str, fraction: float | None) -> None:
    if phase.startswith("warming"):
        print(f"{phase} …", file=sys.stderr)
