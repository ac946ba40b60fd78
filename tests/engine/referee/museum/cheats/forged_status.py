"""Has the harness say of itself that all is well, in the middle of its trial."""

import sys

import torch

PROBLEM = "rows"
EXPECT = {"forged"}
FIRST = "wrong"

if module := sys.modules.get("steelyard.engine.referee.stand"):
    module.Stand.call = lambda self: {"status": "ok", "reason": "", "correct": True}


def candidate(x):
    return torch.empty_like(x)
