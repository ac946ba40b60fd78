"""Thinned samples keep their order, their ends and their extremes, and the clock lies over the blocks of its moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.model.record import Figure, Record
from steelyard.report.web.samples import FEWEST, Sidecar, level, sample_entry, thin
from steelyard.report.web.schema import ClockSeries
from steelyard.store.runs import Header, Store
from tests.analyze.saved import case, record

numbers = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=400)


@given(numbers, st.integers(FEWEST, 60))
def test_thinning_keeps_first_last_least_largest_and_order(values: list[float], most: int) -> None:
    kept = thin(np.array(values), most).tolist()
    assert kept == sorted(set(kept)) and len(kept) <= max(most, FEWEST)
    assert kept[0] == 0 and kept[-1] == len(values) - 1
    finite = [value for value in values if np.isfinite(value)]
    shown = [values[place] for place in kept]
    if finite:
        assert min(finite) in shown and max(finite) in shown


@given(st.lists(st.integers(0, 5000), max_size=50), st.integers(0, 20_000))
def test_all_series_together_stay_within_the_budget_and_short_ones_stay_whole(counts: list[int], total: int) -> None:
    most = level(counts, total)
    assert sum(min(count, most) for count in counts) <= max(total, 0)
    if sum(counts) <= total:
        assert most >= max(counts, default=0)


def saved(folder: Path, arrays: dict[str, Any], **more: Any) -> tuple[Record, Sidecar]:
    kinds = {"preempted": "|u1"}
    packed = {name: ("s", kinds.get(name, "<f8"), np.asarray(values, kinds.get(name, "<f8")).tobytes()) for name, values in arrays.items()}
    store = Store(folder)
    with store.create(Header(machine_key="m" * 12)) as writer:
        writer.append(record(case("a"), 1.0, **more), packed)
        writer.seal()
    run = store.open("latest")
    return run.records[0], Sidecar.of(run)


def test_a_sample_is_the_net_time_of_a_call(tmp_path: Path) -> None:
    more = {"effective": {"calls_per_block": 4}, "metrics": {"overhead": Figure(0.5, "s")}}
    made = sample_entry(*saved(tmp_path, {"block_time": [8.0, 16.0], "preempted": [0, 1]}, **more), 100)
    assert made and (made.time, made.index, made.count, made.discarded) == ([1.5, 3.5], None, 2, [0, 1])
    assert (made.clock, made.throttled, made.kept, made.unit) == (None, None, False, "s")


def test_what_is_thinned_says_where_each_value_stood(tmp_path: Path) -> None:
    blocks = np.ones(1000)
    blocks[400] = 9.0
    made = sample_entry(*saved(tmp_path, {"block_time": blocks, "preempted": blocks > 1}), 20)
    assert made and made.index and made.discarded and made.count == 1000 and len(made.index) <= 20
    assert made.time[made.index.index(400)] == 9.0 and made.discarded[made.index.index(400)] == 1


def test_the_clock_lies_where_the_blocks_were_when_it_was_read(tmp_path: Path) -> None:
    arrays = {"block_time": [1.0] * 10, "telemetry_time": [0.0, 1.0, 2.0, 7.0, 12.0], "telemetry_sm_clock": [9e8, 1e9, 2e9, 2e9, 1e9]}
    made = sample_entry(*saved(tmp_path, arrays, effective={"warmup_time": 2.0}), 100)
    assert made and made.clock == ClockSeries("Hz", [0, 4, 9], [2e9, 2e9, 1e9])


def test_nothing_is_shown_where_nothing_may_be_or_was_kept(tmp_path: Path) -> None:
    item, sidecar = saved(tmp_path, {"block_time": [1.0]})
    assert sample_entry(item, sidecar, 0) is None
    assert sample_entry(record(case("b"), 1.0), sidecar, 100) is None


@pytest.mark.parametrize(("size", "said"), [(None, "samples.bin is missing"), (4, "samples.bin is cut short")])
def test_a_lost_sidecar_is_told(tmp_path: Path, size: int | None, said: str) -> None:
    item, sidecar = saved(tmp_path, {"block_time": [1.0, 2.0]})
    path = sidecar.run.path / "samples.bin"
    path.unlink() if size is None else path.write_bytes(path.read_bytes()[:size])
    again = Sidecar.of(sidecar.run)
    assert [line.partition(":")[0] for line in again.troubles()] == [said]
    assert sample_entry(item, again, 100) is None
