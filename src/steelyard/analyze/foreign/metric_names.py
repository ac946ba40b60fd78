"""What the name of a metric says: which of our metrics it is, its unit, and which direction is better. The database stores none of these.
The direction follows from the words of a name; a metric with an unknown name is shown, but never called better or worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from steelyard.model.record import FEWEST, Figure

Better = Literal["lower", "higher", "none"]

SHOWN = {
    "s": ("ms", 1e-3), "B": ("MB", 1e6), "B/s": ("GB/s", 1e9), "FLOP/s": ("TFLOP/s", 1e12), "J": ("mJ", 1e-3), "FLOP/J": ("GFLOP/J", 1e9),
}  # fmt: skip
"""For each of our units, the unit that dashboards show, and how much of ours one of it is."""
UNITS: dict[str, tuple[str, float]] = {
    "s": ("s", 1.0), "sec": ("s", 1.0), "secs": ("s", 1.0), "second": ("s", 1.0), "seconds": ("s", 1.0),
    "ms": ("s", 1e-3), "msec": ("s", 1e-3), "milliseconds": ("s", 1e-3), "us": ("s", 1e-6), "µs": ("s", 1e-6), "ns": ("s", 1e-9),
    "b": ("B", 1.0), "bytes": ("B", 1.0), "kb": ("B", 1e3), "mb": ("B", 1e6), "gb": ("B", 1e9),
    "kib": ("B", 2.0**10), "mib": ("B", 2.0**20), "gib": ("B", 2.0**30),
    "gb/s": ("B/s", 1e9), "gbps": ("B/s", 1e9), "tb/s": ("B/s", 1e12),
    "gflops": ("FLOP/s", 1e9), "gflop/s": ("FLOP/s", 1e9), "tflops": ("FLOP/s", 1e12), "tflop/s": ("FLOP/s", 1e12),
    "j": ("J", 1.0), "mj": ("J", 1e-3), "gflop/j": ("FLOP/J", 1e9), "tflop/j": ("FLOP/J", 1e12),
    "x": ("1", 1.0), "": ("1", 1.0), "1": ("1", 1.0),
}  # fmt: skip
HIGHER = (
    "speedup", "throughput", "bandwidth", "tflops", "gflops", "flops", "gbps", "tps", "qps", "rps", "accuracy", "passrate", "pass rate",
    "compression", "sqnr", "cosine", "efficiency", "utilization", "tokens per second", "token per sec", "tokens per sec",
    "samples per second",
)  # fmt: skip
LOWER = (
    "time", "latency", "duration", "memory", "mem", "bytes", "ttft", "tpot", "itl", "loss", "error", "energy", "power", "elapsed",
    "breaks", "size", "perplexity",
)  # fmt: skip
PRIMARY = ("time", "latency", "execution_time", "inference_time", "fwd_time", "quantized_fwd_time", "avg_inference_time", "mean_latency",
           "median_latency")  # fmt: skip
"""Names that benchmarks give their main time."""
_ENDING = re.compile(r"[_ ](ms|us|ns|sec|seconds|mb|gb|mib|gib|gbps|tflops)$")
_UNIT = re.compile(r"^(.*?)\s*\(([^()]{0,20})\)\s*$", re.DOTALL)


def split(name: str) -> tuple[str, str]:
    """Split `Quantized Fwd Time (ms)` into name and unit; brackets without a known unit are part of the name."""
    found = _UNIT.match(name)
    return (found[1], found[2]) if found and found[2].strip().lower() in UNITS else (name, "")


def spelled(name: str) -> str:
    """A metric's name without its unit, spelled like our figures: `quantized_fwd_time`."""
    plain = re.sub(r"[^a-z0-9/.+-]+", "_", split(name)[0].lower()).strip("_")
    return plain or "value"


def figure_name(name: str, unit: str) -> str:
    """Our name for a metric in one of our units: a benchmark's main time is `time`, if its unit is known."""
    plain = spelled(name)
    if unit == "s" and _ENDING.sub("", plain) in PRIMARY:
        return "time"
    return "time_in_unknown_unit" if plain == "time" else plain


def direction(name: str) -> Better:
    """Which direction is better, by the words of a name; `latency speedup` counts as a speedup, since HIGHER is searched first."""
    words = " " + re.sub(r"[^a-z0-9]+", " ", split(name)[0].lower()) + " "
    for better, known in (("higher", HIGHER), ("lower", LOWER)):
        if any(f" {word} " in words for word in known):
            return "higher" if better == "higher" else "lower"
    return "none"


def written(name: str, unit: str) -> tuple[str, float]:
    """The unit that dashboards show for one of our figures, and how much of ours one of it is; a plain number is `x` only if a speedup."""
    if unit == "1" and "speedup" in name.lower():
        return "x", 1.0
    return SHOWN.get(unit, (unit, 1.0))


def titled(name: str, unit: str) -> str:
    """A metric's name with its unit, as dashboards show it: `time (ms)`; a plain number has no unit."""
    return f"{name} ({unit})" if unit not in ("", "1") else name


def told_unit(name: str, told: str) -> str:
    """The unit of a metric's values: from its record, else from its name, in brackets or at the end."""
    ending = _ENDING.search(name.lower())
    return (told or split(name)[1] or (ending[1] if ending else "")).strip()[:20]


def unit_of(name: str, told: str) -> tuple[str, float]:
    """Our unit for a metric's values, and how much of it one unit of the file is; an unknown unit is kept."""
    text = told_unit(name, told)
    return UNITS.get(text.lower(), (text, 1.0))


def figure(values: Iterable[float], unit: str, factor: float, better: Better) -> Figure:
    """The median of a metric's values, with its 95 % interval if there are enough values."""
    from statistics import median

    known = [value * factor for value in values]
    if len(known) < FEWEST:
        return Figure(median(known), unit, better, n=len(known))
    import numpy as np

    from steelyard.measuring.stats import median_interval

    found = median_interval(np.array(known, float))
    low, high = found.ends
    return Figure(found.centre, unit, better, low, high, len(known))
