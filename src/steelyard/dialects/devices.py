"""Facts about devices, found without loading a framework: whether one of a kind exists, and its name."""

from __future__ import annotations

import platform
from collections.abc import Collection
from pathlib import Path

from steelyard.machine import cpu
from steelyard.machine.nvidia import gpus

NODES = {"cuda": "nvidiactl", "xpu": "dri", "mps": "no such device on Linux"}


def has_device(device: str) -> bool:
    """Whether this machine has such a device, judged from files in /dev; kinds that need no file there, such as cpu, always exist."""
    return device not in NODES or (Path("/dev") / NODES[device]).exists()


def arches(devices: Collection[str]) -> dict[str, str]:
    """Return the names of the CPU and the first GPU; the CPU's is from the kernel if Python does not know it, as is common."""
    names = [str(gpu["name"]) for gpu in gpus() if gpu.get("name")] if "cuda" in devices else []
    return {"cpu": platform.processor() or cpu.model(cpu.cpuinfo(Path("/"))) or "unknown", "cuda": names[0] if names else "unknown"}
