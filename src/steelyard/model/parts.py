"""What a pair reports besides the time of a call, by the names used in records, pairs and reports.

Requests of text generation have times inside of them, and compiled code has a compile time, a size and a memory use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOLD = ("ttft", "itl")
"""Each has a column and a verdict of its own beside the whole time: to the first token, and between two tokens."""
COMPILED = ("compile_time", "compile_cpu_time", "code_size", "compile_memory", "peak_memory")
"""What compilers are compared by beside the time of a call: each has a verdict of its own."""
WEIGHED = (*TOLD, *COMPILED)
"""All that has a verdict beside the time."""
NAMES = {
    "time": "E2E", "ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "compile_time": "compile", "compile_cpu_time": "compile CPU",
    "code_size": "code size", "compile_memory": "compile memory", "peak_memory": "peak memory", "program_memory": "program memory",
}  # fmt: skip
"""Display names."""
TOKENS = "tok/s"
"""The unit of the rate of items, which are tokens here."""
OPERATOR = "op:"
"""Prefix of metrics with the time of one kind of operator in a replay: `op:aten::mm`."""
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
