"""CPU time that a command costs before it does anything: ours beside the interpreter, a framework and a peer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from sheet import Goal, Sheet, Spread, Table, alone, count, options, quantity

HELP_GOAL, LIST_GOAL = 0.150, 0.300


def commands() -> dict[str, list[str]]:
    """What is started; our own command as it is installed beside the interpreter."""
    script = Path(sys.executable).with_name("steelyard")
    ours = [str(script)] if script.exists() else [sys.executable, "-m", "steelyard"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "steelyard --help": [*ours, "--help"],
        "steelyard list": [*ours, "list"],
        "pyperf --help": [sys.executable, "-m", "pyperf", "--help"],
        "import torch": [sys.executable, "-c", "import torch"],
    }


def cpu_seconds(command: list[str], folder: str) -> float:
    """User and system time of a process and everything it waited for."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    with process.stderr as stream:
        said = stream.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} exited with code {process.returncode}\n{said.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def in_drawn_order(tried: dict[str, list[str]], folder: str, repeats: int) -> dict[str, Spread]:
    """CPU time of every command in each of several rounds, in an order that is drawn, after one start of each to fill the caches."""
    order, rng = list(tried.items()), random.Random(0)
    took = {name: list[float]() for name in tried}
    for command in tried.values():
        cpu_seconds(command, folder)
    for _ in range(repeats):
        rng.shuffle(order)
        for name, command in order:
            took[name].append(cpu_seconds(command, folder))
    return {name: Spread.of(values) for name, values in took.items()}


def main() -> None:
    """Start every command in each round, in drawn order, and print best and median."""
    parser = options(__doc__)
    parser.add_argument("--repeats", type=count, default=7, help="starts of each command (default 7)")
    chosen = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder, alone("benchmark startup"):
        found = in_drawn_order(commands(), folder, chosen.repeats)
    rows = tuple((name, quantity(figure.low, "s"), quantity(figure.median, "s")) for name, figure in found.items())
    table = Table(f"CPU time (user + system) of {chosen.repeats} starts, after one to fill the caches", ("command", "best", "median"), rows)
    goals = tuple(
        Goal(f"CPU time of {name}", found[name].median, limit, "s")
        for name, limit in (("steelyard --help", HELP_GOAL), ("steelyard list", LIST_GOAL))
    )
    Sheet("startup", (table,), goals, {name: asdict(figure) for name, figure in found.items()}, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
