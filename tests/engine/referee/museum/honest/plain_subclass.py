"""Returns a tensor of a class of its own that holds its memory and changes nothing."""

import torch

PROBLEM = "rows"


class Named(torch.Tensor):
    """A tensor with a name."""

    name = "rows"


def candidate(x):
    return torch.softmax(x, -1).as_subclass(Named)
