"""A KernelBench model that draws weights of its own and fewer of them."""

from torch import nn

PROBLEM = "kernelbench_mlp"
EXPECT = {"wrong", "failed"}
FIRST = "wrong"


class ModelNew(nn.Module):
    """One layer in place of two."""

    def __init__(self, width, hidden):
        super().__init__()
        self.only = nn.Linear(width, width)

    def forward(self, x):
        return self.only(x)
