"""The rows of the device: equal matmuls and the slowed add by graph replay, beside triton's do_bench and its graph form.

One process, arms built apart, cells drawn at random for a stated time. Needs an NVIDIA GPU and triton.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from benchmarks.powercurve import arms, ops, results
from benchmarks.powercurve.cells import DO_BENCH, GRAPH, Cell, lacking, missing
from benchmarks.powercurve.results import Outcome

from steelyard.backends.torch import Torch
from steelyard.machine import facts
from steelyard.model.pair import MARGIN

WARM_SECONDS = 2.0
SHARE = 0.6
FINE, FINE_FROM = 0.0005, 1.0
"""The margin from this budget on: with the ordinary one a comparison ends as `same` after a quarter of a second, and never shows what
the whole second could have seen."""


def collect(wanted: Mapping[Cell, int], seconds: float, folder: Path, rng: random.Random) -> Counter[Cell]:
    """Gather comparisons for so long, those first that lack most."""
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here")
    ops.settle()
    wanted = {cell: goal for cell, goal in wanted.items() if not missing(cell.kind)}
    machine, be, process = facts.key(facts.collect()), Torch("cuda"), uuid.uuid4().hex[:8]
    have = Counter(outcome.cell for outcome in results.read(folder, {cell.kind for cell in wanted}, machine=machine))
    gathered: Counter[Cell] = Counter()
    purse = arms.Purse()
    warm_up()
    end = time.time() + seconds
    while time.time() < end:
        weights = lacking(wanted, have)
        cell = rng.choices(list(weights), list(weights.values()))[0]
        outcome = weigh(cell, be, purse, rng) if cell.kind == GRAPH else by_triton(cell, rng)
        results.append(folder, machine, dataclasses.replace(outcome, process=process, at=round(time.time())))
        have[cell] += 1
        gathered[cell] += 1
        if gathered.total() % 50 == 0:
            print(f"{gathered.total():5} comparisons, {max(0.0, end - time.time()):.0f} s left", file=sys.stderr)
    return gathered


def warm_up() -> None:
    """The clock climbs for a while after idle time, and libraries load at the first call of each op."""
    end = time.perf_counter() + WARM_SECONDS
    tasks = [ops.arm(name, 0, random.Random())() for name, op in ops.OPS.items() if op.device == "cuda"]
    while time.perf_counter() < end:
        for task in tasks:
            task()
        torch.cuda.synchronize()


def weigh(cell: Cell, be: Torch, purse: arms.Purse, rng: random.Random) -> Outcome:
    """One comparison by our schedule with the device's clock; its time is wall time, everything included."""
    extra = ops.extra_of(cell.op, cell.percent)
    builds = [ops.arm_with(cell.op, size, rng) for size in (0, extra, 0)]
    wall, busy = time.perf_counter(), time.process_time()
    timer = be.pair_timer([build() for build in builds])
    margin = FINE if cell.budget >= FINE_FROM else MARGIN
    outcome, rounds = arms.weighed(cell, builds, timer, purse.ask(cell, SHARE * cell.budget), rng, margin)
    took, spent = time.perf_counter() - wall, time.process_time() - busy
    purse.learn(cell, took, outcome.stop)
    return dataclasses.replace(outcome, extra=extra, cpu=spent, wall=took, called=arms.called_after(rounds))


def by_triton(cell: Cell, rng: random.Random) -> Outcome:
    """Each arm by triton's own tool, the base first; it has no rule, only a figure."""
    from triton import testing  # type: ignore[import-not-found,import-untyped,unused-ignore]

    extra = ops.extra_of(cell.op, cell.percent)
    tool = testing.do_bench if cell.kind == DO_BENCH else testing.do_bench_cudagraph
    measure: Callable[[Any], Any] = functools.partial(tool, return_mode="median")
    wall, busy = time.perf_counter(), time.process_time()
    base, head = (float(measure(ops.arm_with(cell.op, size, rng)().fn)) for size in (0, extra))
    took, spent = time.perf_counter() - wall, time.process_time() - busy
    return Outcome(
        cell.kind, cell.op, cell.env, cell.budget, cell.percent, extra=extra, estimate=math.log(head / base), cpu=spent, wall=took
    )
