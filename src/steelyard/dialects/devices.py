"""Facts about devices without asking a framework: whether there is one of a kind, and what it is called."""

from __future__ import annotations

import platform
from collections.abc import Collection
from pathlib import Path

from steelyard.machine import cpu
from steelyard.machine.nvidia import gpus

NODES = {"cuda": "nvidiactl", "xpu": "dri", "mps": "no such device on Linux"}


def has_device(device: str) -> bool:
    """Whether there is such a device, judged from system files."""
    return device not in NODES or (Path("/dev") / NODES[device]).exists()


def arches(devices: Collection[str]) -> dict[str, str]:
    """The names of devices by kind: of the CPU what Python knows, or the kernel, as the former is often nothing."""
    names = [str(gpu["name"]) for gpu in gpus() if gpu.get("name")] if "cuda" in devices else []
    return {"cpu": platform.processor() or cpu.model(cpu.cpuinfo(Path("/"))) or "unknown", "cuda": names[0] if names else "unknown"}
