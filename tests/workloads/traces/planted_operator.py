"""An operator of a library of its own that takes as long as a test wants."""

from __future__ import annotations

from typing import Any

import torch

SCHEMA = "planted::turns(Tensor x) -> Tensor"
EXTRA = {"turns": 0}
TURNS = 100
LIBRARY = torch.library.Library("planted", "FRAGMENT")
LIBRARY.define("turns(Tensor x) -> Tensor")


def turns(x: Any) -> Any:
    """So many products, and the extra ones."""
    for _ in range(TURNS + EXTRA["turns"]):
        x = x @ x
    return x


LIBRARY.impl("turns", turns, "CPU")
