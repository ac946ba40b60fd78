"""The process-level model keeps its error rate where its assumptions hold, and says what it assumed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from steelyard.analyze import noise
from steelyard.analyze.compare import compare
from steelyard.analyze.provenance import alternating
from tests.analyze.made import run, side


@given(st.floats(0.05, 1e4))
def test_gamma_derivatives(x: float) -> None:
    assert noise.digamma(x) == pytest.approx(float(special.digamma(x)), rel=1e-9, abs=1e-9)
    assert noise.trigamma(x) == pytest.approx(float(special.polygamma(1, x)), rel=1e-9)


def suites(rounds: int, runs: int, cases: int, shared: float, own: float, unlike: float = 0.0, alternate: bool = False, slow: float = 0.0):
    """Comparisons of equal code, but for the first case, on a machine whose mood changes from run to run."""
    rng = np.random.default_rng(5)
    for _ in range(rounds):
        centre, spread = rng.normal(-8, 1, cases), own * np.exp(rng.normal(0, unlike, cases))
        tables = [np.exp(centre + rng.normal(0, shared) + spread * rng.normal(size=cases)).tolist() for _ in range(2 * runs)]
        for table in tables[runs:]:
            table[0] *= 1 + slow
        base, head = (tables[:runs], tables[runs:])
        step = 2 if alternate else 1
        yield compare(side("b", *base, step=step), side("h", *head, first=1 if alternate else runs, step=step)).deltas


@pytest.mark.parametrize(
    ("runs", "cases", "shared", "own", "unlike", "alternate"),
    [
        (1, 40, 0.05, 0.03, 0.0, False),
        (1, 100, 0.10, 0.02, 0.5, False),
        (2, 40, 0.03, 0.01, 0.7, False),
        (2, 40, 0.00, 0.01, 0.0, True),
        (4, 40, 0.03, 0.01, 0.5, True),
        (4, 3, 0.02, 0.01, 0.0, True),
        (1, 3, 0.05, 0.03, 0.0, False),
        (4, 3, 0.00, 0.01, 0.0, False),
    ],
)
def test_equal_code_is_not_called_changed(runs: int, cases: int, shared: float, own: float, unlike: float, alternate: bool) -> None:
    rounds = 60
    alarmed = sum(
        any(d.verdict in ("slower", "faster") for d in found) for found in suites(rounds, runs, cases, shared, own, unlike, alternate)
    )
    assert alarmed <= 3


@pytest.mark.parametrize(
    ("runs", "cases", "shared", "own", "alternate", "slow"),
    [(1, 40, 0.05, 0.005, False, 0.3), (2, 40, 0.05, 0.01, False, 0.2), (4, 40, 0.01, 0.01, True, 0.15), (5, 1, 0.01, 0.01, True, 0.2)],
)
def test_a_clear_slowdown_of_one_case_is_seen(runs: int, cases: int, shared: float, own: float, alternate: bool, slow: float) -> None:
    rounds = 30
    caught = sum(found[0].verdict == "slower" for found in suites(rounds, runs, cases, shared, own, 0.0, alternate, slow))
    assert caught >= 0.8 * rounds


def test_replicates_give_the_textbook_variance_for_one_case() -> None:
    base, head = [0.0, 0.02, 0.04], [0.10, 0.11, 0.15]
    found = noise.between_runs({"a": noise.Logs(dict(enumerate(base)), dict(enumerate(head)))}, alternating=True).spreads["a"]
    pooled = (np.var(base, ddof=1) + np.var(head, ddof=1)) / 2
    assert found.sd == pytest.approx(math.sqrt(pooled * 2 / 3)) and found.freedom == 4


@pytest.mark.parametrize("drift", [1.05, 1.1, 1.2])
def test_drift_between_two_sessions_is_no_change(drift: float) -> None:
    """Quiet replicates of one hour say nothing about the next one, unless both sides have runs in each."""
    quiet = [[1e-3 * factor] for factor in (1.0, 1.002, 0.998, 1.001)]
    later = [[value * drift for value in table] for table in quiet]
    found = compare(side("b", *quiet), side("h", *later, first=10))
    assert found.deltas[0].verdict == "unclear" and any("assumed between the sides" in note for note in found.notes)
    mixed = compare(side("b", *quiet, step=2), side("h", *later, first=1, step=2))
    assert mixed.deltas[0].verdict == "slower" and not any("assumed" in note for note in mixed.notes)


@pytest.mark.parametrize(
    ("order", "so"),
    [("bh", False), ("bbhh", False), ("bhbh", True), ("bhhb", True), ("bbbhbhhh", False), ("hbbbbhhh", False), ("bbhbhhbh", True)],
)
def test_sides_alternate_where_their_runs_take_turns(order: str, so: bool) -> None:
    sides = [[run(f"r{hour}", [], hour) for hour, name in enumerate(order) if name == wanted] for wanted in "bh"]
    assert alternating(*sides) is so
    assert alternating(*([replace(item, header=replace(item.header, created="")) for item in runs] for runs in sides)) is False


def test_a_noisy_case_among_quiet_ones_keeps_its_own_noise() -> None:
    rng = np.random.default_rng(1)
    logs = {}
    for number in range(30):
        spread = 0.2 if number == 0 else 0.005
        logs[str(number)] = noise.Logs(*(dict(enumerate(rng.normal(0, spread, 4))) for _ in range(2)))
    spreads = noise.between_runs(logs, alternating=True).spreads
    assert spreads["0"].sd > 5 * spreads["1"].sd


def test_a_record_that_admits_more_noise_than_usual_gets_it() -> None:
    logs = {str(number): noise.Logs({0: 0.0}, {0: 0.001 * number}, 1e-6) for number in range(12)}
    wide = noise.between_runs({**logs, "0": noise.Logs({0: 0.0}, {0: 0.0}, 0.04)}).spreads
    assert wide["0"].sd > 0.19 and wide["1"].sd < 0.02


def test_the_floor_is_never_undercut() -> None:
    still = {str(number): noise.Logs({0: 0.0, 1: 0.0}, {0: 0.0, 1: 0.0}) for number in range(20)}
    assert all(spread.sd == pytest.approx(0.03) for spread in noise.between_runs(still, floor=0.03).spreads.values())
    single = {id: noise.Logs({0: 0.0}, {0: 0.0}) for id in still}
    assert all(spread.sd == pytest.approx(noise.LEAST * math.sqrt(2)) for spread in noise.between_runs(single).spreads.values())


@given(
    st.lists(
        st.tuples(st.lists(st.floats(-20, 20), min_size=1, max_size=4), st.lists(st.floats(-20, 20), min_size=1, max_size=4)),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
def test_any_pattern_of_replicates_gives_a_spread(found: list[tuple[list[float], list[float]]], alternate: bool) -> None:
    logs = {str(number): noise.Logs(dict(enumerate(base)), dict(enumerate(head))) for number, (base, head) in enumerate(found)}
    for spread in noise.between_runs(logs, alternating=alternate).spreads.values():
        assert math.isfinite(spread.sd) and spread.sd > 0 and spread.freedom > 0
