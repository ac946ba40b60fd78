"""Reads kernels from Nsight Compute's CSV, in plain units, for every pass that runs a program under `ncu`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

COLUMNS = {
    "duration": "gpu__time_duration.sum",
    "dram_bytes": "dram__bytes.sum",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
}
UNITS = {
    "ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0,
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12, "%": 0.01,
}  # fmt: skip
RANGE_COLUMNS = ("Push/Pop_Range", "Start/Stop_Range")


@dataclass(frozen=True)
class Kernel:
    """One kernel of the profiled call in seconds, bytes and shares; None where this device has no such counter."""

    name: str
    duration: float | None
    dram_bytes: float | None
    occupancy: float | None
    tensor: float | None


def marked(text: str) -> list[tuple[Kernel, str]]:
    """Return the kernels of a CSV page in the order of their launch.

    Each comes with ncu's text of the NVTX ranges it was launched in, which is empty if ncu did not record them.
    """
    rows = csv.reader(io.StringIO("\n".join(_table_lines(text))))
    names = next(rows, [])
    if "Kernel Name" not in names:
        return []
    found = _details(names, rows) if "Metric Name" in names else _raw(names, rows)
    return [(Kernel(fields["Kernel Name"], **values), _ranges(fields)) for fields, values in found]


Row = tuple[Mapping[str, str], dict[str, float | None]]


def _raw(names: Sequence[str], rows: Iterator[list[str]]) -> Iterator[Row]:
    """`--page raw`: a line of names, a line of units, then one line per kernel."""
    factors = dict(zip(names, map(_factor, next(rows, [])), strict=False))
    for row in rows:
        if len(row) == len(names):
            fields = dict(zip(names, row, strict=True))
            yield fields, {key: _number(fields.get(column, ""), factors.get(column, 1.0)) for key, column in COLUMNS.items()}


def _details(names: Sequence[str], rows: Iterator[list[str]]) -> Iterator[Row]:
    """`--page details`, ncu's default: one line per kernel and metric, each with its unit."""
    keys = {column: key for key, column in COLUMNS.items()}
    kernels: dict[tuple[str, str], Row] = {}
    for row in rows:
        if len(row) == len(names):
            fields = dict(zip(names, row, strict=True))
            _, values = kernels.setdefault((fields.get("Process ID", ""), fields.get("ID", "")), (fields, dict.fromkeys(COLUMNS)))
            if key := keys.get(fields["Metric Name"]):
                values[key] = _number(fields.get("Metric Value", ""), _factor(fields.get("Metric Unit", "")))
    yield from kernels.values()


def _ranges(fields: Mapping[str, str]) -> str:
    return " ".join(value for name, value in fields.items() if any(part in name for part in RANGE_COLUMNS))


def _table_lines(text: str) -> Iterator[str]:
    """Yield the lines of the table alone: ncu prints messages before it and between its lines."""
    begun = False
    for line in text.splitlines():
        begun = begun or line.startswith('"ID"')
        if begun and not line.startswith("==") and line.strip():
            yield line


def _factor(unit: str) -> float:
    return UNITS.get(unit.strip().lower(), 1.0)


def _number(text: str, factor: float) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value * factor if math.isfinite(value) else None


def lacking(said: str, metrics: Sequence[str]) -> list[str]:
    """Return the metrics that this device does not have, as reported by ncu."""
    return [name for name in metrics if re.search(rf"Failed to find metric.*{re.escape(name)}", said)]


def last_words(said: str) -> str:
    """Return a tool's own errors if it printed any, else its last lines."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return "; ".join(errors[:3] or lines[-3:])[:500]
