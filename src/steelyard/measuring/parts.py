"""Times inside a run, such as that to the first token: their figures over all runs, and the raw series behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steelyard.measuring.stats import median_interval, quantile_interval, time_figure
from steelyard.model.record import Arrays, Figure
from steelyard.model.task import Amounts, Reading

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
RUNS = "request_time"
"""The raw series of whole runs."""
_RATES = (("compute", "flops", "FLOP/s"), ("bandwidth", "bytes", "B/s"))


def figures(readings: Sequence[Reading], amounts: Mapping[str, Amounts]) -> dict[str, Figure]:
    """Each part's median over runs, percentiles of all raw times of a kind if there are enough, and rates for the amounts of each part."""
    found: dict[str, Figure] = {}
    for name in sorted({name for reading in readings for name in reading.parts}):
        values = np.asarray([reading.parts[name] for reading in readings if name in reading.parts], float) * 1e-9
        found[name] = time_figure(median_interval(values))
        found.update(_rates(name, found[name], amounts.get(name)))
    for name in sorted({name for reading in readings for name in reading.series}):
        every = np.asarray([value for reading in readings for value in reading.series.get(name, ())], float) * 1e-9
        for label, share in PERCENTILES:
            if tail := quantile_interval(every, share):
                found[f"{name}_{label}"] = time_figure(tail)
    return found


def _rates(name: str, time: Figure, does: Amounts | None) -> dict[str, Figure]:
    found = {}
    for label, kind, unit in _RATES if does and time.value > 0 else ():
        amount = getattr(does, kind)
        if amount:
            low, high = (amount / end if end else None for end in (time.high, time.low))
            found[f"{name}_{label}"] = Figure(amount / time.value, unit, "higher", low, high, time.n)
    return found


def arrays(readings: Sequence[Reading]) -> Arrays:
    """All raw times in whole nanoseconds, run after run."""
    names = sorted({name for reading in readings for name in reading.series})
    if not names:
        return {}
    kept = {RUNS: [round(reading.seconds * 1e9) for reading in readings]}
    kept |= {f"request_{name}": [value for reading in readings for value in reading.series.get(name, ())] for name in names}
    return {name: ("ns", "<i8", np.asarray(values, "<i8").tobytes()) for name, values in kept.items()}


def extras(readings: Sequence[Reading]) -> dict[str, Figure]:
    """The median of everything else that runs report."""
    units = {"peak_memory": "B"}
    names = {name for reading in readings for name in reading.extras}
    medians = {name: float(np.median([reading.extras[name] for reading in readings if name in reading.extras])) for name in sorted(names)}
    return {name: Figure(value, units.get(name, "s"), "lower", n=len(readings)) for name, value in medians.items()}
