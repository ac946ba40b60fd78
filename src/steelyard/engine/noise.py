"""Measuring which changes this machine can detect: a few cases are compared with themselves, like any other comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from steelyard.engine import conduct
from steelyard.engine.plan import Plan
from steelyard.errors import NothingMeasured
from steelyard.machine.kept import settled_threads
from steelyard.machine.noise import CaseNoise, DeviceNoise
from steelyard.measuring.effort import FEWEST_REBUILDS, MOST_REBUILDS
from steelyard.measuring.stats import t_quantile
from steelyard.model.experiment import BUDGETS, Experiment, Matrix, Settings
from steelyard.model.pair import ALPHA, Pair
from steelyard.model.record import Record, unweighed

BUDGET = BUDGETS["normal"]
LENGTHS = (1.0, 5.0, 30.0)
SEEN = 0.9
CAUTION = 0.9
FEWEST_CENTRES = 4
LARGEST = 50.0
MOST_WORTH = 1e9


def experiment(machine: Mapping[str, Any], device: str, threads: int, budget: float = BUDGET) -> Experiment:
    """Return small cases of different kinds: a call of microseconds, arithmetic, rows in memory, a layer of about a millisecond."""
    torch = device != "cpu" or (machine.get("packages") or {}).get("torch")
    sizes: dict[str, dict[str, Any]] = {
        "op/gelu": {"n": 4096},
        "op/matmul": {"m": 112, "n": 112, "k": 112},
        "op/softmax": {"m": 64, "n": 4096},
        "layer/mlp": {},
    }
    if device != "cpu":
        sizes["op/matmul"] = {"m": 512, "n": 512, "k": 512, "dtype": "bf16"}
        sizes["op/softmax"] = {"m": 4096, "n": 4096}
        sizes["layer/mlp"] = {"seq": 1024, "hidden": 2048, "ffn": 5504, "dtype": "bf16"}
    how: dict[str, Any] = {"backend": ("torch" if torch else "numpy",), "device": (device,), "threads": (settled_threads(device, threads),)}
    matrix = tuple(Matrix((name,), {axis: (value,) for axis, value in chosen.items()}, **how) for name, chosen in sizes.items())
    return Experiment("noise", matrix=matrix, settings=Settings(budget=budget, verify=False, settle=0))


def against_itself(chosen: Experiment) -> Plan:
    """Return a plan that compares every case of an experiment with itself, built separately: any difference is noise."""
    ready = conduct.from_experiment(chosen)
    return replace(ready, jobs=tuple(replace(job, vs=job.case) for job in ready.jobs), pairs=(), rows=())


def learn(records: Sequence[Record], pairs: Sequence[Pair]) -> DeviceNoise:
    """Return the noise of each case whose comparison with itself was made."""
    cases = {pair.head.id: _case(pair) for pair in pairs if len(pair.centres) >= FEWEST_CENTRES and pair.measured_s > 0}
    if not cases:
        raise NothingMeasured("no noise could be measured", why=next(iter(left_out(records, cases)), "no case was compared with itself"))
    return DeviceNoise(cases, datetime.now(UTC).isoformat(timespec="seconds"))


def left_out(records: Sequence[Record], cases: Mapping[str, CaseNoise]) -> list[str]:
    """Return which cases give no noise, and why."""
    missing, unmade = [record for record in records if record.id not in cases], unweighed(records)
    return [f"{record.id}: {record.reason or unmade.get(record.id) or 'too few rebuilds were undisturbed'}" for record in missing]


def _case(pair: Pair) -> CaseNoise:
    rebuilds = len(pair.centres)
    return CaseNoise(statistics.stdev(pair.centres), pair.measured_s / rebuilds, pair.floor, rebuilds)


def smallest_change(case: CaseNoise, seconds: float) -> float:
    """Return about the smallest change, as a share, that the intervals of 9 in 10 comparisons of this length would show.

    Few rebuilds estimate an SD poorly, so an upper bound is used. The power of a t-test is that of the noncentral t
    distribution, by its normal approximation. A comparison that has all its rebuilds gives each more rounds, so its variance
    keeps falling with time; at which point only the differences between rebuilds remain is unknown here.
    """
    worth = int(min(MOST_WORTH, max(FEWEST_REBUILDS, seconds / case.cost)))
    freedom = min(MOST_REBUILDS, worth) - 1
    edge = t_quantile(1 - ALPHA / 4, freedom)
    asked = edge * (1 - 1 / (4 * freedom)) + statistics.NormalDist().inv_cdf(SEEN) * math.sqrt(1 + edge**2 / (2 * freedom))
    return math.expm1(min(LARGEST, asked * cautious(case) / math.sqrt(worth)))


def cautious(case: CaseNoise) -> float:
    """Return an upper bound of the SD, which the true one exceeds in only one of ten measurements."""
    freedom = case.rebuilds - 1
    return case.sd * math.sqrt(freedom / chi2_quantile(1 - CAUTION, freedom))


def chi2_quantile(p: float, freedom: float) -> float:
    """Return a quantile of chi-square after Wilson and Hilferty: its cube root is nearly normal."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + statistics.NormalDist().inv_cdf(p) * math.sqrt(part)) ** 3)
