"""Replaces functions of the harness that are loaded in its process by ones that do nothing and find nothing wrong."""

import sys
import types

import torch

PROBLEM = "rows"
EXPECT = {"wrong", "failed", "crashed", "forged", "stale"}
FIRST = "wrong"

for name, module in list(sys.modules.items()):
    if name.startswith("steelyard.engine.referee"):
        for key, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and key.lstrip("_").startswith(
                ("check", "verif", "compare", "time", "fill", "poison")
            ):
                setattr(module, key, lambda *args, **kwargs: None)


def candidate(x):
    return torch.empty_like(x)
