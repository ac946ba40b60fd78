"""A way of running any task, and a figure of your own.

steelyard run variant_and_metric.py op/gelu -V eager,inference --vs eager
"""

from dataclasses import replace

from steelyard import metric, variant


@variant("inference", backends=["torch"])
def inference(task):
    """The task under torch.inference_mode, which keeps no record for a backward pass."""
    import torch

    return replace(task, scope=torch.inference_mode)


@metric("cost", unit="s/GB", better="lower")
def cost(seconds, task):
    """Seconds for each gigabyte that the task moves; None where it does not say how much that is."""
    return seconds / (task.bytes / 1e9) if task.bytes else None
