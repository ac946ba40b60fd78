"""The peers' rules for "it changed", written from their documents, for blocks that were collected by us.

Each takes the seconds per call of both arms in order of time, and says +1 for slower, -1 for faster, 0 for neither, with
its estimate of the log-ratio. What a peer calls a value is a mean over many calls, so blocks are averaged to as many
values as the peer takes by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

VALUES = 12
CRITERION_SAMPLES, RESAMPLES, CRITERION_NOISE = 100, 2000, 0.01
LEVEL, ASV_LEVEL, ASV_FACTOR = 0.05, 0.002, 1.1
PYTEST_LIMIT = 0.05
SEED = 7

Floats = np.ndarray[Any, np.dtype[np.float64]]
Rule = Callable[[Floats, Floats], tuple[int, float]]


def values(blocks: Floats, count: int) -> Floats:
    """Means over equal stretches of time."""
    return np.asarray([part.mean() for part in np.array_split(blocks, min(count, len(blocks)))])


def pyperf(base: Floats, head: Floats) -> tuple[int, float]:
    """`compare_to`: Student's t, pooled variance, two-sided at 95 %, values taken as independent."""
    x, y = values(base, VALUES), values(head, VALUES)
    change = _log_ratio(y.mean(), x.mean())
    return _sign(change, stats.ttest_ind(x, y).pvalue < LEVEL), change


def criterion(base: Floats, head: Floats) -> tuple[int, float]:
    """A bootstrapped t-test at 0.05, and the 95 % interval of the change of means wholly outside 1 %; 2000 resamples, not 100 000."""
    x, y = values(base, CRITERION_SAMPLES), values(head, CRITERION_SAMPLES)
    change, rng = _log_ratio(y.mean(), x.mean()), np.random.default_rng(SEED)
    pool = np.concatenate([x, y])
    mixed = pool[rng.integers(0, len(pool), (RESAMPLES, len(pool)))]
    chance = float(np.mean(np.abs(_welch(mixed[:, : len(x)], mixed[:, len(x) :])) >= abs(float(_welch(x, y)))))
    means = [part[rng.integers(0, len(part), (RESAMPLES, len(part)))].mean(axis=1) for part in (x, y)]
    low, high = np.quantile(means[1] / means[0] - 1, [LEVEL / 2, 1 - LEVEL / 2])
    return _sign(change, chance < LEVEL and (low > CRITERION_NOISE or high < -CRITERION_NOISE)), change


def google_benchmark(base: Floats, head: Floats) -> tuple[int, float]:
    """`compare.py`: Mann-Whitney at 0.05 over repetitions."""
    return _mann_whitney(base, head, LEVEL, 1.0)


def asv(base: Floats, head: Floats) -> tuple[int, float]:
    """`asv compare`: Mann-Whitney at 0.002, and a factor of 1.1 between the medians."""
    return _mann_whitney(base, head, ASV_LEVEL, ASV_FACTOR)


def pytest_benchmark(base: Floats, head: Floats) -> tuple[int, float]:
    """`--benchmark-compare-fail=median:5%`, which knows slower alone."""
    change = _log_ratio(float(np.median(head)), float(np.median(base)))
    return int(change > math.log1p(PYTEST_LIMIT)), change


RULES: dict[str, Rule] = {
    "pyperf t-test": pyperf,
    "criterion": criterion,
    "google benchmark": google_benchmark,
    "asv": asv,
    "pytest-benchmark median:5%": pytest_benchmark,
}


def apply_all(base: Floats, head: Floats) -> dict[str, tuple[int, float]]:
    """What every peer's rule says of the same blocks."""
    return {name: rule(base, head) for name, rule in RULES.items()}


def _mann_whitney(base: Floats, head: Floats, level: float, factor: float) -> tuple[int, float]:
    x, y = values(base, VALUES), values(head, VALUES)
    change = _log_ratio(float(np.median(y)), float(np.median(x)))
    chance = stats.mannwhitneyu(x, y, alternative="two-sided").pvalue
    return _sign(change, chance < level and abs(change) >= math.log(factor)), change


def _welch(x: Floats, y: Floats) -> Floats:
    spread = np.sqrt(x.var(axis=-1, ddof=1) / x.shape[-1] + y.var(axis=-1, ddof=1) / y.shape[-1])
    found: Floats = (y.mean(axis=-1) - x.mean(axis=-1)) / np.maximum(spread, 1e-300)
    return found


def _log_ratio(head: float, base: float) -> float:
    return math.log(head / base)


def _sign(change: float, stands: bool) -> int:
    return (change > 0) - (change < 0) if stands else 0
