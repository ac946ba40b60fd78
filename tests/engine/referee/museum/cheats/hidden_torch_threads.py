"""Gives the library more threads while it is called, and takes them away again."""

import torch

PROBLEM = "product"
EXPECT = {"hidden", "harmless"}


def candidate(a, b):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return a @ b
    finally:
        torch.set_num_threads(before)
