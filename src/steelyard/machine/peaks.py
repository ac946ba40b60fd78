"""The highest rates of this machine: measured once and kept per user, with vendors' figures for known GPUs."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from steelyard.machine.kept import Shelf, quantity

SCHEMA = 1


@dataclass(frozen=True)
class Peaks:
    """Highest rates of one device: FLOP/s per number format and bytes per second; `cases` has the case that gave each.

    `left_out` are formats that could not be measured here, and why; `filled` those whose rate is the vendor's among measured ones.
    """

    compute: Mapping[str, float]
    bandwidth: float
    source: Literal["measured", "datasheet"] = "measured"
    name: str = ""
    cases: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    filled: tuple[str, ...] = ()

    def source_of(self, format: str) -> str:
        """The source of one number format's rate."""
        return "datasheet" if format in self.filled else self.source


def _sheet(name: str, bandwidth: float, fp64: float | None, fp32: float, tf32: float, half: float, int8: float, fp8: float | None) -> Peaks:
    table = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "bf16": half, "fp16": half, "int8": int8, "fp8e4m3": fp8, "fp8e5m2": fp8}
    return Peaks({key: value * 1e12 for key, value in table.items() if value is not None}, bandwidth * 1e12, "datasheet", name)


DATASHEETS: tuple[tuple[str, Peaks], ...] = (
    (r"H100 80GB HBM3", _sheet("NVIDIA H100 SXM", 3.35, 67, 67, 494.7, 989.4, 1978.9, 1978.9)),
    (r"H100 PCIe", _sheet("NVIDIA H100 PCIe", 2.0, 51, 51, 378, 756.5, 1513, 1513)),
    (r"H200", _sheet("NVIDIA H200 SXM", 4.8, 67, 67, 494.7, 989.4, 1978.9, 1978.9)),
    (r"A100-(SXM4|PCIE)-40GB", _sheet("NVIDIA A100 40GB", 1.555, 19.5, 19.5, 156, 312, 624, None)),
    (r"A100-SXM4-80GB", _sheet("NVIDIA A100 80GB SXM", 2.039, 19.5, 19.5, 156, 312, 624, None)),
    (r"A100 80GB PCIe", _sheet("NVIDIA A100 80GB PCIe", 1.935, 19.5, 19.5, 156, 312, 624, None)),
    (r"L4", _sheet("NVIDIA L4", 0.3, None, 30.3, 60, 121, 242, 242)),
    (r"L40S", _sheet("NVIDIA L40S", 0.864, None, 91.6, 183, 362.05, 733, 733)),
    (r"GeForce RTX 4090", _sheet("NVIDIA GeForce RTX 4090", 1.008, 1.29, 82.6, 82.6, 165.2, 660.6, 330.3)),
    (r"B200", _sheet("NVIDIA B200", 8.0, 37, 75, 1100, 2250, 4500, 4500)),
    (r"(Instinct )?MI300X", _sheet("AMD Instinct MI300X", 5.3, 163.4, 163.4, 653.7, 1307.4, 2614.9, 2614.9)),
)
"""Vendor datasheets: TFLOP/s of the fastest units, dense (no sparsity), and TB/s; the half formats and float8 accumulate in fp32."""


@functools.lru_cache(64)
def datasheet(name: str | None) -> Peaks | None:
    """The vendor's figures for a GPU by the name its driver gives it; a cut-down or partitioned one has none."""
    plain = re.sub(r"^(NVIDIA|AMD)\s+", "", (name or "").strip())
    return next((sheet for pattern, sheet in DATASHEETS if re.fullmatch(pattern, plain)), None)


def choose(measured: Peaks | None, name: str | None) -> Peaks | None:
    """Peaks of a device: as measured here if it is that device, the vendor's for other formats; else the vendor's, or None."""
    if measured is None or (name and measured.name and measured.name != name):
        return datasheet(name)
    sheet = datasheet(name or measured.name)
    promised = {format: rate for format, rate in sheet.compute.items() if format not in measured.compute} if sheet else {}
    return replace(measured, compute={**measured.compute, **promised}, filled=tuple(promised)) if promised else measured


def _decode(data: Mapping[str, Any]) -> Peaks:
    compute = {str(name): quantity(value) for name, value in data["compute"].items()}
    told = {"left_out": {}, **data}
    cases, versions, left = ({str(name): str(value) for name, value in told[part].items()} for part in ("cases", "versions", "left_out"))
    return Peaks(compute, quantity(data["bandwidth"]), "measured", str(data["name"]), cases, versions, str(data["measured"]), left)


SHELF = Shelf("peaks", SCHEMA, _decode)
path, load, saved, save, check_writable = SHELF.path, SHELF.load, SHELF.saved, SHELF.save, SHELF.check_writable
