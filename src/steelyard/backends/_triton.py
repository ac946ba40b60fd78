"""Loads Triton in a process that waits for a candidate: loading takes seconds and is the same for every candidate."""

from __future__ import annotations

import importlib
import os

COUNT = 64


def wake(folder: str) -> None:
    """Load Triton, its driver, which is compiled in this folder, and its compiler; if that fails, the candidate's own call reports why."""
    os.environ["TRITON_CACHE_DIR"] = folder
    importlib.import_module("triton.language")
    importlib.import_module("triton.runtime").driver.active.get_current_target()
    torch = importlib.import_module("torch")
    numbers = torch.zeros(COUNT, device="cuda")
    importlib.import_module("steelyard.backends._triton_kernel").total[(1,)](numbers, numbers, COUNT, BLOCK=COUNT)
    torch.cuda.synchronize()
