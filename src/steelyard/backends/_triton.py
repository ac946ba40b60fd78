"""Triton in a process that waits for a candidate: what takes seconds is done before it is known which one comes."""

from __future__ import annotations

import importlib
import os


def wake(folder: str) -> None:
    """Load Triton and its driver, which is compiled in this folder; where that fails, the candidate's own call tells why."""
    os.environ["TRITON_CACHE_DIR"] = folder
    importlib.import_module("triton.language")
    importlib.import_module("triton.runtime").driver.active.get_current_target()
