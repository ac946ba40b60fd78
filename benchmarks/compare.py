"""CPU time of `steelyard compare` over two runs of many cases: all of it, from the start of the interpreter, beside pyperf's."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from sheet import Goal, Sheet, Table, alone, count, options, quantity
from startup import commands, in_drawn_order
from steelyard.machine import facts
from steelyard.model.case import Case
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, Store

GOAL = 0.400
PROCESSES, VALUES = 20, 3


def fill(store: Store, cases: int, seed: int) -> str:
    """A run of that many cases with plausible figures; gives its id."""
    rng, machine = random.Random(seed), facts.collect()
    with store.create(Header(machine=machine, machine_key=facts.key(machine))) as writer:
        for number in range(cases):
            case = Case("op/softmax", (("m", 64 + number % 20), ("n", 64 * (1 + number // 20)), ("dtype", "fp32")))
            time = 1e-5 * (1 + number) * rng.lognormvariate(0, 0.02)
            figures = {
                "time": Figure(time, "s", "lower", time * 0.99, time * 1.01, 300),
                "time_q10": Figure(time * 0.97, "s", "lower", n=300),
                "bandwidth": Figure(1e6 / time, "B/s", "higher", 0.99e6 / time, 1.01e6 / time, 300),
                "overhead": Figure(2e-8, "s"),
            }
            source = {"workload": "0123456789ab", "variant": "ba9876543210"}
            writer.append(Record(case.id, case.plain(), "ok", metrics=figures, source=source, environment={"torch": "2.13.0"}))
        writer.seal()
    return writer.id


def suite(file: Path, cases: int, seed: int) -> None:
    """The same for pyperf, with as many processes and values as it takes by default."""
    import pyperf

    rng, found = random.Random(seed), []
    for number in range(cases):
        centre = 1e-5 * (1 + number)
        runs = [
            pyperf.Run(
                [centre * rng.lognormvariate(0, 0.02) for _ in range(VALUES)],
                metadata={"name": f"case-{number}", "unit": "second"},
                collect_metadata=False,
            )
            for _ in range(PROCESSES)
        ]
        found.append(pyperf.Benchmark(runs))
    pyperf.BenchmarkSuite(found).dump(str(file), replace=True)


def main() -> None:
    """Start every command in each round, in drawn order, and print best and median."""
    parser = options(__doc__)
    parser.add_argument("--repeats", type=count, default=7, help="starts of each command (default 7)")
    parser.add_argument("--cases", type=count, default=200, help="cases in each run (default 200)")
    chosen = parser.parse_args()
    load = os.getloadavg()
    ours = commands()["steelyard list"][:-1]
    with tempfile.TemporaryDirectory() as folder, alone("benchmark compare"):
        store = Store(Path(folder) / "store")
        ids = [fill(store, chosen.cases, seed) for seed in (1, 2)]
        files = [str(Path(folder) / f"{seed}.json") for seed in (1, 2)]
        for seed, file in enumerate(files, 1):
            suite(Path(file), chosen.cases, seed)
        place = ["--store", str(store.root)]
        tried = {
            "steelyard compare": [*ours, "compare", *ids, *place],
            "steelyard compare --json": [*ours, "compare", *ids, *place, "--json"],
            "steelyard compare, pyperf files": [*ours, "compare", *files, *place],
            "pyperf compare_to": [sys.executable, "-m", "pyperf", "compare_to", *files],
        }
        found = in_drawn_order(tried, folder, chosen.repeats)
    rows = tuple((name, quantity(figure.low, "s"), quantity(figure.median, "s")) for name, figure in found.items())
    title = f"CPU time (user + system) of {chosen.repeats} comparisons of 2 x {chosen.cases} cases, after one to fill the caches"
    goal = Goal(f"CPU time of comparing 2 x {chosen.cases} cases", found["steelyard compare"].median, GOAL, "s")
    figures = {name: asdict(figure) for name, figure in found.items()}
    Sheet("compare", (Table(title, ("command", "best", "median"), rows),), (goal,), figures, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
