"""What is to be collected: cells of (kind, op, environment, budget, slowdown), each with how many comparisons it should have."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ONE, MATCHED, FREE, SEQUENTIAL = "one", "two-matched", "two-free", "sequential"
PYPERF, TIMER, PYTEST, ASV = "pyperf", "torch-timer", "pytest-benchmark", "asv"
GRAPH, DO_BENCH, DO_BENCH_GRAPH = "graph", "do_bench", "do_bench_cudagraph"
QUIET, HOGS, GPU = "quiet", "hogs", "gpu"
OURS = (ONE, MATCHED, FREE, GRAPH)
SHORT, LONG = ("adds", "matmul"), ("softmax", "layer")
OPERATORS = (
    "sort", "cumsum", "index_select", "embedding_bag", "einsum", "unique", "nonzero", "masked", "words", "numbers", "convolution",
    "transformer",
)  # fmt: skip
"""Those of `operators`, by name: what is planned needs no framework."""
DEVICE = ("mm256", "mm1024", "mm4096", "add20m")
FAMILIES: dict[str, tuple[str, ...]] = {
    "in process": (ONE, SEQUENTIAL, TIMER), MATCHED: (MATCHED,), FREE: (FREE,), PYPERF: (PYPERF,), PYTEST: (PYTEST,), ASV: (ASV,),
}  # fmt: skip
"""Kinds that can share an interpreter; the others start processes of their own."""
PYPERF_PROCESSES = 6
MODULES = {PYPERF: "pyperf", TIMER: "torch", PYTEST: "pytest_benchmark", ASV: "asv", DO_BENCH: "triton", DO_BENCH_GRAPH: "triton"}
LABELS = {
    ONE: "steelyard, one process",
    MATCHED: "steelyard, two processes, matched",
    FREE: "steelyard, two processes, free",
    GRAPH: "steelyard, graph replay",
    PYPERF: f"pyperf as shipped, {PYPERF_PROCESSES} processes",
    TIMER: "torch Timer as shipped (has no rule)",
    PYTEST: "pytest-benchmark as shipped, median:5%",
    ASV: "asv as shipped",
    DO_BENCH: "triton do_bench as shipped (has no rule)",
    DO_BENCH_GRAPH: "triton do_bench_cudagraph as shipped (has no rule)",
}
"""What each kind is called in tables and in the plot."""
SMALLEST = (0.05, 0.1, 0.2)
"""Slowdowns of the large add on the device, in percent, that one second is asked to see."""
BATCH = (25, 60)
SLOW_BATCH = (1, 2)
KEEP_ON = 0.02


@dataclass(frozen=True)
class Cell:
    """One kind of comparison, and what it is of; a budget of 0 is the tool's own."""

    kind: str
    op: str
    env: str
    budget: float
    percent: float


def cpu_plan(env: str) -> dict[Cell, int]:
    """How many comparisons each cell of an environment should have: 1000 of equal arms in one process, 60 of each slowdown."""
    wanted: dict[Cell, int] = {}

    def add(kind: str, ops: Sequence[str], budget: float, counts: Mapping[float, int]) -> None:
        wanted.update({Cell(kind, op, env, budget, percent): count for op in ops for percent, count in counts.items()})

    for budget in (0.15, 0.65):
        add(ONE, SHORT, budget, {0: 200, 1: 60, 2: 60, 5: 60})
    add(ONE, ("matmul",), 2.0, {0: 40, 0.5: 60})
    add(ONE, OPERATORS, 2.0, {0.5: 10})
    add(ONE, LONG, 3.0, {0: 100, 2: 60, 5: 60})
    add(ONE, OPERATORS, 0.65, {0: 60, 1: 40, 2: 20})
    add(MATCHED, SHORT, 0.75, {0: 150, 1: 60, 2: 60, 5: 60})
    add(FREE, SHORT, 2.0, {0: 150, 2: 60, 5: 60})
    add(SEQUENTIAL, SHORT, 0.65, {0: 100, 1: 60, 2: 60, 5: 60})
    add(SEQUENTIAL, LONG, 3.0, {0: 40, 2: 20, 5: 20})
    add(TIMER, (*SHORT, *LONG), 0.0, {0: 40, 5: 20})
    for kind in (PYPERF, PYTEST, ASV):
        add(kind, SHORT, 0.0, {0: 15, 2: 8, 5: 8})
    return wanted


def gpu_plan() -> dict[Cell, int]:
    """The same for the device: equal matmuls, and the large add with its slowdowns in the time each may take."""
    wanted: dict[Cell, int] = {}
    for op in DEVICE[:3]:
        wanted |= {Cell(GRAPH, op, GPU, 0.15, 0): 60} | {Cell(kind, op, GPU, 0.0, 0): 30 for kind in (DO_BENCH, DO_BENCH_GRAPH)}
    wanted |= {Cell(GRAPH, "add20m", GPU, 1.0, percent): 20 for percent in (0.0, *SMALLEST)}
    for budget, percent in ((0.15, 0.5), (0.1, 1.0)):
        wanted |= {Cell(GRAPH, "add20m", GPU, budget, 0): 60, Cell(GRAPH, "add20m", GPU, budget, percent): 60}
        wanted |= {Cell(kind, "add20m", GPU, 0.0, share): 20 for kind in (DO_BENCH, DO_BENCH_GRAPH) for share in (0.0, percent)}
    return wanted


def missing(kind: str) -> str:
    """Why a peer cannot be run here; nothing if it can."""
    module = MODULES.get(kind)
    return f"{kind}: not installed" if module and importlib.util.find_spec(module) is None else ""


def family_of(kind: str) -> str:
    """Which kinds a kind can share an interpreter with."""
    return next(name for name, kinds in FAMILIES.items() if kind in kinds)


def lacking(wanted: Mapping[Cell, int], have: Counter[Cell]) -> dict[Cell, float]:
    """How much each cell lacks, the weight with which it is drawn; when none does, all go on alike."""
    lack = {cell: float(max(0, count - have[cell])) for cell, count in wanted.items()}
    return lack if any(lack.values()) else {cell: KEEP_ON * count for cell, count in wanted.items()}


def draw(wanted: Mapping[Cell, int], have: Counter[Cell], count: int, rng: random.Random) -> list[Cell]:
    """That many comparisons at random, those that lack most first in line."""
    have, drawn = Counter(have), []
    for _ in range(count):
        weights = lacking(wanted, have)
        cell = rng.choices(list(weights), list(weights.values()))[0]
        have[cell] += 1
        drawn.append(cell)
    return drawn


def draw_batch(wanted: Mapping[Cell, int], have: Counter[Cell], rng: random.Random) -> list[Cell]:
    """The comparisons of one interpreter: the family by what lacks, then cells of that family."""
    family = family_of(draw(wanted, have, 1, rng)[0].kind)
    few, many = BATCH if family in ("in process", MATCHED, FREE) else SLOW_BATCH
    return draw({cell: goal for cell, goal in wanted.items() if cell.kind in FAMILIES[family]}, have, rng.randint(few, many), rng)


def chosen(wanted: Mapping[Cell, int], kinds: Iterable[str], ops: Iterable[str]) -> dict[Cell, int]:
    """The part of a plan that was asked for; nothing named means all."""
    only, these = set(kinds), set(ops)
    return {cell: goal for cell, goal in wanted.items() if (not only or cell.kind in only) and (not these or cell.op in these)}
