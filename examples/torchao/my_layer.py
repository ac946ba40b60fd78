"""A layer and a recipe of your own for TorchAO's configs: `model_type: my_mlp`, and `rounded-6` among the recipes."""

import torch

from steelyard import register_model, register_recipe


@register_model("my_mlp")
def my_mlp(m, k, n, dtype, device):
    """Two linear layers with relu between them: m rows, k features in, n features out."""
    model = torch.nn.Sequential(torch.nn.Linear(k, 512, bias=False), torch.nn.ReLU(), torch.nn.Linear(512, n, bias=False))
    return model.to(device, dtype), torch.randn(m, k, device=device, dtype=dtype)


@register_recipe("rounded", params={"bits": 8})
def rounded(bits=8):
    """Every weight rounded to a grid of 2**bits steps; a config of torchao's could be returned instead."""

    def change(model):
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                step = layer.weight.abs().max() / 2 ** (bits - 1)
                layer.weight.data = (layer.weight / step).round() * step

    return change
