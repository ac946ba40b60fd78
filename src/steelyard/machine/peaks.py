"""What this machine can do at most: measured once and kept per user, with vendors' figures beside it for known GPUs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from steelyard.errors import NothingMeasured, StoreError
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import Record

VARIABLE = "STEELYARD_CACHE"
SCHEMA = 1
BUDGET = 0.3
_FILE = re.compile(r"[0-9a-f]{12}-([a-z]+)-([1-9][0-9]{0,4})\.json")

Run = Callable[[Experiment], Sequence[Record]]


@dataclass(frozen=True)
class Peaks:
    """Highest rates of one device: FLOP/s per number format and bytes per second; `cases` says which case gave each."""

    compute: Mapping[str, float]
    bandwidth: float
    source: Literal["measured", "datasheet"] = "measured"
    name: str = ""
    cases: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""


def _sheet(name: str, bandwidth: float, fp64: float | None, fp32: float, tf32: float, half: float) -> Peaks:
    table = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "bf16": half, "fp16": half}
    return Peaks({key: value * 1e12 for key, value in table.items() if value is not None}, bandwidth * 1e12, "datasheet", name)


DATASHEETS: tuple[tuple[str, Peaks], ...] = (
    (r"H100 80GB HBM3", _sheet("NVIDIA H100 SXM", 3.35, 67, 67, 494.7, 989.4)),
    (r"H100 PCIe", _sheet("NVIDIA H100 PCIe", 2.0, 51, 51, 378, 756.5)),
    (r"H200", _sheet("NVIDIA H200 SXM", 4.8, 67, 67, 494.7, 989.4)),
    (r"A100-(SXM4|PCIE)-40GB", _sheet("NVIDIA A100 40GB", 1.555, 19.5, 19.5, 156, 312)),
    (r"A100-SXM4-80GB", _sheet("NVIDIA A100 80GB SXM", 2.039, 19.5, 19.5, 156, 312)),
    (r"A100 80GB PCIe", _sheet("NVIDIA A100 80GB PCIe", 1.935, 19.5, 19.5, 156, 312)),
    (r"L4", _sheet("NVIDIA L4", 0.3, None, 30.3, 60, 121)),
    (r"L40S", _sheet("NVIDIA L40S", 0.864, None, 91.6, 183, 362.05)),
    (r"GeForce RTX 4090", _sheet("NVIDIA GeForce RTX 4090", 1.008, 1.29, 82.6, 82.6, 165.2)),
    (r"B200", _sheet("NVIDIA B200", 8.0, 37, 75, 1100, 2250)),
    (r"(Instinct )?MI300X", _sheet("AMD Instinct MI300X", 5.3, 163.4, 163.4, 653.7, 1307.4)),
)
"""Vendor datasheets: TFLOP/s of the fastest units, dense (no sparsity), and TB/s; the half formats accumulate in fp32."""


def datasheet(name: str | None) -> Peaks | None:
    """The vendor's figures for a GPU by the name its driver gives it; a cut-down or partitioned one has none."""
    plain = re.sub(r"^(NVIDIA|AMD)\s+", "", (name or "").strip())
    return next((sheet for pattern, sheet in DATASHEETS if re.fullmatch(pattern, plain)), None)


def choose(measured: Peaks | None, name: str | None) -> Peaks | None:
    """Peaks for a device: those measured here if it is that device, else the vendor's, else none."""
    if measured and (not name or not measured.name or measured.name == name):
        return measured
    return datasheet(name)


def settled_threads(device: str, threads: int) -> int:
    """An accelerator's peaks do not depend on how many CPU threads a case has."""
    return threads if device == "cpu" else 1


def folder() -> Path:
    """Where peaks are kept: per user, since they belong to the machine and not to a project."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen) / "peaks"
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "steelyard" / "peaks"


def path(key: str, device: str, threads: int) -> Path:
    """The file of one machine, device kind and number of threads."""
    name = f"{key}-{device}-{settled_threads(device, threads)}.json"
    if not _FILE.fullmatch(name):
        raise StoreError(f"no peaks can be kept under the name {name!r}")
    return folder() / name


def load(key: str, device: str, threads: int) -> tuple[Peaks | None, str]:
    """The peaks kept for a device, or none with a warning where there is a file that cannot be used."""
    try:
        file = path(key, device, threads)
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, StoreError, RuntimeError):
        return None, ""
    except (OSError, UnicodeDecodeError) as error:
        return None, _unusable(file, str(error))
    try:
        return _decode(json.loads(text), key), ""
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return None, _unusable(file, f"{type(error).__name__}: {error}")


def _unusable(file: Path, why: str) -> str:
    return f"{file} holds no peaks ({why}) and is ignored; write it again: steelyard doctor --peaks"


def _decode(data: Mapping[str, Any], key: str) -> Peaks:
    if data["schema"] != SCHEMA or data["key"] != key:
        raise ValueError(f"schema {data['schema']} of machine {data['key']}")
    compute = {str(name): _rate(value) for name, value in data["compute"].items()}
    cases, versions = ({str(name): str(value) for name, value in data[part].items()} for part in ("cases", "versions"))
    return Peaks(compute, _rate(data["bandwidth"]), "measured", str(data["name"]), cases, versions, str(data["measured"]))


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (0 < value < math.inf):
        raise ValueError(f"not a rate: {value!r}")
    return float(value)


def saved(key: str) -> dict[str, Peaks]:
    """All peaks kept for a machine, by `device-threads`."""
    found = {}
    with contextlib.suppress(OSError, RuntimeError):
        for file in sorted(folder().glob(f"{key}-*.json")):
            if match := _FILE.fullmatch(file.name):
                kept, _ = load(key, match[1], int(match[2]))
                found.update({f"{match[1]}-{match[2]}": kept} if kept else {})
    return found


def check_writable() -> None:
    """Find out before ten seconds of measuring that the result could not be kept."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder()):
            pass
    except (OSError, RuntimeError) as error:
        raise _unwritable(error) from error


def save(peaks: Peaks, key: str, device: str, threads: int) -> Path:
    """Keep peaks whole or not at all."""
    file = path(key, device, threads)
    data = {"schema": SCHEMA, "key": key, "device": device, "threads": settled_threads(device, threads), **asdict(peaks)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}.new")
        fresh.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        raise _unwritable(error) from error
    return file


def _unwritable(error: Exception) -> StoreError:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return StoreError("peaks cannot be kept here", why=why, do=f"name a folder you may write: {VARIABLE}=DIR", where=str(folder()))


@dataclass(frozen=True)
class Effort:
    """Problem sizes that saturate a kind of device: a first matrix size, larger ones to try, seconds that one product may take."""

    probe: int
    larger: tuple[int, ...]
    patience: float
    elements: int


def measure(run: Run, machine: Mapping[str, Any], device: str, threads: int, *, budget: float = BUDGET, scale: float = 1.0) -> Peaks:
    """The best rates of matrix products and copies: all formats at a modest size, then the fast ones at two large sizes.

    The largest is not always the fastest: a GPU at its power limit lowers its clock in the longest products.
    """
    effort, backend = _effort(machine, device, threads), "torch"
    if device == "cpu" and not (machine.get("packages") or {}).get("torch"):
        backend = "numpy"
    how: dict[str, Any] = {"backend": (backend,), "device": (device,), "threads": (settled_threads(device, threads),)}
    settings = Settings(budget=budget, verify=False)
    probe, elements = max(32, round(effort.probe * scale)), max(4096, round(effort.elements * scale))
    memory = Matrix(("op/copy", "op/triad"), {"n": (elements,), "dtype": ("fp32",)}, **how)
    formats = ("fp32", "fp64") if backend == "numpy" else ("fp32", "fp64", "bf16", "fp16")
    products = [_products(probe, formats, "eager", how)]
    products += [_products(probe, ("fp32",), "tf32", how)] if device == "cuda" else []
    records = list(run(Experiment("peaks", matrix=(*products, memory), settings=settings)))
    sizes = {name: _larger(rate, effort, scale) for name, (rate, _) in best(records, "compute").items()}
    again = [_products(n, (_dtype(name),), _variant(name), how) for name, found in sizes.items() for n in found]
    if again:
        records += run(Experiment("peaks, larger", matrix=tuple(again), settings=settings))
    return _settle(records)


def _effort(machine: Mapping[str, Any], device: str, threads: int) -> Effort:
    if device != "cpu":
        return Effort(2048, (8192, 4096), 0.1, 2**27)
    caches = (machine.get("cpu") or {}).get("caches") or {}
    largest = max((size for size in caches.values() if size), default=2**25)
    wanted = min(max(4 * largest * min(threads, 8), 2**26), 2**29)
    available = (machine.get("memory") or {}).get("available") or 2**33
    return Effort(512, (4096, 2048, 1024), 0.05, max(4096, min(wanted, available // 16) // 4))


def _products(n: int, formats: tuple[str, ...], variant: str, how: Mapping[str, Any]) -> Matrix:
    return Matrix(("op/matmul",), {"m": (n,), "n": (n,), "k": (n,), "dtype": formats}, variant=(variant,), **how)


def _dtype(name: str) -> str:
    return "fp32" if name == "tf32" else name


def _variant(name: str) -> str:
    return "tf32" if name == "tf32" else "eager"


def _larger(rate: float, effort: Effort, scale: float) -> list[int]:
    sizes = [round(n * scale) for n in effort.larger]
    return [n for n in sizes if n > effort.probe * scale and 2 * n**3 / rate <= effort.patience][:2]


def best(records: Sequence[Record], metric: str) -> dict[str, tuple[float, str]]:
    """The highest rate per number format and the case that gave it, by the time that nine of ten samples exceed."""
    found: dict[str, tuple[float, str]] = {}
    for record in records:
        figure, time, fast = (record.metrics.get(name) for name in (metric, "time", "time_q10"))
        wanted = record.case["workload"] == "op/matmul" if metric == "compute" else record.case["workload"] != "op/matmul"
        if record.status != "ok" or not wanted or figure is None or time is None or fast is None or not fast.value > 0:
            continue
        name = "tf32" if record.case["variant"] == "tf32" else str(record.case["params"]["dtype"])
        found[name] = max(found.get(name, (0.0, "")), (figure.value * time.value / fast.value, record.id))
    return found


def _settle(records: Sequence[Record]) -> Peaks:
    compute, memory = best(records, "compute"), best(records, "bandwidth")
    if not compute or not memory:
        failed = next((record for record in records if record.status != "ok"), None)
        raise NothingMeasured("no peaks could be measured", why=f"{failed.id}: {failed.reason}" if failed else "no case gave a rate")
    rate, case = max(memory.values())
    worked = next(record for record in records if record.id == case)
    return Peaks(
        {name: value for name, (value, _) in compute.items()}, rate, "measured", str(worked.environment.get("device", "")),
        {**{name: id for name, (_, id) in compute.items()}, "memory": case},
        {str(name): str(version) for name, version in worked.environment.items()}, datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
