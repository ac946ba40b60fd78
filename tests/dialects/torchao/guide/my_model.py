"""What the guide has its readers add to TorchAO's models, as a file of the user's."""

import torch

from steelyard import register_model


class MyCustomModel(torch.nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, input_dim, output_dim, dtype=torch.bfloat16):
        super().__init__()
        self.layer1 = torch.nn.Linear(input_dim, 512, bias=False).to(dtype)
        self.activation = torch.nn.ReLU()
        self.layer2 = torch.nn.Linear(512, output_dim, bias=False).to(dtype)

    def forward(self, x):
        """One pass."""
        return self.layer2(self.activation(self.layer1(x)))


@register_model("my_custom_model")
def my_custom_model(m, k, n, dtype, device):
    """The model, and its input of m rows."""
    return MyCustomModel(k, n, dtype).to(device), torch.randn(m, k, device=device, dtype=dtype)
