"""Shares of the roof and bounds, by hand and by property."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from steelyard.measuring.roofline import Roof, bound_of, compute_format, share_of, sources_of, told_source, with_roof
from steelyard.model.record import Figure, Record, Status

ROOF = Roof(compute=100e9, bandwidth=20e9, source="measured")
RATES = st.floats(1e3, 1e15)


def record(
    compute: float | None = None, bandwidth: float | None = None, *, status: Status = "ok", device: str = "cpu", **more: Any
) -> Record:
    metrics = {"time": Figure(1e-3, "s", "lower", 0.9e-3, 1.2e-3, 50)}
    for name, value, unit in (("compute", compute, "FLOP/s"), ("bandwidth", bandwidth, "B/s")):
        if value is not None:
            metrics[name] = Figure(value, unit, "higher", value / 1.2, value / 0.9, 50)
    if "host_time" in more:
        metrics["host_time"] = Figure(more.pop("host_time"), "s", "lower")
    case = {"workload": "op/a", "params": more.pop("params", {"dtype": "fp32"}), "device": device}
    return Record("op/a@torch/eager:eval", case, status, metrics=metrics, effective=more)


def test_the_ridge_is_where_both_peaks_meet() -> None:
    assert ROOF.ridge == 5.0
    assert ROOF.attainable(5.0) == 100e9
    assert ROOF.attainable(2.5) == 50e9
    assert ROOF.attainable(50.0) == 100e9


@pytest.mark.parametrize(
    ("compute", "bandwidth", "share", "bound"),
    [
        (80e9, 1e9, 0.80, "compute"),  # 80 FLOP per byte: the roof is 100 GFLOP/s
        (10e9, 10e9, 0.50, "memory"),  # 1 FLOP per byte: the roof is 20 GFLOP/s
        (50e9, 10e9, 0.50, "compute"),  # on the ridge
        (None, 5e9, 0.25, "memory"),
        (40e9, None, 0.40, None),  # without bytes nobody knows what holds it back
        (40e9, 40e9, 2.00, "memory"),  # from a cache
    ],
)
def test_shares_and_bounds_by_hand(compute: float | None, bandwidth: float | None, share: float, bound: str | None) -> None:
    found = with_roof(record(compute, bandwidth), ROOF)
    figure = found.metrics["roof"]
    assert (figure.value, figure.unit, figure.better, figure.n) == (pytest.approx(share), "1", "higher", 50)
    assert (figure.low, figure.high) == (pytest.approx(share / 1.2), pytest.approx(share / 0.9))
    assert found.effective.get("bound") == bound
    assert found.effective["roof_source"] == "measured"
    operations, moved = (1e-3 * (rate or 0.0) for rate in (compute, bandwidth))
    predicted = found.metrics["predicted_time"]
    assert predicted == Figure(pytest.approx(max(operations / 100e9, moved / 20e9)), "s")


@pytest.mark.parametrize(
    ("compute", "bandwidth", "told"),
    [(80e9, 1e9, "datasheet compute, measured memory"), (40e9, None, "datasheet"), (None, 5e9, "measured")],
)
def test_a_roof_of_two_sources_says_both_where_both_count(compute: float | None, bandwidth: float | None, told: str) -> None:
    roof = Roof(100e9, 20e9, "measured", "datasheet")
    assert roof.sources == "datasheet compute, measured memory"
    assert with_roof(record(compute, bandwidth), roof).effective["roof_source"] == told


@pytest.mark.parametrize(
    "told", ["measured", "datasheet", "datasheet compute, measured memory", "", "a compute, b", "x compute, y memory "]
)
def test_sources_are_read_back_as_they_were_told(told: str) -> None:
    assert told_source(*sources_of(told)) == told


def test_an_unknown_peak_has_no_source() -> None:
    assert Roof(None, 20e9, "measured", "datasheet").sources == "measured"


@pytest.mark.parametrize(
    ("made", "roof"),
    [
        (record(), ROOF),
        (record(1e9, 1e9, status="wrong"), ROOF),
        (record(1e9, 1e9), Roof(None, 20e9, "measured")),
        (record(1e9), Roof(None, 20e9, "measured")),
    ],
    ids=["nothing declared", "wrong answer", "unknown format", "unknown format and no bytes"],
)
def test_nothing_is_added_where_nothing_is_known(made: Record, roof: Roof) -> None:
    assert with_roof(made, roof) is made


def test_memory_has_a_roof_whatever_the_format() -> None:
    assert with_roof(record(bandwidth=5e9), Roof(None, 20e9, "datasheet")).metrics["roof"].value == 0.25


@pytest.mark.parametrize(
    ("device", "host_time", "eager", "compute", "bound"),
    [
        ("cuda", 2e-3, "host", 80e9, "launch"),  # queueing takes longer than the work
        ("cuda", 0.5e-3, "device", 80e9, "compute"),
        ("cuda", 0.5e-3, "host", 80e9, "compute"),  # late at times, but near the roof
        ("cuda", 0.5e-3, "host", 5e9, "launch"),  # late, and a twentieth of the roof
        ("cpu", 2e-3, "host", 80e9, "compute"),  # a CPU launches nothing
    ],
)
def test_launch_bound_is_for_accelerators(device: str, host_time: float, eager: str, compute: float, bound: str) -> None:
    made = record(compute, 1e9 * compute / 80e9, device=device, host_time=host_time, eager_bound_by=eager)
    assert with_roof(made, ROOF).effective["bound"] == bound


@pytest.mark.parametrize(
    ("params", "effective", "expected"),
    [
        ({"dtype": "bf16"}, {}, "bf16"),
        ({"dtype": "fp32"}, {"tf32": True}, "tf32"),
        ({"dtype": "fp32"}, {"tf32": False}, "fp32"),
        ({"dtype": "fp32"}, {"autocast": "bf16"}, "bf16"),
        ({"n": 8}, {}, None),
        ({"dtype": 4}, {}, None),
    ],
)
def test_the_format_that_is_computed_in(params: dict[str, Any], effective: dict[str, Any], expected: str | None) -> None:
    assert compute_format(record(params=params, **effective)) == expected


@given(compute=RATES, bandwidth=RATES, peak=RATES, width=RATES)
def test_the_share_is_that_of_the_nearer_roof(compute: float, bandwidth: float, peak: float, width: float) -> None:
    roof = Roof(peak, width, "measured")
    share = share_of(record(compute, bandwidth).metrics, roof)
    assert share is not None and share.low is not None and share.high is not None
    assert share.value == pytest.approx(max(compute / peak, bandwidth / width))
    assert share.low <= share.value <= share.high


@given(intensity=st.floats(1e-3, 1e6), reached=st.floats(1e-6, 1.0), peak=RATES, width=RATES)
def test_whoever_stays_below_the_attainable_rate_has_a_share_below_one(intensity: float, reached: float, peak: float, width: float) -> None:
    roof = Roof(peak, width, "measured")
    compute = reached * min(peak, intensity * width)
    made = record(compute, compute / intensity)
    share = share_of(made.metrics, roof)
    assert share is not None and share.value == pytest.approx(reached)
    assume(not math.isclose(intensity, peak / width, rel_tol=1e-9))
    assert bound_of(made, roof, share.value) == ("compute" if intensity > peak / width else "memory")


@given(first=st.floats(1e-3, 1e6), second=st.floats(1e-3, 1e6), peak=RATES, width=RATES)
def test_more_work_per_byte_never_lowers_the_roof(first: float, second: float, peak: float, width: float) -> None:
    roof = Roof(peak, width, "measured")
    low, high = roof.attainable(min(first, second)), roof.attainable(max(first, second))
    assert low is not None and high is not None and low <= high <= peak


@given(rate=RATES, peak=RATES, factor=st.floats(1.0, 100.0))
def test_a_higher_peak_never_raises_the_share(rate: float, peak: float, factor: float) -> None:
    made = record(rate, rate).metrics
    lower, higher = share_of(made, Roof(peak, peak, "measured")), share_of(made, Roof(peak * factor, peak * factor, "measured"))
    assert lower is not None and higher is not None and higher.value <= lower.value
