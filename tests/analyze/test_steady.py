"""A restless time is no change of level, and a change of level is one whatever else was restless."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.analyze.change_points import Split, change_points
from steelyard.analyze.steady import local_noise, steady

Draw = np.random.Generator


def restless(rng: Draw, nights: int = 60, first: int = 15, length: int = 6) -> Any:
    """One noise for most nights, four times as much for some, eight times for two of these."""
    loud = np.ones(nights)
    loud[first : first + length] = 4.0
    loud[[first + 1, first + 4]] = 8.0
    return 0.006 * loud * rng.normal(0, 1, nights)


def places(values: Any) -> list[int]:
    return [split.index for split in steady(values, change_points(list(values)))]


def test_a_restless_time_is_hardly_ever_a_level_of_its_own() -> None:
    """In 100 such series the search alone finds about 18, and 3 to 4 are left."""
    rng = np.random.default_rng(1)
    series = [restless(rng) for _ in range(60)]
    alone = sum(bool(change_points(list(values))) for values in series)
    assert sum(bool(places(values)) for values in series) <= 4 <= alone // 2


def test_a_step_beside_a_restless_time_is_found_at_its_place() -> None:
    rng = np.random.default_rng(2)
    found = [places(restless(rng) + 0.03 * (np.arange(60) >= 37)) for _ in range(20)]
    assert sum(any(abs(place - 37) <= 1 for place in cuts) for cuts in found) >= 19


def test_a_step_larger_than_the_noise_around_it_is_found_in_a_restless_time() -> None:
    rng = np.random.default_rng(3)
    values = restless(rng, first=20, length=20) + 0.3 * (np.arange(60) >= 30)
    assert places(values) == [30]


def test_where_all_nights_are_alike_nothing_is_dropped() -> None:
    values = [0.0, 0.001] * 15 + [0.05, 0.051] * 15
    splits = change_points(values)
    assert [split.index for split in splits] == [30] and steady(values, splits) == splits
    assert local_noise(np.array(values)).tolist() == [1.0] * 60


def test_series_without_noise_or_without_values_are_fine() -> None:
    assert steady([], []) == [] and steady([1.0] * 20, [Split(10, 0.002)]) == [Split(10, 0.002)]
    assert local_noise(np.array([1.0])).tolist() == [1.0]


def test_the_noise_is_that_of_the_neighbours_and_a_step_is_none() -> None:
    rng = np.random.default_rng(4)
    quiet = 0.006 * rng.normal(0, 1, 60)
    noise = local_noise(quiet + 0.5 * (np.arange(60) >= 30))
    assert (noise[25:35] < 3).all()
    loud = local_noise(np.where((np.arange(60) >= 20) & (np.arange(60) < 30), 6 * quiet, quiet))
    assert loud[22:28].min() > 2 and np.median(loud[35:]) == 1.0
