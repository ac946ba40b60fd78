"""A mock model whose requests take exactly known times, to check everything that is computed from requests."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steelyard.errors import unknown
from steelyard.measuring.requests import Stamps
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.generation._answer import GeneratedTokens, check_sizes, reading_of

FIRST, WHOLE, RATE = 0.15, 1.0, 50.0
"""Seconds to the first token, seconds of a request besides its tokens, and tokens per second."""
FIRST_SCATTER, SCATTER, ROW = 0.1, 0.05, 0.1
"""Relative scatter of the time to the first token and of the whole time, and the share that each further row adds to both."""
FASTER = {"compile": 0.8, "kernelize": 0.6}
FAULTS = ("none", "early", "back", "memory")


def closed_form(batch: int, new: int, share: float = 1.0) -> tuple[float, float]:
    """Return the seconds to the first token and of the whole request, without scatter."""
    rows = share * (1 + ROW * (batch - 1))
    return FIRST * rows, (WHOLE + new / RATE) * rows


def refuse(params: Mapping[str, Any], member: str) -> None:
    """Refuse sizes below one and unknown faults."""
    if params["fault"] not in FAULTS:
        raise unknown("fault", str(params["fault"])[:60], FAULTS)
    check_sizes(params["batch"], params["prompt"], params["new"])


@workload(
    "generate/mock",
    axes={"batch": [1], "prompt": [64], "new": [32], "scatter": [0.0], "fault": ["none"]},
    backend="fake",
    tags=["generation", "fake"],
    sizes={"small": {"prompt": 8, "new": 4}},
    refuse=refuse,
)
def mock(batch: int, prompt: int, new: int, scatter: float, fault: str, be: Any) -> Task:
    """Requests with known times on a virtual clock; `scatter=1` scatters them as the original's mock does, from the seed.

    `fault` makes a request end `early`, a token come before the previous one (`back`), or several rows run out of memory (`memory`).
    """
    refuse({"batch": batch, "prompt": prompt, "new": new, "fault": fault}, "mock")
    return _task(batch, prompt, new, scatter, fault, be, 1.0)


def _task(batch: int, prompt: int, new: int, scatter: float, fault: str, be: Any, share: float) -> Task:
    first, whole = closed_form(batch, new, share)
    draw, tokens = random.Random(be.seed), be.integers(0, 1000, batch, new)

    def request(answer: Any) -> GeneratedTokens:
        if fault == "memory" and batch > 1:
            raise MemoryError(f"{batch} rows do not fit")
        ahead = first * (1 + scatter * FIRST_SCATTER * draw.uniform(-1, 1))
        rest = whole * (1 + scatter * SCATTER * draw.uniform(-1, 1)) - ahead
        stamps = Stamps(be.world.clock, together=batch)
        be.spend(ahead)
        row = [be.world.clock]
        for _ in range(new - 1):
            be.spend(rest / new)
            row.append(be.world.clock)
        be.spend(rest / new)
        stamps.rows, stamps.end = [row], be.world.clock
        if fault == "early":
            stamps.rows = [row[: max(1, new // 2)]]
        if fault == "back":
            row[-1] = row[0] - 1
        return GeneratedTokens(answer, stamps)

    known = {"mock_benchmark": True, "clock": "virtual", "prompt": prompt}
    return Task(request, (tokens,), items=batch * new, reading=reading_of(new), rule="tokens", effective=known)


@mock.variant("stuck")
def stuck(task: Task) -> Task:
    """A model that repeats its first token: another answer in the same time."""
    request = task.fn
    assert request is not None

    def repeat(answer: Any) -> GeneratedTokens:
        made: GeneratedTokens = request(answer)
        return GeneratedTokens(made["tokens"][:, :1].repeat(made["tokens"].shape[1], 1), made.stamps)

    return replace(task, fn=repeat)


def _quicker(name: str) -> None:
    @mock.variant(name)
    def quicker(task: Task, be: Any) -> Task:
        """The same tokens in less time."""
        request, share = task.fn, FASTER[name]
        assert request is not None

        def faster(answer: Any) -> GeneratedTokens:
            began = be.world.clock
            made: GeneratedTokens = request(answer)
            scaled = [[began + round(share * (stamp - began)) for stamp in row] for row in made.stamps.rows]
            be.world.clock = began + round(share * (be.world.clock - began))
            return GeneratedTokens(made["tokens"], Stamps(began, scaled, be.world.clock, made.stamps.together))

        return replace(task, fn=faster)


for _name in FASTER:
    _quicker(_name)
