"""What the harness itself costs: nanoseconds per call of an empty function, and milliseconds per warm case outside timed blocks."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from drive import laps, tiny_cases, without_nursery
from sheet import Goal, Sheet, Spread, Table, alone, count, options, quantity, spread
from steelyard.engine.plan import Plan
from steelyard.measuring.clock import HostTimer
from steelyard.measuring.sample import sample
from steelyard.model.experiment import Settings
from steelyard.model.task import Task

CALL_GOAL, CASE_GOAL = 3e-9, 0.025
CALLS, REPEATS = 20_000, 15
SPAN = 0.02
FLOOR, RAW, NET = "bare loop", "steelyard, as timed", "steelyard, net"

Tool = Callable[[], dict[str, float]]


def empty() -> None:
    """Nothing to time but the harness."""


def empty_of_one(_a: object) -> None:
    """The same with an argument, whose passing is not the harness's cost."""


def empty_of_three(_a: object, _b: object, _c: object) -> None:
    """The same with three."""


def empty_with_keyword(_a: object, flag: object = None) -> None:
    """The same with a keyword, as many operators have."""


SHAPES: dict[str, Task] = {
    "f()": Task(empty),
    "f(a)": Task(empty_of_one, (1,)),
    "f(a, b, c)": Task(empty_of_three, (1, 2, 3)),
    "f(a, flag=b)": Task(empty_with_keyword, (1,), {"flag": 2}),
}
CHEAPEST: dict[str, Task] = {"len(a)": Task(len, ((),))}


def bare_loop() -> float:
    """The least that timing a call in Python can cost: one loop, one call, a clock at either end."""
    return min(_bare(CALLS) for _ in range(REPEATS)) / CALLS * 1e-9


def _bare(calls: int) -> int:
    fn, turns, now = empty, repeat(None, calls), time.perf_counter_ns
    start = now()
    for _ in turns:
        fn()
    return now() - start


def by_timeit() -> dict[str, float]:
    """The standard library's, with the best of its repeats as its documentation advises."""
    return {"timeit": min(timeit.repeat("f()", globals={"f": empty}, number=CALLS, repeat=REPEATS)) / CALLS}


def by_torch() -> dict[str, float]:
    """PyTorch's, with its median."""
    from torch.utils.benchmark import Timer

    return {"torch Timer": float(Timer("f()", globals={"f": empty}).blocked_autorange(min_run_time=SPAN).median)}


def by_pyperf() -> dict[str, float]:
    """pyperf's, in a process of its own as it insists on, with its mean."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pyperf.json"
        program = [sys.executable, str(Path(__file__).with_name("pyperf_empty.py")), "--quiet", "-o", str(file)]
        subprocess.run([*program, "-p", "1", "-w", "1", "-n", "5", "-l", str(CALLS * 10)], check=True, stdout=subprocess.DEVNULL)
        found = json.loads(file.read_text())
    values = [value for run in found["benchmarks"][0]["runs"] for value in run.get("values", ())]
    return {"pyperf": statistics.fmean(values)}


def by_steelyard() -> dict[str, float]:
    """Ours, before and after the cost of the loop and the call is taken off."""
    taken = _weigh(SHAPES["f()"])
    return {RAW: taken[0], NET: taken[1]}


def _weigh(task: Task) -> tuple[float, float]:
    taken = sample(task, HostTimer(), Settings(budget=SPAN))
    net = taken.interval.centre
    return net + taken.overhead, net


TOOLS: tuple[Tool, ...] = (by_timeit, by_torch, by_pyperf, by_steelyard)


@dataclass(frozen=True)
class Told:
    """What a tool says an empty call takes, and what the bare loop took just before and after."""

    seconds: float
    floor: float


def call_rounds(rounds: int) -> Iterator[dict[str, Told]]:
    """Every tool in every round, in drawn order, with the bare loop on either side, so that drift meets them all alike."""
    rng = random.Random(0)
    for _ in range(rounds):
        found: dict[str, Told] = {}
        floors = [bare_loop()]
        for tool in rng.sample(TOOLS, len(TOOLS)):
            told = tool()
            floors.append(bare_loop())
            found |= {name: Told(seconds, 0.0 if name == NET else min(floors[-2:])) for name, seconds in told.items()}
        yield {FLOOR: Told(min(floors), min(floors)), **found}


def call_table(rounds: Sequence[dict[str, Told]]) -> tuple[Table, dict[str, Any]]:
    """Each tool's own figure for the empty function, and how far it lies above the bare loop beside it."""
    rows, figures = [], {}
    for name in (FLOOR, RAW, NET, "torch Timer", "timeit", "pyperf"):
        told = Spread.of([found[name].seconds for found in rounds])
        above = Spread.of([found[name].seconds - found[name].floor for found in rounds])
        figures[name] = {"per_call": asdict(told), "above": asdict(above)}
        rows.append((name, nanoseconds(told.low), nanoseconds(told.median), nanoseconds(above.low), nanoseconds(above.median)))
    title = f"An empty function, ns per call over {len(rounds)} interleaved rounds; net is what is left of it after subtraction"
    return Table(title, ("tool", "least", "median", "above, least", "above, median"), tuple(rows)), figures


def shape_table(rounds: int) -> tuple[Table, dict[str, Any]]:
    """What is left of an empty call after subtraction, for each way of passing arguments: zero if the subtraction is right."""
    tasks = SHAPES | CHEAPEST
    taken = [{shape: _weigh(task) for shape, task in tasks.items()} for _ in range(rounds)]
    rows, figures = [], {}
    for shape in tasks:
        raw, net = (Spread.of([found[shape][place] for found in taken]) for place in (0, 1))
        figures[shape] = {"raw": asdict(raw), "net": asdict(net)}
        rows.append((shape, *(nanoseconds(value) for value in (raw.median, net.low, net.median, net.high))))
    title = "What steelyard leaves of an empty call, ns; below zero too much was subtracted (len, in C, should stay just above)"
    return Table(title, ("call", "as timed", "net, least", "net, median", "net, most"), tuple(rows)), figures


def nanoseconds(seconds: float) -> str:
    """One unit for the whole column."""
    return f"{seconds * 1e9:.1f}"


def case_table(number: int) -> tuple[Table, dict[str, Any]]:
    """Wall time of warm cases that is not in timed blocks, in one worker that has measured the workload before."""
    few = max(1, number // 8)
    kinds: dict[str, Plan] = {
        "10 ms budget": warm(number, budget=0.010),
        "default: 1 s or 1 %": warm(number),
        "whole 1 s budget": warm(few, precision=1e-9),
        "10 ms, not forked": without_nursery(warm(number, budget=0.010)),
    }
    rows, figures = [], {}
    for kind, ready in kinds.items():
        found = laps(ready)[1:]
        parts = {
            "wall": Spread.of([lap.wall for lap in found]),
            "timed": Spread.of([lap.timed for lap in found]),
            "outside": Spread.of([lap.wall - lap.timed for lap in found]),
            "in_worker": Spread.of([lap.worker - lap.timed for lap in found]),
        }
        figures[kind] = {part: asdict(figure) for part, figure in parts.items()}
        cells = (quantity(parts["wall"].median, "s"), quantity(parts["timed"].median, "s"), quantity(parts["in_worker"].median, "s"))
        rows.append((kind, str(len(found)), *cells, spread(parts["outside"], "s")))
    head = ("warm case", "n", "wall", "timed", "outside, in worker", "outside in all")
    return Table("Time per warm case outside timed blocks, median (best … worst)", head, tuple(rows)), figures


def warm(number: int, **settings: Any) -> Plan:
    """That many cases for one worker, after one that warms it."""
    return tiny_cases(number + 1, isolate="none", **settings)


def main() -> None:
    """Both parts under one lock each: calls in this process, then cases through the conductor."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=count, default=9, help="rounds over all tools (default 9)")
    parser.add_argument("--cases", type=count, default=40, help="warm cases (default 40)")
    chosen = parser.parse_args()
    load = os.getloadavg()
    with alone("benchmark overhead"):
        by_torch()
        calls, call_figures = call_table(list(call_rounds(chosen.rounds)))
        shapes, shape_figures = shape_table(chosen.rounds)
    cases, case_figures = case_table(chosen.cases)
    left = {shape: abs(shape_figures[shape]["net"]["median"]) for shape in SHAPES}
    goals = (
        Goal("left of an empty function after subtraction", abs(call_figures[NET]["per_call"]["median"]), CALL_GOAL, "s"),
        Goal(f"the same for the worst shape of call, {max(left, key=lambda shape: left[shape])}", max(left.values()), CALL_GOAL, "s"),
        *(
            Goal(f"outside timed blocks per warm case, {kind}", found["outside"]["median"], CASE_GOAL, "s")
            for kind, found in case_figures.items()
        ),
    )
    figures = {"calls": call_figures, "shapes": shape_figures, "cases": case_figures}
    Sheet("overhead", (calls, shapes, cases), goals, figures, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
