"""Leaves TF32 allowed for the whole process."""

import torch

PROBLEM = "product"
EXPECT = {"precision", "flags"}
torch.set_float32_matmul_precision("high")


def candidate(a, b):
    return a @ b
