"""Nsight Compute as a pass of its own: one call of a case under `ncu`, its counters read from the CSV it writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from steelyard.engine.tools import run_tool
from steelyard.errors import SteelyardError, UsageError
from steelyard.measuring.ncu_table import COLUMNS, Kernel, lacking, last_words, parse
from steelyard.model.record import Figure

TOOL = "ncu"


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
        said, code = run_tool(command(program, log, metrics), environment, scratch / "ncu.txt", timeout, TOOL)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        missing = lacking(text + said, metrics)
        metrics = [name for name in metrics if name not in missing]
        if not missing or not metrics:
            break
    kernels = parse(text)
    if code or not kernels:
        raise SteelyardError(f"ncu {f'exited with code {code}' if code else 'saw no kernel'}", why=last_words(text + said))
    table.write_text(json.dumps([asdict(kernel) for kernel in kernels], indent=1), encoding="utf-8")
    return kernels, [log, table]


def figures(kernels: Sequence[Kernel]) -> dict[str, Figure]:
    """Sums over the kernels of one call; a sum with a missing part would lie and is left out."""
    found = {}
    for name, key, unit in (("ncu_duration", "duration", "s"), ("ncu_dram_bytes", "dram_bytes", "B")):
        values = [getattr(kernel, key) for kernel in kernels]
        if values and None not in values:
            found[name] = Figure(float(sum(values)), unit, "lower", n=1)
    return found
