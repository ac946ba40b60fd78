"""Settings of the NVIDIA GPUs of this host and what uses them now; only for the doctor, runs do not record them."""

from __future__ import annotations

import os
from typing import Any

from steelyard.machine.cpu import attempt
from steelyard.machine.nvidia import Told, asked

_MHZ = 10**6
_FIELDS = (
    "index",
    "clocks.applications.graphics",
    "clocks.default_applications.graphics",
    "power.limit",
    "power.default_limit",
    "utilization.gpu",
)


def ask() -> Told:
    """Every GPU's settings; empty if the driver does not answer."""
    return asked(_settings, _FIELDS, parse_row)


def _settings(nvml: Any, index: int) -> dict[str, Any]:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    kind = nvml.NVML_CLOCK_GRAPHICS
    return {
        "index": index,
        "applied_hz": attempt(lambda: nvml.nvmlDeviceGetApplicationsClock(device, kind) * _MHZ),
        "applied_default_hz": attempt(lambda: nvml.nvmlDeviceGetDefaultApplicationsClock(device, kind) * _MHZ),
        "boost": attempt(lambda: bool(nvml.nvmlDeviceGetAutoBoostedClocksEnabled(device)[0])),
        "power_limit": attempt(lambda: nvml.nvmlDeviceGetPowerManagementLimit(device) * 1e-3),
        "power_default": attempt(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(device) * 1e-3),
        "busy": attempt(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu * 0.01),
        "processes": attempt(lambda: _others(nvml.nvmlDeviceGetComputeRunningProcesses(device))),
    }


def _others(processes: list[Any]) -> int:
    return len({process.pid for process in processes} - {os.getpid()})


def parse_row(line: str) -> dict[str, Any] | None:
    """One line of nvidia-smi's CSV; a field without a value is bracketed text and becomes null, like facts that it never reports."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_FIELDS) or not cells[0].isdigit():
        return None
    applied, delivered, limit, usual, busy = (attempt(float, cell) for cell in cells[1:])
    return {
        "index": int(cells[0]),
        "applied_hz": None if applied is None else applied * _MHZ,
        "applied_default_hz": None if delivered is None else delivered * _MHZ,
        "boost": None,
        "power_limit": limit,
        "power_default": usual,
        "busy": None if busy is None else busy * 0.01,
        "processes": None,
    }
