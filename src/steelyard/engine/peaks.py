"""Measuring this machine's highest rates: matrix products and copies, through the engine like any other case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steelyard.errors import NothingMeasured
from steelyard.machine.kept import settled_threads
from steelyard.machine.peaks import Peaks
from steelyard.model.experiment import BUDGETS, Experiment, Matrix, Settings
from steelyard.model.record import Record

BUDGET = BUDGETS["quick"]
PLAIN, MEMORY = "op/matmul", ("op/copy", "op/triad")
NARROW = {"int8": "op/int_matmul", "fp8e4m3": "op/scaled_matmul"}
"""Formats whose products have kernels of their own; what a device cannot multiply is left out, with the reason."""
TF32 = "tf32"
"""The rate that is not for a format of its own but for a variant of fp32."""

Run = Callable[[Experiment], Sequence[Record]]


@dataclass(frozen=True)
class Saturation:
    """Problem sizes that saturate a kind of device: a first matrix size, larger ones to try, seconds that one product may take."""

    probe: int
    larger: tuple[int, ...]
    patience: float
    elements: int


def measure(run: Run, machine: Mapping[str, Any], device: str, threads: int, *, budget: float = BUDGET, scale: float = 1.0) -> Peaks:
    """Measure the best rates of matrix products and copies: all formats at a modest size, then the fast ones at two large sizes.

    The largest is not always the fastest: a GPU at its power limit lowers its clock in the longest products.
    """
    effort, backend = _effort(machine, device, threads), "torch"
    if device == "cpu" and not (machine.get("packages") or {}).get("torch"):
        backend = "numpy"
    how: dict[str, Any] = {"backend": (backend,), "device": (device,), "threads": (settled_threads(device, threads),)}
    settings = Settings(budget=budget, verify=False)
    probe, elements = max(32, round(effort.probe * scale)), max(4096, round(effort.elements * scale))
    memory = Matrix(MEMORY, {"n": (elements,), "dtype": ("fp32",)}, variant=("eager",), **how)
    formats = ("fp32", "fp64") if backend == "numpy" else ("fp32", "fp64", "bf16", "fp16", *NARROW)
    formats += (TF32,) if device == "cuda" else ()
    products = [_product(name, probe, how) for name in formats]
    records = list(run(Experiment("peaks", matrix=(*products, memory), settings=settings)))
    sizes = {name: _larger(rate, effort, scale) for name, (rate, _) in best(records, "compute").items()}
    again = [_product(name, n, how) for name, found in sizes.items() for n in found]
    if again:
        records += run(Experiment("peaks, larger", matrix=tuple(again), settings=settings))
    return _settle(records)


def _effort(machine: Mapping[str, Any], device: str, threads: int) -> Saturation:
    if device != "cpu":
        return Saturation(2048, (8192, 4096), 0.1, 2**27)
    caches = (machine.get("cpu") or {}).get("caches") or {}
    largest = max((size for size in caches.values() if size), default=2**25)
    wanted = min(max(4 * largest * min(threads, 8), 2**26), 2**29)
    available = (machine.get("memory") or {}).get("available") or 2**33
    return Saturation(512, (4096, 2048, 1024), 0.05, max(4096, min(wanted, available // 16) // 4))


def _product(name: str, n: int, how: Mapping[str, Any]) -> Matrix:
    """Return a square product in one number format."""
    dtype, variant = ("fp32", TF32) if name == TF32 else (name, "eager")
    return Matrix((NARROW.get(name, PLAIN),), {"m": (n,), "n": (n,), "k": (n,), "dtype": (dtype,)}, variant=(variant,), **how)


def _format(record: Record) -> str:
    """Return the number format that a product was measured for."""
    return TF32 if record.case["variant"] == TF32 else str(record.case["params"]["dtype"])


def _larger(rate: float, effort: Saturation, scale: float) -> list[int]:
    sizes = [round(n * scale) for n in effort.larger]
    return [n for n in sizes if n > effort.probe * scale and 2 * n**3 / rate <= effort.patience][:2]


def best(records: Sequence[Record], metric: str) -> dict[str, tuple[float, str]]:
    """Return the highest rate per number format and the case that gave it, by the time that nine of ten samples exceed."""
    found: dict[str, tuple[float, str]] = {}
    for record in records:
        figure, time, fast = (record.metrics.get(name) for name in (metric, "time", "time_q10"))
        wanted = (record.case["workload"] in MEMORY) == (metric == "bandwidth")
        if record.status != "ok" or not wanted or figure is None or time is None or fast is None or not fast.value > 0:
            continue
        rate = figure.value * time.value / fast.value
        found[_format(record)] = max(found.get(_format(record), (0.0, "")), (rate, record.id))
    return found


def _settle(records: Sequence[Record]) -> Peaks:
    compute, memory = best(records, "compute"), best(records, "bandwidth")
    if not compute or not memory:
        lacking = (record for record in records if (record.case["workload"] in MEMORY) == bool(compute))
        failed = next((record for record in lacking if record.status != "ok"), None)
        raise NothingMeasured("no peaks could be measured", why=f"{failed.id}: {failed.reason}" if failed else "no case gave a rate")
    rate, case = max(memory.values())
    worked = next(record for record in records if record.id == case)
    products = [record for record in records if record.case["workload"] not in MEMORY]
    left_out = {_format(record): record.reason or record.status for record in products if _format(record) not in compute}
    return Peaks(
        {name: value for name, (value, _) in compute.items()}, rate, "measured", str(worked.environment.get("device", "")),
        {**{name: id for name, (_, id) in compute.items()}, "memory": case},
        {str(name): str(version) for name, version in worked.environment.items()}, datetime.now(UTC).isoformat(timespec="seconds"),
        left_out,
    )  # fmt: skip
