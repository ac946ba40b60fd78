"""Leaves coarser products allowed for the whole process."""

import torch

PROBLEM = "product"
EXPECT = {"flags"}


def candidate(a, b):
    torch.set_float32_matmul_precision("medium")
    return a @ b
