"""What pairs of processes say of two compilers: times by an interval over pairs, sizes by their spread."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.measuring.compiles import weigh_values
from steelyard.model.pair import Arm, Pair, weigh_part


def verdict(base: list[float], head: list[float], unit: str) -> str:
    part = weigh_values(base, head, unit)
    assert part is not None
    pair = Pair(Arm("a"), Arm("b"), 1.0, 0.99, 1.01, 0.99, 1, 1, 0, (1, 1), parts={"it": part})
    return weigh_part(pair, "it").verdict


def drawn(count: int, shift: float = 0.0, spread: float = 0.03, seed: int = 0) -> list[float]:
    return list(np.exp(np.random.default_rng(seed).normal(shift, spread, count)))


def test_a_slower_compiler_is_slower_and_its_interval_holds_the_truth() -> None:
    part = weigh_values(drawn(12), drawn(12, 0.2, seed=1), "s")
    assert part is not None and part.low < np.exp(0.2) < part.high and part.low > 1.1
    assert part.base is not None and part.base.n == 12 and part.base.unit == "s" and part.p is not None and part.p < 0.01


def test_what_is_the_same_is_rarely_called_different() -> None:
    wrong = sum(verdict(drawn(8, seed=seed), drawn(8, seed=seed + 1000), "s") in ("slower", "faster") for seed in range(200))
    assert wrong <= 6
    sizes = sum(verdict(drawn(8, seed=seed), drawn(8, seed=seed + 1000), "B") in ("slower", "faster") for seed in range(200))
    assert sizes == 0


def test_drift_that_falls_on_both_arms_cancels() -> None:
    drift = np.exp(np.linspace(0, 2, 10))
    assert verdict(list(drift), list(1.1 * drift * np.asarray(drawn(10, spread=0.005))), "s") == "slower"


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ([100.0] * 2, [110.0] * 2, "slower"),
        ([100.0] * 2, [90.0] * 2, "faster"),
        ([100.0] * 2, [101.0] * 2, "same"),
        ([100.0], [110.0], "unclear"),
        ([100.0, 100.1, 100.2], [110.0, 110.1, 110.2], "unclear"),
        ([100.0, 100.1] * 3, [110.0, 110.1] * 3, "slower"),
        ([100.0, 120.0] * 3, [110.0, 130.0] * 3, "unclear"),
    ],
)
def test_sizes_that_never_change_are_known_from_two_and_others_from_six(base: list[float], head: list[float], said: str) -> None:
    assert verdict(base, head, "B") == said


@pytest.mark.parametrize(("base", "head"), [([], []), ([1.0], [1.0, 2.0]), ([0.0] * 8, [1.0] * 8)])
def test_what_cannot_be_divided_is_no_part(base: list[float], head: list[float]) -> None:
    assert weigh_values(base, head, "B") is None


def test_few_times_have_no_interval() -> None:
    assert verdict([1.0] * 5, [2.0] * 5, "s") == "unclear"
