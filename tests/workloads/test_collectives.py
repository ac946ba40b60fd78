"""What the four collectives send is told apart by rank and place, and their figures follow the formulas of nccl-tests."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine.weigh import weigh_case
from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.task import Task
from steelyard.registry import built_ins
from steelyard.workloads.collectives import patterns
from steelyard.workloads.collectives.basic import algorithm_bandwidth, bus_bandwidth, seated

pytest.importorskip("torch")
from steelyard.backends._device import EventTimer
from steelyard.backends._ranks import unheld
from steelyard.backends.base import Seat
from steelyard.backends.numpy import Numpy
from steelyard.backends.torch import Torch

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


class Seated(Torch):
    """A seat at a table where nobody else sits: enough to build, not to communicate."""

    def join(self) -> Seat:
        return self.seat


def build(name: str, rank: int, size: int, bytes: int = 4096, dtype: str = "fp32") -> tuple[Torch, Task]:
    be = Seated(seat=Seat(rank, size))
    return be, built_ins().workloads[f"collective/{name}"].bodies["torch"](bytes=bytes, dtype=dtype, be=be)


def array(be: Torch, value: Any) -> np.ndarray[Any, Any]:
    return be.outputs(value)[0].data


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_the_references_are_what_the_inputs_of_all_ranks_give(size: int, dtype: str) -> None:
    made = {name: [build(name, rank, size, dtype=dtype) for rank in range(size)] for name in NAMES}
    sent = {name: [array(be, task.args[-1]).astype(np.int64) for be, task in made[name]] for name in NAMES}
    want = {name: [array(be, task.reference()).astype(np.int64) for be, task in made[name] if task.reference] for name in NAMES}
    for rank in range(size):
        np.testing.assert_array_equal(want["all_reduce"][rank], sum(sent["all_reduce"]))
        np.testing.assert_array_equal(want["all_gather"][rank], np.concatenate(sent["all_gather"]))
        np.testing.assert_array_equal(want["reduce_scatter"][rank], np.split(sum(sent["reduce_scatter"]), size)[rank])
        np.testing.assert_array_equal(want["all_to_all"][rank], np.concatenate([np.split(x, size)[rank] for x in sent["all_to_all"]]))
    for name in ("reduce_scatter", "all_to_all"):
        assert len({answer.tobytes() for answer in want[name]}) == size


@given(st.integers(1, 61), st.integers(1, 600))
def test_sums_are_exact_where_values_below_256_are(ranks: int, count: int) -> None:
    assert patterns.sums(ranks, count).max() < 256
    assert len({patterns.values(rank, 251, patterns.MOVED).tobytes() for rank in range(ranks)}) == ranks


@pytest.mark.parametrize(("name", "share"), [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75)])
def test_bandwidths_by_the_book(name: str, share: float) -> None:
    _, task = build(name, 1, 4, bytes=1 << 20)
    assert algorithm_bandwidth.compute(0.5, task) == 2 * (1 << 20)
    assert bus_bandwidth.compute(0.5, task) == share * 2 * (1 << 20)


def test_a_message_is_rounded_down_to_whole_values_for_every_rank() -> None:
    _, task = build("all_gather", 0, 3, bytes=100)
    assert task.effective == {"message_bytes": 96, "bus_bytes": 64}
    with pytest.raises(NotApplicable, match="8 bytes of fp32 are less than one value for each of 3 ranks"):
        build("all_reduce", 0, 3, bytes=8)


def test_what_cannot_be_had_says_why() -> None:
    with pytest.raises(Unsupported, match="backend numpy cannot connect ranks"):
        seated(64, "fp32", Numpy())
    with pytest.raises(Unsupported, match="fp8e4m3"):
        seated(64, "fp8e4m3", Torch())


@pytest.mark.parametrize("name", NAMES)
def test_a_group_of_one_is_measured_in_the_worker_itself(name: str) -> None:
    case = Case(f"collective/{name}", (("bytes", 4096), ("dtype", "fp32")))
    record, _ = weigh_case(case, built_ins(), replace(Settings(), budget=0.01), lambda phase, fraction: None)
    Torch.leave()
    assert record.status == "ok", record.reason
    assert record.verification is not None and record.verification.status == "passed"
    assert record.metrics["algorithm_bandwidth"].unit == "B/s" and "bus_bandwidth" not in record.metrics


def test_listing_them_needs_no_framework() -> None:
    program = "import sys, steelyard.workloads.collectives.basic; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_rank_does_not_hold_its_stream_back() -> None:
    slept: list[int] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...

        def record(self) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: Event) -> float:
            return 2.0

    api = SimpleNamespace(Event=Event, _sleep=slept.append)
    held, free = EventTimer(api, None, None), unheld(EventTimer(api, None, None))
    slept.clear()
    assert free.bind(Task(lambda: None))(3) == 2_000_000 and slept == []
    assert held.bind(Task(lambda: None))(3) == 2_000_000 and len(slept) == 1
