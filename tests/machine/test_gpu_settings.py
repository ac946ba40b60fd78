"""How GPUs are set, as a stand-in for NVML answers it and as nvidia-smi prints it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from steelyard.machine.doctor import settings

ROW = "0, 1200, 1980, 350.00, 700.00, 37"
NVML = """
import os
from types import SimpleNamespace

NVML_CLOCK_GRAPHICS = 0
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetApplicationsClock = lambda device, kind: 1200
nvmlDeviceGetDefaultApplicationsClock = lambda device, kind: 1980
nvmlDeviceGetPowerManagementLimit = lambda device: 350_000
nvmlDeviceGetPowerManagementDefaultLimit = lambda device: 700_000
nvmlDeviceGetUtilizationRates = lambda device: SimpleNamespace(gpu=37)
nvmlDeviceGetComputeRunningProcesses = lambda device: [SimpleNamespace(pid=pid) for pid in (os.getpid(), 1, 1)]

def nvmlDeviceGetAutoBoostedClocksEnabled(device):
    raise OSError("Not Supported")
"""


def test_what_nvml_answers_is_in_si_units_and_what_it_refuses_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    (found,) = settings.ask()
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert found == {**settings.parse_row(ROW), "processes": 1, "boost": None}  # type: ignore[dict-item]


def test_a_row_of_the_tool() -> None:
    found = settings.parse_row(ROW)
    assert found is not None
    assert (found["applied_hz"], found["applied_default_hz"]) == (1200e6, 1980e6)
    assert (found["power_limit"], found["power_default"], found["busy"]) == (350.0, 700.0, pytest.approx(0.37))
    unanswered = settings.parse_row("1, [N/A], [N/A], [N/A], [N/A], [Not Supported]")
    assert unanswered == {**dict.fromkeys(found), "index": 1}
    assert settings.parse_row("No devices were found") is None
