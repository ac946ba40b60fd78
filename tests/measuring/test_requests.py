"""Times of one request: exact at any number of tokens and after any uptime, and refused where they do not add up."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import SteelyardError
from steelyard.measuring import parts
from steelyard.measuring.requests import Stamps
from steelyard.model.record import in_seconds
from steelyard.model.task import Amounts

DAY = 86_400 * 10**9
MS = 10**6


def stamps(start: int, first: int, gap: int, tokens: int, tail: int = 50_000, rows: int = 1) -> Stamps:
    row = [start + first + gap * number for number in range(tokens)]
    return Stamps(start, [list(row) for _ in range(rows)], row[-1] + tail)


@pytest.mark.parametrize("tokens", [2, 4, 8, 32])
@pytest.mark.parametrize("uptime", [0, 1, 7, 30, 60])
def test_times_are_right_at_any_number_of_tokens_and_after_any_uptime(tokens: int, uptime: int) -> None:
    found = stamps(uptime * DAY + 1, 47 * MS, 10 * MS, tokens).reading(tokens)
    assert found.parts == {"ttft": 47 * MS, "itl": 10 * MS, "tpot": 10 * MS}
    assert found.series["itl"] == [10 * MS] * (tokens - 1)
    assert found.seconds == pytest.approx((47 * MS + (tokens - 1) * 10 * MS + 50_000) * 1e-9, abs=1e-12)


def test_one_token_has_no_time_between_tokens() -> None:
    assert stamps(5, 100, 1, 1).reading(1).parts == {"ttft": 100}


@given(
    start=st.integers(0, 100 * DAY), first=st.integers(0, 10**12), tail=st.integers(0, 10**9),
    gaps=st.lists(st.integers(0, 10**10), min_size=1, max_size=50),
)  # fmt: skip
def test_parts_add_up_to_the_whole(start: int, first: int, tail: int, gaps: list[int]) -> None:
    row = [start + first]
    for gap in gaps:
        row.append(row[-1] + gap)
    found = Stamps(start, [row], row[-1] + tail).reading(len(row))
    assert found.series["ttft"][0] + sum(found.series["itl"]) + found.series["tail"][0] == row[-1] + tail - start
    assert found.parts["itl"] == statistics.median(gaps)


def test_rows_that_come_apart_stay_apart() -> None:
    mixed = Stamps(0, [[10, 20, 30], [40, 60, 80], [20, 30, 50]], 90)
    found = mixed.reading(3)
    assert found.parts["ttft"] == 20 and found.parts["ttft_last"] == 40
    assert list(found.series["ttft"]) == [10, 40, 20] and list(found.series["itl"]) == [10, 10, 20, 20, 10, 20]
    assert list(found.series["tail"]) == [60, 10, 40]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Stamps(0, [[5, 9]], 10), "2 tokens came instead of 3; generation ended early"),
        (Stamps(0, [[5, 6, 7, 8]], 10), "4 tokens came instead of 3; generation went on after the last one"),
        (Stamps(0, [[5, 4, 8]], 10), "do not add up"),
        (Stamps(6, [[5, 7, 8]], 10), "do not add up"),
        (Stamps(0, [[5, 7, 11]], 10), "do not add up"),
        (Stamps(0, [], 10), "no token came"),
    ],
)
def test_what_does_not_add_up_is_an_error(broken: Stamps, words: str) -> None:
    with pytest.raises(SteelyardError) as raised:
        broken.reading(3)
    assert words in f"{raised.value.what}; {raised.value.why}"


def test_percentiles_only_where_there_are_enough_and_rates_of_what_parts_do() -> None:
    readings = [stamps(0, 100 * MS, 10 * MS, 12).reading(12) for _ in range(10)]
    found = parts.figures(readings, {"ttft": Amounts(flops=2e9), "itl": Amounts(bytes=1e6)})
    assert found["ttft"].value == pytest.approx(0.1) and found["ttft"].n == 10 and found["ttft"].low is not None
    assert found["ttft_compute"].value == pytest.approx(2e10) and found["itl_bandwidth"].value == pytest.approx(1e8)
    assert {"itl_p50", "itl_p90"} <= set(found) and not {"itl_p99", "ttft_p90"} & set(found)
    assert parts.figures(readings[:2], {})["ttft"].low is None


def test_raw_times_are_kept_in_whole_nanoseconds() -> None:
    kept = parts.arrays([stamps(7 * DAY, 3, 2, 3, tail=1).reading(3), stamps(0, 5, 1, 3, tail=2).reading(3)])
    assert {name: kept[name][0] for name in kept} == dict.fromkeys(("request_time", "request_ttft", "request_itl", "request_tail"), "ns")
    assert in_seconds(kept, "request_itl") == pytest.approx([2e-9, 2e-9, 1e-9, 1e-9], rel=1e-9)
    assert in_seconds(kept, "request_time") == pytest.approx([8e-9, 9e-9], rel=1e-9)
