"""What reports cost: aggregating many stored rows beside loading them with plain json, a page of many records, a site of many runs.

The rows are of the original tool's own form, ten repeats each, over many nights, models and backends, and some of them have failed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pages
from sheet import Goal, Sheet, Table, alone, count, options, quantity
from startup import commands, in_drawn_order

GOAL = 2.0
MODELS, REPEATS, FAILING = 60, 10, 0.05
STACKS = ((None, None), (None, "inductor"), ("PJRT", None), ("PJRT", "openxla"))
LOAD = "import json, sys\nrows = [json.loads(line) for line in open(sys.argv[1])]"
NIGHT, FIRST = 86_400.0, 1_700_000_000.0


def rows(number: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """That many rows, night after night."""
    rng = random.Random(seed)
    for index in range(number):
        xla, dynamo = STACKS[index % len(STACKS)]
        model, night = index // len(STACKS) % MODELS, index // (len(STACKS) * MODELS)
        centre = 1e-3 * (1 + model) * rng.lognormvariate(0, 0.05)
        times = [10 * centre, *(centre * rng.lognormvariate(0, 0.01) for _ in range(REPEATS - 1))]
        metrics: dict[str, Any] = {"total_time": times, "per_iter_time": times}
        if xla:
            counters = ("xla_CompileTime_time_s", "xla_CompileTime_number", "xla_ExecuteTime_time_s", "xla_ExecuteTime_number")
            metrics |= {"trace_total_time": times, "trace_per_iter_time": times, **{name: [0.0] * REPEATS for name in counters}}
        yield {
            "model": {"suite_name": "torchbench", "model_name": f"model_{model}"},
            "experiment": {
                "accelerator": "cuda", "accelerator_model": "NVIDIA A100-SXM4-40GB", "xla": xla, "xla_flags": None, "dynamo": dynamo,
                "torch_xla2": None, "keep_model_data_on_cuda": False, "test": "eval", "batch_size": 16,
                "enable_functionalization": False,
            },
            "repeat": REPEATS, "iterations_per_run": 1, "metrics": metrics if rng.random() > FAILING else {"error": "SKIP"},
            "timestamp": FIRST + NIGHT * night, "verification_code": "VERIFIER_SKIPPED",
        }  # fmt: skip


def aggregate(number: int, repeats: int) -> pages.Part:
    """Write the rows, then every command in each round, in drawn order."""
    ours = [*commands()["steelyard list"][:-1], "as", "ptxla", "aggregate", "--accelerator=a100", "--backends"]
    stacks = ["inductor", "eager", "openxla+dynamo", "openxla+lazytensor"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        with file.open("w") as stream:
            stream.writelines(f"{json.dumps(row)}\n" for row in rows(number))
        size = file.stat().st_size
        kinds = ("speedup", "histogram", "latest", "latest_grouped")
        tried = {f"aggregate --report={kind}": [*ours, *stacks, f"--report={kind}", str(file)] for kind in kinds}
        tried["aggregate --metric=median --paired"] = [*ours, *stacks, "--metric=median", "--paired", str(file)]
        found = in_drawn_order({"plain json": [sys.executable, "-c", LOAD, str(file)], **tried}, folder, repeats)
    plain = found["plain json"].median
    table = tuple(
        (name, quantity(figure.low, "s"), quantity(figure.median, "s"), quantity(figure.median / plain, "×"))
        for name, figure in found.items()
    )
    title = f"CPU time (user + system) of {repeats} starts, {number} rows, {quantity(size, 'B')}, after one to fill the caches"
    goals = tuple(Goal(f"{name} against plain json", found[name].median / plain, GOAL, "×") for name in tried)
    figures = {"rows": number, "bytes": size, **{name: asdict(figure) for name, figure in found.items()}}
    return Table(title, ("command", "best", "median", "against plain json"), table), goals, figures


def main() -> None:
    """The parts one after the other, with nothing else measured meanwhile."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=count, default=100_000, help="rows in the file (default 100000)")
    parser.add_argument("--records", type=count, default=10_000, help="records in the page (default 10000)")
    parser.add_argument("--runs", type=count, default=1_000, help="runs in the site (default 1000)")
    parser.add_argument("--repeats", type=count, default=5, help="starts of each command, openings of the page (default 5)")
    parser.add_argument("--part", choices=("aggregate", "page", "site"), action="append", help="only this part (may be repeated)")
    chosen = parser.parse_args()
    load = os.getloadavg()
    parts: dict[str, Callable[[], pages.Part]] = {
        "aggregate": lambda: aggregate(chosen.rows, chosen.repeats),
        "page": lambda: pages.page(chosen.records, chosen.repeats),
        "site": lambda: pages.site(chosen.runs),
    }
    with alone("benchmark reports"):
        found = {name: weigh() for name, weigh in parts.items() if name in (chosen.part or parts)}
    tables, goals = tuple(part[0] for part in found.values()), tuple(goal for part in found.values() for goal in part[1])
    Sheet("reports", tables, goals, {name: part[2] for name, part in found.items()}, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
