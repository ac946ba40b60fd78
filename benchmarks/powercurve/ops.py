"""The ops that are slowed down, one factory per arm: every call builds its buffers afresh, and no two arms ever share one.

A slowdown is extra work whose amount is known, never a scaled number:

    adds      100 x torch.add of 64 floats                          extra = further adds, 1 is 1 %
    matmul    torch.mm of 112 x 112, about 20 us                    extra = turns of an empty loop
    softmax   torch.softmax of 64 x 4096, placement-sensitive       extra = turns of an empty loop
    layer     Linear-ReLU-Linear of 512, batch 88, about 1 ms       extra = turns of an empty loop
    mm256, mm1024, mm4096   GPU matmuls, about 6, 10 and 200 us     no extra: for equal arms
    add20m    GPU torch.add of 20 million floats                    extra = further elements
    and those of `operators`, slowed by turns of an empty loop

Turns and not rows for softmax and layer: another row is 1.6 % of 64 and takes a buffer of another size, whose placement
differs, and a matrix product is not linear in its rows. How many turns make a percent is measured in place, once per process.
"""

from __future__ import annotations

import copy
import functools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from benchmarks.powercurve import operators

from steelyard.measuring.clock import HostTimer
from steelyard.measuring.sample import calibrate
from steelyard.model.task import Task

ADDS = 100
ELEMENTS = 20_000_000
MOST_ELEMENTS = 21_000_000
MATRICES = {"mm256": (256, torch.float16), "mm1024": (1024, torch.bfloat16), "mm4096": (4096, torch.bfloat16)}
CALIBRATION_BUILDS, CALIBRATION_PROBES = 8, 16
LARGEST_SCRAP, LARGEST_DEVICE_SCRAP = 20_000, 1 << 22
FORGET = 0.1

Parts = tuple[Any, ...]


@dataclass(frozen=True)
class Op:
    """One op: its data, drawn once per process; a fresh copy of it; and the task over such a copy with so much extra work.

    `probe` is how many loop turns are timed to learn what one costs; ops without it know their percent.
    """

    draw: Callable[[], Parts]
    task: Callable[[Parts, int], Task]
    percent: float = 0.0
    probe: int = 0
    device: str = "cpu"


def settle() -> None:
    """What every interpreter sets before it builds an arm."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)


def arm(op: str, percent: float, rng: random.Random) -> Callable[[], Task]:
    """How one arm is had afresh, slowed down by so many percent."""
    return arm_with(op, extra_of(op, percent), rng)


def arm_with(op: str, extra: int, rng: random.Random) -> Callable[[], Task]:
    """The same for a known amount of extra work."""
    made = OPS[op]
    if extra and not (made.percent or made.probe):
        raise ValueError(f"{op} has no slowdown")

    def build() -> Task:
        scraps = _scraps(made.device, rng)
        task = made.task(_fresh(op), extra)
        del scraps
        return task

    return build


def extra_of(op: str, percent: float) -> int:
    """How much extra work makes so many percent here."""
    if not percent:
        return 0
    return max(1, round(percent * (OPS[op].percent or _turns_per_percent(op))))


@functools.cache
def _data(op: str) -> Parts:
    return OPS[op].draw()


def _fresh(op: str) -> Parts:
    """Copies in memory of their own: drawing anew would cost more than the measuring."""
    return tuple(item.clone() if isinstance(item, torch.Tensor) else copy.deepcopy(item) for item in _data(op))


def _scraps(device: str, rng: random.Random) -> list[Any]:
    """Memory that is in the way while an arm is built, and then gives its place to whatever comes next."""
    if device == "cpu":
        return [torch.empty(rng.randrange(16, LARGEST_SCRAP)) for _ in range(rng.randrange(8))]
    if rng.random() < FORGET:
        torch.cuda.empty_cache()
    return [torch.empty(rng.randrange(1, LARGEST_DEVICE_SCRAP), device=device, dtype=torch.uint8) for _ in range(rng.randrange(1, 4))]


@functools.cache
def _turns_per_percent(op: str) -> float:
    """Loop turns that take a hundredth of the op: medians of neighbouring blocks with and without turns, on the same buffers."""
    made, took, more = OPS[op], [], []
    for _ in range(CALIBRATION_BUILDS):
        parts = _fresh(op)
        plain, slowed = (HostTimer().bind(made.task(parts, turns)) for turns in (0, made.probe))
        calls = calibrate(plain, HostTimer())
        for _ in range(CALIBRATION_PROBES):
            blocks = plain(calls), slowed(calls), slowed(calls), plain(calls)
            took.append((blocks[0] + blocks[3]) / calls)
            more.append((blocks[1] + blocks[2]) / calls - took[-1])
    return statistics.median(took) / 100 / max(statistics.median(more) / made.probe, 1e-3)


def _adds(parts: Parts, extra: int) -> Task:
    x, y, z = parts
    add, count = torch.add, ADDS + extra

    def call() -> None:
        for _ in repeat(None, count):
            add(x, y, out=z)

    return Task(call)


def _matmul(parts: Parts, turns: int) -> Task:
    a, b, c = parts
    mm = torch.mm

    def call() -> None:
        mm(a, b, out=c)
        for _ in repeat(None, turns):
            pass

    return Task(call)


def _softmax(parts: Parts, turns: int) -> Task:
    (x,) = parts
    softmax = torch.softmax

    def call() -> None:
        softmax(x, -1)
        for _ in repeat(None, turns):
            pass

    return Task(call)


def _layer(parts: Parts, turns: int) -> Task:
    x, layer = parts

    def call() -> None:
        layer(x)
        for _ in repeat(None, turns):
            pass

    return Task(call)


def _device_matmul(parts: Parts, extra: int) -> Task:
    a, b, c = parts
    return Task(lambda: torch.mm(a, b, out=c))


def _device_add(parts: Parts, extra: int) -> Task:
    """Only what the arm works on is kept, in buffers of exactly its size."""
    x, y = (item[: ELEMENTS + extra].clone() for item in parts)
    z = torch.empty_like(x)
    return Task(lambda: torch.add(x, y, out=z))


def _draw_layer() -> Parts:
    linear = torch.nn.Linear
    return torch.randn(88, 512), torch.nn.Sequential(linear(512, 512), torch.nn.ReLU(), linear(512, 512))


def _draw_values(one: operators.Operator) -> Parts:
    return one.draw(random.randrange(2**31))


def _draw_matrices(name: str) -> Parts:
    side, dtype = MATRICES[name]
    return tuple(torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(3))


OPS: dict[str, Op] = {
    "adds": Op(lambda: (torch.randn(64), torch.randn(64), torch.empty(64)), _adds, percent=ADDS / 100),
    "matmul": Op(lambda: (torch.randn(112, 112), torch.randn(112, 112), torch.empty(112, 112)), _matmul, probe=500),
    "softmax": Op(lambda: (torch.randn(64, 4096),), _softmax, probe=4000),
    "layer": Op(_draw_layer, _layer, probe=20_000),
    **{name: Op(functools.partial(_draw_matrices, name), _device_matmul, device="cuda") for name in MATRICES},
    "add20m": Op(
        lambda: (torch.randn(MOST_ELEMENTS, device="cuda"), torch.randn(MOST_ELEMENTS, device="cuda")),
        _device_add,
        percent=ELEMENTS / 100,
        device="cuda",
    ),
    **{name: Op(functools.partial(_draw_values, one), one.task, probe=one.probe) for name, one in operators.OPERATORS.items()},
}
CPU_OPS = tuple(name for name, op in OPS.items() if op.device == "cpu")
