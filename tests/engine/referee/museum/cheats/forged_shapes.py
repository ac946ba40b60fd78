"""Has the harness say what none says, so that the judge stumbles over it and the next candidates with it."""

import sys

import torch

PROBLEM = "rows"
EXPECT = {"forged"}

if module := sys.modules.get("steelyard.engine.referee.stand"):
    module.Stand.state = lambda self: {"changed": [[None]], "answers_checked": 1000}


def candidate(x):
    return torch.softmax(x, -1)
