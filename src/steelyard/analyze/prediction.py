"""Predicts how long a step takes from measurements of its calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steelyard.model.record import Record


@dataclass(frozen=True)
class StepPrediction:
    """The time of all calls of a step, in seconds, with a 95 % interval; `recorded` is the step's time when it was recorded.

    `calls` counts the calls with a time, `missing` those of cases without one. Time between calls is not included.
    """

    seconds: float
    low: float | None
    high: float | None
    calls: float
    missing: float
    recorded: float | None = None


def predict(records: Sequence[Record], weights: Mapping[str, float], recorded: float | None = None) -> StepPrediction | None:
    """The sum of each case's time multiplied by its number of calls; None if no case has a weight and a time.

    Errors of cases that were measured one after another are independent, so their squares add up.
    """
    times = {record.id: record.metrics["time"] for record in records if record.status in ("ok", "wrong") and "time" in record.metrics}
    known = [(weight, times[case]) for case, weight in weights.items() if case in times]
    if not known:
        return None
    seconds = math.fsum(weight * time.value for weight, time in known)
    ends: list[float | None] = []
    for side in ("low", "high"):
        parts = [(weight, time.value, getattr(time, side)) for weight, time in known]
        spread = None if any(end is None for *_, end in parts) else math.hypot(*(weight * (end - value) for weight, value, end in parts))
        ends.append(None if spread is None else seconds + (spread if side == "high" else -spread))
    calls = math.fsum(weight for weight, _ in known)
    return StepPrediction(seconds, ends[0], ends[1], calls, math.fsum(weights.values()) - calls, recorded)
