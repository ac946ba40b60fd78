"""Change points are found where they are, hardly ever where there are none, and the same however the series arrived."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.analyze.change_points import Track, change_points
from steelyard.analyze.history import Change, History, Point, find_changes, history, shift
from steelyard.codec.policy import Policy
from steelyard.engine.nightly.since import appeared
from steelyard.errors import UsageError
from steelyard.report.history import change_line, history_page
from steelyard.report.web.over_time import slower_since
from steelyard.store.runs import Header, Store
from tests.analyze.saved import case, record, save

Draw = Callable[[np.random.Generator, int], Any]
NOISES: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(0, 0.01, n),
    "heavy tails": lambda rng, n: 0.01 * rng.standard_t(2, n),
    "skewed": lambda rng, n: 0.01 * rng.lognormal(0, 1, n),
    "rare slow runs": lambda rng, n: rng.normal(0, 0.01, n) + 0.3 * (rng.random(n) < 0.05),
    "rounded": lambda rng, n: rng.normal(0, 0.01, n).round(2),
}


def places(values: Any) -> list[int]:
    return [split.index for split in change_points(list(values))]


@pytest.mark.parametrize("noise", NOISES)
def test_noise_alone_is_hardly_ever_a_change(noise: str) -> None:
    """At 2 % false alarms, more than 16 of 400 has a chance of one in a hundred; the promise is 20 of 400."""
    rng = np.random.default_rng(1)
    assert sum(bool(places(NOISES[noise](rng, 60))) for _ in range(400)) <= 16


@pytest.mark.parametrize("at", [12, 30, 50])
def test_a_step_of_three_sigma_is_found_at_its_place(at: int) -> None:
    rng = np.random.default_rng(2)
    found = [places(rng.normal(0, 0.01, 60) + 0.03 * (np.arange(60) >= at)) for _ in range(40)]
    assert sum(any(abs(place - at) <= 1 for place in cuts) for cuts in found) >= 36
    assert sum(len(cuts) == 1 for cuts in found) >= 36


def test_a_slowdown_that_was_mended_is_two_changes() -> None:
    """The mean on both sides of either cut is nearly the same, which plain bisection cannot see."""
    rng = np.random.default_rng(3)
    found = [places(rng.normal(0, 0.01, 60) + 0.05 * ((np.arange(60) >= 25) & (np.arange(60) < 35))) for _ in range(20)]
    assert sum(cuts == [25, 35] for cuts in found) >= 18


def test_several_steps_are_told_apart() -> None:
    rng = np.random.default_rng(4)
    levels = np.repeat([0.0, 0.05, 0.02, 0.08], 15)
    assert places(levels + rng.normal(0, 0.005, 60)) == [15, 30, 45]


def test_a_single_slow_run_is_no_change() -> None:
    values = np.random.default_rng(5).normal(0, 0.01, 60)
    values[40] = 1.0
    assert places(values) == []


def test_exact_values_and_short_series_are_fine() -> None:
    assert places([1.0] * 60) == places([]) == places([1.0]) == []
    assert places([1.0] * 20 + [2.0] * 20) == [20]
    assert places([1.0] * 5 + [2.0] * 5) == [5]
    assert places([1.0] * 4 + [2.0] * 5) == []


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=3),
    pieces=st.lists(st.integers(1, 15), max_size=4),
)
def test_growing_point_by_point_gives_what_a_search_from_scratch_gives(seed: int, steps: list[float], pieces: list[int]) -> None:
    rng = np.random.default_rng(seed)
    values = (np.repeat(np.cumsum(steps), 12) + rng.normal(0, 0.01, 12 * len(steps))).tolist()
    track, done = Track(), 0
    for piece in [*pieces, len(values)]:
        track.values += values[done : done + piece]
        done = min(len(values), done + piece)
        assert track.splits() == change_points(values[:done])


def test_a_new_point_leaves_finished_segments_alone() -> None:
    rng = np.random.default_rng(6)
    track = Track([*rng.normal(0, 0.01, 30), *rng.normal(1, 0.01, 30)])
    track.splits()
    known = set(track._known)
    track.values.append(1.0)
    track.splits()
    assert {stop for _, stop, _ in set(track._known) - known} == {61}


@given(st.integers(0, 10**6), st.floats(-1, 1))
def test_the_shift_moves_with_the_values_and_holds_its_centre(seed: int, moved: float) -> None:
    rng = np.random.default_rng(seed)
    before, after = rng.normal(0, 1, 7), rng.normal(0, 1, 9)
    plain, there = shift(before, after), shift(before, after + moved)
    assert plain.low <= plain.centre <= plain.high
    assert there.centre == pytest.approx(plain.centre + moved) and there.low == pytest.approx(plain.low + moved)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_a_shift_of_too_few_values_has_no_interval(before: int, after: int, seed: int) -> None:
    """Where even the whole range of differences misses the truth more often than one time in twenty, as three against three does."""
    rng = np.random.default_rng(seed)
    found = shift(rng.normal(0, 1, before), rng.normal(0, 1, after))
    if 2 / math.comb(before + after, before) > 0.05:
        assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.low <= found.centre <= found.high


def test_a_change_without_an_interval_is_told_by_its_size_and_is_not_material() -> None:
    few = Change(3, "r3", "2026-01-04T00:00:00Z", 1.0, 1.2, 1.2, None, None, 0.01)
    assert "20 % slower" in change_line(few) and "[" not in change_line(few)
    points = [Point(f"r{number}", 1, "2026-01-04T00:00:00Z", 1.0) for number in range(4)]
    told = [appeared({"x": History("x", "m", points, [item])}, "r3", Policy()) for item in (few, replace(few, low=1.1, high=1.3))]
    assert [item.material for (item,) in told] == [False, True]
    assert slower_since({"x": History("x", "m", changes=[few])}) == []


def test_the_interval_of_a_shift_holds_the_truth() -> None:
    rng = np.random.default_rng(7)
    held = [shift(rng.standard_t(3, 10), 0.5 + rng.standard_t(3, 12)) for _ in range(400)]
    assert sum(found.low <= 0.5 <= found.high for found in held) >= 370


def point(index: int, time: float, commit: str = "", dirty: bool = False) -> Point:
    return Point(f"r{index}", 1, f"2026-01-{index + 1:02}T00:00:00Z", time, commit=commit, dirty=dirty)


def test_a_change_lies_between_the_commits_next_to_it_that_are_known() -> None:
    times = [1.0 + 0.001 * (index % 3) for index in range(12)] + [1.1 + 0.001 * (index % 3) for index in range(12)]
    points = [point(index, time, f"{index:010x}" if index not in (11, 12) else "") for index, time in enumerate(times)]
    (change,) = find_changes(points, skipped=5)
    assert (change.index, change.run) == (17, "r12")
    assert (change.last, change.first) == (f"{10:010x}", f"{13:010x}")
    assert change.low <= change.ratio <= change.high and change.ratio == pytest.approx(1.1, abs=0.005)
    assert (change.before, change.after) == (pytest.approx(1.001), pytest.approx(1.101))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Thirty nights on one machine, slower from the sixteenth on; two elsewhere, and a failure."""
    store, A = Store(tmp_path), case("a")
    for night in range(30):
        time = (1.0 if night < 15 else 1.06) * (1 + 0.001 * (night % 4))
        git = {"commit": f"{night:040x}", "dirty": False}
        save(store, {A: time, case("b"): 1.0}, created=f"2026-01-{night + 1:02}T03:00:00Z", git=git)
    for night in (1, 2):
        save(store, {A: 5.0}, created=f"2026-02-{night:02}T03:00:00Z", key="other")
    save(store, {A: "failed"}, created="2026-02-03T03:00:00Z")
    return store


def test_the_history_of_a_case_is_that_of_one_machine(store: Store) -> None:
    found = history(store, case("a"))
    assert (found.machine_key, len(found.points), found.broken) == ("m" * 12, 30, 1)
    (change,) = found.changes
    assert (change.index, change.last, change.first) == (15, f"{14:040x}", f"{15:040x}")
    assert [(other.machine_key, other.points) for other in found.apart] == [("other", 2)]
    there = history(store, case("a"), "other")
    assert (len(there.points), there.changes, there.apart[0].points) == (2, [], 30)


def test_what_else_changed_is_told(tmp_path: Path) -> None:
    store, A = Store(tmp_path), case("a")
    for night in range(20):
        late = night >= 10
        more = {"environment": {"torch": "2.13" if late else "2.12", "odd": [1]}, "source": {"workload": "new" if late else "old"}}
        with store.create(_header(night)) as writer:
            writer.append(record(A, (1.2 if late else 1.0) + 0.001 * (night % 3), **more))
            writer.seal()
    (change,) = history(store, A).changes
    assert change.others == ["source of the workload", "torch 2.12 → 2.13"]
    assert (change.last, change.first) == ("", "")


@pytest.mark.parametrize(("nights", "said"), [(4, "with"), (30, "newest 20 with")])
def test_the_conditions_of_the_newest_runs_are_told(tmp_path: Path, nights: int, said: str) -> None:
    store, A = Store(tmp_path), case("a")
    for night in range(nights):
        last = night == nights - 1
        with store.create(Header(created=f"2026-01-{night + 1:02}T03:00:00Z", machine={"load": [2.5 if last else 0.1, 0, 0]})) as writer:
            writer.append(record(A, 1.0, effective={"noise": "C" if last else "A", "other_load": 1.5 if last else 0.0}))
            writer.seal()
    calm = min(nights, 20) - 1
    text = f"1 thread · load 0.10 to 2.50 at start · other programs kept 0.0 to 1.5 CPUs busy while measuring · noise A ({calm}), C (1)"
    found = history(store, A)
    assert found.conditions is not None and found.conditions.text == text
    assert f"{said} {text}" in " ".join(history_page(found, width=160).plain.split())


def _header(night: int) -> Header:
    return Header(created=f"2026-01-{night + 1:02}T03:00:00Z", machine={"git": {"commit": "not a commit \x1b[2J"}})


def test_a_case_never_measured_has_no_history(store: Store) -> None:
    with pytest.raises(UsageError, match="no record of"):
        history(store, case("z"))
