"""Device times beside other clocks, in one process on one GPU: a hand-written event loop, the profiler's kernel times, and
the same kernel with and without telemetry. Needs an NVIDIA GPU.
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
from steelyard.backends.torch import Torch
from steelyard.machine.telemetry import watch
from steelyard.measuring.sample import sample
from steelyard.model.experiment import Settings
from steelyard.model.task import Task

SIDE = 8192
Call = Callable[[], Any]


def main() -> None:
    """Print the three comparisons."""
    parser = options(__doc__)
    parser.add_argument("--repeats", type=count, default=5, help="rounds (default 5)")
    chosen = parser.parse_args()
    load, be = os.getloadavg(), Torch("cuda")
    square = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    other = torch.randn_like(square)
    by_hand = [hand(lambda: square @ other) / ours(be, lambda: square @ other, 0.3) for _ in range(chosen.repeats)]
    rows, kernels = [], {}
    for name, call in calls(square).items():
        mine, theirs = ours(be, call, 0.1), profiled(call)
        kernels[name] = mine / theirs - 1
        rows.append((name, quantity(mine, "s"), quantity(theirs, "s"), f"{100 * kernels[name]:+.1f} %"))
    watched = telemetry_ratio(be, lambda: square[:2048, :2048] @ other[:2048, :2048], chosen.repeats * 4)
    matmul = Spread.of([ratio - 1 for ratio in by_hand])
    worst = max(map(abs, kernels.values()))
    rate = 2 * SIDE**3 / ours(be, lambda: square @ other, 0.3)
    tables = (Table("kernels: ours beside the profiler", ("kernel", "ours", "profiler", "difference"), tuple(rows)),)
    goals = (
        Goal(f"{SIDE} bf16 matmul, hand over ours ({quantity(rate, 'FLOP/s')})", abs(matmul.median), 0.03, "1", at_least=False),
        Goal("worst kernel against the profiler", worst, 0.03, "1", at_least=False),
        Goal("telemetry's cost", abs(watched), 0.002, "1", at_least=False),
    )
    Sheet("device", tables, goals, {"matmul": asdict(matmul), "kernels": kernels, "telemetry": watched}, load).hand_in(chosen.json)


def calls(square: Any) -> dict[str, Call]:
    """Five kernels of different kinds and lengths."""
    small = square[:1024, :1024].contiguous()
    return {
        "softmax": lambda: torch.softmax(square, -1),
        "gelu": lambda: torch.nn.functional.gelu(square),
        "sum": lambda: square.sum(-1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(square, (SIDE,)),
        "matmul 1024": lambda: small @ small,
    }


def ours(be: Torch, call: Call, budget: float) -> float:
    """Median device seconds by Steelyard."""
    return sample(Task(call), be.timer(), Settings(budget=budget)).interval.centre


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
