"""Replaces whatever holds this function in the harness, so that later calls compute nothing."""

import gc

import torch

PROBLEM = "rows"
EXPECT = {"replay", "wrong", "failed", "crashed"}


def candidate(x):
    answer = torch.softmax(x, -1)
    for holder in gc.get_referrers(candidate):
        if isinstance(holder, dict):
            for key, value in list(holder.items()):
                if value is candidate:
                    holder[key] = lambda *args: answer
    for cell in gc.get_objects():
        if type(cell).__name__ == "cell" and getattr(cell, "cell_contents", None) is candidate:
            cell.cell_contents = lambda *args: answer
    return answer
