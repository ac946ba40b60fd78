"""Device times beside other clocks, in one process on one NVIDIA GPU.

A large product by a hand-written event loop; kernels by the profiler, brief ones also by graph replay; and the same kernel with
and without telemetry.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from sheet import Goal, Sheet, Spread, Table, count, options, quantity
from steelyard.backends._device import GraphTimer
from steelyard.backends.torch import Torch
from steelyard.machine.telemetry import watch
from steelyard.measuring.sample import sample
from steelyard.model.experiment import Settings
from steelyard.model.task import Task

SIDE, PRODUCT_SIDE, BRIEF_SIDE = 8192, 4096, 1024
Call = Callable[[], Any]
Beside = dict[str, dict[str, float]]


def main() -> None:
    """Print the comparisons."""
    parser = options(__doc__)
    parser.add_argument("--repeats", type=count, default=5, help="rounds (default 5)")
    chosen = parser.parse_args()
    load, be = os.getloadavg(), Torch("cuda")
    square = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    other = torch.randn_like(square)
    by_hand = [hand(lambda: square @ other) / ours(be, lambda: square @ other, 0.3) for _ in range(chosen.repeats)]
    kernels = beside_profiler(be, square, {"events": ours})
    brief = beside_profiler(be, square[:BRIEF_SIDE, :BRIEF_SIDE].contiguous(), {"events": ours, "graph replay": replayed})
    watched = telemetry_ratio(be, lambda: square[:2048, :2048] @ other[:2048, :2048], chosen.repeats * 4)
    matmul = Spread.of([ratio - 1 for ratio in by_hand])
    worst = max(abs(found["events"] / found["profiler"] - 1) for found in kernels.values())
    rate = 2 * SIDE**3 / ours(be, lambda: square @ other, 0.3)
    tables = (table(f"kernels on {SIDE} rows", kernels), table(f"brief kernels on {BRIEF_SIDE} rows", brief))
    goals = (
        Goal(f"{SIDE} bf16 matmul, hand over ours ({quantity(rate, 'FLOP/s')})", abs(matmul.median), 0.03, "1", at_least=False),
        Goal("worst kernel against the profiler", worst, 0.03, "1", at_least=False),
        Goal("telemetry's cost", abs(watched), 0.002, "1", at_least=False),
    )
    figures = {"matmul": asdict(matmul), "kernels": kernels, "brief": brief, "telemetry": watched}
    Sheet("device", tables, goals, figures, load).hand_in(chosen.json)


def calls(matrix: Any) -> dict[str, Call]:
    """Five kernels of different kinds."""
    side = min(len(matrix), PRODUCT_SIDE)
    part = matrix[:side, :side].contiguous()
    return {
        "softmax": lambda: torch.softmax(matrix, -1),
        "gelu": lambda: torch.nn.functional.gelu(matrix),
        "sum": lambda: matrix.sum(-1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(matrix, matrix.shape[-1:]),
        f"matmul {side}": lambda: part @ part,
    }


def beside_profiler(be: Torch, matrix: Any, ways: dict[str, Callable[[Torch, Call, float], float]]) -> Beside:
    """Seconds of each kernel by each of our ways of timing, and by the profiler."""
    return {
        name: {**{way: take(be, call, 0.1) for way, take in ways.items()}, "profiler": profiled(call)}
        for name, call in calls(matrix).items()
    }


def table(title: str, found: Beside) -> Table:
    """A row for each kernel and way."""
    rows = [
        (name, way, quantity(seconds, "s"), quantity(by["profiler"], "s"), f"{100 * (seconds / by['profiler'] - 1):+.1f} %")
        for name, by in found.items()
        for way, seconds in by.items()
        if way != "profiler"
    ]
    return Table(title, ("kernel", "timed by", "ours", "profiler", "difference"), tuple(rows))


def ours(be: Torch, call: Call, budget: float) -> float:
    """Median device seconds by Steelyard."""
    return sample(Task(call), be.timer(), Settings(budget=budget)).interval.centre


def replayed(be: Torch, call: Call, budget: float) -> float:
    """Median device seconds by Steelyard of a replayed graph: no launch between the kernels."""
    return sample(Task(call), GraphTimer(be.api, be.where, be.meter), Settings(budget=budget)).interval.centre


def hand(call: Call, turns: int = 40) -> float:
    """Median device seconds by a plain loop of event pairs."""
    taken = []
    for turn in range(2 * turns):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        if turn >= turns:
            taken.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(taken)


def profiled(call: Call, turns: int = 30) -> float:
    """Mean kernel seconds per call as the profiler reads them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(turns):
            call()
        torch.cuda.synchronize()
    return sum(event.device_time_total for event in profile.key_averages() if event.count >= turns) / turns * 1e-6


def telemetry_ratio(be: Torch, call: Call, rounds: int) -> float:
    """How much longer a kernel takes while the device is being read, as a share; rounds alternate."""
    logs = []
    for turn in range(rounds):
        order = (True, False) if turn % 2 else (False, True)
        found = {}
        for on in order:
            with watch(be.meter if on else None):
                found[on] = ours(be, call, 0.25)
        logs.append(math.log(found[True] / found[False]))
    return math.expm1(statistics.median(logs))


if __name__ == "__main__":
    main()
