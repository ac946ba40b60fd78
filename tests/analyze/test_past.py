"""Noise learned from earlier runs keeps its error rate, does not mind what changed in them, and says where it comes from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze import noise
from steelyard.analyze.compare import Comparison, RunsSide, compare
from steelyard.analyze.past import FEWEST, learn, past_of
from steelyard.store.runs import Store
from tests.analyze.made import case as numbered
from tests.analyze.made import side
from tests.analyze.saved import case, save


def tables(rng: np.random.Generator, nights: int, cases: int, shared: float, own: float, tail: float = 3.0) -> list[list[float]]:
    """The times of nights of equal code: cases differ in how noisy they are, every one has bad nights, and nights have moods."""
    spread = own * np.exp(rng.normal(0, 0.7, cases))
    return [np.exp(-7 + spread * rng.standard_t(tail, cases) + rng.normal(0, shared)).tolist() for _ in range(nights)]


def learned(found: list[list[float]]) -> noise.Past | None:
    cases = range(len(found[0]))
    return learn({numbered(number): [(f"r{night}", table[number]) for night, table in enumerate(found)] for number in cases})


def suites(rounds: int, nights: int, cases: int, slow: float = 1.0, own: float = 0.01) -> Iterator[Comparison]:
    """Two runs after some nights, which are known where there are any."""
    rng = np.random.default_rng(11)
    for _ in range(rounds):
        *earlier, base, head = tables(rng, nights + 2, cases, own, own)
        past = learned(earlier) if earlier else None
        yield compare(side("b", base), RunsSide("h", side("h", [slow * value for value in head], first=1).runs, past))


@pytest.mark.parametrize(("nights", "cases"), [(0, 20), (6, 3), (12, 3), (12, 20)])
def test_equal_runs_are_hardly_ever_called_slower_though_noise_has_heavy_tails(nights: int, cases: int) -> None:
    """At 1 in 100 comparisons of whole suites; with the earlier estimate it was 8 of 100."""
    rounds = 120
    alarmed = sum(any(delta.verdict == "slower" for delta in found.deltas) for found in suites(rounds, nights, cases))
    assert alarmed <= 4


def test_few_cases_with_twelve_nights_behind_them_have_an_interval_worth_its_name() -> None:
    (found,) = suites(1, 12, 3, own=0.004)
    assert all(delta.high is not None and delta.low is not None and delta.high / delta.low < 1.35 for delta in found.deltas)
    assert any("from 12 earlier runs on this machine" in note for note in found.notes) and not any(
        "assumed" in note for note in found.notes
    )
    (blind,) = suites(1, 0, 3)
    assert any("10 %, assumed" in note for note in blind.notes)


def test_a_change_of_everything_is_seen_where_earlier_nights_show_that_it_is_no_mood() -> None:
    found = list(suites(10, 12, 20, slow=1.15, own=0.004))
    assert sum(sum(delta.verdict == "slower" for delta in one.deltas) >= 10 for one in found) >= 9
    assert all(delta.verdict == "unclear" for one in suites(3, 0, 20, slow=1.15, own=0.004) for delta in one.deltas)


def test_real_steps_in_the_past_leave_the_noise_as_it_is() -> None:
    rng = np.random.default_rng(3)
    quiet = np.exp(rng.normal(0, 0.01, 24))
    stepped = quiet * np.where(np.arange(24) >= 8, 1.3, 1.0) * np.where(np.arange(24) >= 16, 0.6, 1.0)
    plain, moved = (learn({"a": [(f"r{n}", value) for n, value in enumerate(values)]}) for values in (quiet, stepped))
    assert plain is not None and moved is not None and 0.005 < plain.own["a"].sd < 0.02
    assert moved.own["a"].sd < 2 * plain.own["a"].sd


def test_what_all_cases_share_is_told_from_what_each_adds() -> None:
    rng = np.random.default_rng(5)
    found = learned(tables(rng, 60, 30, shared=0.03, own=0.005))
    assert found is not None and found.shared is not None and found.shared.sd == pytest.approx(0.03, rel=0.35)
    assert np.median([spread.sd for spread in found.own.values()]) < 0.012
    few = learned([table[:3] for table in tables(rng, 60, 30, shared=0.03, own=0.005)])
    assert few is not None and few.shared is None and few.own[numbered(0)].sd > 0.02


@given(st.dictionaries(st.integers(0, 11), st.lists(st.floats(1e-9, 1e6) | st.just(math.nan) | st.just(0.0), max_size=12), max_size=12))
def test_any_times_give_noise_or_nothing(times: dict[int, list[float]]) -> None:
    found = learn({numbered(number): [(f"r{place}", value) for place, value in enumerate(values)] for number, values in times.items()})
    enough = [values for values in times.values() if sum(value > 0 for value in values) > FEWEST]
    assert found is None or enough
    for spread in found.own.values() if found else ():
        assert math.isfinite(spread.sd) and spread.sd > 0 and spread.freedom >= noise.FEWEST_FREEDOM
    logs = {numbered(number): noise.Logs({0: 0.0}, {0: 0.01}) for number in times}
    if found and logs:
        assert all(spread.sd > 0 for spread in noise.between_runs(logs, past=found).spreads.values())


def test_a_store_answers_with_earlier_runs_of_the_same_cases_and_machine(tmp_path: Path) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(7)
    times = [{case("a"): 1e-3 * math.exp(rng.normal(0, 0.01))} for _ in range(10)]
    ids = [save(store, table, created=f"2026-01-{day:02}T03:00:00Z") for day, table in enumerate(times, 1)]
    save(store, {case("a"): 5e-3}, created="2026-01-03T04:00:00Z", key="o" * 12)
    save(store, {case("a"): "crashed"}, created="2026-01-03T05:00:00Z")
    save(store, {case("b"): 7e-3}, created="2026-01-03T06:00:00Z")
    runs = [store.open(id) for id in ids]
    found = past_of(store, runs[7:8], runs[8:9])
    assert found is not None and found.runs == 7 and set(found.own) == {case("a")} and found.own[case("a")].sd < 0.03
    assert past_of(store, runs[1:2], runs[2:3]) is None, "two earlier runs are too few"
    elsewhere = store.open(save(store, {case("a"): 5e-3}, created="2026-01-12T04:00:00Z", key="o" * 12))
    assert past_of(store, runs[8:9], [elsewhere]) is None
