"""The memory use of this process as the kernel reports it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from steelyard.errors import Unsupported


def library_memory() -> float:
    """Return the bytes of this process that are pages of program files; they grow whenever code first runs, in any case."""
    total, counted = 0.0, False
    with contextlib.suppress(OSError), Path("/proc/self/smaps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split()
            if not words[0].endswith(":"):
                counted = len(words) > 5 and ("x" in words[1] or ".so" in words[5])
            elif counted and words[0] == "Rss:":
                total += float(words[1]) * 1024
            elif counted and words[0] == "Anonymous:":
                total -= float(words[1]) * 1024
    return total


def own_memory(name: str) -> float:
    """Return this process's memory in bytes: now for VmRSS, at its peak for VmHWM."""
    status = Path("/proc/self/status")
    if not status.is_file():
        raise Unsupported("peak memory is read from /proc, which this system does not have", do="measure it on Linux")
    for line in status.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024
    return 0.0


def host_memory() -> dict[str, float]:
    """Return this process's peak memory (VmHWM), present memory (VmRSS) and pages of files (RssFile); empty without /proc."""
    return {name: own_memory(name) for name in ("VmHWM", "VmRSS", "RssFile")} if Path("/proc/self/status").is_file() else {}
