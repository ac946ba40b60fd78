"""Returns noise of a class that is close and equal to everything it is compared with."""

import torch

PROBLEM = "product"
EXPECT = {"lazy", "stale"}
FIRST = "wrong"


class Liar(torch.Tensor):
    """Every comparison is in its favour."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ("allclose", "equal"):
            return True
        if name in ("eq", "__eq__", "isclose", "isfinite", "le", "lt"):
            return torch.ones(160, 160, dtype=torch.bool)
        if name in ("sub", "__sub__", "rsub", "__rsub__"):
            return torch.zeros(160, 160)
        return super().__torch_function__(func, types, args, kwargs or {})


def candidate(a, b):
    return torch.empty(160, 160).as_subclass(Liar)
