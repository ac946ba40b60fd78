"""Keeps a process with all its threads on the CPUs that its user chose, so that any framework computes only there."""

from __future__ import annotations

import os
from pathlib import Path

from steelyard.errors import Unsupported

CPUS = "STEELYARD_CPUS"
"""The variable that names the CPUs: `0,1`."""


def bind() -> None:
    """Keep this process on the CPUs that the variable names, with its present and later threads; do nothing without the variable."""
    if not (cpus := os.environ.get(CPUS, "")):
        return
    try:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {int(word) for word in cpus.split(",")})
    except (ValueError, OSError, OverflowError, AttributeError) as error:
        why = f"this process may use {here()}"
        raise Unsupported(f"{CPUS}={cpus} names no usable CPUs", why=why, do="name some of these, such as 0,1") from error


def here() -> str:
    """The CPUs that this process may use."""
    return str(sorted(os.sched_getaffinity(0)))[1:-1] if hasattr(os, "sched_getaffinity") else "this system does not support choosing CPUs"


def told() -> dict[str, str]:
    """The facts for a record; empty if no CPUs were chosen."""
    return {"cpus": here()} if os.environ.get(CPUS) else {}
