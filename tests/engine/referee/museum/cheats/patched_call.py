"""Replaces whatever holds this function in the harness, so that later calls compute nothing."""

import gc

import torch

PROBLEM = "rows"
EXPECT = {"replay", "wrong", "failed", "crashed"}


def candidate(x):
    answer = torch.softmax(x, -1)
    own = candidate
    for holder in gc.get_referrers(own):
        if isinstance(holder, dict):
            holder.update({key: lambda *args: answer for key, value in holder.items() if value is own})
        elif getattr(holder, "fn", None) is own:
            holder.fn = lambda *args: answer
    return answer
