"""Figures of a case: those of the sample itself, and those derived from time and the task."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from steelyard.measuring.metrics import check_amounts
from steelyard.measuring.sample import Sample
from steelyard.measuring.stats import quantile_interval, time_figure
from steelyard.model.define import Metric
from steelyard.model.record import Figure
from steelyard.model.task import Task


def figures(sample: Sample, task: Task, metrics: Iterable[Metric]) -> dict[str, Figure]:
    """Return all metrics of one sample, each with unit, direction, interval and n."""
    check_amounts(task)
    interval, net = sample.interval, sample.per_call
    found = {
        "time": time_figure(interval),
        **({"time_q10": Figure(max(0.0, float(np.quantile(net, 0.1))), "s", "lower", n=len(net))} if interval.centre > 0 else {}),
        "overhead": Figure(sample.overhead, "s", "none", max(0.0, sample.overhead - sample.doubt), sample.overhead + sample.doubt),
        "discarded": Figure(sample.discarded, "1", "none", n=len(sample.preempted)),
    }
    if sample.sampling == "calls":
        everything = sample.seconds / sample.calls - sample.overhead
        for name, share in (("time_p50", 0.5), ("time_p90", 0.9), ("time_p99", 0.99)):
            tail = quantile_interval(everything, share)
            if tail:
                found[name] = time_figure(tail)
    for item in metrics:
        figure = derive(item, found["time"], task)
        if figure:
            found[item.name] = figure
    return found


def derive(item: Metric, time: Figure, task: Task) -> Figure | None:
    """Apply a derived metric to the median and to both ends of its interval."""
    if not time.value > 0:
        return None
    value = item.compute(time.value, task)
    if value is None:
        return None
    ends = [item.compute(end, task) for end in (time.low, time.high) if end is not None and end > 0]
    known = [float(end) for end in ends if end is not None]
    low, high = (min(known), max(known)) if len(known) == 2 else (None, None)
    return Figure(float(value), item.unit, "higher" if item.better == "higher" else "lower", low, high, time.n)
