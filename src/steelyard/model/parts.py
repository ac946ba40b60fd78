"""The times inside of a request of text generation, by the names that records, pairs and reports have for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOLD = ("ttft", "itl")
"""Each has a column and a verdict of its own beside the whole time: to the first token, and between two tokens."""
NAMES = {"time": "E2E", "ttft": "TTFT", "itl": "ITL", "tpot": "TPOT"}
"""What people call them."""
TOKENS = "tok/s"
"""The unit of the rate of items, which are tokens here."""
OPERATOR = "op:"
"""How the time of one kind of operator in a replay begins: `op:aten::mm`."""
_TIMES = (*TOLD, "tpot", "tail")
_RATES = ("compute", "bandwidth", "roof")


def is_time(metric: str) -> bool:
    """Whether a metric is a time, so that more of it is slower."""
    name, _, rest = metric.partition("_")
    return metric.startswith(OPERATOR) or "time" in metric or (name in _TIMES and rest not in _RATES)


def is_secondary(metric: str) -> bool:
    """Whether a figure only adds to those of a request or a replay: `show` and files have it, tables leave it out."""
    return metric == "equal_tokens" or metric.startswith(OPERATOR) or (metric not in TOLD and metric.partition("_")[0] in _TIMES)


def generates(metrics: Mapping[str, Any]) -> bool:
    """Whether these are the figures of requests."""
    return TOLD[0] in metrics
