"""Facts about the NVIDIA GPUs of this host, from NVML or nvidia-smi so that no framework is imported and no context made."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from steelyard.machine.cpu import attempt
from steelyard.machine.telemetry import SLOWED

PATIENCE_S = 20.0
_MIB, _MHZ = 2**20, 10**6
_APPLICATION_CLOCKS = 0x2
_FIELDS = (
    "index",
    "name",
    "uuid",
    "memory.total",
    "driver_version",
    "persistence_mode",
    "clocks.sm",
    "clocks.max.sm",
    "clocks_throttle_reasons.active",
)


Told = list[dict[str, Any]]


def gpus() -> Told:
    """Every GPU of the host with its driver and clock state; empty if there is none, or neither NVML nor nvidia-smi."""
    return asked(_describe, _FIELDS, parse_row)


def asked(describe: Callable[[Any, int], dict[str, Any]], fields: Sequence[str], parse: Callable[[str], dict[str, Any] | None]) -> Told:
    """Facts about every GPU from NVML, or else from nvidia-smi; empty if neither works."""
    if importlib.util.find_spec("pynvml") is not None:
        found = attempt(_by_nvml, describe)
        if found is not None:
            return found
    tool = shutil.which("nvidia-smi")
    return (attempt(_by_tool, tool, fields, parse) if tool else None) or []


def _by_nvml(describe: Callable[[Any, int], dict[str, Any]]) -> Told:
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        return [describe(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


def _describe(nvml: Any, index: int) -> dict[str, Any]:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    clock = attempt(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_SM)
    highest = attempt(nvml.nvmlDeviceGetMaxClockInfo, device, nvml.NVML_CLOCK_SM)
    said = {
        "index": index,
        "name": _text(nvml.nvmlDeviceGetName(device)),
        "uuid": attempt(lambda: _text(nvml.nvmlDeviceGetUUID(device))),
        "memory": attempt(lambda: int(nvml.nvmlDeviceGetMemoryInfo(device).total)),
        "driver": _text(nvml.nvmlSystemGetDriverVersion()),
        "persistence": attempt(lambda: bool(nvml.nvmlDeviceGetPersistenceMode(device))),
    }
    return said | _clocks(clock, highest, attempt(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device))


def _by_tool(tool: str, fields: Sequence[str], parse: Callable[[str], dict[str, Any] | None]) -> Told:
    query = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    said = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, stdin=subprocess.DEVNULL, check=True)
    return [row for row in map(parse, said.stdout.splitlines()) if row]


def parse_row(line: str) -> dict[str, Any] | None:
    """One line of nvidia-smi's CSV; a field without a value is bracketed text and becomes null."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_FIELDS) or not cells[0].isdigit():
        return None
    index, name, uuid, memory, driver, persistence, clock, highest, reasons = cells
    said = {
        "index": int(index),
        "name": name,
        "uuid": uuid if uuid.startswith("GPU-") else None,
        "memory": attempt(lambda: int(memory) * _MIB),
        "driver": driver,
        "persistence": {"Enabled": True, "Disabled": False}.get(persistence),
    }
    return said | _clocks(attempt(int, clock), attempt(int, highest), attempt(int, reasons, 16))


def _clocks(clock: int | None, highest: int | None, reasons: int | None) -> dict[str, Any]:
    return {
        "clock_hz": None if clock is None else clock * _MHZ,
        "clock_max_hz": None if highest is None else highest * _MHZ,
        "clocks_set": None if reasons is None else bool(reasons & _APPLICATION_CLOCKS),
        "slowed": None if reasons is None else [name for bit, name in SLOWED.items() if reasons & bit],
    }


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
