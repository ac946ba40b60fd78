"""Names of the figures that a pair reports besides the time of a call, as used in records, pairs and reports.

A request of text generation has times within the request; compiled code has a compile time, a size and a memory use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOLD = ("ttft", "itl")
"""Time to the first token, and between two tokens. Each has its own column and verdict besides the whole time."""
COMPILED = ("compile_time", "compile_cpu_time", "code_size", "compile_memory", "peak_memory")
"""Figures by which compilers are compared besides the time of a call. Each has its own verdict."""
WEIGHED = (*TOLD, *COMPILED)
"""All figures that have a verdict besides the time."""
NAMES = {
    "time": "E2E", "ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "compile_time": "compile", "compile_cpu_time": "compile CPU",
    "code_size": "code size", "compile_memory": "compile memory", "peak_memory": "peak memory", "program_memory": "program memory",
}  # fmt: skip
"""Display names."""
TOKENS = "tok/s"
"""Unit of the item rate of text generation, whose items are tokens."""
OPERATOR = "op:"
"""Prefix of metrics with the time of one kind of operator in a replay: `op:aten::mm`."""
_TIMES = (*TOLD, "tpot", "tail")
_RATES = ("compute", "bandwidth", "roof")


def is_time(metric: str) -> bool:
    """Whether a metric is a time, so that more of it is slower."""
    name, _, rest = metric.partition("_")
    return metric.startswith(OPERATOR) or "time" in metric or (name in _TIMES and rest not in _RATES)


def is_secondary(metric: str) -> bool:
    """Whether a figure is a detail of a request or a replay, which `show` and files have but tables leave out."""
    return metric == "equal_tokens" or metric.startswith(OPERATOR) or (metric not in TOLD and metric.partition("_")[0] in _TIMES)


def generates(metrics: Mapping[str, Any]) -> bool:
    """Whether these are the figures of a text generation request."""
    return TOLD[0] in metrics
