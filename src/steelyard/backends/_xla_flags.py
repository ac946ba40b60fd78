"""XLA's flags: an unknown one ends the process that reads it, so another process reads them first."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys

from steelyard.errors import Unsupported

VARIABLE = "XLA_FLAGS"
_TRIAL = "from jaxlib import xla_client; xla_client.make_cpu_client()"
_UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS:\s*(.*)")
PATIENCE = 120.0


def check() -> None:
    """Raise for flags that this XLA does not know; they would end the process, and every case after this one with it."""
    if text := os.environ.get(VARIABLE, "").strip():
        why = _refusal(text)
        if why:
            raise Unsupported(f"this XLA refuses {VARIABLE}={text}", why=why, do="leave it out, or name an environment whose XLA knows it")


@functools.cache
def _refusal(text: str) -> str:
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=PATIENCE, env=os.environ | {VARIABLE: text}
        )
    except subprocess.TimeoutExpired:
        return "a process that read them did not answer"
    if tried.returncode == 0:
        return ""
    if found := _UNKNOWN.search(tried.stderr):
        return f"unknown: {found[1].strip()}"
    lines = [line for line in tried.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"a process that read them ended with {tried.returncode}"
