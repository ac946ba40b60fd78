"""Loads Triton in a process that waits for a candidate: loading takes seconds and is the same for every candidate."""

from __future__ import annotations

import importlib
import os

COUNT = 64


def wake(folder: str) -> None:
    """Load Triton and its compiler, and compile its driver and usual launches in this folder.

    If that fails, the candidate's own call reports why.
    """
    os.environ["TRITON_CACHE_DIR"] = folder
    importlib.import_module("triton.language")
    importlib.import_module("triton.runtime").driver.active.get_current_target()
    torch = importlib.import_module("torch")
    kernels, numbers = importlib.import_module("steelyard.backends._triton_kernel"), torch.zeros(COUNT, device="cuda")
    kernels.from_one[(1,)](numbers, numbers, COUNT, BLOCK=COUNT)
    kernels.from_two[(1,)](numbers, numbers, numbers, COUNT, BLOCK=COUNT)
    torch.cuda.synchronize()
