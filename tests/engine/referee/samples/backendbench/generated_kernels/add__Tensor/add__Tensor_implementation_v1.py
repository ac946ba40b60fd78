"""A candidate for addition."""

import torch


def add__Tensor_kernel_impl(*args, **kwargs):
    return torch.add(*args, **kwargs)
