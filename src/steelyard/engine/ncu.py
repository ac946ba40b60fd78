"""Nsight Compute as a pass of its own: one call of a case under `ncu`, its counters read from the CSV it writes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from steelyard.engine.process import die_with_parent, end_tree
from steelyard.errors import SteelyardError, UsageError
from steelyard.model.record import Figure
from steelyard.model.units import plain as quantity

TOOL = "ncu"
COLUMNS = {
    "duration": "gpu__time_duration.sum",
    "dram_bytes": "dram__bytes.sum",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
}
UNITS = {
    "ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0,
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12, "%": 0.01,
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One kernel of the profiled call in seconds, bytes and shares; None where this device has no such counter."""

    name: str
    duration: float | None
    dram_bytes: float | None
    occupancy: float | None
    tensor: float | None


def check(devices: Sequence[str]) -> None:
    """Say before anything is timed that the pass cannot be had."""
    if shutil.which(TOOL) is None:
        raise UsageError(
            "--ncu needs Nsight Compute, and no 'ncu' is on PATH",
            why="it comes with the CUDA toolkit", do="add its folder to PATH (often /usr/local/cuda/bin), or leave --ncu out",
        )  # fmt: skip
    if "cuda" not in devices:
        raise UsageError("--ncu looks at NVIDIA GPUs, and no case runs on one", do="add -d cuda, or leave --ncu out")


def command(program: Sequence[str], log: Path, metrics: Sequence[str]) -> list[str]:
    """How ncu is called: clocks as they were for the timing, and only the kernels between profiler start and stop."""
    return [
        TOOL, "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(metrics), "--log-file", str(log), *program,
    ]  # fmt: skip


def run(program: Sequence[str], environment: Mapping[str, str], scratch: Path, timeout: float) -> tuple[list[Kernel], list[Path]]:
    """Kernels of one call and the files that hold them; a counter that this device does not have is left out."""
    log, table, metrics = scratch / "ncu.csv", scratch / "ncu.json", list(COLUMNS.values())
    for _ in range(len(metrics)):
        said, code = _start(command(program, log, metrics), environment, scratch / "ncu.txt", timeout)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        lacking = [name for name in metrics if re.search(rf"Failed to find metric.*{re.escape(name)}", text + said)]
        metrics = [name for name in metrics if name not in lacking]
        if not lacking or not metrics:
            break
    kernels = parse(text)
    if code or not kernels:
        raise SteelyardError(f"ncu {f'exited with code {code}' if code else 'saw no kernel'}", why=_last_words(text + said))
    table.write_text(json.dumps([asdict(kernel) for kernel in kernels], indent=1), encoding="utf-8")
    return kernels, [log, table]


def _start(argv: Sequence[str], environment: Mapping[str, str], output: Path, timeout: float) -> tuple[str, int]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment), start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            code = process.wait(timeout)
        except BaseException as error:
            end_tree(process.pid, itself=True)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise SteelyardError(f"ncu did not end within {quantity(timeout, 's')}", do="give it a longer --timeout") from None
            raise
    return output.read_text(encoding="utf-8", errors="replace"), code


def _last_words(text: str) -> str:
    """ncu's own errors if it said any, else the last lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return "; ".join(errors[:3] or lines[-3:])[:500]


def parse(text: str) -> list[Kernel]:
    """The rows of a raw CSV page: a line of names, a line of units, then one line per kernel, between lines that ncu says."""
    rows = csv.reader(io.StringIO("\n".join(_table_lines(text))))
    names, units = next(rows, []), next(rows, [])
    factors = [UNITS.get(unit.strip().lower(), 1.0) for unit in units]
    found = []
    for row in rows:
        if len(row) == len(names):
            values = {
                key: _number(row[names.index(column)], factors[names.index(column)]) if column in names else None
                for key, column in COLUMNS.items()
            }
            found.append(Kernel(name=row[names.index("Kernel Name")], **values))
    return found


def _table_lines(text: str) -> Iterator[str]:
    begun = False
    for line in text.splitlines():
        begun = begun or line.startswith('"ID"')
        if begun and not line.startswith("==") and line.strip():
            yield line


def _number(text: str, factor: float) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value * factor if math.isfinite(value) else None


def figures(kernels: Sequence[Kernel]) -> dict[str, Figure]:
    """Sums over the kernels of one call; a sum with a missing part would lie and is left out."""
    found = {}
    for name, key, unit in (("ncu_duration", "duration", "s"), ("ncu_dram_bytes", "dram_bytes", "B")):
        values = [getattr(kernel, key) for kernel in kernels]
        if values and None not in values:
            found[name] = Figure(float(sum(values)), unit, "lower", n=1)
    return found
