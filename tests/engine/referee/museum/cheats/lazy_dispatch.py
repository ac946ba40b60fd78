"""Returns a wrapper without memory of its own, which computes at its first operation."""

import torch
from torch.utils._pytree import tree_map

PROBLEM = "rows"
EXPECT = {"lazy"}


class Wrapper(torch.Tensor):
    """A shape and a promise."""

    @staticmethod
    def __new__(cls, given):
        return torch.Tensor._make_wrapper_subclass(cls, given.shape, dtype=given.dtype)

    def __init__(self, given):
        self.given = given

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = tree_map(lambda value: torch.softmax(value.given, -1) if isinstance(value, cls) else value, args)
        return func(*args, **(kwargs or {}))


def candidate(x):
    return Wrapper(x)
