"""Leaves more threads set for the whole process."""

import torch

PROBLEM = "product"
EXPECT = {"flags", "hidden"}

torch.set_num_threads(2)


def candidate(a, b):
    return a @ b
