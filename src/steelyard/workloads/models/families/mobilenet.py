"""MobileNetV3-small in PyTorch: the example model of OpenXLA's suite."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, picture, pixels

EPS = 1e-3
STEP = 8
SQUEEZE = 4
LAYERS = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip
"""Kernel, channels between, channels after, whether channels are weighted by their means, whether hard swish, stride."""
FIRST, LAST = 16, 1024


@dataclass(frozen=True)
class MobileSizes:
    """Sizes of the model: a factor for the channels, pixels at a side, classes; and the gain at which its answers differ between images."""

    width: float = 1.0
    image: int = 224
    classes: int = 1000
    gain: float = 1.62


MODELS = {"mobilenet_v3_small": {"tiny": MobileSizes(0.25, 32, 10, 1.75), "small": MobileSizes(0.5, 96, 100, 1.6), "full": MobileSizes()}}


def create_model(
    framework: str = "pytorch", batch_size: int = 1, data_type: str = "fp32", model_name: str = "mobilenet_v3_small", preset: str = "full"
) -> Any:
    """The classifier, which returns the scores of the classes."""
    sizes = chosen(MODELS, model_name, preset, batch_size)

    def prepare(image: Array) -> tuple[Array, ...]:
        return (pixels(image, sizes.image, batch_size),)

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, **asdict(sizes)}
    draft = Draft(picture(), prepare, effective, data_type, sizes.gain)

    def in_torch() -> Any:
        from steelyard.workloads.models.families._torch import torch_model

        return torch_model(draft, mobile_network(sizes.width, sizes.classes))

    return choose(framework, {"pytorch": in_torch}, "MobileNetV3")


def divisible(channels: float) -> int:
    """The nearest multiple of 8, but not less than nine tenths of what was asked for."""
    near = max(STEP, int(channels + STEP / 2) // STEP * STEP)
    return near + STEP if near < 0.9 * channels else near


def mobile_network(width: float, classes: int) -> Any:
    """Inverted residuals: wider in the middle than at both ends, with a depthwise convolution there."""
    import torch.nn.functional as F
    from torch import nn

    def layer(channels: int, filters: int, kernel: int = 1, stride: int = 1, groups: int = 1, activation: Any = None) -> Any:
        made = [nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(filters, EPS)]
        return nn.Sequential(*made, *([activation()] if activation else []))

    class Weighted(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            inner = divisible(channels / SQUEEZE)
            self.shrink, self.grow = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

        def forward(self, x: Array) -> Array:
            return x * F.hardsigmoid(self.grow(F.relu(self.shrink(F.adaptive_avg_pool2d(x, 1)))))

    class Inverted(nn.Module):
        def __init__(self, channels: int, kernel: int, inner: int, out: int, weighted: bool, swish: bool, stride: int) -> None:
            super().__init__()
            activation = nn.Hardswish if swish else nn.ReLU
            made = [layer(channels, inner, activation=activation)] if inner != channels else []
            made.append(layer(inner, inner, kernel, stride, inner, activation))
            self.branch = nn.Sequential(*made, *([Weighted(inner)] if weighted else []), layer(inner, out))
            self.adds = stride == 1 and channels == out

        def forward(self, x: Array) -> Array:
            return x + self.branch(x) if self.adds else self.branch(x)

    channels = divisible(FIRST * width)
    made = [layer(3, channels, 3, 2, activation=nn.Hardswish)]
    for kernel, inner, out, weighted, swish, stride in LAYERS:
        made.append(Inverted(channels, kernel, divisible(inner * width), divisible(out * width), weighted, swish, stride))
        channels = divisible(out * width)
    made.append(layer(channels, 6 * channels, activation=nn.Hardswish))
    last = divisible(LAST * width)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * channels, last), nn.Hardswish(), nn.Linear(last, classes)]
    return nn.Sequential(*made, *head)
