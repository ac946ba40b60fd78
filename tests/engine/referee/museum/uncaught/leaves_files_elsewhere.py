"""Writes a file outside of its own folders, which stays when it is gone."""

from pathlib import Path

import torch

PROBLEM = "rows"
FILE = Path("/dev/shm/steelyard-museum-seen")


def candidate(x):
    if not FILE.exists():
        FILE.write_text("seen", encoding="ascii")
    return torch.softmax(x, -1)
