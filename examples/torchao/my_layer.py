"""A layer and a recipe of your own for TorchAO's configs: `model_type: my_mlp`, and `packed` among the recipes."""

from dataclasses import replace

from steelyard import Task, workload


@workload("torchao/my_mlp", axes={"m": [64], "k": [64], "n": [64], "dtype": ["bf16"]})
def my_mlp(m, k, n, dtype, be):
    """Two linear layers with relu between them: m rows, k features in, n features out."""
    import torch

    weights = be.randn(128, k, dtype=dtype), be.randn(n, 128, dtype=dtype)

    def forward(x, first, second):
        return torch.nn.functional.linear(torch.relu(torch.nn.functional.linear(x, first)), second)

    return Task(forward, (be.randn(m, k, dtype=dtype), *weights))


@my_mlp.variant("packed")
def packed(task):
    """The weights laid out once as the product reads them."""
    import torch

    x, *weights = task.args
    return replace(task, fn=lambda x, first, second: torch.relu(x @ first) @ second, args=(x, *(w.t().contiguous() for w in weights)))
