"""Loads Triton in a process that waits for a candidate: loading takes seconds and is the same for every candidate."""

from __future__ import annotations

import importlib
import os


def wake(folder: str) -> None:
    """Load Triton and its driver, which is compiled in this folder; if that fails, the candidate's own call reports why."""
    os.environ["TRITON_CACHE_DIR"] = folder
    importlib.import_module("triton.language")
    importlib.import_module("triton.runtime").driver.active.get_current_target()
