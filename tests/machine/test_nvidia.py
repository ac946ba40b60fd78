"""GPUs as nvidia-smi prints them, with a stand-in program on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.machine import nvidia

H200 = "0, NVIDIA H200, GPU-1b2c, 143771, 580.159.03, Enabled, 345, 1980, 0x0000000000000001"


def test_a_row() -> None:
    assert nvidia.parse_row(H200) == {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-1b2c",
        "memory": 143771 * 2**20,
        "driver": "580.159.03",
        "persistence": True,
        "clock_hz": 345_000_000,
        "clock_max_hz": 1_980_000_000,
        "clocks_set": False,
        "slowed": [],
    }


def test_unanswered_fields_are_null_and_a_slowdown_is_named() -> None:
    row = nvidia.parse_row("1, NVIDIA GB10, GPU-9, [N/A], 580.1, [Not Supported], 1200, [N/A], 0x0000000000000062")
    assert row and row["memory"] is row["persistence"] is row["clock_max_hz"] is None
    assert row["clocks_set"] is True and row["slowed"] == ["heat", "heat (hardware)"]
    assert nvidia.parse_row("Unable to determine the device handle") is None


@pytest.mark.parametrize(
    ("script", "count"), [(f"echo '{H200}'; echo 'a warning'", 1), ("echo broken >&2; exit 9", 0), ("echo No devices were found", 0)]
)
def test_the_tool_is_asked_where_nvml_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, count: int) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    (tmp_path / "pynvml.py").write_text("raise OSError('no driver')\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.syspath_prepend(tmp_path)
    assert len(nvidia.gpus()) == count
