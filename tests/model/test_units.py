"""What is printed must be what was measured, and what is typed must be what is meant."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import UsageError
from steelyard.model import units

sizes = st.floats(1e-9, 9e8)


def ungrouped(text: str) -> str:
    return text.replace("\u202f", "")


@given(st.floats(1e-9, 900))
def test_a_printed_time_reads_back_within_its_digits(seconds: float) -> None:
    assert units.parse_seconds(ungrouped(units.plain(seconds, "s"))) == pytest.approx(seconds, rel=6e-3)


@given(st.integers(0, 2**50))
def test_a_printed_size_reads_back_within_its_digits(size: int) -> None:
    assert units.parse_bytes(ungrouped(units.plain(size, "B"))) == pytest.approx(size, rel=6e-3, abs=1)


@given(sizes, st.floats(1e-4, 0.3))
def test_the_interval_printed_covers_the_value_printed(value: float, share: float) -> None:
    number, half, name = units.measured(value, value * (1 - share), value * (1 + share), "s")
    factor, expected = units.scale(value, "s")
    assert name == expected
    assert abs(float(ungrouped(number)) - value / factor) <= max(share * value / factor, 5e-5)
    decimals = [len(ungrouped(text).partition(".")[2]) for text in (number, half)]
    assert decimals[0] == decimals[1]


@given(sizes, st.floats(0, 1), st.floats(0, 20))
def test_what_a_half_width_would_misstate_is_shown_as_its_range(value: float, below: float, above: float) -> None:
    low, high = value * (1 - below), value * (1 + above)
    number, half, _ = units.measured(value, low, high, "s")
    factor = units.scale(value, "s")[0]
    if max(above, below) >= 1:
        assert " to " in number and not half
    if " to " in number:
        ends = [float(ungrouped(end)) * factor for end in number.split(" to ")]
        assert ends == [pytest.approx(low, rel=0.2, abs=1e-3 * value), pytest.approx(high, rel=0.2)]
    else:
        assert float(ungrouped(half)) <= float(ungrouped(number))


@pytest.mark.parametrize(("figures", "text"), [
    ((2e-3, 0.74e-3, 5.8e-3), "0.7 to 5.8 ms"), ((0.0, 0.0, 8.2e-9), "< 8.2 ns"), ((11.42e-6, 11.36e-6, 11.48e-6), "11.42 ± 0.06 µs"),
    ((1e-6, 0.95e-6, 1.5e-6), "0.95 to 1.50 µs"), ((1e-6, None, None), "1.00 µs"),
])  # fmt: skip
def test_a_time_is_written_as_far_as_it_is_known(figures: tuple[float, float | None, float | None], text: str) -> None:
    assert units.with_error(*figures, "s") == text


@given(st.floats(1e-12, 1e12))
def test_an_uncertainty_keeps_one_or_two_significant_digits(error: float) -> None:
    shown = f"{error:.{units.digits_after_point(error)}f}"
    significant = shown.replace(".", "").lstrip("0")
    assert float(shown) == pytest.approx(error, rel=0.2)
    assert error >= 100 or 1 <= len(significant) <= 3


@given(st.floats(0.0001, 0.99))
def test_a_share_may_be_typed_either_way(share: float) -> None:
    assert units.parse_share(f"{share * 100:.10f}%") == pytest.approx(units.parse_share(f"{share:.12f}"), rel=1e-6)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_usage_error(text: str) -> None:
    for parse in (units.parse_seconds, units.parse_bytes, units.parse_share):
        with contextlib.suppress(UsageError):
            assert parse(text) >= 0


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("200ms", 0.2), ("5min", 300), ("2h", 7200), ("2", 2), ("1.5 µs", 1.5e-6)])
def test_times_as_people_type_them(text: str, seconds: float) -> None:
    assert math.isclose(units.parse_seconds(text), seconds)


@pytest.mark.parametrize(("text", "size"), [("8GiB", 8 * 2**30), ("500MB", 500_000_000), ("1024", 1024), ("1k", 1024)])
def test_sizes_as_people_type_them(text: str, size: int) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "fast", "-1s", "1 2", "3 parsecs"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_seconds(text)


def test_a_size_beyond_all_memory_is_refused() -> None:
    with pytest.raises(UsageError):
        units.parse_bytes("1e999")
