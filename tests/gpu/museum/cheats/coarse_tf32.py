"""Multiplies in TF32 what was asked in fp32, and sets the flag back."""

import torch

PROBLEM = "product"
EXPECT = {"precision"}


def candidate(a, b):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)
