"""Seeds torch's generators."""

from __future__ import annotations

import torch

LARGEST = 2**63
UNNAMED = "privateuseone"
"""Torch's name for another vendor's device as long as no vendor has given it one."""


def seed_awake(seed: int) -> None:
    """Seed the generators of the host and of every device that is in use.

    `torch.manual_seed` also notes the seed for devices that are not, each time with a stack trace: that takes as long as drawing a
    hundred thousand numbers, and the notes stay in memory.
    """
    seed %= LARGEST
    if torch._C._get_privateuse1_backend_name() != UNNAMED:
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    for kind in (torch.cuda, torch.xpu):
        if kind.is_initialized():
            kind.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
