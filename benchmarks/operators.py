"""What `steelyard as param` itself costs: CPU per config, CPU per iteration, and hundreds of tiny configs end to end.

Of the whole command, all processes count: reading the config, making the data, the worker, writing the file. A start with one
config or iteration is taken off one with many, so that what a start costs once is not in it, and then the operator's own time: of
configs what was recorded, of iterations a plain call, which also lets its output go. The loop around the calls alone, which is
what PARAM's own figure is of, is held against such plain calls in one process.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sheet import Goal, Sheet, Spread, Table, alone, count, options, quantity, spread
from startup import cpu_seconds
from steelyard import param
from steelyard.machine import locks

CONFIG_GOAL, ITERATION_GOAL = 1e-3, 2e-6
PARAM_CONFIG, PARAM_PASS, PARAM_EXPANDED, PARAM_MEASURED = "66 … 86 ms", "22 µs", "2.3 s", "22.2 … 28.1 s"
"""CPU of PARAM's run_benchmark for the same work, taken once on a machine of two shared CPUs: to look at, not to compare exactly."""
SIDE, DISTURBED = 16, 10
MANY = 10


@dataclass(frozen=True)
class Start:
    """One way to start the command: how many configs, and how many warm-up and measured calls of each."""

    configs: int
    warmup: int
    iterations: int


@dataclass(frozen=True)
class Cost:
    """What one start took: CPU of all its processes, the clock on the wall, and the time recorded for the operator."""

    cpu: float
    wall: float
    timed: float


@dataclass(frozen=True)
class Round:
    """Every start of one round, and CPU seconds that the loop costs beyond a bare one: per iteration, and per pass with backward."""

    costs: Mapping[str, Cost]
    loop: float
    both: float
    bare: float


def adds(configs: int) -> dict[str, Any]:
    """That many sums of two tiny matrices, alike in all but a factor."""
    factor = param.value("int", [1, configs], __range__=["value"])
    spec = param.spec(param.tensor(SIDE, SIDE), param.tensor(SIDE, SIDE), alpha=factor)
    return param.config("torch.add", spec, input_iterator="RangeConfigIterator")


def cost(start: Start, folder: Path) -> Cost:
    """Start the command once; a config that did not succeed ends the benchmark. Its locks are its own, as ours are held."""
    config, output = folder / f"{start.configs}.json", folder / "result.json"
    config.write_text(json.dumps(adds(start.configs)))
    command = ["env", f"{locks.VARIABLE}={folder / 'locks'}", sys.executable, "-m", "steelyard", "as", "param", "-l", "WARNING"]
    counts = ["-w", str(start.warmup), "-i", str(start.iterations)]
    began = time.perf_counter()
    cpu = cpu_seconds([*command, "-c", str(config), "-o", str(output), *counts], str(folder))
    wall = time.perf_counter() - began
    records = param.read_records(output)
    output.unlink()
    expected = "skipped" if start.warmup == start.iterations == 0 else "ok"
    if len(records) != start.configs or {record["steelyard"]["status"] for record in records} != {expected}:
        raise SystemExit(f"{len(records)} of {start.configs} configs, not all {expected}")
    return Cost(cpu, wall, sum(timed(record["metric"]) for record in records))


def timed(metric: Mapping[str, Mapping[str, Sequence[float]]]) -> float:
    """Seconds of all calls of a record, warm-up and measured."""
    return sum(undisturbed(values[f"{phase}.time"]) for values in metric.values() for phase in ("warmup", "measure")) / 1e3


def undisturbed(values: Sequence[float]) -> float:
    """The sum of times, where a call that was put aside for another process counts as a usual one: that was no CPU of ours."""
    usual = statistics.median(values) if values else 0.0
    return sum(value if value < DISTURBED * usual else usual for value in values)


def loops(calls: int) -> tuple[float, float, float]:
    """CPU of one iteration beyond a plain call, of one of its two passes with backward, and of the plain call."""
    import torch

    a, b, ones = torch.rand(SIDE, SIDE, requires_grad=True), torch.rand(SIDE, SIDE, requires_grad=True), torch.ones(SIDE, SIDE)

    def forward() -> None:
        for _ in range(calls):
            torch.add(a, b, alpha=1)

    def both() -> None:
        for _ in range(calls):
            torch.add(a, b, alpha=1).backward(ones)
            a.grad = b.grad = None

    def measured(iterations: int, backward: bool) -> Callable[[], Any]:
        return lambda: param.measure_call(torch.add, (a, b), {"alpha": 1}, warmup=0, iterations=iterations, backward=backward)

    for settle in (measured(calls, True), both):
        settle()
    plain, plain_both = (cpu_of(work) / calls for work in (forward, both))
    alone, together = ((cpu_of(measured(calls + 1, kind)) - cpu_of(measured(1, kind))) / calls for kind in (False, True))
    return alone - plain, (together - plain_both) / 2, plain


def cpu_of(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def take_rounds(starts: Mapping[str, Start], folder: Path, rounds: int, calls: int) -> list[Round]:
    """Every way to start in every round, in drawn order, after one to fill the caches."""
    order, rng, found = list(starts), random.Random(0), []
    cost(starts["one"], folder)
    for _ in range(rounds):
        rng.shuffle(order)
        found.append(Round({name: cost(starts[name], folder) for name in order}, *loops(calls)))
    return found


def per_config(found: Round, configs: int) -> float:
    """CPU that one config more costs, less the operator's own time."""
    one, many = found.costs["one"], found.costs["many configs"]
    return (many.cpu - one.cpu - (many.timed - one.timed)) / configs


def per_iteration(found: Round, iterations: int) -> float:
    """CPU that one iteration more costs than a plain call."""
    return (found.costs["many iterations"].cpu - found.costs["one"].cpu) / iterations - found.bare


def sheet(found: Sequence[Round], configs: int, iterations: int, load: tuple[float, float, float]) -> Sheet:
    """What the harness costs, and what it all takes, beside PARAM's figures."""
    config = Spread.of([per_config(one, MANY * configs) for one in found])
    iteration = Spread.of([per_iteration(one, iterations) for one in found])
    loop, both = Spread.of([one.loop for one in found]), Spread.of([one.both for one in found])
    harness = (
        ("per config after the first, whole command", config, PARAM_CONFIG, CONFIG_GOAL),
        ("per iteration, the loop", loop, PARAM_PASS, ITERATION_GOAL),
        ("per pass with -b, the loop", both, PARAM_PASS, ITERATION_GOAL),
        ("per iteration, whole command", iteration, "", ITERATION_GOAL),
    )
    whole = {"expanded": f"{configs} configs, -w 0 -i 0", "measured": f"{configs} configs, -w 1 -i 1"}
    spent = {name: {part: Spread.of([getattr(one.costs[name], part) for one in found]) for part in ("cpu", "wall")} for name in whole}
    bare = statistics.median(one.bare for one in found)
    title = f"CPU of the harness, {len(found)} rounds, median (best … worst); a plain call of the operator takes {quantity(bare, 's')}"
    rows = tuple((name, spread(figure, "s"), param) for name, figure, param, _ in harness)
    known = {"expanded": PARAM_EXPANDED, "measured": PARAM_MEASURED}
    ends = tuple((whole[name], *(spread(part, "s") for part in parts.values()), known[name]) for name, parts in spent.items())
    tables = (
        Table(title, ("harness", "steelyard", "PARAM"), rows),
        Table("The whole command, median (best … worst)", ("command", "CPU", "wall", "PARAM, CPU"), ends),
    )
    figures = {
        "config": asdict(config),
        "iteration": {"loop": asdict(loop), "loop_per_pass_with_backward": asdict(both), "whole": asdict(iteration)},
        **{name: {part: asdict(figure) for part, figure in parts.items()} for name, parts in spent.items()},
        "bare_call": bare,
    }
    goals = tuple(Goal(f"harness CPU {name}", figure.median, limit, "s") for name, figure, _, limit in harness)
    return Sheet("operators", tables, goals, figures, load)


def main() -> None:
    """All ways to start in each round, under one lock."""
    parser = options(__doc__)
    parser.add_argument("--configs", type=count, default=300, help=f"configs end to end; {MANY} times as many for the slope (default 300)")
    parser.add_argument("--iterations", type=count, default=300_000, help="iterations beyond the first (default 300000)")
    parser.add_argument("--rounds", type=count, default=5, help="rounds over all of them (default 5)")
    chosen = parser.parse_args()
    starts = {
        "one": Start(1, 1, 1),
        "many configs": Start(MANY * chosen.configs + 1, 1, 1),
        "many iterations": Start(1, 1, chosen.iterations + 1),
        "expanded": Start(chosen.configs, 0, 0),
        "measured": Start(chosen.configs, 1, 1),
    }
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder, alone("benchmark operators"):
        found = take_rounds(starts, Path(folder), chosen.rounds, max(1, chosen.iterations // MANY))
    sheet(found, chosen.configs, chosen.iterations, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
