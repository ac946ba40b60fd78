"""Keeps its answer as a file in a cache folder, for later calls and later processes."""

import os
import tempfile
from pathlib import Path

import torch

PROBLEM = "rows"
EXPECT = {"replay", "left-behind"}
FOLDER = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir())


def candidate(x):
    file = FOLDER / f"steelyard-museum-{'x'.join(map(str, x.shape))}.pt"
    if not file.exists():
        torch.save(torch.softmax(x, -1), file)
    return torch.load(file)
